//! Folders for files while they are made.

use std::fs::{File, OpenOptions};
use std::path::Path;

use crate::run::error::RunError;

const PREFIX: &str = "potable-step-";
const LOCK: &str = "lock";

/// A folder for files while they are made; gone at the end. One that a killed process left is removed by
/// the next step that makes one beside it.
pub struct Scratch {
    folder: tempfile::TempDir,
    _held: File,
}

impl Scratch {
    /// Makes a folder below another one; below the system's folder for such files if none is named.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(below: Option<&Path>) -> Result<Scratch, RunError> {
        let system = std::env::temp_dir();
        let parent = below.unwrap_or(&system);
        let failed = |e: std::io::Error| RunError::write(parent, e);
        if below.is_some() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        remove_abandoned(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(failed)?;
        // It gets its name when it is held: until then nobody takes the folder for abandoned.
        let unnamed = folder.path().join("lock-unnamed");
        let held =
            OpenOptions::new().create(true).truncate(false).write(true).open(&unnamed).map_err(failed)?;
        if held.try_lock().is_ok() {
            std::fs::rename(&unnamed, folder.path().join(LOCK)).map_err(failed)?;
        }
        Ok(Scratch { folder, _held: held })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of processes that are no more. What cannot be looked at or removed is another
/// user's.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let lock = OpenOptions::new().write(true).open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _left_for_the_next = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_held_stays() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join(format!("{PREFIX}abandoned"));
        let others = parent.path().join("others");
        for folder in [&abandoned, &others] {
            std::fs::create_dir_all(folder.join("chunks")).unwrap();
            crate::shard::write_atomic(&folder.join(LOCK), b"").unwrap();
        }
        let unborn = parent.path().join(format!("{PREFIX}unborn"));
        std::fs::create_dir(&unborn).unwrap();
        let first = Scratch::new(Some(parent.path())).unwrap();
        assert!(!abandoned.exists());
        let second = Scratch::new(Some(parent.path())).unwrap();
        assert!(first.path().exists() && others.exists() && unborn.exists());
        let path = second.path().to_path_buf();
        drop(second);
        assert!(!path.exists());
    }
}
