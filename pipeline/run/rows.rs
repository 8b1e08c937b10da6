//! What map does to one chunk of rows: decode → `where` → adapt → check → render → tokenise.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use potable_blocklists::{Action, Blocklist};
use xxhash_rust::xxh3::Xxh3;

use super::error::RunError;
use super::plan::{Plan, PlannedSource, Unit};
use super::reason::DropReason;
use super::staged::{self, ChunkLedger, StagedDrop, StagedSample};
use crate::decontaminate::{Checked, CheckedRow, Decontaminator, Match};
use crate::dedup::Signer;
use crate::normalise::{Acted, ControlText, Normaliser, RenderedSample};
use crate::recipe::file::{Exact, OnBadRow};
use crate::source::adapt::{Adapted, Outcome};
use crate::source::cell::Cell;
use crate::source::error::{SourceError, quoted};
use crate::source::join::Unjoined;
use crate::source::reader::{Chunk, RowBatch, Sampler};
use crate::tokenise::{TokenisedSample, Tokeniser};

/// What every thread of map shares.
pub struct Stages<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The blocklist, unless the recipe wants none.
    pub blocklist: Option<&'a Blocklist>,
    /// Rendering.
    pub normaliser: Normaliser,
    /// Encoding.
    pub tokeniser: &'a Tokeniser,
    /// Comparison with the model's own template, if asked for.
    pub verify: Option<Verify<'a>>,
}

/// Which rows are compared with the model's own template.
#[derive(Clone, Copy, Debug)]
pub struct Verify<'a> {
    /// One row in so many, by the row's sampling hash.
    pub every: u64,
    /// At most so many.
    pub most: u64,
    /// How many were.
    pub compared: &'a AtomicU64,
}

impl Verify<'_> {
    /// Whether the row with this hash is compared; if so, it is counted.
    fn takes(&self, hash: u64) -> bool {
        let more = |count: u64| (count < self.most).then_some(count + 1);
        hash.is_multiple_of(self.every) && self.compared.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

/// Which part of which source a chunk belongs to.
#[derive(Clone, Copy, Debug)]
pub struct ChunkPlace {
    /// The unit.
    pub unit: Unit,
    /// The rows taken in this round.
    pub sampler: Sampler,
}

/// Runs the stages over one chunk.
///
/// # Errors
/// A row that cannot be read, unless the source drops such rows; anything else that stops a run.
pub fn map_chunk(stages: &Stages, place: ChunkPlace, chunk: &Chunk) -> Result<staged::Chunk, RunError> {
    let mut mapper = Mapper::new(stages, place)?;
    let ledger = &mut mapper.out.ledger;
    ledger.source = place.unit.source;
    ledger.file = place.unit.file;
    ledger.above = place.sampler.above;
    ledger.passed = chunk.read;
    ledger.taken = chunk.batch.len() as u64;
    ledger.next_row = chunk.next_row;
    mapper.batch(&chunk.batch)?;
    mapper.out.ledger.acted = mapper.acted.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    Ok(mapper.out)
}

/// The partition of a deduplication key: ranges of a seeded hash, so that equal rows share one.
pub fn partition_of(key: u128, seed: u64, partitions: u32) -> u32 {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&key.to_le_bytes(), seed);
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u32
}

struct Mapper<'a> {
    stages: &'a Stages<'a>,
    source: &'a PlannedSource,
    place: ChunkPlace,
    decontaminator: Decontaminator<'a>,
    /// Takes the bands of rows, if near duplicates go.
    signer: Option<Signer>,
    acted: Acted,
    out: staged::Chunk,
}

impl<'a> Mapper<'a> {
    fn new(stages: &'a Stages, place: ChunkPlace) -> Result<Self, RunError> {
        let missing = || RunError::Manifest { reason: "a unit names no source".to_owned() };
        let source = stages.plan.sources.get(place.unit.source as usize).ok_or_else(missing)?;
        let phase = &stages.plan.phase;
        let signer = phase.near.map(|near| Signer::new(near, phase.seed));
        Ok(Mapper {
            stages,
            source,
            place,
            decontaminator: Decontaminator::new(stages.blocklist, phase.decontaminate.strict),
            out: staged::Chunk { near: signer.is_some(), ..staged::Chunk::default() },
            signer,
            acted: Acted::new(),
        })
    }

