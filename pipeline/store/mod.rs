//! Named bytes that several machines share: a folder of a file system, local or on the network, or a
//! prefix of a bucket.
//!
//! What is written appears whole or not at all, whoever writes the same name at the same time; what
//! is read is whole or an error. No clock is asked and nothing is locked.

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

mod address;
#[cfg(feature = "object-store")]
mod attempts;
#[cfg(feature = "object-store")]
mod bucket;
#[cfg(feature = "object-store")]
mod config;
pub mod error;
#[cfg(feature = "object-store")]
mod exchange;
mod folder;
pub(crate) mod hold;

#[cfg(feature = "object-store")]
pub use config::StoreConfig;
pub use error::StoreError;

use address::Address;
#[cfg(feature = "object-store")]
use bucket::{Bucket, Scheme};
use folder::Folder;

/// A store, or what is below a prefix of it. Names are relative to it, with `/` between their parts.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Backend,
}

#[derive(Clone, Debug)]
enum Backend {
    Folder(Folder),
    #[cfg(feature = "object-store")]
    Bucket(Bucket),
}

/// What a listing says of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// What changes when the bytes change (ETag); a folder has none.
    pub tag: Option<String>,
}

impl Store {
    /// A store by its address: a folder's path, `file:///PATH`, `s3://BUCKET/PREFIX`,
    /// `gs://BUCKET/PREFIX`. Nothing is read yet, and a folder need not be there: what is written
    /// makes it. Credentials and endpoints come from the environment.
    ///
    /// # Errors
    /// An address that names no store; a variable that makes no sense.
    pub fn open(uri: &str) -> Result<Store, StoreError> {
        match address::parse(uri)? {
            Address::Folder(path) => Ok(Store::at(&path)),
            #[cfg(feature = "object-store")]
            address => Store::bucket(&address, StoreConfig::from_env()?),
            #[cfg(not(feature = "object-store"))]
            Address::S3(..) | Address::Gs(..) => Err(StoreError::NotCompiled { uri: uri.to_owned() }),
        }
    }

    /// As [`Store::open`], with settings of its own.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[cfg(feature = "object-store")]
    pub fn open_with(uri: &str, config: StoreConfig) -> Result<Store, StoreError> {
        Store::bucket(&address::parse(uri)?, config)
    }

    #[cfg(feature = "object-store")]
    fn bucket(address: &Address, config: StoreConfig) -> Result<Store, StoreError> {
        let (scheme, bucket, prefix) = match address {
            Address::Folder(path) => return Ok(Store::at(path)),
            Address::S3(bucket, prefix) => (Scheme::S3, bucket, prefix),
            Address::Gs(bucket, prefix) => (Scheme::Gs, bucket, prefix),
        };
        Ok(Store { backend: Backend::Bucket(Bucket::open(scheme, (bucket, prefix), config)?) })
    }

    /// Whether a text is the address of an object store, not a path.
    pub fn is_address(text: &str) -> bool {
        text.starts_with("s3://") || text.starts_with("gs://")
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
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => Store { backend: Backend::Bucket(bucket.below(prefix)) },
        }
    }

    /// The address, for messages and for opening it again.
    pub fn uri(&self) -> String {
        match &self.backend {
            Backend::Folder(folder) => folder.path().display().to_string(),
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.uri(),
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
            #[cfg(feature = "object-store")]
            Backend::Bucket(_) => None,
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
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.put(name, Bytes::copy_from_slice(bytes)),
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
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.put_new(name, bytes),
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
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.put_file(name, from),
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
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.get(name),
        }
    }

    /// Bytes of an object: exactly those of the range.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::OutOfRange`]; what the store says.
    pub fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.get_range_of(name, range, None)
    }

    /// As [`Store::get_range`], of the object that had this tag ([`Stat::tag`]) when it was listed.
    ///
    /// # Errors
    /// As [`Store::get_range`]; [`StoreError::Changed`] if the tag is another one by now.
    pub fn get_range_of(
        &self,
        name: &str,
        range: Range<u64>,
        tag: Option<&str>,
    ) -> Result<Bytes, StoreError> {
        self.check(name)?;
        if range.start >= range.end {
            return Ok(Bytes::new());
        }
        match (&self.backend, tag) {
            (Backend::Folder(folder), _) => folder.get_range(name, range),
            #[cfg(feature = "object-store")]
            (Backend::Bucket(bucket), tag) => bucket.get_range(name, range, tag),
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
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.fetch(name, to),
        }
    }

    /// Bytes of an object; none if it is not there.
    ///
    /// # Errors
    /// What the store says.
    pub fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        Ok(self.stat(name)?.map(|stat| stat.size))
    }

    /// Size and tag of an object; none if it is not there.
    ///
    /// # Errors
    /// What the store says.
    pub fn stat(&self, name: &str) -> Result<Option<Stat>, StoreError> {
        self.check(name)?;
        match &self.backend {
            Backend::Folder(folder) => Ok(folder.size(name)?.map(|size| Stat { size, tag: None })),
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.stat(name),
        }
    }

    /// All objects whose names begin with `prefix/` (all of the store for an empty one), with their
    /// sizes, sorted by name. Names are relative to the store, not to the prefix.
    ///
    /// # Errors
    /// What the store says. A folder that is not there holds nothing.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StoreError> {
        Ok(self.list_stats(prefix)?.into_iter().map(|(name, stat)| (name, stat.size)).collect())
    }

    /// As [`Store::list`], with the tags of the objects.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub fn list_stats(&self, prefix: &str) -> Result<Vec<(String, Stat)>, StoreError> {
        let prefix = prefix.trim_matches('/');
        if !prefix.is_empty() {
            self.check(prefix)?;
        }
        let mut found = match &self.backend {
            Backend::Folder(folder) => {
                let sized = |(name, size)| (name, Stat { size, tag: None });
                folder.list(prefix)?.into_iter().map(sized).collect::<Vec<_>>()
            }
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.list(prefix)?,
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
            #[cfg(feature = "object-store")]
            Backend::Bucket(bucket) => bucket.delete(name),
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

/// A file's path beside which nothing is known: `.` for a bare name.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(all(test, not(feature = "object-store")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_object_stores_says_so() {
        let error = Store::open("s3://bucket/x").unwrap_err();
        assert_eq!(error.to_string(), "s3://bucket/x: this build of potable reads no object stores");
        assert!(error.hint().unwrap().contains("--features object-store"));
    }
}
