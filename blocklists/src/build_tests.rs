use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::index::Protection;

fn item(stem: &str, options: &[&str]) -> Item {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    Item { id: stem.chars().take(8).collect(), stem: stem.to_owned(), options }
}

fn meta(name: &str) -> BenchmarkMeta {
    BenchmarkMeta { name: name.to_owned(), ..BenchmarkMeta::default() }
}

fn built(items: Vec<Item>) -> Blocklist {
    let mut builder = BlocklistBuilder::new(13).expect("n");
    builder.add(meta("a"), items).expect("items");
    builder.build().expect("built")
}

const LONG: &str = "a train leaves the town at noon and reaches the sea after three hours of travel";

#[test]
fn refuses_n_out_of_range() {
    for ngram in [0, 4, 51] {
        let error = BlocklistBuilder::new(ngram).err().map(|error| error.to_string());
        assert_eq!(error, Some(format!("an n-gram has 5 to 50 words, not `{ngram}`")));
    }
    assert!(BlocklistBuilder::new(5).is_ok() && BlocklistBuilder::new(50).is_ok());
}

#[test]
fn refuses_no_benchmark_and_no_items() {
    let builder = BlocklistBuilder::new(13).expect("n");
    assert!(matches!(builder.build(), Err(BlocklistError::NoBenchmark)));
    let mut builder = BlocklistBuilder::new(13).expect("n");
    let error = builder.add(meta("a"), []).expect_err("refused");
    assert_eq!(error.to_string(), "benchmark `a` has no items");
    assert!(error.hint().is_some());
}

#[test]
fn refuses_one_name_twice() {
    let mut builder = BlocklistBuilder::new(13).expect("n");
    builder.add(meta("a"), [item(LONG, &[])]).expect("items");
    builder.add(meta("b"), [item(LONG, &[])]).expect("items");
    let error = builder.add(meta("a"), [item(LONG, &[])]).expect_err("refused");
    assert_eq!(error.to_string(), "benchmark `a` is listed twice");
}

#[test]
fn refuses_a_canary_that_is_ordinary_text() {
    for (canary, words) in [("canary", 1), ("", 0), ("do not train", 3)] {
        let mut builder = BlocklistBuilder::new(13).expect("n");
        let meta = BenchmarkMeta { canaries: vec![canary.to_owned()], ..meta("a") };
        let error = builder.add(meta, [item(LONG, &[])]).expect_err("refused").to_string();
        let says = format!("canary `{canary}` of benchmark `a` has {words} words, at least 4 are needed");
        assert_eq!(error, says);
    }
}

#[test]
fn counts_how_items_are_protected() {
    let blocklist = built(vec![
        item(LONG, &[]),
        item("how many ways are there to seat nine people", &[]),
        item("what is the capital", &[]),
        item("name it", &[]),
        item("", &[]),
    ]);
    let coverage = blocklist.header().benchmarks[0].coverage;
    let counted = Coverage {
        items: 5,
        by_ngram: 1,
        by_short_item: 2,
        by_near_copy: 1,
        not_protected: 2,
        ..Coverage::default()
    };
    assert_eq!(coverage, counted);
    assert_eq!(blocklist.item_protection(0), Protection::NGram);
    assert_eq!(blocklist.item_protection(1), Protection::ShortItem);
    assert_eq!(blocklist.item_protection(4), Protection::TooShort);
    assert_eq!(blocklist.item_id(3), "name it");
}

#[test]
fn same_items_give_the_same_bytes() {
    let items = || (0..40).map(|i| item(&format!("{LONG} number {i}"), &["yes it is", "no"])).collect();
    assert_eq!(built(items()).as_bytes(), built(items()).as_bytes());
}

#[test]
fn holds_no_text_of_an_item() {
    let blocklist = built(vec![Item { id: "7".into(), ..item(LONG, &["Paris"]) }]);
    let bytes = String::from_utf8_lossy(blocklist.as_bytes()).into_owned();
    assert!(!bytes.contains("train") && !bytes.contains("Paris"));
}

