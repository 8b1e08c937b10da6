//! The blocklist file: its header, its layout, and what can be wrong with one.
//!
//! All numbers are little-endian. A file is
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic `PTBLKLST` |
//! | 4 | format version |
//! | 4 | number of sections |
//! | 8 | length of the file |
//! | 16 each | offset and length of each section |
//! | … | the sections, each at a multiple of 8: the header as JSON; four tables (n-grams, heads of short items, whole messages, seeds of near copies) of sorted keys, record offsets, records and directory; four prefilters (n-grams, blocks of n-grams, runs of four words, whole messages); texts; near texts; a byte and a weight for each of their words; items; item ids |
//! | 16 | XXH3-128 of all bytes before |
//!
//! It holds hashes, counts and ids, and no text of a benchmark. Same items, same bytes.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::benchmark::BenchmarkMeta;

/// Version of the layout that this crate writes, and the only one that it reads.
///
/// Version 2 hashes words with [`crate::text::hash_word`] and grams with one mixing step less than
/// version 1, and adds what near copies are found by. Version 3 says why an item is not protected, and by
/// which definition items were read. Version 4 makes the keys of runs of four words without a multiplication.
pub const FORMAT_VERSION: u32 = 4;

/// What a blocklist says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Words of an n-gram.
    pub ngram: u32,
    /// Normaliser by which the words were made.
    pub normaliser: String,
    /// The benchmarks, in the order in which they were added.
    pub benchmarks: Vec<BenchmarkEntry>,
    /// The sample of clean text that frequent grams were taken from, if one was given.
    pub background: Option<Background>,
}

/// A sample of clean text: what stands in many of its texts is no evidence of a leak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// Texts in the sample.
    pub rows: u64,
    /// A gram that stands in this many of them is weak.
    pub least: u32,
    /// `sha256:` and 64 hex digits, of the texts in their order, a zero byte after each.
    pub digest: String,
    /// n-grams of the benchmarks that are weak because of the sample.
    pub weak_grams: u64,
}

/// A benchmark in a blocklist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchmarkEntry {
    /// Where it came from.
    pub meta: BenchmarkMeta,
    /// How many of its items are protected, and how.
    pub coverage: Coverage,
}

/// Items of a benchmark, counted by the rule that drops a row for holding their question: `by_ngram`,
/// `by_short_item` and `not_protected` add up to `items`; `by_near_copy` counts items of the first two
/// once more, `with_option` and `boilerplate` some of the third.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// All items.
    pub items: u64,
    /// Items with at least one n-gram that drops a row alone.
    pub by_ngram: u64,
    /// Items that are matched whole only.
    pub by_short_item: u64,
    /// Items that are also found by copies with changes.
    pub by_near_copy: u64,
    /// Items whose question no rule can match without dropping clean rows.
    pub not_protected: u64,
    /// Those of them that are found with one of their options right behind the question.
    pub with_option: u64,
    /// Those of them that several unrelated items, or clean text, hold whole; the rest has too few words.
    pub boilerplate: u64,
}

