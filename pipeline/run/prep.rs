//! `prep`: the whole run, phase by phase.

use std::fs::File;
use std::path::{Path, PathBuf};

use potable_blocklists::Blocklist;
use potable_manifests::{Digest, Index, IndexedPhase, Manifest, RunBlock};

use super::checks::{
    check_disk, check_keys, check_rows, check_unchanged, opened, refuse_benchmarks, streams,
};
use super::digests::{PlanDigest, map_digest};
use super::error::RunError;
use super::folder::{Found, OutputFolder};
use super::layout::Layout;
use super::map::{Round, bands, map_round, ranges_read};
use super::plan::{Cut, Plan};
use super::progress::{Progress, SourceProgress, Step};
use super::pull::{self, Pull};
use super::reduce::Reduction;
use super::render;
use super::rows::Stages;
use super::sampling;
use super::seal::Sealing;
use super::select::{Keys, Limits, Rules, Selecting, Selection, select};
use super::staged::{ChunkLedger, Staged, StagedRows};
use crate::decontaminate::benchmarks;
use crate::recipe::file::Exact;
use crate::recipe::resolve::{Against, ResolvedPhase};
use crate::recipe::{Recipe, RecipeError, Supply};
use crate::shard::{AtomicFile, write_atomic};
use crate::source::object;
use crate::store::Store;

/// How to run; nothing here changes an output byte but `limit`.
#[derive(Clone, Debug)]
pub struct PrepOptions {
    /// Output folder.
    pub out: PathBuf,
    /// Threads.
    pub threads: usize,
    /// Rows of each source, in a trial run.
    pub limit: Option<u64>,
    /// How work is cut.
    pub cut: Cut,
    /// How things are taken from the Hub.
    pub pull: Pull,
    /// Starts over.
    pub fresh: bool,
    /// Keeps the staged work.
    pub keep_work: KeepWork,
    /// Rows of each phase to compare with the model's own template.
    pub verify_template: Option<u64>,
    /// When the run began, for the run block.
    pub started: Option<String>,
    /// Where it ran, for the run block.
    pub host: Option<String>,
}

/// Whether staged work stays when the run is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepWork {
    /// It is removed.
    No,
    /// It stays, for a run with other caps or pack lengths.
    Yes,
}

/// One phase of a run that is done.
#[derive(Clone, Debug)]
pub struct PrepReport {
    /// The folder.
    pub out: PathBuf,
    /// The manifest.
    pub manifest: Manifest,
    /// Whether the data set stood there already.
    pub up_to_date: bool,
}

/// Runs a recipe.
///
/// # Errors
/// Whatever stops it; finished work stays for the next run, and no manifest is left.
pub fn prep(
    recipe: &Recipe,
    options: &PrepOptions,
    progress: &Progress,
) -> Result<Vec<PrepReport>, RunError> {
    let mut recipe = recipe.clone();
    progress.enter(Step::Plan);
    let settled = pull::settle(&mut recipe, &options.pull, progress)?;
    let supply = &settled.supply;
    pull::preflight(supply)?;
    if settled.changed {
        pull::write_lock(supply.lock(), &options.pull.lock)?;
    }
    match prep_phases(&recipe, supply, options, progress) {
        Err(error) if progress.is_stopped() && error.is_interrupt() => Err(RunError::Interrupted),
        result => {
            let reports = result?;
            pull::write_log(supply, &options.out)?;
            Ok(reports)
        }
    }
}

fn prep_phases(
    recipe: &Recipe,
    supply: &Supply,
    options: &PrepOptions,
    progress: &Progress,
) -> Result<Vec<PrepReport>, RunError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()
        .map_err(|e| RunError::Threads { threads: options.threads, reason: e.to_string() })?;
    let phased = recipe.phases.iter().any(|phase| phase.name.is_some());
    if phased {
        let names: Vec<&str> = recipe.phases.iter().filter_map(|phase| phase.name.as_deref()).collect();
        super::folder::check_index_place(&options.out, &recipe.name, &names)?;
        // The index stands only while every phase does.
        super::folder::remove(&options.out.join("manifest.json"))?;
    }
    let mut reports = Vec::new();
    let mut taken: Vec<(String, Exact, PathBuf)> = Vec::new();
    for phase in &recipe.phases {
        let out = phase.name.as_ref().map_or(options.out.clone(), |name| options.out.join(name));
        let excluded = match &phase.exclude_phase {
            None => None,
            Some(other) => Some(excluded(&taken, other, phase.exact)?),
        };
        let run = PhaseRun { recipe, supply, phase, options, progress, pool: &pool, out };
        let (report, keys) = run.run(excluded)?;
        reports.push(report);
        if let (Some(name), Some(keys)) = (&phase.name, keys) {
            taken.push((name.clone(), phase.exact, keys));
        }
    }
    if phased {
        write_index(recipe, &reports, &options.out)?;
    }
    Ok(reports)
}

