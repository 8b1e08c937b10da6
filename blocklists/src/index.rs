//! A blocklist as it is used: mapped or in memory, verified, and asked for keys.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use memmap2::Mmap;
use potable_manifests::Digest;

use crate::format::{self, BlocklistError, Header, NearRow, Record, TextRow};
use crate::gram;
use crate::text::NORMALISER;

/// A verified blocklist. Cheap to load: the file is mapped, and threads and processes share it.
#[derive(Debug)]
pub struct Blocklist {
    bytes: Bytes,
    name: String,
    header: Header,
    sections: Vec<Range<usize>>,
    digest: OnceLock<Digest>,
}

/// The strongest rule that drops a row for holding the question of an item, or why none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// At least one of its n-grams drops a row alone.
    NGram,
    /// It is matched whole only.
    ShortItem,
    /// Its question is boilerplate or too short, and drops a row only with one of its options right
    /// behind it.
    WithOption,
    /// Several unrelated items, or clean text, hold all of it.
    Boilerplate,
    /// It has too few words.
    TooShort,
}

impl Protection {
    /// Name in tables and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::NGram => "ngram",
            Self::ShortItem => "short-item",
            Self::WithOption => "with-option",
            Self::Boilerplate => "boilerplate",
            Self::TooShort => "too-short",
        }
    }

    /// Whether a rule drops a row for holding the question.
    pub fn is_protected(self) -> bool {
        matches!(self, Self::NGram | Self::ShortItem)
    }
}

impl Blocklist {
    /// Maps the blocklist at `path` and verifies it.
    ///
    /// # Errors
    /// [`BlocklistError`] if the file cannot be read, is no blocklist, has another format version
    /// or normaliser, is truncated, or was changed after it was written.
    pub fn load(path: &Path) -> Result<Self, BlocklistError> {
        let name = path.display().to_string();
        match map(path) {
            Ok(map) => Self::verified(Bytes::Mapped(map), name),
            Err(source) => Err(BlocklistError::Read { blocklist: name, source }),
        }
    }

