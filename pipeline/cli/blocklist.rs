//! `potable blocklist`.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use potable_blocklists::{Blocklist, known};

use super::Answer;
use super::args::{BlocklistArgs, BlocklistCommand, BuildArgs, InspectArgs};
use super::check;
use super::display::grouped;
use super::output::Output;
use crate::decontaminate::benchmarks::{self, BenchmarkError, Places};
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
        BlocklistCommand::List => list(output),
    }
}

fn build(args: &BuildArgs, output: &Output) -> Result<Answer> {
    let places = Places { base: Path::new(""), copies: args.copies.as_deref() };
    let loaded = benchmarks::load(&args.definitions, places)?;
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

fn list(output: &Output) -> Result<Answer> {
    let mut lines = Vec::new();
    for definition in known::definitions().map_err(BenchmarkError::from)? {
        let place = [definition.repo, definition.config, definition.split].map(Option::unwrap_or_default);
        let marks = [("gated", definition.gated), ("sensitive", definition.sensitive)];
        let marks: Vec<&str> = marks.iter().filter(|(_, set)| *set).map(|(mark, _)| *mark).collect();
        lines.push(
            format!("{:<26} {} {}", definition.name, place.join(" "), marks.join(" ")).trim_end().to_owned(),
        );
    }
    lines.push(String::new());
    for (name, suite) in known::suites().map_err(BenchmarkError::from)? {
        lines.push(format!("suite {name:<20} {} benchmarks: {}", suite.benchmarks.len(), suite.about));
    }
    output.data(&lines.join("\n"))?;
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
