//! The reference: everything in memory, row by row. What select gives has to be the same, with limits so
//! small that every run, bucket and merge has a border.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::pack::{Fit, Packer};
use crate::recipe::file::{Exact, Overlong as Policy, Strategy as Packing};
use crate::recipe::resolve::PackConfig;
use crate::run::mixture::{Candidate, Cap, Reach, largest_total, share};
use crate::run::rows::partition_of;
use crate::run::staged::{SampleMeta, VisitBands, VisitSamples};

/// A staged file in memory.
#[derive(Clone, Debug)]
struct Made {
    place: (u32, u32),
    parts: Vec<(u32, Vec<SampleMeta>)>,
}

impl Metadata for Made {
    fn place(&self) -> (u32, u32) {
        self.place
    }

    fn each(&self, visit: &mut VisitSamples) -> Result<(), RunError> {
        self.parts.iter().try_for_each(|(partition, samples)| visit(*partition, samples))
    }

    fn next_row(&self) -> u64 {
        let rows = self.parts.iter().flat_map(|(_, samples)| samples).map(|sample| sample.row + 1);
        rows.max().unwrap_or_default()
    }

    fn each_bands(&self, visit: &mut VisitBands) -> Result<(), RunError> {
        let mut last = None;
        for sample in self.parts.iter().flat_map(|(_, samples)| samples) {
            if last.replace(sample.row) != Some(sample.row) {
                visit(sample.row, &bands(sample.key))?;
            }
        }
        Ok(())
    }
}

/// The bands of a row, here by its key: three keys in a row share one, one in seven has none.
fn bands(key: u128) -> Vec<u64> {
    let key = (key >> 70) as u64;
    let bands = [key / 3, 1000 + key].map(|band| band.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    if key.is_multiple_of(7) { Vec::new() } else { bands.to_vec() }
}

/// A row of the reference.
#[derive(Clone, Debug)]
struct Plain {
    id: RowId,
    hash: u64,
    key: u128,
    tokens: u64,
    samples: Vec<SampleRef>,
    times: u32,
}

/// What the reference gives.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    partitions: Vec<Vec<SelectedRow>>,
    counts: Vec<SelectCounts>,
    overlong: Vec<(RowId, u64)>,
    near: Vec<(RowId, RowId)>,
    short: Vec<(usize, Missing)>,
    keys: Vec<u128>,
}

/// The rows of all files by partition, in the order of their ids.
fn gather(rules: &Rules, files: &[Made]) -> Vec<Vec<Plain>> {
    let mut partitions: Vec<Vec<Plain>> = vec![Vec::new(); rules.partitions as usize];
    for (chunk, file) in (0..).zip(files) {
        for (partition, samples) in &file.parts {
            let rows = &mut partitions[*partition as usize];
            for (index, meta) in (0..).zip(samples) {
                let SampleMeta { row, turn, hash, key, tokens, first_trained } = *meta;
                let id = RowId { source: file.place.0, file: file.place.1, row };
                let sample = SampleRef { chunk, index, turn, tokens, first_trained };
                match rows.iter_mut().find(|row| row.id == id) {
                    Some(row) => row.samples.push(sample),
                    None => rows.push(Plain { id, hash, key, tokens: 0, samples: vec![sample], times: 1 }),
                }
            }
        }
    }
    partitions.iter_mut().for_each(|rows| rows.sort_by_key(|row| row.id));
    partitions
}

/// Rows that are in the running by themselves.
fn fitting(rules: &Rules, rows: Vec<Plain>, excluded: &BTreeSet<u128>, out: &mut Expected) -> Vec<Plain> {
    let packer = Packer::new(rules.pack.clone());
    let mut kept = Vec::new();
    for mut row in rows {
        let counts = &mut out.counts[row.id.source as usize];
        if excluded.contains(&row.key) {
            counts.other_phase.0 += 1;
            counts.other_phase.1 += row.samples.len() as u64;
            continue;
        }
        let all: u64 = row.samples.iter().map(|sample| u64::from(sample.tokens)).sum();
        row.samples.retain(|sample| match packer.fit(sample.tokens, sample.first_trained) {
            Fit::Overlong => {
                counts.overlong.1 += 1;
                counts.overlong.2 += u64::from(sample.tokens);
                false
            }
            Fit::Truncated(length) => {
                counts.truncated_tokens += u64::from(sample.tokens - length);
                true
            }
            _ => true,
        });
        if row.samples.is_empty() {
            counts.overlong.0 += 1;
            out.overlong.push((row.id, all));
            continue;
        }
        let kept_tokens =
            row.samples.iter().map(|sample| packer.kept_tokens(sample.tokens, sample.first_trained));
        row.tokens = kept_tokens.map(u64::from).sum();
        kept.push(row);
    }
    kept
}

