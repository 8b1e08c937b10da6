//! What a second run in the same folder re-uses, replaces or refuses.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::harness::{Case, chats, chats_from};

const SOURCE: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";
const CUT: [&str; 5] = ["--unit-bytes", "2000", "--chunk-bytes", "500", "--keep-work"];

fn case() -> Case {
    let case = Case::new();
    case.put("a.jsonl", chats(120));
    case
}

fn recipe(source: &str, length: u32) -> String {
    format!("{SOURCE}{source}[pack]\nlength = {length}\n[output]\npartition_bytes = 4000\n")
}

type Stamps = BTreeMap<PathBuf, (u64, std::time::SystemTime)>;

/// Stamps of the staged files of map.
fn map_files(case: &Case) -> Stamps {
    let all = case.stamps("out/.work");
    all.into_iter().filter(|(path, _)| path.to_string_lossy().contains("/map-")).collect()
}

fn both(stamps: &Stamps, other: &Stamps) -> usize {
    stamps.iter().filter(|(path, stamp)| other.get(*path) == Some(stamp)).count()
}

/// What a run of the recipe that stands in the case gives in a folder of its own.
fn undisturbed(case: &Case, out: &str) -> BTreeMap<String, Vec<u8>> {
    case.prep(out, &[]).bytes
}

#[test]
fn a_second_run_says_up_to_date_and_writes_nothing() {
    let case = case();
    case.recipe(&recipe("", 256));
    case.prep("out", &[]);
    let before = case.stamps("out");
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.contains("out is up to date, manifest sha256:"), "{}", ran.stderr);
    assert_eq!(case.stamps("out"), before);
}

#[test]
fn a_run_leaves_no_staged_work_unless_asked_to() {
    let case = case();
    case.recipe(&recipe("", 256));
    case.prep("out", &[]);
    assert!(!case.path("out/.work").exists());
}

#[test]
fn a_changed_pack_length_re_uses_all_kept_map_files() {
    let case = case();
    case.recipe(&recipe("", 256));
    let first = case.prep("out", &CUT);
    let before = map_files(&case);
    assert!(before.len() > 20, "{}", before.len());
    case.recipe(&recipe("", 512));
    let second = case.prep("out", &CUT);
    assert_eq!(map_files(&case), before);
    assert_ne!(second.digest(), first.digest());
    assert_eq!(second.bytes, undisturbed(&case, "other"));
}

#[test]
fn a_lower_cap_over_kept_work_takes_the_same_rows_as_a_run_from_nothing() {
    let case = case();
    case.recipe(&recipe("", 256));
    case.prep("out", &CUT);
    case.recipe(&recipe("max_rows = 15\n", 256).replace("4000", "100000"));
    let capped = case.run("out", &CUT);
    assert_eq!(capped.code, 0, "{}", capped.stderr);
    assert_eq!(case.data("out").bytes, undisturbed(&case, "other"));
}

#[test]
fn a_higher_cap_over_kept_work_takes_the_same_rows_as_a_run_from_nothing() {
    let case = case();
    let wide = |rows: u32| recipe(&format!("max_rows = {rows}\n"), 256).replace("4000", "1000000");
    case.recipe(&wide(5));
    case.prep("out", &CUT);
    case.recipe(&wide(60));
    let second = case.run("out", &CUT);
    assert_eq!(second.code, 0, "{}", second.stderr);
    assert_eq!(case.data("out").names(), case.prep("other", &[]).names());
    assert_eq!(case.data("out").digest(), case.data("other").digest());
}

#[test]
fn a_cap_taken_away_over_kept_work_takes_all_rows() {
    let case = case();
    case.recipe(&recipe("max_rows = 5\n", 256).replace("4000", "1000000"));
    case.prep("out", &CUT);
    case.recipe(&recipe("", 256).replace("4000", "1000000"));
    let second = case.run("out", &CUT);
    assert_eq!(second.code, 0, "{}", second.stderr);
    assert_eq!(case.data("out").samples().len(), case.prep("other", &[]).samples().len());
}

#[test]
fn changed_input_never_re_uses_stale_work() {
    let case = case();
    case.recipe(&recipe("", 256));
    case.prep("out", &CUT);
    case.put("a.jsonl", chats_from(1, 120));
    let second = case.prep("out", &CUT);
    assert_eq!(second.bytes, undisturbed(&case, "other"));
}

