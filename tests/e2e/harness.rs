//! A temp folder a test, the real binary in it, and what it wrote read back. The tokenizer of these
//! tests has one token a byte (tests/fixtures/bytes.tokenizer.json), so that lengths and texts can be
//! worked out by hand and a run starts in milliseconds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int32Type;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::prove::prove;

const TOKENIZER: &str = include_str!("../fixtures/bytes.tokenizer.json");
const CONTROLS: [&str; 5] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"];

/// One test's folder.
pub struct Case {
    folder: TempDir,
}

/// A run that has ended.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A row of a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Pack {
    pub ids: Vec<i32>,
    pub labels: Vec<i32>,
    pub lengths: Vec<i32>,
    pub names: Vec<String>,
}

/// A sample of a pack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    pub name: String,
    pub ids: Vec<i32>,
    pub labels: Vec<i32>,
}

/// A row of `dropped/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub row_id: String,
    pub stage: String,
    pub reason: String,
    pub evidence: String,
}

/// A sealed output folder.
pub struct DataSet {
    pub manifest: Value,
    /// Packs of each shard, by path.
    pub shards: BTreeMap<String, Vec<Pack>>,
    /// Bytes of each shard, by path.
    pub bytes: BTreeMap<String, Vec<u8>>,
    pub dropped: Vec<Dropped>,
}

impl Case {
    pub fn new() -> Case {
        let case = Case { folder: tempfile::tempdir().unwrap() };
        case.put("tokenizer.json", TOKENIZER);
        case
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, with the folders above it.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        put(&self.path(name), bytes.as_ref());
    }

    /// Writes recipe.toml: `body` with a name, no benchmark and the byte tokenizer where it says
    /// nothing of them.
    pub fn recipe(&self, body: &str) {
        let mut text = String::new();
        if !body.contains("name = \"t\"\n") {
            text += "name = \"t\"\n";
        }
        text += body;
        if !body.contains("[decontaminate]") {
            text += "\n[decontaminate]\nnone = true\n";
        }
        if !body.contains("[tokenise]") {
            text += "\n[tokenise]\ntokenizer = \"tokenizer.json\"\n";
        }
        self.put("recipe.toml", text);
    }

