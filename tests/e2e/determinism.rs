//! Same recipe, same bytes: whatever the threads, the cut, the order of units, a kill on the way.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use parquet::basic::Compression;

use super::harness::{Case, DataSet, chat, chats, chats_from, files_below, lines, parquet_bytes, question};

/// Sources of every format, duplicates across them, a cap, dropped rows, validation.
fn case() -> Case {
    let case = Case::new();
    let odd = lines([chat("q", ""), chat("what is <|im_end|>?", "x"), chat("q", &"long ".repeat(80))]);
    case.put("a/1.jsonl", chats(90) + &odd);
    case.put("a/2.jsonl", chats_from(80, 60) + "\n\n");
    case.put("b.jsonl.zst", zstd::encode_all(chats_from(130, 90).as_bytes(), 3).unwrap());
    let table = super::formats::prompt_table(100);
    case.put("c.parquet", parquet_bytes(&table, Compression::SNAPPY, 9));
    let pairs = |first: usize| (first..first + 25).map(question);
    let csv: String = pairs(300).map(|(q, a)| format!("{q},{a}\n")).collect();
    case.put("d.csv", format!("prompt,response\n{csv}"));
    let array: Vec<_> = pairs(330).map(|(q, a)| chat(&q, &a)).collect();
    case.put("e.json", serde_json::Value::from(array).to_string());
    case.put("f.arrow", super::formats::arrow_stream(&super::formats::prompt_table_from(360, 25), 9));
    case.recipe(
        "[[source]]\nname = \"a\"\npath = \"a\"\n\
         [[source]]\nname = \"b\"\npath = \"b.jsonl.zst\"\nmax_rows = 50\n\
         [[source]]\nname = \"c\"\npath = \"c.parquet\"\nwhere = \"number % 2 = 0\"\n\
         [[source]]\nname = \"d\"\npath = \"d.csv\"\n\
         [[source]]\nname = \"e\"\npath = \"e.json\"\n\
         [[source]]\nname = \"f\"\npath = \"f.arrow\"\n\
         [pack]\nlength = [128, 256]\n\
         [output]\npartition_bytes = 6000\nshard_tokens = 3000\nvalidation = 0.1\n",
    );
    case
}

fn same(one: &DataSet, other: &DataSet, what: &str) {
    assert_eq!(one.digest(), other.digest(), "{what}");
    assert_eq!(one.bytes, other.bytes, "{what}");
    assert_eq!(one.dropped, other.dropped, "{what}");
}

#[test]
fn bytes_are_the_same_for_any_threads_cut_and_order_of_units() {
    let case = case();
    let first = case.prep("out", &["--threads", "1"]);
    super::packing::balances(&first);
    assert!(first.shards.len() > 8, "{}", first.shards.len());
    for (n, args) in [
        &["--threads", "2"][..],
        &["--threads", "7"],
        &["--unit-bytes", "1"],
        &["--unit-bytes", "900", "--chunk-bytes", "1"],
        &["--unit-bytes", "3000", "--chunk-bytes", "700", "--reverse-units"],
        &["--chunk-bytes", "333", "--reverse-units", "--threads", "1"],
    ]
    .into_iter()
    .enumerate()
    {
        same(&case.prep(&format!("out{n}"), args), &first, &args.join(" "));
    }
}

#[test]
fn bytes_are_the_same_with_the_built_in_tokenizer() {
    let case = case();
    let text = std::fs::read_to_string(case.path("recipe.toml")).unwrap();
    case.put("recipe.toml", text.replace("tokenizer.json", "qwen3"));
    let first = case.prep("out", &["--threads", "1"]);
    same(
        &case.prep("other", &["--unit-bytes", "900", "--chunk-bytes", "500", "--reverse-units"]),
        &first,
        "qwen3",
    );
}

#[test]
fn bytes_do_not_depend_on_where_files_and_recipe_lie() {
    let one = case();
    let other = case();
    same(&other.prep("elsewhere/deep", &[]), &one.prep("out", &[]), "another folder");
}

#[test]
fn the_manifest_digest_covers_what_decides_the_data_and_not_who_made_it() {
    let case = case();
    let data = case.prep("out", &[]);
    let text = std::fs::read_to_string(case.path("recipe.toml")).unwrap();
    case.put("recipe.toml", format!("# a comment\n{text}"));
    assert_eq!(case.prep("comment", &[]).digest(), data.digest());
    case.put("recipe.toml", text.replace("max_rows = 50", "max_rows = 49"));
    assert_ne!(case.prep("cap", &[]).digest(), data.digest());
}

/// A spin over `done` until the child has ended; kills it as soon as `done` is true.
fn kill_when(command: &mut Command, signal: &str, done: impl Fn() -> bool) -> ExitStatus {
    let mut child: Child = command.spawn().unwrap();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if done() {
            if signal == "-KILL" {
                child.kill().unwrap();
                return child.wait().unwrap();
            }
            let pid = child.id().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
            return child.wait().unwrap();
        }
        std::thread::yield_now();
    }
}

fn count(folder: &Path, part: &str, extension: &str) -> usize {
    let ours = |path: &&std::path::PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !hidden && path.to_string_lossy().contains(part) && path.extension().is_some_and(|e| e == extension)
    };
    files_below(folder).iter().filter(ours).count()
}

