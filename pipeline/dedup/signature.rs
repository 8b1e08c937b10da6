//! The bands of a row: its words, their shingles, the signature, a hash of each band.

use potable_blocklists::Words;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::config::NearConfig;
use crate::decontaminate::{Checked, CheckedRow};

/// Odd, so that no word is ever shifted out of the hash of a shingle.
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Takes signatures, with buffers that are used again for each row.
#[derive(Debug)]
pub struct Signer {
    config: NearConfig,
    seed: u64,
    scanner: Words,
    /// Hashes of the words of one text, and of all texts of the row.
    scanned: Vec<u64>,
    words: Vec<u64>,
    shingles: Vec<u64>,
    signature: Vec<u64>,
    bytes: Vec<u8>,
}

impl Signer {
    /// A signer for a configuration; `seed` is that of the recipe.
    pub fn new(config: NearConfig, seed: u64) -> Self {
        Signer {
            config,
            seed,
            scanner: Words::new(),
            scanned: Vec::new(),
            words: Vec::new(),
            shingles: Vec::new(),
            signature: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// The band hashes of a row, over all text that can end up in a shard: tools, then the messages in
    /// order with reasoning, text and calls; none for a row without a word.
    pub fn bands(&mut self, row: &CheckedRow) -> Vec<u64> {
        match row.content() {
            Checked::Document(document) => self.bands_of([document.text.as_str()]),
            Checked::Chat(conversation) => {
                let strings = conversation.strings();
                self.bands_of(strings.into_iter().map(|(_, text, _)| text))
            }
        }
    }

    /// The same of texts that follow one another. Shingles run across the borders of texts.
    pub fn bands_of<'t>(&mut self, texts: impl IntoIterator<Item = &'t str>) -> Vec<u64> {
        self.words.clear();
        for text in texts {
            self.scanner.hashes(text, &mut self.scanned);
            self.words.extend_from_slice(&self.scanned);
        }
        if self.words.is_empty() {
            return Vec::new();
        }
        shingles(&self.words, self.config.words as usize, &mut self.shingles);
        sketch(&self.shingles, self.seed, self.config.hashes as usize, &mut self.signature);
        let (bands, rows) = (self.config.bands as usize, self.config.rows as usize);
        let bands = self.signature.chunks_exact(rows).take(bands).enumerate();
        let bytes = &mut self.bytes;
        let hash = |(band, values): (usize, &[u64])| {
            bytes.clear();
            values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
            // The number of the band is in its hash: all bands are sorted together.
            xxh3_64_with_seed(bytes, self.seed ^ mix(band as u64 + 1))
        };
        bands.map(hash).collect()
    }
}

/// A hash of every run of `width` words: a polynomial over the hashes of the words that rolls (Karp and
/// Rabin, 1987). Fewer words are one shingle.
fn shingles(words: &[u64], width: usize, out: &mut Vec<u64>) {
    out.clear();
    let push = |hash: u64, word: u64| hash.wrapping_mul(BASE).wrapping_add(word);
    let (head, tail) = words.split_at_checked(width).unwrap_or((words, &[]));
    let mut hash = head.iter().fold(0, |hash, word| push(hash, *word));
    let leaving = (0..width).fold(1u64, |power, _| power.wrapping_mul(BASE));
    out.push(mix(hash));
    out.extend(tail.iter().zip(words).map(|(new, old)| {
        hash = push(hash, *new).wrapping_sub(old.wrapping_mul(leaving));
        mix(hash)
    }));
}

/// The signature of a set of shingles by Dahlgaard, Knudsen and Thorup, "Fast similarity sketching"
/// (FOCS 2017), algorithm 1. In each round every shingle falls into one place of the signature, which
/// keeps the smallest value; rounds go on until no place is empty, and values of a later round are
/// larger than those of an earlier one. Two sets agree in a place with the probability of their Jaccard
/// similarity, as with as many hash functions as places, but a long text takes one round: time is in
/// proportion to `shingles + places × log(places)`, not to their product.
fn sketch(shingles: &[u64], seed: u64, places: usize, signature: &mut Vec<u64>) {
    const EMPTY: u64 = u64::MAX;
    signature.clear();
    signature.resize(places, EMPTY);
    for round in 0..2 * places as u64 {
        let salt = mix(seed.wrapping_add((round + 1).wrapping_mul(BASE)));
        let mut put = |place: usize, hash: u64| {
            if let Some(least) = signature.get_mut(place) {
                *least = (round << 32 | hash & 0xFFFF_FFFF).min(*least);
            }
        };
        // The second half of the rounds fills what chance has left empty, place by place.
        match (round as usize).checked_sub(places) {
            Some(place) => shingles.iter().for_each(|shingle| put(place, mix(shingle ^ salt))),
            None => shingles.iter().for_each(|shingle| {
                let hash = mix(shingle ^ salt);
                put((((hash >> 32) * places as u64) >> 32) as usize, hash);
            }),
        }
        if !signature.contains(&EMPTY) {
            return;
        }
    }
}

/// Stafford's variant 13 of the MurmurHash3 finaliser, as SplitMix64 has it (Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[inline]
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ hash >> 31
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
