//! Whose an output folder is: the first plan that names it leaves its digest there, and no other plan,
//! and no `prep`, writes there until it is sealed.

use potable_manifests::{Digest, Manifest};

use super::WorkFolder;
use super::error::StepError;
use super::record::PhaseRecord;
use super::sealed;
use crate::run::error::RunError;
use crate::run::folder::{Found, OWNER, OutputFolder};
use crate::store::Store;

/// Name of the manifest in an output folder.
pub const MANIFEST: &str = "manifest.json";
/// Object of a phase that says, before the manifest is written, which one it will be.
const SEALED: &str = "sealed.json";

/// Takes the output folder of a phase for the plan. With `planned` the plan is there already, and so may
/// its data set be.
///
/// # Errors
/// A folder of another plan, of `prep`, or with something else in it.
pub fn take(work: &WorkFolder, phase: &PhaseRecord, planned: bool) -> Result<(), RunError> {
    let out = work.out(Some(phase))?;
    match planned {
        true if out.size(MANIFEST)?.is_some() => Ok(()),
        true => hold(work, &out),
        false => check_empty(&out).and_then(|()| hold(work, &out)),
    }
}

/// Checks before something is written to the output folder that it is this plan's.
///
/// # Errors
/// A folder of another plan, what the store says.
pub fn check(work: &WorkFolder, phase: &PhaseRecord, out: &Store) -> Result<(), RunError> {
    match sealed_by(work, phase, out)? {
        Some(_) => Ok(()),
        None => hold(work, out),
    }
}

/// The manifest that is there already, if it is the one of this plan.
///
/// # Errors
/// The manifest of another plan, one that cannot be read.
pub fn sealed_by(work: &WorkFolder, phase: &PhaseRecord, out: &Store) -> Result<Option<Manifest>, RunError> {
    let bytes = match out.get(MANIFEST) {
        Err(error) if error.is_not_found() => return Ok(None),
        bytes => bytes?,
    };
    let place = out.place(MANIFEST);
    let manifest =
        Manifest::from_slice(&bytes).map_err(|e| RunError::Manifest { reason: format!("{place}: {e}") })?;
    let store = work.phase_store(phase);
    let expected = match store.get(SEALED) {
        Err(error) if error.is_not_found() => None,
        bytes => sealed::from_bytes::<String>(&bytes?).ok(),
    };
    let plan = manifest.run.other_digests.get("plan").map(Digest::as_str);
    if plan.is_some() && plan == expected.as_deref() {
        return Ok(Some(manifest));
    }
    Err(taken(out, "holds a data set that this plan did not make"))
}

/// Says which plan the manifest that is to be written will be of.
///
/// # Errors
/// What the store says.
pub fn announce(work: &WorkFolder, phase: &PhaseRecord, plan: &Digest) -> Result<(), RunError> {
    Ok(work.phase_store(phase).put(SEALED, &sealed::to_bytes(&plan.as_str())?)?)
}

/// Takes an output folder that is not sealed for the plan, or finds it taken by it.
///
/// # Errors
/// A folder of another plan, what the store says.
pub fn hold(work: &WorkFolder, out: &Store) -> Result<(), RunError> {
    let ours = work.record.data_digest()?;
    if out.put_new(OWNER, ours.as_bytes())? {
        // Another one may have sealed since this one looked; what is sealed is nobody's.
        if out.size(MANIFEST)?.is_some() {
            out.delete(OWNER)?;
        }
        return Ok(());
    }
    match out.get(OWNER) {
        Ok(there) if *there == *ours.as_bytes() => Ok(()),
        // Sealed and let go of meanwhile.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(taken(out, "is the output folder of another plan")),
    }
}

/// An output folder that no plan had before holds nothing.
fn check_empty(out: &Store) -> Result<(), RunError> {
    match out.folder() {
        Some(folder) => {
            if matches!(OutputFolder::look(folder)?, Found::Sealed(_)) {
                return Err(taken(out, "holds a data set"));
            }
        }
        None => {
            // Another one who plans the same at this moment may have been faster.
            if out.list("")?.iter().any(|(name, _)| name != OWNER) {
                return Err(taken(out, "is not empty"));
            }
        }
    }
    Ok(())
}

fn taken(out: &Store, problem: &str) -> RunError {
    StepError::Taken {
        place: out.uri(),
        problem: problem.to_owned(),
        way_out: "plan with another `--out`".to_owned(),
    }
    .into()
}
