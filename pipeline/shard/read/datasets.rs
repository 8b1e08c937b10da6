//! The format `arrow` back to packs.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use arrow::ipc::reader::StreamReader;

use super::table::{Cursor, MakePack, Row};
use super::{Names, Packs, Parts, ReadError};
use crate::pack::Pack;
use crate::source::guard;

pub(super) fn packs(path: &Path, ids: &Path) -> Result<Packs, ReadError> {
    let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let reader = guard(|| StreamReader::try_new(BufReader::new(file), None));
    let reader = reader.map_err(|reason| ReadError::malformed(path, reason))?;
    let reader = reader.map_err(|e| ReadError::malformed(path, e.to_string()))?;
    let mut names = Names::read(ids)?;
    let pack: MakePack = Box::new(move |row: &Row| {
        let (ids, labels) = (row.numbers("input_ids")?, row.numbers("labels")?);
        let sample = Parts { name: names.one()?, ids: &ids, labels: &labels }.sample()?;
        Ok(Pack { samples: vec![sample] })
    });
    let path: PathBuf = path.to_path_buf();
    Ok(Box::new(Cursor::new(path, Box::new(reader), pack)))
}
