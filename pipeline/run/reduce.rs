//! Reduce: one partition's samples to packs to shards, in an order that only the seed decides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use potable_manifests::{ShardRecord, SourceTokens, Split, ppm};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::plan::Plan;
use super::progress::Progress;
use super::select::{SelectedRow, Selection};
use super::staged::{Staged, StagedTokens};
use crate::pack::{Fit, Pack, PackedSample, Packer, clip};
use crate::shard::{ShardFile, ShardOptions, ShardPlace, ShardSink, write_atomic};
use crate::source::row::{SampleId, SampleName};

/// Width of a step of the histogram of fills, in parts per million.
pub const FILL_STEP: u64 = 50_000;

/// What one partition gave; kept in the work folder, so that a killed run does not write it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionResult {
    /// Shards, with their files, the main one first.
    pub shards: Vec<(ShardRecord, Vec<ShardFile>)>,
    /// Samples, tokens and trained tokens by source.
    pub sources: BTreeMap<String, SourceTokens>,
    /// Samples by source and the power of two above their length.
    pub lengths: BTreeMap<String, BTreeMap<u64, u64>>,
    /// Packs by their fill in parts per million, rounded up to [`FILL_STEP`].
    pub fills: BTreeMap<u64, u64>,
    /// Tokens that the packs could hold.
    pub capacity: u64,
    /// Fragments beyond the first, by source.
    pub fragments: BTreeMap<String, u64>,
}

/// What reduce works with.
pub struct Reduction<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Staged files of all rounds.
    pub files: &'a [Staged],
    /// The rows that go on.
    pub selection: &'a Selection,
    /// The output folder of the phase.
    pub out: &'a Path,
    /// Where results of partitions are kept.
    pub folder: &'a Path,
    /// Ids in the vocabulary.
    pub vocabulary: u64,
    /// Where progress is counted.
    pub progress: &'a Progress,
}

impl Reduction<'_> {
    /// Writes the shards of all partitions that are not written yet.
    ///
    /// # Errors
    /// What the file system says.
    pub fn run(&self) -> Result<Vec<PartitionResult>, RunError> {
        self.remove_strays()?;
        let results: Vec<Result<PartitionResult, RunError>> =
            (0..self.plan.partitions).into_par_iter().map(|partition| self.partition(partition)).collect();
        results.into_iter().collect()
    }

    fn shard_options(&self) -> ShardOptions {
        let output = &self.plan.phase.output;
        ShardOptions { format: output.format, position_ids: output.position_ids, vocabulary: self.vocabulary }
    }

    /// Shards of an earlier, unfinished run that no result names.
    fn remove_strays(&self) -> Result<(), RunError> {
        let mut named: BTreeSet<PathBuf> = BTreeSet::new();
        for partition in 0..self.plan.partitions {
            if let Some(result) = self.finished(partition) {
                let files = result.shards.iter().flat_map(|(_, files)| files);
                named.extend(files.map(|(path, _, _)| self.out.join(path)));
            }
        }
        for folder in ["shards", "validation"] {
            for path in files_below(&self.out.join(folder)) {
                if !named.contains(&path) {
                    std::fs::remove_file(&path).map_err(|e| RunError::write(&path, e))?;
                }
            }
        }
        Ok(())
    }

    fn partition(&self, partition: u32) -> Result<PartitionResult, RunError> {
        if self.progress.is_stopped() {
            return Err(RunError::Interrupted);
        }
        if let Some(result) = self.finished(partition) {
            self.progress.partitions.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return Ok(result);
        }
        let result = Partition {
            reduction: self,
            number: partition,
            packer: Packer::new(self.plan.phase.pack.clone()),
        }
        .reduce()?;
        let text =
            serde_json::to_string(&result).map_err(|e| RunError::Manifest { reason: e.to_string() })?;
        write_atomic(&self.result_path(partition), text.as_bytes())?;
        self.progress.partitions.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(result)
    }

    /// The result of a partition that is written already, if its shards are there in full size.
    fn finished(&self, partition: u32) -> Option<PartitionResult> {
        let text = std::fs::read(self.result_path(partition)).ok()?;
        let result: PartitionResult = serde_json::from_slice(&text).ok()?;
        let whole = result.shards.iter().flat_map(|(_, files)| files).all(|(path, _, size)| {
            std::fs::metadata(self.out.join(path)).is_ok_and(|meta| meta.len() == *size)
        });
        whole.then_some(result)
    }

    fn result_path(&self, partition: u32) -> PathBuf {
        self.folder.join(format!("partition-{partition:05}.json"))
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return files };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