#[test]
fn frequent_grams_of_clean_text_drop_nothing() {
    let stock = "the quick brown fox jumps over the lazy dog while nine calm geese watch from a pond";
    let own =
        "and a zoologist tallies how often vermilion kestrels interrupt them during one stormy afternoon";
    let items =
        || vec![item(&format!("{stock} {own}"), &[]), item("how many geese watch from the calm pond", &[])];
    let sample = [stock.to_uppercase(), format!("say: {stock}, how many geese watch from the calm pond?")];
    let build = |texts: &[String], least| {
        let mut builder = BlocklistBuilder::new(13).expect("n");
        builder.add(meta("a"), items()).expect("items");
        builder.build_with_background(texts, least).expect("built")
    };
    let actions = |list: &Blocklist, text: &str| {
        let part = crate::Part { text, message: 0, whole_prompt: false };
        let mut scanner = crate::Scanner::new(list);
        scanner.check(&[part], false).iter().map(|hit| hit.action).collect::<Vec<_>>()
    };
    use crate::Action::{Drop, Report};
    let list = build(&sample, 2);
    assert_eq!(actions(&list, stock), [Report]);
    assert_eq!(actions(&list, own), [Drop]);
    assert_eq!(actions(&build(&sample, 3), stock), [Drop]);
    // the short item stands in one text of the sample only
    let short = "how many geese watch from the calm pond";
    assert_eq!(actions(&list, short), [Drop]);
    assert_eq!(actions(&build(&sample, 1), short), [Report]);

    let said = list.header().background.clone().expect("recorded");
    assert_eq!((said.rows, said.least, said.weak_grams), (2, 2, 5));
    assert!(said.digest.starts_with("sha256:"));
    assert_ne!(said.digest, build(&sample[..1], 2).header().background.clone().expect("recorded").digest);
    assert_eq!(build(&sample, 2).as_bytes(), list.as_bytes());
    assert_eq!(built(items()).header().background, None);
}

#[test]
fn a_second_transcription_lowers_no_recall() {
    let stems: Vec<String> = (0..12)
        .map(|i| {
            let (a, b) = (i * 37 + 11, i * 53 + 29);
            let names = ["Ada", "Bo", "Cyd", "Dov", "Eli", "Fay"];
            let things = ["lanterns", "kayaks", "violins", "melons", "saddles", "quilts"];
            let (name, thing) = (names[i % 6], things[(i * 5 + 1) % 6]);
            format!(
                "{name} buys {a} {thing} at a harbour fair number {i} and hands every {b}th one to a neighbour who \
                 repairs boats; how many {thing} does {name} keep when the fair closes for winter?"
            )
        })
        .collect();
    let list = |transcribed: bool| {
        let mut builder = BlocklistBuilder::new(13).expect("n");
        builder.add(meta("a"), stems.iter().map(|stem| item(stem, &[]))).expect("items");
        if transcribed {
            let again = stems.iter().map(|stem| item(&stem.replace("harbour", "harbor"), &[]));
            builder.add(meta("b"), again).expect("items");
        }
        builder.build().expect("built")
    };
    let (one, two) = (list(false), list(true));
    let edited = |stem: &str, every: usize| {
        let words = stem.split(' ').enumerate();
        let edited = words.map(|(at, word)| if at % every == every - 1 { "walnut" } else { word });
        edited.collect::<Vec<_>>().join(" ")
    };
    let finds = |list: &Blocklist, text: &str, number: usize| {
        let part = crate::Part { text, message: 0, whole_prompt: true };
        let mut scanner = crate::Scanner::new(list);
        let hits = scanner.check(&[part], false);
        hits.iter().any(|hit| hit.item as usize == number && hit.action == crate::Action::Drop)
    };
    let mut found = 0;
    for (number, stem) in stems.iter().enumerate() {
        let half: String = stem.split(' ').take(17).collect::<Vec<_>>().join(" ");
        for text in [stem.clone(), half, edited(stem, 6), edited(stem, 10), edited(stem, 20)] {
            let before = finds(&one, &text, number);
            found += usize::from(before);
            assert!(!before || finds(&two, &text, number), "{text}");
        }
    }
    assert!(found >= 48, "{found}");
}

