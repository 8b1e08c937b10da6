//! First fit: samples in their order, each into the first bin that has room for it. Time is in
//! proportion to samples × log(bins).

/// Bins of indices into `lengths`, as [`best_fit`](super::best_fit::best_fit) gives them.
pub fn first_fit(lengths: &[u32], capacity: u32) -> Vec<Vec<u32>> {
    let mut bins: Vec<Vec<u32>> = Vec::new();
    let mut rooms = Rooms::default();
    for (index, &length) in (0u32..).zip(lengths) {
        let bin = match rooms.first(length) {
            Some(bin) => bin,
            None => {
                bins.push(Vec::new());
                rooms.push(capacity.max(length));
                bins.len() - 1
            }
        };
        if let Some(bin) = bins.get_mut(bin) {
            bin.push(index);
        }
        rooms.fill(bin, length);
    }
    bins
}

/// The room of each bin, and over pairs of pairs the greatest room, level by level.
#[derive(Default)]
struct Rooms {
    levels: Vec<Vec<u32>>,
}

impl Rooms {
    fn push(&mut self, room: u32) {
        if self.levels.is_empty() {
            self.levels.push(Vec::new());
        }
        let mut at = 0;
        while let Some(level) = self.levels.get_mut(at) {
            if at == 0 {
                level.push(room);
            } else {
                let below = self.levels.get(at - 1).map_or(0, Vec::len);
                if let Some(level) = self.levels.get_mut(at) {
                    level.resize(below.div_ceil(2), 0);
                }
            }
            at += 1;
        }
        while self.levels.last().is_some_and(|level| level.len() > 1) {
            let top = self.levels.last().map_or(&[][..], Vec::as_slice);
            let above = top.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
            self.levels.push(above);
        }
        let last = self.levels.first().map_or(0, |level| level.len().saturating_sub(1));
        self.update(last);
    }

    /// The first bin with room for `length`.
    fn first(&self, length: u32) -> Option<usize> {
        let top = self.levels.last()?;
        if top.first().is_none_or(|room| *room < length) {
            return None;
        }
        let mut at = 0;
        for level in self.levels.iter().rev().skip(1) {
            at *= 2;
            if level.get(at).is_none_or(|room| *room < length) {
                at += 1;
            }
        }
        Some(at)
    }

    fn fill(&mut self, bin: usize, length: u32) {
        if let Some(room) = self.levels.first_mut().and_then(|level| level.get_mut(bin)) {
            *room -= length;
        }
        self.update(bin);
    }

    /// Brings the levels above a bin up to date.
    fn update(&mut self, mut at: usize) {
        for level in 1..self.levels.len() {
            at /= 2;
            let below = self.levels.get(level - 1).map_or(&[][..], Vec::as_slice);
            let pair = below.get(at * 2..below.len().min(at * 2 + 2)).unwrap_or_default();
            let greatest = pair.iter().copied().max().unwrap_or(0);
            if let Some(room) = self.levels.get_mut(level).and_then(|level| level.get_mut(at)) {
                *room = greatest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::tests::holds_each_once;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_what_a_plain_search_gives(lengths in proptest::collection::vec(1u32..=64, 0..200)) {
            let bins = first_fit(&lengths, 64);
            holds_each_once(&bins, &lengths, 64)?;
            let mut plain: Vec<Vec<u32>> = Vec::new();
            for (index, &length) in (0u32..).zip(&lengths) {
                let fits = |bin: &Vec<u32>| bin.iter().map(|&i| lengths[i as usize]).sum::<u32>() + length <= 64;
                match plain.iter().position(fits) {
                    Some(bin) => plain[bin].push(index),
                    None => plain.push(vec![index]),
                }
            }
            prop_assert_eq!(bins, plain);
        }
    }
}
