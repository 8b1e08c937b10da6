//! The verdict on the texts of a row.

use std::ops::Range;

use crate::cover::{Cover, Covered};
#[cfg(target_arch = "x86_64")]
use crate::cpu;
use crate::format::{CANARY_TEXT, NearRow, Record, WEAK_TEXT, sketch_of};
use crate::gram::{self, HEAD};
use crate::index::{
    BLOCK_FILTER, Blocklist, Filter, Found, GRAM_FILTER, GRAMS, HEADS, MESSAGE_FILTER, MESSAGES, QUAD_FILTER,
    SEEDS, Table,
};
use crate::near::LEAST_EVIDENCE;
use crate::plan::block_words;
use crate::suffix::Surroundings;
use crate::text::{Word, Words};

/// One text of a row. No match crosses from one part to the next.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The text.
    pub text: &'a str,
    /// Number of the message that it belongs to; handed back in hits.
    pub message: u32,
    /// Whether the part is a whole user message, which short items are compared with.
    pub whole_prompt: bool,
}

/// The rule that found an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// A canary string of the benchmark.
    Canary,
    /// n consecutive words of the item.
    NGram,
    /// The whole of an item that is short, or whose n-grams are all weak.
    ShortItem,
    /// Most of the words of an item, in runs that keep their order, with changes between them.
    NearCopy,
}

impl Rule {
    /// Name in reports and manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::NGram => "ngram",
            Self::ShortItem => "short-item",
            Self::NearCopy => "near-copy",
        }
    }
}

/// What a hit does to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The row goes.
    Drop,
    /// The row stays, and the hit is counted.
    Report,
}

impl Action {
    /// Name in reports and manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Report => "report",
        }
    }
}

/// An item found in a part: all its matches there as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Number of the benchmark.
    pub benchmark: u32,
    /// Number of the item in the blocklist.
    pub item: u32,
    /// The rule that found it; of several the one that drops, then the first in their order.
    pub rule: Rule,
    /// Words of the item that were matched in this part, in millionths of its words. For a hit by
    /// boilerplate alone, which is kept once a benchmark, it is a lower bound.
    pub coverage_ppm: u32,
    /// `message` of the part.
    pub message: u32,
    /// Number of the part in the call.
    pub part: u32,
    /// Byte offset in the text of the part at which the longest unbroken match begins.
    pub start: u32,
    /// Byte offset behind it.
    pub end: u32,
    /// Whether it drops the row.
    pub action: Action,
}

/// Checks rows against a blocklist. One a thread; its buffers are used again for each row.
#[derive(Debug)]
pub struct Scanner<'b> {
    blocklist: &'b Blocklist,
    index: Index<'b>,
    around: Surroundings,
    scanner: Words,
    hashes: Vec<u64>,
    /// Filled only if something matches.
    words: Vec<Word>,
    places: Vec<u32>,
    seeds: Vec<Seed>,
    sketch: Vec<u8>,
    cover: Cover,
    matches: Vec<Match>,
    hits: Vec<Hit>,
}

/// The parts of a blocklist that are asked for every row.
#[derive(Clone, Copy, Debug)]
struct Index<'b> {
    ngram: usize,
    grams: Table<'b>,
    heads: Table<'b>,
    messages: Table<'b>,
    seeds: Table<'b>,
    gram_filter: Filter<'b>,
    block_filter: Filter<'b>,
    quad_filter: Filter<'b>,
    message_filter: Filter<'b>,
}

/// A run of words of a part that is a seed of a near text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seed {
    near: u32,
    /// First word in the part.
    start: u32,
    /// First word in the near text.
    position: u32,
}

