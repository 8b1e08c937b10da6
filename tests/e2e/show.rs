//! `potable show`.

use serde_json::Value;

use super::harness::{Case, chat, lines};

const RECIPE: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";

fn prepared() -> (Case, String) {
    let case = Case::new();
    case.put(
        "a.jsonl",
        lines([
            chat("one?", "yes\u{1b}[31m"),
            chat("two?", "<think>\nhm\n</think>\n\nno"),
            chat("none?", ""),
        ]),
    );
    let data = case.prepared(RECIPE);
    let shard = format!("out/{}", data.shards.keys().next().unwrap());
    (case, shard)
}

#[test]
fn a_row_is_printed_with_what_is_trained_on_in_brackets() {
    let (case, shard) = prepared();
    let ran = case.potable(&["show", &shard, "--row", "0", "--tokenizer", "tokenizer.json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for part in [
        "of 2: a/a.jsonl:0, ",
        "<|im_start|>user\none?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n⟦yes\\u{1b}[31m<|im_end|>⟧\n",
        "<|im_start|>assistant\n⟦<think>\nhm\n</think>\n\nno<|im_end|>⟧\n",
    ] {
        assert!(ran.stdout.contains(part), "`{part}` is not in:\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains('\u{1b}'), "no terminal, no colours, and none of the data's");
}

#[test]
fn a_row_as_jsonl_holds_the_text_as_it_is() {
    let (case, shard) = prepared();
    let ran = case.potable(&["show", &shard, "--tokenizer", "tokenizer.json", "--format", "jsonl"]);
    let samples: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(samples.len(), 2);
    let one = samples.iter().find(|sample| sample["id"] == "a/a.jsonl:0").unwrap();
    let parts = one["parts"].as_array().unwrap();
    assert_eq!(parts[1]["text"], "yes\u{1b}[31m<|im_end|>");
    assert_eq!(parts[1]["trained"], true);
    assert_eq!(parts[0]["trained"], false);
    let trained = "yes\u{1b}[31m".len() + 1;
    assert_eq!(one["trained"], trained);
    assert_eq!(parts.len(), 3);
}

#[test]
fn refuses_what_is_no_shard_a_row_too_far_and_another_tokenizer() {
    let (case, shard) = prepared();
    let show = |args: &[&str]| case.potable(&[&["show"], args].concat());
    show(&["a.jsonl"]).is_refusal(&["a.jsonl", "not a shard"]);
    show(&["out/dropped/part-00000.parquet"]).is_refusal(&["part-00000.parquet", "no column `input_ids`"]);
    show(&[&shard, "--row", "7", "--tokenizer", "tokenizer.json"])
        .is_refusal(&["there is no row 7", "1 rows"]);
    show(&[&shard]).is_refusal(&["made with tokenizer `tokenizer.json`", "--tokenizer FILE"]);
    case.put("alone.parquet", std::fs::read(case.path(&shard)).unwrap());
    show(&["alone.parquet"]).is_refusal(&["there is no manifest.json above it"]);
    let given = show(&["alone.parquet", "--tokenizer", "tokenizer.json"]);
    assert_eq!(given.code, 0, "{}", given.stderr);
    let absent = show(&["absent.parquet"]);
    assert_eq!(absent.code, 2);
    assert!(absent.stderr.contains("cannot read `absent.parquet`"), "{}", absent.stderr);
}
