//! The built-in Qwen3 vocabulary: 151,643 byte-level BPE ranks and 26 added tokens, as in the
//! `tokenizer.json` of Qwen3-8B. Equal ids are tested against the reference tokenizer.

use std::io::Read as _;

use fastokens::Tokenizer;
use fastokens::json_structs::AddedTokenConfig;

use super::encoder::TokeniserError;

/// Vocabulary packed by the build script: count (u32), lengths (u8 each), bytes; zstd.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/qwen3.ranks.zst"));

/// SHA-256 of the `tokenizer.json` that the built-in vocabulary stands for.
pub const TOKENIZER_JSON_SHA256: &str = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4";

/// Splits text into words before BPE (the `Split` pattern of that file).
const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Id of the first added token; the others follow it.
pub const FIRST_ADDED: u32 = 151_643;

/// The added tokens by id from [`FIRST_ADDED`] on.
pub const ADDED: [&str; 26] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
];

/// The control strings: every `<|…|>` token. The XML-like tokens (`<think>`, `<tool_call>`, …) are how
/// reasoning and tools are written and do not count.
pub fn control_strings() -> Vec<String> {
    ADDED.iter().filter(|token| token.starts_with("<|")).map(|token| (*token).to_owned()).collect()
}

/// Whether an id is that of a control string.
pub fn is_control(id: u32) -> bool {
    let added = id.checked_sub(FIRST_ADDED).and_then(|index| ADDED.get(index as usize));
    added.is_some_and(|token| token.starts_with("<|"))
}

/// The token bytes by id, added tokens not among them.
///
/// # Errors
/// A binary whose vocabulary is damaged.
pub fn ranks() -> Result<Vec<Vec<u8>>, TokeniserError> {
    let damaged = || TokeniserError::BuiltInDamaged;
    let mut raw = Vec::new();
    zstd::Decoder::new(PACKED)
        .and_then(|mut decoder| decoder.read_to_end(&mut raw))
        .map_err(|_| damaged())?;
    let (count, rest) = raw.split_at_checked(4).ok_or_else(damaged)?;
    let count = u32::from_le_bytes(count.try_into().map_err(|_| damaged())?) as usize;
    let (lengths, mut bytes) = rest.split_at_checked(count).ok_or_else(damaged)?;
    let mut tokens = Vec::with_capacity(count);
    for &len in lengths {
        let (token, tail) = bytes.split_at_checked(usize::from(len)).ok_or_else(damaged)?;
        tokens.push(token.to_vec());
        bytes = tail;
    }
    Ok(tokens)
}

/// The text of ids; bytes that are no UTF-8 on their own read as U+FFFD, and ids that there are not as
/// nothing.
pub fn decode(ranks: &[Vec<u8>], ids: &[u32]) -> String {
    let mut bytes = Vec::new();
    for &id in ids {
        let added = id.checked_sub(FIRST_ADDED).and_then(|index| ADDED.get(index as usize));
        match added {
            Some(token) => bytes.extend_from_slice(token.as_bytes()),
            None => bytes.extend_from_slice(ranks.get(id as usize).map_or(&[], Vec::as_slice)),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Builds the encoder; about a second of CPU time. It expects text in normal form C.
///
/// # Errors
/// What the engine says.
pub fn build(ranks: &[Vec<u8>]) -> Result<Tokenizer, TokeniserError> {
    let pairs: Vec<(Vec<u8>, u32)> = ranks.iter().cloned().zip(0..).collect();
    let added: Vec<AddedTokenConfig> = ADDED
        .iter()
        .zip(FIRST_ADDED..)
        .map(|(content, id)| AddedTokenConfig {
            id,
            content: (*content).to_owned(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: content.starts_with("<|"),
        })
        .collect();
    Tokenizer::from_tiktoken_ranks_with_added_tokens(&pairs, PATTERN, &added)
        .map_err(|e| TokeniserError::Engine { reason: e.to_string() })
}

/// SHA-256 over the vocabulary: each token's length (u32 LE) and bytes by id, then the added tokens
/// in the same way.
pub fn digest(ranks: &[Vec<u8>]) -> String {
    let mut hasher = potable_manifests::Hasher::new();
    for token in ranks.iter().map(Vec::as_slice).chain(ADDED.iter().map(|token| token.as_bytes())) {
        hasher.update(&(token.len() as u32).to_le_bytes());
        hasher.update(token);
    }
    hasher.finish().hex().to_owned()
}
