//! A phase as a step runs it: everything that the plan says, put together without looking at an input
//! again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use potable_blocklists::Blocklist;
use potable_manifests::Digest;

use super::WorkFolder;
use super::error::StepError;
use super::record::{PLAN, PhaseRecord};
use crate::recipe::lock::RecipeLock;
use crate::recipe::resolve::ResolvedPhase;
use crate::recipe::{Recipe, Supply};
use crate::run::digests::map_digest;
use crate::run::error::RunError;
use crate::run::plan::{Cut, Plan, PlannedFile, assemble, find_files};
use crate::run::progress::Progress;
use crate::run::rows::Stages;
use crate::run::{pull, render};
use crate::source::remote::Keep;
use crate::source::{Location, SourceError};
use crate::store::Store;
use crate::tokenise::Tokeniser;

/// Name of the blocklist among the inputs of a phase.
pub const BLOCKLIST: &str = "blocklist.blk";
/// Folder of the tokenizer among the inputs of a phase.
pub const TOKENIZER: &str = "tokenizer";
/// Folder of the chat template among the inputs of a phase.
pub const TEMPLATE: &str = "template";

/// Name of an input of a phase. It is of this plan alone, so that another plan that is refused for the
/// same work folder has written over nothing.
pub fn input_name(map_digest: &Digest, name: &str) -> String {
    format!("inputs/{}/{name}", map_digest.hex().get(..16).unwrap_or_default())
}

/// A phase ready to run.
pub struct PhaseRuntime {
    /// The recipe.
    pub recipe: Recipe,
    /// What comes from the Hub.
    pub supply: Supply,
    /// The plan.
    pub plan: Plan,
    /// The blocklist.
    pub blocklist: Option<Blocklist>,
    /// The tokeniser.
    pub tokeniser: Tokeniser,
    /// The chat template.
    template: Option<PathBuf>,
}

impl PhaseRuntime {
    /// Puts a phase of the plan together; what it needs of the work folder is copied to `scratch` where
    /// the work folder is no folder. The inputs of `units` are checked; a step without units reads none.
    ///
    /// # Errors
    /// Inputs that are not what they were, a potable that makes other things of them.
    pub fn open(
        work: &WorkFolder,
        index: usize,
        scratch: &Path,
        units: &[u64],
        progress: &Progress,
    ) -> Result<PhaseRuntime, RunError> {
        let record = &work.record;
        let mut recipe = Recipe::parse(&record.recipe, &record.origin, &record.base)?;
        let keep = if record.stream { Keep::Nothing } else { Keep::Cache };
        let supply = match &record.lock {
            None => Supply::default(),
            Some(text) => {
                let lock = RecipeLock::parse(text, &work.store.place(PLAN))?;
                pull::supply_of(&mut recipe, lock, keep, progress)?
            }
        };
        let drifted = || StepError::BadPlan {
            place: work.store.place(PLAN),
            problem: "this potable makes another plan of the recipe".to_owned(),
            way_out: "run `potable plan` with the same recipe again, which writes blocklist, tokenizer and template anew; all steps are run by the potable that planned",
        };
        let unusable = |error: RunError| StepError::BadPlan {
            place: work.store.place("inputs"),
            problem: format!("what the plan put there cannot be used: {error}"),
            way_out: "run `potable plan` with the same recipe again, which writes it anew",
        };
        let planned = record.phases.get(index).ok_or_else(drifted)?;
        let phase =
            recipe.phases.get(index).filter(|phase| phase.name == planned.name).ok_or_else(drifted)?;
        let store = work.phase_store(planned);
        let inputs = Inputs { store: &store, scratch, planned };
        let mut sources = Vec::new();
        for (source, facts) in phase.sources.iter().zip(&planned.sources) {
            let found = find_files(source, &supply)?;
            sources.push(assemble(source, facts.clone(), &found, &supply)?);
        }
        let cut = Cut { unit_bytes: record.unit_bytes, chunk_bytes: record.chunk_bytes, reversed: false };
        let plan = Plan::of(phase.clone(), sources, cut);
        check_inputs(&plan, planned, units)?;
        let blocklist = match planned.blocklist {
            true => Some(Blocklist::load(&inputs.path(BLOCKLIST)?).map_err(|e| unusable(e.into()))?),
            false => None,
        };
        let tokeniser = inputs.tokeniser(phase, (&recipe, &supply));
        let tokeniser = tokeniser.map_err(|error| match planned.tokenizer {
            Some(_) => unusable(error).into(),
            None => error,
        })?;
        let template = planned.template.as_deref().map(|name| inputs.template(name)).transpose()?;
        let runtime = PhaseRuntime { recipe, supply, plan, blocklist, tokeniser, template };
        let digest = {
            let stages = runtime.stages()?;
            map_digest(&runtime.plan, stages.blocklist, &runtime.tokeniser, &stages.normaliser)?
        };
        if digest != planned.map_digest || runtime.plan.partitions != planned.partitions {
            return Err(drifted().into());
        }
        Ok(runtime)
    }

