//! The list of dropped rows, read again and compared with the ledgers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use potable_manifests::{Hasher, Manifest};

use super::problem::{Fault, Problem};
use super::shards::reason;
use crate::run::reason::DropReason;
use crate::run::rows::FAILED;
use crate::shard::dropped::read;

/// Reads the parts in order and compares them with the manifest. Gives how many rows they list.
pub fn check(dir: &Path, parts: &[String], manifest: &Manifest) -> (u64, Vec<Problem>) {
    let mut content = Hasher::new();
    let mut rows = 0;
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for part in parts {
        let result = read(&dir.join(part), &mut |row| {
            row.hash_into(&mut content);
            rows += 1;
            *counts.entry((row.source, row.reason)).or_default() += 1;
        });
        if let Err(e) = result {
            return (rows, vec![Problem::new(part, Fault::Unreadable { reason: reason(&e) })]);
        }
    }
    let mut problems = against(&counts, manifest);
    if let Some(stated) = manifest.run.other_digests.get("dropped") {
        let found = content.finish();
        if found != *stated {
            let stated = stated.clone();
            problems.push(Problem::new("dropped", Fault::Content { what: "rows", found, stated }));
        }
    }
    (rows, problems)
}

/// Reasons whose rows are listed must be listed as often as the ledger counts them.
fn against(counts: &BTreeMap<(String, String), u64>, manifest: &Manifest) -> Vec<Problem> {
    let mut stated: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (source, ledger) in &manifest.rows {
        let listed = |reason: &str| DropReason::from_name(reason).is_none_or(DropReason::is_listed);
        for (reason, count) in ledger.dropped.iter().filter(|(reason, _)| listed(reason)) {
            stated.insert((source.clone(), reason.clone()), *count);
        }
        stated.insert((source.clone(), FAILED.to_owned()), ledger.failed);
    }
    let keys: BTreeSet<_> = counts.keys().chain(stated.keys()).collect();
    let mut problems = Vec::new();
    for key in keys {
        let (source, reason) = key;
        let of = |map: &BTreeMap<(String, String), u64>| map.get(key).copied().unwrap_or_default();
        let (found, stated) = (of(counts), of(&stated));
        if found != stated {
            let what = format!("rows of source `{source}` for `{reason}`");
            problems.push(Problem::new("dropped", Fault::Count { what, found, stated }));
        }
    }
    problems
}
