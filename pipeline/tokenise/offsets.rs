//! The built-in engine: text is cut at control tokens only, ids come from the fast encoder, and
//! offsets are rebuilt from the byte lengths of the tokens over the text in normal form C.

use std::borrow::Cow;
use std::iter::once;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use fastokens::Tokenizer;
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::encoder::TokeniserError;
use super::{Encode, Encoded, qwen3};
use crate::normalise::{ControlText, RenderedSample};

/// Encodes with the built-in Qwen3 vocabulary.
pub(crate) struct FastEncoder {
    engine: Tokenizer,
    /// Bytes of each token; the vocabulary has none of more than 255.
    lengths: Vec<u8>,
    added: AhoCorasick,
}

impl FastEncoder {
    /// Builds the encoder.
    ///
    /// # Errors
    /// A damaged binary.
    pub(crate) fn new(ranks: &[Vec<u8>]) -> Result<Self, TokeniserError> {
        let reason = |e: aho_corasick::BuildError| TokeniserError::Engine { reason: e.to_string() };
        let added = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(qwen3::ADDED)
            .map_err(reason)?;
        let words = ranks.iter().map(Vec::len).chain(qwen3::ADDED.iter().map(|token| token.len()));
        let lengths = words.map(u8::try_from).collect::<Result<_, _>>();
        Ok(FastEncoder {
            engine: qwen3::build(ranks)?,
            lengths: lengths.map_err(|_| TokeniserError::BuiltInDamaged)?,
            added,
        })
    }

    /// The engine itself, for measurements.
    pub(crate) fn engine(&self) -> &Tokenizer {
        &self.engine
    }

    /// Puts ids and spans together; `length` is that of the text that was encoded, in bytes.
    fn encoded(
        &self,
        ids: Vec<u32>,
        spans: impl Iterator<Item = (usize, usize)>,
        length: usize,
    ) -> Result<Encoded, TokeniserError> {
        let (trained, got) = Walk::new(&ids, &self.lengths).overlapping(spans);
        if got != length {
            return Err(TokeniserError::Offsets { got, expected: length });
        }
        Ok(Encoded { ids, trained, foreign: 0 })
    }

    /// Encodes text that is in normal form C in one go: the engine cuts it at the added tokens itself.
    fn whole(&self, sample: &RenderedSample) -> Result<Encoded, TokeniserError> {
        let ids = self.engine.encode(&sample.text).map_err(|e| engine_error(&e))?;
        // Added tokens cannot overlap each other, so all that the renderer wrote are among them.
        let controls = controls(&ids);
        let spans = sample.trained.iter().map(|span| (span.start, span.end));
        let encoded = self.encoded(ids, spans, sample.text.len())?;
        Ok(Encoded { foreign: (controls - sample.controls.len().min(controls)) as u64, ..encoded })
    }

    /// Encodes the parts between added tokens one by one, each in normal form C.
    fn in_parts(
        &self,
        sample: &RenderedSample,
        control_text: ControlText,
    ) -> Result<Encoded, TokeniserError> {
        let mut parts = Parts::default();
        let (mut from, mut foreign) = (0, 0);
        for found in self.added.find_iter(&sample.text) {
            let id = qwen3::FIRST_ADDED + found.pattern().as_u32();
            if qwen3::is_control(id) && sample.controls.binary_search(&found.start()).is_err() {
                foreign += 1;
                if control_text == ControlText::Text {
                    continue;
                }
            }
            self.part(sample, from..found.start(), &mut parts)?;
            parts.token(sample, found.range(), id);
            from = found.end();
        }
        self.part(sample, from..sample.text.len(), &mut parts)?;
        let encoded = self.encoded(parts.ids, parts.trained.into_iter(), parts.length)?;
        Ok(Encoded { foreign, ..encoded })
    }

    fn part(
        &self,
        sample: &RenderedSample,
        range: std::ops::Range<usize>,
        parts: &mut Parts,
    ) -> Result<(), TokeniserError> {
        if range.is_empty() {
            return Ok(());
        }
        let (normal, spans) = to_nfc(slice(&sample.text, range.start, range.end), &clip(sample, &range));
        let ids = self.engine.encode_ordinary(&normal).map_err(|e| engine_error(&e))?;
        parts.ids.extend_from_slice(&ids);
        parts.train(&spans);
        parts.length += normal.len();
        Ok(())
    }
}

impl Encode for FastEncoder {
    fn encode(&self, sample: &RenderedSample, control_text: ControlText) -> Result<Encoded, TokeniserError> {
        if is_nfc(&sample.text) {
            let encoded = self.whole(sample)?;
            if encoded.foreign == 0 || control_text != ControlText::Text {
                return Ok(encoded);
            }
        }
        self.in_parts(sample, control_text)
    }
}

