//! A manifest that the user named, as a file or as the folder that holds it.

use std::path::Path;

use potable_manifests::Manifest;

use crate::verify::open;

pub use crate::verify::open::OpenError as ManifestCommandError;

/// Reads the manifest that `path` is or holds.
///
/// # Errors
/// What cannot be read as the manifest of one data set.
pub fn load(path: &Path) -> Result<Manifest, ManifestCommandError> {
    let file = open::manifest_path(path)?;
    let bytes = open::read(&file)?;
    Manifest::from_slice(&bytes).map_err(|source| ManifestCommandError::Unusable { path: file, source })
}
