//! scripts/slurm_prep.sh with a stand-in Slurm (tests/fixtures/slurm) that runs each job when it is submitted, and
//! scripts/ray_prep.py with a stand-in Ray (tests/fixtures/ray) that does the same: the bytes of `prep`, and what
//! they do about lost tasks, damaged files, second rounds, small arrays and errors.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::harness::{Case, Ran, ran, skipped};

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

/// Whether Python scripts can be run here; says so if not.
fn python() -> bool {
    let there = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        skipped("there is no python3");
    }
    there
}

/// A Python with the stand-in Ray, told of `faults` in the form that tests/fixtures/ray describes.
fn with_ray(case: &Case, faults: &[&str]) -> Command {
    case.put("ray/harm", faults.iter().map(|fault| format!("{fault}\n")).collect::<String>());
    let mut command = Command::new("python3");
    command
        .current_dir(case.path(""))
        .env(
            "PYTHONPATH",
            std::env::join_paths(["tests/fixtures/ray", "scripts"].map(|at| root().join(at))).unwrap(),
        )
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("STUB_RAY", case.path("ray"))
        .env("TMPDIR", case.path("tmp"))
        .stdin(Stdio::null());
    std::fs::create_dir_all(case.path("tmp")).unwrap();
    command
}

/// `ray_prep.py` on the recipe into `out`.
fn ray(case: &Case, args: &[&str], faults: &[&str]) -> Ran {
    let mut command = with_ray(case, faults);
    command.arg(root().join("scripts/ray_prep.py")).args(RUN);
    if !args.contains(&"--potable") {
        command.args(["--potable", POTABLE]);
    }
    ran(command.args(args))
}

/// Faults that no task has met.
fn faults_left(case: &Case) -> String {
    std::fs::read_to_string(case.path("ray/harm")).unwrap()
}

