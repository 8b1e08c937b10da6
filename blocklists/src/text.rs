//! `words-1`: a text as the words that rules compare.
//!
//! Two spellings that look the same give the same words. The text is compatibility-normalised and
//! case-folded; characters that show nothing are dropped; Cyrillic and Greek letters that look like
//! Latin ones are read as Latin in words that also hold Latin letters; an apostrophe between two
//! letters vanishes and every other character that is neither letter nor digit separates; letters
//! and digits separate from each other; each ideograph, kana, Thai, Lao, Khmer or Myanmar character
//! is a word of its own; TeX commands, HTML entities and JSON escapes are undone.
//!
//! Case folding is character by character: lower case, and `ß` to `ss`, `ς` to `σ`.
//!
//! The rules are fixed: a change of any word needs a new [`NORMALISER`], because a blocklist built
//! with another version would silently match nothing.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

#[cfg(target_arch = "x86_64")]
use crate::cpu;
use crate::hash::hash_short;
pub use crate::hash::hash_word;
use crate::masks::{self, Masks};
use crate::tex::{self, Piece};
use crate::{ascii, fold, wide};

/// Name and version of the word normaliser; written into every blocklist.
pub const NORMALISER: &str = "words-1";

/// A word of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// [`hash_word`] of the UTF-8 bytes of the normalised word.
    pub hash: u64,
    /// Byte offset of the word in the text.
    pub start: u32,
    /// Byte offset behind the word.
    pub end: u32,
    /// Any of [`Word::IS_ALPHA2`], [`Word::IS_CJK`], [`Word::IS_DIGIT`].
    pub flags: u8,
}

impl Word {
    /// An alphabetic word of at least two letters, TeX commands not counted.
    pub const IS_ALPHA2: u8 = 1;
    /// A character of a script that is written without spaces.
    pub const IS_CJK: u8 = 2;
    /// A run of digits.
    pub const IS_DIGIT: u8 = 4;
}

/// The word scanner, with buffers that are used again for each text.
#[derive(Debug, Default)]
pub struct Words {
    /// The word in progress, normalised.
    word: Vec<u8>,
    /// The same word with look-alike letters read as Latin.
    folded: Vec<u8>,
    pending: Pending,
    /// Characters that NFKC has to see together, and the bytes they span.
    cluster: Vec<char>,
    cluster_span: (usize, usize),
    masks: Vec<Masks>,
}

impl Words {
    /// A scanner with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the content of `out` by the words of `text`, in order. Spans are byte offsets in
    /// `text`; in a text of more than 4 GiB every word is still read, but offsets stop at
    /// `u32::MAX`.
    pub fn scan(&mut self, text: &str, out: &mut Vec<Word>) {
        out.clear();
        self.run(text, Path::Fast, out);
    }

    /// Replaces the content of `out` by the hashes of the words of `text`, in order.
    pub fn hashes(&mut self, text: &str, out: &mut Vec<u64>) {
        out.clear();
        #[cfg(target_arch = "x86_64")]
        if cpu::is_v3() {
            #[expect(unsafe_code, reason = "the newer instructions are asked for by a function of its own")]
            // SAFETY: the processor has all that the function needs.
            unsafe {
                self.hashes_v3(text, out);
            }
            return;
        }
        self.run(text, Path::Fast, out);
    }

