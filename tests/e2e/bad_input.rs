//! Input, recipes and output folders that cannot be used: exit status 2, place, cause and way out.

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::basic::Compression;
use serde_json::{Value, json};

use super::harness::{Case, chat, chats, lines, parquet_bytes};

/// A case whose one source `a` reads `file`, which holds `bytes`.
fn one_file(file: &str, bytes: impl AsRef<[u8]>) -> Case {
    let case = Case::new();
    case.put(file, bytes);
    case.recipe(&source(file));
    case
}

fn source(path: &str) -> String {
    format!("[[source]]\nname = \"a\"\npath = \"{path}\"\n")
}

/// Prompt and response columns as a Parquet file.
fn prompts_parquet(rows: usize) -> Vec<u8> {
    let text = |word: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("{word} number {n}"))))
    };
    let batch =
        RecordBatch::try_from_iter([("prompt", text("question")), ("response", text("answer"))]).unwrap();
    parquet_bytes(&batch, Compression::SNAPPY, 10)
}

#[test]
fn stops_at_a_missing_file_and_names_it() {
    let case = Case::new();
    case.recipe(&source("data/nowhere.jsonl"));
    case.refused(&["source `a`", "no file matches", "data/nowhere.jsonl"]);
}

#[test]
fn stops_at_a_glob_that_matches_nothing() {
    let case = one_file("data/rows.jsonl", chats(3));
    case.recipe(&source("data/*.parquet"));
    case.refused(&["source `a`", "no file matches", "data/*.parquet"]);
}

#[test]
fn stops_at_a_folder_without_data() {
    let case = one_file("data/README.md", "no data");
    case.recipe(&source("data"));
    case.refused(&["source `a`", "no file matches", "data"]);
}

#[test]
fn stops_at_a_broken_glob() {
    let case = one_file("data/rows.jsonl", chats(3));
    case.recipe(&source("data/[x.jsonl"));
    case.refused(&["source `a`", "data/[x.jsonl", "is not a pattern"]);
}

#[test]
fn stops_at_a_file_whose_name_tells_no_format() {
    let case = one_file("rows.data", chats(3));
    case.refused(&["rows.data", "cannot tell the format"]);
}

#[test]
fn stops_at_an_unknown_recipe_key_with_line_caret_and_the_allowed_names() {
    let case = one_file("a.jsonl", chats(3));
    case.recipe(&(source("a.jsonl") + "max_row = 3\n"));
    let stderr =
        case.refused(&["recipe.toml", "line 5", "max_row = 3", "^^^^^^^", "unknown field `max_row`"]);
    assert!(stderr.contains("`max_rows`") && stderr.contains("`on_bad_row`"), "{stderr}");
}

#[test]
fn stops_at_a_recipe_value_of_the_wrong_type_with_line_and_caret() {
    let case = one_file("a.jsonl", chats(3));
    case.recipe(&(source("a.jsonl") + "max_rows = \"three\"\n"));
    case.refused(&["recipe.toml", "line 5", "^", "invalid type"]);
}

#[test]
fn stops_at_a_recipe_without_a_benchmark_unless_it_says_so() {
    let case = one_file("a.jsonl", chats(3));
    case.recipe(&(source("a.jsonl") + "[decontaminate]\n"));
    case.refused(&["[decontaminate]", "there is no benchmark", "none = true"]);
}

#[test]
fn stops_at_a_missing_benchmark() {
    let case = one_file("a.jsonl", chats(3));
    case.recipe(&(source("a.jsonl") + "[decontaminate]\nbenchmarks = [\"bench/gone.toml\"]\n"));
    case.refused(&["bench/gone.toml", "there is no benchmark"]);
}

#[test]
fn stops_at_a_recipe_that_does_not_exist_and_lists_the_built_in_ones() {
    let case = Case::new();
    case.refused(&["`recipe.toml`", "demo"]);
}

#[test]
fn stops_at_an_unknown_corpus_and_says_which_is_close() {
    let case = Case::new();
    case.recipe("[[source]]\ncorpus = \"open-r1/OpenR1-Math-22k\"\npath = \"data\"\n");
    case.refused(&[
        "open-r1/OpenR1-Math-22k",
        "there is no corpus",
        "did you mean `open-r1/OpenR1-Math-220k`",
    ]);
}

