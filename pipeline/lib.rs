//! Training corpora in, decontaminated and packed training shards with a manifest out.
//!
//! The stages, in order: [`source`] reads rows and maps them to conversations, [`decontaminate`]
//! checks them against benchmarks, [`dedup`] finds near copies among them, [`normalise`] renders them, [`tokenise`] encodes them, [`pack`]
//! puts them together, [`shard`] writes them. [`recipe`] says what to run and [`run`] runs it.

pub mod audit;
pub mod decontaminate;
pub mod dedup;
pub mod normalise;
pub mod pack;
pub mod recipe;
pub mod run;
pub mod shard;
pub mod source;
pub mod store;
pub mod tokenise;
pub mod verify;

pub mod cli;
