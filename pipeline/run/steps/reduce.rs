//! Reduce of partitions: their samples packed and written as shards, and what was written put down as the
//! commit of the partition.

use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::blocks::BlockTokens;
use super::error::StepError;
use super::group::is_damage;
use super::map::rounds;
use super::owner;
use super::phase::PhaseRuntime;
use super::record::PhaseRecord;
use super::sealed;
use super::select::{SUMMARY, heal, local, select_again, whole_sources};
use super::{Scratch, StepOptions, WorkFolder, checked, pool};
use crate::run::digests::file_digest;
use crate::run::error::RunError;
use crate::run::layout::Layout;
use crate::run::progress::{Progress, Step};
use crate::run::reduce::{PartitionResult, Reduction, TokenSource};
use crate::run::select::{Rules, Selection};
use crate::store::Store;

/// Reduces partitions that are not done: those of a range of numbers, or all. Tails count after the
/// partitions.
///
/// # Errors
/// A phase that is not selected; numbers that there are not; tokens that are damaged: their unit is
/// removed, so that it is mapped again.
pub fn reduce(
    work: &WorkFolder,
    numbers: Option<Range<u64>>,
    options: &StepOptions,
    progress: &Progress,
) -> Result<u64, RunError> {
    progress.enter(Step::Reduce);
    let mut done = 0;
    for index in work.phases(options.phase.as_deref(), numbers.is_some())? {
        let Some(phase) = work.record.phases.get(index) else { continue };
        let count = u64::from(Layout::count(phase.partitions));
        let wanted = numbers.clone().map_or(Ok(0..count), |numbers| checked(numbers, count, "partitions"))?;
        let store = work.phase_store(phase);
        check_selected(work, &store)?;
        let out = work.out(Some(phase))?;
        let missing = missing_results(&store, phase)?;
        let missing: Vec<u32> =
            missing.into_iter().filter(|number| wanted.contains(&u64::from(*number))).collect();
        if missing.is_empty() {
            continue;
        }
        owner::check(work, phase, &out)?;
        let scratch = Scratch::new(options.scratch.as_deref())?;
        let runtime = PhaseRuntime::open(work, index, scratch.path(), &[], progress)?;
        let step = ReduceStep::open(work, phase, &runtime, (&store, &out, scratch.path()))?;
        progress.partitions.1.store(missing.len() as u64, std::sync::atomic::Ordering::Relaxed);
        let one = |number: &u32| match step.partition(*number, progress) {
            // Another one who did the same was faster, and sealed, which removes what is unfinished.
            Err(_) if store.size(&result_name(*number))?.is_some() => Ok(()),
            result => result,
        };
        let results: Vec<Result<(), RunError>> =
            pool(options.threads)?.install(|| missing.par_iter().map(one).collect());
        results.into_iter().collect::<Result<(), _>>().map_err(|error| heal(&store, error))?;
        done += missing.len() as u64;
    }
    Ok(done)
}

/// Name of the object that says that a partition is done.
pub fn result_name(partition: u32) -> String {
    format!("reduce/partition-{partition:05}.json")
}

/// Partitions and tails that are not done.
///
/// # Errors
/// What the store says.
pub fn missing_results(store: &Store, phase: &PhaseRecord) -> Result<Vec<u32>, RunError> {
    let there: std::collections::BTreeSet<String> =
        store.list("reduce")?.into_iter().map(|(name, _)| name).collect();
    let all = 0..Layout::count(phase.partitions);
    Ok(all.filter(|number| !there.contains(&result_name(*number))).collect())
}

/// Select comes before.
///
/// # Errors
/// A phase that is not selected.
pub fn check_selected(work: &WorkFolder, store: &Store) -> Result<(), RunError> {
    if store.size(SUMMARY)?.is_some() {
        return Ok(());
    }
    Err(StepError::TooEarly {
        place: store.uri(),
        missing: "it is not selected which rows go on".to_owned(),
        way_out: format!("run `potable select --work {}` first", work.store.uri()),
    }
    .into())
}

