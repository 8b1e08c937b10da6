//! `potable blocklist check`.

use std::path::Path;

use anyhow::Result;
use potable_blocklists::{Action, Blocklist};
use serde_json::json;

use super::Answer;
use super::args::{CheckArgs, CheckFormat};
use super::display::{bytes, grouped};
use super::output::Output;
use crate::decontaminate::Match;
use crate::decontaminate::check::{CheckCounts, RowVerdict, check_file};
use crate::run::RunError;
use crate::source::files;

/// Characters shown before and after a match.
const AROUND: usize = 200;

/// Scans corpus files.
///
/// # Errors
/// A blocklist or a file that cannot be read.
pub fn run(args: &CheckArgs, output: &Output) -> Result<Answer> {
    let blocklist = Blocklist::load(&args.file)?;
    let found = files::find("check", &args.inputs, Path::new(""), None)?;
    let threads = args.threads.filter(|n| *n > 0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0))
        .build()
        .map_err(|e| RunError::Threads { threads: threads.unwrap_or(0), reason: e.to_string() })?;
    let mut sum = CheckCounts::default();
    for file in &found {
        // Printed as they are found: a file may hold more matches than memory.
        let mut printed = Ok(());
        let mut show = |verdict: RowVerdict| {
            if printed.is_ok() {
                printed = print(&verdict, args, output);
            }
        };
        let counts = pool.install(|| check_file(file, &blocklist, args.strict, &mut show))?;
        printed?;
        sum.add(counts);
    }
    output.note(&format!(
        "checked     {:>11} rows   {} of text in {} files",
        grouped(sum.rows),
        bytes(sum.bytes),
        found.len()
    ));
    output.note(&format!("found       {:>11} rows   to drop", grouped(sum.dropped)));
    if sum.reported > 0 {
        output.note(&format!("reported    {:>11} rows   with boilerplate only", grouped(sum.reported)));
    }
    if !sum.unread.is_empty() {
        let columns: Vec<String> =
            sum.unread.iter().map(|(column, rows)| format!("`{column}` ({} rows)", grouped(*rows))).collect();
        output.note(&format!(
            "not checked text in columns {}: the rows are read as `prep` reads them without a mapping",
            columns.join(", ")
        ));
    }
    Ok(if sum.dropped > 0 { Answer::No } else { Answer::Yes })
}

fn print(verdict: &RowVerdict, args: &CheckArgs, output: &Output) -> Result<()> {
    if let Some(row) = &args.explain {
        if *row == verdict.id {
            output.data(&explain(verdict, output.has_colour()))?;
        }
        return Ok(());
    }
    for found in &verdict.matches {
        let line = match args.format {
            CheckFormat::Jsonl => serde_json::Value::Object(object(&verdict.id, found)).to_string(),
            CheckFormat::Table => format!(
                "{:<24} {:<6} {:<10} {} {} ({:.0} % of the item) message {} bytes {}..{}",
                verdict.id,
                found.action.name(),
                found.rule.name(),
                found.benchmark_name,
                found.item,
                f64::from(found.coverage_ppm) / 1e4,
                found.message,
                found.span.0,
                found.span.1,
            ),
        };
        output.data(&line)?;
    }
    Ok(())
}

/// The fields that others rely on (docs/ARCHITECTURE.md, `decontaminate`).
pub(super) fn object(id: &str, found: &Match) -> serde_json::Map<String, serde_json::Value> {
    let fields = [
        ("id", json!(id)),
        ("benchmark", json!(found.benchmark_name)),
        ("item", json!(found.item)),
        ("rule", json!(found.rule.name())),
        ("coverage", json!(f64::from(found.coverage_ppm) / 1e6)),
        ("message", json!(found.message)),
        ("start", json!(found.span.0)),
        ("end", json!(found.span.1)),
        ("action", json!(found.action.name())),
        ("excerpt", json!(found.excerpt)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn explain(verdict: &RowVerdict, colour: bool) -> String {
    let mut lines = vec![format!("row {}", verdict.id)];
    let sensitive = verdict.matches.iter().any(|found| found.excerpt.is_empty());
    for found in &verdict.matches {
        let does = if found.action == Action::Drop { "drops the row" } else { "is reported only" };
        lines.push(format!(
            "\n{} {}: {}, {:.0} % of the item, {does}; message {}, bytes {}..{}",
            found.benchmark_name,
            found.item,
            found.rule.name(),
            f64::from(found.coverage_ppm) / 1e4,
            found.message,
            found.span.0,
            found.span.1
        ));
        if sensitive {
            lines.push("(text of a sensitive benchmark is not shown)".to_owned());
            continue;
        }
        let (start, end) = (found.span.0 as usize, found.span.1 as usize);
        let text = verdict.texts.iter().find(|(message, text)| {
            *message == found.message && text.len() >= end && excerpt_fits(text, found)
        });
        if let Some((_, text)) = text {
            lines.push(marked(text, start, end, colour));
        }
    }
    lines.join("\n")
}

/// A message has several texts (reasoning, answer, calls): the one that holds the excerpt is meant.
fn excerpt_fits(text: &str, found: &Match) -> bool {
    text.get(found.span.0 as usize..found.span.1 as usize).is_some_and(|part| {
        let head: String = part.chars().take(20).collect();
        found.excerpt.contains(&head)
    })
}

fn marked(text: &str, start: usize, end: usize, colour: bool) -> String {
    let before: String = text.get(..start).unwrap_or_default().chars().rev().take(AROUND).collect();
    let before: String = before.chars().rev().collect();
    let after: String = text.get(end..).unwrap_or_default().chars().take(AROUND).collect();
    let found = text.get(start..end).unwrap_or_default();
    let (open, close) = if colour { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("[[", "]]") };
    format!("…{before}{open}{found}{close}{after}…")
}
