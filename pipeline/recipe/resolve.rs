//! A recipe file becomes what runs: layers laid over each other, defaults filled in, values checked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::BUILT_IN;
use super::card::cards;
use super::dedup;
use super::error::RecipeError;
use super::file::{
    DecontaminateFile, Exact, OnBadRow, OutputFile, Overlong, PackFile, PhaseFile, RecipeFile, ShardFormat,
    Strategy,
};
use super::join::ResolvedJoin;
use super::pins::Want;
use super::sources::resolve_source;
use super::traps;
use super::{models, policy};
use crate::dedup::NearConfig;
use crate::normalise::{Policy, TextFormat};
use crate::shard::Row;
use crate::source::Format;
use crate::source::adapt::MappingFile;
use crate::store::Store;

/// Words in a gram, unless the recipe says otherwise.
pub const DEFAULT_NGRAM: u64 = 13;
/// Revision of a repository, unless the recipe or the card says otherwise.
pub const MAIN: &str = "main";
/// Tokens in a pack, unless the recipe says otherwise.
pub const DEFAULT_LENGTH: u64 = 8192;
/// Tokens in a shard, unless the recipe says otherwise.
pub const DEFAULT_SHARD_TOKENS: u64 = 1 << 26;
/// Planned input bytes in a partition, unless the recipe says otherwise.
pub const DEFAULT_PARTITION_BYTES: u64 = 64 << 20;

/// What runs.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Name of the data set.
    pub name: String,
    /// The folder that paths are relative to.
    pub base: PathBuf,
    /// The recipe as written.
    pub text: String,
    /// At least one phase; a recipe without `[[phase]]` is one phase without a name.
    pub phases: Vec<ResolvedPhase>,
}

/// One phase.
#[derive(Clone, Debug)]
pub struct ResolvedPhase {
    /// Name of the phase and of its folder.
    pub name: Option<String>,
    /// Rows of this other phase are left out.
    pub exclude_phase: Option<String>,
    /// Seed of sampling, partitions and shuffling.
    pub seed: u64,
    /// The phase's tokens, shared out by weight.
    pub max_tokens: Option<u64>,
    /// Corpora, in the order in which duplicates are settled.
    pub sources: Vec<ResolvedSource>,
    /// Benchmark overlap.
    pub decontaminate: DecontaminateConfig,
    /// Text format and loss.
    pub policy: Policy,
    /// The chat template, if one is named: its file, unless it is of the Hub.
    pub template: Option<PathBuf>,
    /// What the chat template takes from the Hub, unless it is local.
    pub template_want: Option<Want>,
    /// `qwen3`, a path, or a model of the Hub.
    pub tokenizer: String,
    /// What the tokenizer takes from the Hub, unless it is local.
    pub tokenizer_want: Option<Want>,
    /// The control string that ends a plain document, if the recipe says.
    pub end_of_text: Option<String>,
    /// What makes two rows the same.
    pub exact: Exact,
    /// Near duplicates, if they go.
    pub near: Option<NearConfig>,
    /// Packs.
    pub pack: PackConfig,
    /// Shards.
    pub output: OutputConfig,
}

/// One source.
#[derive(Clone, Debug)]
pub struct ResolvedSource {
    /// Name in ledgers, sample ids and the manifest.
    pub name: String,
    /// Id of a known corpus.
    pub corpus: Option<String>,
    /// What it takes from the Hub, unless it is local.
    pub want: Option<Want>,
    /// Revision of the local copy, if the recipe says; of the Hub, the commit, once it is pinned.
    pub revision: Option<String>,
    /// Configuration of the corpus.
    pub config: Option<String>,
    /// Split of the corpus.
    pub split: Option<String>,
    /// Licence.
    pub licence: Option<String>,
    /// Whether the corpus is gated.
    pub gated: bool,
    /// Whether the split is known to be for evaluation, and allowed.
    pub eval_split: bool,
    /// Files, folders and globs.
    pub patterns: Vec<String>,
    /// What they are relative to.
    pub base: PathBuf,
    /// Format, unless told by names.
    pub format: Option<Format>,
    /// SQL predicate.
    pub predicate: Option<String>,
    /// Seeded choice of files.
    pub files: Option<u64>,
    /// Share of the rows in parts per million.
    pub sample_ppm: Option<u64>,
    /// Row cap.
    pub max_rows: Option<u64>,
    /// Token cap.
    pub max_tokens: Option<u64>,
    /// Share of the phase's tokens in parts per million.
    pub weight_ppm: Option<u64>,
    /// How often a row may be taken to fill a cap or a weight; once if absent.
    pub repeats: Option<u64>,
    /// System text for rows that have none.
    pub system: Option<String>,
    /// What to do with a row that cannot be read.
    pub on_bad_row: OnBadRow,
    /// The mapping as written or as the card has it; the plan detects what is missing.
    pub mapping: MappingFile,
    /// Text of the rows that stands in other corpora.
    pub joins: Vec<ResolvedJoin>,
}