    /// The same code, compiled for processors with more instructions.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn hashes_v3(&mut self, text: &str, out: &mut Vec<u64>) {
        self.run(text, Path::Fast, out);
    }

    #[inline(always)]
    fn run(&mut self, text: &str, path: Path, sink: &mut impl Sink) {
        let bytes = text.as_bytes();
        let mut masks = std::mem::take(&mut self.masks);
        if path == Path::Fast {
            masks::classify(bytes, &mut masks);
        }
        let mut at = 0;
        while at < bytes.len() {
            if path == Path::Fast {
                let start = at + ascii::apostrophes(bytes, at);
                at = ascii::stop(bytes, &masks, start);
                ascii::words(bytes, &masks, start..at, sink);
                if at == bytes.len() {
                    break;
                }
                at = match wide::stretch(bytes, at, sink) {
                    wide::Read::Whole(next) => next,
                    wide::Read::Part(next) => self.any_stretch(text, (next, path), sink),
                };
            } else {
                at = self.any_stretch(text, (at, path), sink);
            }
        }
        self.masks = masks;
    }

    /// Reads any text from `at` on, up to and with the first ASCII separator or escape that ends a
    /// word, so that no state is carried over.
    fn any_stretch(&mut self, text: &str, (mut at, path): (usize, Path), sink: &mut impl Sink) -> usize {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(at) {
            if path == Path::Fast && wide::takes(bytes, at) {
                self.end_word(sink);
                match wide::stretch(bytes, at, sink) {
                    wide::Read::Whole(next) => return next,
                    wide::Read::Part(next) => at = next,
                }
                continue;
            }
            let (piece, next) = match byte {
                b'\\' => tex::backslash(text, at),
                b'&' => tex::entity(text, at),
                _ if separates(byte) => (Piece::Break, at + 1),
                _ => {
                    let base = text.get(at..).and_then(|rest| rest.chars().next());
                    let base = base.unwrap_or(char::REPLACEMENT_CHARACTER);
                    (Piece::Char { base, mark: None }, at + base.len_utf8())
                }
            };
            match piece {
                Piece::Nothing => {}
                Piece::Char { base, mark } => {
                    self.gather(base, (at, next), sink);
                    if let Some(mark) = mark {
                        self.gather(mark, (at, next), sink);
                    }
                }
                Piece::Break | Piece::Command(_) => {
                    self.end_word(sink);
                    if let Piece::Command(name) = &piece {
                        self.word.extend(name.bytes().map(|b| b | 0x20));
                        sink.word(&self.word, (at, next), 0);
                        self.word.clear();
                    }
                    return next;
                }
            }
            at = next;
        }
        self.end_word(sink);
        at
    }

    /// Adds a character to the cluster, or normalises the cluster and begins the next one.
    fn gather(&mut self, c: char, span: (usize, usize), sink: &mut impl Sink) {
        if fold::is_ignorable(c) {
            return;
        }
        let composes = !c.is_ascii()
            && (fold::may_compose_with_previous(c) || is_combining_mark(c))
            && self.cluster.last().is_some_and(|&last| last.is_alphanumeric() || !last.is_ascii());
        if !composes {
            self.end_cluster(sink);
        }
        if self.cluster.is_empty() {
            self.cluster_span = span;
        }
        self.cluster_span.1 = span.1;
        self.cluster.push(c);
    }

    fn end_cluster(&mut self, sink: &mut impl Sink) {
        if let [c] = *self.cluster.as_slice()
            && fold::is_stable(c)
        {
            self.cluster.clear();
            return self.feed(c, sink);
        }
        let cluster = std::mem::take(&mut self.cluster);
        for c in cluster.iter().copied().nfkc() {
            self.feed(c, sink);
        }
        self.cluster = cluster;
        self.cluster.clear();
    }

    /// Takes one normalised character, whose bytes are `self.cluster_span`.
    fn feed(&mut self, c: char, sink: &mut impl Sink) {
        if fold::is_ignorable(c) {
        } else if fold::is_apostrophe(c) {
            if self.pending.kind == Kind::Letters && !self.pending.apostrophe {
                self.pending.apostrophe = true;
            } else {
                self.flush(sink);
            }
        } else if !c.is_ascii() && is_combining_mark(c) {
            self.mark(c, sink);
        } else if c.is_alphabetic() || c.is_numeric() {
            let kind = match c {
                _ if fold::is_cjk(c) => Kind::Cjk,
                _ if c.is_alphabetic() => Kind::Letters,
                _ => Kind::Digits,
            };
            if self.pending.kind != kind || kind == Kind::Cjk || self.pending.cannot_resume(kind) {
                self.flush(sink);
                self.pending.kind = kind;
                self.pending.start = self.cluster_span.0;
            }
            self.push(c);
        } else {
            self.flush(sink);
        }
    }

    /// A combining mark stays with the letter before it; alone it is a separator.
    fn mark(&mut self, c: char, sink: &mut impl Sink) {
        match self.pending.kind {
            Kind::Letters | Kind::Cjk if !self.pending.apostrophe => {
                push_char(&mut self.word, c);
                push_char(&mut self.folded, c);
                self.pending.end = self.cluster_span.1;
            }
            _ => self.flush(sink),
        }
    }

    fn push(&mut self, c: char) {
        let pending = &mut self.pending;
        pending.apostrophe = false;
        pending.end = self.cluster_span.1;
        pending.letters += 1;
        pending.latin |= fold::is_latin(c);
        let twin = fold::look_alike(c);
        pending.looks_latin |= twin.is_some();
        if c == 'ß' || c == 'ẞ' {
            self.word.extend_from_slice(b"ss");
            self.folded.extend_from_slice(b"ss");
            return;
        }
        for lower in c.to_lowercase() {
            let lower = if lower == 'ς' { 'σ' } else { lower };
            push_char(&mut self.word, lower);
            push_char(&mut self.folded, twin.unwrap_or(lower));
        }
    }

    fn end_word(&mut self, sink: &mut impl Sink) {
        self.end_cluster(sink);
        self.flush(sink);
        self.word.clear();
    }

    /// Hands the word in progress to `sink`.
    fn flush(&mut self, sink: &mut impl Sink) {
        let pending = std::mem::take(&mut self.pending);
        let flags = match pending.kind {
            Kind::None => 0,
            Kind::Digits => Word::IS_DIGIT,
            Kind::Cjk => Word::IS_CJK,
            Kind::Letters if pending.letters > 1 => Word::IS_ALPHA2,
            Kind::Letters => 0,
        };
        if pending.kind != Kind::None {
            let disguised = pending.latin && pending.looks_latin;
            let word = if disguised { &self.folded } else { &self.word };
            sink.word(word, (pending.start, pending.end), flags);
        }
        self.word.clear();
        self.folded.clear();
    }
}

