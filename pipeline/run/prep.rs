//! `prep`: the whole run, phase by phase.

use std::path::{Path, PathBuf};

use potable_blocklists::Blocklist;
use potable_manifests::{Digest, Manifest, RunBlock};

use super::error::RunError;
use super::folder::{Found, OutputFolder};
use super::map::{Round, Threshold, map_round};
use super::plan::{Cut, Plan};
use super::progress::{Progress, SourceProgress, Step};
use super::reduce::Reduction;
use super::rows::Stages;
use super::seal::{Sealing, TEMPLATE};
use super::select::{Selection, select};
use super::staged::STAGE_FORMAT;
use crate::decontaminate::benchmarks::{self, LoadedBenchmark};
use crate::normalise::Normaliser;
use crate::recipe::file::Exact;
use crate::recipe::resolve::{Against, ResolvedPhase};
use crate::recipe::{Recipe, RecipeError};
use crate::shard::write_atomic;
use crate::tokenise::Tokeniser;

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
    /// Starts over.
    pub fresh: bool,
    /// Keeps the staged work.
    pub keep_work: KeepWork,
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
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()
        .map_err(|e| RunError::Threads { threads: options.threads, reason: e.to_string() })?;
    let mut reports = Vec::new();
    let mut taken: Vec<(String, Exact, Vec<u128>)> = Vec::new();
    for phase in &recipe.phases {
        let out = phase.name.as_ref().map_or(options.out.clone(), |name| options.out.join(name));
        let excluded = match &phase.exclude_phase {
            None => &[][..],
            Some(other) => excluded(&taken, other, phase.exact)?,
        };
        let run = PhaseRun { recipe, phase, options, progress, pool: &pool, out };
        let (report, keys) = run.run(excluded)?;
        reports.push(report);
        if let Some(name) = &phase.name {
            taken.push((name.clone(), phase.exact, keys));
        }
    }
    if recipe.phases.iter().any(|phase| phase.name.is_some()) {
        write_index(recipe, &reports, &options.out)?;
    }
    Ok(reports)
}

/// Plans every phase, without work on its rows.
///
/// # Errors
/// As [`prep`].
pub fn plan(recipe: &Recipe, options: &PrepOptions) -> Result<Vec<Plan>, RunError> {
    let plans = recipe.phases.iter().map(|phase| Plan::new(phase.clone(), options.cut, options.limit));
    plans.collect()
}

/// Loads or builds the blocklist of a phase.
///
/// # Errors
/// A benchmark or blocklist that cannot be read, or has another n.
pub fn blocklist(
    phase: &ResolvedPhase,
    base: &Path,
) -> Result<(Option<Blocklist>, Vec<LoadedBenchmark>), RunError> {
    let config = &phase.decontaminate;
    match &config.against {
        Against::Nothing => Ok((None, Vec::new())),
        Against::File(path) => {
            let blocklist = Blocklist::load(path)?;
            blocklist.require(config.ngram as u32)?;
            Ok((Some(blocklist), Vec::new()))
        }
        Against::Benchmarks(names) => {
            let loaded = benchmarks::load(names, base)?;
            Ok((Some(benchmarks::build(&loaded, config.ngram)?), loaded))
        }
    }
}

fn excluded<'k>(
    taken: &'k [(String, Exact, Vec<u128>)],
    other: &str,
    exact: Exact,
) -> Result<&'k [u128], RunError> {
    let found = taken.iter().find(|(name, _, _)| name == other);
    match found {
        Some((_, theirs, keys)) if *theirs == exact => Ok(keys),
        _ => Err(RecipeError::value_hint(
            "[dedup]",
            format!("`exclude_phase = \"{other}\"` needs the same `exact` in both phases"),
            "set `exact` once, for the whole recipe",
        )
        .into()),
    }
}

struct PhaseRun<'a> {
    recipe: &'a Recipe,
    phase: &'a ResolvedPhase,
    options: &'a PrepOptions,
    progress: &'a Progress,
    pool: &'a rayon::ThreadPool,
    out: PathBuf,
}

