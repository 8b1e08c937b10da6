//! A scratch file without a name: it is gone with the process, whatever ends it. Threads append to it
//! and read from it at once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::run::error::RunError;

/// A scratch file. Each append has a place of its own.
#[derive(Debug)]
pub(super) struct Scratch {
    file: File,
    /// For messages.
    folder: PathBuf,
    end: AtomicU64,
}

/// A stretch of a scratch file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    /// First byte.
    pub(super) at: u64,
    /// Bytes.
    pub(super) len: u64,
}

impl Scratch {
    /// An empty file on the disk of `folder`.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn new(folder: &Path) -> Result<Self, RunError> {
        let file = tempfile::tempfile_in(folder).map_err(|e| RunError::write(folder, e))?;
        Ok(Scratch { file, folder: folder.to_path_buf(), end: AtomicU64::new(0) })
    }

    /// Takes room for `len` bytes; the caller fills it with [`Scratch::write_at`].
    pub(super) fn reserve(&self, len: u64) -> Span {
        Span { at: self.end.fetch_add(len, Relaxed), len }
    }

    /// Writes into room that was taken.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), RunError> {
        self.file.write_all_at(bytes, at).map_err(|e| RunError::write(&self.folder, e))
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn append(&self, bytes: &[u8]) -> Result<Span, RunError> {
        let span = self.reserve(bytes.len() as u64);
        self.write_at(bytes, span.at)?;
        Ok(span)
    }

    /// Reads `span` behind what is in `buffer`.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn read_into(&self, span: Span, buffer: &mut Vec<u8>) -> Result<(), RunError> {
        let start = buffer.len();
        buffer.resize(start + span.len as usize, 0);
        let room = buffer.get_mut(start..).unwrap_or_default();
        let read = self.file.read_exact_at(room, span.at);
        read.map_err(|source| RunError::Read { path: self.folder.clone(), source })
    }

    /// The bytes of `span`.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn read(&self, span: Span) -> Result<Vec<u8>, RunError> {
        let mut buffer = Vec::new();
        self.read_into(span, &mut buffer)?;
        Ok(buffer)
    }
}