    fn batch(&mut self, batch: &RowBatch) -> Result<(), RunError> {
        let columns = &self.source.mapping.columns;
        let mut wanted = vec![true; batch.len()];
        if let (Some(predicate), RowBatch::Table(table, _)) = (&self.source.predicate, batch) {
            wanted = predicate.evaluate_table(table, &self.span(batch))?;
        }
        let mut rows: Vec<(usize, Vec<Cell>)> = Vec::with_capacity(batch.len());
        for (index, wanted) in wanted.iter().enumerate() {
            let row = batch.row_number(index);
            if !wanted {
                self.drop_row(row, DropReason::SourceWhere, String::new);
                continue;
            }
            match batch.decode(index, columns) {
                Ok(cells) => {
                    self.note_keys(batch, index, &cells);
                    rows.push((index, cells));
                }
                Err(reason) => self.bad_row(row, reason)?,
            }
        }
        let mut kept = vec![true; rows.len()];
        if let (Some(predicate), false) = (&self.source.predicate, matches!(batch, RowBatch::Table(..))) {
            let cells: Vec<&[Cell]> = rows.iter().map(|(_, cells)| cells.as_slice()).collect();
            kept = predicate.evaluate_cells(&cells, columns, &self.span(batch))?;
        }
        let unjoined = self.join(&mut rows, &kept, batch)?;
        for (((index, cells), kept), unjoined) in rows.into_iter().zip(kept).zip(unjoined) {
            let row = batch.row_number(index);
            if !kept {
                self.drop_row(row, DropReason::SourceWhere, String::new);
            } else if let Some(why) = unjoined {
                self.drop_row(row, DropReason::SourceUnjoined, || why.evidence());
            } else if let Some(name) = self.missing_key(batch, index, &cells) {
                let present = quoted(&batch.present(index));
                self.bad_row(row, format!("row has no `{name}` field; it has {present}"))?;
            } else {
                self.row(row, cells)?;
            }
        }
        self.out.drops.sort_by_key(|drop| drop.row);
        Ok(())
    }

    /// Puts the text of other corpora into the rows that `where` keeps; says for each row why it has none.
    fn join(
        &mut self,
        rows: &mut [(usize, Vec<Cell>)],
        kept: &[bool],
        batch: &RowBatch,
    ) -> Result<Vec<Option<Unjoined>>, RunError> {
        let mut unjoined = vec![None; rows.len()];
        let Some(joins) = &self.source.joins else { return Ok(unjoined) };
        let kept_rows = rows.iter_mut().zip(kept).filter(|(_, kept)| **kept);
        let mut cells: Vec<&mut Vec<Cell>> = kept_rows.map(|((_, cells), _)| cells).collect();
        let outcomes = joins.table.join(&mut cells, &self.span(batch))?;
        let places = unjoined.iter_mut().zip(kept).filter(|(_, kept)| **kept).map(|(place, _)| place);
        for (place, outcome) in places.zip(outcomes) {
            match outcome {
                Ok(name) => *self.out.ledger.joined.entry(name.to_owned()).or_default() += 1,
                Err(why) => *place = Some(why),
            }
        }
        Ok(unjoined)
    }