#[test]
fn stops_at_an_absent_column_and_lists_those_there_are() {
    let case = one_file("a.parquet", prompts_parquet(3));
    case.recipe(&(source("a.parquet") + "[source.mapping]\nprompt = \"query\"\nresponse = \"response\"\n"));
    case.refused(&["a.parquet", "source `a`", "has no column `query`", "`prompt`, `response`"]);
}

#[test]
fn stops_at_a_row_without_a_wanted_field_and_lists_those_it_has() {
    let mut rows = vec![chat("a", "b"); 3];
    rows.insert(2, json!({"conversations": [], "id": 7}));
    let case = one_file("a.jsonl", lines(rows));
    case.refused(&["a.jsonl:3", "has no `messages` field", "`conversations`, `id`"]);
}

#[test]
fn stops_at_columns_that_tell_no_shape_and_lists_them() {
    let case = one_file("a.jsonl", lines([json!({"alpha": 1, "beta": "x"})]));
    case.refused(&["source `a`", "`alpha`, `beta`", "[source.mapping]"]);
}

#[test]
fn stops_at_a_column_of_the_wrong_type_in_json() {
    let case = one_file("a.jsonl", lines([chat("a", "b"), json!({"messages": 5})]));
    case.refused(&["a.jsonl:2", "column `messages` is an integer, not a list of messages"]);
}

#[test]
fn stops_at_a_column_of_the_wrong_type_in_parquet() {
    let prompt: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let response: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let batch = RecordBatch::try_from_iter([("prompt", prompt), ("response", response)]).unwrap();
    let case = one_file("a.parquet", parquet_bytes(&batch, Compression::SNAPPY, 10));
    case.refused(&["a.parquet: row 0", "column `prompt` is an integer, not text"]);
}

#[test]
fn stops_at_a_broken_json_line_and_names_it() {
    let mut rows: Vec<String> = chats(30).lines().map(str::to_owned).collect();
    rows[17] = "{\"messages\": [{\"role\": \"user\", \"content\": \"cut o".to_owned();
    let case = one_file("data/a.jsonl", rows.join("\n"));
    case.refused(&["data/a.jsonl:18", "broken JSON"]);
    let ran = case.run("other", &["--unit-bytes", "300", "--chunk-bytes", "100"]);
    ran.is_refusal(&["data/a.jsonl:18", "broken JSON"]);
}

#[test]
fn says_where_in_the_line_the_json_breaks_off() {
    let case = one_file("a.jsonl", chats(2) + "{\"messages\": [{\"role\": \"us\n");
    let stderr = case.refused(&["a.jsonl:3", "broken JSON at byte 2"]);
    assert!(!stderr.contains("control character"), "the newline is no part of the row: {stderr}");
}

#[test]
fn stops_at_a_line_that_is_json_but_no_object() {
    let case = one_file("a.jsonl", chats(2) + "[1, 2]\n");
    case.refused(&["a.jsonl:3", "object"]);
}

#[test]
fn stops_at_a_broken_json_array_and_names_the_element() {
    let rows: Vec<Value> = (0..3).map(|n| chat(&format!("q{n}"), "a")).collect();
    let mut text = Value::from(rows).to_string();
    text.truncate(text.len() - 10);
    let case = one_file("a.json", text);
    case.refused(&["a.json", "after row 2", "broken JSON"]);
}

#[test]
fn stops_at_a_truncated_gzip() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(chats(200).as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    let case = one_file("a.jsonl.gz", &bytes[..bytes.len() / 2]);
    case.refused(&["a.jsonl.gz", "gzip data is damaged or ends early after row"]);
}

#[test]
fn stops_at_a_gzip_that_lacks_only_its_trailer() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(chats(20).as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    let case = one_file("a.jsonl.gz", &bytes[..bytes.len() - 4]);
    case.refused(&["a.jsonl.gz", "gzip data is damaged or ends early"]);
}

#[test]
fn stops_at_a_truncated_zst() {
    let bytes = zstd::encode_all(chats(200).as_bytes(), 3).unwrap();
    let case = one_file("a.jsonl.zst", &bytes[..bytes.len() * 2 / 3]);
    case.refused(&["a.jsonl.zst", "zstd data is damaged or ends early after row"]);
}

