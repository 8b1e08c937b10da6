//! `manifest diff` on real runs: a recipe is changed in one way at a time, and each change has its weight,
//! its cause before its effects, and its exit status.

use serde_json::{Value, json};

use crate::harness::{Case, Ran, chats_from, lines};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Every word of the base recipe that a change replaces.
const BASE: &str = r#"seed = 1
[[source]]
name = "a"
path = "a.jsonl"
split = "train"
revision = "COMMIT"
[[source]]
name = "b"
path = "b.jsonl"
licence = "apache-2.0"
max_rows = 60
[decontaminate]
benchmarks = ["one.toml", "two.toml"]
ngram = 13
strict = true
[normalise]
control_text = "drop"
format = "qwen3"
[pack]
length = 512
[output]
shard_tokens = 100000
"#;

struct Change {
    what: &'static str,
    from: &'static str,
    to: &'static str,
    weight: &'static str,
    /// Begins the finding that the change is about.
    finding: &'static str,
}

const fn change(
    what: &'static str,
    (from, to): (&'static str, &'static str),
    weight: &'static str,
    finding: &'static str,
) -> Change {
    Change { what, from, to, weight, finding }
}

const CHANGES: [Change; 20] = [
    change("a benchmark left", (", \"two.toml\"]", "]"), "blocking", "benchmark `two`"),
    change("n grew", ("ngram = 13", "ngram = 15"), "blocking", "words in a gram"),
    change("strict is off", ("strict = true", "strict = false"), "blocking", "strict"),
    change(
        "nothing is checked",
        ("benchmarks = [\"one.toml\", \"two.toml\"]", "none = true"),
        "blocking",
        "mode",
    ),
    change(
        "a split that is not for training",
        ("split = \"train\"", "split = \"test\""),
        "blocking",
        "split of source `a`",
    ),
    change(
        "a revision is a branch",
        ("revision = \"COMMIT\"", "revision = \"main\""),
        "blocking",
        "revision of source `a`",
    ),
    change("no revision", ("revision = \"COMMIT\"\n", ""), "blocking", "revision of source `a`"),
    change(
        "a licence changed",
        ("licence = \"apache-2.0\"", "licence = \"mit\""),
        "blocking",
        "licence of source `b`",
    ),
    change(
        "a licence is non-commercial now",
        ("licence = \"apache-2.0\"", "licence = \"cc-by-nc-4.0\""),
        "blocking",
        "licence of source `b`",
    ),
    change(
        "a new source is non-commercial",
        (
            "[decontaminate]",
            "[[source]]\nname = \"c\"\npath = \"c.jsonl\"\nlicence = \"cc-by-nc-sa-4.0\"\n[decontaminate]",
        ),
        "blocking",
        "source `c`",
    ),
    change(
        "control strings are kept",
        ("control_text = \"drop\"", "control_text = \"keep\""),
        "blocking",
        "policy `control_text`",
    ),
    change(
        "another tokenizer",
        ("[output]", "[tokenise]\ntokenizer = \"other.json\"\n[output]"),
        "blocking",
        "tokeniser",
    ),
    change("another template", ("format = \"qwen3\"", "format = \"text\""), "blocking", "text format"),
    change("fewer rows", ("max_rows = 60", "max_rows = 30"), "material", "rows kept of source `b`"),
    change(
        "a drop reason",
        ("max_rows = 60", "where = \"n > 20\""),
        "material",
        "rows dropped of source `b` for `source.where`",
    ),
    change(
        "a new source",
        (
            "[decontaminate]",
            "[[source]]\nname = \"c\"\npath = \"c.jsonl\"\nlicence = \"mit\"\n[decontaminate]",
        ),
        "material",
        "source `c`",
    ),
    change("another mixture", ("max_rows = 60", "max_rows = 20"), "material", "share of source `b`"),
    change("other packs", ("length = 512", "length = 1024"), "material", "packs"),
    change("more shards", ("shard_tokens = 100000", "shard_tokens = 4000"), "material", "train shards"),
    change("another order of sources", ("", ""), "informational", "order of sources"),
];

fn base() -> String {
    BASE.replace("COMMIT", COMMIT)
}

