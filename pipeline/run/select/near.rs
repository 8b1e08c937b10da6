//! Near duplicates: after exact duplicates, before caps.

use super::SelectCounts;
use super::candidates::Candidates;
use super::gather::Gathered;
use super::rows::Row;
use super::sort::Sorter;
use super::spill::{Metadata, each_number};
use crate::dedup::{Lost, NearDuplicates, NearRows, RowNumbers};
use crate::run::error::RunError;
use crate::source::row::RowId;

/// A near duplicate: source, file and row number, then those of the row that stays, big-endian.
pub(super) const NEAR_BYTES: usize = 32;

impl Gathered<'_> {
    /// Takes near duplicates out. Of equal rows the first is compared with others, and its copies in later
    /// sources, which are there for the case that a cap leaves it out, share its fate.
    ///
    /// # Errors
    /// A staged file that is damaged, what the file system says.
    pub fn drop_near<M: Metadata>(&mut self, staged: &[M]) -> Result<(), RunError> {
        let lost = self.lost(staged)?;
        if lost.is_empty() {
            return Ok(());
        }
        let selecting = self.selecting;
        let left = Candidates::new(selecting.folder, selecting)?;
        let partitions = selecting.rules.partitions as usize;
        let make = || {
            let list = Sorter::new(&self.sorting, selecting.limits.sort_records);
            (vec![SelectCounts::default(); selecting.rules.sources.len()], left.writer(), list)
        };
        let states =
            each_number(partitions, selecting.progress, make, |(counts, writer, list), partition| {
                let rows = self.candidates.partition(partition as u32)?;
                let first = |row: &Row| rows.links(row).first().map_or(row.id, |link| link.id);
                let mut stays = Vec::with_capacity(rows.rows.len());
                for (index, row) in (0..).zip(&rows.rows) {
                    let Some(to) = lost.to(first(row)) else {
                        stays.push(index);
                        continue;
                    };
                    list.push(near_bytes(row.id, to))?;
                    if let Some(counts) = counts.get_mut(row.id.source as usize) {
                        counts.near.0 += 1;
                        counts.near.1 += rows.samples(row).len() as u64;
                    }
                }
                writer.partition(partition as u32, &rows, &stays)
            })?;
        let mut written = Vec::new();
        for (counts, writer, list) in states {
            self.counts.iter_mut().zip(&counts).for_each(|(sum, one)| sum.add(one));
            written.push(writer.finish());
            self.near.push(list.finish());
        }
        self.candidates = left.with(written);
        Ok(())
    }

    /// Compares the rows in the running.
    fn lost<M: Metadata>(&self, staged: &[M]) -> Result<Lost, RunError> {
        let Gathered { selecting, .. } = self;
        let sizes = staged.iter().map(|file| (file.place().0, file.place().1, file.next_row()));
        let rows = NearRows::new(RowNumbers::new(sizes));
        let partitions = selecting.rules.partitions as usize;
        each_number(
            partitions,
            selecting.progress,
            || (),
            |(), partition| {
                Ok(self.firsts(partition as u32)?.into_iter().try_for_each(|row| rows.mark(row))?)
            },
        )?;
        let near = NearDuplicates::new(rows, selecting.folder)?;
        let adders = each_number(
            staged.len(),
            selecting.progress,
            || near.adder(),
            |adder, index| {
                let Some(file) = staged.get(index) else { return Ok(()) };
                let (source, number) = file.place();
                file.each_bands(&mut |row, bands| Ok(adder.add(RowId { source, file: number, row }, bands)?))
            },
        )?;
        adders.into_iter().try_for_each(|adder| adder.finish())?;
        // Twice what a thread spills: enough for 100 million rows without a second pass.
        let memory = selecting.limits.spill_bytes.saturating_mul(2 * rayon::current_num_threads());
        Ok(near.settle(memory)?)
    }
}

/// The record of a near duplicate.
pub(super) fn near_bytes(id: RowId, to: RowId) -> [u8; NEAR_BYTES] {
    let number = |id: RowId| u128::from(id.source) << 96 | u128::from(id.file) << 64 | u128::from(id.row);
    let mut bytes = [0; NEAR_BYTES];
    for (place, number) in bytes.as_chunks_mut::<16>().0.iter_mut().zip([number(id), number(to)]) {
        *place = number.to_be_bytes();
    }
    bytes
}

/// A near duplicate and the row that stays, of a record.
pub(super) fn near_of(record: &[u8; NEAR_BYTES]) -> (RowId, RowId) {
    let mut rows = record.as_chunks::<16>().0.iter().map(|bytes| {
        let number = u128::from_be_bytes(*bytes);
        RowId { source: (number >> 96) as u32, file: (number >> 64) as u32, row: number as u64 }
    });
    (rows.next().unwrap_or_default(), rows.next().unwrap_or_default())
}
