//! Named bytes that several machines share: a folder of a file system, local or on the network, or a
//! prefix of a bucket.
//!
//! What is written appears whole or not at all, whoever writes the same name at the same time; what
//! is read is whole or an error. No clock is asked and nothing is locked.

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

pub mod error;
mod folder;

pub use error::StoreError;

use folder::Folder;

/// A store, or what is below a prefix of it. Names are relative to it, with `/` between their parts.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Backend,
}

#[derive(Clone, Debug)]
enum Backend {
    Folder(Folder),
}

impl Store {
    /// A store by its address: a folder's path, `file:///PATH`. Nothing is read yet, and a folder
    /// need not be there: what is written makes it.
    ///
    /// # Errors
    /// An address that names no store.
    pub fn open(uri: &str) -> Result<Store, StoreError> {
        let bad = |reason: &str| StoreError::BadUri { uri: uri.to_owned(), reason: reason.to_owned() };
        let Some((scheme, rest)) = uri.split_once("://") else {
            if uri.is_empty() {
                return Err(bad("it is empty"));
            }
            return Ok(Store::at(Path::new(uri)));
        };
        match scheme {
            "file" => {
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                if !path.starts_with('/') {
                    return Err(bad("`file://` takes an absolute path: `file:///PATH`"));
                }
                let path = percent_decoded(path).ok_or_else(|| bad("its percent signs make no text"))?;
                Ok(Store::at(Path::new(&path)))
            }
            _ => Err(bad(&format!("there is no scheme `{scheme}`"))),
        }
    }

    /// The store that is a folder of a file system.
    pub fn at(folder: &Path) -> Store {
        Store { backend: Backend::Folder(Folder::new(folder.to_path_buf())) }
    }

    /// The part of the store whose names begin with `prefix/`.
    pub fn below(&self, prefix: &str) -> Store {
        let prefix = prefix.trim_matches('/');
        if prefix.is_empty() {
            return self.clone();
        }
        match &self.backend {
            Backend::Folder(folder) => Store { backend: Backend::Folder(folder.below(prefix)) },
        }
    }

    /// The address, for messages and for opening it again.
    pub fn uri(&self) -> String {
        match &self.backend {
            Backend::Folder(folder) => folder.path().display().to_string(),
        }
    }

    /// The address of an object, for messages.
    pub fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.uri().trim_end_matches('/'))
    }

    /// The folder, if the store is one of a file system.
    pub fn folder(&self) -> Option<&Path> {
        match &self.backend {
            Backend::Folder(folder) => Some(folder.path()),
        }
    }

    /// Writes an object, whole or not at all; one of this name is replaced.
    ///
    /// # Errors
    /// What the store says.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.check(name)?;
        match &self.backend {
            Backend::Folder(folder) => folder.put(name, bytes),
        }
    }

    /// Writes an object unless there is one of this name; whether it was written. Of several who try
    /// at once exactly one is told so.
    ///
    /// # Errors
    /// What the store says.
    pub fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        self.check(name)?;
        match &self.backend {
            Backend::Folder(folder) => folder.put_new(name, bytes),
        }
    }

    /// Copies a file into the store, as [`Store::put`]; memory does not grow with its size.
    ///
    /// # Errors
    /// What the store says; a file that cannot be read.
    pub fn put_file(&self, name: &str, from: &Path) -> Result<(), StoreError> {
        self.check(name)?;
        match &self.backend {
            Backend::Folder(folder) => folder.put_file(name, from),
        }
    }

    /// The whole object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; what the store says.
    pub fn get(&self, name: &str) -> Result<Bytes, StoreError> {
        self.check(name)?;
        match &self.backend {
            Backend::Folder(folder) => folder.get(name),
        }
    }

    /// Bytes of an object: exactly those of the range.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::OutOfRange`]; what the store says.
    pub fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.check(name)?;
        if range.start >= range.end {
            return Ok(Bytes::new());
        }
        match &self.backend {
            Backend::Folder(folder) => folder.get_range(name, range),
        }
    }

    /// Copies an object to a file, which appears when it is whole; its folder is made. Memory does not
    /// grow with its size.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; what the store or the file system says.
    pub fn fetch(&self, name: &str, to: &Path) -> Result<(), StoreError> {
        self.check(name)?;
        match &self.backend {
            Backend::Folder(folder) => folder.fetch(name, to),
        }
    }

    /// Bytes of an object; none if it is not there.
    ///
    /// # Errors
    /// What the store says.
    pub fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        self.check(name)?;
        match &self.backend {
            Backend::Folder(folder) => folder.size(name),
        }
    }

    /// All objects whose names begin with `prefix/` (all of the store for an empty one), with their
    /// sizes, sorted by name. Names are relative to the store, not to the prefix.
    ///
    /// # Errors
    /// What the store says. A folder that is not there holds nothing.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StoreError> {
        let prefix = prefix.trim_matches('/');
        if !prefix.is_empty() {
            self.check(prefix)?;
        }
        let mut found = match &self.backend {
            Backend::Folder(folder) => folder.list(prefix)?,
        };
        found.sort();
        Ok(found)
    }

    /// Removes an object; one that is not there is fine.
    ///
    /// # Errors
    /// What the store says.
    pub fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.check(name)?;
        match &self.backend {
            Backend::Folder(folder) => folder.delete(name),
        }
    }

    /// Names have the same meaning in every kind of store.
    fn check(&self, name: &str) -> Result<(), StoreError> {
        let bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains(['\\', '\0']);
        if name.split('/').any(bad) {
            return Err(StoreError::BadName { uri: self.uri(), name: name.to_owned() });
        }
        Ok(())
    }
}

/// The text of a percent-encoded path.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            out.push((digit()? * 16 + digit()?) as u8);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// A file's path beside which nothing is known: `.` for a bare name.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
