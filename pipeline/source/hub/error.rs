//! What can go wrong between a repository's name and its bytes.

use std::io;
use std::path::PathBuf;

/// An error of the Hub client. A `place` is `KIND/REPOSITORY@COMMIT/FILE`, the commit shortened.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// A setting of the environment that makes no sense.
    #[error("{name}: {reason}")]
    Config {
        /// The variable.
        name: &'static str,
        /// Why; never the value of a token.
        reason: String,
    },
    /// A name that no repository can have.
    #[error("`{id}` is not the name of a repository")]
    BadId {
        /// The name.
        id: String,
    },
    /// A revision that cannot stand in an address or a file name.
    #[error("{repo}: `{revision}` is not a revision")]
    BadRevision {
        /// The repository.
        repo: String,
        /// What was asked for.
        revision: String,
    },
    /// A repository that is not there, or not for us.
    #[error("{repo}: there is no such repository on `{host}`, or it is private")]
    RepoNotFound {
        /// The repository.
        repo: String,
        /// The Hub.
        host: String,
    },
    /// A branch, tag or commit that is not there.
    #[error("{repo}: there is no revision `{revision}`")]
    RevisionNotFound {
        /// The repository.
        repo: String,
        /// What was asked for.
        revision: String,
    },
    /// A file that is not there.
    #[error("{place}: there is no such file in the repository")]
    EntryNotFound {
        /// The file.
        place: String,
    },
    /// A repository whose terms were not accepted.
    #[error("{repo}: is gated, and {who} has no access to it")]
    Gated {
        /// The repository.
        repo: String,
        /// Whose access it is about: the token's, or nobody's without one.
        who: &'static str,
        /// Where the terms are accepted.
        page: String,
    },
    /// A token that the Hub does not take.
    #[error("{repo}: the Hub `{host}` refuses the token from {source_name}: {message}")]
    BadToken {
        /// What was asked for.
        repo: String,
        /// The Hub.
        host: String,
        /// Where the token came from.
        source_name: String,
        /// The Hub's own words.
        message: String,
    },
    /// A refusal that has nothing to do with terms, such as a token of too narrow a scope.
    #[error("{repo}: access is refused: {message}")]
    Forbidden {
        /// What was asked for.
        repo: String,
        /// The Hub's own words.
        message: String,
    },
    /// A repository that the Hub has closed.
    #[error("{repo}: is disabled on the Hub: {message}")]
    Disabled {
        /// The repository.
        repo: String,
        /// The Hub's own words.
        message: String,
    },
    /// A rate limit that outlasts our patience.
    #[error("`{host}` limits the rate and asks to wait {seconds} more seconds after {waits} waits")]
    RateLimited {
        /// The host.
        host: String,
        /// What it asks for.
        seconds: u64,
        /// How often it was waited for.
        waits: u32,
    },
    /// Any other answer that is not a success.
    #[error("{url}: answered {status}: {message}")]
    Status {
        /// The address, without a query.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The server's own words, with its request id.
        message: String,
    },
    /// A host that cannot be reached, or connections that break again and again.
    #[error("{url}: no answer, or none that holds (attempts in a row: {attempts})")]
    Transport {
        /// The address, without a query.
        url: String,
        /// How many.
        attempts: u32,
        /// The last cause.
        #[source]
        source: io::Error,
    },
    /// An answer that does not follow the protocol.
    #[error("{url}: the answer makes no sense: {reason}")]
    BadReply {
        /// The address, without a query.
        url: String,
        /// Why.
        reason: String,
    },
    /// A web page in place of the file.
    #[error("{place}: the answer of `{host}` is an HTML page, not the file")]
    Html {
        /// The file.
        place: String,
        /// Who answered.
        host: String,
    },
    /// A server that gives the whole file where a part was asked for.
    #[error("{place}: `{host}` ignores ranges, so the file cannot be read in parts")]
    RangeIgnored {
        /// The file.
        place: String,
        /// Who answered.
        host: String,
    },
    /// More, fewer or other bytes than the listing promises.
    #[error("{place}: is of {got} bytes where {expected} were promised")]
    SizeMismatch {
        /// The file.
        place: String,
        /// Bytes promised.
        expected: u64,
        /// Bytes that came or were announced.
        got: u64,
    },
    /// Bytes that are not those of the file.
    #[error("{place}: has {algorithm} `{got}` where `{expected}` was promised")]
    DigestMismatch {
        /// The file.
        place: String,
        /// `sha256`, or `git blob sha1`.
        algorithm: &'static str,
        /// Promised.
        expected: String,
        /// What it is.
        got: String,
    },
    /// An answer for another commit than the one asked for.
    #[error("{place}: the answer is of commit `{got}`")]
    WrongCommit {
        /// The file.
        place: String,
        /// The commit of the answer.
        got: String,
    },
    /// A file name that would leave the folder.
    #[error("{repo}: lists a file `{path}`, whose name would leave its folder")]
    UnsafePath {
        /// The repository.
        repo: String,
        /// The name.
        path: String,
    },
    /// No room for a download.
    #[error("{path}: the disk is full, {missing} bytes of the file are missing", path = path.display())]
    DiskFull {
        /// The incomplete file.
        path: PathBuf,
        /// Bytes still to come.
        missing: u64,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A file or folder of the cache that cannot be read or written.
    #[error("{path}: cannot use the download cache", path = path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Offline, and the cache has not what is needed.
    #[error("{place}: is not in the cache `{cache}`, and HF_HUB_OFFLINE is set", cache = cache.display())]
    Offline {
        /// The file or repository.
        place: String,
        /// The cache.
        cache: PathBuf,
    },
    /// Offline, with a cache that another client filled: it does not tell which files there are.
    #[error(
        "{place}: the cache `{cache}` has files of it but not the list of all, and HF_HUB_OFFLINE is set",
        cache = cache.display()
    )]
    ListingUnknown {
        /// The repository.
        place: String,
        /// The cache.
        cache: PathBuf,
    },
    /// A part of a file that shares bytes with a part read before.
    #[error("{place}: bytes {offset} to {end} overlap a range that was read before")]
    Overlap {
        /// The file.
        place: String,
        /// First byte.
        offset: u64,
        /// One after the last byte.
        end: u64,
    },
    /// A range that the file has not.
    #[error("{place}: has no bytes {offset} to {end}")]
    OutOfRange {
        /// The file.
        place: String,
        /// First byte.
        offset: u64,
        /// One after the last byte.
        end: u64,
    },
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
}

