//! Staged files: what map leaves for select and reduce. One Arrow IPC file a chunk, one record batch
//! a partition, the chunk's ledger in the footer. Written under a temporary name, synced, renamed:
//! a chunk is done when its file is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, ListArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::FileWriter;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use crate::shard::AtomicFile;

/// Version of the staged layout; part of the map digest.
pub const STAGE_FORMAT: u32 = 3;

/// One sample on its way from map to reduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedSample {
    /// Row number in the file.
    pub row: u64,
    /// Assistant turn (see `SampleId`).
    pub turn: u32,
    /// Seeded sampling hash of the row.
    pub hash: u64,
    /// Deduplication key.
    pub key: u128,
    /// Token ids.
    pub ids: Vec<u32>,
    /// Trained runs: start and length.
    pub trained: Vec<(u32, u32)>,
    /// Band hashes of the row, for near duplicates; with its first sample only.
    pub near: Vec<u64>,
}

/// A row that ended in map, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedDrop {
    /// Row number in the file.
    pub row: u64,
    /// Stage.
    pub stage: String,
    /// Reason, or `failed`.
    pub reason: String,
    /// What shows it: JSON, or the error.
    pub evidence: String,
}

/// The ledger of one chunk, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkLedger {
    /// Index of the source.
    pub source: u32,
    /// Index of the file.
    pub file: u32,
    /// Lower end of the band of sampling hashes; `None` in the first band.
    pub above: Option<u64>,
    /// Rows passed, sampled out ones among them. Every band passes all rows.
    pub passed: u64,
    /// Rows decoded.
    pub taken: u64,
    /// Rows that gave samples.
    pub kept: u64,
    /// Rows that could not be read.
    pub failed: u64,
    /// Rows dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Rows that took their text from another corpus, by join.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joined: BTreeMap<String, u64>,
    /// Samples made.
    pub samples: u64,
    /// Wanted keys that some row of a JSON file has.
    pub seen: BTreeSet<String>,
    /// How often policies acted.
    pub acted: BTreeMap<String, u64>,
    /// Rows with a match, by benchmark: dropped, and reported only.
    pub matches: BTreeMap<String, (u64, u64)>,
    /// Bytes of text read.
    pub bytes: u64,
    /// Tokens of the samples.
    pub tokens: u64,
    /// Number of the row after the chunk.
    pub next_row: u64,
    /// Partition of each record batch.
    pub partitions: Vec<u32>,
}

impl ChunkLedger {
    /// Indices of source and file.
    pub fn place(&self) -> (u32, u32) {
        (self.source, self.file)
    }
}

/// A chunk ready to be written.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The ledger; `partitions` is filled in on writing.
    pub ledger: ChunkLedger,
    /// Samples by partition.
    pub samples: BTreeMap<u32, Vec<StagedSample>>,
    /// Whether samples have band hashes, and the file a column for them.
    pub near: bool,
    /// Rows that ended here, in row order.
    pub drops: Vec<StagedDrop>,
}

/// What select reads of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleMeta {
    /// Row number in the file.
    pub row: u64,
    /// Assistant turn.
    pub turn: u32,
    /// Sampling hash.
    pub hash: u64,
    /// Deduplication key.
    pub key: u128,
    /// Tokens.
    pub tokens: u32,
    /// Index of the first trained token; `u32::MAX` if there is none.
    pub first_trained: u32,
}

/// What is done with the samples of a partition.
pub type VisitSamples<'v> = dyn FnMut(u32, &[SampleMeta]) -> Result<(), RunError> + 'v;

/// What is done with the band hashes of a row.
pub type VisitBands<'v> = dyn FnMut(u64, &[u64]) -> Result<(), RunError> + 'v;

impl Chunk {
    /// Writes the chunk: rows that ended first, then the samples, whose file is the commit.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(mut self, path: &Path) -> Result<(), RunError> {
        if !self.drops.is_empty() {
            write_ipc(&drops_path(path), &drops_schema(), &[drops_batch(&self.drops)?], None)?;
        }
        self.ledger.partitions = self.samples.keys().copied().collect();
        let batches: Vec<RecordBatch> =
            self.samples.values().map(|samples| batch_of(samples, self.near)).collect::<Result<_, _>>()?;
        let ledger = serde_json::to_string(&self.ledger)
            .map_err(|e| RunError::Staged { path: path.to_path_buf(), reason: e.to_string() })?;
        write_ipc(path, &schema(self.near), &batches, Some(ledger))
    }
}

/// A staged chunk on disk: its ledger in memory, its samples read when they are asked for.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The file.
    pub path: PathBuf,
    /// The ledger.
    pub ledger: ChunkLedger,
}

