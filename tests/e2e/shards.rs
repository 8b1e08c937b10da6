//! Every shard format: written, read back, and the same samples in each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use potable::pack::{Pack, PackedSample};
use potable::recipe::file::ShardFormat;
use potable::run::RunError;
use potable::shard::{Content, Row, ShardOptions, ShardSink, read};
use serde_json::Value;

use super::harness::{Case, chat, chats, files_below, lines};

const SOURCE: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n";
const SMALL: &str = "partition_bytes = 4000\nshard_tokens = 1000\nvalidation = 0.2\n";

/// A run in one format, and its shards read back: packs by path.
fn prepared(case: &Case, format: ShardFormat, extra: &str) -> (Value, BTreeMap<String, Vec<Pack>>) {
    let name = format.name();
    let text = if format.has_mask() { "" } else { "[normalise]\nformat = \"text\"\n" };
    case.recipe(&format!(
        "{SOURCE}{text}[pack]\nlength = 256\n{extra}[output]\nformat = \"{name}\"\n{SMALL}"
    ));
    let ran = case.run(name, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // How full a row is says something only where samples share rows.
    if !ran.stderr.contains("is up to date") {
        let packed = format.row() == Row::Pack && !extra.contains("\"none\"");
        assert_eq!(ran.stderr.contains("% full"), packed, "{}", ran.stderr);
        assert_eq!(ran.stderr.contains("one sample a row"), !packed, "{}", ran.stderr);
    }
    let root = case.path(name);
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(root.join("manifest.json")).unwrap()).unwrap();
    let mut shards = BTreeMap::new();
    for shard in manifest["shards"].as_array().unwrap() {
        let path = shard["path"].as_str().unwrap();
        assert_eq!(read::detect(&root.join(path)).unwrap(), format, "{path}");
        let packs: Vec<Pack> = read::open(&root, format, path).unwrap().map(|pack| pack.unwrap()).collect();
        let by_file: Vec<Pack> =
            read::open_file(&root.join(path)).unwrap().map(|pack| pack.unwrap()).collect();
        assert_eq!(packs, by_file, "{path}");
        let mut content = Content::new();
        packs.iter().for_each(|pack| content.add(pack));
        let content = content.finish();
        assert_eq!(shard["content_digest"], content.digest.as_str(), "{path}");
        assert_eq!(shard["tokens"], content.tokens);
        assert_eq!(shard["trained"], content.trained);
        assert_eq!(shard["samples"], content.samples);
        shards.insert(path.to_owned(), packs);
    }
    names_every_file(&root, &manifest);
    (manifest, shards)
}

/// The manifest names every file with its digest.
fn names_every_file(root: &Path, manifest: &Value) {
    let named = manifest["run"]["file_sha256"].as_object().unwrap();
    for (path, record) in named {
        let sha256 = potable_manifests::sha256_hex(&std::fs::read(root.join(path)).unwrap());
        assert_eq!(record["sha256"], format!("sha256:{sha256}"), "{path}");
    }
    let folders = ["shards", "validation", "sample_ids"];
    let found: BTreeSet<_> = folders.iter().flat_map(|folder| files_below(&root.join(folder))).collect();
    let expected: BTreeSet<_> = named.keys().map(|path| root.join(path)).collect();
    assert_eq!(found, expected);
}

fn samples(shards: &BTreeMap<String, Vec<Pack>>) -> Vec<PackedSample> {
    let mut samples: Vec<_> = shards.values().flatten().flat_map(|pack| pack.samples.clone()).collect();
    samples.sort_by(|a, b| a.name.cmp(&b.name));
    samples
}

#[test]
fn every_format_holds_the_samples_that_parquet_holds() {
    let case = Case::new();
    case.put("a.jsonl", chats(120));
    let (_, parquet) = prepared(&case, ShardFormat::Parquet, "");
    let expected = samples(&parquet);
    assert_eq!(expected.len(), 120);
    for format in ShardFormat::ALL.into_iter().filter(|format| format.has_mask()) {
        let (manifest, shards) = prepared(&case, format, "");
        assert_eq!(samples(&shards), expected, "{}", format.name());
        let rows: Vec<usize> = shards.values().flatten().map(|pack| pack.samples.len()).collect();
        match format.row() {
            Row::Sample => assert!(rows.iter().all(|samples| *samples == 1)),
            Row::Pack => assert!(rows.iter().any(|samples| *samples > 1)),
        }
        let validation = manifest["shards"].as_array().unwrap().iter().any(|s| s["split"] == "validation");
        assert!(validation, "{}", format.name());
    }
}

