//! Seal: what the partitions left becomes a data set, its manifest last.

use std::path::{Path, PathBuf};

use potable_manifests::{Digest, Manifest, RunBlock};

use super::map::{LOGS, undone};
use super::owner::{self, MANIFEST};
use super::phase::PhaseRuntime;
use super::record::PhaseRecord;
use super::reduce::{ReduceStep, check_selected};
use super::select::{SUMMARY, Units, check_mapped, excluded_keys, heal, local};
use super::{Scratch, StepOptions, WorkFolder, pool};
use crate::run::digests::PlanDigest;
use crate::run::error::RunError;
use crate::run::folder::{OWNER, OutputFolder, remove};
use crate::run::layout::Layout;
use crate::run::map::ranges_read;
use crate::run::prep::{PrepReport, write_index};
use crate::run::progress::{Progress, Step};
use crate::run::seal::Sealing;
use crate::run::select::{NEAR, OVERLONG};
use crate::run::staged::StagedRows;
use crate::shard::write_atomic;
use crate::store::Store;

/// Seals the phases, or one, that are not sealed; with several, the index over them when all are.
///
/// # Errors
/// Steps that are not done; as seal in `prep`.
pub fn seal(
    work: &WorkFolder,
    options: &StepOptions,
    run: &RunBlock,
    progress: &Progress,
) -> Result<Vec<PrepReport>, RunError> {
    progress.enter(Step::Seal);
    let mut reports = Vec::new();
    let indices = work.phases(options.phase.as_deref(), false)?;
    let all = indices.len() == work.record.phases.len();
    for index in indices {
        let Some(phase) = work.record.phases.get(index) else { continue };
        let (store, out) = (work.phase_store(phase), work.out(Some(phase))?);
        let scratch = Scratch::new(options.scratch.as_deref())?;
        let step = SealStep { work, phase, stores: (&store, &out), scratch: scratch.path(), progress };
        let manifest = match owner::sealed_by(work, phase, &out)? {
            Some(manifest) => (manifest, true),
            None => {
                let sealed = step.run(index, options.threads, run).map_err(|error| heal(&store, error))?;
                (sealed, false)
            }
        };
        reports.push(PrepReport { out: out.uri().into(), manifest: manifest.0, up_to_date: manifest.1 });
    }
    let index = work.out(None)?;
    let current = reports.iter().all(|report| report.up_to_date) && index.size(MANIFEST)?.is_some();
    if all && !current && work.record.phases.iter().any(|phase| phase.name.is_some()) {
        let scratch = Scratch::new(options.scratch.as_deref())?;
        let recipe =
            crate::recipe::Recipe::parse(&work.record.recipe, &work.record.origin, &work.record.base)?;
        write_index(&recipe, &reports, scratch.path())?;
        index.put_file(MANIFEST, &scratch.path().join(MANIFEST))?;
    }
    Ok(reports)
}

/// Records of ranges read, with source and file.
type Ranges = Vec<((u32, u32), PathBuf)>;

struct SealStep<'a> {
    work: &'a WorkFolder,
    phase: &'a PhaseRecord,
    stores: (&'a Store, &'a Store),
    scratch: &'a Path,
    progress: &'a Progress,
}

