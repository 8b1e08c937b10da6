//! Rows to conversations, by a mapping.

pub mod columns;
pub mod conversation;
pub mod mapping;
pub mod messages;

pub use conversation::{Adapted, Conversation, Document, Message, Role, ToolCall};
pub use mapping::{ColumnPath, Mapping, MappingError, MappingFile, MappingKind};

use std::collections::BTreeMap;

use super::cell::Cell;
use super::python_json::to_python_json;
use crate::run::reason::DropReason;

/// What became of a row: the next stage's input, or the reason why there is none.
/// An error is neither: the row could not be read.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<T> {
    /// On to the next stage.
    Keep(T),
    /// Dropped.
    Drop(DropReason),
}

impl Mapping {
    /// Turns the wanted columns of a row into a conversation or a document. `system` is the recipe's
    /// own system text, used where the row has none.
    ///
    /// # Errors
    /// A column of the wrong type: the reason, naming the column and what it holds.
    pub fn adapt(&self, mut cells: Vec<Cell>, system: Option<&str>) -> Result<Outcome<Adapted>, String> {
        let mut conversation = match &self.kind {
            MappingKind::Text { column, remove } => return text(take(&mut cells, column), column, remove),
            MappingKind::Transcript { column, fields, labels } => {
                return Ok(match messages::adapt(take(&mut cells, column), column, fields)? {
                    Outcome::Keep(conversation) => transcript(&conversation, labels),
                    Outcome::Drop(reason) => Outcome::Drop(reason),
                });
            }
            MappingKind::Messages { column, fields, answer } => {
                let mut conversation = match messages::adapt(take(&mut cells, column), column, fields)? {
                    Outcome::Keep(conversation) => conversation,
                    Outcome::Drop(reason) => return Ok(Outcome::Drop(reason)),
                };
                if let Some(path) = answer {
                    match take(&mut cells, path) {
                        Cell::Text(text) => {
                            conversation.messages.push(Message::new(Role::Assistant, text));
                        }
                        Cell::Null => return Ok(Outcome::Drop(DropReason::SourceNoResponse)),
                        other => return Err(wrong_type(path, "text", &other)),
                    }
                }
                conversation
            }
            MappingKind::Columns(mapping) => match columns::adapt(&mut cells, mapping)? {
                Outcome::Keep(conversation) => conversation,
                Outcome::Drop(reason) => return Ok(Outcome::Drop(reason)),
            },
        };
        if self.lacks_mark(&conversation) {
            return Ok(Outcome::Drop(DropReason::SourceNoTags));
        }
        if let Some(tags) = &self.tags {
            for message in conversation.messages.iter_mut().filter(|m| m.role == Role::Assistant) {
                if !columns::apply_tags(message, tags) {
                    return Ok(Outcome::Drop(DropReason::SourceNoTags));
                }
            }
        }
        let loses = self.lost.iter().any(|path| !is_empty(&take(&mut cells, path)));
        if let Some(message) = conversation.messages.last_mut() {
            message.lossy |= loses;
        }
        self.add_system(&mut conversation, &mut cells, system)?;
        if let Some(path) = &self.tools {
            let column = tools(&take(&mut cells, path), path)?;
            if !column.is_empty() {
                let others = !conversation.tools.is_empty() && conversation.tools != column;
                if let Some(message) = conversation.messages.last_mut() {
                    message.lossy |= others;
                }
                conversation.tools = column;
            }
        }
        Ok(Outcome::Keep(Adapted::Chat(conversation)))
    }

    /// Whether the last assistant turn has not the mark that it must hold.
    fn lacks_mark(&self, conversation: &Conversation) -> bool {
        let Some(mark) = &self.require else { return false };
        let last = conversation.messages.iter().rev().find(|m| m.role == Role::Assistant);
        !last.is_some_and(|message| message.text().contains(mark.as_str()))
    }

    /// The row's system column stands before a system message of the row; the recipe's text is only
    /// used where there is neither.
    fn add_system(
        &self,
        conversation: &mut Conversation,
        cells: &mut [Cell],
        recipe: Option<&str>,
    ) -> Result<(), String> {
        let column = match &self.system {
            None => None,
            Some(path) => match take(cells, path) {
                Cell::Null => None,
                Cell::Text(text) => Some(text).filter(|text| !text.trim().is_empty()),
                other => return Err(wrong_type(path, "text", &other)),
            },
        };
        let first = conversation.messages.first_mut().filter(|m| m.role == Role::System);
        match (column, first) {
            (Some(text), Some(message)) => {
                let joined = format!("{text}\n\n{}", message.text());
                message.content = Some(joined);
            }
            (Some(text), None) => conversation.messages.insert(0, Message::new(Role::System, text)),
            (None, Some(_)) => {}
            (None, None) => {
                if let Some(text) = recipe {
                    conversation.messages.insert(0, Message::new(Role::System, text));
                }
            }
        }
        Ok(())
    }

