//! A fast reader for JSON objects that are as nearly all rows are. What it does not read at once, broken
//! or only unusual, it leaves to `serde_json`, whose values and errors are the reference.

use super::cell::Cell;

/// Values inside of values that are read here.
const MOST_DEPTH: usize = 60;

/// The keys of an object, each once, in the order in which they first stand, and their values; a key given
/// twice counts with its last value. `None` says that `serde_json` has to look at it.
pub fn object(text: &str) -> Option<(Vec<String>, Vec<Cell>)> {
    let mut reader = Reader { text, at: 0, scratch: String::new() };
    reader.space();
    let fields = reader.fields(0)?;
    reader.space();
    (reader.at == text.len()).then(|| fields.into_iter().unzip())
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// A string with escapes in the making.
    scratch: String,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes `byte`, with the white space before it.
    fn takes(&mut self, byte: u8) -> bool {
        self.space();
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn value(&mut self, depth: usize) -> Option<Cell> {
        self.space();
        match self.peek()? {
            b'"' => self.string().map(Cell::Text),
            b'{' if depth < MOST_DEPTH => self.fields(depth + 1).map(Cell::Struct),
            b'[' if depth < MOST_DEPTH => self.items(depth + 1).map(Cell::List),
            b'-' | b'0'..=b'9' => self.number(),
            b'n' => self.word("null", Cell::Null),
            b't' => self.word("true", Cell::Bool(true)),
            b'f' => self.word("false", Cell::Bool(false)),
            _ => None,
        }
    }

    fn word(&mut self, word: &str, cell: Cell) -> Option<Cell> {
        self.text.get(self.at..)?.starts_with(word).then(|| {
            self.at += word.len();
            cell
        })
    }

    fn number(&mut self) -> Option<Cell> {
        let rest = self.text.get(self.at..)?;
        let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        self.at += length;
        serde_json::from_str(rest.get(..length)?).ok()
    }

    fn items(&mut self, depth: usize) -> Option<Vec<Cell>> {
        let mut items = Vec::new();
        if !self.takes(b'[') {
            return None;
        }
        if self.takes(b']') {
            return Some(items);
        }
        loop {
            items.push(self.value(depth)?);
            if !self.takes(b',') {
                return self.takes(b']').then_some(items);
            }
        }
    }

    fn fields(&mut self, depth: usize) -> Option<Vec<(String, Cell)>> {
        let mut fields: Vec<(String, Cell)> = Vec::new();
        if !self.takes(b'{') {
            return None;
        }
        if self.takes(b'}') {
            return Some(fields);
        }
        loop {
            self.space();
            let key = self.string()?;
            if !self.takes(b':') {
                return None;
            }
            let value = self.value(depth)?;
            match fields.iter_mut().find(|(name, _)| *name == key) {
                Some(slot) => slot.1 = value,
                None => fields.push((key, value)),
            }
            if !self.takes(b',') {
                return self.takes(b'}').then_some(fields);
            }
        }
    }

    /// A string, from its opening quote to behind the closing one.
    fn string(&mut self) -> Option<String> {
        if self.peek() != Some(b'"') {
            return None;
        }
        self.at += 1;
        let plain = self.plain()?;
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Some(plain.to_owned());
        }
        self.scratch.clear();
        self.scratch.push_str(plain);
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(self.scratch.as_str().to_owned());
                }
                b'\\' => {
                    self.at += 1;
                    let c = self.escape()?;
                    self.scratch.push(c);
                }
                _ => return None,
            }
            let plain = self.plain()?;
            self.scratch.push_str(plain);
        }
    }

    /// The text up to the next quote, backslash or control character.
    fn plain(&mut self) -> Option<&'t str> {
        let start = self.at;
        self.at += plain_bytes(self.text.as_bytes().get(start..)?);
        self.text.get(start..self.at)
    }

    /// What stands behind a backslash.
    fn escape(&mut self) -> Option<char> {
        let kind = self.peek()?;
        self.at += 1;
        Some(match kind {
            b'n' => '\n',
            b'"' | b'\\' | b'/' => char::from(kind),
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let high = self.unit()?;
                if !(0xD800..0xE000).contains(&high) {
                    return char::from_u32(high);
                }
                if !(self.peek() == Some(b'\\') && high < 0xDC00) {
                    return None;
                }
                self.at += 1;
                if self.peek() != Some(b'u') {
                    return None;
                }
                self.at += 1;
                let low = self.unit()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
                return char::from_u32(0x10000 + ((high - 0xD800) << 10 | low));
            }
            _ => return None,
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |value, &byte| Some(value << 4 | char::from(byte).to_digit(16)?))
    }
}