/// The words of `text` as text. Slow: for tests and explanations.
pub fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    Words::new().run(text, Path::Fast, &mut words);
    words
}

/// Takes the words of a text one by one.
pub(crate) trait Sink {
    fn word(&mut self, word: &[u8], span: (usize, usize), flags: u8);

    /// A word of at most 16 bytes as two numbers, its first byte lowest.
    #[inline(always)]
    fn short(&mut self, word: [u64; 2], span: (usize, usize), (length, flags): (usize, u8)) {
        let bytes = (u128::from(word[0]) | u128::from(word[1]) << 64).to_le_bytes();
        self.word(bytes.get(..length).unwrap_or_default(), span, flags);
    }

    /// The ASCII words of a block of text that begins at `base`, given by the bits of their first bytes
    /// and of the bytes behind their last; none holds an apostrophe.
    #[inline(always)]
    fn plain(&mut self, bytes: &[u8], base: usize, bits: (u64, u64))
    where
        Self: Sized,
    {
        ascii::each(base, bits, |span| ascii::word(bytes, span, self));
    }
}

impl Sink for Vec<Word> {
    fn word(&mut self, word: &[u8], (start, end): (usize, usize), flags: u8) {
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.push(Word { hash: hash_word(word), start: offset(start), end: offset(end), flags });
    }
}

impl Sink for Vec<u64> {
    fn word(&mut self, word: &[u8], _span: (usize, usize), _flags: u8) {
        self.push(hash_word(word));
    }

    #[inline(always)]
    fn short(&mut self, word: [u64; 2], _span: (usize, usize), (length, _flags): (usize, u8)) {
        self.push(hash_short(word, length));
    }

    /// Room is made for all words at once, so that the loop has nothing to keep but hashes.
    #[inline(always)]
    fn plain(&mut self, bytes: &[u8], base: usize, (mut starts, mut ends): (u64, u64)) {
        let before = self.len();
        self.resize(before + ends.count_ones() as usize, 0);
        for hash in self.iter_mut().skip(before) {
            let span = base + starts.trailing_zeros() as usize..base + ends.trailing_zeros() as usize;
            starts &= starts.wrapping_sub(1);
            ends &= ends.wrapping_sub(1);
            *hash = match ascii::small(bytes, &span) {
                Some(word) => hash_short(word, span.end - span.start),
                None => long_hash(bytes, span),
            };
        }
    }
}

/// The hash of an ASCII word that is long, or at the end of a text.
#[inline(never)]
fn long_hash(bytes: &[u8], span: Range<usize>) -> u64 {
    let mut one = Vec::<u64>::new();
    ascii::joined(bytes, span, &mut one);
    one.first().copied().unwrap_or_default()
}

impl Sink for Vec<String> {
    fn word(&mut self, word: &[u8], _span: (usize, usize), _flags: u8) {
        self.push(String::from_utf8_lossy(word).into_owned());
    }
}

/// Whether ASCII may take the fast path; the slow one alone is for tests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Fast,
    #[cfg(test)]
    Slow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    None,
    Letters,
    Digits,
    Cjk,
}

/// The word in progress on the slow path.
#[derive(Debug, Default)]
struct Pending {
    kind: Kind,
    start: usize,
    end: usize,
    letters: u32,
    latin: bool,
    looks_latin: bool,
    /// An apostrophe came after the last letter.
    apostrophe: bool,
}

impl Pending {
    /// An apostrophe joins letters only.
    fn cannot_resume(&self, kind: Kind) -> bool {
        self.apostrophe && kind != Kind::Letters
    }
}

fn push_char(buffer: &mut Vec<u8>, c: char) {
    buffer.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Whether an ASCII byte ends the word before it: neither letter, digit, apostrophe nor the begin of
/// an escape.
fn separates(byte: u8) -> bool {
    byte.is_ascii() && !byte.is_ascii_alphanumeric() && !matches!(byte, b'\'' | b'\\' | b'&')
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
