//! Ways in which benchmark items turn up in corpora: the kinds that `blocklist selftest` injects.

/// One way of writing an item.
#[derive(Clone, Copy)]
pub struct Disguise {
    /// Name of the kind.
    pub name: &'static str,
    /// What is hoped for.
    pub hope: Hope,
    /// Where in the row the item is put.
    pub place: Place,
    /// Writes the item; `None` where the kind does not apply to it.
    pub write: fn(&str, &mut Dice) -> Option<String>,
}

/// What is hoped for of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hope {
    /// All are found.
    Found,
    /// Most are found: edited copies.
    Mostly,
    /// None is found: a row that is dropped is a false alarm.
    Never,
}

/// Where in a row an item is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the user's message.
    Prompt,
    /// It stands inside of the user's message.
    InPrompt,
    /// It stands inside of the reasoning.
    InReasoning,
    /// It stands inside of the answer.
    InAnswer,
    /// It is the user's third message.
    ThirdTurn,
}

/// A seeded stream of numbers (SplitMix64, Steele et al. 2014).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A stream from a seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// All kinds.
pub const DISGUISES: &[Disguise] = &[
    exact("exact", Place::Prompt, |text, _| Some(text.to_owned())),
    exact("in a prompt", Place::InPrompt, |text, _| Some(text.to_owned())),
    exact("in the reasoning", Place::InReasoning, |text, _| Some(text.to_owned())),
    exact("in the answer", Place::InAnswer, |text, _| Some(text.to_owned())),
    exact("third turn", Place::ThirdTurn, |text, _| Some(text.to_owned())),
    exact("upper case", Place::Prompt, |text, _| Some(text.to_uppercase()).filter(|upper| upper != text)),
    exact("no punctuation", Place::Prompt, |text, _| {
        changed(text, text.replace(['.', ',', ';', ':', '?', '!', '"'], " "))
    }),
    exact("white space", Place::Prompt, |text, _| changed(text, text.replace(' ', "  "))),
    exact("line wrap", Place::Prompt, |text, _| wrap(text, 8)),
    exact("typographic marks", Place::Prompt, |text, _| {
        changed(text, text.replace('\'', "’").replace('-', "–").replace('"', "”"))
    }),
    exact("full width", Place::Prompt, |text, _| changed(text, text.chars().map(full_width).collect())),
    exact("zero width", Place::Prompt, |text, _| changed(text, text.replace(' ', " \u{200b}"))),
    exact("HTML escapes", Place::Prompt, |text, _| {
        changed(
            text,
            text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"),
        )
    }),
    exact("JSON escapes", Place::InPrompt, |text, _| {
        changed(text, text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
    }),
    exact("quoted", Place::Prompt, |text, _| Some(format!("> {}", text.replace('\n', "\n> ")))),
    exact("first half", Place::Prompt, |text, _| part(text, 0, 50)),
    exact("last 60 %", Place::Prompt, |text, _| part(text, 40, 100)),
    exact("one word changed", Place::Prompt, |text, dice| edit(text, usize::MAX, dice)),
    exact("edit every 20 words", Place::Prompt, |text, dice| edit(text, 20, dice)),
    near("edit every 10 words", |text, dice| edit(text, 10, dice)),
    near("edit every 6 words", |text, dice| edit(text, 6, dice)),
    near("insert every 9 words", |text, dice| insert(text, 9, dice)),
    near("sentences shuffled", shuffle),
    near("typos", typos),
    near("look-alike letters", look_alikes),
    Disguise { name: "words in any order", hope: Hope::Never, place: Place::Prompt, write: any_order },
];

/// Items that the blocklist does not hold, as they are.
pub const OTHER_ITEMS: Disguise = Disguise {
    name: "items not in the list",
    hope: Hope::Never,
    ..exact("", Place::Prompt, |text, _| Some(text.to_owned()))
};

const fn exact(name: &'static str, place: Place, write: fn(&str, &mut Dice) -> Option<String>) -> Disguise {
    Disguise { name, hope: Hope::Found, place, write }
}

const fn near(name: &'static str, write: fn(&str, &mut Dice) -> Option<String>) -> Disguise {
    Disguise { name, hope: Hope::Mostly, place: Place::Prompt, write }
}

fn changed(text: &str, written: String) -> Option<String> {
    (written != text).then_some(written)
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Edits need some words on each side, or nothing of the item is left.
const LEAST_WORDS: usize = 16;

fn long(text: &str) -> Option<Vec<&str>> {
    Some(words(text)).filter(|words| words.len() >= LEAST_WORDS)
}

fn wrap(text: &str, every: usize) -> Option<String> {
    let lines: Vec<String> = long(text)?.chunks(every).map(|line| line.join(" ")).collect();
    Some(lines.join("\n"))
}

fn full_width(c: char) -> char {
    match c {
        '!'..='~' => char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c),
        other => other,
    }
}

fn part(text: &str, from: usize, to: usize) -> Option<String> {
    let words = Some(words(text)).filter(|words| words.len() >= 2 * LEAST_WORDS)?;
    let at = |percent: usize| words.len() * percent / 100;
    words.get(at(from)..at(to)).map(|part| part.join(" "))
}

const FILLERS: [&str; 8] = ["indeed", "roughly", "perhaps", "namely", "again", "surely", "often", "really"];

fn filler(dice: &mut Dice) -> &'static str {
    FILLERS.get(dice.below(FILLERS.len())).copied().unwrap_or("indeed")
}

