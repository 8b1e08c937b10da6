use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::benchmark::{BenchmarkMeta, Item};
use crate::build::BlocklistBuilder;
use crate::family::families;
use crate::plan::{BOILERPLATE_FAMILIES, Corpus};
use crate::text::words_of;

fn item(stem: &str, options: &[&str]) -> Item {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    Item { id: String::new(), stem: stem.to_owned(), options }
}

fn blocklist(items: Vec<Item>, canaries: &[&str]) -> Blocklist {
    let mut builder = BlocklistBuilder::new(13).expect("n");
    let canaries = canaries.iter().map(|&canary| canary.to_owned()).collect();
    let meta = BenchmarkMeta { name: "a".into(), canaries, ..BenchmarkMeta::default() };
    builder.add(meta, items).expect("items");
    builder.build().expect("built")
}

fn hits(blocklist: &Blocklist, text: &str, prompt: Prompt) -> Vec<(u32, Rule, Action)> {
    let part = Part { text, message: 0, whole_prompt: prompt == Prompt::Whole };
    let mut scanner = Scanner::new(blocklist);
    scanner.check(&[part], false).iter().map(|hit| (hit.item, hit.rule, hit.action)).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Prompt {
    Whole,
    No,
}

const LONG: &str = "a train leaves the town at noon and reaches the sea after three hours of travel";

#[test]
fn finds_an_item_whatever_it_looks_like() {
    let list = blocklist(vec![item(LONG, &[])], &[]);
    let loud = format!("Sure! {}?", LONG.to_uppercase().replace(' ', "\\n  "));
    let found = hits(&list, &loud, Prompt::No);
    assert_eq!(found, [(0, Rule::NGram, Action::Drop)]);
    assert!(hits(&list, "a train leaves the town at noon", Prompt::Whole).is_empty());
}

#[test]
fn says_where_and_how_much() {
    let list = blocklist(vec![item(LONG, &[])], &[]);
    let half = LONG.split(' ').take(14).collect::<Vec<_>>().join(" ");
    let text = format!("é: {half}. And then.");
    let parts = [
        Part { text: "nothing", message: 0, whole_prompt: true },
        Part { text: &text, message: 3, whole_prompt: false },
    ];
    let mut scanner = Scanner::new(&list);
    let hit = scanner.check(&parts, false).first().copied().expect("hit");
    assert_eq!((hit.part, hit.message, hit.benchmark), (1, 3, 0));
    assert_eq!(text.get(hit.start as usize..hit.end as usize), Some(half.as_str()));
    assert_eq!(hit.coverage_ppm, 14 * 1_000_000 / 16);
}

#[test]
fn finds_short_items_whole_only() {
    let list = blocklist(vec![item("How many ways are there to seat nine people?", &[])], &[]);
    let found = [(0, Rule::ShortItem, Action::Drop)];
    assert_eq!(hits(&list, "So: how many ways are there to seat nine people, then", Prompt::No), found);
    assert!(hits(&list, "how many ways are there to seat nine", Prompt::Whole).is_empty());
}

#[test]
fn finds_very_short_items_as_messages_only() {
    let list = blocklist(vec![item("What is the capital of France?", &[])], &[]);
    let asked = "Question: What is the capital of France?\nAnswer:";
    assert_eq!(hits(&list, asked, Prompt::Whole), [(0, Rule::ShortItem, Action::Drop)]);
    assert!(hits(&list, asked, Prompt::No).is_empty());
    assert!(hits(&list, "Tell me, what is the capital of France?", Prompt::Whole).is_empty());
    let list = blocklist(vec![item("Compute the gcd of 2048 and 1536", &[])], &[]);
    let inside = "we compute the gcd of 2048 and 1536 first";
    assert_eq!(hits(&list, inside, Prompt::No), [(0, Rule::ShortItem, Action::Drop)]);
}

#[test]
fn never_matches_fewer_than_four_words() {
    let list = blocklist(vec![item("Who are you?", &[]), item(LONG, &[])], &[]);
    assert!(hits(&list, "Who are you?", Prompt::Whole).is_empty());
}

#[test]
fn reports_boilerplate_and_drops_nothing_for_it() {
    let stock = "where m and n are relatively prime positive integers find the value of m plus n";
    let topics = ["red balls in an urn", "a cube of ice", "two walkers on a road of gravel"];
    let more = "and one long tale about it that no other problem in this small collection tells at all";
    let items = topics.map(|topic| item(&format!("{topic} {more} {topic} {stock}"), &[])).to_vec();
    let list = blocklist(items, &[]);
    let found = hits(&list, stock, Prompt::No);
    assert!(!found.is_empty() && found.iter().all(|hit| hit.2 == Action::Report));
    let part = Part { text: stock, message: 0, whole_prompt: false };
    let mut scanner = Scanner::new(&list);
    assert!(scanner.check(&[part], true).iter().all(|hit| hit.action == Action::Drop));
}

#[test]
fn a_template_that_goes_on_with_data_of_its_item_is_boilerplate() {
    let stock = "the input is given from standard input in this format";
    let topics =
        ["a grid of wet sand", "three ferries on a canal", "some kites above a hill", "an orchard row"];
    let more = [
        "whose corners sink by different depths every night until a keeper rakes all of it level again",
        "carry bricks upstream while the locks are repaired and nobody may pass them before evening falls",
        "pull at their strings in turn so that a child below can tell which wind blew first that day",
        "holds pears of five kinds and the gardener picks from both its ends but never twice in a row",
    ];
    let story = |at: usize| format!("{} {}", topics[at], more[at]);
    let items = (0..4).map(|at| item(&format!("{}. {stock}: {}", story(at), topics[at]), &[])).collect();
    let list = blocklist(items, &[]);
    // the run of words stands in one item only, the most of it in all
    let found = hits(&list, &format!("Read it, since {stock}: {}", topics[1]), Prompt::No);
    assert!(!found.is_empty() && found.iter().all(|hit| hit.2 == Action::Report), "{found:?}");
    assert_eq!(hits(&list, &format!("Look: {}.", story(1)), Prompt::No), [(1, Rule::NGram, Action::Drop)]);
}

#[test]
fn a_transcription_makes_no_boilerplate() {
    let items = (0..4).map(|_| item(LONG, &[])).collect();
    let found = hits(&blocklist(items, &[]), LONG, Prompt::No);
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|hit| hit.2 == Action::Drop));
}

