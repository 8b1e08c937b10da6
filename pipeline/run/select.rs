//! Select: exact duplicates and exact caps, from the metadata columns of the staged files alone.
//! Duplicates share a partition, so that each partition is settled by itself; caps are cut at one
//! sampling hash a source.

use std::collections::HashSet;

use rayon::prelude::*;

use super::error::RunError;
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
    /// Whether it goes on; every row of a selection does.
    pub kept: bool,
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
    /// Sources that have fewer rows than asked for, with how many times more are needed (ppm).
    pub short: Vec<(usize, u64)>,
}

/// Selects. `files` are the staged files; `excluded` the sorted keys of another phase.
///
/// Sources are settled in the order of the recipe: of a source, rows that an earlier source kept and
/// later copies of its own rows go first, then what its cap leaves out. A row that a cap leaves out
/// gives way to a copy of it in a later source.
///
/// # Errors
/// A staged file that is damaged; a weight that asks for more than there is.
pub fn select(plan: &Plan, files: &[Staged], excluded: &[u128]) -> Result<Selection, RunError> {
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
        settle_source(&mut selection, &mut taken, &Settling { source, caps, exact: plan.phase.exact });
    }
    selection.partitions.par_iter_mut().for_each(|rows| rows.retain(|row| row.kept));
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
    source: usize,
    caps: &'a [Cap],
    exact: Exact,
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
                row.kept =
                    settling.exact == Exact::None || (!taken.contains(&row.key) && seen.insert(row.key));
                if !row.kept {
                    count.0 += 1;
                    count.1 += row.samples.len() as u64;
                }
            }
            count
        })
        .reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let cutoff = cutoff(selection, settling);
    let counts = selection.counts.get_mut(settling.source);
    let (mut kept, mut capped) = (0, (0, 0));
    for (rows, taken) in selection.partitions.iter_mut().zip(taken) {
        for row in rows.iter_mut().filter(|row| own(row) && row.kept) {
            row.kept = cutoff.is_none_or(|last| (row.hash, row.id) <= last);
            if row.kept {
                kept += 1;
                taken.insert(row.key);
            } else {
                capped.0 += 1;
                capped.1 += row.samples.len() as u64;
            }
        }
    }
    if let Some(counts) = counts {
        counts.duplicates = duplicates;
        counts.capped = capped;
        counts.kept_rows = kept;
    }
}

/// The last row that the caps of a source let in; notes a source that has too few rows.
fn cutoff(selection: &mut Selection, settling: &Settling) -> Option<(u64, RowId)> {
    if settling.caps.is_empty() {
        return None;
    }
    let own = |row: &&SelectedRow| row.id.source as usize == settling.source && row.kept;
    let rows = selection.partitions.iter().flatten().filter(own);
    let mut rows: Vec<(u64, RowId, u64)> = rows.map(|row| (row.hash, row.id, row.tokens)).collect();
    rows.sort_unstable();
    let outcomes: Vec<Result<(u64, RowId), u64>> =
        settling.caps.iter().map(|cap| last_within(&rows, *cap)).collect();
    // With two caps, the one that is met first holds.
    let met = outcomes.iter().filter_map(|outcome| outcome.ok()).min();
    if met.is_none()
        && let Some(factor) = outcomes.into_iter().filter_map(Result::err).min()
    {
        selection.short.push((settling.source, factor));
    }
    met
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
                _ => rows.push(SelectedRow { id, hash, key, tokens: 0, samples: vec![sample], kept: true }),
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

/// What a source may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cap {
    Rows(u64),
    Tokens(u64),
}

/// The last row within a cap, of rows sorted by hash; an error with the factor (ppm) of what is
/// missing if there are too few.
fn last_within(rows: &[(u64, RowId, u64)], cap: Cap) -> Result<(u64, RowId), u64> {
    let mut tokens = 0;
    for (index, &(hash, id, row_tokens)) in rows.iter().enumerate() {
        tokens += row_tokens;
        let met = match cap {
            Cap::Rows(cap) => index as u64 + 1 >= cap,
            Cap::Tokens(cap) => tokens >= cap,
        };
        if met {
            return Ok((hash, id));
        }
    }
    let (have, want) = match cap {
        Cap::Rows(cap) => (rows.len() as u64, cap),
        Cap::Tokens(cap) => (tokens, cap),
    };
    Err((u128::from(want) * 1_000_000 / u128::from(have.max(1))) as u64)
}

/// Tokens of each source that a phase of weights could take: copies count for the first source that
/// has them, whatever caps later leave out.
fn supply(plan: &Plan, partitions: &[Vec<SelectedRow>]) -> Vec<u64> {
    let mut supply = vec![0; plan.sources.len()];
    for rows in partitions {
        let mut seen = HashSet::new();
        for row in rows {
            let first = plan.phase.exact == Exact::None || seen.insert(row.key);
            if let Some(tokens) = supply.get_mut(row.id.source as usize).filter(|_| first) {
                *tokens += row.tokens;
            }
        }
    }
    supply
}

/// The caps of each source.
fn caps(plan: &Plan, partitions: &[Vec<SelectedRow>]) -> Result<Vec<Vec<Cap>>, RunError> {
    let supply = supply(plan, partitions);
    let weighted =
        plan.sources.iter().zip(&supply).filter_map(|(s, &have)| s.config.weight_ppm.map(|w| (w, have)));
    let most = weighted.map(|(w, have)| (u128::from(have) * 1_000_000 / u128::from(w.max(1))) as u64).min();
    let total = plan.phase.max_tokens.or(most);
    let mut all = Vec::with_capacity(supply.len());
    for (source, &have) in plan.sources.iter().zip(&supply) {
        let mut caps: Vec<Cap> = Vec::new();
        caps.extend(source.config.max_rows.map(Cap::Rows));
        caps.extend(source.config.max_tokens.map(Cap::Tokens));
        if let (Some(weight), Some(total)) = (source.config.weight_ppm, total) {
            let asked = (u128::from(total) * u128::from(weight) / 1_000_000) as u64;
            if asked > have && plan.phase.max_tokens.is_some() {
                return Err(RunError::Supply {
                    source_name: source.config.name.clone(),
                    asked,
                    supply: have,
                });
            }
            caps.push(Cap::Tokens(asked.min(have)));
        }
        all.push(caps);
    }
    Ok(all)
}
