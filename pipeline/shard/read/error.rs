//! What can be wrong with a shard.

use std::path::{Path, PathBuf};

/// An error of a shard that is read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file that cannot be opened or read.
    #[error("cannot read `{path}`", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file that is none of a known format.
    #[error("{path}: is not a shard of a known format", path = path.display())]
    NotAShard {
        /// The file.
        path: PathBuf,
    },
    /// A file that is not what its format says.
    #[error("{path}: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the row where there is one.
        reason: String,
    },
}

impl ReadError {
    /// A file that cannot be opened or read.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        ReadError::Io { path: path.to_path_buf(), source }
    }

    /// A file that is not what its format says.
    pub fn malformed(path: &Path, reason: impl Into<String>) -> Self {
        ReadError::Malformed { path: path.to_path_buf(), reason: reason.into() }
    }

    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ReadError::Io { .. } => None,
            ReadError::NotAShard { .. } => Some(
                "name the main file of a shard below `shards/` or `validation/`: `.parquet`, `.arrow`, `token_ids_part_….npy`, `.bin` or `.mds`".to_owned(),
            ),
            ReadError::Malformed { .. } => {
                Some("a shard is read as potable wrote it; `run.file_sha256` in the manifest tells whether the file was changed".to_owned())
            }
        }
    }
}
