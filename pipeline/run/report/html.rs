//! HTML that cannot be broken by what stands in a row: only texts of the program itself are taken as
//! markup, everything else is escaped.

pub use potable_manifests::grouped;

/// A document in the making.
#[derive(Debug, Default)]
pub struct Html(String);

impl Html {
    /// Markup, which only the program itself can write.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text, in an element or in a quoted attribute.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                c if is_hidden(c) => self.0.extend(c.escape_default()),
                c => self.0.push(c),
            }
        }
        self
    }

    /// A whole number as it stands in an attribute.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.0.push_str(&number.to_string());
        self
    }

    /// Digits in groups of three.
    pub fn count(&mut self, count: u64) -> &mut Self {
        self.0.push_str(&grouped(count));
        self
    }

    /// The document.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Parts per million as percent with one place, rounded: `98.7 %`, with a space that does not break.
pub fn percent(ppm: u64) -> String {
    let tenths = ppm.saturating_add(500) / 1_000;
    format!("{}.{}\u{a0}%", tenths / 10, tenths % 10)
}

/// A count and its noun: `1 row`, `2 rows`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Characters that a reader cannot see, or that turn the direction of what follows.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_markup() {
        let mut html = Html::default();
        html.text("<script>alert(\"1\" & '2')</script>\u{202e}\0\u{1b}\n");
        let expected =
            "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;\\u{202e}\\u{0}\\u{1b}\n";
        assert_eq!(html.into_text(), expected);
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!([grouped(0), grouped(1_234_567)], ["0", "1,234,567"]);
        assert_eq!([percent(987_449), percent(1_000_000)], ["98.7\u{a0}%", "100.0\u{a0}%"]);
        assert_eq!(counted(1, "row"), "1 row");
    }
}
