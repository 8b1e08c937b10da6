//! Differences in what the shards were made from.

use std::collections::BTreeMap;

use super::Weight::{self, Blocking, Informational, Material};
use super::collect::{Collector, Pair, Shown, map_pairs, pairs, quote};
use crate::manifest::{
    BenchmarkRecord, Decontamination, DecontaminationMode, FileDigest, InputFile, InputSource, JoinedInput,
    Manifest, RecipeRecord, TokeniserRecord, Verified,
};

impl Shown for DecontaminationMode {
    fn shown(&self) -> Option<String> {
        let word = match self {
            Self::Blocklist => "blocklist",
            Self::None => "none",
        };
        Some(word.to_owned())
    }
}

impl Shown for InputFile {
    fn shown(&self) -> Option<String> {
        let rows = self.rows.map_or("rows unknown".to_owned(), |rows| format!("{rows} rows"));
        let verified = match self.verified {
            Verified::Whole => "whole",
            Verified::Ranges => "ranges",
        };
        let ranges = self.ranges_digest.as_ref().map(|digest| format!(" {digest}")).unwrap_or_default();
        Some(format!("{}, {} bytes, {rows}, verified {verified}{ranges}", self.sha256, self.size))
    }
}

impl Shown for JoinedInput {
    fn shown(&self) -> Option<String> {
        let or = |value: &Option<String>, none: &str| value.clone().unwrap_or(none.to_owned());
        let files = self.files.iter().map(|file| {
            let shown = file.shown().unwrap_or_default();
            format!("file {}: {shown}", quote(&file.name))
        });
        let parts = [
            or(&self.corpus, "no corpus"),
            format!("at {}", or(&self.revision, "no revision")),
            format!("config {}", or(&self.config, "none")),
            format!("split {}", or(&self.split, "none")),
            or(&self.licence, "no licence stated"),
            if self.local { "local".to_owned() } else { "fetched".to_owned() },
            format!("{} rows", self.rows),
        ];
        Some(parts.into_iter().chain(files).collect::<Vec<_>>().join(", "))
    }
}

impl Shown for FileDigest {
    fn shown(&self) -> Option<String> {
        Some(format!("{}, {} bytes", self.sha256, self.size))
    }
}

pub(super) fn identity(found: &mut Collector, old: &Manifest, new: &Manifest) {
    found.area("manifest");
    found.field(Material, "schema", (&old.schema, &new.schema));
    found.field(Material, "name", (&old.name, &new.name));
    found.field(Material, "phase", (&old.phase, &new.phase));
}

pub(super) fn recipe(found: &mut Collector, old: &RecipeRecord, new: &RecipeRecord) {
    found.area("recipe");
    // What it covers stands below, setting by setting.
    found.field(Informational, "recipe digest", (&old.digest, &new.digest));
    found.field(Material, "seed", (&old.seed, &new.seed));
    found.field(Material, "partitions", (&old.partitions, &new.partitions));
    found.json("setting", (Some(&old.settings), Some(&new.settings)));
}

pub(super) fn inputs(found: &mut Collector, old: &[InputSource], new: &[InputSource]) {
    found.area("inputs");
    for Pair { name, old, new } in pairs((old, new), |source| &source.name) {
        match (old, new) {
            (Some(old), Some(new)) => source(found, &name, old, new),
            (old, new) => {
                let risky = new.is_some_and(is_risky);
                let shown = |source: Option<&InputSource>| source.map(summary);
                let what = format!("source {name}");
                found.push(blocking_if(risky), what, (shown(old), shown(new)));
            }
        }
    }
    found.order((Informational, "order of sources"), (old, new), |source| &source.name);
}

pub(super) fn decontamination(found: &mut Collector, old: &Decontamination, new: &Decontamination) {
    found.area("decontamination");
    let off = new.mode == DecontaminationMode::None;
    found.field(blocking_if(off), "mode", (&old.mode, &new.mode));
    let grew = new.ngram > old.ngram;
    found.field(blocking_if(grew), "words in a gram", (&old.ngram, &new.ngram));
    found.field(blocking_if(!new.strict), "strict", (&old.strict, &new.strict));
    found.field(Material, "word normaliser", (&old.normaliser, &new.normaliser));
    let blocklists = (&old.blocklist_digest, &new.blocklist_digest);
    found.field(Material, "blocklist digest", blocklists);
    found.area("benchmarks");
    let (old, new) = (&*old.benchmarks, &*new.benchmarks);
    for Pair { name, old, new } in pairs((old, new), |benchmark| &benchmark.name) {
        match (old, new) {
            (Some(old), Some(new)) => benchmark(found, &name, old, new),
            (old, new) => {
                let shown = |benchmark: Option<&BenchmarkRecord>| benchmark.map(protection);
                let what = format!("benchmark {name}");
                found.push(blocking_if(new.is_none()), what, (shown(old), shown(new)));
            }
        }
    }
    found.order((Informational, "order of benchmarks"), (old, new), |benchmark| &benchmark.name);
}

