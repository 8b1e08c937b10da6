//! Rows through the stages, and the reasons why rows are not in the shards.

use std::collections::BTreeMap;

use potable_manifests::{Manifest, RowLedger, ppm};

use super::examples::Examples;
use super::html::{Html, counted, grouped, percent};
use super::{close, of_stage, open, open_scroll, reason_text};
use crate::run::reason::Stage;

/// A part of a source's bar: what it means, how it looks, how many rows.
type Share = (&'static str, &'static str, u64);

/// Bars of all sources, and the table with the numbers.
pub fn flows(html: &mut Html, manifest: &Manifest) {
    let total = totals(manifest);
    let say = format!(
        "{} of {} kept. Each row ends in exactly one place, and the numbers of a line add up.",
        grouped(total.kept),
        counted(total.read, "row"),
    );
    open(html, "rows", "Where the rows went", &say);
    legend(html, &total);
    html.raw("<ul class=\"flows\">\n");
    for source in &manifest.inputs {
        let ledger = manifest.rows.get(&source.name).cloned().unwrap_or_default();
        html.raw("<li><span class=\"name\">").text(&source.name).raw("</span>");
        bar(html, &ledger);
        html.raw("<span class=\"of\">")
            .count(ledger.kept)
            .raw(" of ")
            .count(ledger.read)
            .raw(" kept</span></li>\n");
    }
    html.raw("</ul>\n");
    stages(html, manifest, &total);
    close(html);
}

fn shares(ledger: &RowLedger) -> [Share; 5] {
    let hits = of_stage(&ledger.dropped, Stage::Decontaminate);
    let dropped: u64 = ledger.dropped.values().sum();
    [
        ("kept", "kept", ledger.kept),
        ("contaminated", "hit-fill", hits),
        ("dropped for another reason", "drop", dropped.saturating_sub(hits)),
        ("sampled out", "sampled", ledger.sampled_out),
        ("could not be read", "failed", ledger.failed),
    ]
}

fn legend(html: &mut Html, total: &RowLedger) {
    html.raw("<ul class=\"legend\" aria-hidden=\"true\">\n");
    for (name, class, count) in shares(total) {
        if count > 0 {
            html.raw("<li><i class=\"").raw(class).raw("\"></i>").raw(name).raw("</li>\n");
        }
    }
    html.raw("</ul>\n");
}

/// A bar whose parts are in proportion; the table below says the same in numbers.
fn bar(html: &mut Html, ledger: &RowLedger) {
    html.raw("<span class=\"bar\" aria-hidden=\"true\">");
    for (_, class, count) in shares(ledger) {
        if count > 0 {
            html.raw("<span class=\"").raw(class).raw("\" style=\"flex:").number(count).raw(" 0 0\"></span>");
        }
    }
    html.raw("</span>");
}

fn stages(html: &mut Html, manifest: &Manifest, total: &RowLedger) {
    let stages: Vec<Stage> = Stage::ALL
        .into_iter()
        .filter(|stage| matches!(stage, Stage::Decontaminate) || of_stage(&total.dropped, *stage) > 0)
        .collect();
    open_scroll(html, "Rows lost at each stage, by source");
    html.raw("<table>\n<caption>Rows lost at each stage</caption>\n<thead><tr><th scope=\"col\">Source</th><th scope=\"col\" class=\"n\">Read</th>");
    if total.sampled_out > 0 {
        html.raw("<th scope=\"col\" class=\"n\">Sampled out</th>");
    }
    if total.failed > 0 {
        html.raw("<th scope=\"col\" class=\"n\">Failed</th>");
    }
    for stage in &stages {
        html.raw("<th scope=\"col\" class=\"n\">").text(&capital(stage.name())).raw("</th>");
    }
    html.raw("<th scope=\"col\" class=\"n\">Kept</th><th scope=\"col\" class=\"n\">Share</th></tr></thead>\n<tbody>\n");
    for source in &manifest.inputs {
        let ledger = manifest.rows.get(&source.name).cloned().unwrap_or_default();
        stage_row(html, &source.name, &ledger, (total, &stages));
    }
    html.raw("</tbody>\n<tfoot>\n");
    stage_row(html, "All", total, (total, &stages));
    html.raw("</tfoot>\n</table>\n</div>\n");
}

