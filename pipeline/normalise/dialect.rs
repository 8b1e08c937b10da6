//! In what the native formats differ: the rules of their templates, by name.

use super::calls::Scalars;
use super::policy::TextFormat;
use super::turn::Parting;

/// The rules of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    /// How an assistant turn is taken apart.
    pub parting: Parting,
    /// How calls of tools are printed: as JSON, or as XML with these scalars.
    pub xml: Option<Scalars>,
    /// What the header of an answer is followed by in a prompt.
    pub prompt: Prompt,
}

/// What a prompt for an answer ends with, after the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Nothing; with thinking off, an empty think block.
    Bare,
    /// Nothing, ever.
    Header,
    /// The opening of a think block, ever.
    Opened,
    /// The opening of a think block; with thinking off, an empty one.
    OpenedOrEmpty,
}

impl Dialect {
    /// The rules of a format; those of Qwen3 for formats that are not native.
    pub fn of(format: TextFormat) -> Dialect {
        let qwen3 = Dialect { parting: Parting::Tags, xml: None, prompt: Prompt::Bare };
        let second = |scalars| Dialect {
            parting: Parting::TrimmedTags,
            xml: Some(scalars),
            prompt: Prompt::OpenedOrEmpty,
        };
        match format {
            TextFormat::Qwen3 | TextFormat::Text | TextFormat::Template => qwen3,
            TextFormat::Qwen3Thinking2507 => Dialect { prompt: Prompt::Opened, ..qwen3 },
            TextFormat::Qwen3Instruct2507 => {
                Dialect { parting: Parting::Plain, prompt: Prompt::Header, ..qwen3 }
            }
            TextFormat::Qwen35 => second(Scalars::Python),
            TextFormat::Qwen36 => second(Scalars::Json),
        }
    }

    /// Whether answers may have reasoning.
    pub fn reasons(&self) -> bool {
        self.parting != Parting::Plain
    }

    /// Whether the rules are those of Qwen3.5 and later: white space round texts is stripped, every
    /// answer after the last query has a think block, and what has no place is refused.
    pub fn is_second(&self) -> bool {
        self.xml.is_some()
    }
}
