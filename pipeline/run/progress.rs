//! What a run has done so far, for whoever shows it. Counters only: nothing here prints.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The step that a run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Finding and hashing inputs.
    Plan,
    /// Reading, checking, rendering, tokenising.
    Map,
    /// Duplicates and caps.
    Select,
    /// Packing and writing shards.
    Reduce,
    /// The manifest.
    Seal,
}

const STEPS: [Step; 5] = [Step::Plan, Step::Map, Step::Select, Step::Reduce, Step::Seal];

/// Counters of one source.
#[derive(Debug, Default)]
pub struct SourceProgress {
    /// Name of the source.
    pub name: String,
    /// Bytes of text to read, about.
    pub planned_bytes: u64,
    /// Rows read.
    pub rows: AtomicU64,
    /// Bytes of text read.
    pub bytes: AtomicU64,
    /// Tokens made.
    pub tokens: AtomicU64,
}

/// Counters of a run, shared by its threads.
#[derive(Debug, Default)]
pub struct Progress {
    step: AtomicUsize,
    stop: Arc<AtomicBool>,
    fetched: AtomicU64,
    sources: Mutex<Vec<std::sync::Arc<SourceProgress>>>,
    /// Partitions written, and how many there are.
    pub partitions: (AtomicU64, AtomicU64),
    /// Rows whose text was compared with that of the model's own template.
    pub verified: AtomicU64,
}

impl Progress {
    /// The step that the run is at.
    pub fn step(&self) -> Step {
        STEPS.get(self.step.load(Ordering::Relaxed)).copied().unwrap_or(Step::Plan)
    }

    /// Enters a step.
    pub fn enter(&self, step: Step) {
        let index = STEPS.iter().position(|other| *other == step).unwrap_or(0);
        self.step.store(index, Ordering::Relaxed);
    }

    /// Asks the run to stop at the next safe place.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        crate::store::hold::release();
    }

    /// Whether the run was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The flag behind [`Progress::stop`], for those who wait on the network.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Counts bytes that came from the Hub.
    pub fn add_fetched(&self, bytes: u64) {
        self.fetched.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that came from the Hub.
    pub fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// Sets the sources of the phase that begins.
    pub fn set_sources(&self, sources: Vec<SourceProgress>) {
        *self.sources.lock().unwrap_or_else(PoisonError::into_inner) =
            sources.into_iter().map(std::sync::Arc::new).collect();
    }

    /// The sources of the phase.
    pub fn sources(&self) -> Vec<std::sync::Arc<SourceProgress>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a chunk of a source.
    pub fn count(&self, source: usize, rows: u64, bytes: u64, tokens: u64) {
        if let Some(source) = self.sources().get(source) {
            source.rows.fetch_add(rows, Ordering::Relaxed);
            source.bytes.fetch_add(bytes, Ordering::Relaxed);
            source.tokens.fetch_add(tokens, Ordering::Relaxed);
        }
    }
}
