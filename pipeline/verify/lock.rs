//! Whether the recipe, the lock and the manifest speak of the same inputs.

use std::path::Path;

use potable_manifests::{BenchmarkRecord, InputFile, InputSource, Manifest, canonical};

use super::problem::{Fault, Problem};
use super::shards::reason;
use crate::recipe::Recipe;
use crate::recipe::lock::{LOCK_VERSION, Lock, LockedFile, LockedSource};

/// The lock's name in a folder.
pub const LOCK: &str = "recipe.lock";

/// Compares the lock of a folder with its manifest.
pub fn check(dir: &Path, manifest: &Manifest) -> Vec<Problem> {
    let unreadable = |reason: String| vec![Problem::new(LOCK, Fault::Unreadable { reason })];
    let text = match std::fs::read_to_string(dir.join(LOCK)) {
        Ok(text) => text,
        Err(e) => return unreadable(reason(&e)),
    };
    let lock: Lock = match toml::from_str(&text) {
        Ok(lock) => lock,
        Err(e) => return unreadable(e.message().to_owned()),
    };
    let mut found = Found::default();
    found.field("layout", &lock.version, &LOCK_VERSION);
    found.field("partitions", &u64::from(lock.partitions), &manifest.recipe.partitions);
    let names = |sources: &[LockedSource]| sources.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    let inputs: Vec<Stated> = manifest.inputs.iter().flat_map(stated).collect();
    let named: Vec<&str> = inputs.iter().map(|source| source.name.as_str()).collect();
    found.field("sources", &names(&lock.source).join(", "), &named.join(", "));
    for (locked, input) in lock.source.iter().zip(&inputs) {
        found.source(locked, input);
    }
    let benchmarks = &manifest.decontamination.benchmarks;
    let named: Vec<String> = benchmarks.iter().map(|benchmark| benchmark.name.clone()).collect();
    found.field("benchmarks", &names(&lock.benchmark).join(", "), &named.join(", "));
    for (locked, benchmark) in lock.benchmark.iter().zip(benchmarks) {
        found.benchmark(locked, benchmark);
    }
    found.problems
}

/// Whether the recipe's text still gives the settings that the manifest states. Only the potable that
/// wrote them can say: another one may have other defaults.
pub fn check_recipe(manifest: &Manifest) -> Option<Problem> {
    let run = &manifest.run;
    if run.potable_version != env!("CARGO_PKG_VERSION") {
        return None;
    }
    let differs = || Some(Problem::new("manifest.json", Fault::RecipeText));
    let recipe = match Recipe::parse(run.recipe_text.as_deref()?, &manifest.name, Path::new("")) {
        Ok(recipe) => recipe,
        // What the recipe names may not be on this machine.
        Err(crate::recipe::RecipeError::Parse { .. }) => return differs(),
        Err(_) => return None,
    };
    let phase = recipe.phases.iter().find(|phase| phase.name == manifest.phase);
    match phase.map(|phase| canonical::floats_as_text(phase.settings())) {
        Some(settings) if settings == manifest.recipe.settings => None,
        _ => differs(),
    }
}

/// What the manifest states of a source, or of a corpus that its rows are joined to.
struct Stated<'a> {
    name: String,
    corpus: Option<&'a String>,
    revision: Option<&'a String>,
    licence: Option<&'a String>,
    local: bool,
    files: Vec<String>,
}

/// A source and the corpora that it is joined to, as they stand in the lock: one after the other, and
/// without rows for the files of joined corpora.
fn stated(source: &InputSource) -> Vec<Stated<'_>> {
    let own = Stated {
        name: source.name.clone(),
        corpus: source.corpus.as_ref(),
        revision: source.revision.as_ref(),
        licence: source.licence.as_ref(),
        local: source.local,
        files: source.files.iter().map(|file| input_text(file, file.rows)).collect(),
    };
    let joins = source.joins.iter().map(|join| Stated {
        name: format!("{} join {}", source.name, join.name),
        corpus: join.corpus.as_ref(),
        revision: join.revision.as_ref(),
        licence: join.licence.as_ref(),
        local: join.local,
        files: join.files.iter().map(|file| input_text(file, None)).collect(),
    });
    [own].into_iter().chain(joins).collect()
}

fn input_text(file: &InputFile, rows: Option<u64>) -> String {
    let rows = rows.map_or(String::new(), |rows| format!(", {rows} rows"));
    format!("{} {} {} bytes{rows}", file.name, file.sha256.hex(), file.size)
}

#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
}

impl Found {
    fn field<T: PartialEq + std::fmt::Display>(&mut self, what: &str, lock: &T, manifest: &T) {
        if lock != manifest {
            let fault = Fault::Lock {
                what: what.to_owned(),
                lock: format!("`{lock}`"),
                manifest: format!("`{manifest}`"),
            };
            self.problems.push(Problem::new(LOCK, fault));
        }
    }

    fn optional(&mut self, what: &str, lock: Option<&String>, manifest: Option<&String>) {
        let shown = |value: Option<&String>| value.map_or("nothing".to_owned(), Clone::clone);
        self.field(what, &shown(lock), &shown(manifest));
    }

    fn source(&mut self, locked: &LockedSource, input: &Stated) {
        let of = |field: &str| format!("{field} of source `{}`", input.name);
        self.optional(&of("repository"), locked.repo.as_ref(), input.corpus);
        self.optional(&of("revision"), locked.revision.as_ref(), input.revision);
        self.optional(&of("licence"), locked.licence.as_ref(), input.licence);
        self.field(&of("local files"), &locked.local, &input.local);
        let files: Vec<String> = locked.file.iter().map(file_text).collect();
        self.files(&of("files"), &files, &input.files);
    }

    fn benchmark(&mut self, locked: &LockedSource, benchmark: &BenchmarkRecord) {
        let of = |field: &str| format!("{field} of benchmark `{}`", benchmark.name);
        self.optional(&of("repository"), locked.repo.as_ref(), benchmark.repo.as_ref());
        self.optional(&of("revision"), locked.revision.as_ref(), benchmark.revision.as_ref());
        self.optional(&of("licence"), locked.licence.as_ref(), benchmark.licence.as_ref());
        let files: Vec<String> = locked.file.iter().map(file_text).collect();
        let stated = benchmark.files.iter();
        let stated = stated.map(|f| format!("{} {} {} bytes", f.name, f.sha256.hex(), f.size));
        self.files(&of("files"), &files, &stated.collect::<Vec<_>>());
    }

    /// One problem for the first file that differs, not one for each.
    fn files(&mut self, what: &str, lock: &[String], manifest: &[String]) {
        let longest = lock.len().max(manifest.len());
        let none = "no more files".to_owned();
        let differs = (0..longest).find(|&at| lock.get(at) != manifest.get(at));
        if let Some(at) = differs {
            self.field(what, lock.get(at).unwrap_or(&none), manifest.get(at).unwrap_or(&none));
        }
    }
}

fn file_text(file: &LockedFile) -> String {
    let rows = file.rows.map_or(String::new(), |rows| format!(", {rows} rows"));
    format!("{} {} {} bytes{rows}", file.name, file.sha256, file.size)
}
