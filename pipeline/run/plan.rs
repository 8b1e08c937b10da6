//! Plan: which files, which rows, which units, how many partitions. Everything later is a function
//! of the plan.

use potable_manifests::Digest;

use super::error::RunError;
use super::joins::{JoinedFile, PlannedJoin, PlannedJoins, plan_joins};
use super::measure::{FileFacts, Measuring, SourceFacts, measure_source, resolve_mapping};
use crate::recipe::Supply;
use crate::recipe::lock::{LOCK_VERSION, Lock, LockedFile, LockedSource};
use crate::recipe::resolve::{ResolvedPhase, ResolvedSource};
use crate::source::adapt::{Mapping, MappingFile};
use crate::source::error::SourceError;
use crate::source::files;
use crate::source::open::{Format, Location, SourceFile, Stamp};
use crate::source::predicate::Predicate;
use crate::source::reader::Range;

/// How work is cut; none of it changes an output byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Stored or uncompressed bytes in a unit, about.
    pub unit_bytes: u64,
    /// Bytes of text in a chunk, about.
    pub chunk_bytes: usize,
    /// Units from the last to the first, to show that their order does not matter.
    pub reversed: bool,
}

impl Default for Cut {
    fn default() -> Self {
        Cut { unit_bytes: 32 << 20, chunk_bytes: 4 << 20, reversed: false }
    }
}

/// The plan of one phase.
#[derive(Debug)]
pub struct Plan {
    /// The phase.
    pub phase: ResolvedPhase,
    /// Sources in recipe order.
    pub sources: Vec<PlannedSource>,
    /// Units in the order of source, file and row.
    pub units: Vec<Unit>,
    /// Partitions.
    pub partitions: u32,
    /// How work is cut.
    pub cut: Cut,
}

/// A source with its files.
#[derive(Debug)]
pub struct PlannedSource {
    /// The source.
    pub config: ResolvedSource,
    /// Files in name order.
    pub files: Vec<PlannedFile>,
    /// The mapping, detected where the recipe leaves it open.
    pub mapping_file: MappingFile,
    /// Columns of the first row.
    pub columns: Vec<String>,
    /// The mapping, ready to run.
    pub mapping: Mapping,
    /// The `where`.
    pub predicate: Option<Predicate>,
    /// Text of its rows that stands in other corpora.
    pub joins: Option<PlannedJoins>,
}

/// A file with what is known before reading.
#[derive(Clone, Debug)]
pub struct PlannedFile {
    /// The file.
    pub file: SourceFile,
    /// SHA-256 of the stored bytes, in hex.
    pub sha256: String,
    /// Size of the stored bytes.
    pub size: u64,
    /// Size and time of change when the file was hashed.
    pub stamp: Stamp,
    /// Rows, where they are known before reading.
    pub rows: Option<u64>,
    /// Rows to read; fewer than `rows` in a trial run.
    pub limit: Option<u64>,
    /// Bytes of text, about.
    pub text_bytes: u64,
    /// Where to cut.
    pub cuts: Vec<Range>,
}

/// A piece of work: a range of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Index of the source.
    pub source: u32,
    /// Index of the file.
    pub file: u32,
    /// The rows.
    pub range: Range,
}

impl Plan {
    /// Plans a phase: finds, hashes and measures the files, and cuts them. `limit` takes only so
    /// many rows of each source.
    ///
    /// # Errors
    /// Files that are missing or damaged, mappings that do not fit.
    pub fn new(
        phase: ResolvedPhase,
        cut: Cut,
        limit: Option<u64>,
        supply: &Supply,
    ) -> Result<Plan, RunError> {
        let mut sources = Vec::new();
        for source in &phase.sources {
            let found = find_files(source, supply)?;
            let facts = measure_source(found.clone(), source, &phase, Measuring { cut, limit })?;
            sources.push(assemble(source, facts, &found, supply)?);
        }
        Ok(Plan::of(phase, sources, cut))
    }