struct Partition<'a> {
    reduction: &'a Reduction<'a>,
    number: u32,
    packer: Packer,
}

impl Partition<'_> {
    fn reduce(&self) -> Result<PartitionResult, RunError> {
        let mut result = PartitionResult::default();
        let classes = self.packer.lengths().len();
        let mut split_samples: [Vec<Vec<PackedSample>>; 2] =
            [vec![Vec::new(); classes], vec![Vec::new(); classes]];
        self.gather(&mut split_samples, &mut result)?;
        let [train, validation] = split_samples;
        for (split, by_class) in [(Split::Train, train), (Split::Validation, validation)] {
            for (class, samples) in by_class.into_iter().enumerate() {
                self.write(split, class, samples, &mut result)?;
            }
        }
        Ok(result)
    }

    /// Reads the kept samples, applies the length policy, and sorts them to split and class.
    fn gather(
        &self,
        out: &mut [Vec<Vec<PackedSample>>; 2],
        result: &mut PartitionResult,
    ) -> Result<(), RunError> {
        let rows = self.reduction.selection.partitions.get(self.number as usize);
        let mut by_chunk: BTreeMap<u32, Vec<(&SelectedRow, usize)>> = BTreeMap::new();
        for row in rows.into_iter().flatten() {
            for (at, sample) in row.samples.iter().enumerate() {
                by_chunk.entry(sample.chunk).or_default().push((row, at));
            }
        }
        for (chunk, samples) in by_chunk {
            let Some(file) = self.reduction.files.get(chunk as usize) else { continue };
            let Some(tokens) = file.tokens(self.number)? else { continue };
            for (row, at) in samples {
                self.sample(row, at, &tokens, (out, result));
            }
        }
        Ok(())
    }

    fn sample(
        &self,
        row: &SelectedRow,
        at: usize,
        tokens: &StagedTokens,
        (out, result): (&mut [Vec<Vec<PackedSample>>; 2], &mut PartitionResult),
    ) {
        let Some(sample) = row.samples.get(at) else { return };
        let plan = self.reduction.plan;
        let Some(source) = plan.sources.get(row.id.source as usize) else { return };
        let (ids, runs) = tokens.sample(sample.index as usize);
        let name = |fragment: u32| {
            let file = source.files.get(row.id.file as usize).map_or("", |f| f.file.name.as_str());
            let id = SampleId { row: row.id, turn: sample.turn, fragment };
            SampleName { source: &source.config.name, file, id }.to_string()
        };
        let last = self.packer.lengths().len().saturating_sub(1);
        let pieces: Vec<(usize, PackedSample)> = match self.packer.fit(sample.tokens, sample.first_trained) {
            Fit::Overlong => Vec::new(),
            Fit::Class(class) => vec![(class, PackedSample::new(name(0), ids, &runs))],
            Fit::Truncated(kept) => {
                let mut ids = ids;
                ids.truncate(kept as usize);
                vec![(last, PackedSample::new(name(0), ids, &clip(&runs, 0, kept, 0)))]
            }
            Fit::Fragments(_) => fragments(&ids, &runs, self.packer.longest())
                .into_iter()
                .enumerate()
                .map(|(n, (ids, runs))| (last, PackedSample::new(name(n as u32), ids, &runs)))
                .collect(),
        };
        let split = usize::from(is_validation(row.key, plan.phase.seed, plan.phase.output.validation_ppm));
        let extra = pieces.len().saturating_sub(1) as u64;
        if extra > 0 {
            *result.fragments.entry(source.config.name.clone()).or_default() += extra;
        }
        for (class, piece) in pieces {
            count(result, &source.config.name, &piece);
            if let Some(samples) = out.get_mut(split).and_then(|classes| classes.get_mut(class)) {
                samples.push(piece);
            }
        }
    }

    /// Packs one class in seeded order, shuffles the packs, writes the shards.
    fn write(
        &self,
        split: Split,
        class: usize,
        mut samples: Vec<PackedSample>,
        result: &mut PartitionResult,
    ) -> Result<(), RunError> {
        if samples.is_empty() {
            return Ok(());
        }
        let plan = self.reduction.plan;
        let seed = plan.phase.seed;
        let hash = |name: &str, salt: u64| xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), seed ^ salt);
        samples.sort_by_cached_key(|sample| (hash(&sample.name, SAMPLE_ORDER), sample.name.clone()));
        let mut packs = self.packer.pack(class, samples);
        packs.sort_by_cached_key(|pack: &Pack| {
            let first = pack.samples.first().map_or("", |s| s.name.as_str());
            (hash(first, PACK_ORDER), first.to_owned())
        });
        let length = self.packer.lengths().get(class).copied().unwrap_or_default();
        result.capacity += packs.len() as u64 * u64::from(length);
        for pack in &packs {
            let steps = ppm(pack.tokens(), u64::from(length)).div_ceil(FILL_STEP).max(1);
            *result.fills.entry(steps * FILL_STEP).or_default() += 1;
        }
        let options = self.reduction.shard_options();
        let several = self.packer.lengths().len() > 1;
        let mut place =
            ShardPlace { split, class: several.then_some(length), partition: self.number, number: 0 };
        let mut packs = packs.into_iter().peekable();
        while packs.peek().is_some() {
            let path = options.format.path(place);
            let mut sink = ShardSink::create(self.reduction.out, &path, &options)?;
            while let Some(pack) = packs.next_if(|pack| {
                sink.tokens() == 0 || sink.tokens() + pack.tokens() <= plan.phase.output.shard_tokens
            }) {
                sink.push(pack)?;
            }
            let shard = sink.seal()?;
            let record = ShardRecord {
                path,
                split,
                length: u64::from(length),
                content_digest: shard.content.digest,
                packs: shard.content.packs,
                samples: shard.content.samples,
                tokens: shard.content.tokens,
                trained: shard.content.trained,
            };
            result.shards.push((record, shard.files));
            place.number += 1;
        }
        Ok(())
    }
}