#[test]
fn a_changed_recipe_never_re_uses_stale_work() {
    let case = case();
    case.put(
        "bench.txt",
        "a benchmark item that stands in none of these rows at all, but has words enough\n",
    );
    case.recipe(&recipe("", 256));
    case.prep("out", &CUT);
    let base = recipe("", 256);
    for (n, changed) in [
        recipe("system = \"be brief\"\n", 256),
        recipe("where = \"messages IS NOT NULL\"\n", 256),
        format!("seed = 7\n{base}"),
        format!("{base}[normalise]\nempty_think = \"omit\"\n"),
        format!("{base}[dedup]\nexact = \"none\"\n"),
        format!("{base}[decontaminate]\nbenchmarks = [\"bench.txt\"]\n"),
        base.replace("name = \"a\"", "name = \"z\""),
        base.replace("4000", "2000"),
    ]
    .into_iter()
    .enumerate()
    {
        case.recipe(&changed);
        let run = case.run("out", &CUT);
        assert_eq!(run.code, 0, "{changed}\n{}", run.stderr);
        let other = case.prep(&format!("other{n}"), &[]);
        assert_eq!(case.data("out").bytes, other.bytes, "{changed}");
        assert_eq!(case.data("out").digest(), other.digest(), "{changed}");
    }
}

#[test]
fn a_changed_tokenizer_never_re_uses_stale_work() {
    let case = case();
    case.recipe(&recipe("", 256));
    let before = case.prep("out", &CUT);
    let tokenizer = std::fs::read_to_string(case.path("tokenizer.json")).unwrap();
    // `a` and `b` trade places.
    let swapped = tokenizer.replace("\"a\": 97", "\"a\": 98").replace("\"b\": 98", "\"b\": 97");
    assert_ne!(swapped, tokenizer);
    case.put("tokenizer.json", swapped);
    let after = case.prep("out", &CUT);
    assert_ne!(after.token_sequences(), before.token_sequences());
    assert_eq!(after.bytes, undisturbed(&case, "other"));
}

#[test]
fn fresh_replaces_another_data_set() {
    let case = case();
    case.recipe(&recipe("", 256));
    case.prep("out", &["--keep-work"]);
    case.recipe(&recipe("", 128).replace("[output]\n", "[output]\nshard_tokens = 2000\n"));
    let second = case.prep("out", &["--fresh"]);
    assert_eq!(second.bytes, undisturbed(&case, "other"));
    assert!(!case.path("out/.work").exists());
}

#[test]
fn fresh_replaces_an_up_to_date_data_set_and_the_bytes_are_the_same() {
    let case = case();
    case.recipe(&recipe("", 256));
    let before = (case.prep("out", &[]), case.stamps("out/shards"));
    let after = case.prep("out", &["--fresh"]);
    assert_eq!(after.bytes, before.0.bytes);
    assert_eq!(both(&before.1, &case.stamps("out/shards")), 0);
}

#[test]
fn plan_prints_sizes_and_writes_nothing() {
    let case = case();
    case.recipe(&recipe("", 256));
    let ran = case.run("out", &["--plan"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for word in ["a.jsonl", "120 rows", "sha256:", "partitions", "disk in out"] {
        assert!(ran.stdout.contains(word), "`{word}` is not in\n{}", ran.stdout);
    }
    assert_eq!(ran.stderr, "");
    assert!(!case.path("out").exists());
}

#[test]
fn a_damaged_staged_file_is_an_error_or_is_made_again_but_never_used() {
    let case = case();
    case.recipe(&recipe("", 256));
    case.prep("out", &CUT);
    let staged =
        map_files(&case).into_keys().find(|path| path.extension().is_some_and(|e| e == "arrow")).unwrap();
    let bytes = std::fs::read(&staged).unwrap();
    super::harness::put(&staged, &bytes[..bytes.len() / 2]);
    case.recipe(&recipe("", 512));
    let second = case.run("out", &CUT);
    if second.code == 0 {
        assert_eq!(case.data("out").bytes, undisturbed(&case, "other"));
    } else {
        second.is_refusal(&["staged file", "damaged", "--fresh"]);
        assert!(!case.path("out/manifest.json").exists());
    }
}

#[test]
fn a_shard_that_was_changed_is_not_called_up_to_date() {
    let case = case();
    case.recipe(&recipe("", 256));
    let first = case.prep("out", &[]);
    let shard = case.path("out").join(first.bytes.keys().next().unwrap());
    std::fs::remove_file(&shard).unwrap();
    let ran = case.run("out", &[]);
    assert!(!ran.stderr.contains("up to date"), "a shard is gone: {}", ran.stderr);
}
