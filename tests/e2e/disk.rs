//! Disks that fill up. The small disk is a tmpfs in a mount namespace of its own, so that nothing of
//! this machine changes and nothing is left mounted.

use std::process::Command;

use potable::recipe::file::ShardFormat;
use serde_json::json;

use super::harness::{Case, Ran, chat, files_below, lines, ran};

const RECIPE: &str = "[[source]]\nname = \"a\"\npath = \"a.jsonl.zst\"\n[pack]\nlength = 4096\n";

/// Runs a shell script in a mount namespace; `None` where there are none.
fn in_namespace(case: &Case, script: &str) -> Option<Ran> {
    let probe = "mkdir -p probe && mount -t tmpfs -o size=64k none probe";
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-ec", script]).current_dir(case.path("."));
        command.env("POTABLE", env!("CARGO_BIN_EXE_potable"));
        command
    };
    if !unshared(probe).output().is_ok_and(|output| output.status.success()) {
        super::harness::skipped("no mount namespace on this machine");
        return None;
    }
    Some(ran(&mut unshared(script)))
}

/// The part of stderr between two marks.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    text.split_once(from).unwrap().1.split_once(to).unwrap().0
}

fn zst(case: &Case, rows: impl Iterator<Item = serde_json::Value>) {
    case.put("a.jsonl.zst", zstd::encode_all(lines(rows).as_bytes(), 3).unwrap());
    case.recipe(RECIPE);
}

