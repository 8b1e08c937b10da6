//! Cards of known corpora: rows in their schema convert as they should, and their traps are checked.

use std::path::Path;

use potable::recipe::card::{Card, CardConfig, cards};
use serde_json::{Value, json};

use super::card_rows::{file, file_name, rows};
use super::harness::{Case, lines, rendered, skipped};

/// Rows of a configuration, and what becomes of them.
struct Sample {
    id: &'static str,
    /// Configurations whose name begins with this.
    config: &'static str,
    rows: Vec<Value>,
    /// Texts of the rows that are kept, sorted.
    texts: Vec<String>,
    /// Reasons of the others.
    dropped: Vec<(&'static str, u64)>,
}

fn reasoned(user: &str, reasoning: &str, answer: &str) -> String {
    format!(
        "<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n{reasoning}\n</think>\n\n{answer}<|im_end|>\n"
    )
}

fn document(text: &str) -> Vec<String> {
    vec![format!("{text}<|endoftext|>")]
}

fn sample(id: &'static str, config: &'static str, rows: Value, texts: Vec<String>) -> Sample {
    let Value::Array(rows) = rows else { panic!("rows are a list") };
    Sample { id, config, rows, texts, dropped: Vec::new() }
}

impl Sample {
    fn drops(mut self, reasons: &[(&'static str, u64)]) -> Self {
        self.dropped = reasons.to_vec();
        self
    }
}

const THOUGHT: &str = "<think>\nhm\n</think>\n\na";
const TAGS: &str =
    "<|begin_of_thought|>\n\nhm\n\n<|end_of_thought|>\n\n<|begin_of_solution|>\n\na\n\n<|end_of_solution|>";

fn messages(answer: &str) -> Value {
    json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}])
}

fn turns(user: &str, assistant: &str, answer: &str) -> Value {
    json!([{"from": user, "value": "q"}, {"from": assistant, "value": answer}])
}

fn text_samples() -> Vec<Sample> {
    let plain = |id, config, column: &str| {
        sample(id, config, json!([{ column: "some text" }]), document("some text"))
    };
    vec![
        plain("HuggingFaceFW/fineweb-edu", "", "text"),
        plain("HuggingFaceTB/smollm-corpus", "", "text"),
        plain("HuggingFaceTB/finemath", "", "text"),
        plain("openbmb/Ultra-FineWeb", "", "content"),
        plain("openbmb/UltraData-Math", "", "content"),
        plain("openbmb/UltraData-Code", "UltraData-Code-L3", "full_content"),
        plain("openbmb/UltraData-Code", "UltraData-Code-L2", "content"),
        sample(
            "bigcode/starcoderdata",
            "",
            json!([{"content": "<reponame>a/b<filename>c.py<gh_stars>1\nprint(1)\n"}, {"content": "x = 2"}]),
            vec!["print(1)\n<|endoftext|>".to_owned(), "x = 2<|endoftext|>".to_owned()],
        ),
    ]
}

fn message_samples() -> Vec<Sample> {
    let thought = || vec![reasoned("q", "hm", "a")];
    let kwargs = |system: &str, python: Value| json!({"custom_instructions": system, "enable_thinking": true, "python_tools": python, "xml_tools": []});
    let system = format!("<|im_start|>system\nbe brief<|im_end|>\n{}", reasoned("q", "hm", "a"));
    let with_think = json!([{"messages": messages(THOUGHT)}, {"messages": messages("no mark")}]);
    let ultra = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "hm"}]);
    vec![
        sample(
            "HuggingFaceTB/smoltalk2",
            "SFT/",
            json!([
                {"messages": messages(THOUGHT), "chat_template_kwargs": kwargs("be brief", json!([]))},
                {"messages": messages("b"), "chat_template_kwargs": kwargs("", json!([]))},
                {"messages": messages("c"), "chat_template_kwargs": kwargs("", json!(["def f(): ..."]))},
            ]),
            vec![system, rendered("q", "b")],
        )
        .drops(&[("normalise.lossy", 1)]),
        sample("HuggingFaceTB/smoltalk2", "Mid/", json!([{"messages": messages(THOUGHT)}]), thought()),
        sample("HuggingFaceTB/smoltalk", "", json!([{"messages": messages("a")}]), vec![rendered("q", "a")]),
        sample("allenai/tulu-3-sft-mixture", "", json!([{"messages": messages("a")}]), vec![rendered("q", "a")]),
        sample("open-r1/Mixture-of-Thoughts", "", with_think.clone(), thought()).drops(&[("source.no-tags", 1)]),
        sample(
            "PrimeIntellect/SYNTHETIC-2-SFT-verified",
            "",
            json!([{"messages": messages(THOUGHT), "reward": 1.0}, {"messages": messages(THOUGHT), "reward": 0.5}]),
            thought(),
        )
        .drops(&[("source.where", 1)]),
        sample("openbmb/UltraData-SFT-2605", "", json!([{ "messages": ultra }]), thought()),
    ]
}

