//! Files that are there whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use potable_manifests::{Digest, Hasher};

use crate::run::error::RunError;
use crate::store::hold::before_naming;

/// A file under a temporary name until [`AtomicFile::commit`], which syncs and renames it. Dropped
/// before that, it is removed.
pub struct AtomicFile {
    file: File,
    path: PathBuf,
    temporary: PathBuf,
    hasher: Hasher,
    size: u64,
    committed: bool,
}

impl AtomicFile {
    /// Starts a file. The folder must exist.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path) -> Result<Self, RunError> {
        let (file, temporary) = open_temporary(path).map_err(|e| RunError::write(path, e))?;
        Ok(AtomicFile {
            file,
            path: path.to_path_buf(),
            temporary,
            hasher: Hasher::new(),
            size: 0,
            committed: false,
        })
    }

    /// Makes the file durable under its name; gives the SHA-256 and the size of what was written.
    ///
    /// # Errors
    /// What the file system says; the name is then not taken.
    pub fn commit(mut self) -> Result<(Digest, u64), RunError> {
        let wrap = |e| RunError::write(&self.path, e);
        self.file.sync_all().map_err(wrap)?;
        before_naming(&self.path);
        std::fs::rename(&self.temporary, &self.path).map_err(wrap)?;
        self.committed = true;
        if let Some(folder) = self.path.parent()
            && let Ok(folder) = File::open(folder)
        {
            // Not every file system can sync a folder; the rename itself has happened.
            let _best_effort = folder.sync_all();
        }
        Ok((std::mem::take(&mut self.hasher).finish(), self.size))
    }
}

/// A file that nobody else writes: two processes may write the same name at the same time, on two
/// machines even.
fn open_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{host}-{}-{number}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            // What a killed process of the same number left.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result.map(|file| (file, temporary)),
        }
    }
}

/// Counts the temporary files of this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            // Nothing can be done about a temporary file that will not go away.
            let _best_effort = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a whole file atomically.
///
/// # Errors
/// What the file system says.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(Digest, u64), RunError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(|e| RunError::write(path, e))?;
    file.commit()
}
