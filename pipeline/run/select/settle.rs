//! Settle: the rows in the running to the rows that go on.

use super::candidates::Candidates;
use super::caps::Reaches;
use super::gather::{Gathered, OVERLONG_BYTES, overlong_of};
use super::outcome::{OutcomeFile, Selection};
use super::rows::{Row, RowWriter, Rows};
use super::scratch::Scratch;
use super::sort::{Sorted, Sorter, merge};
use super::spill::each_number;
use super::{Keys, SelectCounts, Summary};
use crate::run::error::RunError;
use crate::source::row::RowId;

/// Rows that are near duplicates of others, which are kept. Of equal rows only the first is looked at,
/// as [`Gathered::firsts`] gives them, and its copies share its fate.
pub trait NearDropped: Sync {
    /// Those of a partition, sorted.
    ///
    /// # Errors
    /// What the file system says.
    fn of(&self, partition: u32) -> Result<Vec<RowId>, RunError>;
}

const KEY_BYTES: usize = 16;

/// What a thread settles.
struct Settling<'a> {
    counts: Vec<SelectCounts>,
    /// Partitions, with how often their most repeated rows are taken.
    times: Vec<(usize, u32)>,
    keys: Sorter<'a, KEY_BYTES>,
}

impl Gathered<'_> {
    /// Takes near duplicates out: after exact duplicates, before caps.
    ///
    /// # Errors
    /// What the file system or `near` says.
    pub fn drop_near(&mut self, near: &dyn NearDropped) -> Result<(), RunError> {
        let selecting = self.selecting;
        let left = Candidates::new(selecting.folder, selecting)?;
        let partitions = selecting.rules.partitions as usize;
        let make = || (vec![SelectCounts::default(); selecting.rules.sources.len()], left.writer());
        let states = each_number(partitions, selecting.progress, make, |(counts, writer), partition| {
            let dropped = near.of(partition as u32)?;
            let rows = self.candidates.partition(partition as u32)?;
            let is_near = |row: &Row| {
                let first = rows.links(row).first().map_or(row.id, |link| link.id);
                dropped.binary_search(&first).is_ok()
            };
            let mut stays = Vec::with_capacity(rows.rows.len());
            for (index, row) in (0..).zip(&rows.rows) {
                if !is_near(row) {
                    stays.push(index);
                } else if let Some(counts) = counts.get_mut(row.id.source as usize) {
                    counts.near.0 += 1;
                    counts.near.1 += rows.samples(row).len() as u64;
                }
            }
            writer.partition(partition as u32, &rows, &stays)
        })?;
        let mut written = Vec::new();
        for (counts, writer) in states {
            self.counts.iter_mut().zip(&counts).for_each(|(sum, one)| sum.add(one));
            written.push(writer.finish());
        }
        self.candidates = left.with(written);
        Ok(())
    }

    /// Settles caps and writes the selection.
    ///
    /// # Errors
    /// A weight that asks for more than there is, what the file system says.
    pub fn settle(self) -> Result<Selection, RunError> {
        let reaches = self.reaches()?;
        let selecting = self.selecting;
        let keys = Scratch::new(selecting.folder)?;
        let sources = selecting.rules.sources.len();
        Selection::clear(selecting.folder)?;
        let states = each_number(
            selecting.rules.partitions as usize,
            selecting.progress,
            || Settling {
                counts: vec![SelectCounts::default(); sources],
                times: Vec::new(),
                keys: Sorter::new(&keys, selecting.limits.sort_records),
            },
            |state, partition| {
                let times = self.settle_partition(partition as u32, &reaches, state)?;
                state.times.push((partition, times));
                Ok(())
            },
        )?;
        let mut summary = Summary {
            counts: self.counts.clone(),
            times: vec![0; selecting.rules.partitions as usize],
            short: reaches.short,
            overlong: self.write_overlong()?,
        };
        let mut sorted = Vec::new();
        for state in states {
            summary.counts.iter_mut().zip(&state.counts).for_each(|(sum, one)| sum.add(one));
            for (partition, times) in state.times {
                if let Some(place) = summary.times.get_mut(partition) {
                    *place = times;
                }
            }
            sorted.push(state.keys.finish());
        }
        if selecting.keys == Keys::Kept {
            write_keys(&keys, &sorted, &Selection::keys_path(selecting.folder))?;
        }
        Selection::seal(selecting.folder, summary)
    }

    /// Writes the rows of a partition that go on. Gives how often the most repeated one is taken.
    fn settle_partition(
        &self,
        partition: u32,
        reaches: &Reaches,
        state: &mut Settling,
    ) -> Result<u32, RunError> {
        let (mut writer, mut most) = (RowWriter::default(), 0);
        for source in 0..state.counts.len() {
            let rows = self.candidates.source(partition, source)?;
            let mut stray = SelectCounts::default();
            let counts = state.counts.get_mut(source).unwrap_or(&mut stray);
            for row in &rows.rows {
                let times = settle_row(&rows, row, reaches, counts);
                if times > 0 {
                    writer.push_selected(&rows, row, times);
                    most = most.max(times);
                    if self.selecting.keys == Keys::Kept {
                        state.keys.push(row.key.to_be_bytes())?;
                    }
                }
            }
        }
        if most > 0 {
            OutcomeFile::write(&Selection::partition_path(self.selecting.folder, partition), &writer.bytes)?;
        }
        Ok(most)
    }

    /// Writes the overlong rows of all partitions in the order of their ids. Gives how many.
    fn write_overlong(&self) -> Result<u64, RunError> {
        let mut file = OutcomeFile::create(&Selection::overlong_path(self.selecting.folder))?;
        let mut count = 0;
        merge(&self.sorting, &self.overlong, &mut |record: &[u8; OVERLONG_BYTES]| {
            let (id, tokens) = overlong_of(record);
            count += 1;
            file.push_overlong(id, tokens)
        })?;
        file.finish()?;
        Ok(count)
    }
}

/// How often a row is taken; counts it.
fn settle_row(rows: &Rows, row: &Row, reaches: &Reaches, counts: &mut SelectCounts) -> u32 {
    let samples = rows.samples(row).len() as u64;
    let place = match reaches.times(row, rows.links(row)) {
        None => &mut counts.duplicates,
        Some(0) => &mut counts.capped,
        Some(times) => {
            let again = u64::from(times - 1);
            counts.kept_rows += 1;
            counts.repeated.0 += again;
            counts.repeated.1 += again * samples;
            return times;
        }
    };
    place.0 += 1;
    place.1 += samples;
    0
}

/// Writes sorted keys, 16 bytes little-endian each.
fn write_keys(
    scratch: &Scratch,
    sorted: &[Sorted<KEY_BYTES>],
    path: &std::path::Path,
) -> Result<(), RunError> {
    let mut file = crate::shard::AtomicFile::create(path)?;
    let mut buffer = Vec::with_capacity(1 << 16);
    let mut flush = |buffer: &mut Vec<u8>| {
        std::io::Write::write_all(&mut file, buffer).map_err(|e| RunError::write(path, e))?;
        buffer.clear();
        Ok(())
    };
    merge(scratch, sorted, &mut |key| {
        buffer.extend(key.iter().rev());
        if buffer.len() >= 1 << 16 { flush(&mut buffer) } else { Ok(()) }
    })?;
    flush(&mut buffer)?;
    file.commit()?;
    Ok(())
}
