//! What shards hold, read again from their bytes.

use std::collections::BTreeMap;
use std::path::Path;

use potable_manifests::{Manifest, ShardRecord, SourceTokens};

use super::problem::{Fault, Problem};
use crate::pack::Pack;
use crate::recipe::file::ShardFormat;
use crate::shard::Content;
use crate::shard::format::Row;
use crate::shard::read;

/// Counts of packs by source and length, as the manifest has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packs.
    pub packs: u64,
    /// Samples, tokens and trained tokens by source.
    pub sources: BTreeMap<String, SourceTokens>,
    /// Samples by the power of two above their length.
    pub lengths: BTreeMap<u64, u64>,
}

impl Tally {
    /// Adds the next pack.
    pub fn add(&mut self, pack: &Pack) {
        self.packs += 1;
        for sample in &pack.samples {
            let source = sample.name.split('/').next().unwrap_or_default();
            let tokens = sample.ids.len() as u64;
            if !self.sources.contains_key(source) {
                self.sources.insert(source.to_owned(), SourceTokens::default());
            }
            if let Some(counts) = self.sources.get_mut(source) {
                counts.samples += 1;
                counts.tokens += tokens;
                counts.trained += sample.trained_tokens();
            }
            *self.lengths.entry(bucket(tokens)).or_default() += 1;
        }
    }

    /// Adds the counts of other shards.
    pub fn merge(&mut self, other: &Tally) {
        self.packs += other.packs;
        for (name, more) in &other.sources {
            let counts = self.sources.entry(name.clone()).or_default();
            counts.samples += more.samples;
            counts.tokens += more.tokens;
            counts.trained += more.trained;
        }
        for (upto, more) in &other.lengths {
            *self.lengths.entry(*upto).or_default() += more;
        }
    }

    /// Samples of all sources.
    pub fn samples(&self) -> u64 {
        self.sources.values().map(|source| source.samples).sum()
    }

    /// Tokens of all sources.
    pub fn tokens(&self) -> u64 {
        self.sources.values().map(|source| source.tokens).sum()
    }

    /// Trained tokens of all sources.
    pub fn trained(&self) -> u64 {
        self.sources.values().map(|source| source.trained).sum()
    }

    /// Where the mixture and the lengths of the manifest are not those of the shards.
    pub fn against(&self, manifest: &Manifest) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut count = |what: String, found: u64, stated: u64| {
            if found != stated {
                problems.push(Problem::new("shards", Fault::Count { what, found, stated }));
            }
        };
        let none = SourceTokens::default();
        let stated = &manifest.tokens.per_source;
        let names: std::collections::BTreeSet<&String> = self.sources.keys().chain(stated.keys()).collect();
        for name in names {
            let (found, stated) =
                (self.sources.get(name).unwrap_or(&none), stated.get(name).unwrap_or(&none));
            count(format!("samples of source `{name}`"), found.samples, stated.samples);
            count(format!("tokens of source `{name}`"), found.tokens, stated.tokens);
            count(format!("trained tokens of source `{name}`"), found.trained, stated.trained);
        }
        let buckets = manifest.tokens.length_histogram.iter().map(|bucket| (bucket.upto, bucket.count));
        let stated: BTreeMap<u64, u64> = buckets.collect();
        let lengths: std::collections::BTreeSet<&u64> = self.lengths.keys().chain(stated.keys()).collect();
        for upto in lengths {
            let of = |map: &BTreeMap<u64, u64>| map.get(upto).copied().unwrap_or_default();
            count(format!("samples of up to {upto} tokens"), of(&self.lengths), of(&stated));
        }
        problems
    }
}

/// The step of the histogram of lengths that a sample belongs to.
pub fn bucket(tokens: u64) -> u64 {
    tokens.next_power_of_two().max(64)
}

/// The shard format that a manifest states.
pub fn format_of(manifest: &Manifest) -> Option<ShardFormat> {
    let format = manifest.recipe.settings.pointer("/output/format")?;
    ShardFormat::of_name(format.as_str()?)
}

/// Reads a shard again and compares it with its record.
pub fn check(dir: &Path, format: ShardFormat, record: &ShardRecord) -> (Tally, Vec<Problem>) {
    let mut tally = Tally::default();
    let mut content = Content::new();
    let unreadable = |tally: &Tally, e: &dyn std::error::Error| {
        let reason = reason(e);
        (tally.clone(), vec![Problem::new(&record.path, Fault::Unreadable { reason })])
    };
    let packs = match read::open(dir, format, &record.path) {
        Ok(packs) => packs,
        Err(e) => return unreadable(&tally, &e),
    };
    let mut problems = Vec::new();
    for pack in packs {
        let pack = match pack {
            Ok(pack) => pack,
            Err(e) => return unreadable(&tally, &e),
        };
        let room = record.length + u64::from(format.uncounted()) * pack.samples.len() as u64;
        if pack.tokens() > room && format.row() == Row::Pack {
            let rule = format!("{} tokens in a pack of {room}", pack.tokens());
            problems.push(Problem::new(&record.path, Fault::Pack { row: tally.packs, rule }));
        }
        content.add(&pack);
        tally.add(&pack);
    }
    let found = content.finish();
    for (what, found, stated) in [
        ("packs", found.packs, record.packs),
        ("samples", found.samples, record.samples),
        ("tokens", found.tokens, record.tokens),
        ("trained tokens", found.trained, record.trained),
    ] {
        if found != stated {
            let what = what.to_owned();
            problems.push(Problem::new(&record.path, Fault::Count { what, found, stated }));
        }
    }
    if found.digest != record.content_digest {
        let stated = record.content_digest.clone();
        let fault = Fault::Content { what: "samples", found: found.digest, stated };
        problems.push(Problem::new(&record.path, fault));
    }
    (tally, problems)
}

/// An error and its causes in one line.
pub fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
