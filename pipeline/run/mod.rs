//! One run: plan → map → select → reduce → seal.

pub mod checks;
pub mod digests;
pub mod error;
pub mod folder;
pub mod joins;
pub mod layout;
pub mod map;
pub mod measure;
pub mod mixture;
pub mod plan;
pub mod prep;
pub mod progress;
pub mod pull;
pub mod reason;
pub mod reduce;
pub mod render;
pub mod report;
pub mod rows;
pub mod sampling;
pub mod seal;
pub mod select;
pub mod staged;
pub mod steps;

pub use error::RunError;
pub use plan::{Cut, Plan};
pub use prep::{PrepOptions, PrepReport, prep};
pub use progress::{Progress, Step};
pub use pull::Pull;
