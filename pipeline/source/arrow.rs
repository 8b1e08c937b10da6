//! Arrow IPC: the stream format (as `datasets` writes it) and the file format.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{BooleanArray, RecordBatch, RecordBatchReader};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};

use super::error::SourceError;
use super::open::{Compression, SourceFile};
use super::reader::{Chunk, MAX_CHUNK_ROWS, ReadRequest, RowBatch, RowReader, Sampler, require_columns};

/// Reads record batches; a row's number is its index in the file.
pub struct ArrowReader {
    file: SourceFile,
    batches: Box<dyn RecordBatchReader + Send>,
    tail: Option<Arc<Mutex<Vec<u8>>>>,
    pending: Option<RecordBatch>,
    sampler: Sampler,
    chunk_bytes: usize,
    row: u64,
    rows_left: Option<u64>,
}

impl ArrowReader {
    /// Opens the file and passes over the rows before the range.
    ///
    /// # Errors
    /// What is not Arrow IPC, damaged data, or a wanted column that is not there.
    pub fn open(file: &SourceFile, source_name: &str, request: &ReadRequest) -> Result<Self, SourceError> {
        let (schema, _) = guarded(file, 0, || open_batches(file, None))?;
        let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
        require_columns(file.path(), source_name, &request.columns, &names)?;
        let projection = projection(&names, request);
        let (_, opened) = guarded(file, 0, || open_batches(file, projection.clone()))?;
        let mut reader = ArrowReader {
            file: file.clone(),
            batches: opened.batches,
            tail: opened.tail,
            pending: None,
            sampler: request.sampler,
            chunk_bytes: request.chunk_bytes,
            row: 0,
            rows_left: request.range.rows,
        };
        reader.skip_rows(request.range.start_row())?;
        Ok(reader)
    }

    fn skip_rows(&mut self, first_row: u64) -> Result<(), SourceError> {
        while self.row < first_row {
            let Some(batch) = self.next_batch()? else { break };
            let skip = (first_row - self.row).min(batch.num_rows() as u64) as usize;
            self.row += skip as u64;
            if skip < batch.num_rows() {
                self.pending = Some(batch.slice(skip, batch.num_rows() - skip));
            }
        }
        Ok(())
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        if let Some(batch) = self.pending.take() {
            return Ok(Some(batch));
        }
        let batches = &mut self.batches;
        let next = guarded(&self.file, self.row, || batches.next().transpose())?;
        if next.is_none() {
            self.check_end()?;
        }
        Ok(next)
    }

    /// The reader takes a cut between two messages for the end; the end-of-stream mark tells.
    fn check_end(&self) -> Result<(), SourceError> {
        let Some(tail) = &self.tail else { return Ok(()) };
        let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.ends_with(&[0, 0, 0, 0]) {
            return Ok(());
        }
        Err(damaged(&self.file, self.row, "no end-of-stream mark, so the stream may be cut".to_owned()))
    }
}

impl RowReader for ArrowReader {
    fn next_chunk(&mut self) -> Result<Option<Chunk>, SourceError> {
        if self.rows_left == Some(0) {
            return Ok(None);
        }
        let Some(batch) = self.next_batch()? else { return Ok(None) };
        let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
        let take = (self.chunk_bytes / row_bytes.max(1)).clamp(1, MAX_CHUNK_ROWS);
        let take = take.min(batch.num_rows());
        let take = self.rows_left.map_or(take, |left| take.min(left as usize));
        if take < batch.num_rows() {
            self.pending = Some(batch.slice(take, batch.num_rows() - take));
        }
        let first = self.row;
        self.row += take as u64;
        self.rows_left = self.rows_left.map(|left| left - take as u64);
        let (batch, rows) = sample(&batch.slice(0, take), first, &self.sampler)
            .map_err(|e| damaged(&self.file, first, e.to_string()))?;
        let sampled_out = take as u64 - rows.len() as u64;
        Ok(Some(Chunk {
            batch: RowBatch::Table(batch, rows),
            read: take as u64,
            sampled_out,
            next_row: self.row,
        }))
    }
}

