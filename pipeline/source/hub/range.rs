//! Parts of a file over the network, each checked to be the part that was asked for.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::digest::hex;
use super::error::HubError;
use super::http::Tries;
use super::open::RemoteFile;
use super::{HubFile, LogRecord, RepoRef, Shared};

/// A file that is read in parts, by any number of threads. When it is dropped, the log has a line of
/// what was read.
#[derive(Debug)]
pub struct RangeFile {
    remote: RemoteFile,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// SHA-256 of each part, by its first byte and the one after its last.
    parts: BTreeMap<(u64, u64), [u8; 32]>,
    transferred: u64,
    retries: u32,
    host: Option<String>,
}

impl RangeFile {
    pub(super) fn open(shared: Arc<Shared>, repo: &RepoRef, file: &HubFile) -> Result<RangeFile, HubError> {
        Ok(RangeFile { remote: RemoteFile::new(shared, repo, file)?, seen: Mutex::default() })
    }

    /// Size of the file in bytes, as the listing has it; each answer is checked against it.
    pub fn len(&self) -> u64 {
        self.remote.file.size
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `len` bytes from `offset` on. The same part may be read again; then it has to be the
    /// same bytes, and it counts once.
    ///
    /// # Errors
    /// A part that the file has not, or that shares bytes with another one; a server that ignores
    /// ranges or answers with another part.
    pub fn read_at(&self, offset: u64, len: u64) -> Result<Bytes, HubError> {
        let end = offset.saturating_add(len);
        let place = || self.remote.place();
        if end > self.len() {
            return Err(HubError::OutOfRange { place: place(), offset, end });
        }
        if len == 0 {
            return Ok(Bytes::new());
        }
        if self.overlaps(offset, end) {
            return Err(HubError::Overlap { place: place(), offset, end });
        }
        let mut tries = Tries::default();
        let mut buffer = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
        while (buffer.len() as u64) < len {
            let start = offset + buffer.len() as u64;
            let answer = self.remote.get(start, end, &mut tries)?;
            if answer.start != start || answer.end != end {
                return Err(HubError::RangeIgnored { place: place(), host: answer.host });
            }
            let before = buffer.len();
            // One byte more than there should be shows a body that is too long.
            let read = answer.reader.take(end - start + 1).read_to_end(&mut buffer);
            let got = (buffer.len() - before) as u64;
            self.count(got, &answer.host);
            if got > end - start {
                return Err(super::http::bad(&answer.url, "more bytes than the part has"));
            }
            if got > 0 {
                tries.progress();
            }
            if start + got < end {
                let cause = read.err().unwrap_or_else(|| std::io::ErrorKind::UnexpectedEof.into());
                tries.failed(&self.remote.shared.http, &answer.url, cause)?;
            }
        }
        self.settle(offset, end, &buffer, tries.retries)?;
        Ok(Bytes::from(buffer))
    }

    /// What was read, as `sha256:` and hex digits: SHA-256 over the parts in the order of the file,
    /// each as its first byte and its length (64-bit, little endian) and the SHA-256 of its bytes. It
    /// does not depend on the order of reads.
    pub fn digest(&self) -> String {
        self.seen().digest()
    }

    /// Bytes that came over the network so far.
    pub fn transferred(&self) -> u64 {
        self.seen().transferred
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        let seen = self.seen();
        if seen.parts.contains_key(&(start, end)) {
            return false;
        }
        let before = seen.parts.range(..(start, u64::MAX)).next_back();
        let after = seen.parts.range((start, 0)..).next();
        before.is_some_and(|((_, other_end), _)| *other_end > start)
            || after.is_some_and(|((other_start, _), _)| *other_start < end)
    }

    fn count(&self, bytes: u64, host: &str) {
        let mut seen = self.seen();
        seen.transferred += bytes;
        seen.host = Some(host.to_owned());
    }

    fn settle(&self, start: u64, end: u64, bytes: &[u8], retries: u32) -> Result<(), HubError> {
        let sum: [u8; 32] = Sha256::digest(bytes).into();
        let overlaps = self.overlaps(start, end);
        let mut seen = self.seen();
        seen.retries += retries;
        if overlaps {
            // Another thread was quicker.
            return Err(HubError::Overlap { place: self.remote.place(), offset: start, end });
        }
        let before = *seen.parts.entry((start, end)).or_insert(sum);
        if before == sum {
            return Ok(());
        }
        Err(HubError::DigestMismatch {
            place: format!("{}, bytes {start} to {end}", self.remote.place()),
            algorithm: "sha256",
            expected: hex(&before),
            got: hex(&sum),
        })
    }
}

impl Seen {
    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for ((start, end), sum) in &self.parts {
            digest.update(start.to_le_bytes());
            digest.update((end - start).to_le_bytes());
            digest.update(sum);
        }
        format!("sha256:{}", hex(&digest.finalize()))
    }
}

impl Drop for RangeFile {
    fn drop(&mut self) {
        let seen = std::mem::take(&mut *self.seen());
        if seen.transferred == 0 {
            return;
        }
        let shared = &self.remote.shared;
        let record = shared.record(&self.remote.repo, &self.remote.file.path);
        let ranges = Some(seen.digest());
        let Seen { transferred: bytes, retries, host, .. } = seen;
        shared.log(LogRecord { host, bytes, ranges, retries, ..record });
    }
}
