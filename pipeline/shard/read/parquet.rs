//! The formats that are Parquet files back to packs.

use std::fs::File;
use std::path::Path;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::table::{Cursor, MakePack, Row};
use super::{Packs, Parts, ReadError};
use crate::pack::Pack;
use crate::recipe::file::ShardFormat;
use crate::shard::table::IGNORED;
use crate::source::guard;

/// Rows of a shard that are decoded at a time.
const BATCH_ROWS: usize = 64;

/// Reads the rows of a Parquet file, each made to a pack by `pack`.
pub(super) fn packs(path: &Path, pack: MakePack) -> Result<Packs, ReadError> {
    let batches = guard(|| builder(path).map(|builder| builder.with_batch_size(BATCH_ROWS).build()));
    let batches = batches.map_err(|reason| ReadError::malformed(path, reason))??;
    let batches = batches.map_err(|e| ReadError::malformed(path, e.to_string()))?;
    Ok(Box::new(Cursor::new(path.to_path_buf(), Box::new(batches), pack)))
}

/// The names of the columns.
pub(super) fn columns(path: &Path) -> Result<Vec<String>, ReadError> {
    let builder = builder(path)?;
    Ok(builder.schema().fields().iter().map(|field| field.name().clone()).collect())
}

/// The format that has these columns.
pub(super) fn format_of(columns: &[String]) -> Option<ShardFormat> {
    let has = |names: &[&str]| names.iter().all(|name| columns.iter().any(|column| column == name));
    if has(&["input_ids", "labels", "seq_lengths"]) {
        Some(ShardFormat::Parquet)
    } else if has(&["input_ids", "labels", "attention_mask"]) {
        Some(ShardFormat::ParquetUnpacked)
    } else if has(&["input_ids", "seq_start_id", "loss_mask"]) {
        Some(ShardFormat::MegatronBridge)
    } else {
        None
    }
}

/// A row of `parquet`.
pub(super) fn pack_row(row: &Row) -> Result<Pack, String> {
    let (ids, labels) = (row.numbers("input_ids")?, row.numbers("labels")?);
    Parts::pack(row.texts("sample_ids")?, &ids, &labels, &row.numbers("seq_lengths")?)
}

/// A row of `megatron-bridge`.
pub(super) fn bridge_row(row: &Row) -> Result<Pack, String> {
    let (ids, starts) = (row.numbers("input_ids")?, row.numbers("seq_start_id")?);
    let mask = row.mask("loss_mask")?;
    if mask.len() != ids.len() || starts.first().is_some_and(|first| *first != 0) {
        return Err(format!("{} ids, a mask of {}, starts {starts:?}", ids.len(), mask.len()));
    }
    let ends = starts.iter().skip(1).copied().chain([ids.len() as i32]);
    let lengths: Vec<i32> = starts.iter().zip(ends).map(|(start, end)| end - start).collect();
    // Rolled back: a 1 stands before the token that it is about.
    let asked = [0].into_iter().chain(mask);
    let labels: Vec<i32> =
        ids.iter().zip(asked).map(|(&id, asked)| if asked == 1 { id } else { IGNORED }).collect();
    Parts::pack(row.texts("sample_ids")?, &ids, &labels, &lengths)
}

fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, ReadError> {
    let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| ReadError::malformed(path, e.to_string()))
}
