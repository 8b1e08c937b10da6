use std::process::Command;

use serde_json::Value;

use crate::harness::{Case, Ran, chats, chats_from, files_below, put, ran};
use crate::s3_stub::{Fault, S3Stub};

const RECIPE: &str = "[[source]]\nname = \"a\"\npath = [PATHS]\n";

struct Objects {
    case: Case,
    stub: S3Stub,
}

impl Objects {
    /// Two files in the bucket, and the same ones in a folder.
    fn new() -> Objects {
        let (case, stub) = (Case::new(), S3Stub::new());
        for (name, rows) in [("x.jsonl", chats(30)), ("y.jsonl", chats_from(30, 30))] {
            stub.put(&format!("data/{name}"), rows.clone());
            case.put(&format!("data/{name}"), rows);
        }
        Objects { case, stub }
    }

    fn recipe(&self, paths: &str) {
        self.case.recipe(&RECIPE.replace("PATHS", paths));
    }

    fn prep(&self, out: &str) -> Ran {
        let mut command = self.case.command(out, &[]);
        self.settle(&mut command);
        ran(&mut command)
    }

    fn settle(&self, command: &mut Command) {
        self.stub.command(command);
        command.env("POTABLE_CACHE", self.case.path("cache"));
    }

    fn digest(&self, out: &str) -> Value {
        self.case.data(out).manifest["manifest_digest"].clone()
    }
}

#[test]
fn files_of_a_bucket_give_the_same_data_set_as_a_local_copy() {
    let objects = Objects::new();
    objects.case.recipe(&RECIPE.replace("PATHS", "\"data\""));
    objects.case.prep("local", &[]);
    for (n, paths) in [
        "\"s3://bucket/data/*.jsonl\"",
        "\"s3://bucket/data/\"",
        "\"gs://bucket/data/x.jsonl\", \"gs://bucket/data/y.jsonl\"",
    ]
    .into_iter()
    .enumerate()
    {
        objects.recipe(paths);
        let out = format!("out{n}");
        let ran = objects.prep(&out);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(objects.digest(&out), objects.digest("local"), "{paths}");
        assert!(objects.digest(&out).is_string());
    }
}

#[test]
fn an_object_is_fetched_once_and_one_that_changed_is_fetched_again() {
    let objects = Objects::new();
    objects.recipe("\"s3://bucket/data/*.jsonl\"");
    assert_eq!(objects.prep("out").code, 0);
    let first = objects.digest("out");
    let fetched = |name: &str| objects.stub.requests("GET", name).len();
    assert_eq!((fetched("x.jsonl"), fetched("y.jsonl")), (1, 1));
    objects.stub.put("data/y.jsonl", chats_from(60, 30));
    objects.prep("out").is_refusal(&["out: holds another data set", "pass `--fresh`"]);
    assert_eq!(objects.prep("new").code, 0);
    assert_eq!((fetched("x.jsonl"), fetched("y.jsonl")), (1, 2));
    assert_ne!(objects.digest("new"), first);
}

#[test]
fn a_copy_that_was_harmed_after_the_plan_is_fetched_again() {
    let objects = Objects::new();
    objects.recipe("\"s3://bucket/data/*.jsonl\"");
    assert_eq!(objects.prep("out").code, 0);
    let step = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_potable"));
        command.current_dir(objects.case.path("")).args(args).args(["--work", "work"]);
        objects.settle(&mut command);
        ran(&mut command)
    };
    assert_eq!(step(&["plan", "recipe.toml"]).code, 0);
    let copies = files_below(&objects.case.path("cache"));
    let copy = copies.iter().find(|path| path.ends_with("y.jsonl")).unwrap();
    let harmed = std::fs::read_to_string(copy).unwrap().replace("river", "rover");
    put(copy, harmed.as_bytes());
    for name in ["map", "select", "reduce", "seal"] {
        let ran = step(&[name]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
    }
    assert_eq!(objects.digest("work/out"), objects.digest("out"));
}

