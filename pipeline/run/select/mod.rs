//! Select: exact duplicates and exact caps, from the metadata columns of the staged files alone. Memory
//! is bounded by a partition a thread, whatever the rows:
//!
//! 1. gather: staged files are read once, their samples spilled by partition; a partition's rows are
//!    cut to those in the running, duplicates share a partition (`gather.rs`),
//! 2. near duplicates are taken out, if the recipe asks for it (`near.rs`),
//! 3. caps: a histogram of the sampling hashes of a source says in which bucket its last row is, a
//!    second pass over that bucket which row it is (`caps.rs`),
//! 4. settle: the rows that go on, a file a partition (`settle.rs`).

mod candidates;
mod caps;
mod codec;
mod gather;
mod near;
mod outcome;
mod rows;
mod rules;
mod scratch;
mod settle;
mod sort;
mod spill;
#[cfg(test)]
pub(super) mod tests;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::mixture::Missing;
use super::progress::Progress;
use crate::source::row::RowId;

pub use gather::Gathered;
pub use outcome::{KEYS, NEAR, NearDropped, OVERLONG, Overlong, Selection};
pub use rules::{Rules, SourceRules};
pub use spill::Metadata;

/// One sample in a staged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRef {
    /// Index of the staged file.
    pub chunk: u32,
    /// Index among the samples of the partition in that file.
    pub index: u32,
    /// Assistant turn.
    pub turn: u32,
    /// Tokens.
    pub tokens: u32,
    /// First trained token; `u32::MAX` if there is none.
    pub first_trained: u32,
}

/// A row that goes on, with its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedRow {
    /// The row.
    pub id: RowId,
    /// Whether it is held out.
    pub held_out: bool,
    /// Its samples by turn.
    pub samples: Vec<SampleRef>,
    /// How many times it is taken; once at least.
    pub times: u32,
}

/// What select counts for one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectCounts {
    /// Rows and samples of exact duplicates.
    pub duplicates: (u64, u64),
    /// Rows and samples of near duplicates.
    pub near: (u64, u64),
    /// Rows and samples that another phase took.
    pub other_phase: (u64, u64),
    /// Rows of which no sample fits a pack; samples that fit none, those of other rows among them;
    /// their tokens.
    pub overlong: (u64, u64, u64),
    /// Rows and samples above a cap.
    pub capped: (u64, u64),
    /// Rows and samples that are taken again, each time counted.
    pub repeated: (u64, u64),
    /// Tokens that truncation cuts off.
    pub truncated_tokens: u64,
    /// Rows that go on.
    pub kept_rows: u64,
}

impl SelectCounts {
    /// Adds the counts of other rows.
    pub fn add(&mut self, other: &SelectCounts) {
        let pairs = [
            (&mut self.duplicates, other.duplicates),
            (&mut self.near, other.near),
            (&mut self.other_phase, other.other_phase),
            (&mut self.capped, other.capped),
            (&mut self.repeated, other.repeated),
        ];
        for (sum, one) in pairs {
            sum.0 += one.0;
            sum.1 += one.1;
        }
        self.overlong.0 += other.overlong.0;
        self.overlong.1 += other.overlong.1;
        self.overlong.2 += other.overlong.2;
        self.truncated_tokens += other.truncated_tokens;
        self.kept_rows += other.kept_rows;
    }
}

/// What a selection says of itself; in `summary.json`, written last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Counts by source.
    pub counts: Vec<SelectCounts>,
    /// For each partition how many times its most repeated row is taken; 0 if it has no rows.
    pub times: Vec<u32>,
    /// Sources that have less than asked for.
    pub short: Vec<(usize, Missing)>,
    /// Rows of which no sample fits a pack.
    pub overlong: u64,
    /// Near duplicates.
    pub near: u64,
}

/// Whether the keys of the rows that go on are written down, for a phase that leaves them out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// They are not.
    #[default]
    Forgotten,
    /// They are, sorted, in `keys`.
    Kept,
}

/// How much is held in memory; none of it changes an outcome.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of spilled samples that a thread holds.
    pub spill_bytes: usize,
    /// Records that a thread holds of what is sorted on disk.
    pub sort_records: usize,
    /// The histogram of sampling hashes has 2 to the power of this buckets for each power of two.
    pub bucket_bits: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { spill_bytes: 64 << 20, sort_records: 1 << 20, bucket_bits: 8 }
    }
}

/// What select works with.
pub struct Selecting<'a> {
    /// The rules of the phase.
    pub rules: &'a Rules,
    /// Sorted keys of another phase, as [`Selection::keys`] names them; their rows are left out.
    pub excluded: Option<&'a Path>,
    /// Where the selection goes; scratch files without names lie there too.
    pub folder: &'a Path,
    /// Whether keys are written down.
    pub keys: Keys,
    /// How much is held in memory.
    pub limits: Limits,
    /// Says when to stop.
    pub progress: &'a Progress,
}

/// Selects. `staged` are the staged files of all rounds.
///
/// Sources are settled in the order of the recipe: of a source, rows that an earlier source kept and
/// later copies of its own rows go first, then what its cap leaves out. A row that a cap leaves out
/// gives way to a copy of it in a later source.
///
/// # Errors
/// A staged file that is damaged; a weight that asks for more than there is.
pub fn select<M: Metadata>(selecting: &Selecting, staged: &[M]) -> Result<Selection, RunError> {
    let mut gathered = Gathered::new(selecting, staged)?;
    if selecting.rules.near {
        gathered.drop_near(staged)?;
    }
    gathered.settle()
}
