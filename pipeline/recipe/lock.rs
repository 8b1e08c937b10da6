//! `recipe.lock`: what exactly was read, file by file.

use serde::{Deserialize, Serialize};

/// Version of the lock's layout.
pub const LOCK_VERSION: u32 = 1;

/// The lock of one phase, written as TOML beside its manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Layout of the lock.
    pub version: u32,
    /// Partitions of the run.
    pub partitions: u32,
    /// Sources in recipe order.
    #[serde(default)]
    pub source: Vec<LockedSource>,
    /// Benchmarks in recipe order.
    #[serde(default)]
    pub benchmark: Vec<LockedSource>,
}

/// The files of a source or benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedSource {
    /// Name in the recipe.
    pub name: String,
    /// Id of the corpus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// Revision of the local copy, where the recipe says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Licence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Whether the files are local ones.
    pub local: bool,
    /// Files in name order.
    pub file: Vec<LockedFile>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedFile {
    /// Name below the source's folder.
    pub name: String,
    /// Size in bytes as stored.
    pub size: u64,
    /// SHA-256 of the stored bytes, in hex.
    pub sha256: String,
    /// Rows, where they are known before reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
}

impl Lock {
    /// The lock as TOML text.
    ///
    /// # Errors
    /// None in practice; the serialiser's words.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let body = toml::to_string_pretty(self)?;
        Ok(format!("# Written by potable: the exact inputs of this data set. Do not edit.\n{body}"))
    }
}
