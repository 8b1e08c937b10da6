//! Files of a source: where they are, how they are compressed, what they hold.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::SourceError;
use super::object::Object;
use super::remote::Remote;

/// Buffer of file readers, in bytes.
const BUFFER: usize = 1 << 18;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// One JSON object a line.
    Jsonl,
    /// One JSON array of objects.
    Json,
    /// Comma-separated values with a header (RFC 4180).
    Csv,
    /// Arrow IPC, stream or file.
    Arrow,
}

impl Format {
    /// The format's name in recipes and messages.
    pub fn name(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Jsonl => "jsonl",
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Arrow => "arrow",
        }
    }
}

/// How a file is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, one or more members.
    Gzip,
    /// Zstandard, one or more frames.
    Zstd,
    /// bzip2, one or more streams.
    Bzip2,
    /// xz, one or more streams.
    Xz,
}

impl Compression {
    /// The compression's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "plain",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        }
    }
}

/// Where the bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A local file.
    Path(PathBuf),
    /// A file of the built-in demo.
    Embedded(&'static [u8]),
    /// A file of the Hub.
    Remote(Arc<Remote>),
    /// A file in an object store.
    Object(Arc<Object>),
}

/// One file of a source.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path relative to the source's common folder: the same on every machine.
    pub name: String,
    /// The bytes.
    pub location: Location,
    /// What they hold.
    pub format: Format,
    /// How they are compressed.
    pub compression: Compression,
}

impl SourceFile {
    /// A file at `path`, its format and compression told by its name unless `format` is given.
    ///
    /// # Errors
    /// A name that tells no format.
    pub fn new(name: String, location: Location, format: Option<Format>) -> Result<Self, SourceError> {
        let (told, compression) = format_of_name(&name);
        let format =
            format.or(told).ok_or_else(|| SourceError::UnknownFormat { path: PathBuf::from(&name) })?;
        Ok(SourceFile { name, location, format, compression })
    }

    /// The path for messages.
    pub fn path(&self) -> &Path {
        match &self.location {
            Location::Path(path) => path,
            Location::Embedded(_) => Path::new(&self.name),
            Location::Remote(remote) => remote.shown(),
            Location::Object(object) => object.shown(),
        }
    }

    /// Size in bytes as stored.
    ///
    /// # Errors
    /// A file that is not there.
    pub fn size(&self) -> Result<u64, SourceError> {
        match &self.location {
            Location::Path(path) => {
                std::fs::metadata(path).map(|meta| meta.len()).map_err(|source| self.read_error(source))
            }
            Location::Embedded(bytes) => Ok(bytes.len() as u64),
            Location::Remote(remote) => Ok(remote.size()),
            Location::Object(object) => Ok(object.size()),
        }
    }

