//! `potable manifest diff`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use potable_manifests::{ManifestDiff, Phases, Policy, PolicyError, Weight, diff_phases, diff_with};

use crate::cli::Answer;
use crate::cli::args::{DiffArgs, DiffFormat, FailOn};
use crate::cli::output::Output;
use crate::verify::open::{Opened, open};

/// Manifests that cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// A data set and a set of phases.
    #[error("{old}: is {old_kind}, and {new} is {new_kind}", old = old.display(), new = new.display())]
    Kinds {
        /// The old manifest.
        old: PathBuf,
        /// What it is.
        old_kind: &'static str,
        /// The new manifest.
        new: PathBuf,
        /// What it is.
        new_kind: &'static str,
    },
    /// A policy that cannot be read.
    #[error("cannot read policy `{path}`", path = path.display())]
    ReadPolicy {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A policy that is none.
    #[error("{path}: cannot be used as a policy", path = path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: PolicyError,
    },
}

impl DiffError {
    /// The way out.
    pub fn hint(&self) -> String {
        let hint = match self {
            DiffError::Kinds { .. } => "compare an index with an index, or name the folder of one phase",
            DiffError::ReadPolicy { .. } => "`--policy` takes a TOML file",
            DiffError::Policy { .. } => "docs/ci.md lists the keys of a policy",
        };
        hint.to_owned()
    }
}

/// Compares two manifests, or two sets of phases.
///
/// # Errors
/// What cannot be read as a manifest; manifests of different kinds; a policy with faults.
pub fn run(args: &DiffArgs, output: &Output) -> Result<Answer> {
    let policy = args.policy.as_deref().map(policy).transpose()?.unwrap_or_default();
    let mut changes = compare(args, &policy)?;
    changes.allow(&policy);
    let text = match args.format {
        DiffFormat::Text => changes.to_text(),
        DiffFormat::Json => changes.to_json()?,
        DiffFormat::Markdown => changes.to_markdown(),
    };
    output.data(&text)?;
    let fails_from = match args.fail_on {
        FailOn::Blocking => Weight::Blocking,
        FailOn::Material => Weight::Material,
        FailOn::Any => Weight::Informational,
    };
    let fails = changes.max_weight().is_some_and(|weight| weight >= fails_from);
    Ok(if fails { Answer::No } else { Answer::Yes })
}

fn compare(args: &DiffArgs, policy: &Policy) -> Result<ManifestDiff> {
    let (old, new) = (open(&args.old)?, open(&args.new)?);
    let kinds = (old.kind().as_str(), new.kind().as_str());
    match (&old, &new) {
        (Opened::DataSet(old), Opened::DataSet(new)) => Ok(diff_with(old, new, &policy.thresholds)),
        (Opened::Phases(old, of_old), Opened::Phases(new, of_new)) => {
            let (old, new) =
                (Phases { index: old, manifests: of_old }, Phases { index: new, manifests: of_new });
            Ok(diff_phases(old, new, &policy.thresholds)?)
        }
        _ => {
            let (old, new) = (args.old.clone(), args.new.clone());
            Err(DiffError::Kinds { old, old_kind: kinds.0, new, new_kind: kinds.1 }.into())
        }
    }
}

fn policy(path: &Path) -> Result<Policy, DiffError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| DiffError::ReadPolicy { path: path.to_path_buf(), source })?;
    Policy::from_toml(&text).map_err(|source| DiffError::Policy { path: path.to_path_buf(), source })
}