    /// The plan of sources that are measured and assembled.
    pub fn of(phase: ResolvedPhase, sources: Vec<PlannedSource>, cut: Cut) -> Plan {
        let mut units = Vec::new();
        for (s, source) in sources.iter().enumerate() {
            for (f, file) in source.files.iter().enumerate() {
                let ranges = file.cuts.iter().copied();
                units.extend(ranges.map(|range| Unit { source: s as u32, file: f as u32, range }));
            }
        }
        let bytes: u64 = sources.iter().map(PlannedSource::planned_bytes).sum();
        // A partition without rows is work for nothing.
        let rows: Option<u64> = sources.iter().map(PlannedSource::rows).sum();
        let most = rows.map_or(65_536, |rows| rows.div_ceil(16).clamp(1, 65_536));
        let partitions = bytes.div_ceil(phase.output.partition_bytes).clamp(1, most) as u32;
        Plan { phase, sources, units, partitions, cut }
    }

    /// Whether only the first rows of each source are read (`--limit`).
    pub fn is_trial(&self) -> bool {
        self.sources.iter().flat_map(|source| &source.files).any(|file| file.limit.is_some())
    }

    /// Planned bytes of text.
    pub fn planned_bytes(&self) -> u64 {
        self.sources.iter().map(PlannedSource::planned_bytes).sum()
    }

    /// The lock.
    pub fn lock(&self, benchmarks: Vec<LockedSource>) -> Lock {
        Lock {
            version: LOCK_VERSION,
            partitions: self.partitions,
            source: self.sources.iter().flat_map(PlannedSource::locked).collect(),
            benchmark: benchmarks,
        }
    }

    /// The digest of everything that map reads: the recipe sections, the mappings, the inputs by
    /// content, the partitions and `others` (blocklist, tokenizer, template, stage format).
    ///
    /// # Errors
    /// Settings that have no canonical form.
    pub fn map_digest(&self, others: &[String]) -> Result<Digest, RunError> {
        let settings = self.phase.settings();
        let section = |key: &str| settings.get(key).cloned().unwrap_or_default();
        let files: Vec<_> = self
            .sources
            .iter()
            .flat_map(|source| {
                source
                    .files
                    .iter()
                    .map(|f| serde_json::json!([source.config.name, f.file.name, f.sha256, f.limit]))
                    .chain(source.joined_files().map(|(join, f)| {
                        serde_json::json!([source.config.name, join, f.file.name, f.sha256])
                    }))
            })
            .collect();
        let mut sources = Vec::new();
        for source in &self.sources {
            // Caps act in select; how many rows map decodes for them is in the file of each round.
            let mut one = source.config.settings();
            if let Some(map) = one.as_object_mut() {
                for cap in ["max_rows", "max_tokens", "weight_ppm", "repeats"] {
                    map.shift_remove(cap);
                }
                map.insert("mapping".to_owned(), mapping_value(&source.mapping_file));
            }
            sources.push(one);
        }
        let value = serde_json::json!({
            "seed": section("seed"),
            "sources": sources,
            "decontaminate": section("decontaminate"),
            "normalise": section("normalise"),
            "dedup": section("dedup"),
            "partitions": self.partitions,
            "files": files,
            "others": others,
        });
        let value = potable_manifests::canonical::floats_as_text(value);
        let text = potable_manifests::canonical_json(&value)
            .map_err(|e| RunError::Manifest { reason: e.to_string() })?;
        Ok(Digest::of(text.as_bytes()))
    }
}

/// A mapping as a JSON value.
pub fn mapping_value(mapping: &MappingFile) -> serde_json::Value {
    serde_json::to_value(mapping).unwrap_or_default()
}

impl PlannedSource {
    /// Rows to read, where they are known.
    pub fn rows(&self) -> Option<u64> {
        self.files.iter().map(|f| f.limit.or(f.rows)).sum()
    }

    /// Bytes of text to read, about: those of the rows that a row cap takes.
    pub fn planned_bytes(&self) -> u64 {
        let all: u64 = self.files.iter().map(|f| f.text_bytes).sum();
        match (self.config.max_rows, self.rows()) {
            (Some(cap), Some(rows)) if cap < rows => {
                (u128::from(all) * u128::from(cap) / u128::from(rows)) as u64
            }
            _ => all,
        }
    }

