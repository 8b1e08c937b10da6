//! Rendered text to token ids and the spans of them that are trained on.

pub mod decoder;
pub mod encoder;
pub mod offsets;
pub mod qwen3;
pub mod reference;

pub use decoder::Decoder;
pub use encoder::{Tokeniser, TokeniserChoice, TokeniserError};

use crate::normalise::{ControlText, RenderedSample};

/// One sample in ids.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TokenisedSample {
    /// The assistant turn that the sample trains (see [`RenderedSample::turn`]).
    pub turn: u32,
    /// Token ids.
    pub ids: Vec<u32>,
    /// Runs of ids to train on, as start and length in tokens: ascending, not touching.
    pub trained: Vec<(u32, u32)>,
    /// Control strings in the text that the renderer did not write. They are text with
    /// `control_text = "text"`, and tokens else.
    pub foreign: u64,
}

impl TokenisedSample {
    /// How many tokens are trained on.
    pub fn trained_tokens(&self) -> u64 {
        self.trained.iter().map(|&(_, len)| u64::from(len)).sum()
    }
}

/// An engine that turns text into ids and finds the runs of them that are trained on.
pub(crate) trait Encode: Send + Sync {
    /// Ids of a rendered text, and the runs of tokens whose bytes overlap a trained span.
    ///
    /// # Errors
    /// The engine's words.
    fn encode(&self, sample: &RenderedSample, control_text: ControlText) -> Result<Encoded, TokeniserError>;
}

/// Ids of a text.
#[derive(Default)]
pub(crate) struct Encoded {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Runs of tokens to train on (see [`TokenisedSample::trained`]).
    pub trained: Vec<(u32, u32)>,
    /// See [`TokenisedSample::foreign`].
    pub foreign: u64,
}

impl Encoded {
    /// A document's first token is not trained on: nothing comes before it to predict it from.
    pub(crate) fn finish(mut self, turn: u32, document: bool) -> TokenisedSample {
        if let Some(first) = self.trained.first_mut().filter(|run| document && run.0 == 0) {
            *first = (1, first.1 - 1);
            self.trained.retain(|run| run.1 > 0);
        }
        TokenisedSample { turn, ids: self.ids, trained: self.trained, foreign: self.foreign }
    }
}
