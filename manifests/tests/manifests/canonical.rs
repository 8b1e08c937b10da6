use std::collections::BTreeMap;

use potable_manifests::canonical::{floats_as_text, pretty_json, sorted};
use potable_manifests::{CanonicalError, Digest, Manifest, RowLedger, canonical_json, ppm};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate::{json as any_json, manifest, rows, samples, v1};

fn canonical(value: &Value) -> String {
    canonical_json(value).expect("no floats in it")
}

#[test]
fn strings_and_keys_follow_the_rfc() {
    let control = json!("€$\u{f}\nA'B\"\\\\\"/\u{8}\u{c}\r\t\u{7f}");
    assert_eq!(canonical(&control), "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\\b\\f\\r\\t\u{7f}\"");
    // RFC 8785, 3.2.3: the emoji (a surrogate pair) sorts before U+FB33
    let keys = json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "ö": 7});
    let expected = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}";
    assert_eq!(canonical(&keys), expected);
}

#[test]
fn whole_numbers_are_kept_in_full() {
    let numbers = json!([0, -1, u64::MAX, i64::MIN, true, null, {}, []]);
    let expected = "[0,-1,18446744073709551615,-9223372036854775808,true,null,{},[]]";
    assert_eq!(canonical(&numbers), expected);
}

#[test]
fn a_float_is_an_error_with_its_place() {
    let value = json!({"pack": [1, {"a/b": 0.5}]});
    let error = canonical_json(&value).expect_err("a float");
    let message = "number `0.5` at `/pack/1/a~1b` is not a whole number of 64 bits";
    assert_eq!(error.to_string(), message);
    assert_eq!(pretty_json(&value), Err(error));
    let text = floats_as_text(value);
    assert_eq!(text, json!({"pack": [1, {"a/b": "0.5"}]}));
}

#[test]
fn a_float_in_the_settings_does_not_seal() {
    let mut manifest = v1();
    manifest.recipe.settings = json!({"validation": 0.005});
    let error = manifest.seal().expect_err("a float");
    let CanonicalError::Number { pointer, .. } = error else { panic!("`{error}`") };
    assert_eq!(pointer, "/recipe/settings/validation");
}

#[test]
fn the_run_block_is_outside_the_digest() {
    let (old, mut new) = (v1(), v1());
    new.run.host = None;
    new.run.potable_version = "9".to_owned();
    new.run.file_sha256.clear();
    assert_eq!(new.clone().seal().expect("sealed").manifest_digest, old.manifest_digest);
    new.tokens.total += 1;
    assert!(!new.verify_digest().expect("no floats"));
    assert_ne!(new.seal().expect("sealed").manifest_digest, old.manifest_digest);
}

#[test]
fn parts_per_million_round_down() {
    assert_eq!([ppm(1, 3), ppm(0, 0), ppm(5, 5)], [333_333, 0, 1_000_000]);
    assert_eq!(ppm(u64::MAX, u64::MAX), 1_000_000);
}

proptest! {
    #[test]
    fn canonical_json_reads_back_and_is_stable(value in any_json()) {
        let text = canonical(&value);
        let back: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert_eq!(&back, &value);
        prop_assert_eq!(canonical(&back), text.clone());
        prop_assert_eq!(canonical(&sorted(&value)), text);
    }

    #[test]
    fn a_sealed_manifest_survives_the_trip(manifest in manifest()) {
        prop_assert!(manifest.verify_digest().expect("no floats"));
        let text = manifest.to_json().expect("no floats");
        prop_assert_eq!(text.lines().last(), Some("}"));
        let back = Manifest::from_slice(text.as_bytes()).expect("its own text");
        prop_assert_eq!(&back, &manifest);
        prop_assert_eq!(back.to_json().expect("no floats"), text);
        prop_assert_eq!(back.seal().expect("no floats").manifest_digest, manifest.manifest_digest);
    }

    #[test]
    fn the_order_of_keys_and_white_space_do_not_matter(manifest in manifest()) {
        let compact = serde_json::to_vec(&manifest).expect("JSON");
        prop_assert_eq!(Manifest::from_slice(&compact).expect("a manifest"), manifest);
    }

    #[test]
    fn merged_ledgers_balance_in_any_order(a in rows(), b in rows(), c in samples(), d in samples()) {
        let (mut ab, mut ba) = (a.clone(), b.clone());
        ab.merge(&b);
        ba.merge(&a);
        prop_assert_eq!(&ab, &ba);
        prop_assert_eq!(ab.balance("x"), Ok(()));
        let (mut cd, mut dc) = (c.clone(), d.clone());
        cd.merge(&d);
        dc.merge(&c);
        prop_assert_eq!(&cd, &dc);
        prop_assert_eq!(cd.balance("x"), Ok(()));
    }
}

#[test]
fn a_manifest_names_the_source_that_is_off() {
    let mut manifest = v1();
    assert_eq!(manifest.balance(), Ok(()));
    manifest.rows = BTreeMap::from([("own".to_owned(), RowLedger { read: 1, ..Default::default() })]);
    let error = manifest.balance().expect_err("one row is lost").to_string();
    assert!(error.starts_with("rows of source `own` do not balance: read `1`, accounted for `0`"));
}

#[test]
fn an_unsealed_manifest_has_a_placeholder() {
    assert_eq!(Digest::zero().hex(), "0".repeat(64));
    assert_eq!(Digest::default(), Digest::zero());
}
