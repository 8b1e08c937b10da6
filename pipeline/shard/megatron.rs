//! The format `megatron`: an indexed data set of Megatron-LM, for plain text only, since it has no
//! place for what is not trained on. Ids as int32 in `.bin`; lengths and places in `.idx`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use potable_manifests::Digest;

use super::AtomicFile;
use super::sidecar::SidecarWriter;
use super::write::ShardWriter;
use crate::pack::Pack;
use crate::run::error::RunError;

/// What an index begins with.
pub(super) const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
/// The code of int32.
pub(super) const INT32: u8 = 4;

/// Writes `.bin`, `.idx` and the ids beside them.
pub(super) struct MegatronWriter {
    paths: [PathBuf; 2],
    tokens: BufWriter<AtomicFile>,
    index: AtomicFile,
    ids: SidecarWriter,
    lengths: Vec<i32>,
}

impl MegatronWriter {
    pub(super) fn create(paths: [PathBuf; 2], ids: &std::path::Path) -> Result<Self, RunError> {
        let [tokens, index] = &paths;
        Ok(MegatronWriter {
            tokens: BufWriter::new(AtomicFile::create(tokens)?),
            index: AtomicFile::create(index)?,
            ids: SidecarWriter::create(ids)?,
            lengths: Vec::new(),
            paths,
        })
    }
}

impl ShardWriter for MegatronWriter {
    fn push(&mut self, pack: Pack) -> Result<(), RunError> {
        self.ids.push(&pack)?;
        for sample in &pack.samples {
            let bytes: Vec<u8> = sample.ids.iter().flat_map(|&id| id.to_le_bytes()).collect();
            self.tokens.write_all(&bytes).map_err(|e| RunError::write(&self.paths[0], e))?;
            self.lengths.push(sample.ids.len() as i32);
        }
        Ok(())
    }

    fn seal(mut self: Box<Self>) -> Result<Vec<(Digest, u64)>, RunError> {
        let [tokens_path, index_path] = self.paths;
        let wrap = |e| RunError::write(&index_path, e);
        self.index.write_all(&index(&self.lengths)).map_err(wrap)?;
        let tokens = self.tokens.into_inner().map_err(|e| RunError::write(&tokens_path, e.into_error()))?;
        Ok(vec![tokens.commit()?, self.index.commit()?, self.ids.seal()?])
    }
}

/// The index: magic, version 1, type, counts, lengths (i32), byte offsets (i64), and the index of the
/// first sequence of each document and one past the last (i64). A document is one sequence.
fn index(lengths: &[i32]) -> Vec<u8> {
    let count = lengths.len() as u64;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(1u64.to_le_bytes());
    bytes.push(INT32);
    bytes.extend(count.to_le_bytes());
    bytes.extend((count + 1).to_le_bytes());
    bytes.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
    let mut offset = 0i64;
    for &length in lengths {
        bytes.extend(offset.to_le_bytes());
        offset += i64::from(length) * 4;
    }
    bytes.extend((0..=count as i64).flat_map(i64::to_le_bytes));
    bytes
}
