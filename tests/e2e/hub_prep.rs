//! Recipes that take things from the Hub, run against a stub of it: pins, lock, cache, streams.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use parquet::basic::Compression;
use serde_json::Value;

use crate::harness::{Case, Ran, chats, chats_from, files_below, parquet_bytes, put, question, ran};
use crate::hub_stub::{Fault, Host, HubStub, sha256};

const TRAIN: [&str; 2] = ["main/train-00000-of-00002.parquet", "main/train-00001-of-00002.parquet"];

/// A case with a Hub that holds GSM8K: two files of 40 rows in groups of 8, with a column that nothing
/// wants, and a benchmark one of whose items is in the second file.
struct Bench {
    case: Case,
    stub: HubStub,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { case: Case::new(), stub: HubStub::new() };
        let repo = bench.stub.dataset("openai/gsm8k");
        for (path, bytes) in gsm8k() {
            repo.lfs(path, bytes);
        }
        repo.licence("mit");
        bench
            .case
            .recipe("[[source]]\ncorpus = \"openai/gsm8k\"\n[decontaminate]\nbenchmarks = [\"gsm8k\"]\n");
        bench
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_potable"));
        command.current_dir(self.case.path("")).arg("--no-progress").args(args);
        command.stdin(std::process::Stdio::null());
        self.stub.command(&mut command, &self.case.path("home"));
        ran(&mut command)
    }

    fn prep(&self, out: &str, args: &[&str]) -> Ran {
        let mut all = vec!["prep", "recipe.toml", "--no-progress", "--out", out];
        all.extend(args);
        self.run(&all)
    }

    /// Runs to its end, and the manifest.
    fn manifest(&self, out: &str, args: &[&str]) -> Value {
        let ran = self.prep(out, args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        self.case.data(out).manifest
    }

    fn offline(&self, args: &[&str]) -> Ran {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_potable"));
        command.current_dir(self.case.path("")).arg("--no-progress").args(args);
        command.stdin(std::process::Stdio::null());
        self.stub.command(&mut command, &self.case.path("home"));
        ran(command.env("HF_HUB_OFFLINE", "1"))
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.case.path(name)).unwrap()
    }

    fn commit(&self) -> String {
        self.stub.dataset("openai/gsm8k").commit()
    }
}

