//! Map of units: the chunks of a unit are made in a folder of their own and put together to its two
//! objects.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use super::group::MappedGroup;
use super::phase::PhaseRuntime;
use super::record::PhaseRecord;
use super::sealed;
use super::select::SUMMARY;
use super::{Scratch, StepOptions, WorkFolder, checked, pool};
use crate::run::checks::{check_unchanged, opened};
use crate::run::error::RunError;
use crate::run::map::{Round, Threshold, map_round};
use crate::run::progress::{Progress, Step};
use crate::run::pull;
use crate::run::rows::Stages;
use crate::source::remote::RangeUse;
use crate::store::Store;

/// Maps units that are not done: those of a range of numbers, or all.
///
/// # Errors
/// Numbers that there are not; as map in `prep`. Units that are done stay.
pub fn map(
    work: &WorkFolder,
    numbers: Option<Range<u64>>,
    options: &StepOptions,
    progress: &Progress,
) -> Result<u64, RunError> {
    let mut done = 0;
    for index in work.phases(options.phase.as_deref(), numbers.is_some())? {
        let Some(phase) = work.record.phases.get(index) else { continue };
        let units = phase.units.len() as u64;
        let wanted = numbers.clone().map_or(Ok(0..units), |numbers| checked(numbers, units, "units"))?;
        let store = work.phase_store(phase);
        let missing: Vec<Task> =
            tasks(&store, phase)?.into_iter().filter(|task| wanted.contains(&task.unit)).collect();
        if missing.is_empty() {
            continue;
        }
        let scratch = Scratch::new(options.scratch.as_deref())?;
        let units: Vec<u64> = missing.iter().map(|task| task.unit).collect();
        let runtime = PhaseRuntime::open(work, index, scratch.path(), &units, progress)?;
        pull::write_log(&runtime.supply, scratch.path())?;
        let mapping = Mapping { store: &store, phase, runtime: &runtime, scratch: scratch.path(), progress };
        done += mapping.run(&missing, options.threads)?;
        keep_log(&store, &missing, scratch.path())?;
    }
    Ok(done)
}

/// What was transferred from the Hub, for the log of the whole run; evidence, outside of every digest.
fn keep_log(store: &Store, tasks: &[Task], scratch: &Path) -> Result<(), RunError> {
    let path = scratch.join("downloads.jsonl");
    let (Some(first), Ok(meta)) = (tasks.first(), std::fs::metadata(&path)) else { return Ok(()) };
    if meta.len() > 0 {
        let name = format!("{LOGS}/{}-{}.jsonl", first.stem(), std::process::id());
        store.put_file(&name, &path)?;
    }
    Ok(())
}

/// Folder of the logs of transfers.
pub const LOGS: &str = "downloads";

/// A unit in a round of map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which round, from 1.
    pub round: u32,
    /// Number of the unit.
    pub unit: u64,
}

impl Task {
    /// Name of the object that says that it is done.
    pub fn staged(&self) -> String {
        format!("map/{}.staged", self.stem())
    }

    /// Name of the object with its tokens.
    pub fn tokens(&self) -> String {
        format!("map/{}.tokens", self.stem())
    }

    fn stem(&self) -> String {
        format!("r{:02}-u{:06}", self.round, self.unit)
    }
}

/// Hashes up to which each round of map goes, by source.
///
/// # Errors
/// What the store says. A round that is damaged is removed.
pub fn rounds(store: &Store, phase: &PhaseRecord) -> Result<Vec<Vec<u64>>, RunError> {
    let mut rounds = vec![phase.thresholds.clone()];
    loop {
        let name = round_name(rounds.len() as u32 + 1);
        let bytes = match store.get(&name) {
            Err(error) if error.is_not_found() => return Ok(rounds),
            bytes => bytes?,
        };
        match sealed::from_bytes::<Vec<u64>>(&bytes) {
            Ok(round) if round.len() == phase.thresholds.len() => rounds.push(round),
            // Select finds out again that it is needed.
            _ => {
                store.delete(SUMMARY)?;
                store.delete(&name)?;
                return Ok(rounds);
            }
        }
    }
}

/// Name of the object with the hashes of a round.
pub fn round_name(round: u32) -> String {
    format!("rounds/r{round:02}.json")
}

/// The band of hashes that a round takes of each source; none where nothing more is needed.
pub fn bands_of(rounds: &[Vec<u64>], round: u32) -> Vec<Option<Threshold>> {
    let at = |round: usize| rounds.get(round);
    let index = round as usize - 1;
    let before = index.checked_sub(1).and_then(at);
    let upto = at(index).into_iter().flatten();
    let band = |(source, upto): (usize, &u64)| {
        let above = before.and_then(|before| before.get(source)).copied();
        (above != Some(*upto)).then_some(Threshold { above, upto: *upto })
    };
    upto.enumerate().map(band).collect()
}

