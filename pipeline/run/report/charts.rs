//! Lengths of samples and fill of packs, as columns.

use std::collections::BTreeSet;

use potable_manifests::{LengthBucket, Manifest, Split, ppm};

use super::html::{Html, counted, grouped, percent};
use super::{close, open, open_scroll};

/// Size of a chart in its own units.
const WIDTH: u64 = 300;
const HEIGHT: u64 = 90;

/// A column: its label below, its words for a reader, its height in parts per million.
struct Column {
    label: String,
    words: String,
    ppm: u64,
}

/// A histogram of lengths a source, all with the same steps and the same scale.
pub fn lengths(html: &mut Html, manifest: &Manifest) {
    let tokens = &manifest.tokens;
    let steps: BTreeSet<u64> = tokens.length_histogram.iter().map(|bucket| bucket.upto).collect();
    let steps: Vec<u64> = filled_in(&steps);
    let say = "Share of the samples of each source by length in tokens. Steps double; all charts have the same scale.";
    open(html, "lengths", "How long the samples are", say);
    let sources: Vec<(&str, &[LengthBucket])> = if tokens.lengths_per_source.is_empty() {
        vec![("All sources", &tokens.length_histogram)]
    } else {
        let own = |name: &str| tokens.lengths_per_source.get(name).map_or(&[][..], Vec::as_slice);
        let named = manifest.inputs.iter().map(|source| (source.name.as_str(), own(&source.name)));
        named.filter(|(_, buckets)| !buckets.is_empty()).collect()
    };
    html.raw("<div class=\"charts\">\n");
    let all: Vec<Vec<Column>> = sources.iter().map(|(_, buckets)| columns(&steps, buckets)).collect();
    let top = all.iter().flatten().map(|column| column.ppm).max().unwrap_or_default();
    for ((name, buckets), columns) in sources.iter().zip(&all) {
        let samples: u64 = buckets.iter().map(|bucket| bucket.count).sum();
        let own = tokens.per_source.get(*name).map_or(tokens.total, |source| source.tokens);
        let note = format!("{}, {}", counted(samples, "sample"), counted(own, "token"));
        chart(html, (name, &note), columns, top);
    }
    html.raw("</div>\n<details><summary>The numbers</summary>\n");
    numbers(html, &steps, &sources);
    html.raw("</details>\n");
    close(html);
}

/// Every doubling between the shortest and the longest step, so that gaps show as gaps.
fn filled_in(steps: &BTreeSet<u64>) -> Vec<u64> {
    let (Some(&first), Some(&last)) = (steps.first(), steps.last()) else { return Vec::new() };
    let doubled = std::iter::successors(Some(first.max(1)), |step| step.checked_mul(2));
    let mut all: BTreeSet<u64> = doubled.take_while(|step| *step <= last).collect();
    all.extend(steps);
    all.into_iter().collect()
}

fn columns(steps: &[u64], buckets: &[LengthBucket]) -> Vec<Column> {
    let samples: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    steps.iter().map(|step| column(*step, buckets, samples)).collect()
}

fn column(step: u64, buckets: &[LengthBucket], samples: u64) -> Column {
    let count = buckets.iter().find(|bucket| bucket.upto == step).map_or(0, |bucket| bucket.count);
    Column {
        label: short(step),
        words: format!("up to {}: {}", grouped(step), grouped(count)),
        ppm: ppm(count, samples),
    }
}

/// A power of two as people say it: `512`, `4k`.
fn short(step: u64) -> String {
    match step {
        step if step >= 1 << 20 && step.is_multiple_of(1 << 20) => format!("{}M", step >> 20),
        step if step >= 1 << 10 && step.is_multiple_of(1 << 10) => format!("{}k", step >> 10),
        step => step.to_string(),
    }
}

/// A chart as an image with a text; `top` is the share that a column of full height stands for.
fn chart(html: &mut Html, (name, note): (&str, &str), columns: &[Column], top: u64) {
    html.raw("<figure>\n<figcaption><b>")
        .text(name)
        .raw("</b><span>")
        .text(note)
        .raw("</span></figcaption>\n");
    html.raw("<svg viewBox=\"0 0 300 134\" role=\"img\" aria-label=\"").text(name);
    for column in columns.iter().filter(|column| column.ppm > 0) {
        html.raw("; ").text(&column.words);
    }
    html.raw("\">\n<line x1=\"0\" x2=\"300\" y1=\"112\" y2=\"112\"/>\n");
    let slot = WIDTH / (columns.len() as u64).max(1);
    let most = columns.iter().map(|column| column.ppm).max().unwrap_or_default();
    // As many labels as fit: one in each stretch of 44 units.
    let every = 44_u64.div_ceil(slot.max(1)) as usize;
    for (at, column) in columns.iter().enumerate() {
        let left = at as u64 * slot;
        let height = (column.ppm * HEIGHT / top.max(1)).max(u64::from(column.ppm > 0) * 2);
        html.raw("<rect x=\"").number(left + 1).raw("\" y=\"").number(112 - height).raw("\" width=\"");
        html.number(slot.saturating_sub(3).max(1)).raw("\" height=\"").number(height).raw("\"><title>");
        html.text(&column.words).raw("</title></rect>");
        let middle = left + slot / 2;
        if column.ppm == most && most > 0 {
            // A label over a narrow last column would stand outside of the chart.
            let narrow = slot < 48 && at + 1 == columns.len();
            html.raw("<text class=\"v\" text-anchor=\"").raw(if narrow { "end" } else { "middle" });
            html.raw("\" x=\"").number(if narrow { left + slot } else { middle }).raw("\" y=\"");
            html.number(112 - height - 4).raw("\">").text(&percent(column.ppm)).raw("</text>");
        }
        if at % every == 0 {
            html.raw("<text text-anchor=\"middle\" x=\"").number(middle).raw("\" y=\"130\">");
            html.text(&column.label).raw("</text>");
        }
        html.raw("\n");
    }
    html.raw("</svg>\n</figure>\n");
}

