//! Ledgers: where every row and every sample went. Both must balance, or the run fails.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the rows of one source went; all values count rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowLedger {
    /// Rows read.
    pub read: u64,
    /// Rows left out by a cap or a weight; rows of files that a `files` subset leaves out are not read.
    pub sampled_out: u64,
    /// Rows that went on to become samples.
    pub kept: u64,
    /// Rows that could not be read (`on_bad_row = "drop"`).
    pub failed: u64,
    /// Rows dropped, by reason, such as `decontaminate.ngram`.
    pub dropped: BTreeMap<String, u64>,
    /// Rows that took their text from another corpus, by join; no part of the balance, because such a row
    /// still ends in one of the places above.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joined: BTreeMap<String, u64>,
    /// How many more times kept rows were taken (`repeats`), the first time not counted; no part of the
    /// balance, because a row is read once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u64,
}

/// Where the samples of one source went; values count samples, `tokens_lost` counts tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SampleLedger {
    /// Samples made from kept rows.
    pub made: u64,
    /// Samples that stand in a pack.
    pub packed: u64,
    /// Samples of rows left out by a cap.
    pub sampled_out: u64,
    /// Samples of rows that were taken again (`repeats`), beyond those in `made`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u64,
    /// Samples dropped, by reason, such as `pack.overlong`.
    pub dropped: BTreeMap<String, u64>,
    /// Tokens lost, by reason; no part of the balance, because a truncated sample is still packed.
    pub tokens_lost: BTreeMap<String, u64>,
}

/// A ledger that does not balance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Rows went in that did not come out, or the reverse.
    #[error(
        "rows of source `{source_name}` do not balance: read `{read}`, accounted for `{accounted}` \
         (sampled out `{sampled_out}` + kept `{kept}` + failed `{failed}` + dropped `{dropped}`)"
    )]
    Rows {
        /// The source's name.
        source_name: String,
        /// The left side: rows read.
        read: u64,
        /// The right side: the sum of the rest.
        accounted: u128,
        /// Rows sampled out.
        sampled_out: u64,
        /// Rows kept.
        kept: u64,
        /// Rows failed.
        failed: u64,
        /// Rows dropped, all reasons.
        dropped: u128,
    },
    /// Samples went in that did not come out, or the reverse.
    #[error(
        "samples of source `{source_name}` do not balance: made `{made}` + repeated `{repeated}`, accounted \
         for `{accounted}` (packed `{packed}` + sampled out `{sampled_out}` + dropped `{dropped}`)"
    )]
    Samples {
        /// The source's name.
        source_name: String,
        /// The left side: samples made.
        made: u64,
        /// The left side: samples taken again.
        repeated: u64,
        /// The right side: the sum of the rest.
        accounted: u128,
        /// Samples packed.
        packed: u64,
        /// Samples sampled out.
        sampled_out: u64,
        /// Samples dropped, all reasons.
        dropped: u128,
    },
}

impl RowLedger {
    /// Checks read = sampled out + kept + failed + dropped; `source` only names the place.
    ///
    /// # Errors
    /// [`LedgerError::Rows`] with both sides.
    pub fn balance(&self, source: &str) -> Result<(), LedgerError> {
        let dropped = sum(&self.dropped);
        let accounted = [self.sampled_out, self.kept, self.failed].map(u128::from);
        let accounted = accounted.iter().sum::<u128>() + dropped;
        if u128::from(self.read) == accounted {
            return Ok(());
        }
        Err(LedgerError::Rows {
            source_name: source.to_owned(),
            read: self.read,
            accounted,
            sampled_out: self.sampled_out,
            kept: self.kept,
            failed: self.failed,
            dropped,
        })
    }

    /// Adds the counts of `other`, another part of the same source; saturates.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.read, other.read);
        add(&mut self.sampled_out, other.sampled_out);
        add(&mut self.kept, other.kept);
        add(&mut self.failed, other.failed);
        add(&mut self.repeated, other.repeated);
        merge_counts(&mut self.dropped, &other.dropped);
        merge_counts(&mut self.joined, &other.joined);
    }

    /// Counts `rows` rows as dropped for `reason`; saturates.
    pub fn drop_rows(&mut self, reason: &str, rows: u64) {
        add(self.dropped.entry(reason.to_owned()).or_default(), rows);
    }
}