    /// Whether the file at `path` begins as a blocklist does.
    pub fn is_one(path: &Path) -> bool {
        let mut magic = [0; format::MAGIC.len()];
        let read = File::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut magic));
        read.is_ok() && magic == *format::MAGIC
    }

    /// A blocklist from the bytes of a blocklist file.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, BlocklistError> {
        Self::verified(Bytes::Owned(bytes), "blocklist".to_owned())
    }

    /// The bytes of the file.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get()
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        out.write_all(self.as_bytes())
    }

    /// `sha256:` and 64 hex digits, of the whole file. Computed once, on first use.
    pub fn digest(&self) -> String {
        let digest = self.digest.get_or_init(|| Digest::of(self.as_bytes()));
        digest.as_str().to_owned()
    }

    /// What the blocklist says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Fails unless the blocklist was built for n-grams of `ngram` words.
    ///
    /// # Errors
    /// [`BlocklistError::NgramMismatch`] with both n; its hint says how to go on.
    pub fn require(&self, ngram: u32) -> Result<(), BlocklistError> {
        if self.header.ngram == ngram {
            return Ok(());
        }
        let (blocklist, built) = (self.name.clone(), self.header.ngram);
        Err(BlocklistError::NgramMismatch { blocklist, built, wanted: ngram })
    }

    /// Path of the file, or what it is called in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Name of a benchmark by its number; empty for a number that is none.
    pub fn benchmark_name(&self, benchmark: u32) -> &str {
        self.header.benchmarks.get(benchmark as usize).map_or("", |entry| &entry.meta.name)
    }

    /// Whether the text of a benchmark may never be written anywhere; true for a number that is
    /// none.
    pub fn is_sensitive(&self, benchmark: u32) -> bool {
        self.header.benchmarks.get(benchmark as usize).is_none_or(|entry| entry.meta.sensitive)
    }

    /// Number of items, canaries among them.
    pub fn items(&self) -> u32 {
        (self.section(format::ITEMS).len() / 16) as u32
    }

    /// Id of an item by its number; `canary` for a canary, empty for a number that is none.
    pub fn item_id(&self, item: u32) -> &str {
        let place = |field| self.item_field(item, field) as usize;
        let id = self.section(format::IDS).get(place(2)..place(3)).unwrap_or_default();
        std::str::from_utf8(id).unwrap_or_default()
    }

    /// Number of the benchmark of an item.
    pub fn item_benchmark(&self, item: u32) -> u32 {
        self.item_field(item, 0)
    }

    /// How an item is protected, or why it is not.
    pub fn item_protection(&self, item: u32) -> Protection {
        match self.item_field(item, 1) {
            0 => Protection::NGram,
            1 => Protection::ShortItem,
            2 => Protection::WithOption,
            3 => Protection::Boilerplate,
            _ => Protection::TooShort,
        }
    }

    /// Number of keys of each table: n-grams, heads of short items, whole messages, seeds of near
    /// copies.
    pub fn key_counts(&self) -> [usize; 4] {
        [GRAMS, HEADS, MESSAGES, SEEDS].map(|table| self.table(table).keys.len())
    }

    fn verified(bytes: Bytes, name: String) -> Result<Self, BlocklistError> {
        let sections = format::open(bytes.get(), &name)?;
        let header = sections.get(format::HEADER_SECTION).cloned().unwrap_or_default();
        let header = bytes.get().get(header).unwrap_or_default();
        let header: Header = serde_json::from_slice(header)
            .map_err(|source| BlocklistError::Header { blocklist: name.clone(), source })?;
        if header.normaliser != NORMALISER {
            let (found, expected) = (header.normaliser, NORMALISER);
            return Err(BlocklistError::Normaliser { blocklist: name, found, expected });
        }
        let loaded = Self { bytes, name, header, sections, digest: OnceLock::new() };
        loaded.check_tables()?;
        Ok(loaded)
    }

    /// Refuses tables whose parts do not fit each other.
    fn check_tables(&self) -> Result<(), BlocklistError> {
        for table in 0..format::TABLES {
            let view = self.table(table);
            let fits = view.offsets.len() == view.keys.len() + 1
                && (view.directory.len() - usize::from(!view.directory.is_empty())).is_power_of_two();
            if !fits {
                let section = format::FIRST_TABLE + table * format::TABLE_SECTIONS;
                return Err(BlocklistError::Section { blocklist: self.name.clone(), section });
            }
        }
        for filter in 0..format::FILTERS {
            if !self.filter(filter).words.len().is_power_of_two() {
                let section = format::FIRST_FILTER + filter;
                return Err(BlocklistError::Section { blocklist: self.name.clone(), section });
            }
        }
        Ok(())
    }

    fn section(&self, section: usize) -> &[u8] {
        let place = self.sections.get(section).cloned().unwrap_or_default();
        self.as_bytes().get(place).unwrap_or_default()
    }

    fn item_field(&self, item: u32, field: usize) -> u32 {
        if item >= self.items() {
            return u32::MAX;
        }
        format::u32_at(self.section(format::ITEMS), item as usize * 16 + field * 4)
    }

    /// One of the tables.
    pub(crate) fn table(&self, table: usize) -> Table<'_> {
        let part = |part| self.section(format::FIRST_TABLE + table * format::TABLE_SECTIONS + part);
        let directory = part(3).as_chunks().0;
        Table {
            keys: part(0).as_chunks().0,
            offsets: part(1).as_chunks().0,
            records: part(2).as_chunks().0,
            directory,
            bits: directory.len().saturating_sub(1).max(1).ilog2(),
        }
    }

    /// One of the prefilters.
    pub(crate) fn filter(&self, filter: usize) -> Filter<'_> {
        Filter { words: self.section(format::FIRST_FILTER + filter).as_chunks().0 }
    }

    /// A text of which near copies are looked for.
    pub(crate) fn near(&self, near: u32) -> NearRow {
        let row = self.section(format::NEAR).as_chunks::<16>().0.get(near as usize);
        let row = row.map_or(&[][..], |row| &row[..]);
        let field = |at| format::u32_at(row, at);
        NearRow { item: field(0), start: field(4), words: field(8), seeds: field(12) }
    }

    /// The words of a near text: a byte of the hash and a weight each.
    pub(crate) fn sketch(&self, near: &NearRow) -> &[[u8; 2]] {
        let all = self.section(format::SKETCH).as_chunks::<2>().0;
        let start = near.start as usize;
        all.get(start..start + near.words as usize).unwrap_or_default()
    }

    pub(crate) fn text(&self, text: u32) -> TextRow {
        let row = self.section(format::TEXTS).as_chunks::<24>().0.get(text as usize);
        let row = row.map_or(&[][..], |row| &row[..]);
        TextRow {
            key: format::u64_at(row, 0),
            item: format::u32_at(row, 8),
            words: format::u32_at(row, 12),
            flags: format::u32_at(row, 16),
        }
    }
}

/// Numbers of the tables.
pub(crate) const GRAMS: usize = 0;
pub(crate) const HEADS: usize = 1;
pub(crate) const MESSAGES: usize = 2;
pub(crate) const SEEDS: usize = 3;