/// Rows of GSM8K from `first` on.
fn rows(first: usize, count: usize) -> RecordBatch {
    let (mut questions, mut answers, mut noise) = (Vec::new(), Vec::new(), Vec::new());
    for n in first..first + count {
        let (user, assistant) = question(n);
        questions.push(user);
        answers.push(format!("{assistant}\n#### {n}"));
        noise.push(sha256(&n.to_le_bytes()).repeat(64));
    }
    let column = |texts: Vec<String>| Arc::new(StringArray::from(texts)) as ArrayRef;
    let columns = [("question", column(questions)), ("unwanted", column(noise)), ("answer", column(answers))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn gsm8k() -> Vec<(&'static str, Vec<u8>)> {
    let table = |first, count| parquet_bytes(&rows(first, count), Compression::UNCOMPRESSED, 8);
    vec![
        (TRAIN[0], table(0, 40)),
        (TRAIN[1], table(40, 40)),
        ("main/test-00000-of-00001.parquet", table(77, 6)),
    ]
}

fn refused(ran: &Ran, words: &[&str]) {
    ran.is_refusal(words);
}

#[test]
fn a_corpus_of_the_hub_is_pinned_checked_and_gives_the_bytes_of_its_local_copy() {
    let bench = Bench::new();
    let manifest = bench.manifest("out", &[]);
    let commit = bench.commit();
    let input = &manifest["inputs"][0];
    assert_eq!((&input["revision"], &input["local"]), (&Value::from(commit.clone()), &Value::from(false)));
    assert_eq!(input["licence"], "mit");
    for (file, (path, bytes)) in input["files"].as_array().unwrap().iter().zip(gsm8k()) {
        assert!(path.ends_with(file["name"].as_str().unwrap()));
        assert_eq!(file["sha256"], format!("sha256:{}", sha256(&bytes)));
        assert_eq!((&file["verified"], &file["rows"]), (&Value::from("whole"), &Value::from(40)));
    }
    let benchmark = &manifest["decontamination"]["benchmarks"][0];
    assert_eq!(
        (&benchmark["name"], &benchmark["revision"]),
        (&Value::from("gsm8k"), &Value::from(commit.clone()))
    );
    assert_eq!(benchmark["rows_dropped"], 3, "rows 77 to 79 are items of the benchmark");
    let lock = bench.text("recipe.lock");
    assert_eq!(lock.matches(&format!("commit = \"{commit}\"")).count(), 2, "source and benchmark:\n{lock}");
    assert!(bench.text("out/recipe.lock").contains(&commit));

    // The same files as a local copy: the same shards.
    for (path, bytes) in gsm8k() {
        put(&bench.case.path("copies/openai/gsm8k").join(path), &bytes);
    }
    bench.case.recipe(
        "[[source]]\ncorpus = \"openai/gsm8k\"\ncopies = \"copies\"\n[decontaminate]\nbenchmarks = [\"gsm8k\"]\ncopies = \"copies\"\n",
    );
    bench.manifest("local", &[]);
    assert_eq!(bench.case.data("out").bytes, bench.case.data("local").bytes);
}

#[test]
fn every_transfer_has_a_line_in_the_download_log() {
    let bench = Bench::new();
    bench.manifest("out", &[]);
    let log = bench.text("out/downloads.jsonl");
    let whole: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (path, bytes) in gsm8k() {
        let line = whole.iter().find(|line| line["path"] == path && line["sha256"].is_string()).unwrap();
        assert_eq!(
            (&line["sha256"], &line["commit"]),
            (&Value::from(sha256(&bytes)), &Value::from(bench.commit()))
        );
        assert!(!line["url"].as_str().unwrap().contains('?'), "no signature: {line}");
    }
}

#[test]
fn what_is_pinned_and_cached_is_not_asked_for_again() {
    let bench = Bench::new();
    let first = bench.manifest("out", &[]);
    bench.stub.forget_requests();
    let second = bench.manifest("again", &["--locked"]);
    assert_eq!(first["manifest_digest"], second["manifest_digest"]);
    assert_eq!(bench.stub.requests().len(), 0, "{:?}", bench.stub.requests());
    let offline = bench.offline(&["prep", "recipe.toml", "--out", "offline", "--locked"]);
    assert_eq!(offline.code, 0, "{}", offline.stderr);
}

#[test]
fn a_stream_reads_only_wanted_columns_keeps_no_copy_and_gives_the_same_shards() {
    let bench = Bench::new();
    let kept = bench.manifest("kept", &[]);
    let fresh = Bench::new();
    let mut digests = Vec::new();
    for threads in ["1", "3"] {
        fresh.stub.forget_requests();
        let streamed = fresh.manifest(&format!("out{threads}"), &["--stream", "--threads", threads]);
        let input = &streamed["inputs"][0];
        for file in input["files"].as_array().unwrap() {
            assert_eq!(file["verified"], "ranges");
            assert!(file["ranges_digest"].is_string());
        }
        digests.push(streamed["manifest_digest"].clone());
        assert_ne!(streamed["manifest_digest"], kept["manifest_digest"], "the evidence is another");
        let data = fresh.case.data(&format!("out{threads}"));
        assert_eq!(bench.case.data("kept").bytes, data.bytes);
        let sent: u64 = fresh.stub.requests_of(Host::Store, "").iter().map(|request| request.sent).sum();
        let all: usize = gsm8k().iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(
            sent < all as u64 * 3 / 4,
            "{sent} of {all} bytes: the column that nothing wants stays there"
        );
    }
    assert_eq!(digests[0], digests[1]);
    let cached = files_below(&fresh.case.path("home"));
    let train = |path: &&std::path::PathBuf| path.to_string_lossy().contains("train-");
    assert_eq!(cached.iter().filter(train).count(), 0, "{cached:?}");
}

#[test]
fn require_verified_refuses_ranges() {
    let bench = Bench::new();
    let ran = bench.prep("out", &["--stream", "--require-verified"]);
    refused(&ran, &["gsm8k", "only ranges", "--require-verified"]);
    bench.manifest("out", &["--require-verified"]);
}

#[test]
fn a_streamed_text_file_counts_once_its_hash_is_right() {
    let bench = Bench::new();
    bench.stub.dataset("me/chat").lfs("data/chat.jsonl", chats(60));
    bench.case.recipe("[[source]]\nrepo = \"me/chat\"\npath = \"data/*.jsonl\"\n");
    let lock = bench.run(&["lock", "recipe.toml"]);
    assert_eq!(lock.code, 0, "{}", lock.stderr);
    bench.stub.fault(Host::Store, "", Fault::WrongByte, 100);
    let bad = bench.prep("out", &["--stream", "--chunk-bytes", "500"]);
    assert_eq!(bad.code, 2, "{}", bad.stderr);
    assert!(!bench.case.path("out/manifest.json").exists());
    bench.stub.heal();
    let good = bench.manifest("out", &["--stream", "--chunk-bytes", "500"]);
    assert_eq!(good["inputs"][0]["files"][0]["verified"], "whole");
    let kept = bench.manifest("kept", &[]);
    assert_eq!(good["manifest_digest"], kept["manifest_digest"]);
}

#[test]
fn a_trial_of_a_streamed_text_file_hashes_all_of_it() {
    let bench = Bench::new();
    bench.stub.dataset("me/chat").lfs("data/chat.jsonl", chats(500));
    bench.case.recipe("[[source]]\nrepo = \"me/chat\"\npath = \"data/*.jsonl\"\n");
    let manifest = bench.manifest("out", &["--stream", "--limit", "5"]);
    assert_eq!(manifest["inputs"][0]["files"][0]["verified"], "whole");
    assert_eq!(manifest["rows"]["source-0"]["read"], 5);
}

#[test]
fn a_stream_that_breaks_is_read_again_from_the_start_of_its_unit() {
    let bench = Bench::new();
    let whole = bench.manifest("whole", &["--stream"]);
    bench.stub.fault(Host::Store, "", Fault::Answer(404, Vec::new(), String::new()), 1000);
    let broken = bench.prep("out", &["--stream", "--unit-bytes", "1"]);
    assert_eq!(broken.code, 2, "{}", broken.stderr);
    bench.stub.heal();
    let again = bench.manifest("out", &["--stream", "--unit-bytes", "1"]);
    assert_eq!(whole["manifest_digest"], again["manifest_digest"]);
}

#[test]
fn locked_needs_a_lock_that_pins_everything() {
    let bench = Bench::new();
    let ran = bench.prep("out", &["--locked"]);
    refused(&ran, &["gsm8k", "does not pin", "potable lock"]);
    assert!(!bench.case.path("recipe.lock").exists());
    assert_eq!(bench.run(&["lock", "recipe.toml"]).code, 0);
    bench.manifest("out", &["--locked"]);
    // Another pattern is not pinned.
    bench.case.recipe(
        "[[source]]\ncorpus = \"openai/gsm8k\"\nconfig = \"socratic\"\n[decontaminate]\nbenchmarks = [\"gsm8k\"]\n",
    );
    refused(&bench.prep("other", &["--locked"]), &["does not pin"]);
}

#[test]
fn a_revision_that_moved_since_the_lock_changes_nothing_until_the_lock_is_updated() {
    let bench = Bench::new();
    let first = bench.manifest("out", &[]);
    let old = bench.commit();
    bench
        .stub
        .dataset("openai/gsm8k")
        .lfs(TRAIN[0], parquet_bytes(&rows(200, 40), Compression::UNCOMPRESSED, 8));
    let new = bench.commit();
    assert_ne!(old, new);
    let second = bench.manifest("second", &[]);
    assert_eq!(first["manifest_digest"], second["manifest_digest"]);
    let unknown = bench.run(&["lock", "recipe.toml", "--update", "gms8k"]);
    refused(&unknown, &["gms8k", "openai--gsm8k"]);
    let update = bench.run(&["lock", "recipe.toml", "--update", "openai--gsm8k"]);
    assert_eq!(update.code, 0, "{}", update.stderr);
    for word in ["moved", old.split_at(12).0, new.split_at(12).0] {
        assert!(update.stdout.contains(word), "{}", update.stdout);
    }
    let third = bench.manifest("third", &["--locked"]);
    assert_eq!(third["inputs"][0]["revision"], new);
    assert_ne!(third["manifest_digest"], first["manifest_digest"]);
    let diff = bench.run(&["manifest", "diff", "out", "third"]);
    assert!(diff.code == 1 && diff.stdout.contains(&new), "{}", diff.stdout);
}

#[test]
fn a_lock_that_was_edited_is_never_believed() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["lock", "recipe.toml"]).code, 0);
    let lock = bench.text("recipe.lock");
    let (_, bytes) = &gsm8k()[0];
    let other = lock.replace(&sha256(bytes), &sha256(b"something else"));
    assert_ne!(lock, other);
    bench.case.put("recipe.lock", other);
    let ran = bench.prep("out", &[]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains(TRAIN[0]) && ran.stderr.contains("sha256"), "{}", ran.stderr);
    for (from, to) in
        [("version = 1", "version = 9"), ("commit = \"", "commit = \"x"), ("path = \"", "path = \"../")]
    {
        bench.case.put("recipe.lock", lock.replace(from, to));
        refused(&bench.prep("out", &[]), &["recipe.lock"]);
    }
}

