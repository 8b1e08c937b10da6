//! The output folder: what is in it, who holds it, what may be removed.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use potable_manifests::Manifest;

use super::error::RunError;

/// Names that potable writes into an output folder.
const OURS: [&str; 11] = [
    ".work",
    "manifest.json",
    "manifest.json.sha256",
    "shards",
    "validation",
    "sample_ids",
    "calibration.parquet",
    "dropped",
    "recipe.lock",
    "downloads.jsonl",
    "report.html",
];

/// The file that says of which plan an output folder is, while the steps write there.
pub const OWNER: &str = ".work/owner";

/// The output folder of one phase, held by this process.
pub struct OutputFolder {
    /// The folder.
    pub path: PathBuf,
    _held: File,
}

/// What stands in a folder.
#[derive(Debug)]
pub enum Found {
    /// Nothing, or the rest of a run that did not finish.
    Unsealed,
    /// A sealed data set.
    Sealed(Box<Manifest>),
}

impl OutputFolder {
    /// Opens or makes the folder and takes hold of it. With `fresh`, what an earlier run of potable
    /// left is removed first.
    ///
    /// # Errors
    /// A folder with files that potable did not write, that cannot be written, or that another
    /// process holds.
    pub fn open(path: &Path, fresh: bool) -> Result<Self, RunError> {
        let lock = lock_file(path)?;
        if lock.try_lock().is_err() {
            return Err(held(path));
        }
        if !fresh && path.join(OWNER).exists() {
            return Err(RunError::OutputFolder {
                path: path.to_path_buf(),
                problem: "is the output folder of a `potable plan`, whose steps write here".to_owned(),
                way_out: "choose another `--out`, or pass `--fresh` to start over".to_owned(),
            });
        }
        remove_unfinished(path)?;
        if fresh {
            remove_ours(path)?;
        }
        Ok(OutputFolder { path: path.to_path_buf(), _held: lock })
    }

    /// What stands in a folder that is to be written later; makes the folder. Several may look at once.
    ///
    /// # Errors
    /// As [`OutputFolder::open`], and as [`OutputFolder::found`].
    pub fn look(path: &Path) -> Result<Found, RunError> {
        let lock = lock_file(path)?;
        if lock.try_lock_shared().is_err() {
            return Err(held(path));
        }
        OutputFolder { path: path.to_path_buf(), _held: lock }.found()
    }

    /// What stands in the folder.
    ///
    /// # Errors
    /// A manifest that is no manifest of potable.
    pub fn found(&self) -> Result<Found, RunError> {
        let path = self.path.join("manifest.json");
        if !path.exists() {
            return Ok(Found::Unsealed);
        }
        let bytes = std::fs::read(&path).map_err(|source| RunError::Read { path: path.clone(), source })?;
        let manifest = Manifest::from_slice(&bytes).map_err(|e| RunError::OutputFolder {
            path: self.path.clone(),
            problem: format!("holds a manifest.json that this potable cannot read: {e}"),
            way_out: "choose another `--out`, or pass `--fresh` to start over".to_owned(),
        })?;
        Ok(Found::Sealed(Box::new(manifest)))
    }

    /// Whether staged work of an earlier run is there.
    pub fn has_work(&self) -> bool {
        let entries = std::fs::read_dir(self.path.join(".work"));
        entries.is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("map-"))
        })
    }

    /// Takes the seal off: the folder is no data set any more.
    ///
    /// # Errors
    /// What the file system says.
    pub fn unseal(&self) -> Result<(), RunError> {
        for name in ["manifest.json", "manifest.json.sha256"] {
            remove(&self.path.join(name))?;
        }
        Ok(())
    }

    /// Makes a folder below.
    ///
    /// # Errors
    /// What the file system says.
    pub fn folder(&self, name: &str) -> Result<PathBuf, RunError> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).map_err(|e| RunError::write(&path, e))?;
        Ok(path)
    }

    /// Whether every shard that the manifest names is there in full size.
    pub fn is_whole(&self, manifest: &Manifest) -> bool {
        manifest.run.file_sha256.iter().all(|(name, file)| {
            std::fs::metadata(self.path.join(name)).is_ok_and(|meta| meta.len() == file.size)
        })
    }

    /// Lets go of a folder in which nothing was done; staged work that was kept stays.
    ///
    /// # Errors
    /// What the file system says.
    pub fn release(self) -> Result<(), RunError> {
        if self.has_work() { Ok(()) } else { self.remove_work() }
    }

    /// Removes the staged work, the hold on the folder among it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove_work(self) -> Result<(), RunError> {
        remove(&self.path.join(".work"))
    }
}

