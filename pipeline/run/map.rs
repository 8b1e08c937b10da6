//! Map: units to staged files, on every thread of the pool. A unit hands out its rows in chunks; any
//! thread takes the next chunk, so that one big file keeps all of them busy. A chunk is committed as
//! soon as it is done, and a killed run goes on from there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::RunError;
use super::plan::{Plan, Unit};
use super::progress::Progress;
use super::rows::{ChunkPlace, Stages, map_chunk};
use super::staged::StagedFile;
use crate::shard::write_atomic;
use crate::source::reader::{Chunk, ReadRequest, RowReader, Sampler, open_reader};

/// The rows that one sampling round takes of a source: hashes above `above` up to `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Taken before.
    pub above: Option<u64>,
    /// The highest hash taken now.
    pub upto: u64,
}

/// One round of map.
pub struct Round<'a> {
    /// Number of the round.
    pub number: u32,
    /// What each source takes; `None` where nothing more is needed.
    pub thresholds: &'a [Option<Threshold>],
    /// Where staged files go.
    pub folder: &'a Path,
    /// Where progress is counted.
    pub progress: &'a Progress,
}

/// Maps all units that are not done yet. Gives the staged files of the round in the order of source,
/// file and row.
///
/// # Errors
/// The first error in unit order among those met; work that was committed stays.
pub fn map_round(stages: &Stages, round: &Round, pool: &rayon::ThreadPool) -> Result<Vec<PathBuf>, RunError> {
    let mut feeders = Vec::new();
    for (index, unit) in stages.plan.units.iter().enumerate() {
        if let Some(Some(threshold)) = round.thresholds.get(unit.source as usize) {
            feeders.push(Arc::new(Feeder::new(stages.plan, round, index, *unit, *threshold)?));
        }
    }
    let work =
        Work { stages, round, feeders: &feeders, next: AtomicUsize::new(0), errors: Mutex::new(Vec::new()) };
    pool.broadcast(|_| work.run(stages.plan.cut.reversed));
    let mut errors = work.errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    errors.sort_by_key(|(unit, _)| *unit);
    if let Some((_, error)) = errors.into_iter().next() {
        return Err(error);
    }
    if round.progress.is_stopped() {
        return Err(RunError::Interrupted);
    }
    Ok(feeders.iter().flat_map(|feeder| feeder.paths()).collect())
}

struct Work<'a> {
    stages: &'a Stages<'a>,
    round: &'a Round<'a>,
    feeders: &'a [Arc<Feeder>],
    next: AtomicUsize,
    errors: Mutex<Vec<(usize, RunError)>>,
}

impl Work<'_> {
    /// What each thread does: its own units first, then chunks of units that others have open.
    fn run(&self, reversed: bool) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let at = if reversed { self.feeders.len().checked_sub(number + 1) } else { Some(number) };
            let Some(feeder) = at.and_then(|at| self.feeders.get(at)) else { break };
            if !self.drain(feeder) {
                return;
            }
        }
        for feeder in self.feeders {
            if !self.drain(feeder) {
                return;
            }
        }
    }

    /// Takes chunks of a unit until there are none; `false` if the run ends.
    fn drain(&self, feeder: &Feeder) -> bool {
        loop {
            if self.round.progress.is_stopped() {
                return false;
            }
            match self.step(feeder) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => {
                    let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
                    errors.push((feeder.index, error));
                    self.round.progress.stop();
                    return false;
                }
            }
        }
    }

    fn step(&self, feeder: &Feeder) -> Result<bool, RunError> {
        let Some((number, chunk)) = feeder.next(self.stages.plan)? else { return Ok(false) };
        let place = ChunkPlace { unit: feeder.unit, round: self.round.number, sampler: feeder.sampler };
        let staged = map_chunk(self.stages, place, &chunk)?;
        let ledger = &staged.ledger;
        self.round.progress.count(feeder.unit.source as usize, ledger.taken, ledger.bytes, ledger.tokens);
        staged.write(&feeder.chunk_path(number))?;
        feeder.finish_chunk()?;
        Ok(true)
    }
}

/// Hands out the chunks of one unit.
struct Feeder {
    index: usize,
    unit: Unit,
    sampler: Sampler,
    stem: PathBuf,
    state: Mutex<State>,
}

struct State {
    reader: Reader,
    /// Chunks handed out and chunks committed, those of earlier runs among them.
    issued: u32,
    committed: u32,
    ended: bool,
}

enum Reader {
    Closed(Unit),
    Open(Box<dyn RowReader>),
    Done,
}

