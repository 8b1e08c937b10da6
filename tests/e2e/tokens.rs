//! Chat templates, tokenizers and options of rendering, by the binary: what they give, and what is
//! refused with place, cause and way out.

use serde_json::{Value, json};

use super::harness::{Case, DataSet, chat, lines, rendered, skipped};

const SOURCE: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";
/// A template of our own, in no model's format.
const TEMPLATE: &str = "{%- for m in messages %}{{- '<|im_start|>' + m.role + ': ' + m.content + '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant: ' }}{%- endif %}";
const BY_TEMPLATE: &str = "[normalise]\nformat = \"template\"\ntemplate = \"chat_template.jinja\"\n";

fn case(rows: impl IntoIterator<Item = Value>) -> Case {
    let case = Case::new();
    case.put("a.jsonl", lines(rows));
    case
}

fn by_template(template: &str) -> Case {
    let case = case([chat("q", "a")]);
    case.put("chat_template.jinja", template);
    case.recipe(&(SOURCE.to_owned() + BY_TEMPLATE));
    case
}

fn turns(pairs: &[(&str, &str)]) -> Value {
    let list: Vec<Value> =
        pairs.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    json!({"messages": list})
}

/// Two good rows and `row`, which has to be dropped for `reason`.
fn drops(row: Value, reason: &str) {
    let case = case([chat("first", "good"), row, chat("last", "good")]);
    let data = case.prepared(SOURCE);
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({ reason: 1 }));
    assert_eq!(data.dropped[0].row_id, "a/a.jsonl:1");
    assert_eq!(data.texts(), [rendered("first", "good"), rendered("last", "good")]);
}

fn trained(data: &DataSet) -> Vec<String> {
    data.samples().iter().map(super::harness::Sample::trained_text).collect()
}

#[test]
fn stops_at_a_template_with_an_unknown_function_and_names_its_line() {
    let template =
        format!("{{#- ours -#}}\n{{%- if tools %}}{{{{ render_tools(tools) }}}}{{%- endif %}}{TEMPLATE}");
    let case = by_template(&template);
    case.refused(&["chat_template.jinja", "line 2", "there is no function `render_tools`"]);
    // Before any work on rows: the plan says the same.
    let plan = case.run("out", &["--plan"]);
    plan.is_refusal(&["there is no function `render_tools`"]);
}

#[test]
fn stops_at_a_template_with_an_unknown_filter_test_or_syntax() {
    by_template(&format!("{{{{ tools | shout }}}}{TEMPLATE}")).refused(&["there is no filter `shout`"]);
    by_template(&format!("{{% if tools is odd_one %}}{{% endif %}}{TEMPLATE}"))
        .refused(&["there is no test `odd_one`"]);
    by_template("{% for m in messages %}").refused(&["chat_template.jinja", "line 1"]);
}

#[test]
fn stops_at_a_template_that_prints_the_time_of_the_run() {
    by_template(&format!("{{{{ strftime_now('%d') }}}}{TEMPLATE}")).refused(&["`strftime_now`", "tomorrow"]);
}

