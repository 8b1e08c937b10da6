//! A fast path of `words-1` for the common characters outside ASCII: ideographs and kana, their
//! punctuation, dashes and quotes, and words with Latin letters of the first Unicode block.
//!
//! It reads only what the slow path would read the same way without looking further: a character is
//! taken if the one behind it cannot be composed with it.

use crate::text::{Sink, Word};

/// How far [`stretch`] came, and whether the slow path has to go on there.
pub(crate) enum Read {
    /// No word goes on behind.
    Whole(usize),
    /// The slow path decides.
    Part(usize),
}

/// Reads from `at` on, where no word is in progress.
pub(crate) fn stretch(bytes: &[u8], mut at: usize, sink: &mut impl Sink) -> Read {
    loop {
        match bytes.get(at) {
            None => return Read::Whole(at),
            Some(0xE2..=0xEF) => {
                at = ideographs(bytes, at, sink);
                if !matches!(bytes.get(at), Some(0xE2..=0xEF)) {
                    continue;
                }
                match wide(bytes, at) {
                    Some(Wide::Word(character)) => {
                        sink.short([character, 0], (at, at + 3), (3, Word::IS_CJK));
                        at += 3;
                    }
                    Some(Wide::Separator) => at += 3,
                    // no letter is before it
                    None if apostrophe(bytes, at) && stands_alone(bytes, at + 3) => at += 3,
                    None => return Read::Part(at),
                }
            }
            Some(0xC2) => match bytes.get(at + 1) {
                // no-break space, section sign, guillemets, plus-minus, middle dot
                Some(0xA0 | 0xA7 | 0xAB | 0xB1 | 0xB7 | 0xBB) if stands_alone(bytes, at + 2) => at += 2,
                _ => return Read::Part(at),
            },
            Some(byte) if byte.is_ascii_alphabetic() || *byte == 0xC3 => match latin(bytes, at, sink) {
                Some(next) => at = next,
                None => return Read::Part(at),
            },
            Some(byte) if byte.is_ascii_digit() => match number(bytes, at, sink) {
                Some(next) => at = next,
                None => return Read::Part(at),
            },
            Some(b'\\' | b'&' | 0x80..) => return Read::Part(at),
            Some(_) => return Read::Whole(at),
        }
    }
}

/// Reads ideographs as long as others, or ASCII, come behind them.
#[inline(always)]
fn ideographs(bytes: &[u8], mut at: usize, sink: &mut impl Sink) -> usize {
    while let Some(&[one @ 0xE4..=0xE9, two, three, next]) =
        bytes.get(at..).and_then(|rest| rest.first_chunk())
    {
        // U+4DC0 to U+4DFF are hexagrams
        if (one, two) == (0xE4, 0xB7) || !(is_plain(next) || (0xE4..=0xE9).contains(&next)) {
            break;
        }
        let character = u64::from(u32::from_le_bytes([one, two, three, 0]));
        sink.short([character, 0], (at, at + 3), (3, Word::IS_CJK));
        at += 3;
    }
    at
}

/// Whether a curly apostrophe, U+2018 or U+2019, is at `at`.
#[inline(always)]
fn apostrophe(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at..at + 3), Some([0xE2, 0x80, 0x98 | 0x99]))
}

/// Whether [`stretch`] takes the character at `at`, whatever is before it.
#[inline(always)]
pub(crate) fn takes(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at), Some(0xE2..=0xEF)) && wide(bytes, at).is_some()
}

enum Wide {
    Word(u64),
    Separator,
}

/// A character of three bytes, if it is a plain one.
#[inline(always)]
fn wide(bytes: &[u8], at: usize) -> Option<Wide> {
    let &[one, two, three] = bytes.get(at..)?.first_chunk()?;
    let code = u32::from(one & 0x0F) << 12 | u32::from(two & 0x3F) << 6 | u32::from(three & 0x3F);
    let found = match code {
        0x3041..=0x3096 | 0x30A1..=0x30FA | 0x3400..=0x4DBF | 0x4E00..=0x9FFF => {
            Wide::Word(u64::from(u32::from_le_bytes([one, two, three, 0])))
        }
        // dashes, quotes, an ellipsis; arrows, boxes and other shapes
        0x2013..=0x2016 | 0x201C..=0x201F | 0x2026 | 0x2190..=0x21FF | 0x2500..=0x25FF => Wide::Separator,
        0x3000..=0x3002 | 0x3008..=0x3020 => Wide::Separator,
        // full-width punctuation: ! ( ) , : ; ?
        0xFF01 | 0xFF08 | 0xFF09 | 0xFF0C | 0xFF1A | 0xFF1B | 0xFF1F => Wide::Separator,
        _ => return None,
    };
    stands_alone(bytes, at + 3).then_some(found)
}