/// Tokens that are looked at together: they depend on each other less than one by one.
const STEP: usize = 16;

/// How many of the ids are control tokens.
fn controls(ids: &[u32]) -> usize {
    let plain = |ids: &&[u32]| ids.iter().fold(0, |most, id| most.max(*id)) < qwen3::FIRST_ADDED;
    let others = ids.chunks(STEP).filter(|ids| !plain(ids)).flatten();
    others.filter(|id| qwen3::is_control(**id)).count()
}

/// A walk over ids that keeps count of the bytes they stand for.
struct Walk<'a> {
    ids: &'a [u32],
    /// Bytes of a token by id.
    lengths: &'a [u8],
    /// The next token.
    index: usize,
    /// Where the last one ends.
    at: usize,
}

impl<'a> Walk<'a> {
    fn new(ids: &'a [u32], lengths: &'a [u8]) -> Self {
        Walk { ids, lengths, index: 0, at: 0 }
    }

    /// The runs of tokens whose bytes overlap one of the spans, which ascend; and the bytes of all tokens.
    fn overlapping(mut self, spans: impl Iterator<Item = (usize, usize)>) -> (Vec<(u32, u32)>, usize) {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (start, end) in spans.filter(|(start, end)| start < end) {
            // A token that ends after the start of a span overlaps it, even if it began before.
            let first = match self.at > start {
                true => self.index,
                false => self.past(start + 1).saturating_sub(1),
            };
            if self.at <= start {
                break;
            }
            self.past(end);
            let (first, end) = (first as u32, self.index as u32);
            match runs.last_mut() {
                Some(run) if run.0 + run.1 == first => run.1 += end - first,
                _ if first < end => runs.push((first, end - first)),
                _ => {}
            }
        }
        self.past(usize::MAX);
        (runs, self.at)
    }

    /// Takes tokens until one ends at `border` or after it, or there are no more; gives the index of the
    /// next one.
    fn past(&mut self, border: usize) -> usize {
        while let Some(step) = self.ids.get(self.index..self.index + STEP) {
            let bytes: usize = step.iter().map(|id| self.length(*id)).sum();
            if self.at + bytes >= border {
                break;
            }
            self.at += bytes;
            self.index += STEP;
        }
        while self.at < border
            && let Some(id) = self.ids.get(self.index)
        {
            self.at += self.length(*id);
            self.index += 1;
        }
        self.index
    }

    fn length(&self, id: u32) -> usize {
        self.lengths.get(id as usize).map_or(0, |length| usize::from(*length))
    }
}

/// A sample that is put together from parts.
#[derive(Default)]
struct Parts {
    ids: Vec<u32>,
    /// Spans to train on, in bytes of the parts' normal form.
    trained: Vec<(usize, usize)>,
    length: usize,
}

impl Parts {
    fn token(&mut self, sample: &RenderedSample, range: std::ops::Range<usize>, id: u32) {
        self.ids.push(id);
        self.train(&clip(sample, &range));
        self.length += range.len();
    }

    /// Adds spans that are relative to the part that is added next.
    fn train(&mut self, spans: &[(usize, usize)]) {
        for (start, end) in spans.iter().map(|(start, end)| (self.length + start, self.length + end)) {
            match self.trained.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => self.trained.push((start, end)),
            }
        }
    }
}

fn engine_error(error: &fastokens::Error) -> TokeniserError {
    TokeniserError::Engine { reason: error.to_string() }
}

