//! A mapping says how a row becomes a conversation. It is data: a user maps a new corpus in the
//! recipe, with no build.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::source::error::quoted;

/// `[source.mapping]` as written. Which keys apply depends on `shape`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MappingFile {
    /// What a row is; detected from the column names if absent.
    pub shape: Option<Shape>,
    /// Column of the messages (shape `messages`); a list of structs, or such a list as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<String>,
    /// Field of a message that names the role; `role` or `from` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Field of a message that holds its text; `content` or `value` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Field of a message (shape `messages`; if absent, the first of `reasoning_content`, `reasoning`
    /// and `thinking` that holds text) or column (shape `columns`) that holds the reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Names of roles in this corpus: `{ human = "user" }`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, String>,
    /// Column of the system text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Column of the tools: a list of structs or JSON texts, or one JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Column or columns of the prompt (shape `columns`), joined by a blank line.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "one_or_many")]
    #[schemars(with = "Option<OneOrMany>")]
    pub prompt: Option<Vec<String>>,
    /// Column of the answer (shape `columns`): text, or a list of texts to choose from; with shape
    /// `messages`, the column of the last assistant turn, which stands apart from the messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The answer is a JSON list in a string; its first element is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_response: Option<bool>,
    /// Boolean lists beside a list of answers: all must be true at the one that is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choose_all: Option<Vec<String>>,
    /// Boolean lists beside a list of answers: one must be true at the one that is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choose_any: Option<Vec<String>>,
    /// Lists beside a list of answers: the value that each must have at the one that is chosen.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub choose_equal: BTreeMap<String, ChoiceValue>,
    /// Mark in the answer between reasoning and answer (`####` in GSM8K).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_at: Option<String>,
    /// Mark that the last assistant turn must hold; a row without it is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require: Option<String>,
    /// Columns that hold what a model would see and this mapping has no place for: a row where one is
    /// not empty counts as text that would be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Vec<String>>,
    /// Spans to cut out of the answer, or with shape `text` of the text, by opening and closing mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<Vec<(String, String)>>,
    /// Marks round reasoning and answer in an assistant's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    /// What stands before a message of a role where messages become plain text (shape `text` with
    /// `messages`): `{ user = "Question: " }`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Column of the text (shape `text`); with `messages` in its place, the text is that of all messages,
    /// a blank line between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A value to compare with, in `choose_equal`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum ChoiceValue {
    /// A whole number.
    Int(i64),
    /// A text.
    Text(String),
}

/// Marks round reasoning and answer, each an opening and a closing one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tags {
    /// Round the reasoning.
    pub reasoning: (String, String),
    /// Round the answer.
    pub answer: (String, String),
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A list of messages.
    Messages,
    /// A prompt column and an answer column.
    Columns,
    /// Plain text.
    Text,
}

/// The schema of a string or a list of strings.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// Reads a string or a list of strings.
///
/// # Errors
/// Anything else, by the deserialiser's words.
pub fn one_or_many<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    struct Strings;
    impl<'de> serde::de::Visitor<'de> for Strings {
        type Value = Option<Vec<String>>;
        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            f.write_str("a string or a list of strings")
        }
        fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
            Ok(Some(vec![value.to_owned()]))
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = seq.next_element()? {
                items.push(item);
            }
            Ok(Some(items))
        }
    }
    deserializer.deserialize_any(Strings)
}

/// A column, or a field inside of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPath {
    /// Index of the column in [`Mapping::columns`].
    pub index: usize,
    /// Fields below it.
    pub fields: Vec<String>,
    /// As written, for messages.
    pub name: String,
}

/// A mapping ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// Columns that must be there, then those that may be missing.
    pub columns: Vec<String>,
    /// How many of `columns` must be there.
    pub required: usize,
    /// Indices of the columns without which a row has no meaning.
    pub must: Vec<usize>,
    /// What to make of them.
    pub kind: MappingKind,
    /// Column of the system text.
    pub system: Option<ColumnPath>,
    /// Column of the tools.
    pub tools: Option<ColumnPath>,
    /// Marks in assistant text.
    pub tags: Option<Tags>,
    /// Mark that the last assistant turn must hold.
    pub require: Option<String>,
    /// Columns whose text would be lost.
    pub lost: Vec<ColumnPath>,
}

