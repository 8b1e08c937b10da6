//! What to do where the field disagrees: every option of `[normalise]`, its default, and what the
//! manifest says of it. The defaults follow docs/ARCHITECTURE.md, `normalise`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }

        impl $name {
            /// The word in recipes and manifests.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

choice! {
    /// The text format of chat rows.
    TextFormat {
        /// Qwen3 (hybrid).
        Qwen3 = "qwen3",
        /// Qwen3-Thinking-2507: the text of Qwen3, and a prompt that opens the think block.
        Qwen3Thinking2507 = "qwen3-thinking-2507",
        /// Qwen3-Instruct-2507: no reasoning.
        Qwen3Instruct2507 = "qwen3-instruct-2507",
        /// Qwen3.5.
        Qwen35 = "qwen3.5",
        /// Qwen3.6.
        Qwen36 = "qwen3.6",
        /// The chat template of a model repository, named by `template`.
        Template = "template",
        /// Plain documents only; a chat row is an error of the recipe.
        Text = "text",
    }
}
choice! {
    /// Reasoning of turns before the last user query.
    History {
        /// As the official template renders it: stripped.
        Template = "template",
        /// One sample an assistant turn, each rendered as inference would see it.
        Unroll = "unroll",
        /// Reasoning of all turns in one sample, all of them trained on.
        Keep = "keep",
    }
}
choice! {
    /// Which assistant turns are trained on.
    Train {
        /// Those after the last user query.
        LastTurns = "last-turns",
        /// All of them.
        AllTurns = "all-turns",
    }
}
choice! {
    /// The empty think block of an answer without reasoning.
    EmptyThink {
        /// There, not trained on: inference puts it in the prompt.
        Mask = "mask",
        /// There, trained on.
        Train = "train",
        /// Not there.
        Omit = "omit",
        /// The row is dropped.
        Drop = "drop",
    }
}
choice! {
    /// Text that the template would lose.
    OnLossy {
        /// The row is dropped.
        Drop = "drop",
        /// The row is kept, the text is lost.
        Keep = "keep",
    }
}
choice! {
    /// Reasoning that is opened and never closed.
    OnUnclosed {
        /// The row is dropped.
        Drop = "drop",
        /// The reasoning is closed; the answer stays empty.
        Close = "close",
        /// As the template: it is the answer's text.
        Keep = "keep",
    }
}
choice! {
    /// Control strings (`<|im_end|>` and the like) in the text of rows.
    ControlText {
        /// The row is dropped.
        Drop = "drop",
        /// They are encoded as plain text.
        Text = "text",
        /// They become control tokens, as the tokenizer does.
        Keep = "keep",
    }
}
choice! {
    /// Newlines at the start of an answer.
    LeadingNewlines {
        /// Stripped.
        Strip = "strip",
        /// Kept, where the template keeps them.
        Keep = "keep",
    }
}

/// The options of `[normalise]`, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The text format.
    pub format: TextFormat,
    /// Earlier turns' reasoning.
    pub history: History,
    /// Trained turns.
    pub train: Train,
    /// Empty think blocks.
    pub empty_think: EmptyThink,
    /// Text that would be lost.
    pub on_lossy: OnLossy,
    /// Reasoning cut off.
    pub on_unclosed: OnUnclosed,
    /// Control strings.
    pub control_text: ControlText,
    /// Newlines before an answer.
    pub leading_newlines: LeadingNewlines,
    /// Whether the newline after a turn's end is trained on.
    pub train_newline: bool,
    /// Whether think blocks are there and not trained on.
    pub mask_reasoning: bool,
    /// Whether rows without an assistant or a user turn, and answers without text, are dropped.
    pub drop_unanswered: bool,
}

impl Policy {
    /// potable's defaults.
    pub const DEFAULT: Policy = Policy {
        format: TextFormat::Qwen3,
        history: History::Template,
        train: Train::LastTurns,
        empty_think: EmptyThink::Mask,
        on_lossy: OnLossy::Drop,
        on_unclosed: OnUnclosed::Drop,
        control_text: ControlText::Drop,
        leading_newlines: LeadingNewlines::Strip,
        train_newline: false,
        mask_reasoning: false,
        drop_unanswered: true,
    };

    /// What the official template and the whole-body mask do, whatever they lose.
    pub const FAITHFUL: Policy = Policy {
        format: TextFormat::Qwen3,
        history: History::Template,
        train: Train::AllTurns,
        empty_think: EmptyThink::Train,
        on_lossy: OnLossy::Keep,
        on_unclosed: OnUnclosed::Keep,
        control_text: ControlText::Keep,
        leading_newlines: LeadingNewlines::Keep,
        train_newline: false,
        mask_reasoning: false,
        drop_unanswered: false,
    };

    /// Keys of `[normalise]` that have no meaning in this format, so that a recipe which sets one is
    /// refused instead of ignored.
    pub fn meaningless(format: TextFormat) -> &'static [&'static str] {
        match format {
            TextFormat::Qwen3Instruct2507 => &["empty_think", "on_unclosed", "mask_reasoning"],
            TextFormat::Template => &["empty_think", "on_unclosed", "mask_reasoning"],
            _ => &[],
        }
    }

    /// The policy by key and word, for the manifest; keys without a meaning in the format are not
    /// among them, and `mask_reasoning` only where it is set, so that older digests stay.
    pub fn record(&self) -> BTreeMap<String, String> {
        let flag = |value: bool| if value { "true" } else { "false" };
        let mut record: BTreeMap<String, String> = [
            ("format", self.format.name()),
            ("history", self.history.name()),
            ("train", self.train.name()),
            ("empty_think", self.empty_think.name()),
            ("on_lossy", self.on_lossy.name()),
            ("on_unclosed", self.on_unclosed.name()),
            ("control_text", self.control_text.name()),
            ("leading_newlines", self.leading_newlines.name()),
            ("train_newline", flag(self.train_newline)),
            ("drop_unanswered", flag(self.drop_unanswered)),
        ]
        .into_iter()
        .map(|(key, word)| (key.to_owned(), word.to_owned()))
        .collect();
        if self.mask_reasoning {
            record.insert("mask_reasoning".to_owned(), "true".to_owned());
        }
        record.retain(|key, _| !Policy::meaningless(self.format).contains(&key.as_str()));
        record
    }
}
