//! A `[[source]]` becomes what runs: what the card of a known corpus says, and over it what the recipe
//! says.

use std::collections::BTreeSet;
use std::path::Path;

use super::EMBEDDED;
use super::card::{Card, CardConfig};
use super::error::RecipeError;
use super::file::{OnBadRow, SourceEntry};
use super::join::resolve_joins;
use super::pins::{Matching, Splits, Want, is_eval};
use super::resolve::{MAIN, ResolvedSource, check_name, is_repo_id};
use crate::normalise::ControlFinder;
use crate::source::adapt::MappingFile;
use crate::source::hub::RepoKind;
use crate::tokenise::qwen3;

/// Most times that `repeats` lets a row be taken.
const MOST_REPEATS: u64 = 100;

/// Resolves the source at `index`.
///
/// # Errors
/// A source that names no files, a corpus, config or split that is not known.
pub fn resolve_source(
    entry: &SourceEntry,
    index: usize,
    base: &Path,
    cards: &[Card],
) -> Result<ResolvedSource, RecipeError> {
    let purpose = if entry.allow_eval_split.unwrap_or(false) { Purpose::AnySplit } else { Purpose::Train };
    resolve_for(purpose, (entry, index), base, cards)
}

/// What the rows of a source are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To train on.
    Train,
    /// The same, of any split.
    AnySplit,
    /// Text for the rows of another source: an answer is not needed.
    Join,
}

/// Resolves the source at `index` for a purpose.
///
/// # Errors
/// As [`resolve_source`].
pub(super) fn resolve_for(
    purpose: Purpose,
    (entry, index): (&SourceEntry, usize),
    base: &Path,
    cards: &[Card],
) -> Result<ResolvedSource, RecipeError> {
    let given = entry.name.clone().or_else(|| entry.corpus.as_deref().map(|id| id.replace('/', "--")));
    let name = given.unwrap_or_else(|| format!("source-{index}"));
    check_name("source", &name)?;
    let place = format!("source `{name}`");
    let copy =
        entry.copies.as_ref().zip(entry.corpus.as_ref()).map(|(folder, id)| vec![format!("{folder}/{id}")]);
    let paths = entry.path.clone().or(copy);
    let local = paths.is_some();
    let paths = paths.unwrap_or_default();
    check_place(entry, &paths, &place)?;
    let mut source = ResolvedSource {
        name,
        corpus: entry.corpus.clone().or_else(|| entry.repo.clone()),
        want: None,
        revision: entry.revision.clone(),
        config: entry.config.clone(),
        split: entry.split.clone(),
        licence: entry.licence.clone(),
        gated: false,
        eval_split: false,
        patterns: paths,
        base: base.to_path_buf(),
        format: entry.format,
        predicate: entry.where_.clone(),
        files: entry.files,
        sample_ppm: sample(entry.sample, &place)?,
        max_rows: entry.max_rows,
        max_tokens: entry.max_tokens,
        weight_ppm: weight(entry.weight, &place)?,
        repeats: entry.repeats,
        system: entry.system.clone(),
        on_bad_row: entry.on_bad_row.unwrap_or(OnBadRow::Stop),
        mapping: entry.mapping.clone().unwrap_or_default(),
        joins: Vec::new(),
    };
    check_values(&source, place)?;
    let allow_eval = purpose == Purpose::AnySplit;
    let mut joins = entry.join.as_slice();
    if let Some(id) = &entry.corpus {
        let (card, config) = with_card(&mut source, id, cards, purpose)?;
        joins = if joins.is_empty() && purpose != Purpose::Join { &config.join } else { joins };
        if !local {
            let revision = entry.revision.clone().or_else(|| card.revision.clone());
            source.want = Some(want(&source, id, revision, Matching::Any));
        }
    }
    if let Some(id) = &entry.repo {
        check_split(&source, allow_eval)?;
        source.eval_split = allow_eval;
        source.want = Some(want(&source, id, entry.revision.clone(), Matching::Every));
    }
    source.joins = resolve_joins(joins, &source.name, entry.copies.as_deref(), (base, cards))?;
    Ok(source)
}

/// What a source takes from the Hub.
fn want(source: &ResolvedSource, id: &str, revision: Option<String>, matching: Matching) -> Want {
    Want {
        user: format!("source `{}`", source.name),
        kind: RepoKind::Dataset,
        repo: id.to_owned(),
        revision: revision.unwrap_or_else(|| MAIN.to_owned()),
        patterns: source.patterns.clone(),
        matching,
        // The files of a card are known to be those of the split.
        splits: if source.eval_split || matching == Matching::Any { Splits::Any } else { Splits::Training },
    }
}