#[test]
fn a_gated_source_stops_the_run_before_anything_is_fetched() {
    let bench = Bench::new();
    bench.stub.dataset("me/secret").lfs("data/train-0.jsonl", chats_from(100, 5)).gated(&[]);
    bench.case.recipe(
        "[[source]]\ncorpus = \"openai/gsm8k\"\n[[source]]\nname = \"secret\"\nrepo = \"me/secret\"\npath = \"data/*.jsonl\"\n",
    );
    let ran = bench.prep("out", &[]);
    refused(&ran, &["me/secret", "gated", "/datasets/me/secret"]);
    assert_eq!(bench.stub.stored_bytes_sent(), 0);
    assert!(!bench.case.path("recipe.lock").exists(), "a lock that nobody may use is not written");
    let plan = bench.prep("out", &["--plan"]);
    refused(&plan, &["gated"]);
}

#[test]
fn missing_repositories_revisions_and_files_are_named_with_the_source() {
    let bench = Bench::new();
    let cases = [
        ("repo = \"me/absent\"\npath = \"x.jsonl\"\n", "me/absent"),
        ("corpus = \"openai/gsm8k\"\nrevision = \"v9\"\n", "v9"),
        ("repo = \"openai/gsm8k\"\npath = \"absent/*.parquet\"\n", "absent/*.parquet"),
    ];
    for (source, word) in cases {
        bench.case.recipe(&format!("[[source]]\nname = \"mine\"\n{source}"));
        refused(&bench.prep("out", &[]), &["mine", word]);
    }
}