impl Feeder {
    fn new(
        plan: &Plan,
        round: &Round,
        index: usize,
        unit: Unit,
        threshold: Threshold,
    ) -> Result<Self, RunError> {
        let source = plan.sources.get(unit.source as usize);
        let key = source.map_or(0, |s| s.sampling_key(plan.phase.seed, unit.file as usize));
        let stem = round.folder.join(format!("r{:02}-u{index:06}", round.number));
        let mut feeder = Feeder {
            index,
            unit,
            sampler: Sampler { key, above: threshold.above, upto: threshold.upto },
            stem,
            state: Mutex::new(State { reader: Reader::Closed(unit), issued: 0, committed: 0, ended: false }),
        };
        feeder.resume()?;
        Ok(feeder)
    }

    /// Finds what an earlier run committed: chunks count up to the first that is missing.
    fn resume(&mut self) -> Result<(), RunError> {
        let done =
            std::fs::read_to_string(self.done_path()).ok().and_then(|text| text.trim().parse::<u32>().ok());
        let mut unit = self.unit;
        let mut chunks = 0;
        while done.is_none_or(|count| chunks < count) && self.chunk_path(chunks).exists() {
            if done.is_none() {
                let ledger = StagedFile::open(&self.chunk_path(chunks))?.ledger;
                unit.range.skip = ledger.next_row - unit.range.first_row;
                unit.range.rows = unit.range.rows.map(|rows| rows.saturating_sub(ledger.passed));
            }
            chunks += 1;
        }
        if done.is_none() {
            self.remove_chunks_from(chunks)?;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.issued = chunks;
        state.committed = chunks;
        state.reader = match done {
            Some(count) if count == chunks => Reader::Done,
            _ => Reader::Closed(unit),
        };
        Ok(())
    }

    /// Chunks after a gap may be cut elsewhere by a reader that starts at the gap.
    fn remove_chunks_from(&self, first: u32) -> Result<(), RunError> {
        let gap = 4096;
        for number in first..first + gap {
            let path = self.chunk_path(number);
            for path in [super::staged::drops_path(&path), path] {
                if path.exists() {
                    std::fs::remove_file(&path).map_err(|e| RunError::write(&path, e))?;
                }
            }
        }
        Ok(())
    }

    fn next(&self, plan: &Plan) -> Result<Option<(u32, Chunk)>, RunError> {
        let mut state = self.lock();
        if let Reader::Closed(unit) = state.reader {
            state.reader = Reader::Open(self.open(plan, unit)?);
        }
        let Reader::Open(reader) = &mut state.reader else { return Ok(None) };
        match reader.next_chunk()? {
            Some(chunk) => {
                state.issued += 1;
                Ok(Some((state.issued - 1, chunk)))
            }
            None => {
                state.reader = Reader::Done;
                state.ended = true;
                self.seal(&state)?;
                Ok(None)
            }
        }
    }

    fn open(&self, plan: &Plan, unit: Unit) -> Result<Box<dyn RowReader>, RunError> {
        let missing = || RunError::Manifest { reason: "a unit names no file".to_owned() };
        let source = plan.sources.get(unit.source as usize).ok_or_else(missing)?;
        let file = source.files.get(unit.file as usize).ok_or_else(missing)?;
        let required = source.mapping.required;
        let (columns, optional) = source.mapping.columns.split_at(required.min(source.mapping.columns.len()));
        let request = ReadRequest {
            range: unit.range,
            columns: columns.to_vec(),
            optional: optional.to_vec(),
            sampler: self.sampler,
            chunk_bytes: plan.cut.chunk_bytes,
        };
        Ok(open_reader(&file.file, &source.config.name, &request)?)
    }

    fn finish_chunk(&self) -> Result<(), RunError> {
        let mut state = self.lock();
        state.committed += 1;
        self.seal(&state)
    }

    /// The unit is done when its last chunk is committed.
    fn seal(&self, state: &State) -> Result<(), RunError> {
        if state.ended && state.committed == state.issued {
            write_atomic(&self.done_path(), format!("{}\n", state.issued).as_bytes())?;
        }
        Ok(())
    }

    fn paths(&self) -> Vec<PathBuf> {
        let issued = self.lock().issued;
        (0..issued).map(|number| self.chunk_path(number)).collect()
    }

    fn chunk_path(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("{}-c{number:05}.arrow", self.stem.display()))
    }

    fn done_path(&self) -> PathBuf {
        PathBuf::from(format!("{}.done", self.stem.display()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