/// `[decontaminate]`, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecontaminateConfig {
    /// Where the blocklist comes from.
    pub against: Against,
    /// Folder with local copies of benchmark repositories.
    pub copies: Option<PathBuf>,
    /// Words in a gram.
    pub ngram: u64,
    /// Any hit drops.
    pub strict: bool,
}

/// Where the blocklist comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// Definition files, in order.
    Benchmarks(Vec<String>),
    /// A built blocklist.
    File(PathBuf),
    /// None, on purpose.
    Nothing,
}

/// `[pack]`, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackConfig {
    /// Length classes in tokens, ascending.
    pub lengths: Vec<u32>,
    /// How samples are put together.
    pub strategy: Strategy,
    /// Samples longer than the longest class.
    pub overlong: Overlong,
    /// Tokens of each sample that take no room in a pack, by the output format.
    pub uncounted: u32,
}

/// `[output]`, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputConfig {
    /// Format of the shards.
    pub format: ShardFormat,
    /// Held-out share in parts per million.
    pub validation_ppm: u64,
    /// Tokens in a shard.
    pub shard_tokens: u64,
    /// Planned bytes in a partition.
    pub partition_bytes: u64,
    /// Whether there is a `position_ids` column.
    pub position_ids: bool,
    /// Packs in `calibration.parquet`; none is written if 0.
    pub calibration: u64,
}

impl OutputConfig {
    fn settings(&self) -> Value {
        let mut settings = json!({ "format": self.format, "validation_ppm": self.validation_ppm,
            "shard_tokens": self.shard_tokens, "partition_bytes": self.partition_bytes,
            "position_ids": self.position_ids });
        // Left out where it is not used, so that older digests stay.
        if let Some(map) = settings.as_object_mut().filter(|_| self.calibration > 0) {
            map.insert("calibration".to_owned(), self.calibration.into());
        }
        settings
    }
}

impl Recipe {
    /// Loads a recipe by path, or a built-in one by name.
    ///
    /// # Errors
    /// No such recipe, what does not parse, what makes no sense.
    pub fn load(name: &str) -> Result<Recipe, RecipeError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(key, _)| *key == name) {
            return Recipe::parse(text, name, Path::new(""));
        }
        let path = Path::new(name);
        if !path.is_file() {
            let names: Vec<&str> = BUILT_IN.iter().map(|(key, _)| *key).collect();
            return Err(RecipeError::NotFound { name: name.to_owned(), built_in: names.join(", ") });
        }
        let text = std::fs::read_to_string(path)
            .map_err(|source| RecipeError::Read { path: path.to_path_buf(), source })?;
        let base = path.parent().unwrap_or(Path::new(""));
        Recipe::parse(&text, name, base)
    }

    /// Parses a recipe; `origin` is its path, for messages and for the default name.
    ///
    /// # Errors
    /// As [`Recipe::load`].
    pub fn parse(text: &str, origin: &str, base: &Path) -> Result<Recipe, RecipeError> {
        let file: RecipeFile = toml::from_str(text).map_err(|e| RecipeError::Parse {
            path: origin.to_owned(),
            reason: e.to_string().trim_end().to_owned(),
        })?;
        let stem = Path::new(origin).file_stem().map(|s| s.to_string_lossy().into_owned());
        let name = file.name.clone().or(stem).unwrap_or_else(|| "recipe".to_owned());
        check_name("name", &name)?;
        let phases = if file.phase.is_empty() {
            let whole = PhaseFile { source: file.source.clone(), ..PhaseFile::default() };
            vec![resolve_phase(&file, &whole, base, None)?]
        } else {
            named_phases(&file, base)?
        };
        Ok(Recipe { name, base: base.to_path_buf(), text: text.to_owned(), phases })
    }
}

