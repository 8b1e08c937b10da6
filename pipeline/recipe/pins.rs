//! From what a recipe takes from the Hub to pins: each revision becomes a commit, each pattern files
//! with size and sha256. A lock that pins it already is taken as it is, and no request is made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use glob::{MatchOptions, Pattern};
use potable_manifests::is_commit;

use super::lock::{LOCK_VERSION, Pin, PinnedFile, RecipeLock};
use crate::source::hub::{Hub, HubError, HubFile, Identity, RepoAt, RepoKind};

/// What a recipe wants of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Who wants it, for messages: ``source `x` ``.
    pub user: String,
    /// Dataset or model.
    pub kind: RepoKind,
    /// Id, `owner/name`.
    pub repo: String,
    /// Branch, tag or commit; `main` where the recipe does not say.
    pub revision: String,
    /// Globs in the repository.
    pub patterns: Vec<String>,
    /// Whether each pattern must match a file, or one of them is enough.
    pub matching: Matching,
    /// Whether files that are for evaluation are wanted.
    pub splits: Splits,
}

/// How many patterns must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// Every one.
    Every,
    /// One is enough: a card lists several layouts.
    Any,
}

/// Which splits may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splits {
    /// Training data: a file that is named as an evaluation split is refused.
    Training,
    /// Whatever the patterns name.
    Any,
}

/// What may be done to a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockUse {
    /// What it lacks is pinned.
    Extend,
    /// What it lacks is an error.
    Locked,
    /// Everything is pinned anew, or only what a user (the name of a source or benchmark) or a
    /// repository of this name takes.
    Update(Option<String>),
}

/// Why something cannot be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The Hub.
    #[error("{user}")]
    Hub {
        /// Who wants it.
        user: String,
        /// Cause.
        #[source]
        source: Box<HubError>,
    },
    /// A pattern that matches no file of the repository.
    #[error("{user}: no file of `{repo}` at {commit} matches `{pattern}`")]
    NoMatch {
        /// Who wants it.
        user: String,
        /// The repository.
        repo: String,
        /// The commit.
        commit: String,
        /// The pattern.
        pattern: String,
        /// Some files that there are.
        there: Vec<String>,
    },
    /// A pattern that does not parse.
    #[error("{user}: `{pattern}` is not a pattern: {reason}")]
    BadPattern {
        /// Who wants it.
        user: String,
        /// The pattern.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// A file of another split.
    #[error("{user}: `{path}` of `{repo}` is named as an evaluation split")]
    EvalSplit {
        /// Who wants it.
        user: String,
        /// The repository.
        repo: String,
        /// The file.
        path: String,
    },
    /// Something that the lock does not pin.
    #[error(
        "{user}: the lock does not pin `{repo}` at `{revision}` with these files, and `--locked` forbids changing it"
    )]
    NotLocked {
        /// Who wants it.
        user: String,
        /// The repository.
        repo: String,
        /// The revision asked for.
        revision: String,
    },
    /// A pin that cannot be what the recipe wants.
    #[error("{user}: the lock's pin of `{repo}` does not fit: {problem}")]
    Misfit {
        /// Who wants it.
        user: String,
        /// The repository.
        repo: String,
        /// What is wrong.
        problem: String,
    },
    /// `--update` with a name that nothing has.
    #[error("nothing that the recipe takes from the Hub is called `{name}`")]
    NothingToUpdate {
        /// The name.
        name: String,
        /// Names that there are.
        there: Vec<String>,
    },
}

impl PinError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            PinError::Hub { source, .. } => source.hint(),
            PinError::NoMatch { there, .. } if there.is_empty() => {
                Some("the repository holds no data file at this revision".to_owned())
            }
            PinError::NoMatch { there, .. } => Some(format!("it holds, for example: {}", there.join(", "))),
            PinError::BadPattern { .. } => {
                Some("`*` matches within a folder, `**` across folders".to_owned())
            }
            PinError::EvalSplit { .. } => Some(
                "name the files of the training split, or set `allow_eval_split = true`, which the manifest records"
                    .to_owned(),
            ),
            PinError::NotLocked { .. } => {
                Some("run `potable lock RECIPE`, look at what changed, and commit the lock".to_owned())
            }
            PinError::Misfit { .. } => Some(
                "restore the lock from version control; `potable lock RECIPE --update` pins anew".to_owned(),
            ),
            PinError::NothingToUpdate { there, .. } => Some(format!("there are: {}", there.join(", "))),
        }
    }
}

