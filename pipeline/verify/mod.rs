//! `manifest verify`: whether a folder holds the data set that its manifest describes. Every stated
//! file is hashed; shards and dropped rows are decoded and counted again; nothing is believed that
//! can be computed.

pub mod dropped;
pub mod files;
pub mod lock;
pub mod open;
pub mod problem;
pub mod progress;
pub mod shards;

use std::path::Path;

use potable_manifests::{Digest, Index, IndexedPhase, Kind, Manifest, ShardRecord, sha256_hex};
use rayon::prelude::*;

use crate::recipe::file::ShardFormat;
use files::{Listing, Stated, check_bytes};
use open::OpenError;
use problem::{Fault, Problem};
use progress::ByteProgress;
use shards::Tally;

const MANIFEST: &str = "manifest.json";
const SUM: &str = "manifest.json.sha256";

/// What was checked in one folder with a manifest, and what is wrong.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Name of the data set.
    pub name: String,
    /// The phase, if the folder is one of several.
    pub phase: Option<String>,
    /// Manifest digest that is stated.
    pub digest: Digest,
    /// Files that were hashed.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Shards that were read again.
    pub shards: usize,
    /// What they hold.
    pub tally: Tally,
    /// Dropped rows that were read again.
    pub dropped: u64,
    /// Files that are there and not covered.
    pub not_covered: Vec<String>,
    /// What is wrong, by path.
    pub problems: Vec<Problem>,
}

/// Checks the data set in `dir`, or each phase of it and the index. A call inside of a rayon pool
/// uses its threads.
///
/// # Errors
/// A folder without a manifest, a file that is no manifest; damage is no error but a [`Problem`].
pub fn verify(dir: &Path, progress: &ByteProgress) -> Result<Vec<Checked>, OpenError> {
    if dir.is_file() {
        return Err(OpenError::NoFolder { path: dir.to_path_buf() });
    }
    let path = open::manifest_path(dir)?;
    let bytes = open::read(&path)?;
    let unusable = |source| OpenError::Unusable { path: path.clone(), source };
    match Kind::of(&bytes).map_err(unusable)? {
        Kind::DataSet => Ok(vec![data_set(dir, None, progress)?]),
        Kind::Index => {
            let index = Index::from_slice(&bytes).map_err(unusable)?;
            phases(dir, (&index, &bytes), progress)
        }
    }
}

/// The folder of one data set.
fn data_set(dir: &Path, phase: Option<&str>, progress: &ByteProgress) -> Result<Checked, OpenError> {
    let path = open::manifest_path(dir)?;
    let bytes = open::read(&path)?;
    let read = Manifest::read_unchecked(&bytes);
    let (manifest, computed) = read.map_err(|source| OpenError::Unusable { path: path.clone(), source })?;
    let stated = manifest.manifest_digest.clone();
    let mut checked = Checked {
        name: manifest.name.clone(),
        phase: phase.map(str::to_owned),
        digest: stated.clone(),
        ..Checked::default()
    };
    if stated != computed {
        checked.problems.push(Problem::new(MANIFEST, Fault::Edited { stated, computed }));
    }
    checked.problems.extend(sum(dir, &bytes));
    let counts = manifest.inconsistencies();
    checked.problems.extend(counts.into_iter().map(|fault| Problem::new(MANIFEST, Fault::Counts(fault))));
    checked.problems.extend(lock::check_recipe(&manifest));
    let listing = files::list(dir, files::stated(&manifest))
        .map_err(|source| OpenError::Read { path: dir.to_path_buf(), source })?;
    progress.expect(listing.present.values().map(|(_, size)| size).sum());
    contents(dir, &manifest, listing, (progress, &mut checked));
    checked.problems.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(checked)
}

/// The files of a folder, in parallel: bytes of all, content of shards, dropped rows and lock.
fn contents(
    dir: &Path,
    manifest: &Manifest,
    listing: Listing,
    (progress, checked): (&ByteProgress, &mut Checked),
) {
    let Listing { present, not_covered, problems } = listing;
    let is_there = |path: &str| present.contains_key(path);
    let whole = !problems.iter().any(|problem| !matches!(problem.fault, Fault::Added));
    let format = shards::format_of(manifest);
    let records: Vec<_> = manifest.shards.iter().filter(|shard| is_there(&shard.path)).collect();
    let parts: Vec<String> = present.keys().filter(|path| path.starts_with("dropped/")).cloned().collect();
    let files: Vec<(&String, &(Stated, u64))> = present.iter().collect();
    let (bytes, (shards, (rows, dropped))) = rayon::join(
        || {
            files
                .par_iter()
                .map(|(path, (stated, _))| check_bytes(dir, path, stated, progress))
                .collect::<Vec<_>>()
        },
        || {
            rayon::join(
                || {
                    let shards = records.par_iter();
                    shards.filter_map(|record| Some(shards::check(dir, format?, record))).collect::<Vec<_>>()
                },
                || dropped::check(dir, &parts, manifest),
            )
        },
    );
    checked.files = files.len();
    checked.bytes = files.iter().map(|(_, (_, size))| size).sum();
    checked.shards = records.len();
    checked.dropped = rows;
    checked.not_covered = not_covered;
    checked.problems.extend(problems);
    checked.problems.extend(bytes.into_iter().flatten());
    if format.is_none() {
        let reason = "the settings of the recipe name no shard format that this potable knows".to_owned();
        checked.problems.push(Problem::new(MANIFEST, Fault::Unreadable { reason }));
    }
    if let Some(format) = format {
        checked.problems.extend(places(manifest, format));
        checked.problems.extend(files::against_shards(manifest, format));
    }
    let readable = shards.iter().all(|(_, problems)| problems.is_empty());
    for (tally, problems) in shards {
        checked.tally.merge(&tally);
        checked.problems.extend(problems);
    }
    // Sums over all shards say something only if every shard is what it should be.
    if whole && readable && format.is_some() {
        checked.problems.extend(checked.tally.against(manifest));
    }
    if whole {
        checked.problems.extend(dropped);
    }
    if is_there(lock::LOCK) {
        checked.problems.extend(lock::check(dir, manifest));
    }
}

