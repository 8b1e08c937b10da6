//! Downloads into the cache: resumed, checked, and only then given their name.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use super::cache::{sync_folder, wrong};
use super::digest::{BUFFER, FileDigest};
use super::error::HubError;
use super::http::Tries;
use super::open::RemoteFile;
use super::{Fetched, HubFile, LogRecord, RepoRef, Shared, is_safe_path};

type OnBytes<'a> = &'a (dyn Fn(u64) + Sync);

/// A download on its way.
struct Download<'a> {
    remote: RemoteFile,
    on_bytes: OnBytes<'a>,
    path: &'a Path,
    disk: File,
    digest: FileDigest,
    tries: Tries,
    /// Bytes that came over the network.
    transferred: u64,
    /// The most bytes that were on the disk at any time.
    reached: u64,
    /// Whether bytes on the disk are of an earlier try.
    resumed: bool,
    host: Option<String>,
}

/// See [`super::Hub::fetch`].
pub(super) fn fetch(
    shared: &Arc<Shared>,
    repo: &RepoRef,
    file: &HubFile,
    on_bytes: OnBytes<'_>,
) -> Result<Fetched, HubError> {
    if !is_safe_path(&file.path) {
        return Err(HubError::UnsafePath { repo: repo.name(), path: file.path.clone() });
    }
    if let Some(fetched) = from_cache(shared, repo, file)? {
        return Ok(fetched);
    }
    shared.offline(repo.place(&file.path))?;
    let _lock = shared.cache.lock(repo, file, &shared.http)?;
    // Another process may have brought it while this one waited.
    if let Some(fetched) = from_cache(shared, repo, file)? {
        return Ok(fetched);
    }
    download(shared, repo, file, on_bytes)
}

/// The file if the cache has it, by its own name or as the blob of another commit, checked whole.
/// Damaged bytes are none, unless there is no way to get better ones.
fn from_cache(shared: &Shared, repo: &RepoRef, file: &HubFile) -> Result<Option<Fetched>, HubError> {
    let blob = shared.cache.blob(repo, file);
    let named = shared.cache.find(repo, file);
    let Some(path) = named.clone().or_else(|| blob.is_file().then_some(blob)) else { return Ok(None) };
    let mut digest = FileDigest::new(file);
    let mut disk = File::open(&path).map_err(|e| wrong(&path, e))?;
    digest.read(&mut disk).map_err(|e| wrong(&path, e))?;
    let sha256 = match digest.check(file, || repo.place(&file.path)) {
        Ok(sha256) => sha256,
        Err(e) if shared.http.config.offline => return Err(e),
        Err(_) => return Ok(None),
    };
    let path = match named {
        Some(path) => path,
        None => shared.cache.link(repo, file)?,
    };
    // The cache may be one that others keep and that is only read here.
    let _best_effort = shared.write_refs(repo);
    let record = shared.record(repo, &file.path);
    shared.log(LogRecord { sha256: Some(sha256.clone()), from_cache: true, ..record });
    Ok(Some(Fetched { path, sha256, size: file.size, transferred: 0, retries: 0, from_cache: true }))
}

fn download(
    shared: &Arc<Shared>,
    repo: &RepoRef,
    file: &HubFile,
    on_bytes: OnBytes<'_>,
) -> Result<Fetched, HubError> {
    let path = shared.cache.incomplete(repo, file);
    let mut options = OpenOptions::new();
    let disk = options.read(true).write(true).create(true).truncate(false).open(&path);
    let mut download = Download {
        remote: RemoteFile::new(shared.clone(), repo, file)?,
        on_bytes,
        path: &path,
        disk: disk.map_err(|e| wrong(&path, e))?,
        digest: FileDigest::new(file),
        tries: Tries::default(),
        transferred: 0,
        reached: 0,
        resumed: false,
        host: None,
    };
    download.resume()?;
    let sha256 = download.run()?;
    let (transferred, retries, host) = (download.transferred, download.tries.retries, download.host.take());
    download.disk.sync_all().map_err(|e| full_or_wrong(&path, 0, e))?;
    let blob = shared.cache.blob(repo, file);
    std::fs::rename(&path, &blob).map_err(|e| wrong(&blob, e))?;
    blob.parent().map(sync_folder);
    let path = shared.cache.link(repo, file)?;
    shared.write_refs(repo)?;
    let record = shared.record(repo, &file.path);
    let sum = Some(sha256.clone());
    shared.log(LogRecord { host, bytes: transferred, sha256: sum, retries, ..record });
    Ok(Fetched { path, sha256, size: file.size, transferred, retries, from_cache: false })
}

