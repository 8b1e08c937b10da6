//! The format `arrow` back to packs.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use arrow::ipc::reader::StreamReader;

use super::table::{Cursor, MakePack};
use super::{Packs, ReadError};
use crate::source::guard;

/// Reads the rows of a stream, each made to a pack by `pack`.
pub(super) fn packs(path: &Path, pack: MakePack) -> Result<Packs, ReadError> {
    let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let reader = guard(|| StreamReader::try_new(BufReader::new(file), None));
    let reader = reader.map_err(|reason| ReadError::malformed(path, reason))?;
    let reader = reader.map_err(|e| ReadError::malformed(path, e.to_string()))?;
    Ok(Box::new(Cursor::new(path.to_path_buf(), Box::new(reader), pack)))
}