/// Plans every phase, without work on its rows.
///
/// # Errors
/// As [`prep`].
pub fn plan(recipe: &Recipe, options: &PrepOptions) -> Result<Vec<Plan>, RunError> {
    let mut recipe = recipe.clone();
    let settled = pull::settle(&mut recipe, &options.pull, &Progress::default())?;
    pull::preflight(&settled.supply)?;
    let plan = |phase: &ResolvedPhase| {
        // A template that cannot be used is known before any row is read.
        render::template(phase, &settled.supply)?;
        let plan = Plan::new(phase.clone(), options.cut, options.limit, &settled.supply)?;
        pull::check_evidence(&plan, options.pull.evidence)?;
        Ok(plan)
    };
    recipe.phases.iter().map(plan).collect()
}

/// Loads or builds the blocklist of a phase.
///
/// # Errors
/// A benchmark or blocklist that cannot be read, or has another n.
pub fn blocklist(phase: &ResolvedPhase, base: &Path, supply: &Supply) -> Result<Option<Blocklist>, RunError> {
    let config = &phase.decontaminate;
    match &config.against {
        Against::Nothing => Ok(None),
        Against::File(path) => {
            let copy = match path.to_str().filter(|text| Store::is_address(text)) {
                Some(address) => Some(object::local_copy(address)?),
                None => None,
            };
            let blocklist = Blocklist::load(copy.as_deref().unwrap_or(path))?;
            blocklist.require(config.ngram as u32)?;
            Ok(Some(blocklist))
        }
        Against::Benchmarks(names) => {
            let loaded = benchmarks::load(names, pull::places(phase, base, Some(supply)))?;
            Ok(Some(benchmarks::build(&loaded, config.ngram)?))
        }
    }
}

fn excluded<'k>(
    taken: &'k [(String, Exact, PathBuf)],
    other: &str,
    exact: Exact,
) -> Result<&'k Path, RunError> {
    let found = taken.iter().find(|(name, theirs, _)| name == other && *theirs == exact);
    found.map(|(_, _, keys)| keys.as_path()).ok_or_else(|| other_exact(other))
}

/// Keys of two phases compare only if they are made in the same way.
///
/// # Errors
/// Two phases with another `exact`.
pub fn check_exact(recipe: &Recipe, phase: &ResolvedPhase, other: &str) -> Result<(), RunError> {
    let mut phases = recipe.phases.iter();
    let same = phases.any(|p| p.name.as_deref() == Some(other) && p.exact == phase.exact);
    if same { Ok(()) } else { Err(other_exact(other)) }
}

fn other_exact(other: &str) -> RunError {
    RecipeError::value_hint(
        "[dedup]",
        format!("`exclude_phase = \"{other}\"` needs the same `exact` in both phases"),
        "set `exact` once, for the whole recipe",
    )
    .into()
}

/// Records of ranges read, with source and file.
type Ranges = Vec<((u32, u32), PathBuf)>;

struct PhaseRun<'a> {
    recipe: &'a Recipe,
    supply: &'a Supply,
    phase: &'a ResolvedPhase,
    options: &'a PrepOptions,
    progress: &'a Progress,
    pool: &'a rayon::ThreadPool,
    out: PathBuf,
}

/// What map and select leave for reduce.
struct Mapped {
    files: Vec<Staged>,
    rules: Rules,
    selection: Selection,
    ranges: Ranges,
}

/// The folders of a phase at work.
struct Work {
    map: PathBuf,
    select: PathBuf,
    reduce: PathBuf,
    plan_digest: Digest,
    folder: OutputFolder,
}