    /// Files of other corpora that its rows take text from: name of the join, and file.
    pub fn joined_files(&self) -> impl Iterator<Item = (&str, &JoinedFile)> {
        let inputs = self.joins.iter().flat_map(|joins| &joins.inputs);
        inputs.flat_map(|join| join.files.iter().map(|file| (join.config.name.as_str(), file)))
    }

    /// The source, and the corpora that it is joined to.
    fn locked(&self) -> Vec<LockedSource> {
        let joins = self.joins.iter().flat_map(|joins| &joins.inputs);
        let own = LockedSource {
            name: self.config.name.clone(),
            repo: self.config.corpus.clone(),
            revision: self.config.revision.clone(),
            licence: self.config.licence.clone(),
            local: self.config.want.is_none(),
            file: self
                .files
                .iter()
                .map(|f| LockedFile {
                    name: f.file.name.clone(),
                    size: f.size,
                    sha256: f.sha256.clone(),
                    rows: f.rows,
                })
                .collect(),
        };
        [own].into_iter().chain(joins.map(PlannedJoin::locked)).collect()
    }

    /// The key of the sampling hash of a file: the same wherever the file lies.
    pub fn sampling_key(&self, seed: u64, file: usize) -> u64 {
        let name = self.files.get(file).map_or("", |f| f.file.name.as_str());
        let text = format!("{}\0{name}", self.config.name);
        xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), seed)
    }
}

impl PlannedFile {
    /// Whether only ranges of the file are read, so that nothing checks its whole digest.
    pub fn by_ranges(&self) -> bool {
        self.file.streams() && self.file.format == Format::Parquet
    }
}

/// A source as it runs, from what was found out about its files. `found` are files of the source, those
/// of `facts` among them.
///
/// # Errors
/// A file that is gone, mappings that do not fit, joined corpora that cannot be read.
pub fn assemble(
    source: &ResolvedSource,
    facts: SourceFacts,
    found: &[SourceFile],
    supply: &Supply,
) -> Result<PlannedSource, RunError> {
    let SourceFacts { files, columns, mapping: mapping_file, kinds } = facts;
    let predicate = match &source.predicate {
        Some(text) => Some(Predicate::parse(text, &source.name)?.with_kinds(kinds)),
        None => None,
    };
    let mapping = resolve_mapping(source, &mapping_file, predicate.as_ref(), &columns)?;
    let file_of = |facts: FileFacts| {
        let file = found.iter().find(|file| file.name == facts.name).ok_or_else(|| RunError::InputGone {
            source_name: source.name.clone(),
            name: facts.name.clone(),
        })?;
        let FileFacts { sha256, size, rows, limit, text_bytes, cuts, .. } = facts;
        if let Location::Object(object) = &file.location {
            object.expect(&sha256);
        }
        let (file, stamp) = (file.clone(), file.stamp()?);
        Ok(PlannedFile { file, sha256, size, stamp, rows, limit, text_bytes, cuts })
    };
    let files = files.into_iter().map(file_of).collect::<Result<_, RunError>>()?;
    let joins = plan_joins(source, &mapping, supply)?;
    Ok(PlannedSource { config: source.clone(), files, mapping_file, columns, mapping, predicate, joins })
}

/// The files of a source: of the Hub, of a local copy, or of the built-in demo.
///
/// # Errors
/// Patterns that match nothing, files of unknown format.
pub fn find_files(source: &ResolvedSource, supply: &Supply) -> Result<Vec<SourceFile>, SourceError> {
    if let Some(want) = &source.want {
        return supply.files(want, source.format);
    }
    let embedded: Vec<&str> = source.patterns.iter().filter_map(|p| p.strip_prefix("embedded:")).collect();
    if embedded.is_empty() {
        return match source.corpus {
            Some(_) => files::find_any(&source.name, &source.patterns, &source.base, source.format),
            None => files::find(&source.name, &source.patterns, &source.base, source.format),
        };
    }
    embedded
        .into_iter()
        .filter_map(|name| crate::recipe::embedded(name).map(|bytes| (name, bytes)))
        .map(|(name, bytes)| SourceFile::new(name.to_owned(), Location::Embedded(bytes), source.format))
        .collect()
}
