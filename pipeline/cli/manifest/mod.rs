//! `potable manifest`: one file a subcommand.

mod data_set;
mod diff;
mod export;
mod load;
mod show;
mod verify;

use anyhow::Result;

use super::Answer;
use super::args::{ManifestArgs, ManifestCommand};
use super::output::Output;

pub use diff::DiffError;
pub use load::{ManifestCommandError, load};

/// Runs a subcommand of `potable manifest`.
///
/// # Errors
/// What cannot be read as a manifest.
pub fn run(args: ManifestArgs, output: &Output) -> Result<Answer> {
    match args.command {
        ManifestCommand::Diff(args) => diff::run(&args, output),
        ManifestCommand::Show(args) => show::run(&args, output),
        ManifestCommand::Export(args) => export::run(&args, output),
        ManifestCommand::Verify(args) => verify::run(&args, output),
    }
}