fn slice(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

/// The parts of the trained spans inside a range, relative to its start.
fn clip(sample: &RenderedSample, range: &std::ops::Range<usize>) -> Vec<(usize, usize)> {
    let first = sample.trained.partition_point(|span| span.end <= range.start);
    let within = sample.trained.iter().skip(first).take_while(|span| span.start < range.end);
    let cut = within.map(|span| (span.start.max(range.start), span.end.min(range.end)));
    cut.filter(|(start, end)| start < end)
        .map(|(start, end)| (start - range.start, end - range.start))
        .collect()
}

/// Whether a text is in normal form C for sure, by the tables of the reference tokenizer.
fn is_nfc(text: &str) -> bool {
    let mut rest = text;
    // Nothing below U+0300, whose first byte is 0xcc, takes part in composition as it stands. Only what
    // is above is looked up, up to the next ASCII character, which is a starter.
    while let Some(at) = first_from(0xcc, rest.as_bytes()) {
        let high = slice(rest, at, rest.len());
        let end = high.bytes().position(|byte| byte.is_ascii()).unwrap_or(high.len());
        let run = slice(high, 0, end);
        if !run.chars().all(stands_alone) && is_nfc_quick(run.chars()) != IsNormalized::Yes {
            return false;
        }
        rest = slice(high, end, high.len());
    }
    true
}

/// Whether a character is a starter that stays what it is, whatever is around it: Chinese and Japanese
/// text consists of them. A bit a character of the Basic Multilingual Plane, since the tables of the
/// normaliser are slow to ask.
fn stands_alone(c: char) -> bool {
    static ALONE: LazyLock<Vec<u64>> = LazyLock::new(|| {
        let alone = |code: u32| {
            let is_alone =
                |c| canonical_combining_class(c) == 0 && is_nfc_quick(once(c)) == IsNormalized::Yes;
            u64::from(char::from_u32(code).is_some_and(is_alone))
        };
        (0..0x1_0000 / 64).map(|word| (0..64).map(|bit| alone(word * 64 + bit) << bit).sum()).collect()
    });
    let code = u32::from(c);
    ALONE.get(code as usize / 64).is_some_and(|word| word >> (code % 64) & 1 == 1)
}

/// Where the first byte stands that is `least` or more. Blocks without one are passed at memory speed.
fn first_from(least: u8, bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 64;
    let holds = |block: &[u8]| block.iter().fold(0, |most, byte| most.max(*byte)) >= least;
    let block = bytes.chunks(BLOCK).position(holds)? * BLOCK;
    let within = bytes.iter().skip(block).position(|byte| *byte >= least)?;
    Some(block + within)
}

/// The text in normal form C, by the tables of the reference tokenizer, with the spans moved along.
/// Span borders stand after newlines, which compose with nothing, so the parts between borders can
/// be normalised one by one.
fn to_nfc<'t>(text: &'t str, spans: &[(usize, usize)]) -> (Cow<'t, str>, Vec<(usize, usize)>) {
    if is_nfc(text) {
        return (Cow::Borrowed(text), spans.to_vec());
    }
    let mut normal = String::with_capacity(text.len());
    let mut moved = Vec::with_capacity(spans.len());
    let mut from = 0;
    let mut push = |normal: &mut String, to: usize| {
        normal.extend(slice(text, from, to).nfc().map(|(c, _)| c));
        from = to;
        normal.len()
    };
    for &(start, end) in spans {
        let start = push(&mut normal, start);
        let end = push(&mut normal, end);
        moved.push((start, end));
    }
    push(&mut normal, text.len());
    (Cow::Owned(normal), moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_in_normal_form_is_told_without_a_doubt() {
        let long = "plain text ".repeat(20);
        for (text, expected) in [
            ("", true),
            ("ascii", true),
            ("Größe — naïve, \u{4e2d}\u{6587} \u{1f600}", true),
            ("e\u{301}", false),
            ("\u{301}", false),
            (">\u{338}", false),
            ("\u{2126}", false),
        ] {
            assert_eq!(is_nfc(text), expected, "{text}");
            assert_eq!(is_nfc(&format!("{long}{text}{long}")), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_told_to_be_in_normal_form_does_not_change(
            parts in prop::collection::vec(
                prop_oneof![
                    "[a-z ]{0,70}", "\\PC{0,8}", "[\u{300}-\u{36f}]{1,2}", "[\u{1100}-\u{11ff}\u{ac00}-\u{ac30}]{1,3}",
                    "[\u{c0}-\u{ff}]{1,3}", "[\u{900}-\u{9ff}]{1,3}",
                ],
                0..8,
            )
        ) {
            let text = parts.concat();
            let normal: String = text.nfc().map(|(c, _)| c).collect();
            prop_assert!(!is_nfc(&text) || text == normal);
        }

        /// The runs against their definition, over tokens of any lengths and spans that cut anywhere.
        #[test]
        fn runs_are_the_tokens_that_overlap_a_span(
            lengths in prop::collection::vec(1u8..6, 0..90),
            borders in prop::collection::btree_set(0usize..300, 0..12),
        ) {
            let borders: Vec<usize> = borders.into_iter().collect();
            let spans: Vec<(usize, usize)> = borders.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            let ids: Vec<u32> = (0..lengths.len() as u32).collect();
            let (runs, bytes) = Walk::new(&ids, &lengths).overlapping(spans.iter().copied());
            prop_assert_eq!(bytes, lengths.iter().map(|length| usize::from(*length)).sum::<usize>());
            let mut at = 0;
            for (index, length) in lengths.iter().enumerate() {
                let length = usize::from(*length);
                let overlaps = spans.iter().any(|(start, end)| *start < at + length && at < *end);
                let trained = runs.iter().any(|(first, count)| (*first..first + count).contains(&(index as u32)));
                prop_assert_eq!(overlaps, trained, "token {}", index);
                at += length;
            }
            prop_assert!(runs.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "{:?}", runs);
        }
    }
}
