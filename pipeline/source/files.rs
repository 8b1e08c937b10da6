//! From the paths of a recipe to a sorted list of files with names that are the same anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::error::SourceError;
use super::object::{self, Object};
use super::open::{Format, Location, SourceFile};
use crate::store::Store;

/// Finds the files of a source: each pattern is a file, a folder (all data files below it) or a
/// glob, relative to `base`, or one in an object store, by its address. The list is sorted by name and holds no file twice. A file's name is
/// its path below the folder that all of them share.
///
/// # Errors
/// A pattern that matches nothing, and files whose format cannot be told.
pub fn find(
    source_name: &str,
    patterns: &[String],
    base: &Path,
    format: Option<Format>,
) -> Result<Vec<SourceFile>, SourceError> {
    let mut found = Found::default();
    for pattern in patterns {
        let before = found.paths.len();
        found.expand(source_name, pattern, base, format)?;
        if found.paths.len() == before {
            return Err(no_match(source_name, pattern, base));
        }
    }
    found.named(format)
}

/// Finds the files of a known corpus in its local copy: its card may list several layouts of the
/// repository, and one of them is enough.
///
/// # Errors
/// No pattern that matches.
pub fn find_any(
    source_name: &str,
    patterns: &[String],
    base: &Path,
    format: Option<Format>,
) -> Result<Vec<SourceFile>, SourceError> {
    let mut found = Found::default();
    for pattern in patterns {
        found.expand(source_name, pattern, base, format)?;
    }
    if found.paths.is_empty() {
        return Err(no_match(source_name, &patterns.join("`, `"), base));
    }
    found.named(format)
}

fn no_match(source_name: &str, pattern: &str, base: &Path) -> SourceError {
    SourceError::NoMatch {
        source_name: source_name.to_owned(),
        pattern: match Store::is_address(pattern) {
            true => pattern.to_owned(),
            false => base.join(pattern).display().to_string(),
        },
    }
}

/// Files that patterns name; those in object stores by their addresses.
#[derive(Default)]
struct Found {
    paths: Vec<PathBuf>,
    objects: BTreeMap<PathBuf, Arc<Object>>,
}

impl Found {
    fn expand(
        &mut self,
        source_name: &str,
        pattern: &str,
        base: &Path,
        format: Option<Format>,
    ) -> Result<(), SourceError> {
        if !Store::is_address(pattern) {
            self.paths.extend(expand(source_name, pattern, base, format)?);
            return Ok(());
        }
        for object in object::find(source_name, pattern, format)? {
            self.paths.push(object.shown().to_path_buf());
            self.objects.insert(object.shown().to_path_buf(), object);
        }
        Ok(())
    }

    fn named(mut self, format: Option<Format>) -> Result<Vec<SourceFile>, SourceError> {
        self.paths.sort();
        let mut seen = BTreeSet::new();
        self.paths.retain(|path| seen.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
        let shared = shared_folder(&self.paths);
        let file = |path: PathBuf| {
            let name = path.strip_prefix(&shared).unwrap_or(&path);
            let name = name.to_string_lossy().replace('\\', "/");
            let location = match self.objects.get(&path) {
                Some(object) => Location::Object(object.clone()),
                None => Location::Path(path),
            };
            SourceFile::new(name, location, format)
        };
        self.paths.into_iter().map(file).collect()
    }
}

fn expand(
    source_name: &str,
    pattern: &str,
    base: &Path,
    format: Option<Format>,
) -> Result<Vec<PathBuf>, SourceError> {
    let full = base.join(pattern);
    if full.is_dir() {
        let mut found = Vec::new();
        walk(&full, format, &mut BTreeSet::new(), &mut found)?;
        return Ok(found);
    }
    if full.exists() || !pattern.contains(['*', '?', '[']) {
        return Ok(if full.exists() { vec![full] } else { Vec::new() });
    }
    let bad = |reason: String| SourceError::BadPattern {
        source_name: source_name.to_owned(),
        pattern: pattern.to_owned(),
        reason,
    };
    let mut found = Vec::new();
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::new()
    };
    let paths = glob::glob_with(&full.to_string_lossy(), options).map_err(|e| bad(e.to_string()))?;
    for path in paths {
        let path = path.map_err(|e| bad(e.to_string()))?;
        if path.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

/// Data files below a folder; hidden files and files of unknown format are left out.
fn walk(
    folder: &Path,
    format: Option<Format>,
    seen: &mut BTreeSet<PathBuf>,
    found: &mut Vec<PathBuf>,
) -> Result<(), SourceError> {
    let read_error = |source| SourceError::Read { path: folder.to_path_buf(), source };
    // A link may lead back up.
    if !seen.insert(std::fs::canonicalize(folder).map_err(read_error)?) {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).map_err(read_error)? {
        let path = entry.map_err(read_error)?.path();
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if hidden {
            continue;
        }
        if path.is_dir() {
            walk(&path, format, seen, found)?;
        } else {
            let name = path.to_string_lossy().into_owned();
            let file = SourceFile::new(name, Location::Path(path.clone()), None);
            if file.is_ok_and(|file| format.is_none_or(|format| format == file.format)) {
                found.push(path);
            }
        }
    }
    Ok(())
}

/// Paths in a repository by name, each with its name below the folder that all of them share.
pub fn repository_names(paths: &[String]) -> Vec<(String, String)> {
    let mut sorted: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    sorted.sort();
    let shared = shared_folder(&sorted);
    let text = |path: &Path| path.to_string_lossy().replace('\\', "/");
    sorted.iter().map(|path| (text(path), text(path.strip_prefix(&shared).unwrap_or(path)))).collect()
}

fn shared_folder(paths: &[PathBuf]) -> PathBuf {
    let mut folders = paths.iter().filter_map(|path| path.parent());
    let Some(first) = folders.next() else {
        return PathBuf::new();
    };
    let mut shared: Vec<Component> = first.components().collect();
    for folder in folders {
        let same = shared.iter().zip(folder.components()).take_while(|(a, b)| **a == *b).count();
        shared.truncate(same);
    }
    shared.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_to_the_folder_that_all_files_share() {
        let paths = ["/d/a/x.jsonl", "/d/b/x.jsonl"].map(PathBuf::from);
        assert_eq!(shared_folder(&paths), PathBuf::from("/d"));
        assert_eq!(shared_folder(&paths[..1]), PathBuf::from("/d/a"));
    }
}
