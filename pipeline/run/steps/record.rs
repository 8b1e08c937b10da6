//! `plan.json`: all that the other steps have to know, so that no input is found or hashed again.

use std::path::PathBuf;

use potable_manifests::Digest;
use serde::{Deserialize, Serialize};

use super::error::StepError;
use crate::run::error::RunError;
use crate::run::measure::SourceFacts;
use crate::run::plan::Unit;
use crate::store::Store;

/// Name of the plan in a work folder.
pub const PLAN: &str = "plan.json";
const SCHEMA: &str = "potable-work-1";

/// A planned run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkRecord {
    /// Layout of this record.
    pub schema: String,
    /// xxh3-128 of all the rest, in hex.
    pub digest: String,
    /// Version of the potable that planned; the steps are run by the same one.
    pub potable: String,
    /// The recipe as it was named.
    pub origin: String,
    /// The folder that its paths are relative to.
    pub base: PathBuf,
    /// The recipe as written.
    pub recipe: String,
    /// What it takes from the Hub.
    pub lock: Option<String>,
    /// Address of the output folder.
    pub out: String,
    /// Bytes of text that are decoded at a time, about.
    pub chunk_bytes: usize,
    /// Stored or uncompressed bytes of a range of a file, about.
    pub unit_bytes: u64,
    /// No copies of files of the Hub are kept.
    pub stream: bool,
    /// Phases in recipe order.
    pub phases: Vec<PhaseRecord>,
}

/// A planned phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseRecord {
    /// Its name.
    pub name: Option<String>,
    /// Digest of everything that map reads.
    pub map_digest: Digest,
    /// Whether there is a blocklist.
    pub blocklist: bool,
    /// File name of the tokenizer among the inputs, where it is a local file.
    pub tokenizer: Option<String>,
    /// File name of the chat template among the inputs.
    pub template: Option<String>,
    /// What was measured of the sources.
    pub sources: Vec<SourceFacts>,
    /// SHA-256 of the files of each source's joined corpora.
    pub joined: Vec<Vec<String>>,
    /// Sampling hashes up to which the first round of map goes, by source.
    pub thresholds: Vec<u64>,
    /// The ranges of files that a unit of work reads: the first one, and the one after the last.
    pub units: Vec<(usize, usize)>,
    /// Partitions.
    pub partitions: u32,
}

impl PhaseRecord {
    /// Index of the source of each unit.
    pub fn sources_of_units(&self) -> Vec<u32> {
        let cuts = |facts: &SourceFacts| facts.files.iter().map(|file| file.cuts.len()).sum::<usize>();
        let ranges = (0..).zip(&self.sources);
        let ranges: Vec<u32> =
            ranges.flat_map(|(index, facts)| std::iter::repeat_n(index, cuts(facts))).collect();
        self.units.iter().filter_map(|(first, _)| ranges.get(*first).copied()).collect()
    }
}

impl WorkRecord {
    /// The layout of this potable.
    pub fn schema() -> String {
        SCHEMA.to_owned()
    }

