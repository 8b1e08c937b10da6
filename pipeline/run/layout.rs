//! Layout: which sample stands in which pack, decided from lengths and names alone, before any token
//! is read. A partition is packed by itself; packs that stay far from full are emptied again, and
//! the samples of them from a group of partitions are packed together as one more partition, its
//! tail. So packs are full to the end of the run, and every partition, tails among them, can still be
//! written in any order and on any machine.

use potable_manifests::Split;
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::select::{Rules, SampleRef, SelectedRow, Selection};
use crate::pack::{Fit, Packer, Slice};
use crate::source::row::{RowId, SampleId};

/// Partitions that share a tail.
const TAIL_PARTITIONS: u32 = 16;

/// A sample or a part of it, on its way into a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The partition of its row.
    pub partition: u32,
    /// The row.
    pub row: RowId,
    /// The sample.
    pub sample: SampleRef,
    /// First token.
    pub from: u32,
    /// The token after the last one.
    pub to: u32,
    /// Which part of the sample it is.
    pub fragment: u32,
    /// How often the row was taken before.
    pub repeat: u32,
    /// Place in the seeded order.
    order: u64,
}

/// Packs of one split and length class, in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassLayout {
    /// Train or validation.
    pub split: Split,
    /// Index of the length class.
    pub class: usize,
    /// The packs.
    pub packs: Vec<Vec<Piece>>,
}

/// The place of a train pack in the seeded order by which packs for calibration are chosen: a hash of
/// the name of its first sample, then that sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackKey(u64, SampleKey);

/// Source, file, row, turn, fragment, repeat.
type SampleKey = (u32, u32, u64, u32, u32, u32);

/// The packs of a run, laid out a partition at a time.
pub struct Layout<'a> {
    rules: &'a Rules,
    selection: &'a Selection,
    packer: Packer,
}

impl<'a> Layout<'a> {
    /// The layout of what select let through.
    pub fn new(rules: &'a Rules, selection: &'a Selection) -> Self {
        Layout { rules, selection, packer: Packer::new(rules.pack.clone()) }
    }

    /// How many partitions and tails there are for so many partitions. A tail's number follows those
    /// of the partitions.
    pub fn count(partitions: u32) -> u32 {
        let tails = partitions.div_ceil(TAIL_PARTITIONS);
        if partitions > 1 { partitions + tails } else { partitions }
    }

    /// The packs of a partition or a tail, by split and class. A tail takes as many partitions as it
    /// has one after the other; each time a partition of the selection is read.
    ///
    /// # Errors
    /// A selection that is missing or damaged.
    pub fn partition(&self, number: u32) -> Result<Vec<ClassLayout>, RunError> {
        let partitions = self.rules.partitions;
        let Some(tail) = number.checked_sub(partitions) else {
            return Ok(self.part(number)?.whole);
        };
        let mut classes: Vec<(Split, usize, Vec<Piece>)> = Vec::new();
        for member in members(tail, partitions) {
            for (split, class, pieces) in self.part(member)?.left {
                match classes.iter_mut().find(|(s, c, _)| (*s, *c) == (split, class)) {
                    Some((_, _, all)) => all.extend(pieces),
                    None => classes.push((split, class, pieces)),
                }
            }
        }
        classes.sort_by_key(|&(split, class, _)| (split, class));
        let pack = |(split, class, pieces)| ClassLayout {
            split,
            class,
            packs: self.pack(class, pieces, Tail::Kept).0,
        };
        Ok(classes.into_iter().map(pack).collect())
    }

    /// Partitions of the selection that the layout of a partition or a tail reads; the tokens of no
    /// other partition stand in its packs.
    pub fn reads(&self, number: u32) -> Vec<u32> {
        let partitions = self.rules.partitions;
        let members = match number.checked_sub(partitions) {
            Some(tail) => members(tail, partitions),
            None => number..(number + 1).min(partitions),
        };
        let mut reads: Vec<u32> =
            members.flat_map(|member| self.homes(member)).map(|(home, _)| home).collect();
        reads.sort_unstable();
        reads.dedup();
        reads
    }

    /// The first `count` train packs of a partition in the order in which they are chosen.
    pub fn first_keys(&self, classes: &[ClassLayout], count: u64) -> Vec<PackKey> {
        let mut keys: Vec<PackKey> = self.train(classes).map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.truncate(count as usize);
        keys
    }

