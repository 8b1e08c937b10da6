//! scripts/slurm_prep.sh with a stand-in Slurm (tests/fixtures/slurm) that runs each job when it is submitted: the
//! bytes of `prep`, and what it does about lost tasks, second rounds, small arrays and errors.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::harness::{Case, Ran, ran};

const POTABLE: &str = env!("CARGO_BIN_EXE_potable");

/// A case with a small corpus of `rows` rows in five sources, which are five units.
fn case(rows: usize, body: &str) -> Case {
    let case = Case::new();
    let line = |row: usize| {
        let answer = "word ".repeat(5 + row % 40);
        format!("{{\"id\":\"{row}\",\"text\":\"number {row} of a corpus: {answer}\"}}\n")
    };
    for file in 0..5 {
        let part = rows * file / 5..rows * (file + 1) / 5;
        case.put(&format!("rows/{file}.jsonl"), part.map(line).collect::<String>());
    }
    case.put("slurm/calls", "");
    let source = |n: usize| format!("[[source]]\nname = \"rows-{n}\"\npath = \"rows/{n}.jsonl\"\n");
    case.recipe(&((0..5).map(source).collect::<String>() + body));
    case
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// `slurm_prep.sh` with the arguments given, among stand-ins; what the stand-ins are told goes through
/// `environment`.
fn submitted(case: &Case, args: &[&str], environment: &[(&str, &str)]) -> Ran {
    let path =
        format!("{}:{}", root().join("tests/fixtures/slurm").display(), std::env::var("PATH").unwrap());
    ran(Command::new("bash")
        .arg(root().join("scripts/slurm_prep.sh"))
        .args(args)
        .args(["--potable", POTABLE])
        .current_dir(case.path(""))
        .env("PATH", path)
        .env("STUB", case.path("slurm"))
        .envs(environment.iter().copied())
        .stdin(Stdio::null()))
}

/// The same with logs in `logs`, and the end waited for.
fn slurm(case: &Case, args: &[&str], environment: &[(&str, &str)]) -> Ran {
    submitted(case, &[args, &["--logs", "logs", "--wait"]].concat(), environment)
}

/// Arrays that were submitted, as `0-7`.
fn arrays(case: &Case) -> Vec<String> {
    let calls = std::fs::read_to_string(case.path("slurm/calls")).unwrap();
    let array = |line: &str| line.split("array=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    calls.lines().map(array).filter(|array| !array.is_empty()).collect()
}

const SMALL: &str = "[output]\npartition_bytes = 9000\n[pack]\nlength = 400\n";
const RUN: [&str; 5] = ["recipe.toml", "--work", "work", "--out", "out"];

fn same_as_prep(case: &Case) {
    let plain = case.prep("plain", &[]);
    let ours = case.data("out");
    assert_eq!(ours.manifest["manifest_digest"], plain.manifest["manifest_digest"]);
    assert_eq!(ours.bytes, plain.bytes);
}

#[test]
fn a_chain_of_jobs_gives_the_bytes_of_prep() {
    let case = case(300, SMALL);
    let ran = slurm(&case, &RUN, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    assert_eq!(arrays(&case).len(), 2, "one chain: map and reduce");
    same_as_prep(&case);
}

#[test]
fn a_second_round_of_map_is_submitted_by_the_control_job() {
    // Most rows are longer than a pack, so the cap needs more than the first threshold lets through.
    let case = case(600, &format!("max_rows = 30\n{}", SMALL.replace("400", "80")));
    let ran = slurm(&case, &RUN, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(arrays(&case).len() >= 4, "a chain for each round: {:?}", arrays(&case));
    same_as_prep(&case);
}

#[test]
fn more_rounds_of_map_than_chains_that_may_bring_nothing_forward_are_no_standstill() {
    // One row in 400 is short enough to survive, so that the cap asks for the one unit round by round.
    let case = Case::new();
    let line = |row: usize| {
        let answer = "word ".repeat(if row % 400 == 7 { 2 } else { 40 });
        format!("{{\"id\":\"{row}\",\"text\":\"number {row} of a corpus: {answer}\"}}\n")
    };
    case.put("rows.jsonl", (0..4000).map(line).collect::<String>());
    case.put("slurm/calls", "");
    let source = "[[source]]\nname = \"rows\"\npath = \"rows.jsonl\"\nmax_rows = 5\n";
    case.recipe(&format!("{source}{}", SMALL.replace("400", "80")));
    let ran = slurm(&case, &RUN, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let status = case.potable(&["status", "--work", "work", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert!(status["phases"][0]["round"].as_u64().unwrap() >= 4, "{status}");
    same_as_prep(&case);
}

/// A folder whose name a shell, Slurm's formats and a C locale would like to take apart.
const ODD: &str = "sp ace \u{e9} it's";

#[test]
fn folders_with_spaces_quotes_and_letters_beyond_ascii_are_kept_whole_in_a_c_locale() {
    let case = case(300, SMALL);
    let [work, logs] = ["work", "logs"].map(|name| format!("{ODD}/{name}"));
    let args = ["recipe.toml", "--work", &work, "--out", "out", "--logs", &logs, "--wait"];
    let ran = submitted(&case, &args, &[("LC_ALL", "C")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    same_as_prep(&case);
}

#[test]
fn a_run_whose_jobs_still_wait_is_not_started_twice() {
    let case = case(30, SMALL);
    case.put("slurm/hold", "");
    let start = |logs: &str| {
        let args = ["recipe.toml", "--work", "work", "--logs", logs, "--sbatch", "--comment=project-7"];
        submitted(&case, &args, &[("LC_ALL", "C")])
    };
    let [first, second] = ["first", "second"].map(|name| format!("{ODD}/{name}"));
    assert_eq!(start(&first).code, 0);
    let ids = || std::fs::read_to_string(case.path("slurm/last")).unwrap();
    let before = ids();
    let again = start(&first);
    again.is_refusal(&[
        &format!("goes on already: job {}", before.trim()),
        &first,
        "scancel --name='potable-recipe-control' ; scancel --name='potable-recipe'",
    ]);
    assert_eq!(ids(), before, "nothing was submitted");
    let other = start(&second);
    assert_eq!(other.code, 0, "another run of a recipe of this name: {}", other.stderr);
}

#[test]
fn only_a_lost_task_is_submitted_again() {
    let case = case(300, SMALL);
    case.put("slurm/lose", "3");
    let ran = slurm(&case, &RUN, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let arrays = arrays(&case);
    assert_eq!(arrays.first().map(String::as_str), Some("0-4"), "{arrays:?}");
    assert_eq!(arrays.get(2).map(String::as_str), Some("0-0"), "one of five units: {arrays:?}");
    same_as_prep(&case);
}

#[test]
fn arrays_keep_to_the_size_that_slurm_allows() {
    let case = case(400, SMALL);
    let ran = slurm(&case, &RUN, &[("MAX_ARRAY_SIZE", "3")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        arrays(&case).iter().all(|array| ["0-0", "0-1"].contains(&array.as_str())),
        "{:?}",
        arrays(&case)
    );
    same_as_prep(&case);
}

#[test]
fn a_run_that_is_done_is_done_again_in_no_time() {
    let case = case(300, SMALL);
    assert_eq!(slurm(&case, &RUN, &[]).code, 0);
    let before = case.stamps("out/shards");
    let arrays_before = arrays(&case).len();
    let ran = slurm(&case, &RUN, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(case.stamps("out/shards"), before);
    assert_eq!(arrays(&case).len(), arrays_before, "no unit and no partition is submitted again");
}

#[test]
fn an_error_ends_the_run_after_three_chains_and_is_shown() {
    let case = case(300, SMALL);
    case.put("rows/2.jsonl", "{\"id\":\"0\",\"text\":\"good words here\"}\n{\"id\":\"1\",\"text\":\n");
    let ran = slurm(&case, &RUN, &[]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("2.jsonl:"), "{}", ran.stderr);
    assert!(ran.stderr.contains("brought nothing forward"), "{}", ran.stderr);
    assert!(!case.path("out/manifest.json").exists());
}

#[test]
fn rows_that_could_not_be_read_give_exit_status_1() {
    let case = case(300, &format!("on_bad_row = \"drop\"\n{SMALL}"));
    let rows = std::fs::read_to_string(case.path("rows/4.jsonl")).unwrap();
    case.put("rows/4.jsonl", format!("{rows}{{\"id\":\n"));
    let ran = slurm(&case, &RUN, &[]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("could not be read"), "{}", ran.stderr);
}

#[test]
fn slurm_arguments_that_cannot_be_used_are_named() {
    let case = case(3, SMALL);
    for (args, word) in [
        (&["recipe.toml"][..], "work folder"),
        (&["--work", "work"], "recipe"),
        (&["recipe.toml", "--work", "work", "--memory", "3G"], "`--memory`"),
        (&["recipe.toml", "--work", "work", "--units-per-task", "0"], "`0`"),
        (&["recipe.toml", "other.toml", "--work", "work"], "`other.toml`"),
        (&["absent.toml", "--work", "work"], "absent.toml"),
    ] {
        let ran = slurm(&case, args, &[]);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(word), "{args:?}: {}", ran.stderr);
    }
    assert!(arrays(&case).is_empty(), "nothing was submitted");
}

#[test]
fn a_slurm_of_ones_own_refuses_folders_that_its_settings_cannot_name() {
    let case = Case::new();
    for action in ["start", "stop"] {
        let cluster = root().join("scripts/faults/slurm_cluster.sh");
        let ran = ran(Command::new("bash").arg(cluster).arg(action).arg(case.path("sp ace")));
        ran.is_refusal(&["sp ace`", "slurm.conf"]);
        assert!(!case.path("sp ace").exists());
    }
}
