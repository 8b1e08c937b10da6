//! What a project lets pass: thresholds below which a change of counts is informational, and changes
//! that are allowed, each with a reason.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Finding;
use crate::canonical::{self, CanonicalError};

/// How much counts may move before the change is material, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Rows and samples, relative to the larger count.
    pub rows_ppm: u64,
    /// Tokens and packs, relative to the larger count.
    pub tokens_ppm: u64,
    /// Shares of the mixture and fill, absolute.
    pub share_ppm: u64,
    /// Rows, samples and tokens lost for one reason or benchmark, relative to the larger count.
    pub dropped_ppm: u64,
}

impl Default for Thresholds {
    /// One in a hundred.
    fn default() -> Self {
        let hundredth = 10_000;
        Thresholds {
            rows_ppm: hundredth,
            tokens_ppm: hundredth,
            share_ppm: hundredth,
            dropped_ppm: hundredth,
        }
    }
}

/// A policy, read from TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The thresholds.
    pub thresholds: Thresholds,
    /// Changes that are allowed.
    pub allowed: Vec<Allowed>,
}

/// A change that is allowed. Every pattern given must match; `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// What changes, as the diff prints it without backticks, such as `licence of source web`.
    pub what: String,
    /// The part of the manifest, such as `inputs`.
    pub area: Option<String>,
    /// The phase.
    pub phase: Option<String>,
    /// The old value; `absent` if there was none.
    pub old: Option<String>,
    /// The new value; `absent` if there is none.
    pub new: Option<String>,
    /// Why; printed with the change.
    pub reason: String,
}

/// A policy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Not TOML, an unknown key, a value of another type.
    #[error("{reason}")]
    Parse {
        /// What the parser said, with place.
        reason: String,
    },
    /// A threshold that is no share.
    #[error("threshold `{key}` is `{value}`, not a share from 0 to 1")]
    Share {
        /// The key.
        key: &'static str,
        /// What it says.
        value: String,
    },
    /// An allowance without a reason.
    #[error("`[[allow]]` of `{what}` gives no reason")]
    NoReason {
        /// What it allows.
        what: String,
    },
}

/// The file as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    /// How much counts may move before a change is material.
    #[serde(default)]
    thresholds: ThresholdsFile,
    /// Changes that are allowed.
    #[serde(default)]
    allow: Vec<Allowed>,
}

/// Shares from 0 to 1; 0.01 where nothing is said.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ThresholdsFile {
    /// Rows and samples, relative to the larger count.
    rows: Option<f64>,
    /// Tokens and packs, relative to the larger count.
    tokens: Option<f64>,
    /// Shares of the mixture and fill, absolute.
    share: Option<f64>,
    /// Rows, samples and tokens lost for one reason or benchmark, relative to the larger count.
    dropped: Option<f64>,
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// [`PolicyError`]; an unknown key is one.
    pub fn from_toml(text: &str) -> Result<Self, PolicyError> {
        let file: PolicyFile = toml::from_str(text)
            .map_err(|error| PolicyError::Parse { reason: error.to_string().trim_end().to_owned() })?;
        let default = Thresholds::default();
        let given = &file.thresholds;
        let thresholds = Thresholds {
            rows_ppm: ppm("rows", given.rows, default.rows_ppm)?,
            tokens_ppm: ppm("tokens", given.tokens, default.tokens_ppm)?,
            share_ppm: ppm("share", given.share, default.share_ppm)?,
            dropped_ppm: ppm("dropped", given.dropped, default.dropped_ppm)?,
        };
        if let Some(allowed) = file.allow.iter().find(|allowed| allowed.reason.trim().is_empty()) {
            return Err(PolicyError::NoReason { what: allowed.what.clone() });
        }
        Ok(Policy { thresholds, allowed: file.allow })
    }

    /// Why a finding is allowed, if it is.
    pub fn reason_for(&self, finding: &Finding) -> Option<&str> {
        let allowed = self.allowed.iter().find(|allowed| allowed.covers(finding));
        allowed.map(|allowed| allowed.reason.as_str())
    }
}

impl Allowed {
    fn covers(&self, finding: &Finding) -> bool {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        let fits = |pattern: &Option<String>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| matches(pattern, text))
        };
        matches(&self.what.replace('`', ""), &finding.what.replace('`', ""))
            && fits(&self.area, &finding.area)
            && fits(&self.phase, finding.phase.as_deref().unwrap_or_default())
            && fits(&self.old, &value(&finding.old))
            && fits(&self.new, &value(&finding.new))
    }
}

/// The JSON Schema (draft 2020-12) of a policy as pretty JSON with sorted keys.
///
/// # Errors
/// [`CanonicalError`] if a type's schema holds a float; none does.
pub fn policy_schema() -> Result<String, CanonicalError> {
    let mut schema = schemars::schema_for!(PolicyFile);
    schema.insert("title".to_owned(), "potable-policy-1".into());
    canonical::pretty_json(schema.as_value())
}

fn ppm(key: &'static str, share: Option<f64>, default: u64) -> Result<u64, PolicyError> {
    match share {
        None => Ok(default),
        Some(share) if (0.0..=1.0).contains(&share) => Ok((share * 1e6).round() as u64),
        Some(share) => Err(PolicyError::Share { key, value: share.to_string() }),
    }
}

/// Whether `text` is `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.len() >= tail.len() && left.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        assert!(matches("licence of source web", "licence of source web"));
        assert!(!matches("licence", "licence of source web"));
        assert!(matches("licence of source *", "licence of source web"));
        assert!(matches("*source*", "licence of source web"));
        assert!(matches("*", ""));
        assert!(!matches("a*a", "a"));
        assert!(matches("a*b*c", "a-b-b-c"));
        assert!(!matches("a*b*c", "a-c-b"));
    }
}
