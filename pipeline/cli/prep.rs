//! `potable prep`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle as BarStyle};

use super::Answer;
use super::args::PrepArgs;
use super::display::{bytes, grouped};
use super::output::{Output, ProgressStyle};
use super::{recipes, summary};
use crate::recipe::card::cards;
use crate::recipe::lock::RecipeLock;
use crate::recipe::pins::LockUse;
use crate::recipe::{Recipe, traps};
use crate::run::checks::disk_needed;
use crate::run::prep::{KeepWork, PrepOptions, plan, prep};
use crate::run::pull::{Evidence, Pull};
use crate::run::{Cut, Plan, Progress, Step};
use crate::source::hub::clock::utc;
use crate::source::remote::Keep;

/// Time between two lines of progress where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Time between two drawings of the bars.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// Runs a recipe.
///
/// # Errors
/// Whatever stops the run.
pub fn run(args: PrepArgs, output: &Output) -> Result<Answer> {
    let Some(name) = &args.recipe else {
        output.data(&format!(
            "Name a recipe file, or one of these:\n\n{}\n  potable prep demo",
            recipes::list()
        ))?;
        return Ok(Answer::No);
    };
    let recipe = Recipe::load(name)?;
    let options = options(&args, &recipe);
    bound_pools(options.threads);
    if args.plan {
        let plans = plan(&recipe, &options)?;
        warn_of_traps(&plans, output)?;
        output.data(&describe(&plans, &options.out))?;
        return Ok(Answer::Yes);
    }
    let progress = Arc::new(Progress::default());
    stop_on_signal(&progress)?;
    let began = Instant::now();
    let reports = shown(output, &progress, || prep(&recipe, &options, &progress))?;
    for report in &reports {
        output.note(&summary::of(report, began.elapsed()));
        // A trial of few rows is meant to fall short.
        let short = if options.limit.is_none() { summary::shortfalls(&report.manifest) } else { Vec::new() };
        short.iter().for_each(|text| output.warn(text));
    }
    if args.verify_template.is_some() {
        let rows = progress.verified.load(std::sync::atomic::Ordering::Relaxed);
        output.note(&format!("{} rows compared with the model's own template, all equal", grouped(rows)));
    }
    if recipe.name == "demo" && args.recipe.as_deref() == Some("demo") {
        output.note(&summary::demo_next(&options.out));
    }
    let failed: u64 = reports.iter().flat_map(|r| r.manifest.rows.values()).map(|ledger| ledger.failed).sum();
    if failed > 0 {
        output.warn(&format!("{} rows could not be read; they are listed in dropped/", grouped(failed)));
        return Ok(Answer::No);
    }
    Ok(Answer::Yes)
}

fn options(args: &PrepArgs, recipe: &Recipe) -> PrepOptions {
    let default = if args.recipe.as_deref() == Some("demo") { "potable-demo" } else { recipe.name.as_str() };
    let threads = args.threads.filter(|n| *n > 0);
    let cut = Cut::default();
    PrepOptions {
        out: args.out.clone().unwrap_or_else(|| PathBuf::from(".").join(default)),
        threads: threads.unwrap_or_else(cores),
        limit: args.limit,
        verify_template: args.verify_template,
        cut: Cut {
            unit_bytes: args.unit_bytes.unwrap_or(cut.unit_bytes).max(1),
            chunk_bytes: args.chunk_bytes.unwrap_or(cut.chunk_bytes).max(1),
            reversed: args.reverse_units,
        },
        pull: Pull {
            lock: RecipeLock::path_of(args.recipe.as_deref().unwrap_or_default()),
            lock_use: if args.locked { LockUse::Locked } else { LockUse::Extend },
            keep: if args.stream { Keep::Nothing } else { Keep::Cache },
            evidence: if args.require_verified { Evidence::Whole } else { Evidence::Any },
        },
        fresh: args.fresh,
        keep_work: if args.keep_work { KeepWork::Yes } else { KeepWork::No },
        started: Some(now()),
        host: rustix::system::uname().nodename().to_str().ok().map(str::to_owned),
    }
}

