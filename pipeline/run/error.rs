//! What can go wrong in a run.

use std::io;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use potable_blocklists::BlocklistError;

use super::steps::StepError;
use crate::decontaminate::benchmarks::BenchmarkError;
use crate::dedup::DedupError;
use crate::normalise::TemplateError;
use crate::recipe::RecipeError;
use crate::recipe::pins::PinError;
use crate::source::SourceError;
use crate::source::hub::HubError;
use crate::source::join::JoinError;
use crate::source::predicate::PredicateError;
use crate::store::StoreError;
use crate::tokenise::TokeniserError;

/// An error of a run. The output folder is left without a manifest.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A `where`.
    #[error(transparent)]
    Predicate(#[from] PredicateError),
    /// A join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A benchmark.
    #[error(transparent)]
    Benchmark(#[from] BenchmarkError),
    /// A blocklist.
    #[error(transparent)]
    Blocklist(#[from] BlocklistError),
    /// The tokeniser.
    #[error(transparent)]
    Tokeniser(#[from] TokeniserError),
    /// A chat template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Near duplicates.
    #[error(transparent)]
    Dedup(#[from] DedupError),
    /// A file that cannot be written.
    #[error("cannot write `{path}`", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A file of the output folder that cannot be read.
    #[error("cannot read `{path}`", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A step of a run.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An input file that the plan has and that is gone.
    #[error("source `{source_name}`: `{name}` was there when the run was planned and is not there now")]
    InputGone {
        /// The source.
        source_name: String,
        /// The file.
        name: String,
    },
    /// A staged file that is damaged.
    #[error("staged file `{path}` is damaged: {reason}", path = path.display())]
    Staged {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Arrays that do not fit together.
    #[error("cannot build a table: {source}")]
    Table {
        /// Cause.
        #[source]
        source: ArrowError,
    },
    /// A shard that cannot be written.
    #[error("cannot write shard `{path}`: {reason}", path = path.display())]
    Shard {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// An id that the type of the shard format does not hold.
    #[error("{path}: sample `{sample}` has id {id}, and the format holds ids up to {largest}", path = path.display())]
    IdTooLarge {
        /// The file.
        path: PathBuf,
        /// The sample.
        sample: String,
        /// The id.
        id: u32,
        /// The largest id of the format.
        largest: u32,
    },
    /// An output folder with something else in it.
    #[error("{path}: {problem}", path = path.display())]
    OutputFolder {
        /// The folder.
        path: PathBuf,
        /// What is there.
        problem: String,
        /// The way out.
        way_out: String,
    },
    /// A source that gives no rows.
    #[error("source `{source_name}`: there are no rows in {files} files")]
    NoRows {
        /// The source.
        source_name: String,
        /// How many files.
        files: usize,
    },
    /// A run that keeps nothing.
    #[error("no row was kept: {read} rows read, {why}")]
    NothingKept {
        /// Rows read.
        read: u64,
        /// Where they went.
        why: String,
    },
    /// More asked for than there is.
    #[error("source `{source_name}`: {asked} tokens asked for, {supply} there")]
    Supply {
        /// The source.
        source_name: String,
        /// Tokens that its weight asks for.
        asked: u64,
        /// Tokens that are there.
        supply: u64,
    },
    /// A source that is a benchmark itself.
    #[error("source `{source_name}` is the benchmark `{benchmark}` itself: {why}")]
    IsBenchmark {
        /// The source.
        source_name: String,
        /// The benchmark.
        benchmark: String,
        /// What shows it.
        why: String,
    },
    /// Counts that do not add up: a fault of potable.
    #[error("the ledger of source `{source_name}` does not balance: {detail}")]
    Unbalanced {
        /// The source.
        source_name: String,
        /// Both sides.
        detail: String,
    },
    /// The manifest cannot be written.
    #[error("cannot write the manifest: {reason}")]
    Manifest {
        /// Why.
        reason: String,
    },
    /// The Hub.
    #[error("cannot pull from the Hub")]
    Hub {
        /// Cause.
        #[source]
        source: Box<HubError>,
    },
    /// What a recipe takes from the Hub cannot be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// A file of which only ranges would be read.
    #[error("source `{source_name}`: of `{path}` only ranges would be read, and `--require-verified` wants it whole", path = path.display())]
    OnlyRanges {
        /// The source.
        source_name: String,
        /// The file.
        path: PathBuf,
    },
    /// Too little room for downloads.
    #[error("{path}: {free} bytes free where the downloads need {needed}", path = path.display())]
    CacheSpace {
        /// The cache of the Hub.
        path: PathBuf,
        /// Free bytes.
        free: u64,
        /// Needed bytes.
        needed: u64,
    },
    /// Too little room on the disk.
    #[error("{path}: {free} bytes free where about {needed} are needed", path = path.display())]
    DiskSpace {
        /// The output folder.
        path: PathBuf,
        /// Free bytes.
        free: u64,
        /// Needed bytes.
        needed: u64,
    },
    /// A pool that cannot be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many.
        threads: usize,
        /// Why.
        reason: String,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Whether it only says that a transfer was stopped from outside.
    pub fn is_interrupt(&self) -> bool {
        let hub = match self {
            RunError::Interrupted => return true,
            RunError::Hub { source } => source,
            RunError::Source(SourceError::Hub { source, .. }) => source,
            RunError::Benchmark(BenchmarkError::Source {
                source: SourceError::Hub { source, .. }, ..
            }) => source,
            RunError::Pin(PinError::Hub { source, .. }) => source,
            _ => return false,
        };
        matches!(**hub, HubError::Interrupted)
    }

    /// A write that failed.
    pub fn write(path: &Path, source: io::Error) -> Self {
        RunError::Write { path: path.to_path_buf(), source }
    }

    /// An Arrow error while a file is written: an I/O error keeps its cause.
    pub fn from_arrow(path: &Path, error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, source) => RunError::write(path, source),
            other => RunError::Shard { path: path.to_path_buf(), reason: other.to_string() },
        }
    }

    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            RunError::Recipe(e) => e.hint(),
            RunError::Source(e) => e.hint(),
            RunError::Predicate(e) => e.hint(),
            RunError::Join(e) => e.hint(),
            RunError::Benchmark(e) => e.hint(),
            RunError::Tokeniser(e) => e.hint(),
            RunError::Blocklist(e) => e.hint(),
            RunError::Template(e) => Some(e.hint()),
            RunError::Dedup(e) => e.hint(),
            RunError::Write { source, .. } => write_hint(source),
            RunError::Step(e) => Some(e.hint()),
            RunError::Store(e) => e.hint(),
            RunError::InputGone { .. } => {
                Some("put it back, or plan again if the corpus has changed".to_owned())
            }
            RunError::Staged { .. } => Some("run again with `--fresh`".to_owned()),
            RunError::IdTooLarge { .. } => {
                Some("choose another `[output] format`, or a tokenizer with smaller ids".to_owned())
            }
            RunError::OutputFolder { way_out, .. } => Some(way_out.clone()),
            RunError::NoRows { .. } => Some("check `path` and `--limit`".to_owned()),
            RunError::NothingKept { .. } => {
                Some("`dropped/` in the output folder lists each row with its reason".to_owned())
            }
            RunError::Supply { supply: 0, .. } => {
                Some("no row of the source is left: remove it, or see in `--limit` runs why".to_owned())
            }
            RunError::Supply { .. } => Some(
                "lower the weight or `max_tokens` of the phase, or let the source's rows be taken again: `repeats`"
                    .to_owned(),
            ),
            RunError::IsBenchmark { .. } => {
                Some("train on training splits only; remove the source from the recipe".to_owned())
            }
            RunError::Hub { source } => source.hint(),
            RunError::Pin(e) => e.hint(),
            RunError::OnlyRanges { .. } => {
                Some("leave `--stream` out, so that whole files are fetched and hashed".to_owned())
            }
            RunError::CacheSpace { .. } => Some(
                "make room, set `HF_HUB_CACHE` to a folder on another disk, or pass `--stream` to keep no copies"
                    .to_owned(),
            ),
            RunError::DiskSpace { .. } => Some("make room, or choose another disk with `--out`".to_owned()),
            RunError::Interrupted => Some("run the same command again to continue".to_owned()),
            RunError::Unbalanced { .. } => Some("this is a fault of potable; please report it".to_owned()),
            RunError::Read { .. }
            | RunError::Table { .. }
            | RunError::Shard { .. }
            | RunError::Manifest { .. }
            | RunError::Threads { .. } => None,
        }
    }
}

impl From<ArrowError> for RunError {
    fn from(source: ArrowError) -> Self {
        RunError::Table { source }
    }
}

/// The way out where a file cannot be written.
fn write_hint(source: &io::Error) -> Option<String> {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("make room and run the same command again: finished work is kept and continued".to_owned())
        }
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory => {
            Some("choose a folder that you may write to with `--out`".to_owned())
        }
        _ => None,
    }
}
