//! Undoes the escapes of `words-1`: TeX commands, JSON escapes and HTML entities.
//!
//! A backslash may begin a TeX command (`\nabla`) or a JSON escape (`\nFind`). The letters after it
//! are a command if the whole run of them is in [`COMMANDS`]; else `\n`, `\t`, `\r`, `\b` and `\f`
//! are escapes; else the run is a command nobody listed. A run of backslashes counts as one, so
//! text that was escaped twice gives the same words.

use std::borrow::Cow;

use crate::fold;

/// What an escape stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Ends the word before it.
    Break,
    /// Shows nothing and joins what stands on its two sides.
    Nothing,
    /// One character of the text, `mark` being a combining mark that follows it.
    Char { base: char, mark: Option<char> },
    /// A word of its own; upper-case letters are still to be folded.
    Command(Cow<'a, str>),
}

/// Reads the escape at `text[at..]`, which begins with a backslash, and gives the offset behind it.
pub(crate) fn backslash(text: &str, at: usize) -> (Piece<'_>, usize) {
    let bytes = text.as_bytes();
    let after = past_ignorable(text, end_of_run(bytes, at, |b| b == b'\\'));
    let plain = |c| (Piece::Char { base: c, mark: None }, after + 1);
    match bytes.get(after) {
        Some(b'\'') => plain('\''),
        // TeX's soft hyphen; after two backslashes it would be a line break and a minus
        Some(b'-') if after == at + 1 => (Piece::Nothing, after + 1),
        Some(b'u') => match unicode_escape(bytes, after) {
            Some((base, next)) => (Piece::Char { base, mark: None }, next),
            None => command(text, after),
        },
        Some(b) if b.is_ascii_alphabetic() => command(text, after),
        _ => (Piece::Break, after),
    }
}

/// Reads the entity at `text[at..]`, which begins with `&`, and gives the offset behind it.
/// `&amp;` may be repeated (`&amp;amp;lt;` is `<`); an `&` that begins no entity is a break.
pub(crate) fn entity(text: &str, at: usize) -> (Piece<'_>, usize) {
    let bytes = text.as_bytes();
    let mut from = at + 1;
    while bytes.get(from..).is_some_and(|rest| rest.starts_with(b"amp;")) {
        from += 4;
    }
    let end = end_of_run(bytes, from, |b| b.is_ascii_alphanumeric() || b == b'#');
    let name = match text.get(from..end) {
        Some(name) if bytes.get(end) == Some(&b';') && name.len() <= LONGEST_ENTITY => name,
        _ => return (Piece::Break, from),
    };
    match named_or_numbered(name) {
        Some(piece) => (piece, end + 1),
        None => (Piece::Break, from),
    }
}

/// Longest entity name that is read, in bytes: `thetasym`, `#x10FFFF` and the like fit.
const LONGEST_ENTITY: usize = 10;

/// Longest command that is looked up, in letters.
const LONGEST_COMMAND: usize = 24;

fn end_of_run(bytes: &[u8], from: usize, keep: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|&b| !keep(b)).unwrap_or(rest.len())
}

/// The command whose letters begin at `from`.
fn command(text: &str, from: usize) -> (Piece<'_>, usize) {
    let (name, end) = letters(text, from);
    let meaning = if name.len() <= LONGEST_COMMAND { known(&name) } else { None };
    match meaning {
        Some(Same(other)) => (Piece::Command(Cow::Borrowed(other)), end),
        Some(Vanish) => (Piece::Break, end),
        None if name.starts_with(['n', 't', 'r', 'b', 'f']) => (Piece::Break, from + 1),
        Some(Name) | None => (Piece::Command(name), end),
    }
}

/// What a listed command gives. Only those with the same first letter are looked at, most of which
/// are told apart by their length.
fn known(name: &str) -> Option<Meaning> {
    let first = usize::from(*name.as_bytes().first()?);
    let &[start, end] = BY_LETTER.get(first)?;
    let mut same = COMMANDS.get(usize::from(start)..usize::from(end))?.iter();
    same.find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
}