impl Staged {
    /// Reads the ledger of a staged file.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let buffer = map_file(path)?;
        let parsed = footer_metadata(&buffer)
            .and_then(|text| serde_json::from_str(&text).map_err(|e| ArrowError::IpcError(e.to_string())));
        let ledger = parsed.map_err(|e| damaged(path, &e))?;
        Ok(Staged { path: path.to_path_buf(), ledger })
    }

    /// Gives the metadata of all samples, partition by partition, to `visit`.
    ///
    /// # Errors
    /// A file that is damaged, and what `visit` says.
    pub fn all_metadata(&self, visit: &mut VisitSamples) -> Result<(), RunError> {
        if self.ledger.partitions.is_empty() {
            return Ok(());
        }
        let buffer = map_file(&self.path)?;
        for (index, &partition) in self.ledger.partitions.iter().enumerate() {
            let batch = read_batch(&buffer, index, Some(&[0, 1, 2, 3, 4, 5, 6]));
            visit(partition, &metas_of(&batch.map_err(|e| damaged(&self.path, &e))?))?;
        }
        Ok(())
    }

    /// Ids and trained runs of the samples of a partition.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn tokens(&self, partition: u32) -> Result<Option<StagedTokens>, RunError> {
        let batch = self.batch(partition, Some(&[7, 8]))?;
        Ok(batch.map(|batch| StagedTokens::new(&batch)))
    }

    /// All columns of the samples of a partition, if it has any.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn samples(&self, partition: u32) -> Result<Option<RecordBatch>, RunError> {
        self.batch(partition, None)
    }

    /// Gives the rows that have band hashes to `visit`; of a row, its first sample has them.
    ///
    /// # Errors
    /// A file that is damaged, or was staged without band hashes; what `visit` says.
    pub fn all_bands(&self, visit: &mut VisitBands) -> Result<(), RunError> {
        if self.ledger.partitions.is_empty() {
            return Ok(());
        }
        let buffer = map_file(&self.path)?;
        for index in 0..self.ledger.partitions.len() {
            let batch = read_batch(&buffer, index, Some(&[0, 9])).map_err(|e| damaged(&self.path, &e))?;
            bands_of(&batch, visit)?;
        }
        Ok(())
    }

    fn batch(&self, partition: u32, columns: Option<&[usize]>) -> Result<Option<RecordBatch>, RunError> {
        let Some(index) = self.ledger.partitions.iter().position(|&p| p == partition) else {
            return Ok(None);
        };
        let buffer = map_file(&self.path)?;
        read_batch(&buffer, index, columns).map(Some).map_err(|e| damaged(&self.path, &e))
    }
}

/// What seal reads of the rows of a staged file, wherever it lies.
pub trait StagedRows {
    /// The ledger.
    fn ledger(&self) -> &ChunkLedger;

    /// Rows that ended in map, in row order.
    ///
    /// # Errors
    /// A file that is damaged or cannot be had.
    fn drops(&self) -> Result<Vec<StagedDrop>, RunError>;
}

impl StagedRows for Staged {
    fn ledger(&self) -> &ChunkLedger {
        &self.ledger
    }

    fn drops(&self) -> Result<Vec<StagedDrop>, RunError> {
        read_drops(&self.path)
    }
}

/// Whether a column of a staged file holds tokens; the others are metadata.
pub fn is_token_column(name: &str) -> bool {
    ["ids", "trained"].contains(&name)
}

/// The metadata in the first columns of a record batch.
pub fn metas_of(batch: &RecordBatch) -> Vec<SampleMeta> {
    let u64s = |i: usize| batch.column(i).as_primitive::<UInt64Type>().values().clone();
    let u32s = |i: usize| batch.column(i).as_primitive::<UInt32Type>().values().clone();
    let (rows, turns, hashes) = (u64s(0), u32s(1), u64s(2));
    let (high, low, tokens, first) = (u64s(3), u64s(4), u32s(5), u32s(6));
    let metas = rows.iter().zip(turns.iter()).zip(hashes.iter()).zip(high.iter().zip(low.iter()));
    metas
        .zip(tokens.iter().zip(first.iter()))
        .map(|((((&row, &turn), &hash), (&high, &low)), (&tokens, &first_trained))| SampleMeta {
            row,
            turn,
            hash,
            key: (u128::from(high) << 64) | u128::from(low),
            tokens,
            first_trained,
        })
        .collect()
}

