//! Pull: what a recipe takes from the Hub is pinned in its lock, checked for access and room before
//! any long work, and fetched while map works on what is there already.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::RunError;
use super::plan::Plan;
use super::progress::Progress;
use crate::decontaminate::benchmarks::{self, Places};
use crate::recipe::lock::{Pin, RecipeLock};
use crate::recipe::pins::{LockUse, Want, pin};
use crate::recipe::resolve::{Against, ResolvedPhase, ResolvedSource};
use crate::recipe::supply::repo_ref;
use crate::recipe::{Recipe, Supply};
use crate::shard::write_atomic;
use crate::source::SourceFile;
use crate::source::hub::{Hub, HubConfig, HubError};
use crate::source::remote::{Keep, Remote};

/// How a run takes things from the Hub.
#[derive(Clone, Debug)]
pub struct Pull {
    /// Where the recipe's lock lies.
    pub lock: PathBuf,
    /// What may be done to it.
    pub lock_use: LockUse,
    /// Whether copies are kept.
    pub keep: Keep,
    /// Whether ranges will do for evidence.
    pub evidence: Evidence,
}

/// What the manifest must be able to say of each input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// All of it was hashed, or the ranges that were read.
    Any,
    /// All of it was hashed (`--require-verified`).
    Whole,
}

/// A lock that was settled, and whether it differs from the one on disk.
#[derive(Debug)]
pub struct Settled {
    /// The files behind it.
    pub supply: Supply,
    /// Whether it has to be written.
    pub changed: bool,
}

/// Everything that a recipe takes from the Hub.
///
/// # Errors
/// Benchmark definitions that cannot be read.
pub fn wants(recipe: &Recipe) -> Result<Vec<Want>, RunError> {
    let mut all = Vec::new();
    for phase in &recipe.phases {
        let joined = phase.sources.iter().flat_map(|source| &source.joins).map(|join| &join.source);
        all.extend(phase.sources.iter().chain(joined).filter_map(|source| source.want.clone()));
        all.extend(phase.tokenizer_want.clone());
        all.extend(phase.template_want.clone());
        if let Against::Benchmarks(names) = &phase.decontaminate.against {
            all.extend(benchmarks::wants(names, places(phase, &recipe.base, None))?);
        }
    }
    Ok(all)
}

/// Where the benchmarks of a phase are.
pub fn places<'a>(phase: &'a ResolvedPhase, base: &'a Path, supply: Option<&'a Supply>) -> Places<'a> {
    Places { base, copies: phase.decontaminate.copies.as_deref(), supply }
}

/// Pins what a recipe takes from the Hub; the recipe's sources get commits and licences. A recipe
/// that takes nothing makes no request and has no lock.
///
/// # Errors
/// What the Hub says; a lock that cannot be read, or with [`LockUse::Locked`] lacks something.
pub fn settle(recipe: &mut Recipe, pull: &Pull, progress: &Progress) -> Result<Settled, RunError> {
    let wants = wants(recipe)?;
    if wants.is_empty() {
        return Ok(Settled { supply: Supply::default(), changed: false });
    }
    let old = RecipeLock::load(&pull.lock)?;
    let hub = open_hub(progress)?;
    let lock =
        pin(&wants, old.as_ref().unwrap_or(&RecipeLock::default()), &pull.lock_use, &|| Ok(hub.clone()))?;
    let changed = old.as_ref() != Some(&lock) && pull.lock_use != LockUse::Locked;
    let supply = Supply::new(lock, hub, pull.keep);
    take_pins(recipe, &supply);
    Ok(Settled { supply, changed })
}

/// What a recipe takes from the Hub by a lock that has all of it; the recipe's sources get commits and
/// licences.
///
/// # Errors
/// Settings of the Hub that make no sense.
pub fn supply_of(
    recipe: &mut Recipe,
    lock: RecipeLock,
    keep: Keep,
    progress: &Progress,
) -> Result<Supply, RunError> {
    let supply = Supply::new(lock, open_hub(progress)?, keep);
    take_pins(recipe, &supply);
    Ok(supply)
}

fn take_pins(recipe: &mut Recipe, supply: &Supply) {
    for source in recipe.phases.iter_mut().flat_map(|phase| &mut phase.sources) {
        take_pin(source, supply);
        source.joins.iter_mut().for_each(|join| take_pin(&mut join.source, supply));
    }
}

fn take_pin(source: &mut ResolvedSource, supply: &Supply) {
    let Some(pin) = source.want.as_ref().and_then(|want| supply.pin(want)) else { return };
    source.revision = Some(pin.commit.clone());
    source.licence = source.licence.take().or_else(|| pin.licence.clone());
    source.gated |= pin.gated;
}

/// Pins benchmarks that are built into a blocklist without a recipe.
///
/// # Errors
/// As [`settle`].
pub fn supply_benchmarks(names: &[String], places: Places, lock: &RecipeLock) -> Result<Supply, RunError> {
    let wants = benchmarks::wants(names, places)?;
    if wants.is_empty() {
        return Ok(Supply::default());
    }
    let hub = open_hub(&Progress::default())?;
    let lock = pin(&wants, lock, &LockUse::Extend, &|| Ok(hub.clone()))?;
    check_access(lock.pin.iter(), &hub)?;
    Ok(Supply::new(lock, hub, Keep::Cache))
}

