//! Parquet by ranges: the columns that are wanted, a row group at a time, each with one request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::hub::HubError;
use super::remote::Remote;

/// Where the bytes of a Parquet file come from.
pub enum Input {
    /// A local file.
    File(File),
    /// The Hub.
    Ranges(Ranges),
}

/// A file of the Hub of which only ranges are read.
pub struct Ranges {
    remote: Arc<Remote>,
    /// Start and length of what will be read, row group by row group.
    extents: Vec<(u64, u64)>,
    held: Mutex<BTreeMap<usize, Bytes>>,
}

/// Bytes of earlier extents that are held at most: the columns of a row group are read in turn.
const HELD: usize = 64 << 20;

impl Ranges {
    /// A file of which `extents` will be read.
    pub fn new(remote: Arc<Remote>, extents: Vec<(u64, u64)>) -> Self {
        Ranges { remote, extents, held: Mutex::default() }
    }

    /// The bytes from `start` on that one request brings, at least `len` of them if it is given.
    fn bytes_at(&self, start: u64, len: Option<usize>) -> Result<Bytes, ParquetError> {
        self.find(start, len).map_err(|error| {
            let text = error.to_string();
            self.remote.fail(error);
            ParquetError::General(text)
        })
    }

    fn find(&self, start: u64, len: Option<usize>) -> Result<Bytes, HubError> {
        let within =
            |&(from, size): &(u64, u64)| start >= from && start + len.unwrap_or(1) as u64 <= from + size;
        if let Some(index) = self.extents.iter().position(within) {
            let (from, size) = self.extents.get(index).copied().unwrap_or_default();
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(bytes) = held.get(&index) {
                return Ok(bytes.slice((start - from) as usize..));
            }
            let bytes = self.extent(from, size)?;
            while held.values().map(Bytes::len).sum::<usize>() > HELD {
                held.pop_first();
            }
            held.insert(index, bytes.clone());
            return Ok(bytes.slice((start - from) as usize..));
        }
        let (from, tail) = self.remote.tail()?;
        if start >= from {
            return Ok(tail.slice((start - from).min(tail.len() as u64) as usize..));
        }
        let rest = self.remote.size().saturating_sub(start);
        self.remote.read_range(start, len.map_or(rest, |len| len as u64).min(rest))
    }

    /// An extent; what of it lies in the tail was read with the footer already.
    fn extent(&self, start: u64, len: u64) -> Result<Bytes, HubError> {
        let (from, tail) = self.remote.tail()?;
        let end = start + len;
        if end <= from {
            return self.remote.read_range(start, len);
        }
        let upto = (end - from).min(tail.len() as u64) as usize;
        if start >= from {
            return Ok(tail.slice((start - from).min(upto as u64) as usize..upto));
        }
        let before = self.remote.read_range(start, from - start)?;
        Ok([before.as_ref(), tail.get(..upto).unwrap_or_default()].concat().into())
    }
}

impl Length for Input {
    fn len(&self) -> u64 {
        match self {
            Input::File(file) => Length::len(file),
            Input::Ranges(ranges) => ranges.remote.size(),
        }
    }
}

impl ChunkReader for Input {
    type T = Box<dyn Read + Send>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(match self {
            Input::File(file) => Box::new(file.get_read(start)?),
            Input::Ranges(ranges) => Box::new(Cursor::new(ranges.bytes_at(start, None)?)),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        match self {
            Input::File(file) => file.get_bytes(start, length),
            Input::Ranges(ranges) => {
                let bytes = ranges.bytes_at(start, Some(length))?;
                if bytes.len() < length {
                    let text = format!("the file ends before byte {}", start + length as u64);
                    return Err(ParquetError::EOF(text));
                }
                Ok(bytes.slice(..length))
            }
        }
    }
}
