//! The first step: the recipe resolved, inputs hashed and cut, the blocklist built.

use std::path::Path;

use super::error::StepError;
use super::phase::{BLOCKLIST, TEMPLATE, TOKENIZER};
use super::record::{PLAN, PhaseRecord, WorkRecord, group};
use super::status::{Status, status};
use super::{Scratch, WorkFolder};
use crate::recipe::resolve::ResolvedPhase;
use crate::recipe::{Recipe, Supply};
use crate::run::checks::refuse_benchmarks;
use crate::run::digests::map_digest;
use crate::run::error::RunError;
use crate::run::folder::{Found, OutputFolder};
use crate::run::measure::facts_of;
use crate::run::plan::{Cut, Plan, PlannedSource, Unit};
use crate::run::progress::{Progress, Step};
use crate::run::pull::{self, Pull};
use crate::run::{prep, render, sampling};
use crate::shard::AtomicFile;
use crate::source::remote::Keep;
use crate::store::Store;
use crate::tokenise::encoder::BUILT_IN;

/// How to plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// The recipe as it was named.
    pub origin: String,
    /// Address of the work folder.
    pub work: String,
    /// Address of the output folder; `out` in the work folder if none is named.
    pub out: Option<String>,
    /// Rows of each source, in a trial run.
    pub limit: Option<u64>,
    /// How files are cut.
    pub cut: Cut,
    /// Bytes that a partition has of a unit, at least: a unit is made of several ranges until it has
    /// them, so that reduce reads few pieces.
    pub read_bytes: u64,
    /// How things are taken from the Hub.
    pub pull: Pull,
    /// Threads.
    pub threads: usize,
}

/// Plans a recipe in a work folder. A plan that is there already is left as it is, and so is how it cuts
/// the work.
///
/// # Errors
/// As `prep` before its first row; a work folder with another plan, an output folder with something in
/// it.
pub fn plan(recipe: &Recipe, options: &PlanOptions, progress: &Progress) -> Result<Status, RunError> {
    progress.enter(Step::Plan);
    let store = Store::open(&options.work)?;
    let out = options.out.as_deref().map_or_else(|| Ok(store.below("out")), Store::open)?;
    let out = lasting(&out)?;
    let mut recipe = recipe.clone();
    let settled = pull::settle(&mut recipe, &options.pull, progress)?;
    pull::preflight(&settled.supply)?;
    if settled.changed {
        pull::write_lock(settled.supply.lock(), &options.pull.lock)?;
    }
    let scratch = Scratch::new(None)?;
    let planning = Planning { recipe: &recipe, options, supply: &settled.supply, scratch: scratch.path() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
    let pool = pool.map_err(|e| RunError::Threads { threads: options.threads, reason: e.to_string() })?;
    let base = if recipe.base.as_os_str().is_empty() && !Path::new(&options.origin).is_file() {
        recipe.base.clone()
    } else {
        std::path::absolute(Path::new(".").join(&recipe.base))
            .map_err(|source| RunError::Read { path: recipe.base.clone(), source })?
    };
    let lock = settled.supply.lock();
    let lock = if lock.pin.is_empty() { None } else { Some(lock.to_toml()) };
    let mut record = WorkRecord {
        schema: WorkRecord::schema(),
        digest: String::new(),
        potable: env!("CARGO_PKG_VERSION").to_owned(),
        origin: options.origin.clone(),
        base,
        recipe: recipe.text.clone(),
        lock: lock.transpose().map_err(|e| RunError::Manifest { reason: e.to_string() })?,
        out,
        chunk_bytes: options.cut.chunk_bytes,
        unit_bytes: options.cut.unit_bytes,
        stream: options.pull.keep == Keep::Nothing,
        phases: Vec::new(),
    };
    for phase in &recipe.phases {
        record.phases.push(pool.install(|| planning.phase(&store, phase))?);
    }
    let work = WorkFolder { store, record: record.digested()? };
    let record = commit(&work)?;
    status(&WorkFolder { record, ..work })
}

/// The address of a store for steps that run in other folders.
fn lasting(store: &Store) -> Result<String, RunError> {
    let Some(folder) = store.folder() else { return Ok(store.uri()) };
    let path = std::path::absolute(folder)
        .map_err(|source| RunError::Read { path: folder.to_path_buf(), source })?;
    Ok(path.to_string_lossy().into_owned())
}

/// Writes the plan, unless one of the same data set is there; gives the one that is there.
fn commit(work: &WorkFolder) -> Result<WorkRecord, RunError> {
    let taken = |place: String, problem: &str| StepError::Taken { place, problem: problem.to_owned() };
    match WorkRecord::read(&work.store) {
        Ok(there) if there.same_data(&work.record) => return Ok(there),
        Ok(_) => return Err(taken(work.store.uri(), "holds another plan").into()),
        Err(RunError::Step(StepError::NoPlan { .. })) => {}
        Err(error) => return Err(error),
    }
    for phase in &work.record.phases {
        let out = work.out(Some(phase))?;
        match out.folder() {
            Some(folder) => {
                // Its `.work` stays, as a sign whose folder it is.
                if matches!(OutputFolder::look(folder)?, Found::Sealed(_)) {
                    return Err(taken(out.uri(), "holds a data set").into());
                }
            }
            None if !out.list("")?.is_empty() => {
                return Err(taken(out.uri(), "is not empty").into());
            }
            None => {}
        }
    }
    // Of two who plan at once one is first; the other finds the same plan or another.
    work.store.put_new(PLAN, work.record.to_json()?.as_bytes())?;
    let there = WorkRecord::read(&work.store)?;
    if there.same_data(&work.record) {
        return Ok(there);
    }
    Err(taken(work.store.uri(), "holds another plan").into())
}

struct Planning<'a> {
    recipe: &'a Recipe,
    options: &'a PlanOptions,
    supply: &'a Supply,
    scratch: &'a Path,
}

