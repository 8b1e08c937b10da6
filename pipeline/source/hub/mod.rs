//! The Hub: from a repository and a revision to bytes that are proven to be those of a commit.
//!
//! The layout of the cache is that of Python's `huggingface_hub`; repository types and folder names
//! come from the `hf-hub` crate. Its requests do not: version 0.5 sends the token on to the storage
//! host, does not check what a range answers with, and checks no digest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

mod cache;
pub mod clock;
mod config;
mod digest;
pub mod error;
mod fetch;
mod http;
mod listing;
mod open;
mod range;
mod stream;

pub use config::{HubConfig, Proxies, Timeouts, Token};
pub use error::HubError;
#[cfg(feature = "object-store")]
pub(crate) use http::tls;
pub use range::RangeFile;
pub use stream::StreamFile;

use cache::Cache;
use http::Http;

/// Digits of a commit in a message.
const SHORT_COMMIT: usize = 12;

/// What a repository holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepoKind {
    /// Data.
    Dataset,
    /// Weights and tokenizers.
    Model,
}

/// A repository at a commit: enough to fetch its files with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RepoRef {
    /// What it holds.
    pub kind: RepoKind,
    /// `owner/name`, or `name` for a few old ones.
    pub id: String,
    /// 40 lower-case hex digits.
    pub commit: String,
}

/// A repository as a revision of it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepoAt {
    /// The commit that the revision points to.
    pub at: RepoRef,
    /// The revision as it was asked for.
    pub revision: String,
    /// Whether its terms have to be accepted.
    pub gated: bool,
    /// The licence of its card; several are joined with `, `.
    pub licence: Option<String>,
    /// All files, sorted by path.
    pub files: Vec<HubFile>,
}

/// A file of a commit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HubFile {
    /// Path in the repository, with `/`.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Which bytes.
    #[serde(flatten)]
    pub identity: Identity,
}

/// What the Hub says of a file's bytes. Large files have a SHA-256; of small ones, kept in git
/// itself, it gives the id of the blob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// 64 lower-case hex digits.
    Sha256(String),
    /// SHA-1 over `blob SIZE\0` and the bytes, 40 lower-case hex digits.
    GitBlob(String),
}

/// A file on this machine, all of whose bytes were checked against its [`Identity`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Where it is, by its own name.
    pub path: PathBuf,
    /// 64 lower-case hex digits.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    /// Bytes that came over the network this time.
    pub transferred: u64,
    /// Requests that were repeated.
    pub retries: u32,
    /// Whether the cache had it.
    pub from_cache: bool,
}

/// A line of the download log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogRecord {
    /// The file's address on the Hub; no query, no signature.
    pub url: String,
    /// The host that the bytes came from; none if from the cache.
    pub host: Option<String>,
    /// The commit.
    pub commit: String,
    /// Path in the repository.
    pub path: String,
    /// Bytes that came over the network.
    pub bytes: u64,
    /// SHA-256 of the whole file, where all of it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Digest of the ranges, where only some were read: [`RangeFile::digest`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<String>,
    /// When it was done, RFC 3339, UTC.
    pub when: String,
    /// Requests that were repeated.
    pub retries: u32,
    /// Whether the cache had it.
    pub from_cache: bool,
}

/// A client. Clones share connections, log and settings.
#[derive(Clone, Debug)]
pub struct Hub {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    http: Http,
    cache: Cache,
    log: Mutex<Vec<LogRecord>>,
    /// Revisions that were resolved to a commit: they get a ref once the cache has a file of it.
    revisions: Mutex<BTreeMap<RepoRef, BTreeSet<String>>>,
}

