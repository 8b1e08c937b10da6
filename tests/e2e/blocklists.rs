//! Blocklists: built, looked at, checked against rows, and the same verdicts in a run.

use serde_json::{Value, json};

use crate::harness::Case;

const LONG: &str = "A baker fills 14 trays with 36 rolls each and sells all but 57 of them before noon. How many rolls does the baker sell before noon?";
const SHORT: &str = "How many prime numbers lie strictly between 30 and 60?";
const TINY: &str = "Name the capital of Mongolia";

fn rows() -> Vec<Value> {
    let row = |id: &str, user: &str, answer: &str| json!({"id": id, "messages": [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]});
    vec![
        row("clean", "What is a good name for a grey cat?", "Ash, or Pebble."),
        row("exact", LONG, "447"),
        row("case", &LONG.to_uppercase(), "447"),
        row("inside", &format!("Solve this first.\n\n{LONG}\n\nThen explain."), "447"),
        row("answer", "Give me a word problem.", &format!("Here is one: {LONG}")),
        row("short", &format!("Quick one: {SHORT} Show the list."), "Seven."),
        row("tiny", TINY, "Ulaanbaatar"),
        row("tiny-inside", &format!("My teacher said: {TINY} by heart, and then draw its flag."), "Fine."),
        row("canary", "Read this page.", "demo canary 77aa-31, keep out of training corpora"),
    ]
}

fn case() -> Case {
    let case = Case::new();
    let items = [
        json!({"id": "long", "question": LONG}),
        json!({"id": "short", "question": SHORT}),
        json!({"id": "tiny", "question": TINY}),
    ];
    case.put("items.jsonl", items.iter().map(|item| item.to_string() + "\n").collect::<String>());
    case.put(
        "bench.toml",
        "name = \"bench\"\nfiles = [\"items.jsonl\"]\nid = \"id\"\nprompt = \"question\"\ncanaries = [\"demo canary 77aa-31, keep out of training corpora\"]\n",
    );
    case.put("rows.jsonl", rows().iter().map(|row| row.to_string() + "\n").collect::<String>());
    case
}

fn checked(case: &Case, input: &str) -> Vec<Value> {
    let ran = case.potable(&["blocklist", "check", "bench.blk", input, "--format", "jsonl"]);
    assert!(ran.code == 0 || ran.code == 1, "{}", ran.stderr);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn built() -> Case {
    let case = case();
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("3 of 3 items protected"), "{}", ran.stderr);
    case
}

const DROPPED: [&str; 7] = ["exact", "case", "inside", "answer", "short", "tiny", "canary"];

#[test]
fn check_finds_long_short_and_tiny_items_and_canaries_and_says_where() {
    let case = built();
    let matches = checked(&case, "rows.jsonl");
    let ids: Vec<&str> = matches.iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, DROPPED);
    for found in &matches {
        assert_eq!(found["benchmark"], "bench");
        assert_eq!(found["action"], "drop");
        let row = rows().into_iter().find(|row| row["id"] == found["id"]).unwrap();
        let text = row["messages"][found["message"].as_u64().unwrap() as usize]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        let span = found["start"].as_u64().unwrap() as usize..found["end"].as_u64().unwrap() as usize;
        let part = text.get(span).unwrap();
        assert!(found["excerpt"].as_str().unwrap().contains(part.get(..20).unwrap()), "{found}");
    }
    let rule =
        |id: &str| matches.iter().find(|m| m["id"] == id).unwrap()["rule"].as_str().unwrap().to_owned();
    assert_eq!([rule("exact"), rule("short"), rule("canary")], ["ngram", "short-item", "canary"]);
    assert_eq!(matches[0]["coverage"], 1.0);
}

