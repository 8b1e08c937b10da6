//! Parquet shards back to packs.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{ArrowPrimitiveType, Int32Type};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::{Packs, Parts, ReadError};
use crate::pack::{Pack, PackedSample};
use crate::recipe::file::ShardFormat;
use crate::source::guard;

/// Rows of a shard that are decoded at a time.
const BATCH_ROWS: usize = 64;

/// Reads the format `parquet`.
pub(super) fn packs(path: &Path) -> Result<Packs, ReadError> {
    Rows::open(path, Box::new(pack_of))
}

/// The names of the columns.
pub(super) fn columns(path: &Path) -> Result<Vec<String>, ReadError> {
    let builder = builder(path)?;
    Ok(builder.schema().fields().iter().map(|field| field.name().clone()).collect())
}

/// The format that has these columns.
pub(super) fn format_of(columns: &[String]) -> Option<ShardFormat> {
    let has = |name: &str| columns.iter().any(|column| column == name);
    (has("input_ids") && has("labels") && has("seq_lengths")).then_some(ShardFormat::Parquet)
}

fn pack_of(row: &Row) -> Result<Pack, String> {
    let (ids, labels) = (row.numbers("input_ids")?, row.numbers("labels")?);
    let (lengths, names) = (row.numbers("seq_lengths")?, row.texts("sample_ids")?);
    if lengths.len() != names.len() {
        return Err(format!("{} lengths and {} sample ids", lengths.len(), names.len()));
    }
    let mut samples: Vec<PackedSample> = Vec::with_capacity(names.len());
    let mut at = 0;
    for (name, &length) in names.into_iter().zip(&lengths) {
        let range = at..at + usize::try_from(length).map_err(|_| format!("a length of {length}"))?;
        let short = || "the lengths add up to more than there are ids".to_owned();
        at = range.end;
        let ids = ids.get(range.clone()).ok_or_else(short)?;
        let labels = labels.get(range).ok_or_else(short)?;
        samples.push(Parts { name, ids, labels }.sample()?);
    }
    if at != ids.len() || at != labels.len() {
        return Err(format!("the lengths add up to {at}, of {} ids and {} labels", ids.len(), labels.len()));
    }
    Ok(Pack { samples })
}

/// Makes a row to a pack.
pub(super) type MakePack = Box<dyn FnMut(&Row) -> Result<Pack, String> + Send>;

/// Rows of a Parquet file, each made to a pack.
pub(super) struct Rows {
    path: PathBuf,
    batches: ParquetRecordBatchReader,
    batch: Option<RecordBatch>,
    row: usize,
    number: u64,
    pack: MakePack,
    ended: bool,
}

impl Rows {
    pub(super) fn open(path: &Path, pack: MakePack) -> Result<Packs, ReadError> {
        let batches = guard(|| builder(path).map(|builder| builder.with_batch_size(BATCH_ROWS).build()));
        let batches = batches.map_err(|reason| ReadError::malformed(path, reason))??;
        let batches = batches.map_err(|e| ReadError::malformed(path, e.to_string()))?;
        Ok(Box::new(Rows {
            path: path.to_path_buf(),
            batches,
            batch: None,
            row: 0,
            number: 0,
            pack,
            ended: false,
        }))
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

impl Iterator for Rows {
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

    pub(super) fn primitives<T: ArrowPrimitiveType>(&self, column: &str) -> Result<Vec<T::Native>, String> {
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

fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, ReadError> {
    let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| ReadError::malformed(path, e.to_string()))
}
