//! The hash of a word: two multiplications for words of up to 16 bytes, XXH3 for longer ones.

use xxhash_rust::xxh3::xxh3_64;

/// Longest word, in bytes, that is hashed without XXH3.
pub(crate) const SHORT: usize = 16;

const LOW: u64 = 0x2D35_8DCC_AA6C_78A5;
const HIGH: u64 = 0x8BB8_4B93_962E_ACC9;

/// The hash of a normalised word, given as UTF-8.
pub fn hash_word(word: &[u8]) -> u64 {
    if word.len() > SHORT {
        return xxh3_64(word);
    }
    let number = number(word);
    hash_short([number as u64, (number >> 64) as u64], word.len())
}

/// A word of at most 16 bytes as a number, its first byte lowest, read in pieces that overlap.
#[inline(always)]
fn number(word: &[u8]) -> u128 {
    let length = word.len();
    if let (Some(&first), Some(&last)) = (word.first_chunk(), word.last_chunk()) {
        let (first, last) = (u64::from_le_bytes(first), u64::from_le_bytes(last));
        return u128::from(first) | u128::from(last) << (8 * (length - 8));
    }
    if let (Some(&first), Some(&last)) = (word.first_chunk(), word.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(first), u32::from_le_bytes(last));
        return u128::from(first) | u128::from(last) << (8 * (length - 4));
    }
    let byte = |at: usize| word.get(at).map_or(0, |&byte| u128::from(byte) << (8 * at));
    byte(0) | byte(1) | byte(2)
}

/// The same for a word of at most 16 bytes as two numbers, its first byte lowest. The 128-bit product
/// is folded, so that every bit of the word reaches every bit of the hash.
#[inline(always)]
pub(crate) fn hash_short(word: [u64; 2], length: usize) -> u64 {
    let (low, high) = (word[0] ^ LOW, word[1] ^ HIGH ^ length as u64);
    let product = u128::from(low) * u128::from(high);
    let folded = product as u64 ^ (product >> 64) as u64;
    // a second, plain step: the top byte alone is used for sketches
    folded.wrapping_mul(HIGH | 1) ^ low
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn short_words_of_all_lengths_differ() {
        let mut seen = BTreeSet::new();
        for length in 0..40 {
            for byte in [b'a', b'b', b'0', 0x80] {
                seen.insert(hash_word(&vec![byte; length]));
            }
        }
        assert_eq!(seen.len(), 39 * 4 + 1);
    }

    #[test]
    fn words_of_all_lengths_are_read_as_they_are() {
        let bytes: Vec<u8> = (1..=16).collect();
        for length in 0..=SHORT {
            let mut all = [0; SHORT];
            all[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(number(&bytes[..length]), u128::from_le_bytes(all));
        }
    }

    #[test]
    fn every_byte_of_a_hash_is_spread() {
        let mut seen = [[false; 256]; 8];
        for number in 0..20_000u32 {
            for (place, byte) in
                hash_word(number.to_string().as_bytes()).to_le_bytes().into_iter().enumerate()
            {
                seen[place][usize::from(byte)] = true;
            }
        }
        assert!(seen.iter().flatten().all(|&seen| seen));
    }
}
