//! The format `mds`: MosaicML streaming. A row a pack, columns of int32 arrays, sample ids as JSON;
//! `index.json` beside the shards has sizes and hashes.

use std::io::Write;
use std::path::{Path, PathBuf};

use potable_manifests::Digest;
use serde_json::{Value, json};

use super::AtomicFile;
use super::table::{ids, labels};
use super::write::{ShardFile, ShardWriter};
use crate::pack::{Pack, PackedSample};
use crate::run::error::RunError;

/// Columns in the order in which a row has them, which is that of their names, with encodings.
pub(super) const COLUMNS: [(&str, &str); 4] = [
    ("input_ids", "ndarray:int32"),
    ("labels", "ndarray:int32"),
    ("sample_ids", "json"),
    ("seq_lengths", "ndarray:int32"),
];

/// What a shard says of itself, in the file and in the index.
pub(super) fn config() -> Value {
    let (names, encodings): (Vec<&str>, Vec<&str>) = COLUMNS.iter().copied().unzip();
    json!({
        "column_encodings": encodings,
        "column_names": names,
        "column_sizes": [null, null, null, null],
        "compression": null,
        "format": "mds",
        "hashes": ["sha256"],
        "size_limit": null,
        "version": 2,
    })
}

/// The index of a folder of shards: name, rows, and the file with its hash.
pub(super) fn index(shards: &[(u64, &ShardFile)]) -> Value {
    let shard = |&(rows, (path, sha256, size)): &(u64, &ShardFile)| {
        let mut shard = config();
        let name = path.rsplit('/').next().unwrap_or_default();
        let raw = json!({ "basename": name, "bytes": size, "hashes": { "sha256": sha256.hex() } });
        if let Some(map) = shard.as_object_mut() {
            map.insert("raw_data".to_owned(), raw);
            map.insert("samples".to_owned(), rows.into());
            map.insert("zip_data".to_owned(), Value::Null);
        }
        shard
    };
    let shards: Vec<Value> = shards.iter().map(shard).collect();
    json!({ "shards": shards, "version": 2 })
}

/// Writes one shard. Its head has the place of every row, so rows are kept until the end.
pub(super) struct MdsWriter {
    path: PathBuf,
    file: AtomicFile,
    rows: Vec<Vec<u8>>,
}

impl MdsWriter {
    pub(super) fn create(path: &Path) -> Result<Self, RunError> {
        Ok(MdsWriter { path: path.to_path_buf(), file: AtomicFile::create(path)?, rows: Vec::new() })
    }
}

impl ShardWriter for MdsWriter {
    fn push(&mut self, pack: Pack) -> Result<(), RunError> {
        self.rows.push(row(&pack));
        Ok(())
    }

    fn seal(mut self: Box<Self>) -> Result<Vec<(Digest, u64)>, RunError> {
        let config = config().to_string();
        let head = 4 + 4 * (self.rows.len() + 1) + config.len();
        let mut bytes = (self.rows.len() as u32).to_le_bytes().to_vec();
        let mut offset = head;
        let too_large = || RunError::Shard {
            path: self.path.clone(),
            reason: "the shard is larger than 4 GiB; lower `shard_tokens`".to_owned(),
        };
        for size in self.rows.iter().map(Vec::len).chain([0]) {
            bytes.extend(u32::try_from(offset).map_err(|_| too_large())?.to_le_bytes());
            offset += size;
        }
        bytes.extend(config.as_bytes());
        self.file.write_all(&bytes).map_err(|e| RunError::write(&self.path, e))?;
        for row in &self.rows {
            self.file.write_all(row).map_err(|e| RunError::write(&self.path, e))?;
        }
        Ok(vec![self.file.commit()?])
    }
}

/// A row: the size of each column, then the columns.
fn row(pack: &Pack) -> Vec<u8> {
    let all =
        |values: fn(&PackedSample) -> Vec<i32>| pack.samples.iter().flat_map(values).collect::<Vec<i32>>();
    let names: Vec<&str> = pack.samples.iter().map(|sample| sample.name.as_str()).collect();
    let columns = [
        array(&all(ids)),
        array(&all(labels)),
        json!(names).to_string().into_bytes(),
        array(&all(|sample| vec![sample.ids.len() as i32])),
    ];
    let mut row: Vec<u8> = columns.iter().flat_map(|column| (column.len() as u32).to_le_bytes()).collect();
    columns.iter().for_each(|column| row.extend(column));
    row
}

/// An array of one axis: axes × 4 + the code of the width of its length, the length in the smallest
/// width that holds it, the values.
fn array(values: &[i32]) -> Vec<u8> {
    let length = values.len() as u64;
    let (code, width) = match length {
        0..=0xff => (0, 1),
        0x100..=0xffff => (1, 2),
        0x1_0000..=0xffff_ffff => (2, 4),
        _ => (3, 8),
    };
    let mut bytes = vec![1 << 2 | code];
    bytes.extend(length.to_le_bytes().iter().take(width));
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}
