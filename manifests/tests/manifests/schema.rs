use std::path::Path;

use potable_manifests::{json_schema, policy_schema};

#[expect(clippy::disallowed_methods, reason = "rewrites the committed schema")]
fn is_committed(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name);
    if std::env::var_os("POTABLE_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, made).expect("the schema is written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "schema/{name} is old: run the tests with POTABLE_BLESS=1");
}

#[test]
fn the_committed_schema_is_the_one_of_the_types() {
    is_committed("manifest-1.json", &json_schema().expect("no floats"));
}

#[test]
fn the_committed_schema_of_policies_is_the_one_of_the_types() {
    is_committed("policy-1.json", &policy_schema().expect("no floats"));
}