impl<'b> Scanner<'b> {
    /// A scanner for `blocklist`.
    pub fn new(blocklist: &'b Blocklist) -> Self {
        let index = Index {
            ngram: blocklist.header().ngram as usize,
            grams: blocklist.table(GRAMS),
            heads: blocklist.table(HEADS),
            messages: blocklist.table(MESSAGES),
            seeds: blocklist.table(SEEDS),
            gram_filter: blocklist.filter(GRAM_FILTER),
            block_filter: blocklist.filter(BLOCK_FILTER),
            quad_filter: blocklist.filter(QUAD_FILTER),
            message_filter: blocklist.filter(MESSAGE_FILTER),
        };
        Self {
            blocklist,
            index,
            around: Surroundings::new(),
            scanner: Words::new(),
            hashes: Vec::new(),
            words: Vec::new(),
            places: Vec::new(),
            seeds: Vec::new(),
            sketch: Vec::new(),
            cover: Cover::default(),
            matches: Vec::new(),
            hits: Vec::new(),
        }
    }

    /// The items found in `parts`, one hit an item and part, sorted by part, start, benchmark and
    /// item. With `strict`, every hit drops. The same parts always give the same hits.
    ///
    /// Words are compared by their hashes and never by text: a chance match of 64 bits is accepted
    /// (a million n-grams against ten billion words give one in about two thousand runs).
    pub fn check(&mut self, parts: &[Part<'_>], strict: bool) -> &[Hit] {
        self.hits.clear();
        for (number, part) in parts.iter().enumerate() {
            self.scanner.hashes(part.text, &mut self.hashes);
            self.matches.clear();
            self.find_grams();
            self.list_runs();
            self.find_runs();
            if part.whole_prompt {
                self.compare_message();
            }
            if self.seeds.len() >= 2 {
                self.find_near_copies();
            }
            if !self.matches.is_empty() {
                self.scanner.scan(part.text, &mut self.words);
                if part.whole_prompt {
                    self.judge_excerpt();
                }
                self.merge(number as u32, part.message);
            }
        }
        if strict {
            self.hits.iter_mut().for_each(|hit| hit.action = Action::Drop);
        }
        self.hits.sort_unstable_by_key(|hit| (hit.part, hit.start, hit.benchmark, hit.item));
        &self.hits
    }

    /// Looks for n-grams. Every run of n words holds a whole one of the blocks that begin at
    /// multiples of their length, so only those are looked up, and the n-grams around a block only
    /// if a benchmark may hold it.
    fn find_grams(&mut self) {
        let (n, block) = (self.index.ngram, block_words(self.index.ngram));
        let Some(last) = self.hashes.len().checked_sub(n) else {
            return;
        };
        self.places.clear();
        let keys = self.hashes.chunks_exact(block).map(|words| gram::key_of(words.iter().copied()));
        self.index.block_filter.places(keys, &mut self.places);
        let mut next = 0;
        for &place in &self.places {
            let place = place as usize * block;
            let from = (place + block).saturating_sub(n).max(next);
            next = place.min(last) + 1;
            for start in from..next {
                let words = self.hashes.get(start..start + n).unwrap_or_default();
                let key = gram::key_of(words.iter().copied());
                if self.index.gram_filter.may_hold(key) {
                    self.index.take_gram(self.blocklist, (start, key), &mut self.matches);
                }
            }
        }
    }

    /// The places of runs of four words that a benchmark may hold.
    fn list_runs(&mut self) {
        let Self { index, hashes, places, .. } = self;
        places.clear();
        #[cfg(target_arch = "x86_64")]
        if cpu::is_v3() {
            #[expect(unsafe_code, reason = "the newer instructions are asked for by a function of its own")]
            // SAFETY: the processor has all that the function needs.
            unsafe {
                runs_v3(&index.quad_filter, hashes, places);
            }
            return;
        }
        index.quad_filter.runs(hashes, places);
    }

    /// Looks for the runs of four words that short items and near copies are found by.
    fn find_runs(&mut self) {
        self.seeds.clear();
        for &start in &self.places {
            let at = start as usize;
            let Some(words) = self.hashes.get(at..).and_then(|rest| rest.first_chunk()) else { continue };
            let key = gram::quad(words);
            if let Some(found) = self.index.seeds.find(key) {
                let seed = |record: Record| Seed { near: record.text, start, position: record.position };
                self.seeds.extend(found.records().map(seed));
            }
            if let Some(found) = self.index.heads.find(key) {
                for record in found.records() {
                    let text = self.blocklist.text(record.text);
                    let run = self.hashes.get(at..at.saturating_add(text.words as usize));
                    if run.is_some_and(|run| gram::key_of(run.iter().copied()) == text.key) {
                        let whole = Match::whole(record.text, &text, (at, text.words as usize));
                        self.matches.push(whole);
                    }
                }
            }
        }
    }

    /// Compares the whole message, without what stands around the question, with short items.
    fn compare_message(&mut self) {
        let place = self.around.strip(&self.hashes);
        let question = self.hashes.get(place.clone()).unwrap_or_default();
        if question.len() < HEAD {
            return;
        }
        let key = gram::key_of(question.iter().copied());
        if !self.index.message_filter.may_hold(key) {
            return;
        }
        for record in self.index.messages.find(key).into_iter().flat_map(Found::records) {
            let text = self.blocklist.text(record.text);
            self.matches.push(Match::whole(record.text, &text, (place.start, question.len())));
        }
    }

    /// Compares the part with the items of which it holds several seeds close together.
    fn find_near_copies(&mut self) {
        let mut seeds = std::mem::take(&mut self.seeds);
        seeds.sort_unstable();
        let dropped =
            |matches: &[Match], item| matches.iter().any(|m| m.item == item && m.action == Action::Drop);
        self.sketch.clear();
        for group in seeds.chunk_by(|a, b| a.near == b.near).filter(|group| group.len() >= 2) {
            let near = group.first().map_or(0, |seed| seed.near);
            let row = self.blocklist.near(near);
            let mut rest = group;
            while let Some((first, cluster)) = next_cluster(&mut rest, row.words) {
                if !is_promising(cluster, &row) || dropped(&self.matches, row.item) {
                    continue;
                }
                if self.sketch.is_empty() {
                    self.sketch.extend(self.hashes.iter().map(|&hash| sketch_of(hash)));
                }
                let slack = row.words / 4 + 4;
                let start = first.start.saturating_sub(first.position + slack);
                let last = cluster.last().unwrap_or(first);
                let end = (last.start + row.words.saturating_sub(last.position) + slack) as usize;
                let stretch = start as usize..end.min(self.sketch.len());
                let words = self.sketch.get(stretch).unwrap_or_default();
                let covered = self.cover.compare(self.blocklist.sketch(&row), words);
                if is_near(&covered) {
                    self.matches.push(Match::near(&row, start, &covered));
                    break;
                }
            }
        }
        self.seeds = seeds;
    }

    /// A message that is nothing but a part of an item, and a long one, drops its row even if that
    /// part is boilerplate: in a text that says something else too, it would not.
    fn judge_excerpt(&mut self) {
        if self.matches.iter().any(|m| m.action == Action::Drop) {
            return;
        }
        let question = self.around.strip(&self.hashes);
        let n = self.index.ngram;
        let words = self.words.get(question.clone()).unwrap_or_default();
        let real = words.iter().filter(|word| word.flags & (Word::IS_ALPHA2 | Word::IS_CJK) != 0).count();
        if question.len() < n + n.div_ceil(2) || real < question.len().div_ceil(2) {
            return;
        }
        let mut starts: Vec<usize> =
            self.matches.iter().filter(|m| m.rule == Rule::NGram).map(|m| m.start as usize).collect();
        starts.sort_unstable();
        starts.dedup();
        let inside = starts.iter().filter(|&&start| question.contains(&start) && start + n <= question.end);
        if inside.count() == question.len() + 1 - n {
            self.matches.iter_mut().for_each(|m| m.action = Action::Drop);
        }
    }

    /// Turns the matches of one part into one hit an item.
    fn merge(&mut self, part: u32, message: u32) {
        let Self { blocklist, words, matches, hits, .. } = self;
        matches.sort_unstable_by_key(|m| (m.item, m.text, m.start, m.position));
        for group in matches.chunk_by_mut(|a, b| a.item == b.item) {
            let best = group.iter().map(|m| (m.action, m.rule)).min();
            let Some((action, rule)) = best else { continue };
            let (first, last) = longest_run(group);
            let item = group.first().map_or(0, |m| m.item);
            hits.push(Hit {
                benchmark: blocklist.item_benchmark(item),
                item,
                rule,
                coverage_ppm: coverage(blocklist, group),
                message,
                part,
                start: words.get(first).map_or(0, |word| word.start),
                end: words.get(last).map_or(0, |word| word.end),
                action,
            });
        }
    }
}

impl Index<'_> {
    /// The matches of the n-gram with `key` that begins at word `start`.
    fn take_gram(&self, blocklist: &Blocklist, (start, key): (usize, u64), matches: &mut Vec<Match>) {
        let Some(found) = self.grams.find(key) else {
            return;
        };
        let action = if found.weak { Action::Report } else { Action::Drop };
        for record in found.records() {
            let item = blocklist.text(record.text).item;
            let (text, words) = (record.text, self.ngram as u32);
            let (position, start) = (record.position, start as u32);
            matches.push(Match { item, text, start, position, words, rule: Rule::NGram, action });
        }
    }
}

