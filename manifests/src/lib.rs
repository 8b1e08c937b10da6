//! Data manifests: what a set of training shards was made from, how, and what came out.
//!
//! This crate owns the manifest's types, its ledgers, its canonical JSON, its digest and the
//! comparison of two manifests. It reads no corpus, no shard, no clock and no network.
//!
//! ```text
//! Manifest --seal--> sealed Manifest --to_json--> manifest.json --from_slice--> Manifest
//!                                                                       two of them --diff--> ManifestDiff
//! ```

pub mod canonical;
mod consistency;
pub mod diff;
pub mod digest;
pub mod export;
mod index;
pub mod ledger;
pub mod manifest;
mod read;
mod schema;

pub use canonical::{CanonicalError, canonical_json};
pub use consistency::Inconsistency;
pub use diff::{
    Allowed, Finding, ManifestDiff, Phases, Policy, PolicyError, Thresholds, VersionStep, Weight,
    WeightCounts, diff, diff_phases, diff_with, policy_schema,
};
pub use digest::{Digest, DigestError, Hasher, is_commit, sha256_hex};
pub use export::{DataSet, ExportError, Part, Publication, grouped};
pub use index::{INDEX_SCHEMA, Index, IndexedPhase};
pub use ledger::{LedgerError, RowLedger, SampleLedger};
pub use manifest::{
    BenchmarkRecord, Decontamination, DecontaminationMode, FileDigest, FileRecord, FillBucket, InputFile,
    InputSource, JoinedInput, LengthBucket, Manifest, RecipeRecord, RunBlock, SCHEMA, SCHEMA_VERSION,
    ShardRecord, SourceMatches, SourceTokens, Split, TokenCounts, TokeniserRecord, Verified, ppm,
};
pub use read::{Kind, ManifestError};
pub use schema::json_schema;
