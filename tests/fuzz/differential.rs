//! Long differential runs, beyond what the tests do in a minute (docs/ARCHITECTURE.md, `tests`):
//!
//! ```text
//! cargo run --release --example differential -- chats TEMPLATES COUNT [SEED]   native against minijinja
//! cargo run --release --example differential -- dump COUNT FILE [SEED]         for scripts/differential.py
//! cargo run --release --example differential -- strings COUNT FILE [SEED]      strings for the encoder
//! cargo run --release --example differential -- ids FILE OUT                   ids of each text of a JSONL file
//! ```
#![expect(clippy::unwrap_used, reason = "a run that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "its figures are its output")]
#![expect(clippy::disallowed_methods, reason = "writes plain files for a script")]

mod conversations;
mod templates;

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use conversations::{Numbers, conversation, string};
use potable::normalise::native::Ending;
use potable::normalise::{ControlText, RenderedSample};
use potable::source::adapt::{Conversation, Message};
use potable::tokenise::Tokeniser;
use rayon::prelude::*;
use serde_json::{Value, json};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    match words[..] {
        ["chats", folder, count] => chats(Path::new(folder), number(count), 0),
        ["chats", folder, count, seed] => chats(Path::new(folder), number(count), number(seed)),
        ["dump", count, file] => dump(number(count), file, 0),
        ["dump", count, file, seed] => dump(number(count), file, number(seed)),
        ["strings", count, file] => strings(number(count), file, 0),
        ["strings", count, file, seed] => strings(number(count), file, number(seed)),
        ["ids", file, out] => ids(file, out),
        _ => {
            println!(
                "chats TEMPLATES COUNT [SEED] | dump COUNT FILE [SEED] | strings COUNT FILE [SEED] | ids FILE OUT"
            );
            std::process::exit(2);
        }
    }
}

fn chats(folder: &Path, count: u64, seed: u64) {
    for model in templates::models(folder) {
        let (texts, refused, bytes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        (0..count).into_par_iter().for_each(|number| {
            let made = conversation(&mut Numbers::of(seed, number));
            match model.compare(&made) {
                Ok(counts) => {
                    texts.fetch_add(counts.0, Ordering::Relaxed);
                    refused.fetch_add(counts.1, Ordering::Relaxed);
                    let len: usize = made.strings().iter().map(|(_, text, _)| text.len()).sum();
                    bytes.fetch_add(len as u64, Ordering::Relaxed);
                }
                Err(difference) => {
                    println!("conversation {number} of seed {seed}: {difference}");
                    std::process::exit(1);
                }
            }
        });
        println!(
            "{:<22} {count} conversations ({} MB), {} texts compared, {} of them refused by both, 0 differ",
            model.name,
            bytes.into_inner() / 1_000_000,
            texts.into_inner(),
            refused.into_inner()
        );
    }
}

/// A line a conversation: messages and tools as `transformers` takes them, and our texts by format.
fn dump(count: u64, file: &str, seed: u64) {
    let mut out = BufWriter::new(std::fs::File::create(file).unwrap());
    for number in 0..count {
        let made = conversation(&mut Numbers::of(seed, number));
        let ours: serde_json::Map<String, Value> = templates::FORMATS
            .into_iter()
            .map(|format| (format.name().to_owned(), json!(templates::native(format, &made, Ending::Closed))))
            .collect();
        let line = json!({"messages": messages(&made), "tools": made.tools, "ours": ours});
        writeln!(out, "{line}").unwrap();
    }
    out.flush().unwrap();
    println!("{count} conversations");
}

fn messages(conversation: &Conversation) -> Vec<Value> {
    let one = |message: &Message| {
        let mut value = json!({"role": message.role.name(), "content": message.content});
        if let Some(reasoning) = &message.reasoning {
            value["reasoning_content"] = json!(reasoning);
        }
        if !message.tool_calls.is_empty() {
            let call = |call: &potable::source::adapt::ToolCall| json!({"name": call.name, "arguments": call.arguments});
            value["tool_calls"] = message.tool_calls.iter().map(call).collect();
        }
        value
    };
    conversation.messages.iter().map(one).collect()
}

fn strings(count: u64, file: &str, seed: u64) {
    let mut out = BufWriter::new(std::fs::File::create(file).unwrap());
    for number in 0..count {
        writeln!(out, "{}", json!({"text": string(&mut Numbers::of(seed, number))})).unwrap();
    }
    out.flush().unwrap();
    println!("{count} strings");
}

/// Reads a JSONL file of texts; writes for each the number of its ids and the ids, u32 little-endian.
fn ids(file: &str, out: &str) {
    let tokeniser = Tokeniser::built_in().unwrap();
    let reader = BufReader::new(std::fs::File::open(file).unwrap());
    let mut out = BufWriter::new(std::fs::File::create(out).unwrap());
    let (mut texts, mut tokens) = (0u64, 0u64);
    for line in reader.lines() {
        let value: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let text = value["text"].as_str().unwrap().to_owned();
        let sample = RenderedSample { text, ..RenderedSample::default() };
        let encoded = tokeniser.encode(&sample, ControlText::Keep).unwrap();
        out.write_all(&(encoded.ids.len() as u32).to_le_bytes()).unwrap();
        encoded.ids.iter().for_each(|id| out.write_all(&id.to_le_bytes()).unwrap());
        texts += 1;
        tokens += encoded.ids.len() as u64;
    }
    out.flush().unwrap();
    println!("{texts} texts, {tokens} ids");
}
