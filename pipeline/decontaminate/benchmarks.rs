//! Benchmarks of a recipe: definitions and files of prompts to items, items to a blocklist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use potable_blocklists::{
    BenchmarkDefinition, BenchmarkMeta, Blocklist, BlocklistBuilder, BlocklistError, DefinitionError, Item,
    SourceFile as BenchmarkFile, known, words_of,
};
use potable_manifests::sha256_hex;

use super::items::{ItemColumns, Unseen};
use crate::recipe::pins::{Matching, Splits};
use crate::recipe::resolve::MAIN;
use crate::recipe::{Supply, Want, embedded};
use crate::source::cell::Cell;
use crate::source::error::SourceError;
use crate::source::hub::RepoKind;
use crate::source::open::{Format, Location, SourceFile};
use crate::source::predicate::{Predicate, PredicateError};
use crate::source::reader::{ReadRequest, RowBatch, Sampler, open_reader};

/// A benchmark that cannot be read. A benchmark is never skipped.
#[derive(Debug, thiserror::Error)]
pub enum BenchmarkError {
    /// Neither a file nor anything known.
    #[error("there is no benchmark `{name}`: no file of this name at `{path}`", path = path.display())]
    NotFound {
        /// As the recipe has it.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A file that cannot be read.
    #[error("benchmark `{name}`: cannot read `{path}`", path = path.display())]
    Read {
        /// The benchmark.
        name: String,
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A definition that does not parse.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A definition whose items are not local.
    #[error("benchmark `{name}`: its definition names no local `files`")]
    NotLocal {
        /// The benchmark.
        name: String,
    },
    /// A known benchmark of whose repository there is no local copy.
    #[error("benchmark `{name}`: there is no local copy of its repository `{repo}`")]
    NoCopy {
        /// The benchmark.
        name: String,
        /// The repository.
        repo: String,
    },
    /// A file of items that cannot be read.
    #[error("benchmark `{name}`")]
    Source {
        /// The benchmark.
        name: String,
        /// Cause.
        #[source]
        source: SourceError,
    },
    /// A definition or a file of prompts that is no text.
    #[error("{place}: benchmark `{name}`: is not UTF-8")]
    NotUtf8 {
        /// The benchmark, or what the definition is called by.
        name: String,
        /// File, line and byte of the line.
        place: String,
    },
    /// An item without a prompt.
    #[error("{place}: benchmark `{name}`: {problem}")]
    Item {
        /// The benchmark.
        name: String,
        /// File and row.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// A `where` that cannot be used.
    #[error("benchmark `{name}`")]
    Where {
        /// The benchmark.
        name: String,
        /// Cause.
        #[source]
        source: PredicateError,
    },
    /// The blocklist.
    #[error(transparent)]
    Blocklist(#[from] BlocklistError),
}

impl BenchmarkError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            BenchmarkError::NotFound { .. } => Some(
                "name a known benchmark or suite (`potable blocklist list`), a definition (.toml) or a file of prompts (.jsonl, .txt)".to_owned(),
            ),
            BenchmarkError::Source { source, .. } => source.hint(),
            BenchmarkError::NotUtf8 { .. } => Some("save the file as UTF-8".to_owned()),
            BenchmarkError::Item { .. } => Some("name the right columns in the definition: `prompt`, `id`, `options`, `canary_column`".to_owned()),
            BenchmarkError::NoCopy { .. } => Some(
                "download the repository to DIR/OWNER/NAME and pass DIR: `--copies DIR`, or `[decontaminate] copies = \"DIR\"` in a recipe".to_owned(),
            ),
            BenchmarkError::NotLocal { .. } => Some("download its files and name them under `files`".to_owned()),
            BenchmarkError::Blocklist(error) => error.hint(),
            BenchmarkError::Where { source, .. } => source.hint(),
            BenchmarkError::Read { .. } | BenchmarkError::Definition(_) => None,
        }
    }
}

/// A benchmark with its items.
#[derive(Clone, Debug)]
pub struct LoadedBenchmark {
    /// What the blocklist records of it.
    pub meta: BenchmarkMeta,
    /// Its items.
    pub items: Vec<Item>,
}

/// Where names of benchmarks lead.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// What paths are relative to.
    pub base: &'a Path,
    /// Folder with local copies of benchmark repositories, as `OWNER/NAME` or `OWNER__NAME`.
    pub copies: Option<&'a Path>,
    /// Where they come from without such a folder: the Hub.
    pub supply: Option<&'a Supply>,
}

