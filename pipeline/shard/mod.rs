//! Packs to files: one writer a format, every file atomic.

pub mod atomic;
pub mod dropped;
pub mod items;
pub mod parquet;

pub use atomic::{AtomicFile, write_atomic};
pub use parquet::{ParquetShardWriter, Shard, ShardColumns};