    /// Reads the plan of a work folder.
    ///
    /// # Errors
    /// No plan, one of another version.
    pub fn read(store: &Store) -> Result<WorkRecord, RunError> {
        let place = || store.place(PLAN);
        let bytes = match store.get(PLAN) {
            Err(error) if error.is_not_found() => {
                return Err(StepError::NoPlan { place: store.uri() }.into());
            }
            result => result?,
        };
        let bad = |problem: String| StepError::BadPlan {
            place: place(),
            problem,
            way_out: "plan in another work folder, or run the potable that planned here",
        };
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|e| bad(format!("is no plan of potable: {e}")))?;
        let text = |field: &str| value.get(field).and_then(|v| v.as_str()).unwrap_or("unknown").to_owned();
        if text("schema") != SCHEMA {
            return Err(
                bad(format!("has layout `{}`, and this potable reads `{SCHEMA}`", text("schema"))).into()
            );
        }
        let version = env!("CARGO_PKG_VERSION");
        if text("potable") != version {
            let planned = text("potable");
            return Err(bad(format!("potable {planned} planned here, and this is {version}")).into());
        }
        let record: WorkRecord =
            serde_json::from_value(value).map_err(|e| bad(format!("is no plan of potable: {e}")))?;
        let written = record.digest.clone();
        let record = record.digested()?;
        if record.digest != written {
            let way_out =
                "remove it and run `potable plan` with the same recipe again: work that is done stays";
            let problem = "is not what was written".to_owned();
            return Err(StepError::BadPlan { place: place(), problem, way_out }.into());
        }
        Ok(record)
    }

    /// With the digest of what it says.
    ///
    /// # Errors
    /// None in practice; the serialiser's words.
    pub fn digested(self) -> Result<WorkRecord, RunError> {
        let rest = WorkRecord { digest: String::new(), ..self };
        let text = serde_json::to_string(&rest);
        let text = text.map_err(|e| RunError::Manifest { reason: e.to_string() })?;
        Ok(WorkRecord { digest: format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes())), ..rest })
    }

    /// The digest of what decides about the data set: two plans with the same one may cut the work
    /// differently, and name the recipe differently.
    ///
    /// # Errors
    /// None in practice; the serialiser's words.
    pub fn data_digest(&self) -> Result<String, RunError> {
        let mut record = WorkRecord {
            digest: String::new(),
            origin: String::new(),
            chunk_bytes: 0,
            unit_bytes: 0,
            ..self.clone()
        };
        for phase in &mut record.phases {
            phase.units.clear();
            for file in phase.sources.iter_mut().flat_map(|source| &mut source.files) {
                file.cuts.clear();
                file.modified = None;
            }
        }
        Ok(record.digested()?.digest)
    }

    /// What another plan would change, in words.
    pub fn difference(&self, other: &WorkRecord) -> String {
        let files = |record: &WorkRecord| -> Vec<(String, u64)> {
            let sources = record.phases.iter().flat_map(|phase| &phase.sources);
            sources.flat_map(|source| &source.files).map(|file| (file.sha256.clone(), file.size)).collect()
        };
        let differs = [
            (self.recipe != other.recipe, "the recipe"),
            (self.lock != other.lock, "the lock of the recipe"),
            (self.base != other.base, "the folder of the recipe"),
            (self.out != other.out, "`--out`"),
            (self.stream != other.stream, "`--stream`"),
            (files(self) != files(other), "the files of the sources"),
        ];
        let differs: Vec<&str> =
            differs.iter().filter(|(differs, _)| *differs).map(|(_, name)| *name).collect();
        match differs.as_slice() {
            [] => "what the recipe names, or `--limit`".to_owned(),
            names => names.join(", "),
        }
    }

    /// The plan as text.
    ///
    /// # Errors
    /// None in practice; the serialiser's words.
    pub fn to_json(&self) -> Result<String, RunError> {
        let text = serde_json::to_string_pretty(self);
        Ok(text.map_err(|e| RunError::Manifest { reason: e.to_string() })? + "\n")
    }
}

/// Blocks of tokens that select lists in memory, at most, about: units × partitions.
const MOST_BLOCKS: u64 = 1 << 22;

/// Bytes that a unit has at least, so that a partition reads `read_bytes` of it and there are not more
/// than [`MOST_BLOCKS`].
pub fn least_bytes(total: u64, partitions: u32, read_bytes: u64) -> u64 {
    let partitions = u64::from(partitions);
    let bounded = (u128::from(total) * u128::from(partitions)).div_ceil(u128::from(MOST_BLOCKS));
    read_bytes.saturating_mul(partitions).max(u64::try_from(bounded).unwrap_or(u64::MAX))
}

/// Ranges of files to units of work: neighbours are put together until a unit has so many bytes that a
/// partition's part of it is worth a read of its own. `bytes` says how many a range has.
pub fn group(units: &[Unit], bytes: impl Fn(&Unit) -> u64, least: u64) -> Vec<(usize, usize)> {
    let mut groups = Vec::new();
    let (mut first, mut sum) = (0, 0);
    for (index, unit) in units.iter().enumerate() {
        sum += bytes(unit);
        // A unit has one source, so that a further round leaves out whole units.
        let ends = units.get(index + 1).is_none_or(|next| next.source != unit.source);
        if sum >= least || ends {
            groups.push((first, index + 1));
            (first, sum) = (index + 1, 0);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_times_partitions_is_bounded() {
        for total in [1u64 << 20, 1 << 30, 3_000_000_000_000, 100_000_000_000_000] {
            for partitions in [1u32, 16, 4_471, 44_700, 1_490_000] {
                let least = least_bytes(total, partitions, 1 << 14);
                let units = total.div_ceil(least.max(1));
                assert!(
                    units * u64::from(partitions) <= MOST_BLOCKS + u64::from(partitions),
                    "{total} {partitions}"
                );
                assert!(least >= (1 << 14) * u64::from(partitions));
            }
        }
    }
}
