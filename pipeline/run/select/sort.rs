//! External sort: records of a fixed size in the order of their bytes, in bounded memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::scratch::{Scratch, Span};
use crate::run::error::RunError;

/// Bytes of each run that the merge reads at once.
const READ_BYTES: usize = 1 << 16;

/// Gathers records of one thread and writes them away as sorted runs.
pub(super) struct Sorter<'s, const N: usize> {
    scratch: &'s Scratch,
    most: usize,
    records: Vec<[u8; N]>,
    runs: Vec<Span>,
}

/// What a [`Sorter`] gathered.
pub(super) struct Sorted<const N: usize> {
    runs: Vec<Span>,
    rest: Vec<[u8; N]>,
}

impl<'s, const N: usize> Sorter<'s, N> {
    /// Keeps at most `most` records in memory.
    pub(super) fn new(scratch: &'s Scratch, most: usize) -> Self {
        Sorter { scratch, most: most.max(1), records: Vec::new(), runs: Vec::new() }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn push(&mut self, record: [u8; N]) -> Result<(), RunError> {
        self.records.push(record);
        if self.records.len() >= self.most {
            self.records.sort_unstable();
            self.runs.push(self.scratch.append(self.records.as_flattened())?);
            self.records.clear();
        }
        Ok(())
    }

    /// Ends the last run, which stays in memory.
    pub(super) fn finish(mut self) -> Sorted<N> {
        self.records.sort_unstable();
        Sorted { runs: self.runs, rest: self.records }
    }
}

/// Gives the records of all sorters in order.
///
/// # Errors
/// What the file system or `visit` says.
pub(super) fn merge<const N: usize>(
    scratch: &Scratch,
    sorted: &[Sorted<N>],
    visit: &mut dyn FnMut(&[u8; N]) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let mut runs: Vec<Run<N>> = Vec::new();
    for one in sorted {
        runs.extend(one.runs.iter().map(|&left| Run { left, ready: &[], buffer: Vec::new(), at: 0 }));
        let left = Span::default();
        runs.push(Run { left, ready: &one.rest, buffer: Vec::new(), at: 0 });
    }
    let mut heap = BinaryHeap::new();
    for (index, run) in runs.iter_mut().enumerate() {
        heap.extend(run.next(scratch)?.map(|record| Reverse((record, index))));
    }
    while let Some(Reverse((record, index))) = heap.pop() {
        visit(&record)?;
        if let Some(run) = runs.get_mut(index) {
            heap.extend(run.next(scratch)?.map(|record| Reverse((record, index))));
        }
    }
    Ok(())
}

/// A run on its way through the merge: records in memory, or on disk a piece at a time.
struct Run<'a, const N: usize> {
    left: Span,
    ready: &'a [[u8; N]],
    buffer: Vec<u8>,
    at: usize,
}

impl<const N: usize> Run<'_, N> {
    fn next(&mut self, scratch: &Scratch) -> Result<Option<[u8; N]>, RunError> {
        if let Some((first, rest)) = self.ready.split_first() {
            self.ready = rest;
            return Ok(Some(*first));
        }
        if self.at >= self.buffer.len() {
            let most = (READ_BYTES / N).max(1) * N;
            let piece = Span { at: self.left.at, len: self.left.len.min(most as u64) };
            self.buffer.clear();
            self.at = 0;
            if piece.len == 0 {
                return Ok(None);
            }
            scratch.read_into(piece, &mut self.buffer)?;
            self.left = Span { at: piece.at + piece.len, len: self.left.len - piece.len };
        }
        let record = self.buffer.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).copied();
        self.at += N;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_what_a_sort_in_memory_gives(
            parts in proptest::collection::vec(proptest::collection::vec(any::<[u8; 3]>(), 0..60), 0..4),
            most in 1usize..20,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let scratch = Scratch::new(folder.path()).unwrap();
            let mut sorted = Vec::new();
            for part in &parts {
                let mut sorter = Sorter::new(&scratch, most);
                for record in part {
                    sorter.push(*record).unwrap();
                }
                sorted.push(sorter.finish());
            }
            let mut merged = Vec::new();
            let mut keep = |record: &[u8; 3]| {
                merged.push(*record);
                Ok(())
            };
            merge(&scratch, &sorted, &mut keep).unwrap();
            let mut expected = parts.concat();
            expected.sort_unstable();
            prop_assert_eq!(merged, expected);
        }
    }
}
