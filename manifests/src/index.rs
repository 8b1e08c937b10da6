//! The index over the phases of a recipe: `manifest.json` beside the phases' folders.

use serde::{Deserialize, Serialize};

use crate::canonical::{self, CanonicalError};
use crate::digest::Digest;

/// The `schema` value of an index that this crate writes.
pub const INDEX_SCHEMA: &str = "potable-index-1";

/// Names the phases of a recipe and the manifest of each, in the recipe's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// Name and version of this format.
    pub schema: String,
    /// The recipe's name.
    pub name: String,
    /// The phases.
    pub phases: Vec<IndexedPhase>,
}

/// One phase of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexedPhase {
    /// Name of the phase, and of its folder beside the index.
    pub phase: String,
    /// Manifest digest of the phase.
    pub manifest_digest: Digest,
}

impl Index {
    /// An index of these phases.
    pub fn new(name: &str, phases: Vec<IndexedPhase>) -> Self {
        Index { schema: INDEX_SCHEMA.to_owned(), name: name.to_owned(), phases }
    }

    /// The text of the index: keys sorted, two spaces of indent, a newline at the end. The same
    /// index gives the same bytes.
    ///
    /// # Errors
    /// [`CanonicalError`] if serialisation fails; an index holds no floats.
    pub fn to_json(&self) -> Result<String, CanonicalError> {
        canonical::pretty_json(&canonical::to_value(self)?)
    }

    /// SHA-256 of the canonical JSON: names the phases together.
    ///
    /// # Errors
    /// [`CanonicalError`] if serialisation fails; an index holds no floats.
    pub fn digest(&self) -> Result<Digest, CanonicalError> {
        Ok(Digest::of(canonical::canonical_json(&canonical::to_value(self)?)?.as_bytes()))
    }
}