fn numbers(html: &mut Html, steps: &[u64], sources: &[(&str, &[LengthBucket])]) {
    open_scroll(html, "Samples by length, by source");
    html.raw(
        "<table>\n<caption>Samples by length in tokens</caption>\n<thead><tr><th scope=\"col\">Source</th>",
    );
    for step in steps {
        html.raw("<th scope=\"col\" class=\"n\">up to ").count(*step).raw("</th>");
    }
    html.raw("</tr></thead>\n<tbody>\n");
    for (name, buckets) in sources {
        html.raw("<tr><th scope=\"row\">").text(name).raw("</th>");
        for step in steps {
            let count = buckets.iter().find(|bucket| bucket.upto == *step).map_or(0, |bucket| bucket.count);
            html.raw("<td class=\"n\">").count(count).raw("</td>");
        }
        html.raw("</tr>\n");
    }
    html.raw("</tbody>\n</table>\n</div>\n");
}

/// Fill of packs, and the shards by what they are for.
pub fn packs(html: &mut Html, manifest: &Manifest) {
    let tokens = &manifest.tokens;
    if !manifest.is_packed() {
        let say = format!("{} of one sample each; the trainer packs them.", counted(tokens.packs, "row"));
        open(html, "packs", "Rows", &say);
        splits(html, manifest);
        return close(html);
    }
    let say = format!(
        "{} of {} are taken, {}. The rest is what no sample fitted into.",
        grouped(tokens.total),
        counted(tokens.capacity, "token place"),
        percent(tokens.fill_ppm),
    );
    open(html, "packs", "How full the packs are", &say);
    if !tokens.fill_histogram.is_empty() {
        let width = 100_000;
        let columns = (1..=1_000_000 / width).map(|step| {
            let (from, upto) = ((step - 1) * width, step * width);
            let own =
                tokens.fill_histogram.iter().filter(|bucket| (from + 1..=upto).contains(&bucket.upto_ppm));
            let count: u64 = own.map(|bucket| bucket.packs).sum();
            Column {
                label: format!("{}%", upto / 10_000),
                words: format!("up to {} % full: {}", upto / 10_000, grouped(count)),
                ppm: ppm(count, tokens.packs),
            }
        });
        html.raw("<div class=\"pair\">\n");
        let columns: Vec<Column> = columns.collect();
        let top = columns.iter().map(|column| column.ppm).max().unwrap_or_default();
        chart(html, ("Packs by fill", &counted(tokens.packs, "pack")), &columns, top);
        splits(html, manifest);
        html.raw("</div>\n");
    } else {
        splits(html, manifest);
    }
    close(html);
}

fn splits(html: &mut Html, manifest: &Manifest) {
    open_scroll(html, "Shards by split");
    html.raw("<table>\n<caption>Shards by split and pack length</caption>\n<thead><tr><th scope=\"col\">Split</th><th scope=\"col\" class=\"n\">Pack length</th><th scope=\"col\" class=\"n\">Shards</th><th scope=\"col\" class=\"n\">Packs</th><th scope=\"col\" class=\"n\">Samples</th><th scope=\"col\" class=\"n\">Tokens</th><th scope=\"col\" class=\"n\">Trained on</th><th scope=\"col\" class=\"n\">Fill</th></tr></thead>\n<tbody>\n");
    let kinds: BTreeSet<(Split, u64)> =
        manifest.shards.iter().map(|shard| (shard.split, shard.length)).collect();
    for (split, length) in kinds {
        let own =
            || manifest.shards.iter().filter(move |shard| (shard.split, shard.length) == (split, length));
        let packs: u64 = own().map(|shard| shard.packs).sum();
        let total: u64 = own().map(|shard| shard.tokens).sum();
        let counts = [
            length,
            own().count() as u64,
            packs,
            own().map(|shard| shard.samples).sum(),
            total,
            own().map(|shard| shard.trained).sum(),
        ];
        let name = if split == Split::Train { "train" } else { "validation" };
        html.raw("<tr><th scope=\"row\">").raw(name).raw("</th>");
        for count in counts {
            html.raw("<td class=\"n\">").count(count).raw("</td>");
        }
        let fill = ppm(total, packs.saturating_mul(length));
        html.raw("<td class=\"n\">").text(&percent(fill)).raw("</td></tr>\n");
    }
    html.raw("</tbody>\n</table>\n</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_steps_show() {
        assert_eq!(filled_in(&BTreeSet::from([64, 512])), [64, 128, 256, 512]);
        assert_eq!(filled_in(&BTreeSet::new()), Vec::<u64>::new());
        assert_eq!(["64", "1k", "32k", "1M"], [64, 1 << 10, 1 << 15, 1 << 20].map(short));
    }
}
