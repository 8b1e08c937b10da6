//! One assistant turn, taken apart as the template of a format takes it apart, and what is lost by
//! that.

use memchr::memmem;

use super::python;
use crate::source::adapt::Message;

/// An assistant message in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn<'a> {
    /// The reasoning as the template finds it; empty where there is none.
    pub reasoning: &'a str,
    /// The answer.
    pub answer: &'a str,
    /// What is wrong with the message.
    pub fault: Option<Fault>,
}

/// What is wrong with an assistant message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Text would be lost, or reasoning would stand twice.
    Lossy,
    /// Reasoning is opened and never closed.
    Unclosed,
    /// Both.
    Both,
}

impl Fault {
    fn of(lossy: bool, unclosed: bool) -> Option<Fault> {
        match (lossy, unclosed) {
            (true, true) => Some(Fault::Both),
            (true, false) => Some(Fault::Lossy),
            (false, true) => Some(Fault::Unclosed),
            (false, false) => None,
        }
    }

    /// Whether text would be lost, or reasoning would stand twice.
    pub fn is_lossy(self) -> bool {
        self != Fault::Unclosed
    }

    /// Whether reasoning is opened and never closed.
    pub fn is_unclosed(self) -> bool {
        self != Fault::Lossy
    }
}

/// How a format takes a turn apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parting {
    /// No reasoning: the text is the answer, a reasoning field is lost.
    Plain,
    /// At the think tags.
    Tags,
    /// At the think tags, white space round text and reasoning stripped.
    TrimmedTags,
}

/// An answer without the lines of white space at its start; nothing of an answer that is white space,
/// since a newline and a call of a tool may follow. The tokenizer makes one token of the newline before
/// an answer and of white space that ends in a newline: trained on, that token would bring what stands
/// before the answer into the loss.
pub(super) fn after_newlines(answer: &str) -> &str {
    let body = answer.trim_start();
    let lead = answer.get(..answer.len() - body.len()).unwrap_or_default();
    let end = if body.is_empty() { answer.len() } else { lead.rfind(['\n', '\r']).map_or(0, |at| at + 1) };
    answer.get(end..).unwrap_or_default()
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Whether a mark is in a text. The marks are looked for in every text, by a search that is several times
/// faster than that of `str`.
fn has(text: &str, mark: &str) -> bool {
    memmem::find(text.as_bytes(), mark.as_bytes()).is_some()
}

/// What stands before and after the first mark.
fn split_first<'t>(text: &'t str, mark: &str) -> Option<(&'t str, &'t str)> {
    let at = memmem::find(text.as_bytes(), mark.as_bytes())?;
    Some((text.get(..at)?, text.get(at + mark.len()..)?))
}

/// What stands before and after the last mark: searching forward is the faster way.
fn split_last<'t>(text: &'t str, mark: &str) -> Option<(&'t str, &'t str)> {
    let at = memmem::find_iter(text.as_bytes(), mark.as_bytes()).last()?;
    Some((text.get(..at)?, text.get(at + mark.len()..)?))
}

impl<'a> Turn<'a> {
    /// Takes a message apart by rule 5 of the template: with a reasoning field, that and the whole
    /// text; else at `</think>`: reasoning is what stands before the first one and after the last
    /// `<think>` there, the answer what stands after the last one.
    pub fn of(message: &'a Message, parting: Parting) -> Turn<'a> {
        match parting {
            Parting::Plain => {
                let loses = message.reasoning.as_deref().is_some_and(|text| !text.trim().is_empty());
                let fault = (loses || message.lossy).then_some(Fault::Lossy);
                Turn { reasoning: "", answer: message.text(), fault }
            }
            Parting::Tags => Turn::at_tags(message, message.text()),
            Parting::TrimmedTags => {
                let turn = Turn::at_tags(message, python::strip(message.text()));
                Turn { reasoning: python::strip(turn.reasoning), ..turn }
            }
        }
    }

    fn at_tags(message: &'a Message, text: &'a str) -> Turn<'a> {
        if let Some(reasoning) = message.reasoning.as_deref() {
            let doubled = has(text, CLOSE) || has(text, OPEN);
            let marked = has(reasoning, CLOSE) || has(reasoning, OPEN);
            let fault = (doubled || marked || message.lossy).then_some(Fault::Lossy);
            return Turn { reasoning, answer: text, fault };
        }
        let Some((before, _)) = split_first(text, CLOSE) else {
            let fault = match has(text, OPEN) {
                true => Some(Fault::Unclosed),
                false => message.lossy.then_some(Fault::Lossy),
            };
            return Turn { reasoning: "", answer: text, fault };
        };
        let trimmed = before.trim_end_matches('\n');
        let (lead, reasoning) = split_last(trimmed, OPEN).unwrap_or(("", trimmed));
        let (middle, answer) = split_last(text, CLOSE).unwrap_or(("", text));
        // `middle` is all before the last mark; it is longer than `before` if there are several.
        let between = middle.len() > before.len();
        let lossy = !lead.trim().is_empty() || between || message.lossy;
        Turn {
            reasoning: reasoning.trim_start_matches('\n'),
            answer: answer.trim_start_matches('\n'),
            fault: Fault::of(lossy, has(answer, OPEN)),
        }
    }