/// Where the files are has to be said, once.
fn check_place(entry: &SourceEntry, paths: &[String], place: &str) -> Result<(), RecipeError> {
    let (problem, way_out) = match (&entry.corpus, &entry.repo) {
        (None, None) if paths.is_empty() => (
            "there is none of `path`, `corpus` and `repo`".to_owned(),
            "set `path` to a file, a folder or a glob; or `corpus` to a known corpus (`potable corpora list`)",
        ),
        (Some(_), Some(_)) => (
            "`corpus` and `repo` exclude each other".to_owned(),
            "`corpus` is for a known corpus, `repo` for any other dataset of the Hub",
        ),
        (None, Some(_)) if paths.is_empty() => (
            "`repo` needs `path`".to_owned(),
            "set `path` to globs in the repository, such as `data/train-*.parquet`",
        ),
        (Some(id), _) | (_, Some(id)) if !is_repo_id(id) => {
            (format!("`{id}` is no id of a dataset"), "an id is `OWNER/NAME`")
        }
        (Some(_), None) if entry.path.is_some() && paths.is_empty() => (
            "`path` is empty".to_owned(),
            "leave `path` out to read the corpus from the Hub, or name the folder of its local copy",
        ),
        _ => return Ok(()),
    };
    Err(RecipeError::value_hint(place, problem, way_out))
}

/// Without a card, what a split is for is told by its name.
fn check_split(source: &ResolvedSource, allowed: bool) -> Result<(), RecipeError> {
    let Some(split) = source.split.as_deref().filter(|split| !allowed && is_eval(split)) else {
        return Ok(());
    };
    Err(RecipeError::value_hint(
        format!("source `{}`", source.name),
        format!("split `{split}` is named as an evaluation split"),
        "take the training split; `allow_eval_split = true` allows others, and the manifest says so",
    ))
}

/// Values that would take nothing, or put nothing sensible into every row.
fn check_values(source: &ResolvedSource, place: String) -> Result<(), RecipeError> {
    let caps = [("files", source.files), ("max_rows", source.max_rows), ("max_tokens", source.max_tokens)];
    if let Some((key, _)) = caps.iter().find(|(_, value)| *value == Some(0)) {
        let problem = format!("`{key} = 0` takes nothing");
        return Err(RecipeError::value_hint(place, problem, "remove the source, or the key"));
    }
    if let Some(repeats) = source.repeats {
        let capped = source.max_rows.is_some() || source.max_tokens.is_some() || source.weight_ppm.is_some();
        if !(1..=MOST_REPEATS).contains(&repeats) || !capped {
            let problem = if capped { "is not between 1 and 100" } else { "has nothing to fill" };
            let problem = format!("`repeats = {repeats}` {problem}");
            let way_out =
                "`repeats` says how often a row may be taken to fill `max_rows`, `max_tokens` or `weight`";
            return Err(RecipeError::value_hint(place, problem, way_out));
        }
    }
    let controls = ControlFinder::new(&qwen3::control_strings());
    let unfit = |text: &&str| text.trim().is_empty() || controls.finds(text);
    if let Some(text) = source.system.as_deref().filter(unfit) {
        let problem = format!("`system = {text:?}` is blank or holds a control string");
        return Err(RecipeError::value_hint(place, problem, "leave the key out, or give plain text"));
    }
    let embedded = source.patterns.iter().filter_map(|pattern| pattern.strip_prefix("embedded:"));
    for name in embedded {
        if !EMBEDDED.iter().any(|(key, _)| *key == name) {
            return Err(RecipeError::value(place, format!("there is no embedded file `{name}`")));
        }
    }
    Ok(())
}