pub(super) fn normalise(
    found: &mut Collector,
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) {
    found.area("normalise");
    for Pair { name, old, new } in map_pairs((old, new)) {
        let looser = name == "`control_text`" && strictness(new) < strictness(old);
        let values = (&old.cloned(), &new.cloned());
        found.field(blocking_if(looser), format!("policy {name}"), values);
    }
}

pub(super) fn tokeniser(found: &mut Collector, old: &TokeniserRecord, new: &TokeniserRecord) {
    found.area("tokeniser");
    found.field(Blocking, "tokeniser", (&old.name, &new.name));
    let digests = (&old.vocabulary_digest, &new.vocabulary_digest);
    found.field(Blocking, "vocabulary digest", digests);
    found.field(Blocking, "vocabulary size", (&old.vocabulary_size, &new.vocabulary_size));
    found.field(Blocking, "template", (&old.template, &new.template));
    found.field(Blocking, "template digest", (&old.template_digest, &new.template_digest));
    found.field(Blocking, "text format", (&old.format, &new.format));
    found.field(Informational, "engine", (&old.engine, &new.engine));
}

fn source(found: &mut Collector, name: &str, old: &InputSource, new: &InputSource) {
    let of = |field: &str| format!("{field} of source {name}");
    let evaluation = blocking_if(new.eval_split);
    let commits = [old, new].map(|source| is_commit(source.revision.as_ref()));
    let pin = blocking_if(commits == [true, false] || (unpinned(new) && !unpinned(old)));
    found.field(Blocking, of("licence"), (&old.licence, &new.licence));
    found.field(evaluation, of("evaluation split"), (&old.eval_split, &new.eval_split));
    found.field(Material, of("corpus"), (&old.corpus, &new.corpus));
    found.field(pin, of("revision"), (&old.revision, &new.revision));
    found.field(pin, of("local files"), (&old.local, &new.local));
    found.field(Material, of("config"), (&old.config, &new.config));
    let evaluation = blocking_if(is_evaluation(new) && !is_evaluation(old));
    found.field(evaluation, of("split"), (&old.split, &new.split));
    found.field(Material, of("gate"), (&old.gated, &new.gated));
    found.field(Material, of("row format"), (&old.format, &new.format));
    found.json(&of("mapping"), (Some(&old.mapping), Some(&new.mapping)));
    let files = |source: &InputSource| (source.files.len(), bytes(source));
    if files(old) != files(new) {
        let shown = |source| {
            let (count, bytes) = files(source);
            Some(format!("{count} files, {bytes} bytes"))
        };
        found.push(Material, of("files"), (shown(old), shown(new)));
    }
    for pair in pairs((&old.files, &new.files), |file| &file.name) {
        let values = (&pair.old.cloned(), &pair.new.cloned());
        let weight = file_weight(pair.old, pair.new);
        found.field(weight, of(&format!("file {}", pair.name)), values);
    }
    let files = (&*old.files, &*new.files);
    found.order((Material, &of("order of files")), files, |file| &file.name);
    for Pair { name, old, new } in pairs((&old.joins, &new.joins), |join| &join.name) {
        let licence = |join: Option<&JoinedInput>| join.map(|join| join.licence.clone());
        let relicensed = old.is_some() && new.is_some() && licence(old) != licence(new);
        let worse = new.is_some_and(is_risky_join) && !old.is_some_and(is_risky_join);
        let weight = blocking_if(relicensed || worse);
        found.field(weight, of(&format!("join {name}")), (&old.cloned(), &new.cloned()));
    }
    found.order((Material, &of("order of joins")), (&*old.joins, &*new.joins), |join| &join.name);
}

fn benchmark(found: &mut Collector, name: &str, old: &BenchmarkRecord, new: &BenchmarkRecord) {
    let of = |field: &str| format!("{field} of benchmark {name}");
    let unpinned = blocking_if(!is_commit(new.revision.as_ref()));
    let exposed = blocking_if(!new.sensitive);
    let fewer = blocking_if(protected(new) < protected(old));
    // Other rows under the old name: the benchmark of that name has left.
    found.field(Blocking, of("repository"), (&old.repo, &new.repo));
    found.field(unpinned, of("revision"), (&old.revision, &new.revision));
    found.field(Blocking, of("config"), (&old.config, &new.config));
    found.field(Blocking, of("split"), (&old.split, &new.split));
    found.field(Blocking, of("where"), (&old.where_, &new.where_));
    found.field(Material, of("licence"), (&old.licence, &new.licence));
    found.field(exposed, of("sensitivity"), (&old.sensitive, &new.sensitive));
    for pair in pairs((&old.files, &new.files), |file| &file.name) {
        let values = (&pair.old.cloned(), &pair.new.cloned());
        found.field(Material, of(&format!("file {}", pair.name)), values);
    }
    let files = (&*old.files, &*new.files);
    found.order((Informational, &of("order of files")), files, |file| &file.name);
    found.field(Material, of("items"), (&old.items, &new.items));
    let ngram = (&old.protected_ngram, &new.protected_ngram);
    found.field(fewer, of("items protected by n-grams"), ngram);
    let short = (&old.protected_short, &new.protected_short);
    found.field(fewer, of("items protected as short items"), short);
    let near = (&old.protected_near, &new.protected_near);
    let fewer_near = blocking_if(near.1.is_some() && near.1 < near.0);
    found.field(fewer_near, of("items protected from near copies"), near);
    let open = (&old.not_protected, &new.not_protected);
    found.field(Material, of("items not protected"), open);
}

