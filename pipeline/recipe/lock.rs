//! Locks: `RECIPE.lock` beside a recipe pins what it takes from the Hub, `OUT/recipe.lock` says what
//! exactly was read, file by file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::RecipeError;
use crate::source::hub::{HubFile, Identity, RepoKind};

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

/// `RECIPE.lock`: for everything that a recipe takes from the Hub the commit and the files, sources,
/// joined corpora, benchmarks and tokenizers alike. Local files are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeLock {
    /// Layout of the lock.
    pub version: u32,
    /// Pins, by repository, revision and patterns.
    #[serde(default)]
    pub pin: Vec<Pin>,
}

/// Files of one commit of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Dataset or model.
    pub kind: RepoKind,
    /// Id of the repository, `owner/name`.
    pub repo: String,
    /// The revision that was asked for.
    pub revision: String,
    /// The commit that it was, 40 hex digits.
    pub commit: String,
    /// Licence as the repository's card states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Whether its terms must be accepted first.
    pub gated: bool,
    /// The patterns that chose the files.
    pub patterns: Vec<String>,
    /// The files, by path.
    pub file: Vec<PinnedFile>,
}

/// One file of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedFile {
    /// Path in the repository.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the bytes, in hex.
    pub sha256: String,
    /// Id of the git blob, of a small file that the Hub keeps in git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

impl PinnedFile {
    /// The file as the Hub knows it.
    pub fn hub_file(&self) -> HubFile {
        let identity = match &self.blob {
            Some(blob) => Identity::GitBlob(blob.clone()),
            None => Identity::Sha256(self.sha256.clone()),
        };
        HubFile { path: self.path.clone(), size: self.size, identity }
    }
}

impl RecipeLock {
    /// Where the lock of a recipe lies: `FILE.lock` for `FILE.toml`; for a built-in recipe, in the
    /// current folder.
    pub fn path_of(recipe: &str) -> PathBuf {
        let stem = recipe.strip_suffix(".toml").unwrap_or(recipe);
        PathBuf::from(format!("{stem}.lock"))
    }

    /// Reads a lock; `None` where there is none.
    ///
    /// # Errors
    /// A lock that cannot be read, does not parse or has another layout.
    pub fn load(path: &Path) -> Result<Option<RecipeLock>, RecipeError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(RecipeError::Read { path: path.to_path_buf(), source }),
        };
        RecipeLock::parse(&text, &path.display().to_string()).map(Some)
    }

    /// A lock by its text; `place` is for messages.
    ///
    /// # Errors
    /// A lock that does not parse or has another layout.
    pub fn parse(text: &str, place: &str) -> Result<RecipeLock, RecipeError> {
        let bad = |problem: String| {
            let way_out = "restore it from version control, or remove it to pin anew";
            RecipeError::value_hint(place.to_owned(), problem, way_out)
        };
        let lock: RecipeLock =
            toml::from_str(text).map_err(|e| bad(format!("is no lock of a recipe: {}", e.message())))?;
        if lock.version != LOCK_VERSION {
            let found = lock.version;
            return Err(bad(format!("has layout {found}, and this potable reads layout {LOCK_VERSION}")));
        }
        lock.check().map_err(bad)?;
        for pin in &lock.pin {
            pin.check().map_err(|problem| bad(format!("pin of `{}`: {problem}", pin.repo)))?;
        }
        Ok(lock)
    }

    /// One commit a revision, one pin a choice of files: a merge can leave two.
    fn check(&self) -> Result<(), String> {
        for (index, pin) in self.pin.iter().enumerate() {
            let same = |other: &&Pin| {
                (other.kind, &other.repo, &other.revision) == (pin.kind, &pin.repo, &pin.revision)
            };
            for other in self.pin.iter().take(index).filter(same) {
                if other.commit != pin.commit {
                    return Err(format!("has two commits for `{}` at `{}`", pin.repo, pin.revision));
                }
                if other.patterns == pin.patterns {
                    return Err(format!("pins `{}` at `{}` twice", pin.repo, pin.revision));
                }
            }
        }
        Ok(())
    }

    /// The lock as TOML text.
    ///
    /// # Errors
    /// None in practice; the serialiser's words.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let body = toml::to_string_pretty(self)?;
        Ok(format!(
            "# Written by potable: what this recipe takes from the Hub. Keep it beside the recipe.\n\
             # `potable lock RECIPE --update` moves it.\n{body}"
        ))
    }
}

impl Pin {
    /// What a hand may have broken: digests and commits that are none, paths that lead out.
    fn check(&self) -> Result<(), String> {
        let hex = |text: &str, len: usize| {
            text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        if !hex(&self.commit, 40) {
            return Err(format!("`{}` is no commit", self.commit));
        }
        for file in &self.file {
            if !hex(&file.sha256, 64) {
                return Err(format!("`{}` is no sha256", file.sha256));
            }
            if file.blob.as_deref().is_some_and(|blob| !hex(blob, 40)) {
                return Err(format!("`{}` has a blob that is none", file.path));
            }
            let odd = |part: &str| part.is_empty() || part == "." || part == "..";
            if file.path.split('/').any(odd) || file.path.contains('\\') {
                return Err(format!("`{}` is no path in a repository", file.path));
            }
        }
        Ok(())
    }
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
