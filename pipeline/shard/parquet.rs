//! The default shard format: Parquet, one row a pack (docs/ARCHITECTURE.md, `shard`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Builder, ListBuilder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use potable_manifests::{Digest, Hasher};

use super::AtomicFile;
use crate::pack::Pack;
use crate::run::error::RunError;

/// The label of a token that is not trained on, as PyTorch's cross entropy ignores it.
pub const IGNORED: i32 = -100;

/// Tokens in a row group, about.
const GROUP_TOKENS: u64 = 1 << 21;

/// Which columns a shard has besides the usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ShardColumns {
    /// `position_ids`, counted from 0 in each sample.
    pub position_ids: bool,
}

/// A sealed shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// SHA-256 of the file.
    pub sha256: Digest,
    /// Size of the file in bytes.
    pub size: u64,
    /// SHA-256 of what the shard says, whatever its compression: for each pack the number of
    /// samples, for each sample the length of its id, the id, its length and its trained runs
    /// (count, then start and length), then its ids; every number u32 little-endian.
    pub content: Digest,
    /// Rows.
    pub packs: u64,
    /// Samples.
    pub samples: u64,
    /// Tokens.
    pub tokens: u64,
    /// Trained tokens.
    pub trained: u64,
}

/// Writes one shard. Rows: `input_ids`, `labels` (-100 where not trained on, not shifted, and at the
/// first token of each sample), `seq_lengths` (int32 lists) and `sample_ids` (a list of strings).
pub struct ParquetShardWriter {
    path: PathBuf,
    writer: ArrowWriter<AtomicFile>,
    columns: ShardColumns,
    pending: Vec<Pack>,
    pending_tokens: u64,
    content: Hasher,
    shard: Shard,
}

impl ParquetShardWriter {
    /// Starts a shard under a temporary name.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path, columns: ShardColumns) -> Result<Self, RunError> {
        let file = AtomicFile::create(path)?;
        let level = ZstdLevel::try_new(3).map_err(|e| shard_error(path, e))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::PLAIN)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_created_by("potable".to_owned())
            .build();
        let writer = ArrowWriter::try_new(file, schema(columns), Some(properties))
            .map_err(|e| shard_error(path, e))?;
        Ok(ParquetShardWriter {
            path: path.to_path_buf(),
            writer,
            columns,
            pending: Vec::new(),
            pending_tokens: 0,
            content: Hasher::new(),
            shard: Shard {
                sha256: Digest::zero(),
                size: 0,
                content: Digest::zero(),
                packs: 0,
                samples: 0,
                tokens: 0,
                trained: 0,
            },
        })
    }

    /// Appends a pack.
    ///
    /// # Errors
    /// What the file system says.
    pub fn push(&mut self, pack: Pack) -> Result<(), RunError> {
        let number = |n: usize| (n as u32).to_le_bytes();
        self.content.update(&number(pack.samples.len()));
        for sample in &pack.samples {
            self.content.update(&number(sample.name.len()));
            self.content.update(sample.name.as_bytes());
            self.content.update(&number(sample.ids.len()));
            self.content.update(&number(sample.trained.len()));
            for &(start, len) in &sample.trained {
                self.content.update(&start.to_le_bytes());
                self.content.update(&len.to_le_bytes());
            }
            let ids: Vec<u8> = sample.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            self.content.update(&ids);
            self.shard.trained += sample.trained_tokens();
        }
        self.shard.packs += 1;
        self.shard.samples += pack.samples.len() as u64;
        self.shard.tokens += pack.tokens();
        self.pending_tokens += pack.tokens();
        self.pending.push(pack);
        if self.pending_tokens >= GROUP_TOKENS {
            self.flush_group()?;
        }
        Ok(())
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.shard.tokens
    }

    /// Ends the shard: writes the footer, syncs, takes the name.
    ///
    /// # Errors
    /// What the file system says.
    pub fn seal(mut self) -> Result<Shard, RunError> {
        self.flush_group()?;
        let path = self.path;
        let file = self.writer.into_inner().map_err(|e| shard_error(&path, e))?;
        let (sha256, size) = file.commit()?;
        Ok(Shard { sha256, size, content: self.content.finish(), ..self.shard })
    }

    fn flush_group(&mut self) -> Result<(), RunError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let packs = std::mem::take(&mut self.pending);
        self.pending_tokens = 0;
        let batch = batch_of(&packs, self.columns)?;
        self.writer.write(&batch).map_err(|e| shard_error(&self.path, e))?;
        self.writer.flush().map_err(|e| shard_error(&self.path, e))
    }
}

fn schema(columns: ShardColumns) -> SchemaRef {
    let list = |name: &str, data_type: DataType| {
        Field::new(name, DataType::List(Arc::new(Field::new_list_field(data_type, true))), false)
    };
    let mut fields = vec![
        list("input_ids", DataType::Int32),
        list("labels", DataType::Int32),
        list("seq_lengths", DataType::Int32),
        list("sample_ids", DataType::Utf8),
    ];
    if columns.position_ids {
        fields.push(list("position_ids", DataType::Int32));
    }
    Arc::new(Schema::new(fields))
}

fn batch_of(packs: &[Pack], columns: ShardColumns) -> Result<RecordBatch, RunError> {
    let mut ids = ListBuilder::new(Int32Builder::new());
    let mut labels = ListBuilder::new(Int32Builder::new());
    let mut lengths = ListBuilder::new(Int32Builder::new());
    let mut names = ListBuilder::new(StringBuilder::new());
    let mut positions = ListBuilder::new(Int32Builder::new());
    for pack in packs {
        for sample in &pack.samples {
            // Ids are below 2^31: the vocabulary was checked when the tokeniser was loaded.
            let values = sample.ids.iter().map(|&id| id as i32);
            ids.values().extend(values.clone().map(Some));
            let mut runs = sample.trained.iter().peekable();
            for (index, id) in (0u32..).zip(values) {
                while runs.next_if(|run| run.0 + run.1 <= index).is_some() {}
                let trained = runs.peek().is_some_and(|run| run.0 <= index);
                labels.values().append_value(if trained { id } else { IGNORED });
            }
            lengths.values().append_value(sample.ids.len() as i32);
            names.values().append_value(&sample.name);
            if columns.position_ids {
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
    if columns.position_ids {
        arrays.push(Arc::new(positions.finish()));
    }
    RecordBatch::try_new(schema(columns), arrays).map_err(RunError::from)
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