/// What can go wrong with a blocklist, in building or in loading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlocklistError {
    /// n is out of range.
    #[error("an n-gram has {min} to {max} words, not `{ngram}`")]
    NgramRange {
        /// The n asked for.
        ngram: usize,
        /// Least n.
        min: usize,
        /// Greatest n.
        max: usize,
    },
    /// There is nothing to build from.
    #[error("a blocklist needs at least one benchmark")]
    NoBenchmark,
    /// A benchmark without items.
    #[error("benchmark `{benchmark}` has no items")]
    EmptyBenchmark {
        /// Its name.
        benchmark: String,
    },
    /// Two benchmarks of one name.
    #[error("benchmark `{benchmark}` is listed twice")]
    DuplicateBenchmark {
        /// Its name.
        benchmark: String,
    },
    /// A canary that ordinary text would hold.
    #[error("canary `{canary}` of benchmark `{benchmark}` has {words} words, at least {min} are needed")]
    CanaryTooShort {
        /// Name of the benchmark.
        benchmark: String,
        /// The canary string.
        canary: String,
        /// Its words.
        words: usize,
        /// Least number of words.
        min: usize,
    },
    /// More than the offsets of the format can address.
    #[error("the blocklist needs {found} {what}, the format holds at most {max}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much was asked for.
        found: u64,
        /// How much fits.
        max: u64,
    },
    /// The header could not be written or read as JSON.
    #[error("{blocklist}: header is not valid")]
    Header {
        /// Path of the blocklist.
        blocklist: String,
        /// Cause.
        source: serde_json::Error,
    },
    /// The file could not be read.
    #[error("{blocklist}: cannot be read")]
    Read {
        /// Path of the blocklist.
        blocklist: String,
        /// Cause.
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{blocklist}: is no blocklist")]
    NotABlocklist {
        /// Path of the blocklist.
        blocklist: String,
    },
    /// The file has a layout of another version.
    #[error("{blocklist}: has format version `{found}`, this potable reads version `{expected}`")]
    FormatVersion {
        /// Path of the blocklist.
        blocklist: String,
        /// Version of the file.
        found: u32,
        /// Version that this crate reads.
        expected: u32,
    },
    /// The words were made by another normaliser.
    #[error("{blocklist}: was built with normaliser `{found}`, this potable uses `{expected}`")]
    Normaliser {
        /// Path of the blocklist.
        blocklist: String,
        /// Normaliser of the file.
        found: String,
        /// Normaliser of this crate.
        expected: &'static str,
    },
    /// The file ends early.
    #[error("{blocklist}: is truncated: {found} of {expected} bytes")]
    Truncated {
        /// Path of the blocklist.
        blocklist: String,
        /// Bytes in the file.
        found: u64,
        /// Bytes that it says it has, or that every blocklist has.
        expected: u64,
    },
    /// The content is not what was written.
    #[error(
        "{blocklist}: was changed after it was written: its content has checksum `{found}`, its end says `{expected}`"
    )]
    Damaged {
        /// Path of the blocklist.
        blocklist: String,
        /// Checksum of the content, hex.
        found: String,
        /// Checksum in the last bytes, hex.
        expected: String,
    },
    /// The sections contradict each other though the checksum is right.
    #[error("{blocklist}: section `{section}` is not valid")]
    Section {
        /// Path of the blocklist.
        blocklist: String,
        /// Number of the section.
        section: usize,
    },
    /// The blocklist was built for another n.
    #[error("{blocklist}: was built with n = {built}, n = {wanted} is asked for")]
    NgramMismatch {
        /// Path of the blocklist.
        blocklist: String,
        /// n of the blocklist.
        built: u32,
        /// n that was asked for.
        wanted: u32,
    },
    /// A blocklist is to be extended, and something that it was built from is another now.
    #[error("{blocklist}: was built with {what} `{built}`, which is now `{now}`")]
    Changed {
        /// Path of the blocklist.
        blocklist: String,
        /// What is another.
        what: String,
        /// What it was.
        built: String,
        /// What it is.
        now: String,
    },
}

impl BlocklistError {
    /// The way out, as the text of a `hint:` line; `None` if the message says it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NgramMismatch { wanted, built, .. } => {
                format!("build it again with `--ngram {wanted}`, or ask for n = {built} in the recipe")
            }
            Self::FormatVersion { .. } | Self::Normaliser { .. } => {
                "build it again with `potable blocklist build`, or use the potable that wrote it".to_owned()
            }
            Self::Truncated { .. } | Self::Damaged { .. } | Self::Section { .. } => {
                "copy it again from its source, or build it again with `potable blocklist build`".to_owned()
            }
            Self::Changed { .. } => {
                "a blocklist is extended with what it was built from: build it anew with `potable blocklist build`"
                    .to_owned()
            }
            Self::CanaryTooShort { .. } => "give the whole canary string, identifier and all".to_owned(),
            Self::EmptyBenchmark { .. } => {
                "check the split, the files and the columns of its definition".to_owned()
            }
            _ => return None,
        })
    }
}

