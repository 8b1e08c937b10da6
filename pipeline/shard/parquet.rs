//! The formats that are Parquet files: `parquet`, `parquet-unpacked` and `megatron-bridge`.

use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use potable_manifests::Digest;

use super::AtomicFile;
use super::sidecar::SidecarWriter;
use super::table::Table;
use super::write::ShardWriter;
use crate::pack::Pack;
use crate::run::error::RunError;

/// Tokens in a row group, about.
const GROUP_TOKENS: u64 = 1 << 21;
/// Rows in a row group of [`Table::Bridge`], at most: the loader decodes a whole one for each row.
const BRIDGE_GROUP_ROWS: usize = 500;

/// Writes one Parquet shard.
pub(super) struct ParquetWriter {
    path: PathBuf,
    writer: ArrowWriter<AtomicFile>,
    /// Of a table without a column for them.
    ids: Option<SidecarWriter>,
    table: Table,
    pending: Vec<Pack>,
    pending_tokens: u64,
}

impl ParquetWriter {
    /// Starts a shard under a temporary name.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn create(path: &Path, table: Table) -> Result<Self, RunError> {
        let writer = arrow_writer(path, table.schema())?;
        let path = path.to_path_buf();
        Ok(ParquetWriter { path, writer, ids: None, table, pending: Vec::new(), pending_tokens: 0 })
    }

    /// The same, with the ids of the samples in a file beside it.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn create_with_ids(path: &Path, table: Table, ids: &Path) -> Result<Self, RunError> {
        let writer = ParquetWriter::create(path, table)?;
        Ok(ParquetWriter { ids: Some(SidecarWriter::create(ids)?), ..writer })
    }

    fn flush_group(&mut self) -> Result<(), RunError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let packs = std::mem::take(&mut self.pending);
        self.pending_tokens = 0;
        let batch = self.table.batch(&packs)?;
        self.writer.write(&batch).map_err(|e| shard_error(&self.path, e))?;
        self.writer.flush().map_err(|e| shard_error(&self.path, e))
    }
}

impl ShardWriter for ParquetWriter {
    fn push(&mut self, pack: Pack) -> Result<(), RunError> {
        if let Some(ids) = &mut self.ids {
            ids.push(&pack)?;
        }
        self.pending_tokens += pack.tokens();
        self.pending.push(pack);
        let rows = if self.table == Table::Bridge { BRIDGE_GROUP_ROWS } else { usize::MAX };
        if self.pending_tokens >= GROUP_TOKENS || self.pending.len() >= rows {
            self.flush_group()?;
        }
        Ok(())
    }

    fn seal(mut self: Box<Self>) -> Result<Vec<(Digest, u64)>, RunError> {
        self.flush_group()?;
        let file = self.writer.into_inner().map_err(|e| shard_error(&self.path, e))?;
        let mut sealed = vec![file.commit()?];
        if let Some(ids) = self.ids {
            sealed.push(ids.seal()?);
        }
        Ok(sealed)
    }
}

/// A Parquet writer as every shard has it: zstd at level 1 (level 3 gives shards 5 to 12 % smaller, and `prep`
/// 13 % more to do), no dictionary, no statistics, a fixed writer name.
fn arrow_writer(path: &Path, schema: SchemaRef) -> Result<ArrowWriter<AtomicFile>, RunError> {
    let file = AtomicFile::create(path)?;
    let level = ZstdLevel::try_new(1).map_err(|e| shard_error(path, e))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by("potable".to_owned())
        .build();
    ArrowWriter::try_new(file, schema, Some(properties)).map_err(|e| shard_error(path, e))
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
