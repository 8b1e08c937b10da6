use proptest::prelude::*;

use super::*;

fn words(text: &str) -> String {
    words_of(text).join(" ")
}

#[test]
fn folds_case_width_and_ligatures() {
    assert_eq!(words("Straße ＦＵＬＬ ﬁne ① x²"), "strasse full fine 1 x 2");
    assert_eq!(words("ΟΔΟΣ οδός"), "οδοσ οδόσ");
    assert_eq!(words("cafe\u{301} CAFÉ"), "café café");
}

#[test]
fn drops_what_shows_nothing() {
    assert_eq!(words("exam\u{200B}ple ex\u{AD}am\u{2060}ple"), "example example");
}

#[test]
fn reads_look_alikes_as_latin_in_latin_words_only() {
    assert_eq!(words("th\u{435} c\u{430}t"), "the cat");
    assert_eq!(words("кот"), "кот");
    assert_eq!(words("Νew \u{391}pple"), "new apple");
}

#[test]
fn joins_over_an_apostrophe_between_letters_only() {
    assert_eq!(words("don't don\u{2019}t don&#39;t don\\u2019t don\\'t"), "dont ".repeat(5).trim());
    assert_eq!(words("'quoted' dogs' a''b 5'3 x'5"), "quoted dogs a b 5 3 x 5");
    assert_eq!(words("l'été d\u{2019}or"), "lété dor");
}

#[test]
fn parts_letters_digits_and_characters() {
    assert_eq!(words("x2y abc123"), "x 2 y abc 123");
    assert_eq!(words("求x的值ガ"), "求 x 的 值 ガ");
    assert_eq!(words("ｶﾞ"), "ガ");
    assert_eq!(words("한국어 문장"), "한국어 문장");
    assert_eq!(words_of("ไทย").len(), 3);
}

#[test]
fn makes_tex_spellings_the_same() {
    let plain = words(r"\frac{1}{2} \le x");
    assert_eq!(words(r"\dfrac{1}{2}\leq x"), plain);
    assert_eq!(words(r"\left(\tfrac {1} {2}\right) \; \leq \, \mathrm{x}"), plain);
    assert_eq!(words(r"\\frac{1}{2} \\leq x"), plain);
    assert_eq!(plain, "frac 1 2 le x");
}

#[test]
fn undoes_json_escapes_and_entities() {
    assert_eq!(words(r#"Say \"hi\"\nFind\tthe sum\/mean"#), "say hi find the sum mean");
    assert_eq!(words("a &lt; b &amp;&amp; c&nbsp;d AT&T"), "a b c d at t");
    assert_eq!(words(r"caf\u00e9 caf&eacute;"), "café café");
}

#[test]
fn gives_spans_and_flags() {
    let mut out = Vec::new();
    Words::new().scan("It's 42 é求", &mut out);
    let seen: Vec<_> = out.iter().map(|w| (w.start, w.end, w.flags)).collect();
    let alpha = Word::IS_ALPHA2;
    assert_eq!(seen, [(0, 4, alpha), (5, 7, Word::IS_DIGIT), (8, 10, 0), (10, 13, Word::IS_CJK)]);
    assert_eq!(out.first().map(|w| w.hash), Some(hash_word(b"its")));
}

#[test]
fn keeps_words_apart_from_buffers_of_the_last_text() {
    let mut scanner = Words::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    scanner.scan("жé don", &mut first);
    scanner.scan("plain ascii", &mut second);
    assert_eq!(second.first().map(|w| w.hash), Some(hash_word(b"plain")));
}

#[rustfmt::skip]
const PIECES: &[&str] = &[
    "\\frac", "\\dfrac", "\\nabla", "\\n", "\\left", "\\\\", "\\u00e9", "\\ud83d\\ude00", "\\'",
    "\\-", "&amp;", "&lt;", "&#39;", "&#x4e2d;", "&eacute;", "&", "\\", "'", "\u{301}", "\u{200b}",
    "\u{2019}", "\u{435}", "\u{3b1}", "求", "ｶ", "，", "。", "ガ", "カ", "\u{3099}", "für", "É", "–",
    "\u{a0}", "中a", "7年", "ﾞ", "ก", "ำ", "각", "\u{1100}", "\u{1161}", "\u{11a8}", "½", "ß", "ς",
    "İ", "´", "x", "S", "9", "क़", "\u{94d}",
];

fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9 '.,]{0,8}",
        "[ -~]{0,8}",
        proptest::sample::select(PIECES).prop_map(String::from),
        any::<char>().prop_map(String::from),
    ]
}

