//! Joins by row position: a row names another corpus and a row number in it, and takes its text from
//! there. The other corpus is read before any row is, its wanted columns only; Polars joins chunk by chunk.

use std::path::PathBuf;

use polars::prelude::{
    Column, DataFrame, DataFrameJoinOps, IntoColumn, JoinArgs, JoinType, MaintainOrderJoin, NamedFrom,
    PolarsError, PolarsResult, Series, StringChunked,
};
use rayon::prelude::*;

use super::cell::Cell;
use super::error::SourceError;
use super::open::SourceFile;
use super::reader::{ReadRequest, Sampler, open_reader};
use crate::recipe::join::{JoinFile, JoinText};

/// Bytes of text that are decoded at once while the other corpus is read.
const CHUNK_BYTES: usize = 4 << 20;
/// Bits of a key that hold the row position; the others hold the number of the join.
const POSITION_BITS: u32 = 48;

/// A join that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A file of the other corpus.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A value that gives no text.
    #[error("{place}: {join}: {reason}")]
    Value {
        /// File and row.
        place: String,
        /// Source and join.
        join: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another number of rows than the recipe says.
    #[error("{join}: its files hold {got} rows, and `rows` says {expected}")]
    RowCount {
        /// Source and join.
        join: String,
        /// Rows there.
        got: u64,
        /// Rows promised.
        expected: u64,
    },
    /// Files without any text.
    #[error("{path}: {join}: no row has a text in `{column}`", path = path.display())]
    NoText {
        /// The first file.
        path: PathBuf,
        /// Source and join.
        join: String,
        /// The first column of the text.
        column: String,
    },
    /// Polars gave up.
    #[error("{place}: cannot join: {reason}")]
    Engine {
        /// What was joined.
        place: String,
        /// The engine's words.
        reason: String,
    },
}

impl JoinError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            JoinError::Source(e) => e.hint(),
            JoinError::RowCount { .. } => Some(
                "the join is by row position: take the revision that the rows were counted in".to_owned(),
            ),
            JoinError::Value { .. } | JoinError::NoText { .. } => {
                Some("name the right columns under `text` of `[[source.join]]`".to_owned())
            }
            JoinError::Engine { .. } => None,
        }
    }
}

/// Why a row has no text from another corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unjoined {
    /// Its columns have the values of no join.
    NoJoin,
    /// Its index is not a row number.
    NotANumber(String),
    /// The other corpus ends before its index.
    Beyond {
        /// The join.
        join: String,
        /// Position that the row names.
        index: u64,
        /// Rows of the other corpus.
        rows: u64,
    },
    /// The other row has no text.
    NoText {
        /// The join.
        join: String,
        /// Position of the other row.
        index: u64,
    },
}

/// The texts that rows of one source may take.
#[derive(Clone, Debug)]
pub struct JoinTable {
    sides: Vec<Side>,
    /// `key` (join and position) and `text`, of the rows that have one.
    texts: DataFrame,
}

/// One join of a table: what of a row it looks at, and how many rows the other corpus has.
#[derive(Clone, Debug)]
struct Side {
    name: String,
    rows: u64,
    /// Column and value.
    when: Vec<(usize, String)>,
    index: usize,
    into: usize,
}

/// The texts of one join's corpus, by row position.
pub struct JoinTexts<'a> {
    /// Name of the join.
    pub name: &'a str,
    /// The join as written.
    pub file: &'a JoinFile,
    /// One a row; `None` where a row has none.
    pub texts: Vec<Option<String>>,
}

