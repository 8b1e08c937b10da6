//! A row of a benchmark to an item.

use potable_blocklists::{BenchmarkDefinition, Item, canary_of, words_of};

use crate::source::cell::Cell;
use crate::source::error::quoted;

/// The columns of an item; where the definition names none, the usual names are looked for.
pub(super) struct ItemColumns {
    id: Option<String>,
    prompt: Vec<String>,
    options: Vec<String>,
    canary: Option<String>,
}

impl ItemColumns {
    /// # Errors
    /// A column that is not there: the reason.
    pub(super) fn of(definition: &BenchmarkDefinition, present: &[String]) -> Result<Self, String> {
        let root = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
        let has = |name: &str| present.iter().any(|column| column == name);
        let first = |names: &[&str]| names.iter().find(|name| has(name)).map(|name| (*name).to_owned());
        let prompt = if definition.prompt.is_empty() {
            let found = first(&["question", "prompt", "problem", "text"]);
            vec![found.ok_or_else(|| {
                format!("has none of `question`, `prompt`, `problem`, `text`; there are {}", quoted(present))
            })?]
        } else {
            definition.prompt.clone()
        };
        let canary = definition.canary_column.clone();
        if let Some(path) = definition.id.as_ref().filter(|id| prompt.contains(id)) {
            return Err(format!(
                "has its id and its prompt in column `{path}`: a blocklist holds ids, and no text"
            ));
        }
        if let Some(missing) = prompt.iter().chain(&canary).find(|path| !has(&root(path))) {
            return Err(format!("has no column `{missing}`; there are {}", quoted(present)));
        }
        let options = if definition.prompt.is_empty() && definition.options.is_empty() {
            first(&["options", "choices"]).into_iter().collect()
        } else {
            definition.options.clone()
        };
        let id = definition.id.clone().or_else(|| first(&["id", "task_id", "unique_id", "question_id"]));
        Ok(ItemColumns { id: id.filter(|id| has(&root(id))), prompt, options, canary })
    }

    /// The columns of the file to decode, each once.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for path in self.id.iter().chain(&self.prompt).chain(&self.options).chain(&self.canary) {
            let root = path.split('.').next().unwrap_or_default();
            if !names.iter().any(|name| name == root) {
                names.push(root.to_owned());
            }
        }
        names
    }

    /// The value of a path's column among the cells of [`names`](Self::names).
    fn cell<'c>(&self, cells: &'c [Cell], path: &str) -> Option<&'c Cell> {
        let root = path.split('.').next().unwrap_or_default();
        cells.get(self.names().iter().position(|name| name == root)?)
    }

    /// Every text at a path.
    fn texts(&self, cells: &[Cell], path: &str) -> Result<Vec<String>, String> {
        let fields: Vec<&str> = path.split('.').skip(1).collect();
        let mut texts = Vec::new();
        let Some(cell) = self.cell(cells, path) else { return Ok(texts) };
        collect_texts(cell, &fields, &mut texts)
            .map_err(|kind| format!("column `{path}` is {kind}, not text"))?;
        Ok(texts)
    }

    /// What is looked for on account of the canary column.
    pub(super) fn canary(&self, cells: &[Cell]) -> Result<Option<String>, String> {
        let Some(path) = &self.canary else { return Ok(None) };
        Ok(canary_of(&self.texts(cells, path)?.join("\n")).map(str::to_owned))
    }

    /// The item of a row with the cells of [`names`](Self::names).
    pub(super) fn item(
        &self,
        cells: &[Cell],
        number: u64,
        definition: &BenchmarkDefinition,
    ) -> Result<Item, String> {
        let id = match self.id.as_ref().and_then(|path| self.cell(cells, path)) {
            Some(Cell::Text(text)) => Some(text.clone()),
            Some(Cell::Int(value)) => Some(value.to_string()),
            _ => None,
        };
        let mut stem = Vec::new();
        for path in &self.prompt {
            stem.extend(self.texts(cells, path)?);
        }
        let mut options = Vec::new();
        for path in &self.options {
            options.extend(self.texts(cells, path)?);
        }
        let options = without_labels(options);
        let stem = stem.join("\n");
        let stem = definition.without_cues(&stem).to_owned();
        if words_of(&stem).is_empty() {
            return Err(format!("an item without a word in `{}`", self.prompt.join("`, `")));
        }
        Ok(Item { id: id.unwrap_or_else(|| number.to_string()), stem, options })
    }
}

/// Columns of options and ids that a definition names and no row so far has. One row of JSON may lack
/// what others have; that all of them do is a wrong name.
pub(super) struct Unseen {
    paths: Vec<String>,
}

impl Unseen {
    pub(super) fn of(definition: &BenchmarkDefinition) -> Self {
        Unseen { paths: definition.options.iter().chain(&definition.id).cloned().collect() }
    }

    /// Takes note of the columns of a row.
    pub(super) fn note(&mut self, present: &[String]) {
        let root = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
        self.paths.retain(|path| !present.contains(&root(path)));
    }

    /// What is wrong, where a name fits no row of a file.
    pub(super) fn problem(&self) -> Option<String> {
        self.paths.first().map(|path| format!("no row has a column `{path}`"))
    }
}

/// Options without their labels, where all of them are labelled in order: `A. x`, `(b) y`, `C) z`.
fn without_labels(options: Vec<String>) -> Vec<String> {
    let strip = |(option, label): (&String, char)| {
        let rest = option.trim_start();
        let rest = rest.strip_prefix('(').unwrap_or(rest);
        let rest = rest.strip_prefix([label, label.to_ascii_lowercase()])?;
        let rest = rest.strip_prefix(['.', ')', ':'])?;
        Some(rest.trim_start().to_owned())
    };
    let stripped: Option<Vec<String>> = options.iter().zip('A'..='Z').map(strip).collect();
    stripped.filter(|stripped| options.len() > 1 && stripped.len() == options.len()).unwrap_or(options)
}

/// Every text at a path below a value; a list on the way stands for each of its elements.
fn collect_texts(cell: &Cell, fields: &[&str], texts: &mut Vec<String>) -> Result<(), &'static str> {
    match (cell, fields) {
        (Cell::Null, _) => Ok(()),
        (Cell::List(items), _) => items.iter().try_for_each(|item| collect_texts(item, fields, texts)),
        (Cell::Text(text), []) => {
            texts.push(text.clone());
            Ok(())
        }
        (Cell::Struct(_), [first, rest @ ..]) => {
            cell.field(first).map_or(Err("without this field"), |inner| collect_texts(inner, rest, texts))
        }
        (other, _) => Err(other.kind()),
    }
}
