//! Any other `tokenizer.json`, through the reference implementation.

use std::collections::BTreeMap;
use std::path::Path;

use tokenizers::Tokenizer;

use super::encoder::TokeniserError;
use super::{Encode, Encoded};
use crate::normalise::{ControlText, RenderedSample};

/// Encodes with the `tokenizers` crate; offsets are its own.
pub(crate) struct ReferenceEncoder {
    engine: Tokenizer,
}

impl ReferenceEncoder {
    /// Loads a `tokenizer.json`.
    ///
    /// # Errors
    /// A file that the crate cannot read.
    pub(crate) fn load(path: &Path, bytes: &[u8]) -> Result<Self, TokeniserError> {
        let mut engine = Tokenizer::from_bytes(bytes)
            .map_err(|e| TokeniserError::Load { path: path.to_path_buf(), reason: e.to_string() })?;
        engine.with_padding(None);
        engine
            .with_truncation(None)
            .map_err(|e| TokeniserError::Load { path: path.to_path_buf(), reason: e.to_string() })?;
        Ok(ReferenceEncoder { engine })
    }

    /// Added tokens by their text.
    pub(crate) fn added(&self) -> BTreeMap<String, u32> {
        let decoder = self.engine.get_added_tokens_decoder();
        decoder.iter().map(|(id, token)| (token.content.clone(), *id)).collect()
    }

    /// Special tokens and all `<|…|>`, in the order of their ids.
    pub(crate) fn control_strings(&self) -> Vec<String> {
        let decoder = self.engine.get_added_tokens_decoder();
        let sorted: BTreeMap<u32, &tokenizers::AddedToken> =
            decoder.iter().map(|(id, token)| (*id, token)).collect();
        let controls = sorted.values().filter(|token| token.special || token.content.starts_with("<|"));
        controls.map(|token| token.content.clone()).collect()
    }

    /// Size of the vocabulary, added tokens among it.
    pub(crate) fn vocabulary_size(&self) -> u64 {
        self.engine.get_vocab_size(true) as u64
    }

    /// Text of ids.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String, TokeniserError> {
        self.engine.decode(ids, false).map_err(|e| TokeniserError::Engine { reason: e.to_string() })
    }
}

impl Encode for ReferenceEncoder {
    fn encode(&self, sample: &RenderedSample, control_text: ControlText) -> Result<Encoded, TokeniserError> {
        if control_text == ControlText::Text {
            return Err(TokeniserError::ControlText);
        }
        let encoding = self
            .engine
            .encode(sample.text.as_str(), false)
            .map_err(|e| TokeniserError::Engine { reason: e.to_string() })?;
        Ok(Encoded {
            ids: encoding.get_ids().to_vec(),
            spans: encoding.get_offsets().to_vec(),
            trained: sample.trained.iter().map(|span| (span.start, span.end)).collect(),
        })
    }
}
