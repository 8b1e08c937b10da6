//! Map: units to staged files, on every thread of the pool. A unit hands out its rows in chunks; any
//! thread takes the next chunk, so that one big file keeps all of them busy. A chunk is committed as
//! soon as it is done, and a killed run goes on from there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use potable_manifests::Digest;

use super::error::RunError;
use super::plan::{Plan, Unit};
use super::progress::Progress;
use super::pull::fetch_during;
use super::rows::{ChunkPlace, Stages, map_chunk};
use super::staged::Staged;
use crate::shard::write_atomic;
use crate::source::reader::{Chunk, ReadRequest, RowReader, Sampler, open_reader};
use crate::source::remote::{RangeUse, Remote};
use crate::source::{Format, SourceFile};

/// A band of sampling hashes: above `above` up to `upto`. Rows of one band are staged together, so that
/// a run with a higher cap only maps what the lower one left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Threshold {
    /// Taken before.
    pub above: Option<u64>,
    /// The highest hash taken now.
    pub upto: u64,
}

/// One round of map.
pub struct Round<'a> {
    /// The bands of hashes that each source takes; none where nothing more is needed.
    pub bands: &'a [Vec<Threshold>],
    /// Which units of the plan.
    pub units: std::ops::Range<usize>,
    /// Where staged files go.
    pub folder: &'a Path,
    /// Where progress is counted.
    pub progress: &'a Progress,
}

/// What a round of map left.
#[derive(Debug, Default)]
pub struct Mapped {
    /// Staged files in the order of source, file and row.
    pub staged: Vec<PathBuf>,
    /// Records of the ranges that streamed units read, with source and file.
    pub ranges: Vec<((u32, u32), PathBuf)>,
}

/// Maps all units that are not done yet. Gives the staged files of the round in the order of source,
/// file and row.
///
/// # Errors
/// The first error in unit order among those met; work that was committed stays.
pub fn map_round(stages: &Stages, round: &Round, pool: &rayon::ThreadPool) -> Result<Mapped, RunError> {
    let staged = staged_names(round.folder)?;
    let mut feeders = Vec::new();
    let first = round.units.start;
    for (index, unit) in stages.plan.units.iter().enumerate().take(round.units.end).skip(first) {
        for band in round.bands.get(unit.source as usize).into_iter().flatten() {
            let mut feeder = Feeder::new(stages.plan, round.folder, (index, *unit), *band);
            feeder.resume(&staged)?;
            feeders.push(Arc::new(feeder));
        }
    }
    if feeders.iter().any(|feeder| !matches!(feeder.lock().reader, Reader::Done)) {
        stages.tokeniser.prepare()?;
    }
    let work =
        Work { stages, round, feeders: &feeders, next: AtomicUsize::new(0), errors: Mutex::new(Vec::new()) };
    let needed = needed(stages.plan, &feeders);
    fetch_during(&needed, round.progress, || pool.broadcast(|_| work.run(stages.plan.cut.reversed)));
    let mut errors = work.errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    // An error stops the transfers of other units: what stopped them comes first.
    errors.sort_by_key(|(unit, error)| (error.is_interrupt(), *unit));
    if let Some((_, error)) = errors.into_iter().next() {
        return Err(error);
    }
    if round.progress.is_stopped() {
        return Err(RunError::Interrupted);
    }
    Ok(Mapped {
        staged: feeders.iter().flat_map(|feeder| feeder.paths()).collect(),
        ranges: feeders
            .iter()
            .filter(|feeder| feeder.streams)
            .map(|feeder| ((feeder.unit.source, feeder.unit.file), feeder.ranges_path()))
            .collect(),
    })
}

/// The files of the Hub that are still to be read and are kept, in the order of their units.
fn needed(plan: &Plan, feeders: &[Arc<Feeder>]) -> Vec<Arc<Remote>> {
    let mut seen = BTreeSet::new();
    let open = feeders.iter().filter(|feeder| !matches!(feeder.lock().reader, Reader::Done));
    let files = open.filter_map(|feeder| {
        let (source, file) = (feeder.unit.source, feeder.unit.file);
        let planned = plan.sources.get(source as usize)?.files.get(file as usize)?;
        let first = seen.insert((source, file)) && !planned.file.streams();
        planned.file.remote().filter(|_| first).cloned()
    });
    files.collect()
}

