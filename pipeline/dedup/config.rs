//! What near duplicates are: the threshold, the shingles, and the bands that follow.

use potable_blocklists::NORMALISER;
use serde_json::{Value, json};

/// Words in a shingle, unless the recipe says otherwise: as in datatrove and in GPT-3's and FineWeb's
/// pipelines.
pub const DEFAULT_WORDS: u64 = 5;
/// Values in a signature, unless the recipe says otherwise: as in text-dedup and in NeMo Curator
/// (256 and 260).
pub const DEFAULT_HASHES: u64 = 256;
/// Words that a shingle may have.
pub const WORDS_RANGE: std::ops::RangeInclusive<u64> = 1..=64;
/// Values that a signature may have.
pub const HASHES_RANGE: std::ops::RangeInclusive<u64> = 16..=1024;

/// How near duplicates are found. Two rows of the same text up to the word normaliser always have the
/// same bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearConfig {
    /// Jaccard similarity from which rows count as near duplicates, in parts per million.
    pub threshold_ppm: u32,
    /// Words in a shingle.
    pub words: u32,
    /// Values in a signature; those that fill no band are not used.
    pub hashes: u32,
    /// Bands of a signature.
    pub bands: u32,
    /// Values in a band.
    pub rows: u32,
}

impl NearConfig {
    /// The configuration for a threshold; bands by [`best_bands`].
    pub fn new(threshold_ppm: u32, words: u32, hashes: u32) -> Self {
        let (bands, rows) = best_bands(f64::from(threshold_ppm) / 1e6, hashes);
        NearConfig { threshold_ppm, words, hashes, bands, rows }
    }

    /// The share of pairs of this similarity that become candidates: `1 - (1 - s^rows)^bands`.
    pub fn found(&self, similarity: f64) -> f64 {
        found(similarity, self.bands, self.rows)
    }

    /// The settings as the recipe digest covers them.
    pub fn settings(&self) -> Value {
        json!({ "threshold_ppm": self.threshold_ppm, "words": self.words, "hashes": self.hashes,
            "bands": self.bands, "rows": self.rows, "normaliser": NORMALISER })
    }
}

/// Bands and values in a band, `bands × rows ≤ hashes`, for which the sum of both errors is smallest,
/// weighed alike: the area under the curve of [`NearConfig::found`] below the threshold (pairs taken
/// that are no duplicates) and the area above the curve beyond it (duplicates missed). This is the
/// choice of datasketch (`MinHashLSH`, after Zhu et al., "LSH Ensemble", VLDB 2016), and text-dedup's.
/// Of equal ones, the fewest bands.
pub fn best_bands(threshold: f64, hashes: u32) -> (u32, u32) {
    let mut best = (f64::INFINITY, (1, hashes));
    for bands in 1..=hashes {
        for rows in 1..=hashes / bands {
            let error = area(0.0, threshold, |s| found(s, bands, rows))
                + area(threshold, 1.0, |s| 1.0 - found(s, bands, rows));
            if error < best.0 {
                best = (error, (bands, rows));
            }
        }
    }
    best.1
}

fn found(similarity: f64, bands: u32, rows: u32) -> f64 {
    1.0 - power(1.0 - power(similarity, rows), bands)
}

/// By squaring, so that every machine gives the same bits.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// The area under a curve, by the midpoints of steps.
fn area(from: f64, to: f64, curve: impl Fn(f64) -> f64) -> f64 {
    const STEPS: u32 = 200;
    let step = (to - from) / f64::from(STEPS);
    (0..STEPS).map(|at| curve(from + step * (f64::from(at) + 0.5))).sum::<f64>() * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_those_of_datasketch() {
        // `datasketch.lsh._optimal_param(threshold, num_perm, 0.5, 0.5)`
        for (threshold, hashes, expected) in BANDS {
            assert_eq!(best_bands(threshold, hashes), expected, "{threshold} {hashes}");
        }
    }

    const BANDS: [(f64, u32, (u32, u32)); 10] = [
        (0.5, 128, (25, 5)),
        (0.5, 256, (42, 6)),
        (0.7, 128, (14, 9)),
        (0.7, 256, (25, 10)),
        (0.8, 112, (9, 12)),
        (0.8, 128, (9, 13)),
        (0.8, 256, (17, 15)),
        (0.8, 512, (28, 18)),
        (0.9, 256, (9, 28)),
        (0.95, 256, (5, 51)),
    ];

    #[test]
    fn the_curve_rises_from_0_to_1_round_the_threshold() {
        for threshold_ppm in [300_000, 500_000, 700_000, 800_000, 900_000, 950_000] {
            let config = NearConfig::new(threshold_ppm, 5, 256);
            assert!(config.bands * config.rows <= 256);
            let threshold = f64::from(threshold_ppm) / 1e6;
            assert_eq!((config.found(0.0), config.found(1.0)), (0.0, 1.0));
            assert!(config.found(threshold - 0.2) < 0.1, "{config:?}");
            assert!(config.found(threshold + (1.0 - threshold) * 0.75) > 0.8, "{config:?}");
        }
    }
}
