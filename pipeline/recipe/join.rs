//! `[[source.join]]`: text of a row that stands in another corpus, at a row position. Written in a card
//! or in a recipe, it says which rows it is for, where the other corpus' rows are, and how the text is
//! built from their columns.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::card::Card;
use super::error::RecipeError;
use super::file::SourceEntry;
use super::resolve::ResolvedSource;
use super::sources::{Purpose, resolve_for};
use crate::source::Format;
use crate::source::adapt::mapping::{OneOrMany, one_or_many};

/// One `[[source.join]]`, as written in a recipe or a card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinFile {
    /// Values that columns of a row have if this join is for it: `{ dataset = "taco", split = "train" }`.
    pub when: BTreeMap<String, String>,
    /// Column of the row that holds the position of the other row: a number from 0, over all files in name
    /// order.
    pub index: String,
    /// Column of the row that the text is put into; what stood there is replaced.
    pub into: String,
    /// Id of the known corpus that holds the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corpus: Option<String>,
    /// Configuration of that corpus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Revision of that corpus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// File, folder or glob, or several; with `corpus`, the folder of its local copy.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "one_or_many")]
    #[schemars(with = "Option<OneOrMany>")]
    pub path: Option<Vec<String>>,
    /// Format of the files; told by their names if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Rows that the files hold together; another number is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The text, part by part.
    pub text: Vec<JoinText>,
}

/// A part of the joined text: a column of the other row, left out with what stands before it where it is
/// null or empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinText {
    /// The column: text, or with `each` a list of structs.
    pub column: String,
    /// Text before it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub before: String,
    /// Without this column's text there is nothing to join.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Fields of each struct in the list, in order; one that is null is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<JoinField>,
}

/// A field of a struct in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinField {
    /// The field.
    pub field: String,
    /// Text before it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub before: String,
}

/// A join that runs.
#[derive(Clone, Debug)]
pub struct ResolvedJoin {
    /// Id of the corpus, else (or for a second join to it) `join-N` by place from 0: its name in ledgers,
    /// lock and manifest.
    pub name: String,
    /// The join as written.
    pub file: JoinFile,
    /// The other corpus; only what says where its files are counts.
    pub source: ResolvedSource,
}

/// Resolves the joins of a source. `copies` is a folder that holds copies of corpora as `OWNER/NAME`.
///
/// # Errors
/// Joins that say nothing, or whose corpus is not known or not there.
pub fn resolve_joins(
    files: &[JoinFile],
    source_name: &str,
    copies: Option<&str>,
    (base, cards): (&Path, &[Card]),
) -> Result<Vec<ResolvedJoin>, RecipeError> {
    let mut joins: Vec<ResolvedJoin> = Vec::with_capacity(files.len());
    for (number, file) in files.iter().enumerate() {
        let taken = |name: &String| joins.iter().any(|join| join.name == *name);
        let named = file.corpus.clone().filter(|name| !taken(name));
        let name = named.unwrap_or_else(|| format!("join-{number}"));
        let place = format!("join `{name}` of source `{source_name}`");
        check(file, place)?;
        let entry = SourceEntry {
            name: Some(source_name.to_owned()),
            corpus: file.corpus.clone(),
            config: file.config.clone(),
            revision: file.revision.clone(),
            path: file.path.clone(),
            format: file.format,
            copies: copies.map(str::to_owned),
            ..SourceEntry::default()
        };
        let mut source = resolve_for(Purpose::Join, (&entry, number), base, cards)?;
        source.name = format!("{source_name} join {name}");
        if let Some(want) = &mut source.want {
            want.user = format!("source `{source_name}`, join `{name}`");
        }
        joins.push(ResolvedJoin { name, file: file.clone(), source });
    }
    Ok(joins)
}

fn check(file: &JoinFile, place: String) -> Result<(), RecipeError> {
    if file.when.is_empty() || file.text.is_empty() {
        let key = if file.when.is_empty() { "when" } else { "text" };
        return Err(RecipeError::value_hint(
            place,
            format!("`{key}` is empty"),
            "`when` says which rows the join is for, `text` which columns give the text",
        ));
    }
    let parts = file
        .text
        .iter()
        .flat_map(|part| part.each.iter().map(|field| field.field.as_str()).chain([part.column.as_str()]));
    if parts.chain([file.index.as_str(), file.into.as_str()]).any(str::is_empty) {
        return Err(RecipeError::value(place, "a column without a name"));
    }
    Ok(())
}

impl ResolvedJoin {
    /// The columns of the row that the join looks at.
    pub fn row_columns(&self) -> impl Iterator<Item = &String> {
        self.file.when.keys().chain([&self.file.index, &self.file.into])
    }

    /// The join's meaning as JSON, with no path of a machine in it.
    pub fn settings(&self) -> Value {
        let file = &self.file;
        json!({
            "name": self.name,
            "when": file.when,
            "index": file.index,
            "into": file.into,
            "corpus": file.corpus,
            "config": self.source.config,
            "split": self.source.split,
            "rows": file.rows,
            "text": file.text,
        })
    }
}
