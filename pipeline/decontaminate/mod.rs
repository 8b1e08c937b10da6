//! The only way from a conversation to a sample leads through here.

pub mod benchmarks;
pub mod check;
pub mod disguise;
mod items;
pub mod selftest;

use potable_blocklists::{Action, Blocklist, Hit, Part, Rule, Scanner};

use crate::run::reason::DropReason;
use crate::source::adapt::{Adapted, Conversation, Document};

/// A row whose every string was checked against the blocklist. It can only be made by
/// [`Decontaminator::apply`]; no later stage takes an unchecked row.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedRow {
    content: Checked,
}

/// What was checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// A conversation.
    Chat(Conversation),
    /// A document.
    Document(Document),
}

impl CheckedRow {
    /// The content.
    pub fn content(&self) -> &Checked {
        &self.content
    }
}

/// One benchmark item found in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index of the benchmark in the blocklist.
    pub benchmark: u32,
    /// Name of the benchmark.
    pub benchmark_name: String,
    /// The item's id.
    pub item: String,
    /// The rule that matched.
    pub rule: Rule,
    /// Share of the item that was found, in parts per million.
    pub coverage_ppm: u32,
    /// Index of the message.
    pub message: u32,
    /// Bytes of the message's text that match.
    pub span: (u32, u32),
    /// Whether the match drops the row.
    pub action: Action,
    /// At most 300 characters round the match; empty if any matched benchmark is sensitive.
    pub excerpt: String,
    /// Bytes of the excerpt that match; empty with the excerpt.
    pub mark: (u32, u32),
}

/// What the check says of a row: it goes on, or is dropped, and what was found either way.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The row, if it goes on.
    pub row: Result<CheckedRow, DropReason>,
    /// What was found.
    pub matches: Vec<Match>,
}

/// Checks rows against one blocklist. A verdict depends on the row and the blocklist alone.
pub struct Decontaminator<'b> {
    scanner: Option<Scanner<'b>>,
    blocklist: Option<&'b Blocklist>,
    strict: bool,
}

impl<'b> Decontaminator<'b> {
    /// A checker for one thread. Without a blocklist (`none = true`) every row goes on.
    pub fn new(blocklist: Option<&'b Blocklist>, strict: bool) -> Self {
        Decontaminator { scanner: blocklist.map(Scanner::new), blocklist, strict }
    }

    /// Checks every string of a row that can end up in a shard.
    pub fn apply(&mut self, row: Adapted) -> Verdict {
        let matches = self.find(&row);
        let drops = matches.iter().filter(|m| m.action == Action::Drop);
        let reason = drops.map(|m| reason_of(m.rule)).min();
        let row = match reason {
            Some(reason) => Err(reason),
            None => Ok(CheckedRow {
                content: match row {
                    Adapted::Chat(conversation) => Checked::Chat(conversation),
                    Adapted::Document(document) => Checked::Document(document),
                },
            }),
        };
        Verdict { row, matches }
    }

    /// What is found in the strings that [`apply`](Self::apply) checks.
    pub fn find(&mut self, row: &Adapted) -> Vec<Match> {
        match row {
            Adapted::Chat(conversation) => self.scan(&conversation.printable()),
            Adapted::Document(document) => self.scan(&[(0, document.text.as_str(), true)]),
        }
    }

    fn scan(&mut self, strings: &[(u32, &str, bool)]) -> Vec<Match> {
        let (Some(scanner), Some(blocklist)) = (&mut self.scanner, self.blocklist) else {
            return Vec::new();
        };
        let parts: Vec<Part> = strings
            .iter()
            .map(|&(message, text, whole_prompt)| Part { text, message, whole_prompt })
            .collect();
        let hits = scanner.check(&parts, self.strict);
        let sensitive = hits.iter().any(|hit| blocklist.is_sensitive(hit.benchmark));
        hits.iter().map(|hit| to_match(blocklist, &parts, hit, sensitive)).collect()
    }
}

fn to_match(blocklist: &Blocklist, parts: &[Part], hit: &Hit, sensitive: bool) -> Match {
    let text = parts.get(hit.part as usize).map_or("", |part| part.text);
    let (excerpt, mark) = match sensitive {
        true => (String::new(), 0..0),
        false => potable_blocklists::marked_excerpt(text, hit.start as usize, hit.end as usize),
    };
    Match {
        benchmark: hit.benchmark,
        benchmark_name: blocklist.benchmark_name(hit.benchmark).to_owned(),
        item: blocklist.item_id(hit.item).to_owned(),
        rule: hit.rule,
        coverage_ppm: hit.coverage_ppm,
        message: hit.message,
        span: (hit.start, hit.end),
        action: hit.action,
        excerpt,
        mark: (mark.start as u32, mark.end as u32),
    }
}

fn reason_of(rule: Rule) -> DropReason {
    match rule {
        Rule::ShortItem => DropReason::DecontaminateShortItem,
        Rule::Canary => DropReason::DecontaminateCanary,
        Rule::NearCopy => DropReason::DecontaminateNearCopy,
        _ => DropReason::DecontaminateNgram,
    }
}