#[test]
fn a_run_drops_the_rows_that_check_finds_by_the_same_rules() {
    let case = built();
    for decontaminate in ["benchmarks = [\"bench.toml\"]", "blocklist = \"bench.blk\""] {
        case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"rows.jsonl\"\n[decontaminate]\n{decontaminate}\n[pack]\nlength = 1024\n"));
        let data = case.prep("out", &["--fresh"]);
        let rows = &data.manifest["rows"]["a"];
        assert_eq!(rows["kept"], 2);
        let dropped = &rows["dropped"];
        assert_eq!(dropped["decontaminate.ngram"], 4);
        assert_eq!(dropped["decontaminate.short-item"], 2);
        assert_eq!(dropped["decontaminate.canary"], 1);
        assert_eq!(data.manifest["decontamination"]["benchmarks"][0]["rows_dropped"], 7);
        let evidence: Value = serde_json::from_str(&data.dropped[0].evidence).unwrap();
        assert_eq!(evidence[0]["item"], "long");
    }
}

#[test]
fn a_row_alone_gets_the_verdict_that_it_gets_among_others() {
    let case = built();
    let together = checked(&case, "rows.jsonl");
    let mut alone = Vec::new();
    for row in rows() {
        case.put("one.jsonl", row.to_string() + "\n");
        alone.extend(checked(&case, "one.jsonl"));
    }
    assert_eq!(together, alone);
}