/// All tasks of the rounds so far, done or not.
pub fn all_tasks(phase: &PhaseRecord, sources: &[u32], rounds: &[Vec<u64>]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for round in 1..=rounds.len() as u32 {
        let bands = bands_of(rounds, round);
        for (unit, source) in (0..phase.units.len() as u64).zip(sources) {
            if bands.get(*source as usize).is_some_and(Option::is_some) {
                tasks.push(Task { round, unit });
            }
        }
    }
    tasks
}

/// Tasks that are not done.
///
/// # Errors
/// What the store says.
pub fn tasks(store: &Store, phase: &PhaseRecord) -> Result<Vec<Task>, RunError> {
    undone(store, phase, &rounds(store, phase)?)
}

/// Tasks of these rounds that are not done.
///
/// # Errors
/// What the store says.
pub fn undone(store: &Store, phase: &PhaseRecord, rounds: &[Vec<u64>]) -> Result<Vec<Task>, RunError> {
    let there: BTreeSet<String> = store.list("map")?.into_iter().map(|(name, _)| name).collect();
    let mut tasks = all_tasks(phase, &phase.sources_of_units(), rounds);
    tasks.retain(|task| !there.contains(&task.staged()));
    Ok(tasks)
}

struct Mapping<'a> {
    store: &'a Store,
    phase: &'a PhaseRecord,
    runtime: &'a PhaseRuntime,
    scratch: &'a Path,
    progress: &'a Progress,
}

impl Mapping<'_> {
    fn run(&self, tasks: &[Task], threads: usize) -> Result<u64, RunError> {
        let plan = &self.runtime.plan;
        self.progress.set_sources(plan.sources.iter().map(crate::run::prep::progress_of).collect());
        self.progress.enter(Step::Map);
        let rounds = rounds(self.store, self.phase)?;
        let stages = self.runtime.stages()?;
        let pool = pool(threads)?;
        for task in tasks {
            // Another worker may have been faster.
            if self.store.size(&task.staged())?.is_none() {
                self.task(&stages, *task, &bands_of(&rounds, task.round), &pool)?;
            }
        }
        Ok(tasks.len() as u64)
    }

    fn task(
        &self,
        stages: &Stages,
        task: Task,
        bands: &[Option<Threshold>],
        pool: &rayon::ThreadPool,
    ) -> Result<(), RunError> {
        let folder = self.scratch.join("chunks");
        std::fs::create_dir_all(&folder).map_err(|e| RunError::write(&folder, e))?;
        let (first, end) = self.phase.units.get(task.unit as usize).copied().unwrap_or_default();
        let bands: Vec<Vec<Threshold>> = bands.iter().map(|band| band.iter().copied().collect()).collect();
        let round = Round { bands: &bands, units: first..end, folder: &folder, progress: self.progress };
        let mapped = map_round(stages, &round, pool)?;
        check_unchanged(stages.plan)?;
        let group = MappedGroup {
            map_digest: self.phase.map_digest.as_str(),
            unit: task.unit,
            chunks: &opened(&mapped.staged)?,
            ranges: ranges_of(&mapped.ranges)?,
        };
        let (tokens, staged) = (self.scratch.join("tokens"), self.scratch.join("staged"));
        group.write(&tokens, &staged)?;
        // The tokens first: who sees the other finds them.
        self.store.put_file(&task.tokens(), &tokens)?;
        self.store.put_file(&task.staged(), &staged)?;
        for path in [folder, tokens, staged] {
            crate::run::folder::remove(&path)?;
        }
        Ok(())
    }
}

/// Ranges that were read, by source and file.
fn ranges_of(
    records: &[((u32, u32), std::path::PathBuf)],
) -> Result<BTreeMap<(u32, u32), Vec<RangeUse>>, RunError> {
    let mut ranges: BTreeMap<(u32, u32), Vec<RangeUse>> = BTreeMap::new();
    for (file, path) in records.iter().filter(|(_, path)| path.exists()) {
        let bytes = std::fs::read(path).map_err(|source| RunError::Read { path: path.clone(), source })?;
        let read: Vec<RangeUse> = serde_json::from_slice(&bytes)
            .map_err(|e| RunError::Staged { path: path.clone(), reason: e.to_string() })?;
        let own = ranges.entry(*file).or_default();
        own.extend(read.into_iter().filter(|range| !own.contains(range)).collect::<Vec<_>>());
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_takes_what_the_one_before_left_out() {
        let rounds = vec![vec![10, u64::MAX], vec![30, u64::MAX]];
        let first = bands_of(&rounds, 1);
        let second = bands_of(&rounds, 2);
        assert!(first.iter().all(|band| band.is_some_and(|band| band.above.is_none())));
        assert_eq!(
            second.first().copied().flatten().map(|band| (band.above, band.upto)),
            Some((Some(10), 30))
        );
        assert_eq!(second.get(1), Some(&None));
    }
}
