//! The steps of a run one by one, as a scheduler runs them: what `prep` gives, whatever the order of the
//! tasks, whoever runs them twice, is killed on the way, or finds a damaged file.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parquet::basic::Compression;
use potable::recipe::file::ShardFormat;
use serde_json::Value;

use super::harness::{
    Case, Ran, chat, chats, chats_from, files_below, lines, parquet_bytes, put, question, ran,
};
use super::held::Held;
use super::prove::prove;

/// So small that every border between units, chunks and partitions is crossed.
const TINY: [&str; 4] = ["--unit-bytes", "700", "--chunk-bytes", "300"];
const SMALL: &str = "[pack]\nlength = 512\n[output]\npartition_bytes = 3000\n";

/// A work folder of a case.
struct Work<'c> {
    case: &'c Case,
    folder: &'static str,
}

/// Numbers in the order in which a scheduler happens to take them.
#[derive(Clone, Copy)]
enum Order {
    Up,
    Down,
    /// From both ends to the middle.
    Mixed,
}

impl Order {
    fn of(self, numbers: Vec<u64>) -> Vec<u64> {
        let half = numbers.len().div_ceil(2);
        let (low, high) = numbers.split_at(half);
        match self {
            Order::Up => numbers,
            Order::Down => numbers.into_iter().rev().collect(),
            Order::Mixed => {
                let pairs = high.iter().rev().chain(low.iter().take(low.len() - high.len()));
                let pairs: Vec<u64> = pairs.zip(low).flat_map(|(a, b)| [*a, *b]).collect();
                let mut seen = std::collections::BTreeSet::new();
                pairs.into_iter().chain(numbers.iter().copied()).filter(|n| seen.insert(*n)).collect()
            }
        }
    }
}

impl<'c> Work<'c> {
    /// Plans recipe.toml in the folder.
    fn plan(case: &'c Case, folder: &'static str, args: &[&str]) -> Work<'c> {
        let work = Work { case, folder };
        let ran = work.plan_again(args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        work
    }

    fn plan_again(&self, args: &[&str]) -> Ran {
        let mut all = vec!["plan", "recipe.toml", "--work", self.folder];
        all.extend(TINY);
        all.extend(args);
        self.case.potable(&all)
    }

