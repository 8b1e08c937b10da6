//! Any other `tokenizer.json`, through the reference implementation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::Tokenizer;

use super::encoder::TokeniserError;
use super::{Encode, Encoded};
use crate::normalise::{ControlFinder, ControlText, RenderedSample};

/// Encodes with the `tokenizers` crate; offsets are its own.
pub(crate) struct ReferenceEncoder {
    path: PathBuf,
    engine: Tokenizer,
    /// The same vocabulary with other names for its control strings: what it makes of one in a row's
    /// text is plain text. None where that would change other ids.
    plain: Option<Tokenizer>,
    added: BTreeMap<String, u32>,
    controls: BTreeMap<u32, String>,
    finder: ControlFinder,
}

impl ReferenceEncoder {
    /// Loads a `tokenizer.json`.
    ///
    /// # Errors
    /// A file that the crate cannot read.
    pub(crate) fn load(path: &Path, bytes: &[u8]) -> Result<Self, TokeniserError> {
        let failed = |reason: String| TokeniserError::Load { path: path.to_path_buf(), reason };
        let engine = build(bytes).map_err(failed)?;
        let decoder = engine.get_added_tokens_decoder();
        let added: BTreeMap<String, u32> = decoder.iter().map(|(id, t)| (t.content.clone(), *id)).collect();
        let is_control = |token: &tokenizers::AddedToken| token.special || token.content.starts_with("<|");
        let controls: BTreeMap<u32, String> = decoder
            .iter()
            .filter(|(_, token)| is_control(token))
            .map(|(id, token)| (*id, token.content.clone()))
            .collect();
        let strings: Vec<&String> = controls.values().collect();
        let finder = ControlFinder::new(&strings);
        let plain = build(&renamed(bytes, &strings).map_err(failed)?).map_err(failed)?;
        let keeps = |(string, id): (&String, &u32)| {
            controls.contains_key(id) || plain.token_to_id(string) == Some(*id)
        };
        let plain = added.iter().all(keeps).then_some(plain);
        Ok(ReferenceEncoder { path: path.to_path_buf(), engine, plain, added, controls, finder })
    }

    /// Added tokens by their text.
    pub(crate) fn added(&self) -> &BTreeMap<String, u32> {
        &self.added
    }

    /// Special tokens and all `<|…|>`, in the order of their ids.
    pub(crate) fn control_strings(&self) -> Vec<String> {
        self.controls.values().cloned().collect()
    }

    /// Size of the vocabulary, added tokens among it.
    pub(crate) fn vocabulary_size(&self) -> u64 {
        self.engine.get_vocab_size(true) as u64
    }

    /// Text of ids.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String, TokeniserError> {
        self.engine.decode(ids, false).map_err(|e| engine_error(&e))
    }

    /// Encodes text whose control strings at `own` are tokens and all others text.
    fn encode_apart(
        &self,
        sample: &RenderedSample,
        own: &[(usize, usize)],
    ) -> Result<Placed, TokeniserError> {
        let mut out = Placed::default();
        let mut from = 0;
        for &(start, end) in own {
            self.gap(sample, (from, start), &mut out)?;
            let string = sample.text.get(start..end).unwrap_or_default();
            let id = self.added.get(string).ok_or_else(|| self.stays_control(string))?;
            out.ids.push(*id);
            out.spans.push((start, end));
            from = end;
        }
        self.gap(sample, (from, sample.text.len()), &mut out)?;
        Ok(out)
    }

    fn gap(
        &self,
        sample: &RenderedSample,
        at: (usize, usize),
        out: &mut Placed,
    ) -> Result<(), TokeniserError> {
        let text = sample.text.get(at.0..at.1).unwrap_or_default();
        if text.is_empty() {
            return Ok(());
        }
        let any = || self.controls.values().next().map_or("", String::as_str);
        let plain = self.plain.as_ref().ok_or_else(|| self.stays_control(any()))?;
        let encoding = plain.encode(text, false).map_err(|e| engine_error(&e))?;
        if let Some(string) = encoding.get_ids().iter().find_map(|id| self.controls.get(id)) {
            return Err(self.stays_control(string));
        }
        out.ids.extend_from_slice(encoding.get_ids());
        out.spans.extend(encoding.get_offsets().iter().map(|(start, end)| (at.0 + start, at.0 + end)));
        Ok(())
    }

    fn stays_control(&self, string: &str) -> TokeniserError {
        TokeniserError::ControlText { path: self.path.clone(), token: string.to_owned() }
    }
}

