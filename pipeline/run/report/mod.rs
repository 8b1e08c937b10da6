//! `report.html`: the data set for a reader with a browser. One file, no script and no request;
//! outside every digest, and still the same bytes for the same data.

mod charts;
mod examples;
mod heat;
mod html;
mod matches;
mod rows;

use std::path::Path;

use potable_manifests::{DecontaminationMode, Manifest, ppm};

use super::error::RunError;
use super::reason::{DropReason, Stage};
use crate::shard::write_atomic;
use html::{Html, counted, grouped, percent};

pub use examples::Examples;

/// Name of the report.
pub const REPORT: &str = "report.html";

const STYLE: &str = include_str!("style.css");

/// Sections: their ids and what the navigation calls them.
const SECTIONS: [(&str, &str); 6] = [
    ("rows", "Rows"),
    ("reasons", "Reasons"),
    ("contamination", "Contamination"),
    ("lengths", "Lengths"),
    ("packs", "Packs"),
    ("examples", "Dropped rows"),
];

/// Writes the report beside the manifest.
///
/// # Errors
/// What the file system says.
pub fn write(folder: &Path, manifest: &Manifest, examples: &Examples) -> Result<(), RunError> {
    write_atomic(&folder.join(REPORT), render(manifest, examples).as_bytes())?;
    Ok(())
}

/// The report as HTML. A function of the manifest outside of its run block, and of the examples.
pub fn render(manifest: &Manifest, examples: &Examples) -> String {
    let mut html = Html::default();
    head(&mut html, manifest);
    html.raw("<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n<div class=\"page\">\n");
    header(&mut html, manifest);
    navigation(&mut html);
    html.raw("<main id=\"main\">\n");
    rows::flows(&mut html, manifest);
    rows::reasons(&mut html, manifest, examples);
    heat::contamination(&mut html, manifest);
    charts::lengths(&mut html, manifest);
    charts::packs(&mut html, manifest);
    matches::dropped(&mut html, manifest, examples);
    html.raw("</main>\n");
    footer(&mut html, manifest);
    html.raw("</div>\n</body>\n</html>\n");
    html.into_text()
}

/// Opens a section with its heading; [`close`] ends it.
fn open(html: &mut Html, id: &'static str, title: &'static str, say: &str) {
    html.raw("<section id=\"").raw(id).raw("\" aria-labelledby=\"").raw(id).raw("-title\">\n<h2 id=\"");
    html.raw(id).raw("-title\">").raw(title).raw("</h2>\n<p class=\"say\">").text(say).raw("</p>\n");
}

fn close(html: &mut Html) {
    html.raw("</section>\n");
}

/// Opens a box that scrolls sideways, by keyboard too.
fn open_scroll(html: &mut Html, label: &str) {
    html.raw("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"").text(label).raw("\">\n");
}

/// The policy forbids scripts and requests, whatever a text may say.
fn head(html: &mut Html, manifest: &Manifest) {
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    html.text(&title(manifest)).raw(": data report</title>\n<style>\n").raw(STYLE).raw("</style>\n</head>\n");
}

fn title(manifest: &Manifest) -> String {
    match &manifest.phase {
        Some(phase) => format!("{}, phase {phase}", manifest.name),
        None => manifest.name.clone(),
    }
}

