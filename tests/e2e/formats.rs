//! File formats and compressions: the same rows give the same tokens.

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, DictionaryArray, GenericListArray, LargeStringArray, OffsetSizeTrait, RecordBatch,
    StringArray, StringViewArray, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Fields, Int32Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::basic::{Compression, ZstdLevel};
use serde_json::{Value, json};

use super::harness::{Case, chats, lines, parquet_bytes, question, rendered};

const ROWS: usize = 20;

/// The texts of the twenty rows, sorted.
fn expected() -> Vec<String> {
    let mut texts: Vec<String> = (0..ROWS).map(question).map(|(q, a)| rendered(&q, &a)).collect();
    texts.sort();
    texts
}

/// Asserts that a file of the twenty rows gives their texts, whole and cut into small pieces.
fn reads(file: &str, bytes: &[u8]) {
    let case = Case::new();
    case.put(file, bytes);
    case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"{file}\"\n"));
    let whole = case.prep("out", &[]);
    assert_eq!(whole.texts(), expected(), "{file}");
    let pieces = case.prep("pieces", &["--unit-bytes", "500", "--chunk-bytes", "150"]);
    assert_eq!(pieces.bytes, whole.bytes, "{file}");
    assert_eq!(pieces.digest(), whole.digest(), "{file}");
}

fn prompt_rows() -> Vec<Value> {
    (0..ROWS)
        .map(question)
        .map(|(prompt, response)| json!({"prompt": prompt, "response": response}))
        .collect()
}

/// Prompt and response of rows `0..rows` as a table.
pub fn prompt_table(rows: usize) -> RecordBatch {
    prompt_table_from(0, rows)
}

/// The same from row `first`.
pub fn prompt_table_from(first: usize, rows: usize) -> RecordBatch {
    let (prompts, responses): (Vec<String>, Vec<String>) = (first..first + rows).map(question).unzip();
    columns(Arc::new(StringArray::from(prompts)), Arc::new(StringArray::from(responses)))
}

fn columns(prompt: ArrayRef, response: ArrayRef) -> RecordBatch {
    let number: ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..prompt.len() as i64));
    RecordBatch::try_from_iter([("number", number), ("prompt", prompt), ("response", response)]).unwrap()
}

