//! Plan: which files, which rows, which units, how many partitions. Everything later is a function
//! of the plan.

use rayon::prelude::*;

use potable_manifests::Digest;

use super::error::RunError;
use super::joins::{JoinedFile, PlannedJoin, PlannedJoins, plan_joins};
use crate::normalise::TextFormat;
use crate::recipe::card::cards;
use crate::recipe::file::OnBadRow;
use crate::recipe::join::ResolvedJoin;
use crate::recipe::lock::{LOCK_VERSION, Lock, LockedFile, LockedSource};
use crate::recipe::resolve::{ResolvedPhase, ResolvedSource};
use crate::recipe::{RecipeError, Supply, traps};
use crate::source::adapt::mapping::Shape;
use crate::source::adapt::{Mapping, MappingFile};
use crate::source::cell::Cell;
use crate::source::error::SourceError;
use crate::source::open::{Compression, Format, Location, SourceFile, Stamp, digest};
use crate::source::predicate::{Kind, Predicate};
use crate::source::reader::{Range, ReadRequest, Sampler, open_reader};
use crate::source::{files, jsonl, parquet};

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
    cuts: Vec<Range>,
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
        let counts = phase.max_tokens.is_some();
        let mut sources = Vec::new();
        for source in &phase.sources {
            sources.push(plan_source(
                find_files(source, supply)?,
                source,
                &phase,
                Measuring { supply, cut, limit, always: counts },
            )?);
        }
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
        Ok(Plan { phase, sources, units, partitions, cut })
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

#[derive(Clone, Copy)]
struct Measuring<'a> {
    supply: &'a Supply,
    cut: Cut,
    limit: Option<u64>,
    /// Rows are counted even where no cap asks for it.
    always: bool,
}