/// The same code, compiled for processors with more instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn runs_v3(filter: &Filter<'_>, hashes: &[u64], places: &mut Vec<u32>) {
    filter.runs(hashes, places);
}

/// Takes the seeds from `rest` that stand within twice the words of their item.
fn next_cluster<'s>(rest: &mut &'s [Seed], words: u32) -> Option<(&'s Seed, &'s [Seed])> {
    let first = rest.first()?;
    let reach = first.start.saturating_add(2 * words + 32);
    let (cluster, behind) = rest.split_at(rest.partition_point(|seed| seed.start <= reach));
    *rest = behind;
    Some((first, cluster))
}

/// Whether there are enough seeds to look closer: two, or an eighth of those of the item. With an
/// edit every six words a third of them is left.
fn is_promising(cluster: &[Seed], near: &NearRow) -> bool {
    let needed = near.seeds.div_ceil(8).max(2) as usize;
    let is_new = |at: &usize| {
        let before = cluster.get(..*at).unwrap_or_default();
        cluster.get(*at).is_some_and(|seed| before.iter().all(|other| other.position != seed.position))
    };
    cluster.len() >= needed && (0..cluster.len()).filter(is_new).take(needed).count() == needed
}

/// Least share of an item, in per cent, that a near copy holds, and of its real words alone and its
/// numbers and letters alone: an item with all its numbers changed is another item, and a run of
/// numbers is none.
const NEAR_PERCENT: u32 = 70;
const NEAR_PART_PERCENT: u32 = 50;

