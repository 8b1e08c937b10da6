//! The manifest's types, in the order of its JSON: causes (recipe, inputs, benchmarks, tokeniser)
//! first, effects (ledgers, tokens, shards) after them, and the run block last.
//!
//! All counts are whole numbers; ratios are parts per million (`…_ppm`). An absent optional value
//! is left out of the JSON, so that a field added later does not change older digests.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{self, CanonicalError};
use crate::digest::Digest;
use crate::ledger::{LedgerError, RowLedger, SampleLedger};

/// The version of the manifest format that this crate writes.
pub const SCHEMA_VERSION: u64 = 1;

/// The `schema` value of a manifest that this crate writes.
pub const SCHEMA: &str = "potable-manifest-1";

/// What a set of shards was made from, how, and what came out.
///
/// `manifest_digest` covers everything but itself and `run`: the same data has the same manifest
/// digest on any machine. Until the manifest is sealed it is 64 zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Name and version of this format.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// SHA-256 of the canonical JSON of all but `run` and `manifest_digest`.
    pub manifest_digest: Digest,
    /// The recipe's name.
    pub name: String,
    /// The phase, in a recipe of several phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What was asked for.
    pub recipe: RecipeRecord,
    /// The corpora, in the recipe's order: earlier sources win over later duplicates.
    pub inputs: Vec<InputSource>,
    /// What the rows were checked against.
    pub decontamination: Decontamination,
    /// Vocabulary and template.
    pub tokeniser: TokeniserRecord,
    /// Normalisation policies in force, such as `control_text` = `drop`.
    pub normalise: BTreeMap<String, String>,
    /// How often a policy acted, by what it did, such as `empty-think-masked`; values count turns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub acted: BTreeMap<String, u64>,
    /// Where the rows went, by source.
    pub rows: BTreeMap<String, RowLedger>,
    /// Where the samples went, by source.
    pub samples: BTreeMap<String, SampleLedger>,
    /// What the shards hold.
    pub tokens: TokenCounts,
    /// The shards, in their order.
    pub shards: Vec<ShardRecord>,
    /// Facts about this one run; outside the manifest digest.
    pub run: RunBlock,
}

/// The resolved recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipeRecord {
    /// Seed of every seeded choice.
    pub seed: u64,
    /// Digest of the recipe's meaning.
    pub digest: Digest,
    /// The resolved recipe. No floats: shares and weights are text (`floats_as_text`).
    pub settings: Value,
    /// Number of partitions.
    pub partitions: u64,
}

/// One corpus of the recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputSource {
    /// The source's name in the recipe; a key of the ledgers.
    pub name: String,
    /// Repository on the Hub, `owner/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corpus: Option<String>,
    /// Commit, 40 hex digits; absent if not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The corpus' config (subset).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The corpus' split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Licence as the corpus states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Whether the corpus needs an accepted agreement.
    pub gated: bool,
    /// Whether this is a split meant for evaluation.
    pub eval_split: bool,
    /// Whether the files lie on the machine of the run, so that no revision exists.
    pub local: bool,
    /// Row format, such as `messages`.
    pub format: String,
    /// How columns become messages. No floats.
    pub mapping: Value,
    /// The files that were read.
    pub files: Vec<InputFile>,
    /// Other corpora that its rows took text from, by row position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<JoinedInput>,
}

/// A corpus that rows of a source took their text from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinedInput {
    /// The join's name; a key of `joined` in the row ledger.
    pub name: String,
    /// Repository on the Hub, `owner/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corpus: Option<String>,
    /// Commit, 40 hex digits; absent if not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The corpus' config (subset).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The corpus' split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Licence as the corpus states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Whether the files lie on the machine of the run, so that no revision exists.
    pub local: bool,
    /// Rows in all files.
    pub rows: u64,
    /// The files, in the order of their rows.
    pub files: Vec<InputFile>,
}

/// One file of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// Path inside the source.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Digest of the whole file.
    pub sha256: Digest,
    /// Rows, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// How far the bytes were checked against `sha256`.
    pub verified: Verified,
    /// Digest of the ranges that were read, where only ranges were: of a line `START LENGTH SHA256`
    /// for each range, by start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges_digest: Option<Digest>,
}

