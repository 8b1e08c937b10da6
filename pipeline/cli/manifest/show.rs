//! `potable manifest show`: a data set on one screen, 80 columns wide.

use std::collections::BTreeMap;

use anyhow::Result;
use potable_manifests::{DecontaminationMode, Manifest, Part, Split, ppm};

use super::data_set::load_set;
use crate::cli::Answer;
use crate::cli::args::ShowArgs;
use crate::cli::display::{bytes, grouped, percent};
use crate::cli::output::Output;
use crate::run::reason::DropReason;

/// Columns of the screen.
const WIDTH: usize = 80;

/// Columns of names and of bars.
const NAME: usize = 24;
const BAR: usize = 16;

/// Least columns of numbers.
const LEAST_DIGITS: usize = 7;

/// Lines of a section; the rest is summed up in one more.
const LINES: usize = 8;

/// Prints a data set.
///
/// # Errors
/// What cannot be read as a manifest.
pub fn run(args: &ShowArgs, output: &Output) -> Result<Answer> {
    let set = load_set(&args.dir)?;
    let style = if output.has_blocks() { Style::Blocks } else { Style::Ascii };
    let screens = set.parts.iter().map(|part| Screen { part, style, colour: output.has_colour() }.text());
    output.data(&screens.collect::<Vec<_>>().join("\n"))?;
    Ok(Answer::Yes)
}

/// What bars are drawn with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Eighths of a block.
    Blocks,
    /// ASCII.
    Ascii,
}

struct Screen<'a> {
    part: &'a Part,
    style: Style,
    colour: bool,
}

/// One line of a section: a name, a number, its share for the bar, and what stands behind the bar.
struct Line {
    name: String,
    count: u64,
    ppm: u64,
    rest: String,
}

