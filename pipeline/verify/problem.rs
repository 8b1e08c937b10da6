//! What a data set can have wrong.

use std::fmt;

use potable_manifests::{Digest, Inconsistency};

/// One thing that is not as the manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, below the folder that was checked, with `/`.
    pub path: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The manifest names it, and it is not there.
    #[error("is missing")]
    Missing,
    /// The manifest names it, and it is there under another name.
    #[error("is missing; `{path}` holds its bytes, so it was renamed")]
    Renamed {
        /// Where the bytes are.
        path: String,
    },
    /// It is there, and the manifest does not name it.
    #[error("was added: the manifest does not name it")]
    Added,
    /// The run block names it, and no shard has such a file.
    #[error("is named in the run block, and it is no file of a shard of the manifest")]
    Foreign,
    /// A shard has such a file, and the run block does not name it.
    #[error("belongs to a shard of the manifest, and the run block does not name it")]
    Unstated,
    /// An index without phases.
    #[error("names no phase")]
    NoPhase,
    /// Its size is another one.
    #[error("has {found} bytes, the manifest says {stated}")]
    Size {
        /// Bytes of the file.
        found: u64,
        /// Bytes that the manifest states.
        stated: u64,
    },
    /// Its bytes are other ones.
    #[error("has sha256 `{found}`, the manifest says `{stated}`")]
    Bytes {
        /// Digest of the file.
        found: Digest,
        /// What the manifest states.
        stated: Digest,
    },
    /// It cannot be read as what it should be.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
    /// A count of it is another one.
    #[error("holds {found} {what}, the manifest says {stated}")]
    Count {
        /// What is counted.
        what: String,
        /// What the data holds.
        found: u64,
        /// What the manifest states.
        stated: u64,
    },
    /// Its content has another digest.
    #[error("its {what} have the digest `{found}`, the manifest says `{stated}`")]
    Content {
        /// What the digest covers.
        what: &'static str,
        /// Digest of what was read.
        found: Digest,
        /// What the manifest states.
        stated: Digest,
    },
    /// A pack that breaks the rules of the format.
    #[error("row {row}: {rule}")]
    Pack {
        /// The row, from 0.
        row: u64,
        /// Which rule.
        rule: String,
    },
    /// The manifest contradicts itself.
    #[error(transparent)]
    Counts(#[from] Inconsistency),
    /// The manifest was changed after it was sealed.
    #[error("was changed after it was sealed: it says `{stated}`, its content has `{computed}`")]
    Edited {
        /// Manifest digest that it states.
        stated: Digest,
        /// Digest of its content.
        computed: Digest,
    },
    /// `manifest.json.sha256` names other bytes.
    #[error("does not hold the sha256 of manifest.json, `{expected}`, and its name")]
    Sum {
        /// SHA-256 of manifest.json in hex.
        expected: String,
    },
    /// Lock and manifest say different things.
    #[error("{what}: the lock says {lock}, the manifest says {manifest}")]
    Lock {
        /// Of what.
        what: String,
        /// What the lock says.
        lock: String,
        /// What the manifest says.
        manifest: String,
    },
    /// The recipe's text and the settings in the manifest say different things.
    #[error("the text of its recipe does not give the settings that it states")]
    RecipeText,
    /// The index and a phase say different things.
    #[error("{what} is {index} in the index, {phase} in the phase")]
    Phase {
        /// What differs.
        what: &'static str,
        /// What the index says.
        index: String,
        /// What the phase says.
        phase: String,
    },
    /// An index with other bytes than potable writes.
    #[error("is not written as potable writes it")]
    Layout,
}

impl Problem {
    /// A problem of a file.
    pub fn new(path: impl Into<String>, fault: Fault) -> Self {
        Problem { path: path.into(), fault }
    }

    /// The same problem of a file in a folder below.
    pub fn below(self, folder: &str) -> Self {
        Problem { path: format!("{folder}/{}", self.path), fault: self.fault }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.fault)
    }
}
