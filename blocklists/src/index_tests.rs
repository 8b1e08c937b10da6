use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use super::*;
use crate::benchmark::{BenchmarkMeta, Item};
use crate::build::BlocklistBuilder;
use crate::format::{CHECKSUM, FORMAT_VERSION};
use crate::scan::{Part, Rule, Scanner};

fn built() -> Blocklist {
    let mut builder = BlocklistBuilder::new(8).expect("n");
    let meta = BenchmarkMeta { name: "a".into(), sensitive: true, ..BenchmarkMeta::default() };
    let stem = "a train leaves the town at noon and reaches the sea after three hours".to_owned();
    builder.add(meta, [Item { id: "a/1".into(), stem, options: Vec::new() }]).expect("items");
    builder.build().expect("built")
}

/// The error that the bytes of a blocklist give after `change`, with the checksum made right again
/// if `sealed`.
fn broken(change: impl FnOnce(&mut Vec<u8>), sealed: Sealed) -> String {
    let mut bytes = built().as_bytes().to_vec();
    change(&mut bytes);
    if sealed == Sealed::Yes {
        let content = bytes.len() - CHECKSUM;
        bytes.truncate(content);
        let sum = xxh3_128(&bytes).to_le_bytes();
        bytes.extend(sum);
    }
    Blocklist::from_bytes(bytes).expect_err("refused").to_string()
}

#[derive(PartialEq)]
enum Sealed {
    Yes,
    No,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "writes a damaged file on purpose")]
fn maps_what_was_written() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.blk");
    let blocklist = built();
    let mut bytes = Vec::new();
    blocklist.write_to(&mut bytes).expect("written");
    std::fs::write(&path, &bytes).expect("written");
    let loaded = Blocklist::load(&path).expect("loaded");
    assert_eq!(loaded.as_bytes(), blocklist.as_bytes());
    assert_eq!(loaded.header(), blocklist.header());
    assert_eq!(loaded.digest(), blocklist.digest());
    assert_eq!(loaded.digest().len(), "sha256:".len() + 64);
    assert_eq!((loaded.benchmark_name(0), loaded.item_id(0)), ("a", "a/1"));
    assert!(loaded.is_sensitive(0) && loaded.is_sensitive(9));
    assert_eq!((loaded.benchmark_name(9), loaded.item_id(9), loaded.items()), ("", "", 1));
}

#[test]
fn names_a_file_that_cannot_be_read() {
    let error = Blocklist::load(Path::new("/no/such.blk")).expect_err("refused");
    assert_eq!(error.to_string(), "/no/such.blk: cannot be read");
    let folder = tempfile::tempdir().expect("folder");
    assert!(matches!(Blocklist::load(folder.path()), Err(BlocklistError::Read { .. })));
}

#[test]
fn refuses_other_files() {
    for bytes in [&b""[..], b"PAR1 and more bytes than a prefix has", b"PTBLKLS"] {
        let error = Blocklist::from_bytes(bytes.to_vec()).expect_err("refused").to_string();
        assert_eq!(error, "blocklist: is no blocklist");
    }
}

#[test]
fn refuses_another_format_version_and_names_both() {
    let newer = FORMAT_VERSION + 1;
    let error = broken(|bytes| bytes[8..12].copy_from_slice(&newer.to_le_bytes()), Sealed::Yes);
    assert!(error.contains(&format!("format version `{newer}`")), "{error}");
    assert!(error.contains(&format!("reads version `{FORMAT_VERSION}`")), "{error}");
    let error = broken(|bytes| bytes[8..12].copy_from_slice(&[0; 4]), Sealed::No);
    assert!(error.contains("format version `0`"), "{error}");
}

#[test]
fn refuses_another_normaliser_and_names_both() {
    let change = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(7).position(|window| window == b"words-1").expect("name");
        bytes[at + 6] = b'9';
    };
    let error = broken(change, Sealed::Yes);
    assert!(error.contains("`words-9`") && error.contains("`words-1`"), "{error}");
    assert!(broken(change, Sealed::No).contains("was changed"));
}

#[test]
fn refuses_a_file_that_ends_early() {
    let length = built().as_bytes().len();
    for kept in [10, 20, 100, length - 1] {
        let error = broken(|bytes| bytes.truncate(kept), Sealed::No);
        assert!(error.contains(&format!("is truncated: {kept} of ")), "{error}");
    }
}

#[test]
fn refuses_an_edited_file() {
    let length = built().as_bytes().len();
    for at in [16, 40, length / 2, length - CHECKSUM - 1] {
        // the lowest bit of the length makes it longer or shorter, both are noticed
        let error = broken(|bytes| bytes[at] ^= 1, Sealed::No);
        assert!(error.contains("was changed") || error.contains("is truncated"), "{error}");
    }
    assert!(broken(|bytes| bytes.push(0), Sealed::No).contains("was changed"));
}

