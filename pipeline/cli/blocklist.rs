//! `potable blocklist`.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use potable_blocklists::Blocklist;

use super::Answer;
use super::args::{BlocklistArgs, BlocklistCommand, BuildArgs, InspectArgs};
use super::check;
use super::display::grouped;
use super::output::Output;
use crate::decontaminate::benchmarks;
use crate::run::RunError;
use crate::shard::AtomicFile;

/// Builds or prints a blocklist.
///
/// # Errors
/// A benchmark that cannot be read whole, a damaged blocklist, a file that cannot be written.
pub fn run(args: BlocklistArgs, output: &Output) -> Result<Answer> {
    match args.command {
        BlocklistCommand::Build(args) => build(&args, output),
        BlocklistCommand::Check(args) => check::run(&args, output),
        BlocklistCommand::Inspect(args) => inspect(&args, output),
    }
}

fn build(args: &BuildArgs, output: &Output) -> Result<Answer> {
    let loaded = benchmarks::load(&args.definitions, Path::new("."))?;
    let blocklist = benchmarks::build(&loaded, args.ngram)?;
    let mut file = AtomicFile::create(&args.output)?;
    blocklist.write_to(&mut file).map_err(|e| RunError::write(&args.output, e))?;
    file.flush().map_err(|e| RunError::write(&args.output, e))?;
    file.commit()?;
    output.note(&table(&blocklist));
    output.note(&format!("wrote       {} {}", args.output.display(), blocklist.digest()));
    Ok(Answer::Yes)
}

fn inspect(args: &InspectArgs, output: &Output) -> Result<Answer> {
    let blocklist = Blocklist::load(&args.file).context("cannot use the blocklist")?;
    let header = blocklist.header();
    output.data(&format!(
        "{}\nn = {}, normaliser {}, {}\n{}",
        args.file.display(),
        header.ngram,
        header.normaliser,
        blocklist.digest(),
        table(&blocklist)
    ))?;
    Ok(Answer::Yes)
}

fn table(blocklist: &Blocklist) -> String {
    let mut lines = Vec::new();
    for entry in &blocklist.header().benchmarks {
        let c = entry.coverage;
        lines.push(format!(
            "{:<24} {} of {} items protected ({} by n-gram, {} whole), {} not",
            entry.meta.name,
            grouped(c.by_ngram + c.by_short_item),
            grouped(c.items),
            grouped(c.by_ngram),
            grouped(c.by_short_item),
            grouped(c.not_protected),
        ));
    }
    lines.join("\n")
}
