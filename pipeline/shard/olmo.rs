//! The format `olmo`: for OLMo-core and open-instruct. Token ids and trained tokens as plain arrays
//! without a header, and where each sample begins and ends, with its id, as CSV.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::path::PathBuf;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use potable_manifests::Digest;

use super::AtomicFile;
use super::table::mask;
use super::write::ShardWriter;
use crate::pack::Pack;
use crate::run::error::RunError;

/// Ids below this fit two bytes.
const TWO_BYTES: u64 = 1 << 16;

/// The largest id that the type for a vocabulary of this size holds: the smallest unsigned type that
/// holds the vocabulary, as the loader chooses it.
pub(super) fn largest_id(vocabulary: u64) -> u32 {
    if vocabulary <= TWO_BYTES { u32::from(u16::MAX) } else { u32::MAX }
}

/// Writes one part: `token_ids_part_….npy`, `labels_mask_part_….npy` and `token_ids_part_….csv.gz`.
pub(super) struct OlmoWriter {
    paths: [PathBuf; 3],
    ids: BufWriter<AtomicFile>,
    mask: BufWriter<AtomicFile>,
    borders: GzEncoder<AtomicFile>,
    two_bytes: bool,
    tokens: u64,
}

impl OlmoWriter {
    pub(super) fn create(paths: [PathBuf; 3], vocabulary: u64) -> Result<Self, RunError> {
        let [ids, mask, borders] = &paths;
        let buffered = |path: &Path| Ok::<_, RunError>(BufWriter::new(AtomicFile::create(path)?));
        Ok(OlmoWriter {
            ids: buffered(ids)?,
            mask: buffered(mask)?,
            borders: GzBuilder::new().write(AtomicFile::create(borders)?, Compression::default()),
            two_bytes: largest_id(vocabulary) == u32::from(u16::MAX),
            tokens: 0,
            paths,
        })
    }
}

impl ShardWriter for OlmoWriter {
    fn push(&mut self, pack: Pack) -> Result<(), RunError> {
        let [ids_path, mask_path, borders_path] = &self.paths;
        for sample in &pack.samples {
            let bytes: Vec<u8> = if self.two_bytes {
                sample.ids.iter().flat_map(|&id| (id as u16).to_le_bytes()).collect()
            } else {
                sample.ids.iter().flat_map(|&id| id.to_le_bytes()).collect()
            };
            self.ids.write_all(&bytes).map_err(|e| RunError::write(ids_path, e))?;
            let mask: Vec<u8> = mask(sample).into_iter().map(|trained| trained as u8).collect();
            self.mask.write_all(&mask).map_err(|e| RunError::write(mask_path, e))?;
            let start = self.tokens;
            self.tokens += sample.ids.len() as u64;
            // Quoted as CSV has it; readers that split at commas take the first two fields only.
            let line = format!("{start},{},\"{}\"\n", self.tokens, sample.name.replace('"', "\"\""));
            self.borders.write_all(line.as_bytes()).map_err(|e| RunError::write(borders_path, e))?;
        }
        Ok(())
    }

    fn seal(self: Box<Self>) -> Result<Vec<(Digest, u64)>, RunError> {
        let [ids_path, mask_path, borders_path] = self.paths;
        let ids = self.ids.into_inner().map_err(|e| RunError::write(&ids_path, e.into_error()))?;
        let mask = self.mask.into_inner().map_err(|e| RunError::write(&mask_path, e.into_error()))?;
        let borders = self.borders.finish().map_err(|e| RunError::write(&borders_path, e))?;
        Ok(vec![ids.commit()?, mask.commit()?, borders.commit()?])
    }
}