impl SampleLedger {
    /// Checks made + repeated = packed + sampled out + dropped; `source` only names the place.
    ///
    /// # Errors
    /// [`LedgerError::Samples`] with both sides.
    pub fn balance(&self, source: &str) -> Result<(), LedgerError> {
        let dropped = sum(&self.dropped);
        let accounted = u128::from(self.packed) + u128::from(self.sampled_out) + dropped;
        if u128::from(self.made) + u128::from(self.repeated) == accounted {
            return Ok(());
        }
        Err(LedgerError::Samples {
            source_name: source.to_owned(),
            made: self.made,
            repeated: self.repeated,
            accounted,
            packed: self.packed,
            sampled_out: self.sampled_out,
            dropped,
        })
    }

    /// Adds the counts of `other`, another part of the same source; saturates.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.made, other.made);
        add(&mut self.packed, other.packed);
        add(&mut self.sampled_out, other.sampled_out);
        add(&mut self.repeated, other.repeated);
        merge_counts(&mut self.dropped, &other.dropped);
        merge_counts(&mut self.tokens_lost, &other.tokens_lost);
    }

    /// Counts `samples` samples as dropped for `reason`; saturates.
    pub fn drop_samples(&mut self, reason: &str, samples: u64) {
        add(self.dropped.entry(reason.to_owned()).or_default(), samples);
    }

    /// Counts `tokens` tokens as lost for `reason`; saturates.
    pub fn lose_tokens(&mut self, reason: &str, tokens: u64) {
        add(self.tokens_lost.entry(reason.to_owned()).or_default(), tokens);
    }
}

/// Whether a count of a later version is left out, so that older digests stay.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn sum(counts: &BTreeMap<String, u64>) -> u128 {
    counts.values().copied().map(u128::from).sum()
}

fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

fn merge_counts(into: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>) {
    for (reason, more) in from {
        add(into.entry(reason.clone()).or_default(), *more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> RowLedger {
        let mut ledger = RowLedger { read: 10, sampled_out: 1, kept: 5, failed: 1, ..Default::default() };
        ledger.drop_rows("decontaminate.ngram", 2);
        ledger.drop_rows("normalise.empty", 1);
        ledger
    }

    #[test]
    fn rows_balance_or_name_both_sides() {
        let mut ledger = rows();
        assert_eq!(ledger.balance("tulu"), Ok(()));
        ledger.kept = 4;
        assert_eq!(
            ledger.balance("tulu").expect_err("refused").to_string(),
            "rows of source `tulu` do not balance: read `10`, accounted for `9` \
             (sampled out `1` + kept `4` + failed `1` + dropped `3`)"
        );
    }

    #[test]
    fn samples_balance_without_lost_tokens() {
        let mut ledger = SampleLedger { made: 4, packed: 2, sampled_out: 1, ..Default::default() };
        ledger.lose_tokens("pack.overlong", 900);
        ledger.drop_samples("pack.overlong", 1);
        assert_eq!(ledger.balance("tulu"), Ok(()));
        ledger.made = 5;
        assert_eq!(
            ledger.balance("tulu").expect_err("refused").to_string(),
            "samples of source `tulu` do not balance: made `5` + repeated `0`, accounted for `4` \
             (packed `2` + sampled out `1` + dropped `1`)"
        );
    }

    #[test]
    fn merge_keeps_the_balance() {
        let mut ledger = rows();
        ledger.merge(&rows());
        assert_eq!(ledger.read, 20);
        assert_eq!(ledger.dropped.get("decontaminate.ngram"), Some(&4));
        assert_eq!(ledger.balance("tulu"), Ok(()));
    }

    #[test]
    fn huge_counts_do_not_wrap() {
        let mut ledger = RowLedger { read: 0, kept: u64::MAX, failed: 1, ..Default::default() };
        assert!(ledger.balance("x").is_err());
        ledger.merge(&ledger.clone());
        assert_eq!(ledger.kept, u64::MAX);
    }
}