/// Pins every want. Wants of one repository and revision get one commit.
///
/// # Errors
/// What the Hub says, patterns without a file, and with [`LockUse::Locked`] what the lock lacks.
pub fn pin(
    wants: &[Want],
    old: &RecipeLock,
    how: &LockUse,
    hub: &dyn Fn() -> Result<Hub, HubError>,
) -> Result<RecipeLock, PinError> {
    let mut pinning =
        Pinning { old: stays(wants, old, how)?, how, hub, opened: None, listed: BTreeMap::new() };
    let mut pins: Vec<Pin> = Vec::new();
    for want in wants {
        let pin = match pinning.known(want) {
            Some(pin) => {
                check_fit(want, pin)?;
                pin.clone()
            }
            None => pinning.settle(want)?,
        };
        if !pins.contains(&pin) {
            pins.push(pin);
        }
    }
    pins.sort_by(|a, b| {
        (a.kind, &a.repo, &a.revision, &a.patterns).cmp(&(b.kind, &b.repo, &b.revision, &b.patterns))
    });
    Ok(RecipeLock { version: LOCK_VERSION, pin: pins })
}

/// A pin that a lock has already must be what its want would choose, as far as the lock can tell.
fn check_fit(want: &Want, pin: &Pin) -> Result<(), PinError> {
    let misfit =
        |problem: String| PinError::Misfit { user: want.user.clone(), repo: want.repo.clone(), problem };
    if is_commit(&pin.revision) && pin.revision != pin.commit {
        let problem = format!("the revision is the commit {}, and the lock has {}", pin.revision, pin.commit);
        return Err(misfit(problem));
    }
    let patterns = patterns(want)?;
    let fits = |pattern: &Pattern, path: &str| pattern.matches_with(path, OPTIONS);
    let stray = |file: &&PinnedFile| !patterns.iter().any(|pattern| fits(pattern, &file.path));
    if let Some(file) = pin.file.iter().find(stray) {
        return Err(misfit(format!("`{}` matches none of its patterns", file.path)));
    }
    let empty = |pattern: &&Pattern| !pin.file.iter().any(|file| fits(pattern, &file.path));
    let all = want.matching == Matching::Every || pin.file.is_empty();
    if let Some(pattern) = patterns.iter().find(empty).filter(|_| all) {
        return Err(misfit(format!("it has no file for `{pattern}`")));
    }
    let mut paths: Vec<&str> = pin.file.iter().map(|file| file.path.as_str()).collect();
    check_splits(want, &paths)?;
    paths.sort_unstable();
    match paths.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(pair) => Err(misfit(format!("it has `{}` twice", pair.first().copied().unwrap_or_default()))),
        None => Ok(()),
    }
}

/// Training data must not be named as an evaluation split.
fn check_splits(want: &Want, paths: &[&str]) -> Result<(), PinError> {
    let found = paths.iter().find(|path| want.splits == Splits::Training && is_eval(path));
    found.map_or(Ok(()), |path| {
        Err(PinError::EvalSplit {
            user: want.user.clone(),
            repo: want.repo.clone(),
            path: (*path).to_owned(),
        })
    })
}

/// `*` matches within a folder, and hidden files only where the pattern names them.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

fn patterns(want: &Want) -> Result<Vec<Pattern>, PinError> {
    let parse = |text: &String| {
        Pattern::new(text).map_err(|e| PinError::BadPattern {
            user: want.user.clone(),
            pattern: text.clone(),
            reason: e.to_string(),
        })
    };
    want.patterns.iter().map(parse).collect()
}

/// The pin of a want in a lock.
pub fn find<'a>(lock: &'a RecipeLock, want: &Want) -> Option<&'a Pin> {
    lock.pin.iter().find(|pin| {
        pin.kind == want.kind
            && pin.repo == want.repo
            && pin.revision == want.revision
            && pin.patterns == want.patterns
    })
}

/// The pins of the old lock that are kept.
fn stays(wants: &[Want], old: &RecipeLock, how: &LockUse) -> Result<RecipeLock, PinError> {
    let LockUse::Update(which) = how else { return Ok(old.clone()) };
    let Some(name) = which else { return Ok(RecipeLock::default()) };
    let user = |want: &Want| want.user.split('`').nth(1) == Some(name.as_str());
    let moved: Vec<&str> =
        wants.iter().filter(|want| user(want) || want.repo == *name).map(|want| want.repo.as_str()).collect();
    if moved.is_empty() {
        let mut there: Vec<String> =
            wants.iter().filter_map(|want| want.user.split('`').nth(1)).map(str::to_owned).collect();
        there.sort();
        there.dedup();
        return Err(PinError::NothingToUpdate { name: name.clone(), there });
    }
    let pin = old.pin.iter().filter(|pin| !moved.contains(&pin.repo.as_str())).cloned().collect();
    Ok(RecipeLock { pin, ..old.clone() })
}

type Repo = (RepoKind, String, String);

struct Pinning<'a> {
    old: RecipeLock,
    how: &'a LockUse,
    hub: &'a dyn Fn() -> Result<Hub, HubError>,
    opened: Option<Hub>,
    listed: BTreeMap<Repo, RepoAt>,
}

