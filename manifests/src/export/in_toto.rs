//! An in-toto statement: the shards as subjects, and a provenance predicate that names everything they
//! were made from, by digest.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::words::{benchmark_uri, file_uri, pinned};
use super::{DataSet, ExportError, Part, benchmarks};
use crate::canonical::{self, pretty_json};
use crate::digest::Digest;
use crate::manifest::Manifest;

const STATEMENT: &str = "https://in-toto.io/Statement/v1";
const PREDICATE: &str = "https://slsa.dev/provenance/v1";

/// Says what the parameters of the predicate mean: those of `potable prep`, version 1.
const BUILD: &str = "urn:potable:prep:1";

/// The statement as JSON: in-toto Statement v1 with a SLSA provenance v1 predicate. Subjects are the
/// shards by the SHA-256 of their files; `resolvedDependencies` are input files, benchmark files, the
/// blocklist, the vocabulary and the template.
///
/// # Errors
/// [`ExportError`] for a shard without a file digest.
pub fn in_toto(set: &DataSet) -> Result<String, ExportError> {
    let subjects =
        set.files()?.into_iter().map(|file| json!({ "name": file.path, "digest": sha256(file.sha256) }));
    let subjects: Vec<Value> = subjects.collect();
    let mut materials = BTreeMap::new();
    set.parts.iter().for_each(|part| add_materials(&part.manifest, &mut materials));
    let parts: Vec<Value> = set.parts.iter().map(external).collect();
    let internal: Vec<Value> = set.parts.iter().map(internal).collect();
    let byproducts: Vec<Vec<Value>> = set.parts.iter().map(byproducts).collect::<Result<_, _>>()?;
    let versions: Vec<&str> = set.manifests().map(|m| m.run.potable_version.as_str()).collect();
    let started = set.manifests().filter_map(|m| m.run.started.as_deref()).min();
    let mut metadata = Map::new();
    if let Some(started) = started {
        metadata.insert("startedOn".to_owned(), started.into());
    }
    let statement = json!({
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": { "name": set.name, "parts": parts },
                "internalParameters": { "parts": internal },
                "resolvedDependencies": materials.into_values().collect::<Vec<_>>(),
            },
            "runDetails": {
                "builder": { "id": "urn:potable", "version": { "potable": versions.first() } },
                "metadata": metadata,
                "byproducts": byproducts.concat(),
            },
        },
    });
    Ok(pretty_json(&statement)?)
}

fn sha256(digest: &Digest) -> Value {
    json!({ "sha256": digest.hex() })
}

/// What the user asked for.
fn external(part: &Part) -> Value {
    let recipe = &part.manifest.recipe;
    json!({
        "folder": part.folder,
        "recipe": part.manifest.run.recipe_text,
        "recipe_digest": recipe.digest,
        // Readers of predicates hold numbers as doubles.
        "seed": recipe.seed.to_string(),
        "settings": numbers_as_text(&recipe.settings),
    })
}

/// What potable decided.
fn internal(part: &Part) -> Value {
    let manifest = &part.manifest;
    let checks = &manifest.decontamination;
    json!({
        "folder": part.folder,
        "normalise": manifest.normalise,
        "decontaminate": { "ngram": checks.ngram.to_string(), "normaliser": checks.normaliser, "strict": checks.strict },
        "tokeniser": { "engine": manifest.tokeniser.engine, "format": manifest.tokeniser.format },
        "partitions": manifest.recipe.partitions.to_string(),
    })
}

fn numbers_as_text(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Array(items) => items.iter().map(numbers_as_text).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), numbers_as_text(value))).collect())
        }
        other => other.clone(),
    }
}

/// Materials by name and digest, so that one that several phases use stands once.
fn add_materials(manifest: &Manifest, materials: &mut BTreeMap<(String, String), Value>) {
    let mut add = |name: String, digest: &Digest, rest: Value| {
        let mut material = json!({ "name": name, "digest": sha256(digest) });
        if let (Value::Object(fields), Value::Object(rest)) = (&mut material, rest) {
            fields.extend(rest);
        }
        materials.insert((name, digest.to_string()), material);
    };
    for source in &manifest.inputs {
        let about = filled(json!({
            "corpus": source.corpus, "revision": source.revision, "config": source.config,
            "split": source.split, "licence": source.licence, "local": source.local,
        }));
        for file in &source.files {
            let mut about = about.clone();
            about.insert("verified".to_owned(), canonical::to_value(&file.verified).unwrap_or_default());
            let rest = json!({ "uri": file_uri(source, &file.name), "annotations": about });
            add(format!("{}/{}", source.name, file.name), &file.sha256, rest);
        }
    }
    for benchmark in benchmarks(manifest) {
        let about = filled(json!({
            "repo": benchmark.repo, "revision": pinned(benchmark.revision.as_deref()),
            "split": benchmark.split, "licence": benchmark.licence, "role": "benchmark",
        }));
        for file in &benchmark.files {
            let rest = json!({ "uri": benchmark_uri(benchmark, &file.name), "annotations": about });
            add(format!("benchmark {}/{}", benchmark.name, file.name), &file.sha256, rest);
        }
    }
    if let Some(digest) = &manifest.decontamination.blocklist_digest {
        add("blocklist".to_owned(), digest, json!({}));
    }
    let tokeniser = &manifest.tokeniser;
    add(format!("vocabulary {}", tokeniser.name), &tokeniser.vocabulary_digest, json!({}));
    add(format!("template {}", tokeniser.template), &tokeniser.template_digest, json!({}));
}

/// The fields that have a value.
fn filled(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

/// The manifest, and the files that it covers beside the shards.
fn byproducts(part: &Part) -> Result<Vec<Value>, ExportError> {
    let Part { folder, manifest } = part;
    let text = manifest.to_json()?;
    let others = &manifest.run.other_digests;
    let about = filled(json!({
        "manifest_digest": manifest.manifest_digest,
        "dropped_rows_digest": others.get("dropped"),
    }));
    let mut products = vec![json!({
        "name": format!("{folder}manifest.json"),
        "digest": sha256(&Digest::of(text.as_bytes())),
        "annotations": about,
    })];
    if let Some(lock) = others.get("recipe.lock") {
        products.push(json!({ "name": format!("{folder}recipe.lock"), "digest": sha256(lock) }));
    }
    Ok(products)
}
