//! The steps of a run one by one, for a scheduler of other machines: plan, map a unit, select, reduce a
//! partition, seal. What passes between them lies in a work folder, which may be an object store.
//!
//! Each step writes whole objects under names that only its task has, so that it may be killed, run
//! again, and run twice at once: the same task always writes the same bytes.
//!
//! ```text
//! WORK/plan.json                          what runs: recipe, lock, inputs, how work is cut
//! WORK/[PHASE/]inputs/DIGEST/…            blocklist, tokenizer, template
//! WORK/[PHASE/]map/r01-u000000.tokens     ids of a unit, a block a partition
//! WORK/[PHASE/]map/r01-u000000.staged     the commit of a unit: ledgers, metadata, dropped rows, digests
//! WORK/[PHASE/]rounds/r02.json            hashes up to which a further round of map goes
//! WORK/[PHASE/]select/…                   rows that go on, by partition; `summary.json` last
//! WORK/[PHASE/]reduce/partition-00000.json  the commit of a partition
//! WORK/[PHASE/]sealed.json                which manifest seal writes
//! OUT/[PHASE/].work/owner                 whose the output folder is, until it is sealed
//! ```

mod blocks;
mod error;
mod group;
mod map;
mod owner;
mod phase;
mod plan;
mod record;
mod reduce;
mod scratch;
mod seal;
mod sealed;
mod select;
mod status;

use std::ops::Range;
use std::path::PathBuf;

pub use error::StepError;
pub use map::map;
pub use plan::{PlanOptions, plan};
pub use record::{PhaseRecord, WorkRecord};
pub use reduce::reduce;
pub use seal::seal;
pub use select::{Selected, select};
pub use status::{PhaseStatus, Status, status};

use self::scratch::Scratch;
use super::error::RunError;
use crate::store::Store;

/// How a step runs; nothing here changes an output byte.
#[derive(Clone, Debug)]
pub struct StepOptions {
    /// Threads.
    pub threads: usize,
    /// Where files lie while they are made; the system's folder for such files if none is named.
    pub scratch: Option<PathBuf>,
    /// Only this phase.
    pub phase: Option<String>,
}

/// A work folder with a plan in it.
#[derive(Clone, Debug)]
pub struct WorkFolder {
    /// Where it is.
    pub store: Store,
    /// The plan.
    pub record: WorkRecord,
}

impl WorkFolder {
    /// Opens a work folder by its address.
    ///
    /// # Errors
    /// A folder without a plan, a plan of another version of potable.
    pub fn open(uri: &str) -> Result<WorkFolder, RunError> {
        let store = Store::open(uri)?;
        let record = WorkRecord::read(&store)?;
        Ok(WorkFolder { store, record })
    }

    /// The part of the work folder that a phase has.
    pub fn phase_store(&self, phase: &PhaseRecord) -> Store {
        self.store.below(phase.name.as_deref().unwrap_or_default())
    }

    /// Where the data set of a phase goes.
    ///
    /// # Errors
    /// An address that names no store.
    pub fn out(&self, phase: Option<&PhaseRecord>) -> Result<Store, RunError> {
        let name = phase.and_then(|phase| phase.name.as_deref()).unwrap_or_default();
        Ok(Store::open(&self.record.out)?.below(name))
    }

    /// The phases that a step is asked for, by index.
    ///
    /// # Errors
    /// A phase that is not in the plan; numbers that may be of several phases.
    fn phases(&self, wanted: Option<&str>, numbered: bool) -> Result<Vec<usize>, StepError> {
        let names = || self.record.phases.iter().filter_map(|phase| phase.name.as_deref());
        let listed = || names().collect::<Vec<_>>().join(", ");
        match wanted {
            Some(name) => {
                let index = self.record.phases.iter().position(|phase| phase.name.as_deref() == Some(name));
                let missing = || StepError::NoPhase { name: name.to_owned(), known: listed() };
                Ok(vec![index.ok_or_else(missing)?])
            }
            None if numbered && self.record.phases.len() > 1 => {
                Err(StepError::WhichPhase { known: listed() })
            }
            None => Ok((0..self.record.phases.len()).collect()),
        }
    }
}

/// Numbers that a step is asked for, checked against how many there are.
fn checked(numbers: Range<u64>, count: u64, what: &'static str) -> Result<Range<u64>, StepError> {
    if numbers.start >= numbers.end || numbers.end > count {
        return Err(StepError::OutOfRange { what, start: numbers.start, end: numbers.end, count });
    }
    Ok(numbers)
}

fn pool(threads: usize) -> Result<rayon::ThreadPool, RunError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|e| RunError::Threads { threads, reason: e.to_string() })
}

/// Numbers as ranges, the last number of each not taken.
fn ranges(numbers: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last.1 == number => last.1 += 1,
            Some(last) if last.1 > number => {}
            _ => ranges.push((number, number + 1)),
        }
    }
    ranges
}
