//! Caps, weights, subsets of files, duplicates.

use std::collections::BTreeSet;

use super::harness::{Case, DataSet, chat, chats, chats_from, lines, rendered};
use super::packing::balances;

const SMALL: &str = "[pack]\nlength = 256\n[output]\npartition_bytes = 4000\n";

fn source(name: &str, more: &str) -> String {
    format!("[[source]]\nname = \"{name}\"\npath = \"{name}.jsonl\"\n{more}")
}

fn tokens(data: &DataSet, source: &str) -> u64 {
    data.number(&format!("/tokens/per_source/{source}/tokens"))
}

#[test]
fn limit_takes_the_first_rows_of_each_source() {
    let case = Case::new();
    case.put("a.jsonl", chats(50));
    case.put("b.jsonl", chats_from(100, 3));
    case.recipe(&(source("a", "") + &source("b", "") + SMALL));
    let data = case.prep("out", &["--limit", "5"]);
    assert_eq!((data.number("/rows/a/read"), data.number("/rows/b/read")), (5, 3));
    let expected: Vec<String> = (0..5).map(|n| format!("a/a.jsonl:{n}")).collect();
    assert_eq!(data.names()[..5], expected);
    let pieces = case.prep("pieces", &["--limit", "5", "--unit-bytes", "300", "--chunk-bytes", "100"]);
    assert_eq!(pieces.bytes, data.bytes);
}

#[test]
fn limit_works_on_compressed_files_and_tables() {
    let case = Case::new();
    case.put("a.jsonl.zst", zstd::encode_all(chats(50).as_bytes(), 3).unwrap());
    let table = super::formats::prompt_table(50);
    case.put("b.parquet", super::harness::parquet_bytes(&table, parquet::basic::Compression::SNAPPY, 7));
    for file in ["a.jsonl.zst", "b.parquet"] {
        case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"{file}\"\n"));
        let data = case.prep(file.split('.').next().unwrap(), &["--limit", "9"]);
        assert_eq!(data.number("/rows/a/read"), 9, "{file}");
        assert_eq!(data.samples().len(), 9, "{file}");
    }
}

