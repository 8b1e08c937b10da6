//! Whether the counts of a manifest add up among themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::canonical::canonical_json;
use crate::digest::Digest;
use crate::ledger::LedgerError;
use crate::manifest::{BenchmarkRecord, DecontaminationMode, Manifest, SourceTokens, ppm};

/// Two places of a manifest that say different things.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistency {
    /// A ledger that does not balance.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A count that is not the sum of its parts.
    #[error("{what} do not add up: stated `{stated}`, the parts make `{parts}`")]
    Sum {
        /// What is counted.
        what: String,
        /// The number that the manifest states.
        stated: u128,
        /// What its parts make.
        parts: u128,
    },
    /// A name that one part of the manifest has and another lacks.
    #[error("`{name}` stands in {there}, but not in {absent}")]
    Name {
        /// A source or a path.
        name: String,
        /// The part that has it.
        there: &'static str,
        /// The part that lacks it.
        absent: &'static str,
    },
    /// The recipe's digest is not the one of its settings.
    #[error("the recipe's settings have the digest `{computed}`, stated is `{stated}`")]
    Recipe {
        /// What the manifest states.
        stated: Digest,
        /// The digest of `settings`.
        computed: Digest,
    },
    /// A field that repeats a setting of the recipe, and differs from it.
    #[error("`{field}` is `{stated}`, the recipe's settings say `{setting}`")]
    Setting {
        /// The field of the manifest.
        field: &'static str,
        /// What it states.
        stated: String,
        /// What the settings say.
        setting: String,
    },
    /// A blocklist without benchmarks, or the reverse.
    #[error("decontamination is `{mode}`, which does not go with {found}")]
    Decontamination {
        /// The mode.
        mode: &'static str,
        /// What the manifest says besides.
        found: &'static str,
    },
}

impl Manifest {
    /// Every place where the manifest contradicts itself, in the order of its fields; empty if all
    /// counts add up. No file is read.
    pub fn inconsistencies(&self) -> Vec<Inconsistency> {
        let mut found = Found::default();
        found.recipe(self);
        found.settings(self);
        found.decontamination(self);
        found.names(self);
        found.ledgers(self);
        found.tokens(self);
        found.shards(self);
        found.list
    }
}

#[derive(Default)]
struct Found {
    list: Vec<Inconsistency>,
}

impl Found {
    fn sum(&mut self, what: impl Into<String>, stated: impl Into<u128>, parts: impl Into<u128>) {
        let (stated, parts) = (stated.into(), parts.into());
        if stated != parts {
            self.list.push(Inconsistency::Sum { what: what.into(), stated, parts });
        }
    }

