//! What Python's text functions do where Rust's do something else; templates are written for Python.

/// Python's `str.strip()`: like `str::trim`, and the four separators U+001C to U+001F besides.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Python's `str.isspace` of one character.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    #[test]
    fn separators_are_white_space_and_format_characters_are_not() {
        assert_eq!(super::strip("\u{1f}\u{3000} a \u{85}\u{1c}"), "a");
        assert_eq!(super::strip("\u{200b}a\u{feff}"), "\u{200b}a\u{feff}");
    }
}
