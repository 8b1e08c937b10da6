//! Best-fit decreasing: samples from the longest down, each into the fullest pack that still has
//! room for it. Time is in proportion to samples × capacity / 64.

/// Bins of indices into `lengths`. Every index is in one bin, no bin exceeds `capacity`, the indices
/// of a bin ascend, and bins stand in the order of their first index. Lengths above the capacity
/// get bins of their own.
pub fn best_fit_decreasing(lengths: &[u32], capacity: u32) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    let length = |index: usize| lengths.get(index).copied().unwrap_or_default();
    order.sort_by_key(|&index| std::cmp::Reverse(length(index)));
    let mut bins: Vec<Vec<usize>> = Vec::new();
    let mut rooms = Rooms::new(capacity);
    for index in order {
        let len = length(index);
        let (bin, room) = match rooms.take(len) {
            Some(found) => found,
            None => {
                bins.push(Vec::new());
                (bins.len() - 1, capacity.max(len))
            }
        };
        if let Some(bin) = bins.get_mut(bin) {
            bin.push(index);
        }
        rooms.put(bin, room - len);
    }
    for bin in &mut bins {
        bin.sort_unstable();
    }
    bins.sort_by_key(|bin| bin.first().copied());
    bins
}

/// Bins by the room that they have left, with a bit set of rooms that some bin has.
struct Rooms {
    bins: Vec<Vec<usize>>,
    bits: Vec<u64>,
}

impl Rooms {
    fn new(capacity: u32) -> Self {
        let sizes = capacity as usize + 1;
        Rooms { bins: vec![Vec::new(); sizes], bits: vec![0; sizes.div_ceil(64)] }
    }

    /// The bin with the least room of at least `len`.
    fn take(&mut self, len: u32) -> Option<(usize, u32)> {
        let first = len as usize / 64;
        let mut word = self.bits.get(first)? & (u64::MAX << (len % 64));
        let mut at = first;
        while word == 0 {
            at += 1;
            word = *self.bits.get(at)?;
        }
        let room = at * 64 + word.trailing_zeros() as usize;
        let bins = self.bins.get_mut(room)?;
        let bin = bins.pop()?;
        if bins.is_empty() {
            *self.bits.get_mut(at)? &= !(1 << (room % 64));
        }
        Some((bin, room as u32))
    }

    fn put(&mut self, bin: usize, room: u32) {
        // A full bin takes nothing any more.
        if room == 0 {
            return;
        }
        let at = room as usize;
        if let (Some(bins), Some(word)) = (self.bins.get_mut(at), self.bits.get_mut(at / 64)) {
            bins.push(bin);
            *word |= 1 << (at % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_sample_is_in_one_pack_and_no_pack_is_over_full(
            lengths in proptest::collection::vec(1u32..=64, 0..200),
        ) {
            let bins = best_fit_decreasing(&lengths, 64);
            let mut seen: Vec<usize> = bins.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for bin in &bins {
                prop_assert!(bin.iter().map(|&i| lengths[i]).sum::<u32>() <= 64);
                prop_assert!(bin.is_sorted());
            }
        }

        #[test]
        fn is_never_more_than_the_known_bound_above_the_optimum(
            lengths in proptest::collection::vec(1u32..=64, 1..200),
        ) {
            let bins = best_fit_decreasing(&lengths, 64).len() as u32;
            let least = lengths.iter().sum::<u32>().div_ceil(64);
            // 11/9 of the optimum and a bit; the optimum is at least `least` and at most what
            // pairs over half a pack force.
            let large = lengths.iter().filter(|&&l| l > 32).count() as u32;
            prop_assert!(bins <= least.max(large) * 11 / 9 + least.max(large) / 2 + 1);
        }
    }

    #[test]
    fn fills_the_fullest_pack_that_has_room() {
        assert_eq!(best_fit_decreasing(&[3, 6, 4, 7], 10), vec![vec![0, 3], vec![1, 2]]);
    }
}