fn candidate(rules: &Rules, row: &Plain) -> Candidate {
    Candidate { hash: row.hash, id: row.id, tokens: row.tokens, once: rules.is_held_out(row.key) }
}

fn caps(rules: &Rules, partitions: &[Vec<Plain>]) -> Option<Vec<Vec<Cap>>> {
    let mut total = None;
    let weighted = rules.sources.iter().any(|source| source.weight_ppm.is_some());
    if weighted && (rules.max_tokens.is_none() || rules.trial) {
        let mut supply = vec![0u64; rules.sources.len()];
        for rows in partitions {
            let mut seen = HashSet::new();
            for row in rows.iter().filter(|row| rules.exact == Exact::None || seen.insert(row.key)) {
                let source = row.id.source as usize;
                let repeats = rules.sources[source].repeats.unwrap_or(1);
                supply[source] += row.tokens * if rules.is_held_out(row.key) { 1 } else { repeats };
            }
        }
        let weights: Vec<_> =
            rules.sources.iter().zip(supply).filter_map(|(s, there)| Some((s.weight_ppm?, there))).collect();
        if weights.iter().any(|(_, there)| *there == 0) {
            return None;
        }
        let most = largest_total(weights.into_iter()).unwrap();
        total = Some(rules.max_tokens.map_or(most, |stated| most.min(stated)));
    }
    let stated = rules.max_tokens.filter(|_| !rules.trial);
    let caps = rules.sources.iter().map(|source| {
        let weight = source.weight_ppm.and_then(|weight| Some(share(total.or(stated)?, weight)));
        let tokens = [source.max_tokens, weight].into_iter().flatten().map(|cap| Cap::Tokens(cap.max(1)));
        source.max_rows.map(Cap::Rows).into_iter().chain(tokens).collect()
    });
    Some(caps.collect())
}

/// How far sorted rows are taken, one by one.
fn reach(rows: &[Candidate], caps: &[Cap], repeats: u32) -> Reach {
    if caps.is_empty() {
        return Reach::Every { times: 1, missing: None };
    }
    let (mut count, mut tokens) = (0u64, 0u64);
    for passes in 0..repeats.max(1) {
        for row in rows.iter().filter(|row| passes == 0 || !row.once) {
            count += 1;
            tokens += row.tokens;
            let met = caps.iter().any(|cap| match *cap {
                Cap::Rows(cap) => count >= cap,
                Cap::Tokens(cap) => tokens >= cap,
            });
            if met {
                return Reach::Upto { passes, last: (row.hash, row.id) };
            }
        }
    }
    let missing = caps.iter().map(|cap| match *cap {
        Cap::Rows(asked) => Missing { asked, there: count },
        Cap::Tokens(asked) => Missing { asked, there: tokens },
    });
    Reach::Every { times: repeats.max(1), missing: missing.min_by_key(Missing::factor_ppm) }
}

