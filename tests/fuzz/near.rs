//! Near duplicates among many made-up rows: time, and with `/usr/bin/time -v` memory.
//!
//!     cargo run --release --example near -- ROWS [FOLDER]
//!
//! A row in five shares a band with one before it. Prints how many rows were lost, which must be the
//! number of those.
#![expect(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::path::PathBuf;
use std::time::Instant;

use potable::dedup::{DedupError, NearDuplicates, NearRows, RowNumbers};
use potable::source::RowId;
use rayon::prelude::*;

const BANDS: u64 = 17;
const FILE_ROWS: u64 = 1 << 20;
const MEMORY: usize = 256 << 20;

/// SplitMix64.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

fn main() -> Result<(), DedupError> {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let files: Vec<(u32, u64)> = (0..rows.div_ceil(FILE_ROWS))
        .map(|file| (file as u32, FILE_ROWS.min(rows - file * FILE_ROWS)))
        .collect();
    let began = Instant::now();
    let marked = NearRows::new(RowNumbers::new(files.iter().map(|(file, rows)| (0, *file, *rows))));
    let id = |file: u32, row: u64| RowId { source: 0, file, row };
    files
        .par_iter()
        .try_for_each(|(file, rows)| (0..*rows).try_for_each(|row| marked.mark(id(*file, row))))?;
    let near = NearDuplicates::new(marked, &folder)?;
    files.par_iter().try_for_each(|(file, rows)| {
        let mut adder = near.adder();
        for row in 0..*rows {
            let number = u64::from(*file) * FILE_ROWS + row;
            let mut bands: Vec<u64> = (0..BANDS).map(|band| mix(number * BANDS + band + 1)).collect();
            if number % 5 == 4 {
                // A band of one of the four rows before it.
                let band = mix(number) % BANDS;
                let other = number - 1 - mix(number + 1) % 4;
                bands[band as usize] = mix(other * BANDS + band + 1);
            }
            adder.add(id(*file, row), &bands)?;
        }
        adder.finish()
    })?;
    let added = began.elapsed();
    let lost = near.settle(MEMORY)?;
    println!(
        "{rows} rows, {BANDS} bands each: added in {:.1} s, settled in {:.1} s, {} lost of {} expected",
        added.as_secs_f64(),
        (began.elapsed() - added).as_secs_f64(),
        lost.len(),
        rows / 5
    );
    Ok(())
}