/// Digests of the ranges that were read, by source and file, over the units of this run.
///
/// # Errors
/// A record of a unit that cannot be read, or says something else of a range than another.
pub fn ranges_read(records: &[((u32, u32), PathBuf)]) -> Result<BTreeMap<(u32, u32), Digest>, RunError> {
    let mut read: BTreeMap<(u32, u32), BTreeMap<u64, RangeUse>> = BTreeMap::new();
    // Text files have none: they are hashed whole.
    for (file, path) in records.iter().filter(|(_, path)| path.exists()) {
        let damaged = |reason: String| RunError::Staged { path: path.clone(), reason };
        let text = std::fs::read(path).map_err(|source| RunError::Read { path: path.clone(), source })?;
        let ranges: Vec<RangeUse> = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        let own = read.entry(*file).or_default();
        for range in ranges {
            if own.get(&range.start).is_some_and(|other| *other != range) {
                return Err(damaged(format!("byte {} was read twice with other bytes", range.start)));
            }
            own.insert(range.start, range);
        }
    }
    let digest = |ranges: BTreeMap<u64, RangeUse>| {
        let lines = ranges.values().map(|r| format!("{} {} {}\n", r.start, r.len, r.sha256));
        Digest::of(lines.collect::<String>().as_bytes())
    };
    Ok(read.into_iter().map(|(file, ranges)| (file, digest(ranges))).collect())
}

/// Bands that cover hashes from `from` up to `upto`: those that an earlier run staged, as far as they
/// reach, and a new one for the rest.
///
/// # Errors
/// A work folder that cannot be read.
pub fn bands(folder: &Path, source: usize, from: Option<u64>, upto: u64) -> Result<Vec<Threshold>, RunError> {
    let prefix = format!("s{source:04}-");
    let names = staged_names(folder)?;
    let known: BTreeSet<Threshold> = names
        .iter()
        .filter_map(|name| name.strip_prefix(&prefix))
        .filter_map(|rest| {
            let mut parts = rest.split('-');
            let (above, upto) = (parts.next()?, parts.next()?);
            let above = if above == START { None } else { Some(u64::from_str_radix(above, 16).ok()?) };
            Some(Threshold { above, upto: u64::from_str_radix(upto, 16).ok()? })
        })
        .collect();
    let (mut bands, mut at) = (Vec::new(), from);
    while at != Some(upto) {
        let next = known.iter().copied().find(|band| band.above == at && band.upto <= upto);
        let band = next.unwrap_or(Threshold { above: at, upto });
        at = Some(band.upto);
        bands.push(band);
    }
    Ok(bands)
}

/// What stands for "no hash before" in file names.
const START: &str = "start";

fn staged_names(folder: &Path) -> Result<BTreeSet<String>, RunError> {
    let entries =
        std::fs::read_dir(folder).map_err(|source| RunError::Read { path: folder.to_path_buf(), source })?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
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
        let place = ChunkPlace { unit: feeder.unit, sampler: feeder.sampler };
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
    streams: bool,
    sampler: Sampler,
    folder: PathBuf,
    name: String,
    state: Mutex<State>,
}

struct State {
    reader: Reader,
    /// The file with an account of what is read, if it is streamed.
    streamed: Option<SourceFile>,
    /// Chunks handed out and chunks committed, those of earlier runs among them.
    issued: u32,
    committed: u32,
    ended: bool,
}

impl State {
    fn new(reader: Reader, chunks: u32) -> Self {
        State { reader, streamed: None, issued: chunks, committed: chunks, ended: false }
    }
}

enum Reader {
    Closed(Unit),
    Open(Box<dyn RowReader>),
    Done,
}

impl Feeder {
    fn new(plan: &Plan, folder: &Path, (index, unit): (usize, Unit), band: Threshold) -> Self {
        let source = plan.sources.get(unit.source as usize);
        let key = source.map_or(0, |s| s.sampling_key(plan.phase.seed, unit.file as usize));
        let above = band.above.map_or(START.to_owned(), |above| format!("{above:016x}"));
        let name = format!("s{:04}-{above}-{:016x}-u{index:06}", unit.source, band.upto);
        Feeder {
            index,
            unit,
            streams: source
                .and_then(|s| s.files.get(unit.file as usize))
                .is_some_and(|file| file.file.streams()),
            sampler: Sampler { key, above: band.above, upto: band.upto },
            folder: folder.to_path_buf(),
            name,
            state: Mutex::new(State::new(Reader::Closed(unit), 0)),
        }
    }