fn plan_source(
    mut found: Vec<SourceFile>,
    source: &ResolvedSource,
    phase: &ResolvedPhase,
    measuring: Measuring,
) -> Result<PlannedSource, RunError> {
    let names: Vec<&str> = found.iter().map(|file| file.name.as_str()).collect();
    let cards = cards().map_err(|problem| RecipeError::value("corpora", problem))?;
    traps::check_files(source, &names, &cards)?;
    if let Some(count) = source.files {
        found = choose_files(found, count, phase.seed, &source.name);
    }
    let no_rows = || RunError::NoRows { source_name: source.name.clone(), files: found.len() };
    let (mapping_file, columns) = detect(source, &found)?.ok_or_else(no_rows)?;
    if phase.policy.format == TextFormat::Text && mapping_file.shape != Some(Shape::Text) {
        return Err(RecipeError::value_hint(
            format!("source `{}`", source.name),
            "its rows are chat rows, and `format = \"text\"` is for plain documents",
            "set `[normalise] format = \"qwen3\"`, or `shape = \"text\"` in the mapping",
        )
        .into());
    }
    let predicate = match &source.predicate {
        Some(text) => {
            let predicate = Predicate::parse(text, &source.name)?;
            let kinds = infer_kinds(&source.name, &found, predicate.columns())?;
            Some(predicate.with_kinds(kinds))
        }
        None => None,
    };
    let mut extra = predicate.as_ref().map(|p| p.columns().to_vec()).unwrap_or_default();
    extra.extend(source.joins.iter().flat_map(ResolvedJoin::row_columns).cloned());
    let mapping = mapping_file.resolve(&source.name, &extra, &columns).map_err(RecipeError::from)?;
    if let Some(file) = found.first() {
        // Rows of JSON may differ; tables have one schema, so a missing column shows before any work.
        if !matches!(file.format, Format::Jsonl | Format::Json) {
            let required = mapping.required_columns().iter().filter(|name| !source.is_joined(name));
            let required: Vec<String> = required.cloned().collect();
            crate::source::reader::require_columns(file.path(), &source.name, &required, &columns)?;
        }
    }
    let caps = source.max_rows.is_some() || source.max_tokens.is_some();
    let count = measuring.always || caps || measuring.limit.is_some();
    let measured: Vec<PlannedFile> = found
        .par_iter()
        .map(|file| measure(file, &mapping, measuring.cut, count))
        .collect::<Result<_, _>>()?;
    let mut files = measured;
    if let Some(limit) = measuring.limit {
        limit_rows(&mut files, limit);
    }
    let rows: Option<u64> = files.iter().map(|f| f.limit.or(f.rows)).sum();
    if rows == Some(0) {
        return Err(RunError::NoRows { source_name: source.name.clone(), files: files.len() });
    }
    let joins = plan_joins(source, &mapping, measuring.supply)?;
    Ok(PlannedSource { config: source.clone(), files, mapping_file, mapping, predicate, joins })
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

/// A seeded choice of `count` files, in name order.
fn choose_files(mut found: Vec<SourceFile>, count: u64, seed: u64, source: &str) -> Vec<SourceFile> {
    let hash = |file: &SourceFile| {
        xxhash_rust::xxh3::xxh3_64_with_seed(format!("files\0{source}\0{}", file.name).as_bytes(), seed)
    };
    found.sort_by_cached_key(|file| (hash(file), file.name.clone()));
    found.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The mapping, and the columns of the first row that can be read; `None` if no file has a row.
fn detect(
    source: &ResolvedSource,
    files: &[SourceFile],
) -> Result<Option<(MappingFile, Vec<String>)>, RunError> {
    for file in files {
        let present = match file.format {
            Format::Parquet => Some(parquet::footer(file)?.columns),
            _ => first_columns(source, file)?,
        };
        if let Some(present) = present {
            let mapping = source.mapping.detect(&source.name, &present).map_err(RecipeError::from)?;
            return Ok(Some((mapping, present)));
        }
    }
    Ok(None)
}

/// The columns of the first row that can be read.
fn first_columns(source: &ResolvedSource, file: &SourceFile) -> Result<Option<Vec<String>>, RunError> {
    let mut reader = open_reader(file, &source.name, &ReadRequest::whole(Sampler::all(0), 1))?;
    while let Some(chunk) = reader.next_chunk()? {
        for index in 0..chunk.batch.len() {
            match chunk.batch.decode(index, &[]) {
                Ok(_) => return Ok(Some(chunk.batch.present(index))),
                Err(reason) if source.on_bad_row == OnBadRow::Stop => {
                    let place = file.place(chunk.batch.row_number(index));
                    return Err(SourceError::BadRow { place, reason }.into());
                }
                Err(_) => {}
            }
        }
    }
    Ok(None)
}

/// What the values of the columns of a `where` are, over all rows of JSON files: rows of one chunk may
/// lack what others have. A column that no row has is misspelt.
///
/// # Errors
/// A file that cannot be read, a column that no row has.
pub fn infer_kinds(
    source_name: &str,
    files: &[SourceFile],
    columns: &[String],
) -> Result<Vec<Kind>, SourceError> {
    let is_json = |file: &&SourceFile| matches!(file.format, Format::Jsonl | Format::Json);
    let json: Vec<&SourceFile> = files.iter().filter(is_json).collect();
    let found: Vec<Vec<Seen>> =
        json.par_iter().map(|file| columns_of(file, columns)).collect::<Result<_, _>>()?;
    let mut sums = vec![Seen::default(); columns.len()];
    for file in found {
        for (sum, one) in sums.iter_mut().zip(file) {
            sum.there |= one.there;
            sum.kind.merge(one.kind);
        }
    }
    let missing = columns.iter().zip(&sums).find(|(_, sum)| !sum.there);
    if let (Some((column, _)), Some(file), true) = (missing, json.first(), json.len() == files.len()) {
        return Err(SourceError::MissingKey {
            place: file.path().display().to_string(),
            source_name: source_name.to_owned(),
            column: column.clone(),
        });
    }
    Ok(sums.into_iter().map(|sum| sum.kind).collect())
}

/// What was seen of a column.
#[derive(Clone, Default)]
struct Seen {
    kind: Kind,
    there: bool,
}

fn columns_of(file: &SourceFile, columns: &[String]) -> Result<Vec<Seen>, SourceError> {
    let mut seen = vec![Seen::default(); columns.len()];
    let mut reader = open_reader(file, "", &ReadRequest::whole(Sampler::all(0), 1 << 20))?;
    while let Some(chunk) = reader.next_chunk()? {
        for index in 0..chunk.batch.len() {
            // What cannot be read is an error of its own, later.
            let cells = chunk.batch.decode(index, columns).unwrap_or_default();
            for ((seen, cell), name) in seen.iter_mut().zip(&cells).zip(columns) {
                seen.kind.add(cell);
                seen.there = seen.there || *cell != Cell::Null || chunk.batch.present(index).contains(name);
            }
        }
    }
    Ok(seen)
}

/// Hashes and measures a file, and cuts it. With `count`, rows are counted even where that takes a
/// pass over the file.
fn measure(file: &SourceFile, mapping: &Mapping, cut: Cut, count: bool) -> Result<PlannedFile, SourceError> {
    let mut planned = PlannedFile {
        file: file.clone(),
        sha256: String::new(),
        size: 0,
        stamp: file.stamp()?,
        rows: None,
        limit: None,
        text_bytes: 0,
        cuts: vec![Range::default()],
    };
    let plain_path = matches!(file.location, Location::Path(_)) && file.compression == Compression::None;
    match file.format {
        Format::Jsonl if plain_path => {
            let scan = jsonl::scan(file, cut.unit_bytes)?;
            planned.sha256 = scan.sha256;
            planned.size = scan.size;
            planned.rows = Some(scan.rows);
            planned.text_bytes = scan.size;
            planned.cuts = line_ranges(&scan.cuts, scan.size);
            return Ok(planned);
        }
        Format::Parquet => {
            let footer = parquet::footer(file)?;
            planned.rows = Some(footer.groups.iter().map(|g| g.0).sum());
            planned.text_bytes = parquet::wanted_bytes(file, &mapping.columns)?;
            planned.cuts = group_ranges(&footer.groups, cut.unit_bytes);
        }
        Format::Jsonl if count => planned.rows = Some(jsonl::count_rows(file)?),
        _ if count => planned.rows = Some(count_rows(file)?),
        _ => {}
    }
    (planned.sha256, planned.size) = match file.remote() {
        // What comes is checked against it.
        Some(remote) => (remote.sha256().to_owned(), remote.size()),
        None => digest(file)?,
    };
    if planned.text_bytes == 0 {
        // Text usually shrinks to a third or a quarter.
        let factor = if file.compression == Compression::None { 1 } else { 4 };
        planned.text_bytes = planned.size * factor;
    }
    Ok(planned)
}

/// Counts the rows of a file that only a reader can count.
fn count_rows(file: &SourceFile) -> Result<u64, SourceError> {
    let nothing = Sampler { key: 0, above: Some(u64::MAX), upto: u64::MAX };
    let mut reader = open_reader(file, "", &ReadRequest::whole(nothing, 1 << 20))?;
    let mut rows = 0;
    while let Some(chunk) = reader.next_chunk()? {
        rows += chunk.read;
    }
    Ok(rows)
}

fn line_ranges(cuts: &[jsonl::Cut], size: u64) -> Vec<Range> {
    let ends = cuts.iter().skip(1).map(|cut| cut.offset).chain([size]);
    cuts.iter()
        .zip(ends)
        .map(|(cut, end)| Range {
            first_row: cut.line,
            ordinal: cut.row,
            bytes: Some((cut.offset, end)),
            ..Range::default()
        })
        .collect()
}

fn group_ranges(groups: &[(u64, u64)], unit_bytes: u64) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let (mut first, mut rows, mut bytes) = (0, 0, 0);
    for &(group_rows, group_bytes) in groups {
        rows += group_rows;
        bytes += group_bytes;
        if bytes >= unit_bytes {
            ranges.push(Range { first_row: first, ordinal: first, rows: Some(rows), ..Range::default() });
            first += rows;
            (rows, bytes) = (0, 0);
        }
    }
    if rows > 0 || ranges.is_empty() {
        ranges.push(Range { first_row: first, ordinal: first, rows: Some(rows), ..Range::default() });
    }
    ranges
}

/// Leaves only the first `limit` rows of a source.
fn limit_rows(files: &mut Vec<PlannedFile>, limit: u64) {
    let mut left = limit;
    for file in files.iter_mut() {
        let rows = file.rows.unwrap_or(left).min(left);
        if file.rows.is_some_and(|all| rows < all) {
            file.text_bytes = (u128::from(file.text_bytes) * u128::from(rows)
                / u128::from(file.rows.unwrap_or(1).max(1))) as u64;
            file.cuts.retain(|range| range.ordinal < rows);
            for range in &mut file.cuts {
                let room = rows - range.ordinal;
                range.rows = Some(range.rows.map_or(room, |r| r.min(room)));
            }
        }
        file.limit = Some(rows);
        left -= rows;
    }
    files.retain(|file| file.limit != Some(0));
}
