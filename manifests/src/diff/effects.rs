//! Differences in what came out, and in the run itself.

use std::collections::BTreeMap;

use super::Weight::{self, Blocking, Informational, Material};
use super::collect::{Collector, Pair, Shown, exceeds, map_pairs, pairs, quote};
use super::{Thresholds, VersionStep};
use crate::canonical;
use crate::digest::Digest;
use crate::ledger::{RowLedger, SampleLedger};
use crate::manifest::{
    Decontamination, FileRecord, FillBucket, InputSource, LengthBucket, Manifest, ShardRecord, SourceMatches,
    SourceTokens, Split, TokenCounts, TokeniserRecord, ppm,
};

impl Shown for FileRecord {
    fn shown(&self) -> Option<String> {
        Some(format!("{}, {} bytes", self.sha256, self.size))
    }
}

impl Shown for ShardRecord {
    fn shown(&self) -> Option<String> {
        let Self { content_digest, length, packs, samples, tokens, trained, .. } = self;
        let split = split_word(self.split);
        Some(format!(
            "{content_digest}, {split}, {packs} packs of {length}, {samples} samples, \
             {tokens} tokens, {trained} trained"
        ))
    }
}

impl Shown for SourceMatches {
    fn shown(&self) -> Option<String> {
        let Self { dropped, reported } = self;
        Some(format!("{dropped} dropped, {reported} reported"))
    }
}

impl Shown for RowLedger {
    fn shown(&self) -> Option<String> {
        let dropped = total(&self.dropped);
        let Self { read, sampled_out, kept, failed, .. } = self;
        Some(format!(
            "{read} read, {kept} kept, {sampled_out} sampled out, {dropped} dropped, {failed} failed"
        ))
    }
}

impl Shown for SampleLedger {
    fn shown(&self) -> Option<String> {
        let dropped = total(&self.dropped);
        let Self { made, packed, sampled_out, .. } = self;
        Some(format!("{made} made, {packed} packed, {sampled_out} sampled out, {dropped} dropped"))
    }
}

/// Outputs that differ although everything that decides them is equal: the tool is not
/// deterministic, or somebody changed the shards. The encoder's version is no excuse, since the
/// same vocabulary must give the same ids.
pub(super) fn unexplained(found: &mut Collector, old: &Manifest, new: &Manifest) {
    if !same_causes(old, new) || same_outputs(old, new) {
        return;
    }
    found.area("determinism");
    let what = "outputs, though recipe digest, input files, blocklist, policies and vocabulary are equal";
    let shown = |manifest| Some(outputs_digest(manifest).to_string());
    found.push(Blocking, what, (shown(old), shown(new)));
}

pub(super) fn matches(found: &mut Collector, old: &Decontamination, new: &Decontamination) {
    found.area("matches");
    for pair in pairs((&old.benchmarks, &new.benchmarks), |benchmark| &benchmark.name) {
        let Pair { name, old: Some(old), new: Some(new) } = pair else {
            continue;
        };
        let dropped = format!("rows dropped for benchmark {name}");
        let threshold = found.thresholds.dropped_ppm;
        found.count(threshold, dropped, (&old.rows_dropped, &new.rows_dropped));
        let reported = format!("rows reported, not dropped, for benchmark {name}");
        found.count(threshold, reported, (&old.rows_reported, &new.rows_reported));
        for pair in map_pairs((&old.per_source, &new.per_source)) {
            // The sum over the sources is weighed above.
            let values = (&pair.old.copied(), &pair.new.copied());
            let what = format!("rows of source {} that match benchmark {name}", pair.name);
            found.field(Informational, what, values);
        }
    }
}

pub(super) fn acted(found: &mut Collector, old: &BTreeMap<String, u64>, new: &BTreeMap<String, u64>) {
    found.area("normalise");
    reasons(found, "turns where a policy acted:", (old, new));
}

