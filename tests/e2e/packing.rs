//! What a data set promises: balanced ledgers, no token lost, packs, length classes, held-out rows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::harness::{Case, DataSet, chat, chats, chats_from, lines, text_of};

const SOURCE: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";
/// Limits so small that every boundary is crossed.
const SMALL: &str = "[pack]\nlength = 256\n[output]\npartition_bytes = 4000\nshard_tokens = 1000\n";

fn numbers(map: &Value) -> u64 {
    map.as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum()
}

/// Recomputes both ledgers, the token counts and the shards' own counts from the shards.
pub fn balances(data: &DataSet) {
    for (source, rows) in data.manifest["rows"].as_object().unwrap() {
        let of = |key: &str| rows[key].as_u64().unwrap();
        assert_eq!(
            of("read"),
            of("sampled_out") + of("kept") + of("failed") + numbers(&rows["dropped"]),
            "{source}: {rows}"
        );
        let samples = &data.manifest["samples"][source];
        let of = |key: &str| samples[key].as_u64().unwrap();
        assert_eq!(
            of("made") + samples["repeated"].as_u64().unwrap_or(0),
            of("packed") + of("sampled_out") + numbers(&samples["dropped"]),
            "{source}: {samples}"
        );
        let own: Vec<_> =
            data.samples().into_iter().filter(|s| s.name.starts_with(&format!("{source}/"))).collect();
        assert_eq!(of("packed"), own.len() as u64, "{source}");
        let tokens: usize = own.iter().map(|s| s.ids.len()).sum();
        let trained = own.iter().flat_map(|s| &s.labels).filter(|label| **label != -100).count();
        let counted = &data.manifest["tokens"]["per_source"][source];
        assert_eq!(counted["tokens"].as_u64().unwrap_or(0), tokens as u64, "{source}");
        assert_eq!(counted["trained"].as_u64().unwrap_or(0), trained as u64, "{source}");
    }
    for shard in data.manifest["shards"].as_array().unwrap() {
        let packs = &data.shards[shard["path"].as_str().unwrap()];
        let count = |f: &dyn Fn(&super::harness::Pack) -> usize| packs.iter().map(f).sum::<usize>() as u64;
        assert_eq!(shard["packs"], packs.len());
        assert_eq!(shard["samples"], count(&|p| p.names.len()));
        assert_eq!(shard["tokens"], count(&|p| p.ids.len()));
        assert_eq!(shard["trained"], count(&|p| p.labels.iter().filter(|l| **l != -100).count()));
        for pack in packs {
            assert!(
                pack.ids.len() as u64 <= shard["length"].as_u64().unwrap(),
                "a pack is longer than its class"
            );
        }
    }
    let histogram = data.manifest["tokens"]["length_histogram"].as_array().unwrap();
    let counted: u64 = histogram.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, data.samples().len() as u64);
    assert_eq!(data.number("/tokens/packs"), data.packs().len() as u64);
}

#[test]
fn ledgers_balance_and_agree_with_the_shards() {
    let case = Case::new();
    case.put(
        "a.jsonl",
        chats(60) + &chats(10) + &lines([chat("q", ""), chat("q", &"x".repeat(400))]) + "{\n",
    );
    case.put("b.jsonl", chats_from(50, 40));
    let b = "[[source]]\nname = \"b\"\npath = \"b.jsonl\"\nmax_rows = 12\n";
    case.recipe(&format!("{SOURCE}on_bad_row = \"drop\"\n{b}{SMALL}validation = 0.2\n"));
    assert_eq!(case.run("out", &[]).code, 1);
    let data = case.data("out");
    balances(&data);
    assert_eq!(data.number("/rows/a/read"), 73);
    assert_eq!(data.number("/rows/a/dropped/dedup.exact"), 10);
    assert_eq!(data.number("/rows/b/kept"), 12);
}

