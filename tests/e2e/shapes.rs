//! Shapes of rows, and `where`.

use serde_json::{Value, json};

use super::harness::{Case, DataSet, Ran, lines, rendered, text_of};

/// Runs one source `a` over `rows`, with `more` after its `path`.
fn run(rows: &[Value], more: &str) -> DataSet {
    let case = Case::new();
    case.put("a.jsonl", lines(rows.to_vec()));
    case.prepared(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n{more}"))
}

fn reasoned(user: &str, reasoning: &str, assistant: &str) -> String {
    format!(
        "<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n{reasoning}\n</think>\n\n{assistant}<|im_end|>\n"
    )
}

#[test]
fn role_and_content_messages_are_read_with_fields_in_any_order() {
    let rows = [json!({"id": 1, "messages": [
        {"content": "be brief", "role": "system"},
        {"role": "user", "content": "q", "name": null},
        {"content": "a", "role": "assistant"},
    ]})];
    let expected = format!("<|im_start|>system\nbe brief<|im_end|>\n{}", rendered("q", "a"));
    assert_eq!(run(&rows, "").texts(), [expected]);
}

#[test]
fn from_and_value_conversations_are_read() {
    let rows = [json!({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})];
    assert_eq!(run(&rows, "").texts(), [rendered("q", "a")]);
}

#[test]
fn messages_as_json_text_are_read() {
    let text = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]).to_string();
    assert_eq!(run(&[json!({"messages": text})], "").texts(), [rendered("q", "a")]);
}

#[test]
fn other_names_of_fields_and_roles_are_read_by_the_mapping() {
    let rows =
        [json!({"dialog": [{"who": "kid", "said": "q"}, {"who": "bot", "said": "a", "thought": "hm"}]})];
    let mapping = "[source.mapping]\nmessages = \"dialog\"\nrole = \"who\"\ncontent = \"said\"\n\
                   reasoning = \"thought\"\nroles = { kid = \"user\", bot = \"assistant\" }\n";
    assert_eq!(run(&rows, mapping).texts(), [reasoned("q", "hm", "a")]);
}

#[test]
fn reasoning_content_and_inline_think_give_the_same_text() {
    let rows = [
        json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "hm"}]}),
        json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\na"}]}),
    ];
    let data = run(&rows, "[dedup]\nexact = \"none\"\n");
    assert_eq!(data.texts(), [reasoned("q", "hm", "a"), reasoned("q", "hm", "a")]);
}

#[test]
fn loss_is_on_reasoning_answer_and_turn_end_and_never_on_the_empty_think_block() {
    let rows = [
        json!({"prompt": "q1", "response": "<think>\nhm\n</think>\n\na"}),
        json!({"prompt": "q2", "response": "b"}),
    ];
    let mut trained: Vec<String> = run(&rows, "").samples().iter().map(|s| s.trained_text()).collect();
    trained.sort();
    assert_eq!(trained, ["<think>\nhm\n</think>\n\na<|im_end|>", "b<|im_end|>"]);
}

#[test]
fn tools_and_tool_calls_are_rendered_as_the_template_does() {
    let rows = [json!({
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"x": 1.0}}}],
        "messages": [
            {"role": "user", "content": "1+1"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"b": 1, "a": [1, 2]}}},
                {"name": "log", "arguments": "{\"t\":\"é\"}"},
            ]},
            {"role": "tool", "content": "2"},
            {"role": "tool", "content": "ok"},
            {"role": "assistant", "content": "It is 2."},
        ],
    })];
    let texts = run(&rows, "[pack]\nlength = 4096\n").texts();
    let text = &texts[0];
    for part in [
        "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"x\": 1.0}}}\n</tools>",
        "<|im_start|>user\n1+1<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1, \"a\": [1, 2]}}\n</tool_call>\n<tool_call>\n{\"name\": \"log\", \"arguments\": {\"t\":\"é\"}}\n</tool_call><|im_end|>\n",
        "<|im_start|>user\n<tool_response>\n2\n</tool_response>\n<tool_response>\nok\n</tool_response><|im_end|>\n",
        "<|im_start|>assistant\n<think>\n\n</think>\n\nIt is 2.<|im_end|>\n",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
}