pub(super) fn rows(
    found: &mut Collector,
    old: &BTreeMap<String, RowLedger>,
    new: &BTreeMap<String, RowLedger>,
) {
    found.area("rows");
    let sources = map_pairs((old, new));
    if sources.len() > 1 {
        let all = |rows: &BTreeMap<String, RowLedger>| {
            let mut all = RowLedger::default();
            rows.values().for_each(|ledger| all.merge(ledger));
            all
        };
        row_counts(found, "all sources", &all(old), &all(new));
    }
    for Pair { name, old, new } in sources {
        let of = format!("source {name}");
        match (old, new) {
            (Some(old), Some(new)) => row_counts(found, &of, old, new),
            (old, new) => {
                found.field(Material, format!("rows of {of}"), (&old.cloned(), &new.cloned()));
            }
        }
    }
}

pub(super) fn samples(
    found: &mut Collector,
    old: &BTreeMap<String, SampleLedger>,
    new: &BTreeMap<String, SampleLedger>,
) {
    found.area("samples");
    for Pair { name, old, new } in map_pairs((old, new)) {
        let of = format!("source {name}");
        match (old, new) {
            (Some(old), Some(new)) => sample_counts(found, &of, old, new),
            (old, new) => {
                found.field(Material, format!("samples of {of}"), (&old.cloned(), &new.cloned()));
            }
        }
    }
}

pub(super) fn tokens(found: &mut Collector, old: &TokenCounts, new: &TokenCounts) {
    found.area("tokens");
    let Thresholds { tokens_ppm, share_ppm, .. } = found.thresholds;
    found.count(tokens_ppm, "tokens", (&old.total, &new.total));
    found.count(tokens_ppm, "tokens trained on", (&old.trained, &new.trained));
    found.count(tokens_ppm, "packs", (&old.packs, &new.packs));
    found.count(tokens_ppm, "token places in packs", (&old.capacity, &new.capacity));
    let weight = material_if(old.fill_ppm.abs_diff(new.fill_ppm) > share_ppm);
    found.field(weight, "fill", (&percent(old.fill_ppm), &percent(new.fill_ppm)));
    for pair in map_pairs((&old.per_source, &new.per_source)) {
        let shown = |source: Option<&SourceTokens>, counts: &TokenCounts| {
            source.map(|source| mixture(source, counts.total))
        };
        let share = |source: Option<&SourceTokens>, counts: &TokenCounts| {
            source.map_or(0, |source| ppm(source.tokens, counts.total))
        };
        let moved = share(pair.old, old).abs_diff(share(pair.new, new)) > share_ppm;
        let weight = material_if(moved || pair.old.is_none() || pair.new.is_none());
        let values = (&shown(pair.old, old), &shown(pair.new, new));
        found.field(weight, format!("share of source {}", pair.name), values);
    }
    let histograms = (&old.length_histogram, &new.length_histogram);
    let shown = (&histogram(histograms.0), &histogram(histograms.1));
    // Other lengths and fills come with other tokens or shards, which are weighed.
    found.field(Informational, "lengths of samples", shown);
    for pair in map_pairs((&old.lengths_per_source, &new.lengths_per_source)) {
        let shown = |buckets: Option<&Vec<LengthBucket>>| {
            buckets.map(|buckets| histogram(buckets).unwrap_or_else(|| "none".to_owned()))
        };
        let values = (&shown(pair.old), &shown(pair.new));
        found.field(Informational, format!("lengths of samples of source {}", pair.name), values);
    }
    let fills = (&fills(&old.fill_histogram), &fills(&new.fill_histogram));
    found.field(Informational, "fill of packs", fills);
}

pub(super) fn shards(found: &mut Collector, old: &[ShardRecord], new: &[ShardRecord]) {
    found.area("shards");
    if contents(old) == contents(new) {
        let moved = old.iter().zip(new).enumerate().find(|(_, (old, new))| old != new);
        if let Some((index, (old, new))) = moved {
            let place = |shard: &ShardRecord| {
                let content = shard.shown().unwrap_or_default();
                Some(format!("{} at place {}: {content}", quote(&shard.path), index + 1))
            };
            let what = "paths or order of shards with equal content";
            found.push(Informational, what, (place(old), place(new)));
        }
        return;
    }
    for split in [Split::Train, Split::Validation] {
        let what = format!("{} shards", split_word(split));
        found.field(Material, what, (&count(old, split), &count(new, split)));
    }
    for pair in pairs((old, new), |shard| &shard.path) {
        let values = (&pair.old.cloned(), &pair.new.cloned());
        found.field(Material, format!("shard {}", pair.name), values);
    }
    found.order((Informational, "order of shards"), (old, new), |shard| &shard.path);
}