fn settle_source(rules: &Rules, source: usize, caps: &[Cap], state: (&mut [Vec<Plain>], &mut Expected)) {
    let (partitions, out) = state;
    let taken: HashSet<u128> = partitions
        .iter()
        .flatten()
        .filter(|row| (row.id.source as usize) < source && row.times > 0)
        .map(|row| row.key)
        .collect();
    let mut seen = HashSet::new();
    let counts = &mut out.counts[source];
    let own = |row: &&mut Plain| row.id.source as usize == source;
    for row in partitions.iter_mut().flatten().filter(own) {
        let first = rules.exact == Exact::None || (!taken.contains(&row.key) && seen.insert(row.key));
        row.times = u32::from(first);
        if !first {
            counts.duplicates.0 += 1;
            counts.duplicates.1 += row.samples.len() as u64;
        }
    }
    let rule = &rules.sources[source];
    let repeats = rule.repeats.filter(|_| rule.whole).unwrap_or(1) as u32;
    let running = partitions.iter().flatten().filter(|row| row.id.source as usize == source && row.times > 0);
    let mut running: Vec<Candidate> = running.map(|row| candidate(rules, row)).collect();
    running.sort_unstable();
    let reach = reach(&running, caps, repeats);
    if let Reach::Every { missing: Some(missing), .. } = reach {
        out.short.push((source, missing));
    }
    for row in partitions.iter_mut().flatten().filter(own).filter(|row| row.times > 0) {
        row.times = reach.times(&candidate(rules, row));
        let samples = row.samples.len() as u64;
        if row.times > 0 {
            counts.kept_rows += 1;
            counts.repeated.0 += u64::from(row.times - 1);
            counts.repeated.1 += u64::from(row.times - 1) * samples;
        } else {
            counts.capped.0 += 1;
            counts.capped.1 += samples;
        }
    }
}

/// Takes near duplicates out: of equal rows the first is compared, the others share its fate.
fn drop_near(rules: &Rules, partitions: &mut [Vec<Plain>], out: &mut Expected) {
    let mut firsts: BTreeMap<u128, RowId> = BTreeMap::new();
    let mut rows: Vec<(RowId, u128)> = partitions.iter().flatten().map(|row| (row.id, row.key)).collect();
    rows.sort_unstable();
    rows.iter().for_each(|(id, key)| _ = firsts.entry(*key).or_insert(*id));
    let mut winners: BTreeMap<u64, RowId> = BTreeMap::new();
    for (id, key) in rows.iter().filter(|(id, key)| firsts[key] == *id) {
        bands(*key).first().map(|band| winners.entry(*band).or_insert(*id));
    }
    let lost_to = |key: u128| bands(key).first().map(|band| winners[band]).filter(|to| *to != firsts[&key]);
    let mut sources: BTreeMap<u128, Vec<u32>> = BTreeMap::new();
    for rows in partitions {
        rows.retain(|row| {
            let Some(to) = lost_to(row.key) else { return true };
            let before = sources.entry(row.key).or_default();
            let settled =
                |source: &u32| *source == row.id.source || !rules.sources[*source as usize].may_be_capped();
            let counts = &mut out.counts[row.id.source as usize];
            let place = if before.iter().any(settled) { &mut counts.duplicates } else { &mut counts.near };
            place.0 += 1;
            place.1 += row.samples.len() as u64;
            if !before.iter().any(settled) {
                out.near.push((row.id, to));
            }
            before.push(row.id.source);
            false
        });
    }
    out.near.sort_unstable();
}

/// Selects in memory; `None` if a weight asks for what is not there.
fn in_memory(rules: &Rules, files: &[Made], excluded: &BTreeSet<u128>) -> Option<Expected> {
    let mut out =
        Expected { counts: vec![SelectCounts::default(); rules.sources.len()], ..Expected::default() };
    let mut partitions = Vec::new();
    for rows in gather(rules, files) {
        partitions.push(fitting(rules, rows, excluded, &mut out));
    }
    out.overlong.sort_unstable();
    if rules.near {
        drop_near(rules, &mut partitions, &mut out);
    }
    for (source, caps) in caps(rules, &partitions)?.iter().enumerate() {
        settle_source(rules, source, caps, (&mut partitions, &mut out));
    }
    for rows in partitions {
        let kept = rows.into_iter().filter(|row| row.times > 0);
        let kept = kept.map(|row| {
            out.keys.push(row.key);
            let held_out = rules.is_held_out(row.key);
            SelectedRow { id: row.id, held_out, samples: row.samples, times: row.times }
        });
        out.partitions.push(kept.collect());
    }
    out.keys.sort_unstable();
    Some(out)
}

