//! Sample ids beside a shard whose format has no room for them: `sample_ids/…jsonl.zst`, a JSON list
//! of ids a pack, in the order of the packs.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use potable_manifests::Digest;

use super::AtomicFile;
use super::read::ReadError;
use crate::pack::Pack;
use crate::run::error::RunError;

/// The folder, inside the output folder, with paths like those of the shards below it.
pub const FOLDER: &str = "sample_ids";

const LEVEL: i32 = 6;

/// Where the ids of a shard stand.
pub(super) fn path(main: &str) -> String {
    format!("{FOLDER}/{main}.jsonl.zst")
}

/// Writes the ids of one shard.
pub(super) struct SidecarWriter {
    path: std::path::PathBuf,
    encoder: zstd::Encoder<'static, AtomicFile>,
}

impl SidecarWriter {
    pub(super) fn create(path: &Path) -> Result<Self, RunError> {
        let file = AtomicFile::create(path)?;
        let encoder = zstd::Encoder::new(file, LEVEL).map_err(|e| RunError::write(path, e))?;
        Ok(SidecarWriter { path: path.to_path_buf(), encoder })
    }

    pub(super) fn push(&mut self, pack: &Pack) -> Result<(), RunError> {
        let names: Vec<&str> = pack.samples.iter().map(|sample| sample.name.as_str()).collect();
        let mut line = serde_json::json!(names).to_string();
        line.push('\n');
        self.encoder.write_all(line.as_bytes()).map_err(|e| RunError::write(&self.path, e))
    }

    pub(super) fn seal(self) -> Result<(Digest, u64), RunError> {
        let file = self.encoder.finish().map_err(|e| RunError::write(&self.path, e))?;
        file.commit()
    }
}

/// Reads the ids of all packs of a shard.
///
/// # Errors
/// A file that is not there, or is damaged.
pub(super) fn read(path: &Path) -> Result<Vec<Vec<String>>, ReadError> {
    let file = std::fs::File::open(path).map_err(|e| ReadError::io(path, e))?;
    let decoder = zstd::Decoder::new(file).map_err(|e| ReadError::io(path, e))?;
    let mut all = Vec::new();
    for line in BufReader::new(decoder).lines() {
        let line = line.map_err(|e| ReadError::io(path, e))?;
        let names = serde_json::from_str(&line);
        all.push(names.map_err(|e| ReadError::malformed(path, format!("line {}: {e}", all.len())))?);
    }
    Ok(all)
}
