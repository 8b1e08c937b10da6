//! Reduce: one partition's samples to packs to shards, in an order that only the seed decides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use potable_manifests::{ShardRecord, SourceTokens, Split, ppm};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::layout::{ClassLayout, Layout, PackKey, Piece};
use super::plan::Plan;
use super::progress::Progress;
use super::select::Rules;
use super::staged::{Staged, StagedTokens};
use crate::pack::{Pack, PackedSample, Packer, clip};
use crate::recipe::file::ShardFormat;
use crate::shard::sidecar;
use crate::shard::{PackExtremes, ShardFile, ShardOptions, ShardPlace, ShardSink, write_atomic};

/// The file of packs to calibrate a quantiser with.
pub const CALIBRATION: &str = "calibration.parquet";

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
    /// Longest sample, fullest pack, shortest pack.
    pub extremes: PackExtremes,
    /// Fragments beyond the first, by source.
    pub fragments: BTreeMap<String, u64>,
    /// Train packs that come first in the order by which packs for calibration are chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calibration: Vec<PackKey>,
}

/// Where the tokens of samples are staged.
pub trait TokenSource: Sync {
    /// Ids and trained runs of a partition's samples in the staged file with this index; `None` if it
    /// has none.
    ///
    /// # Errors
    /// A file that is damaged or cannot be had.
    fn tokens(&self, chunk: u32, partition: u32) -> Result<Option<StagedTokens>, RunError>;
}

impl TokenSource for Vec<Staged> {
    fn tokens(&self, chunk: u32, partition: u32) -> Result<Option<StagedTokens>, RunError> {
        self.get(chunk as usize).map_or(Ok(None), |file| file.tokens(partition))
    }
}