    /// A message whose think block was never closed, with the block closed behind all that there is and
    /// no answer. Lossy if text stands before the block, or if another one was closed before it.
    pub fn closed(message: &'a Message, parting: Parting) -> Turn<'a> {
        let text = message.text();
        let (before, reasoning) = match split_last(text, CLOSE) {
            // All up to the block that is open is lost: there is one block to a turn.
            Some((_, rest)) => (text, split_first(rest, OPEN).map_or("", |(_, reasoning)| reasoning)),
            None => split_first(text, OPEN).unwrap_or(("", text)),
        };
        let lossy = message.lossy || !before.trim().is_empty();
        let reasoning = match parting {
            Parting::TrimmedTags => python::strip(reasoning),
            Parting::Plain | Parting::Tags => reasoning.trim_start_matches('\n'),
        };
        Turn { reasoning, answer: "", fault: lossy.then_some(Fault::Lossy) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::adapt::Role;

    fn fault(text: &str) -> Option<Fault> {
        Turn::of(&Message::new(Role::Assistant, text), Parting::Tags).fault
    }

    #[test]
    fn names_what_would_be_lost() {
        assert_eq!(fault("<think>\na\n</think>\n\nb"), None);
        assert_eq!(fault("a\n</think>\n\nb"), None);
        assert_eq!(fault("b"), None);
        assert_eq!(fault("Sure! <think>a</think>b"), Some(Fault::Lossy));
        assert_eq!(fault("<think>a</think>b</think>c"), Some(Fault::Lossy));
        assert_eq!(fault("<think>a</think>b<think>c"), Some(Fault::Unclosed));
        assert_eq!(fault("<think>a"), Some(Fault::Unclosed));
    }

    #[test]
    fn closes_the_last_block_and_names_what_that_loses() {
        let closed = |text: &str| {
            let message = Message::new(Role::Assistant, text);
            let turn = Turn::closed(&message, Parting::Tags);
            (turn.reasoning.to_owned(), turn.fault)
        };
        assert_eq!(closed("<think>\ncut"), ("cut".to_owned(), None));
        assert_eq!(closed(" <think>a<think>b"), ("a<think>b".to_owned(), None));
        assert_eq!(closed("Sure. <think>\ncut"), ("cut".to_owned(), Some(Fault::Lossy)));
        assert_eq!(closed("<think>a</think>b<think>c"), ("c".to_owned(), Some(Fault::Lossy)));
        assert_eq!(closed("<think>a</think><think>b"), ("b".to_owned(), Some(Fault::Lossy)));
    }

    #[test]
    fn a_format_without_reasoning_keeps_tags_as_text_and_loses_the_field() {
        let tagged = Message::new(Role::Assistant, "<think>a</think>b");
        let turn = Turn::of(&tagged, Parting::Plain);
        assert_eq!((turn.answer, turn.fault), ("<think>a</think>b", None));
        let field = Message { reasoning: Some("a".to_owned()), ..Message::new(Role::Assistant, "b") };
        assert_eq!(Turn::of(&field, Parting::Plain).fault, Some(Fault::Lossy));
    }
}