/// A word of few, so that items share runs of words.
fn some_words(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<&'static str>> {
    let vocabulary = vec![
        "red", "harbour", "count", "seven", "boats", "17", "x", "2048", "lantern", "moves", "between",
        "winter",
    ];
    prop::collection::vec(prop::sample::select(vocabulary), count)
}

/// The same words in another spelling.
fn respelled(stem: &str, way: usize) -> String {
    match way % 4 {
        0 => stem.to_uppercase(),
        1 => stem.replace(' ', ", "),
        2 => format!("\u{feff}{}", stem.replace("red", "r\u{435}d").replace(' ', "\u{a0}\\n")),
        _ => stem.to_owned(),
    }
}

/// The rows and items with a hit that drops, as (row, id of the item).
fn dropping(list: &Blocklist, rows: &[String]) -> BTreeSet<(usize, String)> {
    let mut scanner = crate::Scanner::new(list);
    let mut found = BTreeSet::new();
    for (row, text) in rows.iter().enumerate() {
        let part = crate::Part { text, message: 0, whole_prompt: true };
        let hits = scanner.check(&[part], false).iter();
        let drops = hits.filter(|hit| hit.action == crate::Action::Drop && hit.benchmark == 0);
        found.extend(drops.map(|hit| (row, list.item_id(hit.item).to_owned())));
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A transcription has the words of an item in another spelling, and stands in another benchmark.
    #[test]
    fn a_second_transcription_loses_no_pair_of_row_and_item(
        stems in prop::collection::vec(some_words(3..40), 1..8),
        stock in some_words(8..16),
        chosen in prop::collection::vec(any::<bool>(), 8),
        ways in prop::collection::vec(0usize..4, 8),
        copies in 1usize..4,
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, 4usize..40, 4usize..30), 1..12),
    ) {
        let stems: Vec<Vec<&str>> = (0..)
            .zip(&stems)
            .map(|(at, stem)| if at % 3 == 0 { [&stem[..], &stock[..]].concat() } else { stem.clone() })
            .collect();
        let text = |words: &[&str]| words.join(" ");
        let named = |at: usize, stem: String| Item { id: at.to_string(), stem, options: Vec::new() };
        let list = |copies: usize| {
            let mut builder = BlocklistBuilder::new(13).expect("n");
            builder.add(meta("a"), stems.iter().enumerate().map(|(at, stem)| named(at, text(stem)))).expect("items");
            for copy in 0..copies {
                let again = stems.iter().enumerate().filter(|(at, _)| *at == 0 || chosen[at % 8]);
                let again = again.map(|(at, stem)| named(at, respelled(&text(stem), ways[(at + copy) % 8] + copy)));
                builder.add(meta(&format!("copy-{copy}")), again).expect("items");
            }
            builder.build().expect("built")
        };
        let rows: Vec<String> = picks
            .iter()
            .map(|(pick, from, length, every)| {
                let words = pick.get(&stems).iter().skip(*from).take(*length).enumerate();
                let words = words.map(|(at, word)| if at % every == every - 1 { "walnut" } else { word });
                words.collect::<Vec<_>>().join(" ")
            })
            .collect();
        let (before, after) = (dropping(&list(0), &rows), dropping(&list(copies), &rows));
        let lost: Vec<_> = before.difference(&after).collect();
        prop_assert!(lost.is_empty(), "{lost:?} of {before:?}");
    }
}
