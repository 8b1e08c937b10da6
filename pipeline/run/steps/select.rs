//! Select over the units of all machines: their metadata, duplicates and caps; and the list of blocks
//! that each partition takes tokens from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::blocks::{BlockRef, blocks_name};
use super::error::StepError;
use super::group::{Part, StagedGroup};
use super::map::{Task, all_tasks, round_name, rounds, undone};
use super::phase::PhaseRuntime;
use super::record::PhaseRecord;
use super::sealed;
use super::{Scratch, StepOptions, WorkFolder, pool};
use crate::run::checks::{check_keys, check_rows};
use crate::run::error::RunError;
use crate::run::progress::{Progress, Step};
use crate::run::sampling;
use crate::run::select::{KEYS, Keys, Limits, Rules, Selecting, Selection};
use crate::run::staged::{ChunkLedger, StagedRows};
use crate::store::Store;

/// What select said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// It is done.
    Done,
    /// Caps need more rows: phases with a further round of map.
    More(Vec<Option<String>>),
}

/// The object that says that a phase is selected.
pub const SUMMARY: &str = "select/summary.json";

/// Selects, of all phases or of one, where it is not done.
///
/// # Errors
/// Units that are not mapped, or are damaged: these are removed, so that they are mapped again.
pub fn select(work: &WorkFolder, options: &StepOptions, progress: &Progress) -> Result<Selected, RunError> {
    progress.enter(Step::Select);
    let mut more = Vec::new();
    for index in work.phases(options.phase.as_deref(), false)? {
        let Some(phase) = work.record.phases.get(index) else { continue };
        let store = work.phase_store(phase);
        if store.size(SUMMARY)?.is_some() {
            continue;
        }
        let scratch = Scratch::new(options.scratch.as_deref())?;
        let selecting = SelectStep { work, phase, store: &store, scratch: scratch.path(), progress };
        match selecting.run(index, options.threads) {
            Ok(Selected::More(_)) => more.push(phase.name.clone()),
            Ok(Selected::Done) => {}
            Err(error) => return Err(heal(&store, error)),
        }
        if !more.is_empty() {
            // A later phase may leave out the rows of this one.
            break;
        }
    }
    Ok(if more.is_empty() { Selected::Done } else { Selected::More(more) })
}

/// Removes what is damaged, so that its step is done again.
pub fn heal(store: &Store, error: RunError) -> RunError {
    if let RunError::Step(StepError::Damaged { names, .. }) = &error {
        for name in names {
            if let Err(error) = store.delete(name) {
                return error.into();
            }
        }
    }
    error
}

/// The units of a phase that are done, opened: those of a folder in place, others from a copy.
pub struct Units {
    /// Tasks in the order of rounds and units.
    pub tasks: Vec<Task>,
    /// Hashes up to which each round of map went, by source.
    rounds: Vec<Vec<u64>>,
    groups: Vec<Arc<StagedGroup>>,
    parts: Vec<(usize, Part)>,
}

impl Units {
    /// Opens all units of these rounds, which are done. The rounds are read once a step: a select beside
    /// it may open a further one at any moment.
    ///
    /// # Errors
    /// A unit that is damaged.
    pub fn open(
        work: &WorkFolder,
        phase: &PhaseRecord,
        store: &Store,
        scratch: &Path,
        rounds: Vec<Vec<u64>>,
    ) -> Result<Units, RunError> {
        let tasks = all_tasks(phase, &phase.sources_of_units(), &rounds);
        let mut groups = Vec::with_capacity(tasks.len());
        for task in &tasks {
            let name = task.staged();
            let path = local(store, scratch, &name)?;
            let group = StagedGroup::open(&path).map_err(|error| match error {
                RunError::Staged { reason, .. } => damaged(work, store, *task, reason),
                error => error,
            })?;
            if group.header.map_digest != phase.map_digest.as_str() || group.header.unit != task.unit {
                return Err(damaged(work, store, *task, "it is of another unit".to_owned()));
            }
            groups.push(Arc::new(group));
        }
        let mut parts: Vec<(usize, Part)> = groups
            .iter()
            .enumerate()
            .flat_map(|(index, group)| group.parts().map(move |p| (index, p)))
            .collect();
        parts.sort_by_key(|(_, part)| {
            let ledger = part.ledger();
            (ledger.source, ledger.file, ledger.above, ledger.next_row)
        });
        Ok(Units { rounds, tasks, groups, parts })
    }

