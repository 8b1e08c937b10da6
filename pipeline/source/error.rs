//! What can go wrong between a recipe's `path` and a row.

use std::io;
use std::path::PathBuf;

use super::hub::HubError;
use crate::store::StoreError;

/// An error of reading a source. Every variant names the place.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A path, folder or glob that matches no file.
    #[error("source `{source_name}`: no file matches `{pattern}`")]
    NoMatch {
        /// The source.
        source_name: String,
        /// The path as the recipe has it.
        pattern: String,
    },
    /// A glob that does not parse.
    #[error("source `{source_name}`: `{pattern}` is not a pattern: {reason}")]
    BadPattern {
        /// The source.
        source_name: String,
        /// The path as the recipe has it.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// A file whose format its name does not tell.
    #[error("{path}: cannot tell the format from the name `{path}`", path = path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// A file that cannot be opened or read.
    #[error("{path}: cannot read the file", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A file of the Hub.
    #[error("{path}", path = path.display())]
    Hub {
        /// The file, as `hf://…`.
        path: PathBuf,
        /// Cause.
        #[source]
        source: Box<HubError>,
    },
    /// A file in an object store.
    #[error(transparent)]
    Store {
        /// Cause, with its place.
        source: Box<StoreError>,
    },
    /// No folder for copies of files of object stores.
    #[error("{path}: there is no place for a copy", path = path.display())]
    NoCache {
        /// The object.
        path: PathBuf,
    },
    /// A file that is not the one in the lock.
    #[error("{path}: has sha256 {got}, and the lock says {expected}", path = path.display())]
    NotLocked {
        /// The file, as `hf://…`.
        path: PathBuf,
        /// What came.
        got: String,
        /// What the lock has.
        expected: String,
    },
    /// A part of a file that was other bytes when it was read again.
    #[error("{path}: the bytes from {start} on are not those that were read before", path = path.display())]
    Tail {
        /// The file, as `hf://…`.
        path: PathBuf,
        /// First byte of the part.
        start: u64,
    },
    /// Files of the Hub that no lock pins.
    #[error("{user}: `{repo}` is not pinned")]
    NotPinned {
        /// Who wants them.
        user: String,
        /// The repository.
        repo: String,
    },
    /// A compressed file that ends early or is damaged.
    #[error("{path}: the {compression} data is damaged or ends early after row {row}", path = path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Name of the compression.
        compression: &'static str,
        /// Rows read whole before the damage.
        row: u64,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A Git LFS pointer in place of the data.
    #[error("{path}: is a Git LFS pointer, not the data itself", path = path.display())]
    LfsPointer {
        /// The file.
        path: PathBuf,
    },
    /// A web page in place of the data.
    #[error("{path}: is an HTML page, not {format} data", path = path.display())]
    Html {
        /// The file.
        path: PathBuf,
        /// The format that was expected.
        format: &'static str,
    },
    /// A file that is not of the format that it should be.
    #[error("{path}: is not {format} data: {reason}", path = path.display())]
    NotThisFormat {
        /// The file.
        path: PathBuf,
        /// The format that was expected.
        format: &'static str,
        /// Why.
        reason: String,
    },
    /// A table file that is damaged or cannot be read.
    #[error("{path}: cannot read {format} data after row {row}: {reason}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// Rows read before.
        row: u64,
        /// The reader's own words.
        reason: String,
    },
    /// Fewer or more rows than the file promises.
    #[error("{path}: gave {got} rows where {expected} were counted", path = path.display())]
    RowCount {
        /// The file.
        path: PathBuf,
        /// Rows that came.
        got: u64,
        /// Rows promised.
        expected: u64,
    },
    /// A row that cannot be read.
    #[error("{place}: {reason}")]
    BadRow {
        /// `path:line`, or `path: row N` in tables.
        place: String,
        /// Why.
        reason: String,
    },
    /// A column that the mapping or `where` names and the file lacks.
    #[error("{place}: source `{source_name}` has no column `{column}`; there are {present}")]
    MissingColumn {
        /// The file, or the row where rows differ.
        place: String,
        /// The source.
        source_name: String,
        /// The column.
        column: String,
        /// The columns that are there, quoted.
        present: String,
    },
    /// A key that no row of a JSON source has.
    #[error("{place}: source `{source_name}`: no row has a `{column}` field")]
    MissingKey {
        /// The first file.
        place: String,
        /// The source.
        source_name: String,
        /// The key.
        column: String,
    },
    /// A file that changed while it was read.
    #[error("{path}: changed while it was read", path = path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

impl SourceError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            SourceError::NoMatch { .. } => {
                "paths are relative to the recipe file; check the spelling, or list the folder".to_owned()
            }
            SourceError::BadPattern { .. } => "`*` matches within a folder, `**` across folders".to_owned(),
            SourceError::UnknownFormat { .. } => {
                "set `format` for the source: parquet, jsonl, json, csv or arrow".to_owned()
            }
            SourceError::Truncated { .. } | SourceError::Damaged { .. } | SourceError::RowCount { .. } => {
                "fetch the file again and compare its size and sha256 with the origin's".to_owned()
            }
            SourceError::LfsPointer { .. } => {
                "run `git lfs pull` in its repository, or download the file".to_owned()
            }
            SourceError::Html { .. } => {
                "the download answered with a page (a login, or a wrong address); fetch the file itself"
                    .to_owned()
            }
            SourceError::NotThisFormat { .. } => {
                "set the right `format` for the source, or fetch the file again".to_owned()
            }
            SourceError::BadRow { .. } => {
                "mend the row, or set `on_bad_row = \"drop\"` for the source to count such rows as failed"
                    .to_owned()
            }
            SourceError::MissingColumn { .. } | SourceError::MissingKey { .. } => {
                "name the right columns under `[source.mapping]` and in `where`".to_owned()
            }
            SourceError::Changed { .. } => "run again once nothing writes to the file".to_owned(),
            SourceError::Hub { source, .. } => return source.hint(),
            SourceError::Store { source } => return source.hint(),
            SourceError::NoCache { .. } => "set POTABLE_CACHE to a folder that can be written".to_owned(),
            SourceError::NotLocked { .. } => {
                "restore the lock from version control; `potable lock RECIPE --update` pins anew".to_owned()
            }
            SourceError::Tail { .. } => {
                "nothing of it was used; run again, and check HF_ENDPOINT and proxy if it stays".to_owned()
            }
            SourceError::NotPinned { .. } => "run `potable lock RECIPE`".to_owned(),
            SourceError::Read { .. } => return None,
        })
    }
}

/// Quotes names for a message: `` `a`, `b` ``.
pub fn quoted<S: AsRef<str>>(names: &[S]) -> String {
    if names.is_empty() {
        return "no columns".to_owned();
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    quoted.join(", ")
}