/// What reduce of a phase works with.
pub struct ReduceStep<'a> {
    work: &'a WorkFolder,
    phase: &'a PhaseRecord,
    runtime: &'a PhaseRuntime,
    store: &'a Store,
    out: &'a Store,
    scratch: &'a Path,
    /// Checksums of the selection.
    pub digests: sealed::Digests<'a>,
    /// Hashes up to which each round of map went, by source.
    pub rounds: Vec<Vec<u64>>,
    /// What names samples.
    pub rules: Rules,
    /// Which rows go on.
    pub selection: Selection,
}

impl<'a> ReduceStep<'a> {
    /// Opens the selection of a phase. `stores` are the phase's part of the work folder, its output
    /// folder, and a folder for files while they are made.
    ///
    /// # Errors
    /// A selection that is damaged.
    pub fn open(
        work: &'a WorkFolder,
        phase: &'a PhaseRecord,
        runtime: &'a PhaseRuntime,
        (store, out, scratch): (&'a Store, &'a Store, &'a Path),
    ) -> Result<Self, RunError> {
        let rounds = rounds(store, phase)?;
        let rules = Rules::new(&runtime.plan, &whole_sources(runtime, &rounds));
        let folder = match store.folder() {
            Some(folder) => folder.join("select"),
            None => {
                store.fetch(SUMMARY, &scratch.join(SUMMARY))?;
                scratch.join("select")
            }
        };
        let digests = sealed::Digests::read(store, select_again(work))?;
        digests.check("summary.json", &folder.join("summary.json"))?;
        digests.check_rounds(&rounds)?;
        let selection = Selection::open(&folder)?;
        Ok(ReduceStep { work, phase, runtime, store, out, scratch, digests, rounds, rules, selection })
    }

    /// Turns the error of a file of the selection into one that has the phase selected again.
    pub fn named(&self, error: RunError) -> RunError {
        let path = match &error {
            RunError::Staged { path, .. } => path,
            RunError::Read { path, source } if is_damage(source) => path,
            _ => return error,
        };
        let parent = path.parent().and_then(Path::file_name);
        let Some(name) = path.file_name().filter(|_| parent.is_some_and(|name| name == "select")) else {
            return error;
        };
        self.digests.spoilt(&format!("select/{}", name.display()))
    }

    /// Writes the shards of a partition or a tail, and then its result.
    ///
    /// # Errors
    /// Tokens that are damaged, what the stores say.
    pub fn partition(&self, number: u32, progress: &Progress) -> Result<(), RunError> {
        let layout = Layout::new(&self.rules, &self.selection);
        let reads = layout.reads(number);
        let tokens = self.tokens(&reads)?;
        let folder = self.scratch.join("results");
        std::fs::create_dir_all(&folder).map_err(|e| RunError::write(&folder, e))?;
        let out = self.local_out();
        let reduction = self.reduction(&layout, &tokens, (&out, &folder), progress);
        let result = reduction.partition(number).map_err(|error| self.named(error))?;
        self.upload(&out, result.shards.iter().flat_map(|(_, files)| files).map(|(path, _, _)| path))?;
        Ok(self.store.put(&result_name(number), &sealed::to_bytes(&result)?)?)
    }

    /// The tokens of partitions, whose rows of the selection are fetched where they are not here.
    ///
    /// # Errors
    /// A list of blocks that is damaged, what the store says.
    pub fn tokens(&self, reads: &[u32]) -> Result<BlockTokens<'a>, RunError> {
        let times = &self.selection.summary.times;
        let has_rows = |partition: &&u32| times.get(**partition as usize).is_some_and(|times| *times > 0);
        let reads: Vec<u32> = reads.iter().filter(has_rows).copied().collect();
        for partition in reads.iter().filter(|_| self.store.folder().is_none()) {
            let name = format!("select/{}", Selection::partition_name(*partition));
            if !self.scratch.join(&name).exists() {
                local(self.store, self.scratch, &name)?;
            }
        }
        let again = format!("potable map --work {}", self.work.store.uri());
        BlockTokens::open(self.store, &reads, again).map_err(|error| self.named(error))
    }

