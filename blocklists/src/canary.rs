//! Canary strings as they stand in a column of a benchmark.

/// Characters of a GUID: groups of 8, 4, 4, 4 and 12 hex digits with hyphens between.
const GUID: usize = 36;

/// Fewest different hex digits of a GUID that is taken for one: that of nothing but zeros stands in
/// clean text.
const DIFFERENT_DIGITS: usize = 6;

/// What rows are searched for on account of a canary `value`: the GUID in it where it has one, which
/// is then found in the value itself, behind any prefix (`gpqa:`) and alone; else the whole value.
/// `None` for a value without letters and digits.
pub fn canary_of(value: &str) -> Option<&str> {
    let guid = guid_in(value);
    let whole = Some(value.trim()).filter(|value| value.contains(char::is_alphanumeric));
    guid.or(whole)
}

/// Whether [`canary_of`] finds a GUID in `value`, and not the whole value.
pub(crate) fn holds_guid(value: &str) -> bool {
    guid_in(value).is_some()
}

fn guid_in(value: &str) -> Option<&str> {
    value.char_indices().find_map(|(at, _)| guid_at(value, at))
}

/// The GUID that begins at byte `at` and is no part of a longer run of hex digits.
fn guid_at(value: &str, at: usize) -> Option<&str> {
    let guid = value.get(at..at + GUID)?;
    let fits = |(place, byte): (usize, u8)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    let is_inside = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = value.as_bytes();
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    if !guid.bytes().enumerate().all(fits) || is_inside(before) || is_inside(bytes.get(at + GUID)) {
        return None;
    }
    let mut digits: Vec<u8> = guid.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
    digits.sort_unstable();
    digits.dedup();
    // the hyphen is one of them
    (digits.len() > DIFFERENT_DIGITS).then_some(guid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "5c3fa1d2-90be-4e17-8a6b-77d04c21e9f8";

    #[test]
    fn a_guid_is_found_in_any_value() {
        let long = format!("This text should never be in a corpus: demo:0042:{ONE}.");
        for value in [ONE.to_owned(), format!("demo:{ONE}"), long, format!("é{ONE}é")] {
            assert_eq!(canary_of(&value), Some(ONE), "{value}");
            assert!(holds_guid(&value));
        }
    }

    #[test]
    fn a_value_without_a_guid_is_taken_whole() {
        let longer = format!("{ONE}0 and more words");
        let zero = "00000000-0000-0000-0000-000000000000";
        for value in ["keep this page out of corpora", &longer, zero, "5c3fa1d2-90be"] {
            assert_eq!(canary_of(&format!(" {value}\n")), Some(value));
            assert!(!holds_guid(value));
        }
    }

    #[test]
    fn an_empty_value_is_none() {
        assert_eq!([canary_of(""), canary_of(" - ")], [None, None]);
    }
}
