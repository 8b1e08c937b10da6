//! Rows and samples by name: where they came from.

use std::fmt;

/// Where a row stands: source and file (indices into the plan) and row number in the file.
/// Stable across runs and machines, whatever the thread count or the batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// Index of the source in its phase.
    pub source: u32,
    /// Index of the file in its source.
    pub file: u32,
    /// Row number, from 0: the line of a JSONL file, the row of a table.
    pub row: u64,
}

/// Names a sample: a row, the assistant turn that it trains, and the fragment of a split sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId {
    /// The row that gave the sample.
    pub row: RowId,
    /// The turn, with `history = "unroll"`; 0 otherwise.
    pub turn: u32,
    /// The fragment, with `overlong = "split"`; 0 otherwise.
    pub fragment: u32,
    /// How often the row was taken before, with `repeats`; 0 otherwise.
    pub repeat: u32,
}

/// A sample id as it stands in shards: `SOURCE/FILE:ROW`, then `.tTURN`, `.fFRAGMENT` and
/// `.rREPEAT` where they are not 0.
pub struct SampleName<'a> {
    /// Name of the source.
    pub source: &'a str,
    /// Name of the file in its source.
    pub file: &'a str,
    /// The sample.
    pub id: SampleId,
}

impl fmt::Display for SampleName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.source, self.file, self.id.row.row)?;
        if self.id.turn > 0 {
            write!(f, ".t{}", self.id.turn)?;
        }
        if self.id.fragment > 0 {
            write!(f, ".f{}", self.id.fragment)?;
        }
        if self.id.repeat > 0 {
            write!(f, ".r{}", self.id.repeat)?;
        }
        Ok(())
    }
}