/// What benchmarks take from the Hub; nothing where `copies` is given.
///
/// # Errors
/// A definition that cannot be read.
pub fn wants(names: &[String], places: Places) -> Result<Vec<Want>, BenchmarkError> {
    if places.copies.is_some() {
        return Ok(Vec::new());
    }
    let mut wants = Vec::new();
    for name in members(names)? {
        let definition = match known::definition(&name)? {
            Some(definition) => Some(definition),
            None if name.ends_with(".toml") => Some(parse_definition(&name, places.base)?.0),
            None => None,
        };
        wants.extend(definition.and_then(|definition| want(&definition, &name, places.base)));
    }
    Ok(wants)
}

/// What a definition takes from the Hub: nothing, if its files lie beside it.
fn want(definition: &BenchmarkDefinition, name: &str, base: &Path) -> Option<Want> {
    let repo = definition.repo.clone().filter(|_| !definition.files.is_empty())?;
    if name.ends_with(".toml") && !name.starts_with("embedded:") {
        let path = base.join(name);
        let folder = path.parent().unwrap_or(Path::new("."));
        let beside = |pattern: &String| {
            crate::source::files::find(name, std::slice::from_ref(pattern), folder, Some(Format::Jsonl))
                .is_ok()
        };
        if definition.files.iter().any(beside) {
            return None;
        }
    } else if let Some(inner) = name.strip_prefix("embedded:") {
        let folder = parent(inner);
        if definition.files.iter().any(|file| embedded(&format!("{folder}{file}")).is_some()) {
            return None;
        }
    }
    Some(Want {
        user: format!("benchmark `{}`", definition.name),
        kind: RepoKind::Dataset,
        repo,
        revision: definition.revision.clone().unwrap_or_else(|| MAIN.to_owned()),
        patterns: definition.files.clone(),
        matching: Matching::Every,
        splits: Splits::Any,
    })
}

/// The names with suites replaced by their members, each once.
fn members(names: &[String]) -> Result<Vec<String>, BenchmarkError> {
    let suites = known::suites()?;
    let mut flat: Vec<String> = Vec::new();
    for name in names {
        let members = suites.get(name).map_or(std::slice::from_ref(name), |suite| &suite.benchmarks);
        for member in members {
            if !flat.contains(member) {
                flat.push(member.clone());
            }
        }
    }
    Ok(flat)
}

/// Loads benchmarks by name: suites, known benchmarks, definition files, files of prompts. One that is
/// named twice is loaded once.
///
/// # Errors
/// One that cannot be read whole: a member of a suite is never skipped.
pub fn load(names: &[String], places: Places) -> Result<Vec<LoadedBenchmark>, BenchmarkError> {
    members(names)?.iter().map(|name| load_named(name, places)).collect()
}

/// A known benchmark, read from the Hub or from the local copy of its repository, or a file.
fn load_named(name: &str, places: Places) -> Result<LoadedBenchmark, BenchmarkError> {
    let Some(definition) = known::definition(name)? else { return load_one(name, places) };
    read_definition(&definition, &repo_folder(&definition, name, places)?)
}

/// Where the files of a definition's repository are: in a local copy, or on the Hub.
fn repo_folder<'a>(
    definition: &BenchmarkDefinition,
    name: &str,
    places: Places<'a>,
) -> Result<Folder<'a>, BenchmarkError> {
    let repo = definition.repo.clone().unwrap_or_default();
    let no_copy = || BenchmarkError::NoCopy { name: definition.name.clone(), repo: repo.clone() };
    let Some(copies) = places.copies else {
        let supply = places.supply.ok_or_else(no_copy)?;
        let want = want(definition, name, places.base).ok_or_else(no_copy)?;
        return Ok(Folder::Hub(supply, want));
    };
    let copies = places.base.join(copies);
    let folder =
        [copies.join(&repo), copies.join(repo.replace('/', "__"))].into_iter().find(|path| path.is_dir());
    folder.map(Folder::Path).ok_or_else(no_copy)
}

