//! Which texts of an item are looked for, by which rule, and which grams are too weak to drop.

use std::ops::Range;

use crate::background::Counts;
use crate::benchmark::Item;
use crate::format::{BlocklistError, Record, TableRows, WEAK_KEY, small};
use crate::gram::{self, HEAD};
use crate::suffix::Surroundings;
use crate::text::{Word, Words};

/// A gram or short text of this many unrelated items is boilerplate.
pub(crate) const BOILERPLATE_FAMILIES: usize = 3;

/// Fewest real words (alphabetic with two letters or more, or characters of scripts without
/// spaces) in a gram that may drop a row alone.
const REAL_WORDS: usize = 4;

/// Fewest words of a short item that is looked for inside texts even if it has no long numbers, and
/// how many of them must differ if fewer than [`REAL_WORDS`] are real (formulas).
const ANYWHERE_WORDS: usize = 8;
const ANYWHERE_DISTINCT: usize = 6;

/// Most records of one gram in one text, and of a boilerplate gram in all.
const MOST_POSITIONS: usize = 4;
const MOST_WEAK_RECORDS: usize = 8;

/// Words of a gram that a run of boilerplate may fill: what is left of it says too little alone. A
/// template that goes on with the data of its item (a format, then names) has a different gram in
/// each item, and none of them stands in several.
fn stock_words(ngram: usize) -> usize {
    ngram - ngram * 2 / 5
}

/// Words of a block: every n-gram of a text holds a whole block of those that begin at multiples
/// of this.
pub(crate) fn block_words(ngram: usize) -> usize {
    ngram.div_ceil(2)
}

/// Own flag beside those of [`Word`]: a number of three digits or more.
const LONG_NUMBER: u8 = 1 << 7;

/// The words of all items.
#[derive(Default)]
pub(crate) struct Corpus {
    hashes: Vec<u64>,
    flags: Vec<u8>,
    pub(crate) items: Vec<ItemWords>,
    scanner: Words,
    scratch: Vec<Word>,
}

/// An item, its texts being ranges of the words of a [`Corpus`].
pub(crate) struct ItemWords {
    pub(crate) benchmark: u32,
    pub(crate) id: String,
    pub(crate) stem: Range<usize>,
    pub(crate) options: Vec<Range<usize>>,
    pub(crate) canary: bool,
}

impl Corpus {
    pub(crate) fn add(&mut self, benchmark: u32, item: Item) {
        let stem = self.words(&item.stem);
        let options = item.options.iter().map(|option| self.words(option));
        let options = options.filter(|words| !words.is_empty()).collect();
        self.items.push(ItemWords { benchmark, id: item.id, stem, options, canary: false });
    }

    /// Adds a canary as an item and gives the number of its words.
    pub(crate) fn add_canary(&mut self, benchmark: u32, canary: &str) -> usize {
        let stem = self.words(canary);
        let words = stem.len();
        let id = "canary".to_owned();
        self.items.push(ItemWords { benchmark, id, stem, options: Vec::new(), canary: true });
        words
    }

    /// The words of the texts of `item` that have fewer than `ngram`: its stem, or its stem and
    /// each option.
    pub(crate) fn short_texts(&self, item: &ItemWords, ngram: usize) -> Vec<Vec<u64>> {
        let stem = self.hashes(&item.stem);
        let with = |option| [stem, self.hashes(option)].concat();
        let texts = std::iter::once(stem.to_vec()).chain(item.options.iter().map(with));
        texts.filter(|words| words.len() < ngram).collect()
    }

    pub(crate) fn hashes(&self, words: &Range<usize>) -> &[u64] {
        self.hashes.get(words.clone()).unwrap_or_default()
    }

    pub(crate) fn flags(&self, words: &Range<usize>) -> &[u8] {
        self.flags.get(words.clone()).unwrap_or_default()
    }