#[test]
fn max_rows_takes_exactly_that_many_and_the_same_ones_whatever_the_cut() {
    let case = Case::new();
    case.put("a.jsonl", chats(400));
    case.recipe(&(source("a", "max_rows = 37\n") + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!(data.samples().len(), 37);
    assert_eq!(data.number("/rows/a/kept"), 37);
    assert_eq!(data.number("/rows/a/sampled_out"), 363);
    let pieces = case.prep("pieces", &["--unit-bytes", "700", "--chunk-bytes", "200", "--threads", "1"]);
    assert_eq!(pieces.bytes, data.bytes);
}

#[test]
fn max_rows_takes_that_many_where_most_rows_are_dropped() {
    // One row in ten has an answer, so that the first sampling round is far too small.
    let rows = (0..400).map(|n| chat(&format!("question {n}"), if n % 10 == 0 { "yes" } else { "" }));
    let case = Case::new();
    case.put("a.jsonl", lines(rows));
    case.recipe(&(source("a", "max_rows = 25\n") + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!(data.samples().len(), 25);
    assert_eq!(data.number("/rows/a/read"), 400);
    assert_eq!(case.prep("pieces", &["--unit-bytes", "700", "--chunk-bytes", "200"]).bytes, data.bytes);
}

#[test]
fn max_rows_takes_a_subset_of_what_a_higher_cap_takes() {
    let case = Case::new();
    case.put("a.jsonl", chats(300));
    let mut taken: Vec<BTreeSet<String>> = Vec::new();
    for cap in ["10", "100", "1000"] {
        case.recipe(&(source("a", &format!("max_rows = {cap}\n")) + SMALL));
        taken.push(case.prep(cap, &[]).names().into_iter().collect());
    }
    assert_eq!(taken.iter().map(BTreeSet::len).collect::<Vec<_>>(), [10, 100, 300]);
    assert!(taken[0].is_subset(&taken[1]) && taken[1].is_subset(&taken[2]));
}

#[test]
fn max_rows_works_on_files_whose_rows_must_be_counted_first() {
    let case = Case::new();
    case.put("a.jsonl", chats(120));
    case.put("b.jsonl.zst", zstd::encode_all(chats(120).as_bytes(), 3).unwrap());
    case.recipe("[[source]]\nname = \"a\"\npath = \"b.jsonl.zst\"\nmax_rows = 20\n");
    assert_eq!(case.prep("out", &[]).samples().len(), 20);
}

#[test]
fn max_tokens_is_met_by_the_last_row_taken() {
    let case = Case::new();
    case.put("a.jsonl", chats(300));
    case.recipe(&(source("a", "max_tokens = 2000\n") + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    let longest = data.samples().iter().map(|s| s.ids.len() as u64).max().unwrap();
    let taken = tokens(&data, "a");
    assert!((2000..2000 + longest).contains(&taken), "{taken}");
    assert_eq!(case.prep("pieces", &["--unit-bytes", "700", "--chunk-bytes", "200"]).bytes, data.bytes);
}

#[test]
fn weights_share_out_the_tokens() {
    let case = Case::new();
    case.put("a.jsonl", chats(100));
    case.put("b.jsonl", chats_from(1000, 400));
    case.recipe(&(source("a", "weight = 0.25\n") + &source("b", "weight = 0.75\n") + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    let share = tokens(&data, "a") as f64 / data.number("/tokens/total") as f64;
    assert!((share - 0.25).abs() < 0.01, "{share}");
    // The scarcer source is taken whole.
    assert!(data.number("/rows/a/kept") >= 99 || data.number("/rows/b/kept") >= 399);
}

#[test]
fn files_takes_a_seeded_choice_of_files_and_reads_no_other() {
    let case = Case::new();
    for n in 0..6 {
        case.put(&format!("a/{n}.jsonl"), chats_from(n * 10, 10));
    }
    let recipe = |seed: u32| format!("seed = {seed}\n[[source]]\nname = \"a\"\npath = \"a\"\nfiles = 2\n");
    let mut choices = BTreeSet::new();
    for seed in 0..8 {
        case.recipe(&recipe(seed));
        let data = case.prep(&format!("out{seed}"), &[]);
        let files = data.manifest["inputs"][0]["files"].as_array().unwrap().clone();
        assert_eq!((files.len(), data.samples().len()), (2, 20));
        choices.insert(files.iter().map(|f| f["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
    }
    assert!(choices.len() > 2, "{choices:?}");
    case.recipe(&recipe(0));
    assert_eq!(case.prep("again", &[]).bytes, case.data("out0").bytes);
}

#[test]
fn exact_dedup_keeps_the_first_in_the_order_of_sources_files_and_rows() {
    let case = Case::new();
    case.put("a.jsonl", chats_from(0, 20) + &chats_from(5, 5));
    case.put("b.jsonl", chats_from(10, 20));
    case.recipe(&(source("b", "") + &source("a", "") + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    let b: Vec<String> = (0..20).map(|n| format!("b/b.jsonl:{n}")).collect();
    let a: Vec<String> = (0..10).map(|n| format!("a/a.jsonl:{n}")).collect();
    let names: BTreeSet<String> = data.names().into_iter().collect();
    assert_eq!(names, a.into_iter().chain(b).collect());
    assert_eq!(data.number("/rows/a/dropped/dedup.exact"), 15);
    assert!(data.dropped.is_empty());
}

#[test]
fn dedup_by_prompt_keeps_one_answer_and_dedup_none_keeps_all() {
    let case = Case::new();
    case.put("a.jsonl", lines([chat("q", "one"), chat("q", "two"), chat("q", "one")]));
    for (exact, expected) in [
        ("prompt", vec![rendered("q", "one")]),
        ("conversation", vec![rendered("q", "one"), rendered("q", "two")]),
        ("none", vec![rendered("q", "one"), rendered("q", "one"), rendered("q", "two")]),
    ] {
        case.recipe(&(source("a", "") + &format!("[dedup]\nexact = \"{exact}\"\n")));
        assert_eq!(case.prep(exact, &[]).texts(), expected, "{exact}");
    }
}

#[test]
fn duplicates_do_not_count_towards_a_cap() {
    let case = Case::new();
    case.put("a.jsonl", chats(30) + &chats(30) + &chats(30));
    case.recipe(&(source("a", "max_rows = 25\n") + SMALL));
    let data = case.prep("out", &[]);
    assert_eq!(data.samples().len(), 25);
    let texts: BTreeSet<String> = data.texts().into_iter().collect();
    assert_eq!(texts.len(), 25);
}

#[test]
fn a_cap_of_0_is_refused_and_never_takes_a_row() {
    for cap in ["max_rows = 0\n", "max_tokens = 0\n"] {
        let case = Case::new();
        case.put("a.jsonl", chats(5));
        case.recipe(&source("a", cap));
        case.refused(&[cap.split(' ').next().unwrap()]);
    }
}

#[test]
fn a_row_that_a_cap_leaves_out_gives_way_to_its_copy_in_a_later_source() {
    let case = Case::new();
    let rows: String = (0..300).map(|n| format!("{{\"text\": \"only text number {n}\"}}\n")).collect();
    case.put("a.jsonl", &rows);
    case.put("b.jsonl", &rows);
    let data = case.prepared(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nmax_rows = 10\n[[source]]\nname = \"b\"\npath = \"b.jsonl\"\n",
    );
    assert_eq!((data.number("/rows/a/kept"), data.number("/rows/b/kept")), (10, 290));
    assert_eq!(data.number("/rows/b/dropped/dedup.exact"), 10);
}

#[test]
fn limit_counts_rows_and_not_lines() {
    let case = Case::new();
    let rows: String = (0..200).map(|n| format!("{{\"text\": \"only text number {n}\"}}\n\n\n")).collect();
    case.put("a.jsonl", rows);
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n");
    let data = case.prep("out", &["--limit", "150", "--unit-bytes", "300"]);
    assert_eq!(data.number("/rows/a/read"), 150);
}

#[test]
fn a_weight_too_small_to_count_is_refused() {
    let case = Case::new();
    case.put("a.jsonl", "{\"text\": \"a\"}\n");
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nweight = 1e-9\n");
    case.refused(&["source `a`", "weight"]);
}
