//! What every reader gives: chunks of rows, with the rows that sampling passed over counted.

use std::path::Path;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::error::{SourceError, quoted};
use super::open::{Format, SourceFile};
use super::{arrow as arrow_ipc, csv, json_array, jsonl, parquet};

/// Most rows in one chunk, whatever their size.
pub const MAX_CHUNK_ROWS: usize = 16_384;

/// Which rows of a file to decode, known before they are: a seeded hash of the row id in
/// `above..=upto`. Sampling rounds cover ranges that do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Seed, source and file, hashed.
    pub key: u64,
    /// Rows at or below this hash were taken by an earlier round; `None` in the first.
    pub above: Option<u64>,
    /// The highest hash taken.
    pub upto: u64,
}

impl Sampler {
    /// Takes every row.
    pub fn all(key: u64) -> Self {
        Sampler { key, above: None, upto: u64::MAX }
    }

    /// The seeded hash of a row: uniform in `u64`, the same on every machine.
    pub fn hash(&self, row: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(&row.to_le_bytes(), self.key)
    }

    /// Whether the row is taken.
    pub fn keeps(&self, row: u64) -> bool {
        if self.takes_all() {
            return true;
        }
        let hash = self.hash(row);
        hash <= self.upto && self.above.is_none_or(|above| hash > above)
    }

    /// Whether no row is passed over.
    pub fn takes_all(&self) -> bool {
        self.above.is_none() && self.upto == u64::MAX
    }
}

/// The part of a file that one unit reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Number of the first row in the file.
    pub first_row: u64,
    /// Rows to read; `None` to the end of the file.
    pub rows: Option<u64>,
    /// Rows of the file before the range; blank lines are none.
    pub ordinal: u64,
    /// Byte range, for a range of an uncompressed JSONL file.
    pub bytes: Option<(u64, u64)>,
    /// Rows after `first_row` that were done before; `rows` does not count them.
    pub skip: u64,
}

impl Range {
    /// Number of the first row to read.
    pub fn start_row(&self) -> u64 {
        self.first_row + self.skip
    }
}

/// What a reader is asked for.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// The part of the file.
    pub range: Range,
    /// Columns that must be there; with no wanted column at all, every column is read.
    pub columns: Vec<String>,
    /// Columns that are read where they are there.
    pub optional: Vec<String>,
    /// Rows to take.
    pub sampler: Sampler,
    /// Bytes of text in a chunk, roughly.
    pub chunk_bytes: usize,
}

impl ReadRequest {
    /// Every column of a whole file.
    pub fn whole(sampler: Sampler, chunk_bytes: usize) -> Self {
        ReadRequest {
            range: Range::default(),
            columns: Vec::new(),
            optional: Vec::new(),
            sampler,
            chunk_bytes,
        }
    }

    /// Whether a column is wanted.
    pub fn wants(&self, name: &String) -> bool {
        let all = self.columns.is_empty() && self.optional.is_empty();
        all || self.columns.contains(name) || self.optional.contains(name)
    }
}

/// Rows not yet decoded to cells, so that the pool does it.
pub enum RowBatch {
    /// Rows of a table, with their numbers.
    Table(RecordBatch, Vec<u64>),
    /// JSON objects: text, and number, start and end of each row.
    Json(Vec<u8>, Vec<(u64, usize, usize)>),
    /// CSV records with their numbers, under one header; or why a record cannot be read.
    Csv(::csv::StringRecord, Vec<(u64, Result<::csv::StringRecord, String>)>),
}

/// A chunk: some rows, and how far it goes.
pub struct Chunk {
    /// The rows taken.
    pub batch: RowBatch,
    /// Rows passed, those sampled out among them.
    pub read: u64,
    /// Rows that sampling passed over.
    pub sampled_out: u64,
    /// Number of the row after the chunk.
    pub next_row: u64,
}

/// A reader of one range of one file, rows in file order.
pub trait RowReader: Send {
    /// The next chunk, or `None` at the end.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, SourceError>;
}

