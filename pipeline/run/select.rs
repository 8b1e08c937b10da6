//! Select: exact duplicates and exact caps, from the metadata columns of the staged files alone.
//! Duplicates share a partition, so that each partition is settled by itself; caps are cut at one
//! sampling hash a source.

use std::collections::HashSet;

use rayon::prelude::*;

use super::error::RunError;
use super::layout::is_held_out;
use super::mixture::{Candidate, Cap, Missing, Reach, asked_by_weight, largest_total, reach, share};
use super::plan::Plan;
use super::staged::{SampleMeta, Staged};
use crate::pack::{Fit, Packer};
use crate::recipe::file::Exact;
use crate::source::row::RowId;

/// One sample in a staged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRef {
    /// Index of the staged file.
    pub chunk: u32,
    /// Index in the partition's record batch.
    pub index: u32,
    /// Assistant turn.
    pub turn: u32,
    /// Tokens.
    pub tokens: u32,
    /// First trained token.
    pub first_trained: u32,
}

/// A row that is in the running, with its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedRow {
    /// The row.
    pub id: RowId,
    /// Its sampling hash.
    pub hash: u64,
    /// Its deduplication key.
    pub key: u128,
    /// Tokens that the length policy keeps.
    pub tokens: u64,
    /// Its samples by turn.
    pub samples: Vec<SampleRef>,
    /// How many times it is taken; every row of a selection is taken once at least.
    pub times: u32,
}

/// What select counts for one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectCounts {
    /// Rows and samples of exact duplicates.
    pub duplicates: (u64, u64),
    /// Rows and samples that another phase took.
    pub other_phase: (u64, u64),
    /// Rows of which no sample fits a pack; samples that fit none, those of other rows among them;
    /// their tokens.
    pub overlong: (u64, u64, u64),
    /// Rows and samples above a cap.
    pub capped: (u64, u64),
    /// Rows and samples that are taken again, each time counted.
    pub repeated: (u64, u64),
    /// Tokens that truncation cuts off.
    pub truncated_tokens: u64,
    /// Rows that go on.
    pub kept_rows: u64,
}

/// The outcome of select.
#[derive(Debug, Default)]
pub struct Selection {
    /// Rows that go on, by partition, in the order of their ids.
    pub partitions: Vec<Vec<SelectedRow>>,
    /// Counts by source.
    pub counts: Vec<SelectCounts>,
    /// Rows of which no sample fits a pack, with their tokens, in the order of their ids.
    pub overlong: Vec<(RowId, u64)>,
    /// Sources that have less than asked for.
    pub short: Vec<(usize, Missing)>,
}

/// Selects. `files` are the staged files; `excluded` the sorted keys of another phase; `whole` says of
/// each source whether all its rows are staged, since rows are only taken again when there are no more.
///
/// Sources are settled in the order of the recipe: of a source, rows that an earlier source kept and
/// later copies of its own rows go first, then what its cap leaves out. A row that a cap leaves out
/// gives way to a copy of it in a later source.
///
/// # Errors
/// A staged file that is damaged; a weight that asks for more than there is.
pub fn select(
    plan: &Plan,
    files: &[Staged],
    excluded: &[u128],
    whole: &[bool],
) -> Result<Selection, RunError> {
    let packer = Packer::new(plan.phase.pack.clone());
    let rules = Rules { packer: &packer, excluded };
    let gathered: Vec<Gathered> = (0..plan.partitions)
        .into_par_iter()
        .map(|partition| gather_fitting(plan, files, partition, &rules))
        .collect::<Result<_, _>>()?;
    let mut selection =
        Selection { counts: vec![SelectCounts::default(); plan.sources.len()], ..Selection::default() };
    for one in gathered {
        for (sum, counts) in selection.counts.iter_mut().zip(&one.counts) {
            add(sum, counts);
        }
        selection.overlong.extend(one.overlong);
        selection.partitions.push(one.rows);
    }
    selection.overlong.sort_unstable();
    let caps = caps(plan, &selection.partitions)?;
    let mut taken: Vec<HashSet<u128>> = vec![HashSet::new(); selection.partitions.len()];
    for (source, caps) in caps.iter().enumerate() {
        let config = plan.sources.get(source).map(|source| &source.config);
        let repeats = config.and_then(|config| config.repeats).filter(|_| whole.get(source) == Some(&true));
        let settling = Settling { plan, source, caps, repeats: repeats.unwrap_or(1) as u32 };
        settle_source(&mut selection, &mut taken, &settling);
    }
    selection.partitions.par_iter_mut().for_each(|rows| rows.retain(|row| row.times > 0));
    Ok(selection)
}

