//! Same recipe, same bytes: whatever the threads, the cut, the order of units, a kill on the way.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use parquet::basic::Compression;

use super::harness::{Case, DataSet, chat, chats, chats_from, files_below, lines, parquet_bytes, question};
use super::held::Held;

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

/// Kills the command when it is about to give file `after`, from 0, of those whose path contains `part` its name.
fn kill_at(case: &Case, command: &mut Command, after: usize, part: &str) {
    match Held::start(case, command, after, part) {
        Ok(held) => held.kill(),
        Err(ran) => panic!("no file {after} of `{part}`: exit status {}: {}", ran.code, ran.stderr),
    }
}

#[test]
fn a_run_killed_at_any_point_of_map_and_reduce_goes_on_to_the_same_bytes() {
    let case = case();
    let first = case.prep("undisturbed", &[]);
    let cut = ["--unit-bytes", "2500", "--chunk-bytes", "300"];
    let out = case.path("out");
    // Each run goes on from where the one before was killed.
    for (after, part) in [
        (0, "/.work/map-"),
        (7, "/.work/map-"),
        (2, ".done"),
        (40, "/.work/map-"),
        (0, "/.work/select-"),
        (0, "/shards/"),
        (0, "/.work/reduce-"),
        (3, "/.work/reduce-"),
        (3, "/shards/"),
        (0, "/dropped/"),
        (0, "/recipe.lock"),
        (0, "/manifest.json"),
        (1, "/manifest.json"),
    ] {
        kill_at(&case, &mut case.command("out", &cut), after, part);
        assert!(!out.join("manifest.json").exists());
    }
    same(&case.prep("out", &cut), &first, "after the kills");
    assert!(!out.join(".work/map").exists());
}

#[test]
fn a_killed_run_does_not_do_finished_work_again() {
    let case = case();
    let cut = ["--unit-bytes", "2500", "--chunk-bytes", "300", "--keep-work"];
    // The other thread may not yet have named the one before.
    kill_at(&case, &mut case.command("out", &cut), 4, ".done");
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
    kill_at(&case, &mut command, 9, ".arrow");
    assert!(!out.join("manifest.json").exists());
    same(&case.prep("out", &["--threads", "1", "--chunk-bytes", "1000"]), &first, "another cut");
}

#[test]
fn a_recipe_changed_after_a_kill_uses_nothing_of_the_old_work() {
    let case = case();
    let cut = ["--unit-bytes", "2500", "--chunk-bytes", "300"];
    kill_at(&case, &mut case.command("out", &cut), 2, "/.work/reduce-");
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
    let cut = ["--unit-bytes", "6000", "--chunk-bytes", "400"];
    let mut rounds = BTreeSet::new();
    for after in (0..).step_by(4) {
        match Held::start(&case, &mut case.command("out", &cut), after, "/.work/map-") {
            Ok(held) => held.kill(),
            Err(ran) => {
                assert_eq!(ran.code, 0, "{}", ran.stderr);
                break;
            }
        }
        let staged = files_below(&case.path("out/.work"));
        let later = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("s0000-") && !name.starts_with("s0000-start-")
        };
        rounds.insert(staged.iter().any(later));
    }
    assert_eq!(rounds.len(), 2, "it was killed in the first round and in a later one");
    same(&case.data("out"), &first, "after the kills");
}

#[test]
fn an_interrupted_run_ends_with_130_and_goes_on_to_the_same_bytes() {
    let case = case();
    let first = case.prep("undisturbed", &[]);
    let out = case.path("out");
    let cut = ["--unit-bytes", "2500", "--chunk-bytes", "1", "--threads", "1"];
    for (signal, part) in
        [("-INT", ".arrow"), ("-TERM", ".arrow"), ("-INT", "/.work/reduce-"), ("-TERM", "/shards/")]
    {
        let held = Held::start(&case, &mut case.command("out", &cut), 2, part).ok().unwrap();
        let ran = held.interrupt(signal);
        assert_eq!(ran.code, 130, "{signal} at {part}: {}", ran.stderr);
        assert!(!out.join("manifest.json").exists());
    }
    same(&case.prep("out", &cut), &first, "after the interrupts");
}

#[test]
fn two_runs_never_write_into_one_folder_at_once() {
    let case = case();
    let undisturbed = case.prep("undisturbed", &[]);
    for (out, after, part) in
        [("map", 0, ".arrow"), ("reduce", 1, "/.work/reduce-"), ("seal", 1, "/manifest.json")]
    {
        let first = Held::start(&case, &mut case.command(out, &[]), after, part).ok().unwrap();
        case.run(out, &[]).is_refusal(&[out, "another potable is writing here"]);
        let first = first.let_go();
        assert_eq!(first.code, 0, "{}", first.stderr);
        same(&case.data(out), &undisturbed, "after the refusal");
    }
}
