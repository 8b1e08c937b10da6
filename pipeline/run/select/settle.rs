//! Settle: the rows in the running to the rows that go on.

use super::caps::Reaches;
use super::gather::{Gathered, OVERLONG_BYTES, overlong_of};
use super::near::NEAR_BYTES;
use super::outcome::{OutcomeFile, Selection};
use super::rows::{Row, RowWriter, Rows};
use super::scratch::Scratch;
use super::sort::{Sorted, Sorter, merge};
use super::spill::each_number;
use super::{Keys, SelectCounts, Summary};
use crate::run::error::RunError;

const KEY_BYTES: usize = 16;

/// What a thread settles.
struct Settling<'a> {
    counts: Vec<SelectCounts>,
    /// Partitions, with how often their most repeated rows are taken.
    times: Vec<(usize, u32)>,
    keys: Sorter<'a, KEY_BYTES>,
}

impl Gathered<'_> {
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
            near: self.write_near()?,
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

impl Gathered<'_> {
    /// Writes the near duplicates of all partitions in the order of their ids, if there are any. Gives
    /// how many.
    fn write_near(&self) -> Result<u64, RunError> {
        if self.near.is_empty() {
            return Ok(0);
        }
        let mut file = OutcomeFile::create(&Selection::near_path(self.selecting.folder))?;
        let mut count = 0;
        merge(&self.sorting, &self.near, &mut |record: &[u8; NEAR_BYTES]| {
            count += 1;
            file.push_record(record)
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
