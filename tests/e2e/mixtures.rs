//! Mixtures: shares that are met to the row, rows that are taken again, more asked for than there is.

use std::collections::BTreeMap;

use super::harness::{Case, DataSet, chats, chats_from};
use super::packing::balances;

const SMALL: &str = "[pack]\nlength = 512\n[output]\npartition_bytes = 4000\n";

fn source(name: &str, more: &str) -> String {
    format!("[[source]]\nname = \"{name}\"\npath = \"{name}.jsonl\"\n{more}")
}

/// A phase `p` of two sources with these keys, and a total.
fn phase(total: u64, a: &str, b: &str) -> String {
    let source = |name: &str, more: &str| source(name, more).replace("[[source]]", "[[phase.source]]");
    let total = if total > 0 { format!("max_tokens = {total}\n") } else { String::new() };
    format!("{SMALL}[[phase]]\nname = \"p\"\n{total}{}{}", source("a", a), source("b", b))
}

fn two_sources(case: &Case) {
    case.put("a.jsonl", chats(20));
    case.put("b.jsonl", chats_from(1000, 400));
}

fn tokens(data: &DataSet, source: &str) -> u64 {
    data.number(&format!("/tokens/per_source/{source}/tokens"))
}

/// How often each row of a source stands in the shards, by its name without the number of the repeat.
fn times(data: &DataSet, source: &str) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for name in data.names().into_iter().filter(|name| name.starts_with(&format!("{source}/"))) {
        let row = name.rsplit_once(".r").filter(|(_, n)| n.parse::<u32>().is_ok());
        *times.entry(row.map_or(name.clone(), |(row, _)| row.to_owned())).or_default() += 1;
    }
    times
}

fn longest(data: &DataSet, source: &str) -> u64 {
    let own = data.samples().into_iter().filter(|s| s.name.starts_with(&format!("{source}/")));
    own.map(|s| s.ids.len() as u64).max().unwrap()
}

#[test]
fn weights_of_a_stated_total_are_met_to_the_row() {
    let case = Case::new();
    two_sources(&case);
    case.recipe(&phase(8000, "weight = 0.15\n", "weight = 0.85\n"));
    case.prep_phase("out", &[]);
    let data = case.data("out/p");
    balances(&data);
    for (source, share) in [("a", 1200), ("b", 6800)] {
        let (taken, row) = (tokens(&data, source), longest(&data, source));
        assert!((share..share + row).contains(&taken), "{source}: {taken}");
    }
    case.prep_phase("pieces", &["--unit-bytes", "700", "--chunk-bytes", "200", "--threads", "1"]);
    assert_eq!(case.data("pieces/p").bytes, data.bytes);
}

#[test]
fn rows_are_taken_again_where_repeats_allows_and_the_ledgers_balance() {
    let case = Case::new();
    two_sources(&case);
    case.recipe(&phase(14000, "weight = 0.5\nrepeats = 4\n", "weight = 0.5\n"));
    case.prep_phase("out", &[]);
    let data = case.data("out/p");
    balances(&data);
    for source in ["a", "b"] {
        let (taken, row) = (tokens(&data, source), longest(&data, source));
        assert!((7000..7000 + row).contains(&taken), "{source}: {taken}");
    }
    // Every row as often as every other, or once more; the same ids whatever the cut.
    let a = times(&data, "a");
    assert_eq!(a.len(), 20);
    let (least, most) = (a.values().min().unwrap(), a.values().max().unwrap());
    assert!(*least >= 2 && most - least <= 1, "{a:?}");
    assert!(times(&data, "b").values().all(|n| *n == 1));
    let taken: usize = a.values().sum();
    assert_eq!(data.number("/rows/a/kept"), 20);
    assert_eq!(data.number("/rows/a/repeated"), taken as u64 - 20);
    assert_eq!(data.number("/samples/a/repeated"), taken as u64 - 20);
    let names = data.names();
    assert!(names.contains(&"a/a.jsonl:0".to_owned()) && names.contains(&"a/a.jsonl:0.r1".to_owned()));
    for args in [["--threads", "1", "--chunk-bytes", "150"], ["--unit-bytes", "300", "--chunk-bytes", "4000"]]
    {
        let folder = args[1];
        case.prep_phase(folder, &args);
        assert_eq!(case.data(&format!("{folder}/p")).digest(), data.digest());
    }
}

