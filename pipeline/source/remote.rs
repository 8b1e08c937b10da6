//! Files of the Hub as files of a source: fetched into the cache when they are first read, or read
//! without a copy.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::SourceError;
use super::hub::{Hub, HubError, HubFile, RangeFile, RepoRef, StreamFile};
use super::open::Format;
use crate::recipe::lock::PinnedFile;

/// Bytes at the end of a Parquet file that are fetched for its footer.
const TAIL: u64 = 1 << 16;
/// Bytes at the beginning of a stream that can be read twice.
const HEAD: usize = 1 << 20;

/// Whether a copy of a file is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// In the Hub's cache.
    Cache,
    /// Nowhere (`--stream`).
    Nothing,
}

/// One file of a repository at a commit.
pub struct Remote {
    hub: Hub,
    at: RepoRef,
    file: HubFile,
    sha256: String,
    keep: Keep,
    shown: PathBuf,
    shared: Arc<Shared>,
    /// What was read through this handle by ranges.
    used: Mutex<BTreeMap<u64, RangeUse>>,
    /// The stream that this handle opened last.
    stream: Mutex<Option<Arc<Mutex<StreamFile>>>>,
    failed: Mutex<Option<HubError>>,
}

/// What all handles of a file share.
#[derive(Default)]
struct Shared {
    local: Mutex<Option<PathBuf>>,
    ranges: Mutex<Option<Arc<RangeFile>>>,
    tail: OnceLock<Tail>,
    /// SHA-256 of the first bytes of a stream.
    head: OnceLock<String>,
}

struct Tail {
    start: u64,
    bytes: Bytes,
    used: Vec<RangeUse>,
}

/// A range of a file that was read, and the digest of what came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeUse {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// SHA-256 of the bytes, in hex.
    pub sha256: String,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Remote").field("shown", &self.shown).field("keep", &self.keep).finish()
    }
}

impl PartialEq for Remote {
    fn eq(&self, other: &Self) -> bool {
        self.shown == other.shown
    }
}

impl Eq for Remote {}

impl Remote {
    /// A file of a pinned repository; nothing is read yet.
    pub fn new(hub: Hub, at: RepoRef, pinned: &PinnedFile, keep: Keep) -> Self {
        Remote::handle(hub, at, (pinned.hub_file(), pinned.sha256.clone()), keep)
    }

