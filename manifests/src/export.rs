//! A data set in the formats of others: each export is a function of its manifests alone, so the
//! same manifests give the same bytes.

mod card;
mod croissant;
mod in_toto;
mod markdown;
mod words;

mod yaml;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::canonical::CanonicalError;
use crate::digest::Digest;
use crate::index::{Index, IndexedPhase};
use crate::manifest::{BenchmarkRecord, DecontaminationMode, InputSource, Manifest, ShardRecord, Split};

pub use card::card;
pub use croissant::croissant;
pub use in_toto::in_toto;
pub use markdown::markdown;
pub use words::grouped;

/// A data set as its manifests tell it.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSet {
    /// The recipe's name.
    pub name: String,
    /// The manifest, or one a phase in the recipe's order.
    pub parts: Vec<Part>,
}

/// One manifest of a [`DataSet`].
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its folder below the data set: empty, or the phase's name and a `/`.
    pub folder: String,
    /// The manifest.
    pub manifest: Manifest,
}

/// What a manifest does not know, because it is decided when the data is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// Page of the data set.
    pub url: Option<String>,
    /// Who made it.
    pub creator: Option<String>,
    /// When it was published, as an ISO 8601 date; else the day of the run, where the manifest has it.
    pub date: Option<String>,
    /// Its version, MAJOR.MINOR.PATCH; else `0.0.0`. The digest is added either way.
    pub version: Option<String>,
}

/// A manifest that cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A shard without the digest of its file.
    #[error("manifest has no file digest of shard `{path}`")]
    NoFileDigest {
        /// The shard.
        path: String,
    },
    /// A number in it is not a whole number.
    #[error("manifest holds a number that potable does not write")]
    Canonical {
        /// Which number.
        #[from]
        source: CanonicalError,
    },
}

/// A file of a shard, with its path below the data set.
pub(crate) struct ShardFile<'a> {
    pub(crate) path: String,
    pub(crate) sha256: &'a Digest,
    pub(crate) size: u64,
}

impl DataSet {
    /// A data set of one manifest.
    pub fn single(manifest: Manifest) -> Self {
        Self { name: manifest.name.clone(), parts: vec![Part { folder: String::new(), manifest }] }
    }

    /// All manifests.
    pub fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.parts.iter().map(|part| &part.manifest)
    }

    /// All sources of all parts.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &InputSource> {
        self.manifests().flat_map(|manifest| &manifest.inputs)
    }

    /// The files of all shards; a shard of some formats has several.
    pub(crate) fn files(&self) -> Result<Vec<ShardFile<'_>>, ExportError> {
        let mut files = Vec::new();
        for part in &self.parts {
            part.check_files()?;
            files.extend(part.manifest.run.file_sha256.iter().map(|(path, file)| ShardFile {
                path: format!("{}{path}", part.folder),
                sha256: &file.sha256,
                size: file.size,
            }));
        }
        Ok(files)
    }

    /// What names the data: the digest of its one manifest, or of the index of its phases.
    pub fn digest(&self) -> Digest {
        let phase = |part: &Part| {
            let Manifest { phase, manifest_digest, .. } = &part.manifest;
            Some(IndexedPhase { phase: phase.clone()?, manifest_digest: manifest_digest.clone() })
        };
        match self.parts.as_slice() {
            [part] if part.folder.is_empty() => part.manifest.manifest_digest.clone(),
            parts => {
                let index = Index::new(&self.name, parts.iter().filter_map(phase).collect());
                index.digest().unwrap_or_default()
            }
        }
    }

    /// The licences of the sources as they are stated, each once.
    pub(crate) fn licences(&self) -> BTreeSet<&str> {
        self.sources().map(|source| source.licence.as_deref().unwrap_or(words::NO_LICENCE)).collect()
    }

    /// Sum over all manifests.
    pub(crate) fn sum(&self, count: impl Fn(&Manifest) -> u64) -> u64 {
        self.manifests().map(count).fold(0, u64::saturating_add)
    }
}

impl Part {
    /// What comes before a name that is unique in this part only.
    pub(crate) fn label(&self) -> Option<&str> {
        self.manifest.phase.as_deref()
    }

    /// Every shard must have a file: one with its path, or with its path and an ending.
    fn check_files(&self) -> Result<(), ExportError> {
        let files = &self.manifest.run.file_sha256;
        let has_file = |path: &String| {
            let next = files.range(path.clone()..).next();
            next.is_some_and(|(name, _)| name.starts_with(path.as_str()))
        };
        match self.manifest.shards.iter().find(|shard| !has_file(&shard.path)) {
            Some(shard) => Err(ExportError::NoFileDigest { path: shard.path.clone() }),
            None => Ok(()),
        }
    }
}

/// Globs that match the shards of a split and nothing else: one a folder and file ending.
pub(crate) fn globs(part: &Part, split: Split) -> BTreeSet<String> {
    let shards = part.manifest.shards.iter().filter(|shard| shard.split == split);
    let glob = |shard: &ShardRecord| {
        let (folder, file) = shard.path.rsplit_once('/').unwrap_or(("", &shard.path));
        let ending = file.split_once('.').map_or(String::new(), |(_, ending)| format!(".{ending}"));
        format!("{}{folder}/*{ending}", part.folder)
    };
    shards.map(glob).collect()
}

/// Whether a library that reads tables by glob can read the shards.
pub(crate) fn is_table(part: &Part) -> bool {
    let ends = |ending: &str| part.manifest.shards.iter().all(|shard| shard.path.ends_with(ending));
    ends(".parquet") || ends(".arrow")
}

/// Whether the shards are Parquet with a pack a row, the format whose columns the exports describe.
pub(crate) fn has_packs(part: &Part) -> bool {
    let format = part.manifest.recipe.settings.pointer("/output/format").and_then(Value::as_str);
    part.manifest.shards.iter().all(|shard| shard.path.ends_with(".parquet"))
        && format.is_none_or(|format| format == "parquet")
}

/// The splits that have shards, as trainers name them.
pub(crate) fn splits(manifest: &Manifest) -> Vec<(Split, &'static str)> {
    let all = [(Split::Train, "train"), (Split::Validation, "validation")];
    all.into_iter().filter(|(split, _)| manifest.shards.iter().any(|shard| shard.split == *split)).collect()
}

/// Rows dropped by reason, all sources.
pub(crate) fn drops(manifest: &Manifest) -> BTreeMap<&str, u64> {
    let mut drops = BTreeMap::new();
    for (reason, count) in manifest.rows.values().flat_map(|ledger| &ledger.dropped) {
        *drops.entry(reason.as_str()).or_default() += count;
    }
    drops
}

/// Rows that ended for a reason of the stage that compares with benchmarks.
pub(crate) fn contaminated(manifest: &Manifest) -> u64 {
    drops(manifest)
        .iter()
        .filter(|(reason, _)| reason.starts_with("decontaminate."))
        .map(|(_, count)| count)
        .sum()
}

/// Benchmarks that the rows were checked against; none if they were not checked.
pub(crate) fn benchmarks(manifest: &Manifest) -> &[BenchmarkRecord] {
    match manifest.decontamination.mode {
        DecontaminationMode::Blocklist => &manifest.decontamination.benchmarks,
        DecontaminationMode::None => &[],
    }
}