/// Messages of the twenty rows as a list of structs; `O` decides on `List` or `LargeList`.
fn message_table<O: OffsetSizeTrait>() -> RecordBatch {
    let contents: Vec<String> = (0..ROWS).map(question).flat_map(|(q, a)| [q, a]).collect();
    let roles: Vec<&str> = (0..ROWS).flat_map(|_| ["user", "assistant"]).collect();
    let fields: Vec<(&str, ArrayRef)> = vec![
        ("content", Arc::new(StringArray::from(contents))),
        ("role", Arc::new(StringArray::from(roles))),
    ];
    let schema: Fields =
        fields.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let structs = StructArray::new(schema, fields.into_iter().map(|(_, array)| array).collect(), None);
    let item = Arc::new(Field::new_list_field(structs.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(2, ROWS));
    let list = GenericListArray::<O>::new(item, offsets, Arc::new(structs), None);
    RecordBatch::try_from_iter([("messages", Arc::new(list) as ArrayRef)]).unwrap()
}

/// A table as an Arrow stream, in batches of `rows`.
pub fn arrow_stream(table: &RecordBatch, rows: usize) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &table.schema()).unwrap();
    for start in (0..table.num_rows()).step_by(rows) {
        writer.write(&table.slice(start, rows.min(table.num_rows() - start))).unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

fn arrow_file(table: &RecordBatch, rows: usize) -> Vec<u8> {
    let mut writer = FileWriter::try_new(Vec::new(), &table.schema()).unwrap();
    for start in (0..table.num_rows()).step_by(rows) {
        writer.write(&table.slice(start, rows.min(table.num_rows() - start))).unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The rows cut inside of a row, so that two members, frames or streams share it.
fn halves() -> (Vec<u8>, Vec<u8>) {
    let mut first = chats(ROWS).into_bytes();
    let second = first.split_off(first.len() / 2 + 3);
    (first, second)
}

#[test]
fn jsonl_is_read() {
    reads("a.jsonl", chats(ROWS).as_bytes());
}

#[test]
fn jsonl_without_a_last_newline_with_blank_lines_crlf_and_a_byte_order_mark_is_read() {
    let text = chats(ROWS).replace('\n', "\r\n\r\n \n");
    reads("a.jsonl", format!("\u{feff}{}", text.trim_end()).as_bytes());
}

#[test]
fn a_json_array_is_read() {
    let rows: Vec<Value> = chats(ROWS).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    reads("a.json", Value::from(rows.clone()).to_string().as_bytes());
    reads("pretty.json", serde_json::to_string_pretty(&rows).unwrap().as_bytes());
}

#[test]
fn csv_is_read() {
    let rows: String = (0..ROWS).map(question).map(|(q, a)| format!("{q},{a}\n")).collect();
    reads("a.csv", format!("prompt,response\n{rows}").as_bytes());
}

#[test]
fn csv_fields_may_hold_commas_quotes_and_newlines() {
    let case = Case::new();
    case.put("a.csv", "\u{feff}response,prompt\r\n\"one, \"\"two\"\"\r\nthree\",\"a\nb\"\r\nplain,q\r\n");
    let data = case.prepared("[[source]]\npath = \"a.csv\"\n");
    let mut expected = [rendered("a\nb", "one, \"two\"\r\nthree"), rendered("q", "plain")];
    expected.sort();
    assert_eq!(data.texts(), expected);
}

#[test]
fn parquet_is_read_with_several_row_groups_and_compressions() {
    let table = prompt_table(ROWS);
    reads("snappy.parquet", &parquet_bytes(&table, Compression::SNAPPY, 7));
    reads("zstd.parquet", &parquet_bytes(&table, Compression::ZSTD(ZstdLevel::try_new(3).unwrap()), 3));
    reads("plain.parquet", &parquet_bytes(&table, Compression::UNCOMPRESSED, 1000));
}

#[test]
fn parquet_text_is_read_in_every_layout() {
    let (prompts, responses): (Vec<String>, Vec<String>) = (0..ROWS).map(question).unzip();
    let large: ArrayRef = Arc::new(LargeStringArray::from(prompts.clone()));
    let view: ArrayRef = Arc::new(StringViewArray::from_iter_values(&responses));
    reads("views.parquet", &parquet_bytes(&columns(large, view), Compression::SNAPPY, 6));
    let dictionary: DictionaryArray<Int32Type> = prompts.iter().map(String::as_str).collect();
    let plain: ArrayRef = Arc::new(StringArray::from(responses));
    reads(
        "dictionary.parquet",
        &parquet_bytes(&columns(Arc::new(dictionary), plain), Compression::SNAPPY, 6),
    );
}

#[test]
fn parquet_lists_of_messages_are_read() {
    reads("list.parquet", &parquet_bytes(&message_table::<i32>(), Compression::SNAPPY, 6));
    reads("large-list.parquet", &parquet_bytes(&message_table::<i64>(), Compression::SNAPPY, 6));
}

#[test]
fn arrow_streams_and_arrow_files_are_read() {
    reads("stream.arrow", &arrow_stream(&prompt_table(ROWS), 6));
    reads("file.arrow", &arrow_file(&prompt_table(ROWS), 6));
    reads("messages.arrow", &arrow_stream(&message_table::<i64>(), 7));
}

#[test]
fn gzip_of_two_members_is_read_whole() {
    let (first, second) = halves();
    reads("a.jsonl.gz", &[gzip(&first), gzip(&second)].concat());
}

#[test]
fn zst_of_two_frames_is_read_whole() {
    let (first, second) = halves();
    let frame = |bytes: &[u8]| zstd::encode_all(bytes, 3).unwrap();
    reads("a.jsonl.zst", &[frame(&first), frame(&second)].concat());
}

#[test]
fn zst_with_a_long_window_is_read() {
    // As `zstd --long=28` writes it; decoders refuse more than 27 unless told otherwise.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(28).unwrap();
    encoder.write_all(chats(ROWS).as_bytes()).unwrap();
    reads("a.jsonl.zst", &encoder.finish().unwrap());
}

#[test]
fn bz2_of_two_streams_is_read_whole() {
    let (first, second) = halves();
    let stream = |bytes: &[u8]| {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    reads("a.jsonl.bz2", &[stream(&first), stream(&second)].concat());
}

#[test]
fn xz_of_two_streams_is_read_whole() {
    let (first, second) = halves();
    let stream = |bytes: &[u8]| {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    reads("a.jsonl.xz", &[stream(&first), stream(&second)].concat());
}

#[test]
fn a_compressed_csv_and_a_compressed_json_array_are_read() {
    let rows: String = (0..ROWS).map(question).map(|(q, a)| format!("{q},{a}\n")).collect();
    reads("a.csv.gz", &gzip(format!("prompt,response\n{rows}").as_bytes()));
    let array = Value::from(prompt_rows()).to_string();
    reads("a.json.zst", &zstd::encode_all(array.as_bytes(), 3).unwrap());
}

#[test]
fn every_format_gives_the_same_ids_with_the_built_in_tokenizer() {
    let case = Case::new();
    case.put("a.jsonl", chats(ROWS));
    case.put("b.parquet", parquet_bytes(&message_table::<i32>(), Compression::SNAPPY, 6));
    case.put("c.arrow", arrow_stream(&prompt_table(ROWS), 6));
    let mut found = Vec::new();
    for file in ["a.jsonl", "b.parquet", "c.arrow"] {
        let source =
            format!("[[source]]\nname = \"a\"\npath = \"{file}\"\n[tokenise]\ntokenizer = \"qwen3\"\n");
        case.recipe(&source);
        found.push(case.prep(&format!("out-{file}"), &[]).token_sequences());
    }
    assert_eq!(found[0].len(), ROWS);
    assert!(found[0][0].starts_with(&[151_644, 872, 198]), "{:?}", found[0][0]);
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

#[test]
fn a_folder_and_a_glob_read_all_their_files() {
    let case = Case::new();
    let all = chats(ROWS);
    let rows: Vec<&str> = all.lines().collect();
    case.put("data/x/1.jsonl", rows[..5].join("\n"));
    case.put("data/2.jsonl.zst", zstd::encode_all(rows[5..9].join("\n").as_bytes(), 3).unwrap());
    case.put("data/x/3.json", format!("[{}]", rows[9..15].join(",")));
    case.put("data/y/4.jsonl", rows[15..].join("\n"));
    case.put("data/README.md", "not data");
    case.recipe("[[source]]\nname = \"a\"\npath = \"data\"\n");
    let folder = case.prep("folder", &[]);
    assert_eq!(folder.texts(), expected());
    assert!(folder.names().contains(&"a/x/1.jsonl:0".to_owned()));
    case.recipe(
        "[[source]]\nname = \"a\"\npath = [\"data/**/*.jsonl\", \"data/x/*.json\", \"data/*.zst\"]\n",
    );
    let globs = case.prep("globs", &[]);
    assert_eq!(globs.bytes, folder.bytes);
    case.recipe("[[source]]\nname = \"a\"\npath = \"data/x\"\nformat = \"jsonl\"\n");
    assert_eq!(case.prep("one", &[]).samples().len(), 5);
}

#[test]
fn hidden_files_and_folders_are_left_out_of_folders_and_globs() {
    let case = Case::new();
    case.put("data/a.jsonl", chats(ROWS));
    case.put("data/.b.jsonl", "hidden");
    case.put("data/.cache/c.jsonl", "hidden");
    for (n, path) in ["data", "data/**/*.jsonl"].into_iter().enumerate() {
        case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"{path}\"\n"));
        assert_eq!(case.prep(&format!("out{n}"), &[]).texts(), expected(), "{path}");
    }
}

#[test]
fn an_empty_first_file_does_not_hide_the_shape_of_the_others() {
    let case = Case::new();
    case.put("data/1.jsonl", "");
    case.put("data/2.jsonl", lines(prompt_rows()));
    let data = case.prepared("[[source]]\nname = \"a\"\npath = \"data\"\n");
    assert_eq!(data.texts(), expected());
}

#[test]
fn a_file_named_twice_is_read_once() {
    let case = Case::new();
    case.put("a.jsonl", chats(ROWS));
    let recipe = "[[source]]\nname = \"a\"\npath = [\"a.jsonl\", \"*.jsonl\"]\n[dedup]\nexact = \"none\"\n";
    assert_eq!(case.prepared(recipe).texts(), expected());
}

#[test]
fn format_in_the_recipe_wins_over_the_name() {
    let case = Case::new();
    case.put("rows.data", lines(prompt_rows()));
    assert_eq!(case.prepared("[[source]]\npath = \"rows.data\"\nformat = \"jsonl\"\n").texts(), expected());
}

#[test]
fn paths_are_relative_to_the_recipe_file() {
    let case = Case::new();
    case.put("project/rows/a.jsonl", chats(ROWS));
    case.put("project/conf/tokenizer.json", std::fs::read(case.path("tokenizer.json")).unwrap());
    case.recipe("[[source]]\npath = \"../rows/a.jsonl\"\n");
    std::fs::rename(case.path("recipe.toml"), case.path("project/conf/recipe.toml")).unwrap();
    let ran = case.potable(&["prep", "project/conf/recipe.toml", "--no-progress"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(case.data("t").texts(), expected());
}

#[test]
fn links_to_files_are_followed_and_a_link_to_its_own_folder_is_no_trap() {
    let case = Case::new();
    case.put("blobs/0a1b", chats(ROWS));
    std::fs::create_dir(case.path("data")).unwrap();
    std::os::unix::fs::symlink("../blobs/0a1b", case.path("data/a.jsonl")).unwrap();
    std::os::unix::fs::symlink(".", case.path("data/loop")).unwrap();
    let recipe = "[[source]]\nname = \"a\"\npath = \"data\"\n[dedup]\nexact = \"none\"\n";
    assert_eq!(case.prepared(recipe).texts(), expected());
}
