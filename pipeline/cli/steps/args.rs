//! Arguments of the steps.

use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args as ClapArgs;

/// `potable plan`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable plan sft.toml --work /shared/sft\n  potable plan sft.toml --work s3://bucket/sft --out s3://bucket/sft-data"
)]
pub struct PlanArgs {
    /// A recipe file, or the name of a built-in recipe.
    #[arg(help_heading = "Input")]
    pub recipe: String,
    /// Read only this many rows of each source, for a trial.
    #[arg(long, value_name = "ROWS", help_heading = "Input")]
    pub limit: Option<u64>,
    /// Fail if RECIPE.lock does not pin everything that comes from the Hub.
    #[arg(long, help_heading = "Hub")]
    pub locked: bool,
    /// Keep no copies: read from the Hub only what is needed, Parquet by ranges.
    #[arg(long, help_heading = "Hub")]
    pub stream: bool,
    /// Refuse files that would not be hashed whole.
    #[arg(long, help_heading = "Hub")]
    pub require_verified: bool,
    /// Work folder that all machines share: a folder, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
    #[arg(long, value_name = "URI", help_heading = "Output")]
    pub work: String,
    /// Where the data set goes: a folder or a prefix of a bucket [default: WORK/out].
    #[arg(long, value_name = "URI", help_heading = "Output")]
    pub out: Option<String>,
    /// How to print what is to be done.
    #[arg(long, value_enum, default_value_t = StatusFormat::Text, help_heading = "Output")]
    pub format: StatusFormat,
    /// Use this many threads [default: one a core].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<usize>,
    /// Cut units of work at about this many bytes.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub unit_bytes: Option<u64>,
    /// Decode about this many bytes of text at a time.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub chunk_bytes: Option<usize>,
}

/// What every step after the plan is told.
#[derive(Debug, ClapArgs)]
pub struct WorkArgs {
    /// Work folder with a plan: a folder, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
    #[arg(long, value_name = "URI", help_heading = "Input")]
    pub work: String,
    /// Only this phase of the recipe.
    #[arg(long, value_name = "PHASE", help_heading = "Input")]
    pub phase: Option<String>,
    /// Use this many threads [default: one a core].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<usize>,
    /// Folder on a local disk for files while they are made [default: the system's].
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub scratch: Option<PathBuf>,
}

/// `potable map`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable map --work /shared/sft --unit 17\n  potable map --work s3://bucket/sft --unit 0..64"
)]
pub struct MapArgs {
    /// What every step is told.
    #[command(flatten)]
    pub work: WorkArgs,
    /// A unit, or units K to L without L [default: all that are missing].
    #[arg(long, value_name = "K[..L]", help_heading = "Input")]
    pub unit: Option<Numbers>,
}

/// `potable select`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Exit status 1: more rows have to be mapped first; run `potable map` again, then this."
)]
pub struct SelectArgs {
    /// What every step is told.
    #[command(flatten)]
    pub work: WorkArgs,
}

/// `potable reduce`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  potable reduce --work /shared/sft --partition 0..64")]
pub struct ReduceArgs {
    /// What every step is told.
    #[command(flatten)]
    pub work: WorkArgs,
    /// A partition, or partitions P to Q without Q [default: all that are missing].
    #[arg(long, value_name = "P[..Q]", help_heading = "Input")]
    pub partition: Option<Numbers>,
}

/// `potable seal`.
#[derive(Debug, ClapArgs)]
pub struct SealArgs {
    /// What every step is told.
    #[command(flatten)]
    pub work: WorkArgs,
}

/// `potable status`.
#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// Work folder with a plan: a folder, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`.
    #[arg(long, value_name = "URI", help_heading = "Input")]
    pub work: String,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = StatusFormat::Text, help_heading = "Output")]
    pub format: StatusFormat,
}

/// How to print what is done and what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StatusFormat {
    /// Lines for a terminal.
    Text,
    /// One JSON object.
    Json,
}

/// One number, or a half-open range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(pub Range<u64>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            let parsed = part.parse().ok().filter(|n: &u64| digits && *n < u64::MAX);
            parsed.ok_or_else(|| "write a number such as `17`, or a range such as `0..64`".to_owned())
        };
        let (first, end) = match text.split_once("..") {
            Some((first, end)) => (number(first)?, number(end)?),
            None => {
                let one = number(text)?;
                (one, one + 1)
            }
        };
        if first >= end {
            return Err("the range is empty: its end is not taken".to_owned());
        }
        Ok(Numbers(first..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        assert_eq!("17".parse(), Ok(Numbers(17..18)));
        assert_eq!("0..64".parse(), Ok(Numbers(0..64)));
        for text in
            ["", "..", "3..", "..3", "3..3", "4..3", "-1", "+1", "a", "1..2..3", "18446744073709551615"]
        {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
    }
}