/// How a blocklist is built.
pub struct Built {
    /// Words in a gram.
    pub ngram: u64,
    /// Sample of clean texts; none for no sample.
    pub background: Vec<String>,
    /// Texts of the sample that a gram must stand in to be weak.
    pub least: u32,
}

/// Builds a blocklist, with grams that are frequent in a sample of clean text weak.
///
/// # Errors
/// As [`build`].
pub fn build_with(benchmarks: &[LoadedBenchmark], how: Built) -> Result<Blocklist, BenchmarkError> {
    let builder = filled(benchmarks, how.ngram)?;
    if how.background.is_empty() {
        return Ok(builder.build()?);
    }
    Ok(builder.build_with_background(how.background, how.least)?)
}

/// Builds the blocklist.
///
/// # Errors
/// An empty benchmark, two of one name, `ngram` out of range.
pub fn build(benchmarks: &[LoadedBenchmark], ngram: u64) -> Result<Blocklist, BenchmarkError> {
    Ok(filled(benchmarks, ngram)?.build()?)
}

fn filled(benchmarks: &[LoadedBenchmark], ngram: u64) -> Result<BlocklistBuilder, BenchmarkError> {
    let mut builder = BlocklistBuilder::new(ngram as usize)?;
    for benchmark in benchmarks {
        builder.add(benchmark.meta.clone(), benchmark.items.iter().cloned())?;
    }
    Ok(builder)
}

/// A definition file, with its folder.
fn parse_definition<'a>(
    name: &str,
    base: &Path,
) -> Result<(BenchmarkDefinition, Folder<'a>), BenchmarkError> {
    let (bytes, folder, label) = open_named(name, base)?;
    Ok((BenchmarkDefinition::parse(utf8(name, &label, &bytes)?, &label)?, folder))
}

/// The text of a file, `label` being its name for messages.
fn utf8<'t>(name: &str, label: &str, bytes: &'t [u8]) -> Result<&'t str, BenchmarkError> {
    std::str::from_utf8(bytes).map_err(|e| {
        let before = bytes.get(..e.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.rsplit(|byte| *byte == b'\n').next().map_or(0, <[u8]>::len) + 1;
        BenchmarkError::NotUtf8 { name: name.to_owned(), place: format!("{label}:{line}:{column}") }
    })
}

/// The bytes of a definition or of a file of prompts, its folder and its name for messages.
fn open_named<'a>(name: &str, base: &Path) -> Result<(Vec<u8>, Folder<'a>, String), BenchmarkError> {
    Ok(match name.strip_prefix("embedded:") {
        Some(inner) => {
            let bytes = embedded(inner).ok_or_else(|| not_found(name, Path::new(inner)))?;
            (bytes.to_vec(), Folder::Embedded(parent(inner)), inner.to_owned())
        }
        None => {
            let path = base.join(name);
            if !path.is_file() {
                return Err(not_found(name, &path));
            }
            let bytes = std::fs::read(&path).map_err(|source| BenchmarkError::Read {
                name: name.to_owned(),
                path: path.clone(),
                source,
            })?;
            let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
            (bytes, Folder::Path(folder), path.display().to_string())
        }
    })
}

fn load_one(name: &str, places: Places) -> Result<LoadedBenchmark, BenchmarkError> {
    if name.ends_with(".toml") {
        let (definition, folder) = parse_definition(name, places.base)?;
        let folder = match want(&definition, name, places.base) {
            Some(_) => repo_folder(&definition, name, places)?,
            None => folder,
        };
        return read_definition(&definition, &folder);
    }
    let (text, folder, label) = open_named(name, places.base)?;
    let stem = Path::new(&label).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = stem.split('.').next().unwrap_or_default().to_lowercase();
    if label.ends_with(".txt") {
        return read_prompts(&stem, &label, &text);
    }
    let file = Path::new(&label).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let definition = BenchmarkDefinition { name: stem, files: vec![file], ..BenchmarkDefinition::default() };
    read_definition(&definition, &folder)
}

enum Folder<'a> {
    Path(PathBuf),
    Embedded(String),
    Hub(&'a Supply, Want),
}

fn parent(name: &str) -> String {
    name.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"))
}

