//! A store that is a folder. Files get their names by rename or link, both of which are atomic on
//! local and on network file systems.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tempfile::NamedTempFile;

use super::error::StoreError;
use super::{hold, parent};

/// Names of files that are being written: random, and taken only if free, so that no two writers on
/// any machines share one.
const TEMPORARY: (&str, &str) = (".put-", ".tmp");

/// A folder and what is in it.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Folder { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn below(&self, prefix: &str) -> Folder {
        Folder { path: self.path.join(prefix) }
    }

    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path.join(name);
        write_to(&path, |file| file.write_all(bytes)).map_err(|e| self.write_error(name, e))
    }

    pub(super) fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        let path = self.path.join(name);
        let wrap = |e| self.write_error(name, e);
        if path.symlink_metadata().is_ok() {
            return Ok(false);
        }
        let mut file = temporary(&parent(&path)).map_err(wrap)?;
        file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(wrap)?;
        hold::before_naming(&path);
        let written = link_new(file.path(), &path).map_err(wrap)?;
        sync_folder(&path);
        Ok(written)
    }

    pub(super) fn put_file(&self, name: &str, from: &Path) -> Result<(), StoreError> {
        let unreadable = |e| StoreError::io(from.display().to_string(), "read", e);
        let mut source = File::open(from).map_err(unreadable)?;
        let expected = source.metadata().map_err(unreadable)?.len();
        let mut got = 0;
        let path = self.path.join(name);
        write_to(&path, |file| {
            got = io::copy(&mut source, file)?;
            Ok(())
        })
        .map_err(|e| self.write_error(name, e))?;
        if got != expected {
            return Err(StoreError::Incomplete { place: from.display().to_string(), expected, got });
        }
        Ok(())
    }

    pub(super) fn get(&self, name: &str) -> Result<Bytes, StoreError> {
        std::fs::read(self.path.join(name)).map(Bytes::from).map_err(|e| self.read_error(name, e))
    }

    pub(super) fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let wrap = |e| self.read_error(name, e);
        let mut file = File::open(self.path.join(name)).map_err(wrap)?;
        if file.metadata().map_err(wrap)?.len() < range.end {
            return Err(StoreError::OutOfRange {
                place: self.place(name),
                start: range.start,
                end: range.end,
            });
        }
        file.seek(SeekFrom::Start(range.start)).map_err(wrap)?;
        let expected = range.end - range.start;
        let mut bytes = Vec::with_capacity(expected as usize);
        file.take(expected).read_to_end(&mut bytes).map_err(wrap)?;
        let got = bytes.len() as u64;
        if got != expected {
            return Err(StoreError::Incomplete { place: self.place(name), expected, got });
        }
        Ok(bytes.into())
    }

    pub(super) fn fetch(&self, name: &str, to: &Path) -> Result<(), StoreError> {
        let mut source = File::open(self.path.join(name)).map_err(|e| self.read_error(name, e))?;
        write_to(to, |file| io::copy(&mut source, file).map(|_| ()))
            .map_err(|e| StoreError::io(to.display().to_string(), "write", e))
    }

    pub(super) fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        match self.path.join(name).metadata() {
            Ok(meta) => Ok(meta.is_file().then_some(meta.len())),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(self.read_error(name, e)),
        }
    }

    /// All files below `prefix`, in no order; files that are being written are none.
    pub(super) fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StoreError> {
        let mut found = Vec::new();
        let mut open = vec![prefix.to_owned()];
        while let Some(folder) = open.pop() {
            let wrap = |e| StoreError::io(self.place(&folder), "list", e);
            let entries = match std::fs::read_dir(self.path.join(&folder)) {
                Ok(entries) => entries,
                Err(e) if is_absent(&e) => continue,
                Err(e) => return Err(wrap(e)),
            };
            for entry in entries {
                let entry = entry.map_err(wrap)?;
                let file = entry.file_name().to_string_lossy().into_owned();
                let name = if folder.is_empty() { file.clone() } else { format!("{folder}/{file}") };
                match std::fs::metadata(entry.path()) {
                    Ok(meta) if meta.is_dir() => open.push(name),
                    Ok(meta) if !is_temporary(&file) => found.push((name, meta.len())),
                    Ok(_) => {}
                    // It was removed or got its name meanwhile.
                    Err(e) if is_absent(&e) => {}
                    Err(e) => return Err(wrap(e)),
                }
            }
        }
        Ok(found)
    }

    pub(super) fn delete(&self, name: &str) -> Result<(), StoreError> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(e) if !is_absent(&e) => Err(StoreError::io(self.place(name), "delete", e)),
            _ => Ok(()),
        }
    }

    fn place(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn read_error(&self, name: &str, source: io::Error) -> StoreError {
        if is_absent(&source) {
            return StoreError::NotFound { place: self.place(name) };
        }
        StoreError::io(self.place(name), "read", source)
    }

    fn write_error(&self, name: &str, source: io::Error) -> StoreError {
        // Not `NotFound`, which is about objects: a folder that was taken away is a fault.
        StoreError::Io { place: self.place(name), action: "write", source }
    }
}

