//! How much of an item a stretch of a row holds, in order: what rule 3 decides by.
//!
//! Runs of four equal words or more are laid over the item, the longest first, wherever they stand
//! in the row, so that sentences may change places. Between two neighbours, and before the first and
//! behind the last, single words count where they keep their order. The share is counted over the
//! different words of the item by weight, so that a name that is changed all through counts once.

use crate::format::HOLLOW;

/// Fewest words of a run that may stand anywhere.
const RUN: usize = 4;

/// Longest gap that is looked at word by word, in words of the item and of the row.
const MOST_GAP: usize = 64;
/// Weight of the numbers and letters of an item under which their share says nothing.
const LEAST_HOLLOW: u32 = 160;

/// Words that a row may have more than the item in a gap.
const GAP_SLACK: usize = 8;

/// What a row holds of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Covered {
    /// Share of the different words, by weight, in per cent.
    pub(crate) percent: u32,
    /// The same of real words alone; 100 if there are none.
    pub(crate) real_percent: u32,
    /// The same of numbers, single letters and TeX commands alone; 100 if there is hardly one.
    pub(crate) hollow_percent: u32,
    /// Weight of that share.
    pub(crate) weight: u32,
    /// Words of the item, repeated ones too.
    pub(crate) words: u32,
    /// First word in the row, and the one behind the last.
    pub(crate) span: (usize, usize),
}

/// A run of equal words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    item: usize,
    row: usize,
    words: usize,
}

/// The comparison, with buffers that are used again.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    runs: Vec<u32>,
    tiles: Vec<Tile>,
    laid: Vec<Tile>,
    item_taken: Vec<bool>,
    row_taken: Vec<bool>,
    table: Vec<u32>,
}

impl Cover {
    /// Compares an item, a byte and a weight for each word, with the bytes of the words of a row.
    pub(crate) fn compare(&mut self, item: &[[u8; 2]], row: &[u8]) -> Covered {
        self.find_tiles(item, row);
        self.lay_tiles(item.len(), row.len());
        let (Some(first), Some(last)) =
            (self.laid.iter().map(|t| t.row).min(), self.laid.iter().map(|t| t.row + t.words).max())
        else {
            return Covered::default();
        };
        self.fill_gaps(item, row);
        let words = self.item_taken.iter().filter(|&&taken| taken).count() as u32;
        Covered { words, span: (first, last), ..shares(item, &self.item_taken) }
    }

    /// All longest runs of equal words, by one pass over the row with the lengths of the runs that
    /// end at each word of the item.
    fn find_tiles(&mut self, item: &[[u8; 2]], row: &[u8]) {
        self.tiles.clear();
        self.runs.clear();
        self.runs.resize(item.len() + 1, 0);
        let (runs, tiles) = (&mut self.runs, &mut self.tiles);
        let mut end = |item: usize, row: usize, words: u32| {
            let words = words as usize;
            if words >= RUN {
                tiles.push(Tile { item: item - words, row: row - words, words });
            }
        };
        for (at, &word) in row.iter().enumerate() {
            end(item.len(), at, runs.last().copied().unwrap_or(0));
            for place in (0..item.len()).rev() {
                let before = runs[place];
                if item[place][0] == word {
                    runs[place + 1] = before + 1;
                } else {
                    runs[place + 1] = 0;
                    end(place, at, before);
                }
            }
        }
        for (place, &words) in runs.iter().enumerate() {
            end(place, row.len(), words);
        }
    }

    /// Lays tiles, the longest first and then by place; what is left of one beside those that lie
    /// already counts if it is long enough.
    fn lay_tiles(&mut self, item: usize, row: usize) {
        self.laid.clear();
        for (taken, words) in [(&mut self.item_taken, item), (&mut self.row_taken, row)] {
            taken.clear();
            taken.resize(words, false);
        }
        self.tiles.sort_unstable_by_key(|t| (std::cmp::Reverse(t.words), t.row, t.item));
        for tile in &self.tiles {
            let free = |at: usize| !self.item_taken[tile.item + at] && !self.row_taken[tile.row + at];
            let Some(skipped) = (0..tile.words).position(free) else { continue };
            let words = (skipped..tile.words).take_while(|&at| free(at)).count();
            if words >= RUN {
                let (item, row) = (tile.item + skipped, tile.row + skipped);
                self.item_taken[item..item + words].fill(true);
                self.row_taken[row..row + words].fill(true);
                self.laid.push(Tile { item, row, words });
            }
        }
        self.laid.sort_unstable_by_key(|t| t.item);
    }

