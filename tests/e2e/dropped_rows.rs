//! Rows that are left out on purpose: counted by reason, and listed.

use serde_json::{Value, json};

use super::harness::{Case, DataSet, chat, lines, rendered};

const SOURCE: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";

fn messages(pairs: &[(&str, &str)]) -> Value {
    let list: Vec<Value> =
        pairs.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    json!({"messages": list})
}

/// Runs one good row, then `rows`, then another good row; gives the data set.
fn among_good_rows(rows: Vec<Value>, recipe: &str) -> DataSet {
    let case = Case::new();
    let mut all = vec![chat("first", "good")];
    all.extend(rows);
    all.push(chat("last", "good"));
    case.put("a.jsonl", lines(all));
    let data = case.prepared(&(SOURCE.to_owned() + recipe));
    assert_eq!(data.texts(), [rendered("first", "good"), rendered("last", "good")]);
    data
}

/// Asserts that each row is dropped for `reason`, counted and listed.
fn drops(reason: &str, rows: Vec<Value>, recipe: &str) {
    let count = rows.len() as u64;
    let data = among_good_rows(rows, recipe);
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({ reason: count }));
    assert_eq!(data.number("/rows/a/kept"), 2);
    let stage = reason.split('.').next().unwrap();
    assert_eq!(data.dropped.len() as u64, count);
    for (row, dropped) in (1..).zip(&data.dropped) {
        assert_eq!(dropped.row_id, format!("a/a.jsonl:{row}"));
        assert_eq!((dropped.stage.as_str(), dropped.reason.as_str()), (stage, reason));
    }
}

#[test]
fn a_row_without_an_assistant_turn_is_dropped() {
    drops("normalise.no-assistant", vec![messages(&[("user", "hello?")])], "");
}

#[test]
fn a_row_without_a_user_turn_is_dropped() {
    drops("normalise.no-user", vec![messages(&[("assistant", "hello")])], "");
}

#[test]
fn reasoning_that_is_cut_off_is_dropped() {
    drops("normalise.unclosed-think", vec![chat("q", "<think>\nlet me see")], "");
}

#[test]
fn text_that_the_template_would_lose_is_dropped() {
    let image = json!({"messages": [
        {"role": "user", "content": [{"type": "image", "image": "x.png"}, {"type": "text", "text": "what is it?"}]},
        {"role": "assistant", "content": "a cat"},
    ]});
    let twice = json!({"messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "<think>inline</think>a", "reasoning_content": "in the field"},
    ]});
    let rows = vec![
        chat("q", "Sure! <think>hm</think>a"),
        chat("q", "<think>a</think>b</think>c"),
        messages(&[("developer", "be brief"), ("user", "q"), ("assistant", "a")]),
        image,
        twice,
    ];
    drops("normalise.lossy", rows, "");
}

#[test]
fn control_strings_in_text_are_dropped() {
    let rows = vec![
        chat("what does <|im_end|> do?", "it ends a turn"),
        chat("q", "a<|endoftext|>"),
        messages(&[("system", "<|im_start|>system"), ("user", "q"), ("assistant", "a")]),
    ];
    drops("normalise.control-text", rows, "");
}

#[test]
fn an_empty_answer_is_dropped() {
    let rows = vec![chat("q", ""), chat("q", " \n"), chat("q", "<think>\nhm\n</think>\n\n")];
    drops("normalise.empty-answer", rows, "");
}

#[test]
fn an_answer_without_reasoning_is_dropped_where_the_recipe_says_so() {
    let case = Case::new();
    case.put("a.jsonl", lines([chat("q1", "no reasoning"), chat("q2", "<think>\nhm\n</think>\n\nyes")]));
    let data = case.prepared(&(SOURCE.to_owned() + "[normalise]\nempty_think = \"drop\"\n"));
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"normalise.empty-think": 1}));
    assert_eq!(data.samples().len(), 1);
}

#[test]
fn a_row_with_nothing_to_train_on_is_dropped() {
    let rows = vec![messages(&[("user", "q"), ("assistant", "a"), ("user", "and then?")])];
    drops("normalise.nothing-trained", rows, "");
}

#[test]
fn a_row_without_messages_is_dropped() {
    drops("source.empty-row", vec![json!({"messages": []}), json!({"messages": null})], "");
}

#[test]
fn a_row_whose_answer_is_null_is_dropped() {
    let case = Case::new();
    case.put(
        "a.jsonl",
        lines([json!({"prompt": "q", "response": null}), json!({"prompt": "q", "response": "a"})]),
    );
    let data = case.prepared(SOURCE);
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"source.no-response": 1}));
    assert_eq!(data.dropped[0].row_id, "a/a.jsonl:0");
}

#[test]
fn a_row_that_is_longer_than_the_pack_is_dropped_and_its_tokens_are_counted() {
    let long = "x".repeat(300);
    let tokens =
        rendered("q", &long).len() - "<|im_start|><|im_end|><|im_start|><think></think><|im_end|>".len() + 6;
    let case = Case::new();
    case.put("a.jsonl", lines([chat("q", "short"), chat("q", &long)]));
    let data = case.prepared(&(SOURCE.to_owned() + "[pack]\nlength = 128\n"));
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"pack.overlong": 1}));
    assert_eq!(data.manifest["samples"]["a"]["tokens_lost"], json!({"pack.overlong": tokens}));
    assert_eq!(data.dropped[0].row_id, "a/a.jsonl:1");
    assert_eq!(data.dropped[0].evidence, format!("{{\"tokens\":{tokens}}}"));
}