/// Threads, unless the user says otherwise.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Polars and the encoder keep pools of their own, whose sizes they take from the environment.
#[expect(unsafe_code, reason = "the environment is set before any thread is started")]
pub(super) fn bound_pools(threads: usize) {
    // SAFETY: no other thread runs yet: this is called before the pool, the signal handler and the
    // progress display are started, and nothing before it starts a thread.
    unsafe {
        std::env::set_var("POLARS_MAX_THREADS", threads.to_string());
        std::env::set_var("FASTOKENS_BPE_THREADS", "1");
    }
}

#[expect(clippy::disallowed_methods, reason = "the run block says when a run began; no digest covers it")]
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    utc(since.map_or(0, |d| d.as_secs()))
}

/// Ctrl-C stops a run at a safe place.
///
/// # Errors
/// A handler that cannot be set.
pub(super) fn stop_on_signal(progress: &Arc<Progress>) -> Result<()> {
    let progress = progress.clone();
    ctrlc::set_handler(move || {
        if progress.is_stopped() {
            // Asked twice: staged work is safe at any moment.
            std::process::exit(130);
        }
        progress.stop();
    })
    .context("cannot catch Ctrl-C")
}

/// Rows that sources share, text that a mapping leaves out, files that are not all there.
fn warn_of_traps(plans: &[Plan], output: &Output) -> Result<()> {
    let cards = cards().map_err(|problem| anyhow!(problem))?;
    for plan in plans {
        for line in traps::warnings(&plan.phase.sources, plan.phase.exact, &cards) {
            output.warn(&line);
        }
        // A choice of files is what `files` asks for.
        for source in plan.sources.iter().filter(|source| source.config.files.is_none()) {
            let names: Vec<&str> = source.files.iter().map(|f| f.file.name.as_str()).collect();
            if let Some((there, of)) = traps::parts_there(&names).filter(|(there, of)| there < of) {
                let name = &source.config.name;
                output
                    .warn(&format!("source `{name}` reads {there} of the {of} files that their names count"));
            }
        }
    }
    Ok(())
}

fn describe(plans: &[Plan], out: &Path) -> String {
    let mut lines = Vec::new();
    for plan in plans {
        if let Some(phase) = &plan.phase.name {
            lines.push(format!("phase {phase}"));
        }
        for source in &plan.sources {
            let rows = source
                .rows()
                .map_or("rows not known before reading".to_owned(), |rows| format!("{} rows", grouped(rows)));
            let size: u64 = source.files.iter().map(|f| f.size).sum();
            lines.push(format!(
                "{:<24} {} files, {}, {rows}",
                source.config.name,
                source.files.len(),
                bytes(size)
            ));
            if let (Some(want), Some(commit)) = (&source.config.want, &source.config.revision) {
                let licence = source.config.licence.as_deref().unwrap_or("no licence stated");
                lines.push(format!("  hf://datasets/{}@{commit}, {licence}", want.repo));
            }
            for file in &source.files {
                let rows = file.rows.map_or("?".to_owned(), grouped);
                lines.push(format!(
                    "  {:<40} {:>10} {:>12} rows  sha256:{}",
                    file.file.name,
                    bytes(file.size),
                    rows,
                    file.sha256
                ));
            }
        }
        lines.push(format!(
            "{} units, {} partitions, about {} of text; about {} of disk in {}",
            plan.units.len(),
            plan.partitions,
            bytes(plan.planned_bytes()),
            bytes(disk_needed(plan)),
            out.display()
        ));
    }
    lines.join("\n")
}

/// Does some work while its progress is shown.
pub(super) fn shown<T>(output: &Output, progress: &Arc<Progress>, work: impl FnOnce() -> T) -> T {
    let shown = show(output, progress);
    let result = work();
    shown.end();
    result
}