    /// Opens the stored bytes, still compressed.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn open_raw(&self) -> Result<Box<dyn ReadSeek>, SourceError> {
        Ok(match &self.location {
            Location::Path(path) => Box::new(BufReader::with_capacity(
                BUFFER,
                File::open(path).map_err(|source| self.read_error(source))?,
            )),
            Location::Embedded(bytes) => Box::new(Cursor::new(*bytes)),
            Location::Remote(remote) if self.streams() => Box::new(remote.open_stream()?),
            Location::Remote(remote) => open_copy(remote.local(&|_| {})?)?,
            Location::Object(object) => open_copy(object.local()?)?,
        })
    }

    /// The file of the Hub, if it is one.
    pub fn remote(&self) -> Option<&Arc<Remote>> {
        match &self.location {
            Location::Remote(remote) => Some(remote),
            Location::Path(_) | Location::Embedded(_) | Location::Object(_) => None,
        }
    }

    /// The file as one of a file system, if it is one or has a copy there: an object is fetched.
    ///
    /// # Errors
    /// What the object store says.
    pub fn plain_path(&self) -> Result<Option<PathBuf>, SourceError> {
        match &self.location {
            Location::Path(path) => Ok(Some(path.clone())),
            Location::Object(object) => object.local().map(Some),
            Location::Embedded(_) | Location::Remote(_) => Ok(None),
        }
    }

    /// Whether the file is read from the Hub without a copy.
    pub fn streams(&self) -> bool {
        self.remote().is_some_and(|remote| remote.streams(self.format))
    }

    /// The file for a reader that accounts for what it reads.
    pub fn fork(&self) -> SourceFile {
        match self.remote() {
            Some(remote) => {
                SourceFile { location: Location::Remote(Arc::new(remote.fork())), ..self.clone() }
            }
            None => self.clone(),
        }
    }

    /// Opens the file, decompressed.
    ///
    /// # Errors
    /// A file that cannot be opened, a Git LFS pointer, a web page.
    pub fn open(&self) -> Result<Box<dyn BufRead + Send>, SourceError> {
        let mut raw = self.open_raw()?;
        self.sniff(raw.as_mut())?;
        let decoder: Box<dyn Read + Send> = match self.compression {
            Compression::None => return Ok(Box::new(raw)),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
            Compression::Zstd => {
                let mut decoder =
                    zstd::Decoder::with_buffer(raw).map_err(|source| self.read_error(source))?;
                // `zstd --long=31` is the longest window that there is.
                decoder.window_log_max(31).map_err(|source| self.read_error(source))?;
                Box::new(decoder)
            }
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(raw)),
            Compression::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(raw)),
        };
        Ok(Box::new(BufReader::with_capacity(BUFFER, decoder)))
    }

    /// Looks at the first bytes for what often stands in place of data.
    ///
    /// # Errors
    /// A Git LFS pointer, a web page, an unreadable or an empty file.
    pub fn sniff(&self, reader: &mut dyn ReadSeek) -> Result<(), SourceError> {
        let mut head = [0u8; 512];
        let mut len = 0;
        while len < head.len() {
            match reader.read(head.get_mut(len..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.read_error(source)),
            }
        }
        reader.seek(SeekFrom::Start(0)).map_err(|source| self.read_error(source))?;
        let head = head.get(..len).unwrap_or_default();
        let path = || self.path().to_path_buf();
        if head.starts_with(b"version https://git-lfs.github.com/spec/") {
            return Err(SourceError::LfsPointer { path: path() });
        }
        let text = head.trim_ascii_start().to_ascii_lowercase();
        if text.starts_with(b"<!doctype html") || text.starts_with(b"<html") {
            return Err(SourceError::Html { path: path(), format: self.format.name() });
        }
        Ok(())
    }

    /// Wraps an I/O error with the place.
    pub fn read_error(&self, source: std::io::Error) -> SourceError {
        SourceError::Read { path: self.path().to_path_buf(), source }
    }

    /// Wraps an error of the decompressed stream, after `row` whole rows.
    pub fn stream_error(&self, source: std::io::Error, row: u64) -> SourceError {
        if self.compression == Compression::None {
            return self.read_error(source);
        }
        SourceError::Truncated {
            path: self.path().to_path_buf(),
            compression: self.compression.name(),
            row,
            source,
        }
    }

    /// The place of a row for messages: `path:line` where rows are lines, `path: row N` (from 0)
    /// elsewhere.
    pub fn place(&self, row: u64) -> String {
        if self.format == Format::Jsonl {
            format!("{}:{}", self.path().display(), row + 1)
        } else {
            format!("{}: row {row}", self.path().display())
        }
    }

    /// What shows that a file was written to: its size and its time of change.
    ///
    /// # Errors
    /// A file that is not there.
    pub fn stamp(&self) -> Result<Stamp, SourceError> {
        match &self.location {
            Location::Embedded(bytes) => Ok((bytes.len() as u64, None)),
            // The cache names a file by its digest, which was checked.
            Location::Remote(remote) => Ok((remote.size(), None)),
            Location::Object(object) => {
                object.check_unchanged()?;
                Ok((object.size(), None))
            }
            Location::Path(path) => {
                let meta = std::fs::metadata(path).map_err(|source| self.read_error(source))?;
                Ok((meta.len(), meta.modified().ok()))
            }
        }
    }
}

/// Opens the copy of a file that lies elsewhere.
fn open_copy(path: PathBuf) -> Result<Box<dyn ReadSeek>, SourceError> {
    let file = File::open(&path).map_err(|source| SourceError::Read { path, source })?;
    Ok(Box::new(BufReader::with_capacity(BUFFER, file)))
}

/// Size and time of change of a file.
pub type Stamp = (u64, Option<std::time::SystemTime>);

/// SHA-256 (hex) and size of the stored bytes.
///
/// # Errors
/// A file that cannot be read.
pub fn digest(file: &SourceFile) -> Result<(String, u64), SourceError> {
    let mut raw = file.open_raw()?;
    file.sniff(raw.as_mut())?;
    let (mut hasher, mut size) = (potable_manifests::Hasher::new(), 0);
    loop {
        let buffer = raw.fill_buf().map_err(|e| file.read_error(e))?;
        if buffer.is_empty() {
            return Ok((hasher.finish().hex().to_owned(), size));
        }
        hasher.update(buffer);
        let len = buffer.len();
        size += len as u64;
        raw.consume(len);
    }
}

/// Bytes that can be sought.
pub trait ReadSeek: BufRead + Seek + Send {}
impl<T: BufRead + Seek + Send> ReadSeek for T {}

/// Format and compression as the file name tells them.
fn format_of_name(name: &str) -> (Option<Format>, Compression) {
    let lower = name.to_ascii_lowercase();
    let mut stem = lower.as_str();
    let mut compression = Compression::None;
    for (suffix, found) in [
        (".gz", Compression::Gzip),
        (".zst", Compression::Zstd),
        (".zstd", Compression::Zstd),
        (".bz2", Compression::Bzip2),
        (".xz", Compression::Xz),
    ] {
        if let Some(rest) = lower.strip_suffix(suffix) {
            stem = rest;
            compression = found;
        }
    }
    let format = match stem.rsplit_once('.').map(|(_, ext)| ext) {
        Some("parquet" | "pq") => Some(Format::Parquet),
        Some("jsonl" | "ndjson") => Some(Format::Jsonl),
        Some("json") => Some(Format::Json),
        Some("csv") => Some(Format::Csv),
        Some("arrow" | "feather" | "ipc") => Some(Format::Arrow),
        _ => None,
    };
    (format, compression)
}
