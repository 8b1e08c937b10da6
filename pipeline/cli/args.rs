//! Arguments of all commands.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use super::steps::args::{MapArgs, PlanArgs, ReduceArgs, SealArgs, SelectArgs, StatusArgs};
use crate::recipe::resolve::DEFAULT_NGRAM;

/// Turn public training corpora into decontaminated, packed training shards.
#[derive(Debug, Parser)]
#[command(name = "potable", version, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What to print.
    #[command(flatten)]
    pub output: OutputFlags,
}

/// What to print.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct OutputFlags {
    /// Print nothing but errors.
    #[arg(long, short, global = true, conflicts_with = "verbose", help_heading = "Run")]
    pub quiet: bool,
    /// Print more.
    #[arg(long, short, global = true, help_heading = "Run")]
    pub verbose: bool,
    /// Draw no progress bars.
    #[arg(long, global = true, help_heading = "Run")]
    pub no_progress: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Pull, decontaminate, render, tokenise and pack the sources of a recipe.
    Prep(PrepArgs),
    /// Pin what a recipe takes from the Hub, without reading it.
    Lock(LockArgs),
    /// Resolve a recipe, hash its inputs and cut the work, for the steps below on many machines.
    Plan(PlanArgs),
    /// Map units of a plan: read, check, render, tokenise.
    Map(MapArgs),
    /// Settle duplicates and caps of a plan, when all its units are mapped.
    Select(SelectArgs),
    /// Pack and write partitions of a plan.
    Reduce(ReduceArgs),
    /// Write the manifest of a plan, when all its partitions are written.
    Seal(SealArgs),
    /// Say what of a plan is done, what is missing, and what comes next.
    Status(StatusArgs),
    /// Build and look at blocklists.
    Blocklist(BlocklistArgs),
    /// Compare data manifests.
    Manifest(ManifestArgs),
    /// Check the shards of a data set against blocklists, text by text.
    Audit(AuditArgs),
    /// Say why a row is not in a data set.
    Explain(ExplainArgs),
    /// Print a row of a shard of any format, with the part that is trained on marked.
    Show(ShowRowArgs),
    /// Show the known corpora.
    Corpora(CorporaArgs),
    /// Show the built-in recipes.
    Recipes(RecipesArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
}

/// `potable prep`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  potable prep demo\n  potable prep sft.toml --out /data/sft --threads 8")]
pub struct PrepArgs {
    /// A recipe file, or the name of a built-in recipe.
    #[arg(help_heading = "Input")]
    pub recipe: Option<String>,
    /// Read only this many rows of each source, for a trial.
    #[arg(long, value_name = "ROWS", help_heading = "Input")]
    pub limit: Option<u64>,
    /// Print what would be read, with sizes, rows and disk needed, and stop.
    #[arg(long, help_heading = "Input")]
    pub plan: bool,
    /// Compare about this many rows of each phase with the model's own chat template
    /// (`[normalise] template`), and stop at a difference.
    #[arg(long, value_name = "N", help_heading = "Input")]
    pub verify_template: Option<u64>,
    /// Fail if RECIPE.lock does not pin everything that comes from the Hub.
    #[arg(long, help_heading = "Hub")]
    pub locked: bool,
    /// Keep no copies: read from the Hub only what is needed, Parquet by ranges.
    #[arg(long, help_heading = "Hub")]
    pub stream: bool,
    /// Refuse files that would not be hashed whole.
    #[arg(long, help_heading = "Hub")]
    pub require_verified: bool,
    /// Write to this folder [default: ./NAME of the recipe].
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Remove what an earlier run left in the folder, and start over.
    #[arg(long, help_heading = "Output")]
    pub fresh: bool,
    /// Keep the staged work, so that a run with other caps or pack lengths re-uses it.
    #[arg(long, help_heading = "Output")]
    pub keep_work: bool,
    /// Use this many threads [default: one a core].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<usize>,
    /// Cut units of work at about this many bytes.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub unit_bytes: Option<u64>,
    /// Decode about this many bytes of text at a time.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub chunk_bytes: Option<usize>,
    /// Take units from the last to the first.
    #[arg(long, hide = true)]
    pub reverse_units: bool,
}