/// Weight of what is held from which on [`NEAR_PERCENT`] is enough. Each [`PER_PERCENT`] less asks
/// for one per cent more, since short items differ from their siblings in a word or two.
const FULL_EVIDENCE: u32 = 1900;
const PER_PERCENT: u32 = 40;

fn is_near(covered: &Covered) -> bool {
    let percent = NEAR_PERCENT + FULL_EVIDENCE.saturating_sub(covered.weight) / PER_PERCENT;
    covered.percent >= percent
        && covered.weight >= LEAST_EVIDENCE
        && covered.real_percent.min(covered.hollow_percent) >= NEAR_PART_PERCENT
}

/// At most 300 characters of `text` around `start..end`, with an ellipsis where something is cut
/// off. Offsets inside a character or behind the end are moved to the next border before them.
pub fn excerpt(text: &str, start: usize, end: usize) -> String {
    marked_excerpt(text, start, end).0
}

/// [`excerpt`], and the bytes of it that `start..end` covers.
pub fn marked_excerpt(text: &str, start: usize, end: usize) -> (String, Range<usize>) {
    const MOST: usize = 300;
    const BEFORE: usize = 60;
    let border = |at: usize| text.floor_char_boundary(at.min(text.len()));
    let (start, end) = (border(start), border(end.max(start)));
    let (before, rest) = text.split_at_checked(start).unwrap_or((text, ""));
    let matched = rest.get(..end - start).unwrap_or(rest).chars().take(MOST).count();
    // two characters are kept for the ellipses
    let room = (MOST - 2).saturating_sub(matched);
    let lead = before.chars().rev().take(room.min(BEFORE)).map(char::len_utf8).sum::<usize>();
    let cut = start - lead;
    let tail = text.get(cut..).unwrap_or_default();
    let shown = tail.char_indices().nth(MOST - 2).map_or(tail.len(), |(at, _)| at);
    let open = if cut > 0 { "…" } else { "" };
    let close = if shown < tail.len() { "…" } else { "" };
    let from = open.len() + lead;
    let mark = from..(from + end - start).min(open.len() + shown);
    (format!("{open}{}{close}", tail.get(..shown).unwrap_or_default()), mark)
}

