//! `dropped/part-*.parquet`: a row for each contaminated, rejected or failed row.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use potable_manifests::{Digest, Hasher};

use super::AtomicFile;
use super::parquet::shard_error;
use super::read::ReadError;
use crate::run::error::RunError;
use crate::source::guard;

/// Rows in one file.
const PART_ROWS: usize = 1 << 18;

/// One row that is not in the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedRow {
    /// Name of the source.
    pub source: String,
    /// Name of the file.
    pub file: String,
    /// Row number in the file.
    pub row: u64,
    /// Stage that dropped it.
    pub stage: String,
    /// The reason, or `failed`.
    pub reason: String,
    /// What shows it: JSON, or an error.
    pub evidence: String,
}

impl DroppedRow {
    /// Adds the row to the digest of all rows: each text with its length before it (u32
    /// little-endian), then the row number (u64 little-endian).
    pub fn hash_into(&self, content: &mut Hasher) {
        for text in [&self.source, &self.file, &self.stage, &self.reason, &self.evidence] {
            content.update(&(text.len() as u32).to_le_bytes());
            content.update(text.as_bytes());
        }
        content.update(&self.row.to_le_bytes());
    }
}

/// Name, SHA-256 and size of a file.
pub type Part = (String, Digest, u64);

/// Writes the parts. Columns: `row_id`, `source`, `file`, `row`, `stage`, `reason`, `evidence`.
pub struct DroppedWriter {
    folder: PathBuf,
    pending: Vec<DroppedRow>,
    parts: Vec<Part>,
    content: Hasher,
}

impl DroppedWriter {
    /// Starts in an empty folder.
    pub fn new(folder: &Path) -> Self {
        DroppedWriter {
            folder: folder.to_path_buf(),
            pending: Vec::new(),
            parts: Vec::new(),
            content: Hasher::new(),
        }
    }

    /// Appends a row; rows come in the order of their ids.
    ///
    /// # Errors
    /// What the file system says.
    pub fn push(&mut self, row: DroppedRow) -> Result<(), RunError> {
        row.hash_into(&mut self.content);
        self.pending.push(row);
        if self.pending.len() >= PART_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    /// Ends the last part. Gives file name, SHA-256 and size of each, and a digest of all rows.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(mut self) -> Result<(Vec<Part>, Digest), RunError> {
        if !self.pending.is_empty() {
            self.flush()?;
        }
        Ok((self.parts, self.content.finish()))
    }

    fn flush(&mut self) -> Result<(), RunError> {
        let name = format!("part-{:05}.parquet", self.parts.len());
        let path = self.folder.join(&name);
        let file = AtomicFile::create(&path)?;
        let level = ZstdLevel::try_new(3).map_err(|e| shard_error(&path, e))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by("potable".to_owned())
            .build();
        let batch = batch_of(&std::mem::take(&mut self.pending))?;
        let mut writer =
            ArrowWriter::try_new(file, schema(), Some(properties)).map_err(|e| shard_error(&path, e))?;
        writer.write(&batch).map_err(|e| shard_error(&path, e))?;
        let file = writer.into_inner().map_err(|e| shard_error(&path, e))?;
        let (sha256, size) = file.commit()?;
        self.parts.push((name, sha256, size));
        Ok(())
    }
}

/// Gives the rows of a part to `visit`, in order.
///
/// # Errors
/// A file that cannot be read, or that has other columns.
pub fn read(path: &Path, visit: &mut dyn FnMut(DroppedRow)) -> Result<(), ReadError> {
    let file = File::open(path).map_err(|e| ReadError::io(path, e))?;
    let malformed = |reason: String| ReadError::malformed(path, reason);
    let batches =
        guard(|| ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| builder.build()));
    let mut batches = batches.map_err(malformed)?.map_err(|e| malformed(e.to_string()))?;
    while let Some(batch) = guard(|| batches.next()).map_err(malformed)? {
        let batch = batch.map_err(|e| malformed(e.to_string()))?;
        if batch.schema().fields() != schema().fields() {
            return Err(malformed("has other columns than the list of dropped rows".to_owned()));
        }
        for row in 0..batch.num_rows() {
            visit(row_of(&batch, row).ok_or_else(|| malformed(format!("row {row} cannot be read")))?);
        }
    }
    Ok(())
}

fn row_of(batch: &RecordBatch, row: usize) -> Option<DroppedRow> {
    let text = |name: &str| -> Option<String> {
        Some(batch.column_by_name(name)?.as_string_opt::<i32>()?.value(row).to_owned())
    };
    let number = batch.column_by_name("row")?.as_primitive_opt::<UInt64Type>()?.value(row);
    Some(DroppedRow {
        source: text("source")?,
        file: text("file")?,
        row: number,
        stage: text("stage")?,
        reason: text("reason")?,
        evidence: text("evidence")?,
    })
}

fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        text("row_id"),
        text("source"),
        text("file"),
        Field::new("row", DataType::UInt64, false),
        text("stage"),
        text("reason"),
        text("evidence"),
    ]))
}

fn batch_of(rows: &[DroppedRow]) -> Result<RecordBatch, RunError> {
    let text = |f: fn(&DroppedRow) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(f)))
    };
    let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(rows.iter().map(|r| r.row)));
    let columns = vec![
        text(|r| format!("{}/{}:{}", r.source, r.file, r.row)),
        text(|r| r.source.clone()),
        text(|r| r.file.clone()),
        numbers,
        text(|r| r.stage.clone()),
        text(|r| r.reason.clone()),
        text(|r| r.evidence.clone()),
    ];
    RecordBatch::try_new(schema(), columns).map_err(RunError::from)
}
