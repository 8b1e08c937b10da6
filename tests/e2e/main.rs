//! End-to-end tests: the real binary on real files, and the stages on worked cases.

/// Rendering, ids and masks against worked cases.
mod golden;