/// Gives the rows of a record batch that have band hashes to `visit`: rows are its first column, band
/// hashes its last.
///
/// # Errors
/// What `visit` says.
pub fn bands_of(batch: &RecordBatch, visit: &mut VisitBands) -> Result<(), RunError> {
    let Some(bands) = batch.columns().last().and_then(|column| column.as_list_opt::<i32>()) else {
        return Ok(());
    };
    for (index, row) in batch.column(0).as_primitive::<UInt64Type>().values().iter().enumerate() {
        if bands.value_length(index) > 0 {
            visit(*row, bands.value(index).as_primitive::<UInt64Type>().values())?;
        }
    }
    Ok(())
}

/// Ids and trained runs of a record batch.
pub struct StagedTokens {
    ids: ListArray,
    runs: ListArray,
}

impl StagedTokens {
    /// Samples of a record batch whose columns are `ids` and `trained`, as [`is_token_column`] names
    /// them.
    pub fn new(batch: &RecordBatch) -> Self {
        let list = |index: usize| batch.column(index).as_list::<i32>().clone();
        StagedTokens { ids: list(0), runs: list(1) }
    }

    /// Ids and runs of one sample.
    pub fn sample(&self, index: usize) -> (Vec<u32>, Vec<(u32, u32)>) {
        let ids = self.ids.value(index).as_primitive::<UInt32Type>().values().to_vec();
        let runs = self.runs.value(index);
        let flat = runs.as_primitive::<UInt32Type>().values();
        let (pairs, _) = flat.as_chunks::<2>();
        (ids, pairs.iter().map(|&[start, len]| (start, len)).collect())
    }
}

/// Rows that ended in map, of one chunk.
///
/// # Errors
/// A file that is damaged.
pub fn read_drops(path: &Path) -> Result<Vec<StagedDrop>, RunError> {
    let path = drops_path(path);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let buffer = map_file(&path)?;
    Ok(drops_of(&read_batch(&buffer, 0, None).map_err(|e| damaged(&path, &e))?))
}

/// The rows that a record batch of [`drops_batch`] has.
pub fn drops_of(batch: &RecordBatch) -> Vec<StagedDrop> {
    let text = |i: usize, row: usize| batch.column(i).as_string::<i32>().value(row).to_owned();
    let rows = batch.column(0).as_primitive::<UInt64Type>();
    (0..batch.num_rows())
        .map(|i| StagedDrop {
            row: rows.value(i),
            stage: text(1, i),
            reason: text(2, i),
            evidence: text(3, i),
        })
        .collect()
}

/// Where the rows that ended in map stand.
pub fn drops_path(path: &Path) -> PathBuf {
    path.with_extension("dropped.arrow")
}

fn schema(near: bool) -> SchemaRef {
    let list_of = |name: &str, item: DataType| {
        Field::new(name, DataType::List(Arc::new(Field::new("item", item, false))), false)
    };
    let list = |name: &str| list_of(name, DataType::UInt32);
    let plain = |name: &str, data_type: DataType| Field::new(name, data_type, false);
    let mut fields = vec![
        plain("row", DataType::UInt64),
        plain("turn", DataType::UInt32),
        plain("hash", DataType::UInt64),
        plain("key_high", DataType::UInt64),
        plain("key_low", DataType::UInt64),
        plain("tokens", DataType::UInt32),
        plain("first_trained", DataType::UInt32),
        list("ids"),
        list("trained"),
    ];
    if near {
        fields.push(list_of("near", DataType::UInt64));
    }
    Arc::new(Schema::new(fields))
}

fn batch_of(samples: &[StagedSample], near: bool) -> Result<RecordBatch, RunError> {
    let u64s = |f: fn(&StagedSample) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(samples.iter().map(f)))
    };
    let u32s = |f: fn(&StagedSample) -> u32| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(samples.iter().map(f)))
    };
    let ids =
        list_of(samples.iter().map(|s| s.ids.len()), samples.iter().flat_map(|s| s.ids.iter().copied()));
    let runs = samples.iter().flat_map(|s| s.trained.iter().flat_map(|&(start, len)| [start, len]));
    let runs = list_of(samples.iter().map(|s| s.trained.len() * 2), runs);
    let mut columns = vec![
        u64s(|s| s.row),
        u32s(|s| s.turn),
        u64s(|s| s.hash),
        u64s(|s| (s.key >> 64) as u64),
        u64s(|s| s.key as u64),
        u32s(|s| s.ids.len() as u32),
        u32s(|s| s.trained.first().map_or(u32::MAX, |run| run.0)),
        ids,
        runs,
    ];
    if near {
        let field = Arc::new(Field::new("item", DataType::UInt64, false));
        let offsets = OffsetBuffer::<i32>::from_lengths(samples.iter().map(|s| s.near.len()));
        let bands = UInt64Array::from_iter_values(samples.iter().flat_map(|s| s.near.iter().copied()));
        columns.push(Arc::new(ListArray::new(field, offsets, Arc::new(bands), None)));
    }
    RecordBatch::try_new(schema(near), columns).map_err(RunError::from)
}