/// `potable lock`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  potable lock sft.toml\n  potable lock sft.toml --update openr1")]
pub struct LockArgs {
    /// A recipe file, or the name of a built-in recipe.
    #[arg(help_heading = "Input")]
    pub recipe: String,
    /// Pin anew: everything, or what this source, benchmark or repository takes.
    #[arg(long, value_name = "SOURCE", num_args = 0..=1, default_missing_value = "", help_heading = "Hub")]
    pub update: Option<String>,
}

/// `potable blocklist`.
#[derive(Debug, ClapArgs)]
pub struct BlocklistArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BlocklistCommand,
}

/// Commands of `potable blocklist`.
#[derive(Debug, Subcommand)]
pub enum BlocklistCommand {
    /// Turn benchmark test sets into a blocklist of hashes.
    Build(BuildArgs),
    /// Add benchmarks to a blocklist.
    Extend(ExtendArgs),
    /// Scan corpus files and print what is found, row by row.
    Check(CheckArgs),
    /// Print what a blocklist holds.
    Inspect(InspectArgs),
    /// List the known benchmarks and suites.
    List,
    /// Put benchmark items into your own rows in many disguises, and say how many are found.
    Selftest(SelftestArgs),
}

/// `potable blocklist build`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable blocklist build gsm8k.toml -o gsm8k.blk\n  potable blocklist build test.jsonl --ngram 8 -o test.blk"
)]
pub struct BuildArgs {
    /// Known benchmarks or suites, definition files (.toml), files of prompts (.jsonl, .txt).
    #[arg(required = true, help_heading = "Input")]
    pub definitions: Vec<String>,
    /// Folder with local copies of the repositories of known benchmarks, as OWNER/NAME.
    #[arg(long, value_name = "DIR", help_heading = "Input")]
    pub copies: Option<PathBuf>,
    /// Write the blocklist to this file.
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    pub output: PathBuf,
    /// Words in a gram.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_NGRAM, help_heading = "Checks")]
    pub ngram: u64,
    /// Sample of clean text: benchmark grams that are frequent in it drop nothing alone.
    #[arg(long, value_name = "FILE", help_heading = "Checks")]
    pub background: Vec<String>,
    /// Texts of the sample that a gram must stand in to be frequent.
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Checks")]
    pub background_least: u32,
}

/// `potable blocklist extend`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  potable blocklist extend all.blk new-benchmark.jsonl")]
pub struct ExtendArgs {
    /// A blocklist file, with what it was built from beside it (FILE.sources).
    #[arg(help_heading = "Input")]
    pub file: PathBuf,
    /// Known benchmarks or suites, definition files (.toml), files of prompts (.jsonl, .txt).
    #[arg(required = true, help_heading = "Input")]
    pub definitions: Vec<String>,
}

/// `potable blocklist check`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable blocklist check gsm8k.blk data/*.parquet\n  potable blocklist check gsm8k.blk rows.jsonl --format jsonl\n  potable blocklist check gsm8k.blk rows.jsonl --explain row-17"
)]
pub struct CheckArgs {
    /// A blocklist file.
    #[arg(help_heading = "Input")]
    pub file: PathBuf,
    /// Corpus files, folders or globs.
    #[arg(required = true, help_heading = "Input")]
    pub inputs: Vec<String>,
    /// Count boilerplate too: any hit drops.
    #[arg(long, help_heading = "Checks")]
    pub strict: bool,
    /// How to print matches.
    #[arg(long, value_enum, default_value_t = CheckFormat::Table, help_heading = "Output")]
    pub format: CheckFormat,
    /// Show the text of this row round each match.
    #[arg(long, value_name = "ROW", help_heading = "Output")]
    pub explain: Option<String>,
    /// Use this many threads [default: one a core].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<usize>,
}

/// How to print matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CheckFormat {
    /// Lines for a terminal.
    Table,
    /// A JSON object a match.
    Jsonl,
}

/// `potable blocklist selftest`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable blocklist selftest gsm8k.blk rows.jsonl\n  potable blocklist selftest gsm8k.toml rows.jsonl\n  potable blocklist selftest post-training data/*.parquet --copies benchmarks"
)]
pub struct SelftestArgs {
    /// A blocklist with its `.sources` beside it, since it holds no text to put into rows; or a known
    /// benchmark or suite, a definition file (.toml) or a file of prompts (.jsonl, .txt).
    #[arg(help_heading = "Input")]
    pub file: String,
    /// Corpus files with chat rows.
    #[arg(required = true, help_heading = "Input")]
    pub inputs: Vec<String>,
    /// Folder with local copies of the repositories of known benchmarks, as OWNER/NAME.
    #[arg(long, value_name = "DIR", help_heading = "Input")]
    pub copies: Option<PathBuf>,
    /// Words in a gram [default: 13; a blocklist has its own].
    #[arg(long, value_name = "N", help_heading = "Checks")]
    pub ngram: Option<u64>,
    /// Seed of the rows that are made.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Checks")]
    pub seed: u64,
}