#[test]
fn a_run_killed_at_any_point_of_map_and_reduce_goes_on_to_the_same_bytes() {
    let case = case();
    let first = case.prep("undisturbed", &[]);
    let cut = ["--unit-bytes", "2500", "--chunk-bytes", "300"];
    let out = case.path("out");
    for (part, extension, target) in [
        ("/.work/map-", "arrow", 1),
        ("/.work/map-", "arrow", 7),
        ("/.work/map-", "done", 3),
        ("/.work/map-", "arrow", 60),
        ("/.work/reduce-", "json", 1),
        ("/.work/reduce-", "json", 4),
        ("/dropped/", "parquet", 1),
    ] {
        let status =
            kill_when(&mut case.command("out", &cut), "-KILL", || count(&out, part, extension) >= target);
        let sealed = out.join("manifest.json").exists();
        assert!(status.code().is_none() || sealed, "it ended with {status}");
        if sealed {
            break;
        }
    }
    same(&case.prep("out", &cut), &first, "after the kills");
    assert!(!out.join(".work/map").exists());
}

#[test]
fn a_killed_run_does_not_do_finished_work_again() {
    let case = case();
    let cut = ["--unit-bytes", "2500", "--chunk-bytes", "300", "--keep-work"];
    let out = case.path("out");
    let status =
        kill_when(&mut case.command("out", &cut), "-KILL", || count(&out, "/.work/map-", "done") >= 3);
    assert_eq!(status.code(), None, "it ended before it was killed");
    let finished: Vec<_> = case
        .stamps("out/.work")
        .into_iter()
        .filter(|(p, _)| p.extension().is_some_and(|e| e == "done"))
        .collect();
    assert!(finished.len() >= 3);
    case.prep("out", &cut);
    let after = case.stamps("out/.work");
    for (path, stamp) in finished {
        assert_eq!(after.get(&path), Some(&stamp), "{}", path.display());
    }
}

#[test]
fn a_killed_run_may_go_on_with_another_cut_and_other_threads() {
    let case = case();
    let first = case.prep("undisturbed", &[]);
    let out = case.path("out");
    let mut command = case.command("out", &["--unit-bytes", "2500", "--chunk-bytes", "300"]);
    let status = kill_when(&mut command, "-KILL", || count(&out, "/.work/map-", "arrow") >= 9);
    assert_eq!(status.code(), None, "it ended before it was killed");
    assert!(!out.join("manifest.json").exists());
    same(&case.prep("out", &["--threads", "1", "--chunk-bytes", "1000"]), &first, "another cut");
}

#[test]
fn a_recipe_changed_after_a_kill_uses_nothing_of_the_old_work() {
    let case = case();
    let out = case.path("out");
    let cut = ["--unit-bytes", "2500", "--chunk-bytes", "300"];
    let status =
        kill_when(&mut case.command("out", &cut), "-KILL", || count(&out, "/.work/reduce-", "json") >= 2);
    assert_eq!(status.code(), None, "it ended before it was killed");
    let text = std::fs::read_to_string(case.path("recipe.toml")).unwrap();
    case.put("recipe.toml", text.replace("[128, 256]", "[200]").replace("name = \"c\"", "name = \"g\""));
    let other = case.prep("other", &[]);
    same(&case.prep("out", &cut), &other, "changed recipe");
}

#[test]
fn a_capped_run_killed_between_its_rounds_takes_the_same_rows() {
    // One row in ten has an answer, so that several sampling rounds are needed.
    let rows = (0..300).map(|n| chat(&format!("question {n}"), if n % 10 == 0 { "yes" } else { "" }));
    let case = Case::new();
    case.put("a.jsonl", lines(rows));
    case.recipe("[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nmax_rows = 20\n");
    let first = case.prep("undisturbed", &[]);
    let out = case.path("out");
    let cut = ["--unit-bytes", "6000", "--chunk-bytes", "400"];
    for target in [5, 30, 50, 70] {
        let mut command = case.command("out", &cut);
        let status = kill_when(&mut command, "-KILL", || count(&out, "/.work/map-", "arrow") >= target);
        if status.success() {
            break;
        }
    }
    same(&case.prep("out", &cut), &first, "after the kills");
}

#[test]
fn an_interrupted_run_ends_with_130_and_goes_on_to_the_same_bytes() {
    let case = case();
    let first = case.prep("undisturbed", &[]);
    let out = case.path("out");
    let cut = ["--unit-bytes", "2500", "--chunk-bytes", "1", "--threads", "1"];
    for signal in ["-INT", "-TERM"] {
        // Work of its own, so that the handler is in place.
        let target = count(&out, "/.work/map-", "arrow") + 2;
        let mut command = case.command("out", &cut);
        let status = kill_when(&mut command, signal, || count(&out, "/.work/map-", "arrow") >= target);
        assert_eq!(status.code(), Some(130), "{signal}");
        assert!(!out.join("manifest.json").exists());
    }
    same(&case.prep("out", &cut), &first, "after the interrupts");
}

#[test]
fn two_runs_never_write_into_one_folder_at_once() {
    let case = case();
    let out = case.path("out");
    let slow = ["--unit-bytes", "2500", "--chunk-bytes", "1", "--threads", "1"];
    let mut child = case.command("out", &slow).spawn().unwrap();
    while count(&out, "/.work/map-", "arrow") == 0 && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-STOP", &child.id().to_string()]).status().unwrap().success());
    let second = case.run("out", &[]);
    assert!(Command::new("kill").args(["-CONT", &child.id().to_string()]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    second.is_refusal(&["out", "another potable is writing here"]);
    case.data("out");
}
