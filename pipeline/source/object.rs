//! Files in object stores as files of a source: listed when the run is planned, fetched into a cache when
//! they are first read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use potable_manifests::Digest;

use super::error::SourceError;
use super::open::{Format, Location, SourceFile};
use crate::store::{Stat, Store, StoreError};

/// An object as it was listed: another tag (ETag) later means other bytes.
#[derive(Debug)]
pub struct Object {
    store: Store,
    name: String,
    stat: Stat,
    shown: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    local: Option<PathBuf>,
    sha256: Option<String>,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.shown == other.shown && self.stat == other.stat
    }
}
impl Eq for Object {}

impl Object {
    fn new(store: &Store, name: &str, stat: Stat) -> Self {
        let shown = PathBuf::from(store.place(name));
        Object { store: store.clone(), name: name.to_owned(), stat, shown, state: Mutex::default() }
    }

    /// The object for messages: its address.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Size in bytes, as listed.
    pub fn size(&self) -> u64 {
        self.stat.size
    }

    /// The plan knows the digest already: what is fetched has to have it.
    pub fn expect(&self, sha256: &str) {
        self.state().sha256 = Some(sha256.to_owned());
    }

    /// The object must still be the one that was listed.
    ///
    /// # Errors
    /// What the store says; an object that was changed or removed.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        match self.store.stat(&self.name).map_err(|e| self.error(e))? {
            Some(stat) if stat == self.stat => Ok(()),
            _ => Err(SourceError::Changed { path: self.shown.clone() }),
        }
    }

    /// The file in the cache, fetched first if it is not there. Others who ask for it meanwhile wait.
    ///
    /// # Errors
    /// What the store says; an object that is not the one that was listed or planned with.
    pub fn local(&self) -> Result<PathBuf, SourceError> {
        let mut state = self.state();
        if let Some(path) = &state.local {
            return Ok(path.clone());
        }
        let path = self.cached()?;
        // Without a tag nothing tells whether the copy is of these bytes.
        let is_there =
            self.stat.tag.is_some() && path.metadata().is_ok_and(|meta| meta.len() == self.stat.size);
        if !is_there {
            self.fetch(&path)?;
        }
        if let Some(expected) = &state.sha256 {
            let mut same = is_of(&path, expected)?;
            if is_there && !same {
                // A copy that was harmed since; what the bucket has decides.
                self.fetch(&path)?;
                same = is_of(&path, expected)?;
            }
            if !same {
                return Err(SourceError::Changed { path: self.shown.clone() });
            }
        }
        state.local = Some(path.clone());
        Ok(path)
    }

    fn fetch(&self, path: &Path) -> Result<(), SourceError> {
        self.store.fetch(&self.name, path).map_err(|e| self.error(e))?;
        // It may have been replaced between the listing and the first of its bytes.
        self.check_unchanged()
    }

    /// Where the copy lies: in a folder named by address, size and tag.
    fn cached(&self) -> Result<PathBuf, SourceError> {
        let key = format!(
            "{}\0{}\0{}",
            self.shown.display(),
            self.stat.size,
            self.stat.tag.as_deref().unwrap_or("")
        );
        let digest = potable_manifests::sha256_hex(key.as_bytes());
        let file = self.name.rsplit('/').next().unwrap_or(&self.name);
        let folder = cache_folder().ok_or_else(|| SourceError::NoCache { path: self.shown.clone() })?;
        Ok(folder.join(digest.get(..32).unwrap_or(&digest)).join(file))
    }

    fn error(&self, source: StoreError) -> SourceError {
        SourceError::Store { source: Box::new(source) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a file has these bytes, by their SHA-256 in hex.
fn is_of(path: &Path, sha256: &str) -> Result<bool, SourceError> {
    let read = |source| SourceError::Read { path: path.to_path_buf(), source };
    let digest = std::fs::File::open(path).and_then(Digest::of_reader).map_err(read)?;
    Ok(digest.hex() == sha256)
}

/// Objects that a pattern names: one object, all data files below a prefix, or a glob in which `*`
/// stays within a folder. Hidden files are left out, as below a local folder.
///
/// # Errors
/// What the store says, a glob that does not parse.
pub fn find(
    source_name: &str,
    pattern: &str,
    format: Option<Format>,
) -> Result<Vec<Arc<Object>>, SourceError> {
    let store_error = |source| SourceError::Store { source: Box::new(source) };
    // The part before the first folder with a wildcard is what is listed.
    let wild = pattern.find(['*', '?', '[']);
    let base = match wild {
        Some(at) => pattern.get(..at).and_then(|before| Some(before.rsplit_once('/')?.0)).unwrap_or(pattern),
        None => pattern.trim_end_matches('/'),
    };
    // Without a bucket the whole of it is what is wrong.
    let base = if Store::is_address(base) { base } else { pattern };
    if wild.is_none()
        && let Some((parent, name)) = base.rsplit_once('/')
        && parent.matches('/').count() >= 2
    {
        let store = Store::open(parent).map_err(store_error)?;
        if let Some(stat) = store.stat(name).map_err(store_error)? {
            return Ok(vec![Arc::new(Object::new(&store, name, stat))]);
        }
    }
    let store = Store::open(base).map_err(store_error)?;
    let matcher = match wild {
        Some(_) => {
            let rest = pattern.get(base.len()..).unwrap_or_default().trim_start_matches('/');
            Some(glob::Pattern::new(rest).map_err(|e| SourceError::BadPattern {
                source_name: source_name.to_owned(),
                pattern: pattern.to_owned(),
                reason: e.to_string(),
            })?)
        }
        None => None,
    };
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::new()
    };
    let is_data = |name: &str| {
        let file = SourceFile::new(name.to_owned(), Location::Path(PathBuf::new()), None);
        let hidden = name.split('/').any(|part| part.starts_with('.'));
        !hidden && file.is_ok_and(|file| format.is_none_or(|format| format == file.format))
    };
    let wanted =
        |name: &str| matcher.as_ref().map_or_else(|| is_data(name), |m| m.matches_with(name, options));
    let listed = store.list_stats("").map_err(store_error)?;
    let found = listed.into_iter().filter(|(name, _)| wanted(name));
    Ok(found.map(|(name, stat)| Arc::new(Object::new(&store, &name, stat))).collect())
}

/// The local copy of an object that is read as a whole.
///
/// # Errors
/// As [`find`] and [`Object::local`]; an object that is not there.
pub fn local_copy(address: &str) -> Result<PathBuf, SourceError> {
    let wrap = |source| SourceError::Store { source: Box::new(source) };
    let Some((parent, name)) =
        address.rsplit_once('/').filter(|(parent, _)| parent.matches('/').count() >= 2)
    else {
        return Err(SourceError::NoMatch { source_name: address.to_owned(), pattern: address.to_owned() });
    };
    let store = Store::open(parent).map_err(wrap)?;
    let stat = store.stat(name).map_err(wrap)?;
    let stat = stat.ok_or_else(|| wrap(StoreError::NotFound { place: address.to_owned() }))?;
    Object::new(&store, name, stat).local()
}

/// `POTABLE_CACHE`, or a folder where caches are.
fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("POTABLE_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("potable")))
        .or_else(|| Some(set("HOME")?.join(".cache").join("potable")))
        .map(|folder| folder.join("objects"))
}