/// Text that no compressor makes smaller.
fn noise(seed: u64, len: usize) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_disk_that_is_too_small_is_refused_before_any_work() {
    let case = Case::new();
    zst(&case, (0..300).map(|n| chat(&format!("question {n}"), &noise(n, 2000))));
    let script = "mkdir disk && mount -t tmpfs -o size=200k none disk
        set +e; $POTABLE prep recipe.toml --no-progress --out disk/out; echo code=$? >&2
        ls disk/out/.work >&2; test -e disk/out/manifest.json && echo sealed >&2; true";
    let Some(ran) = in_namespace(&case, script) else { return };
    for word in ["disk/out", "bytes free where about", "\nhint: make room", "code=2"] {
        assert!(ran.stderr.contains(word), "`{word}` is not in\n{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("map-") && !ran.stderr.contains("sealed"), "{}", ran.stderr);
}

/// Fills the disk, makes room, goes on; compares with an undisturbed run.
fn fills_and_goes_on(case: &Case, mount: &str, work_is_kept: &str) {
    let undisturbed = case.prep("undisturbed", &[]);
    let script = format!(
        "mkdir -p disk/out/.work disk/out/shards
        {mount}
        set +e
        $POTABLE prep recipe.toml --no-progress --out disk/out --chunk-bytes 20000 --threads 1; echo code=$? >&2
        test -e disk/out/manifest.json && echo sealed >&2
        ls -i {work_is_kept} | sort > before
        echo more-room >&2
        mount -o remount,size=200m $DISK
        $POTABLE prep recipe.toml --no-progress --out disk/out --chunk-bytes 20000 --threads 1 --keep-work; echo code=$? >&2
        ls -i {work_is_kept} | sort > after
        cp -r disk/out out"
    );
    let Some(ran) = in_namespace(case, &script) else { return };
    let first = between(&ran.stderr, "error: ", "more-room");
    for word in [
        "cannot write",
        "No space left on device",
        "\nhint: make room and run the same command again",
        "code=2",
    ] {
        assert!(first.contains(word), "`{word}` is not in\n{first}");
    }
    assert!(!first.contains("sealed"), "{first}");
    assert!(ran.stderr.split_once("more-room").unwrap().1.contains("code=0"), "{}", ran.stderr);
    let data = case.data("out");
    assert_eq!(data.digest(), undisturbed.digest());
    assert_eq!(data.bytes, undisturbed.bytes);
    let list = |name: &str| std::fs::read_to_string(case.path(name)).unwrap();
    let after = list("after");
    assert!(!list("before").is_empty(), "nothing was finished before the disk was full");
    assert!(list("before").lines().all(|line| after.contains(line)), "finished work was done again");
}

#[test]
fn a_disk_that_fills_up_in_map_stops_the_run_and_room_lets_it_go_on() {
    // A thousand to one: the preflight takes this for a small job.
    let case = Case::new();
    zst(&case, (0..600).map(|n| chat(&format!("question {n}"), &"the same words again ".repeat(100))));
    fills_and_goes_on(
        &case,
        "DISK=disk/out; mount -t tmpfs -o size=1m none disk/out",
        "disk/out/.work/map-*/*.arrow",
    );
}

#[test]
fn a_disk_that_fills_up_in_reduce_stops_the_run_and_room_lets_it_go_on() {
    let case = Case::new();
    zst(&case, (0..300).map(|n| chat(&format!("question {n}"), &noise(n, 2000))));
    let text = std::fs::read_to_string(case.path("recipe.toml")).unwrap();
    case.put("recipe.toml", text + "\n[output]\npartition_bytes = 200000\n");
    let mount = "DISK=disk/out/shards; mount -t tmpfs -o size=200k none disk/out/shards";
    fills_and_goes_on(&case, mount, "disk/out/.work/map-*/*.arrow");
}

/// Fills the disk of the shards while they are written in a format; nothing of a shard that was not
/// finished stays under its name, and with room the same bytes come out as undisturbed.
fn fills_while_writing(format: ShardFormat) {
    let case = Case::new();
    let text = |n| json!({"text": noise(n, 2000)});
    let row = |n| if format.has_mask() { chat(&format!("question {n}"), &noise(n, 2000)) } else { text(n) };
    zst(&case, (0..300).map(row));
    let normalise = if format.has_mask() { "" } else { "[normalise]\nformat = \"text\"\n" };
    let output = format!("[output]\nformat = \"{}\"\npartition_bytes = 200000\n", format.name());
    case.recipe(&format!("{RECIPE}{normalise}{output}"));
    let prep = "$POTABLE prep recipe.toml --no-progress --threads 1 --out";
    // Uncompressed formats need more room: each disk has some for a shard or two, and not for all.
    let script = format!(
        "{prep} undisturbed >&2
        mkdir -p disk/out/.work disk/out/shards
        mount -t tmpfs -o size=$(( $(du -sk undisturbed/shards | cut -f1) / 2 ))k none disk/out/shards
        set +e
        {prep} disk/out; echo code=$? >&2
        test -e disk/out/manifest.json && echo sealed >&2
        (cd disk/out/shards; find . -type f | sort) > there
        cp -r disk/out/shards first
        echo more-room >&2
        mount -o remount,size=200m disk/out/shards
        {prep} disk/out; echo code=$? >&2
        mkdir out; cp -r disk/out/. out"
    );
    let Some(ran) = in_namespace(&case, &script) else { return };
    let first = between(&ran.stderr, "error: ", "more-room");
    for word in ["cannot write", "No space left on device", "\nhint: make room", "code=2"] {
        assert!(first.contains(word), "`{word}` is not in\n{first}");
    }
    assert!(!first.contains("sealed"), "{first}");
    let (_, second) = ran.stderr.split_once("more-room").unwrap();
    assert!(second.contains("code=0"), "{second}");
    // Files that have a name are whole: they are those of the undisturbed run.
    let there = std::fs::read_to_string(case.path("there")).unwrap();
    let named: Vec<&str> = there.lines().filter(|path| !path.contains("/.")).collect();
    assert!(!named.is_empty(), "nothing was finished before the disk was full");
    let read = |folder: &str, path: &str| std::fs::read(case.path(folder).join(path)).unwrap();
    for path in named {
        assert!(read("first", path) == read("undisturbed/shards", path), "{path} is not whole");
    }
    let files = |folder: &str| -> Vec<(String, Vec<u8>)> {
        let root = case.path(folder);
        let below = |part: &str| files_below(&root.join(part)).into_iter();
        let all = below("shards").chain(below("sample_ids"));
        let mut all: Vec<_> = all
            .map(|path| {
                (path.strip_prefix(&root).unwrap().display().to_string(), std::fs::read(&path).unwrap())
            })
            .collect();
        all.sort();
        all
    };
    assert!(files("out") == files("undisturbed"), "another run's bytes");
}

macro_rules! fills_up {
    ($($name:ident: $format:ident,)*) => { $(
        #[test]
        fn $name() {
            fills_while_writing(ShardFormat::$format);
        }
    )* };
}

fills_up! {
    a_disk_that_fills_up_under_parquet_packs_leaves_whole_shards: Parquet,
    a_disk_that_fills_up_under_parquet_samples_leaves_whole_shards: ParquetUnpacked,
    a_disk_that_fills_up_under_arrow_and_its_sample_ids_leaves_whole_shards: Arrow,
    a_disk_that_fills_up_under_megatron_bridge_leaves_whole_shards: MegatronBridge,
    a_disk_that_fills_up_under_the_three_files_of_olmo_leaves_whole_shards: Olmo,
    a_disk_that_fills_up_under_bin_and_idx_of_megatron_leaves_whole_shards: Megatron,
    a_disk_that_fills_up_under_mds_leaves_whole_shards: Mds,
}