    /// The columns that must be there.
    pub fn required_columns(&self) -> &[String] {
        self.columns.get(..self.required).unwrap_or(&self.columns)
    }
}

/// Takes the value of a column path out of a row.
pub(super) fn take(cells: &mut [Cell], path: &ColumnPath) -> Cell {
    cells.get_mut(path.index).map(|cell| cell.take_path(&path.fields)).unwrap_or_default()
}

/// Whether a value holds nothing: null, blank text, no element, no field that holds anything.
pub(super) fn is_empty(cell: &Cell) -> bool {
    match cell {
        Cell::Null => true,
        Cell::Text(text) => text.trim().is_empty(),
        Cell::List(items) => items.iter().all(is_empty),
        Cell::Struct(fields) => fields.iter().all(|(_, value)| is_empty(value)),
        _ => false,
    }
}

/// The reason for a value of the wrong type.
pub(super) fn wrong_type(path: &ColumnPath, wanted: &str, found: &Cell) -> String {
    format!("column `{}` is {}, not {wanted}", path.name, found.kind())
}

fn text(cell: Cell, path: &ColumnPath, remove: &[(String, String)]) -> Result<Outcome<Adapted>, String> {
    match cell {
        Cell::Text(mut text) => {
            for (open, close) in remove {
                text = columns::cut_spans(&text, open, close);
            }
            Ok(document(text))
        }
        Cell::Null => Ok(Outcome::Drop(DropReason::SourceEmptyRow)),
        other => Err(wrong_type(path, "text", &other)),
    }
}

fn document(text: String) -> Outcome<Adapted> {
    match text.trim().is_empty() {
        true => Outcome::Drop(DropReason::SourceEmptyRow),
        false => Outcome::Keep(Adapted::Document(Document { text })),
    }
}

/// The texts of all messages, a blank line between them; what is no text would be lost.
fn transcript(conversation: &Conversation, labels: &BTreeMap<String, String>) -> Outcome<Adapted> {
    let mut parts = Vec::new();
    if !conversation.tools.is_empty() {
        return Outcome::Drop(DropReason::NormaliseLossy);
    }
    for message in &conversation.messages {
        if message.lossy || !message.tool_calls.is_empty() {
            return Outcome::Drop(DropReason::NormaliseLossy);
        }
        let texts = message.reasoning.iter().chain(&message.content).filter(|text| !text.trim().is_empty());
        let texts: Vec<&str> = texts.map(String::as_str).collect();
        if !texts.is_empty() {
            let label = labels.get(message.role.name()).map_or("", String::as_str);
            parts.push(format!("{label}{}", texts.join("\n\n")));
        }
    }
    document(parts.join("\n\n"))
}

fn tools(cell: &Cell, path: &ColumnPath) -> Result<Vec<String>, String> {
    match (tools_of(cell), cell) {
        (Some(tools), _) => Ok(tools),
        (None, Cell::Text(_)) => Err(format!("column `{}` is text, but not JSON tools", path.name)),
        (None, other) => Err(wrong_type(path, "a list of tools", other)),
    }
}

/// Tools as JSON texts: from a list of structs, a list of JSON texts, or one JSON text of a list; nothing
/// where it is none of these.
pub(super) fn tools_of(cell: &Cell) -> Option<Vec<String>> {
    match cell {
        Cell::Null => Some(Vec::new()),
        Cell::Text(text) if text.trim().is_empty() => Some(Vec::new()),
        Cell::Text(text) => match serde_json::from_str::<Cell>(text).ok()? {
            Cell::List(items) => Some(items.iter().map(to_python_json).collect()),
            Cell::Null => Some(Vec::new()),
            tool @ Cell::Struct(_) => Some(vec![to_python_json(&tool)]),
            _ => None,
        },
        Cell::List(items) => {
            let tool = |item: &Cell| match item {
                Cell::Text(text) => match serde_json::from_str::<Cell>(text) {
                    Ok(tool @ Cell::Struct(_)) => to_python_json(&tool),
                    _ => to_python_json(item),
                },
                tool => to_python_json(tool),
            };
            Some(items.iter().filter(|item| **item != Cell::Null).map(tool).collect())
        }
        _ => None,
    }
}
