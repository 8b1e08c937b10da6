//! The verdict on the texts of a row.

use crate::format::{CANARY_TEXT, WEAK_TEXT};
use crate::gram::{self, HEAD, Rolling};
use crate::index::{Blocklist, GRAMS, HEADS, MESSAGES, Table};
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

/// The rule that found an item. More will follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// A canary string of the benchmark.
    Canary,
    /// n consecutive words of the item.
    NGram,
    /// The whole of an item that is short, or whose n-grams are all weak.
    ShortItem,
}

impl Rule {
    /// Name in reports and manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::NGram => "ngram",
            Self::ShortItem => "short-item",
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
    grams: Table<'b>,
    heads: Table<'b>,
    messages: Table<'b>,
    ngram: usize,
    around: Surroundings,
    scanner: Words,
    words: Vec<Word>,
    matches: Vec<Match>,
    hits: Vec<Hit>,
}

impl<'b> Scanner<'b> {
    /// A scanner for `blocklist`.
    pub fn new(blocklist: &'b Blocklist) -> Self {
        Self {
            blocklist,
            grams: blocklist.table(GRAMS),
            heads: blocklist.table(HEADS),
            messages: blocklist.table(MESSAGES),
            ngram: blocklist.header().ngram as usize,
            around: Surroundings::new(),
            scanner: Words::new(),
            words: Vec::new(),
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
            self.scanner.scan(part.text, &mut self.words);
            self.matches.clear();
            self.roll();
            if part.whole_prompt {
                self.compare_message();
            }
            if !self.matches.is_empty() {
                self.merge(number as u32, part.message);
            }
        }
        if strict {
            self.hits.iter_mut().for_each(|hit| hit.action = Action::Drop);
        }
        self.hits.sort_unstable_by_key(|hit| (hit.part, hit.start, hit.benchmark, hit.item));
        &self.hits
    }

    /// Looks for n-grams and for heads of whole items at every word.
    fn roll(&mut self) {
        let n = self.ngram;
        let (mut gram, mut head) = (Rolling::new(n), Rolling::new(HEAD));
        let heads = !self.heads.is_empty();
        let old = |at: Option<usize>| at.and_then(|at| self.words.get(at)).map_or(0, |word: &Word| word.hash);
        let mut matches = std::mem::take(&mut self.matches);
        for (at, word) in self.words.iter().enumerate() {
            gram.push(word.hash, old(at.checked_sub(n)));
            if at + 1 >= n && self.grams.may_hold(gram.key()) {
                self.take_gram(at + 1 - n, gram.key(), &mut matches);
            }
            if heads {
                head.push(word.hash, old(at.checked_sub(HEAD)));
                if at + 1 >= HEAD && self.heads.may_hold(head.key()) {
                    self.take_head(at + 1 - HEAD, head.key(), &mut matches);
                }
            }
        }
        self.matches = matches;
    }

    fn take_gram(&self, start: usize, key: u64, matches: &mut Vec<Match>) {
        let Some(found) = self.grams.find(key) else {
            return;
        };
        let action = if found.weak { Action::Report } else { Action::Drop };
        for record in found.records() {
            let item = self.blocklist.text(record.text).item;
            let (text, words) = (record.text, self.ngram as u32);
            let (position, start) = (record.position, start as u32);
            matches.push(Match { item, text, start, position, words, rule: Rule::NGram, action });
        }
    }

    fn take_head(&self, start: usize, key: u64, matches: &mut Vec<Match>) {
        let Some(found) = self.heads.find(key) else {
            return;
        };
        for record in found.records() {
            let text = self.blocklist.text(record.text);
            let run = self.words.get(start..start.saturating_add(text.words as usize));
            if run.is_some_and(|run| gram::key_of(run.iter().map(|w| w.hash)) == text.key) {
                matches.push(Match::whole(record.text, &text, (start, text.words as usize)));
            }
        }
    }

    /// Compares the whole message, without what stands around the question, with short items.
    fn compare_message(&mut self) {
        let question = self.around.strip(&self.words, |word| word.hash);
        let (Some(first), true) = (question.first(), question.len() >= HEAD) else {
            return;
        };
        let key = gram::key_of(question.iter().map(|word| word.hash));
        if !self.messages.may_hold(key) {
            return;
        }
        let Some(found) = self.messages.find(key) else {
            return;
        };
        let start = self.words.partition_point(|word| word.start < first.start);
        for record in found.records() {
            let text = self.blocklist.text(record.text);
            self.matches.push(Match::whole(record.text, &text, (start, question.len())));
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

/// At most 300 characters of `text` around `start..end`, with an ellipsis where something is cut
/// off. Offsets inside a character or behind the end are moved to the next border before them.
pub fn excerpt(text: &str, start: usize, end: usize) -> String {
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
    format!("{open}{}{close}", tail.get(..shown).unwrap_or_default())
}

/// A run of words of a part that equals a run of words of a text.
#[derive(Clone, Copy, Debug)]
struct Match {
    item: u32,
    text: u32,
    /// First word in the part.
    start: u32,
    /// First word in the text.
    position: u32,
    words: u32,
    rule: Rule,
    action: Action,
}

impl Match {
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
    if group.iter().any(|m| m.rule != Rule::NGram) {
        return 1_000_000;
    }
    group.sort_unstable_by_key(|m| (m.text, m.position));
    let shares = group.chunk_by(|a, b| a.text == b.text).map(|text| {
        let mut covered = 0;
        let mut behind = 0;
        for one in text {
            let end = one.position + one.words;
            covered += end.saturating_sub(behind.max(one.position));
            behind = behind.max(end);
        }
        let whole = text.first().map_or(0, |m| blocklist.text(m.text).words);
        let share = u64::from(covered) * 1_000_000 / u64::from(whole.max(1));
        share.min(1_000_000) as u32
    });
    shares.max().unwrap_or(0)
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
