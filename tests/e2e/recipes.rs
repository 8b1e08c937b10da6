//! The built-in recipes for known systems, unchanged but for `--limit`, against a stub of the Hub that holds
//! small repositories laid out as the real ones are.

use std::process::{Command, Stdio};

use potable::recipe::card::{Card, CardConfig, cards};
use potable::recipe::{Recipe, ResolvedSource};
use potable::source::adapt::MappingFile;
use potable::source::adapt::mapping::Shape;
use potable_blocklists::{BenchmarkDefinition, known};
use serde_json::{Map, Value, json};

use super::card_rows::{file, file_name, parquet_of, rows};
use super::harness::{Case, DataSet, lines, question, ran};
use super::hub_stub::HubStub;

const TOKENIZER: &str = include_str!("../fixtures/bytes.tokenizer.json");
/// A question that every benchmark has and one row of each source repeats.
const LEAKED: &str = "How many lanterns hang over the copper bridge when every second boat of the harbour brings \
                      seven new ones and the winter storm takes away a third of them each night";
/// Rows of each source.
const ROWS: usize = 48;

/// A row whose question and answer are `n`'s own, as the mapping wants it.
fn row(mapping: &MappingFile, n: usize) -> Map<String, Value> {
    let (asked, answer) = question(n);
    let asked = if n % ROWS == 5 { LEAKED.to_owned() } else { asked };
    let thought = format!("<think>\nThought {n}.\n</think>\n\n{answer}");
    let tagged = format!(
        "<|begin_of_thought|>Thought {n}.<|end_of_thought|><|begin_of_solution|>{answer}<|end_of_solution|>"
    );
    let reply = match (&mapping.tags, &mapping.reasoning) {
        (Some(_), _) => tagged,
        (None, Some(_)) => answer.clone(),
        (None, None) => thought,
    };
    let mut row = Map::new();
    match mapping.shape.unwrap() {
        Shape::Text if mapping.text.is_some() => {
            row.insert(mapping.text.clone().unwrap(), json!(format!("{asked} {answer}")));
        }
        Shape::Messages | Shape::Text => {
            let role = mapping.role.clone().unwrap_or_else(|| "role".to_owned());
            let content = mapping.content.clone().unwrap_or_else(|| "content".to_owned());
            let user = json!({&role: "user", &content: asked});
            let mut assistant = json!({&role: "assistant", &content: reply});
            if let Some(field) = &mapping.reasoning {
                assistant = json!({&role: "assistant", &content: answer, field: format!("Thought {n}.")});
            }
            row.insert(mapping.messages.clone().unwrap(), json!([user, assistant]));
        }
        Shape::Columns => {
            if let Some(column) = &mapping.reasoning {
                row.insert(column.clone(), json!(format!("Thought {n}.")));
            }
            for (place, column) in mapping.prompt.iter().flatten().enumerate() {
                row.insert(column.clone(), json!(if place == 0 { asked.as_str() } else { "" }));
            }
            let reply = match (&mapping.choose_all, mapping.json_response) {
                (Some(_), _) => json!([reply]),
                (None, Some(true)) => json!(json!([reply]).to_string()),
                (None, _) => json!(reply),
            };
            match mapping.response.as_deref().unwrap() {
                "solutions.solution" => {
                    row.insert("solutions".to_owned(), json!({"language": [3], "solution": [reply]}))
                }
                column => row.insert(column.to_owned(), reply),
            };
        }
    }
    row
}

/// Columns that filters and joins look at.
fn extra(id: &str, n: usize) -> Value {
    match id {
        "nvidia/OpenCodeReasoning" => {
            let half = if n % 6 == 1 { "test" } else { "train" };
            // Positions past the end have no row to join.
            let index = if n.is_multiple_of(11) { 9_999 } else { n % ROWS };
            json!({"split": half, "dataset": (["taco", "apps", "code_contests"][n % 3]), "index": index.to_string()})
        }
        "open-thoughts/OpenThoughts3-1.2M" => json!({"domain": (["science", "math"][n % 2])}),
        "open-thoughts/OpenThoughts-114k" => {
            json!({"source": (["camel-ai/physics", "numina"][n % 2]), "starter_code": ""})
        }
        "BAAI/TACO" => json!({"picture_num": "0"}),
        "HuggingFaceTB/smoltalk2" => {
            json!({"chat_template_kwargs": {"custom_instructions": format!("Be kind, {n}."),
            "enable_thinking": true, "python_tools": [], "xml_tools": []}})
        }
        _ => json!({}),
    }
}