/// Whether a byte is ASCII and begins no escape: an escape may stand for a mark.
#[inline(always)]
fn is_plain(byte: u8) -> bool {
    byte.is_ascii() && byte != b'\\' && byte != b'&'
}

/// Whether the character at `at` cannot be composed with the one before it.
#[inline(always)]
fn stands_alone(bytes: &[u8], at: usize) -> bool {
    match bytes.get(at) {
        None => true,
        Some(0xE3) => match (bytes.get(at + 1), bytes.get(at + 2)) {
            // tone marks U+302A to U+302F, voicing marks U+3099 to U+309C
            (Some(0x80), Some(0xAA..=0xAF)) | (Some(0x82), Some(0x99..=0x9C)) => false,
            // compatibility jamo, U+3131 to U+318E
            (Some(0x84..=0x86), _) => false,
            _ => true,
        },
        // full-width punctuation, digits and letters
        Some(0xEF) => bytes.get(at + 1) == Some(&0xBC),
        // dashes, quotes, bullets, an ellipsis; arrows, boxes and other shapes
        Some(0xE2) => {
            matches!((bytes.get(at + 1), bytes.get(at + 2)), (Some(0x80), Some(0x90..=0xA7)))
                || matches!(bytes.get(at + 1), Some(0x86 | 0x87 | 0x94..=0x97))
        }
        Some(&byte) => is_plain(byte) || (0xE4..=0xE9).contains(&byte),
    }
}

/// Whether a word of letters or of digits ends before this byte, neither of which it is: at a
/// separator, or at an ideograph, which is never composed with anything.
fn ends_word(byte: Option<&u8>) -> bool {
    match byte {
        None | Some(0xE4..=0xE9) => true,
        Some(b'\'' | b'\\' | b'&' | 0x80..) => false,
        Some(_) => true,
    }
}

fn halves(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

/// Reads a run of at most 16 digits if nothing behind it can belong to it.
fn number(bytes: &[u8], start: usize, sink: &mut impl Sink) -> Option<usize> {
    let (mut word, mut length) = (0u128, 0);
    loop {
        match bytes.get(start + length) {
            Some(&byte) if byte.is_ascii_digit() && length < 16 => {
                word |= u128::from(byte) << (8 * length);
                length += 1;
            }
            byte if ends_word(byte) && !byte.is_some_and(u8::is_ascii_digit) => {
                sink.short(halves(word), (start, start + length), (length, Word::IS_DIGIT));
                return Some(start + length);
            }
            _ => return None,
        }
    }
}

/// Reads a word of ASCII letters and letters of the first block behind ASCII, with or without curly
/// apostrophes, of at most 16 bytes, if nothing behind it can belong to it.
fn latin(bytes: &[u8], start: usize, sink: &mut impl Sink) -> Option<usize> {
    let (mut at, mut word, mut length, mut letters) = (start, 0u128, 0, 0);
    loop {
        if letters > 0 && apostrophe(bytes, at) {
            match bytes.get(at + 3) {
                Some(byte) if byte.is_ascii_alphabetic() => at += 3,
                Some(b'\'' | b'\\' | b'&' | b'0'..=b'9' | 0x80..) => return None,
                // the word ends, and there is nothing else to the apostrophe
                _ => {}
            }
        }
        let small = match bytes.get(at) {
            Some(byte) if byte.is_ascii_alphabetic() => u128::from(byte | 0x20),
            Some(0xC3) => {
                // without the multiplication and division signs, and ß, which becomes two letters
                let small = match *bytes.get(at + 1)? {
                    second @ (0x80..=0x96 | 0x98..=0x9E) => second + 0x20,
                    second @ (0xA0..=0xB6 | 0xB8..=0xBF) => second,
                    _ => return None,
                };
                u128::from(small) << 8 | 0xC3
            }
            byte if !ends_word(byte) && !apostrophe(bytes, at) => return None,
            _ => {
                let flags = if letters > 1 { Word::IS_ALPHA2 } else { 0 };
                sink.short(halves(word), (start, at), (length, flags));
                return Some(at);
            }
        };
        let size = if small > 0xFF { 2 } else { 1 };
        if length + size > 16 {
            return None;
        }
        word |= small << (8 * length);
        length += size;
        at += size;
        letters += 1;
    }
}