fn edit(text: &str, every: usize, dice: &mut Dice) -> Option<String> {
    let mut words = long(text)?;
    let first = if every == usize::MAX { dice.below(words.len()) } else { every / 2 };
    for word in words.iter_mut().skip(first).step_by(every) {
        *word = filler(dice);
    }
    Some(words.join(" "))
}

fn insert(text: &str, every: usize, dice: &mut Dice) -> Option<String> {
    let mut out = Vec::new();
    for (index, word) in long(text)?.into_iter().enumerate() {
        if index > 0 && index % every == 0 {
            out.push(filler(dice));
        }
        out.push(word);
    }
    Some(out.join(" "))
}

fn shuffle(text: &str, dice: &mut Dice) -> Option<String> {
    long(text)?;
    let mut sentences: Vec<&str> = text.split_inclusive(['.', '?', '!']).map(str::trim).collect();
    sentences.retain(|sentence| !sentence.is_empty());
    if sentences.len() < 2 {
        return None;
    }
    let turn = 1 + dice.below(sentences.len() - 1);
    sentences.rotate_left(turn);
    Some(sentences.join(" "))
}

fn any_order(text: &str, dice: &mut Dice) -> Option<String> {
    let mut words = long(text)?;
    for at in (1..words.len()).rev() {
        words.swap(at, dice.below(at + 1));
    }
    Some(words.join(" "))
}

fn typos(text: &str, dice: &mut Dice) -> Option<String> {
    let swapped = long(text)?.into_iter().enumerate().map(|(index, word)| {
        let mut letters: Vec<char> = word.chars().collect();
        if index % 12 == 5 && letters.len() > 3 {
            let at = 1 + dice.below(letters.len() - 2);
            letters.swap(at - 1, at);
        }
        letters.into_iter().collect::<String>()
    });
    let swapped: Vec<String> = swapped.collect();
    changed(text, swapped.join(" "))
}

fn look_alikes(text: &str, dice: &mut Dice) -> Option<String> {
    let alike = |c: char| match c {
        'a' => 'а',
        'e' => 'е',
        'o' => 'о',
        'p' => 'р',
        'c' => 'с',
        other => other,
    };
    let written = text.chars().map(|c| if dice.below(3) == 0 { alike(c) } else { c }).collect();
    changed(text, written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_writes_the_same_and_every_kind_writes_something() {
        let text = "A baker fills \"14\" trays, and sells 36 rolls of each; but a friend buys <3> & leaves. How many rolls does the baker's shop sell before noon, if the last tray-full of them stays on the shelf? Give the number of rolls and explain each step of the way.";
        for kind in DISGUISES {
            let written = (kind.write)(text, &mut Dice::new(7));
            assert!(written.is_some(), "{}", kind.name);
            assert_eq!(written, (kind.write)(text, &mut Dice::new(7)), "{}", kind.name);
        }
    }
}