/// Writes a file under a name of its own and gives it `path` when it is whole and on the disk.
pub(super) fn write_to(
    path: &Path,
    fill: impl FnOnce(&mut NamedTempFile) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = temporary(&parent(path))?;
    fill(&mut file)?;
    file.as_file().sync_all()?;
    hold::before_naming(path);
    file.persist(path).map_err(|e| e.error)?;
    sync_folder(path);
    Ok(())
}

fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    std::fs::create_dir_all(folder)?;
    tempfile::Builder::new()
        .prefix(TEMPORARY.0)
        .suffix(TEMPORARY.1)
        .rand_bytes(16)
        // What the umask leaves of it; the crate's own are for the owner alone.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
}

fn is_temporary(file: &str) -> bool {
    file.starts_with(TEMPORARY.0) && file.ends_with(TEMPORARY.1)
}

/// Gives `from` the second name `to` unless it is taken; whether it was free.
fn link_new(from: &Path, to: &Path) -> io::Result<bool> {
    match std::fs::hard_link(from, to) {
        Ok(()) => Ok(true),
        // A network file system may repeat a request whose answer was lost: the name may be ours.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => same_file(from, to),
        // No links here: a rename that replaces nothing.
        Err(e) if e.kind() == io::ErrorKind::Unsupported || e.kind() == io::ErrorKind::PermissionDenied => {
            let here = rustix::fs::CWD;
            match rustix::fs::renameat_with(here, from, here, to, rustix::fs::RenameFlags::NOREPLACE) {
                Ok(()) => Ok(true),
                Err(rustix::io::Errno::EXIST) => Ok(false),
                Err(other) => Err(other.into()),
            }
        }
        Err(e) => Err(e),
    }
}

fn same_file(left: &Path, right: &Path) -> io::Result<bool> {
    let left = left.metadata()?;
    match right.metadata() {
        Ok(right) => Ok((left.dev(), left.ino()) == (right.dev(), right.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Makes a name durable. Not every file system can sync a folder; the rename itself has happened.
fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(parent(path)) {
        let _best_effort = folder.sync_all();
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_writers_of_a_new_name_wins_and_its_bytes_stay() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path().join("a/b"));
        let won: Vec<u8> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..16u8)
                .map(|n| {
                    let store = &store;
                    scope.spawn(move || store.put_new("c/name", &[n; 100_000]).unwrap().then_some(n))
                })
                .collect();
            writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect()
        });
        assert_eq!(won.len(), 1);
        assert_eq!(store.get("c/name").unwrap(), vec![won[0]; 100_000]);
        assert_eq!(store.list("").unwrap(), [("c/name".to_owned(), 100_000)]);
    }

    #[test]
    fn files_that_are_being_written_are_not_listed_and_go_when_writing_fails() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path().to_path_buf());
        let kept = temporary(folder.path()).unwrap();
        assert_eq!(store.list("").unwrap(), []);
        drop(kept);
        let failed = write_to(&folder.path().join("x"), |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_new_file_has_the_rights_that_the_umask_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path().to_path_buf());
        store.put("x", b"1").unwrap();
        let plain = folder.path().join("plain");
        std::fs::copy(folder.path().join("x"), &plain).unwrap();
        File::options().create_new(true).write(true).open(folder.path().join("y")).unwrap();
        let mode = |name: &str| folder.path().join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode("x"), mode("y"));
    }
}