    /// A seeded choice of `count` train packs, or all if there are fewer, in seeded order. `keys` are
    /// the first ones of each partition and tail, by number.
    ///
    /// # Errors
    /// A selection that is missing or damaged.
    pub fn choice<'k>(
        &self,
        keys: impl Iterator<Item = &'k [PackKey]>,
        count: u64,
    ) -> Result<Vec<Vec<Piece>>, RunError> {
        let all = (0..).zip(keys).flat_map(|(number, keys)| keys.iter().map(move |key| (*key, number)));
        let mut all: Vec<(PackKey, u32)> = all.collect();
        all.sort_unstable();
        all.truncate(count as usize);
        let mut numbers: Vec<u32> = all.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut chosen = Vec::new();
        for number in numbers {
            let classes = self.partition(number)?;
            let wanted = |key: &PackKey| all.binary_search(&(*key, number)).is_ok();
            let packs = self.train(&classes).filter(|(key, _)| wanted(key));
            chosen.extend(packs.map(|(key, pack)| (key, pack.clone())));
        }
        chosen.sort_unstable_by_key(|(key, _)| *key);
        Ok(chosen.into_iter().map(|(_, pack)| pack).collect())
    }

    /// Train packs with their keys.
    fn train<'c>(&self, classes: &'c [ClassLayout]) -> impl Iterator<Item = (PackKey, &'c Vec<Piece>)> {
        let train = classes.iter().filter(|class| class.split == Split::Train);
        train.flat_map(|class| &class.packs).filter_map(|pack| {
            let first = pack.first()?;
            let SampleId { row: RowId { source, file, row }, turn, fragment, repeat } = first.id();
            let key = (source, file, row, turn, fragment, repeat);
            Some((PackKey(self.hash(first, CALIBRATION), key), pack))
        })
    }
}

/// The partitions of a tail.
fn members(tail: u32, partitions: u32) -> std::ops::Range<u32> {
    let first = tail.saturating_mul(TAIL_PARTITIONS).min(partitions);
    first..first.saturating_add(TAIL_PARTITIONS).min(partitions)
}

/// A partition: packs that stay, and the pieces that go to the tail, by split and class.
#[derive(Default)]
struct Parted {
    whole: Vec<ClassLayout>,
    left: Vec<(Split, usize, Vec<Piece>)>,
}

/// A row, each time that it is taken.
#[derive(Clone, Copy)]
struct Taken<'a> {
    /// The partition where its samples are staged.
    partition: u32,
    /// How often it was taken before.
    repeat: u32,
    row: &'a SelectedRow,
}

/// What becomes of packs that are far from full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// They stay.
    Kept,
    /// Their pieces are given back.
    Given,
}