/// `potable blocklist inspect`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable blocklist inspect gsm8k.blk\n  potable blocklist inspect gsm8k.blk --to parquet -o items.parquet"
)]
pub struct InspectArgs {
    /// A blocklist file.
    #[arg(help_heading = "Input")]
    pub file: PathBuf,
    /// List the items that no rule protects, and why.
    #[arg(long, help_heading = "Output", conflicts_with = "to")]
    pub unprotected: bool,
    /// Write a table of the items for other tools.
    #[arg(long, value_enum, help_heading = "Output")]
    pub to: Option<InspectTo>,
    /// Write the table to this file [default: FILE with the ending .parquet].
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
}

/// A format for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum InspectTo {
    /// Parquet: benchmark, item, protection.
    Parquet,
}

/// `potable manifest`.
#[derive(Debug, ClapArgs)]
pub struct ManifestArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ManifestCommand,
}

/// Commands of `potable manifest`.
#[derive(Debug, Subcommand)]
pub enum ManifestCommand {
    /// Say what changed between two data manifests.
    Diff(DiffArgs),
    /// Check that a folder holds the data set that its manifest describes.
    Verify(VerifyArgs),
    /// Show a data set on one screen.
    Show(ShowArgs),
    /// Write a manifest in the format of another tool.
    Export(ExportArgs),
}

/// `potable manifest show`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  potable manifest show potable-demo")]
pub struct ShowArgs {
    /// A folder that holds manifest.json, or the file.
    #[arg(help_heading = "Input")]
    pub dir: PathBuf,
}

/// `potable manifest export`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable manifest export potable-demo --to markdown -o DATA_MANIFEST.md\n  potable manifest export potable-demo --to card -o potable-demo/README.md\n  potable manifest export potable-demo --to croissant --url https://example.org/data --creator Ann"
)]
pub struct ExportArgs {
    /// A folder that holds manifest.json, or the file.
    #[arg(help_heading = "Input")]
    pub dir: PathBuf,
    /// The format.
    #[arg(long, value_enum, help_heading = "Output")]
    pub to: ExportTo,
    /// Write to this file [default: stdout].
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Page of the data set, for croissant.
    #[arg(long, value_name = "URL", help_heading = "Publication")]
    pub url: Option<String>,
    /// Who made the data set, for croissant.
    #[arg(long, value_name = "NAME", help_heading = "Publication")]
    pub creator: Option<String>,
    /// When it was published, for croissant [default: the day of the run].
    #[arg(long, value_name = "DATE", help_heading = "Publication")]
    pub published: Option<String>,
    /// Its version, for croissant [default: 0.0.0].
    #[arg(long, value_name = "X.Y.Z", help_heading = "Publication")]
    pub data_version: Option<String>,
}

/// A format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportTo {
    /// JSON-LD of MLCommons Croissant 1.1, with its RAI fields.
    Croissant,
    /// An in-toto statement with SLSA provenance; the shards are its subjects.
    InToto,
    /// A dataset card of the Hugging Face Hub: README.md with a YAML header.
    Card,
    /// The data manifest that a reviewer reads.
    Markdown,
}

/// `potable manifest diff`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable manifest diff golden.json out/manifest.json\n  potable manifest diff old/ new/ --format markdown --fail-on blocking"
)]
pub struct DiffArgs {
    /// The old manifest: a file, or a folder that holds manifest.json.
    #[arg(help_heading = "Input")]
    pub old: PathBuf,
    /// The new manifest.
    #[arg(help_heading = "Input")]
    pub new: PathBuf,
    /// How to print the changes.
    #[arg(long, value_enum, default_value_t = DiffFormat::Text, help_heading = "Output")]
    pub format: DiffFormat,
    /// Thresholds, and changes that are allowed: a TOML file (docs/ci.md).
    #[arg(long, value_name = "FILE", help_heading = "Checks")]
    pub policy: Option<PathBuf>,
    /// Exit with 1 for changes of this weight and above.
    #[arg(long, value_enum, default_value_t = FailOn::Any, help_heading = "Checks")]
    pub fail_on: FailOn,
}

