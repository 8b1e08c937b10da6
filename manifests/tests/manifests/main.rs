//! Tests of the manifest crate through its public API.

/// Canonical JSON, digests and sealing.
mod canonical;
/// What a difference weighs, and the laws of differences.
mod differences;
/// Manifests for the property tests, and one made by hand.
mod exports;
mod generate;
/// Reading: old versions, and files that are no manifest.
mod read;
/// The committed JSON Schema is the one of the types.
mod schema;
