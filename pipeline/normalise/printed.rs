//! Whether a chat template prints what a conversation holds: every text of it gets a mark, and the marks
//! are looked for in what the template makes of it. So a text that is trimmed or escaped counts as
//! printed, and one that happens to stand elsewhere does not.

use std::collections::BTreeSet;

use crate::source::Cell;
use crate::source::adapt::{Conversation, Message, Role, ToolCall};
use crate::source::python_json::to_python_json;

/// A conversation with a numbered mark in every text that a template has to print.
pub(super) struct Marked {
    /// The conversation with the marks in it.
    pub conversation: Conversation,
    marks: (char, char),
    /// What was marked, by number.
    texts: Vec<String>,
}

impl Marked {
    /// Marks a copy of the conversation with two characters that it does not use. `takes_text` tells
    /// whether arguments that are no plain mapping reach the template as text. Reasoning before the
    /// last user turn is not marked: templates leave it out on purpose.
    pub fn new(conversation: &Conversation, marks: (char, char), takes_text: bool) -> Marked {
        let mut marked = Marked { conversation: conversation.clone(), marks, texts: Vec::new() };
        let mut copy = std::mem::take(&mut marked.conversation);
        let query = copy.messages.iter().rposition(|m| m.role == Role::User).unwrap_or(copy.messages.len());
        for tool in &mut copy.tools {
            marked.tool(tool);
        }
        for (index, message) in copy.messages.iter_mut().enumerate() {
            let reasons = message.role != Role::Assistant || index > query;
            marked.message(message, reasons);
            message.tool_calls.iter_mut().for_each(|call| marked.call(call, takes_text));
        }
        marked.conversation = copy;
        marked
    }

    /// Whether something marked is not in `text`, which the template makes of the conversation itself;
    /// `rendered` is what it makes of the marked one. Where the marks change more than themselves, the
    /// texts are looked for as they are.
    pub fn loses(&self, text: &str, rendered: Option<&str>) -> bool {
        if let Some((plain, seen)) = rendered.map(|rendered| self.without_marks(rendered))
            && plain == text
        {
            return seen.len() < self.texts.len();
        }
        let escaped = |text: &str| to_python_json(&Cell::Text(text.to_owned())).trim_matches('"').to_owned();
        !self.texts.iter().all(|wanted| text.contains(wanted.as_str()) || text.contains(&escaped(wanted)))
    }

    /// The text without marks, and the numbers of those that were in it.
    fn without_marks(&self, rendered: &str) -> (String, BTreeSet<usize>) {
        let (open, close) = self.marks;
        let (mut plain, mut seen) = (String::with_capacity(rendered.len()), BTreeSet::new());
        let mut rest = rendered;
        while let Some((before, after)) = rest.split_once(open) {
            plain.push_str(before);
            let (number, after) = after.split_once(close).unwrap_or((after, ""));
            seen.extend(number.parse::<usize>().ok());
            rest = after;
        }
        plain.push_str(rest);
        (plain, seen)
    }

    /// Marks the parts of a message's text between think tags; without `reasons`, only those that are
    /// no reasoning.
    fn message(&mut self, message: &mut Message, reasons: bool) {
        if let Some(reasoning) = message.reasoning.as_mut().filter(|_| reasons) {
            self.put(reasoning);
        }
        let Some(content) = &mut message.content else { return };
        if message.role != Role::Assistant {
            return self.put(content);
        }
        let from = match reasons {
            true => 0,
            false => content.rfind("</think>").unwrap_or_default(),
        };
        let mut text = content.get(..from).unwrap_or_default().to_owned();
        let rest = content.get(from..).unwrap_or_default();
        for closing in rest.split_inclusive("</think>") {
            for part in closing.split_inclusive("<think>") {
                let tag = ["</think>", "<think>"].into_iter().find(|tag| part.ends_with(tag)).unwrap_or("");
                let mut piece = part.strip_suffix(tag).unwrap_or(part).to_owned();
                self.put(&mut piece);
                text.push_str(&piece);
                text.push_str(tag);
            }
        }
        *content = text;
    }

    fn call(&mut self, call: &mut ToolCall, takes_text: bool) {
        self.put(&mut call.name);
        match serde_json::from_str::<Cell>(&call.arguments) {
            Ok(mut cell @ Cell::Struct(_)) if !takes_text || to_python_json(&cell) == call.arguments => {
                if let Cell::Struct(fields) = &mut cell
                    && let Some((key, _)) = fields.first_mut()
                {
                    self.put(key);
                }
                call.arguments = to_python_json(&cell);
            }
            _ => self.put(&mut call.arguments),
        }
    }

    /// Marks name and description of a tool.
    fn tool(&mut self, tool: &mut String) {
        let Ok(mut cell) = serde_json::from_str::<Cell>(tool) else { return self.put(tool) };
        let has_inner = matches!(cell.field("function"), Some(Cell::Struct(_)));
        let function = match (&mut cell, has_inner) {
            (Cell::Struct(fields), true) => {
                fields.iter_mut().find(|(key, _)| key == "function").map(|(_, value)| value)
            }
            (cell, _) => Some(cell),
        };
        match function {
            Some(Cell::Struct(fields)) => {
                for (_, value) in fields.iter_mut().filter(|(key, _)| key == "name" || key == "description") {
                    if let Cell::Text(text) = value {
                        self.put(text);
                    }
                }
            }
            Some(Cell::Text(text)) => self.put(text),
            _ => {}
        }
        *tool = to_python_json(&cell);
    }

    /// Puts the next mark into the middle of a text, so that neither end of it reads otherwise; blank
    /// text gets none.
    fn put(&mut self, text: &mut String) {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return;
        }
        let start = text.len() - text.trim_start().len();
        let middle = start + trimmed.len() / 2;
        let at = (start..=middle).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(start);
        let mark = format!("{}{}{}", self.marks.0, self.texts.len(), self.marks.1);
        self.texts.push(trimmed.to_owned());
        text.insert_str(at, &mark);
    }
}
