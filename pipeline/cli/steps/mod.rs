//! `potable plan`, `map`, `select`, `reduce`, `seal` and `status`: the steps of `prep` one by one, for a
//! scheduler of other machines.

pub mod args;

use std::sync::Arc;

use anyhow::Result;
use potable_manifests::{Manifest, RunBlock};
use serde_json::Value;

use super::Answer;
use super::display::grouped;
use super::output::Output;
use super::prep::{bound_pools, cores, shown, stop_on_signal};
use crate::recipe::Recipe;
use crate::recipe::lock::RecipeLock;
use crate::recipe::pins::LockUse;
use crate::run::pull::{Evidence, Pull};
use crate::run::steps::{self, PlanOptions, Selected, Status, StepOptions, WorkFolder};
use crate::run::{Cut, Progress};
use crate::source::remote::Keep;
use args::{MapArgs, PlanArgs, ReduceArgs, SealArgs, SelectArgs, StatusArgs, StatusFormat, WorkArgs};

/// Bytes that a partition has of a unit, about, at least: reduce asks for them at once. A request to an
/// object store is worth a mebibyte; a read of a file is worth far less.
const BUCKET_READ: u64 = 1 << 20;
const FOLDER_READ: u64 = 16 << 10;

/// `potable plan`.
///
/// # Errors
/// As `prep` before its first row; a work folder with another plan.
pub fn plan(args: &PlanArgs, output: &Output) -> Result<Answer> {
    let recipe = Recipe::load(&args.recipe)?;
    let threads = threads(args.threads);
    bound_pools(threads);
    let progress = started()?;
    let cut = Cut::default();
    let options = PlanOptions {
        origin: args.recipe.clone(),
        work: args.work.clone(),
        out: args.out.clone(),
        limit: args.limit,
        cut: Cut {
            unit_bytes: args.unit_bytes.unwrap_or(cut.unit_bytes).max(1),
            chunk_bytes: args.chunk_bytes.unwrap_or(cut.chunk_bytes).max(1),
            reversed: false,
        },
        // Cuts that somebody asked for are for tests, and stay.
        read_bytes: match args.unit_bytes {
            Some(_) => 0,
            None if crate::store::Store::open(&args.work)
                .map_err(crate::run::RunError::from)?
                .folder()
                .is_none() =>
            {
                BUCKET_READ
            }
            None => FOLDER_READ,
        },
        pull: Pull {
            lock: RecipeLock::path_of(&args.recipe),
            lock_use: if args.locked { LockUse::Locked } else { LockUse::Extend },
            keep: if args.stream { Keep::Nothing } else { Keep::Cache },
            evidence: if args.require_verified { Evidence::Whole } else { Evidence::Any },
        },
        threads,
    };
    let status = shown(output, &progress, || steps::plan(&recipe, &options, &progress))?;
    print(&status, args.format, output)?;
    Ok(Answer::Yes)
}

/// `potable map`.
///
/// # Errors
/// Numbers that there are not; whatever stops a unit.
pub fn map(args: &MapArgs, output: &Output) -> Result<Answer> {
    let (work, options, progress) = opened(&args.work)?;
    let units = args.unit.as_ref().map(|numbers| numbers.0.clone());
    let done = shown(output, &progress, || steps::map(&work, units, &options, &progress))?;
    output.note(&format!("{} units mapped", grouped(done)));
    Ok(Answer::Yes)
}

/// `potable select`.
///
/// # Errors
/// Units that are not mapped.
pub fn select(args: &SelectArgs, output: &Output) -> Result<Answer> {
    let (work, options, progress) = opened(&args.work)?;
    match shown(output, &progress, || steps::select(&work, &options, &progress))? {
        Selected::Done => {
            output.note("selected");
            Ok(Answer::Yes)
        }
        Selected::More(phases) => {
            let phases = phases.into_iter().flatten().map(|phase| format!(" of phase `{phase}`"));
            let phases: String = phases.collect();
            output.note(&format!(
                "caps{phases} need more rows: run `potable map --work {}` again, then this",
                args.work.work
            ));
            Ok(Answer::No)
        }
    }
}

/// `potable reduce`.
///
/// # Errors
/// Numbers that there are not; a phase that is not selected; whatever stops a partition.
pub fn reduce(args: &ReduceArgs, output: &Output) -> Result<Answer> {
    let (work, options, progress) = opened(&args.work)?;
    let partitions = args.partition.as_ref().map(|numbers| numbers.0.clone());
    let done = shown(output, &progress, || steps::reduce(&work, partitions, &options, &progress))?;
    output.note(&format!("{} partitions written", grouped(done)));
    Ok(Answer::Yes)
}