const SAMPLE_ORDER: u64 = 0x5a4d_504c_4f52_4445;
const PACK_ORDER: u64 = 0x5041_434b_4f52_4445;
const HELD_OUT: u64 = 0x4845_4c44_4f55_5421;

/// Whether a row is held out: a seeded hash of its content, so that equal rows never straddle.
fn is_validation(key: u128, seed: u64, ppm: u64) -> bool {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&key.to_le_bytes(), seed ^ HELD_OUT);
    u128::from(hash) * 1_000_000 < u128::from(ppm) << 64
}

/// Ids and trained runs of a piece of a sample.
type Fragment = (Vec<u32>, Vec<(u32, u32)>);

fn fragments(ids: &[u32], runs: &[(u32, u32)], length: u32) -> Vec<Fragment> {
    let pieces = ids.chunks(length.max(1) as usize);
    pieces
        .scan(0u32, |start, piece| {
            let from = *start;
            *start += piece.len() as u32;
            Some((piece.to_vec(), clip(runs, from, *start, from)))
        })
        .collect()
}

fn count(result: &mut PartitionResult, source: &str, piece: &PackedSample) {
    let tokens = piece.ids.len() as u64;
    let entry = result.sources.entry(source.to_owned()).or_default();
    entry.samples += 1;
    entry.tokens += tokens;
    entry.trained += piece.trained_tokens();
    let lengths = result.lengths.entry(source.to_owned()).or_default();
    *lengths.entry(tokens.next_power_of_two().max(64)).or_default() += 1;
}