fn not_found(name: &str, path: &Path) -> BenchmarkError {
    BenchmarkError::NotFound { name: name.to_owned(), path: path.to_path_buf() }
}

/// One prompt a line; a blank line is none.
fn read_prompts(name: &str, label: &str, text: &[u8]) -> Result<LoadedBenchmark, BenchmarkError> {
    let lines = utf8(name, label, text)?;
    let mut items = Vec::new();
    for (number, line) in (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        if words_of(line).is_empty() {
            return Err(BenchmarkError::Item {
                name: name.to_owned(),
                place: format!("{label}:{number}"),
                problem: "an item without a word".to_owned(),
            });
        }
        items.push(Item { id: number.to_string(), stem: line.trim().to_owned(), options: Vec::new() });
    }
    let file = Path::new(label).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file = BenchmarkFile { name: file, size: text.len() as u64, sha256: sha256_hex(text) };
    let meta = BenchmarkMeta { name: name.to_owned(), files: vec![file], ..BenchmarkMeta::default() };
    Ok(LoadedBenchmark { meta, items })
}

fn read_definition(
    definition: &BenchmarkDefinition,
    folder: &Folder<'_>,
) -> Result<LoadedBenchmark, BenchmarkError> {
    let name = &definition.name;
    let wrap = |source| BenchmarkError::Source { name: name.clone(), source };
    let format: Option<Format> = match &definition.format {
        None => None,
        Some(text) => {
            Some(serde_json::from_value(text.as_str().into()).map_err(|_| BenchmarkError::Item {
                name: name.clone(),
                place: "definition".to_owned(),
                problem: format!("there is no format `{text}`"),
            })?)
        }
    };
    if definition.files.is_empty() {
        return Err(BenchmarkError::NotLocal { name: name.clone() });
    }
    let mut loaded = LoadedBenchmark {
        meta: BenchmarkMeta {
            name: name.clone(),
            repo: definition.repo.clone(),
            revision: definition.revision.clone(),
            config: definition.config.clone(),
            split: definition.split.clone(),
            licence: definition.licence.clone(),
            where_: definition.where_.clone(),
            sensitive: definition.sensitive,
            files: Vec::new(),
            canaries: definition.canaries.clone(),
            definition: Some(definition.digest()),
        },
        items: Vec::new(),
    };
    if let Folder::Hub(supply, want) = folder {
        loaded.meta.revision = supply.pin(want).map(|pin| pin.commit.clone());
        for file in supply.kept(want, format).map_err(wrap)? {
            loaded.add(definition, &file)?;
        }
        return check_canaries(definition, loaded);
    }
    for pattern in &definition.files {
        for file in local_files(name, pattern, folder, format)? {
            loaded.add(definition, &file)?;
        }
    }
    check_canaries(definition, loaded)
}

/// A canary column that holds nothing is the wrong column.
fn check_canaries(
    definition: &BenchmarkDefinition,
    loaded: LoadedBenchmark,
) -> Result<LoadedBenchmark, BenchmarkError> {
    match &definition.canary_column {
        Some(column) if loaded.meta.canaries.is_empty() && !loaded.items.is_empty() => {
            Err(BenchmarkError::Item {
                name: definition.name.clone(),
                place: "definition".to_owned(),
                problem: format!("no row has a canary in column `{column}`"),
            })
        }
        _ => Ok(loaded),
    }
}

fn local_files(
    name: &str,
    pattern: &String,
    folder: &Folder<'_>,
    format: Option<Format>,
) -> Result<Vec<SourceFile>, BenchmarkError> {
    let wrap = |source| BenchmarkError::Source { name: name.to_owned(), source };
    match folder {
        Folder::Hub(..) => Ok(Vec::new()),
        Folder::Path(base) => {
            crate::source::files::find(name, std::slice::from_ref(pattern), base, format).map_err(wrap)
        }
        Folder::Embedded(prefix) => {
            let full = format!("{prefix}{pattern}");
            let bytes = embedded(&full).ok_or_else(|| not_found(&full, Path::new(&full)))?;
            Ok(vec![SourceFile::new(pattern.clone(), Location::Embedded(bytes), format).map_err(wrap)?])
        }
    }
}

