//! `[dedup]`, resolved.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::error::RecipeError;
use super::file::{DedupFile, Exact};
use crate::dedup::NearConfig;
use crate::dedup::config::{DEFAULT_HASHES, DEFAULT_WORDS, HASHES_RANGE, WORDS_RANGE};

const PLACE: &str = "[dedup]";

/// How near duplicates are found, if they are looked for.
///
/// # Errors
/// A similarity that is none, an option without it, a width that cannot be used, `exact = "none"`.
pub(super) fn near(file: &DedupFile) -> Result<Option<NearConfig>, RecipeError> {
    let Some(near) = file.near else {
        let option = [("near_words", file.near_words), ("near_hashes", file.near_hashes)];
        return match option.into_iter().find(|(_, value)| value.is_some()) {
            None => Ok(None),
            Some((key, _)) => Err(RecipeError::value_hint(
                PLACE,
                format!("`{key}` says how near duplicates are found, and `near` is not given"),
                "say from which similarity on: `near = 0.8`",
            )),
        };
    };
    let threshold_ppm = (near * 1e6).round();
    if !(1.0..1e6).contains(&threshold_ppm) {
        return Err(RecipeError::value_hint(
            PLACE,
            format!("`near = {near}` is not a similarity above 0 and below 1"),
            "0.8 is usual; rows that are the same go by `exact`",
        ));
    }
    if file.exact == Some(Exact::None) {
        return Err(RecipeError::value_hint(
            PLACE,
            "`near` drops copies with a few changes, and `exact = \"none\"` keeps copies without any",
            "leave `exact` out, or `near`",
        ));
    }
    let within = |key: &str, value: u64, range: RangeInclusive<u64>| {
        let fits = range.contains(&value);
        let (least, most) = (range.start(), range.end());
        let problem = || format!("`{key} = {value}` is not between {least} and {most}");
        let usual = "5 words and 256 hashes are usual; leave the key out for these";
        if fits { Ok(value as u32) } else { Err(RecipeError::value_hint(PLACE, problem(), usual)) }
    };
    let words = within("near_words", file.near_words.unwrap_or(DEFAULT_WORDS), WORDS_RANGE)?;
    let hashes = within("near_hashes", file.near_hashes.unwrap_or(DEFAULT_HASHES), HASHES_RANGE)?;
    Ok(Some(NearConfig::new(threshold_ppm as u32, words, hashes)))
}

/// The section as the recipe digest covers it. Near duplicates are left out where they are not looked
/// for, so that older digests stay.
pub(super) fn settings(exact: Exact, near: Option<NearConfig>) -> Value {
    match near {
        None => json!({ "exact": exact }),
        Some(near) => json!({ "exact": exact, "near": near.settings() }),
    }
}
