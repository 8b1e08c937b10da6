//! `manifest verify`: damage of any kind is found, and bad input is refused with its place.

use std::path::{Path, PathBuf};

use potable::recipe::file::ShardFormat;
use potable::verify::progress::ByteProgress;
use potable_manifests::{Digest, FileRecord, Index, Manifest};
use serde_json::json;

use crate::harness::{Case, Ran, chats, chats_from, files_below, lines, put};

/// A data set with several shards, validation, dropped rows and a benchmark.
fn case() -> Case {
    let case = Case::new();
    case.put("a.jsonl", chats(60));
    let item = "A shepherd has 14 ewes and each ewe has 3 lambs, of which 5 are sold on the market in May.";
    let contaminated =
        json!({"messages": [{"role": "user", "content": item}, {"role": "assistant", "content": "37"}]});
    case.put("b.jsonl", chats_from(70, 3) + &lines([contaminated, json!({"messages": []})]));
    case.put("bench.jsonl", lines([json!({"prompt": item})]));
    case.put("bench.toml", "name = \"sheep\"\nfiles = [\"bench.jsonl\"]\nprompt = \"prompt\"\n");
    case.recipe(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[[source]]\nname = \"b\"\npath = \"b.jsonl\"\n\
         [decontaminate]\nbenchmarks = [\"bench.toml\"]\n\
         [pack]\nlength = 512\n[output]\nvalidation = 0.2\npartition_bytes = 4000\nshard_tokens = 2000\n",
    );
    case
}

fn sealed() -> Case {
    let case = case();
    case.prep("out", &[]);
    case
}

fn verify(case: &Case) -> Ran {
    case.potable(&["manifest", "verify", "out"])
}

/// Exit status 1, and a line on stdout with each of `words`.
fn is_found(case: &Case, words: &[&str]) -> String {
    let ran = verify(case);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    for word in words {
        assert!(ran.stdout.contains(word), "`{word}` is not in:\n{}", ran.stdout);
    }
    ran.stdout
}

fn some_shard(case: &Case) -> PathBuf {
    files_below(&case.path("out/shards")).into_iter().next().unwrap()
}

fn name_of(case: &Case, path: &Path) -> String {
    path.strip_prefix(case.path("out")).unwrap().to_string_lossy().into_owned()
}

/// Changes the manifest's text, and with `seal` the digests that cover it, as somebody would who wants
/// to deceive.
fn edit(case: &Case, change: impl FnOnce(&mut Manifest), seal: bool) {
    let path = case.path("out/manifest.json");
    let mut manifest = Manifest::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut manifest);
    if seal {
        manifest = manifest.seal().unwrap();
    }
    let text = manifest.to_json().unwrap();
    put(&path, text.as_bytes());
    if seal {
        let sum = format!("{}  manifest.json\n", Digest::of(text.as_bytes()).hex());
        put(&case.path("out/manifest.json.sha256"), sum.as_bytes());
    }
}

#[test]
fn a_sealed_data_set_is_verified_and_says_what_is_not_covered() {
    let case = sealed();
    case.put("out/downloads.jsonl", "{}\n");
    assert!(case.path("out/report.html").exists());
    case.put("out/README.md", "Our data.\n");
    let ran = verify(&case);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout, "verified out: it holds what its manifest says\n");
    assert!(ran.stderr.contains("2 dropped rows"), "{}", ran.stderr);
    assert!(ran.stderr.contains("not covered        downloads.jsonl, report.html"), "{}", ran.stderr);
    assert!(ran.stderr.contains("here: README.md, downloads.jsonl, report.html"), "{}", ran.stderr);
}

#[test]
fn a_thousand_flipped_bytes_are_a_thousand_findings() {
    let case = sealed();
    let covered = |path: &PathBuf| !path.ends_with("report.html") && !path.ends_with("downloads.jsonl");
    let files: Vec<PathBuf> = files_below(&case.path("out")).into_iter().filter(covered).collect();
    assert!(files.len() > 8, "{files:?}");
    let sizes: Vec<u64> = files.iter().map(|path| path.metadata().unwrap().len()).collect();
    let total: u64 = sizes.iter().sum();
    let mut state = 20_261_130u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut missed = Vec::new();
    for flip in 0..1000 {
        // Every file gets flips, small ones too: half of them anywhere, half in a file by turns.
        let mut at = random() % total;
        let mut file =
            sizes.iter().position(|&size| at.checked_sub(size).map(|rest| at = rest).is_none()).unwrap();
        if flip % 2 == 0 {
            file = flip / 2 % files.len();
            at = random() % sizes[file];
        }
        let whole = std::fs::read(&files[file]).unwrap();
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 1 << (random() % 8);
        put(&files[file], &bytes);
        // A manifest that cannot be read any more is an error, which is found as well.
        let verified = potable::verify::verify(&case.path("out"), &ByteProgress::default());
        if verified.is_ok_and(|checked| checked.iter().all(|one| one.problems.is_empty())) {
            missed.push((files[file].clone(), at));
        }
        put(&files[file], &whole);
    }
    assert!(missed.is_empty(), "{} of 1000 flips were not found: {missed:?}", missed.len());
    assert_eq!(verify(&case).code, 0);
}

