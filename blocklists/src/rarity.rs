//! In how many families words and runs of four words of the benchmarks stand.

use crate::background::Counts;
use crate::gram;
use crate::plan::Corpus;

/// The counts, looked up by hash.
pub(crate) struct Rarity<'c> {
    words: Vec<(u64, u32)>,
    runs: Vec<(u64, u32)>,
    /// Counts of clean text.
    pub(crate) counts: &'c Counts,
    /// Number of families.
    pub(crate) families: u64,
}

impl<'c> Rarity<'c> {
    pub(crate) fn of(corpus: &Corpus, families: &[u32], counts: &'c Counts) -> Self {
        let (mut words, mut runs) = (Vec::new(), Vec::new());
        for (item, &family) in corpus.items.iter().zip(families).filter(|(item, _)| !item.canary) {
            for text in std::iter::once(&item.stem).chain(&item.options) {
                let hashes = corpus.hashes(text);
                words.extend(hashes.iter().map(|&hash| (hash, family)));
                runs.extend(hashes.array_windows().map(|run| (gram::quad(run), family)));
            }
        }
        let mut all = families.to_vec();
        all.sort_unstable();
        all.dedup();
        Self { words: spread(words), runs: spread(runs), counts, families: all.len() as u64 }
    }

    /// Families that hold the word.
    pub(crate) fn word(&self, hash: u64) -> u32 {
        look_up(&self.words, hash)
    }

    /// Families that hold the run of four words with `key`.
    pub(crate) fn run(&self, key: u64) -> u32 {
        look_up(&self.runs, key)
    }
}

/// The keys, sorted, with the number of different families of each.
fn spread(mut keyed: Vec<(u64, u32)>) -> Vec<(u64, u32)> {
    keyed.sort_unstable();
    keyed.dedup();
    keyed.chunk_by(|a, b| a.0 == b.0).map(|group| (group[0].0, group.len() as u32)).collect()
}

fn look_up(counted: &[(u64, u32)], key: u64) -> u32 {
    let found = counted.binary_search_by_key(&key, |&(key, _)| key);
    found.ok().and_then(|at| counted.get(at)).map_or(0, |&(_, count)| count)
}
