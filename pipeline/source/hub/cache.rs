//! The cache that all clients of the Hub share: `KIND--OWNER--NAME/{blobs,refs,snapshots}` and
//! `.locks`. A blob is named by the file's identity and is there whole or not at all; a snapshot is
//! a tree of links to blobs; a ref holds the commit of a branch or tag.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::Repo;

use super::error::HubError;
use super::http::Http;
use super::{HubFile, RepoAt, RepoKind, RepoRef, is_hex};

const LOCK_POLL: Duration = Duration::from_millis(200);
/// Listings as they were resolved, a file a commit. Other clients pass over the folder.
const LISTINGS: &str = ".potable";

/// The folder of the cache.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
}

/// The right to write one blob, across processes. Ends with the value.
#[derive(Debug)]
pub(super) struct BlobLock {
    _file: File,
}

impl Cache {
    pub(super) fn new(root: PathBuf) -> Cache {
        Cache { root }
    }

    /// A file of the cache by its own name, if it is there in the right size.
    pub(super) fn find(&self, repo: &RepoRef, file: &HubFile) -> Option<PathBuf> {
        if !super::is_safe_path(&file.path) {
            return None;
        }
        let path = self.pointer(repo, &file.path);
        let metadata = std::fs::metadata(&path).ok()?;
        (metadata.is_file() && metadata.len() == file.size).then_some(path)
    }

    /// `snapshots/COMMIT/PATH`.
    pub(super) fn pointer(&self, repo: &RepoRef, path: &str) -> PathBuf {
        self.snapshot(repo).join(path)
    }

    /// `blobs/IDENTITY`.
    pub(super) fn blob(&self, repo: &RepoRef, file: &HubFile) -> PathBuf {
        self.folder(repo.kind, &repo.id).join("blobs").join(file.identity.hex())
    }

    /// `blobs/IDENTITY.incomplete`.
    pub(super) fn incomplete(&self, repo: &RepoRef, file: &HubFile) -> PathBuf {
        let folder = self.folder(repo.kind, &repo.id).join("blobs");
        folder.join(format!("{}.incomplete", file.identity.hex()))
    }

    /// Waits until no other process writes this blob.
    pub(super) fn lock(&self, repo: &RepoRef, file: &HubFile, http: &Http) -> Result<BlobLock, HubError> {
        let folder = self.root.join(".locks").join(folder_name(repo.kind, &repo.id));
        create_folder(&folder)?;
        create_folder(&self.folder(repo.kind, &repo.id).join("blobs"))?;
        let path = folder.join(format!("{}.lock", file.identity.hex()));
        let open = || OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let held = open().map_err(|e| wrong(&path, e))?;
        loop {
            match held.try_lock() {
                Ok(()) => return Ok(BlobLock { _file: held }),
                Err(TryLockError::WouldBlock) => http.config.clock.sleep(LOCK_POLL, &http.config.stop),
                // A file system without locks. Two processes may then spoil each other's incomplete
                // file, which its digest shows before it gets a name.
                Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {
                    return Ok(BlobLock { _file: held });
                }
                Err(TryLockError::Error(e)) => return Err(wrong(&path, e)),
            }
            http.check_stop()?;
        }
    }

    /// Gives a blob the file's own name in the commit's snapshot.
    pub(super) fn link(&self, repo: &RepoRef, file: &HubFile) -> Result<PathBuf, HubError> {
        let pointer = self.pointer(repo, &file.path);
        let folder = pointer.parent().unwrap_or(&self.root);
        create_folder(folder)?;
        let blob = self.blob(repo, file);
        // Links are relative, as Python's are, so that the cache can be moved.
        let up = "../".repeat(2 + file.path.split('/').count() - 1);
        let target = PathBuf::from(format!("{up}blobs/{}", file.identity.hex()));
        if std::fs::read_link(&pointer).is_ok_and(|old| old == target) {
            return Ok(pointer);
        }
        let temporary = temporary(&pointer);
        let _left_over = std::fs::remove_file(&temporary);
        symlink(&target, &blob, &temporary).map_err(|e| wrong(&temporary, e))?;
        std::fs::rename(&temporary, &pointer).map_err(|e| wrong(&pointer, e))?;
        sync_folder(folder);
        Ok(pointer)
    }

