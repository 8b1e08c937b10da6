//! One JSON array of objects, streamed element by element.

use std::io::BufRead;

use super::error::SourceError;
use super::open::SourceFile;
use super::reader::{Chunk, MAX_CHUNK_ROWS, ReadRequest, RowBatch, RowReader, Sampler};

/// Reads the elements of a top-level array; a row's number is its index.
pub struct JsonArrayReader {
    file: SourceFile,
    input: Box<dyn BufRead + Send>,
    sampler: Sampler,
    chunk_bytes: usize,
    row: u64,
    rows_left: Option<u64>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// Before an element; `true` where the array may end instead.
    Element(bool),
    AfterElement,
    Ended,
}

impl JsonArrayReader {
    /// Opens the array and passes over the elements before the range.
    ///
    /// # Errors
    /// As [`SourceFile::open`], and what is not an array.
    pub fn open(file: &SourceFile, request: &ReadRequest) -> Result<Self, SourceError> {
        let mut reader = JsonArrayReader {
            file: file.clone(),
            input: file.open()?,
            sampler: request.sampler,
            chunk_bytes: request.chunk_bytes,
            row: 0,
            rows_left: request.range.rows,
            state: State::Start,
        };
        let mut element = Vec::new();
        while reader.row < request.range.start_row() && reader.next_element(&mut element)? {
            element.clear();
        }
        Ok(reader)
    }

    /// Appends the next element's text; `false` at the end of the array.
    fn next_element(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        loop {
            let byte = self.peek()?;
            match (self.state, byte) {
                (State::Ended, None) => return Ok(false),
                (_, Some(b' ' | b'\t' | b'\r' | b'\n')) => self.input.consume(1),
                (State::Start, Some(0xef | 0xbb | 0xbf)) => self.input.consume(1),
                (State::Start, Some(b'[')) => {
                    self.input.consume(1);
                    self.state = State::Element(true);
                }
                (State::Element(true) | State::AfterElement, Some(b']')) => {
                    self.input.consume(1);
                    self.state = State::Ended;
                }
                (State::AfterElement, Some(b',')) => {
                    self.input.consume(1);
                    self.state = State::Element(false);
                }
                (State::Element(_), Some(b'{')) => {
                    self.copy_object(out)?;
                    self.state = State::AfterElement;
                    self.row += 1;
                    return Ok(true);
                }
                (state, found) => return Err(self.unexpected(state, found)),
            }
        }
    }

    fn copy_object(&mut self, out: &mut Vec<u8>) -> Result<(), SourceError> {
        let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
        loop {
            let row = self.row;
            let buffer = self.input.fill_buf().map_err(|e| self.file.stream_error(e, row))?;
            if buffer.is_empty() {
                return Err(self.bad("ends inside an element".to_owned()));
            }
            let mut used = 0;
            for &byte in buffer {
                used += 1;
                if in_text {
                    in_text = escaped || byte != b'"';
                    escaped = !escaped && byte == b'\\';
                    continue;
                }
                match byte {
                    b'"' => in_text = true,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            out.extend_from_slice(buffer.get(..used).unwrap_or_default());
            self.input.consume(used);
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn peek(&mut self) -> Result<Option<u8>, SourceError> {
        let row = self.row;
        let buffer = self.input.fill_buf().map_err(|e| self.file.stream_error(e, row))?;
        Ok(buffer.first().copied())
    }

    fn unexpected(&self, state: State, found: Option<u8>) -> SourceError {
        let wanted = match state {
            State::Start => "`[`",
            State::Element(_) => "an object",
            State::AfterElement => "`,` or `]`",
            State::Ended => "the end of the file",
        };
        let found = found.map_or("the file ends".to_owned(), |b| format!("found `{}`", b.escape_ascii()));
        let reason = format!("expected {wanted}, {found}");
        if state == State::Start {
            return SourceError::NotThisFormat {
                path: self.file.path().to_path_buf(),
                format: "json",
                reason,
            };
        }
        self.bad(reason)
    }

    fn bad(&self, reason: String) -> SourceError {
        SourceError::Damaged {
            path: self.file.path().to_path_buf(),
            format: "json",
            row: self.row,
            reason: format!("broken JSON: {reason}"),
        }
    }
}

impl RowReader for JsonArrayReader {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, SourceError> {
        let mut text = Vec::with_capacity(self.chunk_bytes);
        let mut rows = Vec::new();
        let (mut read, mut sampled_out) = (0, 0);
        while text.len() < self.chunk_bytes && rows.len() < MAX_CHUNK_ROWS {
            let start = text.len();
            let row = self.row;
            if self.rows_left == Some(0) || !self.next_element(&mut text)? {
                break;
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
        if read == 0 {
            return Ok(None);
        }
        let batch = RowBatch::Json(text, rows);
        Ok(Some(Chunk { batch, read, sampled_out, next_row: self.row }))
    }
}