    fn words(&mut self, text: &str) -> Range<usize> {
        let start = self.hashes.len();
        self.scanner.scan(text, &mut self.scratch);
        for word in &self.scratch {
            let long = word.flags & Word::IS_DIGIT != 0 && word.end - word.start >= 3;
            self.hashes.push(word.hash);
            self.flags.push(word.flags | if long { LONG_NUMBER } else { 0 });
        }
        start..self.hashes.len()
    }
}

/// A text to look for: the stem of an item, or the stem and one option.
pub(crate) struct Text {
    pub(crate) item: u32,
    /// An option stands behind the stem.
    pub(crate) with_option: bool,
    pub(crate) hashes: Vec<u64>,
    flags: Vec<u8>,
    /// One of its grams drops a row alone.
    pub(crate) solid: bool,
    /// It is found by its head, or as a whole message; and whether it is boilerplate.
    pub(crate) whole: Option<Whole>,
    pub(crate) boilerplate: bool,
    pub(crate) canary: bool,
}

/// How a text is matched whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    /// Anywhere in a text.
    Anywhere,
    /// As the whole of a user message.
    Message,
}

/// Everything that is looked for.
pub(crate) struct Plan<'c> {
    corpus: &'c Corpus,
    families: &'c [u32],
    counts: &'c Counts,
    ngram: usize,
    pub(crate) texts: Vec<Text>,
    grams: Vec<Gram>,
}

/// A gram of a text. `hollow`: it has hardly a real word, or is nearly filled by boilerplate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Gram {
    key: u64,
    text: u32,
    position: u32,
    hollow: bool,
}

impl<'c> Plan<'c> {
    /// The plan for `corpus`, whose items belong to `families`, `counts` being of clean text.
    pub(crate) fn new(
        corpus: &'c Corpus,
        families: &'c [u32],
        counts: &'c Counts,
        ngram: usize,
    ) -> Result<Self, BlocklistError> {
        let mut plan = Self { corpus, families, counts, ngram, texts: Vec::new(), grams: Vec::new() };
        for (item, words) in corpus.items.iter().enumerate() {
            plan.add_text(item, None);
            if words.stem.len() < ngram {
                (0..words.options.len()).for_each(|option| plan.add_text(item, Some(option)));
            }
        }
        plan.spread()?;
        let stale: Vec<usize> = plan.texts.iter().filter(|t| !t.solid).map(|t| t.item as usize).collect();
        let before = plan.texts.len();
        for item in stale {
            let words = &corpus.items[item];
            if words.stem.len() >= ngram {
                (0..words.options.len()).for_each(|option| plan.add_text(item, Some(option)));
            }
        }
        if plan.texts.len() > before {
            plan.spread()?;
        }
        plan.choose_whole();
        plan.find_boilerplate();
        Ok(plan)
    }

    /// The table of grams.
    pub(crate) fn gram_table(&self) -> Result<TableRows, BlocklistError> {
        let mut rows = TableRows::default();
        for group in self.grams.chunk_by(|a, b| a.key == b.key) {
            let common = self.is_common(group);
            let weak = common || group.iter().all(|gram| gram.hollow);
            let start = small("grams", rows.records.len())?;
            rows.keys.push(group[0].key);
            rows.offsets.push(start | if weak { WEAK_KEY } else { 0 });
            if common && group.len() > MOST_WEAK_RECORDS {
                self.push_one_a_benchmark(group, &mut rows.records);
            } else {
                for places in group.chunk_by(|a, b| a.text == b.text) {
                    rows.records.extend(places.iter().take(MOST_POSITIONS).map(Gram::record));
                }
            }
        }
        rows.offsets.push(small("grams", rows.records.len())?);
        Ok(rows)
    }