#[test]
fn number_runs_drop_only_whole() {
    let numbers = (1..30).map(|i| (i * 7).to_string()).collect::<Vec<_>>().join(" ");
    let list = blocklist(vec![item(&numbers, &[])], &[]);
    let part_of_it = (3..25).map(|i| (i * 7).to_string()).collect::<Vec<_>>().join(", ");
    assert_eq!(hits(&list, &part_of_it, Prompt::No), [(0, Rule::NGram, Action::Report)]);
    assert_eq!(hits(&list, &numbers, Prompt::No), [(0, Rule::ShortItem, Action::Drop)]);
}

#[test]
fn grams_do_not_cross_options() {
    let options = ["iron and copper in water", "salt and sugar in air", "gold and lead in fire"];
    let list = blocklist(vec![item("Which mixture burns", &options)], &[]);
    assert!(hits(&list, &options.join(" "), Prompt::Whole).is_empty());
    let asked = format!("Which mixture burns? {}", options[2]);
    assert_eq!(hits(&list, &asked, Prompt::No), [(0, Rule::ShortItem, Action::Drop)]);
}

#[test]
fn canaries_drop() {
    let canary = "benchmark data should never appear canary GUID 26b5c67b-86d2";
    let list = blocklist(vec![item(LONG, &[])], &[canary]);
    let found = hits(&list, &format!("# {canary} #"), Prompt::No);
    assert_eq!(found, [(1, Rule::Canary, Action::Drop)]);
    assert_eq!(list.item_id(1), "canary");
    assert_eq!(list.header().benchmarks[0].coverage.items, 1);
}

