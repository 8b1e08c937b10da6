//! Shards back to packs: the one way in which `verify`, `audit`, `show` and tests read what was
//! written, whatever the format. A reader gives the very [`Pack`]s that the writer got (trained runs
//! as runs, borders as samples, ids of samples from the row or from beside the shard), so that
//! [`Content`](super::Content) fed with them gives the digest that the manifest has.

mod datasets;
mod error;
mod parquet;
mod plain;
mod table;

use std::path::{Path, PathBuf};

pub use error::ReadError;

use self::table::{MakePack, Row};
use crate::pack::{Pack, PackedSample};
use crate::recipe::file::ShardFormat;

/// The packs of a shard, in order. After an error there are no more.
pub type Packs = Box<dyn Iterator<Item = Result<Pack, ReadError>> + Send>;

/// Opens a shard of a data set. `root` is the output folder, `shard` the path in the manifest.
///
/// # Errors
/// A file that is not there, or not of this format.
pub fn open(root: &Path, format: ShardFormat, shard: &str) -> Result<Packs, ReadError> {
    let main = root.join(shard);
    let files: Vec<PathBuf> = format.files(shard).iter().map(|file| root.join(file)).collect();
    match format {
        ShardFormat::Parquet => parquet::packs(&main, Box::new(parquet::pack_row)),
        ShardFormat::MegatronBridge => parquet::packs(&main, Box::new(parquet::bridge_row)),
        ShardFormat::ParquetUnpacked => parquet::packs(&main, sample_row(Names::beside(&main, &files)?)),
        ShardFormat::Arrow => datasets::packs(&main, sample_row(Names::beside(&main, &files)?)),
        ShardFormat::Olmo => plain::olmo(&files),
        ShardFormat::Megatron => plain::megatron(&files),
        ShardFormat::Mds => plain::mds(&main),
    }
}

/// Opens a shard by its main file alone: the format is told from the file, and the output folder is
/// the nearest folder above with a `manifest.json`, else the one in which the file stands.
///
/// # Errors
/// As [`open`].
pub fn open_file(path: &Path) -> Result<Packs, ReadError> {
    let format = detect(path)?;
    let own = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let root = path.ancestors().skip(1).find(|folder| folder.join("manifest.json").is_file());
    let root: PathBuf = root.map_or(own, Path::to_path_buf);
    let shard = path.strip_prefix(&root).unwrap_or(path).to_string_lossy().into_owned();
    open(&root, format, &shard)
}

/// The format of a shard, by the name and the columns of its main file.
///
/// # Errors
/// A file that cannot be read, or that is no shard.
pub fn detect(path: &Path) -> Result<ShardFormat, ReadError> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let found = match extension.as_ref() {
        "parquet" => parquet::format_of(&parquet::columns(path)?),
        "arrow" => Some(ShardFormat::Arrow),
        "npy" if name.starts_with("token_ids_part_") => Some(ShardFormat::Olmo),
        "bin" => Some(ShardFormat::Megatron),
        "mds" => Some(ShardFormat::Mds),
        _ => None,
    };
    found.ok_or_else(|| ReadError::NotAShard { path: path.to_path_buf() })
}

/// Sample ids from beside a shard, pack by pack.
struct Names {
    packs: std::vec::IntoIter<Vec<String>>,
}

impl Names {
    /// Those of a shard, by its files.
    fn beside(main: &Path, files: &[PathBuf]) -> Result<Self, ReadError> {
        Names::read(files.get(1).ok_or_else(|| ReadError::malformed(main, "has no sample ids"))?)
    }

    fn read(path: &Path) -> Result<Self, ReadError> {
        Ok(Names { packs: super::sidecar::read(path)?.into_iter() })
    }

    /// The id of the next pack, which is one sample.
    fn one(&mut self) -> Result<String, String> {
        let mut names = self.packs.next().unwrap_or_default();
        match (names.pop(), names.is_empty()) {
            (Some(name), true) => Ok(name),
            _ => Err("there is not one sample id for it".to_owned()),
        }
    }
}

/// Rows that are samples, with their ids from beside the shard.
fn sample_row(mut names: Names) -> MakePack {
    Box::new(move |row: &Row| {
        let (ids, labels) = (row.numbers("input_ids")?, row.numbers("labels")?);
        let sample = Parts { name: names.one()?, ids: &ids, labels: &labels }.sample()?;
        Ok(Pack { samples: vec![sample] })
    })
}

/// Puts a sample together from its parts as the rows have them.
struct Parts<'a> {
    name: String,
    ids: &'a [i32],
    labels: &'a [i32],
}

impl Parts<'_> {
    /// The samples of a pack, one after the other.
    fn pack(names: Vec<String>, ids: &[i32], labels: &[i32], lengths: &[i32]) -> Result<Pack, String> {
        if lengths.len() != names.len() {
            return Err(format!("{} lengths and {} sample ids", lengths.len(), names.len()));
        }
        let mut samples: Vec<PackedSample> = Vec::with_capacity(names.len());
        let mut at = 0;
        for (name, &length) in names.into_iter().zip(lengths) {
            let range = at..at + usize::try_from(length).map_err(|_| format!("a length of {length}"))?;
            let short = || "the lengths add up to more than there are ids or labels".to_owned();
            at = range.end;
            let ids = ids.get(range.clone()).ok_or_else(short)?;
            let labels = labels.get(range).ok_or_else(short)?;
            samples.push(Parts { name, ids, labels }.sample()?);
        }
        if at != ids.len() || at != labels.len() {
            return Err(format!(
                "the lengths add up to {at}, of {} ids and {} labels",
                ids.len(),
                labels.len()
            ));
        }
        Ok(Pack { samples })
    }

    /// The sample, if the labels are its ids or -100 and the first one is -100.
    fn sample(self) -> Result<PackedSample, String> {
        use super::table::IGNORED;
        if self.ids.len() != self.labels.len() {
            return Err(format!(
                "sample `{}` has {} ids and {} labels",
                self.name,
                self.ids.len(),
                self.labels.len()
            ));
        }
        let mut trained: Vec<(u32, u32)> = Vec::new();
        for ((index, &id), &label) in (0u32..).zip(self.ids).zip(self.labels) {
            if label == IGNORED {
                continue;
            }
            if label != id || index == 0 {
                let name = &self.name;
                return Err(format!("sample `{name}` has label {label} at token {index}, whose id is {id}"));
            }
            match trained.last_mut() {
                Some(run) if run.0 + run.1 == index => run.1 += 1,
                _ => trained.push((index, 1)),
            }
        }
        let ids: Result<Vec<u32>, _> = self.ids.iter().map(|&id| u32::try_from(id)).collect();
        let ids = ids.map_err(|_| format!("sample `{}` has a negative id", self.name))?;
        Ok(PackedSample { name: self.name, ids, trained })
    }
}