/// Fills in what the card of a known corpus says and the recipe does not.
fn with_card<'c>(
    source: &mut ResolvedSource,
    id: &str,
    cards: &'c [Card],
    purpose: Purpose,
) -> Result<(&'c Card, &'c CardConfig), RecipeError> {
    let place = format!("source `{}`", source.name);
    let Some(card) = cards.iter().find(|card| card.id == id) else {
        return Err(RecipeError::UnknownCorpus {
            source_name: source.name.clone(),
            corpus: id.to_owned(),
            close: closest(id, cards),
        });
    };
    let Some(config) = card.config(source.config.as_deref()) else {
        let names: Vec<&str> = card.config.iter().map(|c| c.name.as_str()).collect();
        return Err(RecipeError::value_hint(
            place,
            format!("corpus `{id}` has no config `{}`", source.config.as_deref().unwrap_or_default()),
            format!("its configs: {}", names.join(", ")),
        ));
    };
    if let Some(reason) = config.unusable.as_ref().filter(|_| purpose != Purpose::Join) {
        let usable = card.config.iter().filter(|c| c.unusable.is_none()).map(|c| c.name.as_str());
        let usable: Vec<&str> = usable.collect();
        let hint = match usable.as_slice() {
            [] => "`potable corpora show` says what the corpus is for".to_owned(),
            names => format!("configs that can be read: {}", names.join(", ")),
        };
        let problem = format!("config `{}` of corpus `{id}` {reason}", config.name);
        return Err(RecipeError::value_hint(place, problem, hint));
    }
    source.eval_split = is_eval_split(source, card, config, purpose == Purpose::AnySplit)?;
    match source.patterns.as_slice() {
        [] => {}
        [folder] => source.base = source.base.join(folder),
        _ => return Err(RecipeError::value(place, "with `corpus`, `path` is one folder")),
    }
    let split = source.split.as_deref().unwrap_or_default();
    source.patterns = config.eval.get(split).unwrap_or(&config.files).clone();
    source.format = source.format.or(Some(config.format));
    source.config = Some(config.name.clone());
    source.split = source.split.take().or_else(|| Some(config.split.clone()));
    source.licence = source.licence.take().or_else(|| Some(card.licence.clone()));
    source.gated = card.gated;
    let filter = source.predicate.take().or_else(|| config.where_.clone());
    let training = config.train_where.clone().filter(|_| purpose == Purpose::Train);
    source.predicate = match (training, filter) {
        (Some(training), Some(filter)) => Some(format!("({training}) AND ({filter})")),
        (training, filter) => training.or(filter),
    };
    if source.mapping == MappingFile::default() {
        source.mapping = config.mapping.clone().unwrap_or_default();
    }
    Ok((card, config))
}

/// Only training splits, unless the recipe allows more: then the files that the card has for
/// evaluation.
fn is_eval_split(
    source: &ResolvedSource,
    card: &Card,
    config: &CardConfig,
    allowed: bool,
) -> Result<bool, RecipeError> {
    let Some(split) = source.split.as_deref().filter(|split| *split != config.split) else {
        return Ok(false);
    };
    let place = format!("source `{}`", source.name);
    if !allowed {
        return Err(RecipeError::value_hint(
            place,
            format!("split `{split}` of `{}` is not its training split", card.id),
            format!(
                "take split `{}`; `allow_eval_split = true` allows others, and the manifest says so",
                config.split
            ),
        ));
    }
    if !config.eval.contains_key(split) {
        let known: Vec<&str> = config.eval.keys().map(String::as_str).collect();
        return Err(RecipeError::value_hint(
            place,
            format!("the card of `{}` names no files of split `{split}`", card.id),
            match known.as_slice() {
                [] => "name the files with `path`, without `corpus`".to_owned(),
                known => format!("its splits for evaluation: {}", known.join(", ")),
            },
        ));
    }
    Ok(true)
}

/// The known id that shares most of its letters' pairs with `id`.
fn closest(id: &str, cards: &[Card]) -> Option<String> {
    let pairs = |text: &str| -> BTreeSet<(char, char)> {
        let lower: Vec<char> = text.to_lowercase().chars().collect();
        lower.iter().copied().zip(lower.iter().copied().skip(1)).collect()
    };
    let wanted = pairs(id);
    let best = cards.iter().max_by_key(|card| {
        let other = pairs(&card.id);
        wanted.intersection(&other).count() * 1000 / wanted.union(&other).count().max(1)
    })?;
    let shared = pairs(&best.id).intersection(&wanted).count();
    (shared * 2 > wanted.len()).then(|| best.id.clone())
}

fn sample(sample: Option<f64>, place: &str) -> Result<Option<u64>, RecipeError> {
    match sample {
        None => Ok(None),
        Some(share) if (1e-6..1.0).contains(&share) => Ok(Some((share * 1e6).round() as u64)),
        Some(share) => Err(RecipeError::value_hint(
            place,
            format!("`sample = {share}` is not a share between 0.000001 and 1"),
            "`sample = 0.9` takes nine rows of ten; leave the key out for all of them",
        )),
    }
}

fn weight(weight: Option<f64>, place: &str) -> Result<Option<u64>, RecipeError> {
    match weight {
        None => Ok(None),
        Some(w) if (1e-6..=1.0).contains(&w) => Ok(Some((w * 1e6).round() as u64)),
        Some(w) => Err(RecipeError::value_hint(
            place,
            format!("`weight = {w}` is not a share between 0.000001 and 1"),
            "a weight is the share of the phase's tokens that the source has",
        )),
    }
}
