//! `potable completions`.

use anyhow::Result;
use clap::CommandFactory;

use super::Answer;
use super::args::{Args, CompletionsArgs};
use super::output::Output;

/// Prints the completion script.
///
/// # Errors
/// A closed stdout.
pub fn run(args: CompletionsArgs, output: &Output) -> Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "potable", &mut script);
    output.data(&String::from_utf8_lossy(&script))?;
    Ok(Answer::Yes)
}