impl Planning<'_> {
    fn phase(&self, store: &Store, phase: &ResolvedPhase) -> Result<PhaseRecord, RunError> {
        let (recipe, supply) = (self.recipe, self.supply);
        let store = store.below(phase.name.as_deref().unwrap_or_default());
        let blocklist = prep::blocklist(phase, &recipe.base, supply)?;
        let plan = Plan::new(phase.clone(), self.options.cut, self.options.limit, supply)?;
        pull::check_evidence(&plan, self.options.pull.evidence)?;
        refuse_benchmarks(&plan, blocklist.as_ref())?;
        let tokeniser = render::tokeniser(phase, &recipe.base, supply)?;
        let normaliser = render::normaliser(phase, &tokeniser, supply)?;
        let map_digest = map_digest(&plan, blocklist.as_ref(), &tokeniser, &normaliser)?;
        if let Some(blocklist) = &blocklist {
            let path = self.scratch.join("blocklist.blk");
            let mut file = AtomicFile::create(&path)?;
            blocklist.write_to(&mut file).map_err(|e| RunError::write(&path, e))?;
            file.commit()?;
            store.put_file(BLOCKLIST, &path)?;
        }
        Ok(PhaseRecord {
            name: phase.name.clone(),
            map_digest,
            blocklist: blocklist.is_some(),
            tokenizer: self.keep_tokenizer(&store, phase)?,
            template: keep_template(&store, phase)?,
            sources: plan.sources.iter().map(facts_of).collect(),
            joined: plan.sources.iter().map(joined).collect(),
            thresholds: plan.sources.iter().map(|source| sampling::first_threshold(&plan, source)).collect(),
            units: self.units(&plan),
            partitions: plan.partitions,
        })
    }

    fn units(&self, plan: &Plan) -> Vec<(usize, usize)> {
        let bytes = |unit: &Unit| {
            let source = plan.sources.get(unit.source as usize);
            let file = source.and_then(|source| source.files.get(unit.file as usize));
            file.map_or(0, |file| file.text_bytes / file.cuts.len().max(1) as u64)
        };
        let least = self.options.read_bytes.saturating_mul(u64::from(plan.partitions));
        group(&plan.units, bytes, least.max(self.options.cut.unit_bytes))
    }

    /// A tokenizer that only this machine may have goes along.
    fn keep_tokenizer(&self, store: &Store, phase: &ResolvedPhase) -> Result<Option<String>, RunError> {
        if phase.tokenizer == BUILT_IN || phase.tokenizer_want.is_some() {
            return Ok(None);
        }
        keep(store, TOKENIZER, &self.recipe.base.join(&phase.tokenizer)).map(Some)
    }
}

/// A chat template that only this machine may have goes along.
fn keep_template(store: &Store, phase: &ResolvedPhase) -> Result<Option<String>, RunError> {
    let Some(path) = phase.template.as_ref().filter(|_| phase.template_want.is_none()) else {
        return Ok(None);
    };
    let beside = path.with_file_name("tokenizer_config.json");
    if beside.is_file() {
        keep(store, TEMPLATE, &beside)?;
    }
    keep(store, TEMPLATE, path).map(Some)
}

fn keep(store: &Store, folder: &str, path: &Path) -> Result<String, RunError> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    store.put_file(&format!("{folder}/{name}"), path)?;
    Ok(name)
}

fn joined(source: &PlannedSource) -> Vec<String> {
    source.joined_files().map(|(_, file)| file.sha256.clone()).collect()
}
