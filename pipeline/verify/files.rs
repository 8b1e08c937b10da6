//! Which files a data set must have, which it has, and the bytes of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use potable_manifests::{Digest, Hasher, Manifest, ShardRecord};

use super::problem::{Fault, Problem};
use super::progress::ByteProgress;
use crate::recipe::file::ShardFormat;
use crate::run::reduce::CALIBRATION;

/// Files that may lie in the folder of a data set and that its manifest does not cover: what a run
/// says of itself, and what people put beside data that they publish.
pub const NOT_COVERED: [&str; 8] = [
    "downloads.jsonl",
    "report.html",
    "README.md",
    "DATA_MANIFEST.md",
    "LICENSE",
    "croissant.json",
    "statement.intoto.json",
    ".gitattributes",
];

/// Folders that hold no data: staged work, keys for later runs, version control.
const SKIPPED_FOLDERS: [&str; 4] = [".work", ".keys", ".git", ".cache"];

/// Bytes that are hashed at a time.
const BUFFER: usize = 1 << 20;

/// What the manifest states of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Digest of its bytes.
    pub sha256: Digest,
    /// Bytes, where the manifest has them.
    pub size: Option<u64>,
}

/// The files of a folder against those of its manifest.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Files that are there and stated, with size.
    pub present: BTreeMap<String, (Stated, u64)>,
    /// Files that are there and that the manifest does not cover, as said in [`NOT_COVERED`].
    pub not_covered: Vec<String>,
    /// Files that are missing, added or renamed.
    pub problems: Vec<Problem>,
}

/// The files that the manifest states, by path.
pub fn stated(manifest: &Manifest) -> BTreeMap<String, Stated> {
    let run = &manifest.run;
    let shards = run.file_sha256.iter().map(|(path, record)| {
        (path.clone(), Stated { sha256: record.sha256.clone(), size: Some(record.size) })
    });
    // `plan` and `dropped` are digests of content, not of files.
    let others = run
        .other_digests
        .iter()
        .filter(|(path, _)| *path == "recipe.lock" || path.contains('/'))
        .map(|(path, sha256)| (path.clone(), Stated { sha256: sha256.clone(), size: None }));
    shards.chain(others).collect()
}

/// Whether the files that the manifest states are those of a data set with its shards, no more and no
/// fewer: the digest of the manifest does not cover them.
pub fn against_shards(manifest: &Manifest, format: ShardFormat) -> Vec<Problem> {
    let of = |shard: &ShardRecord| [format.files(&shard.path), format.index_files(&shard.path)].concat();
    let mut due: BTreeSet<String> = manifest.shards.iter().flat_map(of).collect();
    let choice = manifest.recipe.settings.pointer("/output/calibration");
    if choice.and_then(serde_json::Value::as_u64).is_some_and(|packs| packs > 0) {
        due.insert(CALIBRATION.to_owned());
    }
    let run = &manifest.run;
    let files: BTreeSet<String> = run.file_sha256.keys().cloned().collect();
    let others = run.other_digests.keys().filter(|path| !is_other(path)).cloned();
    let foreign = files.difference(&due).cloned().chain(others);
    let foreign = foreign.map(|path| Problem::new(path, Fault::Foreign));
    let unstated = due.difference(&files).map(|path| Problem::new(path, Fault::Unstated));
    foreign.chain(unstated).collect()
}

/// Whether a run states the digest of something of this name that is no shard.
fn is_other(path: &str) -> bool {
    let part = path.strip_prefix("dropped/part-").and_then(|rest| rest.strip_suffix(".parquet"));
    let numbered = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    ["recipe.lock", "plan", "dropped"].contains(&path) || part.is_some_and(numbered)
}

/// Lists a folder against `stated`. Files of the same size as a missing one are hashed, to tell what
/// was renamed.
///
/// # Errors
/// A folder that cannot be listed.
pub fn list(dir: &Path, mut stated: BTreeMap<String, Stated>) -> std::io::Result<Listing> {
    let mut listing = Listing::default();
    let mut added: Vec<(String, u64)> = Vec::new();
    for (path, size) in files_below(dir)? {
        if path == "manifest.json" || path == "manifest.json.sha256" {
            continue;
        }
        match stated.remove(&path) {
            Some(known) => drop(listing.present.insert(path, (known, size))),
            None if NOT_COVERED.contains(&path.as_str()) => listing.not_covered.push(path),
            None => added.push((path, size)),
        }
    }
    for (path, missing) in stated {
        let renamed = added.iter().position(|(added, size)| {
            missing.size.is_none_or(|stated| stated == *size)
                && sha256_of(&dir.join(added), &ByteProgress::default()).is_ok_and(|d| d == missing.sha256)
        });
        let fault = match renamed {
            Some(at) => Fault::Renamed { path: added.swap_remove(at).0 },
            None => Fault::Missing,
        };
        listing.problems.push(Problem::new(path, fault));
    }
    listing.problems.extend(added.into_iter().map(|(path, _)| Problem::new(path, Fault::Added)));
    Ok(listing)
}

/// Checks size and digest of a file.
pub fn check_bytes(dir: &Path, path: &str, stated: &Stated, progress: &ByteProgress) -> Vec<Problem> {
    let full = dir.join(path);
    let mut problems = Vec::new();
    let size = std::fs::metadata(&full).map(|meta| meta.len());
    if let (Ok(found), Some(stated)) = (size, stated.size)
        && found != stated
    {
        problems.push(Problem::new(path, Fault::Size { found, stated }));
    }
    match sha256_of(&full, progress) {
        Ok(found) if found != stated.sha256 => {
            problems.push(Problem::new(path, Fault::Bytes { found, stated: stated.sha256.clone() }));
        }
        Ok(_) => {}
        Err(e) => problems.push(Problem::new(path, Fault::Unreadable { reason: e.to_string() })),
    }
    problems
}

/// SHA-256 of a file, read in pieces.
///
/// # Errors
/// What the file system says.
pub fn sha256_of(path: &Path, progress: &ByteProgress) -> std::io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        progress.count(read as u64);
    }
}

/// Paths (with `/`) and sizes of all files below a folder, in the order of paths. Links to folders
/// are not followed and count as files; folders of staged work and version control are left out.
///
/// # Errors
/// A folder that cannot be listed.
pub fn files_below(dir: &Path) -> std::io::Result<BTreeSet<(String, u64)>> {
    let mut files = BTreeSet::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(dir.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.file_type()?.is_dir() {
                if !(folder.is_empty() && SKIPPED_FOLDERS.contains(&name.as_str())) {
                    folders.push(path);
                }
            } else {
                // The size of what a link leads to; a broken link has none, and reading it fails later.
                let size = std::fs::metadata(entry.path()).map_or(0, |meta| meta.len());
                files.insert((path, size));
            }
        }
    }
    Ok(files)
}