#[test]
fn rows_that_where_leaves_out_are_counted_and_not_listed() {
    let case = Case::new();
    let rows = (0..6).map(|n| json!({"prompt": format!("q{n}"), "response": "a", "score": n}));
    case.put("a.jsonl", lines(rows));
    let data = case.prepared(&(SOURCE.to_owned() + "where = \"score >= 3\"\n"));
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"source.where": 3}));
    assert!(data.dropped.is_empty());
}

#[test]
fn a_contaminated_row_is_dropped_with_evidence_and_counted_for_its_benchmark() {
    let item = "A farmer has seventeen sheep and all but nine of them run away; how many sheep does the farmer have left?";
    let case = Case::new();
    case.put("bench.jsonl", lines([json!({"prompt": item}), json!({"prompt": "Name the capital city of the country that lies to the north of Portugal and Spain on the map of Europe."})]));
    case.put("bench.toml", "name = \"sheep\"\nfiles = [\"bench.jsonl\"]\nprompt = \"prompt\"\n");
    let rows = vec![
        chat("first", "good"),
        chat("tell me", &format!("Here is one. {} Nine.", item.to_uppercase())),
        chat("last", "good"),
    ];
    case.put("a.jsonl", lines(rows));
    let data = case.prepared(&(SOURCE.to_owned() + "[decontaminate]\nbenchmarks = [\"bench.toml\"]\n"));
    assert_eq!(data.texts(), [rendered("first", "good"), rendered("last", "good")]);
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"decontaminate.ngram": 1}));
    assert_eq!(data.number("/decontamination/benchmarks/0/rows_dropped"), 1);
    let evidence: Value = serde_json::from_str(&data.dropped[0].evidence).unwrap();
    assert_eq!(evidence[0]["benchmark"], "sheep");
    assert_eq!(evidence[0]["message"], 1);
    assert!(evidence[0]["excerpt"].as_str().unwrap().contains("SEVENTEEN SHEEP"), "{evidence}");
}

#[test]
fn a_bad_row_counts_as_failed_with_on_bad_row_drop_and_the_run_ends_with_1() {
    let case = Case::new();
    let text = lines([chat("first", "good")])
        + "{\"messages\": [\n"
        + &lines([json!({"messages": 5}), chat("last", "good")]);
    case.put("a.jsonl", text);
    case.recipe(&(SOURCE.to_owned() + "on_bad_row = \"drop\"\n"));
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("2 rows could not be read"), "{}", ran.stderr);
    let data = case.data("out");
    assert_eq!(data.number("/rows/a/failed"), 2);
    assert_eq!(data.number("/rows/a/kept"), 2);
    let listed: Vec<(&str, &str)> =
        data.dropped.iter().map(|d| (d.row_id.as_str(), d.reason.as_str())).collect();
    assert_eq!(listed, [("a/a.jsonl:1", "failed"), ("a/a.jsonl:2", "failed")]);
    assert!(data.dropped[0].evidence.contains("broken JSON"), "{}", data.dropped[0].evidence);
}

#[test]
fn a_second_run_over_failed_rows_ends_with_1_again() {
    let case = Case::new();
    case.put("a.jsonl", lines([chat("first", "good")]) + "{\n");
    case.recipe(&(SOURCE.to_owned() + "on_bad_row = \"drop\"\n"));
    assert_eq!(case.run("out", &[]).code, 1);
    assert_eq!(case.run("out", &[]).code, 1);
}

#[test]
fn a_bad_first_row_is_dropped_as_any_other() {
    let case = Case::new();
    case.put("a.jsonl", "{\"messages\": [\n".to_owned() + &lines([chat("last", "good")]));
    case.recipe(&(SOURCE.to_owned() + "on_bad_row = \"drop\"\n"));
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(case.data("out").number("/rows/a/failed"), 1);
}

#[test]
fn a_csv_record_that_cannot_be_read_is_dropped_as_any_other() {
    let case = Case::new();
    case.put("a.csv", b"prompt,response\na,b\nc,caf\xe9\ne,f,g\nh,i\n");
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.csv\"\non_bad_row = \"drop\"\n");
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let data = case.data("out");
    assert_eq!(data.number("/rows/a/failed"), 2);
    assert_eq!(data.texts(), [rendered("a", "b"), rendered("h", "i")]);
}

#[test]
fn text_outside_of_the_marks_is_lossy_and_an_answer_mark_in_the_reasoning_is_no_mark() {
    let case = Case::new();
    let row = |answer: &str| serde_json::json!({"prompt": "q", "response": answer}).to_string() + "\n";
    case.put(
        "a.jsonl",
        row("<t>think of <s> marks</t><s>final</s>")
            + &row("PRE <t>a</t><s>b</s>")
            + &row("<t>a</t> BETWEEN <s>b</s>")
            + &row("<t>a</t><s>b</s> POST"),
    );
    let data = case.prepared(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[source.mapping]\nshape = \"columns\"\nprompt = \"prompt\"\nresponse = \"response\"\ntags = { reasoning = [\"<t>\", \"</t>\"], answer = [\"<s>\", \"</s>\"] }\n",
    );
    assert_eq!(data.number("/rows/a/kept"), 1);
    assert_eq!(data.number("/rows/a/dropped/normalise.lossy"), 3);
}

#[test]
fn white_space_is_no_reasoning_to_train_on_and_a_blank_question_is_no_question() {
    let case = Case::new();
    let row = |user: &str, answer: &str| {
        serde_json::json!({"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]}).to_string() + "\n"
    };
    case.put("a.jsonl", row("q", "<think>\n \n</think>\n\nanswer") + &row(" ", "answer"));
    let data = case.prepared("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n");
    assert_eq!(data.number("/rows/a/dropped/normalise.no-user"), 1);
    assert_eq!(data.number("/tokens/trained"), "answer".len() as u64 + 1);
}