impl PhaseRun<'_> {
    fn run(&self, excluded: &[u128]) -> Result<(PrepReport, Vec<u128>), RunError> {
        self.progress.enter(Step::Plan);
        let (blocklist, loaded) = blocklist(self.phase, &self.recipe.base)?;
        let cut = self.options.cut;
        let plan = self.pool.install(|| Plan::new(self.phase.clone(), cut, self.options.limit))?;
        refuse_benchmarks(&plan, &loaded)?;
        let tokeniser = Tokeniser::load(&self.phase.tokenizer, &self.recipe.base, self.phase.policy.format)?;
        let blocklist_digest = blocklist.as_ref().map_or("none".to_owned(), Blocklist::digest);
        let others =
            [blocklist_digest, tokeniser.digest().to_owned(), TEMPLATE.to_owned(), STAGE_FORMAT.to_string()];
        let map_digest = plan.map_digest(&others)?;
        let plan_digest = self.plan_digest(&map_digest, excluded)?;
        let folder = OutputFolder::open(&self.out, self.options.fresh)?;
        if let Some(report) = self.settle_folder(&folder, &plan_digest)? {
            let keys = read_keys(&self.keys_path(&report.manifest))?;
            return Ok((report, keys));
        }
        check_disk(&self.out, &plan)?;
        self.progress.set_sources(plan.sources.iter().map(progress_of).collect());
        let map_folder = folder.folder(&format!(
            ".work/map-{}-{}-{}",
            short(&map_digest),
            cut.unit_bytes,
            cut.chunk_bytes
        ))?;
        let reduce_folder = folder.folder(&format!(".work/reduce-{}", short(&plan_digest)))?;
        let stages = Stages {
            plan: &plan,
            blocklist: blocklist.as_ref(),
            normaliser: Normaliser::new(self.phase.policy),
            tokeniser: &tokeniser,
        };
        let (files, selection) = self.map_and_select(&stages, &map_folder, excluded)?;
        self.progress.enter(Step::Reduce);
        self.progress.partitions.1.store(u64::from(plan.partitions), std::sync::atomic::Ordering::Relaxed);
        let reduction = Reduction {
            plan: &plan,
            files: &files,
            selection: &selection,
            out: &self.out,
            folder: &reduce_folder,
            progress: self.progress,
        };
        let results = self.pool.install(|| reduction.run())?;
        self.progress.enter(Step::Seal);
        let manifest = Sealing {
            name: &self.recipe.name,
            recipe_text: &self.recipe.text,
            plan: &plan,
            plan_digest: &plan_digest,
            blocklist: blocklist.as_ref(),
            tokeniser: &tokeniser,
            files: &files,
            selection: &selection,
            results: &results,
            folder: &folder,
            run: self.run_block(),
        }
        .seal()?;
        let keys = self.keep_keys(&selection, &manifest)?;
        if self.options.keep_work == KeepWork::No {
            folder.remove_work()?;
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
        if manifest.run.other_digests.get("plan") == Some(plan_digest) {
            return Ok(Some(PrepReport { out: self.out.clone(), manifest: *manifest, up_to_date: true }));
        }
        if manifest.name == self.recipe.name && folder.has_work() {
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

    fn plan_digest(&self, map_digest: &Digest, excluded: &[u128]) -> Result<Digest, RunError> {
        let settings = potable_manifests::canonical::floats_as_text(self.phase.settings());
        let settings = potable_manifests::canonical_json(&settings)
            .map_err(|e| RunError::Manifest { reason: e.to_string() })?;
        let keys: Vec<u8> = excluded.iter().flat_map(|key| key.to_le_bytes()).collect();
        let text = format!(
            "{}\n{settings}\n{:?}\n{}",
            map_digest.as_str(),
            self.phase.name,
            Digest::of(&keys).as_str()
        );
        Ok(Digest::of(text.as_bytes()))
    }

    /// Maps in rounds until every capped source has enough rows.
    fn map_and_select(
        &self,
        stages: &Stages,
        folder: &Path,
        excluded: &[u128],
    ) -> Result<(Vec<PathBuf>, Selection), RunError> {
        let mut thresholds: Vec<Option<Threshold>> =
            stages.plan.sources.iter().map(first_threshold).collect();
        let mut files: Vec<PathBuf> = Vec::new();
        for number in 0.. {
            self.progress.enter(Step::Map);
            let round = Round { number, thresholds: &thresholds, folder, progress: self.progress };
            files.extend(map_round(stages, &round, self.pool)?);
            files = sorted(files)?;
            self.progress.enter(Step::Select);
            let selection = self.pool.install(|| select(stages.plan, &files, excluded))?;
            thresholds = next_thresholds(&thresholds, &selection);
            if thresholds.iter().all(Option::is_none) {
                return Ok((files, selection));
            }
        }
        Err(RunError::Interrupted)
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
    fn keep_keys(&self, selection: &Selection, manifest: &Manifest) -> Result<Vec<u128>, RunError> {
        let wanted = self
            .recipe
            .phases
            .iter()
            .any(|p| p.exclude_phase.is_some() && p.exclude_phase == self.phase.name);
        if !wanted {
            return Ok(Vec::new());
        }
        let mut keys: Vec<u128> = selection.partitions.iter().flatten().map(|row| row.key).collect();
        keys.sort_unstable();
        let path = self.keys_path(manifest);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|e| RunError::write(folder, e))?;
        }
        let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        write_atomic(&path, &bytes)?;
        Ok(keys)
    }

    fn keys_path(&self, manifest: &Manifest) -> PathBuf {
        self.options.out.join(".keys").join(format!("{}.keys", manifest.manifest_digest.short()))
    }
}

fn read_keys(path: &Path) -> Result<Vec<u128>, RunError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = std::fs::read(path).map_err(|source| RunError::Read { path: path.to_path_buf(), source })?;
    let (keys, _) = bytes.as_chunks::<16>();
    Ok(keys.iter().map(|key| u128::from_le_bytes(*key)).collect())
}

