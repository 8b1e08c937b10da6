//! `potable show`: a row of a shard of any format as text, with the part that is trained on marked.

use std::path::{Path, PathBuf};

use anyhow::Result;
use potable_manifests::Manifest;
use serde_json::json;

use super::Answer;
use super::args::{ShowFormat, ShowRowArgs};
use super::display::grouped;
use super::output::Output;
use crate::pack::{Pack, PackedSample};
use crate::shard::read::{self, ReadError};
use crate::tokenise::{Decoder, TokeniserError};

/// What cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// A file that cannot be read, is no shard, or is a damaged one.
    #[error(transparent)]
    Shard(#[from] ReadError),
    /// A row that there is not.
    #[error("{path}: there is no row {row}: it has {rows} rows, from 0", path = path.display())]
    NoRow {
        /// The file.
        path: PathBuf,
        /// As asked for.
        row: u64,
        /// How many there are.
        rows: u64,
    },
    /// Nothing says which tokenizer the ids are of.
    #[error("{path}: there is no manifest.json above it, so its tokenizer is not known", path = path.display())]
    NoManifest {
        /// The shard.
        path: PathBuf,
    },
    /// Another tokenizer than that of the shard.
    #[error("the shard was made with tokenizer `{name}`, whose digest is {expected}, not with {given}")]
    OtherTokenizer {
        /// Name in the manifest.
        name: String,
        /// Digest in the manifest.
        expected: String,
        /// Digest of what was given.
        given: String,
    },
    /// A tokenizer that cannot be used.
    #[error(transparent)]
    Tokeniser(#[from] TokeniserError),
}

impl ShowError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ShowError::Shard(e) => e.hint(),
            ShowError::NoRow { .. } => Some("choose a lower `--row`".to_owned()),
            ShowError::NoManifest { .. } => {
                Some("name it: `--tokenizer qwen3` or `--tokenizer FILE`".to_owned())
            }
            ShowError::OtherTokenizer { .. } => {
                Some("name the tokenizer.json that the recipe names: `--tokenizer FILE`".to_owned())
            }
            ShowError::Tokeniser(e) => e.hint(),
        }
    }
}

/// Prints a row of a shard.
///
/// # Errors
/// A file that is no shard, a row that there is not, a tokenizer that is not the shard's.
pub fn run(args: &ShowRowArgs, output: &Output) -> Result<Answer> {
    let pack = row(&args.shard, args.row)?;
    let decoder = decoder(&args.shard, args.tokenizer.as_deref())?;
    let mut lines = Vec::new();
    let count = pack.samples.len();
    for (number, sample) in pack.samples.iter().enumerate() {
        let parts = parts(sample, &decoder)?;
        let trained: u64 = sample.trained.iter().map(|&(_, length)| u64::from(length)).sum();
        match args.format {
            ShowFormat::Jsonl => {
                let part = |part: &Part| json!({"trained": part.trained, "text": part.text, "ids": part.ids});
                let parts: Vec<_> = parts.iter().map(part).collect();
                let line = json!({"sample": number, "id": sample.name, "tokens": sample.ids.len(),
                    "trained": trained, "parts": parts});
                lines.push(line.to_string());
            }
            ShowFormat::Text => {
                lines.push(format!(
                    "sample {} of {count}: {}, {} tokens, {} trained on\n{}",
                    number + 1,
                    sample.name,
                    grouped(sample.ids.len() as u64),
                    grouped(trained),
                    parts.iter().map(|part| part.marked(output.has_colour())).collect::<String>()
                ));
            }
        }
    }
    output.data(&lines.join("\n"))?;
    Ok(Answer::Yes)
}

/// Neighbouring tokens that are trained on, or not.
struct Part {
    trained: bool,
    ids: Vec<u32>,
    text: String,
    /// The text in pieces: a control token, or what stands between two.
    pieces: Vec<(Kind, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Control,
    Plain,
}

impl Part {
    fn new(ids: &[u32], trained: bool, decoder: &Decoder) -> Result<Part, ShowError> {
        let kind = |id: &u32| if decoder.is_control(*id) { Kind::Control } else { Kind::Plain };
        let runs = ids.chunk_by(|a, b| kind(a) == kind(b));
        let pieces = runs.map(|run| {
            let kind = run.first().map_or(Kind::Plain, kind);
            Ok((kind, decoder.decode(run)?))
        });
        let pieces = pieces.collect::<Result<_, ShowError>>()?;
        Ok(Part { trained, ids: ids.to_vec(), text: decoder.decode(ids)?, pieces })
    }