const PROBLEM: &str = "A lighthouse keeper counts 37 ships before dawn and 12 ferries after it. Every fifth \
                       vessel carries coal for the foundry. How many coal vessels pass the granite pier in three \
                       such mornings, if fog hides none of them?";

/// `text` with every `every`-th word replaced.
fn edited(text: &str, every: usize) -> String {
    let words = text.split(' ').enumerate();
    words
        .map(|(at, word)| if at % every == every - 1 { "walnut" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn finds_copies_with_edits_and_in_another_order() {
    let list = blocklist(vec![item(PROBLEM, &[]), item(LONG, &[])], &[]);
    let sentences: Vec<&str> = PROBLEM.split_inclusive(". ").collect();
    let inserted =
        PROBLEM.replace(" and ", " and also ").replace(" for ", " only for ").replace(" in ", " just in ");
    let looks = PROBLEM.replace("dawn", "d\u{430}wn").replace("coal", "c\u{43e}al");
    for text in [edited(PROBLEM, 6), edited(PROBLEM, 8), inserted, looks, sentences.concat()] {
        let found = hits(&list, &format!("Here: {text} Thanks."), Prompt::No);
        assert_eq!(found.first().map(|hit| (hit.0, hit.2)), Some((0, Action::Drop)), "{text}");
    }
    let near = hits(&list, &edited(PROBLEM, 6), Prompt::No);
    assert_eq!(near, [(0, Rule::NearCopy, Action::Drop)]);
    assert!(hits(&list, &edited(PROBLEM, 2), Prompt::No).is_empty());
}

#[test]
fn says_where_a_near_copy_is() {
    let list = blocklist(vec![item(PROBLEM, &[])], &[]);
    let text = format!("Before that, nothing. {} And nothing after.", edited(PROBLEM, 6));
    let part = Part { text: &text, message: 2, whole_prompt: false };
    let mut scanner = Scanner::new(&list);
    let hit = scanner.check(&[part], false).first().copied().expect("hit");
    assert_eq!((hit.rule, hit.message), (Rule::NearCopy, 2));
    let span = text.get(hit.start as usize..hit.end as usize).expect("borders");
    assert!(span.starts_with("A lighthouse") && span.ends_with("if fog"), "{span}");
    assert!((780_000..900_000).contains(&hit.coverage_ppm), "{}", hit.coverage_ppm);
}

#[test]
fn an_item_with_other_numbers_is_another_item() {
    let list = blocklist(
        vec![item("Find 37 of 512, add 91, then 64, 88, 1024 and 333 to what remains of it", &[])],
        &[],
    );
    let other = "Find 21 of 743, add 55, then 12, 17, 6001 and 918 to what remains of it";
    assert!(hits(&list, other, Prompt::No).is_empty());
}

#[test]
fn a_message_that_is_only_boilerplate_of_an_item_drops() {
    let stock = "for which of these two short stories does the narrator do something plainly wrong by the usual \
                 standards of this country as they were in the year";
    let topics = ["stole a bicycle", "helped an old neighbour", "painted the fence green"];
    let items = topics.map(|topic| item(&format!("{stock} 2020? {topic}"), &[])).to_vec();
    let list = blocklist(items, &[]);
    let drops = |text: &str| hits(&list, text, Prompt::Whole).iter().any(|hit| hit.2 == Action::Drop);
    assert!(drops(stock));
    assert!(!drops(&format!("{stock} my uncle left for the coast")));
    assert!(!drops("which of these two short stories does the narrator do something plainly wrong"));
}

#[test]
fn a_row_alone_gives_what_it_gives_among_others() {
    let list = blocklist(vec![item(PROBLEM, &[]), item(LONG, &[])], &["canary guid 26b5c67b"]);
    let texts = [
        edited(PROBLEM, 6),
        LONG.to_owned(),
        "nothing here".to_owned(),
        format!("{} canary guid 26b5c67b {LONG}", edited(PROBLEM, 10)),
        String::new(),
    ];
    let mut shared = Scanner::new(&list);
    for text in texts.iter().chain(texts.iter().rev()) {
        let part = Part { text, message: 0, whole_prompt: true };
        assert_eq!(shared.check(&[part], false), Scanner::new(&list).check(&[part], false), "{text}");
    }
    // and as one part of many, but for the number of the part
    let parts: Vec<Part> = texts.iter().map(|text| Part { text, message: 0, whole_prompt: true }).collect();
    let together = shared.check(&parts, false).to_vec();
    for (number, &part) in parts.iter().enumerate() {
        let mut of_part: Vec<Hit> =
            together.iter().filter(|hit| hit.part as usize == number).copied().collect();
        of_part.iter_mut().for_each(|hit| hit.part = 0);
        assert_eq!(of_part, Scanner::new(&list).check(&[part], false));
    }
}

#[test]
fn matches_do_not_cross_parts() {
    let list = blocklist(vec![item(LONG, &[])], &[]);
    let (a, b) = LONG.split_at(30);
    let parts = [a, b].map(|text| Part { text, message: 0, whole_prompt: false });
    assert!(Scanner::new(&list).check(&parts, true).is_empty());
}

#[test]
fn excerpts_are_short_and_on_borders() {
    assert_eq!(excerpt("short", 1, 3), "short");
    let text = "é".repeat(400);
    for (start, end) in [(0, 800), (1, 2), (300, 320), (799, 9000), (5000, 2)] {
        assert!(excerpt(&text, start, end).chars().count() <= 300);
    }
    let long = format!("{}NEEDLE{}", "a".repeat(500), "b".repeat(500));
    let shown = excerpt(&long, 500, 506);
    assert!(shown.contains("NEEDLE") && shown.starts_with('…') && shown.ends_with('…'));
    assert_eq!(shown.chars().count(), 300);
}

#[test]
fn the_mark_of_an_excerpt_is_what_matched() {
    let text = format!("{}NÉEDLE{}", "é".repeat(90), "b".repeat(500));
    let (shown, mark) = marked_excerpt(&text, 180, 187);
    assert_eq!(shown.get(mark), Some("NÉEDLE"));
    let (shown, mark) = marked_excerpt("the needle", 4, 10);
    assert_eq!((shown.get(mark), shown.as_str()), (Some("needle"), "the needle"));
    let long = "x".repeat(900);
    let (shown, mark) = marked_excerpt(&long, 10, 890);
    assert!(shown.starts_with("…x") && shown.get(mark).unwrap().chars().all(|c| c == 'x'), "{shown}");
    for (start, end) in [(0, 900), (899, 900), (900, 900), (5000, 2)] {
        let (shown, mark) = marked_excerpt(&long, start, end);
        assert!(shown.get(mark).is_some(), "{start}..{end}");
    }
}

/// The n-gram and short-item rules by comparing words one with another.
struct Naive {
    n: usize,
    stems: Vec<Vec<String>>,
    families: Vec<u32>,
    /// Items whose grams are all weak.
    whole: Vec<bool>,
}

fn holds(words: &[String], run: &[String]) -> bool {
    words.windows(run.len()).any(|window| window == run)
}

fn real(run: &[String]) -> usize {
    let real = |word: &&String| word.len() > 1 && !word.starts_with(char::is_numeric);
    run.iter().filter(real).count()
}

impl Naive {
    fn new(items: &[Item], n: usize) -> Self {
        let mut corpus = Corpus::default();
        items.iter().for_each(|item| corpus.add(0, item.clone()));
        let families = families(&corpus);
        let stems = items.iter().map(|item| words_of(&item.stem)).collect();
        let mut naive = Self { n, stems, families, whole: Vec::new() };
        naive.whole = naive.stems.iter().map(|stem| stem.windows(n).all(|run| naive.is_weak(run))).collect();
        naive
    }

    /// Whether several unrelated items of `least` words or more hold `run`.
    fn is_common(&self, run: &[String], least: usize) -> bool {
        let holders = self.stems.iter().zip(&self.families);
        let holders = holders.filter(|(stem, _)| stem.len() >= least && holds(stem, run));
        holders.map(|(_, family)| family).collect::<BTreeSet<_>>().len() >= BOILERPLATE_FAMILIES
    }

    fn is_weak(&self, run: &[String]) -> bool {
        let stock = self.n - self.n * 2 / 5;
        real(run) < 4.min(self.n.div_ceil(2))
            || self.is_common(run, 0)
            || run.windows(stock).any(|part| self.is_common(part, self.n))
    }

    /// The items that a text drops, and those with any hit.
    fn find(&self, text: &str) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let row = words_of(text);
        let (mut drops, mut any) = (BTreeSet::new(), BTreeSet::new());
        for (number, stem) in (0..).zip(&self.stems) {
            for run in stem.windows(self.n).filter(|run| holds(&row, run)) {
                any.insert(number);
                if !drops.contains(&number) && !self.is_weak(run) {
                    drops.insert(number);
                }
            }
            let distinct = stem.iter().collect::<BTreeSet<_>>().len();
            let varied = real(stem) >= 4 || (real(stem) >= 1 && distinct >= 6);
            let plain = stem.len() >= self.n || (stem.len() >= 8 && varied);
            if self.whole[number as usize] && plain && holds(&row, stem) {
                any.insert(number);
                if !self.is_common(stem, 0) {
                    drops.insert(number);
                }
            }
        }
        (drops, any)
    }
}

/// Says of each text what the scanner and the naive rules find, which must be the same.
fn assert_agrees(items: &[Item], n: usize, texts: impl IntoIterator<Item = String>) -> usize {
    let mut builder = BlocklistBuilder::new(n).expect("n").without_near_copies();
    let meta = BenchmarkMeta { name: "a".into(), ..BenchmarkMeta::default() };
    builder.add(meta, items.to_vec()).expect("items");
    let list = builder.build().expect("built");
    let naive = Naive::new(items, n);
    let mut dropped = 0;
    for text in texts {
        let found = hits(&list, &text, Prompt::No);
        let drops = found.iter().filter(|hit| hit.2 == Action::Drop).map(|hit| hit.0);
        let drops: BTreeSet<u32> = drops.collect();
        let any: BTreeSet<u32> = found.iter().map(|hit| hit.0).collect();
        let (naive_drops, naive_any) = naive.find(&text);
        dropped += usize::from(!drops.is_empty());
        assert_eq!(drops, naive_drops, "{text}");
        // boilerplate of many items names one of them
        assert!(any.is_subset(&naive_any), "{text}");
        assert_eq!(any.is_empty(), naive_any.is_empty(), "{text}");
    }
    dropped
}

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn skipped(path: &std::path::Path) {
    println!("skipped: {} is not there", path.display());
}

/// The values at `key`, or at `messages` and `content`, of the lines of a file below the folder of
/// measurements; `None`, and a word about it, if it is not there.
fn fixture(file: &str, key: &str) -> Option<Vec<String>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        skipped(&path);
        return None;
    };
    let value = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        match &row["messages"] {
            serde_json::Value::Array(turns) => {
                turns.iter().filter_map(|turn| turn["content"].as_str()).collect::<Vec<_>>().join("\n")
            }
            _ => row[key].as_str().expect("text").to_owned(),
        }
    };
    Some(text.lines().map(value).collect())
}

