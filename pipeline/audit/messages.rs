//! Token ids back to messages: cut at control tokens, never inside of a message, so that no n-gram
//! crosses from one message to the next, as none does in `prep`.

use crate::source::adapt::{Adapted, Conversation, Document, Message, Role, ToolCall};
use crate::tokenise::{Decoder, TokeniserError};

/// How the text of a data set is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Plain documents, each ended by a control token.
    Documents,
    /// Conversations of messages between control tokens.
    Chat,
}

impl Layout {
    /// The layout of a text format of the manifest.
    pub fn of_format(format: &str) -> Self {
        if format == "text" { Layout::Documents } else { Layout::Chat }
    }
}

/// The row that a sample's ids stand for.
///
/// # Errors
/// What the decoder says.
pub fn row_of(ids: &[u32], layout: Layout, decoder: &Decoder) -> Result<Adapted, TokeniserError> {
    match layout {
        Layout::Documents => {
            let ended = ids.last().is_some_and(|&id| decoder.is_control(id));
            let ids = ids.get(..ids.len() - usize::from(ended)).unwrap_or_default();
            Ok(Adapted::Document(Document { text: decoder.decode(ids)? }))
        }
        Layout::Chat => chat(ids, decoder),
    }
}

fn chat(ids: &[u32], decoder: &Decoder) -> Result<Adapted, TokeniserError> {
    let mut conversation = Conversation::default();
    // The role that a piece consisting of a role's name gives to the next piece.
    let mut announced: Option<Role> = None;
    let mut rest = ids;
    let mut opened = false;
    while !rest.is_empty() {
        let end = rest.iter().position(|&id| decoder.is_control(id));
        let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
        let text = decoder.decode(piece)?;
        let closed = end.is_some();
        if let Some(role) = whole_role(&text).filter(|_| opened && closed) {
            announced = Some(role);
        } else if !text.trim().is_empty() {
            let (role, body) = match announced.take() {
                Some(role) => (role, text.trim_start_matches('\n')),
                None if opened => headed(&text),
                None => (Role::User, text.as_str()),
            };
            push(&mut conversation, role, body, closed);
        }
        opened = closed;
        rest = after.get(1..).unwrap_or_default();
    }
    Ok(Adapted::Chat(conversation))
}

/// The role that a text names, if it names one and holds nothing else.
fn whole_role(text: &str) -> Option<Role> {
    let name = text.trim();
    let known = ["system", "developer", "user", "assistant", "model", "tool", "ipython", "observation"];
    known.contains(&name).then(|| match name {
        "model" => Role::Assistant,
        "ipython" | "observation" => Role::Tool,
        name => Role::from_name(name),
    })
}

/// The role in the first line of a piece, and the rest. A piece without one counts as a whole prompt:
/// rather one check too many.
fn headed(text: &str) -> (Role, &str) {
    let split = text.split_once('\n').and_then(|(line, body)| Some((whole_role(line)?, body)));
    split.unwrap_or((Role::User, text))
}

/// Adds a message as `prep` had it before it was rendered. Nothing is left out: text that has no place
/// of its own stays in the message.
fn push(conversation: &mut Conversation, role: Role, body: &str, closed: bool) {
    match role {
        Role::Assistant => conversation.messages.push(answer(body)),
        Role::User => match results(body) {
            Some(results) => {
                let results = results.into_iter().map(|text| Message::new(Role::Tool, text));
                conversation.messages.extend(results);
            }
            // The head of a message that was cut off is not the whole message.
            None if !closed => {
                conversation.messages.push(Message::new(Role::Other("cut off".to_owned()), body));
            }
            None => conversation.messages.push(Message::new(Role::User, body)),
        },
        Role::System => system(conversation, body),
        other => conversation.messages.push(Message::new(other, body)),
    }
}

/// Reasoning, text and calls of an answer.
fn answer(body: &str) -> Message {
    let mut message = Message { role: Role::Assistant, ..Message::default() };
    let mut text = body;
    if let Some(inner) = body.strip_prefix("<think>\n") {
        let (reasoning, rest) = inner.split_once("\n</think>").unwrap_or((inner, ""));
        message.reasoning = Some(reasoning.to_owned()).filter(|text| !text.trim().is_empty());
        text = rest.trim_start_matches('\n');
    }
    let mut content = text;
    if let Some(first) = text.find("<tool_call>\n") {
        let (before, calls) = text.split_at(first);
        let calls: Option<Vec<ToolCall>> = calls.split("\n<tool_call>\n").map(call).collect();
        if let Some(calls) = calls {
            message.tool_calls = calls;
            // The newline before the first call is the template's.
            content = before.strip_suffix('\n').unwrap_or(before);
        }
    }
    message.content = Some(content.to_owned());
    message
}

