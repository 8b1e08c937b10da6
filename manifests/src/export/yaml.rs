//! The little YAML that a card's header needs: blocks of scalars and lists, in the form that the
//! Hub's own writer gives, so that a card is the same text after it was read and written there.

/// Lines of a block.
#[derive(Default)]
pub(super) struct Yaml(String);

impl Yaml {
    /// `key: value`, `indent` spaces in.
    pub(super) fn field(&mut self, indent: usize, key: &str, value: &str) {
        self.line(indent, &format!("{key}: {}", scalar(value)));
    }

    /// `key:` and a list below it; nothing for an empty list.
    pub(super) fn list<'a>(&mut self, key: &str, values: impl IntoIterator<Item = &'a str>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_some() {
            self.line(0, &format!("{key}:"));
        }
        for value in values {
            self.line(0, &format!("- {}", scalar(value)));
        }
    }

    /// A line as it is.
    pub(super) fn line(&mut self, indent: usize, text: &str) {
        self.0.push_str(&" ".repeat(indent));
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// All lines.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// A text as a YAML scalar that every YAML reader takes for that text.
pub(super) fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    if text.chars().all(|c| c.is_ascii_graphic()) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c if u32::from(c) > 0xffff => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c if c.is_alphanumeric() => out.push(c),
            c => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Whether a text needs no quotes: it begins as a word, is no word of YAML, and holds nothing that
/// YAML reads as anything else.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/<*".contains(c);
    let spaced = |c: char| plain(c) || c == ' ';
    // A size class such as `1K<n<10K` begins with a digit and is no number.
    text.starts_with(|c: char| c.is_ascii_alphabetic() || (c.is_ascii_digit() && text.contains('<')))
        && text.ends_with(plain)
        && text.chars().all(spaced)
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        for (text, yaml) in [
            ("apache-2.0", "apache-2.0"),
            ("shards/*.parquet", "shards/*.parquet"),
            ("no", "'no'"),
            ("1.0", "'1.0'"),
            ("n<1K", "n<1K"),
            ("1K<n<10K", "1K<n<10K"),
            ("*alias", "'*alias'"),
            ("a: b # c", "\"a: b # c\""),
            ("it's", "'it''s'"),
            ("\u{85}\u{202e}\u{1f600}\n", "\"\\u0085\\u202E\\U0001F600\\u000A\""),
        ] {
            assert_eq!(scalar(text), yaml);
        }
    }
}
