//! The first step: the recipe resolved, inputs hashed and cut, the blocklist built.

use std::path::{Path, PathBuf};

use super::error::StepError;
use super::owner;
use super::phase::{BLOCKLIST, TEMPLATE, TOKENIZER, input_name};
use super::record::{PLAN, PhaseRecord, WorkRecord, group, least_bytes};
use super::status::{Status, status};
use super::{Scratch, WorkFolder, pool};
use crate::recipe::resolve::ResolvedPhase;
use crate::recipe::{Recipe, Supply};
use crate::run::checks::refuse_benchmarks;
use crate::run::digests::map_digest;
use crate::run::error::RunError;
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
    apart(&lasting(&store)?, &out)?;
    let mut recipe = recipe.clone();
    let settled = pull::settle(&mut recipe, &options.pull, progress)?;
    pull::preflight(&settled.supply)?;
    if settled.changed {
        pull::write_lock(settled.supply.lock(), &options.pull.lock)?;
    }
    let scratch = Scratch::new(None)?;
    let mut planning = Planning {
        recipe: &recipe,
        options,
        supply: &settled.supply,
        scratch: scratch.path(),
        inputs: Vec::new(),
    };
    let pool = pool(options.threads)?;
    let base = if recipe.base.as_os_str().is_empty() && !Path::new(&options.origin).is_file() {
        recipe.base.clone()
    } else {
        let base = std::path::absolute(Path::new(".").join(&recipe.base))
            .map_err(|source| RunError::Read { path: recipe.base.clone(), source })?;
        // However the recipe was named, its folder has one name.
        base.components().collect()
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
        let phase = pool.install(|| planning.phase(phase))?;
        record.phases.push(phase);
    }
    let work = WorkFolder { store, record: record.digested()? };
    let record = commit(&work, &planning.inputs)?;
    status(&WorkFolder { record, ..work })
}

/// The work folder and the output folder must not lie in each other, but for `WORK/out`: seal removes what
/// is unfinished in the output folder, and a data set holds nothing but what its manifest names.
fn apart(work: &str, out: &str) -> Result<(), RunError> {
    let below = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer.trim_end_matches('/'));
        rest.filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .map(|rest| rest.trim_matches('/').to_owned())
    };
    let problem = if below(work, out).is_some() {
        "holds the work folder"
    } else if below(out, work).is_some_and(|rest| rest != "out" && !rest.starts_with("out/")) {
        "lies in the work folder, but not below its `out`"
    } else {
        return Ok(());
    };
    Err(StepError::Taken {
        place: out.to_owned(),
        problem: problem.to_owned(),
        way_out: "choose another folder with `--out`".to_owned(),
    }
    .into())
}

/// The address of a store for steps that run in other folders.
fn lasting(store: &Store) -> Result<String, RunError> {
    let Some(folder) = store.folder() else { return Ok(store.uri()) };
    let path = std::path::absolute(folder)
        .map_err(|source| RunError::Read { path: folder.to_path_buf(), source })?;
    Ok(path.to_string_lossy().into_owned())
}

/// Writes inputs and plan, unless the plan of another data set is there; gives the plan that is there.
fn commit(work: &WorkFolder, inputs: &[Input]) -> Result<WorkRecord, RunError> {
    let same = |there: WorkRecord| {
        if there.data_digest()? == work.record.data_digest()? {
            return Ok(there);
        }
        Err(RunError::from(StepError::Taken {
            place: work.store.uri(),
            problem: format!("holds another plan; what differs: {}", there.difference(&work.record)),
            way_out: "name another work folder, or go on with the recipe, files and `--out` of the plan that is there"
                .to_owned(),
        }))
    };
    let there = match WorkRecord::read(&work.store) {
        Ok(there) => Some(same(there)?),
        Err(RunError::Step(StepError::NoPlan { .. })) => None,
        Err(error) => return Err(error),
    };
    for phase in &work.record.phases {
        owner::take(work, phase, there.is_some())?;
    }
    for input in inputs {
        work.store.put_file(&input.name, &input.from)?;
    }
    if let Some(there) = there {
        return Ok(there);
    }
    // Of two who plan at once one is first; the other finds the same plan or another.
    work.store.put_new(PLAN, work.record.to_json()?.as_bytes())?;
    same(WorkRecord::read(&work.store)?)
}

/// What only this machine may have, and goes along.
struct Input {
    /// Name in the work folder.
    name: String,
    /// The file here.
    from: PathBuf,
}

struct Planning<'a> {
    recipe: &'a Recipe,
    options: &'a PlanOptions,
    supply: &'a Supply,
    scratch: &'a Path,
    inputs: Vec<Input>,
}

impl Planning<'_> {
    fn phase(&mut self, phase: &ResolvedPhase) -> Result<PhaseRecord, RunError> {
        let (recipe, supply) = (self.recipe, self.supply);
        let blocklist = prep::blocklist(phase, &recipe.base, supply)?;
        let plan = Plan::new(phase.clone(), self.options.cut, self.options.limit, supply)?;
        pull::check_evidence(&plan, self.options.pull.evidence)?;
        refuse_benchmarks(&plan, blocklist.as_ref())?;
        let tokeniser = render::tokeniser(phase, &recipe.base, supply)?;
        let normaliser = render::normaliser(phase, &tokeniser, supply)?;
        let map_digest = map_digest(&plan, blocklist.as_ref(), &tokeniser, &normaliser)?;
        let mut keep = |name: &str, from: PathBuf| {
            let name = input_name(&map_digest, name);
            let folder = phase.name.as_ref().map(|phase| format!("{phase}/")).unwrap_or_default();
            self.inputs.push(Input { name: format!("{folder}{name}"), from });
        };
        if let Some(blocklist) = &blocklist {
            let path = self.scratch.join(format!("{}.blk", phase.name.as_deref().unwrap_or("blocklist")));
            let mut file = AtomicFile::create(&path)?;
            blocklist.write_to(&mut file).map_err(|e| RunError::write(&path, e))?;
            file.commit()?;
            keep(BLOCKLIST, path);
        }
        let mut keep_named = |folder: &str, path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            keep(&format!("{folder}/{name}"), path.to_path_buf());
            name
        };
        let tokenizer = own_tokenizer(phase, &recipe.base).map(|path| keep_named(TOKENIZER, &path));
        let own_template = phase.template.as_ref().filter(|_| phase.template_want.is_none());
        let template = own_template.map(|path| {
            let beside = path.with_file_name("tokenizer_config.json");
            if beside.is_file() {
                keep_named(TEMPLATE, &beside);
            }
            keep_named(TEMPLATE, path)
        });
        Ok(PhaseRecord {
            name: phase.name.clone(),
            map_digest,
            blocklist: blocklist.is_some(),
            tokenizer,
            template,
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
        let total = plan.units.iter().map(bytes).sum();
        let least = least_bytes(total, plan.partitions, self.options.read_bytes);
        group(&plan.units, bytes, least.max(self.options.cut.unit_bytes))
    }
}

/// A tokenizer that only this machine may have.
fn own_tokenizer(phase: &ResolvedPhase, base: &Path) -> Option<PathBuf> {
    let own = phase.tokenizer != BUILT_IN && phase.tokenizer_want.is_none();
    own.then(|| base.join(&phase.tokenizer))
}

fn joined(source: &PlannedSource) -> Vec<String> {
    source.joined_files().map(|(_, file)| file.sha256.clone()).collect()
}