/// Where the commands of each first letter begin and end in [`COMMANDS`].
static BY_LETTER: [[u8; 2]; 128] = {
    let mut ranges = [[0; 2]; 128];
    let mut at = 0;
    while at < COMMANDS.len() {
        let first = COMMANDS[at].0.as_bytes()[0] as usize;
        if ranges[first][1] == 0 {
            ranges[first][0] = at as u8;
        }
        at += 1;
        ranges[first][1] = at as u8;
    }
    assert!(COMMANDS.len() < 256);
    ranges
};

/// The letters from `from` on, over characters that show nothing, and the offset behind them.
fn letters(text: &str, from: usize) -> (Cow<'_, str>, usize) {
    let run = |from| end_of_run(text.as_bytes(), from, |b| b.is_ascii_alphabetic());
    let mut end = run(from);
    let mut name = Cow::Borrowed(text.get(from..end).unwrap_or_default());
    loop {
        let next = past_ignorable(text, end);
        let after = run(next);
        if next == end || after == next {
            return (name, end);
        }
        name.to_mut().push_str(text.get(next..after).unwrap_or_default());
        end = after;
    }
}

/// The offset of the first character from `at` on that shows something.
fn past_ignorable(text: &str, mut at: usize) -> usize {
    if text.as_bytes().get(at).is_none_or(u8::is_ascii) {
        return at;
    }
    let rest = text.get(at..).unwrap_or_default();
    for c in rest.chars().take_while(|&c| fold::is_ignorable(c)) {
        at += c.len_utf8();
    }
    at
}

/// `uXXXX` at `at`, or a surrogate pair of them; `None` if no four hex digits follow or the value
/// is no character.
fn unicode_escape(bytes: &[u8], at: usize) -> Option<(char, usize)> {
    let high = hex4(bytes, at + 1)?;
    if let Some(c) = char::from_u32(high) {
        return Some((c, at + 5));
    }
    let second = end_of_run(bytes, at + 5, |b| b == b'\\');
    if second == at + 5 || bytes.get(second) != Some(&b'u') {
        return None;
    }
    let low = hex4(bytes, second + 1)?;
    if !(0xD800..0xDC00).contains(&high) || !(0xDC00..0xE000).contains(&low) {
        return None;
    }
    let c = char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))?;
    Some((c, second + 5))
}

fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 4)?;
    digits.iter().try_fold(0, |value, &b| Some(value * 16 + char::from(b).to_digit(16)?))
}

fn named_or_numbered(name: &str) -> Option<Piece<'static>> {
    let one = |base| Some(Piece::Char { base, mark: None });
    if let Some(number) = name.strip_prefix('#') {
        let value = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return one(char::from_u32(value.ok()?)?);
    }
    match name {
        "apos" | "lsquo" | "rsquo" => one('\''),
        "shy" | "zwj" | "zwnj" => Some(Piece::Nothing),
        "szlig" => one('ß'),
        "lt" | "gt" | "quot" | "nbsp" | "ensp" | "emsp" | "thinsp" | "ndash" | "mdash" | "hellip"
        | "ldquo" | "rdquo" | "laquo" | "raquo" | "times" | "divide" | "minus" | "plusmn" | "middot"
        | "bull" | "deg" | "le" | "ge" | "ne" | "copy" | "reg" => Some(Piece::Break),
        _ => accented(name),
    }
}

/// `eacute`, `Ouml` and the like: a letter and the name of its accent.
fn accented(name: &str) -> Option<Piece<'static>> {
    let mut chars = name.chars();
    let base = chars.next().filter(char::is_ascii_alphabetic)?;
    let mark = match chars.as_str() {
        "grave" => '\u{0300}',
        "acute" => '\u{0301}',
        "circ" => '\u{0302}',
        "tilde" => '\u{0303}',
        "uml" => '\u{0308}',
        "ring" => '\u{030A}',
        "caron" => '\u{030C}',
        "cedil" => '\u{0327}',
        _ => return None,
    };
    Some(Piece::Char { base, mark: Some(mark) })
}