impl SealStep<'_> {
    fn run(&self, index: usize, threads: usize, run: &RunBlock) -> Result<Manifest, RunError> {
        let (store, out) = self.stores;
        check_selected(self.work, store)?;
        owner::hold(self.work, out)?;
        let runtime = PhaseRuntime::open(self.work, index, self.scratch, &[], self.progress)?;
        let step = ReduceStep::open(self.work, self.phase, &runtime, (store, out, self.scratch))?;
        let results = step.results()?;
        let pool = pool(threads)?;
        pool.install(|| step.check_shards(&results))?;
        let near = (step.selection.summary.near > 0).then_some(NEAR);
        for file in [OVERLONG].into_iter().chain(near) {
            let path = local(store, self.scratch, &format!("select/{file}"))?;
            step.digests.check(file, &path)?;
        }
        check_mapped(self.work, store, &undone(store, self.phase, &step.rounds)?)?;
        let units = Units::open(self.work, self.phase, store, self.scratch, step.rounds.clone())?;
        let parts = units.parts();
        let files: Vec<&dyn StagedRows> = parts.iter().map(|part| part as &dyn StagedRows).collect();
        // Two may seal at once: each makes the files in a folder of its own, and puts the same bytes in
        // place.
        let made = self.scratch.join("sealed");
        let folder = OutputFolder::open(&made, false)?;
        // Some formats have a file that describes all shards beside them.
        for (shard, _) in results.iter().flat_map(|result| &result.shards) {
            let path = made.join(&shard.path);
            let parent = path.parent().unwrap_or(&made);
            std::fs::create_dir_all(parent).map_err(|e| RunError::write(parent, e))?;
        }
        let layout = Layout::new(&step.rules, &step.selection);
        let everything: Vec<u32> = match runtime.plan.phase.output.calibration {
            0 => Vec::new(),
            _ => (0..self.phase.partitions).collect(),
        };
        let tokens = step.tokens(&everything)?;
        let results_folder = self.scratch.join("results");
        let reduction = step.reduction(&layout, &tokens, (&made, &results_folder), self.progress);
        let beside = pool.install(|| reduction.write_calibration(&results));
        let beside = beside.map_err(|error| step.named(error))?;
        let stages = runtime.stages()?;
        let plan_digest = self.plan_digest(&runtime)?;
        owner::announce(self.work, self.phase, &plan_digest)?;
        let manifest = Sealing {
            name: &runtime.recipe.name,
            ranges: &ranges_read(&self.ranges(&parts)?)?,
            plan: &runtime.plan,
            plan_digest: &plan_digest,
            blocklist: runtime.blocklist.as_ref(),
            tokeniser: &runtime.tokeniser,
            template: stages.normaliser.record(),
            files: &files,
            selection: &step.selection,
            results: &results,
            beside: &beside,
            folder: &folder,
            run: RunBlock { recipe_text: Some(runtime.recipe.text.clone()), ..run.clone() },
        }
        .seal()
        .map_err(|error| units.named(self.work, store, step.named(error)))?;
        self.join_logs(&made)?;
        folder.remove_work()?;
        self.publish(&made)?;
        Ok(manifest)
    }

    fn plan_digest(&self, runtime: &PhaseRuntime) -> Result<Digest, RunError> {
        let excluded = match &runtime.plan.phase.exclude_phase {
            Some(other) if self.work.store.below(other).size(SUMMARY)?.is_some() => {
                let store = self.work.store.below(other);
                Some(excluded_keys(self.work, &store, self.scratch)?)
            }
            _ => None,
        };
        let digest = PlanDigest {
            name: &runtime.recipe.name,
            plan: &runtime.plan,
            map_digest: &self.phase.map_digest,
        };
        digest.of(runtime.blocklist.as_ref(), excluded.as_deref())
    }

    /// Records of the ranges that were read of streamed files, with source and file.
    fn ranges(&self, parts: &[super::group::Part]) -> Result<Ranges, RunError> {
        let mut records = Vec::new();
        let ranges = parts.iter().filter_map(|part| part.header()).filter(|part| !part.ranges.is_empty());
        for (index, part) in ranges.enumerate() {
            let path = self.scratch.join(format!("ranges-{index}"));
            let text = serde_json::to_vec(&part.ranges);
            write_atomic(&path, &text.map_err(|e| RunError::Manifest { reason: e.to_string() })?)?;
            records.push((part.ledger.place(), path));
        }
        Ok(records)
    }

    /// One log of what all units transferred from the Hub.
    fn join_logs(&self, out: &Path) -> Result<(), RunError> {
        let store = self.stores.0;
        let mut log = Vec::new();
        for (name, _) in store.list(LOGS)? {
            log.extend(store.get(&name)?);
        }
        if !log.is_empty() {
            write_atomic(&out.join("downloads.jsonl"), &log)?;
        }
        Ok(())
    }

    /// Puts what was made here in the output folder, the manifest last.
    fn publish(&self, from: &Path) -> Result<(), RunError> {
        let out = self.stores.1;
        let made = Store::at(from);
        let (manifest, others): (Vec<_>, Vec<_>) =
            made.list("")?.into_iter().map(|(name, _)| name).partition(|name| name == MANIFEST);
        for name in others.iter().chain(&manifest) {
            if let Err(error) = out.put_file(name, &from.join(name)) {
                // Another one who sealed at the same time was faster, and removed what was unfinished.
                if out.size(MANIFEST)?.is_none() {
                    return Err(error.into());
                }
            }
        }
        match out.folder() {
            Some(folder) => remove_unfinished(folder),
            None => Ok(out.delete(OWNER)?),
        }
    }
}

/// Removes what killed steps were writing in the output folder: all of it is written, so that nobody
/// needs to write here any more.
fn remove_unfinished(folder: &Path) -> Result<(), RunError> {
    remove(&folder.join(".work"))?;
    let entries =
        std::fs::read_dir(folder).map_err(|source| RunError::Read { path: folder.to_path_buf(), source })?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_unfinished(&entry.path())?;
        } else if name.starts_with('.') && name.ends_with(".tmp") {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
