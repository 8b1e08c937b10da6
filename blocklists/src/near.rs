//! What near copies of items are found by: seeds, which are runs of four words, and a sketch of the
//! item, a byte and a weight for each word, that rows are compared with where seeds were found.

use crate::format::{BlocklistError, HOLLOW, NearRow, Record, Sketch, TableRows, sketch_of, small};
use crate::gram::{self, HEAD};
use crate::plan::{BOILERPLATE_FAMILIES, Corpus, is_real};
use crate::rarity::Rarity;
use crate::text::Word;

/// Fewest words of an item of which near copies are looked for.
const LEAST_WORDS: usize = 10;

/// Weights are in sixteenths of a bit: one bit for every word and its rarity among the families,
/// up to [`MOST_WEIGHT`]. A name that stands in one item and a word in a hundredth of them count
/// nearly the same, so that a changed name alone hides nothing.
const UNIT: u32 = 16;
const MOST_WEIGHT: u32 = 127;

/// Least weight of a number: numbers are common, and what tells a problem from its siblings.
const LEAST_NUMBER_WEIGHT: u32 = 5 * UNIT;

/// Families that a small blocklist is taken to have beside its own, so that words in it have a
/// weight at all.
const PRIOR_FAMILIES: u64 = 64;

/// A run of four words that stands in many families says little of the item: a word that is in no
/// other run counts this many times less.
const BOILERPLATE_DISCOUNT: u32 = 4;

/// Most seeds of an item, spread over its length, and most families that a seed may stand in.
const MOST_SEEDS: usize = 24;
const MOST_FAMILIES: u32 = 4;

/// Least weight of a seed: four words of ten bits in all are not wholly common.
const LEAST_SEED_WEIGHT: u32 = 10 * UNIT;

/// What a row must share with an item, in the same sixteenths: sketch words of less weight in all
/// are not worth a look.
pub(crate) const LEAST_EVIDENCE: u32 = 36 * UNIT;

/// Least weight of the real words of an item: formulas and runs of numbers alone are too much alike.
const LEAST_REAL: u32 = 16 * UNIT;

/// Everything about near copies that a blocklist holds.
#[derive(Default)]
pub(crate) struct Near {
    pub(crate) rows: Vec<NearRow>,
    pub(crate) sketch: Vec<Sketch>,
    pub(crate) seeds: TableRows,
}

impl Near {
    /// The near copies of the items for which `wanted` says so.
    pub(crate) fn new(corpus: &Corpus, rarity: &Rarity, wanted: &[bool]) -> Result<Self, BlocklistError> {
        let mut near = Self::default();
        let mut seeds: Vec<(u64, Record)> = Vec::new();
        for (number, item) in corpus.items.iter().enumerate() {
            let words = corpus.hashes(&item.stem);
            let flags = corpus.flags(&item.stem);
            if words.len() < LEAST_WORDS || !wanted.get(number).copied().unwrap_or(false) {
                continue;
            }
            let runs = runs_of(rarity, words);
            let weights = weights(rarity, (words, flags), &runs);
            let weigh = |keep: fn(u8) -> bool| {
                let kept = weights.iter().zip(flags).filter(|(_, flags)| keep(**flags));
                kept.map(|(&weight, _)| u32::from(weight)).sum::<u32>()
            };
            if weigh(|_| true) < LEAST_EVIDENCE || weigh(is_real) < LEAST_REAL {
                continue;
            }
            let chosen = choose_seeds(&runs, &weights);
            if chosen.len() < 2 {
                continue;
            }
            let text = small("near texts", near.rows.len())?;
            let start = small("words of near texts", near.sketch.len())?;
            let (item, words_in, seeds_in) = (number as u32, words.len() as u32, chosen.len() as u32);
            near.rows.push(NearRow { item, start, words: words_in, seeds: seeds_in });
            let sketch = words.iter().zip(flags).zip(&weights).map(|((&hash, &flags), &weight)| {
                let hollow = if is_real(flags) { 0 } else { HOLLOW };
                Sketch { word: sketch_of(hash), weight: weight | hollow }
            });
            near.sketch.extend(sketch);
            seeds.extend(chosen.into_iter().map(|at| (runs[at].key, Record { text, position: at as u32 })));
        }
        seeds.sort_unstable();
        for group in seeds.chunk_by(|a, b| a.0 == b.0) {
            near.seeds.keys.push(group[0].0);
            near.seeds.offsets.push(small("seeds", near.seeds.records.len())?);
            near.seeds.records.extend(group.iter().map(|(_, record)| *record));
        }
        near.seeds.offsets.push(small("seeds", near.seeds.records.len())?);
        Ok(near)
    }
}

/// A run of four words of an item.
struct Run {
    key: u64,
    families: u32,
}

/// The rarest run of each stretch of the text, among those that are rare at all.
fn choose_seeds(runs: &[Run], weights: &[u8]) -> Vec<usize> {
    let stretch = runs.len().div_ceil(MOST_SEEDS).max(1);
    let weight = |at: usize| weights.iter().skip(at).take(HEAD).map(|&w| u32::from(w)).sum::<u32>();
    let starts = (0..runs.len()).step_by(stretch);
    starts
        .filter_map(|start| {
            let inside = start..(start + stretch).min(runs.len());
            let rare = inside.filter(|&at| runs[at].families <= MOST_FAMILIES);
            let best = rare.max_by_key(|&at| (weight(at), std::cmp::Reverse(at)))?;
            (weight(best) >= LEAST_SEED_WEIGHT).then_some(best)
        })
        .collect()
}

fn runs_of(rarity: &Rarity, words: &[u64]) -> Vec<Run> {
    let run = |run| {
        let key = gram::quad(run);
        let known = rarity.run(key);
        let families = if rarity.counts.is_common_run(key) { u32::MAX } else { known };
        Run { key, families }
    };
    words.array_windows().map(run).collect()
}

/// The weight of each word: its rarity, discounted if it stands in boilerplate only.
fn weights(rarity: &Rarity, (words, flags): (&[u64], &[u8]), runs: &[Run]) -> Vec<u8> {
    let texts = log2(rarity.families + PRIOR_FAMILIES + rarity.counts.rows());
    let weight = |(at, (&word, &flags)): (usize, (&u64, &u8))| {
        let holders = u64::from(rarity.word(word)) + rarity.counts.word(word);
        let bits = texts.saturating_sub(log2(holders.max(1)));
        let least = if flags & Word::IS_DIGIT != 0 { LEAST_NUMBER_WEIGHT } else { UNIT };
        let weight = (UNIT + bits).clamp(least, MOST_WEIGHT);
        let around = runs.get((at + 1).saturating_sub(HEAD)..(at + 1).min(runs.len()));
        let around = around.unwrap_or_default();
        let stock = |run: &Run| run.families as usize >= BOILERPLATE_FAMILIES;
        let discount = if around.iter().all(stock) { BOILERPLATE_DISCOUNT } else { 1 };
        (weight / discount).max(1) as u8
    };
    words.iter().zip(flags).enumerate().map(weight).collect()
}

/// The logarithm to base 2 in sixteenths, linear between powers of two: whole numbers only, so that
/// it is the same on every machine. `n` is not 0.
fn log2(n: u64) -> u32 {
    let whole = n.ilog2();
    let fraction = (n << (63 - whole)) >> 59 & 15;
    whole * UNIT + fraction as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_grow() {
        assert_eq!([1, 2, 3, 4, 1024].map(log2), [0, 16, 24, 32, 160]);
        assert!((1..5000).all(|n| log2(n) <= log2(n + 1)));
    }
}