/// A call as the template writes it.
fn call(text: &str) -> Option<ToolCall> {
    let text = text.strip_prefix("<tool_call>\n").unwrap_or(text);
    let inner = text.strip_prefix("{\"name\": \"")?.strip_suffix("}\n</tool_call>")?;
    let (name, arguments) = inner.split_once("\", \"arguments\": ")?;
    Some(ToolCall { name: name.to_owned(), arguments: arguments.to_owned(), id: None })
}

/// Results of tools, if the message holds nothing else.
fn results(body: &str) -> Option<Vec<&str>> {
    let inner = body.trim_start_matches('\n').strip_prefix("<tool_response>\n")?;
    let inner = inner.trim_end_matches('\n').strip_suffix("\n</tool_response>")?;
    Some(inner.split("\n</tool_response>\n<tool_response>\n").collect())
}

/// The system text and the tools, each as a text of its own.
fn system(conversation: &mut Conversation, body: &str) {
    let parts = body.split_once("\n<tools>\n").and_then(|(before, rest)| {
        let (tools, after) = rest.split_once("\n</tools>")?;
        Some((before, tools, after))
    });
    let Some((before, tools, after)) = parts else {
        conversation.messages.push(Message::new(Role::System, body));
        return;
    };
    let (own, boilerplate) = before.split_once("\n\n# Tools\n").unwrap_or((before, ""));
    for text in [own, boilerplate, after].into_iter().filter(|text| !text.trim().is_empty()) {
        conversation.messages.push(Message::new(Role::System, text));
    }
    conversation.tools.extend(tools.lines().map(str::to_owned));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalise::Policy;
    use crate::normalise::native::{Ending, render};

    fn message(role: Role, text: &str) -> Message {
        Message::new(role, text)
    }

    /// Renders, encodes and takes apart again.
    fn round_trip(conversation: &Conversation) -> Conversation {
        let tokeniser = crate::tokenise::Tokeniser::built_in().unwrap();
        let sample = render(conversation, &Policy::FAITHFUL, Ending::Closed).unwrap();
        let ids = tokeniser.encode(&sample, crate::normalise::ControlText::Drop).unwrap().ids;
        match row_of(&ids, Layout::Chat, &Decoder::load(std::path::Path::new("qwen3")).unwrap()).unwrap() {
            Adapted::Chat(conversation) => conversation,
            Adapted::Document(_) => panic!("a document"),
        }
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let call = ToolCall { name: "add".to_owned(), arguments: "{\"a\": 1}".to_owned(), id: None };
        let calls =
            Message { tool_calls: vec![call.clone(), call], ..message(Role::Assistant, "Let me see.") };
        let reasoned = Message {
            reasoning: Some("One and one\n\nis two.".to_owned()),
            ..message(Role::Assistant, "Two.\n\nThat is all.")
        };
        let conversation = Conversation {
            messages: vec![
                message(Role::User, "What is 1+1?\n\nBe quick."),
                calls,
                message(Role::Tool, "2"),
                message(Role::Tool, "two"),
                reasoned,
            ],
            tools: Vec::new(),
        };
        assert_eq!(round_trip(&conversation), conversation);
    }

    #[test]
    fn tools_stand_alone() {
        let conversation = Conversation {
            messages: vec![
                message(Role::System, "You are kind."),
                message(Role::User, "Hello"),
                message(Role::Assistant, "Hi"),
            ],
            tools: vec!["{\"name\": \"a\"}".to_owned(), "{\"name\": \"b\"}".to_owned()],
        };
        let back = round_trip(&conversation);
        assert_eq!(back.tools, conversation.tools);
        assert_eq!(back.messages.first(), conversation.messages.first());
        assert!(back.messages.iter().any(|m| m.text().contains("return a json object")));
    }

    #[test]
    fn a_role_between_control_tokens_belongs_to_what_follows() {
        assert_eq!(whole_role("model"), Some(Role::Assistant));
        assert_eq!(headed("user\nHello\n"), (Role::User, "Hello\n"));
        assert_eq!(headed("Once\nupon"), (Role::User, "Once\nupon"));
    }

    #[test]
    fn what_was_cut_off_is_no_whole_prompt() {
        let decoder = Decoder::load(std::path::Path::new("qwen3")).unwrap();
        let tokeniser = crate::tokenise::Tokeniser::built_in().unwrap();
        let conversation = Conversation { messages: vec![message(Role::User, "Hello there")], tools: vec![] };
        let sample = render(&conversation, &Policy::FAITHFUL, Ending::Closed).unwrap();
        let mut ids = tokeniser.encode(&sample, crate::normalise::ControlText::Drop).unwrap().ids;
        ids.truncate(4);
        let Adapted::Chat(cut) = row_of(&ids, Layout::Chat, &decoder).unwrap() else { panic!("a document") };
        assert!(cut.strings().iter().all(|(_, _, whole)| !whole));
    }
}
