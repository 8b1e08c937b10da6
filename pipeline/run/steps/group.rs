//! What map leaves of one unit: an object of tokens, in blocks by partition, and an object with all the
//! rest, whose presence says that the unit is done.
//!
//! ```text
//! NAME.tokens   blocks one after the other; each an Arrow IPC stream of `ids` and `trained`
//! NAME.staged   "POTUNIT1", length of the header (8 bytes), xxh3-128 of the header (16 bytes),
//!               the header (JSON), then spans: metadata and dropped rows of each file as Arrow IPC streams
//! ```
//! Numbers are little-endian. Each span and block is named with its xxh3-128.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::run::error::RunError;
use crate::run::rows::add_ledger;
use crate::run::select::Metadata;
use crate::run::staged::{
    ChunkLedger, Staged, StagedDrop, StagedRows, VisitBands, VisitSamples, bands_of, drops_batch, drops_of,
    is_token_column, metas_of, read_drops,
};
use crate::shard::AtomicFile;
use crate::source::remote::RangeUse;

const MAGIC: &[u8; 8] = b"POTUNIT1";
/// Bytes before the header.
const FRONT: u64 = 8 + 8 + 16;

/// Bytes of an object, and what they must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// First byte; in the header of a unit counted from the end of the header.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// xxh3-128 of the bytes, in hex.
    pub xxh3: String,
}

impl Span {
    fn of(start: u64, bytes: &[u8]) -> Span {
        Span { start, len: bytes.len() as u64, xxh3: hex(bytes) }
    }

    /// Whether these are the bytes.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.len && hex(bytes) == self.xxh3
    }
}

/// The header of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupHeader {
    /// Digest of everything that map read.
    pub map_digest: String,
    /// Number of the unit.
    pub unit: u64,
    /// Files that it read rows of, in the order of source and file.
    pub parts: Vec<PartHeader>,
    /// Blocks of tokens, by partition.
    pub blocks: Vec<Block>,
}

/// What a unit has of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartHeader {
    /// The ledger; `partitions` are those that it has samples of, one record batch of metadata each.
    pub ledger: ChunkLedger,
    /// Metadata of its samples.
    pub samples: Span,
    /// Rows that ended in map.
    pub drops: Span,
    /// Ranges that were read of a streamed file.
    pub ranges: Vec<RangeUse>,
}

/// The tokens of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The partition.
    pub partition: u32,
    /// Where it is.
    pub span: Span,
    /// Samples of each part in it, one part after the other: index of the part, and how many.
    pub counts: Vec<(u32, u32)>,
}

/// What a unit was mapped to.
pub struct MappedGroup<'a> {
    /// Digest of everything that map read.
    pub map_digest: &'a str,
    /// Number of the unit.
    pub unit: u64,
    /// Chunks in the order of source, file and row.
    pub chunks: &'a [Staged],
    /// Ranges that were read, by source and file.
    pub ranges: BTreeMap<(u32, u32), Vec<RangeUse>>,
}

impl MappedGroup<'_> {
    /// Writes the two files. Memory holds the samples of one partition.
    ///
    /// # Errors
    /// A chunk that is damaged, what the file system says.
    pub fn write(mut self, tokens: &Path, staged: &Path) -> Result<(), RunError> {
        let parts: Vec<&[Staged]> =
            self.chunks.chunk_by(|a, b| a.ledger.place() == b.ledger.place()).collect();
        let mut bodies: Vec<Body> = parts.iter().map(|chunks| Body::new(chunks)).collect();
        let blocks = write_tokens(tokens, &parts, &mut bodies)?;
        let (mut payload, mut headers) = (Vec::new(), Vec::new());
        for (chunks, body) in parts.iter().zip(bodies) {
            let drops: Vec<StagedDrop> =
                chunks.iter().map(|chunk| read_drops(&chunk.path)).collect::<Result<Vec<_>, _>>()?.concat();
            let ranges = self.ranges.remove(&body.ledger.place()).unwrap_or_default();
            let samples = ipc(&body.samples)?;
            let drops = if drops.is_empty() { Vec::new() } else { ipc(&[drops_batch(&drops)?])? };
            let mut span = |bytes: Vec<u8>| {
                let span = Span::of(payload.len() as u64, &bytes);
                payload.extend(bytes);
                span
            };
            let (samples, drops) = (span(samples), span(drops));
            headers.push(PartHeader { ledger: body.ledger, samples, drops, ranges });
        }
        let (map_digest, unit) = (self.map_digest.to_owned(), self.unit);
        write_staged(staged, &GroupHeader { map_digest, unit, parts: headers, blocks }, &payload)
    }
}

/// What a part gathers while the partitions are gone through.
struct Body {
    ledger: ChunkLedger,
    samples: Vec<RecordBatch>,
}