impl Hub {
    /// A client with these settings. Nothing is sent yet.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub fn new(config: HubConfig) -> Result<Hub, HubError> {
        let cache = Cache::new(config.cache_dir.clone());
        let http = Http::new(config)?;
        let shared = Shared { http, cache, log: Mutex::default(), revisions: Mutex::default() };
        Ok(Hub { shared: Arc::new(shared) })
    }

    /// Its settings.
    pub fn config(&self) -> &HubConfig {
        &self.shared.http.config
    }

    /// Turns a revision (branch, tag, commit, `refs/convert/parquet`) into a commit, with all files of
    /// it, their sizes and identities. Offline the cache answers, if this was asked before.
    ///
    /// # Errors
    /// A repository or revision that is not there or not for us, and a Hub that does not answer.
    pub fn resolve(&self, kind: RepoKind, id: &str, revision: &str) -> Result<RepoAt, HubError> {
        listing::resolve(&self.shared, kind, id, revision)
    }

    /// Asks whether a file may be read, without reading it. Offline the cache answers.
    ///
    /// # Errors
    /// A gated or private repository, a wrong token, a file that is not there.
    pub fn check_access(&self, repo: &RepoRef, file: &str) -> Result<(), HubError> {
        open::check_access(&self.shared, repo, file)
    }

    /// The file in the cache, by whatever client it came there, if its size is right. Its digest is
    /// not looked at: [`Hub::fetch`] does that.
    pub fn cached(&self, repo: &RepoRef, file: &HubFile) -> Option<PathBuf> {
        self.shared.cache.find(repo, file)
    }

    /// Brings a file into the cache unless it is there, and checks every byte of it in either case.
    /// A download that was broken off goes on where it stopped. `on_bytes` is told the number of
    /// bytes as they come to lie on the disk, those of an earlier try included.
    ///
    /// # Errors
    /// Whatever keeps the file from being there, whole and right.
    pub fn fetch(
        &self,
        repo: &RepoRef,
        file: &HubFile,
        on_bytes: &(dyn Fn(u64) + Sync),
    ) -> Result<Fetched, HubError> {
        fetch::fetch(&self.shared, repo, file, on_bytes)
    }

    /// Opens a file to read parts of it over the network. No request is made yet.
    ///
    /// # Errors
    /// Being offline.
    pub fn open_ranges(&self, repo: &RepoRef, file: &HubFile) -> Result<RangeFile, HubError> {
        RangeFile::open(self.shared.clone(), repo, file)
    }

    /// Opens a file to read all of it over the network, in order. Its end is an error unless size
    /// and digest are right.
    ///
    /// # Errors
    /// Being offline.
    pub fn open_stream(&self, repo: &RepoRef, file: &HubFile) -> Result<StreamFile, HubError> {
        StreamFile::open(self.shared.clone(), repo, file)
    }

    /// From now on each transfer gets its line in this file as soon as it is done, so that a kill loses
    /// none; those before get theirs now.
    ///
    /// # Errors
    /// What the file system says.
    pub fn log_to(&self, path: &std::path::Path) -> std::io::Result<()> {
        let mut log = self.shared.log.lock().unwrap_or_else(PoisonError::into_inner);
        append(path, &log)?;
        log.clear();
        // A second file of the same run is the first one.
        self.config().log_file.get_or_init(|| path.to_path_buf());
        Ok(())
    }

    /// What was transferred since the last call, in the order in which it was done.
    pub fn take_log(&self) -> Vec<LogRecord> {
        std::mem::take(&mut *self.shared.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn append(path: &std::path::Path, records: &[LogRecord]) -> std::io::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let mut text = Vec::new();
    for record in records {
        serde_json::to_writer(&mut text, record)?;
        text.push(b'\n');
    }
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(&text)?;
    file.sync_data()
}

impl Shared {
    fn log(&self, record: LogRecord) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(record);
        if let Some(path) = self.http.config.log_file.get() {
            // What cannot be written stays, for `take_log` and a caller that says so.
            if append(path, &log).is_ok() {
                log.clear();
            }
        }
    }

    fn remember(&self, repo: &RepoRef, revision: &str) {
        if revision != repo.commit {
            let mut revisions = self.revisions.lock().unwrap_or_else(PoisonError::into_inner);
            revisions.entry(repo.clone()).or_default().insert(revision.to_owned());
        }
    }

    /// Writes the refs of a commit of which the cache now has a file: of the revisions that were
    /// resolved just now, and of the one that the kept listing is of, if there is no such ref yet. A
    /// commit that comes from a lock was resolved in another run.
    fn write_refs(&self, repo: &RepoRef) -> Result<(), HubError> {
        let mut revisions = self.revisions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = revisions.insert(repo.clone(), BTreeSet::new());
        for revision in known.iter().flatten() {
            self.cache.write_ref(repo, revision)?;
        }
        if known.is_none()
            && let Some(listing) = self.cache.read_listing(repo)
            && self.cache.read_ref(repo.kind, &repo.id, &listing.revision).is_none()
        {
            self.cache.write_ref(repo, &listing.revision)?;
        }
        Ok(())
    }

    /// A log line for a file, with the time filled in.
    fn record(&self, repo: &RepoRef, path: &str) -> LogRecord {
        LogRecord {
            url: open::address(self, repo, path),
            host: None,
            commit: repo.commit.clone(),
            path: path.to_owned(),
            bytes: 0,
            sha256: None,
            ranges: None,
            when: clock::utc(self.http.config.clock.now()),
            retries: 0,
            from_cache: false,
        }
    }

    fn offline(&self, place: String) -> Result<(), HubError> {
        if self.http.config.offline {
            return Err(HubError::Offline { place, cache: self.http.config.cache_dir.clone() });
        }
        Ok(())
    }
}

