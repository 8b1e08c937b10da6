//! The tokeniser of a run.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::offsets::FastEncoder;
use super::reference::ReferenceEncoder;
use super::{Encode, TokenisedSample, qwen3};
use crate::normalise::{ControlText, RenderedSample, TextFormat};

/// The `[tokenise] tokenizer` that stands for the built-in vocabulary.
pub const BUILT_IN: &str = "qwen3";

/// Control strings that end a plain document, in the order in which they are looked for.
const ENDS_OF_TEXT: [&str; 5] = ["<|endoftext|>", "<|end_of_text|>", "<eos>", "</s>", "<|end▁of▁sentence|>"];

/// Turns rendered samples into ids. One is shared by all threads.
pub struct Tokeniser {
    name: String,
    digest: String,
    vocabulary_size: u64,
    end_of_text: String,
    engine: Engine,
}

/// What a recipe says of its tokeniser.
#[derive(Clone, Copy, Debug)]
pub struct TokeniserChoice<'a> {
    /// `qwen3`, or a path below `base`.
    pub tokenizer: &'a str,
    /// What paths are relative to.
    pub base: &'a Path,
    /// The text format, whose tokens must be there.
    pub format: TextFormat,
    /// The control string that ends a plain document, if the recipe says.
    pub end_of_text: Option<&'a str>,
}

enum Engine {
    /// The tokens of the built-in vocabulary in the order of their ids; see [`fast`].
    Fast(Vec<Vec<u8>>),
    Reference(Box<ReferenceEncoder>),
}

/// The built-in encoder: made when the first text is encoded, since steps that only name the vocabulary
/// are many, and shared by all phases of a process.
///
/// # Errors
/// A damaged binary.
fn fast(ranks: &[Vec<u8>]) -> Result<&'static FastEncoder, TokeniserError> {
    static MADE: OnceLock<FastEncoder> = OnceLock::new();
    if let Some(engine) = MADE.get() {
        return Ok(engine);
    }
    // Not made inside of the lock: threads of a pool that wait for it could not help to make it.
    let made = FastEncoder::new(ranks)?;
    Ok(MADE.get_or_init(|| made))
}

/// A tokeniser that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokeniserError {
    /// The vocabulary in the binary is damaged.
    #[error("the built-in vocabulary is damaged")]
    BuiltInDamaged,
    /// A file that cannot be read.
    #[error("cannot read tokenizer `{path}`", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file that is no tokenizer.
    #[error("{path}: is not a usable tokenizer.json: {reason}", path = path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A tokenizer without the tokens of the format.
    #[error("{path}: does not fit format `{format}`: `{token}` is not one token of it", path = path.display())]
    DoesNotFit {
        /// The file.
        path: PathBuf,
        /// The text format.
        format: &'static str,
        /// The token that is missing.
        token: String,
    },
    /// Offsets that do not add up, so that a loss mask could be wrong.
    #[error("token lengths add up to {got} bytes where the text has {expected}")]
    Offsets {
        /// Sum of the lengths.
        got: usize,
        /// Length of the text.
        expected: usize,
    },
    /// The vocabulary of one model with the format of another.
    #[error(
        "tokenizer `{name}`: does not fit format `{format}`: it is the vocabulary of Qwen3, and `<|im_start|>` has another id there"
    )]
    OtherModel {
        /// The tokeniser.
        name: String,
        /// The text format.
        format: &'static str,
    },
    /// A control string that the vocabulary has whatever is done.
    #[error("{path}: `{token}` is in the vocabulary itself, so it cannot be encoded as plain text", path = path.display())]
    ControlText {
        /// The file.
        path: PathBuf,
        /// The control string.
        token: String,
    },
    /// The engine's own error.
    #[error("tokenizer: {reason}")]
    Engine {
        /// Its words.
        reason: String,
    },
}

impl TokeniserError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            TokeniserError::DoesNotFit { .. } => Some(
                "use the tokenizer.json of the model that the format belongs to; `[tokenise] end_of_text` names what ends a document".to_owned(),
            ),
            TokeniserError::Load { .. } | TokeniserError::Read { .. } => Some(
                "`[tokenise] tokenizer` is `qwen3` or the path of a tokenizer.json".to_owned(),
            ),
            TokeniserError::OtherModel { .. } => {
                Some("name the tokenizer.json of the model under `[tokenise] tokenizer`".to_owned())
            }
            TokeniserError::ControlText { .. } => Some("use `control_text = \"drop\"`".to_owned()),
            TokeniserError::BuiltInDamaged | TokeniserError::Offsets { .. } | TokeniserError::Engine { .. } => None,
        }
    }
}