impl HubError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            HubError::Gated { page, .. } => format!(
                "accept the terms on {page} with your account, and set HF_TOKEN to a token of it"
            ),
            HubError::BadToken { .. } => {
                "make a new token in the settings of your account, or unset HF_TOKEN for public repositories"
                    .to_owned()
            }
            HubError::Config { .. } => "mend the variable or unset it".to_owned(),
            HubError::BadId { .. } => "write it as `owner/name`".to_owned(),
            HubError::RepoNotFound { .. } => {
                "check the spelling; for a private repository set HF_TOKEN".to_owned()
            }
            HubError::BadRevision { .. } | HubError::RevisionNotFound { .. } => {
                "name a branch, a tag or a commit of 40 hex digits that the repository has".to_owned()
            }
            HubError::EntryNotFound { .. } => "list the repository's files at this commit".to_owned(),
            HubError::Forbidden { .. } => "use a token that may read this repository".to_owned(),
            HubError::Disabled { .. } => "take the corpus from another repository".to_owned(),
            HubError::RateLimited { .. } => {
                "run again later; with HF_TOKEN set the limits are higher".to_owned()
            }
            HubError::Status { .. } | HubError::Transport { .. } | HubError::Html { .. } => {
                "check network, HF_ENDPOINT and proxy, and run again: finished and begun downloads are kept"
                    .to_owned()
            }
            HubError::BadReply { .. } | HubError::WrongCommit { .. } | HubError::UnsafePath { .. } => {
                "check HF_ENDPOINT: this is not how the Hub answers".to_owned()
            }
            HubError::RangeIgnored { .. } => "run without `--stream`".to_owned(),
            HubError::SizeMismatch { .. } | HubError::DigestMismatch { .. } => {
                "the bytes were not used; run again, and check HF_ENDPOINT and proxy if it stays".to_owned()
            }
            HubError::DiskFull { .. } => {
                "make room, or set HF_HUB_CACHE to a bigger disk, and run again: the download goes on where it stopped"
                    .to_owned()
            }
            HubError::Cache { .. } => "set HF_HUB_CACHE to a folder that can be written".to_owned(),
            HubError::Offline { .. } => "run once with the network, without HF_HUB_OFFLINE".to_owned(),
            HubError::ListingUnknown { .. } => {
                "run `potable lock` once with the network: with a lock that lists the files the cache will do"
                    .to_owned()
            }
            HubError::Overlap { .. } | HubError::OutOfRange { .. } | HubError::Interrupted => return None,
        })
    }
}
