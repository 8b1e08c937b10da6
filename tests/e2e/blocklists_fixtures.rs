//! Blocklists over the labelled set of ../shared/contamination, where that folder is there.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{self, Case};

const SETS: [&str; 3] = ["gsm8k", "humaneval", "olymmath_zh"];

/// Rows that the tests look at: every so many of the set.
const STEP: usize = 12;

/// A case with three benchmarks of the labelled set and a part of its rows.
fn labelled() -> Option<(Case, Vec<Value>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/contamination");
    if !folder.is_dir() {
        harness::skipped("there is no ../shared/contamination");
        return None;
    }
    let case = Case::new();
    for set in SETS {
        case.put(
            &format!("{set}.jsonl"),
            std::fs::read(folder.join(format!("benchmarks/{set}.jsonl"))).unwrap(),
        );
    }
    let file = std::fs::File::open(folder.join("train.jsonl.zst")).unwrap();
    let mut text = String::new();
    zstd::Decoder::new(file).unwrap().read_to_string(&mut text).unwrap();
    let rows: Vec<&str> = text.lines().step_by(STEP).collect();
    case.put("rows.jsonl", rows.join("\n") + "\n");
    Some((case, rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect()))
}

fn build(case: &Case, files: &[String], to: &str) {
    let mut args = vec!["blocklist", "build", "-o", to];
    args.extend(files.iter().map(String::as_str));
    let ran = case.potable(&args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

fn matches(case: &Case, blocklist: &str, input: &str) -> Vec<Value> {
    let ran = case.potable(&["blocklist", "check", blocklist, input, "--format", "jsonl"]);
    assert!(ran.code == 0 || ran.code == 1, "{}", ran.stderr);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Rows and items of the sets themselves with a match that drops.
fn dropping(found: &[Value]) -> BTreeSet<(String, String)> {
    let drops =
        found.iter().filter(|m| m["action"] == "drop" && SETS.contains(&m["benchmark"].as_str().unwrap()));
    let pair = |m: &Value| (m["id"].as_str().unwrap().to_owned(), m["item"].as_str().unwrap().to_owned());
    drops.map(pair).collect()
}

fn files() -> Vec<String> {
    SETS.iter().map(|set| format!("{set}.jsonl")).collect()
}

/// Another transcription: capitals, and spaces round punctuation. The case of TeX commands is part of
/// them, so it stays.
fn respelled(question: &str) -> String {
    let spaced = question.replace(". ", " . ").replace(',', " ,");
    if question.contains('\\') { spaced.replace('$', " $ ") } else { spaced.to_uppercase() }
}

#[test]
fn a_second_transcription_of_every_item_loses_no_row_and_no_item() {
    let Some((case, _)) = labelled() else { return };
    build(&case, &files(), "one.blk");
    let mut all = files();
    for set in SETS {
        let text = std::fs::read_to_string(case.path(&format!("{set}.jsonl"))).unwrap();
        let again = text.lines().map(|line| {
            let item: Value = serde_json::from_str(line).unwrap();
            let question = respelled(item["question"].as_str().unwrap());
            json!({"id": item["id"], "question": question}).to_string() + "\n"
        });
        case.put(&format!("{set}-again.jsonl"), again.collect::<String>());
        all.push(format!("{set}-again.jsonl"));
    }
    build(&case, &all, "two.blk");
    let before = dropping(&matches(&case, "one.blk", "rows.jsonl"));
    let after = dropping(&matches(&case, "two.blk", "rows.jsonl"));
    assert!(before.len() >= 50, "{}", before.len());
    let lost: Vec<_> = before.difference(&after).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn check_prep_and_check_of_single_rows_give_one_verdict() {
    let Some((case, rows)) = labelled() else { return };
    build(&case, &files(), "one.blk");
    let together = matches(&case, "one.blk", "rows.jsonl");
    let dropped: BTreeSet<&str> =
        together.iter().filter(|m| m["action"] == "drop").map(|m| m["id"].as_str().unwrap()).collect();
    assert!(dropped.len() >= 50 && dropped.len() < rows.len() / 2, "{} of {}", dropped.len(), rows.len());

    // rows with a match, and as many others, alone
    let named = |row: &&Value| together.iter().any(|m| m["id"] == row["id"]);
    let some: Vec<&Value> = rows.iter().filter(named).step_by(4).chain(rows.iter().step_by(30)).collect();
    for row in some {
        case.put("single.jsonl", row.to_string() + "\n");
        let expected: Vec<&Value> = together.iter().filter(|m| m["id"] == row["id"]).collect();
        assert_eq!(matches(&case, "one.blk", "single.jsonl").iter().collect::<Vec<_>>(), expected);
    }

    case.recipe("[[source]]\nname = \"a\"\npath = \"rows.jsonl\"\n[decontaminate]\nblocklist = \"one.blk\"\n[pack]\nlength = 4096\n");
    let data = case.prep("out", &["--chunk-bytes", "50000"]);
    let reasons = ["decontaminate.ngram", "decontaminate.short-item", "decontaminate.near-copy"];
    let mut checked = 0;
    for row in data.dropped.iter().filter(|row| reasons.contains(&row.reason.as_str())) {
        let number: usize = row.row_id.rsplit_once(':').unwrap().1.parse().unwrap();
        let id = rows[number]["id"].as_str().unwrap();
        assert!(dropped.contains(id), "{id}");
        let evidence: Vec<Value> = serde_json::from_str(&row.evidence).unwrap();
        let items = |of: &[Value]| -> BTreeSet<String> { of.iter().map(|m| m["item"].to_string()).collect() };
        let ours: Vec<Value> = together.iter().filter(|m| m["id"] == id).cloned().collect();
        assert_eq!(items(&evidence), items(&ours), "{id}");
        checked += 1;
    }
    assert_eq!(checked, dropped.len());
}