fn tagged_samples() -> Vec<Sample> {
    let thought = || vec![reasoned("q", "hm", "a")];
    vec![
        sample(
            "open-thoughts/OpenThoughts3-1.2M",
            "",
            json!([
                {"conversations": turns("human", "gpt", THOUGHT)},
                {"conversations": turns("human", "gpt", "<think>\ncut off")},
            ]),
            thought(),
        )
        .drops(&[("normalise.unclosed-think", 1)]),
        sample(
            "open-thoughts/OpenThoughts-114k",
            "default",
            json!([{"system": "two parts", "conversations": turns("user", "assistant", TAGS)}]),
            thought(),
        ),
        sample(
            "bespokelabs/Bespoke-Stratos-17k",
            "",
            json!([
                {"conversations": turns("user", "assistant", TAGS)},
                {"conversations": turns("user", "assistant", "<|begin_of_thought|>hm<|end_of_thought|>")},
            ]),
            thought(),
        )
        .drops(&[("source.no-tags", 1)]),
        sample(
            "NovaSky-AI/Sky-T1_data_17k",
            "",
            json!([{"conversations": turns("user", "assistant", TAGS)}]),
            thought(),
        ),
        sample(
            "a-m-team/AM-DeepSeek-R1-Distilled-1.4M",
            "",
            json!([
                {"messages": [{"role": "user", "content": "q", "info": {"source": "s"}},
                    {"role": "assistant", "content": "<think> hm </think> <answer> a </answer>", "info": null}]},
                {"messages": messages("no marks")},
            ]),
            thought(),
        )
        .drops(&[("source.no-tags", 1)]),
        sample(
            "nvidia/Llama-Nemotron-Post-Training-Dataset",
            "SFT/",
            json!([
                {"input": [{"role": "user", "content": "q"}], "output": THOUGHT, "reasoning": "on", "generator": "DeepSeek-R1"},
                {"input": [{"role": "user", "content": "q"}], "output": "a", "reasoning": "off", "generator": "Qwen2.5"},
            ]),
            thought(),
        )
        .drops(&[("source.where", 1)]),
    ]
}

fn column_samples() -> Vec<Sample> {
    let thought = || vec![reasoned("q", "hm", "a")];
    vec![
        sample(
            "open-r1/OpenR1-Math-220k",
            "",
            json!([
                {"problem": "q", "generations": ["<think>\nno\n</think>\n\nb", THOUGHT], "is_reasoning_complete": [true, true],
                    "correctness_math_verify": [false, false], "correctness_llama": [false, true]},
                {"problem": "q", "generations": [THOUGHT], "is_reasoning_complete": [true],
                    "correctness_math_verify": [false], "correctness_llama": null},
            ]),
            thought(),
        )
        .drops(&[("source.no-choice", 1)]),
        sample(
            "nvidia/OpenCodeReasoning",
            "split_0",
            json!([
                {"input": "q", "output": THOUGHT, "split": "train"},
                {"input": "q2", "output": THOUGHT, "split": "test"},
                {"input": "q3", "output": "a", "split": "train"},
            ]),
            thought(),
        )
        .drops(&[("source.where", 1), ("source.no-tags", 1)]),
        sample(
            "open-thoughts/OpenThoughts-114k",
            "metadata",
            json!([{"problem": "q", "starter_code": null, "deepseek_reasoning": "hm", "deepseek_solution": "a"}]),
            thought(),
        ),
    ]
}