/// What to make of the columns.
#[derive(Clone, Debug, PartialEq)]
pub enum MappingKind {
    /// A list of messages.
    Messages {
        /// The list.
        column: ColumnPath,
        /// Names of the message's fields: role, content, reasoning.
        fields: MessageFields,
        /// The last assistant turn, where it stands in a column of its own.
        answer: Option<ColumnPath>,
    },
    /// Prompt and answer.
    Columns(Box<ColumnsMapping>),
    /// Plain text.
    Text {
        /// The text.
        column: ColumnPath,
        /// Spans to cut.
        remove: Vec<(String, String)>,
    },
    /// Messages one after the other, as plain text.
    Transcript {
        /// The list.
        column: ColumnPath,
        /// Names of the message's fields.
        fields: MessageFields,
        /// What stands before a message, by role.
        labels: BTreeMap<String, String>,
    },
}

/// Fields of a message, and names of roles.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MessageFields {
    /// Candidates for the role.
    pub role: Vec<String>,
    /// Candidates for the text.
    pub content: Vec<String>,
    /// Field paths that reasoning is looked for at, in order.
    pub reasoning: Vec<Vec<String>>,
    /// Names of roles in this corpus.
    pub roles: BTreeMap<String, String>,
}

impl MessageFields {
    /// Whether the mapping reads this field itself.
    pub(super) fn names(&self, field: &str) -> bool {
        let paths = self.reasoning.iter().filter_map(|path| path.first());
        self.role.iter().chain(&self.content).chain(paths).any(|name| name == field)
    }
}

/// Prompt and answer columns.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnsMapping {
    /// Joined by a blank line.
    pub prompt: Vec<ColumnPath>,
    /// Text, or a list to choose from.
    pub response: ColumnPath,
    /// A JSON list in a string.
    pub json_response: bool,
    /// Reasoning apart from the answer.
    pub reasoning: Option<ColumnPath>,
    /// Lists that must all be true.
    pub choose_all: Vec<ColumnPath>,
    /// Lists of which one must be true.
    pub choose_any: Vec<ColumnPath>,
    /// Lists that must hold a value.
    pub choose_equal: Vec<(ColumnPath, ChoiceValue)>,
    /// Mark between reasoning and answer.
    pub split_at: Option<String>,
    /// Spans to cut.
    pub remove: Vec<(String, String)>,
}

/// A mapping that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// A key that the shape needs.
    #[error("mapping of source `{source_name}`: shape `{shape}` needs `{key}`")]
    Missing {
        /// The source.
        source_name: String,
        /// The shape.
        shape: &'static str,
        /// The key.
        key: &'static str,
    },
    /// A key that the shape has no use for.
    #[error("mapping of source `{source_name}`: `{key}` has no meaning with shape `{shape}`")]
    Unused {
        /// The source.
        source_name: String,
        /// The shape.
        shape: &'static str,
        /// The key.
        key: &'static str,
    },
    /// No mapping, and columns that tell none.
    #[error("source `{source_name}`: cannot tell from the columns {present} what a row is")]
    Undetected {
        /// The source.
        source_name: String,
        /// The columns, quoted.
        present: String,
    },
    /// Two keys that would each give the reasoning.
    #[error("mapping of source `{source_name}`: `{first}` and `{second}` both give the reasoning")]
    Twice {
        /// The source.
        source_name: String,
        /// One key.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A name or mark that is empty, or marks that are equal.
    #[error("mapping of source `{source_name}`: `{key}` holds an empty text or equal marks")]
    Empty {
        /// The source.
        source_name: String,
        /// The key.
        key: &'static str,
    },
    /// A role name that is none.
    #[error(
        "mapping of source `{source_name}`: `{role}` is no role; there are `system`, `user`, `assistant`, `tool`"
    )]
    UnknownRole {
        /// The source.
        source_name: String,
        /// The role.
        role: String,
    },
}