    fn command(&self, step: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_potable"));
        command
            .current_dir(self.case.path(""))
            .args(["--no-progress", step, "--work", self.folder])
            .args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn step(&self, step: &str, args: &[&str]) -> Ran {
        ran(&mut self.command(step, args))
    }

    fn done(&self, step: &str, args: &[&str]) {
        let ran = self.step(step, args);
        assert_eq!(ran.code, 0, "{step} {args:?}: {}", ran.stderr);
    }

    /// A step twice at once, by two processes; both must end well.
    fn twice(&self, step: &str, args: &[&str]) -> i32 {
        let spawn = || self.command(step, args).spawn().unwrap();
        let both: [Child; 2] = [spawn(), spawn()];
        let codes = both.map(|child| {
            let output = child.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let code = output.status.code().unwrap();
            assert!(code == 0 || (step == "select" && code == 1), "{step} {args:?}: {stderr}");
            code
        });
        codes.into_iter().max().unwrap()
    }

    fn status(&self) -> Value {
        let ran = self.step("status", &["--format", "json"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    fn next(&self) -> String {
        self.status()["next"].as_str().unwrap().to_owned()
    }

    /// What is missing of each phase, number by number.
    fn missing(&self, what: &str) -> Vec<(Option<String>, Vec<u64>)> {
        let status = self.status();
        let phases = status["phases"].as_array().unwrap().iter();
        phases
            .map(|phase| {
                let ranges = phase[what].as_array().unwrap().iter();
                let numbers = ranges.flat_map(|r| r[0].as_u64().unwrap()..r[1].as_u64().unwrap());
                (phase["phase"].as_str().map(str::to_owned), numbers.collect())
            })
            .collect()
    }

    /// Runs whatever comes next, task by task, until nothing does.
    fn drive(&self, order: Order, run: impl Fn(&Work, &str, &[&str]) -> i32) {
        for _ in 0..40 {
            let next = self.next();
            let (what, flag) = match next.as_str() {
                "map" => ("missing_units", "--unit"),
                "reduce" => ("missing_partitions", "--partition"),
                "done" => return,
                other => {
                    run(self, other, &[]);
                    continue;
                }
            };
            for (phase, numbers) in self.missing(what) {
                // A later phase is selected after this one.
                for number in order.of(numbers) {
                    let number = number.to_string();
                    let mut args = vec![flag, number.as_str()];
                    if let Some(phase) = &phase {
                        args.extend(["--phase", phase]);
                    }
                    run(self, &next, &args);
                }
            }
        }
        panic!("it does not come to an end: {}", self.status());
    }

    fn drive_plainly(&self, order: Order) {
        self.drive(order, |work, step, args| {
            let ran = work.step(step, args);
            assert!(ran.code == 0 || (step == "select" && ran.code == 1), "{step} {args:?}: {}", ran.stderr);
            ran.code
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.case.path(self.folder).join(name)
    }

    /// Names of the files in the work folder, those of the data set left out.
    fn files(&self) -> Vec<String> {
        let root = self.case.path(self.folder);
        let names = files_below(&root).into_iter();
        let names = names.map(|path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with("out/")).collect()
    }

    fn digest(&self) -> String {
        digest(&self.path("out"))
    }

    /// Removes the manifest, so that seal is next.
    fn unseal(&self) {
        for name in ["out/manifest.json", "out/manifest.json.sha256"] {
            std::fs::remove_file(self.path(name)).unwrap();
        }
    }
}

/// The digest of a data set, or of the index of several.
fn digest(out: &Path) -> String {
    let text = std::fs::read(out.join("manifest.json")).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    let phases = |value: &Value| value["phases"].to_string();
    value["manifest_digest"].as_str().map_or_else(|| phases(&value), str::to_owned)
}

/// Files of a data set but those about the run itself.
fn contents(out: &Path) -> Vec<(String, Vec<u8>)> {
    let about_the_run = ["manifest.json", "manifest.json.sha256", "report.html", "downloads.jsonl"];
    let name = |path: &PathBuf| path.strip_prefix(out).unwrap().to_string_lossy().into_owned();
    let ours = |name: &String| {
        !name.contains(".work/")
            && !name.starts_with(".keys/")
            && !about_the_run.contains(&name.rsplit('/').next().unwrap())
    };
    let files = files_below(out).into_iter();
    let files = files.map(|path| (name(&path), path)).filter(|(name, _)| ours(name));
    files.map(|(name, path)| (name, std::fs::read(path).unwrap())).collect()
}

/// Prepares the recipe, and runs it step by step; what both give must be the same.
fn same_as_prep(case: &Case, args: &[&str]) {
    let prep = case.run("prep", args);
    assert_eq!(prep.code, 0, "{}", prep.stderr);
    let work = Work::plan(case, "work", args);
    work.drive_plainly(Order::Mixed);
    let (ours, theirs) = (work.path("out"), case.path("prep"));
    assert_eq!(digest(&ours), digest(&theirs));
    assert_eq!(contents(&ours), contents(&theirs));
    prove(&ours, &case.path("recipe.toml"));
}

/// Sources of several formats, duplicates across them, a cap, dropped rows, held-out rows.
fn mixed() -> Case {
    let case = Case::new();
    let odd = lines([chat("q", ""), chat("what is <|im_end|>?", "x"), chat("q", &"long ".repeat(200))]);
    case.put("a/1.jsonl", chats(50) + &odd);
    case.put("a/2.jsonl", chats_from(40, 30) + "\n\n");
    case.put("b.jsonl.zst", zstd::encode_all(chats_from(65, 40).as_bytes(), 3).unwrap());
    let table = super::formats::prompt_table(40);
    case.put("c.parquet", parquet_bytes(&table, Compression::SNAPPY, 9));
    let array: Vec<_> = (130..140).map(question).map(|(q, a)| chat(&q, &a)).collect();
    case.put("e.json", Value::from(array).to_string());
    case.recipe(
        "[[source]]\nname = \"a\"\npath = \"a\"\n\
         [[source]]\nname = \"b\"\npath = \"b.jsonl.zst\"\nmax_rows = 25\n\
         [[source]]\nname = \"c\"\npath = \"c.parquet\"\nwhere = \"number % 2 = 0\"\n\
         [[source]]\nname = \"e\"\npath = \"e.json\"\n\
         [pack]\nlength = 512\n[output]\npartition_bytes = 3000\nvalidation = 0.2\ncalibration = 3\n",
    );
    case
}

/// One source of a few units and partitions.
fn plain() -> Case {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n{SMALL}"));
    case
}

#[test]
fn formats_caps_held_out_rows_and_calibration_are_those_of_prep() {
    same_as_prep(&mixed(), &[]);
}

#[test]
fn a_trial_of_few_rows_is_that_of_prep() {
    same_as_prep(&mixed(), &["--limit", "9"]);
}

/// A cap that the first round of map does not fill.
fn rounds() -> Case {
    let case = Case::new();
    // One row in ten has an answer, so that the first sampling round is far too small.
    let row = |n: usize| {
        let (user, assistant) = question(n);
        chat(&user, if n.is_multiple_of(10) { &assistant } else { "" })
    };
    case.put("a.jsonl", lines((0..900).map(row)));
    case.put("b.jsonl", chats_from(2000, 20));
    case.recipe(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nmax_rows = 70\n\
         [[source]]\nname = \"b\"\npath = \"b.jsonl\"\n[pack]\nlength = 512\n[output]\npartition_bytes = 40000\n",
    );
    let prep = case.run("prep", &[]);
    assert_eq!(prep.code, 0, "{}", prep.stderr);
    let cut = ["--unit-bytes", "20000", "--chunk-bytes", "3000"];
    let planned = case.potable(&[&["plan", "recipe.toml", "--work", "work"][..], &cut].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    case
}

#[test]
fn a_lost_round_is_found_and_made_again() {
    let case = rounds();
    let work = Work { case: &case, folder: "work" };
    work.drive_plainly(Order::Up);
    for harm in [|path: &Path| std::fs::remove_file(path).unwrap(), damage] {
        for next in ["select", "reduce", "seal"] {
            work.unseal();
            if next != "seal" {
                std::fs::remove_dir_all(work.path("reduce")).unwrap();
            }
            if next == "select" {
                std::fs::remove_dir_all(work.path("select")).unwrap();
            }
            let rounds = files_below(&work.path("rounds"));
            assert!(!rounds.is_empty());
            rounds.iter().for_each(|path| harm(path));
            heal(&work);
            assert_eq!(work.digest(), digest(&case.path("prep")), "before {next}");
            assert_eq!(contents(&work.path("out")), contents(&case.path("prep")), "before {next}");
        }
    }
}

#[test]
fn a_cap_that_needs_a_second_round_is_that_of_prep() {
    let case = rounds();
    let work = Work { case: &case, folder: "work" };
    work.done("map", &[]);
    for _ in 0..2 {
        // Who selects after another one opened a round is told the same.
        let selected = work.step("select", &[]);
        assert_eq!(selected.code, 1, "{}", selected.stderr);
    }
    let status = work.status();
    assert_eq!(status["next"], "map");
    assert_eq!(status["phases"][0]["round"], 2);
    // The source without a cap has nothing to map again.
    let units = status["phases"][0]["units"].as_u64().unwrap() as usize;
    let missing = work.missing("missing_units")[0].1.len();
    assert!(missing > 0 && missing < units, "{status}");
    work.drive_plainly(Order::Down);
    assert_eq!(work.digest(), digest(&case.path("prep")));
    assert_eq!(contents(&work.path("out")), contents(&case.path("prep")));
}

#[test]
fn weights_and_rows_taken_again_are_those_of_prep() {
    let case = Case::new();
    case.put("a.jsonl", chats(15));
    case.put("b.jsonl", chats_from(1000, 60));
    let source = |name: &str, more: &str| {
        format!("[[phase.source]]\nname = \"{name}\"\npath = \"{name}.jsonl\"\n{more}")
    };
    let (a, b) = (source("a", "weight = 0.5\nrepeats = 3\n"), source("b", "weight = 0.5\n"));
    case.recipe(&format!("{SMALL}[[phase]]\nname = \"p\"\nmax_tokens = 8000\n{a}{b}"));
    same_as_prep(&case, &[]);
}

/// Two phases over overlapping rows: the second leaves out the rows of the first.
fn phased() -> Case {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    case.put("b.jsonl", chats_from(35, 15));
    case.recipe(&format!(
        "{SMALL}[[phase]]\nname = \"one\"\n[[phase.source]]\nname = \"a\"\npath = \"a.jsonl\"\nmax_rows = 15\n\
         [[phase]]\nname = \"two\"\nexclude_phase = \"one\"\n[[phase.source]]\nname = \"all\"\npath = [\"a.jsonl\", \"b.jsonl\"]\n"
    ));
    case
}

#[test]
fn phases_that_leave_each_others_rows_out_are_those_of_prep() {
    same_as_prep(&phased(), &[]);
}

#[test]
fn every_shard_format_is_that_of_prep() {
    for format in ShardFormat::ALL.map(ShardFormat::name) {
        let case = Case::new();
        case.put("t.jsonl", lines((0..30).map(|n| serde_json::json!({"text": question(n).1}))));
        case.recipe(&format!(
            "[[source]]\nname = \"t\"\npath = \"t.jsonl\"\n[normalise]\nformat = \"text\"\n\
             [pack]\nlength = 256\n[output]\nformat = \"{format}\"\npartition_bytes = 1500\nvalidation = 0.2\n"
        ));
        same_as_prep(&case, &[]);
    }
}

#[test]
fn a_blocklist_and_a_chat_template_are_kept_in_the_work_folder() {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    case.put("bench.jsonl", lines([serde_json::json!({"prompt": question(7).0 + &question(7).1})]));
    case.put("bench.toml", "name = \"bench\"\nfiles = [\"bench.jsonl\"]\nprompt = \"prompt\"\n");
    case.recipe(&format!(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[decontaminate]\nbenchmarks = [\"bench.toml\"]\n{SMALL}"
    ));
    let prep = case.run("prep", &[]);
    assert_eq!(prep.code, 0, "{}", prep.stderr);
    let work = Work::plan(&case, "work", &[]);
    // Later steps need neither the benchmark nor the tokenizer where they were.
    std::fs::remove_file(case.path("bench.jsonl")).unwrap();
    std::fs::remove_file(case.path("tokenizer.json")).unwrap();
    work.drive_plainly(Order::Up);
    assert_eq!(work.digest(), digest(&case.path("prep")));
}

#[test]
fn units_and_partitions_in_any_order_give_the_same_bytes() {
    let case = plain();
    let all: Vec<_> = [("up", Order::Up), ("down", Order::Down), ("mixed", Order::Mixed)]
        .into_iter()
        .map(|(folder, order)| {
            let work = Work::plan(&case, folder, &[]);
            let status = work.status();
            assert!(status["phases"][0]["units"].as_u64().unwrap() > 4, "{status}");
            assert!(status["phases"][0]["partitions"].as_u64().unwrap() > 3, "{status}");
            work.drive_plainly(order);
            (work.digest(), contents(&work.path("out")))
        })
        .collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn steps_without_numbers_do_all_that_is_missing() {
    let case = plain();
    let prep = case.prep("prep", &[]);
    let work = Work::plan(&case, "work", &["--out", "elsewhere"]);
    work.done("map", &["--unit", "2..4", "--threads", "1"]);
    for step in ["map", "select", "reduce", "seal", "seal"] {
        work.done(step, &["--threads", "2"]);
    }
    assert_eq!(work.next(), "done");
    assert_eq!(case.data("elsewhere").digest(), prep.digest());
    // Nothing is left to do, and nothing is written again.
    let before = case.stamps("work");
    for step in ["map", "select", "reduce", "seal"] {
        work.done(step, &[]);
    }
    assert_eq!(case.stamps("work"), before);
}

#[test]
fn every_step_twice_at_once_gives_the_same_bytes() {
    for case in [mixed(), phased()] {
        let prep = case.run("prep", &[]);
        assert_eq!(prep.code, 0, "{}", prep.stderr);
        let work = Work { case: &case, folder: "work" };
        let mut plan = vec!["recipe.toml"];
        plan.extend(TINY);
        assert_eq!(work.twice("plan", &plan), 0);
        work.drive(Order::Up, |work, step, args| work.twice(step, args));
        assert_eq!(work.digest(), digest(&case.path("prep")));
        assert_eq!(contents(&work.path("out")), contents(&case.path("prep")));
        prove(&work.path("out"), &case.path("recipe.toml"));
    }
}

#[test]
fn many_who_plan_at_once_make_one_plan() {
    let case = plain();
    let work = Work { case: &case, folder: "work" };
    let plan = || work.command("plan", &[&["recipe.toml"][..], &TINY].concat()).spawn().unwrap();
    let all: Vec<Child> = (0..12).map(|_| plan()).collect();
    for child in all {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let prep = case.prep("prep", &[]);
    work.drive_plainly(Order::Up);
    assert_eq!(work.digest(), prep.digest());
}

#[test]
fn steps_killed_on_the_way_go_on_to_the_same_bytes() {
    let case = mixed();
    let prep = case.run("prep", &[]);
    assert_eq!(prep.code, 0, "{}", prep.stderr);
    let work = Work::plan(&case, "work", &[]);
    let scratch = case.path("scratch").display().to_string();
    let mut killed = std::collections::BTreeSet::new();
    loop {
        let next = work.next();
        if next == "done" {
            break;
        }
        // Before the first file that it makes, in the next run before the second one, and so on to its end.
        for after in std::iter::successors(Some(0), |n| Some(n + n / 2 + 1)) {
            let mut command = work.command(&next, &["--scratch", &scratch]);
            match Held::start(&case, &mut command, after, "") {
                Ok(held) => held.kill(),
                Err(ran) => {
                    assert!(ran.code == 0 || (next == "select" && ran.code == 1), "{next}: {}", ran.stderr);
                    break;
                }
            }
            killed.insert(next.clone());
        }
    }
    assert_eq!(killed.len(), 4, "{killed:?}");
    assert_eq!(work.digest(), digest(&case.path("prep")));
    assert_eq!(contents(&work.path("out")), contents(&case.path("prep")), "strays are left");
}

/// Changes one byte in the middle of a file.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    put(path, &bytes);
}

/// Runs steps until all is done, whatever they answer on the way; the plan is made again where a step
/// says so.
fn heal(work: &Work) {
    let mut said = String::new();
    for _ in 0..30 {
        let next = work.next();
        if next == "done" {
            return;
        }
        let ran = work.step(&next, &[]);
        assert!(ran.code >= 0, "{next} was killed");
        if ran.code == 2 && ran.stderr.contains("potable plan") {
            assert_eq!(work.plan_again(&[]).code, 0);
        }
        said = ran.stderr;
    }
    panic!("it does not come to an end: {}\n{said}", work.status());
}

#[test]
fn a_damaged_staged_file_of_any_kind_is_found_and_made_again() {
    found_and_made_again(damage);
}

#[test]
fn a_missing_staged_file_of_any_kind_is_found_and_made_again() {
    found_and_made_again(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn an_empty_staged_file_of_any_kind_is_found_and_made_again() {
    found_and_made_again(|path| put(path, b""));
}

fn found_and_made_again(damage: fn(&Path)) {
    let case = mixed();
    let prep = case.run("prep", &[]);
    assert_eq!(prep.code, 0, "{}", prep.stderr);
    let work = Work::plan(&case, "work", &[]);
    let (mut kinds, mut seen) = (0, std::collections::BTreeSet::new());
    // Before each step, a file of each kind that the steps before left.
    for step in ["map", "select", "reduce", "seal"] {
        for name in work.files() {
            let kind: String = name.chars().filter(|c| !c.is_ascii_digit()).collect();
            if name == "plan.json" || !seen.insert((step, kind)) {
                continue;
            }
            damage(&work.path(&name));
            heal(&work);
            kinds += 1;
            assert_eq!(work.digest(), digest(&case.path("prep")), "{name} damaged before {step}");
            assert_eq!(contents(&work.path("out")), contents(&case.path("prep")), "{name} before {step}");
            work.unseal();
        }
        if step != "seal" {
            work.step(step, &[]);
        }
    }
    assert!(kinds > 8, "{kinds}");
}

#[test]
fn a_shard_that_is_damaged_gone_or_cut_before_seal_is_written_again() {
    let case = mixed();
    let prep = case.run("prep", &[]);
    assert_eq!(prep.code, 0, "{}", prep.stderr);
    let work = Work::plan(&case, "work", &[]);
    for step in ["map", "select", "select", "reduce"] {
        work.step(step, &[]);
    }
    while work.next() != "seal" {
        work.step(&work.next(), &[]);
    }
    let cut = |path: &Path| put(path, &std::fs::read(path).unwrap()[1..]);
    for harm in [damage, |path: &Path| std::fs::remove_file(path).unwrap(), cut] {
        let shards = files_below(&work.path("out/shards"));
        shards.iter().step_by(2).for_each(|path| harm(path));
        let shown = shards[0].file_name().unwrap().to_str().unwrap();
        work.step("seal", &[]).is_refusal(&[shown, "potable reduce"]);
        heal(&work);
        assert_eq!(work.digest(), digest(&case.path("prep")));
        assert_eq!(contents(&work.path("out")), contents(&case.path("prep")));
        work.unseal();
    }
}

#[test]
fn a_damaged_plan_is_refused() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    let text = std::fs::read_to_string(work.path("plan.json")).unwrap();
    let digit = text.find("\"partitions\": ").unwrap() + "\"partitions\": ".len();
    let mut other = text.clone().into_bytes();
    other[digit] = if other[digit] == b'3' { b'4' } else { b'3' };
    // A number alone, which would change what is read.
    let mut hash = text.clone().into_bytes();
    let threshold = text.find("\"first_row\": ").unwrap() + "\"first_row\": ".len();
    hash[threshold] = if hash[threshold] == b'1' { b'2' } else { b'1' };
    for bytes in [
        &text.as_bytes()[..text.len() / 2],
        other.as_slice(),
        hash.as_slice(),
        b"{}".as_slice(),
        b"".as_slice(),
    ] {
        put(&work.path("plan.json"), bytes);
        work.step("map", &["--unit", "0"]).is_refusal(&["plan.json"]);
    }
    put(&work.path("plan.json"), text.as_bytes());
    work.drive_plainly(Order::Up);
}

#[test]
fn the_same_plan_again_changes_nothing() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    let before = std::fs::read(work.path("plan.json")).unwrap();
    work.done("map", &["--unit", "0"]);
    assert_eq!(work.plan_again(&[]).code, 0);
    assert_eq!(std::fs::read(work.path("plan.json")).unwrap(), before);
    work.drive_plainly(Order::Up);
    assert_eq!(work.plan_again(&[]).code, 0);
    assert_eq!(work.next(), "done");
}

#[test]
fn a_plan_by_another_name_or_of_files_with_other_times_is_the_same_plan() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    work.done("map", &["--unit", "0"]);
    let before = std::fs::read(work.path("plan.json")).unwrap();
    let rows = std::fs::File::options().write(true).open(case.path("a.jsonl")).unwrap();
    rows.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    for recipe in ["./recipe.toml", case.path("recipe.toml").to_str().unwrap()] {
        let again = case.potable(&["plan", recipe, "--work", "work"]);
        assert_eq!(again.code, 0, "{}", again.stderr);
    }
    assert_eq!(std::fs::read(work.path("plan.json")).unwrap(), before);
    let prep = case.prep("prep", &[]);
    work.drive_plainly(Order::Up);
    assert_eq!(work.digest(), prep.digest());
}

#[test]
fn a_plan_that_is_refused_has_changed_nothing_of_the_one_that_is_there() {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    for (name, row) in [("one", 7), ("two", 9)] {
        case.put(
            &format!("{name}.jsonl"),
            lines([serde_json::json!({"prompt": question(row).0 + &question(row).1})]),
        );
        case.put(
            &format!("{name}.bench.toml"),
            format!("name = \"{name}\"\nfiles = [\"{name}.jsonl\"]\nprompt = \"prompt\"\n"),
        );
    }
    let recipe = |benchmark: &str| {
        case.recipe(&format!(
            "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[decontaminate]\nbenchmarks = [\"{benchmark}.bench.toml\"]\n{SMALL}"
        ));
    };
    recipe("one");
    let prep = case.run("prep", &[]);
    assert_eq!(prep.code, 0, "{}", prep.stderr);
    let work = Work::plan(&case, "work", &[]);
    work.done("map", &["--unit", "0"]);
    let before = contents(&work.path(""));
    recipe("two");
    work.plan_again(&[]).is_refusal(&["another plan", "the recipe"]);
    assert_eq!(contents(&work.path("")), before);
    work.drive_plainly(Order::Up);
    assert_eq!(work.digest(), digest(&case.path("prep")));
}

#[test]
fn an_output_folder_is_of_one_plan_and_of_no_prep_until_it_is_sealed() {
    let case = plain();
    let work = Work::plan(&case, "work", &["--out", "data"]);
    let recipe = std::fs::read_to_string(case.path("recipe.toml")).unwrap();
    let other = || case.put("recipe.toml", recipe.replace("length = 512", "length = 256"));
    let plan = |folder: &str| case.potable(&["plan", "recipe.toml", "--work", folder, "--out", "data"]);
    other();
    plan("theirs").is_refusal(&["data", "another plan"]);
    case.run("data", &[]).is_refusal(&["data", "potable plan"]);
    case.put("recipe.toml", &recipe);
    // The same plan in another work folder makes the same bytes.
    assert_eq!(plan("twin").code, 0);
    work.drive_plainly(Order::Up);
    let sealed = contents(&case.path("data"));
    other();
    plan("theirs").is_refusal(&["data", "holds a data set"]);
    assert_eq!(contents(&case.path("data")), sealed);
    let twin = Work { case: &case, folder: "twin" };
    twin.done("map", &[]);
    twin.done("select", &[]);
    twin.step("reduce", &[]).is_refusal(&["data", "this plan did not make"]);
    twin.step("seal", &[]).is_refusal(&["data"]);
    assert_eq!(contents(&case.path("data")), sealed);
}

#[test]
fn work_and_output_folders_inside_each_other_are_refused() {
    let case = plain();
    for (work, out) in [("a", "a"), ("a/.work", "a"), ("a/w", "a"), ("a", "a/map"), ("a", "a/select/x")] {
        let plan = case.potable(&["plan", "recipe.toml", "--work", work, "--out", out]);
        plan.is_refusal(&["a", "work folder", "--out"]);
    }
    for (work, out) in [("b", "b/out"), ("c", "c/out/deep"), ("d", "d2"), ("e2", "e")] {
        let plan = case.potable(&["plan", "recipe.toml", "--work", work, "--out", out]);
        assert_eq!(plan.code, 0, "{}", plan.stderr);
    }
}

#[test]
fn a_plan_that_cuts_the_work_otherwise_leaves_the_first_cut() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    work.done("map", &["--unit", "0"]);
    let before = (work.status(), std::fs::read(work.path("plan.json")).unwrap());
    let again = case.potable(&["plan", "recipe.toml", "--work", "work", "--format", "json"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let said: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(said["phases"][0]["units"], before.0["phases"][0]["units"]);
    assert_eq!((work.status(), std::fs::read(work.path("plan.json")).unwrap()), before);
    let prep = case.prep("prep", &[]);
    work.drive_plainly(Order::Up);
    assert_eq!(work.digest(), prep.digest());
}

#[test]
fn a_plan_of_another_recipe_in_the_same_work_folder_is_refused() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    let recipe = std::fs::read_to_string(case.path("recipe.toml")).unwrap();
    case.put("recipe.toml", recipe.replace("length = 512", "length = 256"));
    work.plan_again(&[]).is_refusal(&["work", "another plan"]);
    // The steps go on with the first plan.
    case.put("recipe.toml", recipe);
    let prep = case.prep("prep", &[]);
    work.drive_plainly(Order::Up);
    assert_eq!(work.digest(), prep.digest());
}

#[test]
fn an_output_folder_with_something_else_in_it_is_refused() {
    let case = plain();
    case.put("mine/notes.txt", "mine");
    let plan = |out: &str| case.potable(&["plan", "recipe.toml", "--work", "work", "--out", out]);
    plan("mine").is_refusal(&["mine"]);
    case.prep("prep", &[]);
    plan("prep").is_refusal(&["prep"]);
    assert!(!case.path("work/plan.json").exists());
}

#[test]
fn a_step_before_its_turn_is_refused() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    work.step("select", &[]).is_refusal(&["potable map"]);
    work.step("reduce", &[]).is_refusal(&["potable"]);
    work.step("seal", &[]).is_refusal(&["potable"]);
    work.done("map", &[]);
    work.step("reduce", &["--partition", "0"]).is_refusal(&["potable select"]);
    work.step("seal", &[]).is_refusal(&["potable"]);
    work.done("select", &[]);
    work.done("reduce", &["--partition", "0"]);
    work.step("seal", &[]).is_refusal(&["potable reduce"]);
    assert!(!work.path("out/manifest.json").exists(), "a manifest is left");
}

#[test]
fn a_phase_before_the_phase_that_it_excludes_is_refused() {
    let case = phased();
    let work = Work::plan(&case, "work", &[]);
    work.done("map", &[]);
    work.step("select", &["--phase", "two"]).is_refusal(&["one", "potable select"]);
}

#[test]
fn numbers_that_there_are_not_are_refused() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    let status = work.status();
    let count = |what: &str| status["phases"][0][what].as_u64().unwrap();
    let (units, partitions) = (count("units"), count("partitions"));
    for range in [format!("{units}"), format!("0..{}", units + 1), "999999".to_owned()] {
        work.step("map", &["--unit", &range]).is_refusal(&[&units.to_string()]);
    }
    work.done("map", &["--unit", &format!("0..{units}")]);
    work.done("select", &[]);
    work.step("reduce", &["--partition", &format!("{partitions}")]).is_refusal(&[&partitions.to_string()]);
    work.done("reduce", &["--partition", &format!("0..{partitions}")]);
    for range in ["3..3", "4..2", "-1", "x", "1..", ""] {
        assert_eq!(work.step("map", &["--unit", range]).code, 2, "{range}");
    }
}

#[test]
fn numbers_without_their_phase_and_unknown_phases_are_refused() {
    let case = phased();
    let work = Work::plan(&case, "work", &[]);
    work.step("map", &["--unit", "0"]).is_refusal(&["--phase", "one", "two"]);
    work.step("map", &["--phase", "three"]).is_refusal(&["three", "one", "two"]);
    work.done("map", &["--phase", "two", "--unit", "0"]);
    let alone = plain();
    let work = Work::plan(&alone, "work", &[]);
    work.step("map", &["--phase", "three"]).is_refusal(&["three"]);
}

#[test]
fn a_work_folder_that_is_not_there_is_refused() {
    let case = plain();
    let work = Work { case: &case, folder: "nowhere" };
    for step in ["map", "select", "reduce", "seal", "status"] {
        work.step(step, &[]).is_refusal(&["nowhere", "potable plan"]);
    }
    assert!(!case.path("nowhere").exists(), "a step made a folder");
}

#[test]
fn a_plan_of_another_layout_or_another_potable_is_refused() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    let text = std::fs::read_to_string(work.path("plan.json")).unwrap();
    let changed = |key: &str, to: &str| {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        value[key] = to.into();
        put(&work.path("plan.json"), value.to_string().as_bytes());
    };
    changed("schema", "potable-work-999");
    work.step("map", &[]).is_refusal(&["potable-work-999"]);
    changed("potable", "9.9.9");
    work.step("map", &[]).is_refusal(&["9.9.9", env!("CARGO_PKG_VERSION")]);
}

#[test]
fn an_input_that_changed_since_the_plan_is_refused() {
    let case = plain();
    let work = Work::plan(&case, "work", &[]);
    let text = std::fs::read_to_string(case.path("a.jsonl")).unwrap();
    case.put("a.jsonl", text.replace("river", "rover"));
    work.step("map", &["--unit", "0"]).is_refusal(&["a.jsonl"]);
    case.put("a.jsonl", text.clone() + "\n");
    work.step("map", &["--unit", "0"]).is_refusal(&["a.jsonl"]);
    // Another copy of the same bytes, as on another machine, is the same input.
    case.put("a.jsonl", text);
    let prep = case.prep("prep", &[]);
    work.drive_plainly(Order::Up);
    assert_eq!(work.digest(), prep.digest());
}

#[test]
fn an_input_that_is_gone_since_the_plan_is_refused() {
    let case = plain();
    case.put("b/1.jsonl", chats_from(100, 20));
    case.put("b/2.jsonl", chats_from(200, 20));
    case.recipe(&format!("[[source]]\nname = \"b\"\npath = \"b/*.jsonl\"\n{SMALL}"));
    let work = Work::plan(&case, "work", &[]);
    std::fs::remove_file(case.path("b/1.jsonl")).unwrap();
    work.step("map", &["--unit", "0"]).is_refusal(&["1.jsonl"]);
}

#[test]
fn a_file_added_since_the_plan_is_not_read() {
    let case = plain();
    case.put("b/2.jsonl", chats_from(200, 20));
    case.recipe(&format!("[[source]]\nname = \"b\"\npath = \"b/*.jsonl\"\n{SMALL}"));
    let prep = case.prep("prep", &[]);
    let work = Work::plan(&case, "work", &[]);
    case.put("b/1.jsonl", chats_from(100, 20));
    work.drive_plainly(Order::Up);
    assert_eq!(work.digest(), prep.digest());
}

#[test]
fn a_row_that_cannot_be_read_stops_its_unit_with_its_place() {
    let case = Case::new();
    case.put("a.jsonl", chats(20) + "{\"messages\": [\n" + &chats_from(20, 20));
    case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n{SMALL}"));
    let planned = case.potable(&["plan", "recipe.toml", "--work", "work"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let work = Work { case: &case, folder: "work" };
    work.step("map", &[]).is_refusal(&["a.jsonl:21"]);
    work.step("select", &[]).is_refusal(&["potable map"]);
}

#[test]
fn rows_that_could_not_be_read_are_told_by_the_exit_status_of_seal() {
    let case = Case::new();
    case.put("a.jsonl", chats(20) + "{\"messages\": [\n" + &chats_from(20, 20));
    case.recipe(&format!("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\non_bad_row = \"drop\"\n{SMALL}"));
    let prep = case.run("prep", &[]);
    assert_eq!(prep.code, 1, "{}", prep.stderr);
    let work = Work::plan(&case, "work", &[]);
    for step in ["map", "select", "reduce"] {
        work.done(step, &[]);
    }
    assert_eq!(work.step("seal", &[]).code, 1);
    assert_eq!(work.digest(), digest(&case.path("prep")));
}

#[test]
fn steps_may_run_in_another_folder_than_the_plan() {
    let case = plain();
    let prep = case.prep("prep", &[]);
    let work = Work::plan(&case, "work", &[]);
    std::fs::create_dir_all(case.path("other")).unwrap();
    let folder = case.path("work");
    for step in ["map", "select", "reduce", "seal"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_potable"));
        command.current_dir(case.path("other")).args([step, "--work", folder.to_str().unwrap()]);
        let ran = ran(command.stdin(Stdio::null()));
        assert_eq!(ran.code, 0, "{step}: {}", ran.stderr);
    }
    assert_eq!(work.digest(), prep.digest());
}

/// Steps in a bucket, each by a process of its own.
#[cfg(feature = "object-store")]
struct InBucket {
    case: Case,
    stub: super::s3_stub::S3Stub,
}

#[cfg(feature = "object-store")]
impl InBucket {
    const WORK: [&str; 2] = ["--work", "s3://bucket/runs/a"];

    fn plan() -> InBucket {
        let here = InBucket { case: mixed(), stub: super::s3_stub::S3Stub::new() };
        let prep = here.case.run("prep", &[]);
        assert_eq!(prep.code, 0, "{}", prep.stderr);
        here.plan_again();
        here
    }

    fn step(&self, step: &str, args: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_potable"));
        command.current_dir(self.case.path("")).arg(step).args(args).args(Self::WORK).stdin(Stdio::null());
        self.stub.command(&mut command);
        ran(&mut command)
    }

    fn done(&self, step: &str, args: &[&str]) -> String {
        let ran = self.step(step, args);
        assert_eq!(ran.code, 0, "{step} {args:?}: {}", ran.stderr);
        ran.stdout
    }

    fn plan_again(&self) {
        self.done("plan", &[&["recipe.toml", "--out", "s3://bucket/data"][..], &TINY].concat());
    }

    fn next(&self) -> String {
        let status: Value = serde_json::from_str(&self.done("status", &["--format", "json"])).unwrap();
        status["next"].as_str().unwrap().to_owned()
    }

    /// What is in the bucket is the data set, file by file.
    fn same_as_prep(&self) {
        let fetched = self.case.path("fetched");
        let _earlier = std::fs::remove_dir_all(&fetched);
        for key in self.stub.keys().into_iter().filter(|key| key.starts_with("data/")) {
            let name = key.strip_prefix("data/").unwrap();
            put(&fetched.join(name), &self.stub.object(&key).unwrap());
        }
        assert_eq!(digest(&fetched), digest(&self.case.path("prep")));
        assert_eq!(contents(&fetched), contents(&self.case.path("prep")));
        prove(&fetched, &self.case.path("recipe.toml"));
    }

    fn heal(&self, what: &str) {
        let mut said = String::new();
        for _ in 0..30 {
            let next = self.next();
            if next == "done" {
                return;
            }
            let ran = self.step(&next, &[]);
            if ran.code == 2 && ran.stderr.contains("potable plan") {
                self.plan_again();
            }
            said = ran.stderr;
        }
        panic!("{what}: it does not come to an end: {said}");
    }
}

#[cfg(feature = "object-store")]
#[test]
fn a_work_folder_and_an_output_in_a_bucket_give_what_prep_gives() {
    let here = InBucket::plan();
    here.plan_again();
    for name in ["map", "select", "reduce", "seal"] {
        here.done(name, &[]);
    }
    assert_eq!(here.next(), "done");
    here.same_as_prep();
}

#[cfg(feature = "object-store")]
#[test]
fn an_object_of_any_kind_that_is_cut_or_gone_is_found_and_made_again() {
    let here = InBucket::plan();
    let mut seen = std::collections::BTreeSet::new();
    for step in ["map", "select", "reduce", "seal"] {
        for key in here.stub.keys() {
            let kind: String = key.chars().filter(|c| !c.is_ascii_digit()).collect();
            let work = key.starts_with("runs/a/") && !key.ends_with("plan.json");
            if !work || seen.contains(&kind) {
                continue;
            }
            // One kind of file is cut, the next is gone; both ways of each are tried in a folder.
            seen.insert(kind);
            let gone = seen.len() % 2 == 0;
            {
                let what = format!("{key} {} before {step}", if gone { "gone" } else { "cut" });
                match here.stub.object(&key) {
                    Some(bytes) if !gone => here.stub.put(&key, &bytes[..bytes.len() / 2]),
                    _ => here.stub.remove(&key),
                }
                here.heal(&what);
                here.same_as_prep();
                here.stub.remove("data/manifest.json");
                here.stub.remove("data/manifest.json.sha256");
            }
        }
        if step != "seal" {
            here.done(step, &[]);
        }
    }
    assert!(seen.len() > 8, "{}", seen.len());
}
