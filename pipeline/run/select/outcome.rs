//! A selection on disk: `partition-PPPPP.rows` for each partition with rows, `overlong.rows`, `keys` if
//! they are wanted, and last `summary.json`.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::gather::{OVERLONG_BYTES, overlong_bytes, overlong_of};
use super::near::{NEAR_BYTES, near_of};
use super::rows::read_selected;
use super::{SelectedRow, Summary};
use crate::run::error::RunError;
use crate::shard::write_atomic;
use crate::source::row::RowId;

/// What the files of a selection begin with; another layout has another number.
const MAGIC: &[u8; 8] = b"POTSEL01";
/// Bytes of the checksum at the end: xxh3-64 of all before it, little-endian.
const SUM_BYTES: u64 = 8;
const SUMMARY: &str = "summary.json";

/// The outcome of select. Rows are read a partition at a time.
#[derive(Clone, Debug)]
pub struct Selection {
    folder: PathBuf,
    /// Counts, and what is there.
    pub summary: Summary,
}

impl Selection {
    /// A selection that is on disk. Files of partitions may come later, or not at all if they are
    /// not read.
    ///
    /// # Errors
    /// A folder without `summary.json`, or with another one.
    pub fn open(folder: &Path) -> Result<Self, RunError> {
        let path = folder.join(SUMMARY);
        let text = std::fs::read(&path).map_err(|source| RunError::Read { path: path.clone(), source })?;
        let summary =
            serde_json::from_slice(&text).map_err(|e| RunError::Staged { path, reason: e.to_string() })?;
        Ok(Selection { folder: folder.to_path_buf(), summary })
    }

    /// The rows of a partition that go on, in the order of their ids.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn partition(&self, partition: u32) -> Result<Vec<SelectedRow>, RunError> {
        if self.summary.times.get(partition as usize).is_none_or(|times| *times == 0) {
            return Ok(Vec::new());
        }
        let path = Self::partition_path(&self.folder, partition);
        let bytes = std::fs::read(&path).map_err(|source| RunError::Read { path: path.clone(), source })?;
        let rows = checked(&bytes).and_then(|body| read_selected(body).ok());
        rows.ok_or_else(|| damaged(&path))
    }

    /// Rows of which no sample fits a pack, with their tokens, in the order of their ids.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn overlong(&self) -> Result<Overlong, RunError> {
        Ok(Overlong(Records::open(Self::overlong_path(&self.folder), self.summary.overlong)?))
    }

    /// Near duplicates, each with the row that stays in its place, in the order of their ids.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn near(&self) -> Result<NearDropped, RunError> {
        let records = (self.summary.near > 0)
            .then(|| Records::open(Self::near_path(&self.folder), self.summary.near))
            .transpose()?;
        Ok(NearDropped(records))
    }

    /// The sorted keys of the rows that go on, 16 bytes little-endian each, if they were asked for.
    pub fn keys(&self) -> PathBuf {
        Self::keys_path(&self.folder)
    }

    /// Names of all files of the selection in its folder, `summary.json` last.
    pub fn names(&self) -> Vec<String> {
        let partitions = (0..).zip(&self.summary.times).filter(|(_, times)| **times > 0);
        let mut names: Vec<String> = partitions.map(|(number, _)| Self::partition_name(number)).collect();
        names.push(OVERLONG.to_owned());
        if self.summary.near > 0 {
            names.push(NEAR.to_owned());
        }
        if self.keys().exists() {
            names.push(KEYS.to_owned());
        }
        names.push(SUMMARY.to_owned());
        names
    }

    /// Name of the file with the rows of a partition; there is none if it has no rows.
    pub fn partition_name(partition: u32) -> String {
        format!("partition-{partition:05}.rows")
    }

    pub(super) fn partition_path(folder: &Path, partition: u32) -> PathBuf {
        folder.join(Self::partition_name(partition))
    }

    pub(super) fn overlong_path(folder: &Path) -> PathBuf {
        folder.join(OVERLONG)
    }

    pub(super) fn near_path(folder: &Path) -> PathBuf {
        folder.join(NEAR)
    }

    pub(super) fn keys_path(folder: &Path) -> PathBuf {
        folder.join(KEYS)
    }

    /// Removes what an earlier selection left.
    pub(super) fn clear(folder: &Path) -> Result<(), RunError> {
        // Without its summary it is no selection; files of partitions are replaced or not read.
        crate::run::folder::remove(&folder.join(SUMMARY))?;
        crate::run::folder::remove(&folder.join(KEYS))
    }

    /// Writes the summary.
    pub(super) fn seal(folder: &Path, summary: Summary) -> Result<Selection, RunError> {
        let text = serde_json::to_vec(&summary).map_err(|e| RunError::Manifest { reason: e.to_string() })?;
        write_atomic(&folder.join(SUMMARY), &text)?;
        Ok(Selection { folder: folder.to_path_buf(), summary })
    }
}