fn list_of(lengths: impl Iterator<Item = usize>, values: impl Iterator<Item = u32>) -> ArrayRef {
    let field = Arc::new(Field::new("item", DataType::UInt32, false));
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    Arc::new(ListArray::new(field, offsets, Arc::new(UInt32Array::from_iter_values(values)), None))
}

fn drops_schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        Field::new("row", DataType::UInt64, false),
        text("stage"),
        text("reason"),
        text("evidence"),
    ]))
}

/// Rows that ended in map as a record batch.
///
/// # Errors
/// None in practice; Arrow's words.
pub fn drops_batch(drops: &[StagedDrop]) -> Result<RecordBatch, RunError> {
    let text = |f: fn(&StagedDrop) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(drops.iter().map(f)))
    };
    let rows: ArrayRef = Arc::new(UInt64Array::from_iter_values(drops.iter().map(|d| d.row)));
    let columns = vec![rows, text(|d| &d.stage), text(|d| &d.reason), text(|d| &d.evidence)];
    RecordBatch::try_new(drops_schema(), columns).map_err(RunError::from)
}

fn write_ipc(
    path: &Path,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    ledger: Option<String>,
) -> Result<(), RunError> {
    let file = AtomicFile::create(path)?;
    let wrap = |e: ArrowError| RunError::from_arrow(path, e);
    let mut writer = FileWriter::try_new(BufWriter::new(file), schema).map_err(wrap)?;
    for batch in batches {
        writer.write(batch).map_err(wrap)?;
    }
    if let Some(ledger) = ledger {
        writer.write_metadata("ledger", ledger);
    }
    writer.finish().map_err(wrap)?;
    let buffered = writer.into_inner().map_err(wrap)?;
    let file = buffered.into_inner().map_err(|e| RunError::write(path, e.into_error()))?;
    file.commit()?;
    Ok(())
}

#[expect(unsafe_code, reason = "a memory map")]
fn map_file(path: &Path) -> Result<Buffer, RunError> {
    let read_error = |source| RunError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(read_error)?;
    // SAFETY: staged files are only ever replaced as a whole by rename, never written in place, and
    // the work folder is held by this process's lock.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(read_error)?;
    Ok(Buffer::from(bytes::Bytes::from_owner(map)))
}

fn footer(buffer: &Buffer) -> Result<arrow::ipc::Footer<'_>, ArrowError> {
    let short = || ArrowError::IpcError("the file is cut short".to_owned());
    let trailer = buffer.len().checked_sub(10).ok_or_else(short)?;
    let tail = buffer.get(trailer..).and_then(|t| t.first_chunk::<10>()).ok_or_else(short)?;
    let len = read_footer_length(*tail)?;
    let start = trailer.checked_sub(len).ok_or_else(short)?;
    let bytes = buffer.get(start..trailer).ok_or_else(short)?;
    arrow::ipc::root_as_footer(bytes).map_err(|e| ArrowError::IpcError(e.to_string()))
}

fn footer_metadata(buffer: &Buffer) -> Result<String, ArrowError> {
    let footer = footer(buffer)?;
    let missing = || ArrowError::IpcError("no ledger in the footer".to_owned());
    let entries = footer.custom_metadata().ok_or_else(missing)?;
    let ledger = entries.iter().find(|entry| entry.key() == Some("ledger"));
    ledger.and_then(|entry| entry.value()).map(str::to_owned).ok_or_else(missing)
}

fn read_batch(buffer: &Buffer, index: usize, columns: Option<&[usize]>) -> Result<RecordBatch, ArrowError> {
    let missing = || ArrowError::IpcError("no such record batch".to_owned());
    let footer = footer(buffer)?;
    let schema = arrow::ipc::convert::try_fb_to_schema(footer.schema().ok_or_else(missing)?)?;
    let mut decoder = FileDecoder::new(Arc::new(schema), footer.version());
    if let Some(columns) = columns {
        decoder = decoder.with_projection(columns.to_vec());
    }
    let blocks = footer.recordBatches().ok_or_else(missing)?;
    if index >= blocks.len() {
        return Err(missing());
    }
    let block = blocks.get(index);
    let len = block.bodyLength() as usize + block.metaDataLength() as usize;
    if (block.offset() as usize).saturating_add(len) > buffer.len() {
        return Err(missing());
    }
    let data = buffer.slice_with_length(block.offset() as usize, len);
    decoder.read_record_batch(block, &data)?.ok_or_else(missing)
}

fn damaged(path: &Path, error: &ArrowError) -> RunError {
    RunError::Staged { path: path.to_path_buf(), reason: error.to_string() }
}
