//! `audit`: what stands in the shards, whatever was checked when they were made.

use potable::recipe::file::ShardFormat;
use serde_json::{Value, json};

use crate::harness::{Case, Ran, chat, chats, lines};

const ITEM: &str = "A shepherd has 14 ewes and each ewe has 3 lambs, of which 5 are sold on the market in May. How many lambs are left?";
const SHORT: &str = "Name the capital of Mongolia";

/// A benchmark of one long and one short item, built to `bench.blk`, and clean rows.
fn case(rows: impl IntoIterator<Item = Value>) -> Case {
    let case = Case::new();
    case.put("bench.jsonl", lines([json!({"prompt": ITEM}), json!({"prompt": SHORT})]));
    case.put("bench.toml", "name = \"sheep\"\nfiles = [\"bench.jsonl\"]\nprompt = \"prompt\"\n");
    let ran = case.potable(&["blocklist", "build", "bench.toml", "-o", "bench.blk"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let clean = chats(40);
    let clean = clean.lines().map(|line| serde_json::from_str(line).unwrap());
    case.put("a.jsonl", lines(clean.chain(rows).map(with_text)));
    case
}

/// A chat row that is a document too, for the format without a mask.
fn with_text(mut row: Value) -> Value {
    let text = |at: usize| row["messages"][at]["content"].as_str().unwrap().to_owned();
    let whole = if text(0) == SHORT { text(0) } else { format!("{}\n{}", text(0), text(1)) };
    row["text"] = json!(whole);
    row
}

fn recipe(format: ShardFormat, more: &str) -> String {
    let (mapping, text) = match format.has_mask() {
        true => ("", ""),
        false => ("mapping = { shape = \"text\", text = \"text\" }\n", "[normalise]\nformat = \"text\"\n"),
    };
    format!(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n{mapping}[output]\nformat = \"{}\"\npartition_bytes = 3000\n{text}{more}",
        format.name()
    )
}

/// A run in any format, and its manifest.
fn prepared(case: &Case, recipe: &str) -> Value {
    case.recipe(recipe);
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}\n{recipe}", ran.stderr);
    serde_json::from_slice(&std::fs::read(case.path("out/manifest.json")).unwrap()).unwrap()
}

fn audit(case: &Case, args: &[&str]) -> Ran {
    case.potable(&[&["audit", "out", "--blocklist", "bench.blk"], args].concat())
}

fn hits(ran: &Ran) -> Vec<Value> {
    let lines = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.filter(|line: &Value| line["action"] == "drop").collect()
}

#[test]
fn a_row_that_was_not_checked_is_found_on_every_format() {
    for format in ShardFormat::ALL {
        let reasoned = format!("<think>\nI was asked: {ITEM}\n</think>\n\n37");
        let rows = [chat("Tell me a riddle.", ITEM), chat(SHORT, "Ulaanbaatar"), chat("Riddle?", &reasoned)];
        let case = case(rows);
        prepared(&case, &recipe(format, ""));
        let ran = audit(&case, &["--format", "jsonl"]);
        assert_eq!(ran.code, 1, "{}: {}{}", format.name(), ran.stdout, ran.stderr);
        let mut ids: Vec<String> =
            hits(&ran).iter().map(|hit| hit["id"].as_str().unwrap().to_owned()).collect();
        ids.dedup();
        ids.sort();
        assert_eq!(ids, ["a/a.jsonl:40", "a/a.jsonl:41", "a/a.jsonl:42"], "{}", format.name());
        let summary: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
        assert_eq!((&summary["audited"], &summary["of"]), (&json!(43), &json!(43)), "{}", format.name());
    }
}

#[test]
fn a_checked_data_set_is_clean_on_every_format() {
    for format in ShardFormat::ALL {
        let case = case([chat("Tell me a riddle.", ITEM), chat(SHORT, "Ulaanbaatar")]);
        let checks = "[decontaminate]\nbenchmarks = [\"bench.toml\"]\n";
        let data = prepared(&case, &recipe(format, checks));
        assert_eq!(data["decontamination"]["benchmarks"][0]["rows_dropped"], 2);
        let ran = audit(&case, &[]);
        assert_eq!(ran.code, 0, "{}: {}{}", format.name(), ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("40 of 40 samples"), "{}", ran.stdout);
        assert!(ran.stdout.ends_with("nothing found\n"), "{}", ran.stdout);
    }
}

#[test]
fn fragments_are_put_together_on_every_format() {
    // Packs of 64 bytes: no piece of the item is as long as an n-gram of it.
    for format in ShardFormat::ALL {
        let case = case([chat("Tell me a riddle.", ITEM)]);
        prepared(&case, &recipe(format, "[pack]\nlength = 64\noverlong = \"split\"\n"));
        let ran = audit(&case, &["--format", "jsonl"]);
        assert_eq!(ran.code, 1, "{}: {}{}", format.name(), ran.stdout, ran.stderr);
        let hits = hits(&ran);
        assert_eq!(hits.len(), 1, "{}: {}", format.name(), ran.stdout);
        assert_eq!(hits[0]["id"], "a/a.jsonl:40");
    }
}

#[test]
fn a_row_planted_in_a_shard_is_found_and_the_shard_is_told_apart() {
    use potable::shard::read;
    use potable::shard::{ShardOptions, ShardSink};
    for format in ShardFormat::ALL {
        let case = case([]);
        let checks = "[decontaminate]\nbenchmarks = [\"bench.toml\"]\n";
        let data = prepared(&case, &recipe(format, checks));
        let shard = data["shards"][0]["path"].as_str().unwrap().to_owned();
        let out = case.path("out");
        let mut packs: Vec<_> = read::open(&out, format, &shard).unwrap().map(|pack| pack.unwrap()).collect();
        let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
        let ids = match format.has_mask() {
            true => [vec![257], bytes(&format!("user\n{ITEM}")), vec![258]].concat(),
            false => [bytes(ITEM), vec![256]].concat(),
        };
        packs[0].samples[0].ids = ids;
        packs[0].samples[0].trained = vec![(1, 3)];
        let options = ShardOptions { format, position_ids: false, vocabulary: 261 };
        let mut sink = ShardSink::create(&out, &shard, &options).unwrap();
        packs.into_iter().for_each(|pack| sink.push(pack).unwrap());
        sink.seal().unwrap();
        let ran = audit(&case, &["--format", "jsonl"]);
        assert_eq!(ran.code, 1, "{}: {}{}", format.name(), ran.stdout, ran.stderr);
        assert_eq!(hits(&ran).len(), 1, "{}: {}", format.name(), ran.stdout);
        assert!(ran.stderr.contains("holds other samples than the manifest says"), "{}", ran.stderr);
        assert_eq!(case.potable(&["manifest", "verify", "out"]).code, 1);
    }
}

#[test]
fn documents_and_phases_are_audited() {
    let case = case([]);
    case.put(
        "t.jsonl",
        lines([json!({"text": format!("Once. {ITEM} The end.")}), json!({"text": "Short."})]),
    );
    case.recipe(
        "[[phase]]\nname = \"text\"\n[phase.normalise]\nformat = \"text\"\n[[phase.source]]\nname = \"t\"\npath = \"t.jsonl\"\n\
         [[phase]]\nname = \"chat\"\n[[phase.source]]\nname = \"a\"\npath = \"a.jsonl\"\n",
    );
    assert_eq!(case.run("out", &[]).code, 0);
    let ran = audit(&case, &["--tokenizer", "tokenizer.json"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("audited out/text: 2 of 2 samples"), "{}", ran.stdout);
    assert!(ran.stdout.contains("1 samples hold a benchmark item"), "{}", ran.stdout);
    assert!(ran.stdout.contains("audited out/chat: 40 of 40 samples"), "{}", ran.stdout);
}

#[test]
fn a_second_blocklist_is_checked_too() {
    let case = case([chat(
        "What is the colour of the tall old door that leads to the harbour master's office?",
        "Blue",
    )]);
    case.put("later.jsonl", lines([json!({"prompt": "What is the colour of the tall old door that leads to the harbour master's office?"})]));
    assert_eq!(case.potable(&["blocklist", "build", "later.jsonl", "-o", "later.blk"]).code, 0);
    prepared(&case, &recipe(ShardFormat::Parquet, "[decontaminate]\nbenchmarks = [\"bench.toml\"]\n"));
    assert_eq!(audit(&case, &[]).code, 0);
    let ran = audit(&case, &["--blocklist", "later.blk", "--format", "jsonl"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(hits(&ran)[0]["blocklist"], "later.blk");
}

#[test]
fn a_tokenizer_that_is_not_the_one_of_the_data_is_refused() {
    let case = case([]);
    prepared(&case, &recipe(ShardFormat::Parquet, ""));
    std::fs::rename(case.path("out"), case.path("moved")).unwrap();
    let other = std::fs::read_to_string(case.path("tokenizer.json")).unwrap() + "\n";
    case.put("tokenizer.json", other);
    let args = ["audit", "moved", "--blocklist", "bench.blk"];
    case.potable(&args).is_refusal(&["was made with tokenizer `tokenizer.json`", "--tokenizer FILE"]);
    let args = [&args[..], &["--tokenizer", "tokenizer.json"]].concat();
    case.potable(&args)
        .is_refusal(&["tokenizer `tokenizer.json` has the digest", "the shards were made with"]);
}

#[test]
fn a_data_set_or_blocklist_that_cannot_be_read_is_refused() {
    let case = case([]);
    let ran = case.potable(&["audit", "nowhere", "--blocklist", "bench.blk"]);
    ran.is_refusal(&["nowhere: there is no such file or folder"]);
    prepared(&case, &recipe(ShardFormat::Parquet, ""));
    let ran = case.potable(&["audit", "out", "--blocklist", "a.jsonl"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let shard = crate::harness::files_below(&case.path("out/shards")).remove(0);
    crate::harness::put(&shard, b"PAR1");
    audit(&case, &[]).is_refusal(&["part-"]);
}

#[test]
fn a_sensitive_match_in_one_blocklist_hides_the_excerpts_of_another() {
    let open = "What is the colour of the tall old door that leads to the harbour master's office?";
    let case = case([chat(&format!("{ITEM} {open}"), "Blue"), chat(open, "Red")]);
    case.put("open.jsonl", lines([json!({"prompt": open})]));
    assert_eq!(case.potable(&["blocklist", "build", "open.jsonl", "-o", "open.blk"]).code, 0);
    case.put(
        "bench.toml",
        "name = \"sheep\"\nfiles = [\"bench.jsonl\"]\nprompt = \"prompt\"\nsensitive = true\n",
    );
    assert_eq!(case.potable(&["blocklist", "build", "bench.toml", "-o", "secret.blk"]).code, 0);
    prepared(&case, &recipe(ShardFormat::Parquet, ""));
    let both = ["--blocklist", "secret.blk", "--blocklist", "open.blk", "--format", "jsonl"];
    let ran = case.potable(&[&["audit", "out"], both.as_slice()].concat());
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("shepherd") && !ran.stdout.contains("ewes"), "{}", ran.stdout);
    let found = hits(&ran);
    let hidden = |blocklist: &str, hidden: bool| {
        let of = |hit: &&Value| hit["blocklist"] == blocklist && (hit["excerpt"] == "") == hidden;
        found.iter().filter(of).count()
    };
    // The sample with both items shows neither; the one with the open item alone shows it.
    assert_eq!((hidden("secret.blk", true), hidden("secret.blk", false)), (1, 0), "{}", ran.stdout);
    assert_eq!((hidden("open.blk", true), hidden("open.blk", false)), (1, 1), "{}", ran.stdout);
}
