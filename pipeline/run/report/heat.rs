//! Contamination by benchmark and source.

use std::cmp::Reverse;

use potable_manifests::{BenchmarkRecord, DecontaminationMode, Manifest};

use super::html::{Html, counted, grouped};
use super::{close, dropped_at, open, open_scroll};
use crate::run::reason::Stage;

/// The heat map; benchmarks without a match are listed below it.
pub fn contamination(html: &mut Html, manifest: &Manifest) {
    let checks = &manifest.decontamination;
    if checks.mode == DecontaminationMode::None {
        open(html, "contamination", "Contamination", "The recipe says none = true.");
        html.raw("<p class=\"warn\"><strong>The rows were not checked against any benchmark.</strong> Nothing here says whether they overlap one.</p>\n");
        return close(html);
    }
    let rows = dropped_at(manifest, Stage::Decontaminate);
    let items: u64 = checks.benchmarks.iter().map(|benchmark| benchmark.items).sum();
    let loose: u64 = checks.benchmarks.iter().map(|benchmark| benchmark.not_protected).sum();
    let say = format!(
        "{} dropped for a match with one of {}: {} consecutive words, a short item whole, a near copy or a canary string. {}. A row that matches several benchmarks counts for each.",
        if rows == 1 { "1 row was".to_owned() } else { format!("{} rows were", grouped(rows)) },
        counted(items, "benchmark item"),
        checks.ngram,
        if loose == 0 {
            "Every item is protected".to_owned()
        } else {
            format!(
                "{} too short for any rule",
                if loose == 1 { "1 item is".to_owned() } else { format!("{} items are", grouped(loose)) }
            )
        },
    );
    open(html, "contamination", "Contamination", &say);
    let mut benchmarks: Vec<&BenchmarkRecord> = checks.benchmarks.iter().collect();
    benchmarks.sort_by_key(|benchmark| (Reverse(benchmark.rows_dropped), Reverse(benchmark.rows_reported)));
    let (hit, clean): (Vec<_>, Vec<_>) =
        benchmarks.into_iter().partition(|one| one.rows_dropped + one.rows_reported > 0);
    if !hit.is_empty() {
        heat_map(html, manifest, &hit);
    }
    clean_list(html, &clean);
    close(html);
}

fn heat_map(html: &mut Html, manifest: &Manifest, benchmarks: &[&BenchmarkRecord]) {
    open_scroll(html, "Rows dropped, by benchmark and source");
    html.raw("<table class=\"heat\">\n<caption>Rows dropped, by benchmark and source</caption>\n<thead><tr><th scope=\"col\">Benchmark</th>");
    for source in &manifest.inputs {
        html.raw("<th scope=\"col\" class=\"c\">").text(&source.name).raw("</th>");
    }
    html.raw("<th scope=\"col\" class=\"n\">All</th><th scope=\"col\" class=\"n\">Reported, kept</th><th scope=\"col\" class=\"n\">Items</th><th scope=\"col\" class=\"n\">Not protected</th></tr></thead>\n<tbody>\n");
    let cells = benchmarks.iter().flat_map(|benchmark| benchmark.per_source.values());
    let most = cells.map(|matches| matches.dropped).max().unwrap_or_default();
    for benchmark in benchmarks {
        html.raw("<tr><th scope=\"row\">").text(&benchmark.name);
        if benchmark.sensitive {
            html.raw("<span class=\"sub\">sensitive, never quoted</span>");
        }
        html.raw("</th>");
        for source in &manifest.inputs {
            let count = benchmark.per_source.get(&source.name).map_or(0, |matches| matches.dropped);
            html.raw("<td class=\"cell ").raw(shade(count, most)).raw("\">").count(count).raw("</td>");
        }
        let counts =
            [benchmark.rows_dropped, benchmark.rows_reported, benchmark.items, benchmark.not_protected];
        for count in counts {
            html.raw("<td class=\"n\">").count(count).raw("</td>");
        }
        html.raw("</tr>\n");
    }
    html.raw("</tbody>\n</table>\n</div>\n");
}

/// One of five shades by the logarithm of a count; none for nothing.
fn shade(count: u64, most: u64) -> &'static str {
    const SHADES: [&str; 5] = ["h1", "h2", "h3", "h4", "h5"];
    if count == 0 {
        return "h0";
    }
    // Bits are logarithms that every machine rounds alike.
    let (bits, all) = (u64::from((count + 1).ilog2()), u64::from((most + 1).ilog2()));
    let step = if most <= 5 { count } else { (bits * 5).div_ceil(all.max(1)) };
    SHADES.get((step.clamp(1, 5) - 1) as usize).copied().unwrap_or("h5")
}

fn clean_list(html: &mut Html, benchmarks: &[&BenchmarkRecord]) {
    if benchmarks.is_empty() {
        return;
    }
    html.raw("<details><summary>").text(&counted(benchmarks.len() as u64, "benchmark"));
    html.raw(" without a match</summary>\n");
    open_scroll(html, "Benchmarks without a match");
    html.raw("<table>\n<caption>Checked, and no row matches</caption>\n<thead><tr><th scope=\"col\">Benchmark</th><th scope=\"col\" class=\"n\">Items</th><th scope=\"col\" class=\"n\">By n-gram</th><th scope=\"col\" class=\"n\">Whole</th><th scope=\"col\" class=\"n\">Not protected</th></tr></thead>\n<tbody>\n");
    for benchmark in benchmarks {
        html.raw("<tr><th scope=\"row\">").text(&benchmark.name).raw("</th>");
        let counts =
            [benchmark.items, benchmark.protected_ngram, benchmark.protected_short, benchmark.not_protected];
        for count in counts {
            html.raw("<td class=\"n\">").count(count).raw("</td>");
        }
        html.raw("</tr>\n");
    }
    html.raw("</tbody>\n</table>\n</div>\n</details>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_rise_with_the_count() {
        assert_eq!([0, 1, 2, 5].map(|count| shade(count, 5)), ["h0", "h1", "h2", "h5"]);
        let shades: Vec<_> = [1, 10, 100, 1000, 100_000].map(|count| shade(count, 100_000)).into();
        assert!(
            shades.is_sorted() && shades.first() == Some(&"h1") && shades.last() == Some(&"h5"),
            "{shades:?}"
        );
        assert_eq!(shade(u64::MAX - 1, u64::MAX - 1), "h5");
    }
}
