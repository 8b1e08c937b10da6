//! Clusters: rows that share a band, and rows that share one with those, and so on. The first row of a
//! cluster stays.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use super::error::DedupError;
use super::rows::RowNumbers;
use super::spill::{Sink, Spill};
use crate::source::row::RowId;

/// Rows in one step of the count of rows before a number.
const STEP_WORDS: u64 = 8;

/// Takes the bands of rows, in any order and from any thread, and settles their clusters.
///
/// Memory is a bit for each row of the files, 4 bytes for each row that was added, and while it settles
/// as much as is asked for; band hashes lie on disk, 16 bytes each.
pub struct NearDuplicates {
    numbers: RowNumbers,
    spill: Spill,
    /// A bit for each row, set if it was added.
    added: Vec<AtomicU64>,
}

/// One thread's way to add rows.
pub struct Adder<'a> {
    near: &'a NearDuplicates,
    sink: Sink<'a>,
}

/// The rows that are not the first of their cluster.
#[derive(Debug, Default)]
pub struct Lost {
    numbers: RowNumbers,
    added: Vec<u64>,
    /// Rows that were added before each step of `added`.
    before: Vec<u32>,
    /// The first row of the cluster, by place among the rows that were added.
    first: Vec<u32>,
    count: u64,
}

impl NearDuplicates {
    /// Nothing added yet. Temporary files go to `folder`, which must exist.
    pub fn new(numbers: RowNumbers, folder: &Path) -> Self {
        let words = numbers.len().div_ceil(64) as usize;
        let added = (0..words).map(|_| AtomicU64::new(0)).collect();
        NearDuplicates { spill: Spill::new(folder), numbers, added }
    }

    /// A way for one thread to add rows.
    pub fn adder(&self) -> Adder<'_> {
        Adder { near: self, sink: self.spill.sink() }
    }

    /// Settles the clusters on the threads of the current pool, with about `memory` bytes for sorting.
    ///
    /// # Errors
    /// What the file system says; more rows than can be numbered.
    pub fn settle(self, memory: usize) -> Result<Lost, DedupError> {
        let added: Vec<u64> = self.added.into_iter().map(AtomicU64::into_inner).collect();
        let before = counts_before(&added)?;
        let rows = added.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        let mut lost = Lost { numbers: self.numbers, added, before, ..Lost::default() };
        let forest: Vec<AtomicU32> = (0..rows as u32).map(AtomicU32::new).collect();
        let memory = memory / rayon::current_num_threads().max(1);
        (0..self.spill.ranges()).into_par_iter().try_for_each(|range| {
            self.spill.groups(range, memory, &mut |group| {
                let mut places = group.iter().filter_map(|record| lost.place(record.1));
                if let Some(first) = places.next() {
                    places.for_each(|place| join(&forest, first, place));
                }
            })
        })?;
        let first: Vec<u32> = (0..rows as u32).into_par_iter().map(|place| root(&forest, place)).collect();
        lost.count =
            first.par_iter().enumerate().filter(|(place, first)| *place != **first as usize).count() as u64;
        lost.first = first;
        Ok(lost)
    }
}

impl Adder<'_> {
    /// Adds a row with the hashes of its bands. A row without bands is like no other.
    ///
    /// # Errors
    /// A row of no file; what the file system says.
    pub fn add(&mut self, id: RowId, bands: &[u64]) -> Result<(), DedupError> {
        let number = self.near.numbers.number(id)?;
        if bands.is_empty() {
            return Ok(());
        }
        if let Some(word) = self.near.added.get((number / 64) as usize) {
            word.fetch_or(1 << (number % 64), Relaxed);
        }
        bands.iter().try_for_each(|band| self.sink.push((*band, number)))
    }

    /// Ends it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(self) -> Result<(), DedupError> {
        self.sink.finish()
    }
}

impl Lost {
    /// The row that this one lost to: the first of its cluster. `None` if the row stays.
    pub fn to(&self, id: RowId) -> Option<RowId> {
        let place = self.place(self.numbers.number(id).ok()?)?;
        let first = *self.first.get(place as usize)?;
        (first != place).then(|| self.numbers.id(self.number(first)))
    }

    /// How many rows there are.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The rows in the order of their ids, each with the row that it lost to.
    pub fn iter(&self) -> impl Iterator<Item = (RowId, RowId)> + '_ {
        let rows = self.added.iter().zip(0u64..).flat_map(|(word, at)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        });
        let firsts = rows.zip(self.first.iter().enumerate());
        firsts
            .filter(|(_, (place, first))| *place != **first as usize)
            .map(|(row, (_, first))| (self.numbers.id(row), self.numbers.id(self.number(*first))))
    }

    /// The place of a row among those that were added.
    fn place(&self, number: u64) -> Option<u32> {
        let (at, bit) = (number / 64, number % 64);
        let word = *self.added.get(at as usize)?;
        if word >> bit & 1 == 0 {
            return None;
        }
        let step = at / STEP_WORDS;
        let whole = self.added.get((step * STEP_WORDS) as usize..at as usize)?;
        let inside = whole.iter().map(|word| word.count_ones()).sum::<u32>();
        Some(self.before.get(step as usize)? + inside + (word & ((1 << bit) - 1)).count_ones())
    }

    /// The row at a place among those that were added.
    fn number(&self, place: u32) -> u64 {
        let step = self.before.partition_point(|before| *before <= place).saturating_sub(1);
        let mut left = place - self.before.get(step).copied().unwrap_or_default();
        let mut at = step * STEP_WORDS as usize;
        while let Some(word) = self.added.get(at) {
            let here = word.count_ones();
            if left < here {
                let rest = (0..left).fold(*word, |rest, _| rest & rest.wrapping_sub(1));
                return at as u64 * 64 + u64::from(rest.trailing_zeros());
            }
            left -= here;
            at += 1;
        }
        0
    }
}

/// Bits that are set before each step of words.
fn counts_before(words: &[u64]) -> Result<Vec<u32>, DedupError> {
    let mut sum = 0u64;
    let mut before = Vec::with_capacity(words.len().div_ceil(STEP_WORDS as usize));
    for step in words.chunks(STEP_WORDS as usize) {
        before.push(sum as u32);
        sum += step.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
    }
    let most = u64::from(u32::MAX);
    if sum > most {
        return Err(DedupError::TooManyRows { rows: sum, most });
    }
    Ok(before)
}

/// The smallest place of the cluster. Paths are halved on the way.
fn root(forest: &[AtomicU32], mut place: u32) -> u32 {
    let parent = |place: u32| forest.get(place as usize).map_or(place, |parent| parent.load(Relaxed));
    loop {
        let above = parent(place);
        if above == place {
            return place;
        }
        let next = parent(above);
        if let Some(link) = forest.get(place as usize) {
            // A link only ever moves to a smaller place of the same cluster.
            link.fetch_min(next, Relaxed);
        }
        place = next;
    }
}

/// Puts two clusters together: the larger root goes below the smaller one, so that whatever the order
/// the root of a cluster is its first row (union by index without locks, after Anderson and Woll,
/// "Wait-free parallel algorithms for the union-find problem", STOC 1991).
fn join(forest: &[AtomicU32], a: u32, b: u32) {
    let (mut a, mut b) = (a, b);
    loop {
        (a, b) = (root(forest, a), root(forest, b));
        if a == b {
            return;
        }
        let (low, high) = (a.min(b), a.max(b));
        let Some(link) = forest.get(high as usize) else { return };
        if link.compare_exchange(high, low, Relaxed, Relaxed).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
#[path = "clusters_tests.rs"]
mod tests;
