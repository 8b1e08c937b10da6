//! Caps: how far each source is taken, settled source by source in the order of the recipe.

use super::gather::Gathered;
use super::rows::{Link, Row, Rows};
use super::spill::each_number;
use crate::run::error::RunError;
use crate::run::mixture::{Candidate, Cap, Found, Histogram, Missing, Reach, largest_total};

/// How far all sources are taken.
#[derive(Debug, Default)]
pub(super) struct Reaches {
    reaches: Vec<Reach>,
    /// Sources that have less than asked for.
    pub(super) short: Vec<(usize, Missing)>,
}

impl Reaches {
    /// How many times a row is taken; `None` if a copy in an earlier source is.
    pub(super) fn times(&self, row: &Row, links: &[Link]) -> Option<u32> {
        let kept = |link: &Link| {
            let candidate = Candidate { hash: link.hash, id: link.id, tokens: 0, once: false };
            self.reaches.get(link.id.source as usize).is_some_and(|reach| reach.times(&candidate) > 0)
        };
        if links.iter().any(kept) {
            return None;
        }
        let reach = self.reaches.get(row.id.source as usize);
        Some(reach.map_or(1, |reach| reach.times(&row.candidate())))
    }

    /// Whether a row is no copy of one that an earlier source keeps.
    fn is_first(&self, rows: &Rows, row: &Row) -> bool {
        self.times(row, rows.links(row)).is_some()
    }
}

impl Gathered<'_> {
    /// How far each source is taken.
    ///
    /// # Errors
    /// A weight that asks for more than there is, what the file system says.
    pub(super) fn reaches(&self) -> Result<Reaches, RunError> {
        let rules = self.selecting.rules;
        let total = if rules.needs_supply() { self.total()? } else { None };
        let mut reaches = Reaches::default();
        for (source, caps) in rules.caps(total).iter().enumerate() {
            let reach = match rules.sources.get(source) {
                Some(rule) if !caps.is_empty() => {
                    let repeats = rule.repeats.filter(|_| rule.whole).unwrap_or(1) as u32;
                    self.reach(source, (caps, repeats), &reaches)?
                }
                _ => Reach::Every { times: 1, missing: None },
            };
            if let Reach::Every { missing: Some(missing), .. } = reach {
                reaches.short.push((source, missing));
            }
            reaches.reaches.push(reach);
        }
        Ok(reaches)
    }

    /// How far the caps of a source reach, those of earlier sources being known: a pass for the bucket
    /// of hashes that its last row is in, and one over the rows of that bucket.
    fn reach(
        &self,
        source: usize,
        (caps, repeats): (&[Cap], u32),
        reaches: &Reaches,
    ) -> Result<Reach, RunError> {
        let bits = self.selecting.limits.bucket_bits;
        let histograms = self.each_first(source, reaches, || Histogram::new(bits), Histogram::add)?;
        let mut all = Histogram::new(bits);
        histograms.iter().for_each(|one| all.merge(one));
        let within = match all.find(caps, repeats) {
            Found::Reach(reach) => return Ok(reach),
            Found::Within(within) => within,
        };
        let rows = self.each_first(source, reaches, Vec::new, |rows: &mut Vec<Candidate>, row| {
            if within.holds(row.hash) {
                rows.push(row);
            }
        })?;
        let mut rows = rows.concat();
        rows.sort_unstable();
        Ok(within.reach(&rows, caps))
    }

    /// Gives all rows of a source that are no copies of kept ones to `visit`, on all threads.
    fn each_first<T: Send>(
        &self,
        source: usize,
        reaches: &Reaches,
        make: impl Fn() -> T + Sync,
        visit: impl Fn(&mut T, Candidate) + Sync,
    ) -> Result<Vec<T>, RunError> {
        let partitions = self.selecting.rules.partitions as usize;
        each_number(partitions, self.selecting.progress, make, |state, partition| {
            let rows = self.candidates.source(partition as u32, source)?;
            let first = rows.rows.iter().filter(|row| reaches.is_first(&rows, row));
            first.for_each(|row| visit(state, row.candidate()));
            Ok(())
        })
    }

    /// The largest total that a phase of weights can have, if it has weights.
    fn total(&self) -> Result<Option<u64>, RunError> {
        let rules = self.selecting.rules;
        let supply = self.supply()?;
        let weights = rules.sources.iter().zip(supply);
        let weights: Vec<_> =
            weights.filter_map(|(rule, there)| Some((rule, rule.weight_ppm?, there))).collect();
        if let Some((rule, ..)) = weights.iter().find(|(.., there)| *there == 0) {
            return Err(RunError::Supply { source_name: rule.name.clone(), asked: 1, supply: 0 });
        }
        let most = largest_total(weights.iter().map(|&(_, weight, there)| (weight, there)));
        Ok(most.map(|most| rules.max_tokens.map_or(most, |stated| most.min(stated))))
    }

    /// Tokens of each source that a phase of weights could take, repeats among them: copies count for
    /// the first source that has them, whatever caps later leave out.
    fn supply(&self) -> Result<Vec<u64>, RunError> {
        let rules = self.selecting.rules;
        let none = || vec![0u64; rules.sources.len()];
        let parts =
            each_number(rules.partitions as usize, self.selecting.progress, none, |sums, partition| {
                for (source, sum) in sums.iter_mut().enumerate() {
                    let rows = self.candidates.source(partition as u32, source)?;
                    let repeats = rules.sources.get(source).and_then(|rule| rule.repeats).unwrap_or(1);
                    for row in rows.rows.iter().filter(|row| rows.links(row).is_empty()) {
                        *sum += row.tokens * if row.held_out { 1 } else { repeats };
                    }
                }
                Ok(())
            })?;
        let mut supply = none();
        for part in parts {
            supply.iter_mut().zip(part).for_each(|(sum, one)| *sum += one);
        }
        Ok(supply)
    }
}