/// Trainers that pack concatenate every column of such rows.
#[test]
fn rows_of_unpacked_parquet_hold_lists_of_numbers_alone() {
    use arrow::datatypes::DataType;
    let case = Case::new();
    case.put("a.jsonl", chats(20));
    let (manifest, _) = prepared(&case, ShardFormat::ParquetUnpacked, "");
    let shard = manifest["shards"][0]["path"].as_str().unwrap();
    for batch in super::harness::batches(&case.path("parquet-unpacked").join(shard)) {
        for field in batch.schema().fields() {
            let DataType::List(item) = field.data_type() else { panic!("{field}") };
            assert!(item.data_type().is_integer(), "{field}");
        }
    }
}

#[test]
fn megatron_holds_plain_documents() {
    let case = Case::new();
    case.put("a.jsonl", lines((0..90).map(|n| serde_json::json!({"text": format!("Text {n} of ninety.")}))));
    let (_, shards) = prepared(&case, ShardFormat::Megatron, "");
    case.recipe(&format!("{SOURCE}[normalise]\nformat = \"text\"\n[pack]\nlength = 256\n[output]\n{SMALL}"));
    let parquet = case.prep("parquet", &[]);
    let of = |shards: &BTreeMap<String, Vec<Pack>>| -> Vec<(String, Vec<i32>)> {
        samples(shards).into_iter().map(|s| (s.name, s.ids.iter().map(|&id| id as i32).collect())).collect()
    };
    let mut expected: Vec<_> = parquet.samples().into_iter().map(|s| (s.name, s.ids)).collect();
    expected.sort();
    assert_eq!(of(&shards), expected);
}

#[test]
fn the_mask_of_megatron_bridge_stands_one_token_before_what_is_trained_on() {
    use arrow::array::AsArray;
    use arrow::datatypes::{Int8Type, Int32Type};
    let case = Case::new();
    case.put("a.jsonl", chats(60));
    let (_, shards) = prepared(&case, ShardFormat::MegatronBridge, "");
    for (path, packs) in &shards {
        let batches = super::harness::batches(&case.path("megatron-bridge").join(path));
        let rows = batches.iter().flat_map(|batch| {
            let list = |name: &str| batch.column_by_name(name).unwrap().as_list::<i32>().clone();
            let (masks, starts) = (list("loss_mask"), list("seq_start_id"));
            (0..batch.num_rows()).map(move |row| {
                let mask = masks.value(row).as_primitive::<Int8Type>().values().to_vec();
                (mask, starts.value(row).as_primitive::<Int32Type>().values().to_vec())
            })
        });
        for ((mask, starts), pack) in rows.zip(packs) {
            let mut start = 0;
            for (sample, found) in pack.samples.iter().zip(starts) {
                assert_eq!(found as usize, start);
                let trained = |at: u32| sample.trained.iter().any(|run| run.0 <= at && at < run.0 + run.1);
                for at in 0..sample.ids.len() {
                    let next = at + 1 < sample.ids.len() && trained(at as u32 + 1);
                    assert_eq!(mask[start + at] == 1, next);
                }
                start += sample.ids.len();
            }
            let counted: usize = pack.samples.iter().map(|sample| sample.ids.len() - 1).sum();
            assert!(counted <= 256, "{counted}");
        }
    }
    let metadata = std::fs::read(case.path("megatron-bridge/shards/packing_metadata.json")).unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    let all = || shards.values().flatten();
    let most = all().map(|pack| pack.samples.len()).max().unwrap();
    let longest = all().flat_map(|pack| &pack.samples).map(|sample| sample.ids.len() - 1).max().unwrap();
    assert_eq!(metadata[0]["max_samples_per_bin"], most);
    assert_eq!(metadata[0]["dataset_max_seqlen"], longest);
    assert_eq!(metadata[0]["pack_size"], 256);
}

#[test]
fn bytes_do_not_depend_on_threads_in_any_format() {
    let case = Case::new();
    case.put("a.jsonl", chats(80));
    for format in ShardFormat::ALL.into_iter().filter(|format| format.has_mask()) {
        let name = format.name();
        case.recipe(&format!("{SOURCE}[pack]\nlength = 256\n[output]\nformat = \"{name}\"\n{SMALL}"));
        let bytes = |out: &str, args: &[&str]| {
            assert_eq!(case.run(out, args).code, 0);
            let files = files_below(&case.path(out)).into_iter();
            let data = files
                .filter(|path| !path.ends_with("manifest.json") && !path.ends_with("manifest.json.sha256"));
            let root = case.path(out);
            data.map(|path| (path.strip_prefix(&root).unwrap().to_owned(), std::fs::read(&path).unwrap()))
                .collect::<BTreeMap<_, _>>()
        };
        let one = bytes(&format!("{name}-1"), &["--threads", "1"]);
        let two = bytes(&format!("{name}-2"), &["--threads", "3", "--chunk-bytes", "2000"]);
        assert!(one == two, "{name}");
    }
}

