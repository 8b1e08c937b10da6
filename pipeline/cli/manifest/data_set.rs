//! A data set as a whole: one manifest, or the manifests that an index of phases names.

use std::path::{Component, Path, PathBuf};

use potable_manifests::{DataSet, INDEX_SCHEMA, Index, Part};

use super::{ManifestCommandError, load};

/// Reads the manifest, or all manifests of the phases, that `path` is or holds.
///
/// # Errors
/// What cannot be read as a manifest; a phase whose manifest is not the one that the index names.
pub fn load_set(path: &Path) -> Result<DataSet, ManifestCommandError> {
    let file = if path.is_dir() { path.join("manifest.json") } else { path.to_path_buf() };
    let Some(index) = index_of(&file) else { return Ok(DataSet::single(load(path)?)) };
    let folder = file.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    let mut parts = Vec::new();
    for phase in &index.phases {
        let path = folder.join(&phase.phase);
        let manifest = load(&path)?;
        if manifest.manifest_digest != phase.manifest_digest {
            return Err(ManifestCommandError::OtherPhase {
                path,
                found: manifest.manifest_digest,
                stated: phase.manifest_digest.clone(),
            });
        }
        parts.push(Part { folder: format!("{}/", phase.phase), manifest });
    }
    Ok(DataSet { name: index.name, parts })
}

/// The index in a file; `None` if it is anything else, such as a manifest, or if a phase of it would be
/// looked for outside of the folder.
fn index_of(file: &Path) -> Option<Index> {
    let index: Index = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let inside = |name: &str| Path::new(name).components().eq([Component::Normal(name.as_ref())]);
    (index.schema == INDEX_SCHEMA && index.phases.iter().all(|phase| inside(&phase.phase))).then_some(index)
}
