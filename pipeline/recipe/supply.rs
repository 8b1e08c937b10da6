//! What a run has of the Hub: its lock, and the files behind the pins.

use std::sync::Arc;

use super::lock::{Pin, RecipeLock};
use super::pins::{Want, find};
use crate::source::hub::{Hub, RepoRef};
use crate::source::remote::{Keep, Remote};
use crate::source::{Format, Location, SourceError, SourceFile, files};

/// Files of the Hub by what wants them.
#[derive(Clone, Default)]
pub struct Supply {
    lock: RecipeLock,
    hub: Option<Hub>,
    keep: Option<Keep>,
}

impl std::fmt::Debug for Supply {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Supply").field("lock", &self.lock).finish_non_exhaustive()
    }
}

impl Supply {
    /// The files of a lock, by way of `hub`.
    pub fn new(lock: RecipeLock, hub: Hub, keep: Keep) -> Self {
        Supply { lock, hub: Some(hub), keep: Some(keep) }
    }

    /// The client, where anything comes from the Hub.
    pub fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    /// The lock.
    pub fn lock(&self) -> &RecipeLock {
        &self.lock
    }

    /// The pin of a want.
    pub fn pin(&self, want: &Want) -> Option<&Pin> {
        find(&self.lock, want)
    }

    /// The files of a want in the order of their names, as those of a local copy would be named.
    ///
    /// # Errors
    /// A want that was not pinned, a name that tells no format.
    pub fn files(&self, want: &Want, format: Option<Format>) -> Result<Vec<SourceFile>, SourceError> {
        self.handles(want, self.keep.unwrap_or(Keep::Cache), format)
    }

    /// As [`Supply::files`], for files that are read whole and more than once.
    ///
    /// # Errors
    /// As [`Supply::files`].
    pub fn kept(&self, want: &Want, format: Option<Format>) -> Result<Vec<SourceFile>, SourceError> {
        self.handles(want, Keep::Cache, format)
    }

    fn handles(
        &self,
        want: &Want,
        keep: Keep,
        format: Option<Format>,
    ) -> Result<Vec<SourceFile>, SourceError> {
        let missing = || SourceError::NotPinned { user: want.user.clone(), repo: want.repo.clone() };
        let (pin, hub) = self.pin(want).zip(self.hub.as_ref()).ok_or_else(missing)?;
        let paths: Vec<String> = pin.file.iter().map(|file| file.path.clone()).collect();
        let names = files::repository_names(&paths);
        names
            .into_iter()
            .map(|(path, name)| {
                let file = pin.file.iter().find(|file| file.path == path).ok_or_else(missing)?;
                let remote = Remote::new(hub.clone(), repo_ref(pin), file, keep);
                SourceFile::new(name, Location::Remote(Arc::new(remote)), format)
            })
            .collect()
    }
}

/// The repository of a pin, at its commit.
pub fn repo_ref(pin: &Pin) -> RepoRef {
    RepoRef { kind: pin.kind, id: pin.repo.clone(), commit: pin.commit.clone() }
}