/// Writes the recipe's lock.
///
/// # Errors
/// What the file system says.
pub fn write_lock(lock: &RecipeLock, path: &Path) -> Result<(), RunError> {
    let text = lock.to_toml().map_err(|e| RunError::Manifest { reason: e.to_string() })?;
    write_atomic(path, text.as_bytes())?;
    Ok(())
}

/// Access to every repository and room for every file, before any long work.
///
/// # Errors
/// A gated or closed repository, a file that is gone, a disk that is too small.
pub fn preflight(supply: &Supply) -> Result<(), RunError> {
    let Some(hub) = supply.hub() else { return Ok(()) };
    check_access(supply.lock().pin.iter(), hub)
}

/// The files of the plans must fit on the disk of the cache.
///
/// # Errors
/// A disk that is too small.
pub fn check_room(plan: &Plan, supply: &Supply) -> Result<(), RunError> {
    let Some(hub) = supply.hub() else { return Ok(()) };
    let files = plan.sources.iter().flat_map(|source| {
        let joined = source.joined_files().map(|(_, file)| &file.file);
        source.files.iter().map(|file| &file.file).chain(joined)
    });
    let missing = files.filter(|file| !file.streams()).filter_map(SourceFile::remote);
    let needed: u64 = missing.filter(|remote| !remote.is_local()).map(|remote| remote.size()).sum();
    let folder = hub.config().cache_dir.clone();
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(&folder);
    let Ok(stat) = rustix::fs::statvfs(there) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if needed == 0 || free >= needed {
        return Ok(());
    }
    Err(RunError::CacheSpace { path: folder, free, needed })
}

/// With `--require-verified`, files of which only ranges would be read are refused.
///
/// # Errors
/// The first such file.
pub fn check_evidence(plan: &Plan, evidence: Evidence) -> Result<(), RunError> {
    if evidence == Evidence::Any {
        return Ok(());
    }
    for source in &plan.sources {
        if let Some(file) = source.files.iter().find(|file| file.by_ranges()) {
            return Err(RunError::OnlyRanges {
                source_name: source.config.name.clone(),
                path: file.file.path().to_path_buf(),
            });
        }
    }
    Ok(())
}

/// Each transfer gets a line in `OUT/downloads.jsonl` as soon as it is done; evidence, outside of every
/// digest. `out` is there and ours.
///
/// # Errors
/// What the file system says.
pub fn write_log(supply: &Supply, out: &Path) -> Result<(), RunError> {
    let Some(hub) = supply.hub() else { return Ok(()) };
    let path = out.join("downloads.jsonl");
    hub.log_to(&path).map_err(|e| RunError::write(&path, e))
}

/// Fetches files in order while `work` runs; what `work` needs sooner it waits for.
///
/// # Errors
/// Those of `work`; errors of fetching come up where a file is needed.
pub fn fetch_during<T>(files: &[Arc<Remote>], progress: &Progress, work: impl FnOnce() -> T) -> T {
    let (next, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let fetch = || {
        while !done.load(Ordering::Relaxed) && !progress.is_stopped() {
            let Some(remote) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            // The unit that needs the file meets the same error, and says it.
            if remote.local(&|bytes| progress.add_fetched(bytes)).is_err() {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..FETCHERS.min(files.len()) {
            scope.spawn(fetch);
        }
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Files that are fetched at a time.
const FETCHERS: usize = 4;

fn open_hub(progress: &Progress) -> Result<Hub, RunError> {
    let hub = |e: HubError| RunError::Hub { source: Box::new(e) };
    let config = HubConfig { stop: progress.stop_flag(), ..HubConfig::from_env().map_err(hub)? };
    Hub::new(config).map_err(hub)
}

/// One request a repository whose files are not all in the cache, several at a time.
fn check_access<'a>(pins: impl Iterator<Item = &'a Pin>, hub: &Hub) -> Result<(), RunError> {
    let pins: Vec<&Pin> = pins.collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let check = || {
        while let Some((index, pin)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            pins.get(index).map(|pin| (index, *pin))
        } {
            if let Err(e) = check_pin(pin, hub) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push((index, e));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..FETCHERS.min(pins.len()) {
            scope.spawn(check);
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_by_key(|(index, _)| *index);
    match failed.into_iter().next() {
        Some((_, source)) => Err(RunError::Hub { source: Box::new(source) }),
        None => Ok(()),
    }
}

fn check_pin(pin: &Pin, hub: &Hub) -> Result<(), HubError> {
    let at = repo_ref(pin);
    let missing = pin.file.iter().find(|file| hub.cached(&at, &file.hub_file()).is_none());
    missing.map_or(Ok(()), |file| hub.check_access(&at, &file.path))
}
