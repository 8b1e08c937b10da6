//! Benchmark items to a blocklist.
//!
//! Rule 1, n-gram: n consecutive words of an item. The stem of a multiple-choice item is one text;
//! the stem and one option is another only where the stem is shorter than n or has nothing but weak
//! grams, so that no gram crosses from one option to the next. Rule 2, short items: texts of 8 to
//! n-1 words are matched whole anywhere; of 4 to 7 words anywhere if they hold two numbers of three
//! digits or more, else as a whole user message only; shorter ones never. Texts of 8 words or more
//! with no real word, or with few real and few different words, are treated like those of 4 to 7.
//!
//! Rule 3, near copies: an item of ten words or more is kept as a sketch, with weights by the rarity
//! of its words among the families, and found by the rarest runs of four words of its stretches;
//! [`crate::scan`] says what a row must share with it.
//!
//! Weak grams stand in three or more unrelated items, or often in a sample of clean text, or hold hardly a real word; they are
//! reported and drop nothing. A text with weak grams only is matched whole, and so is a canary.

use potable_manifests::Digest;

use crate::background::Counts;
use crate::benchmark::{BenchmarkMeta, Item};
use crate::canary::holds_guid;
use crate::family::families;
use crate::format::{
    self, BenchmarkEntry, BlocklistError, CANARY_TEXT, Content, Coverage, Header, ItemRow, TextRow,
    WEAK_TEXT, small,
};
use crate::gram::{self, HEAD};
use crate::index::Blocklist;
use crate::near::Near;
use crate::plan::{Corpus, Plan, Text, Whole};
use crate::rarity::Rarity;
use crate::text::NORMALISER;

/// Least and greatest number of words of an n-gram.
pub const NGRAM_RANGE: std::ops::RangeInclusive<usize> = 5..=50;

/// Collects benchmarks and turns them into a [`Blocklist`].
pub struct BlocklistBuilder {
    ngram: usize,
    benchmarks: Vec<BenchmarkMeta>,
    corpus: Corpus,
    near_copies: bool,
}

impl BlocklistBuilder {
    /// A builder for n-grams of `ngram` words.
    ///
    /// # Errors
    /// [`BlocklistError::NgramRange`] for n outside [`NGRAM_RANGE`].
    pub fn new(ngram: usize) -> Result<Self, BlocklistError> {
        if !NGRAM_RANGE.contains(&ngram) {
            let (min, max) = (*NGRAM_RANGE.start(), *NGRAM_RANGE.end());
            return Err(BlocklistError::NgramRange { ngram, min, max });
        }
        Ok(Self { ngram, benchmarks: Vec::new(), corpus: Corpus::default(), near_copies: true })
    }

    /// Leaves out rule 3, near copies.
    #[must_use]
    pub fn without_near_copies(self) -> Self {
        Self { near_copies: false, ..self }
    }

    /// Adds a benchmark. The order of benchmarks and items is the order of numbers in verdicts.
    ///
    /// # Errors
    /// [`BlocklistError::DuplicateBenchmark`], [`BlocklistError::EmptyBenchmark`],
    /// [`BlocklistError::CanaryTooShort`]; the builder is not usable after one.
    pub fn add(
        &mut self,
        mut meta: BenchmarkMeta,
        items: impl IntoIterator<Item = Item>,
    ) -> Result<(), BlocklistError> {
        if self.benchmarks.iter().any(|other| other.name == meta.name) {
            return Err(BlocklistError::DuplicateBenchmark { benchmark: meta.name });
        }
        let number = small("benchmarks", self.benchmarks.len())?;
        let before = self.corpus.items.len();
        items.into_iter().for_each(|item| self.corpus.add(number, item));
        if self.corpus.items.len() == before {
            return Err(BlocklistError::EmptyBenchmark { benchmark: meta.name });
        }
        for canary in &mut meta.canaries {
            let words = self.corpus.add_canary(number, canary);
            if meta.sensitive && !holds_guid(canary) {
                *canary = Digest::of(canary.as_bytes()).as_str().to_owned();
            }
            if words < HEAD {
                let (benchmark, canary) = (meta.name, canary.clone());
                return Err(BlocklistError::CanaryTooShort { benchmark, canary, words, min: HEAD });
            }
        }
        small("items", self.corpus.items.len())?;
        self.benchmarks.push(meta);
        Ok(())
    }

    /// The blocklist. Same benchmarks in the same order, same bytes.
    ///
    /// # Errors
    /// [`BlocklistError::NoBenchmark`], and [`BlocklistError::TooLarge`] for more than the format
    /// can address.
    pub fn build(self) -> Result<Blocklist, BlocklistError> {
        self.build_with(&Counts::default())
    }