#[test]
fn evaluation_splits_of_a_repository_without_a_card_are_told_by_their_names() {
    let bench = Bench::new();
    bench.stub.dataset("me/chat").lfs("data/test-0.jsonl", chats(5)).lfs("data/train-0.jsonl", chats(5));
    bench.case.recipe("[[source]]\nrepo = \"me/chat\"\npath = \"data/*.jsonl\"\n");
    refused(&bench.prep("out", &[]), &["data/test-0.jsonl", "evaluation split", "allow_eval_split"]);
    bench
        .case
        .recipe("[[source]]\nrepo = \"me/chat\"\npath = \"data/train-*.jsonl\"\nsplit = \"validation\"\n");
    refused(&bench.prep("out", &[]), &["`validation`", "allow_eval_split"]);
    bench.case.recipe("[[source]]\nrepo = \"me/chat\"\npath = \"data/*.jsonl\"\nallow_eval_split = true\n");
    assert_eq!(bench.manifest("out", &[])["inputs"][0]["eval_split"], true);
}

#[test]
fn a_tokenizer_of_a_model_is_pinned_and_named_with_its_commit() {
    let bench = Bench::new();
    let tokenizer = bench.text("tokenizer.json");
    let model = bench.stub.model("me/model");
    model.lfs("tokenizer.json", tokenizer);
    let commit = model.commit();
    bench.case.recipe("[[source]]\ncorpus = \"openai/gsm8k\"\n[tokenise]\ntokenizer = \"me/model\"\n");
    let manifest = bench.manifest("out", &[]);
    assert_eq!(manifest["tokeniser"]["name"], format!("me/model@{commit}"));
    assert!(bench.text("recipe.lock").contains("kind = \"model\""));
    bench.case.recipe(
        "[[source]]\ncorpus = \"openai/gsm8k\"\n[tokenise]\ntokenizer = \"tokenizer.json\"\nrevision = \"v1\"\n",
    );
    refused(&bench.prep("out", &[]), &["[tokenise]", "revision"]);
}

