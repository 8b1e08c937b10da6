//! The recipe as the user writes it. Every scalar is an `Option`, so that a phase's section lies
//! over the recipe's and both over the defaults; an unknown key is an error with line and caret.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::join::JoinFile;
use crate::normalise::{
    ControlText, EmptyThink, History, LeadingNewlines, OnLossy, OnUnclosed, TextFormat, Train,
};
use crate::source::Format;
use crate::source::adapt::mapping::{MappingFile, OneOrMany, one_or_many};

/// A recipe file (TOML).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecipeFile {
    /// Name of the data set; the file's name if absent.
    pub name: Option<String>,
    /// Seed of sampling, partitions and shuffling; 0 if absent.
    pub seed: Option<u64>,
    /// Runs of their own, each with its own output folder and manifest.
    pub phase: Vec<PhaseFile>,
    /// Corpora, in the order in which duplicates are settled.
    pub source: Vec<SourceEntry>,
    /// Benchmark overlap.
    pub decontaminate: DecontaminateFile,
    /// Text format and loss.
    pub normalise: NormaliseFile,
    /// Tokenizer.
    pub tokenise: TokeniseFile,
    /// Duplicates.
    pub dedup: DedupFile,
    /// Packs.
    pub pack: PackFile,
    /// Shards.
    pub output: OutputFile,
}

/// One `[[phase]]`: its sections lie over the recipe's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PhaseFile {
    /// Name of the phase and of its folder.
    pub name: String,
    /// Rows that this other phase took are left out.
    pub exclude_phase: Option<String>,
    /// The phase's tokens, shared out by the sources' weights.
    pub max_tokens: Option<u64>,
    /// Corpora; the recipe's own if absent.
    pub source: Vec<SourceEntry>,
    /// Benchmark overlap.
    pub decontaminate: DecontaminateFile,
    /// Text format and loss.
    pub normalise: NormaliseFile,
    /// Tokenizer.
    pub tokenise: TokeniseFile,
    /// Duplicates.
    pub dedup: DedupFile,
    /// Packs.
    pub pack: PackFile,
    /// Shards.
    pub output: OutputFile,
}

/// One `[[source]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourceEntry {
    /// Name in ledgers, sample ids and the manifest.
    pub name: Option<String>,
    /// Id of a known corpus: gives files, mapping, licence and default filter. Read from the Hub,
    /// unless `path` names a local copy.
    pub corpus: Option<String>,
    /// Dataset of the Hub, `owner/name`, that has no card; `path` names its files.
    pub repo: Option<String>,
    /// File, folder or glob, or several; with `corpus`, the folder of its local copy; with `repo`,
    /// globs in the repository.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "Option<OneOrMany>")]
    pub path: Option<Vec<String>>,
    /// Format of the files; told by their names if absent.
    pub format: Option<Format>,
    /// Branch, tag or commit on the Hub; of a local copy, what the manifest says.
    pub revision: Option<String>,
    /// Configuration of the corpus.
    pub config: Option<String>,
    /// Split of the corpus.
    pub split: Option<String>,
    /// Licence, for the manifest.
    pub licence: Option<String>,
    /// Allows a split that is known to be for evaluation.
    pub allow_eval_split: Option<bool>,
    /// SQL predicate over the columns; rows where it is false or null are left out.
    #[serde(rename = "where")]
    pub where_: Option<String>,
    /// Reads a seeded choice of this many files.
    pub files: Option<u64>,
    /// Takes this share of the rows, by a seeded hash of each, before any cap.
    pub sample: Option<f64>,
    /// Takes this many rows.
    pub max_rows: Option<u64>,
    /// Takes rows up to this many tokens.
    pub max_tokens: Option<u64>,
    /// Share of the phase's tokens.
    pub weight: Option<f64>,
    /// Rows may be taken up to this many times to fill a cap or a weight.
    pub repeats: Option<u64>,
    /// System text for rows that have none.
    pub system: Option<String>,
    /// What to do with a row that cannot be read.
    pub on_bad_row: Option<OnBadRow>,
    /// How a row becomes a conversation; detected from the column names if absent.
    pub mapping: Option<MappingFile>,
    /// Folder with local copies of corpora, as `OWNER/NAME`: where the files of the corpus and of those
    /// that it is joined to are, unless `path` says.
    pub copies: Option<String>,
    /// Text of the row that stands in another corpus; the card's if absent.
    pub join: Vec<JoinFile>,
}

