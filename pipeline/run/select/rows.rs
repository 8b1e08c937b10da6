//! The rows of a partition that are in the running, in memory and as bytes.

use super::codec::{Bytes, Damaged, first_down, first_up, put, put_change};
use super::{Keys, SampleRef, SelectedRow};
use crate::pack::{Fit, Packer};
use crate::run::mixture::Candidate;
use crate::source::row::RowId;

/// Rows with what belongs to them, side by side.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    samples: Vec<SampleRef>,
    links: Vec<Link>,
}

/// A row in the running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// The row.
    pub(super) id: RowId,
    /// Its sampling hash.
    pub(super) hash: u64,
    /// Its deduplication key.
    pub(super) key: u128,
    /// Tokens that the length policy keeps.
    pub(super) tokens: u64,
    /// Whether it is held out.
    pub(super) held_out: bool,
    samples: (u32, u32),
    links: (u32, u32),
}

/// A copy of a row in an earlier source. If that one is kept, the row is a duplicate; it is not if a cap
/// leaves the copy out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Sampling hash of the copy.
    pub(super) hash: u64,
    /// The copy.
    pub(super) id: RowId,
}

impl Row {
    /// A row of which nothing else is known yet.
    pub(super) fn new(id: RowId, hash: u64, key: u128) -> Self {
        Row { id, hash, key, ..Row::default() }
    }

    /// The row as the caps see it.
    pub(super) fn candidate(&self) -> Candidate {
        Candidate { hash: self.hash, id: self.id, tokens: self.tokens, once: self.held_out }
    }
}

fn range(at: (u32, u32)) -> std::ops::Range<usize> {
    at.0 as usize..at.1 as usize
}

impl Rows {
    /// Begins a row; samples that follow are its own.
    pub(super) fn begin(&mut self, row: Row) {
        let (samples, links) = (self.samples.len() as u32, self.links.len() as u32);
        self.rows.push(Row { samples: (samples, samples), links: (links, links), ..row });
    }

    /// Adds a sample to the row that was begun last.
    pub(super) fn add_sample(&mut self, sample: SampleRef) {
        self.samples.push(sample);
        if let Some(row) = self.rows.last_mut() {
            row.samples.1 = self.samples.len() as u32;
        }
    }

    /// The samples of a row.
    pub(super) fn samples(&self, row: &Row) -> &[SampleRef] {
        self.samples.get(range(row.samples)).unwrap_or_default()
    }

    /// The copies of a row in earlier sources that may be kept.
    pub(super) fn links(&self, row: &Row) -> &[Link] {
        self.links.get(range(row.links)).unwrap_or_default()
    }

    /// Gives the row with this index links.
    pub(super) fn set_links(&mut self, index: usize, links: &[Link]) {
        let from = self.links.len() as u32;
        self.links.extend(links);
        if let Some(row) = self.rows.get_mut(index) {
            row.links = (from, self.links.len() as u32);
        }
    }

    /// Appends the rows of another list.
    pub(super) fn append(&mut self, other: Rows) {
        let (samples, links) = (self.samples.len() as u32, self.links.len() as u32);
        self.samples.extend(other.samples);
        self.links.extend(other.links);
        let moved = |row: Row| Row {
            samples: (row.samples.0 + samples, row.samples.1 + samples),
            links: (row.links.0 + links, row.links.1 + links),
            ..row
        };
        self.rows.extend(other.rows.into_iter().map(moved));
    }

    /// Leaves the samples of a row that fit a pack, and counts the tokens that stay. Gives what was left
    /// out: samples and tokens that fit nowhere, tokens that truncation cuts off.
    pub(super) fn fit(&mut self, index: usize, packer: &Packer) -> Misfit {
        let (mut misfit, mut tokens) = (Misfit::default(), 0);
        let Some(row) = self.rows.get_mut(index) else { return misfit };
        let samples = self.samples.get_mut(range(row.samples)).unwrap_or_default();
        let mut kept = 0;
        for at in 0..samples.len() {
            let Some(sample) = samples.get(at).copied() else { break };
            misfit.all_tokens += u64::from(sample.tokens);
            match packer.fit(sample.tokens, sample.first_trained) {
                Fit::Overlong => {
                    misfit.samples += 1;
                    misfit.tokens += u64::from(sample.tokens);
                    continue;
                }
                Fit::Truncated(length) => misfit.truncated += u64::from(sample.tokens - length),
                Fit::Class(_) | Fit::Fragments(_) => {}
            }
            tokens += u64::from(packer.kept_tokens(sample.tokens, sample.first_trained));
            if let Some(place) = samples.get_mut(kept) {
                *place = sample;
            }
            kept += 1;
        }
        row.samples.1 = row.samples.0 + kept as u32;
        row.tokens = tokens;
        misfit
    }
}

/// What the length policy takes from a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Samples that fit no pack.
    pub(super) samples: u64,
    /// Their tokens.
    pub(super) tokens: u64,
    /// Tokens that truncation cuts off.
    pub(super) truncated: u64,
    /// Tokens of all samples of the row.
    pub(super) all_tokens: u64,
}

const HELD_OUT: u8 = 1;
const LINKED: u8 = 2;

/// Writes rows one by one, each by its difference from the one before.
#[derive(Default)]
pub(super) struct RowWriter {
    /// What was written so far.
    pub(super) bytes: Vec<u8>,
    keys: Keys,
    last: RowId,
    last_chunk: u32,
}