/// What reduce works with.
pub struct Reduction<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What names samples.
    pub rules: &'a Rules,
    /// Tokens of the staged files of all rounds, in the order in which select had them.
    pub tokens: &'a dyn TokenSource,
    /// Which sample stands in which pack.
    pub layout: &'a Layout<'a>,
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
    /// Writes the shards of all partitions that are not written yet; gives the results of partitions and
    /// tails by number.
    ///
    /// # Errors
    /// What the file system says.
    pub fn run(&self) -> Result<Vec<PartitionResult>, RunError> {
        self.remove_strays()?;
        let results: Vec<Result<PartitionResult, RunError>> =
            (0..self.partitions()).into_par_iter().map(|partition| self.partition(partition)).collect();
        results.into_iter().collect()
    }

    /// Writes `calibration.parquet`, if the recipe wants it: a seeded choice of train packs, for the
    /// calibration of a quantiser. It is Parquet whatever the format of the shards. `results` are those of
    /// all partitions and tails, by number.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write_calibration(&self, results: &[PartitionResult]) -> Result<Vec<ShardFile>, RunError> {
        let count = self.plan.phase.output.calibration;
        if count == 0 {
            return Ok(Vec::new());
        }
        let options = ShardOptions { format: ShardFormat::Parquet, ..self.shard_options() };
        let mut sink = ShardSink::create(self.out, CALIBRATION, &options)?;
        let keys = results.iter().map(|result| result.calibration.as_slice());
        let packs = self.layout.choice(keys, count)?;
        let packer = Packer::new(self.plan.phase.pack.clone());
        // They are counted where they stand in the shards.
        let mut uncounted = PartitionResult::default();
        let read = Partition { reduction: self, number: 0, packer }.read(&packs, &mut uncounted)?;
        read.into_iter().try_for_each(|pack| sink.push(pack))?;
        Ok(sink.seal()?.files)
    }

    /// Partitions and tails.
    fn partitions(&self) -> u32 {
        Layout::count(self.plan.partitions)
    }

    fn shard_options(&self) -> ShardOptions {
        let output = &self.plan.phase.output;
        ShardOptions { format: output.format, position_ids: output.position_ids, vocabulary: self.vocabulary }
    }

    /// Shards of an earlier, unfinished run that no result names.
    fn remove_strays(&self) -> Result<(), RunError> {
        let mut named: BTreeSet<PathBuf> = BTreeSet::new();
        for partition in 0..self.partitions() {
            if let Some(result) = self.finished(partition) {
                let files = result.shards.iter().flat_map(|(_, files)| files);
                named.extend(files.map(|(path, _, _)| self.out.join(path)));
            }
        }
        for folder in ["shards", "validation", sidecar::FOLDER] {
            for path in files_below(&self.out.join(folder)) {
                if !named.contains(&path) {
                    std::fs::remove_file(&path).map_err(|e| RunError::write(&path, e))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the shards of a partition or a tail, unless they are written already.
    ///
    /// # Errors
    /// What the file system says.
    pub fn partition(&self, partition: u32) -> Result<PartitionResult, RunError> {
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
        // An unfinished run of an older version chose packs for calibration in another way.
        let train = result.shards.iter().any(|(shard, _)| shard.split == Split::Train);
        if self.plan.phase.output.calibration > 0 && train && result.calibration.is_empty() {
            return None;
        }
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

/// What a pack alone is the extreme of; room as the trainer counts it.
fn extremes(pack: &Pack, packer: &Packer) -> PackExtremes {
    let room = |sample: &PackedSample| u64::from(packer.room_of(sample.ids.len() as u32));
    PackExtremes {
        longest_sample: pack.samples.iter().map(|sample| sample.ids.len() as u64).max().unwrap_or_default(),
        most_samples: pack.samples.len() as u64,
        shortest_pack: pack.samples.iter().map(room).sum(),
    }
}

/// A piece with its pack and its place in the pack.
type Placed<'a> = (usize, usize, &'a Piece);

/// One partition, or the tail of several.
struct Partition<'a> {
    reduction: &'a Reduction<'a>,
    number: u32,
    packer: Packer,
}

impl Partition<'_> {
    fn reduce(&self) -> Result<PartitionResult, RunError> {
        let mut result = PartitionResult::default();
        let layout = self.reduction.layout;
        let classes = layout.partition(self.number)?;
        let calibration = self.reduction.plan.phase.output.calibration;
        if calibration > 0 {
            result.calibration = layout.first_keys(&classes, calibration);
        }
        for class in classes.iter().filter(|class| !class.packs.is_empty()) {
            let packs = self.read(&class.packs, &mut result)?;
            self.write(class, packs, &mut result)?;
        }
        Ok(result)
    }

    /// Reads the samples of packs, staged file by staged file.
    fn read(&self, packs: &[Vec<Piece>], result: &mut PartitionResult) -> Result<Vec<Pack>, RunError> {
        let mut by_file: BTreeMap<(u32, u32), Vec<Placed>> = BTreeMap::new();
        for (at, pack) in packs.iter().enumerate() {
            for (place, piece) in pack.iter().enumerate() {
                let file = (piece.sample.chunk, piece.partition);
                by_file.entry(file).or_default().push((at, place, piece));
            }
        }
        let mut read: Vec<Pack> =
            packs.iter().map(|pack| Pack { samples: vec![PackedSample::default(); pack.len()] }).collect();
        for ((chunk, partition), pieces) in by_file {
            let Some(tokens) = self.reduction.tokens.tokens(chunk, partition)? else { continue };
            for (at, place, piece) in pieces {
                let sample = self.sample(piece, &tokens);
                self.count(piece, &sample, result);
                if let Some(slot) = read.get_mut(at).and_then(|pack| pack.samples.get_mut(place)) {
                    *slot = sample;
                }
            }
        }
        Ok(read)
    }

    fn sample(&self, piece: &Piece, tokens: &StagedTokens) -> PackedSample {
        let (ids, runs) = tokens.sample(piece.sample.index as usize);
        let name = self.reduction.rules.name_of(piece.id());
        if piece.from == 0 && piece.to as usize == ids.len() {
            return PackedSample::new(name, ids, &runs);
        }
        let part = ids.get(piece.from as usize..piece.to as usize).unwrap_or_default().to_vec();
        PackedSample::new(name, part, &clip(&runs, piece.from, piece.to, piece.from))
    }

    fn count(&self, piece: &Piece, sample: &PackedSample, result: &mut PartitionResult) {
        let Some(source) = self.reduction.plan.sources.get(piece.row.source as usize) else { return };
        let source = &source.config.name;
        if piece.fragment > 0 {
            *result.fragments.entry(source.clone()).or_default() += 1;
        }
        let tokens = sample.ids.len() as u64;
        let entry = result.sources.entry(source.clone()).or_default();
        entry.samples += 1;
        entry.tokens += tokens;
        entry.trained += sample.trained_tokens();
        let lengths = result.lengths.entry(source.clone()).or_default();
        *lengths.entry(tokens.next_power_of_two().max(64)).or_default() += 1;
    }

    /// Writes the packs of one class as shards.
    fn write(
        &self,
        class: &ClassLayout,
        packs: Vec<Pack>,
        result: &mut PartitionResult,
    ) -> Result<(), RunError> {
        let most = self.reduction.plan.phase.output.shard_tokens;
        let length = self.packer.lengths().get(class.class).copied().unwrap_or_default();
        for pack in &packs {
            let capacity = self.packer.capacity(class.class, pack.samples.len());
            result.capacity += capacity;
            result.extremes = result.extremes.with(extremes(pack, &self.packer));
            let steps = ppm(pack.tokens(), capacity).div_ceil(FILL_STEP).max(1);
            *result.fills.entry(steps * FILL_STEP).or_default() += 1;
        }
        let options = self.reduction.shard_options();
        let several = self.packer.lengths().len() > 1;
        let split = class.split;
        let mut place =
            ShardPlace { split, class: several.then_some(length), partition: self.number, number: 0 };
        let mut packs = packs.into_iter().peekable();
        while packs.peek().is_some() {
            let path = options.format.path(place);
            let mut sink = ShardSink::create(self.reduction.out, &path, &options)?;
            while let Some(pack) =
                packs.next_if(|pack| sink.tokens() == 0 || sink.tokens() + pack.tokens() <= most)
            {
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
