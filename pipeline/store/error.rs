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
    /// An object that was written to while it was read.
    #[error("{place}: was changed while it was read")]
    Changed {
        /// The object.
        place: String,
    },
    /// A setting of the environment that makes no sense.
    #[error("{name}: {reason}")]
    Config {
        /// The variable.
        name: &'static str,
        /// Why; never a secret.
        reason: String,
    },
    /// A bucket that is not there.
    #[error("{place}: there is no bucket `{bucket}`")]
    NoBucket {
        /// What was asked for.
        place: String,
        /// The bucket.
        bucket: String,
    },
    /// No credentials where some are needed.
    #[error("{place}: no credentials for `{scheme}://` were found")]
    NoCredentials {
        /// What was asked for.
        place: String,
        /// `s3` or `gs`.
        scheme: &'static str,
    },
    /// Credentials that are not taken, or that may not do this.
    #[error("{place}: access is refused (status {status}): {message}")]
    Denied {
        /// What was asked for.
        place: String,
        /// The HTTP status.
        status: u16,
        /// The store's own code and words.
        message: String,
    },
    /// A bucket of another region than the one that was signed for.
    #[error("{place}: the bucket is not in region `{asked}`{}", real(region.as_deref()))]
    WrongRegion {
        /// What was asked for.
        place: String,
        /// The region that the environment names.
        asked: String,
        /// The bucket's region, if the store told it.
        region: Option<String>,
    },
    /// Any other answer that is not a success.
    #[error("{place}: answered {status}: {message} (attempts: {attempts})")]
    Status {
        /// What was asked for.
        place: String,
        /// The HTTP status.
        status: u16,
        /// The store's own code and words.
        message: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// A host that cannot be reached, or connections that break again and again.
    #[error("{place}: no answer, or none that holds (attempts: {attempts}): {reason}")]
    Transport {
        /// What was asked for.
        place: String,
        /// How often it was tried.
        attempts: u32,
        /// The last cause.
        reason: String,
    },
    /// A store that writes over what must be written once.
    #[error("{uri}: the store writes over objects that must be written once (`If-None-Match` is ignored)")]
    Unconditional {
        /// The store.
        uri: String,
    },
    /// Any other trouble of the client.
    #[error("{place}: {reason}")]
    Client {
        /// What was asked for.
        place: String,
        /// Why.
        reason: String,
    },
    /// A kind of store that this build does not have.
    #[error("{uri}: this build of potable reads no object stores")]
    NotCompiled {
        /// The address.
        uri: String,
    },
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
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
            StoreError::Changed { .. } => "let the writer finish and run again".to_owned(),
            StoreError::Config { .. } => "mend the variable or unset it".to_owned(),
            StoreError::NoBucket { .. } => {
                "check the spelling, the endpoint (AWS_ENDPOINT_URL) and the region (AWS_REGION), or make the bucket"
                    .to_owned()
            }
            StoreError::NoCredentials { scheme, .. } => no_credentials(scheme).to_owned(),
            StoreError::Denied { message, .. } => denied(message).to_owned(),
            StoreError::WrongRegion { region, .. } => match region {
                Some(region) => format!("set AWS_REGION={region}"),
                None => "set AWS_REGION to the region of the bucket".to_owned(),
            },
            StoreError::Status { .. } | StoreError::Transport { .. } => {
                "check network, endpoint and proxy, and run again: what is finished is kept".to_owned()
            }
            StoreError::Unconditional { .. } => {
                "take a store with conditional writes (Amazon S3, Google Cloud Storage, R2, MinIO, Ceph), or a folder"
                    .to_owned()
            }
            StoreError::NotCompiled { .. } => {
                "build with `--features object-store` (it is on by default), or copy the files to a folder".to_owned()
            }
            StoreError::NotFound { .. } => "check the address".to_owned(),
            StoreError::BadName { .. }
            | StoreError::OutOfRange { .. }
            | StoreError::Client { .. }
            | StoreError::Interrupted => return None,
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

fn real(region: Option<&str>) -> String {
    region.map(|region| format!(" but in `{region}`")).unwrap_or_default()
}

fn no_credentials(scheme: &str) -> &'static str {
    if scheme == "gs" {
        return "set GOOGLE_APPLICATION_CREDENTIALS to a key file or run `gcloud auth application-default login`; \
                for a public bucket set GOOGLE_SKIP_SIGNATURE=true";
    }
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for a public bucket set AWS_SKIP_SIGNATURE=true"
}

/// The way out that fits the store's own code.
fn denied(message: &str) -> &'static str {
    if message.contains("RequestTimeTooSkewed") {
        return "set the clock of this machine";
    }
    if message.contains("Expired") {
        return "the session token is too old: make new credentials";
    }
    if message.contains("InvalidAccessKeyId") || message.contains("SignatureDoesNotMatch") {
        return "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that they belong to the endpoint";
    }
    "use credentials that may list, read and write there"
}