    /// Notes which commit a branch or tag stands for.
    pub(super) fn write_ref(&self, repo: &RepoRef, revision: &str) -> Result<(), HubError> {
        // Not hf-hub's `create_ref`, which leaves an empty file if it is interrupted.
        let path = self.folder(repo.kind, &repo.id).join("refs").join(revision);
        if std::fs::read_to_string(&path).is_ok_and(|old| old.trim() == repo.commit) {
            return Ok(());
        }
        write_whole(&path, repo.commit.as_bytes())
    }

    /// The commit of a branch or tag, as last seen.
    pub(super) fn read_ref(&self, kind: RepoKind, id: &str, revision: &str) -> Option<String> {
        if is_hex(revision, 40) {
            return Some(revision.to_owned());
        }
        let text = std::fs::read_to_string(self.folder(kind, id).join("refs").join(revision)).ok()?;
        let commit = text.trim();
        is_hex(commit, 40).then(|| commit.to_owned())
    }

    /// Keeps a listing, so that the whole of it is known offline.
    pub(super) fn write_listing(&self, listing: &RepoAt) -> Result<(), HubError> {
        let path = self.listing_path(&listing.at);
        let text = serde_json::to_vec(listing).map_err(|e| wrong(&path, e.into()))?;
        write_whole(&path, &text)
    }

    /// A listing that was kept.
    pub(super) fn read_listing(&self, repo: &RepoRef) -> Option<RepoAt> {
        let text = std::fs::read(self.listing_path(repo)).ok()?;
        let listing: RepoAt = serde_json::from_slice(&text).ok()?;
        let sound = listing.at == *repo && listing.files.iter().all(|file| super::is_safe_path(&file.path));
        sound.then_some(listing)
    }

    /// Whether some client has fetched a file of this commit.
    pub(super) fn has_snapshot(&self, repo: &RepoRef) -> bool {
        self.snapshot(repo).is_dir()
    }

    fn folder(&self, kind: RepoKind, id: &str) -> PathBuf {
        self.root.join(folder_name(kind, id))
    }

    fn snapshot(&self, repo: &RepoRef) -> PathBuf {
        let cache = hf_hub::Cache::new(self.root.clone());
        cache.repo(Repo::new(repo.id.clone(), repo.kind.hf())).pointer_path(&repo.commit)
    }

    fn listing_path(&self, repo: &RepoRef) -> PathBuf {
        self.folder(repo.kind, &repo.id).join(LISTINGS).join(format!("{}.json", repo.commit))
    }
}

/// Makes folder entries durable, where the file system can.
pub(super) fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        // Not every file system can sync a folder.
        let _best_effort = folder.sync_all();
    }
}

/// An error of the cache at a path.
pub(super) fn wrong(path: &Path, source: io::Error) -> HubError {
    HubError::Cache { path: path.to_path_buf(), source }
}

fn folder_name(kind: RepoKind, id: &str) -> String {
    Repo::new(id.to_owned(), kind.hf()).folder_name()
}

fn create_folder(folder: &Path) -> Result<(), HubError> {
    std::fs::create_dir_all(folder).map_err(|e| wrong(folder, e))
}

#[cfg(unix)]
fn symlink(target: &Path, _blob: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Links need a privilege here, so the snapshot gets a copy, as Python's client does it.
#[cfg(not(unix))]
fn symlink(_target: &Path, blob: &Path, link: &Path) -> io::Result<()> {
    std::fs::copy(blob, link).map(|_bytes| ())
}

/// A name beside `path` that no other process uses.
fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    path.with_file_name(format!(".{name}.{}-{thread}.tmp", std::process::id()))
}

/// Writes a small file that is there whole or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    create_folder(path.parent().unwrap_or(path))?;
    let temporary = temporary(path);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|e| wrong(path, e))
}
