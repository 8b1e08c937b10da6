//! How often the words and grams of the benchmarks stand in a sample of clean text.

use std::collections::{HashMap, HashSet};

use potable_manifests::Hasher;

use crate::format::Background;
use crate::gram::{self, HEAD};
use crate::plan::Corpus;
use crate::text::{Word, Words};

/// Counts of the sample; empty if there is none. Maps are only asked for keys, never walked.
#[derive(Default)]
pub(crate) struct Counts {
    rows: u64,
    least: u32,
    digest: String,
    words: HashMap<u64, u32>,
    runs: HashMap<u64, u32>,
    grams: HashMap<u64, u32>,
    wholes: HashMap<u64, u32>,
}

impl Counts {
    /// Counts in how many of `texts` the words, runs of four words, n-grams and short texts of
    /// `corpus` stand. `least` of them make a gram weak.
    pub(crate) fn of<T: AsRef<str>>(
        corpus: &Corpus,
        ngram: usize,
        texts: impl IntoIterator<Item = T>,
        least: u32,
    ) -> Self {
        let mut counts = Self { least: least.max(1), ..Self::default() };
        let lengths = counts.expect(corpus, ngram);
        let (mut scanner, mut words, mut hashes) = (Words::new(), Vec::new(), Vec::new());
        let mut hasher = Hasher::new();
        let mut seen = HashSet::new();
        for text in texts {
            counts.rows += 1;
            hasher.update(text.as_ref().as_bytes());
            hasher.update(&[0]);
            scanner.scan(text.as_ref(), &mut words);
            hashes.clear();
            hashes.extend(words.iter().map(|word: &Word| word.hash));
            counts.count(&hashes, &lengths, &mut seen);
        }
        counts.digest = hasher.finish().as_str().to_owned();
        counts
    }

    /// Puts everything that is counted into the maps, and gives the lengths of short texts that
    /// are counted whole.
    fn expect(&mut self, corpus: &Corpus, ngram: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        for item in corpus.items.iter().filter(|item| !item.canary) {
            for text in std::iter::once(&item.stem).chain(&item.options) {
                let hashes = corpus.hashes(text);
                self.words.extend(hashes.iter().map(|&hash| (hash, 0)));
                self.runs.extend(hashes.array_windows().map(|run| (gram::quad(run), 0)));
                gram::each(hashes, ngram, |_, key| _ = self.grams.insert(key, 0));
            }
            for words in corpus.short_texts(item, ngram) {
                lengths.push(words.len());
                self.wholes.insert(gram::key_of(words), 0);
            }
        }
        lengths.retain(|&length| length >= HEAD);
        lengths.sort_unstable();
        lengths.dedup();
        lengths.insert(0, ngram);
        lengths
    }

    fn count(&mut self, hashes: &[u64], lengths: &[usize], seen: &mut HashSet<u64>) {
        let mut bump = |map: &mut HashMap<u64, u32>, key: u64| {
            if let Some(count) = map.get_mut(&key)
                && seen.insert(key)
            {
                *count += 1;
            }
        };
        hashes.iter().for_each(|&hash| bump(&mut self.words, hash));
        hashes.array_windows().for_each(|run| bump(&mut self.runs, gram::quad(run)));
        for (place, &length) in lengths.iter().enumerate() {
            let map = if place == 0 { &mut self.grams } else { &mut self.wholes };
            gram::each(hashes, length, |_, key| bump(map, key));
        }
        seen.clear();
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Texts of the sample that hold the word.
    pub(crate) fn word(&self, hash: u64) -> u64 {
        self.words.get(&hash).copied().map_or(0, u64::from)
    }

    pub(crate) fn is_common_run(&self, key: u64) -> bool {
        self.reaches(&self.runs, key)
    }

    pub(crate) fn is_common_gram(&self, key: u64) -> bool {
        self.reaches(&self.grams, key)
    }

    /// Whether the sample holds the whole text with this key often.
    pub(crate) fn is_common_whole(&self, key: u64) -> bool {
        self.reaches(&self.wholes, key)
    }

    fn reaches(&self, map: &HashMap<u64, u32>, key: u64) -> bool {
        map.get(&key).is_some_and(|&count| count >= self.least.max(1))
    }

    /// What the header of a blocklist says of the sample.
    pub(crate) fn summary(&self) -> Option<Background> {
        if self.digest.is_empty() {
            return None;
        }
        let least = self.least;
        let weak = self.grams.values().filter(|&&count| count >= least).count() as u64;
        Some(Background { rows: self.rows, least, digest: self.digest.clone(), weak_grams: weak })
    }
}
