//! Objects that say themselves whether they are what was written: small ones in JSON with their checksum,
//! and the checksums of the files of a selection that have none.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::error::StepError;
use super::select::SUMMARY;
use crate::run::error::RunError;
use crate::run::select::{KEYS, NEAR, OVERLONG};
use crate::store::Store;

/// Object with the checksums of the files of a selection.
const DIGESTS: &str = "select/digests.json";
/// Files of a selection that are checked as a whole; those of partitions have checksums of their own.
const CHECKED: [&str; 4] = ["summary.json", KEYS, NEAR, OVERLONG];

/// A value as JSON, with the xxh3-128 of it.
///
/// # Errors
/// None in practice; the serialiser's words.
pub fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, RunError> {
    let body = serde_json::to_string(value).map_err(|e| RunError::Manifest { reason: e.to_string() })?;
    let sum = xxh3_128(body.as_bytes());
    Ok(format!("{{\"xxh3\":\"{sum:032x}\",\"value\":{body}}}\n").into_bytes())
}

/// The value that [`to_bytes`] wrote.
///
/// # Errors
/// What is wrong with the bytes.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let parts = || {
        let rest = bytes.strip_prefix(b"{\"xxh3\":\"")?;
        let (sum, rest) = rest.split_at_checked(32)?;
        Some((sum, rest.strip_prefix(b"\",\"value\":")?.strip_suffix(b"}\n")?))
    };
    let (sum, body) = parts().ok_or("its form is wrong")?;
    if format!("{:032x}", xxh3_128(body)).as_bytes() != sum {
        return Err("its checksum is wrong".to_owned());
    }
    serde_json::from_slice(body).map_err(|e| e.to_string())
}

/// Name under which the rounds that a selection is made of are written down.
const ROUNDS: &str = "rounds";

/// Writes down the checksums of a selection that was made in `folder` of the rounds of map.
///
/// # Errors
/// What the file system or the store says.
pub fn write_digests(store: &Store, folder: &Path, rounds: &[Vec<u64>]) -> Result<(), RunError> {
    let mut digests = BTreeMap::from([(ROUNDS, rounds_digest(rounds)?)]);
    for name in CHECKED {
        let path = folder.join(name);
        if path.exists() {
            digests.insert(name, digest_of(&path)?);
        }
    }
    Ok(store.put(DIGESTS, &to_bytes(&digests)?)?)
}

/// The checksums of a selection, read once.
pub struct Digests<'a> {
    store: &'a Store,
    written: BTreeMap<String, String>,
    /// The command that selects again.
    again: String,
}

impl<'a> Digests<'a> {
    /// Reads the checksums of a selection; there are none if they are lost or damaged, and then no file is
    /// what was written. `again` is the command that selects again.
    ///
    /// # Errors
    /// What the store says.
    pub fn read(store: &'a Store, again: String) -> Result<Self, RunError> {
        let written = match store.get(DIGESTS) {
            Err(error) if error.is_not_found() => BTreeMap::new(),
            bytes => from_bytes(&bytes?).unwrap_or_default(),
        };
        Ok(Digests { store, written, again })
    }

    /// Checks a file of the selection, of which `path` is a copy or the file itself. If it is damaged, the
    /// selection is none any more.
    ///
    /// # Errors
    /// A damaged file; what the file system or the store says.
    pub fn check(&self, name: &str, path: &Path) -> Result<(), RunError> {
        let written = self.written.get(name);
        let read_error = |source| RunError::Read { path: path.to_path_buf(), source };
        let there = path.try_exists().map_err(read_error)?;
        if written.is_some() && there && written == Some(&digest_of(path)?) {
            return Ok(());
        }
        Err(self.spoilt(&format!("select/{name}")))
    }

    /// Checks that the selection is made of all these rounds of map. If not, one of them was lost since,
    /// and the selection is none any more.
    ///
    /// # Errors
    /// A round that was lost; what the store says.
    pub fn check_rounds(&self, rounds: &[Vec<u64>]) -> Result<(), RunError> {
        if self.written.get(ROUNDS) == Some(&rounds_digest(rounds)?) {
            return Ok(());
        }
        Err(self.spoilt(ROUNDS))
    }

    /// A selection of which the object with this name is damaged is removed, so that it is made again; the
    /// error that says so.
    pub fn spoilt(&self, name: &str) -> RunError {
        if let Err(error) = self.store.delete(SUMMARY) {
            return error.into();
        }
        StepError::Damaged {
            place: self.store.place(name),
            reason: "it is not what was written".to_owned(),
            names: vec![SUMMARY.to_owned()],
            again: self.again.clone(),
        }
        .into()
    }
}

fn rounds_digest(rounds: &[Vec<u64>]) -> Result<String, RunError> {
    Ok(format!("{:032x}", xxh3_128(&to_bytes(&rounds)?)))
}

fn digest_of(path: &Path) -> Result<String, RunError> {
    let read_error = |source| RunError::Read { path: path.to_path_buf(), source };
    let mut file = File::open(path).map_err(read_error)?;
    let (mut hash, mut piece) = (Xxh3::new(), vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut piece).map_err(read_error)?;
        match piece.get(..read) {
            Some(piece) if !piece.is_empty() => hash.update(piece),
            _ => return Ok(format!("{:032x}", hash.digest128())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_a_byte_is_seen() {
        let value = vec![(1u64, "a".to_owned()), (u64::MAX, "b".to_owned())];
        let bytes = to_bytes(&value).unwrap();
        assert_eq!(from_bytes::<Vec<(u64, String)>>(&bytes), Ok(value));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x20;
            assert!(from_bytes::<Vec<(u64, String)>>(&other).is_err(), "byte {at}");
            assert!(from_bytes::<Vec<(u64, String)>>(&bytes[..at]).is_err(), "{at} bytes");
        }
    }
}
