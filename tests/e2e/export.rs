//! `manifest export` and `manifest show` on real runs.

use std::collections::BTreeSet;

use potable_manifests::sha256_hex;
use serde_json::Value;

use super::harness::{Case, Ran, chats, files_below};

const SOURCE: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";

fn prepared(recipe: &str) -> Case {
    let case = Case::new();
    case.put("a.jsonl", chats(60));
    case.recipe(recipe);
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    case
}

fn phased() -> Case {
    prepared(&format!(
        "{SOURCE}[[phase]]\nname = \"short\"\n[phase.pack]\nlength = 256\n[[phase]]\nname = \"long\"\n[phase.pack]\nlength = [256, 512]\n"
    ))
}

fn export(case: &Case, to: &str) -> String {
    let ran = case.potable(&["manifest", "export", "out", "--to", to, "--quiet"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

/// The shards on the disk, by their paths below the output folder.
fn on_disk(case: &Case) -> BTreeSet<String> {
    let out = case.path("out");
    let below = |path: std::path::PathBuf| path.strip_prefix(&out).unwrap().to_str().unwrap().to_owned();
    files_below(&out)
        .into_iter()
        .map(below)
        .filter(|path| path.contains("part-") && !path.contains("dropped/"))
        .collect()
}

fn sha256_of(case: &Case, path: &str) -> String {
    sha256_hex(&std::fs::read(case.path("out").join(path)).unwrap())
}

#[test]
fn subjects_of_the_statement_are_the_shards_on_the_disk() {
    for case in [prepared(&format!("{SOURCE}[output]\nvalidation = 0.2\n")), phased()] {
        let statement: Value = serde_json::from_str(&export(&case, "in-toto")).unwrap();
        assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
        let subjects = statement["subject"].as_array().unwrap();
        let names: BTreeSet<String> =
            subjects.iter().map(|subject| subject["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names, on_disk(&case));
        let build = &statement["predicate"]["buildDefinition"];
        let products = statement["predicate"]["runDetails"]["byproducts"].as_array().unwrap();
        for file in subjects.iter().chain(products) {
            let name = file["name"].as_str().unwrap();
            assert_eq!(file["digest"]["sha256"], sha256_of(&case, name), "{name}");
        }
        let inputs = build["resolvedDependencies"].as_array().unwrap();
        let input = inputs.iter().find(|material| material["name"] == "a/a.jsonl").unwrap();
        assert_eq!(input["digest"]["sha256"], sha256_hex(&std::fs::read(case.path("a.jsonl")).unwrap()));
    }
}

#[test]
fn files_of_croissant_and_globs_of_the_card_are_the_shards_on_the_disk() {
    for case in [prepared(&format!("{SOURCE}[output]\nvalidation = 0.2\n")), phased()] {
        let croissant: Value = serde_json::from_str(&export(&case, "croissant")).unwrap();
        let objects = croissant["distribution"].as_array().unwrap().iter();
        let mut named = BTreeSet::new();
        for object in objects.filter(|object| object["@type"] == "cr:FileObject") {
            let path = object["contentUrl"].as_str().unwrap();
            assert_eq!(object["sha256"], sha256_of(&case, path), "{path}");
            named.insert(path.to_owned());
        }
        assert_eq!(named, on_disk(&case));
        let card = export(&case, "card");
        let mut found = BTreeSet::new();
        let header = card.split("---\n").nth(1).unwrap();
        for line in header.lines().filter(|line| line.contains("/*.parquet")) {
            let glob = line.trim_start_matches([' ', '-']).trim_start_matches("path: ");
            let folder = case.path("out").join(glob.trim_end_matches("/*.parquet"));
            for file in std::fs::read_dir(&folder).unwrap() {
                let path = file.unwrap().path();
                found.insert(path.strip_prefix(case.path("out")).unwrap().to_str().unwrap().to_owned());
            }
        }
        assert_eq!(found, on_disk(&case), "{header}");
    }
}

#[test]
fn exports_are_the_same_for_any_threads_and_cut() {
    let case = prepared(SOURCE);
    let [card, markdown] = ["card", "markdown"].map(|to| export(&case, to));
    assert_eq!(case.run("out", &["--fresh", "--threads", "1", "--unit-bytes", "700"]).code, 0);
    assert_eq!([card, markdown], ["card", "markdown"].map(|to| export(&case, to)));
}

#[test]
fn an_export_goes_to_a_file_and_a_note_says_so() {
    let case = prepared(SOURCE);
    let ran = case.potable(&["manifest", "export", "out", "--to", "markdown", "-o", "DATA.md"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    assert!(ran.stderr.contains("wrote DATA.md"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(case.path("DATA.md")).unwrap(), export(&case, "markdown"));
    let file = case.potable(&["manifest", "export", "out/manifest.json", "--to", "markdown"]);
    assert_eq!(file.stdout, export(&case, "markdown"));
    let ran = case.potable(&["manifest", "export", "out", "--to", "croissant"]);
    assert!(ran.stderr.contains("--url, --creator"), "{}", ran.stderr);
}

#[test]
fn croissant_says_what_the_publisher_says() {
    let case = prepared(SOURCE);
    let ran = case.potable(&[
        "manifest",
        "export",
        "out",
        "--to",
        "croissant",
        "--url",
        "https://example.org/d",
        "--creator",
        "Ann",
        "--published",
        "2026-01-02",
        "--data-version",
        "2.0.0",
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let croissant: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(croissant["url"], "https://example.org/d");
    assert_eq!(croissant["datePublished"], "2026-01-02");
    assert!(croissant["version"].as_str().unwrap().starts_with("2.0.0+sha256."));
}

fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "`{word}` is not in:\n{}", ran.stderr);
    }
}

#[test]
fn what_is_no_manifest_is_refused_by_show_and_export() {
    let case = prepared(SOURCE);
    case.put("empty/x", "");
    case.put("other/manifest.json", "{\"name\": \"a web app\", \"icons\": []}");
    case.put("cut/manifest.json", &std::fs::read(case.path("out/manifest.json")).unwrap()[..500]);
    let edited = std::fs::read_to_string(case.path("out/manifest.json")).unwrap();
    case.put("edited/manifest.json", edited.replacen("\"kept\": 60", "\"kept\": 61", 1));
    for command in [&["show"][..], &["export", "--to", "card"]] {
        let run = |folder: &str| {
            let args: Vec<&str> =
                ["manifest"].into_iter().chain(command.iter().copied()).chain([folder]).collect();
            case.potable(&args)
        };
        refused(&run("empty"), &["empty", "holds no manifest.json"]);
        refused(&run("other"), &["other/manifest.json", "not a potable manifest"]);
        refused(&run("cut"), &["cut/manifest.json", "cut short"]);
        refused(&run("edited"), &["edited/manifest.json", "changed after it was sealed"]);
    }
}

#[test]
fn a_phase_that_was_written_again_is_refused() {
    let case = phased();
    case.put("a.jsonl", chats(61));
    case.recipe(&format!("{SOURCE}[pack]\nlength = 256\n"));
    std::fs::remove_dir_all(case.path("out/short")).unwrap();
    assert_eq!(case.run("out/short", &[]).code, 0);
    refused(
        &case.potable(&["manifest", "show", "out"]),
        &["out/short", "the index beside it names", "\nhint: "],
    );
}

#[test]
fn an_index_cannot_point_out_of_its_folder() {
    let case = phased();
    std::fs::rename(case.path("out/short"), case.path("elsewhere")).unwrap();
    let index = std::fs::read_to_string(case.path("out/manifest.json")).unwrap();
    case.put("out/manifest.json", index.replace("\"short\"", "\"../elsewhere\""));
    refused(&case.potable(&["manifest", "show", "out"]), &["out/manifest.json"]);
}

#[test]
fn a_data_set_is_shown_in_80_columns_without_control_characters() {
    let case = Case::new();
    case.put("a.jsonl", chats(60));
    let sources: String = (0..14)
        .map(|n| format!("[[source]]\nname = \"a-source-with-a-very-long-name-{n}\"\npath = \"a.jsonl\"\n"))
        .collect();
    case.recipe(&format!("{sources}[dedup]\nexact = \"none\"\n[output]\nvalidation = 0.1\n"));
    assert_eq!(case.run("out", &[]).code, 0);
    let ran = case.potable(&["manifest", "show", "out"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for word in
        ["rows read", "rows left out", "benchmarks", "tokens", "packs", "fill", "6 more", "not checked"]
    {
        assert!(ran.stdout.contains(word), "`{word}` is not in:\n{}", ran.stdout);
    }
    assert!(ran.stdout.is_ascii(), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|line| line.len() <= 80), "{}", ran.stdout);
}

#[test]
fn phases_are_shown_one_after_the_other() {
    let case = phased();
    let ran = case.potable(&["manifest", "show", "out"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let short = ran.stdout.find("t, phase short").unwrap();
    assert!(short < ran.stdout.find("t, phase long").unwrap());
    let one = case.potable(&["manifest", "show", "out/long"]);
    assert!(ran.stdout.ends_with(&one.stdout));
}
