//! `potable show`: a packed row as text, with the part that is trained on marked.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use potable_manifests::Manifest;
use serde_json::json;

use super::Answer;
use super::args::{ShowFormat, ShowRowArgs};
use super::display::grouped;
use super::output::Output;
use crate::shard::table::IGNORED;
use crate::tokenise::{Decoder, TokeniserError};

/// What cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// A file that cannot be opened.
    #[error("cannot read `{path}`", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file that is no shard, or a damaged one.
    #[error("{path}: is not a shard that potable wrote: {reason}", path = path.display())]
    NotAShard {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
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
            ShowError::NotAShard { .. } => {
                Some("name a file of `shards/` or `validation/` in an output folder".to_owned())
            }
            ShowError::NoRow { .. } => Some("choose a lower `--row`".to_owned()),
            ShowError::NoManifest { .. } => {
                Some("name it: `--tokenizer qwen3` or `--tokenizer FILE`".to_owned())
            }
            ShowError::OtherTokenizer { .. } => {
                Some("name the tokenizer.json that the recipe names: `--tokenizer FILE`".to_owned())
            }
            ShowError::Tokeniser(e) => e.hint(),
            ShowError::Read { .. } => None,
        }
    }
}

/// Prints a row of a shard.
///
/// # Errors
/// A file that is no shard, a row that there is not, a tokenizer that is not the shard's.
pub fn run(args: &ShowRowArgs, output: &Output) -> Result<Answer> {
    let row = read_row(&args.shard, args.row)?;
    let decoder = decoder(&args.shard, args.tokenizer.as_deref())?;
    let mut lines = Vec::new();
    let count = row.samples.len();
    for (number, sample) in row.samples.iter().enumerate() {
        let parts = sample.parts(&row, &decoder)?;
        let trained = row.labels.get(sample.range.clone()).unwrap_or_default();
        let trained = trained.iter().filter(|label| **label != i64::from(IGNORED)).count();
        match args.format {
            ShowFormat::Jsonl => {
                let parts: Vec<_> =
                    parts.iter().map(|part| json!({"trained": part.trained, "text": part.text})).collect();
                let line = json!({"sample": number, "id": sample.name, "tokens": sample.range.len(),
                    "trained": trained, "parts": parts});
                lines.push(line.to_string());
            }
            ShowFormat::Text => {
                let name = sample.name.as_deref().unwrap_or("no id");
                lines.push(format!(
                    "sample {} of {count}: {name}, {} tokens, {} trained on\n{}",
                    number + 1,
                    grouped(sample.range.len() as u64),
                    grouped(trained as u64),
                    parts.iter().map(|part| part.marked(output.has_colour())).collect::<String>()
                ));
            }
        }
    }
    output.data(&lines.join("\n"))?;
    Ok(Answer::Yes)
}

/// A row of a shard.
struct Row {
    ids: Vec<u32>,
    labels: Vec<i64>,
    samples: Vec<Sample>,
}

/// A sample of a row.
struct Sample {
    name: Option<String>,
    range: Range<usize>,
}

/// Neighbouring tokens that are trained on, or not.
struct Part {
    trained: bool,
    text: String,
}

impl Sample {
    fn parts(&self, row: &Row, decoder: &Decoder) -> Result<Vec<Part>, ShowError> {
        let is_trained = |index: &usize| row.labels.get(*index).is_some_and(|l| *l != i64::from(IGNORED));
        let indices: Vec<usize> = self.range.clone().collect();
        indices
            .chunk_by(|a, b| is_trained(a) == is_trained(b))
            .map(|run| {
                let ids: Vec<u32> = run.iter().filter_map(|index| row.ids.get(*index).copied()).collect();
                Ok(Part { trained: run.first().is_some_and(is_trained), text: decoder.decode(&ids)? })
            })
            .collect()
    }
}

impl Part {
    /// The text as a terminal may see it: control characters of the data are escaped.
    fn marked(&self, colour: bool) -> String {
        let escape = |c: char| c.is_control() && c != '\n' && c != '\t';
        let mut text = String::with_capacity(self.text.len());
        for c in self.text.chars() {
            match escape(c) {
                true => text.extend(c.escape_unicode()),
                false => text.push(c),
            }
        }
        match (self.trained, colour) {
            (false, _) => text,
            (true, true) => format!("\u{1b}[32m{text}\u{1b}[0m"),
            (true, false) => format!("⟦{text}⟧"),
        }
    }
}

fn read_row(path: &Path, row: u64) -> Result<Row, ShowError> {
    let not_a_shard = |reason: String| ShowError::NotAShard { path: path.to_path_buf(), reason };
    let file = File::open(path).map_err(|source| ShowError::Read { path: path.to_path_buf(), source })?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| not_a_shard(e.to_string()))?;
    let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or_default();
    if let Some(name) = ["input_ids", "labels", "seq_lengths"]
        .iter()
        .find(|name| builder.schema().field_with_name(name).is_err())
    {
        return Err(not_a_shard(format!("there is no column `{name}`")));
    }
    if row >= rows {
        return Err(ShowError::NoRow { path: path.to_path_buf(), row, rows });
    }
    let reader = builder.with_offset(usize::try_from(row).unwrap_or(usize::MAX)).with_limit(1).build();
    let batch = reader.map_err(|e| not_a_shard(e.to_string()))?.next();
    let batch = batch.ok_or_else(|| not_a_shard(format!("row {row} is missing")))?;
    row_of(&batch.map_err(|e| not_a_shard(e.to_string()))?).map_err(not_a_shard)
}

fn row_of(batch: &RecordBatch) -> Result<Row, String> {
    let labels = numbers(batch, "labels")?;
    let ids = numbers(batch, "input_ids")?;
    if ids.len() != labels.len() {
        return Err(format!("a row has {} ids and {} labels", ids.len(), labels.len()));
    }
    let names = names(batch);
    let (mut samples, mut at) = (Vec::new(), 0);
    for (index, length) in numbers(batch, "seq_lengths")?.into_iter().enumerate() {
        let end = at + usize::try_from(length).unwrap_or_default();
        samples.push(Sample { name: names.get(index).cloned(), range: at..end });
        at = end;
    }
    if at != ids.len() {
        return Err(format!("a row has {} ids, and samples of {at}", ids.len()));
    }
    let ids = ids.into_iter().map(|id| u32::try_from(id).unwrap_or(u32::MAX)).collect();
    Ok(Row { ids, labels, samples })
}

/// The numbers of a list column in the only row of a batch, whatever its integer type.
fn numbers(batch: &RecordBatch, name: &str) -> Result<Vec<i64>, String> {
    let column = batch.column_by_name(name).ok_or_else(|| format!("there is no column `{name}`"))?;
    let list = match column.data_type() {
        DataType::List(_) => column.as_list::<i32>().value(0),
        DataType::LargeList(_) => column.as_list::<i64>().value(0),
        other => return Err(format!("column `{name}` is {other}, not a list")),
    };
    let wide = arrow::compute::cast(&list, &DataType::Int64).map_err(|e| format!("column `{name}`: {e}"))?;
    Ok(wide.as_primitive::<Int64Type>().values().to_vec())
}

fn names(batch: &RecordBatch) -> Vec<String> {
    let Some(column) = batch.column_by_name("sample_ids") else { return Vec::new() };
    let Some(lists) = column.as_list_opt::<i32>() else { return Vec::new() };
    let list = lists.value(0);
    let texts = list.as_string_opt::<i32>();
    texts.map_or_else(Vec::new, |texts| texts.iter().flatten().map(str::to_owned).collect())
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