    /// Finds what an earlier run committed: chunks count up to the first that is missing. Chunks after
    /// a gap are removed, since a reader that starts at the gap may cut elsewhere.
    fn resume(&mut self, staged: &BTreeSet<String>) -> Result<(), RunError> {
        let there = |number: u32| staged.contains(&self.chunk_name(number));
        let mut chunks = (0..).take_while(|&number| there(number)).count() as u32;
        let done = std::fs::read_to_string(self.done_path()).ok();
        let mut reader = Reader::Done;
        if done.and_then(|text| text.trim().parse::<u32>().ok()) != Some(chunks) {
            if self.streams {
                // Rows of a stream count once all of it was read and checked.
                chunks = 0;
            }
            let first = self.chunk_name(chunks);
            let own = format!("{}-", self.name);
            for name in staged.range(first..).take_while(|name| name.starts_with(&own)) {
                super::folder::remove(&self.folder.join(name))?;
            }
            super::folder::remove(&self.done_path())?;
            let mut unit = self.unit;
            for number in 0..chunks {
                let ledger = Staged::open(&self.chunk_path(number))?.ledger;
                unit.range.skip = ledger.next_row - unit.range.first_row;
                unit.range.rows = unit.range.rows.map(|rows| rows.saturating_sub(ledger.passed));
            }
            reader = Reader::Closed(unit);
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        *state = State::new(reader, chunks);
        Ok(())
    }

    fn next(&self, plan: &Plan) -> Result<Option<(u32, Chunk)>, RunError> {
        let mut state = self.lock();
        if let Reader::Closed(unit) = state.reader {
            let (reader, file) = self.open(plan, unit)?;
            state.streamed = Some(file).filter(|_| self.streams);
            state.reader = Reader::Open(reader);
        }
        let Reader::Open(reader) = &mut state.reader else { return Ok(None) };
        match reader.next_chunk()? {
            Some(chunk) => {
                state.issued += 1;
                Ok(Some((state.issued - 1, chunk)))
            }
            None => {
                state.reader = Reader::Done;
                if let Some(file) = state.streamed.take() {
                    self.account(&file)?;
                }
                state.ended = true;
                self.seal(&state)?;
                Ok(None)
            }
        }
    }

    /// Ends a stream: the rest of a text file is hashed, the ranges of a Parquet file are written down.
    fn account(&self, file: &SourceFile) -> Result<(), RunError> {
        let Some(remote) = file.remote() else { return Ok(()) };
        if file.format != Format::Parquet {
            return Ok(remote.finish_stream()?);
        }
        let text =
            serde_json::to_vec(&remote.ranges()).map_err(|e| RunError::Manifest { reason: e.to_string() })?;
        write_atomic(&self.ranges_path(), &text)?;
        Ok(())
    }

    fn open(&self, plan: &Plan, unit: Unit) -> Result<(Box<dyn RowReader>, SourceFile), RunError> {
        let missing = || RunError::Manifest { reason: "a unit names no file".to_owned() };
        let source = plan.sources.get(unit.source as usize).ok_or_else(missing)?;
        let file = source.files.get(unit.file as usize).ok_or_else(missing)?;
        let required = source.mapping.required_columns();
        let is_required = |name: &String| required.contains(name) && !source.config.is_joined(name);
        let (columns, optional) = source.mapping.columns.iter().cloned().partition(is_required);
        let request = ReadRequest {
            range: unit.range,
            columns,
            optional,
            sampler: self.sampler,
            chunk_bytes: plan.cut.chunk_bytes,
        };
        let file = file.file.fork();
        Ok((open_reader(&file, &source.config.name, &request)?, file))
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

    fn chunk_name(&self, number: u32) -> String {
        format!("{}-c{number:05}.arrow", self.name)
    }

    fn chunk_path(&self, number: u32) -> PathBuf {
        self.folder.join(self.chunk_name(number))
    }

    fn ranges_path(&self) -> PathBuf {
        self.folder.join(format!("{}.ranges", self.name))
    }

    fn done_path(&self) -> PathBuf {
        self.folder.join(format!("{}.done", self.name))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
