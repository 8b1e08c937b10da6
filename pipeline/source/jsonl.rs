//! One JSON object a line. Lines are split here and parsed by the pool.

use std::io::{BufRead, Read as _, Seek as _, SeekFrom};

use potable_manifests::Hasher;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::cell::Cell;
use super::error::SourceError;
use super::json;
use super::open::SourceFile;
use super::reader::{Chunk, MAX_CHUNK_ROWS, ReadRequest, RowBatch, RowReader, Sampler};

/// Reads a range of lines. A row's number is its line, from 0; blank lines are no rows.
pub struct JsonlReader {
    file: SourceFile,
    input: Box<dyn BufRead + Send>,
    sampler: Sampler,
    chunk_bytes: usize,
    line: u64,
    rows_left: Option<u64>,
}

impl JsonlReader {
    /// Opens a range.
    ///
    /// # Errors
    /// As [`SourceFile::open`].
    pub fn open(file: &SourceFile, request: &ReadRequest) -> Result<Self, SourceError> {
        let range = request.range;
        let input: Box<dyn BufRead + Send> = match range.bytes {
            None => file.open()?,
            Some((start, end)) => {
                let mut raw = file.open_raw()?;
                file.sniff(raw.as_mut())?;
                raw.seek(SeekFrom::Start(start)).map_err(|e| file.read_error(e))?;
                Box::new(raw.take(end - start))
            }
        };
        let mut reader = JsonlReader {
            file: file.clone(),
            input,
            sampler: request.sampler,
            chunk_bytes: request.chunk_bytes,
            line: range.start_row(),
            rows_left: range.rows,
        };
        let before = if range.bytes.is_some() { range.skip } else { range.start_row() };
        reader.skip_lines(before)?;
        Ok(reader)
    }

    fn skip_lines(&mut self, lines: u64) -> Result<(), SourceError> {
        let mut buffer = Vec::new();
        for line in 0..lines {
            buffer.clear();
            self.input.read_until(b'\n', &mut buffer).map_err(|e| self.file.stream_error(e, line))?;
        }
        Ok(())
    }
}

impl RowReader for JsonlReader {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, SourceError> {
        let mut text = Vec::with_capacity(self.chunk_bytes + self.chunk_bytes / 8);
        let mut rows = Vec::new();
        let (mut read, mut sampled_out) = (0, 0);
        let mut ended = false;
        while text.len() < self.chunk_bytes && rows.len() < MAX_CHUNK_ROWS {
            if self.rows_left == Some(0) {
                ended = true;
                break;
            }
            let start = text.len();
            let got =
                self.input.read_until(b'\n', &mut text).map_err(|e| self.file.stream_error(e, self.line))?;
            if got == 0 {
                ended = true;
                break;
            }
            let row = self.line;
            self.line += 1;
            if text.get(start..).is_some_and(|line| line.trim_ascii().is_empty()) {
                text.truncate(start);
                continue;
            }
            read += 1;
            self.rows_left = self.rows_left.map(|left| left - 1);
            if self.sampler.keeps(row) {
                rows.push((row, start, text.len()));
            } else {
                sampled_out += 1;
                text.truncate(start);
            }
        }
        if ended && read == 0 {
            return Ok(None);
        }
        let batch = RowBatch::Json(text, rows);
        Ok(Some(Chunk { batch, read, sampled_out, next_row: self.line }))
    }
}

/// What one pass over a JSONL file tells.
pub struct Scan {
    /// SHA-256 of the stored bytes, in hex.
    pub sha256: String,
    /// Size of the stored bytes.
    pub size: u64,
    /// Lines that are not blank.
    pub rows: u64,
    /// Where pieces of about `piece` bytes begin.
    pub cuts: Vec<Cut>,
}

/// Where a piece of a file begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Byte.
    pub offset: u64,
    /// Line.
    pub line: u64,
    /// Rows before; blank lines are none.
    pub row: u64,
}

