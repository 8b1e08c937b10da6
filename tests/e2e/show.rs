//! `potable show`.

use serde_json::Value;

use potable::recipe::file::ShardFormat;

use super::harness::{Case, Ran, chat, lines};

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

/// With `control_text = "text"` a row can hold what reads like a control token, and any character.
#[test]
fn text_that_looks_like_a_control_token_or_a_mark_is_told_apart() {
    let case = Case::new();
    case.put("a.jsonl", lines([chat("<|im_end|> ⟦x⟧?", "so <|im_end|>")]));
    let data = case.prepared(&format!("{RECIPE}[normalise]\ncontrol_text = \"text\"\n"));
    let shard = format!("out/{}", data.shards.keys().next().unwrap());
    let args = ["show", &shard, "--tokenizer", "tokenizer.json"];
    let plain = case.potable(&args).stdout;
    let asked = "<|im_start|>user\n\\u{3c}|im_end|> \\u{27e6}x\\u{27e7}?<|im_end|>\n";
    assert!(plain.contains(asked) && plain.contains("⟦so \\u{3c}|im_end|><|im_end|>⟧"), "{plain}");
    let coloured = |vars: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_potable"));
        command.current_dir(case.path("")).args(args).env_remove("NO_COLOR").envs(vars.iter().copied());
        super::harness::ran(&mut command).stdout
    };
    let colours = coloured(&[("CLICOLOR_FORCE", "1")]);
    for part in [
        "\u{1b}[1m<|im_start|>\u{1b}[0muser\n\\u{3c}|im_end|> ",
        "\u{1b}[32mso \\u{3c}|im_end|>\u{1b}[0m\u{1b}[1;32m<|im_end|>\u{1b}[0m",
    ] {
        assert!(colours.contains(part), "{colours:?}");
    }
    assert_eq!(coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), plain);
    let jsonl = case.potable(&[&args[..], &["--format", "jsonl"]].concat()).stdout;
    let sample: Value = serde_json::from_str(jsonl.lines().next().unwrap()).unwrap();
    let ids: Vec<i64> = sample["parts"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|part| part["ids"].as_array().unwrap())
        .map(|id| id.as_i64().unwrap())
        .collect();
    assert_eq!(ids, data.packs()[0].ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>());
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
    show(&["out/dropped/part-00000.parquet"]).is_refusal(&["part-00000.parquet", "not a shard"]);
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

/// Runs a recipe; gives the paths of its shards.
fn shards(case: &Case, recipe: &str) -> Vec<String> {
    case.recipe(recipe);
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(case.path("out/manifest.json")).unwrap()).unwrap();
    let shards = manifest["shards"].as_array().unwrap().iter();
    shards.map(|shard| format!("out/{}", shard["path"].as_str().unwrap())).collect()
}

/// Every row of every shard of a data set, shown: id and parts of each sample, sorted.
fn shown(case: &Case, shards: &[String]) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for shard in shards {
        for row in 0.. {
            let args = [
                "show",
                shard,
                "--row",
                &row.to_string(),
                "--tokenizer",
                "tokenizer.json",
                "--format",
                "jsonl",
            ];
            let ran: Ran = case.potable(&args);
            if ran.code == 2 {
                assert!(ran.stderr.contains(&format!("it has {row} rows")), "{}", ran.stderr);
                break;
            }
            for line in ran.stdout.lines() {
                let sample: Value = serde_json::from_str(line).unwrap();
                all.push((sample["id"].as_str().unwrap().to_owned(), sample["parts"].clone()));
            }
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn every_format_shows_the_samples_that_parquet_shows() {
    let answer = |n| format!("<think>\nhm {n}\n</think>\n\nanswer {n}");
    let rows = lines((0..7).map(|n| chat(&format!("question {n}?"), &answer(n))));
    let of = |format: ShardFormat| {
        let case = Case::new();
        case.put("a.jsonl", &rows);
        let options = format!("[pack]\nlength = 200\n[output]\nformat = \"{}\"\n", format.name());
        shown(&case, &shards(&case, &format!("{RECIPE}{options}")))
    };
    let expected = of(ShardFormat::Parquet);
    assert_eq!(expected.len(), 7);
    for format in ShardFormat::ALL.into_iter().filter(|format| format.has_mask()) {
        assert_eq!(of(format), expected, "{}", format.name());
    }
}

#[test]
fn a_shard_of_plain_documents_is_shown_as_trained_on_from_the_second_token() {
    let case = Case::new();
    case.put("a.jsonl", lines([serde_json::json!({"text": "abc"})]));
    let recipe = format!("{RECIPE}[normalise]\nformat = \"text\"\n[output]\nformat = \"megatron\"\n");
    let shard = shards(&case, &recipe).remove(0);
    let ran = case.potable(&["show", &shard, "--tokenizer", "tokenizer.json"]);
    assert!(ran.stdout.contains("a⟦bc<|endoftext|>⟧"), "{}\n{}", ran.stdout, ran.stderr);
    let index = shard.replace(".bin", ".idx");
    case.potable(&["show", &index, "--tokenizer", "tokenizer.json"])
        .is_refusal(&["not a shard", "name the main file"]);
}
