//! A manifest that the user named, as a file or as the folder that holds it.

use std::path::{Path, PathBuf};

use potable_manifests::{Digest, Manifest, ManifestError};

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestCommandError {
    /// A folder without a manifest.
    #[error("{path}: holds no manifest.json, so it is not a data set", path = path.display())]
    NoManifest {
        /// The folder.
        path: PathBuf,
    },
    /// A file that cannot be read.
    #[error("cannot read manifest `{path}`", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file that is no manifest of this potable.
    #[error("{path}: cannot be used as a manifest", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: ManifestError,
    },
    /// A phase whose manifest is not the one that the index over the phases names.
    #[error("{path}: has manifest `{found}`, the index beside it names `{stated}`", path = path.display())]
    OtherPhase {
        /// The folder of the phase.
        path: PathBuf,
        /// The digest of the manifest that is there.
        found: Digest,
        /// The digest in the index.
        stated: Digest,
    },
}

impl ManifestCommandError {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ManifestCommandError::NoManifest { .. } => {
                Some("the run that wrote it did not finish; run `potable prep` again".to_owned())
            }
            ManifestCommandError::OtherPhase { .. } => {
                Some("the phase was written again; run `potable prep` with the whole recipe".to_owned())
            }
            _ => None,
        }
    }
}

/// Reads the manifest that `path` is or holds.
///
/// # Errors
/// What cannot be read as a manifest.
pub fn load(path: &Path) -> Result<Manifest, ManifestCommandError> {
    let file = if path.is_dir() { path.join("manifest.json") } else { path.to_path_buf() };
    if path.is_dir() && !file.exists() {
        return Err(ManifestCommandError::NoManifest { path: path.to_path_buf() });
    }
    let bytes =
        std::fs::read(&file).map_err(|source| ManifestCommandError::Read { path: file.clone(), source })?;
    Manifest::from_slice(&bytes).map_err(|source| ManifestCommandError::Unusable { path: file, source })
}
