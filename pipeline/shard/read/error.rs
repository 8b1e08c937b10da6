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
            ReadError::Malformed { .. } => {
                Some("a shard is read as potable wrote it; `run.file_sha256` in the manifest tells whether the file was changed".to_owned())
            }
        }
    }
}
