//! Differences between two sets of phases.

use super::Weight::{Blocking, Informational, Material};
use super::collect::{Collector, Pair, pairs};
use super::{Finding, ManifestDiff, Thresholds, VersionStep, diff_with};
use crate::canonical::CanonicalError;
use crate::index::Index;
use crate::manifest::{BenchmarkRecord, DecontaminationMode, Manifest};

/// An index, with the manifests of its phases in its order.
#[derive(Clone, Copy, Debug)]
pub struct Phases<'a> {
    /// The index.
    pub index: &'a Index,
    /// The manifest of each phase.
    pub manifests: &'a [Manifest],
}

/// Compares two sets of phases by name; the findings of a phase name it. A phase that was added or
/// removed is one finding.
///
/// # Errors
/// [`CanonicalError`] if an index has no digest; none holds floats.
pub fn diff_phases(
    old: Phases<'_>,
    new: Phases<'_>,
    thresholds: &Thresholds,
) -> Result<ManifestDiff, CanonicalError> {
    let mut found = Collector::new(*thresholds);
    found.area("index");
    found.field(Material, "name", (&old.index.name, &new.index.name));
    let mut step = if found.is_empty() { VersionStep::None } else { VersionStep::Patch };
    let mut within: Vec<Finding> = Vec::new();
    let all = old.manifests;
    for Pair { name, old, new } in pairs((old.manifests, new.manifests), phase_name) {
        if let (Some(old), Some(new)) = (old, new) {
            let phase = old.phase.clone();
            let diff = diff_with(old, new, thresholds);
            step = step.max(diff.step);
            let findings = diff.findings.into_iter();
            within.extend(findings.map(|finding| Finding { phase: phase.clone(), ..finding }));
            continue;
        }
        let weight = if new.is_some_and(|new| is_looser(new, all)) { Blocking } else { Material };
        found.push(weight, format!("phase {name}"), (old.map(summary), new.map(summary)));
        step = step.max(if new.is_some() { VersionStep::Minor } else { VersionStep::Major });
    }
    found.order((Informational, "order of phases"), (old.manifests, new.manifests), phase_name);
    let mut findings = found.into_findings();
    if !findings.is_empty() {
        step = step.max(VersionStep::Patch);
    }
    findings.extend(within);
    Ok(ManifestDiff { old: old.index.digest()?, new: new.index.digest()?, step, findings })
}

/// Whether an added phase would be blocking as a change of one of the others: it holds a source that
/// would be, or is checked against less than any of them.
fn is_looser(new: &Manifest, old: &[Manifest]) -> bool {
    let checked = &new.decontamination;
    let weaker = |other: &Manifest| {
        let other = &other.decontamination;
        let left = |benchmark: &BenchmarkRecord| checked.benchmarks.iter().all(|b| b.name != benchmark.name);
        checked.ngram > other.ngram || (other.strict && !checked.strict) || other.benchmarks.iter().any(left)
    };
    checked.mode == DecontaminationMode::None
        || new.inputs.iter().any(super::causes::is_risky)
        || old.iter().any(weaker)
}

fn phase_name(manifest: &Manifest) -> &str {
    manifest.phase.as_deref().unwrap_or_default()
}

fn summary(manifest: &Manifest) -> String {
    let (sources, tokens) = (manifest.inputs.len(), manifest.tokens.total);
    let checked = match manifest.decontamination.mode {
        DecontaminationMode::Blocklist => {
            format!("checked against {} benchmarks", manifest.decontamination.benchmarks.len())
        }
        DecontaminationMode::None => "not checked against any benchmark".to_owned(),
    };
    format!("{}, {sources} sources, {tokens} tokens, {checked}", manifest.manifest_digest)
}
