//! `potable blocklist build` and `extend`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use potable_blocklists::Blocklist;
use serde::{Deserialize, Serialize};

use super::Answer;
use super::args::{BuildArgs, ExtendArgs};
use super::blocklist::table;
use super::display::grouped;
use super::output::Output;
use crate::decontaminate::benchmarks::{self, Built, LoadedBenchmark, Places};
use crate::decontaminate::check::texts_of_file;
use crate::recipe::lock::{LOCK_VERSION, Pin, RecipeLock};
use crate::run::RunError;
use crate::run::pull::supply_benchmarks;
use crate::shard::{AtomicFile, write_atomic};
use crate::source::files;

/// What a blocklist was built from, kept beside it (`FILE.sources`): a blocklist holds no text, so that
/// extending it reads its benchmarks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sources {
    definitions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<PathBuf>,
    ngram: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    background: Vec<String>,
    background_least: u32,
    /// What came from the Hub, so that it is the same when the blocklist is extended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pin: Vec<Pin>,
}

/// Builds a blocklist.
///
/// # Errors
/// A benchmark that cannot be read whole, a file that cannot be written.
pub fn build(args: &BuildArgs, output: &Output) -> Result<Answer> {
    let mut sources = Sources {
        definitions: args.definitions.clone(),
        copies: args.copies.clone(),
        ngram: args.ngram,
        background: args.background.clone(),
        background_least: args.background_least,
        pin: Vec::new(),
    };
    let (blocklist, _) = from_sources(&mut sources)?;
    write(&blocklist, &sources, &args.output, output)
}

/// Adds benchmarks to a blocklist.
///
/// # Errors
/// A blocklist whose own benchmarks cannot be read again, or one that was built from other files or
/// definitions, with another n or another sample of clean text than what lies beside it says.
pub fn extend(args: &ExtendArgs, output: &Output) -> Result<Answer> {
    let old = Blocklist::load(&args.file)?;
    let mut sources = read_sources(&args.file)?;
    for name in &args.definitions {
        if !sources.definitions.contains(name) {
            sources.definitions.push(name.clone());
        }
    }
    let (new, _) = from_sources(&mut sources)?;
    new.check_extends(&old)?;
    write(&new, &sources, &args.file, output)
}

/// A blocklist, and the benchmarks that it was built from, read again.
///
/// # Errors
/// As [`extend`].
pub(super) fn load_with_items(path: &Path) -> Result<(Blocklist, Vec<LoadedBenchmark>)> {
    let blocklist = Blocklist::load(path)?;
    let (again, loaded) = from_sources(&mut read_sources(path)?)?;
    again.check_extends(&blocklist)?;
    Ok((blocklist, loaded))
}

fn read_sources(path: &Path) -> Result<Sources> {
    let beside = beside(path);
    let text = std::fs::read_to_string(&beside)
        .map_err(|source| RunError::Read { path: beside.clone(), source })
        .context("a blocklist holds no text, and what it was built from is not beside it; build it anew")?;
    toml::from_str(&text).with_context(|| format!("{}", beside.display()))
}

fn from_sources(sources: &mut Sources) -> Result<(Blocklist, Vec<LoadedBenchmark>)> {
    let places = Places { base: Path::new(""), copies: sources.copies.as_deref(), supply: None };
    let old = RecipeLock { version: LOCK_VERSION, pin: std::mem::take(&mut sources.pin) };
    let supply = supply_benchmarks(&sources.definitions, places, &old)?;
    sources.pin = supply.lock().pin.clone();
    let places = Places { supply: Some(&supply), ..places };
    let loaded = benchmarks::load(&sources.definitions, places)?;
    let mut texts = Vec::new();
    for file in files::find("background", &sources.background, Path::new(""), None)? {
        texts.extend(texts_of_file(&file)?);
    }
    let built = Built { ngram: sources.ngram, background: texts, least: sources.background_least };
    Ok((benchmarks::build_with(&loaded, built)?, loaded))
}

fn write(blocklist: &Blocklist, sources: &Sources, path: &Path, output: &Output) -> Result<Answer> {
    let text = toml::to_string_pretty(sources)?;
    let mut file = AtomicFile::create(path)?;
    blocklist.write_to(&mut file).map_err(|e| RunError::write(path, e))?;
    file.commit()?;
    write_atomic(&beside(path), text.as_bytes())?;
    output.note(&table(blocklist));
    if let Some(background) = &blocklist.header().background {
        output.note(&format!(
            "background  {} texts, {} grams of benchmarks weak by them",
            grouped(background.rows),
            grouped(background.weak_grams)
        ));
    }
    output.note(&format!("wrote       {} {}", path.display(), blocklist.digest()));
    Ok(Answer::Yes)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sources");
    PathBuf::from(name)
}