#[test]
fn prompt_and_response_columns_are_read_under_their_usual_names() {
    for (prompt, response) in [
        ("prompt", "response"),
        ("question", "answer"),
        ("problem", "solution"),
        ("query", "completion"),
        ("input", "output"),
    ] {
        let rows = [json!({"id": 3, prompt: "q", response: "a"})];
        assert_eq!(run(&rows, "").texts(), [rendered("q", "a")], "{prompt}");
    }
}

#[test]
fn alpaca_rows_are_read_with_and_without_input() {
    let rows = [
        json!({"instruction": "Sum up.", "input": "A long text.", "output": "Short."}),
        json!({"instruction": "Say hi.", "input": "", "output": "Hi."}),
        json!({"instruction": "Say ho.", "input": null, "output": "Ho."}),
    ];
    let mut expected = [
        rendered("Sum up.\n\nA long text.", "Short."),
        rendered("Say hi.", "Hi."),
        rendered("Say ho.", "Ho."),
    ];
    expected.sort();
    assert_eq!(run(&rows, "").texts(), expected);
    let without = [json!({"instruction": "Say ho.", "output": "Ho."})];
    assert_eq!(run(&without, "").texts(), [rendered("Say ho.", "Ho.")]);
}

#[test]
fn the_first_generation_that_passes_its_checks_is_taken() {
    let row = |problem: &str, complete: [bool; 2], verify: [bool; 2], judge: Value| {
        json!({"problem": problem, "generations": [format!("{problem} 1"), format!("{problem} 2")],
               "complete": complete, "verify": verify, "judge": judge})
    };
    let rows = [
        row("first", [true, true], [true, true], Value::Null),
        row("second", [true, true], [false, true], Value::Null),
        row("judged", [true, true], [false, false], json!([false, true])),
        row("cut", [false, true], [true, false], Value::Null),
    ];
    let mapping = "[source.mapping]\nprompt = \"problem\"\nresponse = \"generations\"\n\
                   choose_all = [\"complete\"]\nchoose_any = [\"verify\", \"judge\"]\n";
    let data = run(&rows, mapping);
    let mut expected =
        [rendered("first", "first 1"), rendered("second", "second 2"), rendered("judged", "judged 2")];
    expected.sort();
    assert_eq!(data.texts(), expected);
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"source.no-choice": 1}));
}

#[test]
fn tags_round_thought_and_solution_are_taken_off() {
    let mapping = "[source.mapping]\ntags = { reasoning = [\"<thought>\", \"</thought>\"], answer = [\"<solution>\", \"</solution>\"] }\n";
    let rows = [
        json!({"prompt": "q", "response": "<thought>\nhm\n</thought>\n\n<solution>\na\n</solution>"}),
        json!({"prompt": "r", "response": "no tags"}),
    ];
    let data = run(&rows, mapping);
    assert_eq!(data.texts(), [reasoned("q", "hm", "a")]);
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"source.no-tags": 1}));
}

#[test]
fn a_reasoning_column_stands_in_the_think_block() {
    let rows = [json!({"q": "2+2", "cot": "two and two", "a": "4"})];
    let mapping = "[source.mapping]\nprompt = \"q\"\nresponse = \"a\"\nreasoning = \"cot\"\n";
    assert_eq!(run(&rows, mapping).texts(), [reasoned("2+2", "two and two", "4")]);
}

#[test]
fn a_json_list_in_a_string_gives_its_first_solution() {
    let rows = [
        json!({"question": "sort", "solutions": "[\"sorted(x)\", \"x.sort()\"]"}),
        json!({"question": "none", "solutions": ""}),
        json!({"question": "empty", "solutions": "[]"}),
    ];
    let mapping = "[source.mapping]\nprompt = \"question\"\nresponse = \"solutions\"\njson_response = true\n";
    let data = run(&rows, mapping);
    assert_eq!(data.texts(), [rendered("sort", "sorted(x)")]);
    assert_eq!(data.number("/rows/a/kept"), 1);
}

