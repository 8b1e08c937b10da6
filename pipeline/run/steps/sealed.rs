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

/// Writes down the checksums of a selection that was made in `folder`.
///
/// # Errors
/// What the file system or the store says.
pub fn write_digests(store: &Store, folder: &Path) -> Result<(), RunError> {
    let mut digests = BTreeMap::new();
    for name in CHECKED {
        let path = folder.join(name);
        if path.exists() {
            digests.insert(name, digest_of(&path)?);
        }
    }
    Ok(store.put(DIGESTS, &to_bytes(&digests)?)?)
}

/// Checks a file of a selection, of which `path` is a copy or the file itself. If it is damaged, the
/// selection is none any more.
///
/// # Errors
/// A damaged file; what the file system or the store says.
pub fn check_selection(store: &Store, name: &str, path: &Path, again: &str) -> Result<(), RunError> {
    let digests = match store.get(DIGESTS) {
        Err(error) if error.is_not_found() => None,
        bytes => from_bytes::<BTreeMap<String, String>>(&bytes?).ok(),
    };
    let written = digests.as_ref().and_then(|digests| digests.get(name));
    if written.is_some() && path.exists() && written == Some(&digest_of(path)?) {
        return Ok(());
    }
    Err(spoilt(store, &store.place(&format!("select/{name}")), again)?.into())
}

/// A selection of which something is damaged is removed, so that it is made again.
///
/// # Errors
/// What the store says.
pub fn spoilt(store: &Store, place: &str, again: &str) -> Result<StepError, RunError> {
    store.delete(SUMMARY)?;
    Ok(StepError::Damaged {
        place: place.to_owned(),
        reason: "it is not what was written".to_owned(),
        names: vec![SUMMARY.to_owned()],
        again: again.to_owned(),
    })
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