fn named_phases(file: &RecipeFile, base: &Path) -> Result<Vec<ResolvedPhase>, RecipeError> {
    let mut seen = BTreeSet::new();
    let mut phases = Vec::new();
    for phase in &file.phase {
        check_name("phase", &phase.name)?;
        if let Some(other) = &phase.exclude_phase
            && !seen.contains(other)
        {
            return Err(RecipeError::value_hint(
                format!("phase `{}`", phase.name),
                format!("`exclude_phase = \"{other}\"` names no earlier phase"),
                "a phase can leave out the rows of a phase that stands before it",
            ));
        }
        if !seen.insert(phase.name.clone()) {
            return Err(RecipeError::value(
                format!("phase `{}`", phase.name),
                "there are two phases of this name",
            ));
        }
        phases.push(resolve_phase(file, phase, base, Some(phase.name.clone()))?);
    }
    Ok(phases)
}

fn resolve_phase(
    file: &RecipeFile,
    phase: &PhaseFile,
    base: &Path,
    name: Option<String>,
) -> Result<ResolvedPhase, RecipeError> {
    let entries = if phase.source.is_empty() { &file.source } else { &phase.source };
    if entries.is_empty() {
        return Err(RecipeError::value_hint(
            "recipe",
            "there is no `[[source]]`",
            "name at least one corpus: `[[source]]` with `path = \"data/*.jsonl\"`",
        ));
    }
    let cards = cards().map_err(|problem| RecipeError::value("corpora", problem))?;
    let mut sources: Vec<ResolvedSource> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let source = resolve_source(entry, index, base, &cards)?;
        if sources.iter().any(|other| other.name == source.name) {
            return Err(RecipeError::value_hint(
                format!("source `{}`", source.name),
                "there are two sources of this name",
                "give each its own `name`",
            ));
        }
        sources.push(source);
    }
    check_weights(&sources)?;
    let normalise = phase.normalise.over(&file.normalise);
    let duplicates = phase.dedup.over(&file.dedup);
    let tokenise = phase.tokenise.over(&file.tokenise);
    let policy = policy::resolve(&normalise)?;
    traps::check_repeats(&sources, &cards)?;
    let output = output(&phase.output.over(&file.output), policy.format)?;
    if phase.max_tokens.is_some() && sources.iter().all(|source| source.weight_ppm.is_none()) {
        return Err(RecipeError::value_hint(
            format!("phase `{}`", phase.name),
            "`max_tokens` of a phase is shared out by weights, and its sources have none",
            "give every source a `weight`, or set `max_tokens` for each source",
        ));
    }
    Ok(ResolvedPhase {
        name,
        exclude_phase: phase.exclude_phase.clone(),
        seed: file.seed.unwrap_or(0),
        max_tokens: phase.max_tokens,
        sources,
        decontaminate: decontaminate(&phase.decontaminate.over(&file.decontaminate), base)?,
        policy,
        template: normalise.template.as_ref().map(|path| base.join(path)),
        template_want: models::template_want(&normalise, base)?,
        tokenizer: models::tokenizer(&tokenise),
        tokenizer_want: models::tokenizer_want(&tokenise, base)?,
        end_of_text: tokenise.end_of_text,
        exact: duplicates.exact.unwrap_or(Exact::Conversation),
        near: dedup::near(&duplicates)?,
        pack: pack(&phase.pack.over(&file.pack), output.format)?,
        output,
    })
}

/// Whether a name can be a folder and stand in ids.
///
/// # Errors
/// A name with other characters.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), RecipeError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 100 && name.chars().all(fits) && !name.starts_with('.') {
        return Ok(());
    }
    Err(RecipeError::value_hint(
        what,
        format!("`{name}` cannot be a name"),
        "names have letters, digits, `-`, `_` and `.`, and do not begin with `.`",
    ))
}