#[test]
fn stops_at_a_file_that_is_not_compressed_as_its_name_says() {
    let case = one_file("a.jsonl.zst", chats(20));
    case.refused(&["a.jsonl.zst", "zstd"]);
}

#[test]
fn stops_at_a_truncated_parquet() {
    let bytes = prompts_parquet(100);
    let case = one_file("a.parquet", &bytes[..bytes.len() - 20]);
    case.refused(&["a.parquet", "cannot read parquet data"]);
}

#[test]
fn stops_at_damaged_pages_in_a_parquet() {
    let mut bytes = prompts_parquet(100);
    let middle = bytes.len() / 3;
    bytes[middle..middle + 40].fill(0xff);
    let case = one_file("a.parquet", &bytes);
    case.refused(&["a.parquet", "cannot read parquet data after row"]);
}

#[test]
fn stops_at_a_truncated_arrow_stream() {
    let bytes = super::formats::arrow_stream(&super::formats::prompt_table(40), 10);
    let case = one_file("a.arrow", &bytes[..bytes.len() * 2 / 3]);
    case.refused(&["a.arrow", "cannot read arrow data"]);
}

#[test]
fn stops_at_a_git_lfs_pointer_where_parquet_was_expected() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    let case = one_file("a.parquet", pointer);
    case.refused(&["a.parquet", "Git LFS pointer", "git lfs pull"]);
}