impl PhaseRun<'_> {
    fn run(&self, excluded: Option<&Path>) -> Result<(PrepReport, Option<PathBuf>), RunError> {
        self.progress.enter(Step::Plan);
        let blocklist = blocklist(self.phase, &self.recipe.base, self.supply)?;
        let cut = self.options.cut;
        let plan =
            self.pool.install(|| Plan::new(self.phase.clone(), cut, self.options.limit, self.supply))?;
        pull::check_evidence(&plan, self.options.pull.evidence)?;
        refuse_benchmarks(&plan, blocklist.as_ref())?;
        let tokeniser = render::tokeniser(self.phase, &self.recipe.base, self.supply)?;
        let normaliser = render::normaliser(self.phase, &tokeniser, self.supply)?;
        let map_digest = map_digest(&plan, blocklist.as_ref(), &tokeniser, &normaliser)?;
        let digest = PlanDigest { name: &self.recipe.name, plan: &plan, map_digest: &map_digest };
        let plan_digest = digest.of(blocklist.as_ref(), excluded)?;
        let folder = OutputFolder::open(&self.out, self.options.fresh)?;
        pull::write_log(self.supply, &self.options.out)?;
        if let Some(report) = self.settle_folder(&folder, &plan_digest)? {
            let keys = self.gives_keys().then(|| self.keys_path(&report.manifest));
            folder.release()?;
            return Ok((report, keys));
        }
        check_disk(&self.out, &plan)?;
        pull::check_room(&plan, self.supply)?;
        let work = Work {
            map: folder.folder(&format!(
                ".work/map-{}-{}-{}{}",
                short(&map_digest),
                cut.unit_bytes,
                cut.chunk_bytes,
                // Work of a run that kept copies has no account of ranges.
                if streams(&plan) { "-stream" } else { "" }
            ))?,
            select: folder.folder(&format!(".work/select-{}", short(&plan_digest)))?,
            reduce: folder.folder(&format!(".work/reduce-{}", short(&plan_digest)))?,
            plan_digest,
            folder,
        };
        let stages = Stages {
            plan: &plan,
            blocklist: blocklist.as_ref(),
            normaliser,
            tokeniser: &tokeniser,
            verify: render::verify(self.options.verify_template, &plan, &self.progress.verified)?,
        };
        self.work(&stages, work, excluded)
    }

    /// Map, select, reduce, seal.
    fn work(
        &self,
        stages: &Stages,
        work: Work,
        excluded: Option<&Path>,
    ) -> Result<(PrepReport, Option<PathBuf>), RunError> {
        let plan = stages.plan;
        self.progress.set_sources(plan.sources.iter().map(progress_of).collect());
        let Mapped { files, rules, selection, ranges } = self.map_and_select(stages, &work, excluded)?;
        self.progress.enter(Step::Reduce);
        let layout = Layout::new(&rules, &selection);
        let partitions = &self.progress.partitions.1;
        partitions.store(u64::from(Layout::count(plan.partitions)), std::sync::atomic::Ordering::Relaxed);
        let reduction = Reduction {
            plan,
            rules: &rules,
            tokens: &files,
            layout: &layout,
            out: &self.out,
            folder: &work.reduce,
            vocabulary: stages.tokeniser.vocabulary_size(),
            progress: self.progress,
        };
        let results = self.pool.install(|| reduction.run())?;
        let beside = reduction.write_calibration(&results)?;
        self.progress.enter(Step::Seal);
        let ranges = ranges_read(&ranges)?;
        let manifest = Sealing {
            name: &self.recipe.name,
            ranges: &ranges,
            plan,
            plan_digest: &work.plan_digest,
            blocklist: stages.blocklist,
            tokeniser: stages.tokeniser,
            template: stages.normaliser.record(),
            files: &files.iter().map(|file| file as &dyn StagedRows).collect::<Vec<_>>(),
            selection: &selection,
            results: &results,
            beside: &beside,
            folder: &work.folder,
            run: self.run_block(),
        }
        .seal()?;
        let keys = self.keep_keys(&selection, &manifest)?;
        if self.options.keep_work == KeepWork::No {
            work.folder.remove_work()?;
        }
        Ok((PrepReport { out: self.out.clone(), manifest, up_to_date: false }, keys))
    }

    /// Settles what stands in the folder: the same data set, work to go on with, or another one.
    fn settle_folder(
        &self,
        folder: &OutputFolder,
        plan_digest: &Digest,
    ) -> Result<Option<PrepReport>, RunError> {
        let Found::Sealed(manifest) = folder.found()? else { return Ok(None) };
        let same = manifest.run.other_digests.get("plan") == Some(plan_digest);
        if same && folder.is_whole(&manifest) && (!self.gives_keys() || self.keys_path(&manifest).exists()) {
            return Ok(Some(PrepReport { out: self.out.clone(), manifest: *manifest, up_to_date: true }));
        }
        if same || (manifest.name == self.recipe.name && folder.has_work()) {
            folder.unseal()?;
            return Ok(None);
        }
        Err(RunError::OutputFolder {
            path: self.out.clone(),
            problem: format!(
                "holds another data set (`{}`, {})",
                manifest.name,
                manifest.manifest_digest.short()
            ),
            way_out: "choose another `--out`, or pass `--fresh` to replace it".to_owned(),
        })
    }

    /// Whether a later phase leaves out the rows of this one.
    fn gives_keys(&self) -> bool {
        let phases = &self.recipe.phases;
        phases.iter().any(|other| other.exclude_phase.is_some() && other.exclude_phase == self.phase.name)
    }

    /// Maps in rounds until every capped source has enough rows.
    fn map_and_select(
        &self,
        stages: &Stages,
        work: &Work,
        excluded: Option<&Path>,
    ) -> Result<Mapped, RunError> {
        let folder = work.map.as_path();
        let sources = &stages.plan.sources;
        let mut thresholds: Vec<u64> =
            sources.iter().map(|source| sampling::first_threshold(stages.plan, source)).collect();
        let mut reached: Vec<Option<u64>> = vec![None; sources.len()];
        let (mut paths, mut ranges) = (Vec::new(), Ranges::new());
        loop {
            self.progress.enter(Step::Map);
            let mut source_bands = Vec::with_capacity(sources.len());
            for (index, (reached, upto)) in reached.iter_mut().zip(&thresholds).enumerate() {
                source_bands.push(bands(folder, index, *reached, *upto)?);
                *reached = Some(*upto);
            }
            let units = 0..stages.plan.units.len();
            let round = Round { bands: &source_bands, units, folder, progress: self.progress };
            let mapped = map_round(stages, &round, self.pool)?;
            paths.extend(mapped.staged);
            ranges.extend(mapped.ranges);
            let files = opened(&paths)?;
            check_unchanged(stages.plan)?;
            let ledgers: Vec<&ChunkLedger> = files.iter().map(|file| &file.ledger).collect();
            check_rows(stages.plan, &ledgers)?;
            check_keys(stages.plan, &ledgers)?;
            self.progress.enter(Step::Select);
            let whole = sources.iter().zip(&thresholds);
            let whole: Vec<bool> = whole.map(|(source, upto)| sampling::is_whole(source, *upto)).collect();
            let rules = Rules::new(stages.plan, &whole);
            let selecting = Selecting {
                rules: &rules,
                excluded,
                folder: &work.select,
                keys: if self.gives_keys() { Keys::Kept } else { Keys::Forgotten },
                limits: Limits::default(),
                progress: self.progress,
            };
            let selection = self.pool.install(|| select(&selecting, &files))?;
            if !sampling::raise(&mut thresholds, &selection, sources) {
                sampling::check_supply(stages.plan, &selection)?;
                return Ok(Mapped { files, rules, selection, ranges });
            }
        }
    }

    fn run_block(&self) -> RunBlock {
        RunBlock {
            potable_version: env!("CARGO_PKG_VERSION").to_owned(),
            recipe_text: Some(self.recipe.text.clone()),
            started: self.options.started.clone(),
            host: self.options.host.clone(),
            threads: self.options.threads as u64,
            ..RunBlock::default()
        }
    }

    /// The keys of the rows that this phase took, for phases that leave them out; kept on disk, so
    /// that a later run of such a phase finds them when this one is up to date.
    fn keep_keys(&self, selection: &Selection, manifest: &Manifest) -> Result<Option<PathBuf>, RunError> {
        if !self.gives_keys() {
            return Ok(None);
        }
        let path = self.keys_path(manifest);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| RunError::write(folder, e))?;
        }
        let from = selection.keys();
        let mut keys = File::open(&from).map_err(|source| RunError::Read { path: from, source })?;
        let mut file = AtomicFile::create(&path)?;
        std::io::copy(&mut keys, &mut file).map_err(|e| RunError::write(&path, e))?;
        file.commit()?;
        Ok(Some(path))
    }

    fn keys_path(&self, manifest: &Manifest) -> PathBuf {
        self.options.out.join(".keys").join(format!("{}.keys", manifest.manifest_digest.short()))
    }
}

/// Where the progress of a source is counted.
pub fn progress_of(source: &super::plan::PlannedSource) -> SourceProgress {
    SourceProgress {
        name: source.config.name.clone(),
        planned_bytes: source.planned_bytes(),
        ..SourceProgress::default()
    }
}

fn short(digest: &Digest) -> String {
    digest.hex().chars().take(16).collect()
}

/// The index over the phases, beside their folders.
///
/// # Errors
/// What the file system says.
pub fn write_index(recipe: &Recipe, reports: &[PrepReport], out: &Path) -> Result<(), RunError> {
    let phases = reports.iter().filter_map(|report| {
        let Manifest { phase, manifest_digest, .. } = &report.manifest;
        Some(IndexedPhase { phase: phase.clone()?, manifest_digest: manifest_digest.clone() })
    });
    let text = Index::new(&recipe.name, phases.collect())
        .to_json()
        .map_err(|e| RunError::Manifest { reason: e.to_string() })?;
    write_atomic(&out.join("manifest.json"), text.as_bytes())?;
    Ok(())
}
