//! What can go wrong while near duplicates are settled.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the near-duplicate stage.
#[derive(Debug, thiserror::Error)]
pub enum DedupError {
    /// A temporary file that cannot be made, written or read.
    #[error("cannot sort bands in `{folder}`", folder = folder.display())]
    Spill {
        /// Where temporary files go.
        folder: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// More rows than can be numbered.
    #[error("near duplicates of {rows} rows: {most} are the most that one run compares")]
    TooManyRows {
        /// Rows in the running.
        rows: u64,
        /// The most there may be.
        most: u64,
    },
    /// A row that the files of the plan do not have: a fault of potable.
    #[error("row {row} of file {file} of source {source_index} is not among the rows of the plan")]
    UnknownRow {
        /// Index of the source.
        source_index: u32,
        /// Index of the file.
        file: u32,
        /// Row number in the file.
        row: u64,
    },
}

impl DedupError {
    /// A temporary file that cannot be used.
    pub fn spill(folder: &Path, source: io::Error) -> Self {
        DedupError::Spill { folder: folder.to_path_buf(), source }
    }

    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            DedupError::Spill { source, .. } if source.kind() == io::ErrorKind::StorageFull => Some(
                "make room and run the same command again: finished work is kept and continued".to_owned(),
            ),
            DedupError::Spill { .. } => None,
            DedupError::TooManyRows { .. } => {
                Some("split the sources into phases, or leave `near` out of `[dedup]`".to_owned())
            }
            DedupError::UnknownRow { .. } => Some("this is a fault of potable; please report it".to_owned()),
        }
    }
}