/// Reads the text of each row of a corpus, files in their order; `place` names source and join.
///
/// # Errors
/// Files that cannot be read whole, values that are no text, no text at all, another number of rows
/// than `file.rows`.
pub fn read_texts(
    files: &[SourceFile],
    file: &JoinFile,
    place: &str,
) -> Result<Vec<Option<String>>, JoinError> {
    let by_file: Vec<Vec<Option<String>>> =
        files.par_iter().map(|one| texts_of(one, &file.text, place)).collect::<Result<_, _>>()?;
    let texts: Vec<Option<String>> = by_file.into_iter().flatten().collect();
    let got = texts.len() as u64;
    if let Some(expected) = file.rows.filter(|rows| *rows != got) {
        return Err(JoinError::RowCount { join: place.to_owned(), got, expected });
    }
    if let (true, Some(first)) = (texts.iter().all(Option::is_none), files.first()) {
        let column = file.text.first().map_or(String::new(), |part| part.column.clone());
        return Err(JoinError::NoText { path: first.path().to_path_buf(), join: place.to_owned(), column });
    }
    Ok(texts)
}

fn texts_of(file: &SourceFile, parts: &[JoinText], place: &str) -> Result<Vec<Option<String>>, JoinError> {
    let columns: Vec<String> = parts.iter().map(|part| part.column.clone()).collect();
    let request =
        ReadRequest { columns: columns.clone(), ..ReadRequest::whole(Sampler::all(0), CHUNK_BYTES) };
    let mut reader = open_reader(file, place, &request)?;
    let mut texts = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        for index in 0..chunk.batch.len() {
            let text = chunk.batch.decode(index, &columns).and_then(|cells| text_of(&cells, parts));
            texts.push(text.map_err(|reason| JoinError::Value {
                place: file.place(chunk.batch.row_number(index)),
                join: place.to_owned(),
                reason,
            })?);
        }
    }
    Ok(texts)
}

/// The text of one row of the other corpus, its cells in the order of the parts; `None` where a part
/// that must be there is empty, or all are.
fn text_of(cells: &[Cell], parts: &[JoinText]) -> Result<Option<String>, String> {
    let mut text = String::new();
    for (part, cell) in parts.iter().zip(cells) {
        let added = add_part(&mut text, part, cell)?;
        if part.required && !added {
            return Ok(None);
        }
    }
    Ok((!text.trim().is_empty()).then_some(text))
}

/// Adds a part; `false` if there is nothing in it.
fn add_part(text: &mut String, part: &JoinText, cell: &Cell) -> Result<bool, String> {
    let wrong = |wanted: &str, found: &Cell| {
        Err(format!("column `{}` is {}, not {wanted}", part.column, found.kind()))
    };
    match cell {
        Cell::Null => Ok(false),
        Cell::Text(value) if part.each.is_empty() => {
            if value.is_empty() || (part.required && value.trim().is_empty()) {
                return Ok(false);
            }
            text.push_str(&part.before);
            text.push_str(value);
            Ok(true)
        }
        Cell::List(items) if !part.each.is_empty() => {
            if items.is_empty() {
                return Ok(false);
            }
            text.push_str(&part.before);
            for item in items {
                for field in &part.each {
                    match item.field(&field.field) {
                        Some(Cell::Text(value)) => {
                            text.push_str(&field.before);
                            text.push_str(value);
                        }
                        None | Some(Cell::Null) => {}
                        Some(other) => return wrong("a list of structs of texts", other),
                    }
                }
            }
            Ok(true)
        }
        other if part.each.is_empty() => wrong("text", other),
        other => wrong("a list of structs", other),
    }
}

