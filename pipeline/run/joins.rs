//! Joins at plan time: the other corpora found, hashed and read, before any row of the source is.

use rayon::prelude::*;

use super::error::RunError;
use super::plan::find_files;
use crate::recipe::Supply;
use crate::recipe::join::ResolvedJoin;
use crate::recipe::lock::{LockedFile, LockedSource};
use crate::recipe::resolve::ResolvedSource;
use crate::source::SourceFile;
use crate::source::adapt::Mapping;
use crate::source::join::{JoinTable, JoinTexts, read_texts};
use crate::source::open::{Stamp, digest};

/// The joins of a source, ready to run.
#[derive(Debug)]
pub struct PlannedJoins {
    /// The other corpora.
    pub inputs: Vec<PlannedJoin>,
    /// Their texts.
    pub table: JoinTable,
}

/// Another corpus that rows take text from.
#[derive(Debug)]
pub struct PlannedJoin {
    /// The join.
    pub config: ResolvedJoin,
    /// Its files in name order.
    pub files: Vec<JoinedFile>,
    /// Rows in all of them.
    pub rows: u64,
}

/// A file of another corpus.
#[derive(Clone, Debug)]
pub struct JoinedFile {
    /// The file.
    pub file: SourceFile,
    /// SHA-256 of the stored bytes, in hex.
    pub sha256: String,
    /// Size of the stored bytes.
    pub size: u64,
    /// Size and time of change when the file was hashed.
    pub stamp: Stamp,
}

/// Reads what the joins of a source need; `None` if it has none.
///
/// # Errors
/// Files that are missing or damaged, texts that are none.
pub fn plan_joins(
    source: &ResolvedSource,
    mapping: &Mapping,
    supply: &Supply,
) -> Result<Option<PlannedJoins>, RunError> {
    if source.joins.is_empty() {
        return Ok(None);
    }
    let (mut inputs, mut texts) = (Vec::new(), Vec::new());
    for join in &source.joins {
        // They are read whole, for their digest and for their text.
        let found = match &join.source.want {
            Some(want) => supply.kept(want, join.source.format)?,
            None => find_files(&join.source, supply)?,
        };
        let place = format!("join `{}` of source `{}`", join.name, source.name);
        let files: Vec<JoinedFile> = found
            .par_iter()
            .map(|file| {
                let stamp = file.stamp()?;
                let (sha256, size) = digest(file)?;
                Ok(JoinedFile { file: file.clone(), sha256, size, stamp })
            })
            .collect::<Result<_, RunError>>()?;
        let read = read_texts(&found, &join.file, &place)?;
        inputs.push(PlannedJoin { config: join.clone(), files, rows: read.len() as u64 });
        texts.push(JoinTexts { name: &join.name, file: &join.file, texts: read });
    }
    let table = JoinTable::new(texts, &mapping.columns)?;
    Ok(Some(PlannedJoins { inputs, table }))
}

impl PlannedJoin {
    /// The other corpus as the lock has it.
    pub fn locked(&self) -> LockedSource {
        let source = &self.config.source;
        LockedSource {
            name: source.name.clone(),
            repo: source.corpus.clone(),
            revision: source.revision.clone(),
            licence: source.licence.clone(),
            local: source.want.is_none(),
            file: self
                .files
                .iter()
                .map(|f| LockedFile {
                    name: f.file.name.clone(),
                    size: f.size,
                    sha256: f.sha256.clone(),
                    rows: None,
                })
                .collect(),
        }
    }
}