#[test]
fn the_same_definitions_give_the_same_bytes_without_any_text_of_the_items() {
    let case = built();
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "again.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let bytes = std::fs::read(case.path("bench.blk")).unwrap();
    assert_eq!(bytes, std::fs::read(case.path("again.blk")).unwrap());
    let text = String::from_utf8_lossy(&bytes);
    for word in ["baker", "prime", "Mongolia"] {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn explain_marks_the_match_in_the_text_of_the_row() {
    let case = built();
    let ran = case.potable(&["blocklist", "check", "bench.blk", "rows.jsonl", "--explain", "inside"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("[[A baker fills"), "{}", ran.stdout);
    assert!(ran.stdout.contains("Solve this first."), "{}", ran.stdout);
}

#[test]
fn nothing_of_a_sensitive_benchmark_is_ever_shown() {
    let case = case();
    case.put(
        "bench.toml",
        "name = \"bench\"\nfiles = [\"items.jsonl\"]\nid = \"id\"\nprompt = \"question\"\nsensitive = true\n",
    );
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(checked(&case, "rows.jsonl").iter().all(|found| found["excerpt"] == ""));
    let ran = case.potable(&["blocklist", "check", "bench.blk", "rows.jsonl", "--explain", "inside"]);
    assert!(!ran.stdout.contains("baker"), "{}", ran.stdout);
}

#[test]
fn a_member_of_a_suite_that_is_not_there_is_an_error_and_never_skipped() {
    let case = case();
    case.put("copies/openai/gsm8k/main/test-0.jsonl", "{}\n");
    let ran = case.potable(&["blocklist", "build", "post-training", "--copies", "copies", "-o", "x.blk"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("no local copy of its repository") && ran.stderr.contains("hint:"),
        "{}",
        ran.stderr
    );
    assert!(!case.path("x.blk").exists());
}

#[test]
fn a_known_benchmark_is_read_from_the_local_copy_of_its_repository() {
    let case = case();
    let rows = json!({"problem": LONG, "unique_id": "test/1"}).to_string() + "\n";
    case.put("copies/HuggingFaceH4/MATH-500/test.jsonl", rows);
    let ran = case.potable(&["blocklist", "build", "math-500", "--copies", "copies", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let found = checked(&case, "rows.jsonl");
    assert_eq!(found[0]["benchmark"], "math-500");
}

fn build_refused(case: &Case, args: &[&str], words: &[&str]) {
    let mut all = vec!["blocklist", "build", "-o", "x.blk"];
    all.extend(args);
    let ran = case.potable(&all);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "`{word}` is not in:\n{}", ran.stderr);
    }
    assert!(!case.path("x.blk").exists());
}

#[test]
fn refuses_a_definition_that_names_an_absent_column() {
    let case = case();
    case.put("bench.toml", "name = \"bench\"\nfiles = [\"items.jsonl\"]\nprompt = \"query\"\n");
    build_refused(&case, &["bench.toml"], &["items.jsonl", "`query`", "`question`", "hint:"]);
}

#[test]
fn refuses_a_definition_whose_options_or_ids_are_absent() {
    let case = case();
    let base = "name = \"bench\"\nfiles = [\"items.jsonl\"]\nprompt = \"question\"\n";
    for (key, column) in [("options", "choises"), ("id", "nosuch")] {
        case.put("bench.toml", format!("{base}{key} = \"{column}\"\n"));
        build_refused(&case, &["bench.toml"], &["items.jsonl", &format!("`{column}`"), "hint:"]);
    }
    case.put("nested.jsonl", json!({"question": {"text": LONG}}).to_string() + "\n");
    case.put("bench.toml", "name = \"bench\"\nfiles = [\"nested.jsonl\"]\nprompt = \"question.txet\"\n");
    build_refused(&case, &["bench.toml"], &["nested.jsonl", "question.txet", "without this field"]);
}

#[test]
fn refuses_prompts_that_are_not_utf_8() {
    let case = case();
    case.put("latin.txt", b"how many of the eggs are left\nwie viele gr\xfcne Eier sind noch da\n");
    build_refused(&case, &["latin.txt"], &["latin.txt:2", "not UTF-8"]);
}

/// MMLU's questions stand in MMLU-Pro with six more options, and in copies with letters before them.
#[test]
fn transcriptions_with_more_options_or_labels_lower_no_recall() {
    let case = case();
    let stem = "The longest word in the box is the one that was found by the youngest child at noon. Which of them is it?";
    let four = ["7 apples", "9 pears", "11 plums", "13 figs"];
    let labelled: Vec<String> = ('A'..).zip(four).map(|(label, text)| format!("{label}. {text}")).collect();
    let ten: Vec<String> = (20..26).map(|n| format!("{n} nuts")).chain(four.map(str::to_owned)).collect();
    case.put("four.jsonl", json!({"question": stem, "options": four}).to_string() + "\n");
    case.put("labelled.jsonl", json!({"question": stem, "options": labelled}).to_string() + "\n");
    case.put("ten.jsonl", json!({"question": stem, "options": ten}).to_string() + "\n");
    case.put("rows.jsonl", json!({"text": format!("Someone asked: {stem} Nobody knew.")}).to_string() + "\n");
    let sets = ["four.jsonl", "labelled.jsonl", "ten.jsonl"];
    for count in 1..=sets.len() {
        let mut args = vec!["blocklist", "build"];
        args.extend(&sets[..count]);
        args.extend(["-o", "bench.blk"]);
        let ran = case.potable(&args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let found = checked(&case, "rows.jsonl");
        assert!(found.iter().any(|hit| hit["action"] == "drop"), "{count} sets: {found:?}");
    }
}

#[test]
fn two_fields_of_one_column_are_both_part_of_the_item() {
    let case = case();
    let (first, second) = LONG.split_at(LONG.len() / 2);
    let row = json!({"q": {"id": "seven", "context": first, "stem": second}});
    case.put("nested.jsonl", row.to_string() + "\n");
    case.put(
        "bench.toml",
        "name = \"bench\"\nfiles = [\"nested.jsonl\"]\nid = \"q.id\"\nprompt = [\"q.context\", \"q.stem\"]\n",
    );
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    case.put("rows.jsonl", json!({"text": format!("{first} {second}")}).to_string() + "\n");
    let found = checked(&case, "rows.jsonl");
    assert_eq!(found.len(), 1);
    assert!(found[0]["coverage"].as_f64().unwrap() > 0.99, "{found:?}");
}

const GUIDS: [&str; 2] = ["5c3fa1d2-90be-4e17-8a6b-77d04c21e9f8", "b1d07e66-2f4a-47c9-9e05-31c8fa5d2b70"];

/// A benchmark with a canary in each row, as the CSV files of gated benchmarks have it.
fn with_canary_column() -> Case {
    let case = case();
    case.put(
        "items.csv",
        format!("Question,Canary String\n\"{LONG}\",demo:{}\n\"{SHORT}\",{}\n", GUIDS[0], GUIDS[1]),
    );
    case.put("bench.toml", "name = \"bench\"\nfiles = [\"items.csv\"]\nprompt = \"Question\"\ncanary_column = \"Canary String\"\nsensitive = true\n");
    case
}

#[test]
fn a_canary_of_a_column_drops_a_row_alone_and_behind_its_prefix() {
    let case = with_canary_column();
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let texts = GUIDS.iter().flat_map(|guid| {
        [guid.to_string(), format!("demo:{guid}"), format!("<!-- gpqa:0042:{} -->", guid.to_uppercase())]
    });
    let texts: Vec<String> = texts.collect();
    let row = |text: &String| json!({"text": format!("A page. {text}. Its end.")}).to_string() + "\n";
    case.put("rows.jsonl", texts.iter().map(row).collect::<String>());
    let found = checked(&case, "rows.jsonl");
    assert_eq!(found.len(), texts.len(), "{found:?}");
    assert!(
        found.iter().all(|hit| hit["rule"] == "canary" && hit["action"] == "drop" && hit["excerpt"] == "")
    );
}

#[test]
fn refuses_a_canary_column_that_is_not_there_or_is_empty() {
    let case = with_canary_column();
    let bench = |column: &str| {
        format!(
            "name = \"bench\"\nfiles = [\"items.csv\"]\nprompt = \"Question\"\ncanary_column = \"{column}\"\n"
        )
    };
    case.put("bench.toml", bench("canary"));
    build_refused(&case, &["bench.toml"], &["items.csv", "`canary`", "`Canary String`", "hint:"]);
    case.put("items.csv", format!("Question,Canary String\n\"{LONG}\",\n"));
    case.put("bench.toml", bench("Canary String"));
    build_refused(&case, &["bench.toml"], &["no row has a canary in column `Canary String`"]);
}

#[test]
fn refuses_an_empty_benchmark() {
    let case = case();
    case.put("empty.jsonl", "");
    build_refused(&case, &["empty.jsonl"], &["empty"]);
}

#[test]
fn refuses_an_item_that_yields_no_word() {
    let case = case();
    for text in ["  ", "?! …", "\\\\left( \\\\right)"] {
        case.put("items.jsonl", format!("{{\"id\": \"a\", \"question\": \"{text}\"}}\n"));
        build_refused(&case, &["bench.toml"], &["items.jsonl:1", "without a word", "`question`"]);
    }
    case.put("prompts.txt", "How many legs do seven spiders have?\n---\n");
    build_refused(&case, &["prompts.txt"], &["prompts.txt:2", "without a word"]);
}

#[test]
fn refuses_two_benchmarks_of_one_name() {
    let case = case();
    case.put("other/bench.toml", "name = \"bench\"\nfiles = [\"../items.jsonl\"]\nprompt = \"question\"\n");
    build_refused(&case, &["bench.toml", "other/bench.toml"], &["`bench`"]);
}

#[test]
fn refuses_n_below_5_and_above_50() {
    let case = case();
    build_refused(&case, &["bench.toml", "--ngram", "4"], &["4", "5"]);
    build_refused(&case, &["bench.toml", "--ngram", "51"], &["51", "50"]);
}

#[test]
fn refuses_a_blocklist_of_another_format_version_and_names_both() {
    let case = built();
    let mut bytes = std::fs::read(case.path("bench.blk")).unwrap();
    bytes[8] += 1;
    case.put("other.blk", &bytes);
    let ran = case.potable(&["blocklist", "check", "other.blk", "rows.jsonl"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let (found, read) = (bytes[8].to_string(), (bytes[8] - 1).to_string());
    for word in ["other.blk", &format!("version `{found}`"), &format!("version `{read}`"), "hint:"] {
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
}

#[test]
fn refuses_a_blocklist_of_another_normaliser_and_names_both() {
    let case = built();
    let mut bytes = std::fs::read(case.path("bench.blk")).unwrap();
    let (ours, other) = (b"\"words-1\"", b"\"words-7\"");
    let at = bytes.windows(ours.len()).position(|window| window == ours).unwrap();
    bytes[at..at + other.len()].copy_from_slice(other);
    // the checksum is made right again: not the damage is to be found, but the normaliser
    let content = bytes.len() - 16;
    let sum = xxhash_rust::xxh3::xxh3_128(&bytes[..content]).to_le_bytes();
    bytes[content..].copy_from_slice(&sum);
    case.put("other.blk", &bytes);
    let ran = case.potable(&["blocklist", "check", "other.blk", "rows.jsonl"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for word in ["other.blk", "`words-7`", "`words-1`", "hint:"] {
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
}

#[test]
fn refuses_a_truncated_and_an_edited_blocklist() {
    let case = built();
    let bytes = std::fs::read(case.path("bench.blk")).unwrap();
    case.put("cut.blk", bytes.get(..bytes.len() - 9).unwrap());
    let mut edited = bytes.clone();
    let middle = edited.len() / 2;
    edited[middle] ^= 1;
    case.put("edited.blk", &edited);
    for name in ["cut.blk", "edited.blk"] {
        let ran = case.potable(&["blocklist", "check", name, "rows.jsonl"]);
        assert_eq!(ran.code, 2, "{name}");
        assert!(ran.stderr.contains(name), "{}", ran.stderr);
    }
}

#[test]
fn explain_says_why_a_row_of_a_finished_run_was_dropped() {
    let case = built();
    case.recipe("[[source]]\nname = \"a\"\npath = \"rows.jsonl\"\n[decontaminate]\nblocklist = \"bench.blk\"\n[pack]\nlength = 1024\n");
    case.prep("out", &[]);
    let ran = case.potable(&["explain", "out", "a/rows.jsonl:3"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for word in ["decontaminate.ngram", "bench long: ngram, 100 % of the item", "A baker fills"] {
        assert!(ran.stdout.contains(word), "{}", ran.stdout);
    }
    let ran = case.potable(&["explain", "out", "a/rows.jsonl:0"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("a/rows.jsonl:0") && ran.stderr.contains("hint:"), "{}", ran.stderr);
}

#[test]
fn selftest_finds_exact_copies_wherever_they_stand_and_gives_the_same_table_twice() {
    let case = case();
    let args = ["blocklist", "selftest", "bench.toml", "rows.jsonl"];
    let ran = case.potable(&args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for kind in ["exact", "in a prompt", "in the reasoning", "in the answer", "third turn", "upper case"] {
        let line = ran.stdout.lines().find(|line| line.starts_with(&format!("{kind:<22}"))).unwrap();
        let whole = kind == "exact" || kind == "upper case" || kind == "third turn";
        assert!(!whole || line.contains("100.0 %"), "{line}");
        assert!(!line.contains(" 0.0 %"), "{line}");
    }
    assert!(ran.stderr.contains("7 would be dropped as they are"), "{}", ran.stderr);
    assert_eq!(ran.stdout, case.potable(&args).stdout);
}

#[test]
fn selftest_counts_false_alarms_on_items_that_the_list_does_not_hold() {
    let case = case();
    let item = |n: usize, text: &str| json!({"id": n, "question": text}).to_string() + "\n";
    let other = "A gardener plants 12 rows of 25 tulips and the frost takes every tenth one; how many tulips are left?";
    let sibling = LONG.replace("14 trays", "19 trays");
    case.put(
        "items.jsonl",
        [LONG, &sibling, other, SHORT].iter().enumerate().map(|(n, text)| item(n, text)).collect::<String>(),
    );
    let ran = case.potable(&["blocklist", "selftest", "items.jsonl", "rows.jsonl"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let line = |kind: &str| ran.stdout.lines().find(|line| line.starts_with(&format!("{kind:<22}"))).unwrap();
    // the first and third item make the list: the second is nearly the first, the fourth is another one
    assert!(line("items not in the list").contains("false alarms"), "{}", ran.stdout);
    assert!(!line("items not in the list").contains(" 0.0 %"), "{}", ran.stdout);
    assert!(line("words in any order").contains(" 0.0 %"), "{}", ran.stdout);
}

#[test]
fn selftest_tests_a_blocklist_by_what_it_was_built_from() {
    let case = built();
    let args = ["rows.jsonl", "--seed", "3"];
    let of_file = case.potable(&[&["blocklist", "selftest", "bench.blk"][..], &args].concat());
    assert_eq!(of_file.code, 0, "{}", of_file.stderr);
    let of_definition = case.potable(&[&["blocklist", "selftest", "bench.toml"][..], &args].concat());
    assert_eq!(of_file.stdout, of_definition.stdout);
    let ran = case.potable(&["blocklist", "selftest", "bench.blk", "rows.jsonl", "--ngram", "8"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("n = 13") && ran.stderr.contains("n = 8"), "{}", ran.stderr);
    std::fs::remove_file(case.path("bench.blk.sources")).unwrap();
    let ran = case.potable(&["blocklist", "selftest", "bench.blk", "rows.jsonl"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("holds no text"), "{}", ran.stderr);
}

#[test]
fn extend_gives_the_blocklist_that_building_all_at_once_gives() {
    let case = built();
    case.put("more.jsonl", json!({"id": "m", "question": "A gardener plants 12 rows of 25 tulips and the frost takes every tenth one; how many tulips are left?"}).to_string() + "\n");
    let ran = case.potable(&["blocklist", "build", "bench.toml", "more.jsonl", "-o", "both.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = case.potable(&["blocklist", "extend", "bench.blk", "more.jsonl"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(std::fs::read(case.path("bench.blk")).unwrap(), std::fs::read(case.path("both.blk")).unwrap());
}

#[test]
fn extend_refuses_when_a_benchmark_changed_or_what_it_was_built_from_is_gone() {
    let case = built();
    let before = std::fs::read(case.path("bench.blk")).unwrap();
    case.put(
        "items.jsonl",
        json!({"id": "long", "question": "Another question of eight or nine words stands here now"})
            .to_string()
            + "\n",
    );
    case.put("more.txt", "How many legs do seven spiders and two beetles have together\n");
    let ran = case.potable(&["blocklist", "extend", "bench.blk", "more.txt"]);
    assert_eq!(ran.code, 2);
    for word in ["files of benchmark `bench`", "items.jsonl", "now `items.jsonl", "hint:"] {
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
    std::fs::remove_file(case.path("bench.blk.sources")).unwrap();
    let ran = case.potable(&["blocklist", "extend", "bench.blk", "more.txt"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("build it anew"), "{}", ran.stderr);
    assert_eq!(std::fs::read(case.path("bench.blk")).unwrap(), before);
}

#[test]
fn a_gram_that_is_frequent_in_the_background_drops_nothing_alone() {
    let case = built();
    let part = LONG.split_inclusive('.').next().unwrap();
    case.put(
        "part.jsonl",
        json!({"id": "part", "text": format!("It is told that {part} The end.")}).to_string() + "\n",
    );
    assert_eq!(checked(&case, "part.jsonl")[0]["action"], "drop");
    let row = json!({"text": format!("As every textbook says: {LONG} And so on.")}).to_string() + "\n";
    case.put("background.jsonl", row.repeat(3));
    let ran = case.potable(&[
        "blocklist",
        "build",
        "bench.toml",
        "-o",
        "bench.blk",
        "--background",
        "background.jsonl",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("background  3 texts"), "{}", ran.stderr);
    let found = checked(&case, "part.jsonl");
    assert!(found.iter().all(|found| found["action"] == "report"), "{found:?}");
}

#[test]
fn inspect_writes_the_items_as_a_table_for_other_tools() {
    let case = built();
    let ran = case.potable(&["blocklist", "inspect", "bench.blk", "--to", "parquet", "-o", "items.parquet"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let file = std::fs::File::open(case.path("items.parquet")).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap();
    let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 4);
    let ran = case.potable(&["blocklist", "inspect", "bench.blk"]);
    assert!(ran.stdout.contains("n = 13") && ran.stdout.contains("3 of 3 items protected"), "{}", ran.stdout);
}

/// Three items whose question is boilerplate, and one whose question is none.
fn with_boilerplate() -> Case {
    let case = case();
    let stem = "Which of the following statements about the passage above is true?";
    let options = [
        [
            "a copper kettle boils sooner on the lower shelf of that stove",
            "no kettle was filled before the miller came",
        ],
        [
            "seven herons left the estuary as soon as ice had formed",
            "the ferryman counted all but two of the herons",
        ],
        [
            "her uncle sold a brass telescope to pay for the lessons",
            "a telescope of brass was never for sale there",
        ],
    ];
    let mut items: Vec<Value> =
        options.iter().map(|options| json!({"question": stem, "options": options})).collect();
    items.push(json!({"question": LONG, "options": []}));
    items.push(json!({"question": "Why not?", "options": []}));
    case.put("items.jsonl", items.iter().map(|item| item.to_string() + "\n").collect::<String>());
    case
}

#[test]
fn an_item_whose_question_is_boilerplate_is_not_counted_as_protected() {
    let case = with_boilerplate();
    let ran = case.potable(&["blocklist", "build", "items.jsonl", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said = "1 of 5 items protected (1 by n-gram, 0 whole), 1 from near copies too, 4 not (3 only with an option behind, 1 too short)";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    // what is counted is what drops a row
    let ask = |question: &str| json!({"text": question}).to_string() + "\n";
    let stem = "Which of the following statements about the passage above is true?";
    case.put("bare.jsonl", ask(stem));
    assert!(checked(&case, "bare.jsonl").iter().all(|hit| hit["action"] == "report"));
    case.put("with.jsonl", ask(&format!("{stem} No kettle was filled before the miller came.")));
    assert!(checked(&case, "with.jsonl").iter().any(|hit| hit["action"] == "drop"));
    let ran = case.potable(&["blocklist", "inspect", "bench.blk", "--unprotected"]);
    let lines: Vec<Vec<&str>> = ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected: [&[&str]; 4] = [
        &["items", "with-option", "0"],
        &["items", "with-option", "1"],
        &["items", "with-option", "2"],
        &["items", "too-short", "4"],
    ];
    assert_eq!(lines, expected);
}

#[test]
fn an_item_that_stands_in_several_others_is_not_counted_as_protected() {
    let case = case();
    let stock = "Find the sum of all such integers below the bound";
    let topics =
        ["lighthouses on a bay of slate", "wagons in a quarry of chalk", "barges behind a lock of oak"];
    let mut stems = vec![stock.to_owned()];
    stems.extend(topics.map(|topic| {
        let tale = format!(
            "Nine old {topic} were numbered by a clerk who left gaps for those that had burnt down or sunk"
        );
        format!("{tale}, and {topic} were numbered twice. {stock}")
    }));
    case.put(
        "items.jsonl",
        stems.iter().map(|stem| json!({"question": stem}).to_string() + "\n").collect::<String>(),
    );
    let ran = case.potable(&["blocklist", "build", "items.jsonl", "-o", "bench.blk"]);
    assert!(
        ran.stderr.contains("3 of 4 items protected") && ran.stderr.contains("1 not (1 boilerplate)"),
        "{}",
        ran.stderr
    );
    case.put("rows.jsonl", json!({"text": stock}).to_string() + "\n");
    assert!(checked(&case, "rows.jsonl").iter().all(|hit| hit["action"] == "report"));
}

/// What `extend` says when what lies beside the blocklist is changed by `change`; the blocklist stays.
fn extend_refused(change: impl FnOnce(&Case), words: &[&str]) {
    let case = built();
    case.put("more.txt", "How many legs do seven spiders and two beetles have together\n");
    let before = std::fs::read(case.path("bench.blk")).unwrap();
    change(&case);
    let ran = case.potable(&["blocklist", "extend", "bench.blk", "more.txt"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for word in words.iter().chain(&["bench.blk", "hint:"]) {
        assert!(ran.stderr.contains(word), "`{word}` is not in:\n{}", ran.stderr);
    }
    assert_eq!(std::fs::read(case.path("bench.blk")).unwrap(), before);
}

fn edit_sources(case: &Case, from: &str, to: &str) {
    let sources = std::fs::read_to_string(case.path("bench.blk.sources")).unwrap();
    assert!(sources.contains(from), "{sources}");
    case.put("bench.blk.sources", sources.replace(from, to));
}

#[test]
fn extend_refuses_another_n_and_names_both() {
    extend_refused(|case| edit_sources(case, "ngram = 13", "ngram = 8"), &["with n `13`", "now `8`"]);
}

#[test]
fn extend_refuses_another_background_and_names_both() {
    extend_refused(
        |case| {
            case.put("clean.txt.jsonl", json!({"text": "a page about nothing at all"}).to_string() + "\n");
            edit_sources(case, "ngram = 13", "ngram = 13\nbackground = [\"clean.txt.jsonl\"]");
        },
        &["with background `none`", "now `1 texts, least 3, sha256:"],
    );
}

#[test]
fn extend_refuses_another_definition_and_names_both() {
    extend_refused(
        |case| {
            let bench = std::fs::read_to_string(case.path("bench.toml")).unwrap();
            case.put("bench.toml", bench + "strip = [\"before noon?\"]\n");
        },
        &["definition of benchmark `bench`", "`sha256:", "now `sha256:"],
    );
}

#[test]
fn extend_does_not_mind_comments_in_a_definition() {
    let case = built();
    let bench = std::fs::read_to_string(case.path("bench.toml")).unwrap();
    case.put("bench.toml", format!("# a remark\ntitle = \"Bench\"\n{bench}"));
    case.put("more.txt", "How many legs do seven spiders and two beetles have together\n");
    let ran = case.potable(&["blocklist", "extend", "bench.blk", "more.txt"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn check_names_the_columns_that_it_leaves_unread() {
    let case = built();
    let row = |n: u32| {
        json!({"id": n.to_string(), "prompt": "What is a good name for a cat?", "response": "Ash.", "notes": LONG, "score": 3})
            .to_string()
            + "\n"
    };
    case.put("rows.jsonl", row(1) + &row(2));
    let ran = case.potable(&["blocklist", "check", "bench.blk", "rows.jsonl"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said = "not checked text in columns `id` (2 rows), `notes` (2 rows)";
    assert!(ran.stderr.contains(said) && !ran.stderr.contains("score"), "{}", ran.stderr);
    // where no mapping fits, every column is read
    case.put("rows.jsonl", json!({"notes": LONG, "more": "and more"}).to_string() + "\n");
    let ran = case.potable(&["blocklist", "check", "bench.blk", "rows.jsonl"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("not checked"), "{}", ran.stderr);
}

#[test]
fn a_canary_of_a_sensitive_benchmark_that_is_no_guid_is_found_and_none_of_it_is_written() {
    let case = with_canary_column();
    let secret = "Which of nine kestrels left the estuary first";
    let items = |canary: &str| {
        format!("Question,Canary String\n\"{LONG}\",demo:{}\n\"{SHORT}\",{canary}\n", GUIDS[0])
    };
    case.put("items.csv", items(secret));
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let bytes = String::from_utf8_lossy(&std::fs::read(case.path("bench.blk")).unwrap()).into_owned();
    assert!(!bytes.contains("kestrels") && bytes.contains(GUIDS[0]));
    case.put("rows.jsonl", json!({"text": format!("Read: {secret}.")}).to_string() + "\n");
    let found = checked(&case, "rows.jsonl");
    assert_eq!(
        (found.len(), &found[0]["rule"], &found[0]["excerpt"]),
        (1, &json!("canary"), &json!("")),
        "{found:?}"
    );
    // nor does an error show it
    case.put("items.csv", items("three kestrels left"));
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "x.blk"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("has 3 words") && !ran.stderr.contains("kestrels"), "{}", ran.stderr);
    // of a benchmark whose text may be written, it is
    case.put("items.csv", items(secret));
    let bench = std::fs::read_to_string(case.path("bench.toml")).unwrap();
    case.put("bench.toml", bench.replace("sensitive = true\n", ""));
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(String::from_utf8_lossy(&std::fs::read(case.path("bench.blk")).unwrap()).contains("kestrels"));
}

#[test]
fn refuses_a_column_of_prompts_as_ids() {
    let case = case();
    case.put(
        "bench.toml",
        "name = \"bench\"\nfiles = [\"items.jsonl\"]\nid = \"question\"\nprompt = \"question\"\n",
    );
    build_refused(
        &case,
        &["bench.toml"],
        &["items.jsonl", "`question`", "a blocklist holds ids, and no text"],
    );
}

#[test]
fn refuses_a_definition_that_is_not_utf_8_and_says_where() {
    let case = case();
    case.put("bench.toml", b"name = \"bench\"\nfiles = [\"items.jsonl\"]\nprompt = \"qu\xe9stion\"\n");
    build_refused(&case, &["bench.toml"], &["bench.toml:3:13", "is not UTF-8", "hint:"]);
}