#[test]
fn no_token_is_lost_or_doubled_by_packing() {
    let case = Case::new();
    case.put("a.jsonl", chats(200));
    case.recipe(&format!("{SOURCE}{SMALL}"));
    let packed = case.prep("packed", &[]);
    assert!(packed.shards.len() > 5, "{}", packed.shards.len());
    case.recipe(&format!("{SOURCE}{}", SMALL.replace("256\n", "256\nstrategy = \"none\"\n")));
    let single = case.prep("single", &[]);
    let sorted = |data: &DataSet| {
        let mut samples = data.samples();
        samples.sort();
        samples
    };
    assert_eq!(sorted(&packed), sorted(&single));
    assert_eq!(single.packs().len(), 200);
    assert_eq!(packed.number("/tokens/total"), single.number("/tokens/total"));
    let names: BTreeSet<String> = packed.names().into_iter().collect();
    assert_eq!(names.len(), 200);
}

#[test]
fn packs_are_nearly_full() {
    let case = Case::new();
    case.put("a.jsonl", chats(300));
    let data = case.prepared(&format!("{SOURCE}[pack]\nlength = 1024\n"));
    assert!(data.number("/tokens/fill_ppm") > 950_000, "{}", data.number("/tokens/fill_ppm"));
}

#[test]
fn labels_are_the_unshifted_ids_and_never_train_the_first_token_of_a_sample() {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    case.put("b.jsonl", lines((0..20).map(|n| serde_json::json!({"text": format!("Text {n} of twenty.")}))));
    let data = case.prepared(&format!("{SOURCE}[[source]]\nname = \"b\"\npath = \"b.jsonl\"\n{SMALL}"));
    for sample in data.samples() {
        assert_eq!(sample.labels[0], -100, "{}", sample.name);
        assert!(sample.ids.iter().zip(&sample.labels).all(|(id, label)| label == id || *label == -100));
        assert!(sample.labels.iter().any(|label| *label != -100));
    }
}

#[test]
fn position_ids_count_from_0_in_each_sample() {
    use arrow::array::AsArray;
    let case = Case::new();
    case.put("a.jsonl", chats(30));
    let data = case.prepared(&format!("{SOURCE}{SMALL}position_ids = true\n"));
    let (path, packs) = data.shards.first_key_value().unwrap();
    let batch = &super::harness::batches(&case.path("out").join(path))[0];
    let list = batch.column_by_name("position_ids").unwrap().as_list::<i32>();
    for (row, pack) in packs.iter().enumerate() {
        let expected: Vec<i32> = pack.lengths.iter().flat_map(|len| 0..*len).collect();
        let found = list.value(row);
        assert_eq!(found.as_primitive::<arrow::datatypes::Int32Type>().values().to_vec(), expected);
    }
}

#[test]
fn each_sample_stands_in_the_shortest_length_class_that_holds_it() {
    let case = Case::new();
    case.put("a.jsonl", chats(100));
    let data = case.prepared(&format!("{SOURCE}[pack]\nlength = [256, 96, 160]\n"));
    balances(&data);
    let mut classes = BTreeSet::new();
    for shard in data.manifest["shards"].as_array().unwrap() {
        let (length, path) = (shard["length"].as_u64().unwrap() as usize, shard["path"].as_str().unwrap());
        assert!(path.starts_with(&format!("shards/length-{length}/")), "{path}");
        let below = [0, 96, 160].into_iter().filter(|below| *below < length).max().unwrap();
        for sample in data.shards[path].iter().flat_map(|pack| pack.samples()) {
            assert!(sample.ids.len() > below && sample.ids.len() <= length, "{} in {path}", sample.ids.len());
        }
        classes.insert(length);
    }
    assert_eq!(classes, BTreeSet::from([96, 160, 256]));
    assert_eq!(data.samples().len() as u64 + data.number("/rows/a/dropped/pack.overlong"), 100);
}

/// One sample of 100 tokens of answer, and one that fits, under a length of 64.
fn overlong(policy: &str) -> DataSet {
    let case = Case::new();
    case.put(
        "a.jsonl",
        lines([chat("q", &"x".repeat(100)), chat("q", "ok"), chat(&"long question ".repeat(9), "a")]),
    );
    let data = case.prepared(&format!("{SOURCE}[pack]\nlength = 64\noverlong = \"{policy}\"\n"));
    balances(&data);
    assert!(data.samples().iter().all(|sample| sample.labels[0] == -100));
    data
}