impl Layout<'_> {
    /// The partitions whose rows stand in a partition, with how often those were taken before. A row that
    /// is taken again goes to the partition after, so that the copies of a row spread.
    fn homes(&self, number: u32) -> impl Iterator<Item = (u32, u32)> {
        let times = &self.selection.summary.times;
        let (count, most) = (self.rules.partitions.max(1), times.iter().copied().max().unwrap_or(1));
        (0..most).filter_map(move |repeat| {
            let home = (number + count - repeat % count) % count;
            (*times.get(home as usize)? > repeat).then_some((home, repeat))
        })
    }

    /// A partition: what stays in it, and what goes to its tail.
    fn part(&self, number: u32) -> Result<Parted, RunError> {
        let mut read: Vec<(u32, Vec<SelectedRow>)> = Vec::new();
        for (home, _) in self.homes(number) {
            if read.iter().all(|(other, _)| *other != home) {
                read.push((home, self.selection.partition(home)?));
            }
        }
        let rows_of = |home: u32| read.iter().find(|(other, _)| *other == home).map(|(_, rows)| rows);
        let taken = self.homes(number).flat_map(|(partition, repeat)| {
            let rows = rows_of(partition).into_iter().flatten().filter(move |row| row.times > repeat);
            rows.map(move |row| Taken { partition, repeat, row })
        });
        let tail = if self.rules.partitions > 1 { Tail::Given } else { Tail::Kept };
        let mut parted = Parted::default();
        for (split, class, pieces) in self.pieces(taken) {
            let (packs, left) = self.pack(class, pieces, tail);
            parted.whole.push(ClassLayout { split, class, packs });
            parted.left.push((split, class, left));
        }
        Ok(parted)
    }

    /// The pieces of a partition, by split and class.
    fn pieces<'r>(&self, rows: impl Iterator<Item = Taken<'r>>) -> Vec<(Split, usize, Vec<Piece>)> {
        let classes = self.packer.lengths().len();
        let splits = [Split::Train, Split::Validation];
        let mut all: Vec<(Split, usize, Vec<Piece>)> = splits
            .iter()
            .flat_map(|&split| (0..classes).map(move |class| (split, class, Vec::new())))
            .collect();
        for Taken { partition, repeat, row } in rows {
            for &sample in &row.samples {
                let whole = Piece {
                    partition,
                    row: row.id,
                    sample,
                    from: 0,
                    to: sample.tokens,
                    fragment: 0,
                    repeat,
                    order: 0,
                };
                let (class, pieces) = self.cut(whole);
                let place = usize::from(row.held_out) * classes + class;
                if let Some((_, _, into)) = all.get_mut(place) {
                    into.extend(pieces);
                }
            }
        }
        all.retain(|(_, _, pieces)| !pieces.is_empty());
        all
    }

    /// The class and the pieces that the length policy makes of a sample.
    fn cut(&self, whole: Piece) -> (usize, Vec<Piece>) {
        let last = self.packer.lengths().len().saturating_sub(1);
        match self.packer.fit(whole.sample.tokens, whole.sample.first_trained) {
            Fit::Overlong => (last, Vec::new()),
            Fit::Class(class) => (class, vec![whole]),
            Fit::Truncated(kept) => (last, vec![Piece { to: kept, ..whole }]),
            Fit::Fragments(count) => {
                let longest = self.packer.longest_piece();
                let piece = |fragment: u32| Piece {
                    from: fragment * longest,
                    to: whole.to.min((fragment + 1).saturating_mul(longest)),
                    fragment,
                    ..whole
                };
                (last, (0..count).map(piece).collect())
            }
        }
    }

    /// Packs pieces of one class in seeded order and shuffles the packs; gives the pieces of packs far
    /// from full back, if they do not stay.
    fn pack(&self, class: usize, mut pieces: Vec<Piece>, tail: Tail) -> (Vec<Vec<Piece>>, Vec<Piece>) {
        for piece in &mut pieces {
            piece.order = self.hash(piece, SAMPLE_ORDER);
        }
        pieces.sort_unstable_by_key(|piece| (piece.order, piece.id()));
        let tokens: Vec<u32> = pieces.iter().map(|piece| piece.to - piece.from).collect();
        let mut packs = self.packer.pack(class, &tokens);
        let left = if tail == Tail::Given { self.packer.take_tail(class, &mut packs) } else { Vec::new() };
        let mut cuts = vec![0u32; pieces.len()];
        let mut resolve = |pack: Vec<Slice>| -> Vec<Piece> {
            let slices = pack.into_iter();
            slices.filter_map(|slice| part(&pieces, slice, &mut cuts)).collect()
        };
        let mut packs: Vec<Vec<Piece>> = packs.into_iter().map(&mut resolve).collect();
        let left: Vec<Piece> = left.into_iter().flat_map(&mut resolve).collect();
        packs.sort_by_cached_key(|pack| pack.first().map(|first| (self.hash(first, PACK_ORDER), first.id())));
        (packs, left)
    }

    fn hash(&self, piece: &Piece, salt: u64) -> u64 {
        let name = self.rules.name_of(piece.id());
        xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), self.rules.seed ^ salt)
    }
}

/// The part of a piece that a slice stands for. Slices of a piece come in order, tails last; each
/// further one is a further fragment.
fn part(pieces: &[Piece], slice: Slice, cuts: &mut [u32]) -> Option<Piece> {
    let piece = pieces.get(slice.index as usize)?;
    let cut = cuts.get_mut(slice.index as usize)?;
    let fragment = piece.fragment + *cut;
    *cut += 1;
    Some(Piece { from: piece.from + slice.from, to: piece.from + slice.to, fragment, ..*piece })
}

impl Piece {
    /// The id of the sample or the part.
    pub fn id(&self) -> SampleId {
        SampleId { row: self.row, turn: self.sample.turn, fragment: self.fragment, repeat: self.repeat }
    }
}