fn check_weights(sources: &[ResolvedSource]) -> Result<(), RecipeError> {
    let weighted = sources.iter().filter(|s| s.weight_ppm.is_some()).count();
    if weighted == 0 {
        return Ok(());
    }
    if let Some(source) =
        sources.iter().find(|s| s.weight_ppm.is_none() || s.max_rows.is_some() || s.max_tokens.is_some())
    {
        return Err(RecipeError::value_hint(
            format!("source `{}`", source.name),
            "weights and caps do not mix in a phase",
            "give every source of the phase a `weight`, or none",
        ));
    }
    let sum: u64 = sources.iter().filter_map(|s| s.weight_ppm).sum();
    if !(999_000..=1_001_000).contains(&sum) {
        return Err(RecipeError::value_hint(
            "weights",
            format!("they add up to {}, not to 1", sum as f64 / 1e6),
            "a weight is the share of the phase's tokens that the source has",
        ));
    }
    Ok(())
}

fn decontaminate(file: &DecontaminateFile, base: &Path) -> Result<DecontaminateConfig, RecipeError> {
    let place = "[decontaminate]";
    let ngram = file.ngram.unwrap_or(DEFAULT_NGRAM);
    if !(5..=50).contains(&ngram) {
        return Err(RecipeError::value(place, format!("`ngram = {ngram}` is not between 5 and 50")));
    }
    let given = file.benchmarks.as_ref().is_some_and(|b| !b.is_empty());
    let against = match (given, &file.blocklist, file.none.unwrap_or(false)) {
        (true, None, false) => Against::Benchmarks(file.benchmarks.clone().unwrap_or_default()),
        (false, Some(path), false) if Store::is_address(path) => Against::File(PathBuf::from(path)),
        (false, Some(path), false) => Against::File(base.join(path)),
        (false, None, true) => Against::Nothing,
        (false, None, false) => {
            return Err(RecipeError::value_hint(
                place,
                "there is no benchmark to check against",
                "name `benchmarks = [\"FILE.toml\"]` or `blocklist = \"FILE\"`, or say `none = true`, which the manifest records",
            ));
        }
        _ => {
            return Err(RecipeError::value(place, "`benchmarks`, `blocklist` and `none` exclude each other"));
        }
    };
    let copies = file.copies.as_ref().map(PathBuf::from);
    Ok(DecontaminateConfig { against, copies, ngram, strict: file.strict.unwrap_or(false) })
}

/// Whether a text is `owner/name` as the Hub allows it.
pub(super) fn is_repo_id(text: &str) -> bool {
    let part = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && part.len() <= 96 && !part.starts_with(['.', '-']) && part.chars().all(fits)
    };
    text.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name))
}

fn pack(file: &PackFile, format: ShardFormat) -> Result<PackConfig, RecipeError> {
    let mut lengths = Vec::new();
    for &length in file.length.as_deref().unwrap_or(&[DEFAULT_LENGTH]) {
        let fits = u32::try_from(length).ok().filter(|&l| (16..=1 << 24).contains(&l));
        lengths.push(fits.ok_or_else(|| {
            RecipeError::value("[pack]", format!("`length = {length}` is not between 16 and 16,777,216"))
        })?);
    }
    lengths.sort_unstable();
    lengths.dedup();
    if lengths.is_empty() {
        return Err(RecipeError::value("[pack]", "`length` is empty"));
    }
    Ok(PackConfig {
        strategy: strategy(file, format, lengths.len())?,
        lengths,
        overlong: file.overlong.unwrap_or(Overlong::Drop),
        uncounted: format.uncounted(),
    })
}

/// The strategy, if it goes with the format, the number of length classes and `overlong`.
fn strategy(file: &PackFile, format: ShardFormat, classes: usize) -> Result<Strategy, RecipeError> {
    let refused = |problem: String, way_out: &str| Err(RecipeError::value_hint("[pack]", problem, way_out));
    let (default, packs) = match format.row() {
        Row::Pack => (Strategy::BestFit, true),
        Row::Sample => (Strategy::None, false),
    };
    let strategy = file.strategy.unwrap_or(default);
    if !packs && strategy != Strategy::None {
        return refused(
            format!("a row of the format `{}` is one sample, so samples are not packed", format.name()),
            "leave `strategy` out: the trainer packs; or choose another `[output] format`",
        );
    }
    if strategy == Strategy::ConcatAndSplit && (classes > 1 || file.overlong.is_some()) {
        return refused(
            "`strategy = \"concat-and-split\"` cuts samples at the end of each pack".to_owned(),
            "give one `length`, and no `overlong`: no sample is too long",
        );
    }
    if strategy == Strategy::ConcatAndSplit && format.uncounted() > 0 {
        return refused(
            format!("`strategy = \"concat-and-split\"` does not go with the format `{}`", format.name()),
            "use `strategy = \"best-fit\"`",
        );
    }
    Ok(strategy)
}

