//! Rendering, ids and loss masks against worked cases in ../shared, where that folder is there, and
//! against a committed table of what the defaults make of each case.
#![expect(clippy::print_stdout, reason = "a skipped test says so")]
#![expect(clippy::disallowed_methods, reason = "writes the golden table")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use potable::decontaminate::Decontaminator;
use potable::normalise::native::{Ending, normalise, render};
use potable::normalise::{Acted, ControlFinder, ControlText, Controls, History, Normaliser, Policy, Train};
use potable::source::Cell;
use potable::source::adapt::{Adapted, Conversation, MappingFile, Outcome};
use potable::tokenise::Tokeniser;
use serde_json::Value;

fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared").join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

/// A conversation as the messages mapping reads it.
fn conversation(messages: &Value, tools: Option<&Value>) -> Conversation {
    let mapping = MappingFile::default().detect("golden", &["messages".to_owned()]).unwrap();
    let mapping = mapping.resolve("golden", &[], &[]).unwrap();
    let cell = |value: &Value| serde_json::from_value::<Cell>(value.clone()).unwrap();
    let cells = vec![cell(messages), tools.map_or(Cell::Null, cell)];
    match mapping.adapt(cells, None).unwrap() {
        Outcome::Keep(Adapted::Chat(conversation)) => conversation,
        other => panic!("{other:?}"),
    }
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
}

fn mask(len: usize, runs: &[(u32, u32)]) -> Vec<u32> {
    let mut mask = vec![0; len];
    for &(start, count) in runs {
        mask[start as usize..(start + count) as usize].fill(1);
    }
    mask
}

fn cases() -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(shared("data/golden/qwen3_golden.json")?).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    Some(file["cases"].as_array().unwrap().clone())
}

#[test]
fn faithful_policy_reproduces_text_ids_and_mask_of_every_golden_case() {
    let Some(cases) = cases() else { return };
    let tokeniser = Tokeniser::built_in().unwrap();
    assert_eq!(cases.len(), 20);
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let tools = Some(&case["tools"]).filter(|tools| !tools.is_null());
        let conversation = conversation(&case["messages"], tools);
        let kwargs = &case["kwargs"];
        let ending = match kwargs["add_generation_prompt"].as_bool() {
            Some(true) => Ending::Prompt { thinking: kwargs["enable_thinking"].as_bool() != Some(false) },
            _ => Ending::Closed,
        };
        let sample = render(&conversation, &Policy::FAITHFUL, ending).unwrap();
        assert_eq!(sample.text, case["rendered"]["official_qwen3"].as_str().unwrap(), "{id}");
        let encoded = tokeniser.encode(&sample, ControlText::Keep).unwrap();
        assert_eq!(encoded.ids, numbers(&case["input_ids_official_qwen3"]), "{id}");
        let expected = numbers(&case["mask_official_qwen3_markers"]);
        assert_eq!(mask(encoded.ids.len(), &encoded.trained), expected, "{id}");
    }
}

#[test]
fn faithful_policy_reproduces_text_and_ids_of_every_golden_chat() {
    let Some(path) = shared("data/tokenizers/golden/qwen3.chat.jsonl") else { return };
    let tokeniser = Tokeniser::built_in().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), 14);
    for line in text.lines() {
        let chat: Value = serde_json::from_str(line).unwrap();
        let sample =
            render(&conversation(&chat["messages"], None), &Policy::FAITHFUL, Ending::Closed).unwrap();
        assert_eq!(sample.text, chat["qwen3_trl"].as_str().unwrap(), "{}", chat["name"]);
        let encoded = tokeniser.encode(&sample, ControlText::Keep).unwrap();
        assert_eq!(encoded.ids, numbers(&chat["qwen3_trl_ids"]), "{}", chat["name"]);
    }
}

#[test]
fn every_golden_string_encodes_to_its_ids_and_back() {
    let Some(path) = shared("data/tokenizers/golden/qwen3.encode.jsonl") else { return };
    let tokeniser = Tokeniser::built_in().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let mut strings = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let sample = potable::normalise::RenderedSample {
            text: case["text"].as_str().unwrap().to_owned(),
            ..Default::default()
        };
        let encoded = tokeniser.encode(&sample, ControlText::Keep).unwrap();
        assert_eq!(encoded.ids, numbers(&case["ids"]), "{}", sample.text);
        strings += 1;
    }
    assert_eq!(strings, 387);
}

