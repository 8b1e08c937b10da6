//! What can go wrong between the name of an object and its bytes.

use std::io;

/// An error of a store. A `place` is the address of an object, `uri` that of a store; neither holds
/// credentials, and a signed query is never kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An address that names no store.
    #[error("`{uri}`: is not the address of a store: {reason}")]
    BadUri {
        /// The address as it was given.
        uri: String,
        /// Why.
        reason: String,
    },
    /// A name that no object can have: empty, absolute, or with `.` or `..` in it.
    #[error("{uri}: `{name}` cannot be the name of an object")]
    BadName {
        /// The store.
        uri: String,
        /// The name.
        name: String,
    },
    /// An object that is not there.
    #[error("{place}: is not there")]
    NotFound {
        /// The object.
        place: String,
    },
    /// Fewer or more bytes than there should be, again and again.
    #[error("{place}: is of {got} bytes where {expected} were promised")]
    Incomplete {
        /// The object, with the range if it was one.
        place: String,
        /// Bytes promised.
        expected: u64,
        /// Bytes that came.
        got: u64,
    },
    /// A range that the object has not.
    #[error("{place}: has no bytes {start} to {end}")]
    OutOfRange {
        /// The object.
        place: String,
        /// First byte.
        start: u64,
        /// One after the last byte.
        end: u64,
    },
    /// A file or folder that cannot be read or written.
    #[error("{place}: {action} failed")]
    Io {
        /// The file or folder.
        place: String,
        /// What was tried: `read`, `write`, `list`, `delete`.
        action: &'static str,
        /// Cause.
        #[source]
        source: io::Error,
    },
}

impl StoreError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            StoreError::BadUri { .. } => {
                "write a folder, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`".to_owned()
            }
            StoreError::Incomplete { .. } => {
                "the bytes were not used; run again, and check the network and proxy if it stays".to_owned()
            }
            StoreError::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room and run again: what is finished is kept".to_owned()
                }
                io::ErrorKind::PermissionDenied => "check the rights of the folder".to_owned(),
                io::ErrorKind::ReadOnlyFilesystem => "name a folder that can be written".to_owned(),
                _ => return None,
            },
            StoreError::BadName { .. } | StoreError::NotFound { .. } | StoreError::OutOfRange { .. } => {
                return None;
            }
        })
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, StoreError::NotFound { .. })
    }

    /// Whether the object is gone or shorter than it was written.
    pub fn is_lost(&self) -> bool {
        matches!(self, StoreError::NotFound { .. } | StoreError::OutOfRange { .. })
    }

    /// Wraps an error of the file system; what is not there is [`StoreError::NotFound`].
    pub(super) fn io(place: String, action: &'static str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            return StoreError::NotFound { place };
        }
        StoreError::Io { place, action, source }
    }
}
