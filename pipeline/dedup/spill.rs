//! Band hashes on disk, by ranges of the hash: written once, then read back range by range and sorted,
//! so that memory is that of one range.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::error::DedupError;

/// Ranges that hashes are cut into at first, and those that a range too large for memory is cut into.
const FIRST_BITS: u32 = 8;
const NEXT_BITS: u32 = 4;
/// Bytes of a record, and records that are written at once.
const RECORD: usize = 12;
const BLOCK: usize = 256;

/// A band hash, and the place of the row that has it.
pub type Record = (u64, u32);

/// Records by ranges of their hashes, in files without a name: they are gone when the process is.
pub struct Spill {
    folder: PathBuf,
    /// Bits of the hash that were used up before, and that are used here.
    used: u32,
    bits: u32,
    ranges: Vec<Mutex<Range>>,
}

#[derive(Default)]
struct Range {
    file: Option<File>,
    records: u64,
}

/// Records of one thread on their way into a [`Spill`].
pub struct Sink<'a> {
    spill: &'a Spill,
    pending: Vec<Vec<u8>>,
}

impl Spill {
    /// An empty one; files go to `folder`.
    pub fn new(folder: &Path) -> Self {
        Spill::cut(folder, 0, FIRST_BITS)
    }

    fn cut(folder: &Path, used: u32, bits: u32) -> Self {
        let ranges = (0..1u32 << bits).map(|_| Mutex::default()).collect();
        Spill { folder: folder.to_path_buf(), used, bits, ranges }
    }

    /// How many ranges there are.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// A place for the records of one thread.
    pub fn sink(&self) -> Sink<'_> {
        Sink { spill: self, pending: vec![Vec::new(); self.ranges.len()] }
    }

    /// Calls `group` with the rows of each hash of a range that at least two rows have, the smallest
    /// first; `memory` is the most bytes of records held at once. Rows of a hash come in ascending
    /// order, unless there are too many of them: then the smallest comes first, again and again.
    ///
    /// # Errors
    /// What the file system says.
    pub fn groups(
        &self,
        range: usize,
        memory: usize,
        group: &mut dyn FnMut(&[Record]),
    ) -> Result<(), DedupError> {
        let Some(range) = self.ranges.get(range) else { return Ok(()) };
        let taken = std::mem::take(&mut *range.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(file) = taken.file else { return Ok(()) };
        let fits = taken.records.saturating_mul(size_of::<Record>() as u64) <= memory as u64;
        if fits {
            let mut records = Vec::with_capacity(taken.records as usize);
            self.read(file, |block| records.extend_from_slice(block))?;
            records.sort_unstable();
            records.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1).for_each(group);
            return Ok(());
        }
        let used = self.used + self.bits;
        if used >= u64::BITS {
            return self.one_hash(file, group);
        }
        let next = Spill::cut(&self.folder, used, NEXT_BITS);
        let mut sink = next.sink();
        let mut failed = Ok(());
        self.read(file, |block| {
            if failed.is_ok() {
                failed = block.iter().try_for_each(|record| sink.push(*record));
            }
        })?;
        failed?;
        sink.finish()?;
        (0..next.ranges()).try_for_each(|range| next.groups(range, memory, group))
    }

    /// A range of one hash, however many rows have it.
    fn one_hash(&self, mut file: File, group: &mut dyn FnMut(&[Record])) -> Result<(), DedupError> {
        let mut first = (u64::MAX, u32::MAX);
        let again = file.try_clone().map_err(|e| DedupError::spill(&self.folder, e))?;
        self.read(again, |block| first = block.iter().copied().fold(first, Record::min))?;
        file.rewind().map_err(|e| DedupError::spill(&self.folder, e))?;
        self.read(file, |block| {
            for record in block.iter().filter(|record| **record != first) {
                group(&[first, *record]);
            }
        })
    }

    fn read(&self, mut file: File, mut take: impl FnMut(&[Record])) -> Result<(), DedupError> {
        let wrap = |e| DedupError::spill(&self.folder, e);
        file.seek(SeekFrom::Start(0)).map_err(wrap)?;
        let mut bytes = vec![0; RECORD * 4096];
        let mut records = Vec::with_capacity(4096);
        loop {
            let mut filled = 0;
            while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match file.read(rest) {
                    Ok(0) => break,
                    Ok(more) => filled += more,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(wrap(e)),
                }
            }
            let (whole, rest) = bytes.get(..filled).unwrap_or_default().as_chunks::<RECORD>();
            if !rest.is_empty() {
                return Err(wrap(std::io::ErrorKind::UnexpectedEof.into()));
            }
            if whole.is_empty() {
                return Ok(());
            }
            records.clear();
            records.extend(whole.iter().filter_map(|record| {
                let (hash, place) = (record.first_chunk()?, record.last_chunk()?);
                Some((u64::from_le_bytes(*hash), u32::from_le_bytes(*place)))
            }));
            take(&records);
        }
    }

    fn append(&self, range: usize, bytes: &[u8]) -> Result<(), DedupError> {
        let Some(range) = self.ranges.get(range) else { return Ok(()) };
        let wrap = |e| DedupError::spill(&self.folder, e);
        let mut range = range.lock().unwrap_or_else(PoisonError::into_inner);
        if range.file.is_none() {
            range.file = Some(tempfile::tempfile_in(&self.folder).map_err(wrap)?);
        }
        if let Some(file) = &mut range.file {
            file.write_all(bytes).map_err(wrap)?;
        }
        range.records += (bytes.len() / RECORD) as u64;
        Ok(())
    }
}