fn stage_row(html: &mut Html, name: &str, ledger: &RowLedger, (total, stages): (&RowLedger, &[Stage])) {
    html.raw("<tr><th scope=\"row\">")
        .text(name)
        .raw("</th><td class=\"n\">")
        .count(ledger.read)
        .raw("</td>");
    if total.sampled_out > 0 {
        lost(html, ledger.sampled_out);
    }
    if total.failed > 0 {
        lost(html, ledger.failed);
    }
    stages.iter().for_each(|stage| lost(html, of_stage(&ledger.dropped, *stage)));
    html.raw("<td class=\"n kept-n\">").count(ledger.kept).raw("</td><td class=\"n\">");
    html.text(&percent(ppm(ledger.kept, ledger.read))).raw("</td></tr>\n");
}

fn lost(html: &mut Html, count: u64) {
    if count == 0 {
        html.raw("<td class=\"n zero\">0</td>");
    } else {
        html.raw("<td class=\"n\">−").count(count).raw("</td>");
    }
}

fn totals(manifest: &Manifest) -> RowLedger {
    let mut total = RowLedger::default();
    manifest.rows.values().for_each(|ledger| total.merge(ledger));
    total
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// Reasons by how many rows they took.
pub fn reasons(html: &mut Html, manifest: &Manifest, examples: &Examples) {
    let total = totals(manifest);
    let mut reasons: Vec<(&String, u64)> =
        total.dropped.iter().map(|(reason, count)| (reason, *count)).collect();
    reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
    let dropped: u64 = total.dropped.values().sum();
    let say = format!(
        "{} for {}. Rows that are listed in dropped/ can be asked about with potable explain.",
        if dropped == 1 {
            "1 row was dropped".to_owned()
        } else {
            format!("{} rows were dropped", grouped(dropped))
        },
        counted(reasons.len() as u64, "reason"),
    );
    open(html, "reasons", "Why rows were dropped", &say);
    if reasons.is_empty() {
        return close(html);
    }
    let most = reasons.first().map_or(0, |(_, count)| *count);
    open_scroll(html, "Reasons, with rows and sources");
    html.raw("<table>\n<caption>Rows by reason</caption>\n<thead><tr><th scope=\"col\">Reason</th><th scope=\"col\" class=\"n\">Rows</th><td class=\"meter\" aria-hidden=\"true\"></td><th scope=\"col\">By source, and a row</th></tr></thead>\n<tbody>\n");
    for (reason, count) in reasons {
        let by_source = by_source(manifest, reason);
        html.raw("<tr><th scope=\"row\" class=\"why\">")
            .text(reason_text(reason))
            .raw("<small class=\"id\">")
            .text(reason);
        html.raw("</small></th><td class=\"n\">")
            .count(count)
            .raw("</td><td class=\"meter\" aria-hidden=\"true\"><span class=\"");
        html.raw(if reason.starts_with("decontaminate.") { "hit-fill" } else { "drop" });
        html.raw("\" style=\"width:")
            .number(ppm(count, most) / 10_000)
            .raw("%\"></span></td><td>")
            .text(&by_source)
            .raw("<small class=\"sub\">");
        match examples.of_reason(reason).first() {
            Some(id) => html.raw("<span class=\"id\">").text(id).raw("</span>"),
            None => html.raw("counted, not listed"),
        };
        html.raw("</small></td></tr>\n");
    }
    html.raw("</tbody>\n</table>\n</div>\n");
    close(html);
}

fn by_source(manifest: &Manifest, reason: &str) -> String {
    let mut counts: BTreeMap<usize, String> = BTreeMap::new();
    for (at, source) in manifest.inputs.iter().enumerate() {
        let count = manifest.rows.get(&source.name).and_then(|ledger| ledger.dropped.get(reason));
        if let Some(count) = count {
            counts.insert(at, format!("{}\u{a0}{}", source.name, grouped(*count)));
        }
    }
    counts.into_values().collect::<Vec<_>>().join(", ")
}
