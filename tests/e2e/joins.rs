//! Rows whose text stands in another corpus, at a row position.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use arrow::ipc::writer::StreamWriter;
use parquet::basic::Compression;
use serde_json::{Value, json};

use super::harness::{Case, DataSet, lines, parquet_bytes, rendered};
use super::packing::balances;

/// A table of texts; a column may have nulls.
fn table(columns: &[(&str, Vec<Option<String>>)]) -> RecordBatch {
    let array = |values: &Vec<Option<String>>| -> ArrayRef { Arc::new(StringArray::from(values.clone())) };
    let columns = columns.iter().map(|(name, values)| (*name, array(values), true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn some(values: impl IntoIterator<Item = String>) -> Vec<Option<String>> {
    values.into_iter().map(Some).collect()
}

/// Texts that no two problems share.
fn statement(corpus: &str, n: usize) -> String {
    format!("{corpus} problem {n}: print the answer.")
}

fn stream(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    parquet_bytes(batch, Compression::SNAPPY, 3)
}

/// TACO in two Arrow streams, APPS in JSON lines, CodeContests and codeforces in Parquet, as the real
/// repositories lay them out. Problem 1 of CodeContests and problem 0 of codeforces have no description.
fn problem_corpora(case: &Case) {
    let taco = |from: usize| table(&[("question", some((from..from + 3).map(|n| statement("taco", n))))]);
    case.put("copies/BAAI/TACO/train/data-00000-of-00002.arrow", stream(&taco(0)));
    case.put("copies/BAAI/TACO/train/data-00001-of-00002.arrow", stream(&taco(3)));
    // The same rows again, in another format: they must not count twice.
    case.put("copies/BAAI/TACO/ALL/train-00000-of-00001.parquet", parquet(&taco(0)));
    let apps = (0..4).map(|n| json!({"id": n, "question": statement("apps", n), "input_output": "{}"}));
    case.put("copies/codeparrot/apps/train.jsonl", lines(apps));
    let contests = vec![Some(statement("contests", 0)), Some(String::new()), Some(statement("contests", 2))];
    let contests = table(&[("name", some((0..3).map(|n| n.to_string()))), ("description", contests)]);
    case.put("copies/deepmind/code_contests/data/train-00000-of-00001.parquet", parquet(&contests));
    case.put("copies/open-r1/codeforces/data/train-00000-of-00001.parquet", parquet(&codeforces()));
}

/// Three problems: one without a description, a full one, and one with a description alone.
fn codeforces() -> RecordBatch {
    let fields = vec![Field::new("input", DataType::Utf8, true), Field::new("output", DataType::Utf8, true)];
    let values: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from(vec!["1 2", "3 4"])), Arc::new(StringArray::from(vec!["3", "7"]))];
    let items = Arc::new(StructArray::new(fields.into(), values, None));
    let item = Arc::new(Field::new("item", items.data_type().clone(), true));
    let lengths = OffsetBuffer::from_lengths([0, 2, 0]);
    let nulls = Some(vec![true, true, false].into());
    let examples: ArrayRef = Arc::new(ListArray::new(item, lengths, items, nulls));
    let text = |values: [Option<&str>; 3]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    RecordBatch::try_from_iter_with_nullable([
        ("description", text([None, Some("Add two numbers."), Some("Say hello.")]), true),
        ("input_format", text([Some("x"), Some("Two numbers."), None]), true),
        ("output_format", text([Some("y"), Some("Their sum."), Some("")]), true),
        ("examples", examples, true),
        ("note", text([None, Some("Mind the sign."), None]), true),
    ])
    .unwrap()
}

/// A row of `split_1`: corpus, split and index of its problem, and its answer.
type Row = (&'static str, &'static str, &'static str, &'static str);

fn split_1(case: &Case, rows: &[Row]) {
    let column = |of: fn(&Row) -> &'static str| some(rows.iter().map(|row| of(row).to_owned()));
    let rows = table(&[
        ("id", some((0..rows.len()).map(|n| format!("id-{n}")))),
        ("input", some(rows.iter().map(|_| "-".to_owned()))),
        ("output", some(rows.iter().map(|row| format!("<think>\nt\n</think>\n\n{}", row.3)))),
        ("dataset", column(|row| row.0)),
        ("split", column(|row| row.1)),
        ("index", column(|row| row.2)),
    ]);
    case.put("copies/nvidia/OpenCodeReasoning/split_1/train-00000-of-00001.parquet", parquet(&rows));
}

const RECIPE: &str = "[[source]]\nname = \"ocr\"\ncorpus = \"nvidia/OpenCodeReasoning\"\nconfig = \"split_1\"\n\
                      copies = \"copies\"\n";

fn answered(user: &str, thought: &str, answer: &str) -> String {
    format!(
        "<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n{thought}\n</think>\n\n{answer}<|im_end|>\n"
    )
}

/// Evidence of the rows of a reason, by row number.
fn evidence(data: &DataSet, reason: &str) -> BTreeMap<String, Value> {
    let rows = data.dropped.iter().filter(|row| row.reason == reason);
    rows.map(|row| (row.row_id.clone(), serde_json::from_str(&row.evidence).unwrap())).collect()
}

#[test]
fn opencodereasoning_takes_its_prompts_from_four_corpora() {
    let case = Case::new();
    problem_corpora(&case);
    split_1(
        &case,
        &[
            ("taco", "train", "4", "a"),
            ("apps", "train", "3", "b"),
            ("code_contests", "train", "2", "c"),
            ("open-r1/codeforces", "train", "1", "d"),
            ("open-r1/codeforces", "train", "2", "e"),
            ("taco", "train", "4", "f"),
        ],
    );
    let data = case.prepared(RECIPE);
    balances(&data);
    let full = "Add two numbers.\n\nInput\n\nTwo numbers.\n\nOutput\n\nTheir sum.\n\nExamples\n\nInput\n\n1 2\
                \n\nOutput\n\n3\n\nInput\n\n3 4\n\nOutput\n\n7\n\nNote\n\nMind the sign.";
    let mut expected = [
        answered(&statement("taco", 4), "t", "a"),
        answered(&statement("apps", 3), "t", "b"),
        answered(&statement("contests", 2), "t", "c"),
        answered(full, "t", "d"),
        answered("Say hello.", "t", "e"),
        answered(&statement("taco", 4), "t", "f"),
    ];
    expected.sort();
    assert_eq!(data.texts(), expected);
    let joined =
        json!({"BAAI/TACO": 2, "codeparrot/apps": 1, "deepmind/code_contests": 1, "open-r1/codeforces": 2});
    assert_eq!(data.manifest["rows"]["ocr"]["joined"], joined);
    let inputs = data.manifest["inputs"][0]["joins"].as_array().unwrap();
    let rows: Vec<(&str, u64, usize)> = inputs
        .iter()
        .map(|join| {
            let files = join["files"].as_array().unwrap().len();
            (join["corpus"].as_str().unwrap(), join["rows"].as_u64().unwrap(), files)
        })
        .collect();
    let expected = [
        ("BAAI/TACO", 6, 2),
        ("codeparrot/apps", 4, 1),
        ("deepmind/code_contests", 3, 1),
        ("open-r1/codeforces", 3, 1),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn rows_without_their_problem_are_dropped_by_a_reason_of_their_own() {
    let case = Case::new();
    problem_corpora(&case);
    let answer = "a";
    split_1(
        &case,
        &[
            ("taco", "train", "0", answer),
            ("taco", "train", "6", answer),
            ("code_contests", "train", "1", answer),
            ("open-r1/codeforces", "train", "0", answer),
            ("atcoder", "train", "0", answer),
            ("apps", "train", "-1", answer),
            ("apps", "train", "", answer),
            ("apps", "test", "0", answer),
            ("code_contests", "valid", "0", answer),
        ],
    );
    let data = case.prepared(RECIPE);
    balances(&data);
    assert_eq!(data.texts(), [answered(&statement("taco", 0), "t", "a")]);
    assert_eq!(data.number("/rows/ocr/dropped/source.unjoined"), 6);
    // Rows of other splits are left out by the column `split`, as `where` of the card says.
    assert_eq!(data.number("/rows/ocr/dropped/source.where"), 2);
    let found = evidence(&data, "source.unjoined");
    let of = |row: usize| &found[&format!("ocr/train-00000-of-00001.parquet:{row}")];
    assert_eq!(
        of(1),
        &json!({"why": "the joined corpus has no such row", "join": "BAAI/TACO", "index": 6, "rows": 6})
    );
    assert_eq!(
        of(2),
        &json!({"why": "the joined row has no text", "join": "deepmind/code_contests", "index": 1})
    );
    assert_eq!(of(3)["join"], "open-r1/codeforces");
    assert_eq!(of(4), &json!({"why": "no join is for this row"}));
    assert_eq!(of(5), &json!({"why": "the index is not a row number", "index": "-1"}));
    assert_eq!(of(6)["index"], "");
}

#[test]
fn the_joined_text_is_what_is_checked_against_benchmarks() {
    let case = Case::new();
    problem_corpora(&case);
    let item = "Given an array of towers count how many of them can be seen from the northern gate at dusk";
    let apps = [json!({"question": "Sum two numbers."}), json!({ "question": format!("Task. {item}") })];
    case.put("copies/codeparrot/apps/train.jsonl", lines(apps));
    split_1(&case, &[("apps", "train", "0", "a"), ("apps", "train", "1", "b")]);
    case.put("bench.txt", format!("{item}\n"));
    let data = case.prepared(&format!("{RECIPE}[decontaminate]\nbenchmarks = [\"bench.txt\"]\n"));
    assert_eq!(data.texts(), [answered("Sum two numbers.", "t", "a")]);
    assert_eq!(data.number("/rows/ocr/dropped/decontaminate.ngram"), 1);
    assert_eq!(data.number("/rows/ocr/joined/codeparrot~1apps"), 2);
}

#[test]
fn a_joined_corpus_is_in_the_lock_and_without_a_revision_it_says_so() {
    let case = Case::new();
    problem_corpora(&case);
    split_1(&case, &[("taco", "train", "0", "a")]);
    let data = case.prepared(RECIPE);
    let lock: toml::Value =
        toml::from_str(&std::fs::read_to_string(case.path("out/recipe.lock")).unwrap()).unwrap();
    let sources = lock["source"].as_array().unwrap();
    let names: Vec<&str> = sources.iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["ocr", "ocr join BAAI/TACO", "ocr join codeparrot/apps"]);
    assert_eq!(sources[1]["file"].as_array().unwrap().len(), 2);
    let taco = &data.manifest["inputs"][0]["joins"][0];
    assert_eq!((taco.get("revision"), &taco["local"]), (None, &json!(true)));
    assert_eq!(taco["files"][1]["name"], "data-00001-of-00002.arrow");
}

#[test]
fn another_file_of_a_joined_corpus_is_other_data() {
    let case = Case::new();
    problem_corpora(&case);
    split_1(&case, &[("apps", "train", "0", "a")]);
    let before = case.prepared(RECIPE);
    case.put("copies/codeparrot/apps/train.jsonl", lines([json!({"question": "Another question."})]));
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 2, "a finished folder of other data is refused: {}", ran.stderr);
    let after = case.prep("after", &[]);
    assert_ne!(after.digest(), before.digest());
    assert_eq!(after.texts(), [answered("Another question.", "t", "a")]);
    let diff = case.potable(&["manifest", "diff", "out", "after"]);
    assert!(diff.stdout.contains("join `codeparrot/apps` of source `ocr`"), "{}", diff.stdout);
    assert!(!diff.stdout.contains("determinism"), "{}", diff.stdout);
}

#[test]
fn joins_do_not_depend_on_threads_or_cuts() {
    let case = Case::new();
    problem_corpora(&case);
    let rows: Vec<Row> = (0..60)
        .map(|n| {
            let (dataset, index) =
                [("taco", "5"), ("apps", "2"), ("open-r1/codeforces", "1"), ("x", "0")][n % 4];
            (dataset, "train", index, format!("answer {n}").leak() as &'static str)
        })
        .collect();
    split_1(&case, &rows);
    case.recipe(RECIPE);
    let data = case.prep("out", &[]);
    assert_eq!(data.samples().len(), 45);
    let args = ["--unit-bytes", "300", "--chunk-bytes", "60", "--threads", "1", "--reverse-units"];
    let pieces = case.prep("pieces", &args);
    assert_eq!((pieces.digest(), &pieces.bytes), (data.digest(), &data.bytes));
}

/// A join of the recipe's own, from one JSON lines file to another.
fn own(more: &str) -> String {
    format!(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[source.mapping]\nshape = \"columns\"\nprompt = \"q\"\n\
         response = \"answer\"\n[[source.join]]\nwhen = {{ from = \"p\" }}\nindex = \"at\"\ninto = \"q\"\n\
         path = \"p.jsonl\"\ntext = [{{ column = \"title\" }}, {{ column = \"body\", before = \": \", required = true }}]\n\
         {more}"
    )
}

fn own_files(case: &Case) {
    case.put("a.jsonl", lines((0..3).map(|n| json!({"from": "p", "at": n, "answer": format!("yes {n}")}))));
    let rows = [
        json!({"title": "One", "body": "first"}),
        json!({"title": null, "body": "second"}),
        json!({"title": "Three", "body": ""}),
    ];
    case.put("p.jsonl", lines(rows));
}

#[test]
fn a_recipe_may_join_its_own_files_into_a_column_that_its_rows_lack() {
    let case = Case::new();
    own_files(&case);
    let data = case.prepared(&own("rows = 3\n"));
    balances(&data);
    assert_eq!(data.texts(), [rendered(": second", "yes 1"), rendered("One: first", "yes 0")]);
    assert_eq!(data.number("/rows/a/joined/join-0"), 2);
    assert_eq!(data.number("/rows/a/dropped/source.unjoined"), 1);
}

#[test]
fn a_joined_corpus_with_another_number_of_rows_than_the_recipe_says_is_refused() {
    let case = Case::new();
    own_files(&case);
    case.recipe(&own("rows = 4\n"));
    case.refused(&["join `join-0` of source `a`", "hold 3 rows", "says 4", "revision"]);
}

#[test]
fn a_joined_file_that_is_missing_or_cut_short_is_refused() {
    let case = Case::new();
    problem_corpora(&case);
    split_1(&case, &[("taco", "train", "0", "a")]);
    let taco = "copies/BAAI/TACO/train/data-00001-of-00002.arrow";
    let whole = std::fs::read(case.path(taco)).unwrap();
    case.put(taco, &whole[..whole.len() / 2]);
    case.recipe(RECIPE);
    case.refused(&["data-00001-of-00002.arrow"]);
    case.put(taco, whole);
    std::fs::remove_file(case.path("copies/codeparrot/apps/train.jsonl")).unwrap();
    case.refused(&["source `ocr join codeparrot/apps`", "train.jsonl"]);
}

#[test]
fn a_text_column_that_is_not_there_or_is_no_text_is_refused() {
    let case = Case::new();
    own_files(&case);
    case.put("p.jsonl", lines([json!({"name": "x"})]));
    case.recipe(&own(""));
    case.refused(&["join `join-0` of source `a`", "no row has a text", "`title`"]);
    case.put("p.jsonl", lines([json!({"title": ["x"], "body": "b"})]));
    case.refused(&["p.jsonl:1", "join `join-0` of source `a`", "`title` is a list"]);
    case.put("p.jsonl", "{\"title\": \"x\"\n");
    case.refused(&["p.jsonl:1"]);
}

#[test]
fn the_steps_join_as_prep_does() {
    let case = Case::new();
    problem_corpora(&case);
    split_1(&case, &[("taco", "train", "4", "a"), ("apps", "train", "3", "b"), ("taco", "train", "2", "c")]);
    let data = case.prepared(RECIPE);
    let planned = case.potable(&["plan", "recipe.toml", "--work", "work", "--unit-bytes", "1"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    for step in ["map", "select", "reduce", "seal"] {
        let ran = case.potable(&[step, "--work", "work"]);
        assert_eq!(ran.code, 0, "{step}: {}", ran.stderr);
    }
    assert_eq!(case.data("work/out").digest(), data.digest());
    assert_eq!(case.data("work/out").bytes, data.bytes);
}