/// What to do with a row that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnBadRow {
    /// The run stops there.
    Stop,
    /// The row is counted as failed, and the run ends with exit status 1.
    Drop,
}

/// `[decontaminate]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecontaminateFile {
    /// Known benchmarks and suites, definition files (`.toml`) or files of prompts (`.jsonl`, `.txt`).
    pub benchmarks: Option<Vec<String>>,
    /// Folder with local copies of the repositories of known benchmarks, as `OWNER/NAME`.
    pub copies: Option<String>,
    /// A blocklist that is built already.
    pub blocklist: Option<String>,
    /// Words in a gram; 13 if absent.
    pub ngram: Option<u64>,
    /// No benchmark at all, and the manifest says so.
    pub none: Option<bool>,
    /// Any hit drops, boilerplate too.
    pub strict: Option<bool>,
}

/// `[normalise]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NormaliseFile {
    /// Text format of chat rows.
    pub format: Option<TextFormat>,
    /// A set of options to start from.
    pub policy: Option<PolicyName>,
    /// Reasoning of turns before the last user query.
    pub history: Option<History>,
    /// Which assistant turns are trained on.
    pub train: Option<Train>,
    /// The empty think block of an answer without reasoning.
    pub empty_think: Option<EmptyThink>,
    /// Text that the template would lose.
    pub on_lossy: Option<OnLossy>,
    /// Reasoning that is cut off.
    pub on_unclosed: Option<OnUnclosed>,
    /// Control strings in rows.
    pub control_text: Option<ControlText>,
    /// Newlines before an answer.
    pub leading_newlines: Option<LeadingNewlines>,
    /// Trains on the newline after a turn's end.
    pub train_newline: Option<bool>,
    /// Think blocks are there, but not trained on.
    pub mask_reasoning: Option<bool>,
    /// A chat template, a file or that of a model of the Hub, `owner/name`: with `format = "template"`
    /// what renders; with another format what `--verify-template` compares with.
    pub template: Option<String>,
    /// Branch, tag or commit of that model.
    pub template_revision: Option<String>,
}

/// A set of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyName {
    /// potable's own.
    Default,
    /// What the official template and the whole-body mask do.
    Faithful,
}

/// `[tokenise]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokeniseFile {
    /// `qwen3`, the path of a `tokenizer.json`, or a model of the Hub, `owner/name`.
    pub tokenizer: Option<String>,
    /// Branch, tag or commit of the model on the Hub.
    pub revision: Option<String>,
    /// The control string that ends a plain document; `<|endoftext|>` or its like if absent.
    pub end_of_text: Option<String>,
}

/// `[dedup]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DedupFile {
    /// What makes two rows the same.
    pub exact: Option<Exact>,
    /// Similarity above 0 and below 1 from which rows count as near duplicates, of which one stays;
    /// they are not looked for if absent.
    pub near: Option<f64>,
    /// Words in a shingle, by which near duplicates are told; 5 if absent.
    pub near_words: Option<u64>,
    /// Values in the signature of a row; 256 if absent.
    pub near_hashes: Option<u64>,
}

/// What makes two rows the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Exact {
    /// All messages and tools.
    Conversation,
    /// The user messages.
    Prompt,
    /// Nothing: duplicates stay.
    None,
}

/// `[pack]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PackFile {
    /// Tokens in a pack, or several length classes.
    #[serde(deserialize_with = "lengths")]
    #[schemars(with = "Option<Lengths>")]
    pub length: Option<Vec<u64>>,
    /// How samples are put together.
    pub strategy: Option<Strategy>,
    /// What to do with a sample longer than the longest pack.
    pub overlong: Option<Overlong>,
}

/// How samples are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Packs filled to the last token where samples allow, and never more packs than best-fit
    /// decreasing needs.
    BestFit,
    /// Samples in seeded order, each into the first pack with room.
    FirstFit,
    /// Samples end to end in seeded order, cut wherever a pack is full.
    ConcatAndSplit,
    /// One sample a row.
    None,
}