#[test]
fn megatron_for_chat_is_refused() {
    let case = Case::new();
    case.put("a.jsonl", chats(3));
    case.recipe(&format!("{SOURCE}[output]\nformat = \"megatron\"\n"));
    case.refused(&[
        "[output]",
        "`format = \"megatron\"`",
        "not trained on",
        "hint: use `megatron-bridge` for chat",
    ]);
    // A chat row under the text format is refused by the plan.
    case.recipe(&format!("{SOURCE}[normalise]\nformat = \"text\"\n[output]\nformat = \"megatron\"\n"));
    assert_eq!(case.run("out", &[]).code, 2);
}

#[test]
fn strategies_that_do_not_go_with_the_format_are_refused() {
    let case = Case::new();
    case.put("a.jsonl", chats(3));
    let refused = |pack: &str, output: &str, words: &[&str]| {
        case.recipe(&format!("{SOURCE}[pack]\n{pack}\n[output]\n{output}\n"));
        case.refused(words);
    };
    refused("strategy = \"best-fit\"", "format = \"olmo\"", &["[pack]", "`olmo`", "one sample"]);
    let concat = "strategy = \"concat-and-split\"";
    refused(&format!("{concat}\noverlong = \"drop\""), "", &["[pack]", "cuts samples"]);
    refused(&format!("{concat}\nlength = [64, 128]"), "", &["[pack]", "cuts samples"]);
    refused(concat, "format = \"megatron-bridge\"", &["[pack]", "`megatron-bridge`"]);
    refused("", "format = \"mds\"\nposition_ids = true", &["[output]", "`position_ids`", "`mds`"]);
}

/// A pack of one sample with this id in it.
fn pack_of(id: u32) -> Pack {
    Pack {
        samples: vec![PackedSample { name: "a/a.jsonl:0".into(), ids: vec![1, id], trained: vec![(1, 1)] }],
    }
}

#[test]
fn ids_too_large_for_the_type_of_the_format_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = |format, vocabulary| ShardOptions { format, position_ids: false, vocabulary };
    for (format, vocabulary, most) in [
        (ShardFormat::Olmo, 300, u32::from(u16::MAX)),
        (ShardFormat::Olmo, 1 << 17, u32::MAX),
        (ShardFormat::Parquet, 300, i32::MAX as u32),
        (ShardFormat::ParquetUnpacked, 300, i32::MAX as u32),
        (ShardFormat::Arrow, 300, i32::MAX as u32),
        (ShardFormat::MegatronBridge, 300, i32::MAX as u32),
        (ShardFormat::Megatron, 300, i32::MAX as u32),
        (ShardFormat::Mds, 300, i32::MAX as u32),
    ] {
        let path = "shards/x";
        let mut sink = ShardSink::create(folder.path(), path, &options(format, vocabulary)).unwrap();
        sink.push(pack_of(most)).unwrap();
        let Some(above) = most.checked_add(1) else { continue };
        let error = sink.push(pack_of(above)).unwrap_err();
        assert!(matches!(error, RunError::IdTooLarge { id, .. } if id == above), "{error}");
        assert!(error.to_string().contains("a/a.jsonl:0") && error.hint().is_some(), "{error}");
        drop(sink);
        assert!(files_below(folder.path()).is_empty(), "{}: files are left", format.name());
    }
}

#[test]
fn a_shard_that_was_changed_is_an_error_with_its_file() {
    let case = Case::new();
    case.put("a.jsonl", chats(40));
    for format in ShardFormat::ALL.into_iter().filter(|format| format.has_mask()) {
        let (_, shards) = prepared(&case, format, "");
        let root = case.path(format.name());
        let path = shards.keys().next().unwrap();
        let whole = std::fs::read(root.join(path)).unwrap();
        case.put(&format!("{}/{path}", format.name()), &whole[..whole.len() / 2]);
        let all: Result<Vec<Pack>, _> =
            read::open(&root, format, path).and_then(|packs| packs.collect::<Result<_, _>>());
        let error = all.expect_err(format.name());
        assert!(error.to_string().contains("part"), "{error}");
    }
}

