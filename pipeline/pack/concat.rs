//! Concatenate and split: samples end to end in their order, cut at every full pack. Every pack but
//! the last is full; samples are cut wherever a pack ends.

use super::Slice;

/// Packs of slices of samples, in order. `lengths` are tokens of the samples.
pub fn concat(lengths: &[u32], capacity: u32) -> Vec<Vec<Slice>> {
    let capacity = capacity.max(1);
    let (mut packs, mut pack, mut room) = (Vec::new(), Vec::new(), capacity);
    for (index, &length) in (0u32..).zip(lengths) {
        let mut from = 0;
        while from < length {
            let to = length.min(from + room);
            pack.push(Slice { index, from, to });
            room -= to - from;
            from = to;
            if room == 0 {
                packs.push(std::mem::take(&mut pack));
                room = capacity;
            }
        }
    }
    if !pack.is_empty() {
        packs.push(pack);
    }
    packs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_token_is_in_one_pack_in_order_and_every_pack_but_the_last_is_full(
            lengths in proptest::collection::vec(1u32..=200, 0..100),
            capacity in 1u32..100,
        ) {
            let packs = concat(&lengths, capacity);
            let tokens = |slice: &Slice| (slice.from..slice.to).map(|at| (slice.index, at)).collect::<Vec<_>>();
            let found: Vec<(u32, u32)> = packs.iter().flatten().flat_map(tokens).collect();
            let all: Vec<(u32, u32)> =
                (0u32..).zip(&lengths).flat_map(|(index, &length)| (0..length).map(move |at| (index, at))).collect();
            prop_assert_eq!(found, all);
            for (at, pack) in packs.iter().enumerate() {
                let tokens: u32 = pack.iter().map(|slice| slice.to - slice.from).sum();
                prop_assert!(tokens == capacity || at + 1 == packs.len());
            }
        }
    }
}
