use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Bands by row number, over two files of one source and one of another.
type Bands = Vec<Vec<u64>>;

fn numbers(rows: usize) -> RowNumbers {
    let rows = rows as u64;
    RowNumbers::new([(0, 0, rows / 3), (0, 1, rows / 3), (1, 0, rows)])
}

fn settled(bands: &Bands, order: &[usize], threads: usize, memory: usize) -> Lost {
    let folder = tempfile::tempdir().unwrap();
    let rows = NearRows::new(numbers(bands.len()));
    order.iter().for_each(|row| rows.mark(rows.numbers.id(*row as u64)).unwrap());
    let near = NearDuplicates::new(rows, folder.path()).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        order.par_chunks(7).for_each(|rows| {
            let mut adder = near.adder();
            for row in rows {
                adder.add(near.places.numbers.id(*row as u64), &bands[*row]).unwrap();
            }
            adder.finish().unwrap();
        });
        near.settle(memory).unwrap()
    })
}

/// The same by comparing every row with every other, until nothing changes.
fn reference(bands: &Bands) -> BTreeMap<usize, usize> {
    let sets: Vec<BTreeSet<u64>> = bands.iter().map(|bands| bands.iter().copied().collect()).collect();
    let mut first: Vec<usize> = (0..bands.len()).collect();
    loop {
        let before = first.clone();
        for a in 0..bands.len() {
            for b in 0..bands.len() {
                if !sets[a].is_disjoint(&sets[b]) {
                    let low = first[a].min(first[b]);
                    (first[a], first[b]) = (low, low);
                }
            }
        }
        if first == before {
            return first.into_iter().enumerate().filter(|(row, first)| row != first).collect();
        }
    }
}

fn as_map(lost: &Lost, rows: usize) -> BTreeMap<usize, usize> {
    let numbers = numbers(rows);
    let number = |id| numbers.number(id).unwrap() as usize;
    lost.iter().map(|(row, first)| (number(row), number(first))).collect()
}

fn table() -> impl Strategy<Value = Bands> {
    // Few values, so that chains of rows come about; rows without bands among them.
    prop::collection::vec(prop::collection::vec(0u64..90, 0..3), 1..120)
        .prop_map(|rows| rows.into_iter().map(|row| row.into_iter().map(|n| n << 58 | n).collect()).collect())
}

proptest! {
    #[test]
    fn clusters_are_those_of_comparing_all_rows(bands in table()) {
        let order: Vec<usize> = (0..bands.len()).collect();
        let lost = settled(&bands, &order, 2, 1 << 20);
        let expected = reference(&bands);
        prop_assert_eq!(as_map(&lost, bands.len()), expected.clone());
        prop_assert_eq!(lost.len() as usize, expected.len());
        prop_assert_eq!(lost.is_empty(), expected.is_empty());
        let numbers = numbers(bands.len());
        for row in 0..bands.len() {
            let to = lost.to(numbers.id(row as u64)).map(|to| numbers.number(to).unwrap() as usize);
            prop_assert_eq!(to, expected.get(&row).copied());
        }
        let ids: Vec<RowId> = lost.iter().map(|(row, _)| row).collect();
        prop_assert!(ids.is_sorted());
    }

    #[test]
    fn neither_order_nor_threads_nor_memory_change_anything(
        bands in table(),
        shuffle in any::<u64>(),
        threads in 1usize..5,
        memory in 64usize..4096,
    ) {
        let mut order: Vec<usize> = (0..bands.len()).collect();
        let plain = as_map(&settled(&bands, &order, 1, 1 << 20), bands.len());
        order.sort_by_key(|row| xxhash_rust::xxh3::xxh3_64_with_seed(&row.to_le_bytes(), shuffle));
        prop_assert_eq!(as_map(&settled(&bands, &order, threads, memory), bands.len()), plain);
    }
}

#[test]
fn many_rows_of_one_band_are_one_cluster_in_little_memory() {
    let bands: Bands = (0..5000).map(|row| vec![42, 1000 + row]).collect();
    let order: Vec<usize> = (0..bands.len()).rev().collect();
    let lost = settled(&bands, &order, 4, 4096);
    assert_eq!(lost.len(), 4999);
    assert!(as_map(&lost, bands.len()).values().all(|first| *first == 0));
}

#[test]
fn rows_that_are_not_marked_are_never_lost_and_never_win() {
    let folder = tempfile::tempdir().unwrap();
    let rows = NearRows::new(numbers(300));
    [5, 200].into_iter().for_each(|row| rows.mark(rows.numbers.id(row)).unwrap());
    let near = NearDuplicates::new(rows, folder.path()).unwrap();
    let mut adder = near.adder();
    for row in [1, 5, 200, 299] {
        adder.add(near.places.numbers.id(row), &[9]).unwrap();
    }
    adder.finish().unwrap();
    let lost = near.settle(1 << 20).unwrap();
    let numbers = numbers(300);
    assert_eq!(lost.to(numbers.id(200)), Some(numbers.id(5)));
    assert_eq!((0..300).filter(|row| lost.to(numbers.id(*row)).is_some()).count(), 1);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let rows = NearRows::new(numbers(9));
    rows.mark(rows.numbers.id(0)).unwrap();
    let near = NearDuplicates::new(rows, Path::new("/nowhere/at/all")).unwrap();
    let mut adder = near.adder();
    adder.add(near.places.numbers.id(0), &[1]).unwrap();
    let error = adder.finish().unwrap_err();
    assert_eq!(error.to_string(), "cannot sort bands in `/nowhere/at/all`");
}