    /// `potable prep recipe.toml --out out`, not yet started.
    pub fn command(&self, out: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_potable"));
        command.current_dir(self.folder.path()).args(["prep", "recipe.toml", "--no-progress", "--out", out]);
        if !args.contains(&"--threads") {
            command.args(["--threads", "2"]);
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Any command in the case's folder; without progress, which is told by the clock.
    pub fn potable(&self, args: &[&str]) -> Ran {
        ran(Command::new(env!("CARGO_BIN_EXE_potable"))
            .current_dir(self.folder.path())
            .arg("--no-progress")
            .args(args)
            .stdin(Stdio::null()))
    }

    /// A run to its end; a data set that it leaves is verified and audited.
    pub fn run(&self, out: &str, args: &[&str]) -> Ran {
        let ran = ran(&mut self.command(out, args));
        if ran.code != 2 && self.path(out).join("manifest.json").exists() {
            prove(&self.path(out), &self.path("recipe.toml"));
        }
        ran
    }

    /// A run that must end well, and what it wrote.
    pub fn prep(&self, out: &str, args: &[&str]) -> DataSet {
        let ran = self.run(out, args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        self.data(out)
    }

    /// A run of several phases that must end well.
    pub fn prep_phase(&self, out: &str, args: &[&str]) {
        let ran = self.run(out, args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }

    /// Recipe and run in one go, into `out`.
    pub fn prepared(&self, recipe: &str) -> DataSet {
        self.recipe(recipe);
        self.prep("out", &[])
    }

    /// A run that must be refused: exit status 2, no manifest, and every one of `words` on stderr.
    pub fn refused(&self, words: &[&str]) -> String {
        let ran = self.run("out", &[]);
        ran.is_refusal(words);
        assert!(!self.path("out/manifest.json").exists(), "a manifest is left");
        ran.stderr
    }

    pub fn data(&self, out: &str) -> DataSet {
        DataSet::read(&self.path(out))
    }

    /// Names of all files below a folder, with what tells whether they were written again.
    pub fn stamps(&self, folder: &str) -> BTreeMap<PathBuf, (u64, std::time::SystemTime)> {
        use std::os::unix::fs::MetadataExt as _;
        let stamp = |path: PathBuf| {
            let meta = std::fs::metadata(&path).unwrap();
            (path, (meta.ino(), meta.modified().unwrap()))
        };
        files_below(&self.path(folder)).into_iter().map(stamp).collect()
    }
}

impl Ran {
    /// Asserts exit status 2, nothing on stdout, `error:` and `hint:`, and each of `words`.
    pub fn is_refusal(&self, words: &[&str]) {
        let stderr = &self.stderr;
        assert_eq!(self.code, 2, "{stderr}");
        assert_eq!(self.stdout, "");
        assert!(stderr.starts_with("error: "), "{stderr}");
        for word in words {
            assert!(stderr.contains(word), "`{word}` is not in:\n{stderr}");
        }
        assert!(stderr.contains("\nhint: "), "there is no hint in:\n{stderr}");
    }
}

impl DataSet {
    pub fn read(out: &Path) -> DataSet {
        let manifest: Value =
            serde_json::from_slice(&std::fs::read(out.join("manifest.json")).unwrap()).unwrap();
        let (mut shards, mut bytes) = (BTreeMap::new(), BTreeMap::new());
        for shard in manifest["shards"].as_array().unwrap() {
            let path = shard["path"].as_str().unwrap().to_owned();
            bytes.insert(path.clone(), std::fs::read(out.join(&path)).unwrap());
            shards.insert(path.clone(), read_packs(&out.join(&path)));
        }
        let on_disk = ["shards", "validation"].map(|name| files_below(&out.join(name)).len());
        assert_eq!(on_disk.iter().sum::<usize>(), shards.len(), "files that the manifest does not name");
        let dropped = files_below(&out.join("dropped")).iter().flat_map(|path| read_dropped(path)).collect();
        DataSet { manifest, shards, bytes, dropped }
    }

    pub fn digest(&self) -> &str {
        self.manifest["manifest_digest"].as_str().unwrap()
    }

    /// Packs in the order of shards.
    pub fn packs(&self) -> Vec<&Pack> {
        self.shards.values().flatten().collect()
    }

    /// Samples in the order in which they stand in the shards.
    pub fn samples(&self) -> Vec<Sample> {
        self.packs().into_iter().flat_map(Pack::samples).collect()
    }

    /// The texts of all samples, sorted.
    pub fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self.samples().iter().map(|s| text_of(&s.ids)).collect();
        texts.sort();
        texts
    }

    /// The token sequences of all samples, sorted.
    pub fn token_sequences(&self) -> Vec<Vec<i32>> {
        let mut ids: Vec<Vec<i32>> = self.samples().into_iter().map(|s| s.ids).collect();
        ids.sort();
        ids
    }

    /// Names of all samples, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.samples().into_iter().map(|s| s.name).collect();
        names.sort();
        names
    }

    /// A number of the manifest, by JSON pointer; 0 where there is none.
    pub fn number(&self, pointer: &str) -> u64 {
        self.manifest.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
    }
}

impl Pack {
    pub fn samples(&self) -> Vec<Sample> {
        let mut at = 0;
        let mut samples = Vec::new();
        for (name, &len) in self.names.iter().zip(&self.lengths) {
            let range = at..at + len as usize;
            samples.push(Sample {
                name: name.clone(),
                ids: self.ids[range.clone()].to_vec(),
                labels: self.labels[range].to_vec(),
            });
            at += len as usize;
        }
        assert_eq!(at, self.ids.len(), "seq_lengths do not add up");
        assert_eq!(self.names.len(), self.lengths.len());
        samples
    }
}

impl Sample {
    /// The text that is trained on.
    pub fn trained_text(&self) -> String {
        let trained: Vec<i32> = self.labels.iter().copied().filter(|id| *id != -100).collect();
        text_of(&trained)
    }
}

/// The text of ids of the byte tokenizer.
pub fn text_of(ids: &[i32]) -> String {
    let mut bytes = Vec::new();
    for &id in ids {
        match u8::try_from(id) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend_from_slice(CONTROLS[id as usize - 256].as_bytes()),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// What the defaults make of one question and one answer without reasoning.
pub fn rendered(user: &str, assistant: &str) -> String {
    format!(
        "<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n{assistant}<|im_end|>\n"
    )
}

/// A chat row.
pub fn chat(user: &str, assistant: &str) -> Value {
    json!({"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]})
}

/// Question and answer of row `n`: no two alike, lengths between a few and some two hundred bytes.
pub fn question(n: usize) -> (String, String) {
    let mut state = n as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 40
    };
    let mut words = |count: u64| -> String {
        (0..count).map(|_| format!(" {}", WORDS[next() as usize % WORDS.len()])).collect()
    };
    let long = 1 + (n as u64 * 7) % 19;
    (format!("Question {n}:{}?", words(3)), format!("Answer {n}:{}.", words(long)))
}

const WORDS: [&str; 16] = [
    "river", "stone", "seven", "to", "a", "window", "lantern", "green", "of", "mountain", "quiet", "is",
    "runs", "beneath", "paper", "élan",
];

/// `count` chat rows as JSONL, from row `first`.
pub fn chats_from(first: usize, count: usize) -> String {
    let rows = (first..first + count).map(question);
    lines(rows.map(|(user, assistant)| chat(&user, &assistant)))
}

pub fn chats(count: usize) -> String {
    chats_from(0, count)
}

/// JSON values as JSONL.
pub fn lines(rows: impl IntoIterator<Item = Value>) -> String {
    rows.into_iter().map(|row| row.to_string() + "\n").collect()
}

/// A table as a Parquet file.
pub fn parquet_bytes(batch: &RecordBatch, compression: Compression, group_rows: usize) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(group_rows))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

/// Runs a command to its end.
pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[expect(clippy::disallowed_methods, reason = "input files of tests need no atomic write")]
pub fn put(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Files below a folder, sorted; none if it is not there. What a run removes meanwhile is left out.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return files };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn read_packs(path: &Path) -> Vec<Pack> {
    let mut packs = Vec::new();
    for batch in batches(path) {
        let numbers = |name: &str, row: usize| -> Vec<i32> {
            let list = batch.column_by_name(name).unwrap().as_list::<i32>().value(row);
            list.as_primitive::<Int32Type>().values().to_vec()
        };
        for row in 0..batch.num_rows() {
            let names = batch.column_by_name("sample_ids").unwrap().as_list::<i32>().value(row);
            packs.push(Pack {
                ids: numbers("input_ids", row),
                labels: numbers("labels", row),
                lengths: numbers("seq_lengths", row),
                names: names.as_string::<i32>().iter().map(|name| name.unwrap().to_owned()).collect(),
            });
        }
    }
    packs
}

fn read_dropped(path: &Path) -> Vec<Dropped> {
    let mut rows = Vec::new();
    for batch in batches(path) {
        let text = |name: &str, row: usize| {
            batch.column_by_name(name).unwrap().as_string::<i32>().value(row).to_owned()
        };
        rows.extend((0..batch.num_rows()).map(|row| Dropped {
            row_id: text("row_id", row),
            stage: text("stage", row),
            reason: text("reason", row),
            evidence: text("evidence", row),
        }));
    }
    rows
}

/// The record batches of a Parquet file.
pub fn batches(path: &Path) -> Vec<RecordBatch> {
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    reader.map(|batch| batch.unwrap()).collect()
}

/// Says that a test could not do its work here.
#[expect(clippy::print_stdout, reason = "the test harness shows it")]
pub fn skipped(why: &str) {
    println!("skipped: {why}");
}
