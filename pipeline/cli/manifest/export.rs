//! `potable manifest export`.

use anyhow::Result;
use potable_manifests::{Publication, export};

use super::data_set::load_set;
use crate::cli::Answer;
use crate::cli::args::{ExportArgs, ExportTo};
use crate::cli::output::Output;
use crate::shard::write_atomic;

/// Writes a manifest in the format of another tool.
///
/// # Errors
/// What cannot be read as a manifest, or written.
pub fn run(args: &ExportArgs, output: &Output) -> Result<Answer> {
    let set = load_set(&args.dir)?;
    let publication = Publication {
        url: args.url.clone(),
        creator: args.creator.clone(),
        date: args.published.clone(),
        version: args.data_version.clone(),
    };
    let text = match args.to {
        ExportTo::Croissant => {
            remind(args, output);
            export::croissant(&set, &publication)?
        }
        ExportTo::InToto => export::in_toto(&set)?,
        ExportTo::Card => export::card(&set),
        ExportTo::Markdown => export::markdown(&set)?,
    };
    match &args.output {
        None => output.data(&text)?,
        Some(path) => {
            write_atomic(path, text.as_bytes())?;
            output.note(&format!("wrote {}", path.display()));
        }
    }
    Ok(Answer::Yes)
}

/// Croissant requires what only the publisher knows.
fn remind(args: &ExportArgs, output: &Output) {
    let missing = [("--url", &args.url), ("--creator", &args.creator)];
    let missing: Vec<&str> =
        missing.iter().filter(|(_, value)| value.is_none()).map(|(flag, _)| *flag).collect();
    if !missing.is_empty() {
        output
            .note(&format!("left out what Croissant wants of a published data set: {}", missing.join(", ")));
    }
}