impl Body {
    fn new(chunks: &[Staged]) -> Body {
        let mut ledger = ChunkLedger::default();
        for chunk in chunks {
            let one = &chunk.ledger;
            add_ledger(&mut ledger, one);
            (ledger.source, ledger.file, ledger.above) = (one.source, one.file, one.above);
            ledger.next_row = ledger.next_row.max(one.next_row);
        }
        // Rows that another band passed over are counted there; here the band's own are.
        ledger.passed = chunks.iter().map(|chunk| chunk.ledger.passed).sum();
        Body { ledger, samples: Vec::new() }
    }
}

fn write_tokens(path: &Path, parts: &[&[Staged]], bodies: &mut [Body]) -> Result<Vec<Block>, RunError> {
    let all = parts.iter().flat_map(|chunks| chunks.iter()).flat_map(|chunk| &chunk.ledger.partitions);
    let partitions: BTreeSet<u32> = all.copied().collect();
    let mut file = AtomicFile::create(path)?;
    let (mut blocks, mut at) = (Vec::new(), 0);
    for partition in partitions {
        let (mut tokens, mut counts) = (Vec::new(), Vec::new());
        for (index, (chunks, body)) in (0..).zip(parts.iter().zip(bodies.iter_mut())) {
            let batches = chunks.iter().filter_map(|chunk| chunk.samples(partition).transpose());
            let batches = batches.collect::<Result<Vec<_>, _>>()?;
            let Some(first) = batches.first() else { continue };
            let batch = concat_batches(&first.schema(), &batches)?;
            counts.push((index, batch.num_rows() as u32));
            let (of_tokens, metadata) = split_columns(&batch)?;
            tokens.push(of_tokens);
            body.samples.push(metadata);
            body.ledger.partitions.push(partition);
        }
        let Some(first) = tokens.first() else { continue };
        let bytes = ipc(&[concat_batches(&first.schema(), &tokens)?])?;
        file.write_all(&bytes).map_err(|e| RunError::write(path, e))?;
        blocks.push(Block { partition, span: Span::of(at, &bytes), counts });
        at += bytes.len() as u64;
    }
    file.commit()?;
    Ok(blocks)
}

/// The columns of tokens, and the others.
fn split_columns(batch: &RecordBatch) -> Result<(RecordBatch, RecordBatch), RunError> {
    let schema = batch.schema();
    let (tokens, metadata): (Vec<usize>, Vec<usize>) =
        (0..batch.num_columns()).partition(|&index| is_token_column(schema.field(index).name()));
    Ok((batch.project(&tokens)?, batch.project(&metadata)?))
}

fn write_staged(path: &Path, header: &GroupHeader, payload: &[u8]) -> Result<(), RunError> {
    let text = serde_json::to_vec(header).map_err(|e| RunError::Manifest { reason: e.to_string() })?;
    let mut front = MAGIC.to_vec();
    front.extend((text.len() as u64).to_le_bytes());
    front.extend(xxh3_128(&text).to_le_bytes());
    let mut file = AtomicFile::create(path)?;
    for part in [front.as_slice(), &text, payload] {
        file.write_all(part).map_err(|e| RunError::write(path, e))?;
    }
    file.commit()?;
    Ok(())
}

/// A unit that is done: its header in memory, the rest read when it is asked for.
#[derive(Clone, Debug)]
pub struct StagedGroup {
    /// A copy of `NAME.staged`, or the object itself in a folder.
    pub path: PathBuf,
    /// The header.
    pub header: GroupHeader,
    body: u64,
}

impl StagedGroup {
    /// Opens `NAME.staged`.
    ///
    /// # Errors
    /// [`RunError::Staged`] with what is wrong with it, [`RunError::Read`] if the file system says that it
    /// cannot be read.
    pub fn open(path: &Path) -> Result<StagedGroup, RunError> {
        Self::read_header(path).map_err(|problem| match problem {
            Problem::Damage(reason) => RunError::Staged { path: path.to_path_buf(), reason },
            Problem::Io(source) => RunError::Read { path: path.to_path_buf(), source },
        })
    }

    fn read_header(path: &Path) -> Result<StagedGroup, Problem> {
        let mut file = File::open(path)?;
        let mut front = [0u8; FRONT as usize];
        file.read_exact(&mut front)?;
        let (magic, rest) = front.split_at(MAGIC.len());
        let (len, sum) = rest.split_at(8);
        let numbers = len.first_chunk::<8>().zip(sum.first_chunk::<16>());
        let Some((len, sum)) = numbers.filter(|_| magic == MAGIC) else {
            return Err("it is no staged unit".into());
        };
        let (len, sum) = (u64::from_le_bytes(*len), u128::from_le_bytes(*sum));
        let size = file.metadata()?.len();
        if len > size - FRONT {
            return Err("it is cut short".into());
        }
        let mut text = vec![0; len as usize];
        file.read_exact(&mut text)?;
        if xxh3_128(&text) != sum {
            return Err("its header is not what was written".into());
        }
        let header: GroupHeader =
            serde_json::from_slice(&text).map_err(|e| Problem::Damage(e.to_string()))?;
        let body = FRONT + len;
        let spans = header.parts.iter().flat_map(|part| [&part.samples, &part.drops]);
        let end = spans.map(|span| span.start + span.len).max().unwrap_or_default();
        if body + end != size {
            return Err("it is not of the length that it says".into());
        }
        Ok(StagedGroup { path: path.to_path_buf(), header, body })
    }

