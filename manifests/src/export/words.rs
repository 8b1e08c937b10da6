//! Names, numbers and addresses as the exports write them.

use crate::digest::is_commit;
use crate::manifest::{BenchmarkRecord, InputSource};

/// What stands where a corpus states no licence.
pub(super) const NO_LICENCE: &str = "none stated";

/// Digits in groups of three: `5,162,084`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Parts per million as percent with one place, rounded: `98.7 %`.
pub(super) fn percent(ppm: u64) -> String {
    let tenths = ppm.saturating_add(500) / 1_000;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// A count and its noun: `1 row`, `2 rows`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Page of a data set on the Hub, at its revision where that is known.
pub(super) fn hub_page(repo: &str, revision: Option<&str>) -> String {
    let repo = path(repo);
    match revision {
        Some(revision) => format!("https://huggingface.co/datasets/{repo}/tree/{}", path(revision)),
        None => format!("https://huggingface.co/datasets/{repo}"),
    }
}

/// Address of a file of a source: on the Hub at its commit, else a name below the source.
pub(super) fn file_uri(source: &InputSource, file: &str) -> String {
    match (&source.corpus, pinned(source.revision.as_deref()), source.local) {
        (Some(corpus), Some(revision), false) => {
            format!("https://huggingface.co/datasets/{}/resolve/{revision}/{}", path(corpus), path(file))
        }
        _ => format!("file:{}/{}", path(&source.name), path(file)),
    }
}

/// Address of a file of a benchmark.
pub(super) fn benchmark_uri(benchmark: &BenchmarkRecord, file: &str) -> String {
    match (&benchmark.repo, pinned(benchmark.revision.as_deref())) {
        (Some(repo), Some(revision)) => {
            format!("https://huggingface.co/datasets/{}/resolve/{revision}/{}", path(repo), path(file))
        }
        _ => format!("file:{}/{}", path(&benchmark.name), path(file)),
    }
}

/// The revision, if it is a commit.
pub(super) fn pinned(revision: Option<&str>) -> Option<&str> {
    revision.filter(|text| is_commit(text))
}

/// A path of an address: every byte that has to be is percent-encoded.
pub(super) fn path(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!([grouped(0), grouped(999), grouped(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!([percent(0), percent(987_449), percent(987_500)], ["0.0 %", "98.7 %", "98.8 %"]);
        assert_eq!([counted(1, "row"), counted(2000, "row")], ["1 row", "2,000 rows"]);
    }

    #[test]
    fn paths_hold_no_byte_that_an_address_may_not() {
        assert_eq!(path("a b/é<#?>.parquet"), "a%20b/%C3%A9%3C%23%3F%3E.parquet");
    }
}