#[test]
fn agrees_with_a_naive_scan_over_the_fixtures() {
    let mut items = Vec::new();
    for set in ["gsm8k", "math500", "mbpp", "olymmath_zh"] {
        let Some(lines) = fixture(&format!("contamination/benchmarks/{set}.jsonl"), "question") else {
            return;
        };
        items.extend(lines.iter().take(90).map(|stem| item(stem, &[])));
    }
    let Some(rows) = fixture("data/corpora/planted/planted.jsonl", "") else { return };
    let texts: Vec<String> = items.iter().map(|item| format!("So: {} And now?", item.stem)).collect();
    let dropped = assert_agrees(&items, 13, texts.into_iter().chain(rows));
    assert!(dropped > items.len() * 9 / 10, "{dropped} of {}", items.len());
}

/// Words of a small vocabulary, so that items share grams.
fn words(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<&'static str>> {
    let vocabulary = vec!["red", "blue", "green", "x", "7", "8", "y"];
    prop::collection::vec(proptest::sample::select(vocabulary), range)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn agrees_with_a_naive_scan(
        stems in prop::collection::vec(words(0..24), 1..8),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, 1usize..24), 0..6),
        noise in words(0..6),
        n in 5usize..14,
    ) {
        let mut stems = stems;
        // some stock phrase, so that grams of several families come up
        let stock = stems.first().cloned().unwrap_or_default();
        stems.iter_mut().skip(2).step_by(2).for_each(|stem| stem.extend(&stock));
        let mut row: Vec<&str> = Vec::new();
        for (pick, from, length) in picks {
            row.extend(pick.get(&stems).iter().skip(from).take(length));
            row.extend(&noise);
        }
        let text = row.join(" ");
        let items: Vec<Item> = stems.iter().map(|stem| item(&stem.join(" "), &[])).collect();

        assert_agrees(&items, n, [text]);
    }

    #[test]
    fn looks_up_what_a_scan_of_every_word_finds(
        stems in prop::collection::vec(words(0..40), 1..6),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0usize..20, 1usize..40), 0..8),
        noise in words(0..6),
        n in 5usize..16,
    ) {
        let mut row: Vec<&str> = Vec::new();
        for (pick, from, length) in picks {
            row.extend(pick.get(&stems).iter().skip(from).take(length));
            row.extend(&noise);
        }
        let mut builder = BlocklistBuilder::new(n).expect("n");
        let meta = BenchmarkMeta { name: "a".into(), ..BenchmarkMeta::default() };
        builder.add(meta, stems.iter().map(|stem| item(&stem.join(" "), &[]))).expect("items");
        let list = builder.build().expect("built");
        let mut scanner = Scanner::new(&list);
        let text = row.join(" ");
        scanner.check(&[Part { text: &text, message: 0, whole_prompt: false }], false);
        let hashes: Vec<u64> = row.iter().map(|word| crate::text::hash_word(word.as_bytes())).collect();
        prop_assert_eq!(&scanner.hashes, &hashes);

        let (mut grams, mut seeds) = (Vec::new(), Vec::new());
        gram::each(&hashes, n, |start, key| {
            for record in list.table(GRAMS).find(key).into_iter().flat_map(Found::records) {
                grams.push((start as u32, record.text, record.position));
            }
        });
        for (start, run) in hashes.array_windows().enumerate() {
            for record in list.table(SEEDS).find(gram::quad(run)).into_iter().flat_map(Found::records) {
                seeds.push(Seed { near: record.text, start: start as u32, position: record.position });
            }
        }
        let ngrams = scanner.matches.iter().filter(|m| m.rule == Rule::NGram);
        let mut found: Vec<_> = ngrams.map(|m| (m.start, m.text, m.position)).collect();
        found.sort_unstable();
        grams.sort_unstable();
        prop_assert_eq!(found, grams);
        scanner.seeds.sort_unstable();
        seeds.sort_unstable();
        prop_assert_eq!(&scanner.seeds, &seeds);
    }

    #[test]
    fn scanning_twice_gives_the_same(text in "[a-c é求'\\\\&;]{0,60}", prompt in any::<bool>()) {
        let list = blocklist(vec![item("a b c a b c a b c", &[]), item(LONG, &[])], &[]);
        let part = Part { text: &text, message: 0, whole_prompt: prompt };
        let mut scanner = Scanner::new(&list);
        let first = scanner.check(&[part], false).to_vec();
        scanner.check(&[Part { text: LONG, message: 1, whole_prompt: true }], false);
        prop_assert_eq!(scanner.check(&[part], false), &first[..]);
    }
}