    fn handle(hub: Hub, at: RepoRef, (file, sha256): (HubFile, String), keep: Keep) -> Self {
        let shown = PathBuf::from(format!("hf://{}", at.place(&file.path)));
        Remote {
            hub,
            at,
            file,
            sha256,
            keep,
            shown,
            shared: Arc::default(),
            used: Mutex::default(),
            stream: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// Another handle, with an account of its own of what is read through it.
    pub fn fork(&self) -> Self {
        Remote {
            shared: self.shared.clone(),
            ..Remote::handle(
                self.hub.clone(),
                self.at.clone(),
                (self.file.clone(), self.sha256.clone()),
                self.keep,
            )
        }
    }

    /// SHA-256 of the whole file as the lock has it, in hex.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The file for messages: `hf://datasets/OWNER/NAME@COMMIT/PATH`.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.file.size
    }

    /// Whether a file of this format is read without a copy. Arrow files need to be sought in.
    pub fn streams(&self, format: Format) -> bool {
        self.keep == Keep::Nothing && format != Format::Arrow
    }

    /// Whether the file lies in the cache, in full size.
    pub fn is_local(&self) -> bool {
        lock(&self.shared.local).is_some() || self.hub.cached(&self.at, &self.file).is_some()
    }

    /// The file in the cache, fetched and checked against its sha256 first. Others who ask for it
    /// meanwhile wait.
    ///
    /// # Errors
    /// What the Hub says; a file that is not what the lock has.
    pub fn local(&self, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<PathBuf, SourceError> {
        let mut local = lock(&self.shared.local);
        if let Some(path) = &*local {
            return Ok(path.clone());
        }
        let fetched = self.hub.fetch(&self.at, &self.file, on_bytes).map_err(|e| self.error(e))?;
        if fetched.sha256 != self.sha256 {
            return Err(SourceError::NotLocked {
                path: self.shown.clone(),
                got: fetched.sha256,
                expected: self.sha256.clone(),
            });
        }
        self.check_tail(&fetched.path)?;
        *local = Some(fetched.path.clone());
        Ok(fetched.path)
    }

    /// A footer that was read by ranges was planned with before the whole file was checked: it has to
    /// be the one of the file.
    fn check_tail(&self, path: &Path) -> Result<(), SourceError> {
        let Some(tail) = self.shared.tail.get() else { return Ok(()) };
        let read = |used: &RangeUse| -> std::io::Result<bool> {
            let mut file = std::fs::File::open(path)?;
            file.seek(SeekFrom::Start(used.start))?;
            let mut bytes = Vec::new();
            file.take(used.len).read_to_end(&mut bytes)?;
            Ok(potable_manifests::sha256_hex(&bytes) == used.sha256)
        };
        for used in &tail.used {
            let same = read(used).map_err(|source| SourceError::Read { path: path.to_path_buf(), source })?;
            if !same {
                return Err(SourceError::Tail { path: self.shown.clone(), start: used.start });
            }
        }
        Ok(())
    }

    /// Opens the whole file as a stream that is hashed as it comes, and fails at its end if the hash
    /// is not that of the lock.
    ///
    /// # Errors
    /// What the Hub says.
    pub fn open_stream(&self) -> Result<HeadedStream, SourceError> {
        let file = self.hub.open_stream(&self.at, &self.file).map_err(|e| self.error(e))?;
        let file = Arc::new(Mutex::new(file));
        *lock(&self.stream) = Some(file.clone());
        let stream = HeadedStream::new(file)
            .map_err(|source| SourceError::Read { path: self.shown.clone(), source })?;
        // The plan looked at the first rows: those that are worked on have to be the same.
        let sum = potable_manifests::sha256_hex(stream.head.get_ref());
        if *self.shared.head.get_or_init(|| sum.clone()) != sum {
            return Err(SourceError::Tail { path: self.shown.clone(), start: 0 });
        }
        Ok(stream)
    }

    /// Reads what is left of the stream that this handle opened, so that all of it was hashed.
    ///
    /// # Errors
    /// As [`Remote::open_stream`].
    pub fn finish_stream(&self) -> Result<(), SourceError> {
        let Some(stream) = lock(&self.stream).take() else { return Ok(()) };
        let mut stream = lock(&stream);
        std::io::copy(&mut *stream, &mut std::io::sink())
            .map_err(|source| SourceError::Read { path: self.shown.clone(), source })?;
        match stream.sha256() {
            Some(got) if got == self.sha256 => Ok(()),
            got => Err(SourceError::NotLocked {
                path: self.shown.clone(),
                got: got.unwrap_or_default().to_owned(),
                expected: self.sha256.clone(),
            }),
        }
    }

    /// Bytes of the file, by a range request; what was read is remembered with its digest.
    ///
    /// # Errors
    /// What the Hub says.
    pub fn read_range(&self, start: u64, len: u64) -> Result<Bytes, HubError> {
        let (bytes, used) = self.fetch_range(start, len)?;
        lock(&self.used).insert(start, used);
        Ok(bytes)
    }

    /// The end of a Parquet file, with all of its footer: offset and bytes. Read once for all handles.
    ///
    /// # Errors
    /// What the Hub says.
    pub fn tail(&self) -> Result<(u64, Bytes), HubError> {
        if let Some(tail) = self.shared.tail.get() {
            return Ok((tail.start, tail.bytes.clone()));
        }
        let size = self.file.size;
        let start = size.saturating_sub(TAIL);
        let (bytes, used) = self.fetch_range(start, size - start)?;
        let mut tail = Tail { start, bytes, used: vec![used] };
        // The last eight bytes: length of the footer, little-endian, and `PAR1`.
        let last = tail.bytes.len().checked_sub(8).and_then(|at| tail.bytes.get(at..at + 4));
        let footer = last.and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes);
        let first = size.saturating_sub(8 + u64::from(footer));
        if first < start {
            let (more, used) = self.fetch_range(first, start - first)?;
            tail.used.push(used);
            tail.bytes = [more.as_ref(), tail.bytes.as_ref()].concat().into();
            tail.start = first;
        }
        let tail = self.shared.tail.get_or_init(|| tail);
        Ok((tail.start, tail.bytes.clone()))
    }

    /// The ranges that were read through this handle and for the footer, in order.
    pub fn ranges(&self) -> Vec<RangeUse> {
        let mut all = lock(&self.used).clone();
        let tail = self.shared.tail.get().map(|tail| tail.used.as_slice()).unwrap_or_default();
        all.extend(tail.iter().map(|used| (used.start, used.clone())));
        all.into_values().collect()
    }

    /// Keeps an error that a reader of a third party would turn into text.
    pub fn fail(&self, error: HubError) {
        *lock(&self.failed) = Some(error);
    }

    /// The error that was kept, if there is one.
    pub fn take_failure(&self) -> Option<SourceError> {
        lock(&self.failed).take().map(|e| self.error(e))
    }

    /// An error of the Hub with the file.
    pub fn error(&self, source: HubError) -> SourceError {
        SourceError::Hub { path: self.shown.clone(), source: Box::new(source) }
    }

    fn fetch_range(&self, start: u64, len: u64) -> Result<(Bytes, RangeUse), HubError> {
        let ranges = {
            let mut opened = lock(&self.shared.ranges);
            match &*opened {
                Some(ranges) => ranges.clone(),
                None => {
                    let ranges = Arc::new(self.hub.open_ranges(&self.at, &self.file)?);
                    *opened = Some(ranges.clone());
                    ranges
                }
            }
        };
        let bytes = ranges.read_at(start, len)?;
        let sha256 = potable_manifests::sha256_hex(&bytes);
        Ok((bytes, RangeUse { start, len, sha256 }))
    }
}

/// A stream whose first bytes can be looked at and read again.
pub struct HeadedStream {
    head: Cursor<Vec<u8>>,
    rest: BufReader<Handle>,
    /// Whether more than the head was read.
    past: bool,
}

struct Handle(Arc<Mutex<StreamFile>>);

impl Read for Handle {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        lock(&self.0).read(buffer)
    }
}

impl HeadedStream {
    fn new(file: Arc<Mutex<StreamFile>>) -> std::io::Result<Self> {
        let mut rest = BufReader::with_capacity(1 << 18, Handle(file));
        let mut head = Vec::new();
        rest.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        Ok(HeadedStream { head: Cursor::new(head), rest, past: false })
    }

    fn in_head(&self) -> bool {
        self.head.position() < self.head.get_ref().len() as u64
    }
}

impl Read for HeadedStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.in_head() {
            return self.head.read(buffer);
        }
        self.past = true;
        self.rest.read(buffer)
    }
}

impl BufRead for HeadedStream {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.in_head() {
            return self.head.fill_buf();
        }
        self.past = true;
        self.rest.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if self.in_head() {
            self.head.consume(amount);
        } else {
            self.rest.consume(amount);
        }
    }
}

impl Seek for HeadedStream {
    /// Only back to the beginning, while no more than the head was read.
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        if to == SeekFrom::Start(0) && !self.past {
            self.head.set_position(0);
            return Ok(0);
        }
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "a stream cannot be sought in"))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
