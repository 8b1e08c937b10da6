//! Rows that hold a list of messages.

use super::conversation::{Conversation, Message, Role, ToolCall};
use super::mapping::{ColumnPath, MessageFields};
use super::{Outcome, is_empty, wrong_type};
use crate::run::reason::DropReason;
use crate::source::cell::Cell;
use crate::source::python_json::to_python_json;

/// Reads the messages of a row.
///
/// # Errors
/// What is no list of messages.
pub fn adapt(cell: Cell, path: &ColumnPath, fields: &MessageFields) -> Result<Outcome<Conversation>, String> {
    let items = match cell {
        Cell::Null => return Ok(Outcome::Drop(DropReason::SourceEmptyRow)),
        Cell::List(items) => items,
        Cell::Text(text) => match serde_json::from_str::<Cell>(&text) {
            Ok(Cell::List(items)) => items,
            _ => return Err(format!("column `{}` is text, but not a JSON list of messages", path.name)),
        },
        other => return Err(wrong_type(path, "a list of messages", &other)),
    };
    if items.is_empty() {
        return Ok(Outcome::Drop(DropReason::SourceEmptyRow));
    }
    let mut messages = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let message = message(item, fields)
            .map_err(|reason| format!("message {index} of `{}`: {reason}", path.name))?;
        messages.push(message);
    }
    Ok(Outcome::Keep(Conversation { messages, tools: Vec::new() }))
}

fn message(mut item: Cell, fields: &MessageFields) -> Result<Message, String> {
    if !matches!(item, Cell::Struct(_)) {
        return Err(format!("is {}, not a struct of role and content", item.kind()));
    }
    let role = match find(&item, &fields.role).and_then(Cell::text) {
        Some(name) => Role::from_name(fields.roles.get(name).map_or(name, String::as_str)),
        None => return Err(format!("has no role (looked for {})", fields.role.join(", "))),
    };
    let tool_calls = match item.field("tool_calls") {
        None | Some(Cell::Null) => Vec::new(),
        Some(Cell::List(calls)) => calls.iter().map(tool_call).collect::<Result<_, _>>()?,
        Some(other) => return Err(format!("`tool_calls` is {}, not a list", other.kind())),
    };
    let (reasoning, mut lossy) = reasoning(&mut item, &fields.reasoning)?;
    let there = |name: &&String| item.field(name).is_some();
    let full = |name: &&String| item.field(name).is_some_and(|value| *value != Cell::Null);
    let content = match fields.content.iter().find(full).or_else(|| fields.content.iter().find(there)) {
        None if tool_calls.is_empty() && reasoning.is_none() => {
            return Err(format!("has no text (looked for {})", fields.content.join(", ")));
        }
        None => None,
        Some(name) => match item.take_path(std::slice::from_ref(name)) {
            Cell::Text(text) => Some(text),
            Cell::Null => None,
            Cell::List(parts) => {
                let text = text_parts(&parts);
                lossy |= text.is_none();
                text
            }
            other => return Err(format!("`{name}` is {}, not text", other.kind())),
        },
    };
    Ok(Message { role, content, reasoning, tool_calls, lossy })
}

/// The first reasoning that is not blank, and whether there is other reasoning beside it, which would
/// be lost. The first path has to hold text; the others are names that may mean something else.
fn reasoning(item: &mut Cell, paths: &[Vec<String>]) -> Result<(Option<String>, bool), String> {
    let (mut found, mut lossy) = (None::<String>, false);
    for (number, path) in paths.iter().enumerate() {
        match item.take_path(path) {
            Cell::Text(text) => match &found {
                Some(first) if !first.trim().is_empty() => {
                    lossy |= !text.trim().is_empty() && text.trim() != first.trim();
                }
                Some(_) if text.trim().is_empty() => {}
                _ => found = Some(text),
            },
            Cell::Null => {}
            other if number == 0 => {
                return Err(format!("`{}` is {}, not text", path.join("."), other.kind()));
            }
            Cell::Bool(_) | Cell::Int(_) | Cell::UInt(_) | Cell::Float(_) => {}
            other => lossy |= !is_empty(&other),
        }
    }
    Ok((found, lossy))
}

fn find<'a>(item: &'a Cell, names: &[String]) -> Option<&'a Cell> {
    names.iter().filter_map(|name| item.field(name)).find(|value| **value != Cell::Null)
}

/// The text of content parts, if all of them are text.
fn text_parts(parts: &[Cell]) -> Option<String> {
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part.field("text").and_then(Cell::text)).collect();
    texts.map(|texts| texts.concat())
}

fn tool_call(call: &Cell) -> Result<ToolCall, String> {
    let inner = match call.field("function") {
        Some(function @ Cell::Struct(_)) => function,
        _ => call,
    };
    let name = inner.field("name").and_then(Cell::text);
    let name = name.ok_or_else(|| "a tool call has no name".to_owned())?.to_owned();
    let arguments = match inner.field("arguments") {
        Some(Cell::Text(text)) => text.clone(),
        Some(other) => to_python_json(other),
        None => "{}".to_owned(),
    };
    Ok(ToolCall { name, arguments })
}