/// What a listed command gives.
#[derive(Clone, Copy)]
enum Meaning {
    /// Its own name.
    Name,
    /// The name of a command that looks the same.
    Same(&'static str),
    /// Nothing: sizes, fonts, spaces, and signs whose plain spelling is no word either.
    Vanish,
}
use Meaning::{Name, Same, Vanish};

/// Sorted by name. Commands that begin with `b`, `f`, `n`, `r` or `t` have to be listed to be told
/// from a JSON escape; of the others only those that do not simply give their name.
#[rustfmt::skip]
static COMMANDS: &[(&str, Meaning)] = &[
    ("Big", Vanish), ("Bigg", Vanish), ("Biggl", Vanish), ("Biggr", Vanish), ("Bigl", Vanish),
    ("Bigm", Vanish), ("Bigr", Vanish), ("backsim", Name), ("backslash", Name), ("bar", Name),
    ("because", Name), ("begin", Name), ("beta", Name), ("beth", Name), ("between", Name),
    ("bf", Vanish), ("bibitem", Name), ("big", Vanish), ("bigcap", Name), ("bigcirc", Name),
    ("bigcup", Name), ("bigg", Vanish), ("biggl", Vanish), ("biggr", Vanish), ("bigl", Vanish),
    ("bigm", Vanish), ("bigoplus", Name), ("bigotimes", Name), ("bigr", Vanish), ("bigsqcup", Name),
    ("bigstar", Name), ("bigtriangledown", Name), ("bigtriangleup", Name), ("bigvee", Name),
    ("bigwedge", Name), ("binom", Name), ("blacksquare", Name), ("bm", Vanish), ("bmod", Name),
    ("boldsymbol", Vanish), ("bot", Name), ("bowtie", Name), ("boxed", Name), ("breve", Name),
    ("bullet", Name), ("cdots", Vanish), ("cfrac", Same("frac")), ("dbinom", Same("binom")),
    ("degree", Same("circ")), ("dfrac", Same("frac")), ("displaystyle", Vanish), ("dots", Vanish),
    ("dotsb", Vanish), ("dotsc", Vanish), ("em", Vanish), ("emph", Vanish), ("enskip", Vanish),
    ("enspace", Vanish), ("fbox", Name), ("flat", Name), ("footnote", Name), ("footnotesize", Name),
    ("forall", Name), ("foreach", Name), ("frac", Name), ("frown", Name), ("geq", Same("ge")),
    ("geqslant", Same("ge")), ("gt", Vanish), ("hbox", Vanish), ("hfill", Vanish), ("it", Vanish),
    ("land", Same("wedge")), ("lbrace", Vanish), ("lbrack", Vanish), ("ldots", Vanish),
    ("left", Vanish), ("leq", Same("le")), ("leqslant", Same("le")), ("limits", Vanish),
    ("lnot", Same("neg")), ("lor", Same("vee")), ("lt", Vanish), ("lvert", Vanish),
    ("mathbf", Vanish), ("mathit", Vanish), ("mathnormal", Vanish), ("mathrm", Vanish),
    ("mathsf", Vanish), ("mathtt", Vanish), ("mbox", Vanish), ("medspace", Vanish),
    ("middle", Vanish), ("nRightarrow", Name), ("nabla", Name), ("natural", Name), ("ncong", Name),
    ("ne", Name), ("nearrow", Name), ("neg", Name), ("negthinspace", Vanish), ("neq", Same("ne")),
    ("newcommand", Name), ("newline", Vanish), ("nexists", Name), ("ngeq", Name),
    ("ngeqslant", Name), ("ngtr", Name), ("nleq", Name), ("nleqslant", Name), ("nless", Name),
    ("nmid", Name), ("nobreak", Name), ("noindent", Vanish), ("nolimits", Vanish),
    ("nonumber", Vanish), ("norm", Name), ("not", Name), ("notin", Name), ("nparallel", Name),
    ("nprec", Name), ("nrightarrow", Name), ("nsim", Name), ("nsubseteq", Name), ("nsucc", Name),
    ("nsupseteq", Name), ("nu", Name), ("nwarrow", Name), ("operatorname", Vanish),
    ("qquad", Vanish), ("quad", Vanish), ("rVert", Name), ("raisebox", Name), ("rangle", Name),
    ("rbrace", Vanish), ("rbrack", Vanish), ("rceil", Name), ("ref", Name), ("renewcommand", Name),
    ("rfloor", Name), ("rho", Name), ("right", Vanish), ("rightarrow", Same("to")),
    ("rightharpoondown", Name), ("rightharpoonup", Name), ("rightleftharpoons", Name),
    ("rightrightarrows", Name), ("rightsquigarrow", Name), ("rm", Vanish), ("root", Name),
    ("rotatebox", Name), ("rtimes", Name), ("rule", Name), ("rvert", Vanish),
    ("scriptscriptstyle", Vanish), ("scriptstyle", Vanish), ("sf", Vanish), ("tag", Name),
    ("tan", Name), ("tanh", Name), ("tau", Name), ("tbinom", Same("binom")), ("text", Vanish),
    ("textbackslash", Name), ("textbf", Vanish), ("textcolor", Name), ("textdegree", Name),
    ("textheight", Name), ("textit", Vanish), ("textnormal", Vanish), ("textrm", Vanish),
    ("textsf", Vanish), ("textstyle", Vanish), ("textsubscript", Name), ("textsuperscript", Name),
    ("texttt", Vanish), ("textup", Vanish), ("textwidth", Name), ("tfrac", Same("frac")),
    ("thanks", Name), ("therefore", Name), ("theta", Name), ("thetasym", Name), ("thicksim", Name),
    ("thickspace", Vanish), ("thinspace", Vanish), ("tilde", Name), ("times", Name), ("tiny", Name),
    ("title", Name), ("to", Name), ("today", Name), ("top", Name), ("triangle", Name),
    ("triangledown", Name), ("triangleleft", Name), ("trianglelefteq", Name), ("triangleq", Name),
    ("triangleright", Name), ("trianglerighteq", Name), ("tt", Vanish), ("twoheadrightarrow", Name),
    ("varnothing", Same("emptyset")), ("vert", Vanish),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_short() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(COMMANDS.iter().all(|(name, _)| name.len() <= LONGEST_COMMAND));
    }

