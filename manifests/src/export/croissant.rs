//! MLCommons Croissant 1.1, with the fields of its RAI extension that a manifest can answer.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::words::{counted, grouped, hub_page, percent, pinned};
use super::{DataSet, ExportError, Part, Publication, benchmarks, contaminated, globs, has_packs, splits};
use crate::canonical::pretty_json;
use crate::manifest::{InputSource, Split, ppm};

const CROISSANT: &str = "http://mlcommons.org/croissant/1.1";
const RAI: &str = "http://mlcommons.org/croissant/RAI/1.0";

/// Columns of a Parquet shard: name, Croissant type, what they hold.
const COLUMNS: [(&str, &str, &str); 4] = [
    ("input_ids", "sc:Integer", "Token ids of the samples of the pack, one after the other."),
    ("labels", "sc:Integer", "The same ids, not shifted; -100 where no loss is taken."),
    ("seq_lengths", "sc:Integer", "Length of each sample, in tokens."),
    ("sample_ids", "sc:Text", "Source, file and row that each sample was made from."),
];

/// The description as JSON-LD. What only the publisher knows is left out where `publication` lacks it.
///
/// # Errors
/// [`ExportError`] for a shard without a file digest.
pub fn croissant(set: &DataSet, publication: &Publication) -> Result<String, ExportError> {
    let mut document = json!({
        "@context": context(),
        "@type": "sc:Dataset",
        "conformsTo": [CROISSANT, RAI],
        "name": set.name,
        "description": description(set),
        "license": licences(set),
        "version": version(set, publication),
        "citeAs": citation(set, publication),
        "keywords": ["language model training", "pre-tokenized", "packed", "potable"],
        "distribution": distribution(set)?,
        "recordSet": record_sets(set),
        "prov:wasDerivedFrom": set.sources().map(derived_from).collect::<Vec<_>>(),
        "prov:wasGeneratedBy": generated_by(set),
    });
    if let Value::Object(fields) = &mut document {
        fields.extend(rai(set));
        fields.extend(published(set, publication));
    }
    Ok(pretty_json(&document)?)
}

/// The context that the specification recommends, and PROV.
fn context() -> Value {
    let croissant = [
        "arrayShape",
        "citeAs",
        "column",
        "containedIn",
        "equivalentProperty",
        "extract",
        "field",
        "fileProperty",
        "fileObject",
        "fileSet",
        "format",
        "includes",
        "isArray",
        "isLiveDataset",
        "jsonPath",
        "key",
        "md5",
        "parentField",
        "path",
        "recordSet",
        "references",
        "regex",
        "repeated",
        "replace",
        "samplingRate",
        "separator",
        "source",
        "subField",
        "transform",
    ];
    let mut context = json!({
        "@language": "en",
        "@vocab": "https://schema.org/",
        "conformsTo": "dct:conformsTo",
        "cr": "http://mlcommons.org/croissant/",
        "data": { "@id": "cr:data", "@type": "@json" },
        "dataType": { "@id": "cr:dataType", "@type": "@vocab" },
        "dct": "http://purl.org/dc/terms/",
        "description": { "@container": "@language" },
        "examples": { "@id": "cr:examples", "@type": "@json" },
        "name": { "@container": "@language" },
        "prov": "http://www.w3.org/ns/prov#",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "sc": "https://schema.org/",
    });
    if let Value::Object(fields) = &mut context {
        fields.extend(croissant.map(|name| (name.to_owned(), Value::from(format!("cr:{name}")))));
    }
    context
}

fn description(set: &DataSet) -> String {
    let names: BTreeSet<&str> =
        set.sources().map(|source| source.corpus.as_deref().unwrap_or(&source.name)).collect();
    let names: Vec<&str> = names.into_iter().collect();
    format!(
        "Training shards of token ids made from {}: {} in {}, {} trained on. Manifest {}.",
        names.join(", "),
        counted(set.sum(|m| m.tokens.total), "token"),
        counted(set.sum(|m| m.tokens.packs), "pack"),
        grouped(set.sum(|m| m.tokens.trained)),
        set.digest(),
    )
}