impl Download<'_> {
    /// Takes over what an earlier try has left.
    fn resume(&mut self) -> Result<(), HubError> {
        let left = self.disk.metadata().map_err(|e| wrong(self.path, e))?.len();
        if left > self.remote.file.size {
            return self.restart();
        }
        self.digest.read(&mut self.disk).map_err(|e| wrong(self.path, e))?;
        self.reached = self.digest.len();
        self.resumed = self.reached > 0;
        if self.resumed {
            (self.on_bytes)(self.reached);
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), HubError> {
        self.resumed = false;
        self.digest = FileDigest::new(&self.remote.file);
        self.disk.set_len(0).map_err(|e| wrong(self.path, e))?;
        self.disk.seek(SeekFrom::Start(0)).map_err(|e| wrong(self.path, e))?;
        Ok(())
    }

    /// All bytes, and their SHA-256 if they are the right ones. Wrong bytes are removed.
    fn run(&mut self) -> Result<String, HubError> {
        loop {
            self.fill()?;
            let digest = self.digest.clone();
            match digest.check(&self.remote.file, || self.remote.place()) {
                Ok(sha256) => return Ok(sha256),
                // What an earlier try left may be to blame: a crash can tear a file.
                Err(_) if self.resumed => self.restart()?,
                Err(e) => {
                    let _best_effort = std::fs::remove_file(self.path);
                    return Err(e);
                }
            }
        }
    }

    fn fill(&mut self) -> Result<(), HubError> {
        let size = self.remote.file.size;
        while self.digest.len() < size {
            let start = self.digest.len();
            let end = start.saturating_add(self.remote.shared.http.config.range_bytes.max(1)).min(size);
            let bytes = self.remote.get(start, end, &mut self.tries)?;
            self.host = Some(bytes.host);
            // Whoever ignores the range sends the file from its start, and all of it: bytes that
            // are there are passed over, and the rest comes in this one answer.
            if let Err(e) = self.take(bytes.reader, start - bytes.start, bytes.end)? {
                self.tries.failed(&self.remote.shared.http, &bytes.url, e)?;
            }
        }
        Ok(())
    }

    /// Reads an answer up to `end`; the inner error is a connection that broke.
    fn take(
        &mut self,
        mut reader: Box<dyn Read + Send>,
        mut skip: u64,
        end: u64,
    ) -> Result<Result<(), io::Error>, HubError> {
        let mut buffer = vec![0; BUFFER];
        loop {
            self.remote.shared.http.check_stop()?;
            let read = match reader.read(&mut buffer) {
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Ok(Err(e)),
            };
            let bytes = buffer.get(..read).unwrap_or_default();
            if bytes.is_empty() {
                let whole = self.digest.len() == end;
                return Ok(if whole { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) });
            }
            self.transferred += bytes.len() as u64;
            let passed = skip.min(bytes.len() as u64);
            skip -= passed;
            self.keep(bytes.get(passed as usize..).unwrap_or_default(), end)?;
        }
    }

    fn keep(&mut self, bytes: &[u8], end: u64) -> Result<(), HubError> {
        let got = self.digest.len() + bytes.len() as u64;
        if got > end {
            let expected = self.remote.file.size;
            return Err(HubError::SizeMismatch { place: self.remote.place(), expected, got });
        }
        let missing = self.remote.file.size - self.digest.len();
        self.disk.write_all(bytes).map_err(|e| full_or_wrong(self.path, missing, e))?;
        self.digest.update(bytes);
        if got > self.reached {
            (self.on_bytes)(got - self.reached);
            self.reached = got;
            self.tries.progress();
        }
        Ok(())
    }
}

fn full_or_wrong(path: &Path, missing: u64, source: io::Error) -> HubError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
        return HubError::DiskFull { path: path.to_path_buf(), missing, source };
    }
    wrong(path, source)
}