/// The thread that shows progress.
struct Shown {
    end: Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Shown {
    fn end(mut self) {
        // The thread ends by itself when the sender is gone; a failed send changes nothing.
        let _best_effort = self.end.send(());
        if let Some(thread) = self.thread.take() {
            let _best_effort = thread.join();
        }
    }
}

fn show(output: &Output, progress: &Arc<Progress>) -> Shown {
    let (end, ended) = channel();
    let (output, progress) = (*output, progress.clone());
    let thread = match output.progress() {
        ProgressStyle::None => None,
        ProgressStyle::Lines => Some(std::thread::spawn(move || show_lines(&output, &progress, &ended))),
        ProgressStyle::Bars => Some(std::thread::spawn(move || show_bars(&progress, &ended))),
    };
    Shown { end, thread }
}

fn show_lines(output: &Output, progress: &Progress, ended: &Receiver<()>) {
    let began = Instant::now();
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LINE_EVERY) {
        output.note(&line(progress, began.elapsed()));
    }
}

fn line(progress: &Progress, elapsed: Duration) -> String {
    use std::sync::atomic::Ordering::Relaxed;
    match progress.step() {
        Step::Plan => format!("plan        finding and hashing inputs{}", fetched(progress)),
        Step::Map => {
            let sources = progress.sources();
            let sum = |f: fn(&crate::run::progress::SourceProgress) -> u64| {
                sources.iter().map(|s| f(s)).sum::<u64>()
            };
            let (rows, read) = (sum(|s| s.rows.load(Relaxed)), sum(|s| s.bytes.load(Relaxed)));
            let (tokens, planned) = (sum(|s| s.tokens.load(Relaxed)), sum(|s| s.planned_bytes));
            let seconds = elapsed.as_secs_f64().max(0.001);
            format!(
                "map         {} rows, {} of about {}, {}/s, {} tokens/s{}",
                grouped(rows),
                bytes(read),
                bytes(planned),
                bytes((read as f64 / seconds) as u64),
                grouped((tokens as f64 / seconds) as u64),
                fetched(progress)
            )
        }
        Step::Select => "select      duplicates and caps".to_owned(),
        Step::Reduce => format!(
            "reduce      {} of {} partitions",
            progress.partitions.0.load(Relaxed),
            progress.partitions.1.load(Relaxed)
        ),
        Step::Seal => "seal        writing the manifest".to_owned(),
    }
}

fn fetched(progress: &Progress) -> String {
    match progress.fetched() {
        0 => String::new(),
        sum => format!(", {} fetched", bytes(sum)),
    }
}

fn show_bars(progress: &Progress, ended: &Receiver<()>) {
    use std::sync::atomic::Ordering::Relaxed;
    let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
    let style = BarStyle::with_template(
        "{prefix:20!} {bar:24} {bytes:>10}/{total_bytes:10} {bytes_per_sec:>12} eta {eta:4} {msg}",
    )
    .unwrap_or_else(|_| BarStyle::default_bar());
    let mut shown: Vec<ProgressBar> = Vec::new();
    let status = bars.add(ProgressBar::new_spinner());
    let began = Instant::now();
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(DRAW_EVERY) {
        let sources = progress.sources();
        for (index, source) in sources.iter().enumerate() {
            if shown.len() <= index {
                let bar = bars.insert_before(&status, ProgressBar::new(source.planned_bytes));
                bar.set_style(style.clone());
                bar.set_prefix(source.name.clone());
                shown.push(bar);
            }
            if let Some(bar) = shown.get(index) {
                let read = source.bytes.load(Relaxed);
                bar.set_length(source.planned_bytes.max(read));
                bar.set_position(read);
                let rate = source.tokens.load(Relaxed) as f64 / began.elapsed().as_secs_f64().max(0.001);
                bar.set_message(format!(
                    "{} rows, {} tokens/s",
                    grouped(source.rows.load(Relaxed)),
                    grouped(rate as u64)
                ));
            }
        }
        status.set_message(line(progress, began.elapsed()));
        status.tick();
    }
    for bar in &shown {
        bar.finish_and_clear();
    }
    status.finish_and_clear();
}
