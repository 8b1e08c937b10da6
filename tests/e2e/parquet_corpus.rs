//! Every Parquet file of ../shared/data/corpora/parquet, where that folder is there: the rows that
//! pyarrow counts, or a clear error. With `POTABLE_DUMP=DIR` the rows are written there as JSON lines,
//! for `scripts/parquet_equal.py` to compare with pyarrow's values.
#![expect(clippy::print_stdout, reason = "a skipped test says so, and the table is for people")]
#![expect(clippy::disallowed_methods, reason = "dumps rows for another program")]

use std::path::{Path, PathBuf};

use potable::source::python_json::to_python_json;
use potable::source::reader::{Range, ReadRequest, Sampler, open_reader};
use potable::source::{Cell, Format, Location, SourceError, SourceFile};

fn parquet_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            parquet_files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "parquet" || ext == "parq") {
            found.push(path);
        }
    }
    found.sort();
}

/// Rows whose values are looked at, unless they are dumped; the others are counted.
const LOOK_AT: usize = 500;

fn read_all(path: &Path, look_at: usize) -> Result<Vec<String>, SourceError> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let file = SourceFile::new(name, Location::Path(path.to_path_buf()), Some(Format::Parquet))?;
    let request = ReadRequest {
        range: Range::default(),
        columns: Vec::new(),
        optional: Vec::new(),
        sampler: Sampler::all(0),
        chunk_bytes: 1 << 20,
    };
    let mut reader = open_reader(&file, "corpus", &request)?;
    let mut rows = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        for index in 0..chunk.batch.len() {
            if rows.len() >= look_at {
                rows.push(String::new());
                continue;
            }
            let columns = chunk.batch.present(index);
            let cells = chunk.batch.decode(index, &columns);
            let cells =
                cells.map_err(|reason| SourceError::BadRow { place: file.place(index as u64), reason })?;
            rows.push(to_python_json(&Cell::Struct(columns.into_iter().zip(cells).collect())));
        }
    }
    Ok(rows)
}

#[test]
fn every_parquet_file_gives_the_rows_that_pyarrow_counts_or_a_clear_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/corpora/parquet");
    if !root.exists() {
        println!("skipped: {} is not there", root.display());
        return;
    }
    let verdicts = std::fs::read_to_string(root.join("pyarrow_verdicts.json")).unwrap();
    let verdicts: serde_json::Value = serde_json::from_str(&verdicts).unwrap();
    let dump = std::env::var_os("POTABLE_DUMP").map(PathBuf::from);
    let mut files = Vec::new();
    parquet_files(&root, &mut files);
    let (mut read, mut refused, mut wrong) = (0, Vec::new(), Vec::new());
    for path in &files {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let expected = verdicts[&name]["rows"].as_u64();
        match read_all(path, if dump.is_some() { usize::MAX } else { LOOK_AT }) {
            Ok(rows) => {
                read += 1;
                if expected.is_some_and(|expected| expected != rows.len() as u64) {
                    wrong.push(format!("{name}: {} rows, pyarrow {expected:?}", rows.len()));
                }
                if let Some(dump) = &dump {
                    std::fs::write(dump.join(name.replace('/', "__")), rows.join("\n")).unwrap();
                }
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(".parq"), "{name}: the error names no place: {text}");
                refused.push((name, expected, text));
            }
        }
    }
    println!("{} files: {read} read, {} refused", files.len(), refused.len());
    for (name, expected, text) in &refused {
        let text = text.rsplit(": cannot ").next().unwrap_or(text);
        println!("  {name} (pyarrow {expected:?}): {text}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let unexplained: Vec<_> = refused
        .iter()
        .filter(|(name, expected, _)| expected.is_some() && !REFUSED.iter().any(|r| name.contains(r)))
        .collect();
    assert!(unexplained.is_empty(), "pyarrow reads these and potable does not: {unexplained:#?}");
}

/// Files that pyarrow reads and potable refuses, each with a clear error: corrupt pages and footers
/// of a corpus of bad data, footers with types of their own, and repeated fields without annotation,
/// of which pyarrow itself gives fewer rows than the footer promises.
const REFUSED: [&str; 10] = [
    "fastparquet/test-data/dir_metadata/empty.parquet",
    "fastparquet/test-data/empty.parquet",
    "nation.dict",
    "no_columns_new.parquet",
    "non-std-kvm.fp-0.8.2",
    "repeated_no_annotation.parquet",
    "hyparquet/test/files/strings.parquet",
    "bad_data/ARROW-GH-",
    "bad_data/ARROW-RS-GH-6229-",
    "dict-page-offset-zero.parquet",
];
