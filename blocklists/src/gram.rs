//! The hash of a run of words: a polynomial over word hashes, so that it can roll.
//!
//! Two different runs share a hash with a probability of about 2^-64, and a hash is not checked
//! against words, because a blocklist holds none. A million grams against ten billion words give
//! one false match in about two thousand runs.

/// Odd, so that no word is ever shifted out of the hash.
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Words by which a whole item is found, its first four, and of a seed of a near copy.
pub(crate) const HEAD: usize = 4;

/// The key of a run of [`HEAD`] words. One is made for every word of a corpus, so it does without a
/// multiplication: word hashes are random already, and turned by different amounts they keep their order.
#[inline(always)]
pub(crate) fn quad(words: &[u64; HEAD]) -> u64 {
    let pair = |a: u64, b: u64| a ^ b.rotate_left(17);
    pair(words[0], words[1]) ^ pair(words[2], words[3]).rotate_left(34)
}

/// The hash of the last `n` words pushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolling {
    hash: u64,
    /// `BASE` to the power of n.
    leaving: u64,
}

impl Rolling {
    pub(crate) fn new(n: usize) -> Self {
        Self { hash: 0, leaving: (0..n).fold(1u64, |power, _| power.wrapping_mul(BASE)) }
    }

    /// Takes `word` in, and `old`, the word pushed n words ago (0 for none), out.
    #[inline]
    pub(crate) fn push(&mut self, word: u64, old: u64) {
        self.hash =
            self.hash.wrapping_mul(BASE).wrapping_add(word).wrapping_sub(old.wrapping_mul(self.leaving));
    }

    /// The key of the run.
    #[inline]
    pub(crate) fn key(&self) -> u64 {
        mix(self.hash)
    }
}

/// The key of a whole run of words; equal to the rolling one.
pub(crate) fn key_of(words: impl IntoIterator<Item = u64>) -> u64 {
    mix(words.into_iter().fold(0u64, |hash, word| hash.wrapping_mul(BASE).wrapping_add(word)))
}

/// Calls `take(start, key)` for every run of `n` of the `words`.
pub(crate) fn each(words: &[u64], n: usize, mut take: impl FnMut(usize, u64)) {
    let mut rolling = Rolling::new(n);
    for (at, &word) in words.iter().enumerate() {
        let old = at.checked_sub(n).and_then(|old| words.get(old));
        rolling.push(word, old.copied().unwrap_or(0));
        if at + 1 >= n {
            take(at + 1 - n, rolling.key());
        }
    }
}

/// Spreads a polynomial over all 64 bits, since its low bits do not depend on the order of the
/// words. One multiplication is enough: word hashes are random already.
#[inline(always)]
pub(crate) fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rolling_equals_whole(words in prop::collection::vec(any::<u64>(), 0..40), n in 1usize..12) {
            let mut rolled = Vec::new();
            each(&words, n, |start, key| rolled.push((start, key)));
            let whole: Vec<_> = words
                .windows(n)
                .enumerate()
                .map(|(start, run)| (start, key_of(run.iter().copied())))
                .collect();
            prop_assert_eq!(rolled, whole);
        }
    }

    #[test]
    fn order_matters() {
        assert_ne!(key_of([1, 2, 3]), key_of([3, 2, 1]));
    }
}
