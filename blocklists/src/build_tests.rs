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
    let counted = Coverage { items: 5, by_ngram: 1, by_short_item: 2, not_protected: 2 };
    assert_eq!(coverage, counted);
    assert_eq!(blocklist.item_protection(0), Protection::NGram);
    assert_eq!(blocklist.item_protection(1), Protection::ShortItem);
    assert_eq!(blocklist.item_protection(4), Protection::None);
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
