//! Mixtures: how far down the seeded order of its rows a source is taken, and how many times, so that
//! its caps are met to the row.

use serde::{Deserialize, Serialize};

use super::plan::{Plan, PlannedSource};
use crate::source::row::RowId;

/// What a source may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// Rows.
    Rows(u64),
    /// Tokens; the row that reaches them is the last one.
    Tokens(u64),
}

/// A row that may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Its sampling hash.
    pub hash: u64,
    /// The row.
    pub id: RowId,
    /// Its tokens after the length policy.
    pub tokens: u64,
    /// It is held out, and a held-out row is never taken again.
    pub once: bool,
}

/// How far a source is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every row, so many times: there is no cap, or the caps are not met.
    Every {
        /// How many times.
        times: u32,
        /// What the cap nearest to being met asks for, and what there is of it.
        missing: Option<Missing>,
    },
    /// Every row so many times, and those up to a last one once more.
    Upto {
        /// How many whole passes.
        passes: u32,
        /// The last row of the last pass.
        last: (u64, RowId),
    },
}

/// A cap that is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// Rows or tokens asked for.
    pub asked: u64,
    /// Rows or tokens there.
    pub there: u64,
}

/// Rows and their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    rows: u64,
    tokens: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.rows += other.rows;
        self.tokens += other.tokens;
    }

    fn meets(&self, caps: &[Cap]) -> bool {
        caps.iter().any(|cap| match *cap {
            Cap::Rows(cap) => self.rows >= cap,
            Cap::Tokens(cap) => self.tokens >= cap,
        })
    }
}

/// The rows of a source by sampling hash. Buckets are as fine for small hashes as for great ones: each
/// power of two has the same number of them, so that a source of which only the smallest hashes are
/// mapped has as many buckets as a whole one.
#[derive(Clone, Debug)]
pub struct Histogram {
    bits: u32,
    /// Rows of the first pass, and those of them that are taken in further ones.
    buckets: Vec<(Tally, Tally)>,
}

/// What a histogram says of a source's caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// How far they reach: to the end.
    Reach(Reach),
    /// The last row is in a bucket.
    Within(Within),
}

/// The bucket of the last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    bits: u32,
    bucket: usize,
    passes: u32,
    /// What was taken before the bucket.
    before: Tally,
}

impl Histogram {
    /// An empty one with `2^bits` buckets for each power of two.
    pub fn new(bits: u32) -> Self {
        Histogram { bits, buckets: vec![<(Tally, Tally)>::default(); 65 << bits] }
    }

    /// Adds a row.
    pub fn add(&mut self, row: Candidate) {
        if let Some((first, again)) = self.buckets.get_mut(bucket_of(row.hash, self.bits)) {
            let one = Tally { rows: 1, tokens: row.tokens };
            first.add(one);
            if !row.once {
                again.add(one);
            }
        }
    }

    /// Adds the rows of another one, which has as many buckets.
    pub fn merge(&mut self, other: &Histogram) {
        for (sum, one) in self.buckets.iter_mut().zip(&other.buckets) {
            sum.0.add(one.0);
            sum.1.add(one.1);
        }
    }

    /// How far the rows are taken in the order of their hashes: until one of the caps is met, `repeats`
    /// times at most.
    pub fn find(&self, caps: &[Cap], repeats: u32) -> Found {
        if caps.is_empty() {
            return Found::Reach(Reach::Every { times: 1, missing: None });
        }
        let repeats = repeats.max(1);
        let mut taken = Tally::default();
        for passes in 0..repeats {
            let tally = |buckets: &(Tally, Tally)| if passes == 0 { buckets.0 } else { buckets.1 };
            for (bucket, one) in self.buckets.iter().map(tally).enumerate().filter(|(_, one)| one.rows > 0) {
                let before = taken;
                taken.add(one);
                if taken.meets(caps) {
                    return Found::Within(Within { bits: self.bits, bucket, passes, before });
                }
            }
        }
        let missing = caps.iter().map(|cap| match *cap {
            Cap::Rows(asked) => Missing { asked, there: taken.rows },
            Cap::Tokens(asked) => Missing { asked, there: taken.tokens },
        });
        let missing = missing.min_by_key(Missing::factor_ppm);
        Found::Reach(Reach::Every { times: repeats, missing })
    }
}

/// The bucket of a hash: its highest bit, then the `bits` bits behind that. Buckets ascend with hashes.
fn bucket_of(hash: u64, bits: u32) -> usize {
    let width = u64::BITS - hash.leading_zeros();
    let behind = hash.checked_shl(u64::BITS - width + 1).unwrap_or(0);
    let fine = behind.checked_shr(u64::BITS - bits).unwrap_or(0);
    (u64::from(width) << bits | fine) as usize
}

impl Within {
    /// Whether a hash belongs to the bucket.
    pub fn holds(&self, hash: u64) -> bool {
        bucket_of(hash, self.bits) == self.bucket
    }

    /// How far the source is taken; `rows` are those of the bucket, sorted.
    pub fn reach(&self, rows: &[Candidate], caps: &[Cap]) -> Reach {
        let mut taken = self.before;
        let mut last = (0, RowId::default());
        for row in rows.iter().filter(|row| self.passes == 0 || !row.once) {
            taken.add(Tally { rows: 1, tokens: row.tokens });
            last = (row.hash, row.id);
            if taken.meets(caps) {
                break;
            }
        }
        Reach::Upto { passes: self.passes, last }
    }
}