/// Tokens that a format writes, each of which must be one token.
fn needs(format: TextFormat) -> &'static [&'static str] {
    match format {
        TextFormat::Qwen3 | TextFormat::Qwen3Thinking2507 => {
            &["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
        }
        TextFormat::Qwen3Instruct2507 => &["<|im_start|>", "<|im_end|>"],
        TextFormat::Qwen35 | TextFormat::Qwen36 => {
            &["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
        }
        TextFormat::Text | TextFormat::Template => &[],
    }
}

/// Whether a tokenizer fits the format; gives what ends a plain document.
fn fitting(
    choice: TokeniserChoice,
    path: &Path,
    has: impl Fn(&str) -> bool,
) -> Result<String, TokeniserError> {
    let missing = |token: &str| TokeniserError::DoesNotFit {
        path: path.to_path_buf(),
        format: choice.format.name(),
        token: token.to_owned(),
    };
    if let Some(token) = needs(choice.format).iter().find(|token| !has(token)) {
        return Err(missing(token));
    }
    match choice.end_of_text {
        Some(token) if has(token) => Ok(token.to_owned()),
        Some(token) => Err(missing(token)),
        None => {
            let found = ENDS_OF_TEXT.iter().find(|token| has(token));
            found.map(|token| (*token).to_owned()).ok_or_else(|| missing("<|endoftext|>"))
        }
    }
}

impl Tokeniser {
    /// The built-in Qwen3 tokeniser.
    ///
    /// # Errors
    /// A damaged binary.
    pub fn built_in() -> Result<Self, TokeniserError> {
        let ranks = qwen3::ranks()?;
        Ok(Tokeniser {
            name: BUILT_IN.to_owned(),
            digest: qwen3::digest(&ranks),
            vocabulary_size: (ranks.len() + qwen3::ADDED.len()) as u64,
            end_of_text: "<|endoftext|>".to_owned(),
            engine: Engine::Fast(ranks),
        })
    }

    /// The tokeniser of a recipe: the built-in one by name or by the digest of its file, or any
    /// other `tokenizer.json`.
    ///
    /// # Errors
    /// A file that cannot be read, or whose tokens do not fit the format.
    pub fn load(choice: TokeniserChoice) -> Result<Self, TokeniserError> {
        if choice.tokenizer == BUILT_IN {
            return Self::built_in_for(choice, PathBuf::from(BUILT_IN));
        }
        let path = choice.base.join(choice.tokenizer);
        let bytes =
            std::fs::read(&path).map_err(|source| TokeniserError::Read { path: path.clone(), source })?;
        let digest = potable_manifests::sha256_hex(&bytes);
        if digest == qwen3::TOKENIZER_JSON_SHA256 {
            return Self::built_in_for(choice, path);
        }
        let engine = ReferenceEncoder::load(&path, &bytes)?;
        let end_of_text = fitting(choice, &path, |token| engine.added().contains_key(token))?;
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Tokeniser {
            name,
            digest,
            vocabulary_size: engine.vocabulary_size(),
            end_of_text,
            engine: Engine::Reference(Box::new(engine)),
        })
    }

    /// Under the name of the model that it belongs to; the built-in one keeps its own.
    pub fn named(mut self, name: String) -> Self {
        if matches!(self.engine, Engine::Reference(_)) {
            self.name = name;
        }
        self
    }

    fn built_in_for(choice: TokeniserChoice, path: PathBuf) -> Result<Self, TokeniserError> {
        if matches!(choice.format, TextFormat::Qwen35 | TextFormat::Qwen36) {
            let name = path.display().to_string();
            return Err(TokeniserError::OtherModel { name, format: choice.format.name() });
        }
        let end_of_text = fitting(choice, &path, |token| qwen3::ADDED.contains(&token))?;
        Ok(Tokeniser { end_of_text, ..Self::built_in()? })
    }

    /// The control string that ends a plain document.
    pub fn end_of_text(&self) -> &str {
        &self.end_of_text
    }

    /// Makes what encoding needs, about half a second of work, so that many threads do not all do it with
    /// their first text.
    ///
    /// # Errors
    /// A damaged binary.
    pub fn prepare(&self) -> Result<(), TokeniserError> {
        match &self.engine {
            Engine::Fast(ranks) => fast(ranks).map(|_| ()),
            Engine::Reference(_) => Ok(()),
        }
    }

    /// Encodes a sample.
    ///
    /// # Errors
    /// Offsets that do not add up, or what the engine says.
    pub fn encode(
        &self,
        sample: &RenderedSample,
        control_text: ControlText,
    ) -> Result<TokenisedSample, TokeniserError> {
        let encoded = match &self.engine {
            Engine::Fast(ranks) => fast(ranks)?.encode(sample, control_text)?,
            Engine::Reference(engine) => engine.encode(sample, control_text)?,
        };
        Ok(encoded.finish(sample.turn, sample.document))
    }

    /// Ids of a text by the built-in engine alone: no normal form, nothing that is trained on. It is what
    /// the cost of [`Tokeniser::encode`] is measured by.
    ///
    /// # Errors
    /// What the engine says; another tokenizer.
    pub fn engine_ids(&self, text: &str) -> Result<Vec<u32>, TokeniserError> {
        let reason = |reason: String| TokeniserError::Engine { reason };
        match &self.engine {
            Engine::Fast(ranks) => fast(ranks)?.engine().encode(text).map_err(|e| reason(e.to_string())),
            Engine::Reference(_) => Err(reason("is not the built-in one".to_owned())),
        }
    }

    /// The text of ids, control tokens included; bytes that are no UTF-8 on their own read as
    /// U+FFFD.
    ///
    /// # Errors
    /// What the engine says.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokeniserError> {
        match &self.engine {
            Engine::Reference(engine) => engine.decode(ids),
            Engine::Fast(ranks) => Ok(qwen3::decode(ranks, ids)),
        }
    }

    /// Strings that the tokenizer turns into control tokens: its special tokens and all `<|…|>`. The
    /// XML-like ones (`<think>`, …) are how rows are written and do not count.
    pub fn control_strings(&self) -> Vec<String> {
        match &self.engine {
            Engine::Fast(..) => qwen3::control_strings(),
            Engine::Reference(engine) => engine.control_strings(),
        }
    }

    /// Name for the manifest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 in hex: of the `tokenizer.json`, or of the built-in vocabulary.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Size of the vocabulary, added tokens among it.
    pub fn vocabulary_size(&self) -> u64 {
        self.vocabulary_size
    }

    /// The engine and its version, for the manifest.
    pub fn engine(&self) -> &'static str {
        match self.engine {
            Engine::Fast(..) => "fastokens 0.3.5",
            Engine::Reference(_) => "tokenizers 0.23.2",
        }
    }
}
