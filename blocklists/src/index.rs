//! A blocklist as it is used: mapped or in memory, verified, and asked for keys.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use memmap2::Mmap;
use potable_manifests::Digest;

use crate::format::{self, BlocklistError, Header, Record, TextRow};
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

/// The strongest rule that protects an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// At least one of its n-grams drops a row alone.
    NGram,
    /// It is matched whole only.
    ShortItem,
    /// No rule can match it without dropping clean rows.
    None,
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

    /// How an item is protected; the items to list as not protected are those with
    /// [`Protection::None`].
    pub fn item_protection(&self, item: u32) -> Protection {
        match self.item_field(item, 1) {
            0 => Protection::NGram,
            1 => Protection::ShortItem,
            _ => Protection::None,
        }
    }

    /// Number of keys of each table: n-grams, heads of short items, whole messages.
    pub fn key_counts(&self) -> [usize; 3] {
        [0, 1, 2].map(|table| self.table(table).keys.len())
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
        for table in 0..3 {
            let view = self.table(table);
            let fits = view.offsets.len() == view.keys.len() + 1
                && (view.directory.len() - usize::from(!view.directory.is_empty())).is_power_of_two()
                && view.prefilter.len().is_power_of_two();
            if !fits {
                let section = format::FIRST_TABLE + table * format::TABLE_SECTIONS;
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

    /// One of the three tables.
    pub(crate) fn table(&self, table: usize) -> Table<'_> {
        let part = |part| self.section(format::FIRST_TABLE + table * format::TABLE_SECTIONS + part);
        let directory = part(3).as_chunks().0;
        Table {
            keys: part(0).as_chunks().0,
            offsets: part(1).as_chunks().0,
            records: part(2).as_chunks().0,
            directory,
            bits: directory.len().saturating_sub(1).max(1).ilog2(),
            prefilter: part(4).as_chunks().0,
        }
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

/// A table in the bytes of a blocklist. Reads never panic, whatever the bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'b> {
    keys: &'b [[u8; 8]],
    offsets: &'b [[u8; 4]],
    records: &'b [[u8; 8]],
    directory: &'b [[u8; 4]],
    bits: u32,
    prefilter: &'b [[u8; 8]],
}

/// What a table has on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'b> {
    records: &'b [[u8; 8]],
    /// The key drops nothing alone.
    pub(crate) weak: bool,
}

impl<'b> Table<'b> {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// False for nearly all keys that the table does not hold, true for all that it holds.
    #[inline]
    pub(crate) fn may_hold(&self, key: u64) -> bool {
        let (word, bits) = format::prefilter_place(key, self.prefilter.len());
        self.prefilter.get(word).is_some_and(|&word| u64::from_le_bytes(word) & bits == bits)
    }

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