/// Name of the file with overlong rows.
pub const OVERLONG: &str = "overlong.rows";
/// Name of the file with the keys of the rows that go on.
pub const KEYS: &str = "keys";
/// Name of the file with near duplicates, if there are any.
pub const NEAR: &str = "near.rows";

/// Rows of which no sample fits a pack, with their tokens.
pub struct Overlong(Records<OVERLONG_BYTES>);

/// Near duplicates, with the rows that stay in their place.
pub struct NearDropped(Option<Records<NEAR_BYTES>>);

/// Records of a fixed size, read one by one; the checksum is compared at the last one.
struct Records<const N: usize> {
    path: PathBuf,
    file: BufReader<File>,
    sum: Xxh3,
    left: u64,
}

impl<const N: usize> Records<N> {
    fn open(path: PathBuf, left: u64) -> Result<Self, RunError> {
        let read_error = |source| RunError::Read { path: path.clone(), source };
        let file = File::open(&path).map_err(read_error)?;
        let expected = MAGIC.len() as u64 + left * N as u64 + SUM_BYTES;
        if file.metadata().map_err(read_error)?.len() != expected {
            return Err(damaged(&path));
        }
        let mut records = Records { path, file: BufReader::new(file), sum: Xxh3::new(), left };
        let magic: [u8; 8] = records.bytes()?;
        if magic != *MAGIC {
            return Err(damaged(&records.path));
        }
        if records.left == 0 {
            records.check()?;
        }
        Ok(records)
    }

    fn bytes<const M: usize>(&mut self) -> Result<[u8; M], RunError> {
        let mut bytes = [0; M];
        let read = self.file.read_exact(&mut bytes);
        read.map_err(|source| RunError::Read { path: self.path.clone(), source })?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    fn check(&mut self) -> Result<(), RunError> {
        let expected = self.sum.digest().to_le_bytes();
        if self.bytes()? == expected { Ok(()) } else { Err(damaged(&self.path)) }
    }

    fn read(&mut self) -> Result<[u8; N], RunError> {
        let record = self.bytes()?;
        self.left -= 1;
        if self.left == 0 {
            self.check()?;
        }
        Ok(record)
    }
}

impl<const N: usize> Iterator for Records<N> {
    type Item = Result<[u8; N], RunError>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.left > 0).then(|| self.read())
    }
}

impl Iterator for Overlong {
    type Item = Result<(RowId, u64), RunError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|record| overlong_of(&record)))
    }
}

impl Iterator for NearDropped {
    type Item = Result<(RowId, RowId), RunError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.as_mut()?.next()?.map(|record| near_of(&record)))
    }
}

/// A file of a selection that is being written. It is not synced: a selection that is not there whole
/// is made again.
pub(super) struct OutcomeFile {
    path: PathBuf,
    file: BufWriter<File>,
    sum: Xxh3,
}

impl OutcomeFile {
    pub(super) fn create(path: &Path) -> Result<Self, RunError> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let file = BufWriter::new(file.map_err(|e| RunError::write(path, e))?);
        let mut file = OutcomeFile { path: path.to_path_buf(), file, sum: Xxh3::new() };
        file.push(MAGIC)?;
        Ok(file)
    }

    /// Writes a whole file.
    pub(super) fn write(path: &Path, body: &[u8]) -> Result<(), RunError> {
        let mut file = Self::create(path)?;
        file.push(body)?;
        file.finish()
    }

    pub(super) fn push_overlong(&mut self, id: RowId, tokens: u64) -> Result<(), RunError> {
        self.push(&overlong_bytes(id, tokens))
    }

    pub(super) fn push_record(&mut self, record: &[u8]) -> Result<(), RunError> {
        self.push(record)
    }

    pub(super) fn finish(mut self) -> Result<(), RunError> {
        let sum = self.sum.digest().to_le_bytes();
        self.push(&sum)?;
        self.file.flush().map_err(|e| RunError::write(&self.path, e))
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), RunError> {
        self.sum.update(bytes);
        self.file.write_all(bytes).map_err(|e| RunError::write(&self.path, e))
    }
}

/// What stands between the magic and a checksum that is right.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (before, sum) = bytes.split_last_chunk::<8>()?;
    let body = before.strip_prefix(MAGIC)?;
    (xxh3_64(before).to_le_bytes() == *sum).then_some(body)
}

fn damaged(path: &Path) -> RunError {
    RunError::Staged { path: path.to_path_buf(), reason: "its checksum or its form is wrong".to_owned() }
}
