//! From files to rows to conversations: formats, compression, mappings.

pub mod adapt;
pub mod arrow;
pub mod cell;
pub mod csv;
pub mod error;
pub mod files;
pub mod hub;
pub mod join;
pub mod json;
pub mod json_array;
pub mod jsonl;
pub mod object;
pub mod open;
pub mod parquet;
pub mod predicate;
pub mod python_json;
pub mod ranges;
pub mod reader;
pub mod remote;
pub mod row;

pub use cell::Cell;
pub use error::SourceError;
pub use open::{Format, Location, SourceFile};
pub use row::{RowId, SampleId, SampleName};

use std::cell::Cell as ThreadCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: ThreadCell<bool> = const { ThreadCell::new(false) };
}

/// Runs a step of a third-party reader over a file that may be hostile, and turns its panic into
/// the text of an error. The reader is not used again afterwards.
pub(crate) fn guard<T>(step: impl FnOnce() -> T) -> Result<T, String> {
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(step));
    GUARDED.set(before);
    result.map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        format!("the reader gave up: {text}")
    })
}

/// Whether this thread is inside of [`guard`], so that a panic will be caught.
pub(crate) fn is_guarded() -> bool {
    GUARDED.get()
}