/// A template of our own; `mark` makes versions of it differ.
fn template(mark: &str) -> String {
    // The corpus has reasoning; a template that does not print it would lose every row.
    let text = "(m.reasoning_content or '') + m.content";
    let turn = format!("'<|im_start|>' + m.role + '{mark} ' + {text} + eos_token + '\\n'");
    let prompt = format!("'<|im_start|>assistant{mark} '");
    format!(
        "{{% for m in messages %}}{{{{ {turn} }}}}{{% endfor %}}{{% if add_generation_prompt %}}{{{{ {prompt} }}}}{{% endif %}}"
    )
}

const BY_TEMPLATE: &str =
    "[[source]]\ncorpus = \"openai/gsm8k\"\n[normalise]\nformat = \"template\"\ntemplate = \"me/model\"\n";

#[test]
fn a_chat_template_of_a_model_is_pinned_with_its_special_tokens_and_named_with_its_commit() {
    let bench = Bench::new();
    let model = bench.stub.model("me/model");
    model.lfs("tokenizer_config.json", r#"{"eos_token": "<|im_end|>", "chat_template": "an older one"}"#);
    model.lfs("chat_template.jinja", template(":"));
    model.lfs("model.safetensors", "weights that nothing asks for");
    let commit = model.commit();
    bench.case.recipe(BY_TEMPLATE);
    let manifest = bench.manifest("out", &[]);
    assert_eq!(manifest["tokeniser"]["template"], format!("chat-template of me/model@{commit}"));
    let texts = bench.case.data("out").texts();
    let (user, _) = question(0);
    let first = format!("<|im_start|>user: {user}<|im_end|>\n<|im_start|>assistant: ");
    assert!(texts.iter().any(|text| text.starts_with(&first)), "{texts:?}");
    let lock = bench.text("recipe.lock");
    for words in ["kind = \"model\"", "chat_template.jinja", "tokenizer_config.json"] {
        assert!(lock.contains(words), "`{words}` is not in\n{lock}");
    }
    assert!(!lock.contains("safetensors") && !bench.text("out/downloads.jsonl").contains("safetensors"));

    // The model moves on: the lock keeps its commit, without the network as well.
    model.lfs("chat_template.jinja", template("!"));
    let again = bench.manifest("again", &["--locked"]);
    assert_eq!(again["manifest_digest"], manifest["manifest_digest"]);
    let offline = bench.offline(&["prep", "recipe.toml", "--no-progress", "--out", "offline", "--locked"]);
    assert_eq!(offline.code, 0, "{}", offline.stderr);
    assert_eq!(bench.case.data("offline").digest(), bench.case.data("out").digest());
    let update = bench.run(&["lock", "recipe.toml", "--update", "me/model"]);
    assert_eq!(update.code, 0, "{}", update.stderr);
    let moved = bench.manifest("moved", &[]);
    assert_ne!(moved["tokeniser"]["template_digest"], manifest["tokeniser"]["template_digest"]);
    assert!(bench.case.data("moved").texts()[0].contains("user! "));

    // A revision of the recipe's own choice.
    bench.case.recipe(&format!("{BY_TEMPLATE}template_revision = \"{commit}\"\n"));
    assert_eq!(bench.manifest("pinned", &[])["tokeniser"], manifest["tokeniser"]);
}

#[test]
fn a_chat_template_of_a_model_may_stand_in_its_json_files_and_must_be_there() {
    let bench = Bench::new();
    let model = bench.stub.model("me/model");
    model.lfs("config.json", "{}");
    bench.case.recipe(BY_TEMPLATE);
    refused(&bench.prep("out", &[]), &["chat template `me/model`", "chat_template.jinja"]);
    let config =
        |text: &str| serde_json::json!({"eos_token": {"content": "<|im_end|>"}, "chat_template": text});
    model.lfs("tokenizer_config.json", serde_json::json!({"eos_token": "<|im_end|>"}).to_string());
    refused(&bench.prep("out", &[]), &["tokenizer_config.json", "there is no `chat_template` in it"]);
    model.lfs("tokenizer_config.json", config("{{ render(messages) }}").to_string());
    let update = ["lock", "recipe.toml", "--update"];
    assert_eq!(bench.run(&update).code, 0);
    refused(&bench.prep("out", &["--plan"]), &["line 1", "there is no function `render`"]);
    model.lfs("tokenizer_config.json", config(&template("?")).to_string());
    assert_eq!(bench.run(&update).code, 0);
    bench.manifest("out", &[]);
    assert!(bench.case.data("out").texts()[0].starts_with("<|im_start|>user? "));
    bench.case.recipe(&format!("{BY_TEMPLATE}template_revision = \"v9\"\n"));
    refused(&bench.prep("other", &[]), &["chat template `me/model`", "v9"]);
    bench.case.put("t.jinja", template(":"));
    bench.case.recipe(&BY_TEMPLATE.replace("me/model\"", "t.jinja\"\ntemplate_revision = \"v9\""));
    refused(
        &bench.prep("other", &[]),
        &["[normalise]", "`template_revision` is for a chat template of the Hub"],
    );
}

#[test]
fn a_blocklist_is_built_from_the_hub_and_extended_at_the_same_commit() {
    let bench = Bench::new();
    let build = bench.run(&["blocklist", "build", "gsm8k", "-o", "b.blk"]);
    assert_eq!(build.code, 0, "{}", build.stderr);
    let old = bench.commit();
    let test = parquet_bytes(&rows(300, 6), Compression::UNCOMPRESSED, 8);
    bench.stub.dataset("openai/gsm8k").lfs("main/test-00000-of-00001.parquet", test);
    bench.case.put(
        "more.jsonl",
        "{\"question\": \"how many of the many apples are there in the very big basket of aunt Mary?\"}\n",
    );
    let extend = bench.run(&["blocklist", "extend", "b.blk", "more.jsonl"]);
    assert_eq!(extend.code, 0, "{}", extend.stderr);
    assert!(bench.text("b.blk.sources").contains(&old));
}

#[test]
fn phases_share_pins_and_a_phase_that_failed_is_made_up_for() {
    let bench = Bench::new();
    let source = "[[phase.source]]\ncorpus = \"openai/gsm8k\"\n";
    bench.case.recipe(&format!("[[phase]]\nname = \"a\"\n{source}max_rows = 20\n[[phase]]\nname = \"b\"\nexclude_phase = \"a\"\n{source}"));
    bench.stub.fault(Host::Store, "", Fault::Answer(404, Vec::new(), String::new()), 1000);
    assert_eq!(bench.prep("out", &[]).code, 2);
    bench.stub.heal();
    let ran = bench.prep("out", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(bench.text("recipe.lock").matches("[[pin]]").count(), 1, "one pin for both phases");
    let rows: u64 = ["a", "b"]
        .iter()
        .map(|phase| bench.case.data(&format!("out/{phase}")).number("/rows/openai--gsm8k/kept"))
        .sum();
    assert_eq!(rows, 80);
    assert!(bench.text("out/downloads.jsonl").lines().count() >= 2);
}

/// Map works on the first file while the second one is still on its way.
#[test]
fn a_unit_starts_as_soon_as_its_file_is_there() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["lock", "recipe.toml"]).code, 0);
    let (_, second) = &gsm8k()[1];
    // Enough for the footer, too little for the file.
    bench.stub.fault(Host::Store, &sha256(second), Fault::Stall(second.len() as u64 - 1000), 100);
    let mut command = bench.case.command("out", &["--unit-bytes", "1"]);
    bench.stub.command(&mut command, &bench.case.path("home"));
    let mut child =
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let done = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "done");
    let units = || files_below(&bench.case.path("out/.work")).iter().filter(|path| done(path)).count();
    while units() < 5 {
        assert!(child.try_wait().unwrap().is_none(), "ended before the second file was there");
        std::thread::yield_now();
    }
    bench.stub.go_on();
    assert!(child.wait().unwrap().success());
    assert_eq!(bench.case.data("out").number("/rows/openai--gsm8k/read"), 80);
}