impl Reach {
    /// How many times a row is taken.
    pub fn times(&self, row: &Candidate) -> u32 {
        let times = match *self {
            Reach::Every { times, .. } => times,
            Reach::Upto { passes, last } => passes + u32::from((row.hash, row.id) <= last),
        };
        if row.once { times.min(1) } else { times }
    }
}

impl Missing {
    /// What is asked for in parts per million of what there is.
    pub fn factor_ppm(&self) -> u64 {
        let factor = u128::from(self.asked) * 1_000_000 / u128::from(self.there.max(1));
        u64::try_from(factor).unwrap_or(u64::MAX)
    }
}

/// Tokens that the phase asks of a source by its weight; `None` where it states no total, or in a trial
/// of few rows, which cannot have it.
pub fn asked_by_weight(plan: &Plan, source: &PlannedSource) -> Option<u64> {
    let total = plan.phase.max_tokens.filter(|_| !plan.is_trial())?;
    source.config.weight_ppm.map(|weight| share(total, weight))
}

/// A share in parts per million, rounded down.
pub fn share(total: u64, ppm: u64) -> u64 {
    (u128::from(total) * u128::from(ppm) / 1_000_000) as u64
}

/// The largest total of which no source lacks its share: `(weight in ppm, tokens there)` of each.
pub fn largest_total(supply: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
    supply.map(|(weight, there)| (u128::from(there) * 1_000_000 / u128::from(weight.max(1))) as u64).min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        proptest::collection::vec((0u64..20, 1u64..50, proptest::bool::weighted(0.2)), 0..40).prop_map(
            |rows| {
                let candidate = |(row, (hash, tokens, once))| {
                    let id = RowId { source: 0, file: 0, row };
                    Candidate { hash, id, tokens, once }
                };
                let mut rows: Vec<Candidate> = (0u64..).zip(rows).map(candidate).collect();
                rows.sort();
                rows
            },
        )
    }

    fn caps() -> impl Strategy<Value = Vec<Cap>> {
        let cap = prop_oneof![(1u64..120).prop_map(Cap::Rows), (1u64..3000).prop_map(Cap::Tokens)];
        proptest::collection::vec(cap, 0..3)
    }

    fn reach(rows: &[Candidate], caps: &[Cap], (repeats, bits): (u32, u32)) -> Reach {
        let mut histogram = Histogram::new(bits);
        let (some, others) = rows.split_at(rows.len() / 2);
        some.iter().for_each(|row| histogram.add(*row));
        let mut other = Histogram::new(bits);
        others.iter().for_each(|row| other.add(*row));
        histogram.merge(&other);
        match histogram.find(caps, repeats) {
            Found::Reach(reach) => reach,
            Found::Within(within) => {
                let rows: Vec<Candidate> =
                    rows.iter().filter(|row| within.holds(row.hash)).copied().collect();
                within.reach(&rows, caps)
            }
        }
    }

    /// The rows one by one, in the order in which they are taken, until a cap is met.
    fn one_by_one(rows: &[Candidate], caps: &[Cap], repeats: u32) -> Vec<Candidate> {
        let passes = if caps.is_empty() { 1 } else { repeats };
        let mut taken: Vec<Candidate> = Vec::new();
        for pass in 0..passes {
            for row in rows {
                let tokens: u64 = taken.iter().map(|row| row.tokens).sum();
                let met = caps.iter().any(|cap| match cap {
                    Cap::Rows(cap) => taken.len() as u64 >= *cap,
                    Cap::Tokens(cap) => tokens >= *cap,
                });
                if met {
                    return taken;
                }
                if pass == 0 || !row.once {
                    taken.push(*row);
                }
            }
        }
        taken
    }

    proptest! {
        #[test]
        fn a_mixture_takes_what_counting_row_by_row_takes(
            rows in candidates(), caps in caps(), repeats in 1u32..5, bits in 0u32..4,
        ) {
            let reach = reach(&rows, &caps, (repeats, bits));
            let taken = one_by_one(&rows, &caps, repeats);
            for row in &rows {
                let expected = taken.iter().filter(|other| other.id == row.id).count() as u32;
                prop_assert_eq!(reach.times(row), expected, "{:?}", reach);
            }
        }

        #[test]
        fn a_share_of_tokens_is_met_to_the_row(
            rows in candidates(), asked in 1u64..3000, repeats in 1u32..5, bits in 0u32..4,
        ) {
            let reach = reach(&rows, &[Cap::Tokens(asked)], (repeats, bits));
            let taken: u64 = rows.iter().map(|row| u64::from(reach.times(row)) * row.tokens).sum();
            match reach {
                Reach::Upto { last, .. } => {
                    let last = rows.iter().find(|row| (row.hash, row.id) == last).unwrap();
                    prop_assert!((asked..asked + last.tokens).contains(&taken));
                }
                Reach::Every { missing, .. } => {
                    prop_assert_eq!(missing, Some(Missing { asked, there: taken }));
                    prop_assert!(taken < asked);
                }
            }
        }

        #[test]
        fn buckets_ascend_with_hashes(a in any::<u64>(), b in any::<u64>(), shift in 0u32..64, bits in 0u32..9) {
            let (a, b) = (a.min(b) >> shift, a.max(b) >> shift);
            prop_assert!(bucket_of(a, bits) <= bucket_of(b, bits));
            prop_assert!(bucket_of(b, bits) < 65 << bits);
        }

        #[test]
        fn no_source_lacks_its_share_of_the_largest_total(
            supply in proptest::collection::vec((1u64..1_000_000, 0u64..1 << 40), 1..6),
        ) {
            let total = largest_total(supply.iter().copied()).unwrap();
            for (weight, there) in supply {
                prop_assert!(share(total, weight) <= there);
            }
        }
    }
}