#[test]
fn a_truncated_manifest_is_refused() {
    let case = sealed();
    let text = std::fs::read(case.path("out/manifest.json")).unwrap();
    case.put("out/manifest.json", &text[..text.len() / 2]);
    verify(&case).is_refusal(&["out/manifest.json: cannot be used as a manifest", "cut short"]);
    case.potable(&["manifest", "diff", "out", "out"]).is_refusal(&["cut short"]);
}

#[test]
fn a_hand_edited_manifest_is_found() {
    let case = sealed();
    let text = std::fs::read_to_string(case.path("out/manifest.json")).unwrap();
    case.put("out/manifest.json", text.replacen("\"strict\": false", "\"strict\": true", 1));
    is_found(
        &case,
        &["manifest.json: was changed after it was sealed", "manifest.json.sha256: does not hold the sha256"],
    );
    case.potable(&["manifest", "diff", "out", "out"]).is_refusal(&["changed after it was sealed", "verify"]);
}

#[test]
fn an_edited_run_block_is_found_too() {
    let case = sealed();
    edit(&case, |manifest| manifest.run.host = Some("elsewhere".to_owned()), false);
    is_found(&case, &["manifest.json.sha256: does not hold the sha256"]);
}

#[test]
fn counts_that_do_not_add_up_are_found_under_a_new_seal() {
    let case = sealed();
    edit(&case, |manifest| manifest.rows.get_mut("a").unwrap().read += 1, true);
    is_found(&case, &["rows of source `a` do not balance: read `61`, accounted for `60`"]);
}

#[test]
fn counts_that_the_data_does_not_have_are_found_under_a_new_seal() {
    let case = sealed();
    edit(
        &case,
        |manifest| {
            manifest.tokens.per_source.get_mut("a").unwrap().trained -= 1;
            manifest.tokens.trained -= 1;
            manifest.shards[0].trained -= 1;
        },
        true,
    );
    is_found(&case, &["shards/part-00000-000.parquet: holds", "trained tokens, the manifest says"]);
}

#[test]
fn a_mixture_that_the_data_does_not_have_is_found_under_a_new_seal() {
    let case = sealed();
    edit(
        &case,
        |manifest| {
            manifest.tokens.per_source.get_mut("a").unwrap().tokens -= 1;
            manifest.tokens.per_source.get_mut("b").unwrap().tokens += 1;
        },
        true,
    );
    is_found(&case, &["shards: holds", "tokens of source `a`, the manifest says", "tokens of source `b`"]);
}

#[test]
fn dropped_rows_that_the_ledger_does_not_have_are_found_under_a_new_seal() {
    let case = sealed();
    edit(
        &case,
        |manifest| {
            let ledger = manifest.rows.get_mut("b").unwrap();
            ledger.dropped.remove("decontaminate.ngram").unwrap();
            ledger.read -= 1;
        },
        true,
    );
    is_found(&case, &["holds 1 rows of source `b` for `decontaminate.ngram`, the manifest says 0"]);
}

#[test]
fn a_recipe_that_does_not_give_the_settings_is_found_under_a_new_seal() {
    let case = sealed();
    edit(
        &case,
        |manifest| {
            let text = manifest.run.recipe_text.as_ref().unwrap();
            manifest.run.recipe_text = Some(text.replace("length = 512", "length = 256"));
        },
        true,
    );
    is_found(&case, &["the text of its recipe does not give the settings"]);
}

#[test]
fn a_lock_that_does_not_agree_is_found_under_a_new_seal() {
    let case = sealed();
    let lock = std::fs::read_to_string(case.path("out/recipe.lock")).unwrap();
    let other = lock.replacen("partitions = ", "partitions = 1", 1).replacen(
        "name = \"a.jsonl\"",
        "name = \"c.jsonl\"",
        1,
    );
    case.put("out/recipe.lock", &other);
    let sha256 = Digest::of(other.as_bytes());
    edit(&case, |manifest| drop(manifest.run.other_digests.insert("recipe.lock".to_owned(), sha256)), true);
    is_found(
        &case,
        &[
            "recipe.lock: partitions: the lock says",
            "recipe.lock: files of source `a`: the lock says `c.jsonl",
        ],
    );
}

