//! Select: exact duplicates and exact caps, from the metadata columns of the staged files alone.
//! Duplicates share a partition, so that each partition is settled by itself; caps are cut at one
//! sampling hash a source.

use std::collections::BTreeMap;

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

/// Selects. `files` are the staged files of all rounds; `excluded` the sorted keys of another phase.
///
/// # Errors
/// A staged file that is damaged; a weight that asks for more than there is.
pub fn select(plan: &Plan, files: &[Staged], excluded: &[u128]) -> Result<Selection, RunError> {
    let packer = Packer::new(plan.phase.pack.clone());
    let settled: Vec<Settled> = (0..plan.partitions)
        .into_par_iter()
        .map(|partition| settle(plan, files, partition, &Rules { packer: &packer, excluded }))
        .collect::<Result<_, _>>()?;
    let mut selection =
        Selection { counts: vec![SelectCounts::default(); plan.sources.len()], ..Selection::default() };
    for one in settled {
        for (sum, counts) in selection.counts.iter_mut().zip(&one.counts) {
            add(sum, counts);
        }
        selection.overlong.extend(one.overlong);
        selection.partitions.push(one.rows);
    }
    selection.overlong.sort_unstable();
    apply_caps(plan, &mut selection)?;
    Ok(selection)
}

struct Rules<'a> {
    packer: &'a Packer,
    excluded: &'a [u128],
}

struct Settled {
    rows: Vec<SelectedRow>,
    counts: Vec<SelectCounts>,
    overlong: Vec<(RowId, u64)>,
}

/// Settles the duplicates and the length policy of one partition.
fn settle(plan: &Plan, files: &[Staged], partition: u32, rules: &Rules) -> Result<Settled, RunError> {
    let mut rows = gather(files, partition)?;
    rows.sort_unstable_by_key(|row| (row.key, row.id));
    let mut settled = Settled {
        rows: Vec::new(),
        counts: vec![SelectCounts::default(); plan.sources.len()],
        overlong: Vec::new(),
    };
    let mut previous = None;
    for row in rows {
        let mut stray = SelectCounts::default();
        let counts = settled.counts.get_mut(row.id.source as usize).unwrap_or(&mut stray);
        let samples = row.samples.len() as u64;
        if plan.phase.exact != Exact::None && previous == Some(row.key) {
            counts.duplicates.0 += 1;
            counts.duplicates.1 += samples;
            continue;
        }
        previous = Some(row.key);
        if rules.excluded.binary_search(&row.key).is_ok() {
            counts.other_phase.0 += 1;
            counts.other_phase.1 += samples;
            continue;
        }
        match fit_row(row, rules.packer, counts) {
            Ok(row) => {
                counts.kept_rows += 1;
                settled.rows.push(row);
            }
            Err(overlong) => settled.overlong.push(overlong),
        }
    }
    settled.rows.sort_unstable_by_key(|row| row.id);
    Ok(settled)
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
                _ => rows.push(SelectedRow { id, hash, key, tokens: 0, samples: vec![sample] }),
            }
        }
    }
    Ok(rows)
}

fn add(sum: &mut SelectCounts, one: &SelectCounts) {
    sum.duplicates.0 += one.duplicates.0;
    sum.duplicates.1 += one.duplicates.1;
    sum.other_phase.0 += one.other_phase.0;
    sum.other_phase.1 += one.other_phase.1;
    sum.overlong.0 += one.overlong.0;
    sum.overlong.1 += one.overlong.1;
    sum.overlong.2 += one.overlong.2;
    sum.truncated_tokens += one.truncated_tokens;
    sum.kept_rows += one.kept_rows;
}

/// What a source may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cap {
    Rows(u64),
    Tokens(u64),
}

fn apply_caps(plan: &Plan, selection: &mut Selection) -> Result<(), RunError> {
    let supply = supply(plan, selection);
    let caps = caps(plan, &supply)?;
    let mut cutoffs: BTreeMap<u32, (u64, RowId)> = BTreeMap::new();
    let mut short = Vec::new();
    for (source, cap) in caps {
        let mut rows: Vec<(u64, RowId, u64)> = selection
            .partitions
            .iter()
            .flatten()
            .filter(|row| row.id.source == source as u32)
            .map(|row| (row.hash, row.id, row.tokens))
            .collect();
        rows.sort_unstable();
        match last_within(&rows, cap) {
            Ok(last) => {
                // With two caps, the one that is met first holds.
                let cutoff = cutoffs.entry(source as u32).or_insert(last);
                *cutoff = last.min(*cutoff);
            }
            Err(factor) => short.push((source, factor)),
        }
    }
    short.retain(|(source, _)| !cutoffs.contains_key(&(*source as u32)));
    selection.short = short;
    let counts = &mut selection.counts;
    for rows in &mut selection.partitions {
        rows.retain(|row| {
            let keep = cutoffs.get(&row.id.source).is_none_or(|last| (row.hash, row.id) <= *last);
            if !keep && let Some(counts) = counts.get_mut(row.id.source as usize) {
                counts.capped.0 += 1;
                counts.capped.1 += row.samples.len() as u64;
                counts.kept_rows -= 1;
            }
            keep
        });
    }
    Ok(())
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

fn supply(plan: &Plan, selection: &Selection) -> Vec<u64> {
    let mut supply = vec![0; plan.sources.len()];
    for row in selection.partitions.iter().flatten() {
        if let Some(tokens) = supply.get_mut(row.id.source as usize) {
            *tokens += row.tokens;
        }
    }
    supply
}

fn caps(plan: &Plan, supply: &[u64]) -> Result<Vec<(usize, Cap)>, RunError> {
    let weighted =
        plan.sources.iter().zip(supply).filter_map(|(s, &have)| s.config.weight_ppm.map(|w| (w, have)));
    let most = weighted.map(|(w, have)| (u128::from(have) * 1_000_000 / u128::from(w)) as u64).min();
    let total = plan.phase.max_tokens.or(most);
    let mut caps = Vec::new();
    for (index, (source, &have)) in plan.sources.iter().zip(supply).enumerate() {
        if let Some(rows) = source.config.max_rows {
            caps.push((index, Cap::Rows(rows)));
        }
        if let Some(tokens) = source.config.max_tokens {
            caps.push((index, Cap::Tokens(tokens)));
        }
        if let (Some(weight), Some(total)) = (source.config.weight_ppm, total) {
            let asked = (u128::from(total) * u128::from(weight) / 1_000_000) as u64;
            if asked > have && plan.phase.max_tokens.is_some() {
                return Err(RunError::Supply {
                    source_name: source.config.name.clone(),
                    asked,
                    supply: have,
                });
            }
            caps.push((index, Cap::Tokens(asked.min(have))));
        }
    }
    Ok(caps)
}