#[test]
fn concat_and_split_fills_every_pack_and_loses_no_token() {
    let case = Case::new();
    case.put("a.jsonl", lines([chat("q", &"x".repeat(3000))]) + &chats(150));
    let (manifest, shards) = prepared(&case, ShardFormat::Parquet, "strategy = \"concat-and-split\"\n");
    let packs: Vec<&Pack> = shards.values().flatten().collect();
    // Train and validation end with one pack each that is not full.
    assert!(packs.iter().filter(|pack| pack.tokens() < 256).count() <= 2);
    assert_eq!(manifest["rows"]["a"]["kept"], 151);
    case.recipe(&format!("{SOURCE}[pack]\nlength = 4096\nstrategy = \"none\"\n[output]\n{SMALL}"));
    let whole = case.prep("whole", &[]);
    let mut rows: BTreeMap<String, Vec<(usize, Vec<i32>)>> = BTreeMap::new();
    for sample in samples(&shards) {
        let (row, fragment) = sample.name.rsplit_once(".f").unwrap_or((&sample.name, "0"));
        let ids = sample.ids.iter().map(|&id| id as i32).collect();
        rows.entry(row.to_owned()).or_default().push((fragment.parse().unwrap(), ids));
    }
    for sample in whole.samples() {
        let mut parts = rows.remove(&sample.name).unwrap();
        parts.sort();
        assert_eq!(parts.iter().map(|part| part.0).collect::<Vec<_>>(), (0..parts.len()).collect::<Vec<_>>());
        assert_eq!(parts.into_iter().flat_map(|part| part.1).collect::<Vec<_>>(), sample.ids);
    }
    assert!(rows.is_empty());
}

#[test]
fn first_fit_packs_every_sample_once() {
    let case = Case::new();
    case.put("a.jsonl", chats(150));
    let (_, best) = prepared(&case, ShardFormat::Parquet, "");
    let (_, first) = prepared(&case, ShardFormat::Mds, "strategy = \"first-fit\"\n");
    assert_eq!(samples(&best), samples(&first));
    assert!(first.values().flatten().all(|pack| pack.tokens() <= 256));
}

#[test]
fn a_run_of_many_partitions_is_full_to_its_end() {
    let case = Case::new();
    case.put("a.jsonl", chats(2000));
    let recipe = |bytes: u64| format!("{SOURCE}[pack]\nlength = 1024\n[output]\npartition_bytes = {bytes}\n");
    case.recipe(&recipe(20_000));
    let parted = case.prep("parted", &[]);
    case.recipe(&recipe(1 << 30));
    let whole = case.prep("whole", &[]);
    assert!(parted.number("/recipe/partitions") > 16, "{}", parted.number("/recipe/partitions"));
    assert_eq!(parted.names(), whole.names());
    let (parted, whole) = (parted.number("/tokens/packs"), whole.number("/tokens/packs"));
    assert!(parted <= whole + 2, "{parted} packs in partitions, {whole} in one");
}

#[test]
fn calibration_packs_are_a_seeded_choice_of_the_train_packs() {
    let case = Case::new();
    case.put("a.jsonl", chats(200));
    let recipe = format!("{SOURCE}[pack]\nlength = 256\n[output]\n{SMALL}calibration = 7\n");
    case.recipe(&recipe);
    let one = case.prep("one", &[]);
    let file = |out: &str| case.path(out).join("calibration.parquet");
    let packs: Vec<Pack> = read::open_file(&file("one")).unwrap().map(|pack| pack.unwrap()).collect();
    assert_eq!(packs.len(), 7);
    let names: BTreeSet<Vec<String>> = one
        .shards
        .iter()
        .filter(|(path, _)| path.starts_with("shards/"))
        .flat_map(|(_, packs)| packs.iter().map(|pack| pack.names.clone()))
        .collect();
    for pack in &packs {
        assert!(names.contains(&pack.samples.iter().map(|s| s.name.clone()).collect::<Vec<_>>()));
    }
    let sha256 = potable_manifests::sha256_hex(&std::fs::read(file("one")).unwrap());
    let record = &one.manifest["run"]["file_sha256"]["calibration.parquet"];
    assert_eq!(record["sha256"], format!("sha256:{sha256}"));
    assert_eq!(one.manifest["recipe"]["settings"]["output"]["calibration"], 7);
    case.prep("two", &["--threads", "1"]);
    assert_eq!(std::fs::read(file("one")).unwrap(), std::fs::read(file("two")).unwrap());
    case.recipe(&recipe.replace(SOURCE, &format!("seed = 3\n{SOURCE}")));
    case.prep("three", &[]);
    assert_ne!(std::fs::read(file("one")).unwrap(), std::fs::read(file("three")).unwrap());
}
