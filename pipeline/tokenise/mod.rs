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

/// An engine that turns text into ids with byte offsets.
pub(crate) trait Encode: Send + Sync {
    /// Ids of a rendered text, with the bytes that each token stands for.
    ///
    /// # Errors
    /// The engine's words.
    fn encode(&self, sample: &RenderedSample, control_text: ControlText) -> Result<Encoded, TokeniserError>;
}

/// Ids with the place of each in the text.
#[derive(Default)]
pub(crate) struct Encoded {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Start and end of each token, in bytes of the text whose spans are in `trained`.
    pub spans: Vec<(usize, usize)>,
    /// The spans to train on, in the same bytes.
    pub trained: Vec<(usize, usize)>,
    /// See [`TokenisedSample::foreign`].
    pub foreign: u64,
}

impl Encoded {
    /// A token is trained on if its bytes overlap a trained span. A document's first token is not:
    /// nothing comes before it to predict it from.
    pub(crate) fn finish(self, turn: u32, document: bool) -> TokenisedSample {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut spans = self.trained.iter().peekable();
        for (index, &(start, end)) in self.spans.iter().enumerate() {
            while spans.next_if(|span| span.1 <= start).is_some() {}
            let overlaps = spans.peek().is_some_and(|span| span.0 < end && start < span.1);
            if !overlaps || (document && index == 0) {
                continue;
            }
            let index = index as u32;
            match runs.last_mut() {
                Some(run) if run.0 + run.1 == index => run.1 += 1,
                _ => runs.push((index, 1)),
            }
        }
        TokenisedSample { turn, ids: self.ids, trained: runs, foreign: self.foreign }
    }
}
