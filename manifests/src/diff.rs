//! What changed between two manifests, causes before effects.
//!
//! A finding has the same words in both directions; only `old` and `new` trade places, and the
//! weight of a change that weakens a guarantee one way and strengthens it the other. Equal
//! manifests have no findings; manifests that differ outside the run block have at least one.

mod causes;
mod collect;
mod effects;
mod markdown;
mod phases;
mod policy;
mod text;

use serde::Serialize;

use crate::canonical::{self, CanonicalError};
use crate::digest::Digest;
use crate::manifest::Manifest;
use collect::Collector;
pub(crate) use collect::visible;
pub use phases::{Phases, diff_phases};
pub use policy::{Allowed, Policy, PolicyError, Thresholds, policy_schema};

/// How much a finding matters; a later variant is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Worth knowing; the data is the same.
    Informational,
    /// The data, or what it was made from, differs.
    Material,
    /// A guarantee became weaker, or the outputs cannot be explained.
    Blocking,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub weight: Weight,
    /// The phase, where phases are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The part of the manifest, such as `inputs`.
    pub area: String,
    /// What differs, the same words in both directions; names in backticks.
    pub what: String,
    /// The old value; absent if there was none.
    pub old: Option<String>,
    /// The new value; absent if there is none.
    pub new: Option<String>,
    /// Why a policy allows it; an allowed change counts for no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
}

/// By how much a version number should rise, after the rules of Croissant: the data is the same
/// (patch), the same and more (minor), or other data (major).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionStep {
    /// Nothing differs.
    None,
    /// The same samples in the same order, perhaps written in another way.
    Patch,
    /// Every old shard is still there, and there are more.
    Minor,
    /// Old shards changed or are gone.
    Major,
}

/// All differences between two manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestDiff {
    /// Manifest digest of the old manifest.
    pub old: Digest,
    /// Manifest digest of the new manifest.
    pub new: Digest,
    /// By how much a version number should rise.
    pub step: VersionStep,
    /// The differences, causes before effects.
    pub findings: Vec<Finding>,
}

/// How many findings there are of each weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WeightCounts {
    /// Findings of [`Weight::Blocking`].
    pub blocking: usize,
    /// Findings of [`Weight::Material`].
    pub material: usize,
    /// Findings of [`Weight::Informational`].
    pub informational: usize,
    /// Findings of any weight that a policy allows; they are in no other count.
    #[serde(skip_serializing_if = "is_zero")]
    pub allowed: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Compares two manifests with the default thresholds: see [`diff_with`].
pub fn diff(old: &Manifest, new: &Manifest) -> ManifestDiff {
    diff_with(old, new, &Thresholds::default())
}

/// Compares two manifests. Other names or phases are comparable, and a finding.
///
/// Of the run block only the version, the bytes of files with equal content and
/// `other_digests` are compared: times, host and threads say nothing about the data.
pub fn diff_with(old: &Manifest, new: &Manifest, thresholds: &Thresholds) -> ManifestDiff {
    let mut found = Collector::new(*thresholds);
    causes::identity(&mut found, old, new);
    causes::recipe(&mut found, &old.recipe, &new.recipe);
    causes::inputs(&mut found, &old.inputs, &new.inputs);
    causes::decontamination(&mut found, &old.decontamination, &new.decontamination);
    causes::normalise(&mut found, &old.normalise, &new.normalise);
    causes::tokeniser(&mut found, &old.tokeniser, &new.tokeniser);
    effects::unexplained(&mut found, old, new);
    effects::matches(&mut found, &old.decontamination, &new.decontamination);
    effects::acted(&mut found, &old.acted, &new.acted);
    effects::rows(&mut found, &old.rows, &new.rows);
    effects::samples(&mut found, &old.samples, &new.samples);
    effects::tokens(&mut found, &old.tokens, &new.tokens);
    effects::shards(&mut found, &old.shards, &new.shards);
    if found.is_empty() {
        found.area("manifest");
        let digests = (&old.manifest_digest, &new.manifest_digest);
        found.field(Weight::Material, "manifest digest", digests);
    }
    effects::run(&mut found, old, new);
    let step = if found.is_empty() { VersionStep::None } else { effects::step(&old.shards, &new.shards) };
    ManifestDiff {
        old: old.manifest_digest.clone(),
        new: new.manifest_digest.clone(),
        step,
        findings: found.into_findings(),
    }
}

impl Weight {
    /// The word that reports use, and that `--fail-on` takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Informational => "informational",
            Self::Material => "material",
            Self::Blocking => "blocking",
        }
    }
}

impl VersionStep {
    /// The word that reports use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Patch => "patch",
            Self::Minor => "minor",
            Self::Major => "major",
        }
    }
}

impl ManifestDiff {
    /// Marks the findings that a policy allows, with the reason that it gives.
    pub fn allow(&mut self, policy: &Policy) {
        for finding in &mut self.findings {
            finding.allowed = policy.reason_for(finding).map(str::to_owned);
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The worst weight that no policy allows; none if there is no such finding.
    pub fn max_weight(&self) -> Option<Weight> {
        let findings = self.findings.iter().filter(|finding| finding.allowed.is_none());
        findings.map(|finding| finding.weight).max()
    }

    /// How many findings there are of each weight.
    pub fn counts(&self) -> WeightCounts {
        let mut counts = WeightCounts::default();
        for finding in &self.findings {
            match finding.weight {
                _ if finding.allowed.is_some() => counts.allowed += 1,
                Weight::Informational => counts.informational += 1,
                Weight::Material => counts.material += 1,
                Weight::Blocking => counts.blocking += 1,
            }
        }
        counts
    }

    /// For a terminal: one line a finding, under a heading for each area. Long runs of the same
    /// kind of finding are cut after 20, with the number left out.
    pub fn to_text(&self) -> String {
        text::render(self)
    }

    /// For programs: every finding in full, as pretty JSON with sorted keys; `schema` is
    /// `potable-diff-1`.
    ///
    /// # Errors
    /// [`CanonicalError`] if serialisation fails; a diff holds no floats.
    pub fn to_json(&self) -> Result<String, CanonicalError> {
        let json = DiffJson {
            schema: "potable-diff-1",
            old: &self.old,
            new: &self.new,
            max_weight: self.max_weight(),
            version_step: self.step,
            counts: self.counts(),
            findings: &self.findings,
        };
        canonical::pretty_json(&canonical::to_value(&json)?)
    }

    /// For a comment on a pull request: one table, full values folded below it. At most 60,000
    /// characters, since GitHub takes 65,536; starts with a hidden marker by which a bot finds
    /// its own comment.
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }

    /// `2 blocking, 1 material`, or `no differences`.
    fn verdict(&self) -> String {
        let counts = self.counts();
        let parts = [
            (counts.blocking, Weight::Blocking.as_str()),
            (counts.material, Weight::Material.as_str()),
            (counts.informational, Weight::Informational.as_str()),
            (counts.allowed, "allowed"),
        ];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if parts.is_empty() { "no differences".to_owned() } else { parts.join(", ") }
    }
}

#[derive(Serialize)]
struct DiffJson<'a> {
    schema: &'static str,
    old: &'a Digest,
    new: &'a Digest,
    max_weight: Option<Weight>,
    version_step: VersionStep,
    counts: WeightCounts,
    findings: &'a [Finding],
}