#[test]
fn a_server_that_ignores_ranges_gives_whole_files_and_no_stream() {
    let bench = Bench::new();
    let usual = bench.manifest("usual", &[]);
    let bench = Bench::new();
    bench.stub.fault(Host::Store, "", Fault::IgnoreRange, 10_000);
    let ran = bench.prep("streamed", &["--stream"]);
    assert!(ran.code == 2 && ran.stderr.contains("range"), "{}", ran.stderr);
    assert_eq!(usual["manifest_digest"], bench.manifest("out", &[])["manifest_digest"]);
}

/// The plan reads footers by ranges, before anything checks the whole file.
#[test]
fn a_footer_that_is_not_that_of_the_file_is_found_when_the_file_is_there() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["lock", "recipe.toml"]).code, 0);
    let (_, bytes) = &gsm8k()[0];
    // Who wrote the file stands in the footer, and no reader looks at it.
    let at = bytes.windows(10).rposition(|window| window == b"parquet-rs").unwrap();
    bench.stub.fault(Host::Store, &sha256(bytes), Fault::WrongByteAt(at as u64), 1);
    let ran = bench.prep("out", &[]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("not those that were read before"), "{}", ran.stderr);
    assert!(!bench.case.path("out/manifest.json").exists());
    bench.manifest("out", &[]);
}

