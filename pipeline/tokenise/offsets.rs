//! The built-in engine: text is cut at control tokens only, ids come from the fast encoder, and
//! offsets are rebuilt from the byte lengths of the tokens over the text in normal form C.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};
use fastokens::Tokenizer;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::encoder::TokeniserError;
use super::{Encode, Encoded, qwen3};
use crate::normalise::{ControlText, RenderedSample};

/// Encodes with the built-in Qwen3 vocabulary.
pub(crate) struct FastEncoder {
    engine: Tokenizer,
    lengths: Vec<u32>,
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
        Ok(FastEncoder {
            engine: qwen3::build(ranks)?,
            lengths: words.map(|len| len as u32).collect(),
            added,
        })
    }

    /// Encodes text between control tokens. `trained` are spans in bytes of `text`.
    fn gap(
        &self,
        text: &str,
        trained: &[(usize, usize)],
        out: &mut Encoded,
        base: usize,
    ) -> Result<usize, TokeniserError> {
        if text.is_empty() {
            return Ok(base);
        }
        let (normal, spans) = to_nfc(text, trained);
        let ids = self
            .engine
            .encode_ordinary(&normal)
            .map_err(|e| TokeniserError::Engine { reason: e.to_string() })?;
        let mut at = base;
        for &id in &ids {
            let len = self.lengths.get(id as usize).copied().unwrap_or_default() as usize;
            out.spans.push((at, at + len));
            at += len;
        }
        if at - base != normal.len() {
            return Err(TokeniserError::Offsets { got: at - base, expected: normal.len() });
        }
        out.ids.extend_from_slice(&ids);
        for (start, end) in spans {
            push_span(&mut out.trained, base + start, base + end);
        }
        Ok(at)
    }
}

impl Encode for FastEncoder {
    fn encode(&self, sample: &RenderedSample, control_text: ControlText) -> Result<Encoded, TokeniserError> {
        let mut out = Encoded::default();
        let (mut from, mut base) = (0, 0);
        let mut within = Vec::new();
        for found in self.added.find_iter(&sample.text) {
            let index = found.pattern().as_usize();
            let is_control = qwen3::ADDED.get(index).is_some_and(|token| token.starts_with("<|"));
            let ours = sample.controls.binary_search(&found.start()).is_ok();
            if is_control && !ours {
                out.foreign += 1;
                if control_text == ControlText::Text {
                    continue;
                }
            }
            clip(&sample.trained, from, found.start(), &mut within);
            base = self.gap(slice(&sample.text, from, found.start()), &within, &mut out, base)?;
            let len = found.end() - found.start();
            out.ids.push(qwen3::FIRST_ADDED + index as u32);
            out.spans.push((base, base + len));
            clip(&sample.trained, found.start(), found.end(), &mut within);
            for &(start, end) in &within {
                push_span(&mut out.trained, base + start, base + end);
            }
            base += len;
            from = found.end();
        }
        clip(&sample.trained, from, sample.text.len(), &mut within);
        self.gap(slice(&sample.text, from, sample.text.len()), &within, &mut out, base)?;
        Ok(out)
    }
}

fn slice(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

/// The parts of `spans` inside `start..end`, relative to `start`.
fn clip(spans: &[std::ops::Range<usize>], start: usize, end: usize, out: &mut Vec<(usize, usize)>) {
    out.clear();
    let first = spans.partition_point(|span| span.end <= start);
    for span in spans.iter().skip(first).take_while(|span| span.start < end) {
        let (from, to) = (span.start.max(start), span.end.min(end));
        if from < to {
            out.push((from - start, to - start));
        }
    }
}

fn push_span(spans: &mut Vec<(usize, usize)>, start: usize, end: usize) {
    match spans.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => spans.push((start, end)),
    }
}

/// The text in normal form C, by the tables of the reference tokenizer, with the spans moved along.
/// Span borders stand after newlines, which compose with nothing, so the parts between borders can
/// be normalised one by one.
fn to_nfc<'t>(text: &'t str, spans: &[(usize, usize)]) -> (Cow<'t, str>, Vec<(usize, usize)>) {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
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
