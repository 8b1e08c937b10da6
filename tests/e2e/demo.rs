//! The built-in demo and the commands around it.

use super::harness::Case;
use super::packing::balances;

#[test]
fn the_demo_runs_in_an_empty_folder_and_finds_its_contaminated_rows() {
    let case = Case::new();
    let ran = case.potable(&["prep", "demo", "--no-progress", "--threads", "2"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    for word in ["read ", "removed ", "packed ", "wrote ", "manifest sha256:"] {
        assert!(ran.stderr.contains(word), "`{word}` is not in\n{}", ran.stderr);
    }
    let data = case.data("potable-demo");
    balances(&data);
    assert!(data.number("/decontamination/benchmarks/0/rows_dropped") > 0);
    assert_eq!(data.number("/rows/code/kept"), 20);
    let again = case.potable(&["prep", "demo", "--no-progress"]);
    assert!(again.stderr.contains("is up to date"), "{}", again.stderr);
}

#[test]
fn quiet_prints_nothing() {
    let case = Case::new();
    case.put("a.jsonl", super::harness::chats(3));
    case.recipe("[[source]]\npath = \"a.jsonl\"\n");
    let ran = case.run("out", &["--quiet"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
}

#[test]
fn manifests_of_the_same_data_do_not_differ_and_others_do() {
    let case = Case::new();
    case.put("a.jsonl", super::harness::chats(30));
    let source = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";
    case.recipe(source);
    case.prep("one", &[]);
    case.prep("two", &["--unit-bytes", "500"]);
    case.recipe(&format!("{source}max_rows = 20\n"));
    case.prep("three", &[]);
    assert_eq!(case.potable(&["manifest", "diff", "one", "two"]).code, 0);
    let differs = case.potable(&["manifest", "diff", "one", "three"]);
    assert_eq!(differs.code, 1);
    assert!(!differs.stdout.is_empty());
}

#[test]
fn a_known_corpus_is_read_from_its_local_copy_by_its_card() {
    use arrow::array::{ArrayRef, RecordBatch, StringArray};
    let text = |text: &str| -> ArrayRef { std::sync::Arc::new(StringArray::from(vec![text])) };
    let rows = [("question", text("How many?")), ("answer", text("He has 3+4=<<3+4=7>>7.\n#### 7"))];
    let batch = RecordBatch::try_from_iter(rows).unwrap();
    let bytes = super::harness::parquet_bytes(&batch, parquet::basic::Compression::SNAPPY, 10);
    let case = Case::new();
    case.put("gsm8k/main/train-00000-of-00001.parquet", &bytes);
    case.put("gsm8k/main/test-00000-of-00001.parquet", "never read");
    let data = case.prepared("[[source]]\ncorpus = \"openai/gsm8k\"\npath = \"gsm8k\"\nrevision = \"abc\"\n");
    let expected = "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n<think>\nHe has 3+4=7.\n</think>\n\n7<|im_end|>\n";
    assert_eq!(data.texts(), [expected]);
    let input = &data.manifest["inputs"][0];
    assert_eq!(
        (
            input["corpus"].as_str(),
            input["split"].as_str(),
            input["licence"].as_str(),
            input["revision"].as_str()
        ),
        (Some("openai/gsm8k"), Some("train"), Some("mit"), Some("abc"))
    );
}