    /// The blocklist, with `texts` as a sample of clean text: n-grams, short items and seeds of near
    /// copies that stand in `least` texts of it or more (0 is read as 1) drop nothing, and words that are
    /// frequent in it count less for near copies. The sample is read once, one text at a time; its
    /// size and digest stand in the header. Same benchmarks and sample in the same order, same bytes.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with_background<T: AsRef<str>>(
        self,
        texts: impl IntoIterator<Item = T>,
        least: u32,
    ) -> Result<Blocklist, BlocklistError> {
        let counts = Counts::of(&self.corpus, self.ngram, texts, least);
        self.build_with(&counts)
    }

    fn build_with(self, counts: &Counts) -> Result<Blocklist, BlocklistError> {
        if self.benchmarks.is_empty() {
            return Err(BlocklistError::NoBenchmark);
        }
        let families = families(&self.corpus);
        let rarity = Rarity::of(&self.corpus, &families, counts);
        let plan = Plan::new(&self.corpus, &families, counts, self.ngram)?;
        let items = self.items(&plan.texts);
        let wanted = self
            .corpus
            .items
            .iter()
            .zip(&items)
            .map(|(item, row)| self.near_copies && !item.canary && row.protection <= BY_SHORT_ITEM);
        let near = Near::new(&self.corpus, &rarity, &wanted.collect::<Vec<_>>())?;
        let header = self.header(&items, &near, counts);
        let tables = [
            plan.gram_table()?,
            plan.whole_table(Whole::Anywhere)?,
            plan.whole_table(Whole::Message)?,
            near.seeds,
        ];
        let (blocks, texts) = (plan.blocks(), plan.texts.iter().map(row_of).collect());
        let (near, sketch) = (near.rows, near.sketch);
        let content = Content { header, tables, blocks, texts, near, sketch, items };
        Blocklist::from_bytes(format::encode(&content)?)
    }

    fn items(&self, texts: &[Text]) -> Vec<ItemRow> {
        let rows = self.corpus.items.iter();
        let mut rows: Vec<ItemRow> = rows
            .map(|item| {
                let (benchmark, id) = (item.benchmark, item.id.clone());
                ItemRow { benchmark, protection: TOO_SHORT, id }
            })
            .collect();
        for text in texts {
            let acts = text.solid || (text.whole.is_some() && !text.boilerplate);
            let protection = match text {
                // the question is what leaks: shuffled or labelled options stand behind it as a rule
                Text { with_option: true, .. } if acts => WITH_OPTION,
                Text { with_option: true, .. } => TOO_SHORT,
                Text { solid: true, .. } => BY_NGRAM,
                Text { whole: Some(_), boilerplate: false, .. } => BY_SHORT_ITEM,
                Text { whole: Some(_), .. } => BOILERPLATE,
                _ => TOO_SHORT,
            };
            let row = &mut rows[text.item as usize];
            row.protection = row.protection.min(protection);
        }
        rows
    }

    fn header(&self, items: &[ItemRow], near: &Near, counted: &Counts) -> Header {
        let mut counts = vec![Coverage::default(); self.benchmarks.len()];
        for (item, row) in self.corpus.items.iter().zip(items).filter(|(item, _)| !item.canary) {
            let count = &mut counts[item.benchmark as usize];
            count.items += 1;
            match row.protection {
                BY_NGRAM => count.by_ngram += 1,
                BY_SHORT_ITEM => count.by_short_item += 1,
                _ => count.not_protected += 1,
            }
            count.with_option += u64::from(row.protection == WITH_OPTION);
            count.boilerplate += u64::from(row.protection == BOILERPLATE);
        }
        for row in &near.rows {
            let benchmark = self.corpus.items[row.item as usize].benchmark;
            counts[benchmark as usize].by_near_copy += 1;
        }
        let entries = self.benchmarks.iter().cloned().zip(counts);
        Header {
            ngram: self.ngram as u32,
            normaliser: NORMALISER.to_owned(),
            benchmarks: entries.map(|(meta, coverage)| BenchmarkEntry { meta, coverage }).collect(),
            background: counted.summary(),
        }
    }
}

/// Codes of [`crate::Protection`] in the file, best first.
const BY_NGRAM: u32 = 0;
const BY_SHORT_ITEM: u32 = 1;
const WITH_OPTION: u32 = 2;
const BOILERPLATE: u32 = 3;
const TOO_SHORT: u32 = 4;

fn row_of(text: &Text) -> TextRow {
    let weak = if text.boilerplate { WEAK_TEXT } else { 0 };
    let canary = if text.canary { CANARY_TEXT } else { 0 };
    TextRow {
        key: gram::key_of(text.hashes.iter().copied()),
        item: text.item,
        words: text.hashes.len() as u32,
        flags: weak | canary,
    }
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
