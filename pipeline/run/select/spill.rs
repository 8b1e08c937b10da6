//! Spill: what map left of the samples, sorted by partition. Staged files are read once, in any order;
//! each thread keeps the records of all partitions until its share of memory is full, and writes them
//! away partition by partition.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::SampleRef;
use super::codec::{Bytes, Damaged, first_down, first_up, fold, put, unfold};
use super::rows::{Row, Rows};
use super::scratch::{Scratch, Span};
use crate::run::error::RunError;
use crate::run::progress::Progress;
use crate::run::staged::{SampleMeta, Staged, VisitBands, VisitSamples};
use crate::source::row::RowId;

/// Metadata of the samples of one staged file, wherever it lies.
pub trait Metadata: Sync {
    /// Indices of source and file that its rows come from.
    fn place(&self) -> (u32, u32);

    /// Gives the samples of each partition to `visit`: the partition, and its samples in the order in
    /// which their tokens are staged, all samples of a row side by side.
    ///
    /// # Errors
    /// A file that is damaged, and what `visit` says.
    fn each(&self, visit: &mut VisitSamples) -> Result<(), RunError>;

    /// The number of the row after the last one that was passed.
    fn next_row(&self) -> u64;

    /// Gives the rows that have band hashes to `visit`.
    ///
    /// # Errors
    /// A file that is damaged or has no band hashes, and what `visit` says.
    fn each_bands(&self, visit: &mut VisitBands) -> Result<(), RunError>;
}

impl Metadata for Staged {
    fn place(&self) -> (u32, u32) {
        (self.ledger.source, self.ledger.file)
    }

    fn each(&self, visit: &mut VisitSamples) -> Result<(), RunError> {
        self.all_metadata(visit)
    }

    fn next_row(&self) -> u64 {
        self.ledger.next_row
    }

    fn each_bands(&self, visit: &mut VisitBands) -> Result<(), RunError> {
        self.all_bands(visit)
    }
}

/// Runs `visit` for each number below `count` on all threads of the pool; each thread has a state of its
/// own, made by `make`. Gives the states.
///
/// # Errors
/// The error of the lowest number among those met.
pub(super) fn each_number<T: Send>(
    count: usize,
    progress: &Progress,
    make: impl Fn() -> T + Sync,
    visit: impl Fn(&mut T, usize) -> Result<(), RunError> + Sync,
) -> Result<Vec<T>, RunError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let errors = Mutex::new(Vec::new());
    let states = rayon::broadcast(|_| {
        let mut state = make();
        while !failed.load(Relaxed) {
            let number = next.fetch_add(1, Relaxed);
            if number >= count {
                break;
            }
            let stopped = if progress.is_stopped() { Err(RunError::Interrupted) } else { Ok(()) };
            if let Err(error) = stopped.and_then(|()| visit(&mut state, number)) {
                failed.store(true, Relaxed);
                errors.lock().unwrap_or_else(PoisonError::into_inner).push((number, error));
            }
        }
        state
    });
    let errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    match errors.into_iter().min_by_key(|(number, _)| *number) {
        Some((_, error)) => Err(error),
        None => Ok(states),
    }
}

/// Pieces of bytes by partition, of one thread.
pub(super) struct Spill<'s> {
    scratch: &'s Scratch,
    most: usize,
    held: usize,
    parts: Vec<Vec<u8>>,
    tables: Vec<Span>,
}

/// What a [`Spill`] holds when it is full: on disk, and a rest in memory.
pub(super) struct Spilled {
    /// Where the table of each run lies: for each partition its first byte, and the byte after the last.
    tables: Vec<Span>,
    rest: Vec<Vec<u8>>,
}

impl<'s> Spill<'s> {
    /// Holds about `most` bytes in memory.
    pub(super) fn new(scratch: &'s Scratch, partitions: u32, most: usize) -> Self {
        let parts = vec![Vec::new(); partitions as usize];
        Spill { scratch, most, held: 0, parts, tables: Vec::new() }
    }

