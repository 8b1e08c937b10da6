//! The items of a blocklist as a table, for other tools.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use potable_blocklists::Blocklist;

use super::AtomicFile;
use super::parquet::shard_error;
use crate::run::error::RunError;

/// Writes one row an item: `benchmark`, `item`, `protection` (`ngram`, `short-item`, or why there is none:
/// `with-option`, `boilerplate`, `too-short`).
///
/// # Errors
/// What the file system says.
pub fn write_items(path: &Path, blocklist: &Blocklist) -> Result<(), RunError> {
    let text = |value: &dyn Fn(u32) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..blocklist.items()).map(value)))
    };
    let columns = vec![
        text(&|item| blocklist.benchmark_name(blocklist.item_benchmark(item)).to_owned()),
        text(&|item| blocklist.item_id(item).to_owned()),
        text(&|item| blocklist.item_protection(item).name().to_owned()),
    ];
    let field = |name: &str| Field::new(name, DataType::Utf8, false);
    let schema = Arc::new(Schema::new(vec![field("benchmark"), field("item"), field("protection")]));
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    let file = AtomicFile::create(path)?;
    let mut writer = ArrowWriter::try_new(file, schema, None).map_err(|e| shard_error(path, e))?;
    writer.write(&batch).map_err(|e| shard_error(path, e))?;
    writer.into_inner().map_err(|e| shard_error(path, e))?.commit()?;
    Ok(())
}