/// The defaults' outcome of each golden case: trained token count, or drop reason. Rewritten with
/// `POTABLE_BLESS=1`; reviewed as a diff against the table of reasons beside it.
#[test]
fn defaults_give_the_committed_outcome_for_every_golden_case() {
    let Some(cases) = cases() else { return };
    let tokeniser = Tokeniser::built_in().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/defaults.json");
    let committed: BTreeMap<String, Value> =
        serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|_| b"{}".to_vec())).unwrap();
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for case in &cases {
        let id = case["id"].as_str().unwrap().to_owned();
        let tools = Some(&case["tools"]).filter(|tools| !tools.is_null());
        let conversation = conversation(&case["messages"], tools);
        let row = Decontaminator::new(None, false).apply(Adapted::Chat(conversation)).row.unwrap();
        let controls = Controls {
            finder: ControlFinder::new(&tokeniser.control_strings()),
            end_of_text: tokeniser.end_of_text().to_owned(),
        };
        let normaliser = Normaliser::new(Policy::DEFAULT, controls, None);
        let mut outcome = match normaliser.apply(&row, &mut Acted::new()) {
            Outcome::Drop(reason) => serde_json::json!({ "drop": reason.name() }),
            Outcome::Keep(samples) => {
                let encoded = tokeniser.encode(&samples[0], ControlText::Drop).unwrap();
                serde_json::json!({ "tokens": encoded.ids.len(), "trained": encoded.trained })
            }
        };
        let why = committed.get(&id).and_then(|c| c.get("why")).cloned().unwrap_or_default();
        outcome["why"] = why;
        found.insert(id, outcome);
    }
    if std::env::var_os("POTABLE_BLESS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
        return;
    }
    assert_eq!(found, committed);
    assert!(committed.values().all(|case| case["why"].as_str().is_some_and(|why| !why.is_empty())));
}

#[test]
fn unrolled_history_gives_each_turn_as_inference_would_see_it() {
    let messages = serde_json::json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "x"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "reasoning_content": "y"},
    ]);
    let policy = Policy { history: History::Unroll, ..Policy::DEFAULT };
    let Outcome::Keep(samples) = normalise(&conversation(&messages, None), &policy, &mut Acted::new()) else {
        panic!("dropped");
    };
    let texts: Vec<&str> = samples.iter().map(|s| s.text.as_str()).collect();
    let first = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nx\n</think>\n\nb<|im_end|>\n";
    let second = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>\ny\n</think>\n\nd<|im_end|>\n";
    assert_eq!(texts, [first, second]);
    for sample in &samples {
        assert_eq!(sample.trained.len(), 1);
        let trained = sample.text.get(sample.trained[0].clone()).unwrap();
        assert!(trained.starts_with("<think>") && trained.ends_with("<|im_end|>"));
    }
    let policy = Policy { history: History::Keep, ..Policy::DEFAULT };
    let Outcome::Keep(kept) = normalise(&conversation(&messages, None), &policy, &mut Acted::new()) else {
        panic!("dropped");
    };
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].trained.len(), 2);
    assert!(kept[0].text.contains("<think>\nx\n</think>\n\nb"));
    let policy = Policy { train: Train::AllTurns, ..Policy::DEFAULT };
    let Outcome::Keep(all) = normalise(&conversation(&messages, None), &policy, &mut Acted::new()) else {
        panic!("dropped");
    };
    assert_eq!(all[0].text, second);
    assert_eq!(all[0].trained.len(), 2);
}

#[test]
fn without_a_blocklist_every_row_passes_the_check_unchanged() {
    let row = Adapted::Chat(conversation(&serde_json::json!([{"role": "user", "content": "a"}]), None));
    let verdict = Decontaminator::new(None, false).apply(row);
    assert!(verdict.row.is_ok());
    assert!(verdict.matches.is_empty());
}
