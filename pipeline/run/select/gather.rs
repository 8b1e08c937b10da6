//! Gather: the samples of all staged files to the rows of each partition that are in the running:
//! those that no other phase took, that fit a pack, and that are no duplicate whatever the caps will be.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use super::candidates::{CandidateWriter, Candidates};
use super::codec::Damaged;
use super::near::NEAR_BYTES;
use super::rows::{Link, Misfit, Rows};
use super::scratch::Scratch;
use super::sort::{Sorted, Sorter};
use super::spill::{Metadata, Spill, Spilled, each_number, put_samples, read_samples};
use super::{SelectCounts, Selecting};
use crate::pack::Packer;
use crate::recipe::file::Exact;
use crate::run::error::RunError;
use crate::run::rows::partition_of;
use crate::source::row::RowId;

/// An overlong row: source, file and row number, then its tokens, big-endian.
pub(super) const OVERLONG_BYTES: usize = 24;

/// All rows in the running, before any cap.
pub struct Gathered<'a> {
    pub(super) selecting: &'a Selecting<'a>,
    pub(super) candidates: Candidates,
    pub(super) counts: Vec<SelectCounts>,
    pub(super) sorting: Scratch,
    pub(super) overlong: Vec<Sorted<OVERLONG_BYTES>>,
    pub(super) near: Vec<Sorted<NEAR_BYTES>>,
}

/// The records of all threads, by partition.
struct Parted {
    scratch: Scratch,
    spilled: Vec<Spilled>,
}

impl Parted {
    fn each(
        &self,
        partition: u32,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        self.spilled.iter().try_for_each(|one| one.each(&self.scratch, partition, visit))
    }
}

impl<'a> Gathered<'a> {
    /// Gathers the samples of staged files. The order of `staged` gives each its index in
    /// [`super::SampleRef::chunk`].
    ///
    /// # Errors
    /// A staged file that is damaged, what the file system says.
    pub fn new<M: Metadata>(selecting: &'a Selecting<'a>, staged: &[M]) -> Result<Self, RunError> {
        let folder = selecting.folder;
        std::fs::create_dir_all(folder).map_err(|e| RunError::write(folder, e))?;
        let samples = spill_samples(selecting, staged)?;
        let excluded = selecting.excluded.map(|keys| spill_keys(selecting, keys)).transpose()?;
        let places: Vec<(u32, u32)> = staged.iter().map(Metadata::place).collect();
        let partitions = selecting.rules.partitions;
        let candidates = Candidates::new(folder, selecting)?;
        let sorting = Scratch::new(folder)?;
        let most = selecting.limits.sort_records;
        let states = each_number(
            partitions as usize,
            selecting.progress,
            || Gathering {
                selecting,
                packer: Packer::new(selecting.rules.pack.clone()),
                counts: vec![SelectCounts::default(); selecting.rules.sources.len()],
                overlong: Sorter::new(&sorting, most),
                writer: candidates.writer(),
            },
            |state, partition| {
                let rows = load(&samples, partition as u32, (&places, folder))?;
                let keys = excluded.as_ref().map_or(Ok(Vec::new()), |keys| load_keys(keys, partition as u32));
                state.partition(partition as u32, rows, &keys?)
            },
        )?;
        let mut counts = vec![SelectCounts::default(); selecting.rules.sources.len()];
        let (mut overlong, mut written) = (Vec::new(), Vec::new());
        for state in states {
            counts.iter_mut().zip(&state.counts).for_each(|(sum, one)| sum.add(one));
            overlong.push(state.overlong.finish());
            written.push(state.writer.finish());
        }
        let candidates = candidates.with(written);
        Ok(Gathered { selecting, candidates, counts, sorting, overlong, near: Vec::new() })
    }

