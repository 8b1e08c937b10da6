//! Dropped rows with the match marked; never any text where a sensitive benchmark is involved.

use potable_manifests::{DecontaminationMode, Manifest};

use super::examples::{Example, Examples};
use super::html::{Html, counted, percent};
use super::{close, open};

/// A few rows of each benchmark.
pub fn dropped(html: &mut Html, manifest: &Manifest, examples: &Examples) {
    let checks = &manifest.decontamination;
    let shown =
        checks.benchmarks.iter().filter(|benchmark| !examples.of_benchmark(&benchmark.name).is_empty());
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by_key(|benchmark| std::cmp::Reverse(benchmark.rows_dropped));
    let say = match (checks.mode, shown.is_empty()) {
        (DecontaminationMode::None, _) => "The rows were not checked against any benchmark.",
        (_, true) => "No row was dropped for a match with a benchmark.",
        (_, false) => {
            "The first few rows of each benchmark, with what matched marked. All of them, with all matches, stand in dropped/."
        }
    };
    open(html, "examples", "Dropped rows", say);
    for (index, benchmark) in shown.into_iter().enumerate() {
        let id = index as u64;
        html.raw("<h3 id=\"benchmark-")
            .number(id)
            .raw("\">")
            .text(&benchmark.name)
            .raw(" <span class=\"sub\">");
        html.text(&counted(benchmark.rows_dropped, "row")).raw(" dropped</span></h3>\n");
        html.raw("<ul class=\"rows\" aria-labelledby=\"benchmark-").number(id).raw("\">\n");
        for example in examples.of_benchmark(&benchmark.name) {
            row(html, example);
        }
        html.raw("</ul>\n");
    }
    close(html);
}

fn row(html: &mut Html, example: &Example) {
    let found = &example.found;
    html.raw("<li><p class=\"where\"><span class=\"id\">")
        .text(&example.row_id)
        .raw("</span> <span class=\"what\">");
    html.text(&found.rule).raw(", item ").text(&found.item).raw(", ").text(&percent(found.coverage_ppm));
    html.raw(" of it, message ").count(found.message + 1).raw("</span></p>\n");
    match found.parts() {
        None => {
            html.raw(
                "<p class=\"hidden-text\">Matches a sensitive benchmark; its text is written nowhere.</p>",
            );
        }
        Some((before, matched, after)) => {
            html.raw("<blockquote dir=\"auto\">")
                .text(before)
                .raw("<mark><span class=\"sr\">[match] </span>");
            html.text(matched)
                .raw("<span class=\"sr\"> [end of match]</span></mark>")
                .text(after)
                .raw("</blockquote>");
        }
    }
    html.raw("</li>\n");
}
