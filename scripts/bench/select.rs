//! Select and layout over made-up metadata: staged files as map writes them, without their tokens.
//!
//! ```text
//! cargo run --release --example select_scale -- make FOLDER ROWS [PARTITIONS]
//! cargo run --release --example select_scale -- select FOLDER [THREADS] [consume]
//! cargo run --release --example select_scale -- layout FOLDER [THREADS]
//! ```
//!
//! Six sources with caps on rows, caps on tokens, a weight of a stated total, repeats, and none at all;
//! one row in 20 is a copy of another one of any source, one in ten has two samples. With PARTITIONS left
//! out there are as many as plan makes of rows of 3000 bytes. `consume` removes each staged file when it
//! has been read, so that less disk is needed.
#![expect(clippy::unwrap_used, reason = "a run that cannot go on ends")]
#![expect(clippy::indexing_slicing, reason = "a run that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "its figures are its output")]
#![expect(clippy::disallowed_methods, reason = "writes plain files, and takes the time")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::FileWriter;
use potable::recipe::file::{Exact, Overlong, Strategy};
use potable::recipe::resolve::{DEFAULT_PARTITION_BYTES, PackConfig};
use potable::run::RunError;
use potable::run::layout::Layout;
use potable::run::progress::Progress;
use potable::run::rows::partition_of;
use potable::run::select::{
    Keys, Limits, Metadata, Rules, Selecting, Selection, SourceRules, select as run_select,
};
use potable::run::staged::{ChunkLedger, SampleMeta, Staged, VisitBands, VisitSamples};
use rayon::prelude::*;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

const SOURCES: u64 = 6;
const ROWS_A_FILE: u64 = 1 << 20;
const ROW_BYTES: u64 = 3000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok());
    let threads = |at: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(number(at).unwrap_or(2) as usize);
        pool.build_global().unwrap();
    };
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["make", folder, _, ..] => make(Path::new(folder), number(2).unwrap(), number(3)),
        ["select", folder, rest @ ..] => {
            threads(2);
            select(Path::new(folder), rest.contains(&"consume"));
        }
        ["layout", folder, ..] => {
            threads(2);
            layout(Path::new(folder));
        }
        _ => println!("usage: select_scale make FOLDER ROWS [PARTITIONS] | select FOLDER | layout FOLDER"),
    }
}

fn mix(number: u64, salt: u64) -> u64 {
    xxh3_64_with_seed(&number.to_le_bytes(), salt)
}

/// The row with this number of all rows: its samples, which differ in turn and tokens.
fn samples(number: u64, rows: u64) -> impl Iterator<Item = SampleMeta> {
    let copied = mix(number, 1).is_multiple_of(20);
    let content = if copied { mix(number, 2) % rows } else { number };
    let turns = if mix(number, 3).is_multiple_of(10) { 2 } else { 1 };
    (0..turns).map(move |turn| {
        // Exponential with a mean of 900 tokens, a thousand times that at most.
        let share = (mix(content, 4 + u64::from(turn)) >> 11) as f64 / (1u64 << 53) as f64;
        let tokens = 20 + (-900.0 * (1.0 - share).ln()) as u32;
        SampleMeta {
            row: number % ROWS_A_FILE,
            turn,
            hash: mix(number, 9),
            key: xxh3_128(&content.to_le_bytes()),
            tokens,
            first_trained: 10,
        }
    })
}

fn make(folder: &Path, rows: u64, partitions: Option<u64>) {
    std::fs::create_dir_all(folder).unwrap();
    let partitions = partitions.unwrap_or((rows * ROW_BYTES).div_ceil(DEFAULT_PARTITION_BYTES)).max(1) as u32;
    std::fs::write(folder.join("partitions"), partitions.to_string()).unwrap();
    std::fs::write(folder.join("rows"), rows.to_string()).unwrap();
    let files = rows.div_ceil(ROWS_A_FILE);
    (0..files).into_par_iter().for_each(|file| {
        let mut parts: BTreeMap<u32, Vec<SampleMeta>> = BTreeMap::new();
        for number in file * ROWS_A_FILE..rows.min((file + 1) * ROWS_A_FILE) {
            for sample in samples(number, rows) {
                let partition = partition_of(sample.key, 0, partitions);
                parts.entry(partition).or_default().push(sample);
            }
        }
        // Files of a source are neighbours.
        let source = file * SOURCES / files;
        let first = (source * files).div_ceil(SOURCES);
        let ledger = ChunkLedger {
            source: source as u32,
            file: (file - first) as u32,
            partitions: parts.keys().copied().collect(),
            ..ChunkLedger::default()
        };
        write_staged(&folder.join(format!("{file:06}.arrow")), &ledger, &parts);
    });
    println!("{rows} rows in {files} files, {partitions} partitions");
}

