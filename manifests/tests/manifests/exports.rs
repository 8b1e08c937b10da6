use std::path::Path;

use potable_manifests::export::{card, croissant, in_toto, markdown};
use potable_manifests::{DataSet, ExportError, FileRecord, Manifest, Part, Publication};
use proptest::prelude::*;
use serde_json::Value;

use crate::generate::{manifest, sealed, v1};

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn published() -> Publication {
    let text = |text: &str| Some(text.to_owned());
    Publication {
        url: text("https://example.org/data"),
        creator: text("Example"),
        date: text("2026-01-02"),
        version: text("1.2.3"),
    }
}

/// The manifest of version 1 twice, as phases.
fn phases() -> DataSet {
    let phase = |name: &str| {
        let manifest = sealed(Manifest { phase: Some(name.to_owned()), ..v1() });
        Part { folder: format!("{name}/"), manifest }
    };
    DataSet { name: "both".to_owned(), parts: vec![phase("text"), phase("chat")] }
}

/// Compares with a committed file; POTABLE_BLESS=1 rewrites it.
#[expect(clippy::disallowed_methods, reason = "rewrites the committed files")]
fn is_golden(name: &str, made: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/exports");
    let path = folder.join(name);
    if std::env::var_os("POTABLE_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::create_dir_all(&folder).expect("the folder is made");
        std::fs::write(&path, made).expect("the file is written");
    }
    let committed = std::fs::read_to_string(&path).expect("the file is committed");
    assert!(committed == made, "golden/exports/{name} is old: run the tests with POTABLE_BLESS=1");
}

#[test]
fn exports_of_a_manifest_are_the_committed_ones() {
    let set = DataSet::single(v1());
    is_golden("v1.croissant.json", &croissant(&set, &published()).expect("exports"));
    is_golden("v1.in-toto.json", &in_toto(&set).expect("exports"));
    is_golden("v1.card.md", &card(&set));
    is_golden("v1.markdown.md", &markdown(&set).expect("exports"));
}

#[test]
fn exports_of_phases_are_the_committed_ones() {
    let set = phases();
    is_golden("phases.croissant.json", &croissant(&set, &Publication::default()).expect("exports"));
    is_golden("phases.card.md", &card(&set));
}

#[test]
fn subjects_are_all_files_of_all_phases_and_materials_stand_once() {
    let (one, both) = (DataSet::single(v1()), phases());
    let [one, both] = [one, both].map(|set| json(&in_toto(&set).expect("exports")));
    let subjects = |statement: &Value| statement["subject"].as_array().expect("a list").len();
    assert_eq!(subjects(&both), 2 * subjects(&one));
    let names = both["subject"].as_array().expect("a list").iter();
    assert!(names.clone().any(|subject| subject["name"].as_str().is_some_and(|n| n.starts_with("text/"))));
    let materials = "/predicate/buildDefinition/resolvedDependencies";
    assert_eq!(both.pointer(materials), one.pointer(materials));
    let digests = one.pointer(materials).and_then(Value::as_array).expect("a list");
    assert!(!digests.is_empty());
    assert!(digests.iter().all(|m| m["digest"]["sha256"].as_str().is_some_and(|hex| hex.len() == 64)));
}

#[test]
fn only_formats_that_are_known_are_described() {
    let mut manifest = v1();
    manifest.recipe.settings = serde_json::json!({"output": {"format": "parquet-unpacked"}});
    let set = DataSet::single(sealed(manifest.clone()));
    let table = json(&croissant(&set, &Publication::default()).expect("exports"));
    assert_eq!(table["recordSet"], serde_json::json!([]));
    assert!(card(&set).contains("load_dataset") && !card(&set).contains("A row is a pack"));
    for shard in &mut manifest.shards {
        let file = manifest.run.file_sha256.remove(&shard.path).expect("a file");
        shard.path = shard.path.replace(".parquet", ".bin");
        manifest.run.file_sha256.insert(shard.path.clone(), file);
    }
    let set = DataSet::single(sealed(manifest));
    let croissant = croissant(&set, &Publication::default()).expect("exports");
    assert!(croissant.contains("application/octet-stream") && !croissant.contains("cr:FileSet"));
    assert!(!card(&set).contains("configs:") && !card(&set).contains("load_dataset"));
}