    /// A key without which a JSON row has no meaning; one that is null is not missing.
    fn missing_key(&self, batch: &RowBatch, index: usize, cells: &[Cell]) -> Option<&'a str> {
        let mapping = &self.source.mapping;
        let null = |at: &usize| cells.get(*at).is_none_or(|cell| *cell == Cell::Null);
        if !matches!(batch, RowBatch::Json(..)) || !mapping.must.iter().any(null) {
            return None;
        }
        let present = batch.present(index);
        let names = mapping.must.iter().filter_map(|&at| mapping.columns.get(at));
        names.map(String::as_str).find(|name| !present.iter().any(|key| key == name))
    }

    /// Rows of JSON may lack a key; a key that none has is misspelt, which shows at the end.
    fn note_keys(&mut self, batch: &RowBatch, index: usize, cells: &[Cell]) {
        if !matches!(batch, RowBatch::Json(..)) {
            return;
        }
        let seen = &mut self.out.ledger.seen;
        for (cell, name) in cells.iter().zip(self.source.mapping.required_columns()) {
            if !seen.contains(name) && (*cell != Cell::Null || batch.present(index).contains(name)) {
                seen.insert(name.clone());
            }
        }
    }

    fn row(&mut self, row: u64, cells: Vec<Cell>) -> Result<(), RunError> {
        self.out.ledger.bytes += cells.iter().map(text_bytes).sum::<u64>();
        let adapted = match self.source.mapping.adapt(cells, self.source.config.system.as_deref()) {
            Ok(Outcome::Keep(adapted)) => adapted,
            Ok(Outcome::Drop(reason)) => {
                self.drop_row(row, reason, String::new);
                return Ok(());
            }
            Err(reason) => return self.bad_row(row, reason),
        };
        let Some(checked) = self.check(row, adapted) else { return Ok(()) };
        if self.stages.verify.is_some_and(|verify| verify.takes(self.place.sampler.hash(row))) {
            self.stages.normaliser.verify(&checked, &|| self.row_place(row))?;
        }
        match self.stages.normaliser.apply(&checked, &mut self.acted) {
            Outcome::Drop(reason) => {
                self.drop_row(row, reason, String::new);
                Ok(())
            }
            Outcome::Keep(samples) => self.samples(row, &checked, &samples),
        }
    }

    fn check(&mut self, row: u64, adapted: Adapted) -> Option<CheckedRow> {
        let verdict = self.decontaminator.apply(adapted);
        let drops = verdict.row.is_err();
        let names: BTreeSet<&str> = verdict
            .matches
            .iter()
            .filter(|m| !drops || m.action == Action::Drop)
            .map(|m| m.benchmark_name.as_str())
            .collect();
        for name in names {
            let counts = self.out.ledger.matches.entry(name.to_owned()).or_default();
            if drops {
                counts.0 += 1;
            } else {
                counts.1 += 1;
            }
        }
        match verdict.row {
            Ok(checked) => Some(checked),
            Err(reason) => {
                self.drop_row(row, reason, || evidence(&verdict.matches));
                None
            }
        }
    }

    fn samples(
        &mut self,
        row: u64,
        checked: &CheckedRow,
        samples: &[RenderedSample],
    ) -> Result<(), RunError> {
        let phase = &self.stages.plan.phase;
        let key = self.key(checked);
        let partition = partition_of(key, phase.seed, self.stages.plan.partitions);
        let hash = self.place.sampler.hash(row);
        let control_text = self.stages.normaliser.policy().control_text;
        let encoded: Vec<TokenisedSample> = samples
            .iter()
            .map(|sample| self.stages.tokeniser.encode(sample, control_text))
            .collect::<Result<_, _>>()?;
        let foreign: u64 = encoded.iter().map(|sample| sample.foreign).sum();
        match control_text {
            _ if foreign == 0 => {}
            // No string of the row holds one, but two of them side by side do.
            ControlText::Drop => {
                self.drop_row(row, DropReason::NormaliseControlText, String::new);
                return Ok(());
            }
            ControlText::Text => *self.acted.entry("control-text-as-text").or_default() += foreign,
            ControlText::Keep => *self.acted.entry("control-text-kept").or_default() += foreign,
        }
        let mut near = self.signer.as_mut().map_or_else(Vec::new, |signer| signer.bands(checked));
        for encoded in encoded {
            self.out.ledger.samples += 1;
            self.out.ledger.tokens += encoded.ids.len() as u64;
            self.out.samples.entry(partition).or_default().push(StagedSample {
                row,
                turn: encoded.turn,
                hash,
                key,
                ids: encoded.ids,
                trained: encoded.trained,
                near: std::mem::take(&mut near),
            });
        }
        self.out.ledger.kept += 1;
        Ok(())
    }

    /// The deduplication key: a hash of what makes two rows the same. Where duplicates stay it still
    /// decides what is held out and what another phase took.
    fn key(&self, checked: &CheckedRow) -> u128 {
        let mut hasher = Xxh3::new();
        let mut push = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        match (self.stages.plan.phase.exact, checked.content()) {
            (_, Checked::Document(document)) => push(&document.text),
            (Exact::Prompt, Checked::Chat(conversation)) if conversation.has_user() => {
                for (_, text, _) in conversation.strings().into_iter().filter(|(_, _, whole)| *whole) {
                    push(text);
                }
            }
            (_, Checked::Chat(conversation)) => {
                for message in &conversation.messages {
                    push(message.role.name());
                    push(message.text());
                    push(message.reasoning.as_deref().unwrap_or_default());
                    for call in &message.tool_calls {
                        push(&call.name);
                        push(&call.arguments);
                    }
                }
                conversation.tools.iter().for_each(|tool| push(tool));
            }
        }
        hasher.digest128()
    }

    fn drop_row(&mut self, row: u64, reason: DropReason, evidence: impl FnOnce() -> String) {
        *self.out.ledger.dropped.entry(reason.name().to_owned()).or_default() += 1;
        if reason.is_listed() {
            self.out.drops.push(StagedDrop {
                row,
                stage: reason.stage().name().to_owned(),
                reason: reason.name().to_owned(),
                evidence: evidence(),
            });
        }
    }

    fn bad_row(&mut self, row: u64, reason: String) -> Result<(), RunError> {
        if self.source.config.on_bad_row == OnBadRow::Stop {
            let reason = format!("source `{}`: {reason}", self.source.config.name);
            return Err(SourceError::BadRow { place: self.row_place(row), reason }.into());
        }
        self.out.ledger.failed += 1;
        self.out.drops.push(StagedDrop {
            row,
            stage: "source".to_owned(),
            reason: FAILED.to_owned(),
            evidence: reason,
        });
        Ok(())
    }

    fn row_place(&self, row: u64) -> String {
        let file = self.source.files.get(self.place.unit.file as usize);
        file.map_or_else(String::new, |f| f.file.place(row))
    }

    fn span(&self, batch: &RowBatch) -> String {
        let file = self.source.files.get(self.place.unit.file as usize);
        let path = file.map_or(String::new(), |f| f.file.path().display().to_string());
        let (first, last) = (batch.row_number(0), batch.row_number(batch.len().saturating_sub(1)));
        format!("{path}: rows {first} to {last}: source `{}`", self.source.config.name)
    }
}