fn corpus_rows(card: &Card, config: &CardConfig, mapping: &MappingFile, first: usize) -> Vec<u8> {
    let known = card.columns_of(config);
    let given: Vec<Value> = (first..first + ROWS)
        .map(|n| {
            let mut made = row(mapping, n);
            let more = extra(&card.id, n);
            let more = more.as_object().unwrap().iter();
            made.extend(
                more.filter(|(name, _)| known.iter().any(|column| column.starts_with(&format!("{name}: "))))
                    .map(|(name, value)| (name.clone(), value.clone())),
            );
            Value::Object(made)
        })
        .collect();
    file(card, config, &rows(card, config, &given))
}

/// A repository of a corpus, with the files of one configuration.
fn put_corpus(stub: &HubStub, card: &Card, config: &CardConfig, first: usize) {
    // Problems without answers serve as prompts of joined rows.
    let plain = MappingFile {
        shape: Some(Shape::Text),
        text: Some("description".to_owned()),
        ..MappingFile::default()
    };
    let bytes = corpus_rows(card, config, config.mapping.as_ref().unwrap_or(&plain), first);
    let repo = stub.dataset(&card.id);
    repo.lfs(&file_name(&config.files[0]), bytes);
    for globs in config.eval.values() {
        repo.plain(&file_name(&globs[0]), "not read");
    }
    if let Some(commit) = &card.revision {
        repo.pin(commit);
    }
}

/// A repository of a benchmark, with two items in its columns.
fn put_benchmark(stub: &HubStub, definition: &BenchmarkDefinition) {
    let items: Vec<Value> =
        [LEAKED.to_owned(), format!("An item that {} alone has, in words of its own.", definition.name)]
            .into_iter()
            .map(|text| {
                let mut item = Map::new();
                for column in &definition.prompt {
                    item.insert(column.clone(), json!(text));
                }
                for column in &definition.options {
                    let list = definition.options.len() == 1;
                    let value = if list { json!(["one", "two"]) } else { json!("one") };
                    match column.split_once('.') {
                        Some((column, field)) => item.insert(column.to_owned(), json!({ field: value })),
                        None => item.insert(column.clone(), value),
                    };
                }
                for column in definition.id.iter().chain(&definition.canary_column) {
                    let mark = format!("a mark of {}, number {}", definition.name, item.len());
                    item.insert(column.clone(), json!(mark));
                }
                Value::Object(item)
            })
            .collect();
    let repo = stub.dataset(definition.repo.as_deref().unwrap());
    for glob in &definition.files {
        let name = file_name(glob);
        let bytes = match name.rsplit_once('.').unwrap().1 {
            "parquet" => parquet_of(&items),
            "csv" => csv(&items).into_bytes(),
            _ => lines(items.clone()).into_bytes(),
        };
        repo.lfs(&name, bytes);
    }
    if let Some(commit) = definition.revision.as_deref().filter(|commit| commit.len() == 40) {
        repo.pin(commit);
    }
}

fn csv(items: &[Value]) -> String {
    let row = |cells: Vec<String>| cells.join(",") + "\n";
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let header = items[0].as_object().unwrap().keys().map(|name| quoted(name)).collect();
    let rows = items.iter().map(|item| {
        row(item.as_object().unwrap().values().map(|value| quoted(value.as_str().unwrap())).collect())
    });
    row(header) + &rows.collect::<String>()
}

/// Every repository that a recipe reads.
fn hub(recipe: &Recipe) -> HubStub {
    let stub = HubStub::new();
    let cards = cards().unwrap();
    let mut seen: Vec<(String, String)> = Vec::new();
    let mut put = |source: &ResolvedSource| {
        let id = source.corpus.clone().unwrap();
        let card = cards.iter().find(|card| card.id == id).unwrap();
        let config = card.config(source.config.as_deref()).unwrap();
        if !seen.contains(&(id.clone(), config.name.clone())) {
            put_corpus(&stub, card, config, seen.len() * 1000);
            seen.push((id, config.name.clone()));
        }
    };
    for source in recipe.phases.iter().flat_map(|phase| &phase.sources) {
        put(source);
        source.joins.iter().for_each(|join| put(&join.source));
    }
    let suite = known::suites().unwrap()["post-training"].benchmarks.clone();
    for name in suite {
        put_benchmark(&stub, &known::definition(&name).unwrap().unwrap());
    }
    for model in ["Qwen/Qwen3.5-4B", "openbmb/MiniCPM5-1B"] {
        stub.model(model).plain("tokenizer.json", TOKENIZER);
    }
    stub
}

