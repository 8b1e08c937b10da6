//! What select and layout go by: the part of a plan that they read.

use crate::recipe::file::Exact;
use crate::recipe::resolve::PackConfig;
use crate::run::mixture::{Cap, share};
use crate::run::plan::Plan;
use crate::source::row::{SampleId, SampleName};

/// The rules of a phase.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Partitions.
    pub partitions: u32,
    /// Seed of partitions and shuffling.
    pub seed: u64,
    /// What makes two rows the same.
    pub exact: Exact,
    /// Whether near duplicates go.
    pub near: bool,
    /// Held-out share in parts per million.
    pub validation_ppm: u64,
    /// Packs.
    pub pack: PackConfig,
    /// Tokens of the whole phase, shared out by weight.
    pub max_tokens: Option<u64>,
    /// Whether only the first rows of each source are read.
    pub trial: bool,
    /// Sources in the order in which duplicates are settled.
    pub sources: Vec<SourceRules>,
}

/// The rules of one source.
#[derive(Clone, Debug, Default)]
pub struct SourceRules {
    /// Its name in sample ids.
    pub name: String,
    /// Names of its files in sample ids.
    pub files: Vec<String>,
    /// Row cap.
    pub max_rows: Option<u64>,
    /// Token cap.
    pub max_tokens: Option<u64>,
    /// Share of the phase's tokens in parts per million.
    pub weight_ppm: Option<u64>,
    /// How often a row may be taken.
    pub repeats: Option<u64>,
    /// Whether all its rows are staged: rows are only taken again when there are no more.
    pub whole: bool,
}

impl SourceRules {
    /// Whether it may have a cap.
    pub(super) fn may_be_capped(&self) -> bool {
        self.max_rows.is_some() || self.max_tokens.is_some() || self.weight_ppm.is_some()
    }
}

const HELD_OUT: u64 = 0x4845_4c44_4f55_5421;

impl Rules {
    /// The rules of a plan; `whole` says of each source whether all its rows are staged.
    pub fn new(plan: &Plan, whole: &[bool]) -> Self {
        let sources = plan.sources.iter().zip(whole).map(|(source, &whole)| {
            let config = &source.config;
            SourceRules {
                name: config.name.clone(),
                files: source.files.iter().map(|file| file.file.name.clone()).collect(),
                max_rows: config.max_rows,
                max_tokens: config.max_tokens,
                weight_ppm: config.weight_ppm,
                repeats: config.repeats,
                whole,
            }
        });
        Rules {
            partitions: plan.partitions,
            seed: plan.phase.seed,
            exact: plan.phase.exact,
            near: plan.phase.near.is_some(),
            validation_ppm: plan.phase.output.validation_ppm,
            pack: plan.phase.pack.clone(),
            max_tokens: plan.phase.max_tokens,
            trial: plan.is_trial(),
            sources: sources.collect(),
        }
    }

    /// Whether a row is held out: a seeded hash of its content, so that equal rows never straddle.
    pub fn is_held_out(&self, key: u128) -> bool {
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&key.to_le_bytes(), self.seed ^ HELD_OUT);
        u128::from(hash) * 1_000_000 < u128::from(self.validation_ppm) << 64
    }

    /// A sample id as text.
    pub fn name_of(&self, id: SampleId) -> String {
        let Some(source) = self.sources.get(id.row.source as usize) else { return String::new() };
        let file = source.files.get(id.row.file as usize).map_or("", String::as_str);
        SampleName { source: &source.name, file, id }.to_string()
    }

    /// Whether the tokens of all sources have to be known before any cap is.
    pub(super) fn needs_supply(&self) -> bool {
        let weights = self.sources.iter().any(|source| source.weight_ppm.is_some());
        weights && (self.max_tokens.is_none() || self.trial)
    }

    /// The caps of each source. `total` is what the sources can give together, where that had to be
    /// found out; a total that the phase states is asked for as it is.
    pub(super) fn caps(&self, total: Option<u64>) -> Vec<Vec<Cap>> {
        let caps = self.sources.iter().map(|source| {
            let stated = self.max_tokens.filter(|_| !self.trial);
            let by_weight = total.or(stated).zip(source.weight_ppm).map(|(total, ppm)| share(total, ppm));
            let rows = source.max_rows.map(Cap::Rows);
            // A share of less than a token takes a row all the same: its weight is above 0.
            let tokens = [source.max_tokens, by_weight].into_iter().flatten();
            rows.into_iter().chain(tokens.map(|cap| Cap::Tokens(cap.max(1)))).collect()
        });
        caps.collect()
    }
}