#[test]
fn refuses_sections_that_do_not_fit() {
    let error = broken(|bytes| bytes[32..40].copy_from_slice(&[0xFF; 8]), Sealed::Yes);
    assert_eq!(error, "blocklist: section `0` is not valid");
    // the length of the record offsets of the first table
    let error = broken(|bytes| bytes[64..72].copy_from_slice(&[0; 8]), Sealed::Yes);
    assert_eq!(error, "blocklist: section `1` is not valid");
}

#[test]
fn refuses_a_header_that_is_no_json() {
    let error = broken(|bytes| bytes[crate::format::PREFIX] = b'x', Sealed::Yes);
    assert_eq!(error, "blocklist: header is not valid");
    let error = broken(|bytes| bytes[32..40].copy_from_slice(&[0; 8]), Sealed::Yes);
    assert_eq!(error, "blocklist: header is not valid");
}

/// A small blocklist of the current format: two items, a short one and a canary.
fn sample() -> Blocklist {
    let mut builder = BlocklistBuilder::new(13).expect("n");
    let canaries = vec!["canary guid 26b5c67b-86d2-4b3c".to_owned()];
    let meta = BenchmarkMeta { name: "sample".into(), canaries, ..BenchmarkMeta::default() };
    let stems = [
        "A lighthouse keeper counts 37 ships before dawn and 12 ferries after it; how many vessels pass the \
         granite pier in three such mornings if fog hides every fifth one?",
        "How many ways are there to seat nine people?",
    ];
    let items = stems.iter().enumerate().map(|(number, stem)| Item {
        id: format!("sample/{number}"),
        stem: (*stem).to_owned(),
        options: Vec::new(),
    });
    builder.add(meta, items).expect("items");
    builder.build().expect("built")
}

const COMPAT: &[u8] = include_bytes!("../compat/format-4.blk");

#[test]
fn reads_a_file_of_this_format_version_that_was_written_before() {
    let list = Blocklist::from_bytes(COMPAT.to_vec()).expect("a file of the current version is read");
    assert_eq!((list.benchmark_name(0), list.item_id(1), list.items()), ("sample", "sample/1", 3));
    let coverage = list.header().benchmarks[0].coverage;
    assert_eq!((coverage.items, coverage.by_ngram, coverage.by_near_copy), (2, 1, 1));
    let rows = [
        ("note: how many ways are there to seat nine people", 1, Rule::ShortItem),
        ("ships before dawn and 12 ferries after it; how many vessels pass the pier", 0, Rule::NGram),
        (
            "A lighthouse keeper counts 37 boats before dawn and 12 ferries at noon; how many vessels pass our \
             granite pier in three such evenings if fog hides every fifth one?",
            0,
            Rule::NearCopy,
        ),
        ("# canary GUID 26b5c67b-86d2-4b3c", 2, Rule::Canary),
    ];
    for (text, item, rule) in rows {
        let part = Part { text, message: 0, whole_prompt: false };
        let mut scanner = Scanner::new(&list);
        let found: Vec<_> = scanner.check(&[part], false).iter().map(|hit| (hit.item, hit.rule)).collect();
        assert_eq!(found, [(item, rule)], "{text}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "writes the file of a new format version")]
fn writes_the_same_bytes_as_before_for_the_same_items() {
    if std::env::var_os("POTABLE_BLESS").is_some() {
        let path = format!("{}/compat/format-{FORMAT_VERSION}.blk", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, sample().as_bytes()).expect("written");
        return;
    }
    assert!(sample().as_bytes() == COMPAT, "changed bytes need a new FORMAT_VERSION and file in compat/");
}

#[test]
fn refuses_version_1_and_names_both() {
    let error = broken(|bytes| bytes[8..12].copy_from_slice(&[1, 0, 0, 0]), Sealed::Yes);
    assert_eq!(error, "blocklist: has format version `1`, this potable reads version `4`");
}

#[test]
fn requires_one_n_and_names_both() {
    let blocklist = built();
    assert!(blocklist.require(8).is_ok());
    let error = blocklist.require(13).expect_err("refused");
    assert_eq!(error.to_string(), "blocklist: was built with n = 8, n = 13 is asked for");
    assert!(error.hint().is_some_and(|hint| hint.contains("--ngram 13")));
}

proptest! {
    #[test]
    fn sealed_damage_never_panics(at in 24usize..2000, value in any::<u8>()) {
        let mut bytes = built().as_bytes().to_vec();
        let content = bytes.len() - CHECKSUM;
        let at = at % content;
        bytes[at] = value;
        bytes.truncate(content);
        let sum = xxh3_128(&bytes).to_le_bytes();
        bytes.extend(sum);
        if let Ok(blocklist) = Blocklist::from_bytes(bytes) {
            let text = "so a train leaves the town at noon and reaches the sea after three hours";
            let part = crate::Part { text, message: 0, whole_prompt: true };
            let found = crate::Scanner::new(&blocklist).check(&[part], false).len();
            prop_assert!(found < 100);
        }
    }
}