/// The recipe with one change.
fn changed(change: &Change) -> String {
    let base = base();
    if change.what == "another order of sources" {
        let (a, rest) = base.split_once("[[source]]\nname = \"b\"").unwrap();
        let (b, rest) = rest.split_once("[decontaminate]").unwrap();
        let (head, a) = a.split_once("[[source]]").unwrap();
        return format!("{head}[[source]]\nname = \"b\"{b}[[source]]{a}[decontaminate]{rest}");
    }
    if change.finding == "text format" {
        let mapping = "mapping = { shape = \"text\", text = \"t\" }\n";
        let documents = base.replace("name = ", &format!("{mapping}name = "));
        return documents.replacen(change.from, change.to, 1);
    }
    let from = change.from.replace("COMMIT", COMMIT);
    assert!(base.contains(&from), "{}: `{from}` is not in the recipe", change.what);
    base.replacen(&from, change.to, 1)
}

fn numbered(first: usize, count: usize) -> String {
    let text = chats_from(first, count);
    let rows = text.lines().enumerate().map(|(n, line)| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        row["n"] = json!(n);
        row["t"] = row["messages"][1]["content"].clone();
        row
    });
    lines(rows)
}

fn case() -> Case {
    let case = Case::new();
    case.put("a.jsonl", numbered(0, 80));
    case.put("b.jsonl", numbered(100, 80));
    case.put("c.jsonl", chats_from(300, 30));
    let item = |text: &str| lines([json!({"prompt": text})]);
    case.put(
        "one.jsonl",
        item("A shepherd has 14 ewes and each ewe has 3 lambs, of which 5 are sold on the market in May."),
    );
    case.put(
        "two.jsonl",
        item(
            "Name the tall mountain that stands between the green river and the quiet town of seven windows.",
        ),
    );
    for name in ["one", "two"] {
        case.put(
            &format!("{name}.toml"),
            format!("name = \"{name}\"\nfiles = [\"{name}.jsonl\"]\nprompt = \"prompt\"\n"),
        );
    }
    case.put("other.json", std::fs::read_to_string(case.path("tokenizer.json")).unwrap() + "\n");
    case
}

fn prepared(case: &Case, recipe: &str, out: &str) {
    case.recipe(recipe);
    let ran = case.run(out, &[]);
    assert_eq!(ran.code, 0, "{out}: {}\n{recipe}", ran.stderr);
}

fn diff(case: &Case, args: &[&str]) -> Ran {
    case.potable(&[&["manifest", "diff"], args].concat())
}

/// The words of a diff as JSON.
fn findings(case: &Case, old: &str, new: &str) -> (i32, Value) {
    let ran = diff(case, &[old, new, "--format", "json"]);
    (ran.code, serde_json::from_str(&ran.stdout).unwrap())
}

#[test]
fn twenty_changes_of_a_recipe_have_their_weight_and_exit_status() {
    let case = case();
    prepared(&case, &base(), "base");
    let mut table = String::from("change | weight | exit any/material/blocking | finding | version step\n");
    for (number, change) in CHANGES.iter().enumerate() {
        let out = format!("new-{number}");
        prepared(&case, &changed(change), &out);
        let (code, json) = findings(&case, "base", &out);
        assert_eq!(json["max_weight"], change.weight, "{}: {json:#}", change.what);
        let found = json["findings"].as_array().unwrap();
        let about = found.iter().find(|finding| finding["what"] == change.finding);
        let about = about.unwrap_or_else(|| panic!("{}: no `{}` in {json:#}", change.what, change.finding));
        assert_eq!(about["weight"], change.weight, "{}: {about:#}", change.what);
        let exits: Vec<i32> = ["material", "blocking"]
            .iter()
            .map(|from| diff(&case, &["base", &out, "--fail-on", from]).code)
            .collect();
        let expected = match change.weight {
            "blocking" => [1, 1],
            "material" => [1, 0],
            _ => [0, 0],
        };
        assert_eq!((code, exits.as_slice()), (1, &expected[..]), "{}", change.what);
        table += &format!(
            "{} | {} | {code}/{}/{} | {}: {} -> {} | {}\n",
            change.what,
            change.weight,
            exits[0],
            exits[1],
            change.finding,
            about["old"],
            about["new"],
            json["version_step"]
        );
        // The way back has the same findings.
        let (_, back) = findings(&case, &out, "base");
        let words = |json: &Value, old: &str, new: &str| -> Vec<Value> {
            json["findings"].as_array().unwrap().iter().map(|f| json!([f["what"], f[old], f[new]])).collect()
        };
        assert_eq!(words(&json, "old", "new"), words(&back, "new", "old"), "{}", change.what);
    }
    shown(&table);
}

