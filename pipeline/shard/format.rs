//! The shard formats: which files a shard has, what a row is, which ids fit.

use potable_manifests::Split;

use crate::recipe::file::ShardFormat;

/// What a row of a format is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// A pack of several samples, whose borders the row carries.
    Pack,
    /// One sample; the trainer packs.
    Sample,
}

/// Where a shard stands: the output folder's part, the length class if there are several, partition,
/// and number in the partition.
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
        }
    }

    /// The format with this name.
    pub fn of_name(name: &str) -> Option<ShardFormat> {
        ShardFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What a row is.
    pub fn row(self) -> Row {
        match self {
            ShardFormat::Parquet => Row::Pack,
        }
    }

    /// Tokens of each sample that take no room in a pack.
    pub fn uncounted(self) -> u32 {
        match self {
            ShardFormat::Parquet => 0,
        }
    }

    /// The largest id that the format's type holds.
    pub fn largest_id(self) -> u32 {
        match self {
            ShardFormat::Parquet => i32::MAX as u32,
        }
    }

    /// Path of the main file of a shard inside the output folder, with `/`.
    pub fn path(self, place: ShardPlace) -> String {
        let folder = if place.split == Split::Train { "shards" } else { "validation" };
        let class = place.class.map(|length| format!("length-{length}/")).unwrap_or_default();
        let ShardPlace { partition, number, .. } = place;
        match self {
            ShardFormat::Parquet => format!("{folder}/{class}part-{partition:05}-{number:03}.parquet"),
        }
    }

    /// Paths of all files of a shard, the main one first.
    pub fn files(self, main: &str) -> Vec<String> {
        match self {
            ShardFormat::Parquet => vec![main.to_owned()],
        }
    }
}
