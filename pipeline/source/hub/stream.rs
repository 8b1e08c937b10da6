//! A whole file over the network in order, hashed as it arrives.

use std::io::{self, Read};
use std::sync::Arc;

use super::digest::FileDigest;
use super::error::HubError;
use super::http::Tries;
use super::open::RemoteFile;
use super::{HubFile, LogRecord, RepoRef, Shared};

/// Bytes passed over at a time where a server ignores a range.
const SKIP: usize = 64 << 10;

/// A file that is read once, from the start to the end. A connection that breaks is taken up where it
/// broke. The last read gives an error instead of the end, if size or digest are not right: who has
/// not seen `Ok(0)` has nothing that is proven.
pub struct StreamFile {
    remote: RemoteFile,
    answer: Option<Answer>,
    /// `None` once all is settled.
    digest: Option<FileDigest>,
    tries: Tries,
    transferred: u64,
    host: Option<String>,
    sha256: Option<String>,
    /// Whether a read gave an error: then no later read may look like the end.
    broken: bool,
}

struct Answer {
    reader: Box<dyn Read + Send>,
    /// Bytes to pass over, of which earlier answers have brought the same.
    skip: u64,
    url: String,
}

impl StreamFile {
    pub(super) fn open(shared: Arc<Shared>, repo: &RepoRef, file: &HubFile) -> Result<StreamFile, HubError> {
        Ok(StreamFile {
            remote: RemoteFile::new(shared, repo, file)?,
            answer: None,
            digest: Some(FileDigest::new(file)),
            tries: Tries::default(),
            transferred: 0,
            host: None,
            sha256: None,
            broken: false,
        })
    }

    /// SHA-256 of the file, once its end was read and found right.
    pub fn sha256(&self) -> Option<&str> {
        self.sha256.as_deref()
    }

    fn next(&mut self, buffer: &mut [u8]) -> Result<usize, HubError> {
        let size = self.remote.file.size;
        loop {
            self.remote.shared.http.check_stop()?;
            let Some(digest) = &mut self.digest else { return Ok(0) };
            let at = digest.len();
            if self.answer.is_none() && at == size {
                return self.settle().map(|()| 0);
            }
            if self.answer.is_none() {
                let bytes = self.remote.get(at, size, &mut self.tries)?;
                self.host = Some(bytes.host);
                self.answer = Some(Answer { reader: bytes.reader, skip: at - bytes.start, url: bytes.url });
            }
            let Some(answer) = &mut self.answer else { continue };
            let cause = match answer.read(buffer, &mut self.transferred) {
                Ok(0) if at == size => {
                    self.answer = None;
                    continue;
                }
                Ok(0) => io::ErrorKind::UnexpectedEof.into(),
                Ok(read) => {
                    digest.update(buffer.get(..read).unwrap_or_default());
                    self.tries.progress();
                    return Ok(read);
                }
                Err(e) => e,
            };
            let url = std::mem::take(&mut answer.url);
            self.answer = None;
            self.tries.failed(&self.remote.shared.http, &url, cause)?;
        }
    }

    fn settle(&mut self) -> Result<(), HubError> {
        let Some(digest) = self.digest.take() else { return Ok(()) };
        let sha256 = digest.check(&self.remote.file, || self.remote.place())?;
        let shared = &self.remote.shared;
        let record = shared.record(&self.remote.repo, &self.remote.file.path);
        shared.log(LogRecord {
            host: self.host.take(),
            bytes: self.transferred,
            sha256: Some(sha256.clone()),
            retries: self.tries.retries,
            ..record
        });
        self.sha256 = Some(sha256);
        Ok(())
    }
}

impl Answer {
    fn read(&mut self, buffer: &mut [u8], transferred: &mut u64) -> io::Result<usize> {
        let mut passed = vec![0; if self.skip > 0 { SKIP } else { 0 }];
        while self.skip > 0 {
            let most = self.skip.min(SKIP as u64) as usize;
            let read = self.reader.read(passed.get_mut(..most).unwrap_or_default())?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.skip -= read as u64;
            *transferred += read as u64;
        }
        let read = self.reader.read(buffer)?;
        *transferred += read as u64;
        Ok(read)
    }
}

impl Read for StreamFile {
    /// The error inside of an error is a [`HubError`].
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.broken {
            return Err(io::Error::other("read on after an error"));
        }
        let result = self.next(buffer);
        self.broken = result.is_err();
        result.map_err(io::Error::other)
    }
}