fn is_commit(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Runs a built-in recipe and gives its data sets, in the order of its phases.
fn run(name: &str) -> Vec<DataSet> {
    let recipe = Recipe::load(name).unwrap();
    let stub = hub(&recipe);
    let case = Case::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_potable"));
    command
        .current_dir(case.path(""))
        .args(["prep", name, "--limit", "48", "--threads", "2", "--no-progress", "--out", "out"])
        .stdin(Stdio::null());
    stub.command(&mut command, &case.path("home"));
    let ran = ran(&mut command);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let folder =
        |phase: &Option<String>| phase.as_ref().map_or("out".to_owned(), |name| format!("out/{name}"));
    let data: Vec<DataSet> = recipe.phases.iter().map(|phase| case.data(&folder(&phase.name))).collect();
    for (phase, data) in recipe.phases.iter().zip(&data) {
        check(phase.sources.as_slice(), data);
    }
    data
}

/// Everything is pinned, every source keeps rows and loses the contaminated one.
fn check(sources: &[ResolvedSource], data: &DataSet) {
    let inputs = data.manifest["inputs"].as_array().unwrap();
    assert_eq!(inputs.len(), sources.len());
    for input in inputs {
        let name = input["name"].as_str().unwrap();
        assert!(is_commit(&input["revision"]) && input["local"] == json!(false), "{input}");
        for join in input["joins"].as_array().into_iter().flatten() {
            assert!(is_commit(&join["revision"]), "{join}");
        }
        assert!(data.number(&format!("/rows/{name}/kept")) > 0, "{name} keeps no row");
        assert_eq!(data.number(&format!("/rows/{name}/read")), ROWS as u64, "{name}");
    }
    let benchmarks = data.manifest["decontamination"]["benchmarks"].as_array().unwrap();
    assert!(benchmarks.len() >= 9);
    for benchmark in benchmarks {
        assert!(is_commit(&benchmark["revision"]), "{benchmark}");
    }
    assert!(data.dropped.iter().any(|row| row.reason == "decontaminate.ngram"));
}

fn rows_of(data: &DataSet, reason: &str) -> u64 {
    let rows = data.manifest["rows"].as_object().unwrap().values();
    rows.filter_map(|ledger| ledger["dropped"][reason].as_u64()).sum()
}

#[test]
fn think_sft_240k_runs_from_the_hub() {
    let data = run("think-sft-240k");
    assert!(rows_of(&data[0], "source.unjoined") > 0);
    assert!(rows_of(&data[0], "source.where") > 0);
}

#[test]
fn think_sft_mix_runs_from_the_hub_and_its_drill_shares_no_row() {
    let data = run("think-sft-mix");
    assert!(rows_of(&data[1], "dedup.other-phase") > 0);
    let (main, drill) = (data[0].token_sequences(), data[1].token_sequences());
    assert!(!drill.is_empty() && drill.iter().all(|sample| !main.contains(sample)));
    let held_out = data[0].manifest["decontamination"]["benchmarks"].as_array().unwrap();
    assert!(
        held_out.iter().any(|b| b["name"] == "opencodereasoning-heldout" && b["where"] == "split <> 'train'")
    );
}

#[test]
fn recovery_text_runs_from_the_hub_with_the_tokenizer_of_another_model() {
    let data = run("recovery-text-qwen3.5");
    assert!(data[0].texts().iter().all(|text| text.ends_with("<|endoftext|>") || !text.contains("<|im_")));
    assert!(data[0].manifest["tokeniser"]["name"].as_str().unwrap().starts_with("Qwen/Qwen3.5-4B@"));
    let revision = |name: &str| {
        let inputs = data[0].manifest["inputs"].as_array().unwrap();
        inputs.iter().find(|input| input["name"] == name).unwrap()["revision"].clone()
    };
    assert_eq!(revision("finemath"), "e92b25a616738fe95dc186b64dfb19f9c8525594");
}

#[test]
fn bridge_long_runs_from_the_hub_with_two_pack_lengths() {
    let data = run("bridge-long");
    let length = |data: &DataSet| data.manifest["shards"][0]["length"].as_u64().unwrap();
    assert_eq!((length(&data[0]), length(&data[1])), (8192, 32768));
    assert!(rows_of(&data[1], "dedup.other-phase") > 0);
}

#[test]
fn adapt_then_sft_runs_from_the_hub_into_two_data_sets() {
    let data = run("adapt-then-sft");
    assert_eq!(data.len(), 2);
    assert_ne!(data[0].digest(), data[1].digest());
    assert!(data[1].texts().iter().all(|text| text.contains("<think>\nThought ")));
}

#[test]
fn built_in_recipes_name_no_file_of_a_machine() {
    for (name, text) in potable::recipe::BUILT_IN.iter().filter(|(name, _)| *name != "demo") {
        assert!(text.starts_with("# "), "{name}");
        for key in ["path =", "copies =", "blocklist ="] {
            assert!(!text.contains(key), "{name} has `{key}`");
        }
    }
}