pub(super) fn run(found: &mut Collector, old: &Manifest, new: &Manifest) {
    found.area("run");
    let versions = (&old.run.potable_version, &new.run.potable_version);
    found.field(Informational, "potable version", versions);
    let content = |manifest: &Manifest, path: &str| {
        let shard = manifest.shards.iter().find(|shard| shard.path == path);
        shard.map(|shard| shard.content_digest.clone())
    };
    for (path, record) in &old.run.file_sha256 {
        let Some(other) = new.run.file_sha256.get(path) else {
            continue;
        };
        if record != other && content(old, path) == content(new, path) {
            let what = format!("bytes of {}, content equal", quote(path));
            found.field(Informational, what, (record, other));
        }
    }
    for pair in map_pairs((&old.run.other_digests, &new.run.other_digests)) {
        let values = (&pair.old.cloned(), &pair.new.cloned());
        found.field(Informational, format!("digest of {}", pair.name), values);
    }
}

fn row_counts(found: &mut Collector, of: &str, old: &RowLedger, new: &RowLedger) {
    let threshold = found.thresholds.rows_ppm;
    found.count(threshold, format!("rows read of {of}"), (&old.read, &new.read));
    found.count(threshold, format!("rows sampled out of {of}"), (&old.sampled_out, &new.sampled_out));
    found.count(threshold, format!("rows kept of {of}"), (&old.kept, &new.kept));
    found.count(0, format!("rows failed of {of}"), (&old.failed, &new.failed));
    reasons(found, &format!("rows dropped of {of} for"), (&old.dropped, &new.dropped));
    reasons(found, &format!("rows joined of {of} from"), (&old.joined, &new.joined));
    found.count(threshold, format!("rows repeated of {of}"), (&old.repeated, &new.repeated));
}

fn sample_counts(found: &mut Collector, of: &str, old: &SampleLedger, new: &SampleLedger) {
    let threshold = found.thresholds.rows_ppm;
    found.count(threshold, format!("samples made of {of}"), (&old.made, &new.made));
    found.count(threshold, format!("samples packed of {of}"), (&old.packed, &new.packed));
    found.count(threshold, format!("samples sampled out of {of}"), (&old.sampled_out, &new.sampled_out));
    found.count(threshold, format!("samples repeated of {of}"), (&old.repeated, &new.repeated));
    reasons(found, &format!("samples dropped of {of} for"), (&old.dropped, &new.dropped));
    let lost = (&old.tokens_lost, &new.tokens_lost);
    reasons(found, &format!("tokens lost of {of} for"), lost);
}

fn reasons(found: &mut Collector, what: &str, (old, new): (&BTreeMap<String, u64>, &BTreeMap<String, u64>)) {
    let threshold = found.thresholds.dropped_ppm;
    for pair in map_pairs((old, new)) {
        let count = |value: Option<&u64>| value.copied().unwrap_or_default();
        let weight = material_if(exceeds(threshold, count(pair.old), count(pair.new)));
        let values = (&pair.old.copied(), &pair.new.copied());
        found.field(weight, format!("{what} {}", pair.name), values);
    }
}

fn material_if(much: bool) -> Weight {
    if much { Material } else { Informational }
}