/// Keeps the rows that the sampler takes.
fn sample(batch: &RecordBatch, first: u64, sampler: &Sampler) -> Result<(RecordBatch, Vec<u64>), ArrowError> {
    let numbers = first..first + batch.num_rows() as u64;
    if sampler.takes_all() {
        return Ok((batch.clone(), numbers.collect()));
    }
    let keep: Vec<bool> = numbers.clone().map(|row| sampler.keeps(row)).collect();
    let rows = numbers.zip(&keep).filter(|(_, keep)| **keep).map(|(row, _)| row).collect();
    Ok((filter_record_batch(batch, &BooleanArray::from(keep))?, rows))
}

struct Opened {
    batches: Box<dyn RecordBatchReader + Send>,
    tail: Option<Arc<Mutex<Vec<u8>>>>,
}

fn open_batches(
    file: &SourceFile,
    projection: Option<Vec<usize>>,
) -> Result<(SchemaRef, Opened), ArrowError> {
    let mut head = [0u8; 6];
    let io = |e: std::io::Error| ArrowError::IoError(e.to_string(), e);
    let mut raw = file.open_raw().map_err(|e| ArrowError::ExternalError(Box::new(e)))?;
    let is_file = raw.read_exact(&mut head).is_ok() && &head == b"ARROW1";
    if is_file
        && file.compression == Compression::None
        && let Some(path) = file.plain_path().map_err(|e| ArrowError::ExternalError(Box::new(e)))?
    {
        let input = BufReader::new(File::open(path).map_err(io)?);
        let reader = FileReader::try_new(input, projection)?;
        return Ok((reader.schema(), Opened { batches: Box::new(reader), tail: None }));
    }
    let input = file.open().map_err(|e| ArrowError::ExternalError(Box::new(e)))?;
    let tail = Arc::new(Mutex::new(Vec::new()));
    let reader = StreamReader::try_new(TailReader { input, tail: tail.clone() }, projection)?;
    Ok((reader.schema(), Opened { batches: Box::new(reader), tail: Some(tail) }))
}

/// Remembers the last four bytes read.
struct TailReader {
    input: Box<dyn BufRead + Send>,
    tail: Arc<Mutex<Vec<u8>>>,
}

impl Read for TailReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.input.read(buffer)?;
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let got = buffer.get(..n).unwrap_or_default();
        tail.extend_from_slice(got.get(n.saturating_sub(4)..).unwrap_or_default());
        let extra = tail.len().saturating_sub(4);
        tail.drain(..extra);
        Ok(n)
    }
}

fn projection(names: &[String], request: &ReadRequest) -> Option<Vec<usize>> {
    let wanted = names.iter().enumerate().filter(|(_, name)| request.wants(name));
    let wanted: Vec<usize> = wanted.map(|(i, _)| i).collect();
    (wanted.len() < names.len()).then_some(wanted)
}

/// Runs a step of the Arrow reader on a file that may be hostile: its panics become errors.
fn guarded<T>(
    file: &SourceFile,
    row: u64,
    step: impl FnOnce() -> Result<T, ArrowError>,
) -> Result<T, SourceError> {
    match super::guard(step) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(ArrowError::ExternalError(e))) if e.is::<SourceError>() => match e.downcast() {
            Ok(error) => Err(*error),
            Err(error) => Err(damaged(file, row, error.to_string())),
        },
        Ok(Err(error)) => Err(damaged(file, row, error.to_string())),
        Err(panic) => Err(damaged(file, row, panic)),
    }
}

fn damaged(file: &SourceFile, row: u64, reason: String) -> SourceError {
    SourceError::Damaged { path: file.path().to_path_buf(), format: "arrow", row, reason }
}