/// The places that the shards' packs have, by the rules of their format.
fn places(manifest: &Manifest, format: ShardFormat) -> Option<Problem> {
    let of = |shard: &ShardRecord| shard.packs * shard.length + shard.samples * u64::from(format.uncounted());
    let found = manifest.shards.iter().map(of).sum();
    let stated = manifest.tokens.capacity;
    let what = "token places in packs".to_owned();
    (found != stated).then(|| Problem::new("shards", Fault::Count { what, found, stated }))
}

/// `manifest.json.sha256` holds the digest of manifest.json as `sha256sum` writes it.
fn sum(dir: &Path, manifest: &[u8]) -> Option<Problem> {
    let expected = sha256_hex(manifest);
    match std::fs::read(dir.join(SUM)) {
        Ok(found) if found == format!("{expected}  {MANIFEST}\n").as_bytes() => None,
        Ok(_) => Some(Problem::new(SUM, Fault::Sum { expected })),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(Problem::new(SUM, Fault::Missing)),
        Err(e) => Some(Problem::new(SUM, Fault::Unreadable { reason: e.to_string() })),
    }
}

/// The index and the folder of each phase. An index has no digest of its own: it must be the very
/// bytes that the phases' manifests give.
fn phases(
    dir: &Path,
    (index, bytes): (&Index, &[u8]),
    progress: &ByteProgress,
) -> Result<Vec<Checked>, OpenError> {
    let mut all = vec![Checked { name: index.name.clone(), ..Checked::default() }];
    let mut own: Vec<Problem> = Vec::new();
    let mut entries = Vec::new();
    for entry in &index.phases {
        let checked = data_set(&dir.join(&entry.phase), Some(&entry.phase), progress)?;
        let mut differs = |what, index: &str, phase: &str| {
            if index != phase {
                let fault = Fault::Phase { what, index: format!("`{index}`"), phase: format!("`{phase}`") };
                own.push(Problem::new(format!("{}/{MANIFEST}", entry.phase), fault));
            }
        };
        differs("the manifest digest", entry.manifest_digest.as_str(), checked.digest.as_str());
        differs("the recipe's name", &index.name, &checked.name);
        entries.push(IndexedPhase { phase: entry.phase.clone(), manifest_digest: checked.digest.clone() });
        let problems = checked.problems.iter().cloned().map(|problem| problem.below(&entry.phase));
        all.push(Checked { problems: problems.collect(), ..checked });
    }
    if own.is_empty()
        && Index::new(&index.name, entries).to_json().ok().map(String::into_bytes).as_deref() != Some(bytes)
    {
        own.push(Problem::new(MANIFEST, Fault::Layout));
    }
    if index.phases.is_empty() {
        own.push(Problem::new(MANIFEST, Fault::NoPhase));
    }
    let folders: Vec<&str> = index.phases.iter().map(|entry| entry.phase.as_str()).collect();
    let (added, not_covered) =
        beside(dir, &folders).map_err(|source| OpenError::Read { path: dir.to_path_buf(), source })?;
    own.extend(added);
    if let Some(first) = all.first_mut() {
        first.problems = own;
        first.not_covered = not_covered;
        first.digest = index.digest().unwrap_or_default();
    }
    Ok(all)
}

/// Files beside the folders of the phases: those that nothing names, and those that are not covered.
fn beside(dir: &Path, folders: &[&str]) -> std::io::Result<(Vec<Problem>, Vec<String>)> {
    let in_phase = |path: &str| {
        path == MANIFEST || path.split_once('/').is_some_and(|(folder, _)| folders.contains(&folder))
    };
    let files = files::files_below(dir)?.into_iter().map(|(path, _)| path);
    let beside: Vec<String> = files.filter(|path| !in_phase(path)).collect();
    let (covered, not_covered): (Vec<_>, Vec<_>) =
        beside.into_iter().partition(|path| !files::NOT_COVERED.contains(&path.as_str()));
    Ok((covered.into_iter().map(|path| Problem::new(path, Fault::Added)).collect(), not_covered))
}