struct Rules<'a> {
    packer: &'a Packer,
    excluded: &'a [u128],
}

struct Gathered {
    rows: Vec<SelectedRow>,
    counts: Vec<SelectCounts>,
    overlong: Vec<(RowId, u64)>,
}

/// The rows of a partition that fit a pack and that no other phase took, in the order of their ids.
fn gather_fitting(
    plan: &Plan,
    files: &[Staged],
    partition: u32,
    rules: &Rules,
) -> Result<Gathered, RunError> {
    let mut rows = gather(files, partition)?;
    rows.sort_unstable_by_key(|row| row.id);
    let mut gathered = Gathered {
        rows: Vec::with_capacity(rows.len()),
        counts: vec![SelectCounts::default(); plan.sources.len()],
        overlong: Vec::new(),
    };
    for row in rows {
        let mut stray = SelectCounts::default();
        let counts = gathered.counts.get_mut(row.id.source as usize).unwrap_or(&mut stray);
        if rules.excluded.binary_search(&row.key).is_ok() {
            counts.other_phase.0 += 1;
            counts.other_phase.1 += row.samples.len() as u64;
            continue;
        }
        match fit_row(row, rules.packer, counts) {
            Ok(row) => gathered.rows.push(row),
            Err(overlong) => gathered.overlong.push(overlong),
        }
    }
    Ok(gathered)
}

struct Settling<'a> {
    plan: &'a Plan,
    source: usize,
    caps: &'a [Cap],
    repeats: u32,
}

impl Settling<'_> {
    fn candidate(&self, row: &SelectedRow) -> Candidate {
        let once = is_held_out(self.plan, row.key);
        Candidate { hash: row.hash, id: row.id, tokens: row.tokens, once }
    }
}

/// Settles one source: duplicates, then caps.
fn settle_source(selection: &mut Selection, taken: &mut [HashSet<u128>], settling: &Settling) {
    let own = |row: &SelectedRow| row.id.source as usize == settling.source;
    let duplicates: (u64, u64) = selection
        .partitions
        .par_iter_mut()
        .zip(taken.par_iter())
        .map(|(rows, taken)| {
            let (mut seen, mut count) = (HashSet::new(), (0, 0));
            for row in rows.iter_mut().filter(|row| own(row)) {
                let first = settling.plan.phase.exact == Exact::None
                    || (!taken.contains(&row.key) && seen.insert(row.key));
                row.times = u32::from(first);
                if !first {
                    count.0 += 1;
                    count.1 += row.samples.len() as u64;
                }
            }
            count
        })
        .reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let reach = reach_of(selection, settling);
    let counts = selection.counts.get_mut(settling.source);
    let (mut kept, mut capped, mut repeated) = (0, (0, 0), (0, 0));
    for (rows, taken) in selection.partitions.iter_mut().zip(taken) {
        for row in rows.iter_mut().filter(|row| own(row) && row.times > 0) {
            row.times = reach.times(&settling.candidate(row));
            let samples = row.samples.len() as u64;
            if row.times > 0 {
                let again = u64::from(row.times - 1);
                kept += 1;
                repeated.0 += again;
                repeated.1 += again * samples;
                taken.insert(row.key);
            } else {
                capped.0 += 1;
                capped.1 += samples;
            }
        }
    }
    if let Some(counts) = counts {
        counts.duplicates = duplicates;
        counts.capped = capped;
        counts.repeated = repeated;
        counts.kept_rows = kept;
    }
}

/// How far the caps of a source reach; notes a source that has too little.
fn reach_of(selection: &mut Selection, settling: &Settling) -> Reach {
    if settling.caps.is_empty() {
        return reach(&[], &[], 1);
    }
    let own = |row: &&SelectedRow| row.id.source as usize == settling.source && row.times > 0;
    let rows = selection.partitions.iter().flatten().filter(own);
    let mut rows: Vec<Candidate> = rows.map(|row| settling.candidate(row)).collect();
    rows.sort_unstable();
    let reach = reach(&rows, settling.caps, settling.repeats);
    if let Reach::Every { missing: Some(missing), .. } = reach {
        selection.short.push((settling.source, missing));
    }
    reach
}