#[test]
fn tasks_of_ray_give_the_bytes_of_prep_whatever_is_lost_on_the_way() {
    if !python() {
        return;
    }
    let case = case(300, SMALL);
    let ran = ray(&case, &["--units-per-task", "1"], &["map lose", "map lose", "select lose", "seal lose"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    assert_eq!(faults_left(&case), "");
    same_as_prep(&case);
}

/// What a file that is cut short makes of a run: the step that finds it, and the one that makes it again.
#[test]
fn ray_goes_back_to_the_step_whose_file_was_found_damaged() {
    if !python() {
        return;
    }
    let case = case(120, SMALL);
    let plain = case.prep("plain", &[]);
    for (fault, found, made) in [
        ("select cut:work/map/*.staged", "select", "map"),
        ("reduce cut:work/select/partition-*.rows", "reduce", "select"),
        ("reduce cut:work/select/summary.json", "reduce", "select"),
        ("seal cut:work/map/*.staged", "seal", "map"),
        ("seal cut:work/select/overlong.rows", "seal", "select"),
        ("seal cut:work/reduce/*.json", "seal", "reduce"),
        ("seal cut:out/shards/*", "seal", "reduce"),
    ] {
        for folder in ["work", "out"].map(|name| case.path(name)).iter().filter(|folder| folder.exists()) {
            std::fs::remove_dir_all(folder).unwrap();
        }
        let ran = ray(&case, &[], &[fault]);
        assert_eq!(ran.code, 0, "{fault}: {}", ran.stderr);
        assert_eq!(faults_left(&case), "", "{fault}");
        let back = format!("{found}: what it reads was damaged or gone, {made} makes it again");
        assert!(ran.stderr.contains(&back), "{fault}: {}", ran.stderr);
        let ours = case.data("out");
        assert_eq!(ours.digest(), plain.digest(), "{fault}");
        assert_eq!(ours.bytes, plain.bytes, "{fault}");
    }
}

#[test]
fn files_that_are_damaged_again_and_again_end_the_run_of_ray() {
    if !python() {
        return;
    }
    let case = case(100, SMALL);
    let ran = ray(&case, &["--retries", "1"], &["seal cut:out/shards/*"; 9]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("error: potable seal ended with exit status 2"), "{}", ran.stderr);
    assert!(!case.path("out/manifest.json").exists());
    let seals = 9 - faults_left(&case).lines().count();
    assert_eq!(seals, 4, "a try and a second one, before and after the one time that reduce made it again");
}

#[test]
fn a_task_of_ray_that_fails_beside_potable_is_a_failed_task_with_its_message() {
    if !python() {
        return;
    }
    let case = case(100, SMALL);
    let ran = ray(&case, &[], &["select raise:no room on this node"]);
    assert_eq!(ran.code, 0, "once is tried again: {}", ran.stderr);
    std::fs::remove_dir_all(case.path("work")).unwrap();
    std::fs::remove_dir_all(case.path("out")).unwrap();
    let ran = ray(&case, &[], &["select raise:no room on this node"; 2]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("\nerror: OSError: no room on this node\nhint: "), "{}", ran.stderr);
    assert!(!ran.stderr.contains("cluster"), "{}", ran.stderr);
}

#[test]
fn the_next_step_of_ray_follows_what_status_says_is_missing() {
    if !python() {
        return;
    }
    let phase = |name: &str, units: &str, selected: bool, partitions: &str| {
        format!(
            "{{\"phase\":\"{name}\",\"missing_units\":{units},\"selected\":{selected},\"missing_partitions\":{partitions}}}"
        )
    };
    for (first, second, expected) in [
        // Units first, of all phases; then a phase after the other, since the second may leave out rows of the first.
        (
            phase("a", "[[0,2],[5,6]]", false, "[[0,4]]"),
            phase("b", "[[1,2]]", false, "[[0,1]]"),
            "map [('a', 0, 2), ('a', 5, 6), ('b', 1, 2)]",
        ),
        (phase("a", "[]", false, "[[0,4]]"), phase("b", "[]", false, "[[0,1]]"), "select [('a', 0, 1)]"),
        (phase("a", "[]", true, "[[0,4]]"), phase("b", "[]", false, "[[0,1]]"), "select [('b', 0, 1)]"),
        (
            phase("a", "[]", true, "[[0,4]]"),
            phase("b", "[]", true, "[[0,1]]"),
            "reduce [('a', 0, 4), ('b', 0, 1)]",
        ),
        // A unit that was found damaged later is mapped again before it is read again.
        (phase("a", "[[3,4]]", true, "[[2,4]]"), phase("b", "[]", true, "[]"), "map [('a', 3, 4)]"),
        (phase("a", "[]", true, "[]"), phase("b", "[]", true, "[]"), "seal []"),
    ] {
        let case = Case::new();
        let ran = ran(with_ray(&case, &[])
            .args(["-c", "import json, sys, ray_prep; print(*ray_prep.next_step(json.loads(sys.argv[1])))"])
            .arg(format!("{{\"phases\":[{first},{second}]}}")));
        assert_eq!((ran.code, ran.stdout.trim()), (0, expected), "{}", ran.stderr);
    }
}

/// A binary to ship: a script that goes on as potable.
fn shipped(case: &Case) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    case.put("ship-me", format!("#!/bin/sh\nexec '{POTABLE}' \"$@\"\n"));
    std::fs::set_permissions(case.path("ship-me"), std::fs::Permissions::from_mode(0o755)).unwrap();
    case.path("ship-me").to_str().unwrap().to_owned()
}

/// The folder where a node keeps a shipped binary, and the binary there.
fn shipped_to(case: &Case) -> (PathBuf, PathBuf) {
    use std::os::unix::fs::MetadataExt as _;
    let folder =
        case.path("tmp").join(format!("potable-{}", std::fs::metadata(case.path("ship-me")).unwrap().uid()));
    let digest = potable_manifests::Digest::of(&std::fs::read(case.path("ship-me")).unwrap());
    (folder.clone(), folder.join(digest.hex()))
}

/// Puts a program in place of the shipped binary that would leave `ran` behind.
fn foreign_program(case: &Case, place: &std::path::Path, modes: [u32; 2]) {
    use std::os::unix::fs::PermissionsExt as _;
    super::harness::put(place, format!("#!/bin/sh\ntouch '{}'\n", case.path("ran").display()).as_bytes());
    for (path, mode) in [(place.parent().unwrap(), modes[0]), (place, modes[1])] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn mode(path: &std::path::Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_shipped_binary_is_kept_where_nobody_else_may_write_and_written_anew_if_it_is_another() {
    if !python() {
        return;
    }
    let case = case(60, SMALL);
    let ship = shipped(&case);
    let args = ["--ship", "--potable", &ship];
    let (folder, place) = shipped_to(&case);
    foreign_program(&case, &place, [0o700, 0o700]);
    let ran = ray(&case, &args, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!case.path("ran").exists(), "a program that was not sent was run");
    assert_eq!(std::fs::read(&place).unwrap(), std::fs::read(&ship).unwrap());
    assert_eq!((mode(&folder), mode(&place)), (0o700, 0o700));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "the binary alone");
    same_as_prep(&case);
}

#[test]
fn a_shipped_binary_is_not_looked_for_in_a_folder_that_others_can_change() {
    if !python() {
        return;
    }
    let case = case(60, SMALL);
    let ship = shipped(&case);
    let (folder, place) = shipped_to(&case);
    foreign_program(&case, &place, [0o777, 0o755]);
    let before = std::fs::read(&place).unwrap();
    let ran = ray(&case, &["--ship", "--potable", &ship], &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!case.path("ran").exists(), "a program that was not sent was run");
    assert_eq!(std::fs::read(&place).unwrap(), before, "the file of someone else is left alone");
    let left: Vec<_> =
        std::fs::read_dir(case.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [folder], "the folders of single tasks are gone");
    same_as_prep(&case);
}

#[test]
fn a_shipped_binary_that_cannot_be_written_is_an_error_that_names_the_place_and_leaves_nothing() {
    if !python() {
        return;
    }
    let case = case(60, SMALL);
    let ship = shipped(&case);
    let (folder, place) = shipped_to(&case);
    foreign_program(&case, &place.join("in-the-way"), [0o700, 0o700]);
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let ran = ray(&case, &["--ship", "--potable", &ship], &[]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains(folder.to_str().unwrap()), "{}", ran.stderr);
    assert!(!ran.stderr.contains("cluster"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no half of a binary is left");
}