    /// Parts in the order of source, file, place in the file and band.
    pub fn parts(&self) -> Vec<Part> {
        self.parts.iter().map(|(_, part)| part.clone()).collect()
    }

    /// Turns the error of a file into one that says which unit it is.
    pub fn named(&self, work: &WorkFolder, store: &Store, error: RunError) -> RunError {
        let RunError::Staged { path, reason } = &error else { return error };
        let found = self.groups.iter().position(|group| group.path == *path);
        match found.and_then(|index| self.tasks.get(index)) {
            Some(task) => damaged(work, store, *task, reason.clone()),
            None => error,
        }
    }

    /// The blocks of each partition, by the index of the part.
    fn blocks(&self) -> BTreeMap<u32, Vec<BlockRef>> {
        let mut index_of = BTreeMap::new();
        for (index, (group, part)) in (0u32..).zip(&self.parts) {
            index_of.insert((*group, part.index as u32), index);
        }
        let mut blocks: BTreeMap<u32, Vec<BlockRef>> = BTreeMap::new();
        for (number, (group, task)) in self.groups.iter().zip(&self.tasks).enumerate() {
            for block in &group.header.blocks {
                let chunk = |(part, samples): &(u32, u32)| {
                    index_of.get(&(number, *part)).map(|index| (*index, *samples))
                };
                blocks.entry(block.partition).or_default().push(BlockRef {
                    name: task.tokens(),
                    commit: task.staged(),
                    span: block.span.clone(),
                    chunks: block.counts.iter().filter_map(chunk).collect(),
                });
            }
        }
        blocks
    }
}

/// Map comes before.
///
/// # Errors
/// Tasks that are missing.
pub fn check_mapped(work: &WorkFolder, store: &Store, missing: &[Task]) -> Result<(), RunError> {
    if missing.is_empty() {
        return Ok(());
    }
    Err(StepError::TooEarly {
        place: store.uri(),
        missing: format!("{} units are not mapped", missing.len()),
        way_out: format!("run `potable map --work {}` first", work.store.uri()),
    }
    .into())
}

/// The command that selects again.
pub fn select_again(work: &WorkFolder) -> String {
    format!("potable select --work {}", work.store.uri())
}

/// A file of the work folder on this machine: in place, or a copy; no file where there is no object.
///
/// # Errors
/// What the store says.
pub fn local(store: &Store, scratch: &Path, name: &str) -> Result<PathBuf, RunError> {
    if let Some(folder) = store.folder() {
        return Ok(folder.join(name));
    }
    let path = scratch.join(name);
    match store.fetch(name, &path) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(path),
    }
}

fn damaged(work: &WorkFolder, store: &Store, task: Task, reason: String) -> RunError {
    StepError::Damaged {
        place: store.place(&task.staged()),
        reason,
        names: vec![task.staged(), task.tokens()],
        again: format!("potable map --work {}", work.store.uri()),
    }
    .into()
}

/// Which sources have all their rows staged, by the last round of map.
pub fn whole_sources(runtime: &PhaseRuntime, rounds: &[Vec<u64>]) -> Vec<bool> {
    let thresholds = rounds.last().map(Vec::as_slice).unwrap_or_default();
    let sources = runtime.plan.sources.iter().zip(thresholds);
    sources.map(|(source, upto)| sampling::is_whole(source, *upto)).collect()
}

struct SelectStep<'a> {
    work: &'a WorkFolder,
    phase: &'a PhaseRecord,
    store: &'a Store,
    scratch: &'a Path,
    progress: &'a Progress,
}

