//! CSV with a header row (RFC 4180): quoted fields may hold commas, quotes and newlines.

use std::io::{BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use csv::{ByteRecord, StringRecord};

use super::error::SourceError;
use super::open::SourceFile;
use super::reader::{Chunk, MAX_CHUNK_ROWS, ReadRequest, RowBatch, RowReader, Sampler, require_columns};

/// Reads records; a row's number is its index after the header. Every value is text.
pub struct CsvReader {
    file: SourceFile,
    input: csv::Reader<QuoteFollower>,
    open_quote: Arc<AtomicBool>,
    header: StringRecord,
    sampler: Sampler,
    chunk_bytes: usize,
    row: u64,
    rows_left: Option<u64>,
}

impl CsvReader {
    /// Opens the file and passes over the records before the range.
    ///
    /// # Errors
    /// As [`SourceFile::open`], a broken header, or a wanted column that is not there.
    pub fn open(file: &SourceFile, source_name: &str, request: &ReadRequest) -> Result<Self, SourceError> {
        let open_quote = Arc::new(AtomicBool::new(false));
        let follower = QuoteFollower { input: file.open()?, field: Field::Start, open: open_quote.clone() };
        let mut input = csv::ReaderBuilder::new().flexible(true).from_reader(follower);
        let header = input.headers().map_err(|e| csv_error(file, 0, e))?.clone();
        let present: Vec<String> =
            header.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned()).collect();
        require_columns(file.path(), source_name, &request.columns, &present)?;
        let mut reader = CsvReader {
            file: file.clone(),
            input,
            open_quote,
            header: StringRecord::from(present),
            sampler: request.sampler,
            chunk_bytes: request.chunk_bytes,
            row: 0,
            rows_left: request.range.rows,
        };
        while reader.row < request.range.start_row() && reader.next_record()?.is_some() {}
        Ok(reader)
    }

    /// The next record, or why it cannot be read.
    fn next_record(&mut self) -> Result<Option<Result<StringRecord, String>>, SourceError> {
        let mut record = ByteRecord::new();
        let found =
            self.input.read_byte_record(&mut record).map_err(|e| csv_error(&self.file, self.row, e))?;
        if !found {
            // The parser takes the end of the file for the end of an open quote.
            return if self.open_quote.load(Ordering::Relaxed) { Err(self.unclosed()) } else { Ok(None) };
        }
        self.row += 1;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != self.header.len() {
            let (has, wanted) = (record.len(), self.header.len());
            return Ok(Some(Err(format!(
                "line {line}: record has {has} fields where the header has {wanted}"
            ))));
        }
        let record = StringRecord::from_byte_record(record);
        Ok(Some(record.map_err(|e| format!("line {line}: invalid UTF-8: {}", e.utf8_error()))))
    }

    fn unclosed(&self) -> SourceError {
        damaged(&self.file, self.row, "the file ends inside a quoted field".to_owned())
    }
}

impl RowReader for CsvReader {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, SourceError> {
        let mut records = Vec::new();
        let (mut bytes, mut read, mut sampled_out) = (0, 0, 0);
        while bytes < self.chunk_bytes && records.len() < MAX_CHUNK_ROWS {
            if self.rows_left == Some(0) {
                break;
            }
            let row = self.row;
            let Some(record) = self.next_record()? else { break };
            read += 1;
            self.rows_left = self.rows_left.map(|left| left - 1);
            if self.sampler.keeps(row) {
                bytes += record.as_ref().map_or(0, |record| record.as_slice().len());
                records.push((row, record));
            } else {
                sampled_out += 1;
            }
        }
        if read == 0 {
            return Ok(None);
        }
        let batch = RowBatch::Csv(self.header.clone(), records);
        Ok(Some(Chunk { batch, read, sampled_out, next_row: self.row }))
    }
}

/// Follows the quotes of RFC 4180, to know whether the file ends inside of a quoted field.
struct QuoteFollower {
    input: Box<dyn BufRead + Send>,
    field: Field,
    open: Arc<AtomicBool>,
}

/// Where in a field the last byte stood.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Start,
    Plain,
    Quoted,
    /// After a quote in a quoted field: its end, or the first of a pair.
    Quote,
}

impl Field {
    fn after(self, byte: u8) -> Field {
        match (self, byte) {
            (Field::Quoted, b'"') => Field::Quote,
            (Field::Quoted, _) => Field::Quoted,
            (Field::Start | Field::Quote, b'"') => Field::Quoted,
            (_, b',' | b'\n' | b'\r') => Field::Start,
            _ => Field::Plain,
        }
    }
}

impl Read for QuoteFollower {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.input.read(buffer)?;
        let read = buffer.get(..n).unwrap_or_default();
        self.field = read.iter().fold(self.field, |field, &byte| field.after(byte));
        self.open.store(self.field == Field::Quoted, Ordering::Relaxed);
        Ok(n)
    }
}

fn csv_error(file: &SourceFile, row: u64, error: csv::Error) -> SourceError {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => file.stream_error(source, row),
        csv::ErrorKind::Utf8 { err, .. } => damaged(file, row, format!("header: invalid UTF-8: {err}")),
        _ => damaged(file, row, "broken CSV".to_owned()),
    }
}

fn damaged(file: &SourceFile, row: u64, reason: String) -> SourceError {
    SourceError::Damaged { path: file.path().to_path_buf(), format: "csv", row, reason }
}