/// How far the bytes of an input file were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// The whole file was hashed.
    Whole,
    /// Only ranges were fetched; the digest is the one that the Hub states.
    Ranges,
}

/// What the rows were checked against, and with which rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decontamination {
    /// Whether rows were checked at all.
    pub mode: DecontaminationMode,
    /// Words in a gram.
    pub ngram: u64,
    /// The word normaliser and its version, such as `words-1`.
    pub normaliser: String,
    /// Digest of the blocklist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocklist_digest: Option<Digest>,
    /// Whether weak grams drop rows too.
    pub strict: bool,
    /// The benchmarks of the blocklist.
    pub benchmarks: Vec<BenchmarkRecord>,
}

/// Whether rows were checked against benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecontaminationMode {
    /// Against a blocklist.
    Blocklist,
    /// Not at all; the recipe said `none = true`.
    None,
}

/// One benchmark: where it came from, what is protected, what it matched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BenchmarkRecord {
    /// The benchmark's name, such as `gsm8k`.
    pub name: String,
    /// Repository on the Hub, `owner/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// Commit, 40 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Config (subset).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Which rows of the files are items, if not all (SQL).
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub where_: Option<String>,
    /// Licence as the benchmark states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Whether its text must never be written anywhere.
    pub sensitive: bool,
    /// The files of the test set.
    pub files: Vec<FileDigest>,
    /// Items.
    pub items: u64,
    /// Items protected by the n-gram rule.
    pub protected_ngram: u64,
    /// Items protected by the rule for short items.
    pub protected_short: u64,
    /// Items, of those protected by another rule, of which copies with changes are found too. Absent in
    /// manifests written before it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_near: Option<u64>,
    /// Items that no rule protects.
    pub not_protected: u64,
    /// Rows dropped for a match with it.
    pub rows_dropped: u64,
    /// Rows that hit a gram but were kept.
    pub rows_reported: u64,
    /// The same two counts by source; sources without a match are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_source: BTreeMap<String, SourceMatches>,
}

/// Rows of one source that match one benchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceMatches {
    /// Rows dropped for a match.
    pub dropped: u64,
    /// Rows that hit a gram but were kept.
    pub reported: u64,
}

/// A file by name, size and digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileDigest {
    /// Path inside its repository.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Digest of the file.
    pub sha256: Digest,
}

/// The tokeniser and the template that made text into ids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokeniserRecord {
    /// The tokeniser's name, such as `qwen3`.
    pub name: String,
    /// The encoder and its version, such as `fastokens 0.3.5`.
    pub engine: String,
    /// Digest of the vocabulary.
    pub vocabulary_digest: Digest,
    /// Ids in the vocabulary.
    pub vocabulary_size: u64,
    /// The template's name.
    pub template: String,
    /// Digest of the template.
    pub template_digest: Digest,
    /// The text format, such as `qwen3-think`.
    pub format: String,
}

/// What the shards hold, in tokens and packs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCounts {
    /// Tokens.
    pub total: u64,
    /// Tokens that the loss is taken over.
    pub trained: u64,
    /// Packs.
    pub packs: u64,
    /// Token places in all packs.
    pub capacity: u64,
    /// `total` in parts per million of `capacity`, rounded down.
    pub fill_ppm: u64,
    /// The mixture, by source.
    pub per_source: BTreeMap<String, SourceTokens>,
    /// Lengths of samples, by rising `upto`.
    pub length_histogram: Vec<LengthBucket>,
    /// The same by source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lengths_per_source: BTreeMap<String, Vec<LengthBucket>>,
    /// How full the packs are, by rising `upto_ppm`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fill_histogram: Vec<FillBucket>,
}

/// One source's part of the mixture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceTokens {
    /// Samples packed.
    pub samples: u64,
    /// Tokens packed.
    pub tokens: u64,
    /// Tokens that the loss is taken over.
    pub trained: u64,
}

/// One step of a histogram: samples longer than the step before and at most `upto` tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthBucket {
    /// Largest length in this step, in tokens.
    pub upto: u64,
    /// Samples.
    pub count: u64,
}

/// One step of a histogram: packs fuller than the step before and at most `upto_ppm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FillBucket {
    /// Largest fill in this step, in parts per million of the pack's length.
    pub upto_ppm: u64,
    /// Packs.
    pub packs: u64,
}