/// Removes a file or a folder, if it is there.
///
/// # Errors
/// What the file system says.
pub fn remove(path: &Path) -> Result<(), RunError> {
    let gone = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match gone {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(RunError::write(path, e)),
        _ => Ok(()),
    }
}

/// Removes what a killed process was writing beside the shards; nobody else writes here now.
fn remove_unfinished(path: &Path) -> Result<(), RunError> {
    let entries =
        std::fs::read_dir(path).map_err(|source| RunError::Read { path: path.to_path_buf(), source })?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') && name.ends_with(".tmp") {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove_ours(path: &Path) -> Result<(), RunError> {
    for name in OURS.iter().filter(|name| **name != ".work") {
        remove(&path.join(name))?;
    }
    let work = path.join(".work");
    let entries = std::fs::read_dir(&work).map_err(|source| RunError::Read { path: work.clone(), source })?;
    for entry in entries.flatten() {
        // The lock is held by this process and stays.
        if entry.file_name() != "lock" {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// The file that whoever writes to the folder locks; made with the folder.
fn lock_file(path: &Path) -> Result<File, RunError> {
    if path.exists() {
        check_ours(path)?;
    }
    let work = path.join(".work");
    std::fs::create_dir_all(&work).map_err(|e| RunError::write(path, e))?;
    let lock = work.join("lock");
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&lock);
    opened.map_err(|e| RunError::write(&lock, e))
}

fn held(path: &Path) -> RunError {
    RunError::OutputFolder {
        path: path.to_path_buf(),
        problem: "another potable is writing here".to_owned(),
        way_out: "wait for it, or choose another `--out`".to_owned(),
    }
}

/// A folder of potable has a manifest of potable or a work folder; any other that is not empty is
/// somebody's own.
fn check_ours(path: &Path) -> Result<(), RunError> {
    let refuse = |problem: &str| RunError::OutputFolder {
        path: path.to_path_buf(),
        problem: problem.to_owned(),
        way_out: "choose another folder with `--out`".to_owned(),
    };
    if !path.is_dir() {
        return Err(refuse("is a file, not a folder"));
    }
    let entries =
        std::fs::read_dir(path).map_err(|source| RunError::Read { path: path.to_path_buf(), source })?;
    let names: Vec<String> =
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    match schema_of(path) {
        Some(schema) if schema.starts_with("potable-manifest-") => Ok(()),
        Some(schema) if schema.starts_with("potable-index-") => {
            Err(refuse("holds the phases of another recipe"))
        }
        Some(_) => Err(refuse("holds a manifest.json that potable did not write")),
        // A run that failed before any work leaves the log of its downloads.
        None if names.iter().all(|name| name == "downloads.jsonl")
            || names.iter().any(|name| name == ".work") =>
        {
            Ok(())
        }
        None => Err(refuse("holds files that potable did not write")),
    }
}

/// The folder above the phases may hold nothing but phases and their index.
///
/// # Errors
/// A folder with another data set or with files that potable did not write.
pub fn check_index_place(path: &Path, name: &str, phases: &[&str]) -> Result<(), RunError> {
    let refuse = |problem: String| RunError::OutputFolder {
        path: path.to_path_buf(),
        problem,
        way_out: "choose another folder with `--out`".to_owned(),
    };
    match schema_of(path) {
        Some(schema) if !schema.starts_with("potable-index-") => {
            Err(refuse("holds another data set".to_owned()))
        }
        Some(_) => {
            let other = index_name(path).unwrap_or_default();
            if other == name { Ok(()) } else { Err(refuse(format!("holds the phases of `{other}`"))) }
        }
        None => {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let ours = |entry: &String| {
                [".keys", "downloads.jsonl"].contains(&entry.as_str()) || phases.contains(&entry.as_str())
            };
            match names.find(|entry| !ours(entry)) {
                Some(_) => Err(refuse("holds files that potable did not write".to_owned())),
                None => Ok(()),
            }
        }
    }
}

/// The schema of the manifest.json in a folder; empty if it has none.
fn schema_of(path: &Path) -> Option<String> {
    Some(field_of(path, "schema")?.unwrap_or_default())
}

fn index_name(path: &Path) -> Option<String> {
    field_of(path, "name")?
}

fn field_of(path: &Path, field: &str) -> Option<Option<String>> {
    let bytes = std::fs::read(path.join("manifest.json")).ok()?;
    let value: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let text = value.and_then(|value| value.get(field).and_then(|v| v.as_str()).map(str::to_owned));
    Some(text)
}