const SAMPLE_ORDER: u64 = 0x5a4d_504c_4f52_4445;
const PACK_ORDER: u64 = 0x5041_434b_4f52_4445;
const CALIBRATION: u64 = 0x4341_4c49_4252_4154;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::run::select::tests::{rules, selected, sketches};

    /// All partitions and tails.
    fn all(layout: &Layout) -> Vec<Vec<ClassLayout>> {
        let count = Layout::count(layout.rules.partitions);
        (0..count).map(|number| layout.partition(number).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn each_selected_sample_stands_in_the_packs_as_often_as_its_row_is_taken(
            mut rules in rules(), sketches in sketches(), more in 0u32..30,
        ) {
            rules.partitions += more;
            let folder = tempfile::tempdir().unwrap();
            let Some(selection) = selected(&rules, &sketches, folder.path()) else { return Ok(()) };
            let layout = Layout::new(&rules, &selection);
            let mut tokens: BTreeMap<(RowId, u32, u32), (u32, u64)> = BTreeMap::new();
            for piece in all(&layout).iter().flatten().flat_map(|class| &class.packs).flatten() {
                let sum = tokens.entry((piece.row, piece.sample.turn, piece.repeat)).or_default();
                *sum = (piece.partition, sum.1 + u64::from(piece.to - piece.from));
            }
            for partition in 0..rules.partitions {
                for row in selection.partition(partition).unwrap() {
                    for (sample, repeat) in row.samples.iter().flat_map(|s| (0..row.times).map(move |r| (s, r))) {
                        let kept = layout.packer.kept_tokens(sample.tokens, sample.first_trained);
                        let found = tokens.remove(&(row.id, sample.turn, repeat));
                        prop_assert_eq!(found, Some((partition, u64::from(kept))));
                    }
                }
            }
            prop_assert!(tokens.is_empty());
        }

        #[test]
        fn a_partition_needs_no_more_of_the_selection_than_it_says(
            mut rules in rules(), sketches in sketches(), more in 0u32..30,
        ) {
            rules.partitions += more;
            let folder = tempfile::tempdir().unwrap();
            let Some(selection) = selected(&rules, &sketches, folder.path()) else { return Ok(()) };
            let expected = all(&Layout::new(&rules, &selection));
            let part = tempfile::tempdir().unwrap();
            let summary = "summary.json".to_owned();
            for (number, expected) in (0..).zip(&expected) {
                let reads = Layout::new(&rules, &selection).reads(number);
                let mut names: Vec<String> = reads.iter().map(|read| Selection::partition_name(*read)).collect();
                names.push(summary.clone());
                for name in &names {
                    // A partition without rows has no file.
                    let _absent = std::fs::copy(folder.path().join(name), part.path().join(name));
                }
                let some = Selection::open(part.path()).unwrap();
                prop_assert_eq!(&Layout::new(&rules, &some).partition(number).unwrap(), expected);
                let tokens = expected.iter().flat_map(|class| &class.packs).flatten();
                prop_assert!(tokens.into_iter().all(|piece| reads.contains(&piece.partition)));
                for name in &names {
                    let _absent = std::fs::remove_file(part.path().join(name));
                }
            }
        }

        #[test]
        fn the_choice_for_calibration_is_that_of_all_packs_in_seeded_order(
            mut rules in rules(), sketches in sketches(), more in 0u32..30, count in 1u64..8,
        ) {
            rules.partitions += more;
            let folder = tempfile::tempdir().unwrap();
            let Some(selection) = selected(&rules, &sketches, folder.path()) else { return Ok(()) };
            let layout = Layout::new(&rules, &selection);
            let all = all(&layout);
            let mut expected: Vec<(u64, SampleId, Vec<Piece>)> = Vec::new();
            for class in all.iter().flatten().filter(|class| class.split == Split::Train) {
                let keyed = |pack: &Vec<Piece>| (layout.hash(&pack[0], CALIBRATION), pack[0].id(), pack.clone());
                expected.extend(class.packs.iter().map(keyed));
            }
            expected.sort_by_key(|(hash, id, _)| (*hash, *id));
            let expected: Vec<Vec<Piece>> =
                expected.into_iter().take(count as usize).map(|(_, _, pack)| pack).collect();
            let keys: Vec<Vec<PackKey>> = all.iter().map(|classes| layout.first_keys(classes, count)).collect();
            prop_assert_eq!(layout.choice(keys.iter().map(Vec::as_slice), count).unwrap(), expected);
        }
    }
}
