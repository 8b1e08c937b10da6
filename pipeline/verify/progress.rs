//! How far a check of files has come, for whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes to read and bytes read, shared by threads.
#[derive(Debug, Default)]
pub struct ByteProgress {
    total: AtomicU64,
    done: AtomicU64,
}

impl ByteProgress {
    /// Adds bytes that are to be read.
    pub fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were read.
    pub fn count(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes read, and bytes to read in all.
    pub fn state(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}
