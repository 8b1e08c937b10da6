use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::harness::{Case, DataSet, chat, chats, lines};
use super::packing::balances;

const NEAR: &str = "[dedup]\nnear = 0.8\n";
const SMALL: &str = "[output]\npartition_bytes = 20000\n";

/// `count` words that no other `n` has.
fn words(n: u64, count: u64) -> Vec<String> {
    let word = |at: u64| {
        let mut hash = (n * 1_000_003 + at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let letters = (0..6).map(|_| {
            hash = hash.rotate_left(11).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            char::from(b'a' + (hash >> 40) as u8 % 26)
        });
        letters.collect::<String>()
    };
    (0..count).map(word).collect()
}

/// The text of row `n`.
fn text(n: u64) -> String {
    words(n, 300).join(" ")
}

/// The text of row `n` with a word in so many changed. Each change touches five of the shingles, so
/// that one in 100 leaves a Jaccard similarity of 95/105 = 0.905, one in 10 of 5/15 = 0.333.
fn edited(n: u64, every: usize) -> String {
    let mut words = words(n, 300);
    for at in (every / 2..300).step_by(every) {
        words[at] = format!("edit{}", if at % 2 == 0 { "ed" } else { "or" });
    }
    words.join(" ")
}

/// The text of row `n` in other spelling: the same words to the normaliser.
fn respelt(n: u64) -> String {
    words(n, 300).iter().map(|word| format!("{} — ", word.to_uppercase())).collect()
}

fn row(text: &str) -> Value {
    let (question, answer) = text.split_at(text.match_indices(' ').nth(40).unwrap().0);
    chat(question, answer)
}

fn rows(texts: impl IntoIterator<Item = String>) -> String {
    lines(texts.into_iter().map(|text| row(&text)))
}

fn source(name: &str, more: &str) -> String {
    format!("[[source]]\nname = \"{name}\"\npath = \"{name}.jsonl\"\n{more}")
}

fn near(data: &DataSet, source: &str) -> u64 {
    data.number(&format!("/rows/{source}/dropped/dedup.near"))
}

fn names(data: &DataSet) -> BTreeSet<String> {
    data.names().into_iter().collect()
}

#[test]
fn copies_with_few_edits_go_and_those_with_many_stay() {
    let case = Case::new();
    let texts =
        (0..30).map(text).chain((0..10).map(|n| edited(n, 100))).chain((10..20).map(|n| edited(n, 10)));
    case.put("a.jsonl", rows(texts));
    case.recipe(&(source("a", "") + NEAR + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    // Rows 30 to 39 are copies of 0 to 9.
    let stay: BTreeSet<String> = (0..30).chain(40..50).map(|n| format!("a/a.jsonl:{n}")).collect();
    assert_eq!(names(&data), stay);
    assert_eq!((near(&data, "a"), data.number("/rows/a/kept")), (10, 40));
    assert!(data.number("/recipe/partitions") > 3, "rows of several partitions");
}

#[test]
fn each_near_duplicate_is_listed_with_the_row_that_stays() {
    let case = Case::new();
    case.put("a.jsonl", rows([text(1), text(2), edited(1, 150), respelt(2)]));
    case.put("b.jsonl", rows([text(3), edited(2, 200)]));
    case.recipe(&(source("a", "") + &source("b", "") + NEAR));
    let data = case.prep("out", &[]);
    balances(&data);
    let listed: Vec<(&str, &str, &str)> =
        data.dropped.iter().map(|d| (d.row_id.as_str(), d.reason.as_str(), d.evidence.as_str())).collect();
    let first = |row: &str| json!({ "first": row }).to_string();
    let (one, two) = (first("a/a.jsonl:0"), first("a/a.jsonl:1"));
    assert_eq!(
        listed,
        [
            ("a/a.jsonl:2", "dedup.near", one.as_str()),
            ("a/a.jsonl:3", "dedup.near", two.as_str()),
            ("b/b.jsonl:1", "dedup.near", two.as_str()),
        ]
    );
    let ran = case.potable(&["explain", "out", "b/b.jsonl:1"]);
    assert!(ran.stdout.contains("a/a.jsonl:1"), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn the_first_by_source_file_and_row_stays_whatever_the_threads_and_the_cut() {
    let case = Case::new();
    // Source b stands first; its files are in the order of their names.
    case.put("b/2.jsonl", rows((0..20).map(|n| edited(n, 150))));
    case.put("b/1.jsonl", rows((10..30).map(text)));
    case.put("a.jsonl", rows((0..40).map(|n| edited(n, 300))));
    case.recipe(&("[[source]]\nname = \"b\"\npath = \"b\"\n".to_owned() + &source("a", "") + NEAR + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    let of = |file: &'static str, rows: std::ops::Range<u64>| rows.map(move |n| format!("{file}:{n}"));
    let stay = of("b/1.jsonl", 0..20).chain(of("b/2.jsonl", 0..10)).chain(of("a/a.jsonl", 30..40));
    assert_eq!(names(&data), stay.collect());
    for (out, args) in [
        ("one", &["--threads", "1"][..]),
        ("pieces", &["--threads", "4", "--unit-bytes", "3000", "--chunk-bytes", "1000"]),
    ] {
        let again = case.prep(out, args);
        assert_eq!((&again.bytes, again.digest()), (&data.bytes, data.digest()), "{out}");
        assert_eq!(again.dropped, data.dropped);
    }
}

#[test]
fn a_row_equal_to_another_up_to_the_normaliser_always_goes() {
    // The threshold does not matter, nor the width, nor how short the row is.
    for (near, width) in [("0.1", 5), ("0.5", 1), ("0.999", 5), ("0.8", 64)] {
        let case = Case::new();
        let short = [chat("Why, then?", "It is."), chat("why THEN", "it — is")];
        case.put("a.jsonl", rows((0..10).map(text)) + &rows((0..10).map(respelt)) + &lines(short));
        case.recipe(&(source("a", "") + &format!("[dedup]\nnear = {near}\nnear_words = {width}\n")));
        assert_eq!(super::near::near(&case.prep("out", &[]), "a"), 11, "{near} {width}");
    }
}

#[test]
fn without_near_nothing_changes_and_with_it_rows_that_are_not_alike_stay_as_they_are() {
    let case = Case::new();
    case.put("a.jsonl", rows((0..40).map(text)) + &rows((0..3).map(text)));
    case.recipe(&(source("a", "") + SMALL));
    let without = case.prep("without", &[]);
    assert!(without.manifest["recipe"]["settings"]["dedup"].get("near").is_none());
    case.recipe(&(source("a", "") + NEAR + SMALL));
    let with = case.prep("with", &[]);
    assert_eq!(with.bytes, without.bytes);
    assert_eq!((near(&with, "a"), with.number("/rows/a/dropped/dedup.exact")), (0, 3));
    assert_ne!(with.digest(), without.digest(), "the setting is in the digest");
}

#[test]
fn settings_and_seed_are_in_the_manifest() {
    let case = Case::new();
    case.put("a.jsonl", rows((0..5).map(text)));
    case.recipe(
        &("seed = 7\n".to_owned()
            + &source("a", "")
            + "[dedup]\nnear = 0.7\nnear_words = 4\nnear_hashes = 128\n"),
    );
    let settings = &case.prep("out", &[]).manifest["recipe"]["settings"];
    let expected = json!({"threshold_ppm": 700_000, "words": 4, "hashes": 128, "bands": 14, "rows": 9,
        "normaliser": "words-1"});
    assert_eq!((&settings["dedup"]["near"], &settings["seed"]), (&expected, &json!(7)));
}

#[test]
fn exact_duplicates_are_counted_as_such_and_share_the_fate_of_their_first() {
    let case = Case::new();
    case.put("a.jsonl", rows([text(1), text(1), edited(1, 150), edited(1, 150), text(2)]));
    case.put("b.jsonl", rows([text(1), edited(1, 150), text(3)]));
    case.recipe(&(source("a", "") + &source("b", "") + NEAR));
    let data = case.prep("out", &[]);
    balances(&data);
    let stay = ["a/a.jsonl:0", "a/a.jsonl:4", "b/b.jsonl:2"].map(str::to_owned);
    assert_eq!(names(&data), BTreeSet::from(stay));
    let dropped =
        |source: &str| (data.number(&format!("/rows/{source}/dropped/dedup.exact")), near(&data, source));
    assert_eq!(dropped("a"), (2, 1));
    assert_eq!(dropped("b").0 + dropped("b").1, 2);
}

#[test]
fn near_duplicates_do_not_count_towards_a_cap() {
    let case = Case::new();
    case.put("a.jsonl", rows((0..60).map(text).chain((0..60).map(|n| edited(n, 150)))));
    case.recipe(&(source("a", "max_rows = 40\n") + NEAR + SMALL));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!(data.samples().len(), 40);
    let bases: BTreeSet<u64> = data
        .names()
        .iter()
        .map(|name| name.rsplit(':').next().unwrap().parse::<u64>().unwrap() % 60)
        .collect();
    assert_eq!(bases.len(), 40, "no two of a cluster");
    let pieces = case.prep("pieces", &["--unit-bytes", "5000", "--chunk-bytes", "2000", "--threads", "1"]);
    assert_eq!(pieces.bytes, data.bytes);
}

#[test]
fn a_row_that_where_leaves_out_takes_no_other_with_it() {
    let case = Case::new();
    let document = |text: String, keep: bool| json!({ "text": text, "keep": keep });
    case.put(
        "a.jsonl",
        lines([document(text(1), false), document(edited(1, 150), true), document(text(2), true)]),
    );
    case.recipe(&(source("a", "where = \"keep\"\n") + NEAR));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!((data.samples().len(), near(&data, "a")), (2, 0));
}

#[test]
fn a_row_that_fits_no_pack_takes_no_other_with_it() {
    let case = Case::new();
    // The longer one comes first, and is too long.
    let long = format!("{} {}", text(1), words(9, 6).join(" "));
    case.put("a.jsonl", lines([json!({ "text": long }), json!({ "text": text(1) })]));
    case.recipe(&(source("a", "") + NEAR + &format!("[pack]\nlength = {}\n", text(1).len() + 8)));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!(data.names(), ["a/a.jsonl:1"]);
    assert_eq!((near(&data, "a"), data.number("/rows/a/dropped/pack.overlong")), (0, 1));
}

#[test]
fn exclude_phase_goes_by_exact_keys() {
    let case = Case::new();
    case.put("a.jsonl", rows((0..10).map(text)));
    case.put(
        "b.jsonl",
        rows((0..5).map(text).chain((5..10).map(|n| edited(n, 150))).chain([edited(5, 200)])),
    );
    let phases = ["a", "b"].map(|name| {
        let exclude = if name == "b" { "exclude_phase = \"a\"\n" } else { "" };
        format!("[[phase]]\nname = \"{name}\"\n{exclude}[[phase.source]]\nname = \"{name}\"\npath = \"{name}.jsonl\"\n")
    });
    case.recipe(&(NEAR.to_owned() + &phases.concat()));
    case.prep_phase("out", &[]);
    let data = case.data("out/b");
    balances(&data);
    assert_eq!(data.number("/rows/b/dropped/dedup.other-phase"), 5);
    // Near copies of rows of the other phase stay; of each other they do not.
    assert_eq!((near(&data, "b"), data.number("/rows/b/kept")), (1, 5));
}

#[test]
fn a_phase_may_have_a_threshold_of_its_own() {
    let case = Case::new();
    case.put("a.jsonl", rows([text(1), edited(1, 40), text(2)]));
    let phase = |name: &str, more: &str| {
        format!("[[phase]]\nname = \"{name}\"\n{more}[[phase.source]]\nname = \"a\"\npath = \"a.jsonl\"\n")
    };
    let loose = "[phase.dedup]\nnear = 0.5\n";
    case.recipe(&("[dedup]\nnear = 0.95\n".to_owned() + &phase("tight", "") + &phase("loose", loose)));
    case.prep_phase("out", &[]);
    let near = |phase: &str| near(&case.data(&format!("out/{phase}")), "a");
    assert_eq!((near("tight"), near("loose")), (0, 1));
}

#[test]
fn a_row_of_several_samples_goes_as_a_whole() {
    let talk = |n: u64, every: Option<usize>| {
        let text = every.map_or_else(|| text(n), |every| edited(n, every));
        let parts: Vec<&str> = text.split(' ').collect();
        let turn = |at: usize| {
            let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
            json!({ "role": role, "content": parts[at * 50..(at + 1) * 50].join(" ") })
        };
        json!({ "messages": (0..6).map(turn).collect::<Vec<_>>() })
    };
    let case = Case::new();
    case.put("a.jsonl", lines([talk(1, None), talk(2, None), talk(1, Some(150))]));
    case.recipe(&(source("a", "") + NEAR + "[normalise]\nhistory = \"unroll\"\n"));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!((near(&data, "a"), data.samples().len()), (1, 6));
    assert_eq!(data.number("/samples/a/dropped/dedup.near"), 3);
}

#[test]
fn with_exact_prompt_the_rows_that_are_left_are_compared() {
    let case = Case::new();
    // Row 1 has the prompt of row 0 and goes; row 2 is near to row 1 alone, and stays.
    let answers = [text(1), text(2), edited(2, 150)];
    let prompts = ["one and the same", "one and the same", "another"];
    case.put("a.jsonl", lines(prompts.iter().zip(&answers).map(|(prompt, answer)| chat(prompt, answer))));
    case.recipe(&(source("a", "") + "[dedup]\nexact = \"prompt\"\nnear = 0.8\n"));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!(data.names(), ["a/a.jsonl:0", "a/a.jsonl:2"]);
}

#[test]
fn all_text_of_a_row_counts() {
    let case = Case::new();
    // The same question and answer, with other reasoning: half of the words.
    let with = |n: u64| {
        let answer = format!("<think>\n{}\n</think>\n\n{}", text(n), words(77, 150).join(" "));
        chat(&words(77, 150).join(" "), &answer)
    };
    case.put("a.jsonl", lines([with(1), with(2)]));
    case.recipe(&(source("a", "") + NEAR));
    assert_eq!(near(&case.prep("out", &[]), "a"), 0);
}

#[test]
fn a_folder_with_another_threshold_is_mapped_anew() {
    let case = Case::new();
    case.put("a.jsonl", rows([text(1), edited(1, 40), edited(1, 300)]));
    let recipe = |near: &str| source("a", "") + &format!("[dedup]\n{near}\n");
    case.recipe(&recipe("near = 0.9"));
    assert_eq!(case.prep("out", &["--keep-work"]).samples().len(), 2);
    for (setting, left) in [("near = 0.5", 1), ("exact = \"conversation\"", 3)] {
        case.recipe(&recipe(setting));
        assert_eq!(case.prep("out", &["--keep-work"]).samples().len(), left, "{setting}");
    }
}

#[test]
fn the_steps_of_a_run_one_by_one_give_the_same_rows() {
    let case = Case::new();
    case.put("a.jsonl", rows((0..20).map(text)));
    case.put("b.jsonl", rows((0..20).map(|n| edited(n, 150)).chain((20..30).map(text))));
    case.recipe(&(source("a", "") + &source("b", "") + NEAR + SMALL));
    let whole = case.prep("out", &[]);
    assert_eq!(near(&whole, "b"), 20);
    let plan = ["plan", "recipe.toml", "--work", "work", "--unit-bytes", "9000", "--chunk-bytes", "4000"];
    let step = |step: &'static str| vec![step, "--work", "work"];
    for args in [plan.to_vec(), step("map"), step("select"), step("reduce"), step("seal")] {
        let ran = case.potable(&args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
    }
    let steps = case.data("work/out");
    assert_eq!((steps.digest(), &steps.dropped), (whole.digest(), &whole.dropped));
    assert_eq!(steps.bytes, whole.bytes);
}

#[test]
fn a_similarity_that_is_none_is_refused() {
    for near in ["0", "-0.5", "1", "1.0", "1.5", "80", "nan", "inf", "0.0000001", "0.9999999"] {
        let case = Case::new();
        case.put("a.jsonl", chats(5));
        case.recipe(&(source("a", "") + &format!("[dedup]\nnear = {near}\n")));
        case.refused(&["[dedup]", "near", "above 0 and below 1"]);
    }
}

#[test]
fn near_where_exact_duplicates_stay_is_refused() {
    let case = Case::new();
    case.put("a.jsonl", chats(5));
    case.recipe(&(source("a", "") + "[dedup]\nexact = \"none\"\nnear = 0.8\n"));
    case.refused(&["[dedup]", "exact = \"none\""]);
}

#[test]
fn a_width_of_0_is_refused() {
    for (key, value) in [("near_words", 0), ("near_words", 65), ("near_hashes", 0), ("near_hashes", 4096)] {
        let case = Case::new();
        case.put("a.jsonl", chats(5));
        case.recipe(&(source("a", "") + &format!("[dedup]\nnear = 0.8\n{key} = {value}\n")));
        case.refused(&["[dedup]", &format!("{key} = {value}"), "is not between"]);
    }
}

#[test]
fn options_without_near_are_refused() {
    for key in ["near_words", "near_hashes"] {
        let case = Case::new();
        case.put("a.jsonl", chats(5));
        case.recipe(&(source("a", "") + &format!("[dedup]\n{key} = 20\n")));
        case.refused(&["[dedup]", key, "near = 0.8"]);
    }
}

#[test]
fn texts_of_no_words_are_like_no_other() {
    let case = Case::new();
    let texts = ["...", "!!! ???", "-- --", "***", "..."];
    case.put("a.jsonl", lines(texts.map(|text| json!({ "text": text }))));
    case.recipe(&(source("a", "") + NEAR));
    let data = case.prep("out", &[]);
    balances(&data);
    assert_eq!((near(&data, "a"), data.number("/rows/a/dropped/dedup.exact")), (0, 1));
}

#[test]
fn the_summary_and_the_report_name_near_duplicates() {
    let case = Case::new();
    case.put("a.jsonl", rows([text(1), edited(1, 150), text(2)]));
    case.recipe(&(source("a", "") + NEAR));
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("1 rows   near duplicates"), "{}", ran.stderr);
    let report = std::fs::read_to_string(case.path("out/report.html")).unwrap();
    for part in ["dedup.near", "near duplicates", "a/a.jsonl:1"] {
        assert!(report.contains(part), "`{part}` is not in the report");
    }
    let card = case.potable(&["manifest", "export", "out", "--to", "croissant"]);
    assert!(card.stdout.contains("Near duplicates were dropped (1 row)"), "{}", card.stdout);
}

#[test]
fn diff_names_a_change_of_near_as_material() {
    let case = Case::new();
    case.put("a.jsonl", rows([text(1), edited(1, 40), edited(1, 150), text(2)]));
    for (out, near) in [("off", ""), ("high", "near = 0.95\n"), ("low", "near = 0.5\n")] {
        case.recipe(&(source("a", "") + &format!("[dedup]\n{near}")));
        case.prep(out, &[]);
    }
    for (old, new, setting) in [
        ("off", "high", "setting `/dedup/near`"),
        ("high", "off", "setting `/dedup/near`"),
        ("high", "low", "setting `/dedup/near/threshold_ppm`"),
    ] {
        let ran = case.potable(&["manifest", "diff", old, new, "--format", "json"]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        let diff: Value = serde_json::from_str(&ran.stdout).unwrap();
        let findings = diff["findings"].as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["what"] == setting);
        assert_eq!(finding.unwrap_or_else(|| panic!("{diff:#}"))["weight"], "material");
        assert_eq!(case.potable(&["manifest", "diff", old, new, "--fail-on", "blocking"]).code, 0);
    }
}
