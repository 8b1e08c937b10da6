//! `potable manifest diff`.

use anyhow::Result;
use potable_manifests::{Weight, diff};

use super::load;
use crate::cli::Answer;
use crate::cli::args::{DiffArgs, DiffFormat, FailOn};
use crate::cli::output::Output;

/// Compares two manifests.
///
/// # Errors
/// What cannot be read as a manifest.
pub fn run(args: &DiffArgs, output: &Output) -> Result<Answer> {
    let changes = diff(&load(&args.old)?, &load(&args.new)?);
    let text = match args.format {
        DiffFormat::Text => changes.to_text(),
        DiffFormat::Json => changes.to_json()?,
        DiffFormat::Markdown => changes.to_markdown(),
    };
    output.data(&text)?;
    let fails_from = match args.fail_on {
        FailOn::Blocking => Weight::Blocking,
        FailOn::Material => Weight::Material,
        FailOn::Any => Weight::Informational,
    };
    let fails = changes.max_weight().is_some_and(|weight| weight >= fails_from);
    Ok(if fails { Answer::No } else { Answer::Yes })
}