impl Pinning<'_> {
    fn known(&self, want: &Want) -> Option<&Pin> {
        find(&self.old, want)
    }

    fn settle(&mut self, want: &Want) -> Result<Pin, PinError> {
        if *self.how == LockUse::Locked {
            return Err(PinError::NotLocked {
                user: want.user.clone(),
                repo: want.repo.clone(),
                revision: want.revision.clone(),
            });
        }
        let listed = self.list(want)?;
        let chosen = choose(want, &listed)?;
        let mut files = Vec::new();
        for file in chosen {
            files.push(self.digest_of(want, &listed, &file)?);
        }
        Ok(Pin {
            kind: want.kind,
            repo: want.repo.clone(),
            revision: want.revision.clone(),
            commit: listed.at.commit,
            licence: listed.licence,
            gated: listed.gated,
            patterns: want.patterns.clone(),
            file: files,
        })
    }

    /// The files of the repository: at the commit that the lock has for this revision, if it has one.
    fn list(&mut self, want: &Want) -> Result<RepoAt, PinError> {
        let key = (want.kind, want.repo.clone(), want.revision.clone());
        if let Some(listed) = self.listed.get(&key) {
            return Ok(listed.clone());
        }
        let same = |pin: &&Pin| (pin.kind, &pin.repo, &pin.revision) == (key.0, &key.1, &key.2);
        let revision = self.old.pin.iter().find(same).map_or(want.revision.clone(), |pin| pin.commit.clone());
        let hub = self.open(want)?;
        let listed = hub.resolve(want.kind, &want.repo, &revision).map_err(|e| because(want, e))?;
        self.listed.insert(key, listed.clone());
        Ok(listed)
    }

    /// Small files have no sha256 on the Hub, only the digest of a git blob: they are fetched.
    fn digest_of(&mut self, want: &Want, listed: &RepoAt, file: &HubFile) -> Result<PinnedFile, PinError> {
        let (sha256, blob) = match &file.identity {
            Identity::Sha256(hex) => (hex.clone(), None),
            Identity::GitBlob(blob) => {
                let hub = self.open(want)?;
                let fetched = hub.fetch(&listed.at, file, &|_| {}).map_err(|e| because(want, e))?;
                (fetched.sha256, Some(blob.clone()))
            }
        };
        Ok(PinnedFile { path: file.path.clone(), size: file.size, sha256, blob })
    }

    fn open(&mut self, want: &Want) -> Result<Hub, PinError> {
        let hub = match self.opened.take() {
            Some(hub) => hub,
            None => (self.hub)().map_err(|e| because(want, e))?,
        };
        self.opened = Some(hub.clone());
        Ok(hub)
    }
}

fn because(want: &Want, source: HubError) -> PinError {
    PinError::Hub { user: want.user.clone(), source: Box::new(source) }
}

/// The files of a repository that the patterns name, by path.
fn choose(want: &Want, listed: &RepoAt) -> Result<Vec<HubFile>, PinError> {
    let mut chosen: BTreeMap<PathBuf, HubFile> = BTreeMap::new();
    let mut unmatched = Vec::new();
    for (text, pattern) in want.patterns.iter().zip(patterns(want)?) {
        let fits = |file: &&HubFile| pattern.matches_with(&file.path, OPTIONS);
        let found: Vec<&HubFile> = listed.files.iter().filter(fits).collect();
        if found.is_empty() {
            unmatched.push(text.as_str());
        }
        chosen.extend(found.into_iter().map(|file| (PathBuf::from(&file.path), file.clone())));
    }
    if chosen.is_empty() || (want.matching == Matching::Every && !unmatched.is_empty()) {
        let there = listed.files.iter().map(|file| file.path.clone());
        return Err(PinError::NoMatch {
            user: want.user.clone(),
            repo: want.repo.clone(),
            commit: listed.at.commit.clone(),
            pattern: unmatched.join("`, `"),
            there: there.filter(|path| !path.ends_with(".md") && !path.starts_with('.')).take(8).collect(),
        });
    }
    let paths: Vec<&str> = chosen.values().map(|file| file.path.as_str()).collect();
    check_splits(want, &paths)?;
    Ok(chosen.into_values().collect())
}

/// Whether a file or one of its folders has the name of an evaluation split: `test-00000-of-…`,
/// `validation/x`, `dev.jsonl`, `gsm8k_test.jsonl`, `test2.jsonl`.
pub(super) fn is_eval(path: &str) -> bool {
    const WORDS: [&str; 8] = ["test", "tests", "validation", "valid", "val", "dev", "eval", "evaluation"];
    path.split(['/', '-', '.', '_']).any(|word| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase();
        WORDS.contains(&word.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_evaluation_splits_are_told_by_their_names() {
        for path in [
            "data/test-00000-of-00001.parquet",
            "validation/x.jsonl",
            "dev.csv",
            "Test.jsonl",
            "gsm8k_test.jsonl",
            "test6.jsonl",
            "a-eval/x",
        ] {
            assert!(is_eval(path), "{path}");
        }
        for path in ["data/train-00000-of-00001.parquet", "testing/x.jsonl", "contest.jsonl", "developer.csv"]
        {
            assert!(!is_eval(path), "{path}");
        }
    }
}
