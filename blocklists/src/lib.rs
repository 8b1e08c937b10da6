//! Benchmark test sets to a blocklist of hashes, and the scan that checks rows against it.
//!
//! This crate owns the words of a text ([`text`]), what a benchmark is ([`benchmark`]), the rules
//! by which items become hashes ([`build`]), the file that holds them ([`mod@format`], [`index`]) and
//! the verdict on a text ([`scan`]). It reads no corpora and no network: items come in as an
//! iterator, texts as string slices. A verdict is a pure function of the text and the blocklist.

mod ascii;
mod background;
pub mod benchmark;
pub mod build;
mod canary;
mod cover;
#[cfg(target_arch = "x86_64")]
mod cpu;
mod extend;
mod family;
mod fold;
pub mod format;
mod gram;
mod hash;
pub mod index;
pub mod known;
mod masks;
mod near;
mod plan;
mod rarity;
pub mod scan;
mod suffix;
mod tex;
pub mod text;
mod wide;

pub use benchmark::{BenchmarkDefinition, BenchmarkMeta, DefinitionError, Item, SourceFile};
pub use build::{BlocklistBuilder, NGRAM_RANGE};
pub use canary::canary_of;
pub use format::{Background, BenchmarkEntry, BlocklistError, Coverage, FORMAT_VERSION, Header};
pub use index::{Blocklist, Protection};
pub use scan::{Action, Hit, Part, Rule, Scanner, excerpt, marked_excerpt};
pub use text::{NORMALISER, Word, Words, words_of};