#[test]
fn faults_on_the_way_change_nothing() {
    let objects = Objects::new();
    objects.recipe("\"s3://bucket/data/*.jsonl\"");
    assert_eq!(objects.prep("good").code, 0);
    std::fs::remove_dir_all(objects.case.path("cache")).unwrap();
    objects.stub.fault("GET", "x.jsonl", Fault::Cut(500), 1);
    objects.stub.fault("GET", "y.jsonl", Fault::Answer(503, "SlowDown"), 1);
    objects.stub.fault("GET", "list-type", Fault::Answer(500, "InternalError"), 1);
    let ran = objects.prep("bad");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(objects.digest("bad"), objects.digest("good"));
}

#[test]
fn a_blocklist_may_lie_in_a_bucket() {
    let objects = Objects::new();
    let prompt = "a prompt of a benchmark that stands in no row of the corpus, whatever it may say
";
    objects.case.put("bench.txt", prompt);
    let built = objects.case.potable(&["blocklist", "build", "bench.txt", "-o", "b.blk"]);
    assert_eq!(built.code, 0, "{}", built.stderr);
    objects.stub.put("lists/b.blk", std::fs::read(objects.case.path("b.blk")).unwrap());
    let with = |blocklist: &str| {
        objects.case.recipe(&format!(
            "{}\n[decontaminate]\nblocklist = \"{blocklist}\"\n",
            RECIPE.replace("PATHS", "\"data\"")
        ));
    };
    with("b.blk");
    assert_eq!(objects.prep("local").code, 0);
    with("s3://bucket/lists/b.blk");
    let ran = objects.prep("out");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(objects.digest("out"), objects.digest("local"));
    with("s3://bucket/lists/absent.blk");
    objects.prep("absent").is_refusal(&["s3://bucket/lists/absent.blk: is not there"]);
}

#[test]
fn bad_input_a_pattern_that_matches_no_object() {
    let objects = Objects::new();
    for pattern in ["s3://bucket/data/*.parquet", "s3://bucket/date/x.jsonl", "s3://bucket/d*/x.jsonl?"] {
        objects.recipe(&format!("\"{pattern}\""));
        objects.prep("out").is_refusal(&[&format!("source `a`: no file matches `{pattern}`")]);
    }
}

#[test]
fn bad_input_addresses_and_answers_are_named_with_the_way_out() {
    let objects = Objects::new();
    for (path, words) in [
        (
            "s3://buckte/data/*.jsonl",
            ["s3://buckte/data: there is no bucket `buckte`", "hint: check the spelling"],
        ),
        ("s3://", ["it names no bucket", "hint: write a folder, `s3://BUCKET/PREFIX`"]),
    ] {
        objects.recipe(&format!("\"{path}\""));
        objects.prep("out").is_refusal(&words);
    }
    objects.recipe("\"s3://bucket/data/*.jsonl\"");
    objects.stub.fault("GET", "list-type", Fault::Answer(403, "AccessDenied"), 9);
    let refused = objects.prep("out");
    refused.is_refusal(&["access is refused (status 403)", "hint: use credentials that may list"]);
    assert!(!refused.stderr.contains("hunter2secret"), "{}", refused.stderr);
}

#[test]
fn bad_input_no_credentials_in_the_environment() {
    let objects = Objects::new();
    objects.recipe("\"s3://bucket/data/*.jsonl\"");
    let mut command = objects.case.command("out", &[]);
    objects.settle(&mut command);
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    ran(&mut command).is_refusal(&["no credentials for `s3://` were found", "hint: set AWS_ACCESS_KEY_ID"]);
}

#[test]
fn an_object_that_changes_during_the_run_is_an_error() {
    let objects = Objects::new();
    objects.recipe("\"s3://bucket/data/*.jsonl\"");
    objects.stub.fault("GET", "y.jsonl", Fault::Answer(412, "PreconditionFailed"), 9);
    objects.prep("out").is_refusal(&["s3://bucket/data/y.jsonl: was changed while it was read"]);
}
