//! Families: items that are one problem in several transcriptions or benchmarks.
//!
//! A family counts once when the spread of a gram is measured, so that adding a transcription of a
//! problem does not make the problem's own words look like boilerplate.

use crate::gram;
use crate::plan::Corpus;

/// Words of the grams by which items are compared.
const GRAM: usize = 8;

/// Two items of two benchmarks are near-identical if they share this many per cent of the grams of
/// the larger one.
const SHARED_PERCENT: usize = 60;

/// The same for two items of one benchmark: what they share is more often a template, which is
/// boilerplate, than a transcription.
const SHARED_PERCENT_WITHIN: usize = 90;

/// In a gram of more items than this, each item is compared with a few neighbours only.
const MOST_COMPARED: usize = 16;
const NEIGHBOURS: usize = 4;

/// The family of each item: the smallest number of an item in it.
///
/// Items with options are near-identical only if the stems are and the options are: questions that
/// share a stock phrase and differ in their options are different questions.
pub(crate) fn families(corpus: &Corpus) -> Vec<u32> {
    let features: Vec<Features> = (0..corpus.items.len()).map(|item| Features::of(corpus, item)).collect();
    let mut sets = Sets { parents: (0..features.len()).collect() };
    for (a, b) in pairs(&features) {
        if sets.root(a) != sets.root(b) && features[a].is_near(&features[b]) {
            sets.join(a, b);
        }
    }
    (0..features.len()).map(|item| sets.root(item) as u32).collect()
}

/// Pairs of items worth comparing, sorted: equal ones, and ones that share a gram of the stem.
fn pairs(features: &[Features]) -> Vec<(usize, usize)> {
    let mut equal: Vec<usize> = (0..features.len()).collect();
    equal.sort_by(|&a, &b| features[a].cmp(&features[b]).then(a.cmp(&b)));
    let mut pairs: Vec<(usize, usize)> = equal
        .windows(2)
        .filter(|pair| features[pair[0]].is_equal(&features[pair[1]]))
        .map(|pair| (pair[0], pair[1]))
        .collect();
    let mut postings: Vec<(u64, usize)> = Vec::new();
    for (item, features) in features.iter().enumerate() {
        postings.extend(features.stem.iter().map(|&key| (key, item)));
    }
    postings.sort_unstable();
    for group in postings.chunk_by(|a, b| a.0 == b.0) {
        let back = if group.len() > MOST_COMPARED { NEIGHBOURS } else { MOST_COMPARED };
        for (at, &(_, item)) in group.iter().enumerate() {
            let earlier = group.get(at.saturating_sub(back)..at).unwrap_or_default();
            pairs.extend(earlier.iter().map(|&(_, other)| (other, item)));
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// The distinct grams of an item, sorted. A text of fewer words than a gram is one gram.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Features {
    stem: Vec<u64>,
    options: Vec<u64>,
    benchmark: u32,
}

impl Features {
    fn of(corpus: &Corpus, item: usize) -> Self {
        let item = &corpus.items[item];
        let benchmark = item.benchmark;
        let mut both = Self { stem: Vec::new(), options: Vec::new(), benchmark };
        add(corpus.hashes(&item.stem), &mut both.stem);
        for option in &item.options {
            add(corpus.hashes(option), &mut both.options);
        }
        for keys in [&mut both.stem, &mut both.options] {
            keys.sort_unstable();
            keys.dedup();
        }
        both
    }

    fn is_equal(&self, other: &Self) -> bool {
        (&self.stem, &self.options) == (&other.stem, &other.options)
    }

    fn is_near(&self, other: &Self) -> bool {
        let one_without = self.options.is_empty() || other.options.is_empty();
        let within = self.benchmark == other.benchmark;
        let percent = if within { SHARED_PERCENT_WITHIN } else { SHARED_PERCENT };
        let options = || {
            // A benchmark may keep the options of another one and add to them: of the smaller set.
            let (one, other) = (&self.options, &other.options);
            if within { shares(one, other, percent) } else { holds(one, other, percent) }
        };
        shares(&self.stem, &other.stem, percent) && (one_without || options())
    }
}

fn add(words: &[u64], keys: &mut Vec<u64>) {
    if words.len() >= GRAM {
        gram::each(words, GRAM, |_, key| keys.push(key));
    } else if !words.is_empty() {
        keys.push(gram::key_of(words.iter().copied()));
    }
}

fn shares(a: &[u64], b: &[u64], percent: usize) -> bool {
    let shared = a.iter().filter(|key| b.binary_search(key).is_ok()).count();
    shared > 0 && shared * 100 >= a.len().max(b.len()) * percent
}

/// Whether `percent` of the smaller set stand in the larger one.
fn holds(a: &[u64], b: &[u64], percent: usize) -> bool {
    let shared = a.iter().filter(|key| b.binary_search(key).is_ok()).count();
    shared > 0 && shared * 100 >= a.len().min(b.len()) * percent
}

/// Disjoint sets of items; the root of a set is its smallest member.
struct Sets {
    parents: Vec<usize>,
}

impl Sets {
    fn root(&mut self, mut item: usize) -> usize {
        while self.parents[item] != item {
            self.parents[item] = self.parents[self.parents[item]];
            item = self.parents[item];
        }
        item
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Item;

    /// Families of items of benchmarks of `across` items each.
    fn of(across: u32, items: &[(&str, &[&str])]) -> Vec<u32> {
        let mut corpus = Corpus::default();
        for (benchmark, (stem, options)) in (0..).zip(items) {
            let options = options.iter().map(|&o| o.to_owned()).collect();
            corpus.add(benchmark / across, Item { id: String::new(), stem: (*stem).to_owned(), options });
        }
        families(&corpus)
    }

    const LONG: &str = "a train leaves the town at noon and reaches the sea after three hours of \
                        travel how fast was it on the way";

    #[test]
    fn joins_transcriptions() {
        let with_tail = format!("{LONG} back home");
        let items: [(&str, &[&str]); 3] =
            [(LONG, &[]), ("something else altogether", &[]), (&with_tail, &[])];
        assert_eq!(of(1, &items), [0, 1, 0]);
        assert_eq!(of(3, &items), [0, 1, 2]);
    }

    #[test]
    fn keeps_stock_phrases_with_other_options_apart() {
        assert_eq!(of(1, &[(LONG, &["1", "2"]), (LONG, &["3", "4"]), (LONG, &["2", "1"])]), [0, 1, 0]);
    }

    #[test]
    fn joins_a_question_whose_options_another_benchmark_adds_to() {
        let (four, ten): (&[&str], &[&str]) =
            (&["7", "9", "11", "13"], &["1", "2", "3", "4", "5", "6", "7", "9", "11", "13"]);
        assert_eq!(of(1, &[(LONG, four), (LONG, ten)]), [0, 0]);
        assert_eq!(of(2, &[(LONG, four), (LONG, ten)]), [0, 1], "within one benchmark they are two");
    }

    #[test]
    fn a_phrase_inside_a_longer_item_is_another_item() {
        let longer = format!("{LONG} {}", "and many more words of another kind follow here ".repeat(3));
        assert_eq!(of(1, &[(LONG, &[]), (&longer, &[])]), [0, 1]);
    }
}