#[test]
fn overlong_drop_drops() {
    let data = overlong("drop");
    assert_eq!(data.names(), ["a/a.jsonl:1"]);
    assert_eq!(data.number("/rows/a/dropped/pack.overlong"), 2);
}

#[test]
fn overlong_truncate_keeps_the_start_and_counts_what_is_lost() {
    let data = overlong("truncate");
    assert_eq!(data.names(), ["a/a.jsonl:0", "a/a.jsonl:1"]);
    let cut = &data.samples().into_iter().find(|s| s.name == "a/a.jsonl:0").unwrap();
    assert_eq!(cut.ids.len(), 64);
    assert!(cut.trained_text().chars().all(|c| c == 'x') && !cut.trained_text().is_empty());
    let whole = "<s>user\nq<e>\n<s>assistant\n<t>\n\n</t>\n\n<e>\n".replace("<s>", "!").replace("<e>", "!");
    let whole = whole.replace("<t>", "!").replace("</t>", "!").len() + 100;
    assert_eq!(data.number("/samples/a/tokens_lost/pack.truncated") as usize, whole - 64);
    // The third row would lose all of its answer.
    assert_eq!(data.number("/rows/a/dropped/pack.overlong"), 1);
}

#[test]
fn overlong_split_keeps_every_token_in_fragments() {
    let data = overlong("split");
    assert_eq!(data.number("/rows/a/kept"), 3);
    assert_eq!(data.number("/samples/a/tokens_lost/pack.overlong"), 0);
    let mut rows: BTreeMap<String, Vec<(usize, Vec<i32>)>> = BTreeMap::new();
    for sample in data.samples() {
        let (row, fragment) = sample.name.split_once(".f").unwrap_or((&sample.name, "0"));
        rows.entry(row.to_owned()).or_default().push((fragment.parse().unwrap(), sample.ids));
    }
    let mut row = rows.remove("a/a.jsonl:0").unwrap();
    row.sort();
    assert_eq!(row.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (0..row.len()).collect::<Vec<_>>());
    let ids: Vec<i32> = row.into_iter().flat_map(|(_, ids)| ids).collect();
    let text = text_of(&ids);
    assert_eq!(text, super::harness::rendered("q", &"x".repeat(100)));
}

#[test]
fn a_shard_holds_no_more_tokens_than_the_recipe_says() {
    let case = Case::new();
    case.put("a.jsonl", chats(150));
    let data = case.prepared(&format!("{SOURCE}[pack]\nlength = 256\n[output]\nshard_tokens = 1000\n"));
    assert!(data.shards.len() > 10);
    for packs in data.shards.values() {
        assert!(packs.iter().map(|p| p.ids.len()).sum::<usize>() <= 1000);
    }
}

/// The texts of the train shards and of the held-out ones.
fn splits(data: &DataSet) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut train, mut held_out) = (BTreeSet::new(), BTreeSet::new());
    for shard in data.manifest["shards"].as_array().unwrap() {
        let path = shard["path"].as_str().unwrap();
        let is_train = shard["split"] == "train";
        assert!(path.starts_with(if is_train { "shards/" } else { "validation/" }), "{path}");
        let texts = data.shards[path].iter().flat_map(|pack| pack.samples()).map(|s| text_of(&s.ids));
        if is_train { train.extend(texts) } else { held_out.extend(texts) }
    }
    (train, held_out)
}

#[test]
fn a_share_of_the_rows_is_held_out() {
    let case = Case::new();
    case.put("a.jsonl", chats(400));
    let data = case.prepared(&format!("{SOURCE}{SMALL}validation = 0.25\n"));
    balances(&data);
    let (train, held_out) = splits(&data);
    assert_eq!(train.len() + held_out.len(), data.samples().len());
    assert!((70..=130).contains(&held_out.len()), "{} of 400", held_out.len());
}

