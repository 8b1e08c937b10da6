//! Packs to files and back: one writer and one reader a format, every file atomic.

pub mod atomic;
pub mod content;
pub mod dropped;
pub mod format;
pub mod items;
pub mod parquet;
pub mod read;
pub mod write;

pub use atomic::{AtomicFile, write_atomic};
pub use content::{Content, ContentSummary};
pub use format::{Row, ShardPlace};
pub use write::{Shard, ShardFile, ShardOptions, ShardSink, ShardWriter};
