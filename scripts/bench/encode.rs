//! What encoding costs inside the pipeline, beside the encoder alone on the same text, in one run:
//!
//! ```text
//! cargo bench --bench encode -- FILE.jsonl [MB]
//! ```
//!
//! Reads chat rows (`messages`), renders them by the default policy and encodes each sample twice: by
//! [`Tokeniser::encode`] (normal form, ids, check of the lengths, trained runs), as `prep` does, and by
//! the engine alone, which gets the text in normal form. Both are a process of its own, so that neither
//! finds what the other put into a cache. They take turns by blocks of rows, the first of a pair in every
//! other block. Prints MB of rendered text a second for both, and their ratio; one thread.
#![expect(clippy::unwrap_used, reason = "a run that cannot go on ends")]
#![expect(clippy::indexing_slicing, reason = "a run that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "its figures are its output")]

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use potable::normalise::{ControlText, Policy, RenderedSample, native};
use potable::source::adapt::{Conversation, Message, Outcome, Role};
use potable::tokenise::Tokeniser;
use serde_json::Value;
use unicode_normalization_alignments::UnicodeNormalization as _;

/// Bytes of rendered text after which the two change places.
const BLOCK: usize = 1 << 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [] => println!("cargo bench --bench encode -- FILE.jsonl [MB]"),
        ["ours", file] => {
            side(file, |tokeniser, sample, _| tokeniser.encode(sample, ControlText::Drop).unwrap().ids.len())
        }
        ["alone", file] => {
            side(file, |tokeniser, _, normal| black_box(tokeniser.engine_ids(normal).unwrap()).len());
        }
        [file] => compare(file, usize::MAX),
        [file, mb, ..] => compare(file, (mb.parse::<f64>().unwrap() * 1e6) as usize),
    }
}

/// One side, in a process of its own: a block for each line that comes in, its figures as a line out.
fn side(file: &str, encode: impl Fn(&Tokeniser, &RenderedSample, &str) -> usize) {
    let started = Instant::now();
    let tokeniser = Tokeniser::built_in().unwrap();
    tokeniser.prepare().unwrap();
    println!("{}", started.elapsed().as_nanos());
    let mut rows = BufReader::new(std::fs::File::open(file).unwrap()).lines();
    for _ in std::io::stdin().lines() {
        let (mut block, mut bytes) = (Vec::new(), 0);
        while bytes < BLOCK {
            let Some(row) = rows.next() else { break };
            let made = samples(&row.unwrap());
            bytes += made.iter().map(|sample| sample.text.len()).sum::<usize>();
            block.extend(made);
        }
        let normal: Vec<String> =
            block.iter().map(|sample| sample.text.nfc().map(|(c, _)| c).collect()).collect();
        let changed = block.iter().zip(&normal).filter(|(sample, normal)| sample.text != **normal).count();
        let started = Instant::now();
        let tokens: usize = block
            .iter()
            .zip(&normal)
            .map(|(sample, normal)| black_box(encode(&tokeniser, sample, normal)))
            .sum();
        println!("{} {bytes} {tokens} {changed}", started.elapsed().as_nanos());
    }
}

/// A side as its parent sees it.
struct Side {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
    nanos: u64,
}

impl Side {
    fn start(name: &str, file: &str) -> Side {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([name, file])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let start: f64 = said.next().unwrap().unwrap().parse().unwrap();
        println!("{name}: start-up {:.2} s", start / 1e9);
        Side { process, said, nanos: 0 }
    }

    /// Bytes, tokens and samples that are not in normal form, of the next block.
    fn block(&mut self) -> [u64; 3] {
        writeln!(self.process.stdin.as_mut().unwrap()).unwrap();
        let line = self.said.next().unwrap().unwrap();
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        self.nanos += numbers[0];
        [numbers[1], numbers[2], numbers[3]]
    }
}

fn compare(file: &str, most: usize) {
    let (mut ours, mut alone) = (Side::start("ours", file), Side::start("alone", file));
    let (mut sums, mut blocks) = ([0; 3], 0u64);
    while (sums[0] as usize) < most {
        let (one, other) = if blocks.is_multiple_of(2) {
            (ours.block(), alone.block())
        } else {
            (alone.block(), ours.block())
        };
        assert_eq!(one, other, "the pipeline gives the ids of the engine");
        if one[0] == 0 {
            break;
        }
        sums.iter_mut().zip(one).for_each(|(sum, more)| *sum += more);
        blocks += 1;
    }
    for side in [&mut ours, &mut alone] {
        side.process.kill().unwrap();
        side.process.wait().unwrap();
    }
    let speed = |side: &Side| sums[0] as f64 * 1e3 / side.nanos as f64;
    println!(
        "{:.0} MB of rendered text, {} tokens, {} samples not in normal form, one pass, one thread: engine alone {:.1} MB/s, in the pipeline {:.1} MB/s: {:.1} %",
        sums[0] as f64 / 1e6,
        sums[1],
        sums[2],
        speed(&alone),
        speed(&ours),
        100.0 * speed(&ours) / speed(&alone)
    );
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