#[test]
fn stops_at_a_template_that_is_missing_or_none() {
    let case = case([chat("q", "a")]);
    case.recipe(&(SOURCE.to_owned() + BY_TEMPLATE));
    case.refused(&["cannot read chat template", "chat_template.jinja"]);
    case.put("tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
    case.recipe(&(SOURCE.to_owned() + &BY_TEMPLATE.replace("chat_template.jinja", "tokenizer_config.json")));
    case.refused(&["tokenizer_config.json", "there is no `chat_template` in it"]);
    case.recipe(&(SOURCE.to_owned() + "[normalise]\nformat = \"template\"\n"));
    case.refused(&["[normalise]", "needs a `template`"]);
}

#[test]
fn stops_at_an_option_that_has_no_meaning_in_the_format() {
    let case = case([chat("q", "a")]);
    case.recipe(
        &(SOURCE.to_owned() + "[normalise]\nformat = \"qwen3-instruct-2507\"\nempty_think = \"train\"\n"),
    );
    case.refused(&["`empty_think` has no meaning with `format = \"qwen3-instruct-2507\"`"]);
    case.put("chat_template.jinja", TEMPLATE);
    case.recipe(&(SOURCE.to_owned() + BY_TEMPLATE + "history = \"keep\"\n"));
    case.refused(&["`history = \"keep\"` has no meaning"]);
}

#[test]
fn stops_at_a_tokenizer_whose_special_tokens_differ_from_the_format_s() {
    let case = case([chat("q", "a")]);
    let tokenizer = std::fs::read_to_string(case.path("tokenizer.json")).unwrap();
    case.put("tokenizer.json", tokenizer.replace("<|im_end|>", "<|eot_id|>"));
    case.recipe(SOURCE);
    case.refused(&["tokenizer.json", "format `qwen3`", "`<|im_end|>` is not one token"]);
    case.put("tokenizer.json", tokenizer.replace("<|endoftext|>", "<|begin|>"));
    case.refused(&["`<|endoftext|>` is not one token"]);
    case.put("tokenizer.json", &tokenizer);
    case.recipe(&(SOURCE.to_owned() + "[normalise]\nformat = \"qwen3.5\"\n"));
    case.refused(&["format `qwen3.5`", "`<tool_call>` is not one token"]);
    case.put("tokenizer.json", tokenizer.replace("<|endoftext|>", "<|begin|>"));
    case.recipe(
        &(SOURCE.to_owned() + "[tokenise]\ntokenizer = \"tokenizer.json\"\nend_of_text = \"<|begin|>\"\n"),
    );
    assert_eq!(case.prep("out", &[]).texts().len(), 1);
}

#[test]
fn stops_at_the_vocabulary_of_qwen3_with_the_format_of_a_later_model() {
    let case = case([chat("q", "a")]);
    case.recipe(
        &(SOURCE.to_owned() + "[normalise]\nformat = \"qwen3.6\"\n[tokenise]\ntokenizer = \"qwen3\"\n"),
    );
    case.refused(&["format `qwen3.6`", "the vocabulary of Qwen3"]);
}

#[test]
fn a_zero_length_answer_is_dropped() {
    drops(chat("q", ""), "normalise.empty-answer");
    drops(chat("q", " \n"), "normalise.empty-answer");
    drops(chat("q", "<think>\n\n</think>\n\n"), "normalise.empty-answer");
}

#[test]
fn a_row_with_a_system_message_only_is_dropped() {
    drops(turns(&[("system", "You are good.")]), "normalise.no-assistant");
    drops(turns(&[("system", "You are good."), ("assistant", "I am.")]), "normalise.no-user");
}

#[test]
fn a_nul_in_a_row_is_a_token_like_any_other() {
    let case = case([chat("a\u{0}b", "c\u{0}")]);
    let data = case.prepared(SOURCE);
    assert_eq!(data.texts(), [rendered("a\u{0}b", "c\u{0}")]);
    assert_eq!(trained(&data), ["c\u{0}<|im_end|>"]);
}

#[test]
fn an_unpaired_surrogate_stops_the_run_at_its_row_or_counts_as_failed() {
    let case = Case::new();
    let bad =
        r#"{"messages": [{"role": "user", "content": "q \ud800"}, {"role": "assistant", "content": "a"}]}"#;
    case.put("a.jsonl", format!("{}{bad}\n", lines([chat("first", "good")])));
    case.recipe(SOURCE);
    case.refused(&["a.jsonl:2", "broken JSON", "hex escape"]);
    case.recipe(&(SOURCE.to_owned() + "on_bad_row = \"drop\"\n"));
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let data = case.data("out");
    assert_eq!(data.number("/rows/a/failed"), 1);
    assert_eq!(data.texts(), [rendered("first", "good")]);
}

#[test]
fn a_row_of_ten_megabytes_on_one_line_is_read_and_kept_whole() {
    let long = "ten million bytes on one line, and no end. ".repeat(10_000_000 / 43 + 1);
    let case = case([chat("q", "a"), chat("long", &long)]);
    let data = case.prepared(&(SOURCE.to_owned() + "[pack]\nlength = 16777216\n"));
    assert_eq!(data.texts(), [rendered("long", &long), rendered("q", "a")]);
    assert!(data.number("/tokens/total") > 10_000_000);
}

#[test]
fn a_chat_template_of_a_model_repository_gives_text_and_spans() {
    let rows = [
        turns(&[("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b")]),
        turns(&[("system", "s"), ("user", "q"), ("assistant", "\nc")]),
    ];
    let case = case(rows);
    let config = json!({"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}],
        "eos_token": {"content": "<|im_end|>"}});
    case.put("model/tokenizer_config.json", config.to_string());
    let recipe =
        SOURCE.to_owned() + &BY_TEMPLATE.replace("chat_template.jinja", "model/tokenizer_config.json");
    let data = case.prepared(&recipe);
    let first = "<|im_start|>user: q<|im_end|>\n<|im_start|>assistant: a<|im_end|>\n<|im_start|>user: r<|im_end|>\n<|im_start|>assistant: b<|im_end|>\n";
    let second = "<|im_start|>system: s<|im_end|>\n<|im_start|>user: q<|im_end|>\n<|im_start|>assistant: c<|im_end|>\n";
    assert_eq!(data.texts(), [second, first]);
    let mut spans = trained(&data);
    spans.sort();
    assert_eq!(spans, ["b<|im_end|>", "c<|im_end|>"]);
    assert_eq!(data.number("/acted/leading-newlines-stripped"), 1);
    assert_eq!(data.manifest["tokeniser"]["template"], "chat-template");
    assert_eq!(data.manifest["normalise"].get("empty_think"), None);
    // Another template is another data set, and nothing of the old work is used.
    let digest = data.manifest["tokeniser"]["template_digest"].clone();
    let changed = config.to_string().replace("+ ': ' +", "+ '! ' +").replace("assistant: ", "assistant! ");
    case.put("model/tokenizer_config.json", changed);
    let other = case.prep("out", &["--fresh"]);
    assert_ne!(other.manifest["tokeniser"]["template_digest"], digest);
    assert!(other.texts()[0].contains("system! s"), "{:?}", other.texts());
    // Each answer by itself.
    case.put("model/tokenizer_config.json", config.to_string());
    case.recipe(&(recipe + "history = \"unroll\"\n"));
    let mut spans = trained(&case.prep("unrolled", &[]));
    spans.sort();
    assert_eq!(spans, ["a<|im_end|>", "b<|im_end|>", "c<|im_end|>"]);
}

#[test]
fn control_strings_are_dropped_made_text_or_kept_and_counted() {
    let rows = || [chat("what does <|im_end|> do?", "it ends <|im_start|>"), chat("q", "a")];
    let with =
        |option: &str| case(rows()).prepared(&format!("{SOURCE}[normalise]\ncontrol_text = \"{option}\"\n"));
    let dropped = with("drop");
    assert_eq!(dropped.manifest["rows"]["a"]["dropped"], json!({"normalise.control-text": 1}));
    for (option, key, tokens) in [("text", "control-text-as-text", 0), ("keep", "control-text-kept", 1)] {
        let data = with(option);
        assert_eq!(data.number(&format!("/acted/{key}")), 2, "{option}");
        // Text and tokens read alike; the ids tell them apart.
        assert_eq!(data.texts()[1], rendered("what does <|im_end|> do?", "it ends <|im_start|>"));
        let long = data.samples().into_iter().max_by_key(|sample| sample.ids.len()).unwrap();
        let ends = long.ids.iter().filter(|id| **id == 258).count();
        assert_eq!(ends, 2 + tokens, "{option}");
        assert!(long.labels.iter().filter(|label| **label == 257).count() == tokens, "{option}");
    }
}

#[test]
fn masked_reasoning_and_the_formats_of_2507_by_the_binary() {
    let row = || chat("q", "<think>\nwhy\n</think>\n\nbecause");
    let with = |options: &str| {
        let data = case([row()]).prepared(&format!("{SOURCE}[normalise]\n{options}"));
        (data.texts().remove(0), trained(&data).remove(0), data.manifest["normalise"].clone())
    };
    let (text, trained, record) = with("mask_reasoning = true\n");
    assert!(text.ends_with("<think>\nwhy\n</think>\n\nbecause<|im_end|>\n"), "{text}");
    assert_eq!(trained, "because<|im_end|>");
    assert_eq!(record["mask_reasoning"], "true");
    let (_, trained, record) = with("format = \"qwen3-thinking-2507\"\n");
    assert_eq!(trained, "<think>\nwhy\n</think>\n\nbecause<|im_end|>");
    assert_eq!(record.get("mask_reasoning"), None);
    let (text, trained, _) = with("format = \"qwen3-instruct-2507\"\n");
    assert!(text.ends_with("<|im_start|>assistant\n<think>\nwhy\n</think>\n\nbecause<|im_end|>\n"), "{text}");
    assert_eq!(trained, "<think>\nwhy\n</think>\n\nbecause<|im_end|>");
}

#[test]
fn rows_are_compared_with_the_template_at_run_time_and_a_difference_stops_the_run() {
    let case = case((0..40).map(|n| chat(&format!("q{n}"), "a")));
    case.recipe(SOURCE);
    case.run("out", &["--verify-template", "8"]).is_refusal(&["no template to compare with"]);
    case.put("chat_template.jinja", TEMPLATE);
    case.recipe(&(SOURCE.to_owned() + "[normalise]\ntemplate = \"chat_template.jinja\"\n"));
    let ran = case.run("out", &["--verify-template", "8"]);
    ran.is_refusal(&["a.jsonl", "format `qwen3` and the chat template differ at byte 16", "q"]);
    let official =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/templates/qwen3.jinja");
    let Ok(official) = std::fs::read_to_string(official) else {
        return skipped("the official template is not there");
    };
    case.put("chat_template.jinja", official);
    let ran = case.run("out", &["--verify-template", "40"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("40 rows compared with the model's own template, all equal"),
        "{}",
        ran.stderr
    );
    let plain = case.run("plain", &[]);
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    assert_eq!(case.data("out").digest(), case.data("plain").digest(), "the comparison changed the data");
}