/// Addresses of known licences; the words of the corpus for any other.
fn licences(set: &DataSet) -> Vec<String> {
    const SPDX: [(&str, &str); 14] = [
        ("apache-2.0", "Apache-2.0"),
        ("mit", "MIT"),
        ("cc-by-4.0", "CC-BY-4.0"),
        ("cc-by-sa-3.0", "CC-BY-SA-3.0"),
        ("cc-by-sa-4.0", "CC-BY-SA-4.0"),
        ("cc-by-nc-4.0", "CC-BY-NC-4.0"),
        ("cc-by-nc-sa-4.0", "CC-BY-NC-SA-4.0"),
        ("cc0-1.0", "CC0-1.0"),
        ("odc-by", "ODC-By-1.0"),
        ("odc-by-1.0", "ODC-By-1.0"),
        ("afl-3.0", "AFL-3.0"),
        ("gpl-3.0", "GPL-3.0-only"),
        ("bsd-3-clause", "BSD-3-Clause"),
        ("unlicense", "Unlicense"),
    ];
    let address = |licence: &str| {
        let known = SPDX.iter().find(|(name, _)| name.eq_ignore_ascii_case(licence));
        known.map_or(licence.to_owned(), |(_, id)| format!("https://spdx.org/licenses/{id}.html"))
    };
    set.licences().into_iter().map(address).collect()
}

/// The publisher's version, else 0.0.0; the digest as build metadata either way.
fn version(set: &DataSet, publication: &Publication) -> String {
    let digest = set.digest();
    let short = digest.short().trim_start_matches("sha256:").to_owned();
    format!("{}+sha256.{short}", publication.version.as_deref().unwrap_or("0.0.0"))
}

fn citation(set: &DataSet, publication: &Publication) -> String {
    let safe = |text: &str| text.replace(['{', '}', '\\'], "");
    let creator = publication.creator.as_deref();
    let author = creator.map_or(String::new(), |name| format!("author = {{{}}}, ", safe(name)));
    let key: String = set.name.chars().filter(char::is_ascii_alphanumeric).collect();
    format!(
        "@misc{{{key}, {author}title = {{{}}}, note = {{Training shards, manifest {}}}}}",
        safe(&set.name),
        set.digest()
    )
}

/// What the publisher says, and the day of the run.
fn published(set: &DataSet, publication: &Publication) -> Map<String, Value> {
    let started = set.manifests().filter_map(|m| m.run.started.as_deref()).max();
    let day = |time: &str| time.get(..10).map(str::to_owned);
    let date = publication.date.clone().or_else(|| started.and_then(day));
    let mut fields = Map::new();
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(key.to_owned(), value);
        }
    };
    add("url", publication.url.clone().map(Value::from));
    let creator = publication.creator.as_ref();
    add("creator", creator.map(|name| json!({ "@type": "sc:Organization", "name": name })));
    add("datePublished", date.map(Value::from));
    add("dateCreated", started.and_then(day).map(Value::from));
    fields
}

fn distribution(set: &DataSet) -> Result<Vec<Value>, ExportError> {
    let mut objects = Vec::new();
    for file in set.files()? {
        objects.push(json!({
            "@type": "cr:FileObject",
            "@id": file.path,
            "name": file.path,
            "contentUrl": file.path,
            "contentSize": format!("{} B", file.size),
            "encodingFormat": encoding(&file.path),
            "sha256": file.sha256.hex(),
        }));
    }
    for part in set.parts.iter().filter(|part| has_packs(part)) {
        let includes: Vec<String> =
            splits(&part.manifest).into_iter().flat_map(|(split, _)| globs(part, split)).collect();
        objects.push(json!({
            "@type": "cr:FileSet",
            "@id": file_set(part),
            "name": file_set(part),
            "description": "All shards.",
            "encodingFormat": encoding(".parquet"),
            "includes": includes,
        }));
    }
    Ok(objects)
}

fn file_set(part: &Part) -> String {
    format!("{}all-shards", part.folder)
}

