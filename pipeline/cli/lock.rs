//! `potable lock`.

use anyhow::Result;

use super::Answer;
use super::args::LockArgs;
use super::display::bytes;
use super::output::Output;
use crate::recipe::Recipe;
use crate::recipe::lock::{Pin, RecipeLock};
use crate::recipe::pins::LockUse;
use crate::run::pull::{Evidence, Pull, settle, write_lock};
use crate::run::{Progress, RunError};
use crate::source::remote::Keep;

/// Pins what a recipe takes from the Hub.
///
/// # Errors
/// What the Hub says; a lock that cannot be read or written.
pub fn run(args: &LockArgs, output: &Output) -> Result<Answer> {
    let mut recipe = Recipe::load(&args.recipe)?;
    let path = RecipeLock::path_of(&args.recipe);
    let lock_use = match args.update.as_deref() {
        None => LockUse::Extend,
        Some("") => LockUse::Update(None),
        Some(name) => LockUse::Update(Some(name.to_owned())),
    };
    let old = RecipeLock::load(&path).map_err(RunError::from)?.unwrap_or_default();
    let pull = Pull { lock: path.clone(), lock_use, keep: Keep::Cache, evidence: Evidence::Any };
    let settled = settle(&mut recipe, &pull, &Progress::default())?;
    let lock = settled.supply.lock();
    if lock.pin.is_empty() {
        output.note("the recipe takes nothing from the Hub; there is nothing to pin");
        return Ok(Answer::Yes);
    }
    for line in changes(&old, lock) {
        output.data(&line)?;
    }
    if settled.changed {
        write_lock(lock, &path)?;
        output.note(&format!("wrote {}", path.display()));
    } else {
        output.note(&format!("{} is up to date", path.display()));
    }
    Ok(Answer::Yes)
}

/// One line a pin: added, moved, removed, or as it was.
fn changes(old: &RecipeLock, new: &RecipeLock) -> Vec<String> {
    let same = |a: &Pin, b: &Pin| {
        (a.kind, &a.repo, &a.revision, &a.patterns) == (b.kind, &b.repo, &b.revision, &b.patterns)
    };
    let mut lines = Vec::new();
    for pin in &new.pin {
        let before = old.pin.iter().find(|other| same(other, pin));
        let what = match before {
            None => "pinned",
            Some(other) if other.commit != pin.commit => "moved",
            Some(other) if other != pin => "changed",
            Some(_) => "kept",
        };
        let size: u64 = pin.file.iter().map(|file| file.size).sum();
        let commit = |pin: &Pin| pin.commit.chars().take(12).collect::<String>();
        let from = before.filter(|other| other.commit != pin.commit).map(commit);
        let from = from.map_or(String::new(), |from| format!(" (was {from})"));
        lines.push(format!(
            "{what:<8} {} {} -> {}{from}, {} files, {}",
            pin.repo,
            pin.revision,
            commit(pin),
            pin.file.len(),
            bytes(size)
        ));
    }
    for pin in old.pin.iter().filter(|pin| !new.pin.iter().any(|other| same(other, pin))) {
        lines.push(format!("removed  {} {}", pin.repo, pin.revision));
    }
    lines
}