/// One shard, by content; the digest of its file stands in the run block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShardRecord {
    /// Path inside the output folder, with `/`.
    pub path: String,
    /// What the shard is for.
    pub split: Split,
    /// Tokens in a pack.
    pub length: u64,
    /// Digest of ids, labels, boundaries and sample ids, whatever the compression.
    pub content_digest: Digest,
    /// Packs.
    pub packs: u64,
    /// Samples.
    pub samples: u64,
    /// Tokens.
    pub tokens: u64,
    /// Tokens that the loss is taken over.
    pub trained: u64,
}

/// What a shard is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// To train on.
    Train,
    /// Held out.
    Validation,
}

/// Facts about one run that do not change the data; outside the manifest digest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBlock {
    /// Version of potable.
    pub potable_version: String,
    /// Every shard file, by its path.
    pub file_sha256: BTreeMap<String, FileRecord>,
    /// The recipe as the user wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe_text: Option<String>,
    /// When the run started, RFC 3339 in UTC; the caller's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// How long the run took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Threads used.
    pub threads: u64,
    /// Digests of other files of the output folder, by path: the lock, `dropped/…`.
    pub other_digests: BTreeMap<String, Digest>,
}

/// A file by digest and size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Digest of the file's bytes.
    pub sha256: Digest,
    /// Bytes.
    pub size: u64,
}

/// `part` in parts per million of `whole`, rounded down; 0 if `whole` is 0.
pub fn ppm(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1_000_000)
        .checked_div(u128::from(whole))
        .map_or(0, |ppm| u64::try_from(ppm).unwrap_or(u64::MAX))
}

impl Manifest {
    /// Computes the manifest digest and sets it; also sets `schema` to [`SCHEMA`].
    ///
    /// # Errors
    /// [`CanonicalError`] if `settings` or a `mapping` holds a float.
    pub fn seal(mut self) -> Result<Self, CanonicalError> {
        SCHEMA.clone_into(&mut self.schema);
        self.manifest_digest = self.computed_digest()?;
        Ok(self)
    }

    /// Whether samples share rows. Where each is a row of its own (`[pack] strategy = "none"`, as with all
    /// formats that leave packing to the trainer), how full a row is says nothing.
    pub fn is_packed(&self) -> bool {
        let strategy = self.recipe.settings.pointer("/pack/strategy");
        strategy.and_then(serde_json::Value::as_str) != Some("none")
    }

    /// The digest that this manifest's content has, whatever `manifest_digest` says.
    ///
    /// # Errors
    /// [`CanonicalError`] if `settings` or a `mapping` holds a float.
    pub fn computed_digest(&self) -> Result<Digest, CanonicalError> {
        digest_of_value(&canonical::to_value(self)?)
    }

    /// Whether `manifest_digest` is the digest of the content.
    ///
    /// # Errors
    /// [`CanonicalError`] if `settings` or a `mapping` holds a float.
    pub fn verify_digest(&self) -> Result<bool, CanonicalError> {
        Ok(self.computed_digest()? == self.manifest_digest)
    }

    /// The text of `manifest.json`: keys sorted, two spaces of indent, a newline at the end. The
    /// same manifest gives the same bytes.
    ///
    /// # Errors
    /// [`CanonicalError`] if `settings` or a `mapping` holds a float.
    pub fn to_json(&self) -> Result<String, CanonicalError> {
        canonical::pretty_json(&canonical::to_value(self)?)
    }

    /// Checks both ledgers of every source.
    ///
    /// # Errors
    /// [`LedgerError`] of the first source, by name, that is off; rows before samples.
    pub fn balance(&self) -> Result<(), LedgerError> {
        self.rows.iter().try_for_each(|(name, ledger)| ledger.balance(name))?;
        self.samples.iter().try_for_each(|(name, ledger)| ledger.balance(name))
    }
}

/// The manifest digest of a manifest in JSON: canonical JSON of all but `run` and
/// `manifest_digest`.
pub(crate) fn digest_of_value(manifest: &Value) -> Result<Digest, CanonicalError> {
    let mut covered = manifest.clone();
    if let Value::Object(fields) = &mut covered {
        fields.shift_remove("run");
        fields.shift_remove("manifest_digest");
    }
    Ok(Digest::of(canonical::canonical_json(&covered)?.as_bytes()))
}
