//! What is done and what is missing.

use serde::Serialize;

use super::map::{rounds, tasks};
use super::record::PhaseRecord;
use super::reduce::missing_results;
use super::select::SUMMARY;
use super::{WorkFolder, ranges};
use crate::run::error::RunError;
use crate::run::layout::Layout;

/// The state of a work folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Phases in recipe order.
    pub phases: Vec<PhaseStatus>,
    /// The step that comes next: `map`, `select`, `reduce`, `seal` or `done`.
    pub next: &'static str,
}

/// The state of a phase. Ranges leave their last number out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseStatus {
    /// The phase.
    pub phase: Option<String>,
    /// Rounds of map, those of earlier caps among them.
    pub round: u32,
    /// Units.
    pub units: u64,
    /// Units that are not mapped, in any round.
    pub missing_units: Vec<(u64, u64)>,
    /// Whether it is settled which rows go on.
    pub selected: bool,
    /// Partitions and their tails.
    pub partitions: u64,
    /// Partitions and tails that are not written.
    pub missing_partitions: Vec<(u64, u64)>,
    /// Whether the manifest is there.
    pub sealed: bool,
}

impl PhaseStatus {
    fn next(&self) -> Option<(usize, &'static str)> {
        let steps = [
            (!self.missing_units.is_empty() && !self.selected, "map"),
            (!self.selected, "select"),
            // A unit that was found damaged later is mapped again before it is read again.
            (!self.missing_units.is_empty() && !self.sealed, "map"),
            (!self.missing_partitions.is_empty() && !self.sealed, "reduce"),
            (!self.sealed, "seal"),
        ];
        let order = |step: &str| ["map", "select", "reduce", "seal"].iter().position(|s| *s == step);
        let step = steps.iter().find(|(due, _)| *due).map(|(_, step)| *step)?;
        Some((order(step)?, step))
    }
}

/// Looks what a work folder holds.
///
/// # Errors
/// What the store says.
pub fn status(work: &WorkFolder) -> Result<Status, RunError> {
    let phases: Vec<PhaseStatus> =
        work.record.phases.iter().map(|phase| phase_status(work, phase)).collect::<Result<_, _>>()?;
    let next = phases.iter().filter_map(PhaseStatus::next).min().map_or("done", |(_, step)| step);
    let index = work.record.phases.iter().any(|phase| phase.name.is_some());
    if next == "done" && index && work.out(None)?.size("manifest.json")?.is_none() {
        return Ok(Status { phases, next: "seal" });
    }
    Ok(Status { phases, next })
}

fn phase_status(work: &WorkFolder, phase: &PhaseRecord) -> Result<PhaseStatus, RunError> {
    let store = work.phase_store(phase);
    let sealed = work.out(Some(phase))?.size("manifest.json")?.is_some();
    let mut missing: Vec<u64> = tasks(&store, phase)?.iter().map(|task| task.unit).collect();
    missing.sort_unstable();
    Ok(PhaseStatus {
        phase: phase.name.clone(),
        round: rounds(&store, phase)?.len() as u32,
        units: phase.units.len() as u64,
        missing_units: ranges(missing.into_iter()),
        selected: store.size(SUMMARY)?.is_some(),
        partitions: u64::from(Layout::count(phase.partitions)),
        missing_partitions: ranges(missing_results(&store, phase)?.into_iter().map(u64::from)),
        sealed,
    })
}