    /// The reduction that writes to a folder here, its results to another.
    pub fn reduction<'r>(
        &'r self,
        layout: &'r Layout<'r>,
        tokens: &'r dyn TokenSource,
        (out, folder): (&'r Path, &'r Path),
        progress: &'r Progress,
    ) -> Reduction<'r> {
        Reduction {
            plan: &self.runtime.plan,
            rules: &self.rules,
            tokens,
            layout,
            out,
            folder,
            vocabulary: self.runtime.tokeniser.vocabulary_size(),
            progress,
        }
    }

    /// The output folder, or where its files are made.
    pub fn local_out(&self) -> PathBuf {
        self.out.folder().map_or_else(|| self.scratch.join("out"), Path::to_path_buf)
    }

    /// Moves files from where they are made to the output folder, if that is elsewhere.
    ///
    /// # Errors
    /// What the store says.
    pub fn upload<'n>(&self, from: &Path, names: impl Iterator<Item = &'n String>) -> Result<(), RunError> {
        if self.out.folder().is_some() {
            return Ok(());
        }
        for name in names {
            let path = from.join(name);
            self.out.put_file(name, &path)?;
            crate::run::folder::remove(&path)?;
        }
        Ok(())
    }

    /// The results of all partitions and tails, whose shards are there in full size.
    ///
    /// # Errors
    /// Partitions that are not done; shards that are gone: the result of their partition is removed, so
    /// that they are written again.
    pub fn results(&self) -> Result<Vec<PartitionResult>, RunError> {
        let again = format!("potable reduce --work {}", self.work.store.uri());
        let missing = missing_results(self.store, self.phase)?;
        if !missing.is_empty() {
            return Err(StepError::TooEarly {
                place: self.store.uri(),
                missing: format!("{} partitions are not reduced", missing.len()),
                way_out: format!("run `{again}` first"),
            }
            .into());
        }
        let there: std::collections::BTreeMap<String, u64> = self.out.list("")?.into_iter().collect();
        let mut results = Vec::new();
        for number in 0..Layout::count(self.phase.partitions) {
            let name = result_name(number);
            let damaged = |reason: String| StepError::Damaged {
                place: self.store.place(&name),
                reason,
                names: vec![name.clone()],
                again: again.clone(),
            };
            let result: PartitionResult = sealed::from_bytes(&self.store.get(&name)?).map_err(damaged)?;
            for (path, _, size) in result.shards.iter().flat_map(|(_, files)| files) {
                if there.get(path) != Some(size) {
                    return Err(damaged(format!("its shard `{path}` is not there in full size")).into());
                }
            }
            results.push(result);
        }
        Ok(results)
    }

    /// Checks that the shards in a folder are what reduce wrote. Those in a bucket are not fetched for it:
    /// their sizes were looked at.
    ///
    /// # Errors
    /// A shard with other bytes: the result of its partition is named, so that it is written again.
    pub fn check_shards(&self, results: &[PartitionResult]) -> Result<(), RunError> {
        let Some(out) = self.out.folder() else { return Ok(()) };
        let one = |(number, result): (usize, &PartitionResult)| {
            for (path, digest, _) in result.shards.iter().flat_map(|(_, files)| files) {
                if file_digest(&out.join(path))? != *digest {
                    let name = result_name(number as u32);
                    return Err(RunError::from(StepError::Damaged {
                        place: self.out.place(path),
                        reason: "it is not what was written".to_owned(),
                        names: vec![name],
                        again: format!("potable reduce --work {}", self.work.store.uri()),
                    }));
                }
            }
            Ok(())
        };
        let checked: Vec<Result<(), RunError>> = results.par_iter().enumerate().map(one).collect();
        checked.into_iter().collect()
    }
}