impl LoadedBenchmark {
    fn add(&mut self, definition: &BenchmarkDefinition, file: &SourceFile) -> Result<(), BenchmarkError> {
        let wrap = |source| BenchmarkError::Source { name: definition.name.clone(), source };
        let (sha256, size) = crate::source::open::digest(file).map_err(wrap)?;
        self.meta.files.push(BenchmarkFile { name: file.name.clone(), size, sha256 });
        read_items(definition, file, self)
    }
}

fn read_items(
    definition: &BenchmarkDefinition,
    file: &SourceFile,
    loaded: &mut LoadedBenchmark,
) -> Result<(), BenchmarkError> {
    let wrap = |source| BenchmarkError::Source { name: definition.name.clone(), source };
    let predicate = predicate(definition, file)?;
    let text = |item: &Item| sha256_hex(format!("{}\0{}", item.stem, item.options.join("\0")).as_bytes());
    let mut seen: BTreeSet<String> = match definition.distinct {
        true => loaded.items.iter().map(text).collect(),
        false => BTreeSet::new(),
    };
    let mut unseen = Unseen::of(definition);
    let request = ReadRequest::whole(Sampler::all(0), 1 << 20);
    let mut reader = open_reader(file, &definition.name, &request).map_err(wrap)?;
    while let Some(chunk) = reader.next_chunk().map_err(wrap)? {
        let kept = match &predicate {
            None => vec![true; chunk.batch.len()],
            Some(predicate) => kept(predicate, &chunk.batch, file)
                .map_err(|source| BenchmarkError::Where { name: definition.name.clone(), source })?,
        };
        for index in (0..chunk.batch.len()).filter(|index| kept.get(*index) == Some(&true)) {
            let number = chunk.batch.row_number(index);
            let present = chunk.batch.present(index);
            unseen.note(&present);
            let item = ItemColumns::of(definition, &present).and_then(|columns| {
                let cells = chunk.batch.decode(index, &columns.names())?;
                let canary = columns.canary(&cells)?;
                Ok((columns.item(&cells, number, definition)?, canary))
            });
            let (item, canary) = item.map_err(|problem| BenchmarkError::Item {
                name: definition.name.clone(),
                place: file.place(number),
                problem,
            })?;
            if !definition.distinct || seen.insert(text(&item)) {
                loaded.items.push(item);
            }
            // as a rule all rows have the same one
            loaded.meta.canaries.extend(canary.filter(|canary| !loaded.meta.canaries.contains(canary)));
        }
    }
    if let Some(problem) = unseen.problem().filter(|_| !loaded.items.is_empty()) {
        let place = file.path().display().to_string();
        return Err(BenchmarkError::Item { name: definition.name.clone(), place, problem });
    }
    Ok(())
}

/// The predicate of a definition, with the types of its columns where the file does not say.
fn predicate(
    definition: &BenchmarkDefinition,
    file: &SourceFile,
) -> Result<Option<Predicate>, BenchmarkError> {
    let name = &definition.name;
    let Some(text) = &definition.where_ else { return Ok(None) };
    let parsed = Predicate::parse(text, name)
        .map_err(|source| BenchmarkError::Where { name: name.clone(), source })?;
    let kinds = crate::run::measure::infer_kinds(name, std::slice::from_ref(file), parsed.columns());
    let kinds = kinds.map_err(|source| BenchmarkError::Source { name: name.clone(), source })?;
    Ok(Some(parsed.with_kinds(kinds)))
}

/// Which rows of a batch are items. A row that cannot be decoded is one: it is an error later.
fn kept(predicate: &Predicate, batch: &RowBatch, file: &SourceFile) -> Result<Vec<bool>, PredicateError> {
    let place = file.path().display().to_string();
    if let RowBatch::Table(table, _) = batch {
        return predicate.evaluate_table(table, &place);
    }
    let columns = predicate.columns();
    let rows: Vec<Option<Vec<Cell>>> =
        (0..batch.len()).map(|index| batch.decode(index, columns).ok()).collect();
    let cells: Vec<&[Cell]> = rows.iter().flatten().map(Vec::as_slice).collect();
    let mut verdicts = predicate.evaluate_cells(&cells, columns, &place)?.into_iter();
    Ok(rows.iter().map(|row| row.is_none() || verdicts.next() == Some(true)).collect())
}
