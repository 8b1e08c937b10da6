//! What encoding costs inside the pipeline, beside the encoder alone on the same text, in one run:
//!
//! ```text
//! cargo bench --bench encode -- FILE.jsonl [MB]
//! ```
//!
//! Reads chat rows (`messages`), renders them by the default policy and encodes each sample twice: by
//! [`Tokeniser::encode`] (normal form, ids, check of the lengths, trained runs), as `prep` does, and by
//! the engine alone, which gets the text in normal form. Both have an engine of their own, whose caches fill up side by side. They take
//! turns by blocks of rows, the first of a pair in every other block. Prints MB of rendered text a
//! second for both, and their ratio; one thread.
#![expect(clippy::unwrap_used, reason = "a run that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "its figures are its output")]

use std::hint::black_box;
use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use potable::normalise::{ControlText, Policy, RenderedSample, native};
use potable::source::adapt::{Conversation, Message, Outcome, Role};
use potable::tokenise::Tokeniser;
use serde_json::Value;
use unicode_normalization_alignments::UnicodeNormalization as _;

/// Bytes of rendered text after which the two change places.
const BLOCK: usize = 1 << 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let Some(file) = args.first() else {
        println!("cargo bench --bench encode -- FILE.jsonl [MB]");
        return;
    };
    let most = args.get(1).map_or(f64::INFINITY, |mb| mb.parse::<f64>().unwrap() * 1e6) as usize;
    let started = Instant::now();
    let (ours, alone) = (Tokeniser::built_in().unwrap(), Tokeniser::built_in().unwrap());
    println!("start-up {:.2} s an encoder", started.elapsed().as_secs_f64() / 2.0);
    let mut times = Times::default();
    let mut block: Vec<RenderedSample> = Vec::new();
    for line in BufReader::new(std::fs::File::open(file).unwrap()).lines() {
        block.extend(samples(&line.unwrap()));
        if block.iter().map(|sample| sample.text.len()).sum::<usize>() >= BLOCK {
            times.measure(&ours, &alone, &block);
            block.clear();
        }
        if times.bytes >= most {
            break;
        }
    }
    times.measure(&ours, &alone, &block);
    times.print();
}

#[derive(Default)]
struct Times {
    blocks: u64,
    bytes: usize,
    tokens: u64,
    /// Samples that are not in normal form.
    changed: usize,
    ours: Duration,
    alone: Duration,
}

impl Times {
    fn measure(&mut self, ours: &Tokeniser, alone: &Tokeniser, block: &[RenderedSample]) {
        let normal: Vec<String> =
            block.iter().map(|sample| sample.text.nfc().map(|(c, _)| c).collect()).collect();
        self.changed += block.iter().zip(&normal).filter(|(sample, normal)| sample.text != **normal).count();
        let pipeline = || {
            let started = Instant::now();
            let encoded = block.iter().map(|sample| ours.encode(sample, ControlText::Drop).unwrap());
            let tokens: usize = encoded.map(|sample| black_box(sample).ids.len()).sum();
            (started.elapsed(), tokens)
        };
        let engine = || {
            let started = Instant::now();
            let tokens: usize =
                normal.iter().map(|text| black_box(alone.engine_ids(text).unwrap()).len()).sum();
            (started.elapsed(), tokens)
        };
        let (first, second);
        if self.blocks.is_multiple_of(2) {
            first = pipeline();
            second = engine();
        } else {
            second = engine();
            first = pipeline();
        }
        assert_eq!(first.1, second.1, "the pipeline gives the ids of the engine");
        self.blocks += 1;
        self.bytes += block.iter().map(|sample| sample.text.len()).sum::<usize>();
        self.tokens += first.1 as u64;
        self.ours += first.0;
        self.alone += second.0;
    }

    fn print(&self) {
        let speed = |time: Duration| self.bytes as f64 / 1e6 / time.as_secs_f64();
        println!(
            "{:.0} MB of rendered text, {} tokens, {} samples not in normal form, one pass, one thread: engine alone {:.1} MB/s, in the pipeline {:.1} MB/s: {:.1} %",
            self.bytes as f64 / 1e6,
            self.tokens,
            self.changed,
            speed(self.alone),
            speed(self.ours),
            100.0 * self.alone.as_secs_f64() / self.ours.as_secs_f64()
        );
    }
}

/// The samples of a row of `messages`; none of one that the default policy drops.
fn samples(line: &str) -> Vec<RenderedSample> {
    let row: Value = serde_json::from_str(line).unwrap();
    let text = |message: &Value, key: &str| message[key].as_str().unwrap_or_default().to_owned();
    let message =
        |message: &Value| Message::new(Role::from_name(&text(message, "role")), text(message, "content"));
    let messages = row["messages"].as_array().unwrap().iter().map(message).collect();
    let conversation = Conversation { messages, tools: Vec::new() };
    match native::normalise(&conversation, &Policy::DEFAULT, &mut Default::default()) {
        Outcome::Keep(samples) => samples,
        _ => Vec::new(),
    }
}