#[test]
fn equal_rows_never_stand_both_in_train_and_in_validation() {
    let case = Case::new();
    case.put("a.jsonl", chats(200) + &chats(200));
    let data = case.prepared(&format!("{SOURCE}[dedup]\nexact = \"none\"\n{SMALL}validation = 0.25\n"));
    let (train, held_out) = splits(&data);
    assert_eq!(train.intersection(&held_out).count(), 0);
}

#[test]
fn length_of_a_sample_and_its_place_in_the_shards_have_nothing_to_do_with_each_other() {
    let case = Case::new();
    case.put("a.jsonl", chats(600));
    let data = case.prepared(&format!("{SOURCE}[pack]\nlength = 1024\n"));
    let lengths: Vec<f64> = data.samples().iter().map(|s| s.ids.len() as f64).collect();
    let places: Vec<f64> = (0..lengths.len()).map(|n| n as f64).collect();
    let r = correlation(&lengths, &places);
    assert!(r.abs() < 0.1, "r = {r} over {} samples", lengths.len());
    let rows: Vec<f64> =
        data.samples().iter().map(|s| s.name.rsplit_once(':').unwrap().1.parse().unwrap()).collect();
    let r = correlation(&rows, &places);
    assert!(r.abs() < 0.1, "row number and place: r = {r}");
}

fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (mx, my) = (mean(x), mean(y));
    let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(a, b)| f(a - mx, b - my)).sum::<f64>();
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}

#[test]
fn another_seed_gives_another_order_of_the_same_samples() {
    let case = Case::new();
    case.put("a.jsonl", chats(100));
    case.recipe(&format!("seed = 1\n{SOURCE}{SMALL}"));
    let one = case.prep("one", &[]);
    case.recipe(&format!("seed = 2\n{SOURCE}{SMALL}"));
    let two = case.prep("two", &[]);
    assert_eq!(one.names(), two.names());
    assert_ne!(one.samples(), two.samples());
}

#[test]
fn digests_in_the_manifest_are_those_of_the_files() {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    let data = case.prepared(&format!("{SOURCE}{SMALL}"));
    let sha256 = |name: &str| potable_manifests::sha256_hex(&std::fs::read(case.path(name)).unwrap());
    let input = &data.manifest["inputs"][0]["files"][0];
    assert_eq!(input["sha256"], format!("sha256:{}", sha256("a.jsonl")));
    assert_eq!(input["size"], std::fs::metadata(case.path("a.jsonl")).unwrap().len());
    for (path, bytes) in &data.bytes {
        let record = &data.manifest["run"]["file_sha256"][path];
        assert_eq!(record["sha256"], format!("sha256:{}", sha256(&format!("out/{path}"))));
        assert_eq!(record["size"], bytes.len());
    }
    let beside = std::fs::read_to_string(case.path("out/manifest.json.sha256")).unwrap();
    assert!(beside.contains(&sha256("out/manifest.json")), "{beside}");
    let lock: toml::Value =
        toml::from_str(&std::fs::read_to_string(case.path("out/recipe.lock")).unwrap()).unwrap();
    assert_eq!(lock["source"][0]["file"][0]["sha256"].as_str().unwrap(), sha256("a.jsonl"));
}

#[test]
fn the_manifest_names_no_path_of_this_machine() {
    let case = Case::new();
    case.put("data/a.jsonl", chats(4));
    let folder = case.path("").display().to_string();
    let mut data = case.prepared(&format!("[[source]]\nname = \"a\"\npath = \"{folder}/data\"\n"));
    data.manifest.as_object_mut().unwrap().remove("run");
    let text = data.manifest.to_string();
    assert!(!text.contains(folder.trim_end_matches('/')), "{text}");
}

#[test]
fn more_rows_than_a_chunk_and_more_tokens_than_a_row_group_hold_are_packed_whole() {
    let case = Case::new();
    let rows = (0..50_000).map(|n| chat(&format!("q {n}"), &format!("answer number {n}")));
    case.put("a.jsonl", lines(rows));
    let data = case.prepared(&format!("{SOURCE}[pack]\nlength = 2048\n"));
    balances(&data);
    assert_eq!(data.samples().len(), 50_000);
    let names: BTreeSet<String> = data.names().into_iter().collect();
    assert_eq!(names.len(), 50_000);
}
