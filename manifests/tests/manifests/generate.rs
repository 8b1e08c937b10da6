use std::collections::BTreeMap;

use potable_manifests::{
    BenchmarkRecord, Decontamination, DecontaminationMode, Digest, FileDigest, FileRecord, FillBucket,
    InputFile, InputSource, JoinedInput, LengthBucket, Manifest, RecipeRecord, RowLedger, RunBlock, SCHEMA,
    SampleLedger, ShardRecord, SourceMatches, SourceTokens, Split, TokenCounts, TokeniserRecord, Verified,
    ppm,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

/// The committed manifest of version 1, as JSON.
pub const V1: &str = include_str!("../../compat/v1.json");

/// The committed manifest of version 1.
pub fn v1() -> Manifest {
    Manifest::from_slice(V1.as_bytes()).expect("a manifest of version 1")
}

/// `manifest` sealed.
pub fn sealed(manifest: Manifest) -> Manifest {
    manifest.seal().expect("no floats in it")
}

/// JSON without floats, for settings and mappings.
pub fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(name(), inner, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Sealed manifests with few different names, so that two of them have much in common.
pub fn manifest() -> impl Strategy<Value = Manifest> {
    let causes = (name(), option::of(name()), recipe(), vec(source(), 0..3), checks(), tokeniser());
    let policies = btree_map("control_text|history|[ab]", "drop|text|keep", 0..3);
    let effects = (
        counts(),
        btree_map(name(), rows(), 0..3),
        btree_map(name(), samples(), 0..3),
        tokens(),
        vec(shard(), 0..3),
        run(),
    );
    (causes, policies, effects).prop_map(|(causes, normalise, effects)| {
        let (name, phase, recipe, inputs, decontamination, tokeniser) = causes;
        let (acted, rows, samples, tokens, shards, run) = effects;
        sealed(Manifest {
            schema: SCHEMA.to_owned(),
            manifest_digest: Digest::zero(),
            name,
            phase,
            recipe,
            inputs,
            decontamination,
            tokeniser,
            normalise,
            acted,
            rows,
            samples,
            tokens,
            shards,
            run,
        })
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[ab]", 1 => "\\PC{0,3}", 1 => "[`|/\n\u{202e}]{1,2}"]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..3, 1 => 0_u64..1 << 40]
}

fn digest() -> impl Strategy<Value = Digest> {
    (0_u8..3).prop_map(|seed| Digest::of(&[seed]))
}

fn counts() -> impl Strategy<Value = BTreeMap<String, u64>> {
    btree_map(name(), count(), 0..3)
}

fn recipe() -> impl Strategy<Value = RecipeRecord> {
    (any::<u64>(), digest(), json(), count()).prop_map(|(seed, digest, settings, partitions)| RecipeRecord {
        seed,
        digest,
        settings,
        partitions,
    })
}

fn source() -> impl Strategy<Value = InputSource> {
    let texts = (name(), option::of(name()), option::of("[01]{40}"), option::of(name()));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let lists = (vec(file(), 0..3), vec(join(), 0..3));
    (texts, flags, option::of(name()), name(), json(), lists).prop_map(
        |(texts, flags, licence, format, mapping, (files, joins))| InputSource {
            name: texts.0,
            corpus: texts.1,
            revision: texts.2,
            config: texts.3,
            split: licence.clone(),
            licence,
            gated: flags.0,
            eval_split: flags.1,
            local: flags.2,
            format,
            mapping,
            files,
            joins,
        },
    )
}

fn join() -> impl Strategy<Value = JoinedInput> {
    let texts = (name(), option::of(name()), option::of("[01]{40}"), option::of(name()), option::of(name()));
    (texts, any::<bool>(), count(), vec(file(), 0..3)).prop_map(|(texts, local, rows, files)| JoinedInput {
        name: texts.0,
        corpus: texts.1,
        revision: texts.2,
        config: texts.3.clone(),
        split: texts.3,
        licence: texts.4,
        local,
        rows,
        files,
    })
}

fn file() -> impl Strategy<Value = InputFile> {
    let verified = prop_oneof![Just(Verified::Whole), Just(Verified::Ranges)];
    (name(), count(), digest(), option::of(count()), verified, digest()).prop_map(
        |(name, size, sha256, rows, verified, ranges)| InputFile {
            name,
            size,
            sha256,
            rows,
            verified,
            ranges_digest: (verified == Verified::Ranges).then_some(ranges),
        },
    )
}

fn checks() -> impl Strategy<Value = Decontamination> {
    let mode = prop_oneof![Just(DecontaminationMode::Blocklist), Just(DecontaminationMode::None)];
    let benchmarks = vec(benchmark(), 0..3);
    (mode, 8_u64..14, name(), option::of(digest()), any::<bool>(), benchmarks).prop_map(
        |(mode, ngram, normaliser, blocklist_digest, strict, benchmarks)| Decontamination {
            mode,
            ngram,
            normaliser,
            blocklist_digest,
            strict,
            benchmarks,
        },
    )
}

fn benchmark() -> impl Strategy<Value = BenchmarkRecord> {
    let files = vec((name(), count(), digest()), 0..3);
    let matches = (count(), count()).prop_map(|(dropped, reported)| SourceMatches { dropped, reported });
    let matches = btree_map(name(), matches, 0..3);
    (name(), option::of(name()), any::<bool>(), files, vec(count(), 6), matches).prop_map(
        |(name, text, sensitive, files, counts, per_source)| BenchmarkRecord {
            name,
            repo: text.clone(),
            revision: text.clone(),
            config: text.clone(),
            split: text.clone(),
            where_: text.clone(),
            licence: text,
            sensitive,
            files: files.into_iter().map(|(name, size, sha256)| FileDigest { name, size, sha256 }).collect(),
            items: counts[0],
            protected_ngram: counts[1],
            protected_short: counts[2],
            protected_near: counts[2].checked_sub(1),
            not_protected: counts[3],
            rows_dropped: counts[4],
            rows_reported: counts[5],
            per_source,
        },
    )
}

fn tokeniser() -> impl Strategy<Value = TokeniserRecord> {
    (name(), name(), digest(), count(), digest()).prop_map(
        |(name, engine, vocabulary_digest, vocabulary_size, template_digest)| TokeniserRecord {
            template: name.clone(),
            format: name.clone(),
            name,
            engine,
            vocabulary_digest,
            vocabulary_size,
            template_digest,
        },
    )
}

/// Ledgers that balance.
pub fn rows() -> impl Strategy<Value = RowLedger> {
    let beside = (counts(), count());
    (count(), count(), count(), counts(), beside).prop_map(|(sampled_out, kept, failed, dropped, beside)| {
        let read = sampled_out + kept + failed + dropped.values().sum::<u64>();
        let (joined, repeated) = beside;
        RowLedger { read, sampled_out, kept, failed, dropped, joined, repeated }
    })
}

/// Ledgers that balance.
pub fn samples() -> impl Strategy<Value = SampleLedger> {
    let counted = (count(), count(), count());
    (counted, counts(), counts()).prop_map(|((own, repeated, sampled_out), dropped, tokens_lost)| {
        let made = own + sampled_out + dropped.values().sum::<u64>();
        SampleLedger { made, packed: own + repeated, sampled_out, repeated, dropped, tokens_lost }
    })
}

fn tokens() -> impl Strategy<Value = TokenCounts> {
    let source = (count(), count(), count()).prop_map(|(samples, tokens, trained)| SourceTokens {
        samples,
        tokens,
        trained,
    });
    let bucket = || (count(), count()).prop_map(|(upto, count)| LengthBucket { upto, count });
    let fill = (count(), count()).prop_map(|(upto_ppm, packs)| FillBucket { upto_ppm, packs });
    let mixture = btree_map(name(), source, 0..3);
    let histograms = (vec(bucket(), 0..3), btree_map(name(), vec(bucket(), 0..3), 0..2), vec(fill, 0..3));
    (count(), count(), count(), count(), mixture, histograms).prop_map(
        |(total, trained, packs, capacity, per_source, histograms)| TokenCounts {
            total,
            trained,
            packs,
            capacity,
            fill_ppm: ppm(total, capacity),
            per_source,
            length_histogram: histograms.0,
            lengths_per_source: histograms.1,
            fill_histogram: histograms.2,
        },
    )
}

fn shard() -> impl Strategy<Value = ShardRecord> {
    let split = prop_oneof![Just(Split::Train), Just(Split::Validation)];
    (name(), split, digest(), vec(count(), 5)).prop_map(|(path, split, content_digest, counts)| ShardRecord {
        path,
        split,
        length: counts[0],
        content_digest,
        packs: counts[1],
        samples: counts[2],
        tokens: counts[3],
        trained: counts[4],
    })
}

fn run() -> impl Strategy<Value = RunBlock> {
    let record = (digest(), count()).prop_map(|(sha256, size)| FileRecord { sha256, size });
    let files = btree_map(name(), record, 0..3);
    (name(), files, option::of(name()), count(), btree_map(name(), digest(), 0..3)).prop_map(
        |(potable_version, file_sha256, text, threads, other_digests)| RunBlock {
            potable_version,
            file_sha256,
            recipe_text: text.clone(),
            started: text.clone(),
            duration_ms: Some(threads),
            host: text,
            threads,
            other_digests,
        },
    )
}
