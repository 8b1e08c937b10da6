//! Samples of shards, with fragments of one sample put together again.

use std::collections::BTreeMap;
use std::path::Path;

use potable_manifests::ShardRecord;

use crate::pack::PackedSample;
use crate::recipe::file::ShardFormat;
use crate::shard::Content;
use crate::shard::read::{self, ReadError};

/// A sample, whole again, and the shard in which it (or its first fragment) stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeSample {
    /// Sample id, without the number of a fragment.
    pub name: String,
    /// Path of the shard.
    pub shard: String,
    /// Token ids.
    pub ids: Vec<u32>,
}

/// What was read besides the samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Samples as they stand in packs: each fragment counts.
    pub samples: u64,
    /// Fragments among them.
    pub fragments: u64,
    /// Tokens.
    pub tokens: u64,
    /// Shards whose content is not the one of the manifest.
    pub differing: Vec<String>,
}

/// How many fragments each sample has that was cut, by its id.
pub type Cut = BTreeMap<String, u32>;

/// The samples of a shard that were cut, with the number of the last fragment that stands in it.
///
/// # Errors
/// A shard that cannot be read.
pub fn cut_in(dir: &Path, format: ShardFormat, record: &ShardRecord) -> Result<Cut, ReadError> {
    let mut cut = Cut::new();
    for pack in read::open(dir, format, &record.path)? {
        for sample in pack?.samples {
            let (base, fragment) = fragment_of(&sample.name);
            if fragment > 0 {
                let last = cut.entry(base.to_owned()).or_default();
                *last = fragment.max(*last);
            }
        }
    }
    Ok(cut)
}

/// Gives every sample of a shard to `visit`: the whole ones with `None`, fragments with their number.
///
/// # Errors
/// A shard that cannot be read; what `visit` says.
pub fn each<E: From<ReadError>>(
    (dir, format): (&Path, ShardFormat),
    record: &ShardRecord,
    (cut, counts): (&Cut, &mut ReadCounts),
    visit: &mut dyn FnMut(WholeSample, Option<u32>) -> Result<(), E>,
) -> Result<(), E> {
    let mut content = Content::new();
    for pack in read::open(dir, format, &record.path)? {
        let pack = pack?;
        content.add(&pack);
        for sample in pack.samples {
            let PackedSample { name, ids, .. } = sample;
            counts.samples += 1;
            counts.tokens += ids.len() as u64;
            let (base, fragment) = fragment_of(&name);
            let is_cut = cut.contains_key(base);
            counts.fragments += u64::from(is_cut);
            let (name, shard) = (base.to_owned(), record.path.clone());
            visit(WholeSample { name, shard, ids }, is_cut.then_some(fragment))?;
        }
    }
    if content.finish().digest != record.content_digest {
        counts.differing.push(record.path.clone());
    }
    Ok(())
}

/// Fragments that wait for the rest of their sample, which may stand in any shard.
#[derive(Default)]
pub struct Waiting {
    pieces: BTreeMap<String, BTreeMap<u32, WholeSample>>,
}

impl Waiting {
    /// Adds a fragment. Gives the sample when it is whole.
    pub fn add(&mut self, piece: WholeSample, fragment: u32, cut: &Cut) -> Option<WholeSample> {
        let name = piece.name.clone();
        let pieces = self.pieces.entry(name.clone()).or_default();
        pieces.insert(fragment, piece);
        let last = cut.get(&name).copied().unwrap_or_default();
        if pieces.len() as u64 <= u64::from(last) {
            return None;
        }
        joined(self.pieces.remove(&name)?).pop()
    }

    /// What never became whole, which a whole data set does not have: the runs that are there.
    pub fn rest(self) -> Vec<WholeSample> {
        self.pieces.into_values().flat_map(joined).collect()
    }
}

/// Puts fragments that follow one another together; a gap begins a new text.
fn joined(pieces: BTreeMap<u32, WholeSample>) -> Vec<WholeSample> {
    let mut whole: Vec<WholeSample> = Vec::new();
    let mut next = 0;
    for (fragment, piece) in pieces {
        match whole.last_mut().filter(|_| fragment == next) {
            Some(sample) => sample.ids.extend(piece.ids),
            None => whole.push(piece),
        }
        next = fragment + 1;
    }
    whole
}

/// A sample's id without the number of its fragment, and that number: `.fN` behind the row number.
pub fn fragment_of(name: &str) -> (&str, u32) {
    let row = name.rfind(':').unwrap_or(0);
    let number = name.rfind(".f").filter(|at| *at > row).and_then(|at| {
        let number = name.get(at + 2..)?.parse::<u32>().ok()?;
        Some((name.get(..at)?, number))
    });
    number.unwrap_or((name, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_told_by_the_end_of_the_id() {
        assert_eq!(fragment_of("a/b.jsonl:7"), ("a/b.jsonl:7", 0));
        assert_eq!(fragment_of("a/b.jsonl:7.t2.f3"), ("a/b.jsonl:7.t2", 3));
        assert_eq!(fragment_of("a/b.f3:7"), ("a/b.f3:7", 0));
        assert_eq!(fragment_of("a/x.fy:1.f1"), ("a/x.fy:1", 1));
    }

    fn piece(ids: &[u32]) -> WholeSample {
        WholeSample { name: "a".to_owned(), shard: "s".to_owned(), ids: ids.to_vec() }
    }

    #[test]
    fn fragments_join_in_order_whatever_the_order_in_which_they_come() {
        let cut = Cut::from([("a".to_owned(), 2)]);
        let mut waiting = Waiting::default();
        assert_eq!(waiting.add(piece(&[3]), 2, &cut), None);
        assert_eq!(waiting.add(piece(&[1]), 0, &cut), None);
        assert_eq!(waiting.add(piece(&[2]), 1, &cut), Some(piece(&[1, 2, 3])));
        assert_eq!(waiting.rest(), []);
    }

    #[test]
    fn fragments_do_not_join_across_gaps() {
        let cut = Cut::from([("a".to_owned(), 3)]);
        let mut waiting = Waiting::default();
        for (fragment, ids) in [(0, [1]), (1, [2]), (3, [4])] {
            assert_eq!(waiting.add(piece(&ids), fragment, &cut), None);
        }
        assert_eq!(waiting.rest(), [piece(&[1, 2]), piece(&[4])]);
    }
}