pub(crate) const MAGIC: &[u8; 8] = b"PTBLKLST";
/// Bytes of the checksum at the end.
pub(crate) const CHECKSUM: usize = 16;
/// Sections of a table: keys, offsets, records, directory.
pub(crate) const TABLE_SECTIONS: usize = 4;
pub(crate) const TABLES: usize = 4;
pub(crate) const FILTERS: usize = 4;
pub(crate) const HEADER_SECTION: usize = 0;
pub(crate) const FIRST_TABLE: usize = 1;
pub(crate) const FIRST_FILTER: usize = FIRST_TABLE + TABLES * TABLE_SECTIONS;
pub(crate) const TEXTS: usize = FIRST_FILTER + FILTERS;
pub(crate) const NEAR: usize = TEXTS + 1;
pub(crate) const SKETCH: usize = NEAR + 1;
pub(crate) const ITEMS: usize = SKETCH + 1;
pub(crate) const IDS: usize = ITEMS + 1;
pub(crate) const SECTIONS: usize = IDS + 1;
/// Bytes before the first section.
pub(crate) const PREFIX: usize = 24 + 16 * SECTIONS;

/// Set in the record offset of a key that drops nothing alone.
pub(crate) const WEAK_KEY: u32 = 1 << 31;
/// A text that drops nothing alone.
pub(crate) const WEAK_TEXT: u32 = 1;
/// A text that is a canary.
pub(crate) const CANARY_TEXT: u32 = 2;

/// What is written: rows in their final order.
pub(crate) struct Content {
    pub(crate) header: Header,
    pub(crate) tables: [TableRows; TABLES],
    /// Keys of the runs of words by which n-grams are looked for.
    pub(crate) blocks: Vec<u64>,
    pub(crate) texts: Vec<TextRow>,
    pub(crate) near: Vec<NearRow>,
    pub(crate) sketch: Vec<Sketch>,
    pub(crate) items: Vec<ItemRow>,
}

/// A table under construction: `offsets[i]..offsets[i + 1]` are the records of `keys[i]`.
#[derive(Default)]
pub(crate) struct TableRows {
    pub(crate) keys: Vec<u64>,
    pub(crate) offsets: Vec<u32>,
    pub(crate) records: Vec<Record>,
}

/// A text and the position of its word at which a key begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) text: u32,
    pub(crate) position: u32,
}

/// A text that rules look for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextRow {
    /// Key of all its words.
    pub(crate) key: u64,
    pub(crate) item: u32,
    pub(crate) words: u32,
    pub(crate) flags: u32,
}

/// A text of which near copies are looked for; its words are a range of the sketches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NearRow {
    pub(crate) item: u32,
    pub(crate) start: u32,
    pub(crate) words: u32,
    pub(crate) seeds: u32,
}

/// A word of a near text: one byte of its hash, and its weight. One byte tells enough, since words
/// are compared in runs; a whole hash would give the text away to anyone with a dictionary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sketch {
    pub(crate) word: u8,
    /// At most 127, and [`HOLLOW`].
    pub(crate) weight: u8,
}

/// Set in the weight of a number, a single letter or a TeX command.
pub(crate) const HOLLOW: u8 = 1 << 7;

