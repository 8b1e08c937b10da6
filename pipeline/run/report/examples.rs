//! Which dropped rows the report shows: a few of each benchmark and of each reason, the first ones in
//! the order of rows.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::shard::dropped::DroppedRow;

/// Rows that are shown of a benchmark, and how many of them may be of one source.
const OF_BENCHMARK: usize = 4;
const OF_SOURCE: usize = 2;

/// Rows that are named for a reason.
const OF_REASON: usize = 3;

/// Rows that are shown, and names of rows.
#[derive(Debug, Default)]
pub struct Examples {
    sensitive: BTreeSet<String>,
    matches: BTreeMap<String, Vec<Example>>,
    named: BTreeMap<String, Vec<String>>,
}

/// A row that was dropped for a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Name of the source.
    pub source: String,
    /// The row's id.
    pub row_id: String,
    /// What was found.
    pub found: Found,
}

/// A match, as `dropped/` has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Found {
    /// The benchmark.
    pub benchmark: String,
    /// The item.
    pub item: String,
    /// The rule.
    pub rule: String,
    /// Share of the item, in parts per million.
    pub coverage_ppm: u64,
    /// Index of the message.
    pub message: u64,
    action: String,
    excerpt: String,
    mark: (usize, usize),
}

impl Examples {
    /// No rows yet. `sensitive` are the benchmarks whose text must never be shown.
    pub fn new(sensitive: BTreeSet<String>) -> Self {
        Examples { sensitive, ..Examples::default() }
    }

    /// Takes a dropped row, if there is room for one like it. Rows come in the order of their ids.
    pub fn offer(&mut self, row: &DroppedRow) {
        let row_id = || format!("{}/{}:{}", row.source, row.file, row.row);
        let named = self.named.entry(row.reason.clone()).or_default();
        if named.len() < OF_REASON {
            named.push(row_id());
        }
        if row.stage != "decontaminate" {
            return;
        }
        let Ok(mut found) = serde_json::from_str::<Vec<Found>>(&row.evidence) else { return };
        let hide = found.iter().any(|one| self.sensitive.contains(&one.benchmark) || one.excerpt.is_empty());
        found.retain(|one| one.action == "drop");
        let mut seen = BTreeSet::new();
        for mut one in found {
            if !seen.insert(one.benchmark.clone()) {
                continue;
            }
            if hide {
                one.excerpt.clear();
            }
            let shown = self.matches.entry(one.benchmark.clone()).or_default();
            let same = shown.iter().filter(|example| example.source == row.source).count();
            if shown.len() < OF_BENCHMARK && same < OF_SOURCE {
                shown.push(Example { source: row.source.clone(), row_id: row_id(), found: one });
            }
        }
    }

    /// Rows dropped for a match with a benchmark.
    pub fn of_benchmark(&self, name: &str) -> &[Example] {
        self.matches.get(name).map_or(&[], Vec::as_slice)
    }

    /// Ids of rows dropped for a reason.
    pub fn of_reason(&self, name: &str) -> &[String] {
        self.named.get(name).map_or(&[], Vec::as_slice)
    }
}

impl Found {
    /// The text before the match, the match, and the text after it; `None` where no text may be shown.
    pub fn parts(&self) -> Option<(&str, &str, &str)> {
        if self.excerpt.is_empty() {
            return None;
        }
        let (start, end) = self.mark;
        let parts =
            || Some((self.excerpt.get(..start)?, self.excerpt.get(start..end)?, self.excerpt.get(end..)?));
        Some(parts().unwrap_or((&self.excerpt, "", "")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64, matches: &[(&str, &str)]) -> DroppedRow {
        let found = matches.iter().map(|(benchmark, excerpt)| {
            serde_json::json!({"benchmark": benchmark, "item": "i", "rule": "ngram", "coverage_ppm": 1,
                "message": 0, "start": 0, "end": 1, "action": "drop", "excerpt": excerpt, "mark": [1, 3]})
        });
        DroppedRow {
            source: "s".to_owned(),
            file: "f".to_owned(),
            row: number,
            stage: "decontaminate".to_owned(),
            reason: "decontaminate.ngram".to_owned(),
            evidence: found.collect::<serde_json::Value>().to_string(),
        }
    }

    #[test]
    fn a_row_that_matches_a_sensitive_benchmark_shows_no_text_of_any() {
        let mut examples = Examples::new(BTreeSet::from(["secret".to_owned()]));
        examples.offer(&row(1, &[("open", "a quoted text"), ("secret", "b text that leaked")]));
        for name in ["open", "secret"] {
            assert_eq!(examples.of_benchmark(name).len(), 1);
            assert!(examples.of_benchmark(name).iter().all(|one| one.found.parts().is_none()));
        }
    }

    #[test]
    fn a_match_without_text_hides_the_text_of_the_row() {
        let mut examples = Examples::new(BTreeSet::new());
        examples.offer(&row(1, &[("open", "a quoted text"), ("other", "")]));
        assert!(examples.of_benchmark("open").iter().all(|one| one.found.parts().is_none()));
    }

    #[test]
    fn few_rows_are_kept_and_the_mark_is_cut_out() {
        let mut examples = Examples::new(BTreeSet::new());
        (0..9).for_each(|number| examples.offer(&row(number, &[("open", "a quoted text")])));
        assert_eq!(examples.of_benchmark("open").len(), OF_SOURCE);
        assert_eq!(examples.of_reason("decontaminate.ngram").len(), OF_REASON);
        assert_eq!(examples.of_benchmark("open")[0].found.parts(), Some(("a", " q", "uoted text")));
    }
}
