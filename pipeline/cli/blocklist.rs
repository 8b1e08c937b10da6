//! `potable blocklist`.

use std::path::Path;

use anyhow::{Context, Result};
use potable_blocklists::{Blocklist, Coverage, Item, known};
use potable_manifests::ppm;

use super::Answer;
use super::args::{BlocklistArgs, BlocklistCommand, InspectArgs, InspectTo, SelftestArgs};
use super::build;
use super::check;
use super::display::{grouped, percent};
use super::output::Output;
use crate::decontaminate::benchmarks::{self, BenchmarkError, LoadedBenchmark, Places};
use crate::decontaminate::check::{CheckCounts, chat_rows, check_file};
use crate::decontaminate::disguise::Hope;
use crate::decontaminate::selftest;
use crate::recipe::lock::RecipeLock;
use crate::recipe::resolve::DEFAULT_NGRAM;
use crate::run::RunError;
use crate::run::pull::supply_benchmarks;
use crate::shard::items::write_items;
use crate::source::files;

/// Builds or prints a blocklist.
///
/// # Errors
/// A benchmark that cannot be read whole, a damaged blocklist, a file that cannot be written.
pub fn run(args: BlocklistArgs, output: &Output) -> Result<Answer> {
    match args.command {
        BlocklistCommand::Build(args) => build::build(&args, output),
        BlocklistCommand::Extend(args) => build::extend(&args, output),
        BlocklistCommand::Check(args) => check::run(&args, output),
        BlocklistCommand::Inspect(args) => inspect(&args, output),
        BlocklistCommand::List => list(output),
        BlocklistCommand::Selftest(args) => selftest(&args, output),
    }
}

fn inspect(args: &InspectArgs, output: &Output) -> Result<Answer> {
    let blocklist = Blocklist::load(&args.file).context("cannot use the blocklist")?;
    if args.to == Some(InspectTo::Parquet) {
        let path = args.output.clone().unwrap_or_else(|| args.file.with_extension("parquet"));
        write_items(&path, &blocklist)?;
        output.note(&format!("wrote       {}, an item a row", path.display()));
        return Ok(Answer::Yes);
    }
    if args.unprotected {
        let list = unprotected(&blocklist);
        if !list.is_empty() {
            output.data(&list)?;
        }
        return Ok(Answer::Yes);
    }
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

/// Rows of the user's that items are put into, at most.
const HOSTS: usize = 2000;

fn selftest(args: &SelftestArgs, output: &Output) -> Result<Answer> {
    let (blocklist, loaded) = tested(args)?;
    let files = files::find("selftest", &args.inputs, Path::new(""), None)?;
    let mut hosts = Vec::new();
    let mut base = CheckCounts::default();
    for file in &files {
        hosts.extend(chat_rows(file, HOSTS - hosts.len())?);
        let counts = check_file(file, &blocklist, false, &mut |_| ())?;
        base.rows += counts.rows;
        base.dropped += counts.dropped;
    }
    if hosts.is_empty() {
        return Err(RunError::NoRows { source_name: "selftest".to_owned(), files: files.len() }.into());
    }
    let items: Vec<Item> = loaded.iter().flat_map(|benchmark| benchmark.items.iter().cloned()).collect();
    let mut kinds = selftest::selftest(&blocklist, &items, &hosts, args.seed);
    kinds.push(selftest::other_items(&loaded, u64::from(blocklist.header().ngram), &hosts, args.seed)?);
    let mut lines = vec![format!("{:<22} {:>6} {:>8} {:>11}", "kind", "rows", "found", "right item")];
    for kind in kinds {
        let named =
            if kind.hope == Hope::Never { String::new() } else { percent(ppm(kind.named, kind.found)) };
        let mark = match kind.hope {
            Hope::Found => "",
            Hope::Mostly => " (near)",
            Hope::Never => " (false alarms)",
        };
        let (rows, found) = (grouped(kind.rows), percent(ppm(kind.found, kind.rows)));
        lines.push(format!("{:<22} {rows:>6} {found:>8} {named:>11}{mark}", kind.name));
    }
    output.data(&lines.join("\n"))?;
    output.note(&format!(
        "your rows   {:>11} rows   {} would be dropped as they are: real overlap, or false alarms; `blocklist check` lists them",
        grouped(base.rows),
        grouped(base.dropped)
    ));
    Ok(Answer::Yes)
}

/// A blocklist and its benchmarks: that of a file, or one that is built of definitions.
fn tested(args: &SelftestArgs) -> Result<(Blocklist, Vec<LoadedBenchmark>)> {
    let path = Path::new(&args.file);
    if Blocklist::is_one(path) {
        let (blocklist, loaded) = build::load_with_items(path)?;
        if let Some(ngram) = args.ngram {
            blocklist.require(u32::try_from(ngram).unwrap_or(u32::MAX))?;
        }
        return Ok((blocklist, loaded));
    }
    let names = std::slice::from_ref(&args.file);
    let places = Places { base: Path::new(""), copies: args.copies.as_deref(), supply: None };
    let supply = supply_benchmarks(names, places, &RecipeLock::default())?;
    let loaded = benchmarks::load(names, Places { supply: Some(&supply), ..places })?;
    Ok((benchmarks::build(&loaded, args.ngram.unwrap_or(DEFAULT_NGRAM))?, loaded))
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

/// A line a benchmark: how many of its items are protected, and how.
pub fn table(blocklist: &Blocklist) -> String {
    let mut lines = Vec::new();
    for entry in &blocklist.header().benchmarks {
        let c = entry.coverage;
        lines.push(format!(
            "{:<24} {} of {} items protected ({} by n-gram, {} whole), {} from near copies too, {} not{}",
            entry.meta.name,
            grouped(c.by_ngram + c.by_short_item),
            grouped(c.items),
            grouped(c.by_ngram),
            grouped(c.by_short_item),
            grouped(c.by_near_copy),
            grouped(c.not_protected),
            reasons(&c),
        ));
    }
    lines.join("\n")
}

/// Why items are not protected, with how many; nothing where all are.
fn reasons(coverage: &Coverage) -> String {
    let other = coverage.with_option + coverage.boilerplate;
    let too_short = coverage.not_protected.saturating_sub(other);
    let counts = [
        (coverage.with_option, "only with an option behind"),
        (coverage.boilerplate, "boilerplate"),
        (too_short, "too short"),
    ];
    let some: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{} {why}", grouped(*count)))
        .collect();
    if some.is_empty() { String::new() } else { format!(" ({})", some.join(", ")) }
}

/// A line an item that is not protected: benchmark, id, why.
fn unprotected(blocklist: &Blocklist) -> String {
    let items = (0..blocklist.items()).filter(|item| !blocklist.item_protection(*item).is_protected());
    let line = |item| {
        let benchmark = blocklist.benchmark_name(blocklist.item_benchmark(item));
        format!("{benchmark:<24} {:<12} {}", blocklist.item_protection(item).name(), blocklist.item_id(item))
    };
    items.map(line).collect::<Vec<_>>().join("\n")
}
