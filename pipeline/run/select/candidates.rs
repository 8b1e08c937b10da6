//! The rows in the running on disk: a stretch for each partition, in it a stretch for each source.

use std::path::{Path, PathBuf};

use super::codec::Damaged;
use super::gather::damaged;
use super::rows::{RowWriter, Rows, read_rows};
use super::scratch::{Scratch, Span};
use super::{Keys, Selecting};
use crate::run::error::RunError;

/// All rows in the running.
pub(super) struct Candidates {
    scratch: Scratch,
    folder: PathBuf,
    keys: Keys,
    sources: usize,
    /// The stretch of each partition: the length of each source's part, u32 little-endian, then the parts.
    spans: Vec<Span>,
}

/// Writes the partitions of one thread.
pub(super) struct CandidateWriter<'c> {
    candidates: &'c Candidates,
    spans: Vec<(u32, Span)>,
}

impl Candidates {
    /// None yet.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn new(folder: &Path, selecting: &Selecting) -> Result<Self, RunError> {
        Ok(Candidates {
            scratch: Scratch::new(folder)?,
            folder: folder.to_path_buf(),
            keys: selecting.keys,
            sources: selecting.rules.sources.len(),
            spans: vec![Span::default(); selecting.rules.partitions as usize],
        })
    }

    /// A writer for a thread.
    pub(super) fn writer(&self) -> CandidateWriter<'_> {
        CandidateWriter { candidates: self, spans: Vec::new() }
    }

    /// With what the writers wrote.
    pub(super) fn with(mut self, written: Vec<Vec<(u32, Span)>>) -> Self {
        for (partition, span) in written.into_iter().flatten() {
            if let Some(place) = self.spans.get_mut(partition as usize) {
                *place = span;
            }
        }
        self
    }

    /// The rows of a partition, in the order of their ids.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn partition(&self, partition: u32) -> Result<Rows, RunError> {
        let mut all = Rows::default();
        for source in 0..self.sources {
            all.append(self.source(partition, source)?);
        }
        Ok(all)
    }

    /// The rows of one source in a partition, in the order of their ids.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn source(&self, partition: u32, source: usize) -> Result<Rows, RunError> {
        let span = self.spans.get(partition as usize).copied().unwrap_or_default();
        if span.len == 0 {
            return Ok(Rows::default());
        }
        let head = self.scratch.read(Span { at: span.at, len: 4 * (source as u64 + 1) })?;
        let (lengths, _) = head.as_chunks::<4>();
        let mut lengths = lengths.iter().map(|len| u64::from(u32::from_le_bytes(*len)));
        let before: u64 = lengths.by_ref().take(source).sum();
        let len = lengths.next().unwrap_or_default();
        let at = span.at + 4 * self.sources as u64 + before;
        let bytes = self.scratch.read(Span { at, len })?;
        read_rows(&bytes, self.keys).map_err(|Damaged| damaged(&self.folder))
    }
}

impl CandidateWriter<'_> {
    /// Writes the rows of a partition that stay, whose indices ascend.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn partition(&mut self, partition: u32, rows: &Rows, stays: &[u32]) -> Result<(), RunError> {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        let mut stays = stays.iter().filter_map(|index| rows.rows.get(*index as usize)).peekable();
        for source in 0..self.candidates.sources {
            let mut writer = RowWriter::new(self.candidates.keys);
            while let Some(row) = stays.next_if(|row| row.id.source as usize == source) {
                writer.push(rows, row);
            }
            head.extend((writer.bytes.len() as u32).to_le_bytes());
            body.append(&mut writer.bytes);
        }
        head.append(&mut body);
        let span = self.candidates.scratch.append(&head)?;
        self.spans.push((partition, span));
        Ok(())
    }

    /// Where the partitions lie.
    pub(super) fn finish(self) -> Vec<(u32, Span)> {
        self.spans
    }
}