    /// The rows of a partition that near duplicates are looked for among: of equal rows the first one.
    /// In the order of their ids.
    ///
    /// # Errors
    /// What the file system says.
    pub fn firsts(&self, partition: u32) -> Result<Vec<RowId>, RunError> {
        let rows = self.candidates.partition(partition)?;
        let first = |row: &&super::rows::Row| rows.links(row).is_empty();
        Ok(rows.rows.iter().filter(first).map(|row| row.id).collect())
    }
}

/// Reads staged files once and spills their samples by partition.
fn spill_samples<M: Metadata>(selecting: &Selecting, staged: &[M]) -> Result<Parted, RunError> {
    let scratch = Scratch::new(selecting.folder)?;
    let (partitions, most) = (selecting.rules.partitions, selecting.limits.spill_bytes);
    let spills = each_number(
        staged.len(),
        selecting.progress,
        || Spill::new(&scratch, partitions, most),
        |spill, chunk| {
            let Some(file) = staged.get(chunk) else { return Ok(()) };
            file.each(&mut |partition, samples| {
                spill.add(partition, |bytes| put_samples(bytes, chunk as u32, samples))
            })
        },
    )?;
    let spilled = spills.into_iter().map(Spill::finish).collect();
    Ok(Parted { scratch, spilled })
}

/// Parts the sorted keys of another phase, 16 bytes little-endian each, by the partitions of this one.
fn spill_keys(selecting: &Selecting, keys: &Path) -> Result<Parted, RunError> {
    let read_error = |source| RunError::Read { path: keys.to_path_buf(), source };
    let scratch = Scratch::new(selecting.folder)?;
    let rules = selecting.rules;
    let mut spill = Spill::new(&scratch, rules.partitions, selecting.limits.spill_bytes);
    let mut reader = BufReader::new(File::open(keys).map_err(read_error)?);
    let mut key = [0; 16];
    loop {
        match reader.read_exact(&mut key) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => break,
            read => read.map_err(read_error)?,
        }
        let partition = partition_of(u128::from_le_bytes(key), rules.seed, rules.partitions);
        spill.add(partition, |bytes| bytes.extend(key))?;
    }
    let spilled = vec![spill.finish()];
    Ok(Parted { scratch, spilled })
}

/// The keys of a partition, sorted.
fn load_keys(keys: &Parted, partition: u32) -> Result<Vec<u128>, RunError> {
    let mut loaded = Vec::new();
    keys.each(partition, &mut |piece| {
        let (pieces, _) = piece.as_chunks::<16>();
        loaded.extend(pieces.iter().map(|key| u128::from_le_bytes(*key)));
        Ok(())
    })?;
    loaded.sort_unstable();
    Ok(loaded)
}

/// All rows of a partition, in the order of their ids.
fn load(
    samples: &Parted,
    partition: u32,
    (places, folder): (&[(u32, u32)], &Path),
) -> Result<Rows, RunError> {
    let mut rows = Rows::default();
    samples.each(partition, &mut |piece| {
        read_samples(piece, places, &mut rows).map_err(|Damaged| damaged(folder))
    })?;
    // Pieces are sorted already, so this merges them.
    rows.rows.sort_by_key(|row| row.id);
    Ok(rows)
}

/// What was written a moment ago cannot be read.
pub(super) fn damaged(path: &Path) -> RunError {
    RunError::Staged { path: path.to_path_buf(), reason: "what was written does not come back".to_owned() }
}

/// What a thread gathers.
struct Gathering<'a> {
    selecting: &'a Selecting<'a>,
    packer: Packer,
    counts: Vec<SelectCounts>,
    overlong: Sorter<'a, OVERLONG_BYTES>,
    writer: CandidateWriter<'a>,
}