fn header(html: &mut Html, manifest: &Manifest) {
    let read: u64 = manifest.rows.values().map(|ledger| ledger.read).sum();
    let kept: u64 = manifest.rows.values().map(|ledger| ledger.kept).sum();
    let files: usize = manifest.inputs.iter().map(|source| source.files.len()).sum();
    let tokens = &manifest.tokens;
    let checked = manifest.decontamination.mode == DecontaminationMode::Blocklist;
    html.raw("<header>\n<p class=\"kind\">Data report</p>\n<h1>")
        .text(&title(manifest))
        .raw("</h1>\n<p class=\"lead\">");
    html.text(&format!(
        "{} read from {} of {}; {} stand in the shards. ",
        if read == 1 { "1 row was".to_owned() } else { format!("{} rows were", grouped(read)) },
        counted(files as u64, "file"),
        counted(manifest.inputs.len() as u64, "source"),
        grouped(kept),
    ));
    let names = manifest.decontamination.benchmarks.len() as u64;
    if checked {
        html.text(&format!(
            "Every row was checked against {}, and those that overlap one were dropped.",
            counted(names, "benchmark")
        ));
    } else {
        html.raw("<strong>The rows were not checked against any benchmark.</strong>");
    }
    html.raw("</p>\n<dl class=\"facts\">\n");
    let contaminated = dropped_at(manifest, Stage::Decontaminate);
    let contaminated = if checked { grouped(contaminated) } else { "–".to_owned() };
    let trained = format!("tokens, {} trained on", percent(ppm(tokens.trained, tokens.total)));
    let (packs, fill) = match manifest.is_packed() {
        true => (format!("fill of {}", counted(tokens.packs, "pack")), percent(tokens.fill_ppm)),
        false => ("rows of one sample each".to_owned(), grouped(tokens.packs)),
    };
    fact(html, "<div>", "rows kept", &percent(ppm(kept, read)));
    fact(html, "<div class=\"hit\">", "rows dropped as contaminated", &contaminated);
    fact(html, "<div>", &trained, &grouped(tokens.total));
    fact(html, "<div>", &packs, &fill);
    html.raw("</dl>\n</header>\n");
}

fn fact(html: &mut Html, open: &'static str, what: &str, value: &str) {
    html.raw(open).raw("<dt>").text(what).raw("</dt><dd>").text(value).raw("</dd></div>\n");
}

fn navigation(html: &mut Html) {
    html.raw("<nav aria-label=\"Sections\">\n<ul>\n");
    for (id, name) in SECTIONS {
        html.raw("<li><a href=\"#").raw(id).raw("\">").raw(name).raw("</a></li>\n");
    }
    html.raw("</ul>\n</nav>\n");
}

fn footer(html: &mut Html, manifest: &Manifest) {
    let tokeniser = &manifest.tokeniser;
    html.raw(
        "<footer>\n<p>The numbers are those of <code>manifest.json</code> beside this file. \
        <code>potable manifest verify</code> reads the shards again and compares; this report itself is \
        covered by no digest.</p>\n<dl>\n",
    );
    let blocklist = manifest.decontamination.blocklist_digest.as_ref();
    let rows = [
        ("Manifest", manifest.manifest_digest.as_str()),
        ("Recipe", manifest.recipe.digest.as_str()),
        ("Blocklist", blocklist.map_or("none", |digest| digest.as_str())),
        ("Vocabulary", tokeniser.vocabulary_digest.as_str()),
        ("Template", tokeniser.template.as_str()),
        ("Written by", &format!("potable {}", manifest.run.potable_version)),
    ];
    for (what, value) in rows {
        html.raw("<dt>").raw(what).raw("</dt><dd><code>").text(value).raw("</code></dd>\n");
    }
    html.raw("</dl>\n</footer>\n");
}

/// Rows that a stage dropped, all sources.
fn dropped_at(manifest: &Manifest, stage: Stage) -> u64 {
    manifest.rows.values().map(|ledger| of_stage(&ledger.dropped, stage)).sum()
}

/// Rows of a ledger that a stage dropped.
fn of_stage(dropped: &std::collections::BTreeMap<String, u64>, stage: Stage) -> u64 {
    let own = dropped
        .iter()
        .filter(|(reason, _)| reason.strip_prefix(stage.name()).is_some_and(|rest| rest.starts_with('.')));
    own.map(|(_, count)| count).sum()
}

/// What a reason says, for a reader.
fn reason_text(reason: &str) -> &str {
    match DropReason::from_name(reason) {
        Some(known) => known.text(),
        None => reason,
    }
}