/// Bytes before the first quote, backslash or control character.
#[inline]
fn plain_bytes(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<16>();
    for (at, block) in blocks.iter().enumerate() {
        let ends = ends(block);
        if ends != 0 {
            return 16 * at + ends.trailing_zeros() as usize;
        }
    }
    let from = 16 * blocks.len();
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|&byte| is_end(byte)).unwrap_or(rest.len())
}

fn is_end(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..0x20)
}

/// The bits of the bytes that [`is_end`] says yes to.
#[cfg(target_arch = "x86_64")]
#[inline]
fn ends(block: &[u8; 16]) -> u32 {
    #[expect(unsafe_code, reason = "vector instructions are asked for by a function of its own")]
    // SAFETY: SSE2, which is all that the function needs, is part of every x86-64 processor.
    unsafe {
        ends_sse2(block)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn ends_sse2(block: &[u8; 16]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };
    let both = u128::from_le_bytes(*block);
    let bytes = _mm_set_epi64x((both >> 64) as i64, both as i64);
    let is = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()));
    let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
    _mm_movemask_epi8(_mm_or_si128(control, _mm_or_si128(is(b'"'), is(b'\\')))).cast_unsigned()
}

/// The bits of the bytes that [`is_end`] says yes to.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ends(block: &[u8; 16]) -> u32 {
    block.iter().enumerate().map(|(at, &byte)| u32::from(is_end(byte)) << at).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reference(text: &str) -> Option<Cell> {
        serde_json::from_str::<Cell>(text).ok()
    }

    /// Whatever is read here is what the reference reads.
    fn agrees(text: &str) -> bool {
        match object(text) {
            None => true,
            Some((keys, cells)) => {
                reference(text) == Some(Cell::Struct(keys.into_iter().zip(cells).collect()))
            }
        }
    }

    fn json(depth: u32) -> BoxedStrategy<serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            "[ -~\n\t\"\\\\é求\u{1F600}\u{1}]{0,40}".prop_map(Into::into),
        ];
        leaf.prop_recursive(depth, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::btree_map("[a-c\"\\\\é]{0,3}", inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
        .boxed()
    }

    proptest! {
        #[test]
        fn reads_what_serde_json_writes(fields in prop::collection::btree_map("[a-zé]{0,4}", json(3), 0..5)) {
            let value = serde_json::Value::Object(fields.into_iter().collect());
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assert!(object(&text).is_some(), "{text}");
                prop_assert!(agrees(&text), "{text}");
            }
        }

        #[test]
        fn reads_nothing_that_serde_json_refuses(text in "[{}\\[\\]\",:0-9eE.+\\-tnu\\\\dDcC8 a-f\u{1}é]{0,40}") {
            for text in [text.clone(), format!("{{\"a\":{text}}}"), format!("{{\"a\":\"{text}\"}}")] {
                prop_assert!(agrees(&text), "{text}");
            }
        }

        #[test]
        fn reads_a_changed_text_as_serde_json_does(
            fields in prop::collection::btree_map("[a-z]{0,4}", json(2), 1..4),
            at in any::<prop::sample::Index>(),
            with in "[{}\\[\\]\",:0-9.\\\\un \u{1}]",
        ) {
            let text = serde_json::Value::Object(fields.into_iter().collect()).to_string();
            let place = at.index(text.chars().count());
            let written = |(number, c): (usize, char)| if number == place { with.clone() } else { c.to_string() };
            let changed: String = text.chars().enumerate().map(written).collect();
            prop_assert!(agrees(&changed), "{changed}");
        }
    }

    #[test]
    fn escapes_and_keys_given_twice() {
        let text = r#" {"a":"\u00e9\ud83d\ude00\n\t\"\\\/\b\f\r","b":1,"a":"x","c":-0,"d":[ ],"e":{ }} "#;
        let (keys, cells) = object(text).unwrap();
        assert_eq!(keys, ["a", "b", "c", "d", "e"]);
        assert_eq!(cells[0], Cell::Text("x".into()));
        assert!(agrees(text));
        for broken in [
            r#"{"a":"\ud83d"}"#,
            r#"{"a":"\ud83dx"}"#,
            r#"{"a":"\ude00"}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":01}"#,
            r#"{"a":1,}"#,
            r#"{"a":1} x"#,
            r#"["a"]"#,
            "{\"a\":\"\n\"}",
            r#"{"a":"\u+123"}"#,
        ] {
            assert_eq!(object(broken), None, "{broken}");
        }
    }

    #[test]
    fn what_is_nested_deeply_is_left_to_the_reference() {
        let deep = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(object(&deep(MOST_DEPTH)).is_some() && agrees(&deep(MOST_DEPTH)));
        assert_eq!(object(&deep(MOST_DEPTH + 1)), None);
    }
}