    /// Lets `write` append to a partition.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn add(&mut self, partition: u32, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), RunError> {
        let Some(part) = self.parts.get_mut(partition as usize) else { return Ok(()) };
        let before = part.len();
        write(part);
        self.held += part.len() - before;
        if self.held >= self.most { self.flush() } else { Ok(()) }
    }

    /// Writes a run: all pieces in the order of their partitions, then the table.
    fn flush(&mut self) -> Result<(), RunError> {
        let span = self.scratch.reserve(self.held as u64);
        let (mut table, mut at) = (Vec::with_capacity(8 * (self.parts.len() + 1)), span.at);
        let mut buffer = Vec::with_capacity(WRITE_BYTES);
        let mut written = span.at;
        for part in &mut self.parts {
            table.extend(at.to_le_bytes());
            at += part.len() as u64;
            buffer.append(part);
            // What grew for this run is given back: the next one may have other partitions.
            *part = Vec::new();
            if buffer.len() >= WRITE_BYTES {
                self.scratch.write_at(&buffer, written)?;
                written += buffer.len() as u64;
                buffer.clear();
            }
        }
        self.scratch.write_at(&buffer, written)?;
        table.extend(at.to_le_bytes());
        self.tables.push(self.scratch.append(&table)?);
        self.held = 0;
        Ok(())
    }

    /// Ends the last run, which stays in memory.
    pub(super) fn finish(self) -> Spilled {
        Spilled { tables: self.tables, rest: self.parts }
    }
}

/// Bytes of a run that are written at once, about.
const WRITE_BYTES: usize = 1 << 20;

impl Spilled {
    /// Gives the pieces of a partition, one after the other.
    ///
    /// # Errors
    /// What the file system or `visit` says.
    pub(super) fn each(
        &self,
        scratch: &Scratch,
        partition: u32,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let mut bytes = Vec::new();
        for table in &self.tables {
            let ends = scratch.read(Span { at: table.at + 8 * u64::from(partition), len: 16 })?;
            let (ends, _) = ends.as_chunks::<8>();
            let mut ends = ends.iter().map(|end| u64::from_le_bytes(*end));
            let (Some(at), Some(end)) = (ends.next(), ends.next()) else { continue };
            if at < end {
                bytes.clear();
                scratch.read_into(Span { at, len: end - at }, &mut bytes)?;
                visit(&bytes)?;
            }
        }
        match self.rest.get(partition as usize) {
            Some(rest) if !rest.is_empty() => visit(rest),
            _ => Ok(()),
        }
    }
}

/// Appends the samples of one staged file and partition: the index of the file, how many, and each by
/// its difference from the one before.
pub(super) fn put_samples(bytes: &mut Vec<u8>, chunk: u32, samples: &[SampleMeta]) {
    put(bytes, u64::from(chunk));
    put(bytes, samples.len() as u64);
    let mut last: Option<&SampleMeta> = None;
    for sample in samples {
        // A further sample of a row says so by 0, and the rest of the row is known.
        if last.is_some_and(|last| last.row == sample.row) {
            put(bytes, 0);
        } else {
            put(bytes, 1 + fold(last.map_or(0, |last| last.row), sample.row));
            bytes.extend(sample.hash.to_le_bytes());
            bytes.extend(sample.key.to_le_bytes());
        }
        put(bytes, u64::from(sample.turn));
        put(bytes, u64::from(sample.tokens));
        put(bytes, u64::from(first_up(sample.first_trained)));
        last = Some(sample);
    }
}

/// Reads what [`put_samples`] wrote, piece after piece, into rows.
pub(super) fn read_samples(piece: &[u8], places: &[(u32, u32)], rows: &mut Rows) -> Result<(), Damaged> {
    let mut bytes = Bytes(piece);
    while !bytes.is_empty() {
        let chunk = bytes.small()?;
        let (source, file) = places.get(chunk as usize).copied().ok_or(Damaged)?;
        let count = bytes.small()?;
        let mut last = 0;
        for index in 0..count {
            match bytes.number()? {
                0 if index == 0 => return Err(Damaged),
                0 => {}
                more => {
                    last = unfold(last, more - 1);
                    let hash = u64::from_le_bytes(bytes.array()?);
                    let key = u128::from_le_bytes(bytes.array()?);
                    rows.begin(Row::new(RowId { source, file, row: last }, hash, key));
                }
            }
            let turn = bytes.small()?;
            let tokens = bytes.small()?;
            let first_trained = first_down(bytes.small()?);
            rows.add_sample(SampleRef { chunk, index, turn, tokens, first_trained });
        }
    }
    Ok(())
}