impl RowWriter {
    /// A writer that keeps keys or not.
    pub(super) fn new(keys: Keys) -> Self {
        RowWriter { keys, ..RowWriter::default() }
    }

    /// Appends a row in the running.
    pub(super) fn push(&mut self, rows: &Rows, row: &Row) {
        let links = rows.links(row);
        let flags = u8::from(row.held_out) * HELD_OUT + u8::from(!links.is_empty()) * LINKED;
        self.begin(row.id, flags);
        self.bytes.extend(row.hash.to_le_bytes());
        if self.keys == Keys::Kept {
            self.bytes.extend(row.key.to_le_bytes());
        }
        put(&mut self.bytes, row.tokens);
        if !links.is_empty() {
            put(&mut self.bytes, links.len() as u64);
            for link in links {
                put(&mut self.bytes, u64::from(link.id.source));
                put(&mut self.bytes, u64::from(link.id.file));
                put(&mut self.bytes, link.id.row);
                self.bytes.extend(link.hash.to_le_bytes());
            }
        }
        self.samples(rows.samples(row));
    }

    /// Appends a row that was selected, to be taken so many times.
    pub(super) fn push_selected(&mut self, rows: &Rows, row: &Row, times: u32) {
        self.begin(row.id, u8::from(row.held_out) * HELD_OUT);
        put(&mut self.bytes, u64::from(times));
        self.samples(rows.samples(row));
    }

    fn begin(&mut self, id: RowId, flags: u8) {
        let last = self.last;
        self.bytes.push(flags);
        put_change(&mut self.bytes, u64::from(last.source), u64::from(id.source));
        put_change(&mut self.bytes, u64::from(last.file), u64::from(id.file));
        put_change(&mut self.bytes, last.row, id.row);
        self.last = id;
    }

    fn samples(&mut self, samples: &[SampleRef]) {
        put(&mut self.bytes, samples.len() as u64);
        for sample in samples {
            put_change(&mut self.bytes, u64::from(self.last_chunk), u64::from(sample.chunk));
            put(&mut self.bytes, u64::from(sample.index));
            put(&mut self.bytes, u64::from(sample.turn));
            put(&mut self.bytes, u64::from(sample.tokens));
            put(&mut self.bytes, u64::from(first_up(sample.first_trained)));
            self.last_chunk = sample.chunk;
        }
    }
}

/// Reads what a [`RowWriter`] wrote.
struct RowReader<'a> {
    bytes: Bytes<'a>,
    last: RowId,
    last_chunk: u32,
}

impl RowReader<'_> {
    fn begin(&mut self) -> Result<u8, Damaged> {
        let flags = self.bytes.byte()?;
        self.last = RowId {
            source: self.bytes.small_changed(self.last.source)?,
            file: self.bytes.small_changed(self.last.file)?,
            row: self.bytes.changed(self.last.row)?,
        };
        Ok(flags)
    }

    fn sample(&mut self) -> Result<SampleRef, Damaged> {
        self.last_chunk = self.bytes.small_changed(self.last_chunk)?;
        Ok(SampleRef {
            chunk: self.last_chunk,
            index: self.bytes.small()?,
            turn: self.bytes.small()?,
            tokens: self.bytes.small()?,
            first_trained: first_down(self.bytes.small()?),
        })
    }

    fn link(&mut self) -> Result<Link, Damaged> {
        let id = RowId { source: self.bytes.small()?, file: self.bytes.small()?, row: self.bytes.number()? };
        Ok(Link { id, hash: u64::from_le_bytes(self.bytes.array()?) })
    }
}

/// The rows in the running that were written.
pub(super) fn read_rows(bytes: &[u8], keys: Keys) -> Result<Rows, Damaged> {
    let mut reader = RowReader { bytes: Bytes(bytes), last: RowId::default(), last_chunk: 0 };
    let mut rows = Rows::default();
    while !reader.bytes.is_empty() {
        let flags = reader.begin()?;
        let hash = u64::from_le_bytes(reader.bytes.array()?);
        let key = if keys == Keys::Kept { u128::from_le_bytes(reader.bytes.array()?) } else { 0 };
        let tokens = reader.bytes.number()?;
        let held_out = flags & HELD_OUT != 0;
        rows.begin(Row { id: reader.last, hash, key, tokens, held_out, ..Row::default() });
        if flags & LINKED != 0 {
            let links = (0..reader.bytes.number()?).map(|_| reader.link()).collect::<Result<Vec<_>, _>>()?;
            rows.set_links(rows.rows.len() - 1, &links);
        }
        for _ in 0..reader.bytes.number()? {
            rows.add_sample(reader.sample()?);
        }
    }
    Ok(rows)
}

/// The selected rows that were written.
pub(super) fn read_selected(bytes: &[u8]) -> Result<Vec<SelectedRow>, Damaged> {
    let mut reader = RowReader { bytes: Bytes(bytes), last: RowId::default(), last_chunk: 0 };
    let mut rows = Vec::new();
    while !reader.bytes.is_empty() {
        let held_out = reader.begin()? & HELD_OUT != 0;
        let times = reader.bytes.small()?;
        let count = reader.bytes.number()?;
        let samples = (0..count).map(|_| reader.sample()).collect::<Result<Vec<_>, _>>()?;
        rows.push(SelectedRow { id: reader.last, held_out, samples, times });
    }
    Ok(rows)
}
