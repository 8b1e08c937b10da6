//! What a shard says, whatever its format and compression: one digest, and counts.

use potable_manifests::{Digest, Hasher};

use crate::pack::Pack;

/// Digest and counts of the packs of a shard, of any format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentSummary {
    /// SHA-256 over the packs in order: for each pack the number of samples, for each sample the
    /// length of its id, the id, its length and its trained runs (count, then start and length),
    /// then its ids; every number u32 little-endian.
    pub digest: Digest,
    /// Rows.
    pub packs: u64,
    /// Samples.
    pub samples: u64,
    /// Tokens.
    pub tokens: u64,
    /// Trained tokens.
    pub trained: u64,
}

/// A [`ContentSummary`] in the making. Fed with what a reader yields, it gives what the writer gave.
#[derive(Default)]
pub struct Content {
    hasher: Hasher,
    packs: u64,
    samples: u64,
    tokens: u64,
    trained: u64,
}

impl Content {
    /// Nothing yet.
    pub fn new() -> Self {
        Content::default()
    }

    /// Adds the next pack.
    pub fn add(&mut self, pack: &Pack) {
        let number = |n: usize| (n as u32).to_le_bytes();
        self.hasher.update(&number(pack.samples.len()));
        let mut bytes: Vec<u8> = Vec::new();
        for sample in &pack.samples {
            bytes.clear();
            bytes.extend(number(sample.name.len()));
            bytes.extend(sample.name.as_bytes());
            bytes.extend(number(sample.ids.len()));
            bytes.extend(number(sample.trained.len()));
            for &(start, len) in &sample.trained {
                bytes.extend(start.to_le_bytes());
                bytes.extend(len.to_le_bytes());
            }
            bytes.extend(sample.ids.iter().flat_map(|id| id.to_le_bytes()));
            self.hasher.update(&bytes);
            self.trained += sample.trained_tokens();
        }
        self.packs += 1;
        self.samples += pack.samples.len() as u64;
        self.tokens += pack.tokens();
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The digest and the counts.
    pub fn finish(self) -> ContentSummary {
        ContentSummary {
            digest: self.hasher.finish(),
            packs: self.packs,
            samples: self.samples,
            tokens: self.tokens,
            trained: self.trained,
        }
    }
}
