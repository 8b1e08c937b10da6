//! The fast path of `words-1`: ASCII words from the bits of [`crate::masks`].

use std::ops::Range;

use crate::hash::SHORT;
use crate::masks::{BLOCK, Masks};
use crate::text::{Sink, Word};

/// Number of apostrophes from `at` on. They begin no word, though they may stand between two
/// letters of which the first belongs to an escape.
pub(crate) fn apostrophes(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).unwrap_or_default().iter().take_while(|&&byte| byte == b'\'').count()
}

/// Where the fast path has to stop that begins at `at`: at the first special byte, or at the start
/// of the ASCII word that touches it.
#[inline(always)]
pub(crate) fn stop(bytes: &[u8], masks: &[Masks], at: usize) -> usize {
    let special = next_special(masks, at).min(bytes.len());
    if special == bytes.len() {
        return special;
    }
    let is = |at: usize, kind: fn(&Masks) -> u64| {
        masks.get(at / BLOCK).is_some_and(|masks| kind(masks) >> (at % BLOCK) & 1 == 1)
    };
    let back = |mut to: usize, kind: fn(&Masks) -> u64| {
        while to > at && is(to - 1, kind) {
            to -= 1;
        }
        to
    };
    let letters = |masks: &Masks| masks.letters;
    let before = special.checked_sub(1).filter(|&before| before >= at);
    match before.and_then(|before| bytes.get(before)) {
        Some(b'\'') => {
            let start = back(special - 1, letters);
            if start == special - 1 { special } else { start }
        }
        Some(byte) if byte.is_ascii_digit() => back(special, |masks| masks.digits),
        Some(byte) if byte.is_ascii_alphabetic() => back(special, letters),
        _ => special,
    }
}

/// The first special byte from `at` on; behind the end if there is none.
#[inline(always)]
fn next_special(masks: &[Masks], at: usize) -> usize {
    let mut block = at / BLOCK;
    let mut bits = masks.get(block).map_or(0, |masks| masks.specials & (u64::MAX << (at % BLOCK)));
    while bits == 0 {
        block += 1;
        match masks.get(block) {
            Some(masks) => bits = masks.specials,
            None => return usize::MAX,
        }
    }
    block * BLOCK + bits.trailing_zeros() as usize
}

/// Hands the words in `range` to `sink`, which holds no special byte and cuts no word.
#[inline(always)]
pub(crate) fn words(bytes: &[u8], masks: &[Masks], range: Range<usize>, sink: &mut impl Sink) {
    if range.is_empty() {
        return;
    }
    let (mut letter, mut digit) = (0, 0);
    let mut open = None;
    for block in range.start / BLOCK..=(range.end - 1) / BLOCK {
        let base = block * BLOCK;
        let Some(here) = masks.get(block) else { return };
        let mut inside = u64::MAX;
        if base < range.start {
            inside &= u64::MAX << (range.start - base);
        }
        if range.end - base < BLOCK {
            inside &= !(u64::MAX << (range.end - base));
        }
        let (letters, digits) = (here.letters & inside, here.digits & inside);
        let (after_letter, after_digit) = (letters << 1 | letter, digits << 1 | digit);
        let mut starts = letters & !after_letter | digits & !after_digit;
        let mut ends = !letters & after_letter | !digits & after_digit;
        (letter, digit) = (letters >> 63, digits >> 63);
        if let Some(start) = open {
            if ends == 0 {
                continue;
            }
            joined(bytes, start..base + ends.trailing_zeros() as usize, sink);
            ends &= ends - 1;
        }
        open = None;
        if letter | digit != 0 && starts != 0 {
            let last = 63 - starts.leading_zeros() as usize;
            open = Some(base + last);
            starts &= !(1 << last);
        }
        if here.joins == 0 {
            sink.plain(bytes, base, (starts, ends));
        } else {
            each(base, (starts, ends), |span| {
                if here.joins & between(span.start - base, span.end - base) == 0 {
                    word(bytes, span, sink);
                } else {
                    joined(bytes, span, sink);
                }
            });
        }
    }
    if let Some(start) = open {
        joined(bytes, start..range.end, sink);
    }
}

/// Calls `take` for each word of a block: as many words begin in it as end, one after the other.
#[inline(always)]
pub(crate) fn each(base: usize, (mut starts, mut ends): (u64, u64), mut take: impl FnMut(Range<usize>)) {
    while ends != 0 {
        let start = base + starts.trailing_zeros() as usize;
        take(start..base + ends.trailing_zeros() as usize);
        starts &= starts.wrapping_sub(1);
        ends &= ends - 1;
    }
}

/// The bits from `start` on and before `end`, which is at most [`BLOCK`].
#[inline(always)]
fn between(start: usize, end: usize) -> u64 {
    u64::MAX << (start % BLOCK) & u64::MAX >> ((BLOCK - end) % BLOCK)
}

/// All bits of the first bytes of two numbers of eight bytes, by how many.
const KEEP: [[u64; 2]; SHORT + 1] = {
    let mut keep = [[0; 2]; SHORT + 1];
    let mut length = 1;
    while length <= SHORT {
        let all = u128::MAX >> (8 * (SHORT - length));
        keep[length] = [all as u64, (all >> 64) as u64];
        length += 1;
    }
    keep
};

/// Sets the bit that tells a small ASCII letter from a capital; digits have it already.
const SMALL: u64 = u64::from_le_bytes([0x20; 8]);

/// A word without apostrophes as two numbers, its first byte lowest; `None` if it is longer, or too
/// close to the end of the text to be read in one piece.
#[inline(always)]
pub(crate) fn small(bytes: &[u8], span: &Range<usize>) -> Option<[u64; 2]> {
    let keep = KEEP.get(span.end - span.start)?;
    let sixteen = u128::from_le_bytes(*bytes.get(span.start..)?.first_chunk()?);
    Some([(sixteen as u64 | SMALL) & keep[0], ((sixteen >> 64) as u64 | SMALL) & keep[1]])
}

/// A word without apostrophes.
#[inline(always)]
pub(crate) fn word(bytes: &[u8], span: Range<usize>, sink: &mut impl Sink) {
    match small(bytes, &span) {
        Some(word) => {
            let length = span.end - span.start;
            sink.short(word, (span.start, span.end), (length, flags(word[0] as u8, length)));
        }
        None => joined(bytes, span, sink),
    }
}

/// Any word, without the apostrophes in it.
#[inline(never)]
pub(crate) fn joined(bytes: &[u8], span: Range<usize>, sink: &mut impl Sink) {
    let word = bytes.get(span.clone()).unwrap_or_default();
    let first = word.first().copied().unwrap_or(0);
    let small = word.iter().filter(|&&byte| byte != b'\'').map(|byte| byte | 0x20);
    let mut room = [0; 64];
    if word.len() <= room.len() {
        let mut length = 0;
        for (to, byte) in room.iter_mut().zip(small) {
            *to = byte;
            length += 1;
        }
        let word = room.get(..length).unwrap_or_default();
        sink.word(word, (span.start, span.end), flags(first, length));
    } else {
        let word: Vec<u8> = small.collect();
        sink.word(&word, (span.start, span.end), flags(first, word.len()));
    }
}

fn flags(first: u8, length: usize) -> u8 {
    match first {
        b'0'..=b'9' => Word::IS_DIGIT,
        _ if length > 1 => Word::IS_ALPHA2,
        _ => 0,
    }
}
