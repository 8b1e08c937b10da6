//! The JSON Schema of the manifest, made from the types; the committed copy is
//! `schema/manifest-1.json`.

use crate::canonical::{self, CanonicalError};
use crate::manifest::{Manifest, SCHEMA};

/// The JSON Schema (draft 2020-12) of version 1 as pretty JSON with sorted keys.
///
/// # Errors
/// [`CanonicalError`] if a type's schema holds a float; none does.
pub fn json_schema() -> Result<String, CanonicalError> {
    let mut schema = schemars::schema_for!(Manifest);
    schema.insert("title".to_owned(), SCHEMA.into());
    canonical::pretty_json(schema.as_value())
}