impl MappingFile {
    /// Fills in what column names tell: `messages`/`conversations`, then prompt and answer pairs by
    /// their usual names, then `text`/`content`.
    ///
    /// # Errors
    /// Names that tell nothing.
    pub fn detect(&self, source_name: &str, present: &[String]) -> Result<MappingFile, MappingError> {
        if self.shape.is_some() {
            return Ok(self.clone());
        }
        let has = |name: &str| present.iter().any(|column| column == name);
        let first = |names: &[&str]| names.iter().find(|name| has(name)).map(|name| (*name).to_owned());
        let mut found = self.clone();
        let asked_columns = self.prompt.is_some() || self.response.is_some();
        if let Some(column) = self
            .messages
            .clone()
            .or_else(|| first(&["messages", "conversations"]))
            .filter(|_| !asked_columns && self.text.is_none())
        {
            found.shape = Some(Shape::Messages);
            found.messages = Some(column);
        } else if asked_columns || (has("instruction") && has("output")) {
            found.shape = Some(Shape::Columns);
            let alpaca = ["instruction", "input"].iter().filter(|name| has(name));
            found.prompt =
                self.prompt.clone().or_else(|| Some(alpaca.map(|name| (*name).to_owned()).collect()));
            found.response = self.response.clone().or_else(|| first(&["output"]));
        } else if let (Some(prompt), Some(response)) = (
            first(&["prompt", "question", "problem", "query", "input"]).filter(|_| self.text.is_none()),
            first(&["response", "completion", "answer", "solution", "output"]),
        ) {
            found.shape = Some(Shape::Columns);
            found.prompt = Some(vec![prompt]);
            found.response = Some(response);
        } else if let Some(column) = self.text.clone().or_else(|| first(&["text", "content"])) {
            found.shape = Some(Shape::Text);
            found.text = Some(column);
        } else {
            return Err(MappingError::Undetected {
                source_name: source_name.to_owned(),
                present: quoted(present),
            });
        }
        Ok(found)
    }