#[test]
fn a_share_over_the_supply_is_refused_unless_repeats_allows_it() {
    let case = Case::new();
    two_sources(&case);
    case.recipe(&phase(14000, "weight = 0.5\n", "weight = 0.5\n"));
    case.refused(&["source `a`", "7000 tokens asked for", "there", "`repeats`"]);
    case.recipe(&phase(14000, "weight = 0.5\nrepeats = 2\n", "weight = 0.5\n"));
    case.refused(&["source `a`", "7000 tokens asked for"]);
    // A trial of few rows cannot have the total, and takes what it can in the same shares.
    case.prep_phase("trial", &["--limit", "15"]);
    let data = case.data("trial/p");
    let share = tokens(&data, "a") as f64 / data.number("/tokens/total") as f64;
    assert!((share - 0.5).abs() < 0.1, "{share}");
}

#[test]
fn without_a_stated_total_repeats_raise_the_largest_one() {
    let case = Case::new();
    two_sources(&case);
    let total = |repeats: &str, out: &str| {
        case.recipe(&phase(0, &format!("weight = 0.5\n{repeats}"), "weight = 0.5\n"));
        case.prep_phase(out, &[]);
        case.data(&format!("{out}/p")).number("/tokens/total")
    };
    let (once, thrice) = (total("", "once"), total("repeats = 3\n", "thrice"));
    assert!(thrice > 2 * once, "{once} {thrice}");
}

#[test]
fn repeats_fill_a_row_cap_exactly() {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    case.recipe(&(source("a", "max_rows = 100\nrepeats = 3\n") + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!(data.samples().len(), 100);
    let times = times(&data, "a");
    assert_eq!((times.values().min(), times.values().max()), (Some(&2), Some(&3)));
    case.recipe(&(source("a", "max_rows = 30\nrepeats = 3\n") + SMALL));
    let data = case.prep("less", &[]);
    assert_eq!((data.samples().len(), data.number("/rows/a/repeated")), (30, 0));
}

#[test]
fn held_out_rows_are_not_taken_again() {
    let case = Case::new();
    case.put("a.jsonl", chats(60));
    let output = "[output]\nvalidation = 0.2\npartition_bytes = 4000\n";
    case.recipe(&(source("a", "max_rows = 500\nrepeats = 3\n") + output));
    let data = case.prep("out", &[]);
    balances(&data);
    let (mut held_out, mut train) = (0, 0);
    for (path, packs) in &data.shards {
        let names = packs.iter().flat_map(|pack| &pack.names);
        if path.starts_with("validation/") {
            assert!(names.clone().all(|name| !name.contains(".r")), "{path}");
            held_out += names.count();
        } else {
            train += names.count();
        }
    }
    assert!(held_out > 0);
    assert_eq!(train, 3 * (60 - held_out));
}

#[test]
fn more_asked_for_than_there_is_is_a_warning() {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    for (n, (keys, words)) in [
        ("max_rows = 100\n", "`max_rows = 100`, and there are 40 rows"),
        ("max_rows = 100\nrepeats = 2\n", "`max_rows = 100`, and there are 80 rows"),
        ("max_tokens = 9999999\n", "`max_tokens = 9999999`, and there are"),
        ("files = 3\n", "`files = 3`, and there are 1 files"),
    ]
    .into_iter()
    .enumerate()
    {
        case.recipe(&source("a", keys));
        let ran = case.run(&format!("out{n}"), &[]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("warning: source `a`: {words}")), "{}", ran.stderr);
    }
    // A cap that is met, alone or beside one that is not, is no reason to warn.
    for (n, keys) in
        ["max_rows = 40\n", "max_rows = 10\nmax_tokens = 9999999\n", "files = 1\n"].iter().enumerate()
    {
        case.recipe(&source("a", keys));
        let ran = case.run(&format!("met{n}"), &[]);
        assert!(!ran.stderr.contains("warning"), "{keys}{}", ran.stderr);
    }
    case.recipe(&source("a", "max_rows = 100\n"));
    assert!(!case.run("trial", &["--limit", "5"]).stderr.contains("warning"));
}

#[test]
fn repeats_without_anything_to_fill_or_out_of_range_are_refused() {
    let case = Case::new();
    case.put("a.jsonl", chats(5));
    case.recipe(&source("a", "repeats = 2\n"));
    case.refused(&["source `a`", "`repeats = 2` has nothing to fill"]);
    for repeats in ["0", "101"] {
        case.recipe(&source("a", &format!("max_rows = 5\nrepeats = {repeats}\n")));
        case.refused(&["source `a`", "not between 1 and 100"]);
    }
}