#[test]
fn a_lock_that_does_not_fit_the_recipe_is_refused() {
    let bench = Bench::new();
    bench.stub.dataset("me/chat").lfs("data/test-0.jsonl", chats(5)).lfs("data/train-0.jsonl", chats(6));
    let source = "[[source]]\nrepo = \"me/chat\"\npath = \"data/*.jsonl\"\n";
    bench.case.recipe(&format!("{source}allow_eval_split = true\n"));
    assert_eq!(bench.run(&["lock", "recipe.toml"]).code, 0);
    // What the flag allowed is not allowed without it, pinned or not.
    bench.case.recipe(source);
    refused(&bench.prep("out", &["--locked"]), &["data/test-0.jsonl", "evaluation split"]);

    let narrow = source.replace("data/*", "data/train-*");
    bench.case.recipe(&narrow);
    assert_eq!(bench.run(&["lock", "recipe.toml"]).code, 0);
    let lock = bench.text("recipe.lock");
    let commit = bench.stub.dataset("me/chat").commit();
    let other = "1".repeat(40);
    for (from, to, word) in [
        ("path = \"data/train-0.jsonl\"", "path = \"data/other-0.jsonl\"", "matches none of its patterns"),
        ("revision = \"main\"", &format!("revision = \"{other}\""), "does not pin"),
    ] {
        bench.case.put("recipe.lock", lock.replace(from, to));
        refused(&bench.prep("out", &["--locked"]), &["me/chat", word]);
    }
    bench.case.recipe(&format!("{narrow}revision = \"{other}\"\n"));
    bench.case.put("recipe.lock", lock.replace("\"main\"", &format!("\"{other}\"")));
    refused(&bench.prep("out", &["--locked"]), &["the revision is the commit", &commit]);
    bench.case.recipe(&narrow);
    bench.case.put(
        "recipe.lock",
        format!(
            "{lock}\n{}",
            lock.split_once("[[pin]]").map_or("", |(_, pin)| pin).replacen("\nkind", "\n[[pin]]\nkind", 1)
        ),
    );
    refused(&bench.prep("out", &["--locked"]), &["recipe.lock", "twice"]);
}