/// The table of the changes, for whoever runs this test with `--nocapture`.
#[expect(clippy::print_stdout, reason = "the test harness shows it")]
fn shown(table: &str) {
    println!("{table}");
}

#[test]
fn equal_runs_have_no_difference_and_a_file_is_as_good_as_its_folder() {
    let case = case();
    prepared(&case, &base(), "one");
    case.recipe(&base());
    assert_eq!(case.run("two", &["--threads", "1", "--reverse-units"]).code, 0);
    for [old, new] in [["one", "two"], ["one/manifest.json", "two"], ["one", "one"]] {
        let ran = diff(&case, &[old, new]);
        assert_eq!(ran.code, 0, "{}", ran.stdout);
        assert!(ran.stdout.ends_with("\nno differences\n"), "{}", ran.stdout);
    }
}

#[test]
fn outputs_that_differ_though_inputs_are_equal_block() {
    use potable_manifests::{Digest, Manifest};
    let case = case();
    prepared(&case, &base(), "one");
    let mut manifest = Manifest::from_slice(&std::fs::read(case.path("one/manifest.json")).unwrap()).unwrap();
    manifest.shards[0].content_digest = Digest::of(b"other");
    manifest.run.potable_version = "9.9.9".to_owned();
    case.put("other.json", manifest.seal().unwrap().to_json().unwrap());
    let ran = diff(&case, &["one", "other.json", "--fail-on", "blocking"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(
        ran.stdout.contains("\ndeterminism\n  blocking       outputs, though recipe digest"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("potable version: "), "{}", ran.stdout);
}

#[test]
fn a_policy_lets_a_change_pass_and_says_why() {
    let case = case();
    prepared(&case, &base(), "one");
    prepared(&case, &base().replace("apache-2.0", "mit"), "two");
    case.put("policy.toml", "[[allow]]\nwhat = \"licence of source b\"\nnew = \"mit\"\nreason = \"the authors changed it\"\n[[allow]]\nwhat = \"*\"\narea = \"recipe\"\nreason = \"as above\"\n[[allow]]\nwhat = \"digest of *\"\narea = \"run\"\nreason = \"as above\"\n");
    assert_eq!(diff(&case, &["one", "two", "--fail-on", "blocking"]).code, 1);
    let ran = diff(&case, &["one", "two", "--policy", "policy.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert!(ran.stdout.contains("(blocking; the authors changed it)"), "{}", ran.stdout);
    case.put("policy.toml", "[[alow]]\n");
    let ran = diff(&case, &["one", "two", "--policy", "policy.toml"]);
    ran.is_refusal(&["policy.toml: cannot be used as a policy", "unknown field `alow`"]);
    diff(&case, &["one", "two", "--policy", "no.toml"]).is_refusal(&["cannot read policy `no.toml`"]);
}

#[test]
fn manifests_of_different_kinds_are_refused() {
    let case = case();
    prepared(&case, &base(), "one");
    prepared(
        &case,
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[[phase]]\nname = \"p\"\n[[phase]]\nname = \"q\"\n",
        "two",
    );
    let words = ["one: is the manifest of one data set, and two is an index of several phases"];
    diff(&case, &["one", "two"]).is_refusal(&words);
    assert_eq!(diff(&case, &["two", "two"]).code, 0);
    assert_eq!(diff(&case, &["two/p", "two/q"]).code, 1);
}

#[test]
fn phases_are_compared_by_name_and_a_stale_index_is_refused() {
    let case = case();
    let recipe = |ngram: &str| {
        format!(
            "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[decontaminate]\nbenchmarks = [\"one.toml\"]\n[[phase]]\nname = \"p\"\n[[phase]]\nname = \"q\"\n[phase.decontaminate]\nngram = {ngram}\n"
        )
    };
    prepared(&case, &recipe("13"), "one");
    prepared(&case, &recipe("15"), "two");
    let (code, json) = findings(&case, "one", "two");
    assert_eq!((code, &json["max_weight"]), (1, &json!("blocking")), "{json:#}");
    assert!(json["findings"].as_array().unwrap().iter().all(|finding| finding["phase"] == "q"), "{json:#}");
    std::fs::copy(case.path("one/q/manifest.json"), case.path("two/q/manifest.json")).unwrap();
    diff(&case, &["one", "two"]).is_refusal(&["two/q: has manifest `sha256:", "the index beside it names"]);
}