/// The word in `dropped/` for rows that could not be read.
pub const FAILED: &str = "failed";

fn evidence(matches: &[Match]) -> String {
    let list: Vec<serde_json::Value> = matches
        .iter()
        .map(|m| {
            serde_json::json!({
                "benchmark": m.benchmark_name,
                "item": m.item,
                "rule": m.rule.name(),
                "coverage_ppm": m.coverage_ppm,
                "message": m.message,
                "start": m.span.0,
                "end": m.span.1,
                "action": m.action.name(),
                "excerpt": m.excerpt,
                "mark": [m.mark.0, m.mark.1],
            })
        })
        .collect();
    serde_json::Value::from(list).to_string()
}

fn text_bytes(cell: &Cell) -> u64 {
    match cell {
        Cell::Text(text) => text.len() as u64,
        Cell::List(items) => items.iter().map(text_bytes).sum(),
        Cell::Struct(fields) => fields.iter().map(|(_, value)| text_bytes(value)).sum(),
        _ => 0,
    }
}

/// Adds up the ledgers of chunks; rows passed count in the first band only, since every band passes
/// all rows.
pub fn add_ledger(sum: &mut ChunkLedger, one: &ChunkLedger) {
    if one.above.is_none() {
        sum.passed += one.passed;
    }
    sum.taken += one.taken;
    sum.kept += one.kept;
    sum.failed += one.failed;
    sum.samples += one.samples;
    sum.bytes += one.bytes;
    sum.tokens += one.tokens;
    for (reason, count) in &one.dropped {
        *sum.dropped.entry(reason.clone()).or_default() += count;
    }
    for (join, count) in &one.joined {
        *sum.joined.entry(join.clone()).or_default() += count;
    }
    sum.seen.extend(one.seen.iter().cloned());
    for (what, count) in &one.acted {
        *sum.acted.entry(what.clone()).or_default() += count;
    }
    for (name, counts) in &one.matches {
        let entry = sum.matches.entry(name.clone()).or_default();
        entry.0 += counts.0;
        entry.1 += counts.1;
    }
}