/// A run of words of a part that equals a run of words of a text.
#[derive(Clone, Copy, Debug)]
struct Match {
    item: u32,
    text: u32,
    /// First word in the part.
    start: u32,
    /// First word in the text; see [`Match::near`] for near copies.
    position: u32,
    words: u32,
    rule: Rule,
    action: Action,
}

impl Match {
    /// A near copy in the stretch of the part from `start` on. It is of no text, and `position` is
    /// the share of the words of the item that are covered, in millionths.
    fn near(row: &NearRow, start: u32, covered: &Covered) -> Self {
        let (first, behind) = covered.span;
        let words = behind.saturating_sub(first) as u32;
        let (item, text, start) = (row.item, u32::MAX, start + first as u32);
        let position = millionths(covered.words, row.words);
        Self { item, text, start, position, words, rule: Rule::NearCopy, action: Action::Drop }
    }

    /// A match of all of `text`, which is `run` (first word, number of words) of the part.
    fn whole(number: u32, text: &crate::format::TextRow, run: (usize, usize)) -> Self {
        let rule = if text.flags & CANARY_TEXT != 0 { Rule::Canary } else { Rule::ShortItem };
        let action = if text.flags & WEAK_TEXT != 0 { Action::Report } else { Action::Drop };
        let (start, words) = (run.0 as u32, run.1 as u32);
        Self { item: text.item, text: number, start, position: 0, words, rule, action }
    }
}

/// First and last word of the longest run of matches of one text that touch each other; the first
/// of equally long ones. `group` is sorted by text and start.
fn longest_run(group: &[Match]) -> (usize, usize) {
    let mut best = (0, 0);
    let mut run = (0, 0);
    let mut text = None;
    for one in group {
        let end = one.start + one.words;
        if text == Some(one.text) && one.start <= run.1 {
            run.1 = run.1.max(end);
        } else {
            run = (one.start, end);
        }
        text = Some(one.text);
        if run.1 - run.0 > best.1 - best.0 {
            best = run;
        }
    }
    (best.0 as usize, best.1.saturating_sub(1) as usize)
}

/// Matched share of the text of the item that was matched most, in millionths.
fn coverage(blocklist: &Blocklist, group: &mut [Match]) -> u32 {
    if group.iter().any(|m| matches!(m.rule, Rule::Canary | Rule::ShortItem)) {
        return 1_000_000;
    }
    group.sort_unstable_by_key(|m| (m.text, m.position));
    let shares = group.chunk_by(|a, b| a.text == b.text).map(|text| {
        let mut covered = 0;
        let mut behind = 0;
        if let Some(near) = text.first().filter(|m| m.rule == Rule::NearCopy) {
            return near.position;
        }
        for one in text {
            let end = one.position + one.words;
            covered += end.saturating_sub(behind.max(one.position));
            behind = behind.max(end);
        }
        let whole = text.first().map_or(0, |m| blocklist.text(m.text).words);
        millionths(covered, whole)
    });
    shares.max().unwrap_or(0)
}

fn millionths(part: u32, whole: u32) -> u32 {
    (u64::from(part) * 1_000_000 / u64::from(whole.max(1))).min(1_000_000) as u32
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