impl JoinTable {
    /// A table of the texts of all joins of a source. `columns` are the columns that its rows are decoded
    /// to.
    ///
    /// # Errors
    /// What Polars says.
    pub fn new(joins: Vec<JoinTexts>, columns: &[String]) -> Result<JoinTable, JoinError> {
        let at = |name: &String| columns.iter().position(|column| column == name).unwrap_or(usize::MAX);
        let (mut sides, mut keys, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for (number, join) in joins.into_iter().enumerate() {
            let file = join.file;
            sides.push(Side {
                name: join.name.to_owned(),
                rows: join.texts.len() as u64,
                when: file.when.iter().map(|(column, value)| (at(column), value.clone())).collect(),
                index: at(&file.index),
                into: at(&file.into),
            });
            for (position, text) in join.texts.into_iter().enumerate() {
                if let Some(text) = text {
                    keys.push(key(number, position as u64));
                    texts.push(Some(text));
                }
            }
        }
        let texts: StringChunked = texts.into_iter().collect();
        let text = texts.into_column().with_name("text".into());
        let texts = frame(vec![Column::from(Series::new("key".into(), keys)), text])
            .map_err(|e| engine("the texts of a join", &e))?;
        Ok(JoinTable { sides, texts })
    }

    /// Puts the other corpus' text into each row. Gives the name of the join that each row took its text
    /// from, or why it has none; `place` names the rows.
    ///
    /// # Errors
    /// What Polars says.
    pub fn join(
        &self,
        rows: &mut [&mut Vec<Cell>],
        place: &str,
    ) -> Result<Vec<Result<&str, Unjoined>>, JoinError> {
        let wanted: Vec<Result<(usize, u64), Unjoined>> =
            rows.iter().map(|cells| self.wanted(cells)).collect();
        let keys: Vec<Option<u64>> = wanted
            .iter()
            .map(|wanted| wanted.as_ref().ok().map(|&(side, position)| key(side, position)))
            .collect();
        let found = self.look_up(keys).map_err(|e| engine(place, &e))?;
        let mut outcomes = Vec::with_capacity(rows.len());
        for ((cells, wanted), text) in rows.iter_mut().zip(wanted).zip(found.iter()) {
            outcomes.push(wanted.and_then(|(side, index)| self.put(cells, (side, index), text)));
        }
        Ok(outcomes)
    }

    /// The text of each key, in their order.
    fn look_up(&self, keys: Vec<Option<u64>>) -> PolarsResult<StringChunked> {
        let rows = frame(vec![Column::from(Series::new("key".into(), keys))])?;
        let how = JoinArgs { maintain_order: MaintainOrderJoin::Left, ..JoinArgs::new(JoinType::Left) };
        let joined = rows.join(&self.texts, ["key"], ["key"], how, None)?;
        Ok(joined.column("text")?.str()?.clone())
    }

    /// Which join a row is for, and which row of the other corpus it names.
    fn wanted(&self, cells: &[Cell]) -> Result<(usize, u64), Unjoined> {
        let holds = |(at, value): &(usize, String)| {
            cells.get(*at).is_some_and(|cell| cell.text() == Some(value.as_str()))
        };
        let side = self.sides.iter().enumerate().find(|(_, side)| side.when.iter().all(holds));
        let Some((number, side)) = side else { return Err(Unjoined::NoJoin) };
        let index = match cells.get(side.index) {
            Some(Cell::Int(index)) => {
                u64::try_from(*index).map_err(|_| Unjoined::NotANumber(index.to_string()))
            }
            Some(Cell::Text(text)) => {
                text.trim().parse::<u64>().map_err(|_| Unjoined::NotANumber(text.clone()))
            }
            other => Err(Unjoined::NotANumber(other.map_or("null", Cell::kind).to_owned())),
        }?;
        if index >= side.rows {
            return Err(Unjoined::Beyond { join: side.name.clone(), index, rows: side.rows });
        }
        Ok((number, index))
    }

    fn put(
        &self,
        cells: &mut [Cell],
        (side, index): (usize, u64),
        text: Option<&str>,
    ) -> Result<&str, Unjoined> {
        let side = self.sides.get(side).ok_or(Unjoined::NoJoin)?;
        let text = text.ok_or_else(|| Unjoined::NoText { join: side.name.clone(), index })?;
        if let Some(cell) = cells.get_mut(side.into) {
            *cell = Cell::Text(text.to_owned());
        }
        Ok(&side.name)
    }
}

impl Unjoined {
    /// What shows it, for `dropped/`: a JSON object.
    pub fn evidence(&self) -> String {
        let value = match self {
            Unjoined::NoJoin => serde_json::json!({ "why": "no join is for this row" }),
            Unjoined::NotANumber(index) => {
                serde_json::json!({ "why": "the index is not a row number", "index": index })
            }
            Unjoined::Beyond { join, index, rows } => serde_json::json!({
                "why": "the joined corpus has no such row", "join": join, "index": index, "rows": rows
            }),
            Unjoined::NoText { join, index } => {
                serde_json::json!({ "why": "the joined row has no text", "join": join, "index": index })
            }
        };
        value.to_string()
    }
}

fn key(side: usize, position: u64) -> u64 {
    ((side as u64) << POSITION_BITS) | position
}

fn frame(columns: Vec<Column>) -> PolarsResult<DataFrame> {
    let rows = columns.first().map_or(0, Column::len);
    DataFrame::new(rows, columns)
}

fn engine(place: &str, error: &PolarsError) -> JoinError {
    let text = error.to_string();
    let reason = text.lines().next().unwrap_or_default().to_owned();
    JoinError::Engine { place: place.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(column: &str, before: &str, required: bool) -> JoinText {
        JoinText { column: column.to_owned(), before: before.to_owned(), required, each: Vec::new() }
    }

    fn join(when: &str, parts: Vec<JoinText>) -> JoinFile {
        let text =
            format!("when = {{ from = \"{when}\" }}\nindex = \"index\"\ninto = \"input\"\ntext = []\n");
        JoinFile { text: parts, ..toml::from_str(&text).unwrap() }
    }

    fn text(value: &str) -> Cell {
        Cell::Text(value.to_owned())
    }

    #[test]
    fn a_text_leaves_out_empty_parts_with_what_stands_before_them() {
        let parts = [part("a", "", true), part("b", "\nB ", false), part("c", "\nC ", false)];
        let full = text_of(&[text("one"), text("two"), text("three")], &parts);
        assert_eq!(full, Ok(Some("one\nB two\nC three".to_owned())));
        let part_of_it = text_of(&[text("one"), Cell::Null, text("three")], &parts);
        assert_eq!(part_of_it, Ok(Some("one\nC three".to_owned())));
        assert_eq!(text_of(&[text(" "), text("two"), text("three")], &parts), Ok(None));
        assert!(text_of(&[Cell::Int(1), text("two"), text("three")], &parts).is_err());
    }

    #[test]
    fn rows_take_the_text_at_their_position_in_their_corpus() {
        let (a, b) = (join("a", vec![part("q", "", true)]), join("b", vec![part("q", "", true)]));
        let texts = |from: &str, count: usize| -> Vec<Option<String>> {
            (0..count).map(|n| (n != 1).then(|| format!("{from}{n}"))).collect()
        };
        let joins = vec![
            JoinTexts { name: "A", file: &a, texts: texts("a", 3) },
            JoinTexts { name: "B", file: &b, texts: texts("b", 5) },
        ];
        let columns = ["from", "index", "input"].map(str::to_owned);
        let table = JoinTable::new(joins, &columns).unwrap();
        let row = |from: &str, index: Cell| vec![text(from), index, text("-")];
        let mut rows = [
            row("b", text("4")),
            row("a", text("4")),
            row("a", Cell::Int(2)),
            row("c", text("0")),
            row("b", text("1")),
            row("a", text("x")),
            row("a", text("0")),
        ];
        let mut borrowed: Vec<&mut Vec<Cell>> = rows.iter_mut().collect();
        let outcomes = table.join(&mut borrowed, "here").unwrap();
        let beyond = Unjoined::Beyond { join: "A".to_owned(), index: 4, rows: 3 };
        let empty = Unjoined::NoText { join: "B".to_owned(), index: 1 };
        let not_a_number = Unjoined::NotANumber("x".to_owned());
        assert_eq!(
            outcomes,
            [Ok("B"), Err(beyond), Ok("A"), Err(Unjoined::NoJoin), Err(empty), Err(not_a_number), Ok("A")]
        );
        let inputs: Vec<&str> = rows.iter().filter_map(|cells| cells[2].text()).collect();
        assert_eq!(inputs, ["b4", "-", "a2", "-", "-", "-", "a0"]);
    }
}
