//! Checks of a run: what map left against the plan, the inputs against what the plan hashed, the sources
//! against benchmarks, the disk against what is needed.

use std::path::{Path, PathBuf};

use potable_blocklists::{Blocklist, known};

use super::error::RunError;
use super::plan::{Plan, PlannedSource};
use super::rows::add_ledger;
use super::staged::{ChunkLedger, Staged};
use crate::decontaminate::benchmarks::BenchmarkError;
use crate::source::{Format, SourceError};

/// Ledgers of the staged files, by source, file, place in the file and band.
///
/// # Errors
/// A file that is damaged.
pub fn opened(files: &[PathBuf]) -> Result<Vec<Staged>, RunError> {
    let mut staged = files.iter().map(|path| Staged::open(path)).collect::<Result<Vec<_>, _>>()?;
    staged.sort_by_key(|file| {
        let ledger = &file.ledger;
        (ledger.source, ledger.file, ledger.above, ledger.next_row)
    });
    Ok(staged)
}

/// A key that all rows of a source lack is misspelt.
///
/// # Errors
/// The first such key.
pub fn check_keys(plan: &Plan, ledgers: &[&ChunkLedger]) -> Result<(), RunError> {
    for (index, source) in plan.sources.iter().enumerate() {
        let mut sum = ChunkLedger::default();
        let own = ledgers.iter().filter(|ledger| ledger.source as usize == index);
        own.for_each(|ledger| add_ledger(&mut sum, ledger));
        let is_json = source.files.iter().all(|f| matches!(f.file.format, Format::Jsonl | Format::Json));
        if !is_json || sum.taken == sum.failed {
            continue;
        }
        let unseen = |name: &&String| !sum.seen.contains(*name) && !source.config.is_joined(name);
        if let Some(column) = source.mapping.required_columns().iter().find(unseen) {
            let place = source.files.first().map_or(String::new(), |f| f.file.path().display().to_string());
            return Err(SourceError::MissingKey {
                place,
                source_name: source.config.name.clone(),
                column: column.clone(),
            }
            .into());
        }
    }
    Ok(())
}

/// Every row that the plan counted was passed.
///
/// # Errors
/// The first file with other rows.
pub fn check_rows(plan: &Plan, ledgers: &[&ChunkLedger]) -> Result<(), RunError> {
    for (s, source) in plan.sources.iter().enumerate() {
        for (f, file) in source.files.iter().enumerate() {
            let Some(expected) = file.limit.or(file.rows) else { continue };
            let own = ledgers.iter().filter(|ledger| {
                (ledger.source as usize, ledger.file as usize) == (s, f) && ledger.above.is_none()
            });
            let got: u64 = own.map(|ledger| ledger.passed).sum();
            if got != expected {
                return Err(
                    SourceError::RowCount { path: file.file.path().to_path_buf(), got, expected }.into()
                );
            }
        }
    }
    Ok(())
}

/// The inputs must be what the plan hashed.
///
/// # Errors
/// The first file that is another.
pub fn check_unchanged(plan: &Plan) -> Result<(), RunError> {
    for file in plan.sources.iter().flat_map(|source| &source.files) {
        if file.file.stamp()? != file.stamp {
            return Err(SourceError::Changed { path: file.file.path().to_path_buf() }.into());
        }
    }
    for (_, file) in plan.sources.iter().flat_map(PlannedSource::joined_files) {
        if file.file.stamp()? != file.stamp {
            return Err(SourceError::Changed { path: file.file.path().to_path_buf() }.into());
        }
    }
    Ok(())
}

/// Training on a benchmark is never what was meant: neither one of the blocklist, by the bytes of its
/// files, nor any known one, by repository and split.
///
/// # Errors
/// The source and the benchmark.
pub fn refuse_benchmarks(plan: &Plan, blocklist: Option<&Blocklist>) -> Result<(), RunError> {
    let listed = blocklist.map(|b| b.header().benchmarks.as_slice()).unwrap_or_default();
    let known = known::definitions().map_err(BenchmarkError::from)?;
    for source in &plan.sources {
        let config = &source.config;
        let refused = |benchmark: &str, why: String| RunError::IsBenchmark {
            source_name: config.name.clone(),
            benchmark: benchmark.to_owned(),
            why,
        };
        // A held-out part of a corpus shares files with the part that is trained on.
        for entry in listed.iter().filter(|entry| entry.meta.where_.is_none()) {
            let hashes: Vec<&str> = entry.meta.files.iter().map(|f| f.sha256.as_str()).collect();
            if let Some(file) = source.files.iter().find(|f| hashes.contains(&f.sha256.as_str())) {
                let why = format!("file `{}` has the same sha256", file.file.name);
                return Err(refused(&entry.meta.name, why));
            }
        }
        let same =
            known.iter().find(|d| d.repo.is_some() && d.repo == config.corpus && d.split == config.split);
        if let Some(definition) = same {
            return Err(refused(&definition.name, "it is the same repository and split".to_owned()));
        }
    }
    Ok(())
}

/// Whether any file is read without a copy.
pub fn streams(plan: &Plan) -> bool {
    plan.sources.iter().flat_map(|source| &source.files).any(|file| file.file.streams())
}

/// Staged ids and shards take about twice the bytes of the text.
pub fn disk_needed(plan: &Plan) -> u64 {
    plan.planned_bytes() * 2
}

/// Room on the disk of the output folder.
///
/// # Errors
/// A disk that is too small.
pub fn check_disk(out: &Path, plan: &Plan) -> Result<(), RunError> {
    let Ok(stat) = rustix::fs::statvfs(out) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let needed = disk_needed(plan);
    if free >= needed {
        return Ok(());
    }
    Err(RunError::DiskSpace { path: out.to_path_buf(), free, needed })
}
