//! Ids back to text, without an encoder: for whoever reads shards.

use std::collections::BTreeSet;
use std::path::Path;

use super::encoder::{BUILT_IN, TokeniserError};
use super::qwen3;
use super::reference::ReferenceDecoder;

/// Turns ids into text.
pub struct Decoder {
    digest: String,
    controls: BTreeSet<u32>,
    engine: Engine,
}

enum Engine {
    BuiltIn(Vec<Vec<u8>>),
    Reference(Box<ReferenceDecoder>),
}

impl Decoder {
    /// The decoder of the built-in vocabulary (`qwen3`), or of a `tokenizer.json`.
    ///
    /// # Errors
    /// A file that cannot be read or is no tokenizer; a damaged binary.
    pub fn load(tokenizer: &Path) -> Result<Decoder, TokeniserError> {
        if tokenizer == Path::new(BUILT_IN) {
            let ranks = qwen3::ranks()?;
            let added = qwen3::ADDED.iter().zip(qwen3::FIRST_ADDED..);
            let controls = added.filter(|(token, _)| token.starts_with("<|")).map(|(_, id)| id).collect();
            return Ok(Decoder { digest: qwen3::digest(&ranks), controls, engine: Engine::BuiltIn(ranks) });
        }
        let bytes = std::fs::read(tokenizer)
            .map_err(|source| TokeniserError::Read { path: tokenizer.to_path_buf(), source })?;
        let digest = potable_manifests::sha256_hex(&bytes);
        if digest == qwen3::TOKENIZER_JSON_SHA256 {
            return Decoder::load(Path::new(BUILT_IN));
        }
        let engine = ReferenceDecoder::load(tokenizer, &bytes)?;
        let controls = engine.control_ids();
        Ok(Decoder { digest, controls, engine: Engine::Reference(Box::new(engine)) })
    }

    /// SHA-256 in hex, as the manifest has it: of the file, or of the built-in vocabulary.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether an id is a control token: a special token, or one whose text is `<|…|>`.
    pub fn is_control(&self, id: u32) -> bool {
        self.controls.contains(&id)
    }

    /// The text of ids, control tokens included; bytes that are no UTF-8 on their own read as U+FFFD.
    ///
    /// # Errors
    /// What the engine says.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokeniserError> {
        match &self.engine {
            Engine::BuiltIn(ranks) => Ok(qwen3::decode(ranks, ids)),
            Engine::Reference(engine) => engine.decode(ids),
        }
    }
}
