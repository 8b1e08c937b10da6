//! The default: bins filled to the last token where one, two or three samples can do it, and never
//! more bins than best-fit decreasing needs. Time is in proportion to samples + bins × capacity / 64.

use super::lengths::ByLength;

/// How many greatest lengths are tried as the first of three that fill a bin.
const FIRST_OF_THREE: usize = 16;

/// Bins of indices into `lengths`. Every index is in one bin, no bin exceeds `capacity`, the indices
/// of a bin ascend, and bins stand in the order of their first index. Lengths above the capacity
/// get bins of their own.
pub fn best_fit(lengths: &[u32], capacity: u32) -> Vec<Vec<u32>> {
    let filled = exact_fill(lengths, capacity);
    let total: u64 = lengths.iter().map(|&length| u64::from(length.min(capacity))).sum();
    let fewest = total.div_ceil(u64::from(capacity.max(1)));
    let bins = if filled.len() as u64 <= fewest {
        filled
    } else {
        let plain = best_fit_decreasing(lengths, capacity);
        if plain.len() < filled.len() { plain } else { filled }
    };
    in_order(bins)
}

/// The indices of each bin ascending, the bins by their first index.
pub(super) fn in_order(mut bins: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    bins.iter_mut().for_each(|bin| bin.sort_unstable());
    bins.sort_unstable_by_key(|bin| bin.first().copied());
    bins
}

/// Bin after bin: the greatest length that is left, then whatever fills the rest exactly (one length,
/// two, or three of which the first is among the greatest), else the greatest that fits.
fn exact_fill(lengths: &[u32], capacity: u32) -> Vec<Vec<u32>> {
    let (mut left, mut bins) = (ByLength::new(lengths.len(), capacity), Vec::new());
    // From the last to the first, so that of equal lengths the first comes off first.
    for (index, &length) in (0..lengths.len() as u32).zip(lengths).rev() {
        if length > capacity {
            bins.push(vec![index]);
        } else {
            left.put(index, length);
        }
    }
    while let Some(greatest) = left.at_most(capacity) {
        let mut bin = Vec::new();
        bin.extend(left.take(greatest));
        let mut room = capacity - greatest;
        while room > 0 {
            let Some(taken) = next_lengths(&left, room) else { break };
            for length in taken.into_iter().filter(|length| *length > 0) {
                bin.extend(left.take(length));
                room -= length;
            }
        }
        bins.push(bin);
    }
    bins
}

/// Up to three lengths for a room, filling it exactly if they can; 0 stands for none.
fn next_lengths(left: &ByLength, room: u32) -> Option<[u32; 3]> {
    let greatest = left.at_most(room)?;
    if greatest == room {
        return Some([room, 0, 0]);
    }
    // Without a length of at least a third of the room, three cannot fill it.
    if u64::from(greatest) * 3 < u64::from(room) {
        return Some([greatest, 0, 0]);
    }
    if let Some((a, b)) = left.pair(room) {
        return Some([a, b, 0]);
    }
    let mut first = Some(greatest);
    for _ in 0..FIRST_OF_THREE {
        let Some(length) = first.filter(|length| *length > 0) else { break };
        if let Some((a, b)) = left.pair(room - length)
            && fits_three(left, [length, a, b])
        {
            return Some([length, a, b]);
        }
        first = left.at_most(length - 1);
    }
    Some([greatest, 0, 0])
}

/// Whether three lengths can be taken together: an index cannot be taken twice.
fn fits_three(left: &ByLength, three: [u32; 3]) -> bool {
    let [first, a, b] = three;
    // `pair` has seen to `a` and `b`; what is left is the first one being one of them.
    first != a && first != b && left.has(first)
}

/// Samples from the longest down, each into the fullest bin that still has room for it.
fn best_fit_decreasing(lengths: &[u32], capacity: u32) -> Vec<Vec<u32>> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let mut order = ByLength::new(lengths.len(), longest);
    for (index, &length) in (0..lengths.len() as u32).zip(lengths).rev() {
        order.put(index, length);
    }
    let mut bins: Vec<Vec<u32>> = Vec::new();
    let mut rooms = ByLength::new(lengths.len(), capacity);
    while let Some(length) = order.at_most(longest) {
        let Some(index) = order.take(length) else { break };
        let open = rooms.at_least(length).and_then(|room| Some((rooms.take(room)?, room)));
        let (bin, room) = open.unwrap_or((bins.len() as u32, capacity.max(length)));
        if bin as usize == bins.len() {
            bins.push(Vec::new());
        }
        if let Some(bin) = bins.get_mut(bin as usize) {
            bin.push(index);
        }
        if room > length {
            rooms.put(bin, room - length);
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::tests::holds_each_once;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_sample_is_in_one_pack_and_no_pack_is_over_full(
            lengths in proptest::collection::vec(1u32..=64, 0..200),
        ) {
            let bins = best_fit(&lengths, 64);
            holds_each_once(&bins, &lengths, 64)?;
            prop_assert!(bins.is_sorted_by_key(|bin| bin[0]));
            holds_each_once(&best_fit_decreasing(&lengths, 64), &lengths, 64)?;
            holds_each_once(&exact_fill(&lengths, 64), &lengths, 64)?;
        }

        #[test]
        fn never_needs_more_packs_than_best_fit_decreasing(
            lengths in proptest::collection::vec(1u32..=64, 1..200),
        ) {
            prop_assert!(best_fit(&lengths, 64).len() <= best_fit_decreasing(&lengths, 64).len());
        }

        #[test]
        fn best_fit_decreasing_is_never_more_than_the_known_bound_above_the_optimum(
            lengths in proptest::collection::vec(1u32..=64, 1..200),
        ) {
            let bins = best_fit_decreasing(&lengths, 64).len() as u32;
            let least = lengths.iter().sum::<u32>().div_ceil(64);
            // 11/9 of the optimum and a bit; the optimum is at least `least` and at most what
            // pairs over half a pack force.
            let large = lengths.iter().filter(|&&l| l > 32).count() as u32;
            prop_assert!(bins <= least.max(large) * 11 / 9 + least.max(large) / 2 + 1);
        }

        #[test]
        fn packs_are_full_to_the_last_token_where_there_is_much_to_choose_from(
            lengths in proptest::collection::vec(1u32..=400, 400..800),
        ) {
            let total: u32 = lengths.iter().sum();
            prop_assert!(best_fit(&lengths, 1000).len() as u32 <= total.div_ceil(1000) + 1);
        }
    }

    #[test]
    fn fills_the_fullest_pack_that_has_room() {
        assert_eq!(best_fit(&[3, 6, 4, 7], 10), vec![vec![0, 3], vec![1, 2]]);
    }

    #[test]
    fn a_length_above_the_capacity_stands_alone() {
        assert_eq!(best_fit(&[3, 16, 4, 7], 10), vec![vec![0, 3], vec![1], vec![2]]);
    }
}
