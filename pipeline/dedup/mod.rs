//! Near duplicates: rows that share most of their words.
//!
//! Map gives each row the hashes of its bands ([`Signer`]); select marks the rows that are compared
//! ([`NearRows`]) and hands their bands to [`NearDuplicates`], which sorts them by hash, joins rows that share one into clusters, and says which rows are not the
//! first of theirs ([`Lost`]). Exact duplicates are a matter of keys and stand in `run/select`.
//!
//! The method is MinHash with banding (Broder, "On the resemblance and containment of documents",
//! 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", chapter 3): two rows share a
//! value of a signature as often as the sets of their shingles overlap (Jaccard similarity), and are
//! candidates when all values of a band are equal. As in datatrove, candidates are taken at their
//! word: nothing compares texts.

mod clusters;
pub mod config;
mod error;
mod rows;
mod signature;
mod spill;

pub use clusters::{Lost, NearDuplicates, NearRows};
pub use config::{NearConfig, best_bands};
pub use error::DedupError;
pub use rows::RowNumbers;
pub use signature::Signer;