/// `potable audit`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable audit /data/sft --blocklist post-training.blk\n  potable audit /data/sft --blocklist old.blk --blocklist published-later.blk"
)]
pub struct AuditArgs {
    /// The folder of a data set, or of several phases.
    #[arg(help_heading = "Input")]
    pub dir: PathBuf,
    /// A blocklist file; several are checked one by one.
    #[arg(long, value_name = "FILE", required = true, num_args = 1.., help_heading = "Input")]
    pub blocklist: Vec<PathBuf>,
    /// The tokenizer.json of the data set, where it is not the built-in one and not in the folder.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub tokenizer: Option<PathBuf>,
    /// Count boilerplate too: any hit is one.
    #[arg(long, help_heading = "Checks")]
    pub strict: bool,
    /// How to print matches.
    #[arg(long, value_enum, default_value_t = CheckFormat::Table, help_heading = "Output")]
    pub format: CheckFormat,
    /// Use this many threads [default: one a core].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<usize>,
}

/// `potable manifest verify`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Reads every shard again. Not covered: downloads.jsonl, report.html, and what was put beside the data (README.md, LICENSE, exports).\n\nExamples:\n  potable manifest verify potable-demo"
)]
pub struct VerifyArgs {
    /// The folder of a data set, or of several phases.
    #[arg(help_heading = "Input")]
    pub dir: PathBuf,
    /// Use this many threads [default: one a core].
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub threads: Option<usize>,
}

/// How to print changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DiffFormat {
    /// Lines for a terminal.
    Text,
    /// JSON.
    Json,
    /// A comment for a pull request.
    Markdown,
}

/// From which weight on changes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// Only what must not pass a review.
    Blocking,
    /// What changes the data.
    Material,
    /// Every change.
    Any,
}

/// `potable explain`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  potable explain potable-demo reasoning/demo/reasoning.jsonl:36")]
pub struct ExplainArgs {
    /// The folder of a finished run.
    #[arg(help_heading = "Input")]
    pub dir: PathBuf,
    /// Id of the row: SOURCE/FILE:ROW, as in dropped/.
    #[arg(help_heading = "Input")]
    pub row_id: String,
}

/// `potable show`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  potable show potable-demo/shards/part-00000-000.parquet --row 0\n  potable show out/shards/part-00000-000.parquet --row 3 --format jsonl"
)]
pub struct ShowRowArgs {
    /// A shard: its `.parquet`, `.arrow`, `.npy` (token ids), `.bin` or `.mds` file.
    #[arg(help_heading = "Input")]
    pub shard: PathBuf,
    /// Number of the row, from 0.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Input")]
    pub row: u64,
    /// `qwen3`, or the tokenizer.json that the shards were made with, unless it was the built-in one.
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub tokenizer: Option<PathBuf>,
    /// How to print the samples of the row.
    #[arg(long, value_enum, default_value_t = ShowFormat::Text, help_heading = "Output")]
    pub format: ShowFormat,
}

/// How to print the samples of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ShowFormat {
    /// Text; what is trained on is green on a terminal, else in the brackets ⟦ and ⟧.
    Text,
    /// A JSON object a sample.
    Jsonl,
}

/// `potable corpora`.
#[derive(Debug, ClapArgs)]
pub struct CorporaArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CorporaCommand,
}

/// Commands of `potable corpora`.
#[derive(Debug, Subcommand)]
pub enum CorporaCommand {
    /// List the known corpora.
    List {
        /// How to print them.
        #[arg(long, value_enum, default_value_t = ListFormat::Table, help_heading = "Output")]
        format: ListFormat,
    },
    /// Show files, mapping, licence and traps of a corpus.
    Show {
        /// Id of the corpus.
        id: String,
    },
}

/// How to print the known corpora.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListFormat {
    /// A line each.
    Table,
    /// All that the cards say, as docs/corpora.md has it.
    Markdown,
}

/// `potable recipes`.
#[derive(Debug, ClapArgs)]
pub struct RecipesArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RecipesCommand,
}

/// Commands of `potable recipes`.
#[derive(Debug, Subcommand)]
pub enum RecipesCommand {
    /// List the built-in recipes.
    List,
    /// Print a built-in recipe.
    Show {
        /// Name of the recipe.
        name: String,
    },
    /// Print the JSON Schema of recipe files.
    Schema,
}

/// `potable completions`.
#[derive(Debug, ClapArgs)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}