    /// Makes the mapping ready to run. `extra` are columns wanted besides (by `where`); `present` are
    /// the columns of the file, as far as they are known: a column whose name holds a dot is taken
    /// before a field of a column.
    ///
    /// # Errors
    /// A key that the shape needs or has no use for.
    pub fn resolve(
        &self,
        source_name: &str,
        extra: &[String],
        present: &[String],
    ) -> Result<Mapping, MappingError> {
        let mut columns = Columns { names: Vec::new(), present };
        let shape = self.shape.unwrap_or(Shape::Messages);
        self.check_keys(source_name, shape)?;
        self.check_marks(source_name)?;
        let missing = |shape, key| MappingError::Missing { source_name: source_name.to_owned(), shape, key };
        let kind = match shape {
            Shape::Messages => MappingKind::Messages {
                column: columns.add(self.messages.as_deref().unwrap_or("messages")),
                fields: self.message_fields(source_name)?,
                answer: self.response.as_ref().map(|name| columns.add(name)),
            },
            Shape::Text => match &self.messages {
                Some(messages) => MappingKind::Transcript {
                    column: columns.add(messages),
                    fields: self.message_fields(source_name)?,
                    labels: self.labels.clone(),
                },
                None => MappingKind::Text {
                    column: columns.add(self.text.as_deref().ok_or_else(|| missing("text", "text"))?),
                    remove: self.remove.clone().unwrap_or_default(),
                },
            },
            Shape::Columns => {
                let prompt = self.prompt.as_deref().filter(|p| !p.is_empty());
                let prompt = prompt.ok_or_else(|| missing("columns", "prompt"))?;
                let response = self.response.as_deref().ok_or_else(|| missing("columns", "response"))?;
                let mut add = |name: &String| columns.add(name);
                MappingKind::Columns(Box::new(ColumnsMapping {
                    prompt: prompt.iter().map(&mut add).collect(),
                    choose_all: self.choose_all.iter().flatten().map(&mut add).collect(),
                    choose_any: self.choose_any.iter().flatten().map(&mut add).collect(),
                    choose_equal: self.choose_equal.iter().map(|(k, v)| (add(k), v.clone())).collect(),
                    reasoning: self.reasoning.as_ref().map(&mut add),
                    response: columns.add(response),
                    json_response: self.json_response.unwrap_or(false),
                    split_at: self.split_at.clone(),
                    remove: self.remove.clone().unwrap_or_default(),
                }))
            }
        };
        let system = self.system.as_ref().map(|name| columns.add(name));
        let tools = self.tools.as_ref().map(|name| columns.add(name));
        let lost: Vec<ColumnPath> = self.lost.iter().flatten().map(|name| columns.add(name)).collect();
        for name in extra {
            columns.add_root(name);
        }
        let required = columns.names.len();
        let must = match &kind {
            MappingKind::Messages { column, answer, .. } => {
                std::iter::once(column).chain(answer).map(|path| path.index).collect()
            }
            MappingKind::Text { column, .. } | MappingKind::Transcript { column, .. } => vec![column.index],
            MappingKind::Columns(mapping) => {
                let prompt = mapping.prompt.first().map(|path| path.index);
                prompt.into_iter().chain([mapping.response.index]).collect()
            }
        };
        // Tools are so often called `tools` that the column is taken where it is there.
        let tools = tools.or_else(|| (shape == Shape::Messages).then(|| columns.add("tools")));
        let (tags, require) = (self.tags.clone(), self.require.clone());
        Ok(Mapping { columns: columns.names, required, must, kind, system, tools, tags, require, lost })
    }

    fn message_fields(&self, source_name: &str) -> Result<MessageFields, MappingError> {
        for role in self.roles.values() {
            if !["system", "user", "assistant", "tool"].contains(&role.as_str()) {
                return Err(MappingError::UnknownRole {
                    source_name: source_name.to_owned(),
                    role: role.clone(),
                });
            }
        }
        let names = |given: &Option<String>, usual: [&str; 2]| match given {
            Some(name) => vec![name.clone()],
            None => usual.map(str::to_owned).to_vec(),
        };
        let content = names(&self.content, ["content", "value"]);
        let path = |name: &str| name.split('.').map(str::to_owned).collect();
        let reasoning = match &self.reasoning {
            Some(name) => vec![path(name)],
            None => {
                REASONING.into_iter().filter(|name| !content.iter().any(|c| c == name)).map(path).collect()
            }
        };
        Ok(MessageFields {
            role: names(&self.role, ["role", "from"]),
            content,
            reasoning,
            roles: self.roles.clone(),
        })
    }

    /// Empty names find nothing, and empty marks everything; reasoning comes from one place.
    fn check_marks(&self, source_name: &str) -> Result<(), MappingError> {
        let single = [
            &self.messages,
            &self.role,
            &self.content,
            &self.reasoning,
            &self.system,
            &self.tools,
            &self.response,
            &self.text,
        ];
        let lists = [&self.prompt, &self.choose_all, &self.choose_any, &self.lost];
        let listed = lists.into_iter().flatten().flatten();
        let empty_name = single.into_iter().flatten().chain(listed).any(String::is_empty);
        let removed = self.remove.iter().flatten();
        let tags = self.tags.iter().flat_map(|tags| [&tags.reasoning, &tags.answer]);
        let pair_fails = |pair: &(String, String)| pair.0.is_empty() || pair.1.is_empty();
        let same_tags = self.tags.as_ref().is_some_and(|tags| tags.reasoning.0 == tags.answer.0);
        let faults = [
            ("prompt", empty_name),
            ("split_at", self.split_at.as_deref() == Some("")),
            ("require", self.require.as_deref() == Some("")),
            ("remove", removed.clone().any(pair_fails)),
            ("tags", tags.clone().any(pair_fails) || same_tags),
        ];
        if let Some((key, _)) = faults.iter().find(|(_, fails)| *fails) {
            return Err(MappingError::Empty { source_name: source_name.to_owned(), key });
        }
        let in_columns = self.shape == Some(Shape::Columns);
        let ways = [
            ("reasoning", in_columns && self.reasoning.is_some()),
            ("split_at", self.split_at.is_some()),
            ("tags", self.tags.is_some()),
        ];
        let mut given = ways.iter().filter(|(_, given)| *given).map(|(key, _)| *key);
        match (given.next(), given.next()) {
            (Some(first), Some(second)) => {
                Err(MappingError::Twice { source_name: source_name.to_owned(), first, second })
            }
            _ => Ok(()),
        }
    }

