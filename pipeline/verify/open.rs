//! A data set by the path that the user gave: its manifest, or the index of its phases with a
//! manifest each.

use std::path::{Path, PathBuf};

use potable_manifests::{Digest, Index, Kind, Manifest, ManifestError};

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A folder without a manifest.
    #[error("{path}: holds no manifest.json, so it is not a data set", path = path.display())]
    NoManifest {
        /// The folder.
        path: PathBuf,
    },
    /// A path at which nothing is.
    #[error("{path}: there is no such file or folder", path = path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// A file where a folder is needed.
    #[error("{path}: is a file, not the folder of a data set", path = path.display())]
    NoFolder {
        /// The file.
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
    /// A phase whose manifest is not the one that the index names.
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

impl OpenError {
    /// The way out.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            OpenError::NoManifest { .. } => "the run that wrote it did not finish; run `potable prep` again",
            OpenError::NotFound { .. } => "check the path; `potable prep` prints where it wrote",
            OpenError::NoFolder { .. } => "name the folder that holds manifest.json",
            OpenError::Read { .. } => return None,
            OpenError::Unusable { source, .. } => match source {
                ManifestError::Newer { .. } => "use the potable that wrote it, or a later one",
                ManifestError::Edited { .. } => {
                    "`potable manifest verify DIR` says what does not agree; take the file from where it was written"
                }
                ManifestError::Truncated { .. } => "copy the file again from where it was written",
                _ => "name the manifest.json that `potable prep` wrote, or its folder",
            },
            OpenError::OtherPhase { .. } => {
                "the phase was written again; run `potable prep` with the whole recipe"
            }
        };
        Some(hint.to_owned())
    }
}

/// What a `manifest.json` stands for.
#[derive(Clone, Debug)]
pub enum Opened {
    /// One data set.
    DataSet(Box<Manifest>),
    /// The phases of a recipe, in its order.
    Phases(Index, Vec<Manifest>),
}

impl Opened {
    /// The kind of the file.
    pub fn kind(&self) -> Kind {
        match self {
            Opened::DataSet(_) => Kind::DataSet,
            Opened::Phases(..) => Kind::Index,
        }
    }
}

/// Opens what `path` is or holds. The manifests of phases lie in the folders beside the index.
///
/// # Errors
/// What is not there, cannot be read, or was changed after it was sealed.
pub fn open(path: &Path) -> Result<Opened, OpenError> {
    let file = manifest_path(path)?;
    let bytes = read(&file)?;
    let unusable = |source| OpenError::Unusable { path: file.clone(), source };
    match Kind::of(&bytes).map_err(unusable)? {
        Kind::DataSet => Ok(Opened::DataSet(Box::new(Manifest::from_slice(&bytes).map_err(unusable)?))),
        Kind::Index => {
            let index = Index::from_slice(&bytes).map_err(unusable)?;
            let manifests = phases(&file, &index)?;
            Ok(Opened::Phases(index, manifests))
        }
    }
}

/// The manifest file that `path` is or holds.
///
/// # Errors
/// A path where nothing is, a folder without a manifest.
pub fn manifest_path(path: &Path) -> Result<PathBuf, OpenError> {
    if !path.exists() {
        return Err(OpenError::NotFound { path: path.to_path_buf() });
    }
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let file = path.join("manifest.json");
    if file.exists() { Ok(file) } else { Err(OpenError::NoManifest { path: path.to_path_buf() }) }
}

/// The bytes of a manifest.
///
/// # Errors
/// What the file system says.
pub fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(|source| OpenError::Read { path: path.to_path_buf(), source })
}

fn phases(index_path: &Path, index: &Index) -> Result<Vec<Manifest>, OpenError> {
    let folder = index_path.parent().unwrap_or(Path::new(""));
    let phase = |entry: &potable_manifests::IndexedPhase| {
        let path = folder.join(&entry.phase);
        let file = manifest_path(&path)?;
        let manifest = Manifest::from_slice(&read(&file)?)
            .map_err(|source| OpenError::Unusable { path: file, source })?;
        if manifest.manifest_digest != entry.manifest_digest {
            let (found, stated) = (manifest.manifest_digest, entry.manifest_digest.clone());
            return Err(OpenError::OtherPhase { path, found, stated });
        }
        Ok(manifest)
    };
    index.phases.iter().map(phase).collect()
}