/// The byte of a word's hash that a sketch keeps.
#[inline]
pub(crate) fn sketch_of(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// An item, or a canary.
pub(crate) struct ItemRow {
    pub(crate) benchmark: u32,
    pub(crate) protection: u32,
    pub(crate) id: String,
}

/// The bytes of a blocklist.
pub(crate) fn encode(content: &Content) -> Result<Vec<u8>, BlocklistError> {
    let header = serde_json::to_vec(&content.header)
        .map_err(|source| BlocklistError::Header { blocklist: "new blocklist".into(), source })?;
    let mut file = File { bytes: vec![0; PREFIX], sections: Vec::with_capacity(SECTIONS) };
    file.section(header);
    for table in &content.tables {
        file.section(table.keys.iter().flat_map(|key| key.to_le_bytes()));
        file.section(table.offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        let records = table.records.iter();
        file.section(records.flat_map(|r| two(r.text, r.position)));
        file.section(directory(&table.keys).into_iter().flat_map(u32::to_le_bytes));
    }
    let [grams, heads, messages, seeds] = &content.tables;
    for keys in [&[&grams.keys[..]][..], &[&content.blocks], &[&heads.keys, &seeds.keys], &[&messages.keys]] {
        file.section(prefilter(keys).into_iter().flat_map(u64::to_le_bytes));
    }
    file.section(content.texts.iter().flat_map(|text| {
        let (key, item, rest) = (text.key.to_le_bytes(), two(text.item, text.words), two(text.flags, 0));
        key.into_iter().chain(item).chain(rest)
    }));
    let near = content.near.iter();
    file.section(
        near.flat_map(|near| two(near.item, near.start).into_iter().chain(two(near.words, near.seeds))),
    );
    file.section(content.sketch.iter().flat_map(|sketch| [sketch.word, sketch.weight]));
    let mut ids = Vec::new();
    let mut items = Vec::new();
    for item in &content.items {
        let start = small("bytes of item ids", ids.len())?;
        ids.extend_from_slice(item.id.as_bytes());
        items.extend(two(item.benchmark, item.protection));
        items.extend(two(start, small("bytes of item ids", ids.len())?));
    }
    file.section(items);
    file.section(ids);
    Ok(file.close())
}

/// `n` as a 32-bit number of the format.
pub(crate) fn small(what: &'static str, n: usize) -> Result<u32, BlocklistError> {
    match u32::try_from(n) {
        Ok(n) if n < WEAK_KEY => Ok(n),
        _ => Err(BlocklistError::TooLarge { what, found: n as u64, max: u64::from(WEAK_KEY) - 1 }),
    }
}

/// The sections of `bytes`, after magic, version, length and checksum were found right.
pub(crate) fn open(bytes: &[u8], blocklist: &str) -> Result<Vec<Range<usize>>, BlocklistError> {
    let blocklist = || blocklist.to_owned();
    if !bytes.starts_with(MAGIC) {
        return Err(BlocklistError::NotABlocklist { blocklist: blocklist() });
    }
    let found = bytes.len() as u64;
    let least = (PREFIX + CHECKSUM) as u64;
    if found < 12 {
        return Err(BlocklistError::Truncated { blocklist: blocklist(), found, expected: least });
    }
    let version = u32_at(bytes, 8);
    if version != FORMAT_VERSION {
        let expected = FORMAT_VERSION;
        return Err(BlocklistError::FormatVersion { blocklist: blocklist(), found: version, expected });
    }
    let expected = if found < 24 { least } else { u64_at(bytes, 16).max(least) };
    if found < expected {
        return Err(BlocklistError::Truncated { blocklist: blocklist(), found, expected });
    }
    let (content, end) = bytes.split_at(bytes.len() - CHECKSUM);
    let (sum, said) = (xxh3_128(content).to_le_bytes(), end);
    if sum != said {
        let (found, expected) = (hex(&sum), hex(said));
        return Err(BlocklistError::Damaged { blocklist: blocklist(), found, expected });
    }
    sections(bytes, content.len()).map_err(|section| {
        let blocklist = blocklist();
        BlocklistError::Section { blocklist, section }
    })
}

/// The places of the sections, or the number of the first that is not inside `content` bytes.
fn sections(bytes: &[u8], content: usize) -> Result<Vec<Range<usize>>, usize> {
    let place = |at| usize::try_from(u64_at(bytes, at)).unwrap_or(usize::MAX);
    (0..SECTIONS)
        .map(|section| {
            let (start, length) = (place(24 + 16 * section), place(32 + 16 * section));
            let end = start.checked_add(length).filter(|&end| end <= content).ok_or(section)?;
            Ok(start..end)
        })
        .collect()
}

/// Bits of the key that choose an entry of the directory of `keys` keys.
fn directory_bits(keys: usize) -> u32 {
    (keys / 8).max(1).ilog2()
}

/// For each value of the top bits of a key, the first key with them; one entry more at the end.
fn directory(keys: &[u64]) -> Vec<u32> {
    let bits = directory_bits(keys.len());
    let mut entries = Vec::with_capacity((1 << bits) + 1);
    let mut at = 0;
    for bucket in 0..1u64 << bits {
        while keys.get(at).is_some_and(|&key| bucket_of(key, bits) < bucket) {
            at += 1;
        }
        entries.push(at as u32);
    }
    entries.push(keys.len() as u32);
    entries
}

pub(crate) fn bucket_of(key: u64, bits: u32) -> u64 {
    key.checked_shr(64 - bits).unwrap_or(0)
}

/// Most words of a prefilter: 4 MiB of them.
const MOST_PREFILTER_WORDS: usize = 1 << 19;

/// A blocked bloom filter: four bits of one 64-bit word a key, 12 to 24 bits a key until it is as
/// large as a second-level cache.
fn prefilter(groups: &[&[u64]]) -> Vec<u64> {
    let keys: usize = groups.iter().map(|keys| keys.len()).sum();
    let words = (keys * 12).div_ceil(64).next_power_of_two().min(MOST_PREFILTER_WORDS);
    let mut filter = vec![0u64; words];
    for &key in groups.iter().copied().flatten() {
        let bit = |shift: u32| 1u64 << (key >> shift & 63);
        if let Some(word) = filter.get_mut(prefilter_word(key, words)) {
            *word |= bit(0) | bit(6) | bit(12) | bit(18);
        }
    }
    filter
}

/// The word of a prefilter of `words` words (a power of two) in which `key` is; the lowest 24 bits of the
/// key say which of its bits are.
#[inline(always)]
pub(crate) fn prefilter_word(key: u64, words: usize) -> usize {
    (key >> 24) as usize & (words.wrapping_sub(1))
}

fn two(a: u32, b: u32) -> [u8; 8] {
    (u64::from(a) | u64::from(b) << 32).to_le_bytes()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.copied().map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(|rest| rest.first_chunk());
    eight.copied().map_or(0, u64::from_le_bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

struct File {
    bytes: Vec<u8>,
    sections: Vec<(u64, u64)>,
}

impl File {
    fn section(&mut self, content: impl IntoIterator<Item = u8>) {
        let start = self.bytes.len();
        self.bytes.extend(content);
        self.sections.push((start as u64, (self.bytes.len() - start) as u64));
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// Fills in what stands before the sections, and adds the checksum.
    fn close(mut self) -> Vec<u8> {
        let mut prefix = Vec::with_capacity(PREFIX);
        prefix.extend_from_slice(MAGIC);
        prefix.extend(FORMAT_VERSION.to_le_bytes());
        prefix.extend((SECTIONS as u32).to_le_bytes());
        prefix.extend(((self.bytes.len() + CHECKSUM) as u64).to_le_bytes());
        for (offset, length) in self.sections {
            prefix.extend(offset.to_le_bytes());
            prefix.extend(length.to_le_bytes());
        }
        self.bytes.splice(..PREFIX, prefix);
        let sum = xxh3_128(&self.bytes).to_le_bytes();
        self.bytes.extend(sum);
        self.bytes
    }
}
