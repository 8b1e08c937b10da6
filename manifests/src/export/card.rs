//! A dataset card of the Hub: README.md with a YAML header.

use std::collections::BTreeSet;

use super::markdown::{cell, sections};
use super::words::{counted, grouped};
use super::yaml::Yaml;
use super::{DataSet, Part, benchmarks, contaminated, globs, has_packs, is_table, splits};

/// Licence identifiers of the Hub that corpora of text are under; any other licence is `other` there.
const HUB_LICENCES: [&str; 28] = [
    "afl-3.0",
    "agpl-3.0",
    "apache-2.0",
    "bsd",
    "bsd-2-clause",
    "bsd-3-clause",
    "c-uda",
    "cc",
    "cc-by-2.0",
    "cc-by-3.0",
    "cc-by-4.0",
    "cc-by-nc-2.0",
    "cc-by-nc-3.0",
    "cc-by-nc-4.0",
    "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-4.0",
    "cc-by-nd-4.0",
    "cc-by-sa-3.0",
    "cc-by-sa-4.0",
    "cc0-1.0",
    "cdla-permissive-2.0",
    "gpl-3.0",
    "llama3.1",
    "mit",
    "odbl",
    "odc-by",
    "pddl",
    "unlicense",
];

/// The card. The header has what can be told from the manifests; `language` is left to the publisher.
pub fn card(set: &DataSet) -> String {
    format!("---\n{}---\n\n{}", header(set), body(set))
}

fn header(set: &DataSet) -> String {
    let mut yaml = Yaml::default();
    yaml.field(0, "pretty_name", &set.name);
    let licences = hub_licences(set);
    yaml.list("license", licences.iter().map(String::as_str));
    yaml.list("task_categories", ["text-generation"]);
    yaml.list("size_categories", [size_category(set.sum(|m| m.tokens.packs))]);
    let corpora: BTreeSet<&str> = set.sources().filter_map(|source| source.corpus.as_deref()).collect();
    yaml.list("source_datasets", corpora);
    let mut tags = vec!["potable", "pre-tokenized", "packed"];
    if set.manifests().all(|manifest| !benchmarks(manifest).is_empty()) {
        tags.push("decontaminated");
    }
    yaml.list("tags", tags);
    if set.parts.iter().any(is_table) {
        yaml.line(0, "configs:");
    }
    set.parts
        .iter()
        .filter(|part| is_table(part))
        .enumerate()
        .for_each(|(index, part)| config(&mut yaml, part, index));
    yaml.into_text()
}

fn config(yaml: &mut Yaml, part: &Part, index: usize) {
    yaml.field(0, "- config_name", part.label().unwrap_or("default"));
    if index == 0 && part.label().is_some() {
        yaml.line(2, "default: true");
    }
    yaml.line(2, "data_files:");
    for (split, name) in splits(&part.manifest) {
        yaml.field(2, "- split", name);
        let globs = globs(part, split);
        if let (1, Some(glob)) = (globs.len(), globs.first()) {
            yaml.field(4, "path", glob);
            continue;
        }
        yaml.line(4, "path:");
        globs.iter().for_each(|glob| yaml.line(4, &format!("- {}", super::yaml::scalar(glob))));
    }
}

/// The Hub's names of the licences; `unknown` where a corpus states none.
fn hub_licences(set: &DataSet) -> BTreeSet<String> {
    let hub = |licence: &str| {
        let name = licence.to_ascii_lowercase();
        if HUB_LICENCES.contains(&name.as_str()) {
            name
        } else if name.starts_with("none stated") || name.starts_with("unclear") {
            "unknown".to_owned()
        } else {
            "other".to_owned()
        }
    };
    set.licences().into_iter().map(hub).collect()
}

/// The Hub's class for a number of rows.
fn size_category(rows: u64) -> &'static str {
    const CLASSES: [(u64, &str); 10] = [
        (1_000, "n<1K"),
        (10_000, "1K<n<10K"),
        (100_000, "10K<n<100K"),
        (1_000_000, "100K<n<1M"),
        (10_000_000, "1M<n<10M"),
        (100_000_000, "10M<n<100M"),
        (1_000_000_000, "100M<n<1B"),
        (10_000_000_000, "1B<n<10B"),
        (100_000_000_000, "10B<n<100B"),
        (1_000_000_000_000, "100B<n<1T"),
    ];
    CLASSES.iter().find(|(limit, _)| rows < *limit).map_or("n>1T", |(_, name)| name)
}

fn body(set: &DataSet) -> String {
    let dropped: u64 = set.manifests().map(contaminated).sum();
    let names: BTreeSet<&str> =
        set.manifests().flat_map(benchmarks).map(|benchmark| benchmark.name.as_str()).collect();
    let checked = if names.is_empty() {
        "The rows were **not** checked against any benchmark.".to_owned()
    } else {
        format!(
            "Rows were checked against {}; {} dropped.",
            counted(names.len() as u64, "benchmark"),
            if dropped == 1 { "1 was".to_owned() } else { format!("{} were", grouped(dropped)) }
        )
    };
    let mut out = format!(
        "# {}\n\nTraining shards of token ids: {} in {}, {} trained on. {checked} Made by \
         [potable](#how-to-check-this-data), whose manifest (`{}`) names every file that they were made from.\n\n",
        cell(&set.name),
        counted(set.sum(|m| m.tokens.total), "token"),
        counted(set.sum(|m| m.tokens.packs), "pack"),
        grouped(set.sum(|m| m.tokens.trained)),
        set.digest(),
    );
    out += &usage(set);
    out += &sections(set);
    out
}

fn usage(set: &DataSet) -> String {
    if !set.parts.iter().all(is_table) {
        return String::new();
    }
    let config =
        set.parts.first().and_then(Part::label).map_or(String::new(), |label| format!(", {label:?}"));
    let mut out = format!(
        "## How to load it\n\n```python\nfrom datasets import load_dataset\n\n\
         data = load_dataset(\"OWNER/NAME\"{config})  # or the path of this folder\n```\n\n"
    );
    if set.parts.iter().all(has_packs) {
        out += "A row is a pack: `input_ids`, `labels` (not shifted, -100 where not trained on), `seq_lengths` \
            (the samples of the pack, which must not attend to each other) and `sample_ids` (the row of the \
            corpus that each sample comes from).\n\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_names_of_the_hub() {
        assert_eq!(
            [0, 999, 1_000, 10_000_000].map(size_category),
            ["n<1K", "n<1K", "1K<n<10K", "10M<n<100M"]
        );
        assert_eq!(size_category(u64::MAX), "n>1T");
    }
}
