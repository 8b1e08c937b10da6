//! Measure: what is found out about the files of a source before its rows are read. The plan is made of
//! it, here or on another machine.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::plan::{Cut, PlannedFile, PlannedSource};
use crate::normalise::TextFormat;
use crate::recipe::card::cards;
use crate::recipe::file::OnBadRow;
use crate::recipe::join::ResolvedJoin;
use crate::recipe::resolve::{ResolvedPhase, ResolvedSource};
use crate::recipe::{RecipeError, traps};
use crate::source::adapt::mapping::Shape;
use crate::source::adapt::{Mapping, MappingFile};
use crate::source::cell::Cell;
use crate::source::error::SourceError;
use crate::source::open::{Compression, Format, Location, SourceFile, digest};
use crate::source::predicate::{Kind, Predicate};
use crate::source::reader::{Range, ReadRequest, Sampler, open_reader};
use crate::source::{jsonl, parquet};

/// What is known of a source before its rows are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFacts {
    /// Files that are read, in name order.
    pub files: Vec<FileFacts>,
    /// Columns of the first row.
    pub columns: Vec<String>,
    /// The mapping, detected where the recipe leaves it open.
    pub mapping: MappingFile,
    /// What the values of the columns of `where` are.
    pub kinds: Vec<Kind>,
}

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileFacts {
    /// Name in the source.
    pub name: String,
    /// SHA-256 of the stored bytes, in hex.
    pub sha256: String,
    /// Size of the stored bytes.
    pub size: u64,
    /// When it was changed, of a local file: if it is the same later, the bytes are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<std::time::SystemTime>,
    /// Rows, where they are known before reading.
    pub rows: Option<u64>,
    /// Rows to read; fewer than `rows` in a trial run.
    pub limit: Option<u64>,
    /// Bytes of text, about.
    pub text_bytes: u64,
    /// Where to cut.
    pub cuts: Vec<Range>,
}

/// How files are measured.
#[derive(Clone, Copy, Debug)]
pub struct Measuring {
    /// How they are cut.
    pub cut: Cut,
    /// Rows of each source, in a trial run.
    pub limit: Option<u64>,
}

/// Finds out about a source whose files are `found`.
///
/// # Errors
/// Files that are damaged or hold no rows, mappings that do not fit.
pub fn measure_source(
    mut found: Vec<SourceFile>,
    source: &ResolvedSource,
    phase: &ResolvedPhase,
    measuring: Measuring,
) -> Result<SourceFacts, RunError> {
    let names: Vec<&str> = found.iter().map(|file| file.name.as_str()).collect();
    let cards = cards().map_err(|problem| RecipeError::value("corpora", problem))?;
    traps::check_files(source, &names, &cards)?;
    if let Some(count) = source.files {
        found = choose_files(found, count, phase.seed, &source.name);
    }
    let no_rows = || RunError::NoRows { source_name: source.name.clone(), files: found.len() };
    let (mapping_file, columns) = detect(source, &found)?.ok_or_else(no_rows)?;
    check_shape(source, phase, &mapping_file)?;
    let (mut predicate, mut kinds) = (None, Vec::new());
    if let Some(text) = &source.predicate {
        let parsed = Predicate::parse(text, &source.name)?;
        kinds = infer_kinds(&source.name, &found, parsed.columns())?;
        predicate = Some(parsed);
    }
    let mapping = resolve_mapping(source, &mapping_file, predicate.as_ref(), &columns)?;
    if let Some(file) = found.first() {
        // Rows of JSON may differ; tables have one schema, so a missing column shows before any work.
        if !matches!(file.format, Format::Jsonl | Format::Json) {
            let required = mapping.required_columns().iter().filter(|name| !source.is_joined(name));
            let required: Vec<String> = required.cloned().collect();
            crate::source::reader::require_columns(file.path(), &source.name, &required, &columns)?;
        }
    }
    let caps = source.max_rows.is_some() || source.max_tokens.is_some();
    let count = phase.max_tokens.is_some() || caps || measuring.limit.is_some();
    let mut files: Vec<FileFacts> = found
        .par_iter()
        .map(|file| measure(file, &mapping, measuring.cut, count))
        .collect::<Result<_, _>>()?;
    if let Some(limit) = measuring.limit {
        limit_rows(&mut files, limit);
    }
    let rows: Option<u64> = files.iter().map(|f| f.limit.or(f.rows)).sum();
    if rows == Some(0) {
        return Err(RunError::NoRows { source_name: source.name.clone(), files: files.len() });
    }
    Ok(SourceFacts { files, columns, mapping: mapping_file, kinds })
}

/// The facts that a planned source was made of.
pub fn facts_of(source: &PlannedSource) -> SourceFacts {
    let file = |file: &PlannedFile| FileFacts {
        name: file.file.name.clone(),
        sha256: file.sha256.clone(),
        size: file.size,
        modified: file.stamp.1,
        rows: file.rows,
        limit: file.limit,
        text_bytes: file.text_bytes,
        cuts: file.cuts.clone(),
    };
    SourceFacts {
        files: source.files.iter().map(file).collect(),
        columns: source.columns.clone(),
        mapping: source.mapping_file.clone(),
        kinds: source.predicate.as_ref().map(|p| p.kinds().to_vec()).unwrap_or_default(),
    }
}

/// The mapping, with the columns that `where` and joins read.
///
/// # Errors
/// A mapping that does not fit the columns.
pub fn resolve_mapping(
    source: &ResolvedSource,
    mapping: &MappingFile,
    predicate: Option<&Predicate>,
    columns: &[String],
) -> Result<Mapping, RunError> {
    let mut extra = predicate.map(|p| p.columns().to_vec()).unwrap_or_default();
    extra.extend(source.joins.iter().flat_map(ResolvedJoin::row_columns).cloned());
    Ok(mapping.resolve(&source.name, &extra, columns).map_err(RecipeError::from)?)
}

fn check_shape(
    source: &ResolvedSource,
    phase: &ResolvedPhase,
    mapping: &MappingFile,
) -> Result<(), RunError> {
    if phase.policy.format == TextFormat::Text && mapping.shape != Some(Shape::Text) {
        return Err(RecipeError::value_hint(
            format!("source `{}`", source.name),
            "its rows are chat rows, and `format = \"text\"` is for plain documents",
            "set `[normalise] format = \"qwen3\"`, or `shape = \"text\"` in the mapping",
        )
        .into());
    }
    Ok(())
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
fn measure(file: &SourceFile, mapping: &Mapping, cut: Cut, count: bool) -> Result<FileFacts, SourceError> {
    let mut planned = FileFacts {
        name: file.name.clone(),
        sha256: String::new(),
        size: 0,
        modified: file.stamp()?.1,
        rows: None,
        limit: None,
        text_bytes: 0,
        cuts: vec![Range::default()],
    };
    let plain_path = matches!(file.location, Location::Path(_) | Location::Object(_))
        && file.compression == Compression::None;
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
fn limit_rows(files: &mut Vec<FileFacts>, limit: u64) {
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
