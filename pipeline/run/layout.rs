//! Layout: which sample stands in which pack, decided from lengths and names alone, before any token
//! is read. A partition is packed by itself; packs that stay far from full are emptied again, and
//! the samples of them from a group of partitions are packed together as one more partition, its
//! tail. So packs are full to the end of the run, and every partition, tails among them, can still be
//! written in any order and on any machine.

use potable_manifests::Split;
use rayon::prelude::*;

use super::plan::Plan;
use super::select::{SampleRef, SelectedRow, Selection};
use crate::pack::{Fit, Packer, Slice};
use crate::source::row::{RowId, SampleId, SampleName};

/// Partitions that share a tail.
const TAIL_PARTITIONS: usize = 16;

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

/// The packs of a whole run.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// By partition, then by tail. A tail's number follows those of the partitions.
    pub partitions: Vec<Vec<ClassLayout>>,
}

impl Layout {
    /// Lays out what select let through.
    pub fn new(plan: &Plan, selection: &Selection) -> Layout {
        let laying = Laying { plan, packer: Packer::new(plan.phase.pack.clone()) };
        let several = selection.partitions.len() > 1;
        let all = &selection.partitions;
        let times = all.iter().flatten().map(|row| row.times).max().unwrap_or(1);
        let mut parted: Vec<Parted> = (0..all.len())
            .into_par_iter()
            .map(|number| laying.partition(&rows_of(all, number, times), several))
            .collect();
        let groups: Vec<&mut [Parted]> = parted.chunks_mut(TAIL_PARTITIONS).collect();
        let tails: Vec<Vec<ClassLayout>> = groups.into_par_iter().map(|group| laying.tail(group)).collect();
        let mut partitions: Vec<Vec<ClassLayout>> = parted.into_iter().map(|one| one.whole).collect();
        if several {
            partitions.extend(tails);
        }
        Layout { partitions }
    }

    /// A seeded choice of `count` train packs, or all if there are fewer, in seeded order.
    pub fn choice(&self, plan: &Plan, count: u64) -> Vec<Vec<Piece>> {
        let laying = Laying { plan, packer: Packer::new(plan.phase.pack.clone()) };
        let train = self.partitions.iter().flatten().filter(|class| class.split == Split::Train);
        let packs = train.flat_map(|class| &class.packs);
        let keyed = packs.filter_map(|pack| {
            let first = pack.first()?;
            Some(((laying.hash(first, CALIBRATION), first.id()), pack))
        });
        let mut keyed: Vec<_> = keyed.collect();
        keyed.sort_unstable_by_key(|(key, _)| *key);
        keyed.into_iter().take(count as usize).map(|(_, pack)| pack.clone()).collect()
    }

    /// How many partitions and tails there are for so many partitions.
    pub fn count(partitions: u32) -> u32 {
        let tails = partitions.div_ceil(TAIL_PARTITIONS as u32);
        if partitions > 1 { partitions + tails } else { partitions }
    }
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

/// The rows of a partition. A row that is taken again goes to the partition after, so that the copies of
/// a row spread.
fn rows_of(partitions: &[Vec<SelectedRow>], number: usize, times: u32) -> Vec<Taken<'_>> {
    let count = partitions.len().max(1);
    let mut taken = Vec::new();
    for repeat in 0..times {
        let home = (number + count - repeat as usize % count) % count;
        let rows = partitions.get(home).into_iter().flatten().filter(|row| row.times > repeat);
        taken.extend(rows.map(|row| Taken { partition: home as u32, repeat, row }));
    }
    taken
}

struct Laying<'a> {
    plan: &'a Plan,
    packer: Packer,
}

impl Laying<'_> {
    fn partition(&self, rows: &[Taken], tail: bool) -> Parted {
        let mut parted = Parted::default();
        for (split, class, pieces) in self.pieces(rows) {
            let (packs, left) = self.pack(class, pieces, tail);
            parted.whole.push(ClassLayout { split, class, packs });
            parted.left.push((split, class, left));
        }
        parted
    }

    /// What several partitions left, packed together.
    fn tail(&self, group: &mut [Parted]) -> Vec<ClassLayout> {
        let mut classes: Vec<(Split, usize, Vec<Piece>)> = Vec::new();
        for (split, class, pieces) in group.iter_mut().flat_map(|one| one.left.drain(..)) {
            match classes.iter_mut().find(|(s, c, _)| (*s, *c) == (split, class)) {
                Some((_, _, all)) => all.extend(pieces),
                None => classes.push((split, class, pieces)),
            }
        }
        classes.sort_by_key(|&(split, class, _)| (split, class));
        let pack =
            |(split, class, pieces)| ClassLayout { split, class, packs: self.pack(class, pieces, false).0 };
        classes.into_iter().map(pack).collect()
    }

    /// The pieces of a partition, by split and class.
    fn pieces(&self, rows: &[Taken]) -> Vec<(Split, usize, Vec<Piece>)> {
        let classes = self.packer.lengths().len();
        let splits = [Split::Train, Split::Validation];
        let mut all: Vec<(Split, usize, Vec<Piece>)> = splits
            .iter()
            .flat_map(|&split| (0..classes).map(move |class| (split, class, Vec::new())))
            .collect();
        for &Taken { partition, repeat, row } in rows {
            let held_out = is_held_out(self.plan, row.key);
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
                let place = usize::from(held_out) * classes + class;
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

    /// Packs pieces of one class in seeded order and shuffles the packs; with `tail`, gives the
    /// pieces of packs far from full back.
    fn pack(&self, class: usize, mut pieces: Vec<Piece>, tail: bool) -> (Vec<Vec<Piece>>, Vec<Piece>) {
        for piece in &mut pieces {
            piece.order = self.hash(piece, SAMPLE_ORDER);
        }
        pieces.sort_unstable_by_key(|piece| (piece.order, piece.id()));
        let tokens: Vec<u32> = pieces.iter().map(|piece| piece.to - piece.from).collect();
        let mut packs = self.packer.pack(class, &tokens);
        let left = if tail { self.packer.take_tail(class, &mut packs) } else { Vec::new() };
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
        let name = name(self.plan, piece);
        xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), self.plan.phase.seed ^ salt)
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
    fn id(&self) -> SampleId {
        SampleId { row: self.row, turn: self.sample.turn, fragment: self.fragment, repeat: self.repeat }
    }
}

/// The id of a piece as text.
pub fn name(plan: &Plan, piece: &Piece) -> String {
    let Some(source) = plan.sources.get(piece.row.source as usize) else { return String::new() };
    let file = source.files.get(piece.row.file as usize).map_or("", |f| f.file.name.as_str());
    SampleName { source: &source.config.name, file, id: piece.id() }.to_string()
}

const SAMPLE_ORDER: u64 = 0x5a4d_504c_4f52_4445;
const PACK_ORDER: u64 = 0x5041_434b_4f52_4445;
const CALIBRATION: u64 = 0x4341_4c49_4252_4154;
const HELD_OUT: u64 = 0x4845_4c44_4f55_5421;

/// Whether a row is held out: a seeded hash of its content, so that equal rows never straddle.
pub fn is_held_out(plan: &Plan, key: u128) -> bool {
    let (seed, ppm) = (plan.phase.seed, plan.phase.output.validation_ppm);
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&key.to_le_bytes(), seed ^ HELD_OUT);
    u128::from(hash) * 1_000_000 < u128::from(ppm) << 64
}
