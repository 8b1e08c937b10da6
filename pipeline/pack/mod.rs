//! Samples to packs of a fixed length: which sample goes where, what becomes of samples that are
//! too long, and where each sample begins, so that nothing leaks from one to the next.

pub mod best_fit;

use crate::recipe::file::{Overlong, Strategy};
use crate::recipe::resolve::PackConfig;

/// What the length policy makes of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It fits into a pack of the class with this index.
    Class(usize),
    /// Its first tokens are kept, this many, in the longest class.
    Truncated(u32),
    /// It is cut into this many fragments of the longest class.
    Fragments(u32),
    /// It is dropped.
    Overlong,
}

/// A sample in a pack: its name and its share of the pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedSample {
    /// Sample id as text.
    pub name: String,
    /// Token ids.
    pub ids: Vec<u32>,
    /// Trained runs: start and length; the first token is never trained on.
    pub trained: Vec<(u32, u32)>,
}

/// One row of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pack {
    /// Samples in order; together no longer than the pack.
    pub samples: Vec<PackedSample>,
}

/// Packs samples by one configuration.
#[derive(Clone, Debug)]
pub struct Packer {
    config: PackConfig,
}

impl Packer {
    /// A packer of this configuration.
    pub fn new(config: PackConfig) -> Self {
        Packer { config }
    }

    /// Tokens of the longest class.
    pub fn longest(&self) -> u32 {
        self.config.lengths.last().copied().unwrap_or_default()
    }

    /// The length classes in tokens, ascending.
    pub fn lengths(&self) -> &[u32] {
        &self.config.lengths
    }

    /// What the length policy makes of a sample of `tokens` tokens. A sample that would lose all its
    /// trained tokens by truncation is dropped.
    pub fn fit(&self, tokens: u32, first_trained: u32) -> Fit {
        if let Some(class) = self.config.lengths.iter().position(|&length| tokens <= length) {
            return Fit::Class(class);
        }
        let longest = self.longest();
        match self.config.overlong {
            Overlong::Truncate if first_trained < longest => Fit::Truncated(longest),
            Overlong::Split => Fit::Fragments(tokens.div_ceil(longest.max(1))),
            Overlong::Drop | Overlong::Truncate => Fit::Overlong,
        }
    }

    /// Tokens of a sample that the length policy keeps.
    pub fn kept_tokens(&self, tokens: u32, first_trained: u32) -> u32 {
        match self.fit(tokens, first_trained) {
            Fit::Class(_) | Fit::Fragments(_) => tokens,
            Fit::Truncated(kept) => kept,
            Fit::Overlong => 0,
        }
    }

    /// Puts samples of the class of this index together. The samples come in seeded order and stand
    /// in that order inside of each pack.
    pub fn pack(&self, class: usize, samples: Vec<PackedSample>) -> Vec<Pack> {
        let capacity = self.config.lengths.get(class).copied().unwrap_or_default();
        let bins = match self.config.strategy {
            Strategy::BestFit => {
                let lengths: Vec<u32> = samples.iter().map(|s| s.ids.len() as u32).collect();
                best_fit::best_fit_decreasing(&lengths, capacity)
            }
            Strategy::None => (0..samples.len()).map(|i| vec![i]).collect(),
        };
        let mut slots: Vec<Option<PackedSample>> = samples.into_iter().map(Some).collect();
        bins.into_iter()
            .map(|bin| Pack {
                samples: bin.into_iter().filter_map(|i| slots.get_mut(i).and_then(Option::take)).collect(),
            })
            .collect()
    }
}

impl PackedSample {
    /// A sample, or a fragment of one. Nothing in the pack predicts its first token, so that is not
    /// trained on.
    pub fn new(name: String, ids: Vec<u32>, trained: &[(u32, u32)]) -> Self {
        let trained = clip(trained, 1, ids.len() as u32, 0);
        PackedSample { name, ids, trained }
    }

    /// Tokens that are trained on.
    pub fn trained_tokens(&self) -> u64 {
        self.trained.iter().map(|&(_, len)| u64::from(len)).sum()
    }
}

impl Pack {
    /// Tokens in the pack.
    pub fn tokens(&self) -> u64 {
        self.samples.iter().map(|s| s.ids.len() as u64).sum()
    }
}

/// Runs clipped to `from..to` and moved so that `origin` becomes 0.
pub fn clip(runs: &[(u32, u32)], from: u32, to: u32, origin: u32) -> Vec<(u32, u32)> {
    runs.iter()
        .filter_map(|&(start, len)| {
            let (start, end) = (start.max(from), (start + len).min(to));
            (start < end).then(|| (start - origin, end - start))
        })
        .collect()
}