/// What to do with a sample longer than the longest pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overlong {
    /// It is dropped.
    Drop,
    /// Its end is cut off.
    Truncate,
    /// It is cut into fragments.
    Split,
}

/// `[output]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputFile {
    /// Format of the shards.
    pub format: Option<ShardFormat>,
    /// Share of the rows that is held out as `validation`.
    pub validation: Option<f64>,
    /// Tokens in a shard, at most.
    pub shard_tokens: Option<u64>,
    /// Planned input bytes in a partition.
    pub partition_bytes: Option<u64>,
    /// Writes a `position_ids` column.
    pub position_ids: Option<bool>,
    /// Writes a seeded choice of this many train packs once more, as `calibration.parquet`.
    pub calibration: Option<u64>,
}

/// Format of the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShardFormat {
    /// One row a pack; for TRL.
    Parquet,
    /// One row a sample; for axolotl, and for TRL where it packs itself.
    ParquetUnpacked,
    /// One row a sample, as `load_from_disk` reads it; for LLaMA-Factory and ms-swift.
    Arrow,
    /// One row a pack, with the loss mask as Megatron-Bridge wants it.
    MegatronBridge,
    /// Plain arrays; for OLMo-core and open-instruct.
    Olmo,
    /// An indexed data set of Megatron-LM; plain text only.
    Megatron,
    /// One row a pack; for MosaicML streaming.
    Mds,
}

impl ShardFormat {
    /// Every format.
    pub const ALL: [ShardFormat; 7] = [
        ShardFormat::Parquet,
        ShardFormat::ParquetUnpacked,
        ShardFormat::Arrow,
        ShardFormat::MegatronBridge,
        ShardFormat::Olmo,
        ShardFormat::Megatron,
        ShardFormat::Mds,
    ];
}

/// The schema of a length or a list of lengths.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "stands for the type in the JSON Schema only")]
enum Lengths {
    One(u64),
    Many(Vec<u64>),
}

fn lengths<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u64>>, D::Error> {
    struct Numbers;
    impl<'de> serde::de::Visitor<'de> for Numbers {
        type Value = Option<Vec<u64>>;
        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            f.write_str("a number of tokens or a list of them")
        }
        fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
            let value = u64::try_from(value).map_err(|_| E::custom("a length is positive"))?;
            Ok(Some(vec![value]))
        }
        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            Ok(Some(vec![value]))
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = seq.next_element()? {
                items.push(item);
            }
            Ok(Some(items))
        }
    }
    deserializer.deserialize_any(Numbers)
}

macro_rules! overlay {
    ($($name:ident { $($field:ident),* })*) => {
        $(impl $name {
            /// This section over `below`: what is given here wins.
            pub fn over(&self, below: &Self) -> Self {
                $name { $($field: self.$field.clone().or_else(|| below.$field.clone()),)* }
            }
        })*
    };
}

overlay! {
    DecontaminateFile { benchmarks, copies, blocklist, ngram, none, strict }
    NormaliseFile { format, policy, history, train, empty_think, on_lossy, on_unclosed, control_text, leading_newlines, train_newline, mask_reasoning, template, template_revision }
    TokeniseFile { tokenizer, revision, end_of_text }
    DedupFile { exact, near, near_words, near_hashes }
    PackFile { length, strategy, overlong }
    OutputFile { format, validation, shard_tokens, partition_bytes, position_ids, calibration }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "rewrites the committed schema")]
    fn the_committed_schema_is_the_one_of_the_types() {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("pipeline/recipe/recipe-1.schema.json");
        let made = crate::cli::recipes::schema().unwrap();
        if std::env::var_os("POTABLE_BLESS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap() == made, "run the tests with POTABLE_BLESS=1");
    }

    #[test]
    fn an_empty_section_lies_over_another_without_a_change() {
        let full = PackFile { length: Some(vec![64]), strategy: Some(Strategy::None), overlong: None };
        assert_eq!(PackFile::default().over(&full), full);
        assert_eq!(full.over(&PackFile::default()), full);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_allowed_names() {
        let error = toml::from_str::<RecipeFile>("[pack]\nlenght = 64\n").unwrap_err().to_string();
        for part in ["line 2", "lenght", "^", "`length`", "`strategy`"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
