//! Clusters: rows that share a band, and rows that share one with those, and so on. The first row of a
//! cluster stays.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use super::error::DedupError;
use super::rows::RowNumbers;
use super::spill::{Sink, Spill};
use crate::source::row::RowId;

/// Words of bits between two counts of the bits before.
const STEP_WORDS: usize = 8;

/// The rows that are compared with one another.
pub struct NearRows {
    numbers: RowNumbers,
    marks: Vec<AtomicU64>,
}

/// Takes the bands of marked rows, in any order and from any thread, and settles their clusters.
///
/// Memory is a bit for each row of the files, and while it settles 8 bytes for each row that was marked
/// and as much as is asked for; band hashes lie on disk, 12 bytes each.
pub struct NearDuplicates {
    places: Places,
    spill: Spill,
}

/// One thread's way to add rows.
pub struct Adder<'a> {
    places: &'a Places,
    sink: Sink<'a>,
}

/// Marked rows by their place among the marked ones, which keeps the order of ids.
#[derive(Debug, Default)]
struct Places {
    numbers: RowNumbers,
    /// A bit for each row.
    marks: Vec<u64>,
    /// Rows that are marked before each step of `marks`.
    before: Vec<u32>,
    /// Rows that are marked.
    len: u32,
}

/// The rows that are not the first of their cluster.
#[derive(Debug, Default)]
pub struct Lost {
    places: Places,
    /// The place of the first row of the cluster, by place.
    first: Vec<u32>,
    count: u64,
}

impl NearRows {
    /// No row is marked yet.
    pub fn new(numbers: RowNumbers) -> Self {
        let words = numbers.len().div_ceil(64) as usize;
        NearRows { numbers, marks: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Marks a row.
    ///
    /// # Errors
    /// A row of no file.
    pub fn mark(&self, id: RowId) -> Result<(), DedupError> {
        let number = self.numbers.number(id)?;
        if let Some(word) = self.marks.get((number / 64) as usize) {
            word.fetch_or(1 << (number % 64), Relaxed);
        }
        Ok(())
    }
}

impl NearDuplicates {
    /// Nothing added yet. Temporary files go to `folder`, which must exist.
    ///
    /// # Errors
    /// More rows than can be numbered.
    pub fn new(rows: NearRows, folder: &Path) -> Result<Self, DedupError> {
        let marks: Vec<u64> = rows.marks.into_iter().map(AtomicU64::into_inner).collect();
        let mut sum = 0u64;
        let mut before = Vec::with_capacity(marks.len().div_ceil(STEP_WORDS));
        for step in marks.chunks(STEP_WORDS) {
            before.push(sum as u32);
            sum += step.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
        let most = u64::from(u32::MAX);
        let len = u32::try_from(sum).map_err(|_| DedupError::TooManyRows { rows: sum, most })?;
        let places = Places { numbers: rows.numbers, marks, before, len };
        Ok(NearDuplicates { places, spill: Spill::new(folder) })
    }

    /// A way for one thread to add rows.
    pub fn adder(&self) -> Adder<'_> {
        Adder { places: &self.places, sink: self.spill.sink() }
    }

    /// Settles the clusters on the threads of the current pool, with about `memory` bytes for sorting.
    ///
    /// # Errors
    /// What the file system says.
    pub fn settle(self, memory: usize) -> Result<Lost, DedupError> {
        let forest: Vec<AtomicU32> = (0..self.places.len).map(AtomicU32::new).collect();
        let memory = memory / rayon::current_num_threads().max(1);
        (0..self.spill.ranges()).into_par_iter().try_for_each(|range| {
            self.spill.groups(range, memory, &mut |group| {
                if let Some(((_, first), others)) = group.split_first() {
                    others.iter().for_each(|(_, place)| join(&forest, *first, *place));
                }
            })
        })?;
        let first: Vec<u32> =
            (0..self.places.len).into_par_iter().map(|place| root(&forest, place)).collect();
        let lost = first.par_iter().enumerate().filter(|(place, first)| *place != **first as usize);
        Ok(Lost { count: lost.count() as u64, places: self.places, first })
    }
}

impl Adder<'_> {
    /// Adds the hashes of a row's bands, if the row is marked. A row without bands is like no other.
    ///
    /// # Errors
    /// A row of no file; what the file system says.
    pub fn add(&mut self, id: RowId, bands: &[u64]) -> Result<(), DedupError> {
        let number = self.places.numbers.number(id)?;
        let Some(place) = self.places.of(number) else { return Ok(()) };
        bands.iter().try_for_each(|band| self.sink.push((*band, place)))
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
        let place = self.places.of(self.places.numbers.number(id).ok()?)?;
        let first = *self.first.get(place as usize)?;
        (first != place).then(|| self.places.id(first))
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
        let firsts = (0..self.places.len).zip(&self.first);
        let lost = firsts.filter(|(place, first)| place != *first);
        lost.map(|(place, first)| (self.places.id(place), self.places.id(*first)))
    }
}

impl Places {
    /// The place of a row, if it is marked.
    fn of(&self, number: u64) -> Option<u32> {
        let (at, bit) = ((number / 64) as usize, number % 64);
        let word = *self.marks.get(at)?;
        if word >> bit & 1 == 0 {
            return None;
        }
        let step = at / STEP_WORDS;
        let whole = self.marks.get(step * STEP_WORDS..at)?;
        let inside = whole.iter().map(|word| word.count_ones()).sum::<u32>();
        Some(self.before.get(step)? + inside + (word & ((1 << bit) - 1)).count_ones())
    }

    /// The row at a place.
    fn id(&self, place: u32) -> RowId {
        let step = self.before.partition_point(|before| *before <= place).saturating_sub(1);
        let mut left = place - self.before.get(step).copied().unwrap_or_default();
        let from = step * STEP_WORDS;
        let mut number = 0;
        for (word, at) in self.marks.get(from..).unwrap_or_default().iter().zip(from as u64..) {
            let here = word.count_ones();
            if left < here {
                let rest = (0..left).fold(*word, |rest, _| rest & rest.wrapping_sub(1));
                number = at * 64 + u64::from(rest.trailing_zeros());
                break;
            }
            left -= here;
        }
        self.numbers.id(number)
    }
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
