//! DATA_MANIFEST.md: the answers to a reviewer's questions, in the order in which they are asked.

use std::collections::BTreeSet;

use super::words::{NO_LICENCE, counted, grouped, hub_page, percent, pinned};
use super::{DataSet, ExportError, Part, ShardFile, benchmarks, contaminated, drops};
use crate::diff::visible;
use crate::manifest::{
    BenchmarkRecord, DecontaminationMode, InputSource, Manifest, ShardRecord, Split, Verified, ppm,
};

/// The data manifest for a reader.
///
/// # Errors
/// [`ExportError`] for a shard without a file digest.
pub fn markdown(set: &DataSet) -> Result<String, ExportError> {
    let mut out = format!("# Data manifest of {}\n\n", cell(&set.name));
    let versions: BTreeSet<&str> = set.manifests().map(|m| m.run.potable_version.as_str()).collect();
    let versions: Vec<&str> = versions.into_iter().collect();
    out += &format!("`{}`, written by potable {}.\n\n", set.digest(), cell(&versions.join(", ")));
    out += &in_short(set);
    out += &sections(set);
    out += &files(set)?;
    Ok(out)
}

/// All sections but the files, for the card too.
pub(super) fn sections(set: &DataSet) -> String {
    let mut out = String::new();
    for (title, section) in [
        ("Corpora", corpora as fn(&Part) -> String),
        ("Benchmarks kept out", blocklist),
        ("Where the rows went", rows),
        ("Tokens", tokens),
        ("Rendering", rendering),
        ("Shards", shards),
    ] {
        out += &format!("## {title}\n\n");
        for part in &set.parts {
            if let Some(label) = part.label() {
                out += &format!("### Phase {}\n\n", cell(label));
            }
            out += &section(part);
        }
    }
    out + &how_to_check(set)
}

/// Text as the content of a table cell or a line: nothing in it is markup.
pub(super) fn cell(text: &str) -> String {
    let text = visible(text);
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // An underscore inside a word is none of Markdown's business.
        let inside = before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphanumeric());
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '_' if inside => out.push(c),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => out.extend(['\\', c]),
            _ => out.push(c),
        }
        before = c;
    }
    out
}

/// A table: titles, and rows of cells that are escaped already. A title that ends in ` #` heads a
/// column of numbers.
fn table(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let names: Vec<String> = titles.iter().map(|title| title.trim_end_matches(" #").to_owned()).collect();
    let rules: Vec<String> =
        titles.iter().map(|title| if title.ends_with(" #") { "---:" } else { "---" }.to_owned()).collect();
    let mut out = line(&names) + &line(&rules);
    rows.into_iter().for_each(|row| out.push_str(&line(&row)));
    out.push('\n');
    out
}

fn in_short(set: &DataSet) -> String {
    let sources: Vec<&InputSource> = set.sources().collect();
    let hub = sources.iter().filter(|source| source.corpus.is_some());
    let loose = hub.clone().filter(|source| pinned(source.revision.as_deref()).is_none()).count();
    let eval = sources.iter().filter(|source| source.eval_split).count();
    let licences: Vec<String> = set.licences().into_iter().map(cell).collect();
    let unchecked = set.manifests().filter(|m| benchmarks(m).is_empty()).count();
    let dropped: u64 = set.manifests().map(contaminated).sum();
    let items: u64 = set.manifests().flat_map(benchmarks).map(|benchmark| benchmark.not_protected).sum();
    let yes_no = |bad: usize, good: &str, text: String| if bad == 0 { good.to_owned() } else { text };
    let rows = [
        (
            "Is each corpus of the Hub pinned to a commit?",
            match hub.count() {
                0 => "no source names a corpus of the Hub; files are pinned by SHA-256".to_owned(),
                all => yes_no(loose, "yes", format!("**no**: {loose} of {all} are not")),
            },
        ),
        (
            "Only splits meant for training?",
            yes_no(eval, "yes", format!("**no**: {} of {} sources for evaluation", eval, sources.len())),
        ),
        (
            "Were all rows checked against benchmarks?",
            yes_no(unchecked, "yes", "**no**: the recipe says `none = true`".to_owned()),
        ),
        ("Rows dropped as contaminated", grouped(dropped)),
        ("Benchmark items that no rule protects", grouped(items)),
        ("Licences of the corpora", licences.join(", ")),
        ("Rows read", grouped(set.sum(|m| m.rows.values().map(|ledger| ledger.read).sum()))),
        (
            "Tokens, trained on",
            format!("{}, {}", grouped(set.sum(|m| m.tokens.total)), grouped(set.sum(|m| m.tokens.trained))),
        ),
    ];
    let rows = rows.into_iter().map(|(question, answer)| vec![question.to_owned(), answer]);
    table(&["question", "answer"], rows)
}