impl RepoKind {
    /// `datasets` or `models`: the word of addresses and folders.
    pub fn plural(self) -> &'static str {
        match self {
            RepoKind::Dataset => "datasets",
            RepoKind::Model => "models",
        }
    }

    fn hf(self) -> hf_hub::RepoType {
        match self {
            RepoKind::Dataset => hf_hub::RepoType::Dataset,
            RepoKind::Model => hf_hub::RepoType::Model,
        }
    }
}

impl RepoRef {
    /// The repository at a commit, checked.
    ///
    /// # Errors
    /// A name that no repository can have, a commit that is not of 40 lower-case hex digits.
    pub fn new(kind: RepoKind, id: &str, commit: &str) -> Result<RepoRef, HubError> {
        check_id(id)?;
        if !is_hex(commit, 40) {
            let repo = format!("{}/{id}", kind.plural());
            return Err(HubError::BadRevision { repo, revision: commit.to_owned() });
        }
        Ok(RepoRef { kind, id: id.to_owned(), commit: commit.to_owned() })
    }

    /// `datasets/owner/name`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.kind.plural(), self.id)
    }

    /// `datasets/owner/name@0123456789ab/path`, for messages.
    pub fn place(&self, path: &str) -> String {
        format!("{}@{}/{path}", self.name(), self.commit.get(..SHORT_COMMIT).unwrap_or(&self.commit))
    }
}

impl RepoAt {
    /// The file of that path.
    pub fn file(&self, path: &str) -> Option<&HubFile> {
        let found = self.files.binary_search_by(|file| file.path.as_str().cmp(path));
        found.ok().and_then(|index| self.files.get(index))
    }
}

impl Identity {
    /// The hex digits: also the name of the file's blob in the cache.
    pub fn hex(&self) -> &str {
        match self {
            Identity::Sha256(hex) | Identity::GitBlob(hex) => hex,
        }
    }
}

impl fmt::Display for RepoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RepoKind::Dataset => "dataset",
            RepoKind::Model => "model",
        })
    }
}

impl FromStr for RepoKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dataset" | "datasets" => Ok(RepoKind::Dataset),
            "model" | "models" => Ok(RepoKind::Model),
            _ => Err(format!("`{text}` is neither `dataset` nor `model`")),
        }
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn check_id(id: &str) -> Result<(), HubError> {
    let part = |part: &str| {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(sound)
    };
    let parts: Vec<&str> = id.split('/').collect();
    // `--` separates owner and name in the cache.
    let sound = parts.len() <= 2 && parts.iter().all(|p| part(p)) && !id.contains("--") && !id.contains("..");
    if sound && id.len() <= 200 { Ok(()) } else { Err(HubError::BadId { id: id.to_owned() }) }
}

/// Whether a name stays below the folder that it is put in, on any system.
fn is_safe_path(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let drive = path.as_bytes().get(1) == Some(&b':');
    !drive && !path.contains(['\\', '\0']) && path.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_folder_are_refused() {
        for path in ["../x", "a/../b", "/etc/passwd", "a//b", "", ".", "a/.", "c:/x", "a\\b", "a\0b"] {
            assert!(!is_safe_path(path), "{path:?}");
        }
        for path in ["a", "a/b.parquet", "..a/b..", ".gitattributes", "a b/ü.jsonl", "t12:30.json"] {
            assert!(is_safe_path(path), "{path:?}");
        }
    }

    #[test]
    fn names_of_repositories() {
        for id in ["squad", "openai/gsm8k", "a-b/c_d.e-1"] {
            assert!(check_id(id).is_ok(), "{id}");
        }
        for id in ["", "a/b/c", "/a", "a/", "../a", "a/..", "a--b/c", "a b/c", "a/b?c", "a/b#c", "a/b%2Fc"] {
            assert!(check_id(id).is_err(), "{id}");
        }
    }
}
