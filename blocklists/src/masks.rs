//! What the bytes of a text are, as bits: 64 bytes a number, the first byte lowest.
//!
//! With AVX2 32 bytes are told apart at once; without it, or on another processor, by a table. Both
//! give the same bits.

/// The bits of 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Masks {
    /// ASCII letters, and apostrophes between two of them.
    pub(crate) letters: u64,
    /// ASCII digits.
    pub(crate) digits: u64,
    /// Apostrophes between two ASCII letters.
    pub(crate) joins: u64,
    /// Bytes that begin an escape, or belong to a character outside ASCII.
    pub(crate) specials: u64,
}

/// Bytes of one [`Masks`].
pub(crate) const BLOCK: usize = 64;

/// Replaces `masks` by those of `bytes`. Bits behind the end are 0.
pub(crate) fn classify(bytes: &[u8], masks: &mut Vec<Masks>) {
    masks.clear();
    masks.reserve(bytes.len().div_ceil(BLOCK));
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[expect(unsafe_code, reason = "the vector unit is asked for by a function of its own")]
        // SAFETY: the processor has AVX2, which is all that the function needs.
        unsafe {
            avx2::classify(bytes, masks);
        }
        join(masks);
        return;
    }
    by_table(bytes, masks);
    join(masks);
}

/// `joins` holds all apostrophes when this begins.
fn join(masks: &mut [Masks]) {
    let mut before = 0;
    for at in 0..masks.len() {
        let after = masks.get(at + 1).map_or(0, |next| next.letters & 1);
        let Some(here) = masks.get_mut(at) else { return };
        let letters = here.letters;
        here.joins &= (letters << 1 | before) & (letters >> 1 | after << 63);
        here.letters |= here.joins;
        before = letters >> 63;
    }
}

fn by_table(bytes: &[u8], masks: &mut Vec<Masks>) {
    masks.extend(bytes.chunks(BLOCK).map(|block| {
        let mut found = Masks::default();
        for (at, &byte) in block.iter().enumerate() {
            let bit = 1 << at;
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' => found.letters |= bit,
                b'0'..=b'9' => found.digits |= bit,
                b'\'' => found.joins |= bit,
                b'\\' | b'&' | 0x80.. => found.specials |= bit,
                _ => {}
            }
        }
        found
    }));
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
        _mm256_setr_epi64x, _mm256_sub_epi8,
    };

    use super::{BLOCK, Masks};

    #[target_feature(enable = "avx2")]
    pub(super) fn classify(bytes: &[u8], masks: &mut Vec<Masks>) {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        masks.extend(blocks.iter().map(|block| of(block)));
        if !rest.is_empty() {
            let mut last = [0; BLOCK];
            last.iter_mut().zip(rest).for_each(|(to, &from)| *to = from);
            masks.push(of(&last));
        }
    }

    #[target_feature(enable = "avx2")]
    fn of(block: &[u8; BLOCK]) -> Masks {
        let (low, high) = (half(block, 0), half(block, BLOCK / 2));
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Masks {
            letters: both(low[0], high[0]),
            digits: both(low[1], high[1]),
            joins: both(low[2], high[2]),
            specials: both(low[3], high[3]),
        }
    }

    /// Letters, digits, apostrophes and specials of 32 bytes.
    #[target_feature(enable = "avx2")]
    fn half(block: &[u8; BLOCK], from: usize) -> [u32; 4] {
        let number = |at: usize| {
            let eight = block.get(from + 8 * at..).and_then(|rest| rest.first_chunk());
            eight.map_or(0, |&eight| i64::from_le_bytes(eight))
        };
        let bytes = _mm256_setr_epi64x(number(0), number(1), number(2), number(3));
        let is = |byte: u8| _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte.cast_signed()));
        let lower = _mm256_or_si256(bytes, _mm256_set1_epi8(0x20));
        let escapes = _mm256_or_si256(is(b'\\'), is(b'&'));
        [
            bits(within(lower, b'a', 25)),
            bits(within(bytes, b'0', 9)),
            bits(is(b'\'')),
            // the highest bit of a byte that is not ASCII is set already
            bits(_mm256_or_si256(bytes, escapes)),
        ]
    }

    /// All ones where a byte is `from` or one of the `more` values above it.
    #[target_feature(enable = "avx2")]
    fn within(bytes: __m256i, from: u8, more: u8) -> __m256i {
        let above = _mm256_sub_epi8(bytes, _mm256_set1_epi8(from.cast_signed()));
        _mm256_cmpeq_epi8(_mm256_min_epu8(above, _mm256_set1_epi8(more.cast_signed())), above)
    }

    #[target_feature(enable = "avx2")]
    fn bits(bytes: __m256i) -> u32 {
        _mm256_movemask_epi8(bytes).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn vectors_and_table_agree(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (mut fast, mut plain) = (Vec::new(), Vec::new());
            classify(&bytes, &mut fast);
            by_table(&bytes, &mut plain);
            join(&mut plain);
            prop_assert_eq!(fast, plain);
        }
    }

    #[test]
    fn joins_over_the_border_of_blocks() {
        for before in 60..68 {
            let text = format!("{}n't '", " ".repeat(before));
            let mut masks = Vec::new();
            classify(text.as_bytes(), &mut masks);
            let at = before + 1;
            assert_eq!(masks[at / BLOCK].joins, 1 << (at % BLOCK));
        }
    }
}
