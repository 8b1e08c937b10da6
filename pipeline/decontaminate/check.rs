//! Checks rows of any corpus file against a blocklist, outside of a run.

use std::collections::BTreeMap;

use potable_blocklists::{Action, Blocklist};
use rayon::prelude::*;

use super::{Decontaminator, Match};
use crate::source::adapt::{Adapted, Conversation, Mapping, MappingFile, Message, Outcome, Role};
use crate::source::cell::Cell;
use crate::source::error::SourceError;
use crate::source::open::SourceFile;
use crate::source::reader::{Chunk, ReadRequest, Sampler, open_reader};

/// Bytes of text in a chunk.
const CHUNK_BYTES: usize = 4 << 20;

/// Columns that hold a row's own id, in the order in which they are looked for.
const ID_COLUMNS: [&str; 5] = ["id", "uid", "uuid", "row_id", "task_id"];

/// A row in which something was found.
#[derive(Clone, Debug)]
pub struct RowVerdict {
    /// The row's own id, else `file:row`.
    pub id: String,
    /// What was found.
    pub matches: Vec<Match>,
    /// The texts of the row that were checked, with the number of the message of each.
    pub texts: Vec<(u32, String)>,
}

/// How many rows were looked at, and in how many something was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Rows read.
    pub rows: u64,
    /// Rows with a match that drops them.
    pub dropped: u64,
    /// Rows with other matches only.
    pub reported: u64,
    /// Bytes of text checked.
    pub bytes: u64,
    /// Columns with text that was not checked, since the mapping of the row does not read them, and in how
    /// many rows.
    pub unread: BTreeMap<String, u64>,
}

impl CheckCounts {
    /// Adds the counts of other rows.
    pub fn add(&mut self, other: CheckCounts) {
        self.rows += other.rows;
        self.dropped += other.dropped;
        self.reported += other.reported;
        self.bytes += other.bytes;
        for (column, rows) in other.unread {
            *self.unread.entry(column).or_default() += rows;
        }
    }
}

/// Checks every row of a file and gives those with a match to `found`, in file order. Rows are mapped
/// as `prep` maps them where the columns tell how; else every text of the row is checked.
///
/// # Errors
/// A file that cannot be read, a row that cannot be decoded.
pub fn check_file(
    file: &SourceFile,
    blocklist: &Blocklist,
    strict: bool,
    found: &mut dyn FnMut(RowVerdict),
) -> Result<CheckCounts, SourceError> {
    let mut reader = open_reader(file, "check", &ReadRequest::whole(Sampler::all(0), CHUNK_BYTES))?;
    let mut counts = CheckCounts::default();
    loop {
        // A few chunks at a time keep every core busy and the order of rows.
        let mut chunks = Vec::new();
        while chunks.len() < rayon::current_num_threads() {
            match reader.next_chunk()? {
                Some(chunk) => chunks.push(chunk),
                None => break,
            }
        }
        if chunks.is_empty() {
            return Ok(counts);
        }
        let checked: Vec<_> = chunks
            .par_iter()
            .map(|chunk| check_chunk(file, chunk, blocklist, strict))
            .collect::<Result<_, _>>()?;
        for (verdicts, one) in checked {
            counts.add(one);
            verdicts.into_iter().for_each(&mut *found);
        }
    }
}

/// The first `most` chat rows of a file, mapped as `prep` maps them.
///
/// # Errors
/// A file that cannot be read, a row that cannot be decoded.
pub fn chat_rows(file: &SourceFile, most: usize) -> Result<Vec<Conversation>, SourceError> {
    let mut rows = Vec::new();
    each_row(file, &mut |adapted| {
        if let Adapted::Chat(conversation) = adapted
            && conversation.has_user()
            && rows.len() < most
        {
            rows.push(conversation);
        }
        rows.len() < most
    })?;
    Ok(rows)
}

/// Every text of the rows of a file, mapped as `prep` maps them.
///
/// # Errors
/// A file that cannot be read, a row that cannot be decoded.
pub fn texts_of_file(file: &SourceFile) -> Result<Vec<String>, SourceError> {
    let mut texts = Vec::new();
    each_row(file, &mut |adapted| {
        texts.extend(texts_of(&adapted).into_iter().map(|(_, text)| text));
        true
    })?;
    Ok(texts)
}