fn encoding(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("parquet") => "application/x-parquet",
        Some("jsonl") => "application/jsonlines",
        Some("arrow") => "application/vnd.apache.arrow.file",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

/// The splits, and a record set a part whose records are the packs.
fn record_sets(set: &DataSet) -> Vec<Value> {
    let parts: Vec<&Part> = set.parts.iter().filter(|part| has_packs(part)).collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let url = |split: Split| match split {
        Split::Train => "cr:TrainingSplit",
        Split::Validation => "cr:ValidationSplit",
    };
    let mut names = BTreeSet::new();
    for (split, name) in parts.iter().flat_map(|part| splits(&part.manifest)) {
        names.insert((split, name));
    }
    let data =
        names.into_iter().map(|(split, name)| json!({ "splits/name": name, "splits/url": url(split) }));
    let mut sets = vec![json!({
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "dataType": "cr:Split",
        "key": { "@id": "splits/name" },
        "field": [
            { "@type": "cr:Field", "@id": "splits/name", "name": "name", "dataType": "sc:Text" },
            { "@type": "cr:Field", "@id": "splits/url", "name": "url", "dataType": "sc:URL" },
        ],
        "data": data.collect::<Vec<_>>(),
    })];
    sets.extend(parts.into_iter().map(packs));
    sets
}

fn packs(part: &Part) -> Value {
    let set = format!("{}packs", part.folder);
    let positions = part.manifest.recipe.settings.pointer("/output/position_ids") == Some(&Value::Bool(true));
    let positions = positions.then_some(("position_ids", "sc:Integer", "Positions, from 0 in each sample."));
    let field = |(name, kind, text): (&str, &str, &str)| {
        json!({
            "@type": "cr:Field",
            "@id": format!("{set}/{name}"),
            "name": name,
            "description": text,
            "dataType": kind,
            "isArray": true,
            "arrayShape": "-1",
            "source": { "fileSet": { "@id": file_set(part) }, "extract": { "column": name } },
        })
    };
    json!({
        "@type": "cr:RecordSet",
        "@id": set,
        "name": set,
        "description": "A record is a pack: samples that share a row of at most that many tokens.",
        "field": COLUMNS.into_iter().chain(positions).map(field).collect::<Vec<_>>(),
    })
}

fn derived_from(source: &InputSource) -> Value {
    let files: Vec<Value> = source
        .files
        .iter()
        .map(|file| json!({ "@type": "cr:FileObject", "name": file.name, "contentSize": format!("{} B", file.size), "sha256": file.sha256.hex() }))
        .collect();
    let mut entity = json!({
        "@type": "prov:Entity",
        "prov:label": source.name,
        "prov:hadMember": files,
    });
    if let (Value::Object(fields), Some(corpus)) = (&mut entity, &source.corpus) {
        fields.insert("@id".to_owned(), hub_page(corpus, source.revision.as_deref()).into());
    }
    entity
}

fn generated_by(set: &DataSet) -> Vec<Value> {
    let activity = |part: &Part| {
        let run = &part.manifest.run;
        let mut activity = json!({
            "@type": "prov:Activity",
            "prov:label": format!("potable prep, recipe {}", part.manifest.recipe.digest),
            "prov:wasAssociatedWith": {
                "@type": "prov:SoftwareAgent",
                "prov:label": format!("potable {}", run.potable_version),
            },
        });
        if let (Value::Object(fields), Some(started)) = (&mut activity, &run.started) {
            fields.insert("prov:startedAtTime".to_owned(), started.as_str().into());
        }
        activity
    };
    set.parts.iter().map(activity).collect()
}

/// What the RAI extension asks and a manifest can answer. Biases, social impact and annotation are
/// not: they are the publisher's to say.
fn rai(set: &DataSet) -> Map<String, Value> {
    let sources: Vec<String> = set.sources().map(source_words).collect();
    let failed = set.sum(|m| m.rows.values().map(|ledger| ledger.failed).sum());
    let fields = [
        (
            "rai:dataCollection",
            Value::from(format!("Rows of published corpora, taken as they are: {}.", sources.join("; "))),
        ),
        ("rai:dataCollectionType", json!(["Secondary Data analysis"])),
        ("rai:dataCollectionRawData", sources.join("; ").into()),
        (
            "rai:dataCollectionMissingData",
            format!("{} could not be read and are left out.", counted(failed, "row")).into(),
        ),
        ("rai:dataPreprocessingProtocol", set.parts.iter().flat_map(protocol).collect()),
        (
            "rai:dataManipulationProtocol",
            format!("Rows are left out, never rewritten, but for: {}.", acted(set)).into(),
        ),
        ("rai:dataLimitations", limitations(set).into()),
        (
            "rai:dataUseCases",
            json!([
                "Training of language models with the tokeniser and template named here. Not for evaluation."
            ]),
        ),
        (
            "rai:personalSensitiveInformation",
            json!(["Not looked for and not removed; what the corpora hold is in here too."]),
        ),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn source_words(source: &InputSource) -> String {
    let name = source.corpus.as_deref().unwrap_or("local files");
    let revision = match (pinned(source.revision.as_deref()), source.corpus.is_some()) {
        (Some(commit), _) => format!(" at commit {commit}"),
        (None, true) => " at no fixed commit".to_owned(),
        (None, false) => String::new(),
    };
    let split = source.split.as_deref().map_or(String::new(), |split| format!(", split {split}"));
    format!("{}: {name}{revision}{split}, {}", source.name, counted(source.files.len() as u64, "file"))
}

fn protocol(part: &Part) -> Vec<String> {
    let manifest = &part.manifest;
    let checks = &manifest.decontamination;
    let names: Vec<&str> = benchmarks(manifest).iter().map(|benchmark| benchmark.name.as_str()).collect();
    let checked = if names.is_empty() {
        "Rows were not checked against benchmarks.".to_owned()
    } else {
        format!(
            "Rows that share {} consecutive words with a benchmark item, hold a short item whole, are a near \
             copy of one or hold a canary string were dropped ({}): {}.",
            checks.ngram,
            counted(contaminated(manifest), "row"),
            names.join(", ")
        )
    };
    let dropped =
        |reason: &str| manifest.rows.values().filter_map(|ledger| ledger.dropped.get(reason)).sum::<u64>();
    let near = manifest.recipe.settings.pointer("/dedup/near").is_some();
    let near = if near {
        format!(" Near duplicates were dropped ({}).", counted(dropped("dedup.near"), "row"))
    } else {
        String::new()
    };
    let tokeniser = &manifest.tokeniser;
    vec![
        checked,
        format!("Exact duplicates were dropped ({}).{near}", counted(dropped("dedup.exact"), "row")),
        format!(
            "Text was rendered as {} and encoded with the vocabulary {}.",
            tokeniser.template, tokeniser.name
        ),
        match manifest.is_packed() {
            true => format!(
                "Samples were packed: {}, {} full.",
                counted(manifest.tokens.packs, "pack"),
                percent(manifest.tokens.fill_ppm)
            ),
            false => format!("Samples were not packed: {}.", counted(manifest.tokens.packs, "row")),
        },
    ]
}

fn acted(set: &DataSet) -> String {
    let acts = set
        .manifests()
        .flat_map(|m| &m.acted)
        .map(|(what, count)| format!("{what} ({})", counted(*count, "turn")));
    let acts: Vec<String> = acts.collect();
    if acts.is_empty() { "nothing".to_owned() } else { acts.join(", ") }
}

fn limitations(set: &DataSet) -> Vec<String> {
    let mut limits = Vec::new();
    for part in &set.parts {
        for benchmark in benchmarks(&part.manifest).iter().filter(|benchmark| benchmark.not_protected > 0) {
            limits.push(format!(
                "{} of {} items of {} are too short for any rule; rows that hold them are not dropped.",
                grouped(benchmark.not_protected),
                grouped(benchmark.items),
                benchmark.name
            ));
        }
    }
    limits.push("Paraphrases and translations of benchmark items are not found by any rule.".to_owned());
    let mixture = set.parts.iter().flat_map(|part| {
        let total = part.manifest.tokens.total;
        part.manifest
            .tokens
            .per_source
            .iter()
            .map(move |(name, source)| format!("{name} {}", percent(ppm(source.tokens, total))))
    });
    limits.push(format!(
        "The mixture is what the recipe asked for: {}.",
        mixture.collect::<Vec<_>>().join(", ")
    ));
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_follow_the_ending() {
        assert_eq!(encoding("shards/part.parquet"), "application/x-parquet");
        assert_eq!(encoding("shards/part"), "application/octet-stream");
    }
}