#[test]
fn a_shard_without_a_file_digest_is_named() {
    let mut manifest = v1();
    let path = manifest.shards[0].path.clone();
    manifest.run.file_sha256.remove(&path);
    let set = DataSet::single(manifest);
    for made in [in_toto(&set), markdown(&set), croissant(&set, &Publication::default())] {
        let error = made.expect_err("refused");
        assert!(matches!(&error, ExportError::NoFileDigest { path: named } if *named == path), "{error}");
        assert_eq!(error.to_string(), format!("manifest has no file digest of shard `{path}`"));
    }
}

#[test]
fn what_only_a_publisher_knows_is_left_out() {
    let mut manifest = v1();
    manifest.run.started = None;
    let set = DataSet::single(manifest);
    let bare = json(&croissant(&set, &Publication::default()).expect("exports"));
    for key in ["url", "creator", "datePublished"] {
        assert_eq!(bare.get(key), None, "{key}");
    }
    assert!(bare["version"].as_str().is_some_and(|version| version.starts_with("0.0.0+sha256.")));
    let full = json(&croissant(&set, &published()).expect("exports"));
    assert_eq!(full["url"], "https://example.org/data");
    assert_eq!(full["creator"]["name"], "Example");
    assert_eq!(full["datePublished"], "2026-01-02");
    assert!(full["version"].as_str().is_some_and(|version| version.starts_with("1.2.3+sha256.")));
}

#[test]
fn names_are_never_markup() {
    let mut manifest = v1();
    manifest.name = "a|b\n<script>alert(1)</script> `x` [y](javascript:z)\u{202e}".to_owned();
    manifest.inputs[0].licence = Some("| forged |\n\n# forged".to_owned());
    let set = DataSet::single(sealed(manifest));
    for text in [card(&set), markdown(&set).expect("exports")] {
        let body = text.rsplit_once("---\n\n").map_or(text.as_str(), |(_, body)| body);
        assert!(!body.contains("<script>") && !body.contains("\n# forged") && !body.contains("[y]("));
        assert!(!body.contains('\u{202e}'));
        assert!(body.contains("&lt;script&gt;"), "{body}");
    }
}

#[test]
fn rows_that_were_not_checked_are_said_to_be() {
    let mut manifest = v1();
    manifest.decontamination.mode = potable_manifests::DecontaminationMode::None;
    let set = DataSet::single(sealed(manifest));
    assert!(
        markdown(&set).expect("exports").contains("| Were all rows checked against benchmarks? | **no**")
    );
    let card = card(&set);
    assert!(
        card.contains("The rows were **not** checked against any benchmark.")
            && !card.contains("- decontaminated")
    );
}

/// Files for all shards, so that a made-up manifest can be exported.
fn with_files(mut manifest: Manifest) -> Manifest {
    for shard in &manifest.shards {
        let file = FileRecord { sha256: shard.content_digest.clone(), size: 1 };
        manifest.run.file_sha256.insert(shard.path.clone(), file);
    }
    manifest
}

proptest! {
    #[test]
    fn every_manifest_exports_to_whole_documents(manifest in manifest()) {
        let set = DataSet::single(with_files(manifest));
        json(&croissant(&set, &Publication::default()).expect("exports"));
        let statement = json(&in_toto(&set).expect("exports"));
        let files = set.parts[0].manifest.run.file_sha256.len();
        prop_assert_eq!(statement["subject"].as_array().expect("a list").len(), files);
        let text = card(&set);
        let header = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).expect("a header").0;
        prop_assert!(header.is_ascii() || header.chars().all(|c| !c.is_control() || c == '\n'));
        // Rows of a table have as many cells as its head, whatever the names are.
        let mut cells = 0;
        for line in markdown(&set).expect("exports").lines() {
            let bars = line.replace("\\|", "").matches('|').count();
            if line.starts_with("| ") {
                prop_assert!(cells == 0 || cells == bars, "{}", line);
                cells = bars;
            } else {
                cells = 0;
            }
        }
    }
}