fn code_samples() -> Vec<Sample> {
    let code = || vec![rendered("q", "print(1)")];
    vec![
        sample(
            "codeparrot/apps",
            "",
            json!([
                {"question": "q", "starter_code": "", "solutions": "[\"print(1)\", \"print(2)\"]"},
                {"question": "q", "starter_code": "", "solutions": ""},
            ]),
            code(),
        )
        .drops(&[("source.where", 1)]),
        sample(
            "BAAI/TACO",
            "",
            json!([
                {"question": "q", "starter_code": "", "solutions": "[\"print(1)\"]", "picture_num": "0"},
                {"question": "q", "starter_code": "", "solutions": "[\"print(1)\"]", "picture_num": "2"},
            ]),
            code(),
        )
        .drops(&[("source.where", 1)]),
        sample(
            "deepmind/code_contests",
            "",
            json!([
                {"description": "q", "solutions": {"language": [2, 3], "solution": ["int main(){}", "print(1)"]}},
                {"description": "only C++", "solutions": {"language": [2], "solution": ["int main(){}"]}},
                {"description": "", "solutions": {"language": [3], "solution": ["print(1)"]}},
            ]),
            code(),
        )
        .drops(&[("source.no-choice", 1), ("source.where", 1)]),
        sample(
            "openai/gsm8k",
            "",
            json!([{"question": "q", "answer": "48/2 = <<48/2=24>>24.\n#### 24"}]),
            vec![reasoned("q", "48/2 = 24.", "24")],
        ),
    ]
}

fn solution_samples() -> Vec<Sample> {
    let thought = || vec![reasoned("q", "hm", "a")];
    vec![
        sample(
            "nvidia/OpenMathReasoning",
            "",
            json!([
                {"problem": "q", "generated_solution": THOUGHT, "problem_type": "has_answer_extracted"},
                {"problem": "q", "generated_solution": THOUGHT, "problem_type": "converted_proof"},
            ]),
            thought(),
        )
        .drops(&[("source.where", 1)]),
        sample(
            "nvidia/OpenScienceReasoning-2",
            "",
            json!([{"input": "q", "output": THOUGHT}, {"input": "q", "output": "a"}]),
            thought(),
        )
        .drops(&[("source.no-tags", 1)]),
        sample(
            "AI-MO/NuminaMath-CoT",
            "",
            json!([
                {"problem": "q", "solution": "a", "source": "olympiads"},
                {"problem": "q", "solution": "a", "source": "gsm8k"},
            ]),
            vec![rendered("q", "a")],
        )
        .drops(&[("source.where", 1)]),
        sample(
            "simplescaling/s1K-1.1",
            "",
            json!([
                {"question": "q", "deepseek_thinking_trajectory": "hm", "deepseek_attempt": "a", "deepseek_grade": "Yes"},
                {"question": "q", "deepseek_thinking_trajectory": "hm", "deepseek_attempt": "a", "deepseek_grade": "No"},
            ]),
            thought(),
        )
        .drops(&[("source.where", 1)]),
        sample("GAIR/LIMO", "", json!([{"question": "q", "solution": "hm", "answer": "a"}]), thought()),
    ]
}

fn trace_samples() -> Vec<Sample> {
    let thought = || vec![reasoned("q", "hm", "a")];
    vec![
        sample(
            "open-r1/codeforces-cots",
            "",
            json!([
                {"prompt": "q", "generation": THOUGHT, "finish_reason": "stop"},
                {"prompt": "q", "generation": THOUGHT, "finish_reason": "length"},
            ]),
            thought(),
        )
        .drops(&[("source.where", 1)]),
        sample(
            "zwhe99/DeepMath-103K",
            "",
            json!([
                {"question": "q", "r1_solution_1": "hm\n</think>\n\na"},
                {"question": "q", "r1_solution_1": "no mark"},
            ]),
            thought(),
        )
        .drops(&[("source.no-tags", 1)]),
        sample(
            "PrimeIntellect/SYNTHETIC-1",
            "",
            json!([
                {"prompt": "q", "llm_response": THOUGHT, "score": 1.0},
                {"prompt": "q", "llm_response": THOUGHT, "score": 0.0},
                {"prompt": "q", "llm_response": THOUGHT, "score": null},
            ]),
            thought(),
        )
        .drops(&[("source.where", 2)]),
    ]
}

