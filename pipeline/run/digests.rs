//! Digests by which work of an earlier run is known again.

use std::fs::File;
use std::path::Path;

use potable_blocklists::Blocklist;
use potable_manifests::Digest;

use super::checks::streams;
use super::error::RunError;
use super::plan::Plan;
use super::seal::{input, locked_benchmarks};
use super::staged::STAGE_FORMAT;
use crate::normalise::Normaliser;
use crate::tokenise::Tokeniser;

/// The digest of everything that map reads.
///
/// # Errors
/// Settings that have no canonical form.
pub fn map_digest(
    plan: &Plan,
    blocklist: Option<&Blocklist>,
    tokeniser: &Tokeniser,
    normaliser: &Normaliser,
) -> Result<Digest, RunError> {
    let (template, template_digest) = normaliser.record();
    let blocklist_digest = blocklist.map_or("none".to_owned(), Blocklist::digest);
    plan.map_digest(&[
        blocklist_digest,
        tokeniser.digest().to_owned(),
        tokeniser.end_of_text().to_owned(),
        template,
        template_digest,
        STAGE_FORMAT.to_string(),
    ])
}

/// What the digest of a plan is made of.
#[derive(Clone, Copy, Debug)]
pub struct PlanDigest<'a> {
    /// Name of the recipe.
    pub name: &'a str,
    /// The plan.
    pub plan: &'a Plan,
    /// Digest of everything that map reads.
    pub map_digest: &'a Digest,
}

impl PlanDigest<'_> {
    /// The digest of everything that the manifest says, before the work is done. `excluded` is the file
    /// with the keys of another phase.
    ///
    /// # Errors
    /// Settings that have no canonical form, keys that cannot be read.
    pub fn of(&self, blocklist: Option<&Blocklist>, excluded: Option<&Path>) -> Result<Digest, RunError> {
        let (plan, phase) = (self.plan, &self.plan.phase);
        let failed = |reason: String| RunError::Manifest { reason };
        let settings = potable_manifests::canonical::floats_as_text(phase.settings());
        let settings = potable_manifests::canonical_json(&settings).map_err(|e| failed(e.to_string()))?;
        let inputs: Vec<_> = plan.sources.iter().map(input).collect::<Result<_, _>>()?;
        let inputs = serde_json::to_string(&inputs).map_err(|e| failed(e.to_string()))?;
        let benchmarks = locked_benchmarks(blocklist);
        let lock = plan.lock(benchmarks).to_toml().map_err(|e| failed(e.to_string()))?;
        let keys = keys_digest(excluded)?;
        let inputs = inputs + if streams(plan) { "streamed" } else { "" };
        let mut text = format!("{}\n{}\n{:?}\n", self.map_digest.as_str(), self.name, phase.name);
        for part in [settings.as_str(), &inputs, &lock, keys.as_str()] {
            text += part;
            text.push('\n');
        }
        Ok(Digest::of(text.as_bytes()))
    }
}

/// The digest of a file of keys; of nothing, where there is none.
fn keys_digest(keys: Option<&Path>) -> Result<Digest, RunError> {
    keys.map_or_else(|| Ok(Digest::of(b"")), file_digest)
}

/// SHA-256 of the bytes of a file.
///
/// # Errors
/// What the file system says.
pub fn file_digest(path: &Path) -> Result<Digest, RunError> {
    let read_error = |source| RunError::Read { path: path.to_path_buf(), source };
    File::open(path).and_then(Digest::of_reader).map_err(read_error)
}
