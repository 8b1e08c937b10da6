//! The last lines of a run: one fact a line, the numbers of the manifest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use potable_manifests::Manifest;
use serde_json::Value;

use super::display::{bytes, grouped, percent};
use crate::run::PrepReport;
use crate::run::reason::{DropReason, Stage};

/// The summary of a phase.
pub fn of(report: &PrepReport, elapsed: Duration) -> String {
    let manifest = &report.manifest;
    let out = report.out.display();
    let digest = manifest.manifest_digest.short();
    if report.up_to_date {
        return format!("{out} is up to date, manifest {digest}");
    }
    let read: u64 = manifest.rows.values().map(|l| l.read).sum();
    let files: usize = manifest.inputs.iter().map(|s| s.files.len()).sum();
    let mut lines = Vec::new();
    if let Some(phase) = &manifest.phase {
        lines.push(fact("phase", phase, ""));
    }
    lines.push(fact("read", &grouped(read), &format!("rows   from {} files", grouped(files as u64))));
    let sampled: u64 = manifest.rows.values().map(|l| l.sampled_out).sum();
    if sampled > 0 {
        lines.push(fact("sampled out", &grouped(sampled), "rows   above a cap"));
    }
    let joined = joined(report);
    if !joined.is_empty() {
        let by: Vec<String> =
            joined.iter().map(|(name, rows)| format!("{name} {}", grouped(*rows))).collect();
        let sum = joined.values().sum();
        lines.push(fact("joined", &grouped(sum), &format!("rows   took text from {}", by.join(", "))));
    }
    let repeated: u64 = manifest.rows.values().map(|ledger| ledger.repeated).sum();
    if repeated > 0 {
        lines.push(fact("repeated", &grouped(repeated), "rows   taken again, as `repeats` allows"));
    }
    lines.extend(drops(report));
    let failed: u64 = manifest.rows.values().map(|l| l.failed).sum();
    if failed > 0 {
        lines.push(fact("failed", &grouped(failed), "rows   could not be read"));
    }
    let tokens = &manifest.tokens;
    let (what, unit) = match manifest.is_packed() {
        true => ("packed", format!("packs  {} full", percent(tokens.fill_ppm))),
        false => ("samples", "rows   one sample a row".to_owned()),
    };
    let total = format!("{unit}, {} tokens, {} trained on", grouped(tokens.total), grouped(tokens.trained));
    lines.push(fact(what, &grouped(tokens.packs), &total));
    let size: u64 = manifest.run.file_sha256.values().map(|f| f.size).sum();
    lines.push(fact(
        "wrote",
        &grouped(manifest.shards.len() as u64),
        &format!("shards to {out}, {} in {:.1} s, manifest {digest}", bytes(size), elapsed.as_secs_f64()),
    ));
    lines.join("\n")
}

/// Sources that have less than the recipe asks for: caps that were not met, files that are not there.
pub fn shortfalls(manifest: &Manifest) -> Vec<String> {
    let sources = manifest.recipe.settings.get("sources").and_then(Value::as_array);
    let mut texts = Vec::new();
    for settings in sources.into_iter().flatten() {
        let name = settings.get("name").and_then(Value::as_str).unwrap_or_default();
        let asked = |key: &str| settings.get(key).and_then(Value::as_u64);
        let rows = manifest.rows.get(name).map_or(0, |ledger| ledger.kept + ledger.repeated);
        let tokens = manifest.tokens.per_source.get(name).map_or(0, |source| source.tokens);
        let files = manifest.inputs.iter().find(|source| source.name == name);
        let files = files.map_or(0, |source| source.files.len() as u64);
        let caps = [("max_rows", rows, "rows"), ("max_tokens", tokens, "tokens")];
        let given = || caps.iter().filter_map(|&(key, there, what)| Some((key, asked(key)?, there, what)));
        // Of two caps, the one that is met first holds.
        let unmet = given().filter(|_| given().all(|(_, asked, there, _)| there < asked));
        let too_few =
            asked("files").filter(|asked| files < *asked).map(|asked| ("files", asked, files, "files"));
        for (key, asked, there, what) in unmet.chain(too_few) {
            texts.push(format!(
                "source `{name}`: `{key} = {asked}`, and there are {} {what} to take",
                grouped(there)
            ));
        }
    }
    texts
}

/// What to try after the demo.
pub fn demo_next(out: &Path) -> String {
    let out = out.display();
    format!(
        "\nnext\n  see the recipe          potable recipes show demo\n  see the report          {out}/report.html\n  see the evidence        {out}/manifest.json, {out}/dropped/\n  run it again            potable prep demo\n  compare two runs        potable manifest diff OLD NEW\n  use your own data       copy the recipe, put your files under `path`, then potable prep MY.toml"
    )
}

/// Rows that took their text from another corpus, by corpus.
fn joined(report: &PrepReport) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    for (join, rows) in report.manifest.rows.values().flat_map(|ledger| &ledger.joined) {
        *sums.entry(join.as_str()).or_default() += rows;
    }
    sums
}

fn drops(report: &PrepReport) -> Vec<String> {
    let manifest = &report.manifest;
    let mut sums: BTreeMap<DropReason, u64> = BTreeMap::new();
    for (reason, count) in manifest.rows.values().flat_map(|l| &l.dropped) {
        if let Some(reason) = DropReason::from_name(reason) {
            *sums.entry(reason).or_default() += count;
        }
    }
    let contaminated: u64 =
        sums.iter().filter(|(r, _)| r.stage() == Stage::Decontaminate).map(|(_, c)| c).sum();
    let mut lines = Vec::new();
    if contaminated > 0 {
        let by: Vec<String> = manifest
            .decontamination
            .benchmarks
            .iter()
            .filter(|b| b.rows_dropped > 0)
            .map(|b| format!("{} {}", b.name, grouped(b.rows_dropped)))
            .collect();
        lines.push(fact(
            "removed",
            &grouped(contaminated),
            &format!("rows   contaminated ({})", by.join(", ")),
        ));
    }
    for (reason, count) in sums.iter().filter(|(r, _)| r.stage() != Stage::Decontaminate) {
        let label = if *reason == DropReason::SourceWhere { "left out" } else { "rejected" };
        lines.push(fact(label, &grouped(*count), &format!("rows   {}", reason.text())));
    }
    lines
}

fn fact(label: &str, count: &str, rest: &str) -> String {
    format!("{label:<11} {count:>11} {rest}").trim_end().to_owned()
}
