//! Rows that hold a list of messages.

use super::conversation::{Conversation, Message, Role, ToolCall};
use super::mapping::{ColumnPath, MessageFields};
use super::{Outcome, is_empty, tools_of, wrong_type};
use crate::run::reason::DropReason;
use crate::source::cell::Cell;
use crate::source::python_json::to_python_json;

/// Fields of a message that hold what a model would see or say, and that no template prints.
const LOST: [&str; 10] = [
    "audio",
    "documents",
    "files",
    "function_calls",
    "image",
    "images",
    "reasoning_details",
    "refusal",
    "video",
    "videos",
];

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
    let mut conversation = Conversation::default();
    for (index, item) in items.into_iter().enumerate() {
        let (message, tools) = message(item, fields)
            .map_err(|reason| format!("message {index} of `{}`: {reason}", path.name))?;
        conversation.messages.push(message);
        conversation.tools.extend(tools);
    }
    Ok(Outcome::Keep(conversation))
}

/// A message, and the tools that stand in it.
fn message(mut item: Cell, fields: &MessageFields) -> Result<(Message, Vec<String>), String> {
    if !matches!(item, Cell::Struct(_)) {
        return Err(format!("is {}, not a struct of role and content", item.kind()));
    }
    let role = match find(&item, &fields.role).and_then(Cell::text) {
        Some(name) => Role::from_name(fields.roles.get(name).map_or(name, String::as_str)),
        None => return Err(format!("has no role (looked for {})", fields.role.join(", "))),
    };
    let (tool_calls, loses_calls) = calls(&item)?;
    let (tools, loses_tools) = own_tools(&item, &role);
    let label = |name: &str| item.field(name).filter(|_| !fields.names(name)).and_then(label);
    let (name, tool_call_id) = (label("name"), label("tool_call_id"));
    let (reasoning, mut lossy) = reasoning(&mut item, &fields.reasoning)?;
    // Servers give the parts of the reasoning beside the whole.
    let explained = reasoning.as_deref().is_some_and(|text| !text.trim().is_empty());
    let told = |name: &str| fields.names(name) || (explained && name == "reasoning_details");
    let lost = LOST.iter().filter(|name| !told(name));
    lossy |= loses_calls || loses_tools || lost.filter_map(|name| item.field(name)).any(|v| !is_empty(v));
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
    Ok((Message { role, content, reasoning, tool_calls, name, tool_call_id, lossy }, tools))
}

/// The calls of a message, and whether one of another kind beside them would be lost. `function_call` is
/// how calls were written before `tool_calls`.
fn calls(item: &Cell) -> Result<(Vec<ToolCall>, bool), String> {
    let calls = match item.field("tool_calls") {
        None => Vec::new(),
        Some(cell) => call_list(cell)?,
    };
    let older = match item.field("function_call") {
        None => return Ok((calls, false)),
        Some(cell) if is_empty(cell) => return Ok((calls, false)),
        Some(Cell::Text(text)) => {
            serde_json::from_str::<Cell>(text).ok().and_then(|cell| tool_call(&cell).ok())
        }
        Some(cell) => tool_call(cell).ok(),
    };
    Ok(match (older, calls.as_slice()) {
        (Some(call), []) => (vec![call], false),
        (Some(call), [one]) => {
            let differs = call.name != one.name || call.arguments != one.arguments;
            (calls, differs)
        }
        _ => (calls, true),
    })
}

/// Calls as a list of structs or of JSON texts, or one JSON text.
fn call_list(cell: &Cell) -> Result<Vec<ToolCall>, String> {
    let parsed = |text: &str| {
        let cell = serde_json::from_str::<Cell>(text).ok();
        let cell = cell.filter(|cell| matches!(cell, Cell::List(_) | Cell::Struct(_) | Cell::Null));
        cell.ok_or_else(|| "`tool_calls` is text, but not JSON calls".to_owned())
    };
    match cell {
        Cell::Null => Ok(Vec::new()),
        Cell::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
        Cell::Text(text) => match parsed(text)? {
            call @ Cell::Struct(_) => Ok(vec![tool_call(&call)?]),
            list => call_list(&list),
        },
        Cell::List(items) => {
            let one = |item: &Cell| match item {
                Cell::Text(text) => tool_call(&parsed(text)?),
                call => tool_call(call),
            };
            items.iter().map(one).collect()
        }
        other => Err(format!("`tool_calls` is {}, not a list", other.kind())),
    }
}

/// The tools in a system message, under either name, and whether there are some that would be lost.
fn own_tools(item: &Cell, role: &Role) -> (Vec<String>, bool) {
    let there = |name: &&str| item.field(name).is_some_and(|cell| !is_empty(cell));
    let mut fields = ["tools", "functions"].into_iter().filter(there);
    let Some(name) = fields.next() else { return (Vec::new(), false) };
    let tools = item.field(name).and_then(tools_of).filter(|_| *role == Role::System);
    let lost = tools.is_none() || fields.next().is_some();
    (tools.unwrap_or_default(), lost)
}

/// A name or an id: text or a number, not blank.
fn label(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Text(text) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        Cell::Int(_) | Cell::UInt(_) => Some(to_python_json(cell)),
        _ => None,
    }
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
    Ok(ToolCall { id: call.field("id").and_then(label), name, arguments })
}