#[test]
fn stops_at_a_git_lfs_pointer_where_jsonl_was_expected() {
    let case =
        one_file("a.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
    case.refused(&["a.jsonl", "Git LFS pointer", "git lfs pull"]);
}

#[test]
fn stops_at_an_html_page_where_parquet_was_expected() {
    let case = one_file("a.parquet", "<!DOCTYPE html>\n<html><body>Sign in</body></html>\n");
    case.refused(&["a.parquet", "HTML page", "parquet"]);
}

#[test]
fn stops_at_bytes_that_are_no_parquet() {
    let case = one_file("a.parquet", "prompt,response\na,b\n");
    case.refused(&["a.parquet", "is not parquet data", "PAR1"]);
}

#[test]
fn stops_at_invalid_utf8_in_jsonl_and_names_the_line() {
    let mut bytes = chats(3).into_bytes();
    bytes.extend_from_slice(b"{\"messages\": [{\"role\": \"user\", \"content\": \"caf\xe9\"}]}\n");
    let case = one_file("a.jsonl", bytes);
    case.refused(&["a.jsonl:4", "unicode"]);
}

#[test]
fn stops_at_invalid_utf8_in_csv_and_names_the_line() {
    let case = one_file("a.csv", b"prompt,response\na,b\nc,caf\xe9\n");
    case.refused(&["a.csv", "line 3", "invalid UTF-8"]);
}

#[test]
fn stops_at_a_csv_record_with_too_many_fields() {
    let case = one_file("a.csv", "prompt,response\na,b\nc,d,e\n");
    case.refused(&["a.csv", "line 3", "record has 3 fields where the header has 2"]);
}

#[test]
fn stops_at_a_csv_that_ends_inside_a_quoted_field() {
    let case = one_file("a.csv", "prompt,response\na,b\nc,\"d\n");
    case.refused(&["a.csv", "ends inside a quoted field"]);
}

#[test]
fn refuses_a_folder_that_holds_another_data_set() {
    let case = one_file("a.jsonl", chats(5));
    let before = case.prep("out", &[]);
    case.recipe(&(source("a.jsonl") + "max_rows = 2\n"));
    let ran = case.run("out", &[]);
    ran.is_refusal(&["out", "holds another data set", "`t`", "--fresh"]);
    assert_eq!(case.data("out").manifest, before.manifest);
}

#[test]
fn refuses_a_folder_with_files_of_others_even_when_fresh() {
    let case = one_file("a.jsonl", chats(5));
    case.put("out/thesis.tex", "years of work");
    case.refused(&["out", "holds files that potable did not write", "--out"]);
    case.run("out", &["--fresh"]).is_refusal(&["holds files that potable did not write"]);
    assert_eq!(std::fs::read_to_string(case.path("out/thesis.tex")).unwrap(), "years of work");
}

#[test]
fn refuses_an_output_folder_that_is_a_file() {
    let case = one_file("a.jsonl", chats(5));
    case.put("out", "a file");
    case.refused(&["out", "is a file, not a folder"]);
}

#[test]
fn refuses_an_output_folder_that_cannot_be_made() {
    // Below a regular file, because permissions do not stop root.
    let case = one_file("a.jsonl", chats(5));
    case.put("file", "a file");
    let ran = case.run("file/out", &[]);
    ran.is_refusal(&["cannot write", "file/out", "--out"]);
}

#[test]
fn refuses_a_tokenizer_that_does_not_fit_the_format() {
    let case = one_file("a.jsonl", chats(5));
    let mut tokenizer: Value =
        serde_json::from_slice(&std::fs::read(case.path("tokenizer.json")).unwrap()).unwrap();
    tokenizer["added_tokens"] = json!([]);
    case.put("tokenizer.json", tokenizer.to_string());
    case.refused(&["tokenizer.json", "does not fit format `qwen3`", "<|im_start|>"]);
}

#[test]
fn refuses_a_file_that_is_no_tokenizer() {
    let case = one_file("a.jsonl", chats(5));
    case.put("tokenizer.json", "{\"hello\": 1}");
    case.refused(&["tokenizer.json", "is not a usable tokenizer.json"]);
}

#[test]
fn stops_where_there_are_no_rows_at_all() {
    for (file, bytes) in [
        ("a.jsonl", &b""[..]),
        ("a.jsonl", b"\n\n"),
        ("a.json", b"[]"),
        ("a.csv", b"prompt,response\n"),
        ("a.parquet", &prompts_parquet(0)),
        ("a.jsonl.zst", &zstd::encode_all(&b""[..], 1).unwrap()),
    ] {
        one_file(file, bytes).refused(&["no row"]);
    }
}

#[test]
fn an_empty_file_is_an_empty_file_whatever_the_mapping() {
    let case = one_file("a.jsonl", "");
    case.recipe(&(source("a.jsonl") + "[source.mapping]\nprompt = \"prompt\"\nresponse = \"response\"\n"));
    case.refused(&["no row"]);
}

#[test]
fn stops_where_no_row_is_kept_and_says_where_they_went() {
    let rows = (0..4).map(|n| json!({"messages": [{"role": "user", "content": format!("only asking {n}")}]}));
    let case = one_file("a.jsonl", lines(rows));
    case.refused(&["no row was kept", "4 rows read", "4 normalise.no-assistant", "dropped/"]);
    assert!(case.path("out/dropped").is_dir());
}

#[test]
fn refuses_two_sources_of_one_name() {
    let case = one_file("a.jsonl", chats(5));
    case.recipe(&(source("a.jsonl") + &source("a.jsonl")));
    case.refused(&["source `a`", "two sources of this name"]);
}

#[test]
fn refuses_weights_that_do_not_add_up() {
    let case = one_file("a.jsonl", chats(5));
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nweight = 0.5\n");
    case.refused(&["weights", "0.5"]);
}

#[test]
fn refuses_to_train_on_the_benchmark_itself() {
    let case = one_file(
        "bench.jsonl",
        lines((0..3).map(|n| json!({"prompt": format!("What is {n}?"), "response": "x"}))),
    );
    case.put("bench.toml", "name = \"bench\"\nfiles = [\"bench.jsonl\"]\nprompt = \"prompt\"\n");
    case.recipe(&(source("bench.jsonl") + "[decontaminate]\nbenchmarks = [\"bench.toml\"]\n"));
    case.refused(&["source `a` is the benchmark `bench` itself", "bench.jsonl"]);
}

/// A case with a blocklist `bench.blk` of n = 8 and a recipe that uses it.
fn with_blocklist(more: &str) -> Case {
    let case = one_file("a.jsonl", chats(5));
    case.put("bench.txt", "One long question of the benchmark that has many more than thirteen words in it, as most of them do.\n");
    let built = case.potable(&["blocklist", "build", "bench.txt", "--ngram", "8", "-o", "bench.blk"]);
    assert_eq!(built.code, 0, "{}", built.stderr);
    case.recipe(&(source("a.jsonl") + "[decontaminate]\nblocklist = \"bench.blk\"\n" + more));
    case
}

#[test]
fn a_blocklist_that_fits_is_used() {
    let case = with_blocklist("ngram = 8\n");
    let data = case.prep("out", &[]);
    assert_eq!(data.manifest["decontamination"]["benchmarks"][0]["name"], "bench");
}

#[test]
fn refuses_a_blocklist_of_another_n_and_names_both() {
    with_blocklist("").refused(&["bench.blk", "n = 8", "n = 13"]);
}

#[test]
fn refuses_a_blocklist_that_is_damaged() {
    let case = with_blocklist("ngram = 8\n");
    let mut bytes = std::fs::read(case.path("bench.blk")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    case.put("bench.blk", &bytes);
    case.refused(&["bench.blk"]);
    case.put("bench.blk", &bytes[..middle]);
    case.refused(&["bench.blk"]);
}

#[test]
fn a_benchmark_that_cannot_be_read_is_never_skipped() {
    let case = one_file("a.jsonl", chats(5));
    case.recipe(&(source("a.jsonl") + "[decontaminate]\nbenchmarks = [\"bench.jsonl\"]\n"));
    for (bytes, word) in [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "Git LFS pointer"),
        ("{\"prompt\": \"cut o", "bench.jsonl:1"),
        ("", "no items"),
    ] {
        case.put("bench.jsonl", bytes);
        case.refused(&["bench", word]);
    }
}

#[test]
fn refuses_the_test_split_of_a_known_corpus() {
    let case = one_file("gsm8k/main/test-00000-of-00001.parquet", prompts_parquet(3));
    case.recipe("[[source]]\ncorpus = \"openai/gsm8k\"\npath = \"gsm8k\"\nsplit = \"test\"\n");
    case.refused(&["openai/gsm8k", "split `test`", "not its training split"]);
}

#[test]
fn refuses_an_unknown_config_of_a_known_corpus() {
    let case = Case::new();
    case.recipe("[[source]]\ncorpus = \"openai/gsm8k\"\npath = \"gsm8k\"\nconfig = \"mian\"\n");
    case.refused(&["openai/gsm8k", "no config `mian`", "main, socratic"]);
}

#[test]
fn refuses_a_weight_that_asks_for_more_than_there_is() {
    let case = one_file("a.jsonl", chats(5));
    let source = "[[phase.source]]\nname = \"a\"\npath = \"a.jsonl\"\nweight = 1.0\n";
    case.recipe(&format!("[[phase]]\nname = \"one\"\nmax_tokens = 1000000\n{source}"));
    case.refused(&["source `a`", "1000000 tokens asked for"]);
}

#[test]
fn refuses_mappings_with_empty_or_equal_marks_and_reasoning_from_two_places() {
    for (mapping, word) in [
        ("prompt = \"\"\nresponse = \"a\"", "`prompt`"),
        ("prompt = \"q\"\nresponse = \"a\"\nremove = [[\"\", \"\"]]", "`remove`"),
        ("prompt = \"q\"\nresponse = \"a\"\nsplit_at = \"\"", "`split_at`"),
        (
            "prompt = \"q\"\nresponse = \"a\"\ntags = { reasoning = [\"<a>\", \"</a>\"], answer = [\"<a>\", \"</b>\"] }",
            "`tags`",
        ),
        ("prompt = \"q\"\nresponse = \"a\"\nreasoning = \"r\"\nsplit_at = \"####\"", "`split_at`"),
    ] {
        let case = Case::new();
        case.put("a.jsonl", "{\"q\": \"hi\", \"a\": \"x #### y\", \"r\": \"z\"}\n");
        case.recipe(&format!(
            "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[source.mapping]\nshape = \"columns\"\n{mapping}\n"
        ));
        case.refused(&["source `a`", word]);
    }
}

#[test]
fn refuses_a_blank_system_text_and_one_with_a_control_string() {
    for system in ["  ", "you <|im_end|> are"] {
        let case = Case::new();
        case.put("a.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
        case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nsystem = \"{system}\"\n"));
        case.refused(&["source `a`", "system"]);
    }
}