/// Texts with TeX, escapes, code, ideographs, kana and umlauts in their usual surroundings.
const USUAL: &[&str] = &[
    include_str!("tex.rs"),
    include_str!("fold.rs"),
    include_str!("text_tests.rs"),
    include_str!("suffix.rs"),
    "已知 $AB$ 是半径为 $2$ 的圆，求x的值。「日本語のテキスト」ガ、カ\u{3099}ｶﾞ！ 2023年12月，第3章…",
    "Für die Größe “Straße” – l’été, naïve cafés; Ärger's Übung2, ÿ×÷ß §5·3 «où»\u{a0}à",
    "it’s ‘so’ d’été’s l’’a 5’3 求’s Ä’b a’求 rock’n’roll’ x’\\alpha y’&amp;z’1 ガ\\-\u{3099} 中&#x301; \\beta’s é’ ‘’ o’\u{301}k \u{201b}a 求‘’丷䷀“中”—文…",
    "don't 'quote' rock'n'roll 5'3 x'5 \\alpha'x \\n'y \\frac12 a&lt;b&amp;c e\u{301}x 〖→□",
];

#[test]
fn fast_path_equals_slow_path_on_usual_text() {
    for text in USUAL {
        // from every border, so that blocks of 64 bytes begin everywhere
        for start in (0..text.len().min(300)).filter(|&at| text.is_char_boundary(at)) {
            let text = text.get(start..).expect("border");
            let (mut fast, mut slow): (Vec<Word>, Vec<Word>) = (Vec::new(), Vec::new());
            Words::new().run(text, Path::Fast, &mut fast);
            Words::new().run(text, Path::Slow, &mut slow);
            assert_eq!(fast, slow);
            let mut hashes = Vec::new();
            Words::new().hashes(text, &mut hashes);
            assert!(fast.iter().map(|word| word.hash).eq(hashes));
        }
    }
}

proptest! {
    #[test]
    fn fast_path_equals_slow_path(parts in prop::collection::vec(fragment(), 0..24)) {
        let text = parts.concat();
        let (mut fast, mut slow): (Vec<Word>, Vec<Word>) = (Vec::new(), Vec::new());
        Words::new().run(&text, Path::Fast, &mut fast);
        Words::new().run(&text, Path::Slow, &mut slow);
        prop_assert_eq!(fast, slow);
    }

    #[test]
    fn spans_are_ordered_and_on_character_borders(parts in prop::collection::vec(fragment(), 0..24)) {
        let text = parts.concat();
        let mut out = Vec::new();
        Words::new().scan(&text, &mut out);
        let mut last = 0;
        for word in &out {
            prop_assert!(word.start < word.end);
            prop_assert!(text.get(word.start as usize..word.end as usize).is_some());
            prop_assert!(word.start >= last);
            last = word.start;
        }
    }

    #[test]
    fn normalising_first_changes_nothing(text in "[a-zé\u{301}\u{300}ｶﾞが가ㅏㄱ한각求ก ½①ﬁ.']{0,16}") {
        let whole: String = text.nfkc().collect();
        prop_assert_eq!(words_of(&text), words_of(&whole));
    }

    #[test]
    fn words_of_words_are_themselves(parts in prop::collection::vec("[a-zA-Z0-9 .,é求'-]{0,8}", 0..8)) {
        let once = words_of(&parts.concat());
        prop_assert_eq!(words_of(&once.join(" ")), once);
    }
}