/// Staged files by source, file, round and place in the file.
fn sorted(files: Vec<PathBuf>) -> Result<Vec<PathBuf>, RunError> {
    let mut keyed = Vec::with_capacity(files.len());
    for path in files {
        let ledger = super::staged::StagedFile::open(&path)?.ledger;
        keyed.push(((ledger.source, ledger.file, ledger.round, ledger.next_row), path));
    }
    keyed.sort();
    Ok(keyed.into_iter().map(|(_, path)| path).collect())
}

/// Slack of the first sampling threshold: a tenth more than asked for, and a few rows.
fn first_threshold(source: &super::plan::PlannedSource) -> Option<Threshold> {
    let all = Threshold { above: None, upto: u64::MAX };
    let (Some(rows), Some(asked)) = (source.rows(), asked_rows(source)) else { return Some(all) };
    Some(Threshold { above: None, upto: share(asked + asked / 10 + 32, rows) })
}

/// Rows that a cap asks for; a token cap is turned into rows by their size.
fn asked_rows(source: &super::plan::PlannedSource) -> Option<u64> {
    if let Some(rows) = source.config.max_rows {
        return Some(rows);
    }
    let tokens = source.config.max_tokens?;
    let rows = source.rows()?;
    let bytes: u64 = source.files.iter().map(|f| f.text_bytes).sum();
    // Four bytes a token: text has about that many, and a second round costs little.
    let asked = u128::from(tokens) * 4 * u128::from(rows) / u128::from(bytes.max(1));
    Some(u64::try_from(asked).unwrap_or(u64::MAX / 2).saturating_add(1))
}

fn share(part: u64, whole: u64) -> u64 {
    if part >= whole {
        return u64::MAX;
    }
    ((u128::from(part) << 64) / u128::from(whole)) as u64
}

/// Raises the threshold of each source that has too few rows; `None` for the others.
fn next_thresholds(thresholds: &[Option<Threshold>], selection: &Selection) -> Vec<Option<Threshold>> {
    let mut next = vec![None; thresholds.len()];
    for &(source, factor) in &selection.short {
        let Some(Some(now)) = thresholds.get(source) else { continue };
        if now.upto == u64::MAX {
            continue;
        }
        let wanted =
            u128::from(now.upto) * u128::from(factor.saturating_add(factor / 10 + 50_000)) / 1_000_000;
        let upto = u64::try_from(wanted).unwrap_or(u64::MAX);
        if let Some(slot) = next.get_mut(source) {
            *slot = Some(Threshold { above: Some(now.upto), upto });
        }
    }
    next
}

/// Training on a benchmark is never what was meant.
fn refuse_benchmarks(plan: &Plan, loaded: &[LoadedBenchmark]) -> Result<(), RunError> {
    for source in &plan.sources {
        for benchmark in loaded {
            let meta = &benchmark.meta;
            let same_file =
                source.files.iter().find(|f| meta.files.iter().any(|other| other.sha256 == f.sha256));
            let same_split = meta.repo.is_some()
                && source.config.corpus == meta.repo
                && source.config.split == meta.split
                && (meta.config.is_none() || source.config.config == meta.config);
            let why = match same_file {
                Some(file) => format!("file `{}` has the same sha256", file.file.name),
                None if same_split => "it is the same repository and split".to_owned(),
                None => continue,
            };
            return Err(RunError::IsBenchmark {
                source_name: source.config.name.clone(),
                benchmark: meta.name.clone(),
                why,
            });
        }
    }
    Ok(())
}

/// Staged ids and shards take about twice the bytes of the text.
pub fn disk_needed(plan: &Plan) -> u64 {
    plan.planned_bytes() * 2
}

fn check_disk(out: &Path, plan: &Plan) -> Result<(), RunError> {
    let Ok(stat) = rustix::fs::statvfs(out) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let needed = disk_needed(plan);
    if free >= needed {
        return Ok(());
    }
    Err(RunError::DiskSpace { path: out.to_path_buf(), free, needed })
}

fn progress_of(source: &super::plan::PlannedSource) -> SourceProgress {
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
fn write_index(recipe: &Recipe, reports: &[PrepReport], out: &Path) -> Result<(), RunError> {
    let phases: Vec<serde_json::Value> = reports
        .iter()
        .map(|r| serde_json::json!({ "phase": r.manifest.phase, "manifest_digest": r.manifest.manifest_digest }))
        .collect();
    let index = serde_json::json!({ "schema": "potable-index-1", "name": recipe.name, "phases": phases });
    let text = potable_manifests::canonical::pretty_json(&index)
        .map_err(|e| RunError::Manifest { reason: e.to_string() })?;
    write_atomic(&out.join("manifest.json"), text.as_bytes())?;
    Ok(())
}