#[test]
fn a_newer_schema_version_is_refused_and_both_are_named() {
    let case = sealed();
    let text = std::fs::read_to_string(case.path("out/manifest.json")).unwrap();
    case.put("out/manifest.json", text.replace("potable-manifest-1", "potable-manifest-7"));
    let words = ["manifest has version `7`, this potable reads up to version `1`"];
    verify(&case).is_refusal(&words);
    case.potable(&["manifest", "diff", "out", "out"]).is_refusal(&words);
}

#[test]
fn a_folder_without_a_manifest_is_refused() {
    let case = Case::new();
    case.put("out/shards/part-00000-000.parquet", "x");
    verify(&case).is_refusal(&["out: holds no manifest.json, so it is not a data set"]);
    case.potable(&["manifest", "verify", "nowhere"])
        .is_refusal(&["nowhere: there is no such file or folder"]);
    case.potable(&["manifest", "verify", "tokenizer.json"]).is_refusal(&["is a file, not the folder"]);
}

#[test]
fn the_manifest_of_another_tool_is_refused() {
    let case = Case::new();
    case.put("out/manifest.json", "{\"splits\": {}, \"features\": []}");
    let words = ["not a potable manifest: its JSON has no `schema`, it has `splits`, `features`"];
    verify(&case).is_refusal(&words);
    case.put("out/manifest.json", "{\"schema\": \"croissant\"}");
    verify(&case).is_refusal(&["`schema` is `croissant`"]);
}

#[test]
fn a_missing_shard_is_found() {
    let case = sealed();
    let shard = some_shard(&case);
    std::fs::remove_file(&shard).unwrap();
    is_found(&case, &[&format!("{}: is missing\n", name_of(&case, &shard))]);
}

#[test]
fn an_added_shard_is_found() {
    let case = sealed();
    std::fs::copy(some_shard(&case), case.path("out/shards/part-00099-000.parquet")).unwrap();
    is_found(&case, &["shards/part-00099-000.parquet: was added: the manifest does not name it"]);
}

#[test]
fn a_renamed_shard_is_found_as_renamed() {
    let case = sealed();
    let shard = some_shard(&case);
    std::fs::rename(&shard, case.path("out/shards/x.parquet")).unwrap();
    let name = name_of(&case, &shard);
    let stdout = is_found(
        &case,
        &[&format!("{name}: is missing; `shards/x.parquet` holds its bytes, so it was renamed")],
    );
    assert!(!stdout.contains("was added"), "{stdout}");
}

#[test]
fn a_bit_flipped_in_a_shard_is_found() {
    let case = sealed();
    let shard = some_shard(&case);
    let mut bytes = std::fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    put(&shard, &bytes);
    is_found(&case, &[&format!("{}: has sha256 `sha256:", name_of(&case, &shard))]);
}

#[test]
fn two_shards_that_trade_names_are_found() {
    let case = sealed();
    let shards = files_below(&case.path("out/shards"));
    let (a, b) = (std::fs::read(&shards[0]).unwrap(), std::fs::read(&shards[1]).unwrap());
    put(&shards[0], &b);
    put(&shards[1], &a);
    let names = [name_of(&case, &shards[0]), name_of(&case, &shards[1])];
    is_found(&case, &[&names[0], &names[1], "samples have the digest"]);
}

fn phases() -> Case {
    let case = Case::new();
    case.put("a.jsonl", chats(30));
    case.recipe(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\n[[phase]]\nname = \"short\"\n[phase.pack]\nlength = 256\n\
         [[phase]]\nname = \"long\"\n[phase.pack]\nlength = 512\n",
    );
    assert_eq!(case.run("out", &[]).code, 0);
    case
}

#[test]
fn phases_are_verified_with_their_index() {
    let case = phases();
    let ran = verify(&case);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "verified out: it holds what its manifest says\n"));
    assert!(ran.stderr.contains("phase short") && ran.stderr.contains("phase long"), "{}", ran.stderr);
    case.put("out/stray.parquet", "x");
    is_found(&case, &["stray.parquet: was added"]);
}

#[test]
fn damage_in_a_phase_or_in_the_index_is_found() {
    let case = phases();
    let index = std::fs::read_to_string(case.path("out/manifest.json")).unwrap();
    case.put("out/manifest.json", index.replacen("sha256:", "sha256:0", 1));
    verify(&case).is_refusal(&["64 lower-case hex digits"]);
    let (before, after) = index.split_once("sha256:").unwrap();
    let digit = if after.starts_with('0') { '1' } else { '0' };
    let after: String = after.chars().skip(1).collect();
    case.put("out/manifest.json", format!("{before}sha256:{digit}{after}"));
    is_found(&case, &["short/manifest.json: the manifest digest is"]);
    case.put("out/manifest.json", index.replacen("  \"name\"", " \"name\"", 1));
    is_found(&case, &["manifest.json: is not written as potable writes it"]);
    case.put("out/manifest.json", &index);
    case.put("out/long/recipe.lock", "x");
    is_found(&case, &["long/recipe.lock: has sha256"]);
}