    /// The text as a terminal may see it: control characters of the data are escaped, and so is what looks like a
    /// control token or a mark of ours and is text of a row.
    fn marked(&self, colour: bool) -> String {
        let mut text = String::with_capacity(self.text.len());
        for (kind, piece) in &self.pieces {
            let codes = match (self.trained, *kind) {
                _ if !colour => "",
                (false, Kind::Plain) => "",
                (false, Kind::Control) => "\u{1b}[1m",
                (true, Kind::Plain) => "\u{1b}[32m",
                (true, Kind::Control) => "\u{1b}[1;32m",
            };
            text.push_str(codes);
            match kind {
                Kind::Control => text.push_str(piece),
                Kind::Plain => escape(piece, &mut text),
            }
            text.push_str(if codes.is_empty() { "" } else { "\u{1b}[0m" });
        }
        if self.trained && !colour { format!("⟦{text}⟧") } else { text }
    }
}

fn escape(piece: &str, text: &mut String) {
    let mut rest = piece.chars().peekable();
    while let Some(c) = rest.next() {
        let control = c.is_control() && c != '\n' && c != '\t';
        let token = c == '<' && rest.peek() == Some(&'|');
        if control || token || matches!(c, '⟦' | '⟧') {
            text.extend(c.escape_unicode());
        } else {
            text.push(c);
        }
    }
}

/// The row with this number, from 0.
fn row(path: &Path, number: u64) -> Result<Pack, ShowError> {
    let wanted = usize::try_from(number).unwrap_or(usize::MAX);
    if let Some(pack) = read::open_file(path)?.nth(wanted) {
        return Ok(pack?);
    }
    let mut rows = 0;
    for pack in read::open_file(path)? {
        // A damaged row before the wanted one ends the rows, and is what is wrong.
        pack?;
        rows += 1;
    }
    Err(ShowError::NoRow { path: path.to_path_buf(), row: number, rows })
}

/// A sample in parts that are trained on, or not.
fn parts(sample: &PackedSample, decoder: &Decoder) -> Result<Vec<Part>, ShowError> {
    let mut parts = Vec::new();
    let mut add = |from: u32, to: u32, trained: bool| {
        let ids = sample.ids.get(from as usize..to as usize).unwrap_or_default();
        if !ids.is_empty() {
            parts.push(Part::new(ids, trained, decoder)?);
        }
        Ok::<(), ShowError>(())
    };
    let mut at = 0;
    for &(start, length) in &sample.trained {
        add(at, start, false)?;
        add(start, start + length, true)?;
        at = start + length;
    }
    add(at, sample.ids.len() as u32, false)?;
    Ok(parts)
}

/// The decoder of a shard: what is given, if it has the digest that the manifest says; else the
/// built-in one, if that is what the manifest says.
fn decoder(shard: &Path, given: Option<&Path>) -> Result<Decoder, ShowError> {
    let shard = std::path::absolute(shard).unwrap_or_else(|_| shard.to_path_buf());
    let found = shard.ancestors().skip(1).take(4).map(|folder| folder.join("manifest.json"));
    let read = |path: PathBuf| Manifest::from_slice(&std::fs::read(path).ok()?).ok();
    let manifest = found.filter_map(read).next();
    let record = manifest.map(|manifest: Manifest| manifest.tokeniser);
    if record.is_none() && given.is_none() {
        return Err(ShowError::NoManifest { path: shard });
    }
    let decoder = Decoder::load(given.unwrap_or(Path::new(crate::tokenise::encoder::BUILT_IN)))?;
    match record {
        Some(record) if record.vocabulary_digest.hex() != decoder.digest() => {
            Err(ShowError::OtherTokenizer {
                name: record.name,
                expected: record.vocabulary_digest.short().to_owned(),
                given: decoder.digest().chars().take(12).collect(),
            })
        }
        _ => Ok(decoder),
    }
}