/// Hashes an uncompressed JSONL file, counts its rows and finds where to cut it.
///
/// # Errors
/// As [`SourceFile::open_raw`].
pub fn scan(file: &SourceFile, piece: u64) -> Result<Scan, SourceError> {
    let mut raw = file.open_raw()?;
    file.sniff(raw.as_mut())?;
    let mut hasher = Hasher::new();
    let mut scan = Scan { sha256: String::new(), size: 0, rows: 0, cuts: vec![Cut::default()] };
    let (mut line, mut last_cut, mut blank) = (0u64, 0u64, true);
    loop {
        let buffer = raw.fill_buf().map_err(|e| file.read_error(e))?;
        if buffer.is_empty() {
            break;
        }
        hasher.update(buffer);
        let mut at = 0;
        for end in memchr::memchr_iter(b'\n', buffer) {
            blank &= buffer.get(at..end).unwrap_or_default().trim_ascii().is_empty();
            scan.rows += u64::from(!blank);
            blank = true;
            line += 1;
            at = end + 1;
            let offset = scan.size + at as u64;
            if offset - last_cut >= piece {
                scan.cuts.push(Cut { offset, line, row: scan.rows });
                last_cut = offset;
            }
        }
        blank &= buffer.get(at..).unwrap_or_default().trim_ascii().is_empty();
        let len = buffer.len();
        scan.size += len as u64;
        raw.consume(len);
    }
    scan.rows += u64::from(!blank);
    scan.cuts.retain(|cut| cut.offset < scan.size);
    scan.sha256 = hasher.finish().hex().to_owned();
    Ok(scan)
}

/// Counts the rows of a line file through its compression.
///
/// # Errors
/// A damaged or truncated file.
pub fn count_rows(file: &SourceFile) -> Result<u64, SourceError> {
    let mut input = file.open()?;
    let mut line = Vec::new();
    let mut rows = 0;
    loop {
        line.clear();
        let got = input.read_until(b'\n', &mut line).map_err(|e| file.stream_error(e, rows))?;
        if got == 0 {
            return Ok(rows);
        }
        rows += u64::from(!line.trim_ascii().is_empty());
    }
}

/// Parses a row, keeping the wanted keys only. A key given twice counts with its last value.
///
/// # Errors
/// The parser's words.
pub fn decode(line: &[u8], columns: &[String]) -> Result<Vec<Cell>, String> {
    parse(line, Wanted(columns))
}

/// Parses a row whole: its keys, each once, in the order in which they first stand, and their values. A key
/// given twice counts with its last value.
///
/// # Errors
/// As [`decode`].
pub fn decode_all(line: &[u8]) -> Result<(Vec<String>, Vec<Cell>), String> {
    let fast = simdutf8::basic::from_utf8(bare(line)).ok().and_then(json::object);
    fast.map_or_else(|| parse(line, All), Ok)
}

fn parse<'de, S: DeserializeSeed<'de>>(line: &'de [u8], seed: S) -> Result<S::Value, String> {
    let line = bare(line);
    match simdutf8::basic::from_utf8(line) {
        Ok(text) => finish(serde_json::Deserializer::from_str(text), seed),
        // its parser says where the text is broken
        Err(_) => finish(serde_json::Deserializer::from_slice(line), seed),
    }
}

fn finish<'de, R, S>(mut parser: serde_json::Deserializer<R>, seed: S) -> Result<S::Value, String>
where
    R: serde_json::de::Read<'de>,
    S: DeserializeSeed<'de>,
{
    let value = seed.deserialize(&mut parser).map_err(|e| broken(&e))?;
    parser.end().map_err(|e| broken(&e))?;
    Ok(value)
}

/// The keys of a row; none of a row that cannot be read. Values are passed over, so that one that
/// cannot be read hides no key.
pub fn keys(line: &[u8]) -> Vec<String> {
    let mut parser = serde_json::Deserializer::from_slice(bare(line));
    Keys.deserialize(&mut parser).unwrap_or_default()
}

struct Keys;

impl<'de> DeserializeSeed<'de> for Keys {
    type Value = Vec<String>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<String>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Keys {
    type Value = Vec<String>;
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
        let mut keys: Vec<String> = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Ok(keys)
    }
}

/// The line without byte order mark and line end.
fn bare(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_end()
}

fn broken(error: &serde_json::Error) -> String {
    // The parser counts lines inside the row; the column is what helps.
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    format!("broken JSON at byte {}: {text}", error.column())
}

struct All;

impl<'de> DeserializeSeed<'de> for All {
    type Value = (Vec<String>, Vec<Cell>);
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for All {
    type Value = (Vec<String>, Vec<Cell>);
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut keys, mut cells): Self::Value = Default::default();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value()?;
            match keys.iter().position(|known| *known == key).and_then(|at| cells.get_mut(at)) {
                Some(slot) => *slot = value,
                None => {
                    keys.push(key);
                    cells.push(value);
                }
            }
        }
        Ok((keys, cells))
    }
}

struct Wanted<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Vec<Cell>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Cell>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Vec<Cell>;
    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Cell>, A::Error> {
        let mut cells = vec![Cell::Null; self.0.len()];
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.iter().position(|name| *name == key).and_then(|at| cells.get_mut(at)) {
                Some(slot) => *slot = map.next_value()?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(cells)
    }
}