    /// Takes single words between tiles that are neighbours in the item.
    fn fill_gaps(&mut self, item: &[[u8; 2]], row: &[u8]) {
        let laid = std::mem::take(&mut self.laid);
        let mut before: Option<Tile> = None;
        for next in laid.iter().map(Some).chain([None]) {
            let from = before.map_or(0, |tile| tile.item + tile.words);
            let to = next.map_or(item.len(), |tile| tile.item);
            let gap = to - from;
            let reach = gap + GAP_SLACK;
            let behind = before.map(|tile| tile.row + tile.words);
            let ahead = next.map(|tile| tile.row);
            let (start, end) = match (behind, ahead) {
                (Some(behind), Some(ahead)) if ahead >= behind && ahead - behind <= reach => (behind, ahead),
                (Some(behind), _) => (behind, (behind + reach).min(row.len())),
                (None, ahead) => {
                    let ahead = ahead.unwrap_or(0);
                    (ahead.saturating_sub(reach), ahead)
                }
            };
            if gap > 0 && gap <= MOST_GAP {
                let row = row.get(start..end).unwrap_or_default();
                self.fill(item.get(from..to).unwrap_or_default(), from, row);
            }
            before = next.copied();
        }
        self.laid = laid;
    }

    /// Takes the heaviest words that `item` (its first word is `from`) and `row` hold in one order.
    fn fill(&mut self, item: &[[u8; 2]], from: usize, row: &[u8]) {
        let width = row.len() + 1;
        self.table.clear();
        self.table.resize((item.len() + 1) * width, 0);
        let table = &mut self.table;
        for (i, &[word, weight]) in item.iter().enumerate().rev() {
            for (j, &other) in row.iter().enumerate().rev() {
                let skip = table[(i + 1) * width + j].max(table[i * width + j + 1]);
                let both = table[(i + 1) * width + j + 1] + u32::from(weight & !HOLLOW);
                table[i * width + j] = if word == other { skip.max(both) } else { skip };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < item.len() && j < row.len() {
            let here = table[i * width + j];
            if here == table[(i + 1) * width + j] {
                i += 1;
            } else if here == table[i * width + j + 1] {
                j += 1;
            } else {
                self.item_taken[from + i] = true;
                (i, j) = (i + 1, j + 1);
            }
        }
    }
}

/// The weights of the taken words among the different words of an item: of a word that stands in it
/// several times, the part that is taken counts.
fn shares(item: &[[u8; 2]], taken: &[bool]) -> Covered {
    let mut kinds = [(0u32, 0u32, 0u8); 256];
    for (&[word, weight], &taken) in item.iter().zip(taken) {
        let (all, held, heaviest) = &mut kinds[usize::from(word)];
        *all += 1;
        *held += u32::from(taken);
        *heaviest = (*heaviest).max(weight);
    }
    let (mut whole, mut part) = ([0; 2], [0; 2]);
    for (all, held, weight) in kinds.into_iter().filter(|kind| kind.0 > 0) {
        let hollow = usize::from(weight & HOLLOW != 0);
        let weight = u32::from(weight & !HOLLOW);
        whole[hollow] += weight;
        part[hollow] += weight * held / all;
    }
    let percent = |part: u32, whole: u32| part.saturating_mul(100).checked_div(whole).unwrap_or(100);
    let weight = part[0] + part[1];
    Covered {
        percent: percent(weight, whole[0] + whole[1]),
        real_percent: percent(part[0], whole[0]),
        weight,
        hollow_percent: if whole[1] < LEAST_HOLLOW { 100 } else { percent(part[1], whole[1]) },
        ..Covered::default()
    }
}

#[cfg(test)]
#[path = "cover_tests.rs"]
mod tests;