fn samples() -> Vec<Sample> {
    let all = [
        text_samples(),
        message_samples(),
        tagged_samples(),
        column_samples(),
        code_samples(),
        solution_samples(),
        trace_samples(),
    ];
    all.into_iter().flatten().collect()
}

/// Lays out one file of a configuration in a local copy.
fn put_rows(case: &Case, card: &Card, config: &CardConfig, given: &[Value]) {
    let name = file_name(&config.files[0]);
    let mut bytes = file(card, config, &rows(card, config, given));
    if name.ends_with(".zst") {
        bytes = zstd::encode_all(bytes.as_slice(), 3).unwrap();
    }
    case.put(&format!("copy/{name}"), bytes);
}

/// Runs a configuration over rows in its schema and compares texts and reasons.
fn check(card: &Card, config: &CardConfig, sample: &Sample) {
    let case = Case::new();
    put_rows(&case, card, config, &sample.rows);
    let data = case.prepared(&format!(
        "[dedup]\nexact = \"none\"\n[pack]\nlength = 4096\n[[source]]\nname = \"a\"\ncorpus = \"{}\"\nconfig = \"{}\"\npath = \"copy\"\n",
        card.id, config.name
    ));
    let place = format!("{} {}", card.id, config.name);
    let mut texts = sample.texts.clone();
    texts.sort();
    assert_eq!(data.texts(), texts, "{place}");
    for (reason, rows) in &sample.dropped {
        assert_eq!(data.number(&format!("/rows/a/dropped/{reason}")), *rows, "{place}: {reason}");
    }
    assert_eq!(data.number("/rows/a/read"), sample.rows.len() as u64, "{place}");
}

#[test]
fn rows_in_the_schema_of_each_card_convert_as_expected() {
    let samples = samples();
    let mut unseen = Vec::new();
    for card in &cards().unwrap() {
        // A join fills the prompts of these rows; that has tests of its own.
        let joined = |config: &CardConfig| card.id == "nvidia/OpenCodeReasoning" && config.name == "split_1";
        let usable = card.config.iter().filter(|config| config.unusable.is_none() && !joined(config));
        for config in usable {
            let fits = |s: &&Sample| s.id == card.id && config.name.starts_with(s.config);
            match samples.iter().find(fits) {
                Some(sample) => check(card, config, sample),
                None => unseen.push(format!("{} {}", card.id, config.name)),
            }
        }
    }
    assert!(unseen.is_empty(), "no sample of {unseen:?}");
}

#[test]
fn each_card_reads_the_fixtures_of_the_real_layout() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/marked/corpora/hf_schema_fixtures");
    if !folder.is_dir() {
        return skipped("there is no ../shared with fixtures of corpora");
    }
    let mut read = 0;
    for card in cards().unwrap() {
        let copy = folder.join(card.id.replace('/', "__"));
        for config in card.config.iter().filter(|config| config.unusable.is_none()) {
            let there = config.files.iter().any(|glob| {
                let found = glob::glob(&copy.join(glob).to_string_lossy());
                found.is_ok_and(|mut paths| paths.next().is_some())
            });
            // The joined rows need other corpora, and fixtures have no row without a prompt.
            if !there || card.id == "nvidia/OpenCodeReasoning" && config.name == "split_1" {
                continue;
            }
            let case = Case::new();
            case.recipe(&format!(
                "[dedup]\nexact = \"none\"\n[pack]\nlength = 1048576\n[[source]]\nname = \"a\"\ncorpus = \"{}\"\nconfig = \"{}\"\npath = \"{}\"\n",
                card.id,
                config.name,
                copy.display()
            ));
            let data = case.prep("out", &["--limit", "20"]);
            assert!(data.number("/rows/a/kept") > 0, "{} {}", card.id, config.name);
            read += 1;
        }
    }
    assert!(read >= 20, "only {read} configurations have fixtures");
}

fn two(id: &str, first: &str, second: &str) -> String {
    let source = |name: &str, config: &str| {
        format!("[[source]]\nname = \"{name}\"\ncorpus = \"{id}\"\nconfig = \"{config}\"\npath = \"copy\"\n")
    };
    source("first", first) + &source("second", second)
}

