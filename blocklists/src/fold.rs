//! Tables of `words-1`: which characters vanish, join, stand alone or look like a Latin letter.
//!
//! A change to any of them changes which texts match, so it needs a new normaliser version.

/// Characters that show nothing: soft hyphen, zero-width, bidi marks, fillers, variation selectors.
pub(crate) fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
        | '\u{FFA0}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Characters people type for an apostrophe; they vanish between two letters.
pub(crate) fn is_apostrophe(c: char) -> bool {
    matches!(
        c,
        '\'' | '\u{00B4}' | '\u{02BB}' | '\u{02BC}' | '\u{2018}' | '\u{2019}' | '\u{201B}' | '\u{FF07}'
    )
}

/// Scripts written without spaces, whose characters are words: ideographs, kana, bopomofo, Thai,
/// Lao, Myanmar, Khmer. Hangul is written with spaces and is not among them.
pub(crate) fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{0E00}'..='\u{0EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}'
        | '\u{19E0}'..='\u{19FF}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}'
        | '\u{3031}'..='\u{3035}' | '\u{3041}'..='\u{3096}' | '\u{309D}'..='\u{309F}'
        | '\u{30A1}'..='\u{30FA}' | '\u{30FC}'..='\u{30FF}' | '\u{3105}'..='\u{312F}'
        | '\u{31A0}'..='\u{31BF}' | '\u{31F0}'..='\u{31FF}' | '\u{3400}'..='\u{4DBF}'
        | '\u{4E00}'..='\u{9FFF}' | '\u{A9E0}'..='\u{A9FF}' | '\u{AA60}'..='\u{AA7F}'
        | '\u{F900}'..='\u{FAFF}' | '\u{1AFF0}'..='\u{1B16F}' | '\u{20000}'..='\u{3FFFF}')
}

/// Latin letters, by block.
pub(crate) fn is_latin(c: char) -> bool {
    c.is_ascii_alphabetic()
        || matches!(c, '\u{00C0}'..='\u{02AF}' | '\u{1E00}'..='\u{1EFF}' | '\u{2C60}'..='\u{2C7F}'
            | '\u{A720}'..='\u{A7FF}')
}

/// Whether NFKC may compose `c` with the character before it (jamo, half-width voicing marks);
/// combining marks are told apart by the caller.
pub(crate) fn may_compose_with_previous(c: char) -> bool {
    matches!(c, '\u{1160}'..='\u{11FF}' | '\u{3131}'..='\u{318E}'
        | '\u{D7B0}'..='\u{D7FF}' | '\u{FF9E}'..='\u{FF9F}' | '\u{FFA0}'..='\u{FFDC}')
}

/// Characters of which NFKC is known to be the character itself, without a table look-up.
pub(crate) fn is_stable(c: char) -> bool {
    c.is_ascii()
        || matches!(c, '\u{00C0}'..='\u{0131}' | '\u{0410}'..='\u{044F}' | '\u{2010}' | '\u{2013}'..='\u{2016}'
            | '\u{2018}'..='\u{201F}' | '\u{3001}'..='\u{3029}' | '\u{3041}'..='\u{3096}'
            | '\u{30A1}'..='\u{30FE}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
            | '\u{AC00}'..='\u{D7A3}')
        || is_apostrophe(c)
}

/// The Latin letter (lower case) that a Cyrillic or Greek letter looks like, case taken into
/// account: capital `Ν` is an `n`, small `ν` a `v`.
pub(crate) fn look_alike(c: char) -> Option<char> {
    Some(match c {
        'а' | 'А' | 'α' | 'Α' => 'a',
        'в' | 'В' | 'β' | 'Β' => 'b',
        'с' | 'С' | 'ϲ' | 'Ϲ' => 'c',
        'ԁ' => 'd',
        'е' | 'Е' | 'Ε' | 'ε' => 'e',
        'ԍ' => 'g',
        'һ' | 'Һ' | 'н' | 'Н' | 'Η' => 'h',
        'і' | 'І' | 'ι' | 'Ι' => 'i',
        'ј' | 'Ј' | 'ϳ' | 'Ϳ' => 'j',
        'к' | 'К' | 'κ' | 'Κ' => 'k',
        'ӏ' | 'Ӏ' => 'l',
        'м' | 'М' | 'Μ' => 'm',
        'Ν' | 'η' => 'n',
        'о' | 'О' | 'ο' | 'Ο' => 'o',
        'р' | 'Р' | 'ρ' | 'Ρ' => 'p',
        'ԛ' | 'Ԛ' => 'q',
        'г' => 'r',
        'ѕ' | 'Ѕ' => 's',
        'т' | 'Т' | 'τ' | 'Τ' => 't',
        'υ' => 'u',
        'ν' | 'ѵ' | 'Ѵ' => 'v',
        'ԝ' | 'Ԝ' | 'ω' => 'w',
        'х' | 'Х' | 'χ' | 'Χ' => 'x',
        'у' | 'У' | 'Υ' | 'ү' | 'Ү' => 'y',
        'Ζ' => 'z',
        _ => return None,
    })
}