impl Screen<'_> {
    fn text(&self) -> String {
        let manifest = &self.part.manifest;
        let mut out = self.head(manifest);
        out += &self.sources(manifest);
        out += &self.drops(manifest);
        out += &self.benchmarks(manifest);
        out += &self.mixture(manifest);
        out += &self.packs(manifest);
        out
    }

    fn head(&self, manifest: &Manifest) -> String {
        let phase = manifest.phase.as_ref().map_or(String::new(), |phase| format!(", phase {phase}"));
        let title = fit(&format!("{}{phase}", manifest.name), WIDTH - 22);
        let digest = manifest.manifest_digest.short();
        let gap = WIDTH.saturating_sub(columns(&title) + digest.len());
        format!("{}{}{digest}\n", self.strong(&title), " ".repeat(gap))
    }

    /// Rows read by source, and how many of them were kept.
    fn sources(&self, manifest: &Manifest) -> String {
        let lines = manifest.inputs.iter().map(|source| {
            let ledger = manifest.rows.get(&source.name).cloned().unwrap_or_default();
            let share = ppm(ledger.kept, ledger.read);
            Line {
                name: source.name.clone(),
                count: ledger.read,
                ppm: share,
                rest: format!("{} kept", percent(share)),
            }
        });
        self.section("rows read", lines.collect(), "")
    }

    fn drops(&self, manifest: &Manifest) -> String {
        let mut drops: BTreeMap<&str, u64> = BTreeMap::new();
        for ledger in manifest.rows.values() {
            ledger.dropped.iter().for_each(|(reason, count)| *drops.entry(reason).or_default() += count);
            *drops.entry("sampled out").or_default() += ledger.sampled_out;
            *drops.entry("failed").or_default() += ledger.failed;
        }
        drops.retain(|_, count| *count > 0);
        let read: u64 = manifest.rows.values().map(|ledger| ledger.read).sum();
        let most = drops.values().copied().max().unwrap_or_default();
        let lines = drops.iter().map(|(reason, &count)| Line {
            name: (*reason).to_owned(),
            count,
            ppm: ppm(count, most),
            rest: DropReason::from_name(reason).map_or(percent(ppm(count, read)), |r| r.text().to_owned()),
        });
        let mut lines: Vec<Line> = lines.collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.count));
        self.section("rows left out", lines, "none")
    }

    fn benchmarks(&self, manifest: &Manifest) -> String {
        let checks = &manifest.decontamination;
        if checks.mode == DecontaminationMode::None {
            return self.title("benchmarks") + "  not checked (`none = true`)\n";
        }
        let most = checks.benchmarks.iter().map(|b| b.rows_dropped).max().unwrap_or_default();
        let lines = checks.benchmarks.iter().map(|benchmark| {
            let loose = match benchmark.not_protected {
                0 => String::new(),
                loose => format!(", {} not protected", grouped(loose)),
            };
            Line {
                name: benchmark.name.clone(),
                count: benchmark.rows_dropped,
                ppm: ppm(benchmark.rows_dropped, most),
                rest: format!("{} items{loose}", grouped(benchmark.items)),
            }
        });
        let mut lines: Vec<Line> = lines.collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.count));
        self.section(&format!("benchmarks, rows dropped (n = {})", checks.ngram), lines, "none")
    }

    fn mixture(&self, manifest: &Manifest) -> String {
        let tokens = &manifest.tokens;
        let lines = tokens.per_source.iter().map(|(name, source)| {
            let share = ppm(source.tokens, tokens.total);
            let trained = percent(ppm(source.trained, source.tokens));
            Line {
                name: name.clone(),
                count: source.tokens,
                ppm: share,
                rest: format!("{}, {trained} trained", percent(share)),
            }
        });
        let mut lines: Vec<Line> = lines.collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.count));
        self.section("tokens", lines, "none")
    }

    fn packs(&self, manifest: &Manifest) -> String {
        let tokens = &manifest.tokens;
        let count = |split: Split| manifest.shards.iter().filter(|shard| shard.split == split).count() as u64;
        let size: u64 = manifest.run.file_sha256.values().map(|file| file.size).sum();
        let held_out = match count(Split::Validation) {
            0 => String::new(),
            held_out => format!(" + {} validation", grouped(held_out)),
        };
        let fill = Line {
            name: "fill".to_owned(),
            count: tokens.packs,
            ppm: tokens.fill_ppm,
            rest: format!("{} of {} places", percent(tokens.fill_ppm), grouped(tokens.capacity)),
        };
        let shards = format!("  shards: {} train{held_out}, {}", grouped(count(Split::Train)), bytes(size));
        let totals = format!("  {} tokens, {} trained on", grouped(tokens.total), grouped(tokens.trained));
        let section = match manifest.is_packed() {
            true => self.section("packs", vec![fill], ""),
            false => self.title("rows") + &format!("  {}, one sample each\n", grouped(tokens.packs)),
        };
        section + &fit(&shards, WIDTH) + "\n" + &fit(&totals, WIDTH) + "\n"
    }

    fn section(&self, title: &str, mut lines: Vec<Line>, empty: &str) -> String {
        let mut out = self.title(title);
        if lines.is_empty() {
            return out + "  " + empty + "\n";
        }
        let hidden = if lines.len() > LINES + 1 { lines.split_off(LINES) } else { Vec::new() };
        let counts = lines.iter().map(|line| grouped(line.count).len());
        let digits = counts.max().unwrap_or_default().max(LEAST_DIGITS);
        lines.iter().for_each(|line| out.push_str(&self.line(line, digits)));
        if !hidden.is_empty() {
            let rest = hidden.iter().map(|line| line.count).sum();
            let name = format!("{} more", hidden.len());
            out += format!("  {name:<NAME$} {:>digits$}\n", grouped(rest)).as_str();
        }
        out
    }

    fn title(&self, title: &str) -> String {
        format!("\n{}\n", self.strong(&fit(title, WIDTH)))
    }

    fn line(&self, line: &Line, digits: usize) -> String {
        let name = fit(&line.name, NAME);
        let pad = " ".repeat(NAME.saturating_sub(columns(&name)));
        let bar = self.bar(line.ppm);
        let room = WIDTH.saturating_sub(2 + NAME + 1 + digits + 2 + BAR + 2);
        let text =
            format!("  {name}{pad} {:>digits$}  {bar}  {}", grouped(line.count), fit(&line.rest, room));
        text.trim_end().to_owned() + "\n"
    }

    /// A bar of [`BAR`] columns. Anything above nothing shows.
    fn bar(&self, share: u64) -> String {
        let steps = if self.style == Style::Blocks { 8 } else { 1 };
        let whole = (BAR * steps) as u64;
        let filled = (share.min(1_000_000) * whole / 1_000_000).max(u64::from(share > 0)) as usize;
        let (full, part) = (filled / steps, filled % steps);
        let (fill, rest) = if self.style == Style::Blocks { ('█', ' ') } else { ('#', '.') };
        let mut bar: String = std::iter::repeat_n(fill, full).collect();
        bar.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get(part.wrapping_sub(1)));
        let bare: String = std::iter::repeat_n(rest, BAR - full - usize::from(part > 0)).collect();
        if self.colour { format!("\u{1b}[36m{bar}\u{1b}[0m{bare}") } else { bar + &bare }
    }

    fn strong(&self, text: &str) -> String {
        if self.colour { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Characters, each taken for one column.
fn columns(text: &str) -> usize {
    text.chars().count()
}

/// At most `most` characters without control characters.
fn fit(text: &str, most: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '?' } else { c });
    if columns(text) <= most {
        return clean.collect();
    }
    let mut short: String = clean.take(most.saturating_sub(2)).collect();
    short.push_str("..");
    short
}