fn corpora(part: &Part) -> String {
    let inputs = &part.manifest.inputs;
    let row = |source: &InputSource| {
        let rows = part.manifest.rows.get(&source.name).map_or(0, |ledger| ledger.read);
        vec![
            cell(&source.name),
            origin(source.corpus.as_deref(), source.revision.as_deref()),
            revision(source.revision.as_deref()),
            split(source),
            cell(source.licence.as_deref().unwrap_or(NO_LICENCE)),
            grouped(source.files.len() as u64),
            grouped(source.files.iter().map(|file| file.size).sum()),
            grouped(rows),
        ]
    };
    let titles = ["source", "corpus", "revision", "split", "licence", "files #", "bytes #", "rows read #"];
    let mut out = table(&titles, inputs.iter().map(row));
    out += "<details>\n<summary>Files by SHA-256</summary>\n\n";
    let files = inputs.iter().flat_map(|source| source.files.iter().map(move |file| (source, file)));
    out += &table(
        &["source", "file", "bytes #", "sha256", "hashed"],
        files.map(|(source, file)| {
            let hashed = match file.verified {
                Verified::Whole => "whole file",
                Verified::Ranges => "as the Hub states it; only parts were fetched",
            };
            let name = &source.name;
            vec![cell(name), cell(&file.name), grouped(file.size), code(file.sha256.hex()), hashed.to_owned()]
        }),
    );
    out + "</details>\n\n"
}

fn origin(repo: Option<&str>, revision: Option<&str>) -> String {
    match repo {
        Some(repo) => format!("[{}]({})", cell(repo), hub_page(repo, revision)),
        None => "local files".to_owned(),
    }
}

fn revision(revision: Option<&str>) -> String {
    match (pinned(revision), revision) {
        (Some(commit), _) => code(commit),
        (None, Some(other)) => format!("{} (no commit)", cell(other)),
        (None, None) => "–".to_owned(),
    }
}

