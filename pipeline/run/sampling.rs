//! Sampling comes first: how far up the seeded row hashes a source must be mapped, from its cap and
//! its rows, in deterministic rounds.

use super::error::RunError;
use super::mixture::asked_by_weight;
use super::plan::{Plan, PlannedSource};
use super::select::Selection;

/// The highest hash that the first round maps: a tenth more rows than asked for, and a few; all of
/// them where there is no cap or the rows are not known.
pub fn first_threshold(plan: &Plan, source: &PlannedSource) -> u64 {
    let tokens = source.config.max_tokens.or_else(|| asked_by_weight(plan, source));
    let wanted = match (source.rows(), asked_rows(source, tokens)) {
        (Some(rows), Some(asked)) => share(asked.saturating_add(asked / 10 + 32), rows),
        _ => u64::MAX,
    };
    wanted.min(most(source))
}

/// The highest hash that any round may map: that of the share `sample`.
fn most(source: &PlannedSource) -> u64 {
    source.config.sample_ppm.map_or(u64::MAX, |ppm| share(ppm, 1_000_000))
}

/// Whether all rows that a source may give are mapped below a threshold.
pub fn is_whole(source: &PlannedSource, threshold: u64) -> bool {
    threshold >= most(source)
}

/// Raises the thresholds of the sources that have too few rows; `false` if there is none.
pub fn raise(thresholds: &mut [u64], selection: &Selection, sources: &[PlannedSource]) -> bool {
    let mut raised = false;
    for &(source, missing) in &selection.summary.short {
        let most = sources.get(source).map_or(u64::MAX, most);
        let Some(now) = thresholds.get_mut(source).filter(|now| **now < most) else { continue };
        let factor = missing.factor_ppm();
        let factor = factor.saturating_add(factor / 10 + 50_000);
        let wanted = u128::from(*now) * u128::from(factor) / 1_000_000;
        *now = u64::try_from(wanted).unwrap_or(u64::MAX).min(most);
        raised = true;
    }
    raised
}

/// A weight asks for its share, and less is not the mixture that was asked for.
///
/// # Errors
/// The first source that has less.
pub fn check_supply(plan: &Plan, selection: &Selection) -> Result<(), RunError> {
    for (source, missing) in &selection.summary.short {
        let source = plan.sources.get(*source).filter(|source| source.config.weight_ppm.is_some());
        if let Some(source) = source {
            let source_name = source.config.name.clone();
            return Err(RunError::Supply { source_name, asked: missing.asked, supply: missing.there });
        }
    }
    Ok(())
}

/// Rows that a cap asks for; a token cap is turned into rows by their size.
fn asked_rows(source: &PlannedSource, tokens: Option<u64>) -> Option<u64> {
    let by_tokens = tokens.zip(source.rows()).map(|(tokens, rows)| {
        let bytes: u64 = source.files.iter().map(|f| f.text_bytes).sum();
        // Text has about four bytes a token, and a second round costs little.
        let asked = u128::from(tokens) * 4 * u128::from(rows) / u128::from(bytes.max(1));
        u64::try_from(asked).unwrap_or(u64::MAX - 1).saturating_add(1)
    });
    match (source.config.max_rows, by_tokens) {
        (Some(rows), Some(tokens)) => Some(rows.min(tokens)),
        (rows, tokens) => rows.or(tokens),
    }
}

fn share(part: u64, whole: u64) -> u64 {
    if part >= whole {
        return u64::MAX;
    }
    ((u128::from(part) << 64) / u128::from(whole)) as u64
}
