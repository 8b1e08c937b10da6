use std::path::Path;

use potable_manifests::json_schema;

#[test]
#[expect(clippy::disallowed_methods, reason = "rewrites the committed schema")]
fn the_committed_schema_is_the_one_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/manifest-1.json");
    let made = json_schema().expect("no floats");
    if std::env::var_os("POTABLE_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, &made).expect("the schema is written");
    }
    let committed = std::fs::read_to_string(&path).expect("the schema is committed");
    assert!(committed == made, "schema/manifest-1.json is old: run the tests with POTABLE_BLESS=1");
}