impl Gathering<'_> {
    fn partition(&mut self, partition: u32, mut rows: Rows, excluded: &[u128]) -> Result<(), RunError> {
        let mut stays = Vec::with_capacity(rows.rows.len());
        for index in 0..rows.rows.len() {
            if self.stays(index, &mut rows, excluded)? {
                stays.push(index as u32);
            }
        }
        let stays = match self.selecting.rules.exact {
            Exact::None => stays,
            _ => self.without_duplicates(&mut rows, &stays),
        };
        for index in &stays {
            if let Some(row) = rows.rows.get_mut(*index as usize) {
                row.held_out = self.selecting.rules.is_held_out(row.key);
            }
        }
        self.writer.partition(partition, &rows, &stays)
    }

    /// Whether a row is in the running by itself; counts it if not.
    fn stays(&mut self, index: usize, rows: &mut Rows, excluded: &[u128]) -> Result<bool, RunError> {
        let Some(row) = rows.rows.get(index).copied() else { return Ok(false) };
        let mut stray = SelectCounts::default();
        let counts = self.counts.get_mut(row.id.source as usize).unwrap_or(&mut stray);
        let samples = rows.samples(&row).len() as u64;
        if excluded.binary_search(&row.key).is_ok() {
            counts.other_phase.0 += 1;
            counts.other_phase.1 += samples;
            return Ok(false);
        }
        let Misfit { samples: overlong, tokens, truncated, all_tokens } = rows.fit(index, &self.packer);
        counts.overlong.1 += overlong;
        counts.overlong.2 += tokens;
        counts.truncated_tokens += truncated;
        if overlong < samples {
            return Ok(true);
        }
        counts.overlong.0 += 1;
        self.overlong.push(overlong_bytes(row.id, all_tokens))?;
        Ok(false)
    }

    /// Leaves of equal rows the first of each source, with links to those of earlier sources; none
    /// behind one that no cap can leave out.
    fn without_duplicates(&mut self, rows: &mut Rows, stays: &[u32]) -> Vec<u32> {
        let key = |index: &u32| rows.rows.get(*index as usize).map_or(0, |row| row.key);
        let mut by_key: Vec<(u128, u32)> = stays.iter().map(|index| (key(index), *index)).collect();
        by_key.sort_unstable();
        let mut left = Vec::with_capacity(stays.len());
        for group in by_key.chunk_by(|a, b| a.0 == b.0) {
            match group {
                [(_, only)] => left.push(*only),
                _ => self.settle_equal(rows, group, &mut left),
            }
        }
        left.sort_unstable();
        left
    }

    fn settle_equal(&mut self, rows: &mut Rows, group: &[(u128, u32)], left: &mut Vec<u32>) {
        let (mut links, mut settled, mut last) = (Vec::new(), false, None);
        for &(_, index) in group {
            let Some(row) = rows.rows.get(index as usize).copied() else { continue };
            let source = row.id.source;
            if settled || last == Some(source) {
                if let Some(counts) = self.counts.get_mut(source as usize) {
                    counts.duplicates.0 += 1;
                    counts.duplicates.1 += rows.samples(&row).len() as u64;
                }
                continue;
            }
            rows.set_links(index as usize, &links);
            left.push(index);
            last = Some(source);
            links.push(Link { hash: row.hash, id: row.id });
            let rules = self.selecting.rules.sources.get(source as usize);
            settled = !rules.is_some_and(super::SourceRules::may_be_capped);
        }
    }
}

/// The record of an overlong row.
pub(super) fn overlong_bytes(id: RowId, tokens: u64) -> [u8; OVERLONG_BYTES] {
    let mut bytes = [0; OVERLONG_BYTES];
    let parts = [&id.source.to_be_bytes()[..], &id.file.to_be_bytes(), &id.row.to_be_bytes()];
    for (place, byte) in bytes.iter_mut().zip(parts.concat().iter().chain(&tokens.to_be_bytes())) {
        *place = *byte;
    }
    bytes
}

/// A row and its tokens, of a record of the overlong rows.
pub(super) fn overlong_of(record: &[u8; OVERLONG_BYTES]) -> (RowId, u64) {
    let (words, _) = record.as_chunks::<4>();
    let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
    let mut small = || words.next().unwrap_or_default();
    let (source, file) = (small(), small());
    let mut large = || (u64::from(small()) << 32) | u64::from(small());
    (RowId { source, file, row: large() }, large())
}
