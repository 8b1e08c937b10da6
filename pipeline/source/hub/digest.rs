//! SHA-256 of a file as its bytes come, and git's id of it where that is what the Hub gives.

use std::fs::File;
use std::io::{self, Read};

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::error::HubError;
use super::{HubFile, Identity};

pub(super) const BUFFER: usize = 256 << 10;

/// The running digests of one file.
#[derive(Clone, Debug)]
pub(super) struct FileDigest {
    sha256: Sha256,
    blob: Option<Sha1>,
    len: u64,
}

impl FileDigest {
    /// The digests that `file` needs.
    pub(super) fn new(file: &HubFile) -> FileDigest {
        let blob = matches!(file.identity, Identity::GitBlob(_)).then(|| {
            let mut blob = Sha1::new();
            blob.update(format!("blob {}\0", file.size));
            blob
        });
        FileDigest { sha256: Sha256::new(), blob, len: 0 }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        if let Some(blob) = &mut self.blob {
            blob.update(bytes);
        }
        self.len += bytes.len() as u64;
    }

    /// Bytes seen.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads what is left of a local file.
    pub(super) fn read(&mut self, file: &mut File) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = file.read(&mut buffer)?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
            self.update(bytes);
        }
    }

    /// The SHA-256, if size and identity are those of `file`.
    pub(super) fn check(self, file: &HubFile, place: impl Fn() -> String) -> Result<String, HubError> {
        if self.len != file.size {
            return Err(HubError::SizeMismatch { place: place(), expected: file.size, got: self.len });
        }
        let sha256 = hex(&self.sha256.finalize());
        let (algorithm, expected, got) = match (&file.identity, self.blob) {
            (Identity::GitBlob(expected), Some(blob)) => ("git blob sha1", expected, hex(&blob.finalize())),
            (Identity::Sha256(expected) | Identity::GitBlob(expected), _) => {
                ("sha256", expected, sha256.clone())
            }
        };
        if got == *expected {
            return Ok(sha256);
        }
        Err(HubError::DigestMismatch { place: place(), algorithm, expected: expected.clone(), got })
    }
}

/// Lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