fn split(source: &InputSource) -> String {
    let words = [source.config.as_deref(), source.split.as_deref()];
    let words: Vec<String> = words.into_iter().flatten().map(cell).collect();
    let text = if words.is_empty() { "–".to_owned() } else { words.join(", ") };
    if source.eval_split { format!("**{text}** (meant for evaluation)") } else { text }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn blocklist(part: &Part) -> String {
    let checks = &part.manifest.decontamination;
    if checks.mode == DecontaminationMode::None {
        return "**None.** The recipe says `none = true`: rows were not checked.\n\n".to_owned();
    }
    let digest = checks.blocklist_digest.as_ref().map_or(String::new(), |digest| format!(" `{digest}`"));
    let strict = if checks.strict {
        "Boilerplate drops too (`strict`)."
    } else {
        "Stock phrases of benchmarks are counted (*reported*) and drop nothing alone."
    };
    let mut out = format!(
        "A row is dropped if any of its texts shares {} consecutive words with an item, holds a short item \
         whole, is a near copy of an item, or holds a canary string. Words are compared as `{}` makes them. \
         {strict} Blocklist{digest}.\n\n",
        checks.ngram,
        visible(&checks.normaliser).replace('`', "'"),
    );
    let row = |benchmark: &BenchmarkRecord| {
        let sensitive = if benchmark.sensitive { " (sensitive: its text is written nowhere)" } else { "" };
        vec![
            format!("{}{sensitive}", cell(&benchmark.name)),
            origin(benchmark.repo.as_deref(), benchmark.revision.as_deref()),
            revision(benchmark.revision.as_deref()),
            benchmark.split.as_deref().map_or("–".to_owned(), cell),
            grouped(benchmark.items),
            grouped(benchmark.protected_ngram),
            grouped(benchmark.protected_short),
            benchmark.protected_near.map_or("–".to_owned(), grouped),
            grouped(benchmark.not_protected),
            grouped(benchmark.rows_dropped),
            grouped(benchmark.rows_reported),
        ]
    };
    let titles = [
        "benchmark",
        "source",
        "revision",
        "split",
        "items #",
        "by n-gram #",
        "whole #",
        "near copies #",
        "not protected #",
        "rows dropped #",
        "rows reported #",
    ];
    out += &table(&titles, checks.benchmarks.iter().map(row));
    out
}

fn rows(part: &Part) -> String {
    let manifest = &part.manifest;
    let names: Vec<&String> = manifest.inputs.iter().map(|source| &source.name).collect();
    let row = |name: &String| {
        let ledger = manifest.rows.get(name).cloned().unwrap_or_default();
        let dropped = ledger.dropped.values().sum();
        let counts = [ledger.read, ledger.sampled_out, ledger.failed, dropped, ledger.kept];
        std::iter::once(cell(name)).chain(counts.map(grouped)).collect()
    };
    let titles = ["source", "read #", "sampled out #", "failed #", "dropped #", "kept #"];
    let mut out = table(&titles, names.iter().map(|name| row(name)));
    let mut reasons: Vec<(&str, u64)> = drops(manifest).into_iter().collect();
    reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
    if reasons.is_empty() {
        return out + "No row was dropped for a reason.\n\n";
    }
    let by_source = |reason: &str| {
        let sources = names.iter().filter_map(|name| {
            let count = manifest.rows.get(*name)?.dropped.get(reason)?;
            Some(format!("{} {}", cell(name), grouped(*count)))
        });
        sources.collect::<Vec<_>>().join(", ")
    };
    let rows = reasons.iter().map(|(reason, count)| vec![cell(reason), grouped(*count), by_source(reason)]);
    out += &table(&["dropped for", "rows #", "of"], rows);
    out
}

fn tokens(part: &Part) -> String {
    let Manifest { tokens, samples, .. } = &part.manifest;
    let row = |name: &String| {
        let source = tokens.per_source.get(name).copied().unwrap_or_default();
        let lost: u64 = samples.get(name).map_or(0, |ledger| ledger.tokens_lost.values().sum());
        vec![
            cell(name),
            grouped(source.samples),
            grouped(source.tokens),
            percent(ppm(source.tokens, tokens.total)),
            grouped(source.trained),
            grouped(lost),
        ]
    };
    let titles = ["source", "samples #", "tokens #", "share #", "trained on #", "lost #"];
    let mut out = table(&titles, part.manifest.inputs.iter().map(|source| row(&source.name)));
    let (rows, bound) = match part.manifest.is_packed() {
        true => (format!("{}, {} full", counted(tokens.packs, "pack"), percent(tokens.fill_ppm)), "a pack"),
        false => (format!("{} of one sample each", counted(tokens.packs, "row")), "the pack length"),
    };
    out += &format!(
        "{} in {rows}; {} trained on. *Lost* are tokens of samples that are longer than {bound}.\n\n",
        counted(tokens.total, "token"),
        grouped(tokens.trained),
    );
    out
}

fn rendering(part: &Part) -> String {
    let Manifest { tokeniser, normalise, .. } = &part.manifest;
    let mut rows = vec![
        vec!["tokeniser".to_owned(), format!("{}, `{}`", cell(&tokeniser.name), tokeniser.vocabulary_digest)],
        vec![
            "template".to_owned(),
            format!("{}, `{}`", cell(&tokeniser.template), tokeniser.template_digest),
        ],
    ];
    rows.extend(normalise.iter().map(|(key, value)| vec![cell(key), cell(value)]));
    table(&["setting", "value"], rows)
}

fn shards(part: &Part) -> String {
    let row = |shard: &ShardRecord| {
        let split = match shard.split {
            Split::Train => "train",
            Split::Validation => "validation",
        };
        let counts = [shard.length, shard.packs, shard.samples, shard.tokens, shard.trained].map(grouped);
        let mut cells = vec![format!("{}{}", cell(&part.folder), cell(&shard.path)), split.to_owned()];
        cells.extend(counts);
        cells.push(code(shard.content_digest.hex()));
        cells
    };
    let titles = [
        "shard",
        "split",
        "length #",
        "packs #",
        "samples #",
        "tokens #",
        "trained on #",
        "sha256 of the content",
    ];
    table(&titles, part.manifest.shards.iter().map(row))
}

fn files(set: &DataSet) -> Result<String, ExportError> {
    let row = |file: ShardFile| vec![cell(&file.path), grouped(file.size), code(file.sha256.hex())];
    let files = table(&["file", "bytes #", "sha256 of the file"], set.files()?.into_iter().map(row));
    Ok(format!("## Files of the shards\n\n{files}"))
}

fn how_to_check(set: &DataSet) -> String {
    let folders: Vec<&str> = set.parts.iter().map(|part| part.folder.as_str()).collect();
    let mut commands = String::new();
    for folder in folders {
        let folder = if folder.is_empty() { "." } else { folder.trim_end_matches('/') };
        commands += &format!("potable manifest verify {folder}\n");
    }
    format!(
        "## How to check this data\n\nIn the folder of the data:\n\n```sh\n{commands}```\n\n\
         It reads every shard again and compares digests, rows and tokens with `manifest.json`. The digest of \
         the manifest is `{}`: equal data has an equal digest, whatever the machine. `potable manifest diff` \
         says what changed since another manifest.\n\n",
        set.digest()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_hold_no_markup() {
        assert_eq!(cell("a|b\n<b> `c` _d_ e_f [g](h)"), "a\\|b\\\\n&lt;b&gt; \\`c\\` \\_d\\_ e_f \\[g\\](h)");
    }
}
