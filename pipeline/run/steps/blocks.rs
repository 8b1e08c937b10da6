//! Where the tokens of a partition lie: written by select, one object a partition, so that a reduce of a
//! partition reads no more than its own; and the tokens themselves, read by ranges.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::error::StepError;
use super::group::{Span, from_ipc};
use super::sealed;
use crate::run::error::RunError;
use crate::run::reduce::TokenSource;
use crate::run::staged::StagedTokens;
use crate::store::Store;

/// Blocks that are held: those of the partitions that a tail takes samples of.
const HELD: usize = 40;

/// A block of tokens and whose they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRef {
    /// Name of the object.
    pub name: String,
    /// Name of the object that is the commit of its unit.
    pub commit: String,
    /// Where the block is in it.
    pub span: Span,
    /// Indices of staged files in the order of select, and how many samples of each there are, one file
    /// after the other.
    pub chunks: Vec<(u32, u32)>,
}

/// Name of the object with the blocks of a partition.
pub fn blocks_name(partition: u32) -> String {
    format!("select/partition-{partition:05}.blocks")
}

/// The tokens of some partitions.
pub struct BlockTokens<'a> {
    store: &'a Store,
    map_again: String,
    /// By partition and staged file: the block, the first sample in it, and how many there are.
    places: BTreeMap<(u32, u32), (Arc<BlockRef>, usize, usize)>,
    held: Mutex<VecDeque<(Arc<BlockRef>, RecordBatch)>>,
}

impl<'a> BlockTokens<'a> {
    /// The tokens of `partitions`, all of which have rows; `map_again` is the command that makes a block anew.
    ///
    /// # Errors
    /// A list of blocks that is missing or damaged.
    pub fn open(store: &'a Store, partitions: &[u32], map_again: String) -> Result<Self, RunError> {
        let mut places = BTreeMap::new();
        for &partition in partitions {
            let name = blocks_name(partition);
            let damaged = |reason| RunError::Staged { path: PathBuf::from(store.place(&name)), reason };
            let bytes = match store.get(&name) {
                Err(error) if error.is_not_found() => return Err(damaged("it is missing".to_owned())),
                bytes => bytes?,
            };
            let blocks: Vec<BlockRef> = sealed::from_bytes(&bytes).map_err(damaged)?;
            for block in blocks {
                let (block, mut first) = (Arc::new(block), 0);
                for &(chunk, samples) in &block.chunks {
                    places.insert((partition, chunk), (block.clone(), first, samples as usize));
                    first += samples as usize;
                }
            }
        }
        Ok(BlockTokens { store, map_again, places, held: Mutex::default() })
    }

    fn batch(&self, block: &Arc<BlockRef>) -> Result<RecordBatch, RunError> {
        let held = || self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, batch)) = held().iter().find(|(other, _)| Arc::ptr_eq(other, block)) {
            return Ok(batch.clone());
        }
        let damaged = |reason: String| {
            RunError::from(StepError::Damaged {
                place: self.store.place(&block.name),
                reason,
                names: vec![block.commit.clone(), block.name.clone()],
                again: self.map_again.clone(),
            })
        };
        let span = &block.span;
        let bytes = match self.store.get_range(&block.name, span.start..span.start + span.len) {
            Err(error) if error.is_lost() => return Err(damaged(error.to_string())),
            bytes => bytes?,
        };
        if !span.is_of(&bytes) {
            return Err(damaged("its tokens are not what was written".to_owned()));
        }
        let batches = from_ipc(&bytes).map_err(|e| damaged(e.to_string()))?;
        let [batch] = batches.as_slice() else {
            return Err(damaged("a block is not one table".to_owned()));
        };
        // Two that read one block at once both hold it: better than one that waits for a store.
        let mut held = held();
        held.push_back((block.clone(), batch.clone()));
        if held.len() > HELD {
            held.pop_front();
        }
        Ok(batch.clone())
    }
}

impl TokenSource for BlockTokens<'_> {
    fn tokens(&self, chunk: u32, partition: u32) -> Result<Option<StagedTokens>, RunError> {
        let Some((block, first, samples)) = self.places.get(&(partition, chunk)) else { return Ok(None) };
        let batch = self.batch(block)?;
        Ok(Some(StagedTokens::new(&batch.slice(*first, *samples))))
    }
}
