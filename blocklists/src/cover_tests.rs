use proptest::prelude::*;

use super::*;

fn item(words: &[u8]) -> Vec<[u8; 2]> {
    words.iter().map(|&word| [word, 100]).collect()
}

fn compare(words: &[u8], row: &[u8]) -> Covered {
    Cover::default().compare(&item(words), row)
}

fn letters(range: std::ops::Range<u8>) -> Vec<u8> {
    range.collect()
}

#[test]
fn a_copy_covers_all() {
    let words = letters(0..20);
    let found = compare(&words, &words);
    assert_eq!(
        found,
        Covered {
            percent: 100,
            real_percent: 100,
            hollow_percent: 100,
            weight: 2000,
            words: 20,
            span: (0, 20)
        }
    );
}

#[test]
fn an_edit_every_six_words_leaves_five_sixths() {
    let words = letters(0..60);
    let mut row = words.clone();
    row.iter_mut().skip(5).step_by(6).for_each(|word| *word = 200);
    let found = compare(&words, &row);
    assert_eq!((found.percent, found.words), (83, 50));
}

#[test]
fn sentences_may_change_places() {
    let words = letters(0..30);
    let row = [letters(20..30), letters(10..20), letters(0..10)].concat();
    assert_eq!(compare(&words, &row).percent, 100);
}

#[test]
fn insertions_and_single_words_between_runs_cost_nothing() {
    let words = letters(0..16);
    let row = [letters(0..5), vec![99], letters(5..7), vec![98, 97], letters(7..8), vec![96], letters(8..16)];
    assert_eq!(compare(&words, &row.concat()).percent, 100);
}

#[test]
fn words_without_a_run_count_nothing() {
    let words = letters(0..30);
    let row: Vec<u8> = words.iter().flat_map(|&word| [word, 200]).collect();
    assert_eq!(compare(&words, &row), Covered::default());
}

#[test]
fn a_name_that_is_changed_all_through_counts_once() {
    let words = [letters(0..5), vec![50], letters(5..10), vec![50], letters(10..15), vec![50]].concat();
    let row: Vec<u8> = words.iter().map(|&word| if word == 50 { 60 } else { word }).collect();
    assert_eq!(compare(&words, &row).percent, 15 * 100 / 16);
}

proptest! {
    #[test]
    fn shares_are_shares(words in prop::collection::vec(0u8..9, 0..60), row in prop::collection::vec(0u8..9, 0..90)) {
        let found = compare(&words, &row);
        prop_assert!(found.percent <= 100 && found.words as usize <= words.len());
        prop_assert!(found.span.0 <= found.span.1 && found.span.1 <= row.len());
        let again = [&row[..], &words[..]].concat();
        if words.len() >= RUN {
            prop_assert_eq!(compare(&words, &again).percent, 100);
        }
    }
}
