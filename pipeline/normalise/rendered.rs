//! Rendered samples: text, control tokens, spans to train on.

use std::collections::BTreeMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

/// How often a policy acted, by what it did.
pub type Acted = BTreeMap<&'static str, u64>;

/// The exact text of one sample.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RenderedSample {
    /// The assistant turn that the sample trains, with `history = "unroll"`; else 0.
    pub turn: u32,
    /// The text, control strings included.
    pub text: String,
    /// Byte offsets of the control strings that the renderer wrote, ascending.
    pub controls: Vec<usize>,
    /// Byte ranges to train on, ascending, not touching.
    pub trained: Vec<Range<usize>>,
    /// Whether the sample is a plain document: its first token is not trained on.
    pub document: bool,
}

impl RenderedSample {
    /// A plain document, closed by the control string `end_of_text` and trained on as a whole.
    pub fn document(text: &str, end_of_text: &str) -> Self {
        let mut sample = RenderedSample { document: true, ..RenderedSample::default() };
        sample.text.push_str(text);
        sample.control(end_of_text);
        sample.trained.push(0..sample.text.len());
        sample
    }

    /// Appends a control string.
    pub fn control(&mut self, token: &str) {
        self.controls.push(self.text.len());
        self.text.push_str(token);
    }

    /// Marks everything from `start` to the end of the text as trained on.
    pub fn train_from(&mut self, start: usize) {
        let end = self.text.len();
        match self.trained.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ if start < end => self.trained.push(start..end),
            _ => {}
        }
    }
}

/// Finds the control strings of a tokenizer in text.
#[derive(Clone, Debug)]
pub struct ControlFinder {
    finder: Option<AhoCorasick>,
    /// Whether every control string begins with `<|`, which is rare in text and quickly looked for.
    barred: bool,
}

impl ControlFinder {
    /// A finder of these strings.
    pub fn new<S: AsRef<str>>(strings: &[S]) -> Self {
        let texts: Vec<&str> = strings.iter().map(AsRef::as_ref).filter(|text| !text.is_empty()).collect();
        let barred = texts.iter().all(|text| text.starts_with("<|"));
        let build = || AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts).ok();
        ControlFinder { finder: if texts.is_empty() { None } else { build() }, barred }
    }

    /// Byte ranges of those in the text, ascending, the longest where several begin.
    pub fn ranges(&self, text: &str) -> Vec<Range<usize>> {
        let found = self.finder.iter().flat_map(|finder| finder.find_iter(text));
        found.map(|found| found.range()).collect()
    }

    /// Whether the text holds one of them.
    pub fn finds(&self, text: &str) -> bool {
        let Some(finder) = &self.finder else { return false };
        (!self.barred || memchr::memmem::find(text.as_bytes(), b"<|").is_some()) && finder.is_match(text)
    }
}