    /// Names of `there` that `absent` lacks.
    fn lacking(
        &mut self,
        (there, names): (&'static str, &BTreeSet<&str>),
        (absent, others): (&'static str, &BTreeSet<&str>),
    ) {
        for name in names.difference(others) {
            self.list.push(Inconsistency::Name { name: (*name).to_owned(), there, absent });
        }
    }

    fn recipe(&mut self, manifest: &Manifest) {
        let stated = &manifest.recipe.digest;
        if let Ok(settings) = canonical_json(&manifest.recipe.settings) {
            let computed = Digest::of(settings.as_bytes());
            if *stated != computed {
                self.list.push(Inconsistency::Recipe { stated: stated.clone(), computed });
            }
        }
    }

    /// Fields that repeat what the settings say; those that the settings lack are not judged.
    fn settings(&mut self, manifest: &Manifest) {
        let (recipe, checks) = (&manifest.recipe, &manifest.decontamination);
        let fields = [
            ("recipe.seed", "/seed", recipe.seed.to_string()),
            ("decontamination.ngram", "/decontaminate/ngram", checks.ngram.to_string()),
            ("decontamination.strict", "/decontaminate/strict", checks.strict.to_string()),
        ];
        for (field, pointer, stated) in fields {
            let setting = recipe.settings.pointer(pointer).map(ToString::to_string);
            if let Some(setting) = setting.filter(|setting| *setting != stated) {
                self.list.push(Inconsistency::Setting { field, stated, setting });
            }
        }
    }

    fn decontamination(&mut self, manifest: &Manifest) {
        let checks = &manifest.decontamination;
        let fault = match (checks.mode, checks.blocklist_digest.is_some(), checks.benchmarks.is_empty()) {
            (DecontaminationMode::Blocklist, false, _) => Some(("blocklist", "a missing blocklist digest")),
            (DecontaminationMode::Blocklist, _, true) => Some(("blocklist", "an empty list of benchmarks")),
            (DecontaminationMode::None, true, _) => Some(("none", "a blocklist digest")),
            (DecontaminationMode::None, _, false) => Some(("none", "a list of benchmarks")),
            _ => None,
        };
        if let Some((mode, found)) = fault {
            self.list.push(Inconsistency::Decontamination { mode, found });
        }
        for benchmark in &checks.benchmarks {
            let protected = u128::from(benchmark.protected_ngram) + u128::from(benchmark.protected_short);
            let parts = protected + u128::from(benchmark.not_protected);
            self.sum(format!("items of benchmark `{}`", benchmark.name), benchmark.items, parts);
            self.matches(benchmark);
        }
    }

    fn matches(&mut self, benchmark: &BenchmarkRecord) {
        let sources = benchmark.per_source.values();
        let (dropped, reported) = sources.fold((0, 0), |sum, source| {
            (sum.0 + u128::from(source.dropped), sum.1 + u128::from(source.reported))
        });
        // Manifests of the first potable have no counts by source.
        if !benchmark.per_source.is_empty() {
            self.sum(
                format!("rows dropped for benchmark `{}`", benchmark.name),
                benchmark.rows_dropped,
                dropped,
            );
            self.sum(
                format!("rows reported for benchmark `{}`", benchmark.name),
                benchmark.rows_reported,
                reported,
            );
        }
    }

    /// Each source has both ledgers; what is packed has a source.
    fn names(&mut self, manifest: &Manifest) {
        let inputs: BTreeSet<&str> = manifest.inputs.iter().map(|source| source.name.as_str()).collect();
        let inputs = ("the inputs", &inputs);
        let rows = keys(&manifest.rows);
        let samples = keys(&manifest.samples);
        let mixture = keys(&manifest.tokens.per_source);
        for other in [("the ledger of rows", &rows), ("the ledger of samples", &samples)] {
            self.lacking(inputs, other);
            self.lacking(other, inputs);
        }
        self.lacking(("the mixture", &mixture), inputs);
        let shards: BTreeSet<&str> = manifest.shards.iter().map(|shard| shard.path.as_str()).collect();
        let files = keys(&manifest.run.file_sha256);
        self.lacking(("the shards", &shards), ("the digests of files", &files));
        self.sum("shards of different paths", manifest.shards.len() as u64, shards.len() as u64);
    }

    fn ledgers(&mut self, manifest: &Manifest) {
        let rows = manifest.rows.iter().filter_map(|(name, ledger)| ledger.balance(name).err());
        self.list.extend(rows.map(Inconsistency::from));
        let samples = manifest.samples.iter().filter_map(|(name, ledger)| ledger.balance(name).err());
        self.list.extend(samples.map(Inconsistency::from));
        for (name, ledger) in &manifest.samples {
            let packed = manifest.tokens.per_source.get(name).map_or(0, |source| source.samples);
            self.sum(format!("samples packed of source `{name}`"), ledger.packed, packed);
        }
    }

    fn tokens(&mut self, manifest: &Manifest) {
        let tokens = &manifest.tokens;
        let sum = |field: fn(&SourceTokens) -> u64| -> u128 {
            tokens.per_source.values().map(|source| u128::from(field(source))).sum()
        };
        self.sum("tokens of the sources", tokens.total, sum(|source| source.tokens));
        self.sum("trained tokens of the sources", tokens.trained, sum(|source| source.trained));
        let lengths = tokens.length_histogram.iter().map(|bucket| u128::from(bucket.count)).sum::<u128>();
        self.sum("samples by length", sum(|source| source.samples), lengths);
        if !tokens.lengths_per_source.is_empty() {
            let buckets = tokens.lengths_per_source.values().flatten();
            let parts = buckets.map(|bucket| u128::from(bucket.count)).sum::<u128>();
            self.sum("samples by source and length", lengths, parts);
        }
        if !tokens.fill_histogram.is_empty() {
            let packs = tokens.fill_histogram.iter().map(|bucket| u128::from(bucket.packs)).sum::<u128>();
            self.sum("packs by fill", tokens.packs, packs);
        }
        self.sum("parts per million of fill", tokens.fill_ppm, ppm(tokens.total, tokens.capacity));
    }

    fn shards(&mut self, manifest: &Manifest) {
        let tokens = &manifest.tokens;
        let sum = |field: &dyn Fn(&crate::manifest::ShardRecord) -> u128| -> u128 {
            manifest.shards.iter().map(field).sum()
        };
        self.sum("packs of the shards", tokens.packs, sum(&|shard| u128::from(shard.packs)));
        self.sum("tokens of the shards", tokens.total, sum(&|shard| u128::from(shard.tokens)));
        self.sum("trained tokens of the shards", tokens.trained, sum(&|shard| u128::from(shard.trained)));
        let places = sum(&|shard| u128::from(shard.packs) * u128::from(shard.length));
        let samples: u128 = tokens.per_source.values().map(|source| u128::from(source.samples)).sum();
        // In some formats one token of each sample takes no place; which, the shards' reader knows.
        if u128::from(tokens.capacity) != places + samples {
            self.sum("token places of the shards", tokens.capacity, places);
        }
        self.sum("samples of the shards", samples, sum(&|shard| u128::from(shard.samples)));
    }
}

fn keys<T>(map: &BTreeMap<String, T>) -> BTreeSet<&str> {
    map.keys().map(String::as_str).collect()
}
