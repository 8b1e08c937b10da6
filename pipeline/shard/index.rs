//! Files of a format that describe all shards of a folder, written when every shard is there.

use std::collections::BTreeMap;
use std::path::Path;

use potable_manifests::{Hasher, ShardRecord};
use serde_json::{Value, json};

use super::write::ShardFile;
use super::{datasets, mds, write_atomic};
use crate::recipe::file::ShardFormat;
use crate::run::error::RunError;

/// A shard with its files.
pub type Written = (ShardRecord, Vec<ShardFile>);

/// What the shards of a run are summed up in; counted where the shards are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackExtremes {
    /// Tokens of the longest sample.
    pub longest_sample: u64,
    /// Samples of the pack that has most.
    pub most_samples: u64,
    /// Tokens of the shortest pack.
    pub shortest_pack: u64,
}

impl PackExtremes {
    /// Both together.
    pub fn with(self, other: Self) -> Self {
        let shortest =
            [self.shortest_pack, other.shortest_pack].into_iter().filter(|tokens| *tokens > 0).min();
        PackExtremes {
            longest_sample: self.longest_sample.max(other.longest_sample),
            most_samples: self.most_samples.max(other.most_samples),
            shortest_pack: shortest.unwrap_or_default(),
        }
    }
}

/// Writes what the format wants beside its shards; gives the files.
///
/// # Errors
/// What the file system says.
pub fn write_index(
    root: &Path,
    format: ShardFormat,
    shards: &[&Written],
    extremes: PackExtremes,
) -> Result<Vec<ShardFile>, RunError> {
    let mut folders: BTreeMap<&str, Vec<&Written>> = BTreeMap::new();
    for shard in shards {
        let folder = shard.0.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        folders.entry(folder).or_default().push(shard);
    }
    folders.values_mut().for_each(|shards| shards.sort_by(|a, b| a.0.path.cmp(&b.0.path)));
    let mut files: BTreeMap<String, Value> = BTreeMap::new();
    for (folder, shards) in &folders {
        match format {
            ShardFormat::Mds => {
                let rows: Vec<(u64, &ShardFile)> = shards
                    .iter()
                    .filter_map(|(record, files)| Some((record.packs, files.first()?)))
                    .collect();
                files.insert(format!("{folder}/index.json"), mds::index(&rows));
            }
            ShardFormat::MegatronBridge => {
                files.insert(format!("{folder}/packing_metadata.json"), packing_metadata(shards, extremes));
            }
            ShardFormat::Arrow => dataset_files(folder, shards, &mut files),
            _ => {}
        }
    }
    let write = |(path, value): (String, Value)| {
        let (sha256, size) = write_atomic(&root.join(&path), format!("{value}\n").as_bytes())?;
        Ok((path, sha256, size))
    };
    files.into_iter().map(write).collect()
}

/// What Megatron-Bridge pads its sequence borders by.
fn packing_metadata(shards: &[&Written], extremes: PackExtremes) -> Value {
    let length = shards.first().map_or(0, |(record, _)| record.length);
    // Lengths as the loader counts them: without the last token of each sample.
    json!([{
        "dataset_max_seqlen": extremes.longest_sample.saturating_sub(1),
        "max_samples_per_bin": extremes.most_samples,
        "min_packed_seqlen": extremes.shortest_pack,
        "pack_size": length,
    }])
}

fn dataset_files(folder: &str, shards: &[&Written], files: &mut BTreeMap<String, Value>) {
    let mut hasher = Hasher::new();
    shards.iter().for_each(|(record, _)| hasher.update(record.content_digest.as_str().as_bytes()));
    let names: Vec<String> =
        shards.iter().filter_map(|(record, _)| record.path.rsplit('/').next()).map(str::to_owned).collect();
    files.insert(format!("{folder}/state.json"), datasets::state(&names, &hasher.finish()));
    files.insert(format!("{folder}/dataset_info.json"), datasets::info());
    if let Some((above, split)) = folder.rsplit_once('/') {
        let dict = files.entry(format!("{above}/dataset_dict.json")).or_insert_with(|| datasets::dict(&[]));
        if let Some(splits) = dict.get_mut("splits").and_then(Value::as_array_mut) {
            splits.push(split.into());
        }
    }
}