/// Numbers of the prefilters: n-grams; blocks, one of which every n-gram of a text holds; the
/// runs of four words by which short items and near copies are found; whole messages.
pub(crate) const GRAM_FILTER: usize = 0;
pub(crate) const BLOCK_FILTER: usize = 1;
pub(crate) const QUAD_FILTER: usize = 2;
pub(crate) const MESSAGE_FILTER: usize = 3;

/// A prefilter in the bytes of a blocklist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter<'b> {
    words: &'b [[u8; 8]],
}

impl Filter<'_> {
    /// False for nearly all keys that it was not made of, true for all others.
    #[inline(always)]
    pub(crate) fn may_hold(&self, key: u64) -> bool {
        let Some(&word) = self.words.get(format::prefilter_word(key, self.words.len())) else { return false };
        let word = u64::from_le_bytes(word);
        let bit = |shift: u32| word >> (key >> shift & 63) & 1;
        // two bits tell most of them
        bit(0) & bit(6) != 0 && bit(12) & bit(18) != 0
    }

    /// Adds to `found` the places of the runs of four words that the filter may hold.
    #[inline(always)]
    pub(crate) fn runs(&self, hashes: &[u64], found: &mut Vec<u32>) {
        self.places(hashes.array_windows().map(gram::quad), found);
    }

    /// Asks for the cache line that `key` is in.
    #[inline(always)]
    fn prefetch(&self, key: u64) {
        if let Some(word) = self.words.get(format::prefilter_word(key, self.words.len())) {
            #[cfg(target_arch = "x86_64")]
            #[expect(unsafe_code, reason = "there is no safe way to ask for a cache line")]
            // SAFETY: a prefetch reads nothing, and SSE is part of every x86-64 processor.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(word.as_ptr().cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = word;
        }
    }

    /// Adds to `found` the numbers of the `keys` that the filter may hold. Keys are made many at a
    /// time and then looked up, so that the processor waits for many cache lines at once.
    #[inline(always)]
    pub(crate) fn places(&self, mut keys: impl Iterator<Item = u64>, found: &mut Vec<u32>) {
        let mut some = [0; 128];
        let mut before = 0;
        loop {
            let mut filled = 0;
            for (room, key) in some.iter_mut().zip(&mut keys) {
                *room = key;
                filled += 1;
                self.prefetch(key);
            }
            for (at, &key) in some.iter().take(filled).enumerate() {
                if self.may_hold(key) {
                    found.push(before + at as u32);
                }
            }
            before += filled as u32;
            if filled < some.len() {
                return;
            }
        }
    }
}

/// A table in the bytes of a blocklist. Reads never panic, whatever the bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'b> {
    keys: &'b [[u8; 8]],
    offsets: &'b [[u8; 4]],
    records: &'b [[u8; 8]],
    directory: &'b [[u8; 4]],
    bits: u32,
}

/// What a table has on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'b> {
    records: &'b [[u8; 8]],
    /// The key drops nothing alone.
    pub(crate) weak: bool,
}

impl<'b> Table<'b> {
    /// The records of `key`.
    pub(crate) fn find(&self, key: u64) -> Option<Found<'b>> {
        let bucket = format::bucket_of(key, self.bits) as usize;
        let bound = |at| self.directory.get(at).map_or(0, |&b| u32::from_le_bytes(b) as usize);
        let (start, end) = (bound(bucket), bound(bucket + 1));
        let keys = self.keys.get(start..end)?;
        let at = start + keys.binary_search_by_key(&key, |&k| u64::from_le_bytes(k)).ok()?;
        let offset = |at| self.offsets.get(at).map_or(0, |&o| u32::from_le_bytes(o));
        let plain = |at| (offset(at) & !format::WEAK_KEY) as usize;
        let records = self.records.get(plain(at)..plain(at + 1))?;
        Some(Found { records, weak: offset(at) & format::WEAK_KEY != 0 })
    }
}

impl<'b> Found<'b> {
    pub(crate) fn records(self) -> impl Iterator<Item = Record> + 'b {
        self.records
            .iter()
            .map(|record| Record { text: format::u32_at(record, 0), position: format::u32_at(record, 4) })
    }
}

enum Bytes {
    Owned(Vec<u8>),
    Mapped(Mmap),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.get().len())
    }
}

#[expect(unsafe_code, reason = "a file can be mapped in no other way")]
fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the map is read only, and blocklists are put in place by a rename, so the mapped
    // bytes do not change under us unless someone writes into a blocklist in use.
    unsafe { Mmap::map(&file) }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
