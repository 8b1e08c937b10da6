//! Indices by length: what the packing algorithms take from. All of it takes time and memory in
//! proportion to the number of indices plus the largest length / 64 words.

const NONE: u32 = u32::MAX;

/// Stacks of indices, one a length from 0 to `most`, and which lengths have any.
pub(super) struct ByLength {
    head: Vec<u32>,
    next: Vec<u32>,
    bits: Vec<u64>,
    /// Bit `most - length` for each length that is there, to find two lengths of a given sum.
    mirror: Vec<u64>,
    most: usize,
}

impl ByLength {
    /// No index yet; at most `count` indices, of lengths up to `most`.
    pub(super) fn new(count: usize, most: u32) -> Self {
        let most = most as usize;
        let words = most / 64 + 1;
        ByLength {
            head: vec![NONE; most + 1],
            next: vec![NONE; count],
            bits: vec![0; words],
            mirror: vec![0; words],
            most,
        }
    }

    /// Puts an index on the stack of a length; an index is on one stack at a time.
    pub(super) fn put(&mut self, index: u32, length: u32) {
        let at = length as usize;
        let (Some(head), Some(next)) = (self.head.get_mut(at), self.next.get_mut(index as usize)) else {
            return;
        };
        *next = *head;
        *head = index;
        set(&mut self.bits, at);
        set(&mut self.mirror, self.most - at);
    }

    /// Takes the index that was put last on the stack of a length.
    pub(super) fn take(&mut self, length: u32) -> Option<u32> {
        let at = length as usize;
        let head = self.head.get_mut(at).filter(|head| **head != NONE)?;
        let index = *head;
        *head = self.next.get(index as usize).copied().unwrap_or(NONE);
        if *head == NONE {
            clear(&mut self.bits, at);
            clear(&mut self.mirror, self.most - at);
        }
        Some(index)
    }

    /// Whether a length is there.
    pub(super) fn has(&self, length: u32) -> bool {
        let at = length as usize;
        self.bits.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// The least length that is there and at least `length`.
    pub(super) fn at_least(&self, length: u32) -> Option<u32> {
        let first = length as usize / 64;
        let mut word = self.bits.get(first)? & (u64::MAX << (length % 64));
        let mut at = first;
        while word == 0 {
            at += 1;
            word = *self.bits.get(at)?;
        }
        Some((at * 64) as u32 + word.trailing_zeros())
    }

    /// The greatest length that is there and at most `length`.
    pub(super) fn at_most(&self, length: u32) -> Option<u32> {
        let length = (length as usize).min(self.most);
        let mut at = length / 64;
        let mut word = self.bits.get(at)? & (u64::MAX >> (63 - length % 64));
        while word == 0 {
            at = at.checked_sub(1)?;
            word = *self.bits.get(at)?;
        }
        Some((at * 64) as u32 + 63 - word.leading_zeros())
    }

    /// Two different lengths that are there and add up to `sum`, the greater one as great as can be;
    /// or half of an even sum, if two indices have it.
    pub(super) fn pair(&self, sum: u32) -> Option<(u32, u32)> {
        let sum = sum as usize;
        let greatest = self.at_most((sum.min(self.most)) as u32)? as usize;
        // Length `a` pairs with `sum - a`, whose mirror bit is `a + (most - sum)`.
        let half = sum / 2;
        let mut word_at = greatest / 64;
        loop {
            let base = word_at * 64;
            let mut word = self.bits.get(word_at)? & self.mirror_word(base, sum);
            if base + 63 > greatest {
                word &= u64::MAX >> (63 - (greatest - base));
            }
            while word != 0 {
                let a = base + 63 - word.leading_zeros() as usize;
                if a <= half {
                    return self.two_halves(sum);
                }
                if a < sum {
                    return Some((a as u32, (sum - a) as u32));
                }
                word &= !(1 << (a - base));
            }
            if base <= half {
                return self.two_halves(sum);
            }
            word_at = word_at.checked_sub(1)?;
        }
    }

    /// 64 bits of the mirror: bit `i` tells whether length `sum - (base + i)` is there.
    fn mirror_word(&self, base: usize, sum: usize) -> u64 {
        let shifted = (base + self.most) as i64 - sum as i64;
        if shifted <= -64 {
            return 0;
        }
        let word = |at: i64| usize::try_from(at).ok().and_then(|at| self.mirror.get(at)).copied();
        let (at, bit) = (shifted.div_euclid(64), shifted.rem_euclid(64) as u32);
        let low = word(at).unwrap_or(0) >> bit;
        if bit == 0 { low } else { low | word(at + 1).unwrap_or(0) << (64 - bit) }
    }

    fn two_halves(&self, sum: usize) -> Option<(u32, u32)> {
        let half = (sum / 2) as u32;
        let first = self.head.get(half as usize).copied().filter(|first| *first != NONE)?;
        let second = self.next.get(first as usize).copied().unwrap_or(NONE);
        (sum.is_multiple_of(2) && half > 0 && second != NONE).then_some((half, half))
    }
}

fn set(bits: &mut [u64], at: usize) {
    if let Some(word) = bits.get_mut(at / 64) {
        *word |= 1 << (at % 64);
    }
}

fn clear(bits: &mut [u64], at: usize) {
    if let Some(word) = bits.get_mut(at / 64) {
        *word &= !(1 << (at % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(
            lengths in proptest::collection::vec(1u32..200, 0..40),
            wanted in 0u32..420,
            most in 200u32..300,
        ) {
            let mut by = ByLength::new(lengths.len(), most);
            for (index, &length) in (0u32..).zip(&lengths) {
                by.put(index, length);
            }
            prop_assert_eq!(by.at_least(wanted), lengths.iter().copied().filter(|l| *l >= wanted).min());
            prop_assert_eq!(by.at_most(wanted), lengths.iter().copied().filter(|l| *l <= wanted).max());
            prop_assert_eq!(by.has(wanted), lengths.contains(&wanted));
            let count = |l: u32| lengths.iter().filter(|other| **other == l).count();
            let pair = (wanted / 2..=wanted).rev().filter(|a| *a > 0 && *a < wanted).find(|&a| {
                let b = wanted - a;
                a >= b && count(a) > 0 && count(b) > 0 && (a != b || count(a) > 1)
            });
            prop_assert_eq!(by.pair(wanted), pair.map(|a| (a, wanted - a)));
        }
    }
}
