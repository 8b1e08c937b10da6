//! The format `arrow`: what `load_from_disk` of Hugging Face `datasets` reads. A folder with a part
//! a split, Arrow IPC streams in each, not compressed, because they are read through a memory map.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use arrow::ipc::writer::StreamWriter;
use potable_manifests::Digest;
use serde_json::{Value, json};

use super::AtomicFile;
use super::sidecar::SidecarWriter;
use super::table::{MEDIA, Table};
use super::write::ShardWriter;
use crate::pack::Pack;
use crate::run::error::RunError;

/// Rows in a record batch: a row that is looked up costs the decoding of none but its own batch.
const BATCH_ROWS: usize = 1000;

/// Writes one Arrow stream and the ids beside it.
pub(super) struct DatasetsWriter {
    path: PathBuf,
    writer: StreamWriter<BufWriter<AtomicFile>>,
    ids: SidecarWriter,
    pending: Vec<Pack>,
}

impl DatasetsWriter {
    pub(super) fn create(path: &Path, ids: &Path) -> Result<Self, RunError> {
        let file = BufWriter::new(AtomicFile::create(path)?);
        let writer = StreamWriter::try_new(file, &Table::Datasets.schema());
        let writer = writer.map_err(|e| RunError::from_arrow(path, e))?;
        let ids = SidecarWriter::create(ids)?;
        Ok(DatasetsWriter { path: path.to_path_buf(), writer, ids, pending: Vec::new() })
    }

    fn flush(&mut self) -> Result<(), RunError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let batch = Table::Datasets.batch(&std::mem::take(&mut self.pending))?;
        self.writer.write(&batch).map_err(|e| RunError::from_arrow(&self.path, e))
    }
}

impl ShardWriter for DatasetsWriter {
    fn push(&mut self, pack: Pack) -> Result<(), RunError> {
        self.ids.push(&pack)?;
        self.pending.push(pack);
        if self.pending.len() >= BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    fn seal(mut self: Box<Self>) -> Result<Vec<(Digest, u64)>, RunError> {
        self.flush()?;
        let wrap = |e| RunError::from_arrow(&self.path, e);
        self.writer.finish().map_err(wrap)?;
        let buffered = self.writer.into_inner().map_err(wrap)?;
        let file = buffered.into_inner().map_err(|e| RunError::write(&self.path, e.into_error()))?;
        Ok(vec![file.commit()?, self.ids.seal()?])
    }
}

/// `dataset_dict.json`: the splits of a folder.
pub(super) fn dict(splits: &[&str]) -> Value {
    json!({ "splits": splits })
}

/// `state.json` of a split: its files. `digest` names their content; caches go by it.
pub(super) fn state(files: &[String], digest: &Digest) -> Value {
    let files: Vec<Value> = files.iter().map(|name| json!({ "filename": name })).collect();
    let fingerprint: String = digest.hex().chars().take(16).collect();
    json!({
        "_data_files": files,
        "_fingerprint": fingerprint,
        "_format_columns": null,
        "_format_kwargs": {},
        "_format_type": null,
        "_output_all_columns": false,
        "_split": null,
    })
}

/// `dataset_info.json` of a split: the types of the columns.
pub(super) fn info() -> Value {
    let value = |dtype: &str| json!({ "dtype": dtype, "_type": "Value" });
    let list = |dtype: &str| json!({ "feature": value(dtype), "_type": "List" });
    let mut features = json!({
        "input_ids": list("int32"),
        "attention_mask": list("int8"),
        "labels": list("int32"),
        "lengths": value("int32"),
    });
    if let Some(map) = features.as_object_mut() {
        map.extend(MEDIA.map(|name| (name.to_owned(), value("null"))));
    }
    json!({ "citation": "", "description": "", "features": features, "homepage": "", "license": "" })
}