impl Sink<'_> {
    /// Takes a record.
    ///
    /// # Errors
    /// What the file system says.
    pub fn push(&mut self, (hash, row): Record) -> Result<(), DedupError> {
        let range = (hash << self.spill.used >> (u64::BITS - self.spill.bits)) as usize;
        let Some(pending) = self.pending.get_mut(range) else { return Ok(()) };
        pending.extend_from_slice(&hash.to_le_bytes());
        pending.extend_from_slice(&row.to_le_bytes());
        if pending.len() >= RECORD * BLOCK {
            self.spill.append(range, pending)?;
            pending.clear();
        }
        Ok(())
    }

    /// Writes what is pending.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(self) -> Result<(), DedupError> {
        for (range, pending) in self.pending.iter().enumerate().filter(|(_, pending)| !pending.is_empty()) {
            self.spill.append(range, pending)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Pairs (first of its hash, another row of it), whatever the groups they came in.
    fn pairs(records: &[Record], memory: usize) -> BTreeSet<(u32, u32)> {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::new(folder.path());
        let mut sink = spill.sink();
        records.iter().for_each(|record| sink.push(*record).unwrap());
        sink.finish().unwrap();
        let mut found = BTreeSet::new();
        for range in 0..spill.ranges() {
            spill
                .groups(range, memory, &mut |group| {
                    found.extend(group.iter().skip(1).map(|other| (group[0].1, other.1)));
                })
                .unwrap();
        }
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "files have no name");
        found
    }

    proptest! {
        #[test]
        fn rows_of_one_hash_are_grouped_whatever_memory_there_is(
            hashes in prop::collection::vec(0u64..40, 1..400),
            memory in 16usize..2000,
        ) {
            // Hashes that differ in their first bits, in their last ones, or not at all.
            let spread = |n: u64| if n < 20 { n << 59 | n } else { n };
            let records: Vec<Record> =
                hashes.iter().enumerate().map(|(row, hash)| (spread(*hash), row as u32)).collect();
            let mut rows: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
            records.iter().for_each(|(hash, row)| rows.entry(*hash).or_default().push(*row));
            let expected: BTreeSet<(u32, u32)> =
                rows.values().flat_map(|rows| rows[1..].iter().map(|row| (rows[0], *row))).collect();
            prop_assert_eq!(pairs(&records, memory), expected);
        }
    }
}
