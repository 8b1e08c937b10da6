//! Several phases in one recipe.

use std::collections::BTreeSet;

use serde_json::Value;

use super::harness::{Case, chats, chats_from, lines};

const SOURCES: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";

fn texts(case: &Case, folder: &str) -> BTreeSet<String> {
    case.data(folder).texts().into_iter().collect()
}

/// Two phases over overlapping rows: the second leaves out the rows of the first.
fn two_phases(more: &str) -> String {
    format!(
        "[pack]\nlength = 256\n[output]\npartition_bytes = 4000\n\
         [[phase]]\nname = \"one\"\n[[phase.source]]\nname = \"a\"\npath = \"a.jsonl\"\nmax_rows = 30\n\
         [[phase]]\nname = \"two\"\n{more}[[phase.source]]\nname = \"all\"\npath = [\"a.jsonl\", \"b.jsonl\"]\n"
    )
}

fn case() -> Case {
    let case = Case::new();
    case.put("a.jsonl", chats(80));
    case.put("b.jsonl", chats_from(70, 30));
    case
}

#[test]
fn phases_have_folders_and_manifests_of_their_own_and_an_index() {
    let case = case();
    case.recipe(&format!("{SOURCES}[[phase]]\nname = \"short\"\n[phase.pack]\nlength = 128\n[[phase]]\nname = \"long\"\n[phase.pack]\nlength = 512\n"));
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let index: Value =
        serde_json::from_slice(&std::fs::read(case.path("out/manifest.json")).unwrap()).unwrap();
    for (at, (name, length)) in [("short", 128), ("long", 512)].into_iter().enumerate() {
        let data = case.data(&format!("out/{name}"));
        assert_eq!(data.manifest["phase"], name);
        assert_eq!(data.manifest["shards"][0]["length"], length);
        assert_eq!(index["phases"][at]["manifest_digest"], data.manifest["manifest_digest"]);
    }
}

#[test]
fn a_text_phase_and_a_chat_phase_stand_in_one_recipe() {
    let case = case();
    case.put("t.jsonl", lines((0..9).map(|n| serde_json::json!({"text": format!("Text number {n}.")}))));
    case.recipe("[[phase]]\nname = \"text\"\n[phase.normalise]\nformat = \"text\"\n[[phase.source]]\nname = \"t\"\npath = \"t.jsonl\"\n[[phase]]\nname = \"chat\"\n[[phase.source]]\nname = \"a\"\npath = \"a.jsonl\"\n");
    assert_eq!(case.run("out", &[]).code, 0);
    assert_eq!(case.data("out/text").samples().len(), 9);
    assert_eq!(case.data("out/chat").samples().len(), 80);
}

#[test]
fn a_phase_shares_no_row_with_the_phase_that_it_excludes() {
    let case = case();
    case.recipe(&two_phases("exclude_phase = \"one\"\n"));
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let (one, two) = (texts(&case, "out/one"), texts(&case, "out/two"));
    assert_eq!((one.len(), two.len()), (30, 70));
    assert!(one.is_disjoint(&two));
    // 30 rows, and a second copy of two of them.
    assert_eq!(case.data("out/two").number("/rows/all/dropped/dedup.other-phase"), 32);
}

#[test]
fn a_phase_shares_no_row_with_the_phase_that_it_excludes_where_duplicates_stay() {
    let case = case();
    case.recipe(&("[dedup]\nexact = \"none\"\n".to_owned() + &two_phases("exclude_phase = \"one\"\n")));
    let ran = case.run("out", &[]);
    if ran.code == 2 {
        // To refuse is right too: without a key of the content, nothing can be told apart.
        return ran.is_refusal(&["exclude_phase", "exact"]);
    }
    assert!(texts(&case, "out/one").is_disjoint(&texts(&case, "out/two")));
}

#[test]
fn a_second_run_of_an_excluding_phase_gives_the_same_rows() {
    let case = case();
    case.recipe(&two_phases("exclude_phase = \"one\"\n"));
    assert_eq!(case.run("out", &[]).code, 0);
    let before = case.data("out/two");
    std::fs::remove_dir_all(case.path("out/two")).unwrap();
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("out/one is up to date"), "{}", ran.stderr);
    assert_eq!(case.data("out/two").bytes, before.bytes);
}

#[test]
fn an_exclusion_that_is_added_later_is_kept_too() {
    let case = case();
    case.recipe(&two_phases(""));
    assert_eq!(case.run("out", &[]).code, 0);
    case.recipe(&two_phases("exclude_phase = \"one\"\n"));
    std::fs::remove_dir_all(case.path("out/two")).unwrap();
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(texts(&case, "out/one").is_disjoint(&texts(&case, "out/two")));
}

#[test]
fn an_exclusion_of_a_later_phase_is_refused() {
    let case = case();
    case.recipe(&format!(
        "{SOURCES}[[phase]]\nname = \"one\"\nexclude_phase = \"two\"\n[[phase]]\nname = \"two\"\n"
    ));
    case.refused(&["phase `one`", "exclude_phase = \"two\"", "names no earlier phase"]);
}

#[test]
fn a_run_that_fails_in_a_later_phase_leaves_no_index() {
    let case = case();
    case.recipe(&two_phases(""));
    assert_eq!(case.run("out", &[]).code, 0);
    assert!(case.path("out/manifest.json").exists());
    case.put("b.jsonl", "{\n");
    case.run("out", &["--fresh"]).is_refusal(&["b.jsonl:1"]);
    assert!(!case.path("out/manifest.json").exists(), "the index of the earlier run is left");
}

#[test]
fn a_folder_with_files_of_others_is_refused_with_phases_too() {
    let case = case();
    case.put("out/thesis.tex", "years of work");
    case.recipe(&two_phases(""));
    case.refused(&["out", "holds files that potable did not write"]);
}