#[test]
fn openr1_all_beside_default_is_refused() {
    let case = Case::new();
    case.recipe(&two("open-r1/OpenR1-Math-220k", "all", "default"));
    case.refused(&["source `second`", "config `default`", "holds rows of config `all`", "source `first`"]);
}

#[test]
fn the_two_copies_of_taco_are_refused_together() {
    let case = Case::new();
    case.recipe(&two("BAAI/TACO", "ALL", "ALL-parquet"));
    case.refused(&["source `second`", "config `ALL-parquet` of `BAAI/TACO` holds rows of config `ALL`"]);
}

#[test]
fn configurations_that_repeat_one_another_are_refused_in_either_order() {
    for card in cards().unwrap() {
        for config in &card.config {
            for other in &config.repeats {
                for (first, second) in [(&config.name, other), (other, &config.name)] {
                    let case = Case::new();
                    case.recipe(&two(&card.id, first, second));
                    case.refused(&["holds rows of config"]);
                }
            }
        }
    }
}

#[test]
fn configurations_that_hold_the_same_rows_may_stand_in_two_phases() {
    let case = Case::new();
    let cards = cards().unwrap();
    let card = cards.iter().find(|card| card.id == "openai/gsm8k").unwrap();
    for name in ["main", "socratic"] {
        let row = json!({"question": format!("q of {name}"), "answer": "so\n#### 1"});
        put_rows(&case, card, card.config(Some(name)).unwrap(), &[row]);
    }
    let phase = |name: &str| {
        format!(
            "[[phase]]\nname = \"{name}\"\n[[phase.source]]\ncorpus = \"openai/gsm8k\"\nconfig = \"{name}\"\npath = \"copy\"\n"
        )
    };
    case.recipe(&(phase("main") + &phase("socratic")));
    assert_eq!(case.run("out", &[]).code, 0);
}

#[test]
fn rows_that_cannot_be_trained_on_are_refused_with_the_reason() {
    let mut seen = 0;
    for card in cards().unwrap() {
        for config in card.config.iter().filter(|config| config.unusable.is_some()) {
            let case = Case::new();
            case.recipe(&format!(
                "[[source]]\ncorpus = \"{}\"\nconfig = \"{}\"\npath = \"copy\"\n",
                card.id, config.name
            ));
            case.refused(&[config.unusable.as_deref().unwrap(), &config.name]);
            seen += 1;
        }
    }
    assert!(seen >= 9, "{seen}");
}

#[test]
fn python_edu_has_no_text() {
    let case = Case::new();
    case.recipe(
        "[[source]]\ncorpus = \"HuggingFaceTB/smollm-corpus\"\nconfig = \"python-edu\"\npath = \"copy\"\n",
    );
    case.refused(&["config `python-edu`", "holds no text", "Software Heritage", "cosmopedia-v2"]);
}

#[test]
fn a_part_zero_of_a_corpus_that_counts_from_one_is_refused() {
    for (id, config, name) in [
        (
            "openbmb/Ultra-FineWeb",
            "default/en",
            "data/ultrafineweb_en/ultrafineweb-en-part-0000-of-2048.parquet",
        ),
        (
            "openbmb/UltraData-Code",
            "UltraData-Code-L3/py",
            "data/UltraData-Code-L3/py/UltraData-Code-L3-py-part-00148-of-00147.parquet",
        ),
    ] {
        let case = Case::new();
        let cards = cards().unwrap();
        let card = cards.iter().find(|card| card.id == id).unwrap();
        let found = card.config(Some(config)).unwrap();
        case.put(&format!("copy/{name}"), file(card, found, &rows(card, found, &[json!({})])));
        case.recipe(&format!("[[source]]\ncorpus = \"{id}\"\nconfig = \"{config}\"\npath = \"copy\"\n"));
        case.refused(&["cannot be a file of this corpus", "counted from 1"]);
    }
}

#[test]
fn each_evaluation_split_is_refused_by_name() {
    for card in cards().unwrap() {
        for config in &card.config {
            for split in config.eval.keys().filter(|_| config.unusable.is_none()) {
                let case = Case::new();
                case.recipe(&format!(
                    "[[source]]\ncorpus = \"{}\"\nconfig = \"{}\"\nsplit = \"{split}\"\npath = \"copy\"\n",
                    card.id, config.name
                ));
                case.refused(&[&format!("split `{split}`"), "is not its training split", "allow_eval_split"]);
            }
        }
    }
}