#[test]
fn split_at_parts_reasoning_from_answer() {
    let rows =
        [json!({"question": "q", "answer": "two and two\n#### 4"}), json!({"question": "r", "answer": "4"})];
    let mapping = "[source.mapping]\nprompt = \"question\"\nresponse = \"answer\"\nsplit_at = \"####\"\n";
    let data = run(&rows, mapping);
    assert_eq!(data.texts(), [reasoned("q", "two and two", "4")]);
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"source.no-tags": 1}));
}

#[test]
fn spans_are_cut_out_of_the_answer() {
    let rows = [json!({"question": "q", "answer": "3+3=<<3+3=6>>6, 6+1=<<6+1=7>>7"})];
    let mapping =
        "[source.mapping]\nprompt = \"question\"\nresponse = \"answer\"\nremove = [[\"<<\", \">>\"]]\n";
    assert_eq!(run(&rows, mapping).texts(), [rendered("q", "3+3=6, 6+1=7")]);
}

#[test]
fn a_system_column_and_the_recipes_system_text_are_used() {
    let rows = [
        json!({"prompt": "q", "response": "a", "sys": "from the row"}),
        json!({"prompt": "r", "response": "b", "sys": null}),
    ];
    let texts = run(&rows, "system = \"from the recipe\"\n[source.mapping]\nsystem = \"sys\"\nprompt = \"prompt\"\nresponse = \"response\"\n").texts();
    let with = |system: &str, rest: String| format!("<|im_start|>system\n{system}<|im_end|>\n{rest}");
    let mut expected =
        [with("from the row", rendered("q", "a")), with("from the recipe", rendered("r", "b"))];
    expected.sort();
    assert_eq!(texts, expected);
}

#[test]
fn plain_text_ends_with_end_of_text_and_is_trained_on_but_for_its_first_token() {
    let data = run(
        &[json!({"text": "Once upon a time."}), json!({"text": "  "})],
        "[normalise]\nformat = \"text\"\n",
    );
    assert_eq!(data.texts(), ["Once upon a time.<|endoftext|>"]);
    assert_eq!(data.samples()[0].trained_text(), "nce upon a time.<|endoftext|>");
    assert_eq!(data.manifest["rows"]["a"]["dropped"], json!({"source.empty-row": 1}));
}

#[test]
fn unroll_gives_a_sample_a_turn() {
    let rows = [json!({"messages": [
        {"role": "user", "content": "q1"}, {"role": "assistant", "content": "<think>\nt1\n</think>\n\na1"},
        {"role": "user", "content": "q2"}, {"role": "assistant", "content": "<think>\nt2\n</think>\n\na2"},
    ]})];
    let data = run(&rows, "[normalise]\nhistory = \"unroll\"\n");
    let second = "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n".to_owned()
        + &reasoned("q2", "t2", "a2");
    let mut expected = [reasoned("q1", "t1", "a1"), second];
    expected.sort();
    assert_eq!(data.texts(), expected);
    assert_eq!(data.names(), ["a/a.jsonl:0", "a/a.jsonl:0.t1"]);
    assert_eq!((data.number("/rows/a/kept"), data.number("/samples/a/made")), (1, 2));
}

/// Rows with nested columns, some of them without.
fn nested() -> Vec<Value> {
    let row = |n: i64, meta: Value, score: Value, tags: Value| json!({"prompt": format!("q{n}"), "response": "a", "meta": meta, "score": score, "tags": tags});
    vec![
        row(0, Value::Null, Value::Null, json!([])),
        row(1, json!({"lang": "en", "stars": 4}), json!(3), json!(["math", "easy"])),
        row(2, json!({"lang": "de"}), json!(2.5), json!(["code"])),
        row(3, json!({"stars": 1}), json!(3.5), Value::Null),
        row(4, json!({"lang": "en"}), json!(1), json!(["math"])),
        row(5, json!({}), json!(5), json!([])),
    ]
}

