//! One writer a format behind one trait, and what is the same for all of them.

use std::path::{Path, PathBuf};

use potable_manifests::Digest;

use super::content::{Content, ContentSummary};
use super::datasets::DatasetsWriter;
use super::mds::MdsWriter;
use super::megatron::MegatronWriter;
use super::olmo::OlmoWriter;
use super::parquet::ParquetWriter;
use super::table::Table;
use crate::pack::Pack;
use crate::recipe::file::ShardFormat;
use crate::run::error::RunError;

/// A file of a shard: path inside the output folder with `/`, SHA-256, size in bytes.
pub type ShardFile = (String, Digest, u64);

/// A writer of one format. It makes the files of one shard; none of them has its name before
/// [`ShardWriter::seal`].
pub trait ShardWriter {
    /// Appends a pack; a format whose rows are samples gets packs of one sample.
    ///
    /// # Errors
    /// What the file system says.
    fn push(&mut self, pack: Pack) -> Result<(), RunError>;

    /// Syncs the files and gives them their names; gives SHA-256 and size of each, in the order of
    /// [`ShardFormat::files`].
    ///
    /// # Errors
    /// What the file system says.
    fn seal(self: Box<Self>) -> Result<Vec<(Digest, u64)>, RunError>;
}

/// How shards are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// The format.
    pub format: ShardFormat,
    /// Whether packs have a `position_ids` column, in the format `parquet`.
    pub position_ids: bool,
    /// Ids in the vocabulary.
    pub vocabulary: u64,
}

/// A shard that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its files, the main one first.
    pub files: Vec<ShardFile>,
    /// What it says.
    pub content: ContentSummary,
}

/// A shard in the making: the format's writer, and the content's digest.
pub struct ShardSink {
    main: PathBuf,
    paths: Vec<String>,
    largest: u32,
    writer: Box<dyn ShardWriter>,
    content: Content,
}

impl ShardSink {
    /// Starts the shard whose main file is `path` (inside `root`, with `/`).
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(root: &Path, path: &str, options: &ShardOptions) -> Result<Self, RunError> {
        let paths = options.format.files(path);
        let full: Vec<PathBuf> = paths.iter().map(|path| root.join(path)).collect();
        for folder in full.iter().filter_map(|path| path.parent()) {
            std::fs::create_dir_all(folder).map_err(|e| RunError::write(folder, e))?;
        }
        let main = root.join(path);
        let writer = writer(&main, full, options)?;
        let largest = options.format.largest_id(options.vocabulary);
        Ok(ShardSink { main, paths, largest, writer, content: Content::new() })
    }

    /// Appends a pack.
    ///
    /// # Errors
    /// An id that the format's type does not hold; what the file system says.
    pub fn push(&mut self, pack: Pack) -> Result<(), RunError> {
        for sample in &pack.samples {
            if let Some(&id) = sample.ids.iter().find(|id| **id > self.largest) {
                return Err(RunError::IdTooLarge {
                    path: self.main.clone(),
                    sample: sample.name.clone(),
                    id,
                    largest: self.largest,
                });
            }
        }
        self.content.add(&pack);
        self.writer.push(pack)
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.content.tokens()
    }

    /// Ends the shard: its files are durable and have their names.
    ///
    /// # Errors
    /// What the file system says.
    pub fn seal(self) -> Result<Shard, RunError> {
        let sealed = self.writer.seal()?;
        let files = self.paths.into_iter().zip(sealed).map(|(path, (sha256, size))| (path, sha256, size));
        Ok(Shard { files: files.collect(), content: self.content.finish() })
    }
}

/// The writer of a format; `files` are those of the shard, the main one first.
fn writer(
    main: &Path,
    files: Vec<PathBuf>,
    options: &ShardOptions,
) -> Result<Box<dyn ShardWriter>, RunError> {
    let packs = if options.position_ids { Table::PacksWithPositions } else { Table::Packs };
    let incomplete = |_| RunError::Shard { path: main.to_path_buf(), reason: "lacks files".to_owned() };
    Ok(match options.format {
        ShardFormat::Parquet => Box::new(ParquetWriter::create(main, packs)?),
        ShardFormat::ParquetUnpacked => {
            let [main, ids] = <[PathBuf; 2]>::try_from(files).map_err(incomplete)?;
            Box::new(ParquetWriter::create_with_ids(&main, Table::Samples, &ids)?)
        }
        ShardFormat::MegatronBridge => Box::new(ParquetWriter::create(main, Table::Bridge)?),
        ShardFormat::Mds => Box::new(MdsWriter::create(main)?),
        ShardFormat::Arrow => {
            let [main, ids] = <[PathBuf; 2]>::try_from(files).map_err(incomplete)?;
            Box::new(DatasetsWriter::create(&main, &ids)?)
        }
        ShardFormat::Olmo => {
            let files = <[PathBuf; 3]>::try_from(files).map_err(incomplete)?;
            Box::new(OlmoWriter::create(files, options.vocabulary)?)
        }
        ShardFormat::Megatron => {
            let [tokens, index, ids] = <[PathBuf; 3]>::try_from(files).map_err(incomplete)?;
            Box::new(MegatronWriter::create([tokens, index], &ids)?)
        }
    })
}