#[test]
fn an_evaluation_split_that_is_allowed_is_read_alone_and_stands_in_the_manifest() {
    let case = Case::new();
    let cards = cards().unwrap();
    let card = cards.iter().find(|card| card.id == "deepmind/code_contests").unwrap();
    let config = card.config(None).unwrap();
    for split in ["train", "valid", "test"] {
        let row = json!({"description": split, "solutions": {"language": [3], "solution": ["x"]}});
        case.put(
            &format!("copy/data/{split}-00000-of-00001.parquet"),
            file(card, config, &rows(card, config, &[row])),
        );
    }
    let data = case.prepared(
        "[[source]]\nname = \"a\"\ncorpus = \"deepmind/code_contests\"\nsplit = \"valid\"\nallow_eval_split = true\npath = \"copy\"\n",
    );
    assert_eq!(data.texts(), [rendered("valid", "x")]);
    assert_eq!(data.manifest["inputs"][0]["eval_split"], json!(true));
}

fn plan_warnings(recipe: &str) -> String {
    let case = Case::new();
    let cards = cards().unwrap();
    for id in ["NovaSky-AI/Sky-T1_data_17k", "bespokelabs/Bespoke-Stratos-17k", "HuggingFaceTB/smoltalk2"] {
        let card = cards.iter().find(|card| card.id == id).unwrap();
        let config = card.config(None).unwrap();
        let given = match id {
            "HuggingFaceTB/smoltalk2" => json!({"messages": messages("a")}),
            _ => json!({"conversations": turns("user", "assistant", TAGS)}),
        };
        let bytes = file(card, config, &rows(card, config, &[given]));
        case.put(&format!("{}/{}", id.split('/').next_back().unwrap(), file_name(&config.files[0])), bytes);
    }
    case.recipe(recipe);
    let ran = case.run("out", &["--plan"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stderr
}

#[test]
fn a_plan_warns_of_corpora_that_repackage_one_another() {
    let warned = plan_warnings(
        "[[source]]\nname = \"stratos\"\ncorpus = \"bespokelabs/Bespoke-Stratos-17k\"\npath = \"Bespoke-Stratos-17k\"\n\
         [[source]]\nname = \"sky\"\ncorpus = \"NovaSky-AI/Sky-T1_data_17k\"\npath = \"Sky-T1_data_17k\"\n",
    );
    assert!(
        warned.contains("warning: source `stratos` repackages rows or prompts of source `sky`"),
        "{warned}"
    );
    assert!(warned.contains("`[dedup] exact = \"prompt\"`"), "{warned}");
}

#[test]
fn a_plan_warns_of_a_mapping_that_leaves_the_system_text_of_smoltalk2_out() {
    let warned = plan_warnings(
        "[[source]]\nname = \"chat\"\ncorpus = \"HuggingFaceTB/smoltalk2\"\npath = \"smoltalk2\"\n\
         [source.mapping]\nshape = \"messages\"\nmessages = \"messages\"\n",
    );
    assert!(warned.contains("`chat_template_kwargs.custom_instructions`"), "{warned}");
}

#[test]
fn a_plan_says_when_files_are_missing_that_the_names_count() {
    let case = Case::new();
    case.put("data/train-00001-of-00003.jsonl", lines([json!({"text": "some text"})]));
    case.recipe("[[source]]\nname = \"a\"\npath = \"data\"\n");
    let ran = case.run("out", &["--plan"]);
    assert!(
        ran.stderr.contains("warning: source `a` reads 1 of the 3 files that their names count"),
        "{}",
        ran.stderr
    );
}

#[test]
fn list_and_show_name_every_corpus_with_its_columns() {
    let case = Case::new();
    let list = case.potable(&["corpora", "list"]).stdout;
    for card in cards().unwrap() {
        assert!(list.contains(&card.id), "{}", card.id);
        let shown = case.potable(&["corpora", "show", &card.id]).stdout;
        for config in &card.config {
            assert!(shown.contains(&format!("config {}", config.name)), "{shown}");
            assert!(shown.contains(&card.columns_of(config).join("; ")), "{shown}");
            assert!(config.files.iter().all(|glob| shown.contains(glob.as_str())), "{shown}");
        }
        assert!(card.notes.iter().all(|note| shown.contains(note.as_str())), "{shown}");
    }
}

#[test]
fn the_list_as_markdown_is_the_committed_document() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/corpora.md");
    let made = Case::new().potable(&["corpora", "list", "--format", "markdown"]).stdout;
    assert!(std::fs::read_to_string(path).unwrap() == made);
}

/// A benchmark of rows that a corpus holds out.
const HELD_OUT: &str = "name = \"held-out\"\nfiles = \"all.jsonl\"\nwhere = \"split <> 'train'\"\ndistinct = true\nprompt = \"input\"\n";

#[test]
fn held_out_rows_of_a_corpus_can_be_a_benchmark_of_the_same_files() {
    let long = "held out words that nobody else would ever write down in this very order at all";
    let row = |split: &str, input: &str, n: u32| json!({"split": split, "input": input, "output": format!("answer {n}")});
    let case = Case::new();
    case.put(
        "all.jsonl",
        lines([
            row("train", "a question of its own", 1),
            row("test", long, 2),
            row("test", long, 3),
            row("train", long, 4),
        ]),
    );
    case.put("held.toml", HELD_OUT);
    let data = case.prepared(
        "[[source]]\nname = \"a\"\npath = \"all.jsonl\"\nwhere = \"split = 'train'\"\n[decontaminate]\nbenchmarks = [\"held.toml\"]\n",
    );
    assert_eq!(data.texts(), [rendered("a question of its own", "answer 1")]);
    assert_eq!(data.number("/rows/a/dropped/decontaminate.ngram"), 1);
    assert_eq!(data.number("/decontamination/benchmarks/0/items"), 1);
    assert_eq!(data.manifest["decontamination"]["benchmarks"][0]["where"], json!("split <> 'train'"));
}

#[test]
fn a_where_of_a_benchmark_that_cannot_be_read_is_an_error_of_its_own() {
    let case = Case::new();
    case.put("all.jsonl", lines([json!({"split": "test", "input": "some question"})]));
    for (filter, words) in [("split <>", "cannot read"), ("splt <> 'train'", "splt")] {
        case.put("held.toml", HELD_OUT.replace("split <> 'train'", filter));
        case.recipe("[[source]]\npath = \"all.jsonl\"\n[decontaminate]\nbenchmarks = [\"held.toml\"]\n");
        case.refused(&["held-out", words]);
    }
}

#[test]
fn a_sample_is_the_same_share_of_rows_whatever_the_cap() {
    let case = Case::new();
    case.put("a.jsonl", super::harness::chats(200));
    let kept = |out: &str, more: &str| {
        case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n{more}"));
        case.prep(out, &[])
    };
    let (all, half) = (kept("all", ""), kept("half", "sample = 0.5\n"));
    assert_eq!(all.number("/rows/a/kept"), 200);
    let count = half.number("/rows/a/kept");
    assert!((70..130).contains(&count), "{count}");
    assert_eq!(half.number("/rows/a/sampled_out"), 200 - count);
    let capped = kept("capped", "sample = 0.5\nmax_rows = 199\n");
    assert_eq!(capped.names(), half.names(), "a cap above the share takes the share");
    let few = kept("few", "sample = 0.5\nmax_rows = 10\n");
    assert!(few.names().iter().all(|name| half.names().contains(name)));
    assert_eq!(few.number("/rows/a/kept"), 10);
}

#[test]
fn a_sample_that_is_no_share_is_refused() {
    for value in ["0.0", "1.0", "1.5", "-0.1"] {
        let case = Case::new();
        case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nsample = {value}\n"));
        case.refused(&["source `a`", "is not a share"]);
    }
}

#[test]
fn messages_are_read_as_plain_text_where_the_mapping_says_so() {
    let case = Case::new();
    case.put("a.jsonl", lines([json!({"messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})]));
    let data = case.prepared(
        "[normalise]\nformat = \"text\"\n[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[source.mapping]\nshape = \"text\"\n\
         messages = \"messages\"\nlabels = { user = \"Question: \" }\n",
    );
    assert_eq!(data.texts(), ["Be brief.\n\nQuestion: q\n\na<|endoftext|>"]);
}