/// Prompts that a `where` keeps, the same whatever the cut.
fn kept(rows: &[Value], predicate: &str) -> Vec<String> {
    let case = Case::new();
    case.put("a.jsonl", lines(rows.to_vec()));
    case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nwhere = \"{predicate}\"\n"));
    let whole = case.prep("whole", &[]);
    let pieces = case.prep("pieces", &["--unit-bytes", "1", "--chunk-bytes", "1"]);
    assert_eq!(pieces.names(), whole.names(), "{predicate}");
    let numbers = whole.names().iter().map(|name| name.rsplit_once(':').unwrap().1.to_owned()).collect();
    assert_eq!(whole.number("/rows/a/dropped/source.where") as usize, rows.len() - whole.samples().len());
    numbers
}

#[test]
fn where_compares_numbers_and_nulls_are_left_out() {
    assert_eq!(kept(&nested(), "score >= 3"), ["1", "3", "5"]);
    assert_eq!(kept(&nested(), "score IS NULL OR score < 2"), ["0", "4"]);
}

#[test]
fn where_looks_into_nested_fields_whatever_the_cut() {
    assert_eq!(kept(&nested(), "meta.lang = 'en'"), ["1", "4"]);
    assert_eq!(kept(&nested(), "meta.lang = 'en' AND score >= 3"), ["1"]);
}

#[test]
fn where_looks_into_lists_whatever_the_cut() {
    assert_eq!(kept(&nested(), "array_contains(tags, 'math')"), ["1", "4"]);
}

#[test]
fn where_on_a_column_of_mixed_types_gives_the_same_rows_or_is_refused_whatever_the_cut() {
    let rows: Vec<Value> = [json!(1), json!("5"), json!(7), json!("x"), json!(2)]
        .into_iter()
        .enumerate()
        .map(|(n, score)| json!({"prompt": format!("q{n}"), "response": "a", "score": score}))
        .collect();
    let case = Case::new();
    case.put("a.jsonl", lines(rows));
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nwhere = \"score >= 3\"\n");
    let whole = case.run("whole", &[]);
    let pieces = case.run("pieces", &["--unit-bytes", "1", "--chunk-bytes", "1"]);
    assert_eq!(whole.code, pieces.code, "{}\n{}", whole.stderr, pieces.stderr);
    if whole.code == 0 {
        assert_eq!(case.data("whole").names(), case.data("pieces").names());
    }
}

#[test]
fn where_works_on_columns_that_the_mapping_does_not_read_in_tables() {
    use parquet::basic::Compression;
    let table = super::formats::prompt_table(12);
    let case = Case::new();
    case.put("a.parquet", super::harness::parquet_bytes(&table, Compression::SNAPPY, 5));
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.parquet\"\nwhere = \"number % 3 = 0\"\n");
    let whole = case.prep("whole", &[]);
    assert_eq!(whole.names(), ["a/a.parquet:0", "a/a.parquet:3", "a/a.parquet:6", "a/a.parquet:9"]);
    assert_eq!(case.prep("pieces", &["--unit-bytes", "1", "--chunk-bytes", "1"]).bytes, whole.bytes);
}

fn refused_where(predicate: &str, words: &[&str]) -> Ran {
    let case = Case::new();
    case.put("a.jsonl", lines(nested()));
    case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nwhere = \"{predicate}\"\n"));
    let ran = case.run("out", &[]);
    ran.is_refusal(words);
    assert!(!case.path("out/manifest.json").exists());
    ran
}

#[test]
fn where_with_an_aggregate_is_refused() {
    for predicate in [
        "score > AVG(score)",
        "score = MAX(score)",
        "COUNT(score) > 1",
        "SUM(score) OVER (PARTITION BY prompt) > 1",
        "ROW_NUMBER() OVER (ORDER BY score) < 3",
    ] {
        refused_where(predicate, &["`where` of source `a`", predicate.split('(').next().unwrap()]);
    }
}

#[test]
fn where_that_is_no_sql_is_refused() {
    refused_where("score >>> 3 AND", &["`where` of source `a`", "cannot read `score >>> 3 AND`"]);
}