    /// Its parts.
    pub fn parts(self: &std::sync::Arc<Self>) -> impl Iterator<Item = Part> {
        let parts = 0..self.header.parts.len();
        parts.map(|index| Part { group: self.clone(), index })
    }

    fn read(&self, span: &Span) -> Result<Vec<u8>, RunError> {
        let read_error = |source| RunError::Read { path: self.path.clone(), source };
        let mut file = File::open(&self.path).map_err(read_error)?;
        file.seek(SeekFrom::Start(self.body + span.start)).map_err(read_error)?;
        let mut bytes = Vec::with_capacity(span.len as usize);
        file.take(span.len).read_to_end(&mut bytes).map_err(read_error)?;
        if span.is_of(&bytes) { Ok(bytes) } else { Err(self.damaged("its rows are not what was written")) }
    }

    fn damaged(&self, reason: &str) -> RunError {
        RunError::Staged { path: self.path.clone(), reason: reason.to_owned() }
    }
}

/// Why a staged unit cannot be opened.
enum Problem {
    /// It is not what was written.
    Damage(String),
    /// It could not be read this time.
    Io(std::io::Error),
}

impl From<&str> for Problem {
    fn from(reason: &str) -> Problem {
        Problem::Damage(reason.to_owned())
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Problem {
        if is_damage(&error) { Problem::Damage(error.to_string()) } else { Problem::Io(error) }
    }
}

/// Whether an error says that a file is not there or has too few bytes, not that it cannot be read now.
pub fn is_damage(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof)
}

/// What a unit has of one file.
#[derive(Clone, Debug)]
pub struct Part {
    /// The unit.
    pub group: std::sync::Arc<StagedGroup>,
    /// Index of the part in it.
    pub index: usize,
}

impl Part {
    /// The header.
    pub fn header(&self) -> Option<&PartHeader> {
        self.group.header.parts.get(self.index)
    }

    fn batches(&self, span: &Span) -> Result<Vec<RecordBatch>, RunError> {
        if span.len == 0 {
            return Ok(Vec::new());
        }
        from_ipc(&self.group.read(span)?).map_err(|e| self.group.damaged(&e.to_string()))
    }
}

/// The ledger of a part that there is not.
static NO_LEDGER: std::sync::LazyLock<ChunkLedger> = std::sync::LazyLock::new(ChunkLedger::default);

impl StagedRows for Part {
    fn ledger(&self) -> &ChunkLedger {
        self.header().map_or(&NO_LEDGER, |header| &header.ledger)
    }

    fn drops(&self) -> Result<Vec<StagedDrop>, RunError> {
        let Some(header) = self.header() else { return Ok(Vec::new()) };
        Ok(self.batches(&header.drops)?.iter().flat_map(drops_of).collect())
    }
}

impl Metadata for Part {
    fn place(&self) -> (u32, u32) {
        self.ledger().place()
    }

    fn each(&self, visit: &mut VisitSamples) -> Result<(), RunError> {
        let Some(header) = self.header() else { return Ok(()) };
        let batches = self.batches(&header.samples)?;
        if batches.len() != header.ledger.partitions.len() {
            return Err(self.group.damaged("it has not the partitions that it says"));
        }
        let mut partitions = header.ledger.partitions.iter().zip(&batches);
        partitions.try_for_each(|(partition, batch)| visit(*partition, &metas_of(batch)))
    }

    fn next_row(&self) -> u64 {
        self.ledger().next_row
    }

    fn each_bands(&self, visit: &mut VisitBands) -> Result<(), RunError> {
        let Some(header) = self.header() else { return Ok(()) };
        self.batches(&header.samples)?.iter().try_for_each(|batch| bands_of(batch, visit))
    }
}

/// Record batches of one schema as an Arrow IPC stream.
fn ipc(batches: &[RecordBatch]) -> Result<Vec<u8>, RunError> {
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let mut writer = StreamWriter::try_new(Vec::new(), &first.schema())?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    Ok(writer.into_inner()?)
}

/// The record batches of an Arrow IPC stream.
///
/// # Errors
/// Bytes that are none.
pub fn from_ipc(bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    StreamReader::try_new(bytes, None)?.collect()
}

fn hex(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_now_is_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let damaged = |path: &Path| matches!(StagedGroup::open(path), Err(RunError::Staged { .. }));
        assert!(damaged(&folder.path().join("gone")));
        let short = folder.path().join("short");
        crate::shard::write_atomic(&short, b"POTUNIT1").unwrap();
        assert!(damaged(&short));
        assert!(matches!(StagedGroup::open(folder.path()), Err(RunError::Read { .. })));
    }
}