fn tiny() -> Limits {
    Limits { spill_bytes: 150, sort_records: 3, bucket_bits: 0 }
}

/// Writes excluded keys as a selection does.
fn keys_file(folder: &Path, keys: &BTreeSet<u128>) -> std::path::PathBuf {
    let path = folder.join("excluded");
    let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    crate::shard::write_atomic(&path, &bytes).unwrap();
    path
}

fn read_back(rules: &Rules, folder: &Path) -> Expected {
    let selection = Selection::open(folder).unwrap();
    let keys = std::fs::read(selection.keys()).unwrap();
    Expected {
        partitions: (0..rules.partitions).map(|number| selection.partition(number).unwrap()).collect(),
        counts: selection.summary.counts.clone(),
        overlong: selection.overlong().unwrap().collect::<Result<_, _>>().unwrap(),
        near: selection.near().unwrap().collect::<Result<_, _>>().unwrap(),
        short: selection.summary.short.clone(),
        keys: keys.as_chunks::<16>().0.iter().map(|key| u128::from_le_bytes(*key)).collect(),
    }
}

fn select_into(
    rules: &Rules,
    files: &[Made],
    (folder, excluded): (&Path, &BTreeSet<u128>),
    limits: Limits,
) -> Option<Selection> {
    let keys = keys_file(folder, excluded);
    let progress = Progress::default();
    let selecting = Selecting {
        rules,
        excluded: (!excluded.is_empty()).then_some(keys.as_path()),
        folder,
        keys: Keys::Kept,
        limits,
        progress: &progress,
    };
    match select(&selecting, files) {
        Ok(selection) => Some(selection),
        Err(RunError::Supply { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn on_disk(rules: &Rules, files: &[Made], excluded: &BTreeSet<u128>, limits: Limits) -> Option<Expected> {
    let folder = tempfile::tempdir().unwrap();
    let _selection = select_into(rules, files, (folder.path(), excluded), limits)?;
    Some(read_back(rules, folder.path()))
}

/// A selection of random rows in a folder, for tests of what reads it.
pub(in crate::run) fn selected(rules: &Rules, sketches: &[Vec<Sketch>], folder: &Path) -> Option<Selection> {
    select_into(rules, &files_of(rules, sketches), (folder, &BTreeSet::new()), tiny())
}

fn is_damaged<T>(read: &Result<T, RunError>) -> bool {
    matches!(read, Err(RunError::Staged { .. }))
}

/// A row before it has a place: key, hash, and tokens and first trained token of its samples.
pub(in crate::run) type Sketch = (u8, u64, Vec<(u32, u32)>);

pub(in crate::run) fn sketches() -> impl Strategy<Value = Vec<Vec<Sketch>>> {
    let sample = (1u32..60, prop_oneof![4 => 0u32..60, 1 => Just(u32::MAX)]);
    // Few hashes, so that they collide; a hash of few bits, so that one bucket has many rows.
    let hash = prop_oneof![0u64..40, any::<u64>().prop_map(|hash| hash >> 20)];
    let row = (0u8..40, hash, proptest::collection::vec(sample, 1..4));
    proptest::collection::vec(proptest::collection::vec(row, 0..12), 1..14)
}

fn source_rules() -> impl Strategy<Value = SourceRules> {
    let cap = || proptest::option::weighted(0.35, 1u64..40);
    let tokens = proptest::option::weighted(0.35, 1u64..900);
    let weight = proptest::option::weighted(0.3, 1u64..1_000_000);
    (cap(), tokens, weight, proptest::option::of(1u64..5), any::<bool>()).prop_map(
        |(max_rows, max_tokens, weight_ppm, repeats, whole)| SourceRules {
            name: "s".to_owned(),
            files: vec!["a".to_owned(), "b".to_owned()],
            max_rows,
            max_tokens,
            weight_ppm,
            repeats,
            whole,
        },
    )
}

fn pack_config() -> impl Strategy<Value = PackConfig> {
    let policy = prop_oneof![Just(Policy::Drop), Just(Policy::Truncate), Just(Policy::Split)];
    (policy, 0u32..2).prop_map(|(overlong, uncounted)| PackConfig {
        lengths: vec![16, 40],
        strategy: Packing::BestFit,
        overlong,
        uncounted,
    })
}

prop_compose! {
    pub(in crate::run) fn rules()(
        partitions in prop_oneof![Just(1u32), 2u32..20],
        (exact, near) in prop_oneof![
            3 => (Just(Exact::Conversation), any::<bool>()),
            1 => (Just(Exact::None), Just(false)),
        ],
        validation_ppm in prop_oneof![Just(0u64), Just(300_000)],
        pack in pack_config(),
        max_tokens in proptest::option::of(1u64..2000),
        trial in any::<bool>(),
        mut sources in proptest::collection::vec(source_rules(), 1..5),
    ) -> Rules {
        for (index, source) in sources.iter_mut().enumerate() {
            source.name = format!("s{index}");
        }
        Rules { partitions, seed: 7, exact, near, validation_ppm, pack, max_tokens, trial, sources }
    }
}

/// Staged files of the rows: two files a source, several staged ones a file, in any order.
fn files_of(rules: &Rules, sketches: &[Vec<Sketch>]) -> Vec<Made> {
    let mut files = Vec::new();
    for (number, rows) in (0u32..).zip(sketches) {
        let place = (number % rules.sources.len() as u32, number / 3 % 2);
        let mut parts: Vec<(u32, Vec<SampleMeta>)> = Vec::new();
        for (at, (key, hash, samples)) in (0u64..).zip(rows) {
            let key = u128::from(*key) << 70;
            let partition = partition_of(key, rules.seed, rules.partitions);
            let row = u64::from(number) * 1000 + at * 3;
            let metas = (0..).zip(samples).map(|(turn, &(tokens, first_trained))| SampleMeta {
                row,
                turn,
                hash: *hash,
                key,
                tokens,
                first_trained,
            });
            match parts.iter_mut().find(|(other, _)| *other == partition) {
                Some((_, all)) => all.extend(metas),
                None => parts.push((partition, metas.collect())),
            }
        }
        parts.sort_by_key(|(partition, _)| *partition);
        files.push(Made { place, parts });
    }
    files.reverse();
    files
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn selects_what_the_reference_selects(
        rules in rules(),
        sketches in sketches(),
        excluded in proptest::collection::btree_set(0u8..40, 0..6),
        bucket_bits in 0u32..4,
    ) {
        let files = files_of(&rules, &sketches);
        let excluded = excluded.into_iter().map(|key| u128::from(key) << 70).collect();
        let expected = in_memory(&rules, &files, &excluded);
        let limits = Limits { bucket_bits, ..tiny() };
        prop_assert_eq!(&on_disk(&rules, &files, &excluded, limits), &expected);
        prop_assert_eq!(&on_disk(&rules, &files, &excluded, Limits::default()), &expected);
    }

    #[test]
    fn a_file_of_a_selection_that_was_changed_is_never_read_as_another(
        rules in rules(),
        sketches in sketches(),
        (at, bit) in (any::<prop::sample::Index>(), 0u32..8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let Some(selection) = selected(&rules, &sketches, folder.path()) else { return Ok(()) };
        for (number, _) in (0..).zip(&selection.summary.times).filter(|(_, times)| **times > 0) {
            let path = Selection::partition_path(folder.path(), number);
            let mut bytes = std::fs::read(&path).unwrap();
            let whole = bytes.clone();
            bytes[at.index(whole.len())] ^= 1 << bit;
            crate::shard::write_atomic(&path, &bytes).unwrap();
            prop_assert!(is_damaged(&selection.partition(number)));
            crate::shard::write_atomic(&path, &whole[..at.index(whole.len())]).unwrap();
            prop_assert!(is_damaged(&selection.partition(number)));
        }
        let path = Selection::overlong_path(folder.path());
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        crate::shard::write_atomic(&path, &bytes).unwrap();
        let read = selection.overlong().and_then(|rows| rows.collect::<Result<Vec<_>, _>>());
        prop_assert!(is_damaged(&read));
    }
}