/// `potable seal`.
///
/// # Errors
/// Partitions that are not written; ledgers that do not balance.
pub fn seal(args: &SealArgs, output: &Output) -> Result<Answer> {
    let (work, options, progress) = opened(&args.work)?;
    // Nothing of when and where: whoever seals writes the same bytes.
    let run = RunBlock { potable_version: env!("CARGO_PKG_VERSION").to_owned(), ..RunBlock::default() };
    let reports = shown(output, &progress, || steps::seal(&work, &options, &run, &progress))?;
    let manifests: Vec<&Manifest> = reports.iter().map(|report| &report.manifest).collect();
    for manifest in &manifests {
        let phase = manifest.phase.as_ref().map_or(String::new(), |phase| format!("phase {phase} "));
        output.note(&format!("{phase}sealed: {}", manifest.manifest_digest.as_str()));
    }
    let failed: u64 =
        manifests.iter().flat_map(|manifest| manifest.rows.values()).map(|ledger| ledger.failed).sum();
    if failed > 0 {
        output.warn(&format!("{} rows could not be read; they are listed in dropped/", grouped(failed)));
        return Ok(Answer::No);
    }
    Ok(Answer::Yes)
}

/// `potable status`.
///
/// # Errors
/// A work folder without a plan.
pub fn status(args: &StatusArgs, output: &Output) -> Result<Answer> {
    let status = steps::status(&WorkFolder::open(&args.work)?)?;
    print(&status, args.format, output)?;
    Ok(Answer::Yes)
}

fn opened(args: &WorkArgs) -> Result<(WorkFolder, StepOptions, Arc<Progress>)> {
    let threads = threads(args.threads);
    bound_pools(threads);
    let progress = started()?;
    let options = StepOptions { threads, scratch: args.scratch.clone(), phase: args.phase.clone() };
    Ok((WorkFolder::open(&args.work)?, options, progress))
}

fn threads(asked: Option<usize>) -> usize {
    asked.filter(|n| *n > 0).unwrap_or_else(cores)
}

fn started() -> Result<Arc<Progress>> {
    let progress = Arc::new(Progress::default());
    stop_on_signal(&progress)?;
    Ok(progress)
}

fn print(status: &Status, format: StatusFormat, output: &Output) -> Result<()> {
    let value = serde_json::to_value(status)?;
    match format {
        StatusFormat::Json => output.data(&value.to_string())?,
        StatusFormat::Text => output.data(&lines(&value).join("\n"))?,
    }
    Ok(())
}

/// A status for a reader, from its JSON.
fn lines(status: &Value) -> Vec<String> {
    let number = |phase: &Value, key: &str| phase.get(key).and_then(Value::as_u64).unwrap_or_default();
    let yes = |phase: &Value, key: &str| phase.get(key).and_then(Value::as_bool).unwrap_or_default();
    let mut lines = Vec::new();
    for phase in status.get("phases").and_then(Value::as_array).into_iter().flatten() {
        if let Some(name) = phase.get("phase").and_then(Value::as_str) {
            lines.push(format!("phase {name}"));
        }
        let round = match number(phase, "round") {
            1 => String::new(),
            round => format!(" (round {round})"),
        };
        lines.push(format!("map         {}{round}", part(phase, "missing_units", number(phase, "units"))));
        lines.push(format!("select      {}", if yes(phase, "selected") { "done" } else { "missing" }));
        let partitions = number(phase, "partitions");
        lines.push(format!("reduce      {}", part(phase, "missing_partitions", partitions)));
        lines.push(format!("seal        {}", if yes(phase, "sealed") { "done" } else { "missing" }));
    }
    lines.push(format!("next        {}", status.get("next").and_then(Value::as_str).unwrap_or_default()));
    lines
}

/// How many tasks are done, and which are missing.
fn part(phase: &Value, key: &str, all: u64) -> String {
    let ranges: Vec<(u64, u64)> = phase
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|range| Some((range.get(0)?.as_u64()?, range.get(1)?.as_u64()?)))
        .collect();
    let missing: u64 = ranges.iter().map(|(first, end)| end - first).sum();
    let done = format!("{} of {}", grouped(all.saturating_sub(missing)), grouped(all));
    if ranges.is_empty() {
        return done;
    }
    let named = |&(first, end): &(u64, u64)| {
        if end == first + 1 { first.to_string() } else { format!("{first}..{end}") }
    };
    let more = if ranges.len() > SHOWN { ", …" } else { "" };
    let listed: Vec<String> = ranges.iter().take(SHOWN).map(named).collect();
    format!("{done}, missing: {}{more}", listed.join(", "))
}

/// Ranges that are listed for a reader.
const SHOWN: usize = 8;