    /// The keys of all blocks of [`block_words`] words of texts with grams, sorted.
    pub(crate) fn blocks(&self) -> Vec<u64> {
        let mut blocks = Vec::new();
        for text in self.texts.iter().filter(|text| !text.canary && text.hashes.len() >= self.ngram) {
            gram::each(&text.hashes, block_words(self.ngram), |_, key| blocks.push(key));
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The table of texts that are matched whole in the way of `whole`.
    pub(crate) fn whole_table(&self, whole: Whole) -> Result<TableRows, BlocklistError> {
        let around = Surroundings::new();
        let mut keyed = Vec::new();
        for (number, text) in self.texts.iter().enumerate() {
            if text.whole == Some(whole) {
                let record = Record { text: small("texts", number)?, position: 0 };
                keyed.push((whole.key(&text.hashes, &around), record));
            }
        }
        keyed.sort_unstable();
        let mut rows = TableRows::default();
        for group in keyed.chunk_by(|a, b| a.0 == b.0) {
            rows.keys.push(group[0].0);
            rows.offsets.push(small("records", rows.records.len())?);
            rows.records.extend(group.iter().map(|(_, record)| *record));
        }
        rows.offsets.push(small("records", rows.records.len())?);
        Ok(rows)
    }

    fn add_text(&mut self, item: usize, option: Option<usize>) {
        let words = &self.corpus.items[item];
        let mut hashes = self.corpus.hashes(&words.stem).to_vec();
        let mut flags = self.corpus.flags(&words.stem).to_vec();
        if let Some(option) = option.and_then(|option| words.options.get(option)) {
            hashes.extend_from_slice(self.corpus.hashes(option));
            flags.extend_from_slice(self.corpus.flags(option));
        }
        let (item, with_option) = (item as u32, option.is_some());
        let (solid, boilerplate, canary) = (false, false, words.canary);
        self.texts.push(Text { item, with_option, hashes, flags, solid, whole: None, boilerplate, canary });
    }

    /// Collects the grams of all texts and finds the texts that have a solid one.
    fn spread(&mut self) -> Result<(), BlocklistError> {
        let mut grams = std::mem::take(&mut self.grams);
        grams.clear();
        self.texts.iter_mut().for_each(|text| text.solid = false);
        let stock = self.stock_runs();
        let mut is_stock = Vec::new();
        for (number, text) in self.texts.iter().enumerate().filter(|(_, text)| !text.canary) {
            let number = small("texts", number)?;
            let needed = REAL_WORDS.min(self.ngram.div_ceil(2));
            let run = stock_words(self.ngram);
            is_stock.clear();
            gram::each(&text.hashes, run, |_, key| is_stock.push(stock.binary_search(&key).is_ok()));
            gram::each(&text.hashes, self.ngram, |start, key| {
                let flags = text.flags.get(start..start + self.ngram).unwrap_or_default();
                let runs = is_stock.get(start..=start + self.ngram - run).unwrap_or_default();
                let hollow = real_words(flags) < needed || runs.contains(&true);
                grams.push(Gram { key, text: number, position: start as u32, hollow });
            });
        }
        grams.sort_unstable();
        for group in grams.chunk_by(|a, b| a.key == b.key) {
            if !self.is_common(group) {
                for gram in group.iter().filter(|gram| !gram.hollow) {
                    self.texts[gram.text as usize].solid = true;
                }
            }
        }
        self.grams = grams;
        Ok(())
    }

    /// The runs of [`stock_words`] words that stand in several unrelated items, sorted.
    fn stock_runs(&self) -> Vec<u64> {
        let mut runs = Vec::new();
        for text in self.texts.iter().filter(|text| !text.canary && text.hashes.len() >= self.ngram) {
            let family = self.families[text.item as usize];
            gram::each(&text.hashes, stock_words(self.ngram), |_, key| runs.push((key, family)));
        }
        runs.sort_unstable();
        runs.dedup();
        let stock = runs.chunk_by(|a, b| a.0 == b.0).filter(|group| group.len() >= BOILERPLATE_FAMILIES);
        stock.map(|group| group[0].0).collect()
    }

    /// Decides which texts are matched whole: those without a solid gram, by length and content.
    fn choose_whole(&mut self) {
        let around = Surroundings::new();
        for text in &mut self.texts {
            let words = text.hashes.len();
            let long_numbers = text.flags.iter().filter(|&&f| f & LONG_NUMBER != 0).count();
            let real = real_words(&text.flags);
            let distinctive = long_numbers >= 2 && real >= 2;
            let varied = real >= REAL_WORDS || (real >= 1 && distinct(&text.hashes) >= ANYWHERE_DISTINCT);
            let plain = words >= ANYWHERE_WORDS && varied;
            let fallback = words >= self.ngram;
            text.whole = if text.solid || words < HEAD {
                None
            } else if text.canary || fallback || plain || distinctive {
                Some(Whole::Anywhere)
            } else if around.strip(&text.hashes).len() >= HEAD {
                Some(Whole::Message)
            } else {
                None
            };
        }
    }

    /// Marks the whole texts that stand, whole, in several unrelated items.
    fn find_boilerplate(&mut self) {
        let mut heads: Vec<(u64, usize)> = Vec::new();
        for (number, text) in self.texts.iter().enumerate().filter(|(_, t)| !t.canary) {
            if let (Some(_), Some(head)) = (text.whole, text.hashes.get(..HEAD)) {
                heads.push((gram::key_of(head.iter().copied()), number));
            }
        }
        heads.sort_unstable();
        let mut seen: Vec<Vec<u32>> = vec![Vec::new(); self.texts.len()];
        for text in &self.texts {
            let family = self.families[text.item as usize];
            gram::each(&text.hashes, HEAD, |start, key| {
                let first = heads.partition_point(|&(head, _)| head < key);
                let same = heads.iter().skip(first).take_while(|&&(head, _)| head == key);
                for &(_, number) in same {
                    let rest = text.hashes.get(start..).unwrap_or_default();
                    let families = &mut seen[number];
                    if families.len() < BOILERPLATE_FAMILIES
                        && !families.contains(&family)
                        && rest.starts_with(&self.texts[number].hashes)
                    {
                        families.push(family);
                    }
                }
            });
        }
        for (text, families) in self.texts.iter_mut().zip(seen) {
            let key = gram::key_of(text.hashes.iter().copied());
            text.boilerplate = families.len() >= BOILERPLATE_FAMILIES || self.counts.is_common_whole(key);
        }
    }

    /// Whether the gram stands in several unrelated items, or often in clean text.
    fn is_common(&self, group: &[Gram]) -> bool {
        let mut seen: Vec<u32> = Vec::with_capacity(BOILERPLATE_FAMILIES);
        for gram in group {
            let family = self.families[self.texts[gram.text as usize].item as usize];
            if !seen.contains(&family) {
                seen.push(family);
            }
            if seen.len() >= BOILERPLATE_FAMILIES {
                return true;
            }
        }
        group.first().is_some_and(|gram| self.counts.is_common_gram(gram.key))
    }

    /// A boilerplate gram names one item a benchmark, which is what reports count.
    fn push_one_a_benchmark(&self, group: &[Gram], records: &mut Vec<Record>) {
        let mut seen = Vec::new();
        for gram in group {
            let item = self.texts[gram.text as usize].item as usize;
            let benchmark = self.corpus.items[item].benchmark;
            if seen.len() < MOST_WEAK_RECORDS && !seen.contains(&benchmark) {
                seen.push(benchmark);
                records.push(gram.record());
            }
        }
    }
}

impl Gram {
    fn record(&self) -> Record {
        Record { text: self.text, position: self.position }
    }
}

impl Whole {
    /// The key under which a text stands in the table of this way of matching.
    fn key(self, hashes: &[u64], around: &Surroundings) -> u64 {
        match self {
            Self::Anywhere => hashes.first_chunk().map_or(0, gram::quad),
            Self::Message => {
                gram::key_of(hashes.get(around.strip(hashes)).unwrap_or_default().iter().copied())
            }
        }
    }
}

fn real_words(flags: &[u8]) -> usize {
    flags.iter().filter(|&&flags| is_real(flags)).count()
}

/// Whether a word has two letters or more, or is a character of a script without spaces.
pub(crate) fn is_real(flags: u8) -> bool {
    flags & (Word::IS_ALPHA2 | Word::IS_CJK) != 0
}

fn distinct(hashes: &[u64]) -> usize {
    let mut hashes = hashes.to_vec();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.len()
}
