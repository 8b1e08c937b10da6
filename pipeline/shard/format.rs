//! The shard formats: which files a shard has, what a row is, which ids fit.

use potable_manifests::Split;

use super::{olmo, sidecar};
use crate::recipe::file::ShardFormat;

/// What a row of a format is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// A pack of several samples, whose borders the row carries.
    Pack,
    /// One sample; the trainer packs.
    Sample,
}

/// Where a shard stands: the split, the length class if there are several, the partition, and the
/// number in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardPlace {
    /// Train or validation.
    pub split: Split,
    /// The length class in tokens, if there are several.
    pub class: Option<u32>,
    /// Number of the partition.
    pub partition: u32,
    /// Number of the shard in the partition.
    pub number: usize,
}

impl ShardFormat {
    /// The word in recipes and manifests.
    pub fn name(self) -> &'static str {
        match self {
            ShardFormat::Parquet => "parquet",
            ShardFormat::ParquetUnpacked => "parquet-unpacked",
            ShardFormat::Arrow => "arrow",
            ShardFormat::MegatronBridge => "megatron-bridge",
            ShardFormat::Olmo => "olmo",
            ShardFormat::Megatron => "megatron",
            ShardFormat::Mds => "mds",
        }
    }

    /// The format with this name.
    pub fn of_name(name: &str) -> Option<ShardFormat> {
        ShardFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What a row is.
    pub fn row(self) -> Row {
        match self {
            ShardFormat::Parquet | ShardFormat::MegatronBridge | ShardFormat::Mds => Row::Pack,
            ShardFormat::ParquetUnpacked | ShardFormat::Arrow | ShardFormat::Olmo | ShardFormat::Megatron => {
                Row::Sample
            }
        }
    }

    /// Whether the format says which tokens are trained on; if not, every token is.
    pub fn has_mask(self) -> bool {
        self != ShardFormat::Megatron
    }

    /// Tokens of each sample that take no room in a pack. Megatron-Bridge feeds the model all tokens
    /// of a sample but the last.
    pub fn uncounted(self) -> u32 {
        u32::from(self == ShardFormat::MegatronBridge)
    }

    /// The largest id that the format's type holds, for a vocabulary of this size.
    pub fn largest_id(self, vocabulary: u64) -> u32 {
        match self {
            ShardFormat::Olmo => olmo::largest_id(vocabulary),
            _ => i32::MAX as u32,
        }
    }

    /// Path of the main file of a shard inside the output folder, with `/`.
    pub fn path(self, place: ShardPlace) -> String {
        let folder = match (self, place.split) {
            // A DatasetDict is one folder with a part a split.
            (ShardFormat::Arrow, _) | (_, Split::Train) => "shards",
            (_, Split::Validation) => "validation",
        };
        let class = place.class.map(|length| format!("length-{length}/")).unwrap_or_default();
        let number = format!("{:05}-{:03}", place.partition, place.number);
        match self {
            ShardFormat::Parquet | ShardFormat::ParquetUnpacked | ShardFormat::MegatronBridge => {
                format!("{folder}/{class}part-{number}.parquet")
            }
            ShardFormat::Arrow => {
                let split = if place.split == Split::Train { "train" } else { "validation" };
                format!("{folder}/{class}{split}/part-{number}.arrow")
            }
            ShardFormat::Olmo => format!("{folder}/{class}token_ids_part_{number}.npy"),
            ShardFormat::Megatron => format!("{folder}/{class}part-{number}.bin"),
            ShardFormat::Mds => format!("{folder}/{class}part-{number}.mds"),
        }
    }

    /// Paths of all files of a shard, the main one first.
    pub fn files(self, main: &str) -> Vec<String> {
        let mut files = vec![main.to_owned()];
        match self {
            ShardFormat::Parquet | ShardFormat::MegatronBridge | ShardFormat::Mds => {}
            ShardFormat::ParquetUnpacked | ShardFormat::Arrow => files.push(sidecar::path(main)),
            ShardFormat::Olmo => {
                files.push(main.replace("token_ids_part_", "labels_mask_part_"));
                files.push(format!("{}.csv.gz", main.strip_suffix(".npy").unwrap_or(main)));
            }
            ShardFormat::Megatron => {
                files.push(format!("{}.idx", main.strip_suffix(".bin").unwrap_or(main)));
                files.push(sidecar::path(main));
            }
        }
        files
    }

    /// Paths of the files that lie beside the shards of a folder and list them, for one of its shards.
    pub fn index_files(self, main: &str) -> Vec<String> {
        let Some((folder, _)) = main.rsplit_once('/') else { return Vec::new() };
        match self {
            ShardFormat::Mds => vec![format!("{folder}/index.json")],
            ShardFormat::MegatronBridge => vec![format!("{folder}/packing_metadata.json")],
            ShardFormat::Arrow => {
                let dict = folder.rsplit_once('/').map(|(above, _)| format!("{above}/dataset_dict.json"));
                let split = ["state.json", "dataset_info.json"].map(|name| format!("{folder}/{name}"));
                split.into_iter().chain(dict).collect()
            }
            ShardFormat::Parquet
            | ShardFormat::ParquetUnpacked
            | ShardFormat::Olmo
            | ShardFormat::Megatron => Vec::new(),
        }
    }
}
