//! Samples to packs of a fixed length: which sample goes where, what becomes of samples that are
//! too long, and where each sample begins, so that nothing leaks from one to the next.

pub mod best_fit;
pub mod concat;
pub mod first_fit;
mod lengths;

use crate::recipe::file::{Overlong, Strategy};
use crate::recipe::resolve::PackConfig;

/// A pack goes to the tail with what it holds if more than this share of it is empty.
const TAIL_ROOM: u32 = 1024;
/// At most one pack in so many goes to the tail, and [`FEW_TAIL_PACKS`] where there are few.
const TAIL_SHARE: usize = 16;
/// This many packs may go to the tail whatever the share.
const FEW_TAIL_PACKS: usize = 4;

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
#[derive(Clone, Debug, PartialEq, Eq, Default)]
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

/// A part of a sample, by the sample's index in the list that was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Index of the sample.
    pub index: u32,
    /// First token.
    pub from: u32,
    /// The token after the last one.
    pub to: u32,
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

    /// Tokens of the longest fragment that a pack of the longest class takes.
    pub fn longest_piece(&self) -> u32 {
        self.longest() + self.config.uncounted
    }

    /// Room that a sample of this many tokens takes in a pack.
    pub fn room_of(&self, tokens: u32) -> u32 {
        tokens.saturating_sub(self.config.uncounted).max(1)
    }

    /// Tokens that a pack of this class with so many samples can hold.
    pub fn capacity(&self, class: usize, samples: usize) -> u64 {
        let length = self.config.lengths.get(class).copied().unwrap_or_default();
        u64::from(length) + u64::from(self.config.uncounted) * samples as u64
    }

    /// What the length policy makes of a sample of `tokens` tokens. A sample that would lose all its
    /// trained tokens by truncation is dropped. Where samples are cut at the end of each pack
    /// anyway, none is too long.
    pub fn fit(&self, tokens: u32, first_trained: u32) -> Fit {
        let room = self.room_of(tokens);
        if let Some(class) = self.config.lengths.iter().position(|&length| room <= length) {
            return Fit::Class(class);
        }
        if self.config.strategy == Strategy::ConcatAndSplit {
            return Fit::Class(self.config.lengths.len().saturating_sub(1));
        }
        let longest = self.longest_piece();
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

    /// Packs of the class of this index for samples of these lengths in tokens, in their order. The
    /// samples of a pack stand in that order too.
    pub fn pack(&self, class: usize, tokens: &[u32]) -> Vec<Vec<Slice>> {
        let capacity = self.config.lengths.get(class).copied().unwrap_or_default();
        let rooms = || tokens.iter().map(|&tokens| self.room_of(tokens)).collect::<Vec<u32>>();
        let bins = match self.config.strategy {
            Strategy::BestFit => best_fit::best_fit(&rooms(), capacity),
            Strategy::FirstFit => first_fit::first_fit(&rooms(), capacity),
            Strategy::ConcatAndSplit => return concat::concat(tokens, capacity),
            Strategy::None => (0..tokens.len() as u32).map(|index| vec![index]).collect(),
        };
        let slice = |index: u32| {
            let to = tokens.get(index as usize).copied().unwrap_or_default();
            Slice { index, from: 0, to }
        };
        bins.into_iter().map(|bin| bin.into_iter().map(slice).collect()).collect()
    }

    /// Takes the packs that are far from full out of `packs`, the emptiest first and not more than a
    /// share of them: their samples are packed again, together with those of other partitions.
    pub fn take_tail(&self, class: usize, packs: &mut Vec<Vec<Slice>>) -> Vec<Vec<Slice>> {
        if self.config.strategy == Strategy::None {
            return Vec::new();
        }
        let capacity = self.config.lengths.get(class).copied().unwrap_or_default();
        let room = |pack: &Vec<Slice>| {
            let taken: u32 = pack.iter().map(|slice| self.room_of(slice.to - slice.from)).sum();
            capacity.saturating_sub(taken)
        };
        let most = (packs.len() / TAIL_SHARE).max(FEW_TAIL_PACKS);
        let mut open: Vec<(u32, usize)> = packs.iter().map(room).zip(0..).collect();
        open.retain(|(room, _)| *room > capacity / TAIL_ROOM);
        open.sort_unstable_by_key(|&(room, at)| (std::cmp::Reverse(room), at));
        open.truncate(most);
        let mut goes = vec![false; packs.len()];
        for (_, at) in open {
            if let Some(goes) = goes.get_mut(at) {
                *goes = true;
            }
        }
        let (tail, stays): (Vec<_>, Vec<_>) =
            std::mem::take(packs).into_iter().zip(goes).partition(|(_, goes)| *goes);
        *packs = stays.into_iter().map(|(pack, _)| pack).collect();
        tail.into_iter().map(|(pack, _)| pack).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::file::Strategy;
    use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq, proptest};

    /// Every index is in one bin, and no bin exceeds the capacity.
    pub(super) fn holds_each_once(
        bins: &[Vec<u32>],
        lengths: &[u32],
        capacity: u32,
    ) -> Result<(), TestCaseError> {
        let mut seen: Vec<u32> = bins.iter().flatten().copied().collect();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..lengths.len() as u32).collect::<Vec<_>>());
        for bin in bins {
            prop_assert!(bin.iter().map(|&i| lengths[i as usize]).sum::<u32>() <= capacity);
        }
        Ok(())
    }

    fn packer(strategy: Strategy, uncounted: u32) -> Packer {
        Packer::new(PackConfig { lengths: vec![64], strategy, overlong: Overlong::Drop, uncounted })
    }

    proptest! {
        #[test]
        fn what_is_taken_for_the_tail_is_not_in_the_packs_any_more(
            lengths in proptest::collection::vec(1u32..=64, 0..300),
            uncounted in 0u32..2,
        ) {
            for strategy in [Strategy::BestFit, Strategy::FirstFit, Strategy::ConcatAndSplit, Strategy::None] {
                let packer = packer(strategy, uncounted * u32::from(strategy != Strategy::ConcatAndSplit));
                let all = packer.pack(0, &lengths);
                let mut packs = all.clone();
                let tail = packer.take_tail(0, &mut packs);
                prop_assert!(tail.len() <= (all.len() / TAIL_SHARE).max(FEW_TAIL_PACKS));
                let mut both: Vec<_> = packs.into_iter().chain(tail).collect();
                both.sort_by_key(|pack| (pack[0].index, pack[0].from));
                let mut all = all;
                all.sort_by_key(|pack| (pack[0].index, pack[0].from));
                prop_assert_eq!(both, all);
            }
        }
    }
}
