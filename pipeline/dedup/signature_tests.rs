use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const CONFIG: NearConfig = NearConfig { threshold_ppm: 800_000, words: 5, hashes: 256, bands: 17, rows: 15 };

fn bands(text: &str) -> Vec<u64> {
    Signer::new(CONFIG, 0).bands_of([text])
}

fn numbered(words: impl IntoIterator<Item = u64>) -> String {
    words.into_iter().map(|n| format!("w{} ", letters(n))).collect()
}

/// A number as a word of letters, since letters and digits separate.
fn letters(mut n: u64) -> String {
    let mut word = String::new();
    while n > 0 {
        word.push(char::from(b'a' + (n % 26) as u8));
        n /= 26;
    }
    word
}

/// Share of places in which the signatures of two sets agree, over several seeds.
fn agreement(a: &[u64], b: &[u64]) -> f64 {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let seeds = 0..40;
    let mut same = 0;
    for seed in seeds.clone() {
        sketch(a, seed, 256, &mut first);
        sketch(b, seed, 256, &mut second);
        same += first.iter().zip(&second).filter(|(a, b)| a == b).count();
    }
    same as f64 / (256 * seeds.count()) as f64
}

#[test]
fn signatures_agree_as_often_as_sets_overlap_whatever_their_size() {
    for size in [1u64, 3, 10, 60, 300, 5000] {
        for shared in [0.0, 0.3, 0.5, 0.8, 0.95, 1.0] {
            let common = (size as f64 * shared) as u64;
            let set = |from: u64| (0..common).chain(from..from + size - common).map(mix).collect::<Vec<_>>();
            let (a, b) = (set(1 << 20), set(1 << 30));
            let expected = common as f64 / (2 * size - common) as f64;
            let found = agreement(&a, &b);
            // 10,240 places: five standard deviations are at most 0.025.
            assert!((found - expected).abs() < 0.025, "{size} {shared}: {found} and not {expected}");
        }
    }
}

#[test]
fn every_place_of_a_signature_is_filled() {
    let mut signature = Vec::new();
    for places in [1, 16, 255, 1024] {
        sketch(&[7], 3, places, &mut signature);
        assert_eq!(signature.len(), places);
        assert!(!signature.contains(&u64::MAX));
    }
}

#[test]
fn bands_are_a_function_of_the_words_alone() {
    let text = "The quick brown fox jumps over the lazy dog, isn't that so? 12 cafés; naïve.";
    let spelt = "the  QUICK brown, fox — jumps over (the) lazy dog: isn’t that so 12 cafe\u{301}s naïve";
    assert_eq!(bands(text), bands(spelt));
    assert_ne!(bands(text), bands("the quick brown fox sleeps"));
    assert_eq!(bands(text).len(), 17);
}

#[test]
fn texts_of_a_row_are_one_run_of_words() {
    let mut signer = Signer::new(CONFIG, 0);
    let apart = signer.bands_of(["one two three", "four five six", "", "seven"]);
    assert_eq!(apart, bands("one two three four five six seven"));
}

#[test]
fn a_text_shorter_than_a_shingle_is_one_shingle() {
    assert_eq!(bands("Yes, it is."), bands("yes it is"));
    assert_ne!(bands("yes it is"), bands("yes it"));
    assert_ne!(bands("yes it is"), bands("is it yes"));
    assert_eq!(bands("a b c d e").len(), 17);
}

#[test]
fn a_text_of_no_words_has_no_bands() {
    for text in ["", " \n", "!!! ... ---", "\u{200b}\u{ad}"] {
        assert!(bands(text).is_empty(), "{text:?}");
    }
}

#[test]
fn a_band_says_which_one_it_is() {
    // One shingle: places differ by the round that filled them, but nothing else tells bands apart.
    let one_value = NearConfig { rows: 1, bands: 256, ..CONFIG };
    let bands = Signer::new(one_value, 0).bands_of(["word"]);
    assert_eq!(bands.iter().collect::<BTreeSet<_>>().len(), 256);
}

#[test]
fn another_seed_gives_other_bands() {
    let text = "one two three four five six seven";
    assert_ne!(Signer::new(CONFIG, 0).bands_of([text]), Signer::new(CONFIG, 1).bands_of([text]));
}

#[test]
fn shingles_roll_to_the_hash_of_their_words() {
    let words: Vec<u64> = (0..50).map(mix).collect();
    for width in [1, 2, 5, 49, 50] {
        let mut rolled = Vec::new();
        shingles(&words, width, &mut rolled);
        let mut one = Vec::new();
        let expected: Vec<u64> = words
            .windows(width)
            .map(|window| {
                shingles(window, width, &mut one);
                one[0]
            })
            .collect();
        assert_eq!(rolled, expected, "{width}");
    }
}

#[test]
fn candidates_come_as_often_as_the_curve_says() {
    // 400 pairs a similarity; sets of 500 shingles made of texts of words of their own.
    for (shared, size) in [(0.62, 500u64), (0.8, 500), (0.94, 500), (0.94, 20)] {
        let config = CONFIG;
        let common = (size as f64 * shared) as u64;
        let similarity = common as f64 / (2 * size - common) as f64;
        let trials = 400;
        let mut hits = 0;
        for trial in 0..trials {
            let start = trial * 1_000_000 + 1;
            let mut signer = Signer::new(NearConfig { words: 1, ..config }, 0);
            let set = |from: u64| numbered((start..start + common).chain(from..from + size - common));
            let (a, b) = (
                signer.bands_of([set(start + 10_000).as_str()]),
                signer.bands_of([set(start + 20_000).as_str()]),
            );
            hits += u64::from(a.iter().zip(&b).any(|(a, b)| a == b));
        }
        let (found, expected) = (hits as f64 / trials as f64, config.found(similarity));
        assert!((found - expected).abs() < 0.13, "{similarity}: {found} and not {expected}");
    }
}

proptest! {
    #[test]
    fn order_and_repeats_of_shingles_change_nothing(mut set in prop::collection::vec(any::<u64>(), 1..300)) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        sketch(&set, 5, 64, &mut a);
        set.reverse();
        set.extend_from_within(..);
        sketch(&set, 5, 64, &mut b);
        prop_assert_eq!(a, b);
    }
}
