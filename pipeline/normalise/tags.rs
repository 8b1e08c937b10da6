//! The tags of a Jinja template as text: which names they call, and `{% generation %}` blocks, which
//! no Jinja engine has of its own.

use std::collections::BTreeMap;
use std::ops::Range;

/// Names in the tags of a template, with the line of the first use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tags {
    /// Filters: names after `|`.
    pub filters: BTreeMap<String, usize>,
    /// Tests: names after `is` or `is not`.
    pub tests: BTreeMap<String, usize>,
    /// Names before `(` that are no attribute of something.
    pub calls: BTreeMap<String, usize>,
}

impl Tags {
    /// Reads the tags of a template.
    pub fn of(source: &str) -> Tags {
        let mut tags = Tags::default();
        for tag in tags_of(source) {
            let line = 1 + source.get(..tag.start).unwrap_or_default().matches('\n').count();
            tags.read(source.get(tag).unwrap_or_default(), line);
        }
        tags
    }

    fn read(&mut self, text: &str, first: usize) {
        let mut line = first;
        let mut before: (Token, Token) = (Token::Other, Token::Other);
        for (token, place) in tokens(text) {
            match (&before, &token) {
                ((_, Token::Mark('|')), Token::Word(name)) => note(&mut self.filters, name, line),
                ((_, Token::Word(is)), Token::Word(name)) if is == "is" && name != "not" => {
                    note(&mut self.tests, name, line);
                }
                ((Token::Word(is), Token::Word(not)), Token::Word(name)) if is == "is" && not == "not" => {
                    note(&mut self.tests, name, line);
                }
                ((prior, Token::Word(name)), Token::Mark('(')) if !is_member(prior) => {
                    note(&mut self.calls, name, line);
                }
                _ => {}
            }
            line = first + text.get(..place.end).unwrap_or_default().matches('\n').count();
            before = (before.1, token);
        }
    }
}

/// Whether what stands before a name makes it no function: an attribute, a filter, a macro or a
/// keyword of a test.
fn is_member(prior: &Token) -> bool {
    match prior {
        Token::Mark(mark) => matches!(mark, '.' | '|'),
        Token::Word(word) => matches!(word.as_str(), "macro" | "is" | "not" | "block" | "call"),
        Token::Other => false,
    }
}

fn note(names: &mut BTreeMap<String, usize>, name: &str, line: usize) {
    names.entry(name.to_owned()).or_insert(line);
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(char),
    Other,
}

/// Words and marks of a tag's inside; strings and numbers are `Other`, white space is nothing.
fn tokens(text: &str) -> Vec<(Token, Range<usize>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        let (token, len) = match c {
            '\'' | '"' => (Some(Token::Other), string_len(rest, c)),
            c if c.is_alphanumeric() || c == '_' => {
                let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                let word = rest.get(..len).unwrap_or_default();
                let token = if c.is_numeric() { Token::Other } else { Token::Word(word.to_owned()) };
                (Some(token), len)
            }
            c if c.is_whitespace() => (None, c.len_utf8()),
            c => (Some(Token::Mark(c)), c.len_utf8()),
        };
        if let Some(token) = token {
            found.push((token, at..at + len));
        }
        at += len;
    }
    found
}

/// Length of the string literal that `text` begins with, its quotes among it.
fn string_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Byte ranges of the insides of `{{ }}` and `{% %}`; comments have none.
fn tags_of(source: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = source.get(at..).and_then(|rest| rest.find('{')) {
        let start = at + next;
        at = start + 1;
        let close = match source.get(start..start + 2) {
            Some("{{") => "}}",
            Some("{%") => "%}",
            Some("{#") => {
                let end = source.get(start..).and_then(|rest| rest.find("#}"));
                at = end.map_or(source.len(), |end| start + end + 2);
                continue;
            }
            _ => continue,
        };
        let end = inside_end(source, start + 2, close);
        found.push(start + 2..end);
        at = end;
    }
    found
}

/// Where the tag that begins at `from` ends: the first `close` outside of string literals.
fn inside_end(source: &str, from: usize, close: &str) -> usize {
    let mut at = from;
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(close) {
            return at;
        }
        at += match rest.chars().next() {
            Some(quote @ ('\'' | '"')) => string_len(rest, quote),
            Some(c) => c.len_utf8(),
            None => break,
        };
    }
    source.len()
}

/// Turns `{% generation %}` and `{% endgeneration %}` into tags that print the variables `begin` and
/// `end`, with the same white space control; tells whether there was one.
pub(super) fn rewrite_generation(source: &str, begin: &str, end: &str) -> (String, bool) {
    let mut out = String::with_capacity(source.len());
    let (mut from, mut any) = (0, false);
    for tag in tags_of(source) {
        let inside = source.get(tag.clone()).unwrap_or_default();
        let word = inside.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let variable = match word {
            "generation" => begin,
            "endgeneration" => end,
            _ => continue,
        };
        any = true;
        let control = |c: Option<char>| c.filter(|c| "-+".contains(*c)).map_or(String::new(), String::from);
        let (left, right) = (control(inside.chars().next()), control(inside.chars().next_back()));
        out.push_str(source.get(from..tag.start).unwrap_or_default());
        out.push_str(&format!("{left} if true -%}}{{{{ {variable} }}}}{{%- endif {right}"));
        from = tag.end;
    }
    out.push_str(source.get(from..).unwrap_or_default());
    (out, any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_strings_comments_and_text_are_no_names() {
        let tags = Tags::of(
            "a | b(c) {# {{ f(1) }} #} {{ 'x | g(' ~ \"}} h(\" | trim }}\n{% if m.get('k') is not string %}",
        );
        let names = |map: &BTreeMap<String, usize>| map.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&tags.filters), ["trim"]);
        assert_eq!(names(&tags.tests), ["string"]);
        assert!(tags.calls.is_empty(), "{:?}", tags.calls);
    }

    #[test]
    fn generation_blocks_become_marks_with_their_white_space_control() {
        let (text, any) = rewrite_generation("{%- generation %}x{% endgeneration -%}\n", "b", "e");
        assert!(any);
        assert_eq!(text, "{%- if true -%}{{ b }}{%- endif %}x{% if true -%}{{ e }}{%- endif -%}\n");
    }
}