    /// What the threads of map share.
    ///
    /// # Errors
    /// A chat template that cannot be used.
    pub fn stages(&self) -> Result<Stages<'_>, RunError> {
        let mut phase = self.plan.phase.clone();
        phase.template.clone_from(&self.template);
        Ok(Stages {
            plan: &self.plan,
            blocklist: self.blocklist.as_ref(),
            normaliser: render::normaliser(&phase, &self.tokeniser, &self.supply)?,
            tokeniser: &self.tokeniser,
            verify: None,
        })
    }
}

/// Inputs that the plan keeps in the work folder.
struct Inputs<'a> {
    store: &'a Store,
    scratch: &'a Path,
    planned: &'a PhaseRecord,
}

impl Inputs<'_> {
    fn path(&self, name: &str) -> Result<PathBuf, RunError> {
        let name = &input_name(&self.planned.map_digest, name);
        if let Some(folder) = self.store.folder() {
            return Ok(std::path::absolute(folder.join(name)).unwrap_or_else(|_| folder.join(name)));
        }
        let path = self.scratch.join(name);
        if !path.exists() {
            self.store.fetch(name, &path)?;
        }
        Ok(path)
    }

    /// The chat template, and what lies beside it.
    fn template(&self, name: &str) -> Result<PathBuf, RunError> {
        let beside = format!("{TEMPLATE}/tokenizer_config.json");
        if self.store.size(&input_name(&self.planned.map_digest, &beside))?.is_some() {
            self.path(&beside)?;
        }
        self.path(&format!("{TEMPLATE}/{name}"))
    }

    fn tokeniser(
        &self,
        phase: &ResolvedPhase,
        (recipe, supply): (&Recipe, &Supply),
    ) -> Result<Tokeniser, RunError> {
        let mut loading = phase.clone();
        if let Some(name) = &self.planned.tokenizer {
            let path = self.path(&format!("{TOKENIZER}/{name}"))?;
            loading.tokenizer = path.to_string_lossy().into_owned();
        }
        render::tokeniser(&loading, &recipe.base, supply)
    }
}

/// The inputs of these units must be what the plan hashed. A file of another time is hashed again: it may be a copy of its
/// own on this machine.
fn check_inputs(plan: &Plan, planned: &PhaseRecord, numbers: &[u64]) -> Result<(), RunError> {
    if numbers.is_empty() {
        return Ok(());
    }
    let ranges = numbers.iter().filter_map(|number| planned.units.get(*number as usize));
    let units = ranges.filter_map(|(first, end)| plan.units.get(*first..*end)).flatten();
    let read: BTreeSet<(usize, usize)> =
        units.map(|unit| (unit.source as usize, unit.file as usize)).collect();
    let changed =
        |file: &PlannedFile| RunError::from(SourceError::Changed { path: file.file.path().to_path_buf() });
    for (number, (source, facts)) in plan.sources.iter().zip(&planned.sources).enumerate() {
        for (index, (file, facts)) in source.files.iter().zip(&facts.files).enumerate() {
            if !read.contains(&(number, index)) || !matches!(file.file.location, Location::Path(_)) {
                continue;
            }
            let (size, modified) = file.stamp;
            let same = modified.is_some() && modified == facts.modified;
            if size != facts.size || (!same && crate::source::open::digest(&file.file)?.0 != facts.sha256) {
                return Err(changed(file));
            }
        }
    }
    for (source, planned) in plan.sources.iter().zip(&planned.joined) {
        for ((_, file), sha256) in source.joined_files().zip(planned) {
            if file.sha256 != *sha256 {
                return Err(SourceError::Changed { path: file.file.path().to_path_buf() }.into());
            }
        }
    }
    Ok(())
}