#[test]
fn locked_never_writes_the_lock() {
    let bench = Bench::new();
    bench.manifest("out", &[]);
    let both = bench.text("recipe.lock");
    bench.case.recipe("[[source]]\ncorpus = \"openai/gsm8k\"\n");
    bench.manifest("one", &["--locked"]);
    assert_eq!(bench.text("recipe.lock"), both);
    bench.manifest("two", &[]);
    assert_ne!(bench.text("recipe.lock"), both, "what nothing takes any more is not kept");
}

#[test]
fn rows_of_other_splits_stay_out_whatever_the_recipe_filters() {
    let bench = Bench::new();
    let column = |texts: [&str; 3]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
    let columns = [
        ("id", column(["a", "b", "c"])),
        ("input", column(["what is one and one", "what is two and two", "what is three and three"])),
        ("output", column(["<think>so</think>two", "<think>so</think>four", "<think>so</think>six"])),
        ("dataset", column(["taco", "taco", "apps"])),
        ("split", column(["train", "test", "train"])),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let table = parquet_bytes(&batch, Compression::UNCOMPRESSED, 8);
    bench.stub.dataset("nvidia/OpenCodeReasoning").lfs("split_0/train-00000-of-00001.parquet", table);
    bench.case.recipe(
        "[[source]]\nname = \"ocr\"\ncorpus = \"nvidia/OpenCodeReasoning\"\nwhere = \"dataset = 'taco'\"\n",
    );
    let manifest = bench.manifest("out", &[]);
    assert_eq!(manifest["rows"]["ocr"]["kept"], 1);
}

#[test]
fn offline_an_incomplete_cache_is_an_error_before_any_work() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["lock", "recipe.toml"]).code, 0);
    let ran = bench.offline(&["prep", "recipe.toml", "--out", "out", "--locked"]);
    refused(&ran, &["HF_HUB_OFFLINE"]);
    assert!(!bench.case.path("out/.work").exists());
}

#[test]
fn a_recipe_without_the_hub_has_no_lock_and_asks_nothing() {
    let bench = Bench::new();
    bench.case.put("chat.jsonl", chats(5));
    bench.case.recipe("[[source]]\npath = \"chat.jsonl\"\n");
    bench.manifest("out", &["--locked"]);
    assert!(!bench.case.path("recipe.lock").exists());
    assert!(!Path::new(&bench.case.path("out/downloads.jsonl")).exists());
    assert_eq!(bench.stub.requests().len(), 0);
    let lock = bench.run(&["lock", "recipe.toml"]);
    assert!(lock.code == 0 && lock.stderr.contains("nothing to pin"), "{}", lock.stderr);
}

#[test]
fn one_place_for_a_source_and_not_two() {
    let bench = Bench::new();
    let cases = [
        ("", "none of `path`, `corpus` and `repo`"),
        ("corpus = \"openai/gsm8k\"\nrepo = \"openai/gsm8k\"\npath = \"x\"\n", "exclude each other"),
        ("repo = \"openai/gsm8k\"\n", "`repo` needs `path`"),
        ("repo = \"gsm8k\"\npath = \"*\"\n", "no id of a dataset"),
        ("repo = \"me/[x\"\npath = \"*\"\n", "no id of a dataset"),
    ];
    for (source, word) in cases {
        bench.case.recipe(&format!("[[source]]\nname = \"mine\"\n{source}"));
        refused(&bench.prep("out", &[]), &["mine", word]);
    }
}

#[test]
fn the_steps_take_from_the_hub_what_prep_takes() {
    for stream in [&[][..], &["--stream"]] {
        let bench = Bench::new();
        let manifest = bench.manifest("out", stream);
        let plan = ["plan", "recipe.toml", "--work", "work", "--locked", "--unit-bytes", "500"];
        let planned = bench.run(&[&plan[..], stream].concat());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        for step in ["map", "select", "reduce", "seal"] {
            let ran = bench.run(&[step, "--work", "work"]);
            assert_eq!(ran.code, 0, "{step}: {}", ran.stderr);
        }
        let steps = bench.case.data("work/out").manifest;
        assert_eq!(steps["manifest_digest"], manifest["manifest_digest"], "{stream:?}");
    }
}