    fn check_keys(&self, source_name: &str, shape: Shape) -> Result<(), MappingError> {
        use Shape::{Columns, Messages, Text};
        // Shape `text` takes one column, or messages.
        let of_messages: &[Shape] = if self.text.is_some() { &[Messages] } else { &[Messages, Text] };
        let keys: [(&'static str, bool, &[Shape]); 19] = [
            ("messages", self.messages.is_some(), of_messages),
            ("role", self.role.is_some(), of_messages),
            ("content", self.content.is_some(), of_messages),
            ("roles", !self.roles.is_empty(), of_messages),
            ("labels", !self.labels.is_empty(), if self.messages.is_some() { &[Text] } else { &[] }),
            (
                "reasoning",
                self.reasoning.is_some(),
                if self.text.is_some() { &[Messages, Columns] } else { &[Messages, Columns, Text] },
            ),
            ("system", self.system.is_some(), &[Messages, Columns]),
            ("tools", self.tools.is_some(), &[Messages, Columns]),
            ("prompt", self.prompt.is_some(), &[Columns]),
            ("response", self.response.is_some(), &[Messages, Columns]),
            ("json_response", self.json_response.is_some(), &[Columns]),
            ("choose_all", self.choose_all.is_some() || self.choose_any.is_some(), &[Columns]),
            ("choose_equal", !self.choose_equal.is_empty(), &[Columns]),
            ("split_at", self.split_at.is_some(), &[Columns]),
            ("remove", self.remove.is_some(), if self.messages.is_some() { &[] } else { &[Columns, Text] }),
            ("require", self.require.is_some(), &[Messages, Columns]),
            ("lost", self.lost.is_some(), &[Messages, Columns]),
            ("tags", self.tags.is_some(), &[Messages, Columns]),
            ("text", self.text.is_some(), &[Text]),
        ];
        for (key, given, shapes) in keys {
            if given && !shapes.contains(&shape) {
                return Err(MappingError::Unused {
                    source_name: source_name.to_owned(),
                    shape: shape.name(),
                    key,
                });
            }
        }
        Ok(())
    }
}

impl Shape {
    /// The shape's name in recipes.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Messages => "messages",
            Shape::Columns => "columns",
            Shape::Text => "text",
        }
    }
}

/// Fields of a message that servers and corpora put reasoning into.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

struct Columns<'a> {
    names: Vec<String>,
    present: &'a [String],
}

impl Columns<'_> {
    fn add(&mut self, path: &str) -> ColumnPath {
        if self.present.iter().any(|column| column == path) {
            return ColumnPath { index: self.add_root(path), fields: Vec::new(), name: path.to_owned() };
        }
        let mut parts = path.split('.').map(str::to_owned);
        let root = parts.next().unwrap_or_default();
        ColumnPath { index: self.add_root(&root), fields: parts.collect(), name: path.to_owned() }
    }

    fn add_root(&mut self, root: &str) -> usize {
        match self.names.iter().position(|name| name == root) {
            Some(index) => index,
            None => {
                self.names.push(root.to_owned());
                self.names.len() - 1
            }
        }
    }
}