/// Leaves the samples that fit; a row without one is overlong.
fn fit_row(
    mut row: SelectedRow,
    packer: &Packer,
    counts: &mut SelectCounts,
) -> Result<SelectedRow, (RowId, u64)> {
    let all: u64 = row.samples.iter().map(|s| u64::from(s.tokens)).sum();
    row.samples.retain(|sample| {
        let fit = packer.fit(sample.tokens, sample.first_trained);
        if fit == Fit::Overlong {
            counts.overlong.1 += 1;
            counts.overlong.2 += u64::from(sample.tokens);
        }
        if let Fit::Truncated(kept) = fit {
            counts.truncated_tokens += u64::from(sample.tokens - kept);
        }
        fit != Fit::Overlong
    });
    if row.samples.is_empty() {
        counts.overlong.0 += 1;
        return Err((row.id, all));
    }
    row.tokens = row.samples.iter().map(|s| u64::from(packer.kept_tokens(s.tokens, s.first_trained))).sum();
    Ok(row)
}

/// The rows of a partition, from all staged files.
fn gather(files: &[Staged], partition: u32) -> Result<Vec<SelectedRow>, RunError> {
    let mut rows: Vec<SelectedRow> = Vec::new();
    for (chunk, file) in files.iter().enumerate() {
        let (source, number) = (file.ledger.source, file.ledger.file);
        for (index, meta) in file.metadata(partition)?.into_iter().enumerate() {
            let SampleMeta { row, turn, hash, key, tokens, first_trained } = meta;
            let id = RowId { source, file: number, row };
            let sample = SampleRef { chunk: chunk as u32, index: index as u32, turn, tokens, first_trained };
            match rows.last_mut() {
                Some(last) if last.id == id => last.samples.push(sample),
                _ => rows.push(SelectedRow { id, hash, key, tokens: 0, samples: vec![sample], times: 1 }),
            }
        }
    }
    Ok(rows)
}

fn add(sum: &mut SelectCounts, one: &SelectCounts) {
    sum.other_phase.0 += one.other_phase.0;
    sum.other_phase.1 += one.other_phase.1;
    sum.overlong.0 += one.overlong.0;
    sum.overlong.1 += one.overlong.1;
    sum.overlong.2 += one.overlong.2;
    sum.truncated_tokens += one.truncated_tokens;
}

/// Tokens of each source that a phase of weights could take, repeats among them: copies count for the
/// first source that has them, whatever caps later leave out.
fn supply(plan: &Plan, partitions: &[Vec<SelectedRow>]) -> Vec<u64> {
    let mut supply = vec![0; plan.sources.len()];
    for rows in partitions {
        let mut seen = HashSet::new();
        for row in rows {
            let first = plan.phase.exact == Exact::None || seen.insert(row.key);
            let source = row.id.source as usize;
            let repeats = plan.sources.get(source).and_then(|s| s.config.repeats).unwrap_or(1);
            let times = if is_held_out(plan, row.key) { 1 } else { repeats };
            if let Some(tokens) = supply.get_mut(source).filter(|_| first) {
                *tokens += row.tokens * times;
            }
        }
    }
    supply
}

/// The caps of each source. A total that the phase states is asked for as it is; without one, and in a
/// trial, it is the largest of which no source lacks its share.
fn caps(plan: &Plan, partitions: &[Vec<SelectedRow>]) -> Result<Vec<Vec<Cap>>, RunError> {
    let weights = || plan.sources.iter().filter_map(|source| source.config.weight_ppm);
    let stated = plan.phase.max_tokens;
    let mut total = None;
    if weights().next().is_some() && (stated.is_none() || plan.is_trial()) {
        let supply = supply(plan, partitions);
        if let Some((source, _)) = plan.sources.iter().zip(&supply).find(|(_, there)| **there == 0) {
            let source_name = source.config.name.clone();
            return Err(RunError::Supply { source_name, asked: 1, supply: 0 });
        }
        let most = largest_total(weights().zip(supply));
        total = most.map(|most| stated.map_or(most, |stated| most.min(stated)));
    }
    let caps = plan.sources.iter().map(|source| {
        let config = &source.config;
        let by_weight = total.zip(config.weight_ppm).map(|(total, weight)| share(total, weight));
        let by_weight = by_weight.or_else(|| asked_by_weight(plan, source));
        let rows = config.max_rows.map(Cap::Rows);
        // A share of less than a token takes a row all the same: its weight is above 0.
        let tokens = [config.max_tokens, by_weight].into_iter().flatten().map(|cap| Cap::Tokens(cap.max(1)));
        rows.into_iter().chain(tokens).collect()
    });
    Ok(caps.collect())
}
