//! Packs to files and back: one writer and one reader a format, every file atomic.

pub mod atomic;
pub mod content;
pub mod datasets;
pub mod dropped;
pub mod format;
pub mod index;
pub mod items;
pub mod mds;
pub mod megatron;
pub mod olmo;
pub mod parquet;
pub mod read;
pub mod sidecar;
pub mod table;
pub mod write;

pub use atomic::{AtomicFile, write_atomic};
pub use content::{Content, ContentSummary};
pub use format::{Row, ShardPlace};
pub use index::{PackExtremes, write_index};
pub use write::{Shard, ShardFile, ShardOptions, ShardSink, ShardWriter};