fn output(file: &OutputFile, text: TextFormat) -> Result<OutputConfig, RecipeError> {
    let format = file.format.unwrap_or(ShardFormat::Parquet);
    if !format.has_mask() && text != TextFormat::Text {
        return Err(RecipeError::value_hint(
            "[output]",
            format!(
                "`format = \"{}\"` has no place for what is not trained on: a model would be trained on every question too",
                format.name()
            ),
            "use `megatron-bridge` for chat; for plain documents say `[normalise] format = \"text\"`",
        ));
    }
    if file.position_ids == Some(true) && format != ShardFormat::Parquet {
        return Err(RecipeError::value_hint(
            "[output]",
            format!("`position_ids` is a column of `parquet`, not of `{}`", format.name()),
            "leave it out",
        ));
    }
    let validation = file.validation.unwrap_or(0.0);
    if validation != 0.0 && !(1e-6..=0.5).contains(&validation) {
        return Err(RecipeError::value(
            "[output]",
            format!("`validation = {validation}` is not 0 or a share between 0.000001 and 0.5"),
        ));
    }
    let positive = |value: Option<u64>, default: u64, key: &str| match value.unwrap_or(default) {
        0 => Err(RecipeError::value("[output]", format!("`{key} = 0`"))),
        value => Ok(value),
    };
    Ok(OutputConfig {
        format,
        validation_ppm: (validation * 1e6).round() as u64,
        shard_tokens: positive(file.shard_tokens, DEFAULT_SHARD_TOKENS, "shard_tokens")?,
        partition_bytes: positive(file.partition_bytes, DEFAULT_PARTITION_BYTES, "partition_bytes")?,
        position_ids: file.position_ids.unwrap_or(false),
        calibration: file.calibration.unwrap_or(0),
    })
}

impl ResolvedPhase {
    /// The phase's meaning as canonical JSON: everything that decides the output, with no path of
    /// this machine (files are named in the lock, with their digests).
    pub fn settings(&self) -> Value {
        let sources: Vec<Value> = self.sources.iter().map(ResolvedSource::settings).collect();
        json!({
            "seed": self.seed,
            "exclude_phase": self.exclude_phase,
            "max_tokens": self.max_tokens,
            "sources": sources,
            "decontaminate": { "ngram": self.decontaminate.ngram, "strict": self.decontaminate.strict,
                "none": self.decontaminate.against == Against::Nothing },
            "normalise": self.policy.record(),
            "dedup": dedup::settings(self.exact, self.near),
            "pack": { "length": self.pack.lengths, "strategy": self.pack.strategy, "overlong": self.pack.overlong },
            "output": self.output.settings(),
        })
    }
}

impl ResolvedSource {
    /// Whether a join fills the column, so that rows need not have it.
    pub fn is_joined(&self, column: &str) -> bool {
        self.joins.iter().any(|join| join.file.into == column)
    }

    /// The source's meaning as canonical JSON. Keys of later versions stand there only where they are
    /// used, so that the digests of older recipes stay.
    pub fn settings(&self) -> Value {
        let mut settings = json!({
            "name": self.name,
            "corpus": self.corpus,
            "config": self.config,
            "split": self.split,
            "format": self.format,
            "where": self.predicate,
            "files": self.files,
            "max_rows": self.max_rows,
            "max_tokens": self.max_tokens,
            "weight_ppm": self.weight_ppm,
            "system": self.system,
            "on_bad_row": self.on_bad_row,
            "mapping": self.mapping,
        });
        if let Some(map) = settings.as_object_mut() {
            if let Some(ppm) = self.sample_ppm {
                map.insert("sample_ppm".to_owned(), ppm.into());
            }
            if let Some(repeats) = self.repeats {
                map.insert("repeats".to_owned(), repeats.into());
            }
            if !self.joins.is_empty() {
                map.insert("join".to_owned(), self.joins.iter().map(ResolvedJoin::settings).collect());
            }
        }
        settings
    }
}