/// Opens a reader for a range of a file.
///
/// # Errors
/// A file that cannot be opened, is of another format, or lacks a wanted column.
pub fn open_reader(
    file: &SourceFile,
    source_name: &str,
    request: &ReadRequest,
) -> Result<Box<dyn RowReader>, SourceError> {
    Ok(match file.format {
        Format::Jsonl => Box::new(jsonl::JsonlReader::open(file, request)?),
        Format::Json => Box::new(json_array::JsonArrayReader::open(file, request)?),
        Format::Csv => Box::new(csv::CsvReader::open(file, source_name, request)?),
        Format::Arrow => Box::new(arrow_ipc::ArrowReader::open(file, source_name, request)?),
        Format::Parquet => Box::new(parquet::ParquetReader::open(file, source_name, request)?),
    })
}

impl RowBatch {
    /// Rows in the batch.
    pub fn len(&self) -> usize {
        match self {
            RowBatch::Table(_, rows) => rows.len(),
            RowBatch::Json(_, rows) => rows.len(),
            RowBatch::Csv(_, records) => records.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of the row at `index` in its file.
    pub fn row_number(&self, index: usize) -> u64 {
        match self {
            RowBatch::Table(_, rows) => rows.get(index).copied(),
            RowBatch::Json(_, rows) => rows.get(index).map(|row| row.0),
            RowBatch::Csv(_, records) => records.get(index).map(|record| record.0),
        }
        .unwrap_or_default()
    }

    /// Decodes a row to the wanted columns.
    ///
    /// # Errors
    /// The reason why the row cannot be read: broken JSON, invalid UTF-8, not an object.
    pub fn decode(&self, index: usize, columns: &[String]) -> Result<Vec<Cell>, String> {
        match self {
            RowBatch::Table(batch, _) => columns
                .iter()
                .map(|name| match batch.column_by_name(name) {
                    Some(column) => Cell::from_arrow(column, index),
                    None => Ok(Cell::Null),
                })
                .collect(),
            RowBatch::Json(text, rows) => jsonl::decode(row_text(text, rows, index), columns),
            RowBatch::Csv(header, records) => {
                let record = match records.get(index) {
                    Some((_, Ok(record))) => record,
                    Some((_, Err(reason))) => return Err(reason.clone()),
                    None => return Ok(Vec::new()),
                };
                let value = |name: &String| {
                    let at = header.iter().position(|column| column == name);
                    at.and_then(|at| record.get(at)).map_or(Cell::Null, |text| Cell::Text(text.to_owned()))
                };
                Ok(columns.iter().map(value).collect())
            }
        }
    }

    /// The columns or keys that a row has, and their values.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_all(&self, index: usize) -> Result<(Vec<String>, Vec<Cell>), String> {
        if let RowBatch::Json(text, rows) = self {
            return jsonl::decode_all(row_text(text, rows, index));
        }
        let columns = self.present(index);
        let cells = self.decode(index, &columns)?;
        Ok((columns, cells))
    }

    /// The columns or keys that a row has.
    pub fn present(&self, index: usize) -> Vec<String> {
        match self {
            RowBatch::Table(batch, _) => batch.schema().fields().iter().map(|f| f.name().clone()).collect(),
            RowBatch::Json(text, rows) => jsonl::keys(row_text(text, rows, index)),
            RowBatch::Csv(header, _) => header.iter().map(str::to_owned).collect(),
        }
    }
}

fn row_text<'a>(text: &'a [u8], rows: &[(u64, usize, usize)], index: usize) -> &'a [u8] {
    rows.get(index).and_then(|&(_, start, end)| text.get(start..end)).unwrap_or_default()
}

/// Columns that are asked for and not there.
///
/// # Errors
/// [`SourceError::MissingColumn`] for the first of them.
pub fn require_columns(
    path: &Path,
    source_name: &str,
    wanted: &[String],
    present: &[String],
) -> Result<(), SourceError> {
    match wanted.iter().find(|name| !present.contains(name)) {
        None => Ok(()),
        Some(column) => Err(SourceError::MissingColumn {
            place: path.display().to_string(),
            source_name: source_name.to_owned(),
            column: column.clone(),
            present: quoted(present),
        }),
    }
}
