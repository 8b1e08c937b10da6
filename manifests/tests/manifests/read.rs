use potable_manifests::{Digest, Index, Kind, Manifest, ManifestError};

use crate::generate::{V1, v1};

fn message(text: &str) -> String {
    Manifest::from_slice(text.as_bytes()).expect_err("no manifest").to_string()
}

#[test]
fn version_1_is_read_and_written_as_it_was() {
    // the digest in compat/v1.json was computed by another implementation (Python's json module)
    let manifest = v1();
    assert!(manifest.verify_digest().expect("no floats"));
    assert_eq!(manifest.balance(), Ok(()));
    assert_eq!(manifest.to_json().expect("no floats"), V1);
}

#[test]
fn a_cut_file_is_named_as_such() {
    for cut in [0, 1, 40, V1.len() / 2, V1.len() - 2] {
        let text = V1.get(..cut).expect("ASCII there");
        let error = Manifest::from_slice(text.as_bytes()).expect_err("cut");
        assert!(matches!(error, ManifestError::Truncated { .. }), "`{cut}`: `{error}`");
    }
    let message = message("{\n  \"schema\"");
    assert_eq!(message, "`2:10`: the file ends inside its JSON, so it was cut short");
}

#[test]
fn other_files_are_named_as_such() {
    assert_eq!(message("seed = 1\n"), "`1:1`: not JSON: expected value");
    let foreign = "not a potable manifest: its JSON has no `schema`, it has ";
    assert_eq!(message("[1]"), format!("{foreign}an array"));
    assert_eq!(message("{}"), format!("{foreign}no keys"));
    assert_eq!(message("{\"splits\":1,\"name\":2}"), format!("{foreign}`splits`, `name`"));
    assert_eq!(message("{\"schema\":3}"), format!("{foreign}a `schema` that is a number"));
    for other in ["potable-diff-1", "potable-manifest-0", "potable-manifest-01"] {
        let expected = format!("not a potable manifest: `schema` is `{other}`, not `potable-manifest-1`");
        assert_eq!(message(&format!("{{\"schema\":\"{other}\"}}")), expected);
    }
}

#[test]
fn a_newer_version_names_both() {
    let text = V1.replace("potable-manifest-1", "potable-manifest-3").replace("\"seed\"", "\"x\"");
    let expected = "manifest has version `3`, this potable reads up to version `1`";
    assert_eq!(message(&text), expected);
}

#[test]
fn a_wrong_field_has_its_place() {
    let text = V1.replace("\"sampled_out\": 1,", "\"sampled_ouch\": 1,");
    let message = message(&text);
    assert!(message.contains(": not a manifest of version `1`: unknown field `sampled_ouch`"));
    assert!(!message.contains(" at line "), "`{message}`");
}

#[test]
fn an_edited_manifest_is_refused_with_both_digests() {
    let text = V1.replace("\"licence\": \"odc-by\"", "\"licence\": \"mit\"");
    let error = Manifest::from_slice(text.as_bytes()).expect_err("edited");
    let ManifestError::Edited { stated, computed } = error else { panic!("`{error}`") };
    assert_eq!(stated, v1().manifest_digest);
    assert_ne!(computed, stated);
    let digest = Digest::of(b"").to_string();
    let restated = V1.replace(stated.as_str(), &digest);
    assert!(message(&restated).starts_with("manifest was changed after it was sealed: it says `sha256:e3b0"));
}

#[test]
fn an_edited_run_block_is_none_of_our_business() {
    let text = V1.replace("\"host\": \"box\"", "\"host\": \"other\"");
    assert_eq!(Manifest::from_slice(text.as_bytes()).expect("sealed").run.host.as_deref(), Some("other"));
}

#[test]
fn a_float_is_refused() {
    let text = V1.replace("\"length\": 64,\n        \"overlong\"", "\"length\": 64.5,\n        \"overlong\"");
    let error = Manifest::from_slice(text.as_bytes()).expect_err("a float");
    assert!(matches!(error, ManifestError::Canonical { .. }), "`{error}`");
}

#[test]
fn the_demo_manifest_does_not_contradict_itself_and_a_wrong_count_does() {
    const DEMO: &str = include_str!("../../golden/demo.json");
    let mut demo = Manifest::from_slice(DEMO.as_bytes()).expect("a manifest");
    assert_eq!(demo.inconsistencies(), []);
    demo.tokens.total += 1;
    demo.inputs[0].name.push('x');
    demo.decontamination.benchmarks[0].items += 1;
    let found: Vec<_> = demo.inconsistencies().iter().map(ToString::to_string).collect();
    for expected in [
        "items of benchmark `demo-bench` do not add up: stated `26`, the parts make `25`",
        "`chatx` stands in the inputs, but not in the ledger of rows",
        "`chat` stands in the mixture, but not in the inputs",
    ] {
        assert!(found.iter().any(|text| text == expected), "{expected} is not in {found:#?}");
    }
    assert!(found.iter().any(|text| text.starts_with("tokens of the sources do not add up")), "{found:#?}");
}

#[test]
fn kinds_are_told_apart() {
    assert_eq!(Kind::of(V1.as_bytes()).expect("a manifest"), Kind::DataSet);
    let index = Index::new("x", Vec::new()).to_json().expect("no floats");
    assert_eq!(Kind::of(index.as_bytes()).expect("an index"), Kind::Index);
    assert!(message(&index).contains("`schema` is `potable-index-1`, not `potable-manifest-1`"));
    let outside = index
        .replace("[]", "[{\"phase\": \"..\", \"manifest_digest\": \"D\"}]")
        .replace("\"D\"", &format!("\"{}\"", Digest::of(b"")));
    let error = Index::from_slice(outside.as_bytes()).expect_err("outside").to_string();
    assert_eq!(error, "phase `..` is no folder beside the index");
    let newer = index.replace("index-1", "index-4");
    let error = Index::from_slice(newer.as_bytes()).expect_err("newer").to_string();
    assert_eq!(error, "manifest has version `4`, this potable reads up to version `1`");
}