#[test]
fn where_that_compares_text_with_numbers_is_refused_with_the_place() {
    refused_where("prompt > 3", &["a.jsonl: rows 0", "source `a`", "`where` cannot be evaluated"]);
}

#[test]
fn where_on_a_column_that_a_table_lacks_is_refused() {
    let case = Case::new();
    case.put("a.csv", "prompt,response\nq,a\n");
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.csv\"\nwhere = \"score >= 3\"\n");
    case.refused(&["a.csv", "has no column `score`", "`prompt`, `response`"]);
}

#[test]
fn faithful_policy_keeps_what_the_defaults_drop() {
    let rows = [
        json!({"messages": [{"role": "user", "content": "only asking"}]}),
        json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "Sure! <think>hm</think>a"}]}),
    ];
    let data = run(&rows, "[normalise]\npolicy = \"faithful\"\n");
    let texts: Vec<String> = data.samples().iter().map(|s| text_of(&s.ids)).collect();
    assert!(texts.contains(&"<|im_start|>user\nonly asking<|im_end|>\n".to_owned()), "{texts:?}");
    assert!(texts.contains(&reasoned("q", "hm", "a")), "{texts:?}");
}

/// Rows with a score of 1 to 40, and the scores that `where` lets through.
fn scores_where(predicate: &str) -> Vec<u64> {
    let case = Case::new();
    let rows: String = (1..=40)
        .map(|n| {
            format!(
                "{{\"text\": \"row {n}\", \"score\": {n}, \"lang\": \"{}\"}}\n",
                if n % 2 == 0 { "en" } else { "fr" }
            )
        })
        .collect();
    case.put("a.jsonl", rows);
    case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nwhere = \"{predicate}\"\n"));
    let ran = case.run("out", &["--chunk-bytes", "60"]);
    assert_eq!(ran.code, 0, "{predicate}: {}", ran.stderr);
    let data = case.data("out");
    let mut kept: Vec<u64> = data
        .shards
        .values()
        .flatten()
        .flat_map(|pack| &pack.names)
        .map(|name| name.rsplit(':').next().unwrap().parse::<u64>().unwrap() + 1)
        .collect();
    kept.sort_unstable();
    kept
}

#[test]
fn where_takes_the_functions_and_operators_that_look_at_one_row() {
    assert_eq!(scores_where("score IN (3, 5)"), [3, 5]);
    assert_eq!(scores_where("score NOT IN (3, 5) AND score < 6"), [1, 2, 4]);
    assert_eq!(scores_where("lang IN ('en') AND score <= 4"), [2, 4]);
    assert_eq!(scores_where("score BETWEEN 7 AND 8"), [7, 8]);
    assert_eq!(scores_where("text LIKE '%row 1%' AND score < 12"), [1, 10, 11]);
    assert_eq!(scores_where("LENGTH(text) = 5 AND score > 7"), [8, 9]);
    assert_eq!(scores_where("UPPER(lang) = 'EN' AND ABS(score - 10) < 2"), [10]);
    assert_eq!(scores_where("COALESCE(lang, 'x') = 'fr' AND CAST(score AS DOUBLE) < 4.0"), [1, 3]);
    assert_eq!(scores_where("CASE WHEN score > 38 THEN true ELSE false END"), [39, 40]);
    assert_eq!(scores_where("STARTS_WITH(text, 'row 4')"), [4, 40]);
    assert_eq!(scores_where("score IS NOT NULL AND NOT score > 2"), [1, 2]);
}

#[test]
fn where_refuses_what_other_rows_decide() {
    for predicate in [
        "score > AVG(score)",
        "score > QUANTILE_CONT(score, 0.5)",
        "CORR(score, score) > 0",
        "score = MAX(score)",
        "COUNT(*) > 1",
        "score > MEDIAN(score)",
        "ROW_NUMBER() OVER () > 1",
    ] {
        let case = Case::new();
        case.put("a.jsonl", "{\"text\": \"a b c\", \"score\": 1}\n");
        case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nwhere = \"{predicate}\"\n"));
        case.refused(&["`where`", "source `a`"]);
    }
}