/// Whether nothing fixes which version of a corpus was read. Files of one's own have no versions; a
/// local copy of a corpus has the version that it is a copy of.
fn unpinned(source: &InputSource) -> bool {
    !is_commit(source.revision.as_ref()) && (!source.local || source.corpus.is_some())
}

fn is_commit(revision: Option<&String>) -> bool {
    revision.is_some_and(|text| crate::digest::is_commit(text))
}

/// Whether a source may not enter without a word: meant for evaluation, not pinned, or not for
/// commercial use; or joined to such a corpus.
pub(super) fn is_risky(source: &InputSource) -> bool {
    is_evaluation(source)
        || unpinned(source)
        || is_non_commercial(source.licence.as_ref())
        || source.joins.iter().any(is_risky_join)
}

fn is_risky_join(join: &JoinedInput) -> bool {
    let pinned = is_commit(join.revision.as_ref()) || (join.local && join.corpus.is_none());
    !pinned || names_evaluation(join.split.as_ref()) || is_non_commercial(join.licence.as_ref())
}

/// Whether a source is meant for evaluation: its card says so, or a word of its split does.
fn is_evaluation(source: &InputSource) -> bool {
    source.eval_split || names_evaluation(source.split.as_ref())
}

fn names_evaluation(split: Option<&String>) -> bool {
    const WORDS: [&str; 9] =
        ["test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation", "heldout"];
    let split = split.map(|split| split.to_lowercase()).unwrap_or_default();
    split.split(|c: char| !c.is_ascii_alphabetic()).any(|word| WORDS.contains(&word))
}

/// Whether the licence forbids commercial use, by its words (`cc-by-nc-4.0`).
fn is_non_commercial(licence: Option<&String>) -> bool {
    let licence = licence.map(|licence| licence.to_lowercase()).unwrap_or_default();
    let mut words = licence.split(|c: char| !c.is_ascii_alphanumeric());
    licence.contains("noncommercial")
        || licence.contains("non-commercial")
        || licence.contains("research-only")
        || words.any(|word| word == "nc")
}

fn protected(benchmark: &BenchmarkRecord) -> u128 {
    u128::from(benchmark.protected_ngram) + u128::from(benchmark.protected_short)
}

/// How much `control_text` keeps control tokens out of the ids; an unknown value keeps nothing out.
fn strictness(control_text: Option<&String>) -> u8 {
    match control_text.map(String::as_str) {
        Some("drop") => 2,
        Some("text") => 1,
        _ => 0,
    }
}

/// A file whose bytes are the same and are now better known is only informational.
fn file_weight(old: Option<&InputFile>, new: Option<&InputFile>) -> Weight {
    match (old, new) {
        (Some(old), Some(new))
            if old.sha256 == new.sha256
                && old.size == new.size
                && new.verified <= old.verified
                && (old.rows.is_none() || old.rows == new.rows) =>
        {
            Informational
        }
        _ => Material,
    }
}

fn bytes(source: &InputSource) -> u128 {
    source.files.iter().map(|file| u128::from(file.size)).sum()
}

fn summary(source: &InputSource) -> String {
    let corpus = source.corpus.as_deref().unwrap_or("no corpus");
    let revision = source.revision.as_deref().unwrap_or("no revision");
    let licence = source.licence.as_deref().unwrap_or("no licence stated");
    let evaluation = if source.eval_split { ", an evaluation split" } else { "" };
    let (files, bytes) = (source.files.len(), bytes(source));
    format!("{corpus} at {revision}, {licence}, {files} files, {bytes} bytes{evaluation}")
}

fn protection(benchmark: &BenchmarkRecord) -> String {
    let revision = benchmark.revision.as_deref().unwrap_or("no revision");
    let (items, protected) = (benchmark.items, protected(benchmark));
    format!("{items} items, {protected} protected, at {revision}")
}

fn blocking_if(worse: bool) -> Weight {
    if worse { Blocking } else { Material }
}