/// A staged file as map writes it, without the columns of tokens.
fn write_staged(path: &Path, ledger: &ChunkLedger, parts: &BTreeMap<u32, Vec<SampleMeta>>) {
    let names = ["row", "turn", "hash", "key_high", "key_low", "tokens", "first_trained"];
    let wide = [true, false, true, true, true, false, false];
    let data_type = |wide| if wide { DataType::UInt64 } else { DataType::UInt32 };
    let fields = names.iter().zip(wide).map(|(name, wide)| Field::new(*name, data_type(wide), false));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut writer = FileWriter::try_new(BufWriter::new(File::create(path).unwrap()), &schema).unwrap();
    for samples in parts.values() {
        let wide = |f: fn(&SampleMeta) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(samples.iter().map(f)))
        };
        let small = |f: fn(&SampleMeta) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(samples.iter().map(f)))
        };
        let columns = vec![
            wide(|s| s.row),
            small(|s| s.turn),
            wide(|s| s.hash),
            wide(|s| (s.key >> 64) as u64),
            wide(|s| s.key as u64),
            small(|s| s.tokens),
            small(|s| s.first_trained),
        ];
        writer.write(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
    }
    writer.write_metadata("ledger", serde_json::to_string(ledger).unwrap());
    writer.finish().unwrap();
}

fn read(folder: &Path, name: &str) -> u64 {
    std::fs::read_to_string(folder.join(name)).unwrap().parse().unwrap()
}

fn rules(folder: &Path) -> Rules {
    let partitions = read(folder, "partitions") as u32;
    let files = (0..100_000).map(|file| format!("train-{file:05}-of-100000.parquet"));
    let files: Vec<String> = files.take(1000).collect();
    let source = |number: u64| SourceRules {
        name: format!("source-{number}"),
        files: files.clone(),
        whole: true,
        ..SourceRules::default()
    };
    let mut sources: Vec<SourceRules> = (0..SOURCES).map(source).collect();
    // A source has about this many rows; what caps ask for is a share of it.
    let rows: u64 = read(folder, "rows") / SOURCES;
    sources[1].max_rows = Some(rows * 9 / 10);
    sources[2].max_tokens = Some(rows * 700);
    sources[3].weight_ppm = Some(300_000);
    sources[3].repeats = Some(4);
    sources[4].max_rows = Some(rows * 95 / 100);
    Rules {
        partitions,
        seed: 0,
        exact: Exact::Conversation,
        near: false,
        validation_ppm: 5_000,
        pack: PackConfig {
            lengths: vec![8192],
            strategy: Strategy::BestFit,
            overlong: Overlong::Drop,
            uncounted: 0,
        },
        max_tokens: Some(rows * 900 * 2 * 10 / 3),
        trial: false,
        sources,
    }
}

fn staged(folder: &Path) -> Vec<Staged> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        names.filter(|path| path.extension().is_some_and(|ext| ext == "arrow")).collect();
    paths.sort();
    paths.iter().map(|path| Staged::open(path).unwrap()).collect()
}

/// A staged file that is removed when it has been read.
struct Consumed(Staged);

impl Metadata for Consumed {
    fn place(&self) -> (u32, u32) {
        self.0.place()
    }

    fn each(&self, visit: &mut VisitSamples) -> Result<(), RunError> {
        self.0.each(visit)?;
        std::fs::remove_file(&self.0.path).unwrap();
        Ok(())
    }

    fn next_row(&self) -> u64 {
        self.0.next_row()
    }

    fn each_bands(&self, visit: &mut VisitBands) -> Result<(), RunError> {
        self.0.each_bands(visit)
    }
}

fn select(folder: &Path, consume: bool) {
    let rules = rules(folder);
    let progress = Progress::default();
    let out = folder.join("select");
    let selecting = Selecting {
        rules: &rules,
        excluded: None,
        folder: &out,
        keys: Keys::Forgotten,
        limits: Limits::default(),
        progress: &progress,
    };
    let files = staged(folder);
    let bytes: u64 = files.iter().map(|file| file.path.metadata().unwrap().len()).sum();
    let start = Instant::now();
    let selection = if consume {
        run_select(&selecting, &files.into_iter().map(Consumed).collect::<Vec<_>>()).unwrap()
    } else {
        run_select(&selecting, &files).unwrap()
    };
    println!("selected in {:.1} s from {bytes} bytes of staged files", start.elapsed().as_secs_f64());
    for (rule, counts) in rules.sources.iter().zip(&selection.summary.counts) {
        println!("{}: {counts:?}", rule.name);
    }
    println!("short: {:?}", selection.summary.short);
    let sizes = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    println!("{} bytes in {} files of the selection", sizes.sum::<u64>(), selection.names().len());
}

fn layout(folder: &Path) {
    let rules = rules(folder);
    let selection = Selection::open(&folder.join("select")).unwrap();
    let layout = Layout::new(&rules, &selection);
    let (packs, samples, tokens) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    (0..Layout::count(rules.partitions)).into_par_iter().for_each(|number| {
        for pack in layout.partition(number).unwrap().iter().flat_map(|class| &class.packs) {
            packs.fetch_add(1, Relaxed);
            samples.fetch_add(pack.len() as u64, Relaxed);
            tokens.fetch_add(pack.iter().map(|piece| u64::from(piece.to - piece.from)).sum(), Relaxed);
        }
    });
    let (packs, samples, tokens) = (packs.into_inner(), samples.into_inner(), tokens.into_inner());
    println!(
        "laid out in {:.1} s: {packs} packs, {samples} samples, {tokens} tokens, fill {:.4}",
        start.elapsed().as_secs_f64(),
        tokens as f64 / (packs * 8192) as f64
    );
}