/// Gives the mapped rows of a file to `visit` until it says that it has enough.
fn each_row(file: &SourceFile, visit: &mut dyn FnMut(Adapted) -> bool) -> Result<(), SourceError> {
    let mut reader = open_reader(file, "check", &ReadRequest::whole(Sampler::all(0), CHUNK_BYTES))?;
    let mut rows = Rows::new(file);
    while let Some(chunk) = reader.next_chunk()? {
        for index in 0..chunk.batch.len() {
            if !visit(rows.read(&chunk, index)?.1) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn check_chunk(
    file: &SourceFile,
    chunk: &Chunk,
    blocklist: &Blocklist,
    strict: bool,
) -> Result<(Vec<RowVerdict>, CheckCounts), SourceError> {
    let mut decontaminator = Decontaminator::new(Some(blocklist), strict);
    let mut rows = Rows::new(file);
    let mut counts = CheckCounts::default();
    let mut verdicts = Vec::new();
    for index in 0..chunk.batch.len() {
        let (id, adapted) = rows.read(chunk, index)?;
        counts.rows += 1;
        counts.bytes += bytes_of(&adapted);
        let matches = decontaminator.find(&adapted);
        if matches.is_empty() {
            continue;
        }
        if matches.iter().any(|found| found.action == Action::Drop) {
            counts.dropped += 1;
        } else {
            counts.reported += 1;
        }
        let id = id.unwrap_or_else(|| format!("{}:{}", file.name, chunk.batch.row_number(index)));
        verdicts.push(RowVerdict { id, matches, texts: texts_of(&adapted) });
    }
    counts.unread = rows.unread;
    Ok((verdicts, counts))
}

/// Reads the rows of a file as `prep` would map them.
struct Rows<'f> {
    file: &'f SourceFile,
    /// Columns of the row before, and how they are mapped; nearly always those of the next one too.
    columns: Vec<String>,
    mapping: Option<Mapping>,
    /// Columns with text that the mapping does not read, and in how many rows.
    unread: BTreeMap<String, u64>,
}

impl<'f> Rows<'f> {
    fn new(file: &'f SourceFile) -> Self {
        Rows { file, columns: Vec::new(), mapping: None, unread: BTreeMap::new() }
    }

    /// The row's own id and the row; where the columns do not tell what it means, a conversation of all
    /// its texts.
    fn read(&mut self, chunk: &Chunk, index: usize) -> Result<(Option<String>, Adapted), SourceError> {
        let (columns, mut cells) = self.decode(chunk, index)?;
        let id = own_id(&columns, &cells);
        if columns != self.columns {
            let mapping = MappingFile::default().detect("check", &columns);
            let mapping = mapping.and_then(|mapping| mapping.resolve("check", &[], &columns));
            (self.columns, self.mapping) = (columns, mapping.ok());
        }
        if let Some(mapping) = &self.mapping {
            let mut take = |name: &String| {
                let at = self.columns.iter().position(|column| column == name)?;
                cells.get_mut(at).map(std::mem::take)
            };
            let wanted = mapping.columns.iter().map(|name| take(name).unwrap_or_default()).collect();
            if let Ok(Outcome::Keep(adapted)) = mapping.adapt(wanted, None) {
                // those that were taken hold nothing now
                for (column, _) in self.columns.iter().zip(&cells).filter(|(_, cell)| holds_text(cell)) {
                    match self.unread.get_mut(column) {
                        Some(rows) => *rows += 1,
                        None => _ = self.unread.insert(column.clone(), 1),
                    }
                }
                return Ok((id, adapted));
            }
            cells = self.decode(chunk, index)?.1;
        }
        let mut messages = Vec::new();
        cells.iter().for_each(|cell| leaves(cell, &mut messages));
        Ok((id, Adapted::Chat(Conversation { messages, tools: Vec::new() })))
    }

    /// All columns of a row, and their values.
    fn decode(&self, chunk: &Chunk, index: usize) -> Result<(Vec<String>, Vec<Cell>), SourceError> {
        let place = || self.file.place(chunk.batch.row_number(index));
        let bad = |reason| SourceError::BadRow { place: place(), reason };
        chunk.batch.decode_all(index).map_err(bad)
    }
}

/// Every text of a value as a message of its own. Whether a text is a prompt is not known, so that
/// each counts as one.
fn leaves(cell: &Cell, messages: &mut Vec<Message>) {
    match cell {
        Cell::Text(text) => messages.push(Message::new(Role::User, text.clone())),
        Cell::List(items) => items.iter().for_each(|item| leaves(item, messages)),
        Cell::Struct(fields) => fields.iter().for_each(|(_, value)| leaves(value, messages)),
        _ => {}
    }
}

fn holds_text(cell: &Cell) -> bool {
    match cell {
        Cell::Text(text) => !text.is_empty(),
        Cell::List(items) => items.iter().any(holds_text),
        Cell::Struct(fields) => fields.iter().any(|(_, value)| holds_text(value)),
        _ => false,
    }
}

fn texts_of(adapted: &Adapted) -> Vec<(u32, String)> {
    match adapted {
        Adapted::Document(document) => vec![(0, document.text.clone())],
        Adapted::Chat(conversation) => {
            conversation.strings().into_iter().map(|(message, text, _)| (message, text.to_owned())).collect()
        }
    }
}

fn bytes_of(adapted: &Adapted) -> u64 {
    match adapted {
        Adapted::Document(document) => document.text.len() as u64,
        Adapted::Chat(conversation) => {
            conversation.strings().iter().map(|(_, text, _)| text.len() as u64).sum()
        }
    }
}

fn own_id(columns: &[String], cells: &[Cell]) -> Option<String> {
    let at = ID_COLUMNS.iter().find_map(|name| columns.iter().position(|column| column == name))?;
    match cells.get(at)? {
        Cell::Text(text) => Some(text.clone()),
        Cell::Int(value) => Some(value.to_string()),
        _ => None,
    }
}