fn same_causes(old: &Manifest, new: &Manifest) -> bool {
    let recipe = |manifest: &Manifest| {
        let recipe = &manifest.recipe;
        (manifest.phase.clone(), recipe.digest.clone(), recipe.seed, recipe.partitions)
    };
    let checks = |manifest: &Manifest| {
        let checks = &manifest.decontamination;
        (checks.mode, checks.ngram, checks.strict, checks.normaliser.clone())
    };
    let same_source = |(old, new): (&InputSource, &InputSource)| {
        let content = |source: &InputSource| {
            let files = source.files.iter();
            let files: Vec<_> = files.map(|file| (file.name.clone(), file.sha256.clone())).collect();
            let joined = source.joins.iter().flat_map(|join| &join.files);
            let joined: Vec<_> = joined.map(|file| file.sha256.clone()).collect();
            (source.name.clone(), source.format.clone(), source.mapping.clone(), files, joined)
        };
        content(old) == content(new)
    };
    let engine = old.tokeniser.engine.clone();
    recipe(old) == recipe(new)
        && checks(old) == checks(new)
        && old.decontamination.blocklist_digest == new.decontamination.blocklist_digest
        && old.normalise == new.normalise
        && old.tokeniser == TokeniserRecord { engine, ..new.tokeniser.clone() }
        && old.inputs.len() == new.inputs.len()
        && old.inputs.iter().zip(&new.inputs).all(same_source)
}

fn same_outputs(old: &Manifest, new: &Manifest) -> bool {
    contents(&old.shards) == contents(&new.shards)
        && old.acted == new.acted
        && old.rows == new.rows
        && old.samples == new.samples
        && old.tokens == new.tokens
}

/// What the shards say of the version: the same data, the same and more, or other data.
pub(super) fn step(old: &[ShardRecord], new: &[ShardRecord]) -> VersionStep {
    let (old, new) = (contents(old), contents(new));
    if old == new {
        return VersionStep::Patch;
    }
    let mut left = new.iter().peekable();
    let kept = old.iter().all(|shard| {
        while left.next_if(|other| *other < shard).is_some() {}
        left.next_if(|other| *other == shard).is_some()
    });
    if kept { VersionStep::Minor } else { VersionStep::Major }
}

/// The shards without their paths, in an order of their own.
fn contents(shards: &[ShardRecord]) -> Vec<String> {
    let mut contents: Vec<_> = shards.iter().filter_map(Shown::shown).collect();
    contents.sort_unstable();
    contents
}

/// One digest for everything that [`same_outputs`] compares.
fn outputs_digest(manifest: &Manifest) -> Digest {
    let Manifest { acted, rows, samples, tokens, shards, .. } = manifest;
    let outputs = canonical::to_value(&(contents(shards), acted, rows, samples, tokens));
    let text = outputs.and_then(|outputs| canonical::canonical_json(&outputs));
    Digest::of(text.unwrap_or_default().as_bytes())
}

fn count(shards: &[ShardRecord], split: Split) -> usize {
    shards.iter().filter(|shard| shard.split == split).count()
}

fn split_word(split: Split) -> &'static str {
    match split {
        Split::Train => "train",
        Split::Validation => "validation",
    }
}

fn total(counts: &BTreeMap<String, u64>) -> u128 {
    counts.values().copied().map(u128::from).sum()
}

fn mixture(source: &SourceTokens, all: u64) -> String {
    let SourceTokens { samples, tokens, trained } = source;
    let share = percent(ppm(*tokens, all));
    format!("{share} of the tokens: {samples} samples, {tokens} tokens, {trained} trained")
}

fn percent(ppm: u64) -> String {
    format!("{}.{:04} %", ppm / 10_000, ppm % 10_000)
}

fn histogram(buckets: &[LengthBucket]) -> Option<String> {
    let buckets = buckets.iter().map(|bucket| format!("{} up to {}", bucket.count, bucket.upto));
    let buckets: Vec<_> = buckets.collect();
    (!buckets.is_empty()).then(|| buckets.join(", "))
}

fn fills(buckets: &[FillBucket]) -> Option<String> {
    let buckets = buckets.iter().map(|bucket| format!("{} up to {}", bucket.packs, percent(bucket.upto_ppm)));
    let buckets: Vec<_> = buckets.collect();
    (!buckets.is_empty()).then(|| buckets.join(", "))
}
