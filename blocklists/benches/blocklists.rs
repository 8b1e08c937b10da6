//! The normaliser, the scan and the load of a blocklist, in bytes a second.
//!
//! Texts are made here, by a fixed rule, so that numbers compare from machine to machine.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use potable_blocklists::{BenchmarkMeta, Blocklist, BlocklistBuilder, Item, Part, Scanner, Words};

fn main() {
    divan::main();
}

/// Sizes of the texts, in bytes.
const SIZE: usize = 1 << 20;
/// Items of the blocklist.
const ITEMS: u64 = 10_000;

const KINDS: [&str; 4] = ["english", "code", "tex", "chinese"];

/// A generator of numbers that are the same everywhere (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A word of a vocabulary in which short and low numbers are frequent.
fn word(numbers: &mut Numbers) -> String {
    let most = numbers.below(20_000) + 1;
    let mut rank = numbers.below(most);
    let mut word = String::new();
    loop {
        word.push(char::from(b"etaoinshrdlucmfwypvbgk"[(rank % 22) as usize]));
        rank /= 7;
        if rank == 0 && word.len() > 1 {
            return word;
        }
    }
}

fn text(kind: &str, bytes: usize, seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let mut text = String::new();
    while text.len() < bytes {
        let next = word(&mut numbers);
        match (kind, numbers.below(8)) {
            ("chinese", 0) => text.push('，'),
            ("chinese", _) => {
                let offset = numbers.below(3000) as u32;
                text.push(char::from_u32(0x4E00 + offset).unwrap_or('中'));
            }
            ("code", 0) => text.push_str(&format!("    {next}(self, {}):\n", numbers.below(99))),
            ("code", 1) => text.push_str(&format!("'{next}'\\n")),
            ("tex", 0) => text.push_str(&format!("$\\frac{{{next}}}{{2}} \\leq {}$ ", numbers.below(999))),
            (_, 1) => text.push_str(&format!("{next}. ")),
            (_, 2) => text.push_str(&format!("{} don't ", numbers.below(500))),
            _ => text.push_str(&format!("{next} ")),
        }
    }
    text
}

fn blocklist() -> Blocklist {
    let Ok(mut builder) = BlocklistBuilder::new(13) else { unreachable!("13 is in range") };
    let item = |number: u64| Item {
        id: number.to_string(),
        stem: text("english", 300, number + 1_000_003),
        options: Vec::new(),
    };
    let meta = BenchmarkMeta { name: "bench".into(), ..BenchmarkMeta::default() };
    match builder.add(meta, (0..ITEMS).map(item)).and_then(|()| builder.build()) {
        Ok(list) => list,
        Err(error) => unreachable!("{error}"),
    }
}

#[divan::bench(args = KINDS)]
fn normalise(bencher: Bencher, kind: &str) {
    let text = text(kind, SIZE, 7);
    let (mut scanner, mut words) = (Words::new(), Vec::new());
    bencher.counter(BytesCount::of_str(&text)).bench_local(|| {
        scanner.scan(black_box(&text), &mut words);
        words.len()
    });
}

#[divan::bench(args = KINDS)]
fn check(bencher: Bencher, kind: &str) {
    let (list, text) = (blocklist(), text(kind, SIZE, 7));
    let mut scanner = Scanner::new(&list);
    let part = Part { text: &text, message: 0, whole_prompt: false };
    bencher.counter(BytesCount::of_str(&text)).bench_local(|| scanner.check(black_box(&[part]), false).len());
}

#[divan::bench]
fn load(bencher: Bencher) {
    let list = blocklist();
    let bytes = list.as_bytes();
    bencher
        .counter(BytesCount::of_slice(bytes))
        .with_inputs(|| bytes.to_vec())
        .bench_values(|bytes| Blocklist::from_bytes(bytes).map(|list| list.items()));
}

#[divan::bench(sample_count = 5)]
fn build() -> Blocklist {
    blocklist()
}
