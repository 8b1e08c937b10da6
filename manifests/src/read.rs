//! Reading `manifest.json`, with an error for each way in which a file is no manifest.

use serde_json::Value;

use crate::canonical::CanonicalError;
use crate::digest::Digest;
use crate::index::{INDEX_SCHEMA, Index};
use crate::manifest::{Manifest, SCHEMA, SCHEMA_VERSION, digest_of_value};

const SCHEMA_PREFIX: &str = "potable-manifest-";
const INDEX_PREFIX: &str = "potable-index-";

/// The two kinds of `manifest.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The manifest of one data set.
    DataSet,
    /// The index over the phases of a recipe.
    Index,
}

/// Bytes that are not a manifest of this version, or not the one that was sealed.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The JSON stops in the middle.
    #[error("`{line}:{column}`: the file ends inside its JSON, so it was cut short")]
    Truncated {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// The bytes are not JSON.
    #[error("`{line}:{column}`: not JSON: {reason}")]
    NotJson {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the parser said.
        reason: String,
    },
    /// JSON that another tool wrote.
    #[error("not a potable manifest: its JSON has no `schema`, it has {found}")]
    Foreign {
        /// The first keys of the object, each in backticks, or what the value is.
        found: String,
    },
    /// JSON with a `schema` that is not a manifest's.
    #[error("not a potable manifest: `schema` is `{found}`, not `{expected}`")]
    OtherSchema {
        /// What `schema` says.
        found: String,
        /// The `schema` of the kind that was asked for.
        expected: &'static str,
    },
    /// A manifest of a later version.
    #[error("manifest has version `{found}`, this potable reads up to version `{supported}`")]
    Newer {
        /// The file's version.
        found: u64,
        /// [`SCHEMA_VERSION`].
        supported: u64,
    },
    /// The right `schema`, but not its fields.
    #[error("`{line}:{column}`: not a manifest of version `{SCHEMA_VERSION}`: {reason}")]
    Shape {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A whole manifest whose content is not what was sealed.
    #[error("manifest was changed after it was sealed: it says `{stated}`, its content has `{computed}`")]
    Edited {
        /// `manifest_digest` of the file.
        stated: Digest,
        /// The digest of what the file holds.
        computed: Digest,
    },
    /// An index with a phase that is no folder beside it.
    #[error("phase `{phase}` is no folder beside the index")]
    PhaseFolder {
        /// The name of the phase.
        phase: String,
    },
    /// A number in it is not a whole number.
    #[error("manifest holds a number that potable does not write")]
    Canonical {
        /// Which number.
        #[source]
        source: CanonicalError,
    },
}

impl Kind {
    /// The kind of a `manifest.json`; `bytes` is the whole file.
    ///
    /// # Errors
    /// [`ManifestError`] for a file that is neither, or of a later version.
    pub fn of(bytes: &[u8]) -> Result<Self, ManifestError> {
        let value: Value = serde_json::from_slice(bytes).map_err(json_error)?;
        let is_index =
            value.get("schema").and_then(Value::as_str).is_some_and(|s| s.starts_with(INDEX_PREFIX));
        let kind = if is_index { Kind::Index } else { Kind::DataSet };
        check_schema(&value, kind)?;
        Ok(kind)
    }

    /// What the kind is, for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::DataSet => "the manifest of one data set",
            Kind::Index => "an index of several phases",
        }
    }
}

impl Manifest {
    /// Reads a sealed manifest and checks its digest. `bytes` is the whole of `manifest.json`;
    /// its layout and the order of its keys do not matter.
    ///
    /// # Errors
    /// [`ManifestError`], in the order of its variants.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (manifest, computed) = Self::read_unchecked(bytes)?;
        if computed == manifest.manifest_digest {
            Ok(manifest)
        } else {
            let stated = manifest.manifest_digest;
            Err(ManifestError::Edited { stated, computed })
        }
    }

    /// Reads a manifest whatever its digest says, with the digest that its content has: for a look
    /// at what was changed. Never trust what it gives without comparing the two.
    ///
    /// # Errors
    /// As [`Manifest::from_slice`], without [`ManifestError::Edited`].
    pub fn read_unchecked(bytes: &[u8]) -> Result<(Self, Digest), ManifestError> {
        let value: Value = serde_json::from_slice(bytes).map_err(json_error)?;
        check_schema(&value, Kind::DataSet)?;
        let manifest: Self = serde_json::from_slice(bytes).map_err(shape_error)?;
        let computed = digest_of_value(&value).map_err(|source| ManifestError::Canonical { source })?;
        Ok((manifest, computed))
    }
}

impl Index {
    /// Reads an index. `bytes` is the whole of `manifest.json`.
    ///
    /// # Errors
    /// [`ManifestError`], without its digests: an index has none of its own.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, ManifestError> {
        let value: Value = serde_json::from_slice(bytes).map_err(json_error)?;
        check_schema(&value, Kind::Index)?;
        let index: Self = serde_json::from_slice(bytes).map_err(shape_error)?;
        let outside =
            |name: &str| name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\']);
        match index.phases.iter().find(|entry| outside(&entry.phase)) {
            Some(entry) => Err(ManifestError::PhaseFolder { phase: entry.phase.clone() }),
            None => Ok(index),
        }
    }
}

fn check_schema(value: &Value, kind: Kind) -> Result<(), ManifestError> {
    let (expected, prefix) = match kind {
        Kind::DataSet => (SCHEMA, SCHEMA_PREFIX),
        Kind::Index => (INDEX_SCHEMA, INDEX_PREFIX),
    };
    let found = match value {
        Value::Object(fields) => match fields.get("schema") {
            Some(Value::String(schema)) => schema,
            Some(other) => {
                let found = format!("a `schema` that is {}", kind_of(other));
                return Err(ManifestError::Foreign { found });
            }
            None => {
                let keys = fields.keys().take(4).map(|key| format!("`{key}`"));
                let keys: Vec<_> = keys.collect();
                let found = if keys.is_empty() { "no keys".to_owned() } else { keys.join(", ") };
                return Err(ManifestError::Foreign { found });
            }
        },
        other => {
            return Err(ManifestError::Foreign { found: kind_of(other).to_owned() });
        }
    };
    let version = found.strip_prefix(prefix).and_then(|version| version.parse::<u64>().ok());
    match version {
        Some(_) if found == expected => Ok(()),
        Some(found) if found > SCHEMA_VERSION => {
            Err(ManifestError::Newer { found, supported: SCHEMA_VERSION })
        }
        _ => Err(ManifestError::OtherSchema { found: found.clone(), expected }),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn json_error(error: serde_json::Error) -> ManifestError {
    let (line, column) = (error.line(), error.column());
    if error.is_eof() {
        return ManifestError::Truncated { line, column };
    }
    ManifestError::NotJson { line, column, reason: reason(&error) }
}

fn shape_error(error: serde_json::Error) -> ManifestError {
    let (line, column) = (error.line(), error.column());
    ManifestError::Shape { line, column, reason: reason(&error) }
}

/// What serde said, without the place that our message already names.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}