#[test]
fn a_shard_that_only_the_run_block_names_is_found() {
    let case = sealed();
    let shard = some_shard(&case);
    let (name, added) = (name_of(&case, &shard), "shards/part-99999-000.parquet");
    std::fs::copy(&shard, case.path(&format!("out/{added}"))).unwrap();
    edit(
        &case,
        |manifest| {
            let record = manifest.run.file_sha256[&name].clone();
            manifest.run.file_sha256.insert(added.to_owned(), record);
        },
        true,
    );
    is_found(&case, &[&format!("{added}: is named in the run block, and it is no file of a shard")]);
}

#[test]
fn a_file_among_the_other_digests_that_no_run_writes_is_found() {
    let case = sealed();
    let added = "shards/part-99999-000.parquet";
    let bytes = std::fs::read(some_shard(&case)).unwrap();
    put(&case.path(&format!("out/{added}")), &bytes);
    let digest = Digest::of(&bytes);
    edit(&case, |manifest| drop(manifest.run.other_digests.insert(added.to_owned(), digest)), true);
    is_found(&case, &[&format!("{added}: is named in the run block")]);
}

#[test]
fn the_files_of_every_format_are_those_of_its_shards() {
    for format in ShardFormat::ALL {
        let case = of_format(format, "calibration = 2\nvalidation = 0.2\n");
        let ran = verify(&case);
        assert_eq!(ran.code, 0, "{}: {}{}", format.name(), ran.stdout, ran.stderr);
    }
}

#[test]
fn an_index_file_that_nothing_states_is_missed() {
    let case = of_format(ShardFormat::Mds, "");
    std::fs::remove_file(case.path("out/shards/index.json")).unwrap();
    edit(&case, |manifest| drop(manifest.run.file_sha256.remove("shards/index.json")), true);
    is_found(&case, &["shards/index.json: belongs to a shard of the manifest"]);
}

#[test]
fn pointers_of_megatron_that_do_not_follow_from_the_lengths_are_found() {
    let case = of_format(ShardFormat::Megatron, "");
    let files = files_below(&case.path("out/shards"));
    let index = files.iter().find(|path| path.extension().is_some_and(|ext| ext == "idx")).unwrap();
    let (name, whole) = (name_of(&case, index), std::fs::read(index).unwrap());
    let count = u64::from_le_bytes(whole[18..26].try_into().unwrap()) as usize;
    assert!(count > 1);
    // The place of the second sequence, and the last entry of the index of documents.
    for at in [34 + 4 * count + 8, whole.len() - 8] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        put(index, &bytes);
        let record = FileRecord { sha256: Digest::of(&bytes), size: bytes.len() as u64 };
        edit(&case, |manifest| drop(manifest.run.file_sha256.insert(name.clone(), record)), true);
        is_found(&case, &["do not follow from its lengths"]);
    }
}

#[test]
fn fields_that_contradict_the_settings_are_found_under_a_new_seal() {
    let case = sealed();
    edit(&case, |manifest| manifest.recipe.seed += 1, true);
    is_found(&case, &["`recipe.seed` is `"]);
    edit(&case, |manifest| manifest.decontamination.ngram += 1, true);
    edit(&case, |manifest| manifest.decontamination.strict ^= true, true);
    is_found(&case, &["`decontamination.ngram` is `", "`decontamination.strict` is `"]);
}

#[test]
fn an_index_without_phases_is_found() {
    let case = Case::new();
    let index = Index::new("recipe", Vec::new()).to_json().unwrap();
    case.put("out/manifest.json", index);
    is_found(&case, &["manifest.json: names no phase"]);
}

/// A sealed data set of texts in any format.
fn of_format(format: ShardFormat, output: &str) -> Case {
    let case = Case::new();
    let rows = (0..60).map(|row| json!({"text": format!("Row {row} tells of {} sheep on a hill.", row * 7)}));
    case.put("a.jsonl", lines(rows));
    case.recipe(&format!(
        "[[source]]\nname = \"a\"\npath = \"a.jsonl\"\nmapping = {{ shape = \"text\", text = \"text\" }}\n\
         [normalise]\nformat = \"text\"\n[pack]\nlength = 256\n[output]\nformat = \"{}\"\npartition_bytes = 1500\n{output}",
        format.name()
    ));
    let ran = case.run("out", &[]);
    assert_eq!(ran.code, 0, "{}: {}", format.name(), ran.stderr);
    case
}
