//! `potable manifest verify`.

use std::sync::Arc;

use anyhow::Result;

use crate::cli::Answer;
use crate::cli::args::VerifyArgs;
use crate::cli::bar::Bar;
use crate::cli::display::{bytes, grouped};
use crate::cli::output::Output;
use crate::run::RunError;
use crate::verify::progress::ByteProgress;
use crate::verify::{Checked, verify};

/// Checks a folder against its manifest.
///
/// # Errors
/// A folder without a manifest that can be read.
pub fn run(args: &VerifyArgs, output: &Output) -> Result<Answer> {
    let threads = args.threads.filter(|n| *n > 0).unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| RunError::Threads { threads, reason: e.to_string() })?;
    let progress = Arc::new(ByteProgress::default());
    let bar = Bar::show(output, "verify", &progress);
    let checked = pool.install(|| verify(&args.dir, &progress));
    drop(bar);
    let checked = checked?;
    let problems: usize = checked.iter().map(|one| one.problems.len()).sum();
    for one in &checked {
        for problem in &one.problems {
            output.data(&problem.to_string())?;
        }
    }
    let dir = args.dir.display();
    output.data(&match problems {
        0 => format!("verified {dir}: it holds what its manifest says"),
        1 => format!("NOT verified {dir}: 1 problem"),
        _ => format!("NOT verified {dir}: {} problems", grouped(problems as u64)),
    })?;
    for one in &checked {
        output.note(&summary(one, checked.len() > 1));
    }
    Ok(if problems == 0 { Answer::Yes } else { Answer::No })
}

/// What was looked at in one folder.
fn summary(checked: &Checked, one_of_several: bool) -> String {
    let mut lines = Vec::new();
    let name = match &checked.phase {
        Some(phase) => format!("phase {phase}"),
        None if one_of_several => format!("index of {}", checked.name),
        None => checked.name.clone(),
    };
    lines.push(format!("{name:<20} manifest {}", checked.digest.short()));
    if checked.files > 0 {
        let tally = &checked.tally;
        lines.push(format!(
            "  hashed             {} files, {}",
            grouped(checked.files as u64),
            bytes(checked.bytes)
        ));
        lines.push(format!(
            "  read again         {} shards: {} packs, {} samples, {} tokens, {} trained on; {} dropped rows",
            grouped(checked.shards as u64),
            grouped(tally.packs),
            grouped(tally.samples()),
            grouped(tally.tokens()),
            grouped(tally.trained()),
            grouped(checked.dropped)
        ));
    }
    let here = match checked.not_covered.as_slice() {
        [] => String::new(),
        files => format!("; here: {}", files.join(", ")),
    };
    lines.push(format!(
        "  not covered        downloads.jsonl, report.html, and files that are put beside data{here}"
    ));
    lines.join("\n")
}