/// Decodes with the `tokenizers` crate.
pub(crate) struct ReferenceDecoder {
    engine: Tokenizer,
}

impl ReferenceDecoder {
    /// Loads a `tokenizer.json`.
    ///
    /// # Errors
    /// A file that the crate cannot read.
    pub(crate) fn load(path: &Path, bytes: &[u8]) -> Result<Self, TokeniserError> {
        let failed = |reason: String| TokeniserError::Load { path: path.to_path_buf(), reason };
        Ok(ReferenceDecoder { engine: build(bytes).map_err(failed)? })
    }

    /// Ids of special tokens and of all `<|…|>`.
    pub(crate) fn control_ids(&self) -> BTreeSet<u32> {
        let decoder = self.engine.get_added_tokens_decoder();
        let controls = decoder.iter().filter(|(_, token)| token.special || token.content.starts_with("<|"));
        controls.map(|(id, _)| *id).collect()
    }

    /// Text of ids.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String, TokeniserError> {
        self.engine.decode(ids, false).map_err(|e| engine_error(&e))
    }
}

fn build(bytes: &[u8]) -> Result<Tokenizer, String> {
    let mut engine = Tokenizer::from_bytes(bytes).map_err(|e| e.to_string())?;
    engine.with_padding(None);
    engine.with_truncation(None).map_err(|e| e.to_string())?;
    Ok(engine)
}

/// A `tokenizer.json` with other names for some of its added tokens. They stay, since the ids of added
/// tokens follow from their order.
fn renamed(bytes: &[u8], strings: &[&String]) -> Result<Vec<u8>, String> {
    let mut json: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if let Some(added) = json.get_mut("added_tokens").and_then(Value::as_array_mut) {
        for (number, token) in added.iter_mut().enumerate() {
            let Some(content) = token.get_mut("content") else { continue };
            if strings.iter().any(|string| content.as_str() == Some(string)) {
                // Noncharacters: no text is expected to have them, and a control id is refused anyway.
                *content = Value::from(format!("\u{fdd0}control {number}\u{fdd1}"));
            }
        }
    }
    // A post-processor names special tokens, and none are added here.
    if let Some(post) = json.get_mut("post_processor") {
        *post = Value::Null;
    }
    serde_json::to_vec(&json).map_err(|e| e.to_string())
}

fn engine_error(error: &tokenizers::Error) -> TokeniserError {
    TokeniserError::Engine { reason: error.to_string() }
}

/// Ids with the place of each in the text, as the crate has them: tokens that share a character all
/// have the whole of it.
#[derive(Default)]
struct Placed {
    ids: Vec<u32>,
    spans: Vec<(usize, usize)>,
}

impl Placed {
    /// Runs of tokens whose bytes overlap one of the spans.
    fn overlapping(&self, trained: &[std::ops::Range<usize>]) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut trained = trained.iter().peekable();
        for (index, &(start, end)) in (0u32..).zip(&self.spans) {
            while trained.next_if(|span| span.end <= start).is_some() {}
            if trained.peek().is_none_or(|span| span.start >= end) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.0 + run.1 == index => run.1 += 1,
                _ => runs.push((index, 1)),
            }
        }
        runs
    }
}

impl Encode for ReferenceEncoder {
    fn encode(&self, sample: &RenderedSample, control_text: ControlText) -> Result<Encoded, TokeniserError> {
        let is_own = |start: &usize| sample.controls.binary_search(start).is_ok();
        let found: Vec<(usize, usize)> =
            self.finder.ranges(&sample.text).into_iter().map(|range| (range.start, range.end)).collect();
        let own: Vec<(usize, usize)> = found.iter().copied().filter(|(start, _)| is_own(start)).collect();
        let foreign = (found.len() - own.len()) as u64;
        let placed = match control_text == ControlText::Text && foreign > 0 {
            true => self.encode_apart(sample, &own)?,
            false => {
                let encoding =
                    self.engine.encode(sample.text.as_str(), false).map_err(|e| engine_error(&e))?;
                Placed { ids: encoding.get_ids().to_vec(), spans: encoding.get_offsets().to_vec() }
            }
        };
        let trained = placed.overlapping(&sample.trained);
        Ok(Encoded { ids: placed.ids, trained, foreign })
    }
}
