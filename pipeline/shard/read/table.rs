//! Rows of record batches, as the formats that are tables have them.

use std::path::PathBuf;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{ArrowPrimitiveType, Int8Type, Int32Type};
use arrow::error::ArrowError;

use super::ReadError;
use crate::pack::Pack;
use crate::source::guard;

/// Makes a row to a pack.
pub(super) type MakePack = Box<dyn FnMut(&Row) -> Result<Pack, String> + Send>;

/// Record batches from somewhere.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// Rows of record batches, each made to a pack.
pub(super) struct Cursor {
    path: PathBuf,
    batches: Batches,
    batch: Option<RecordBatch>,
    row: usize,
    number: u64,
    pack: MakePack,
    ended: bool,
}

impl Cursor {
    pub(super) fn new(path: PathBuf, batches: Batches, pack: MakePack) -> Self {
        Cursor { path, batches, batch: None, row: 0, number: 0, pack, ended: false }
    }

    fn step(&mut self) -> Result<Option<Pack>, ReadError> {
        while self.batch.as_ref().is_none_or(|batch| self.row >= batch.num_rows()) {
            let next = guard(|| self.batches.next());
            let next = next.map_err(|reason| ReadError::malformed(&self.path, reason))?;
            let Some(next) = next else { return Ok(None) };
            self.batch = Some(next.map_err(|e| ReadError::malformed(&self.path, e.to_string()))?);
            self.row = 0;
        }
        let Some(batch) = &self.batch else { return Ok(None) };
        let pack = (self.pack)(&Row { batch, row: self.row })
            .map_err(|reason| ReadError::malformed(&self.path, format!("row {}: {reason}", self.number)))?;
        self.row += 1;
        self.number += 1;
        Ok(Some(pack))
    }
}

impl Iterator for Cursor {
    type Item = Result<Pack, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

/// One row of a record batch, by column name.
pub(super) struct Row<'a> {
    batch: &'a RecordBatch,
    row: usize,
}

impl Row<'_> {
    pub(super) fn numbers(&self, column: &str) -> Result<Vec<i32>, String> {
        self.primitives::<Int32Type>(column)
    }

    /// A mask of 0 and 1.
    pub(super) fn mask(&self, column: &str) -> Result<Vec<i8>, String> {
        self.primitives::<Int8Type>(column)
    }

    fn primitives<T: ArrowPrimitiveType>(&self, column: &str) -> Result<Vec<T::Native>, String> {
        let list = self.list(column)?;
        let wrong = || format!("column `{column}` has another type");
        let values = list.as_primitive_opt::<T>().ok_or_else(wrong)?;
        if values.null_count() > 0 {
            return Err(format!("column `{column}` has a null in its list"));
        }
        Ok(values.values().to_vec())
    }

    pub(super) fn texts(&self, column: &str) -> Result<Vec<String>, String> {
        let list = self.list(column)?;
        let values =
            list.as_string_opt::<i32>().ok_or_else(|| format!("column `{column}` has no strings"))?;
        Ok(values.iter().map(|value| value.unwrap_or_default().to_owned()).collect())
    }

    fn list(&self, column: &str) -> Result<ArrayRef, String> {
        let array =
            self.batch.column_by_name(column).ok_or_else(|| format!("there is no column `{column}`"))?;
        let list = array.as_list_opt::<i32>().ok_or_else(|| format!("column `{column}` has no lists"))?;
        if list.is_null(self.row) {
            return Err(format!("column `{column}` is null"));
        }
        Ok(list.value(self.row))
    }
}