    #[test]
    fn tells_commands_from_json_escapes() {
        let named = |name: &'static str| Piece::Command(Cow::Borrowed(name));
        assert_eq!(backslash(r"\nabla f", 0), (named("nabla"), 6));
        assert_eq!(backslash("\\fr\u{200B}ac1", 0), (named("frac"), 8));
        assert_eq!(backslash(r"\nFind", 0), (Piece::Break, 2));
        assert_eq!(backslash(r"\\nFind", 0), (Piece::Break, 3));
        assert_eq!(backslash(r"\dfrac12", 0), (named("frac"), 6));
        assert_eq!(backslash(r"\alpha", 0), (named("alpha"), 6));
        assert_eq!(backslash(r"\,", 0), (Piece::Break, 1));
        assert_eq!(backslash(r"\", 0), (Piece::Break, 1));
    }

    #[test]
    fn reads_unicode_escapes() {
        let one = |base| Piece::Char { base, mark: None };
        assert_eq!(backslash(r"\u00e9", 0), (one('é'), 6));
        assert_eq!(backslash(r"\ud835\udc00", 0), (one('\u{1D400}'), 12));
        assert_eq!(backslash(r"\ud835x", 0), (Piece::Command("ud".into()), 3));
        assert_eq!(backslash(r"\underline", 0), (Piece::Command("underline".into()), 10));
    }

    #[test]
    fn reads_entities() {
        let one = |base| Piece::Char { base, mark: None };
        assert_eq!(entity("&lt;", 0), (Piece::Break, 4));
        assert_eq!(entity("&amp;amp;lt;", 0), (Piece::Break, 12));
        assert_eq!(entity("&#39;", 0), (one('\''), 5));
        assert_eq!(entity("&#xe9;", 0), (one('é'), 6));
        assert_eq!(entity("&amp;#x27;", 0), (one('\''), 10));
        assert_eq!(entity("&T", 0), (Piece::Break, 1));
        assert_eq!(entity("&#xD800;", 0), (Piece::Break, 1));
        assert_eq!(entity("&eacute;", 0), (Piece::Char { base: 'e', mark: Some('\u{301}') }, 8));
    }
}