impl SelectStep<'_> {
    fn run(&self, index: usize, threads: usize) -> Result<Selected, RunError> {
        let rounds = rounds(self.store, self.phase)?;
        let missing = undone(self.store, self.phase, &rounds)?;
        // A select before this one may have opened a further round, which is all that is not mapped.
        let last = rounds.len() as u32;
        if last > 1 && !missing.is_empty() && missing.iter().all(|task| task.round == last) {
            return Ok(Selected::More(vec![self.phase.name.clone()]));
        }
        check_mapped(self.work, self.store, &missing)?;
        let units = Units::open(self.work, self.phase, self.store, self.scratch, rounds)?;
        let runtime = PhaseRuntime::open(self.work, index, self.scratch, &[], self.progress)?;
        let parts = units.parts();
        let ledgers: Vec<&ChunkLedger> = parts.iter().map(StagedRows::ledger).collect();
        check_rows(&runtime.plan, &ledgers)?;
        check_keys(&runtime.plan, &ledgers)?;
        let mut rounds = units.rounds.clone();
        let rules = Rules::new(&runtime.plan, &whole_sources(&runtime, &rounds));
        let excluded = self.excluded(&runtime)?;
        let folder = self.scratch.join("selection");
        std::fs::create_dir_all(&folder).map_err(|e| RunError::write(&folder, e))?;
        let selecting = Selecting {
            rules: &rules,
            excluded: excluded.as_deref(),
            folder: &folder,
            keys: if gives_keys(&runtime, self.phase) { Keys::Kept } else { Keys::Forgotten },
            limits: Limits::default(),
            progress: self.progress,
        };
        let selection = pool(threads)?.install(|| crate::run::select::select(&selecting, &parts));
        let selection = selection.map_err(|error| units.named(self.work, self.store, error))?;
        let sources = &runtime.plan.sources;
        let mut thresholds = rounds.pop().unwrap_or_default();
        let round = rounds.len() as u32 + 2;
        if sampling::raise(&mut thresholds, &selection, sources) {
            self.store.put_new(&round_name(round), &sealed::to_bytes(&thresholds)?)?;
            return Ok(Selected::More(vec![self.phase.name.clone()]));
        }
        sampling::check_supply(&runtime.plan, &selection)?;
        self.publish(&units, &selection, &folder)?;
        Ok(Selected::Done)
    }

    fn publish(&self, units: &Units, selection: &Selection, folder: &Path) -> Result<(), RunError> {
        for (partition, blocks) in units.blocks() {
            self.store.put(&blocks_name(partition), &sealed::to_bytes(&blocks)?)?;
        }
        sealed::write_digests(self.store, folder, &units.rounds)?;
        // The summary is the last one, and the commit.
        for name in selection.names() {
            self.store.put_file(&format!("select/{name}"), &folder.join(&name))?;
        }
        Ok(())
    }

    /// The file of keys of the phase whose rows are left out.
    fn excluded(&self, runtime: &PhaseRuntime) -> Result<Option<PathBuf>, RunError> {
        let Some(other) = &runtime.plan.phase.exclude_phase else { return Ok(None) };
        crate::run::prep::check_exact(&runtime.recipe, &runtime.plan.phase, other)?;
        let store = self.work.store.below(other);
        if store.size(SUMMARY)?.is_none() {
            return Err(StepError::TooEarly {
                place: self.store.uri(),
                missing: format!("phase `{other}`, whose rows it leaves out, is not selected"),
                way_out: format!("run `potable select --work {}` for all phases", self.work.store.uri()),
            }
            .into());
        }
        excluded_keys(self.work, &store, self.scratch).map(Some)
    }
}

/// The file of keys of a phase whose rows another one leaves out.
///
/// # Errors
/// A file that is damaged: the phase is selected again then.
pub fn excluded_keys(work: &WorkFolder, store: &Store, scratch: &Path) -> Result<PathBuf, RunError> {
    let path = local(store, &scratch.join("excluded"), &format!("select/{KEYS}"))?;
    sealed::Digests::read(store, select_again(work))?.check(KEYS, &path)?;
    Ok(path)
}

/// Whether a later phase leaves out the rows of this one.
fn gives_keys(runtime: &PhaseRuntime, phase: &PhaseRecord) -> bool {
    let mut phases = runtime.recipe.phases.iter();
    phases.any(|other| other.exclude_phase.is_some() && other.exclude_phase == phase.name)
}
