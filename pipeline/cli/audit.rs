//! `potable audit`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use potable_blocklists::Blocklist;
use potable_manifests::Manifest;
use serde_json::{Value, json};

use super::Answer;
use super::args::{AuditArgs, CheckFormat};
use super::bar::Bar;
use super::check::object;
use super::display::{bytes, grouped};
use super::output::Output;
use crate::audit::{Audit, AuditCounts, SampleVerdict, decoder_for};
use crate::run::RunError;
use crate::verify::open::{OpenError, Opened, open};
use crate::verify::progress::ByteProgress;

/// Checks the shards of a data set against blocklists.
///
/// # Errors
/// A folder, a blocklist or a tokenizer that cannot be read.
pub fn run(args: &AuditArgs, output: &Output) -> Result<Answer> {
    if args.dir.is_file() {
        return Err(OpenError::NoFolder { path: args.dir.clone() }.into());
    }
    let blocklists =
        args.blocklist.iter().map(|path| Blocklist::load(path)).collect::<Result<Vec<_>, _>>()?;
    let folders: Vec<_> = match open(&args.dir)? {
        Opened::DataSet(manifest) => vec![(args.dir.clone(), *manifest)],
        Opened::Phases(index, manifests) => {
            let folders = index.phases.iter().map(|entry| args.dir.join(&entry.phase));
            folders.zip(manifests).collect()
        }
    };
    let threads = args.threads.filter(|n| *n > 0).unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| RunError::Threads { threads, reason: e.to_string() })?;
    let mut clean = true;
    for (dir, manifest) in &folders {
        let counts = pool.install(|| audit(dir, manifest, (&blocklists, args), output))?;
        for shard in &counts.read.differing {
            output
                .warn(&format!("{}: holds other samples than the manifest says", dir.join(shard).display()));
        }
        output.data(&summary(dir, manifest, &counts, args))?;
        clean &= counts.dropped == 0 && counts.read.differing.is_empty() && is_whole(manifest, &counts);
    }
    Ok(if clean { Answer::Yes } else { Answer::No })
}

fn audit(
    dir: &Path,
    manifest: &Manifest,
    (blocklists, args): (&[Blocklist], &AuditArgs),
    output: &Output,
) -> Result<AuditCounts> {
    let decoder = decoder_for(dir, manifest, args.tokenizer.as_deref())?;
    let strict = args.strict || manifest.decontamination.strict;
    let audit = Audit { dir, manifest, decoder: &decoder, blocklists, strict };
    let progress = Arc::new(ByteProgress::default());
    let bar = Bar::show(output, "audit", &progress);
    // Printed as they are found: a data set may hold more matches than memory.
    let mut printed = Ok(());
    let counts = audit.run(&progress, &mut |verdict| {
        if printed.is_ok() {
            printed = print(&verdict, args, output);
        }
    });
    drop(bar);
    printed?;
    Ok(counts?)
}

/// Whether as many samples were audited as the manifest has.
fn is_whole(manifest: &Manifest, counts: &AuditCounts) -> bool {
    samples(manifest) == counts.read.samples
}

fn samples(manifest: &Manifest) -> u64 {
    manifest.tokens.per_source.values().map(|source| source.samples).sum()
}

fn print(verdict: &SampleVerdict, args: &AuditArgs, output: &Output) -> Result<()> {
    let blocklist =
        args.blocklist.get(verdict.blocklist).map_or(String::new(), |path| path.display().to_string());
    for found in &verdict.matches {
        let line = match args.format {
            CheckFormat::Jsonl => {
                let mut line = object(&verdict.name, found);
                line.shift_insert(1, "shard".to_owned(), verdict.shard.clone().into());
                line.shift_insert(2, "blocklist".to_owned(), blocklist.clone().into());
                Value::Object(line).to_string()
            }
            CheckFormat::Table => format!(
                "{:<24} {:<6} {:<10} {} {} ({:.0} % of the item) in {}",
                verdict.name,
                found.action.name(),
                found.rule.name(),
                found.benchmark_name,
                found.item,
                f64::from(found.coverage_ppm) / 1e4,
                verdict.shard,
            ),
        };
        output.data(&line)?;
    }
    Ok(())
}

fn summary(dir: &Path, manifest: &Manifest, counts: &AuditCounts, args: &AuditArgs) -> String {
    let read = &counts.read;
    let fragments = match read.fragments {
        0 => String::new(),
        n => format!(", {} fragments among them put together", grouped(n)),
    };
    let found = match (counts.dropped, counts.reported) {
        (0, 0) => "nothing found".to_owned(),
        (0, reported) => format!("nothing found but boilerplate, in {} samples", grouped(reported)),
        (dropped, _) => format!("{} samples hold a benchmark item", grouped(dropped)),
    };
    let lists = args.blocklist.len();
    let summary = format!(
        "audited {}: {} of {} samples{fragments}; {} tokens as {} texts ({}) against {lists} blocklist{}: {found}",
        dir.display(),
        grouped(read.samples),
        grouped(samples(manifest)),
        grouped(read.tokens),
        grouped(counts.texts),
        bytes(counts.bytes),
        if lists == 1 { "" } else { "s" },
    );
    match args.format {
        CheckFormat::Table => summary,
        CheckFormat::Jsonl => json!({
            "audited": read.samples,
            "of": samples(manifest),
            "fragments": read.fragments,
            "tokens": read.tokens,
            "texts": counts.texts,
            "samples_to_drop": counts.dropped,
            "samples_reported": counts.reported,
            "differing_shards": read.differing,
        })
        .to_string(),
    }
}
