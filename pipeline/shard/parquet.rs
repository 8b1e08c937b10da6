//! The default shard format: Parquet, one row a pack (docs/ARCHITECTURE.md, `shard`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Builder, ListBuilder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use potable_manifests::Digest;

use super::AtomicFile;
use super::write::ShardWriter;
use crate::pack::{Pack, PackedSample};
use crate::run::error::RunError;

/// The label of a token that is not trained on, as PyTorch's cross entropy ignores it.
pub const IGNORED: i32 = -100;

/// Tokens in a row group, about.
const GROUP_TOKENS: u64 = 1 << 21;

/// Writes one shard. Rows: `input_ids`, `labels` (-100 where not trained on, not shifted, and at the
/// first token of each sample), `seq_lengths` (int32 lists) and `sample_ids` (a list of strings).
pub(super) struct ParquetWriter {
    path: PathBuf,
    writer: ArrowWriter<AtomicFile>,
    position_ids: bool,
    pending: Vec<Pack>,
    pending_tokens: u64,
}

impl ParquetWriter {
    /// Starts a shard under a temporary name.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn create(path: &Path, position_ids: bool) -> Result<Self, RunError> {
        let writer = arrow_writer(path, schema(position_ids))?;
        Ok(ParquetWriter {
            path: path.to_path_buf(),
            writer,
            position_ids,
            pending: Vec::new(),
            pending_tokens: 0,
        })
    }

    fn flush_group(&mut self) -> Result<(), RunError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let packs = std::mem::take(&mut self.pending);
        self.pending_tokens = 0;
        let batch = batch_of(&packs, self.position_ids)?;
        self.writer.write(&batch).map_err(|e| shard_error(&self.path, e))?;
        self.writer.flush().map_err(|e| shard_error(&self.path, e))
    }
}

impl ShardWriter for ParquetWriter {
    fn push(&mut self, pack: Pack) -> Result<(), RunError> {
        self.pending_tokens += pack.tokens();
        self.pending.push(pack);
        if self.pending_tokens >= GROUP_TOKENS {
            self.flush_group()?;
        }
        Ok(())
    }

    fn seal(mut self: Box<Self>) -> Result<Vec<(Digest, u64)>, RunError> {
        self.flush_group()?;
        let file = self.writer.into_inner().map_err(|e| shard_error(&self.path, e))?;
        Ok(vec![file.commit()?])
    }
}

/// A Parquet writer as every shard has it: zstd, no dictionary, no statistics, a fixed writer name.
pub(super) fn arrow_writer(path: &Path, schema: SchemaRef) -> Result<ArrowWriter<AtomicFile>, RunError> {
    let file = AtomicFile::create(path)?;
    let level = ZstdLevel::try_new(3).map_err(|e| shard_error(path, e))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by("potable".to_owned())
        .build();
    ArrowWriter::try_new(file, schema, Some(properties)).map_err(|e| shard_error(path, e))
}

/// Labels of a sample: its ids where trained on, else [`IGNORED`].
pub(super) fn labels(sample: &PackedSample) -> Vec<i32> {
    let mut labels = vec![IGNORED; sample.ids.len()];
    for &(start, len) in &sample.trained {
        let run = start as usize..(start + len) as usize;
        if let (Some(labels), Some(ids)) = (labels.get_mut(run.clone()), sample.ids.get(run)) {
            labels.iter_mut().zip(ids).for_each(|(label, &id)| *label = id as i32);
        }
    }
    labels
}

fn schema(position_ids: bool) -> SchemaRef {
    let list = |name: &str, data_type: DataType| {
        Field::new(name, DataType::List(Arc::new(Field::new_list_field(data_type, true))), false)
    };
    let mut fields = vec![
        list("input_ids", DataType::Int32),
        list("labels", DataType::Int32),
        list("seq_lengths", DataType::Int32),
        list("sample_ids", DataType::Utf8),
    ];
    if position_ids {
        fields.push(list("position_ids", DataType::Int32));
    }
    Arc::new(Schema::new(fields))
}

fn batch_of(packs: &[Pack], position_ids: bool) -> Result<RecordBatch, RunError> {
    let mut ids = ListBuilder::new(Int32Builder::new());
    let mut labels = ListBuilder::new(Int32Builder::new());
    let mut lengths = ListBuilder::new(Int32Builder::new());
    let mut names = ListBuilder::new(StringBuilder::new());
    let mut positions = ListBuilder::new(Int32Builder::new());
    for pack in packs {
        for sample in &pack.samples {
            // The sink has checked that every id fits.
            ids.values().append_slice(&sample.ids.iter().map(|&id| id as i32).collect::<Vec<_>>());
            labels.values().append_slice(&self::labels(sample));
            lengths.values().append_value(sample.ids.len() as i32);
            names.values().append_value(&sample.name);
            if position_ids {
                positions.values().extend((0..sample.ids.len() as i32).map(Some));
            }
        }
        ids.append(true);
        labels.append(true);
        lengths.append(true);
        names.append(true);
        positions.append(true);
    }
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(ids.finish()),
        Arc::new(labels.finish()),
        Arc::new(lengths.finish()),
        Arc::new(names.finish()),
    ];
    if position_ids {
        arrays.push(Arc::new(positions.finish()));
    }
    RecordBatch::try_new(schema(position_ids), arrays).map_err(RunError::from)
}

/// An error of the Parquet writer; an I/O error keeps its cause.
pub(super) fn shard_error(path: &Path, error: ParquetError) -> RunError {
    let text = error.to_string();
    if let ParquetError::External(cause) = error
        && let Ok(io) = cause.downcast::<std::io::Error>()
    {
        return RunError::write(path, *io);
    }
    RunError::Shard { path: path.to_path_buf(), reason: text }
}
