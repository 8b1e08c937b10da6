//! The command line: one file a command, and [`output`], the only place that prints.

pub mod args;
pub mod audit;
pub mod bar;
pub mod blocklist;
pub mod build;
pub mod check;
pub mod completions;
pub mod corpora;
pub mod display;
pub mod explain;
pub mod lock;
pub mod manifest;
pub mod output;
pub mod prep;
pub mod recipes;
pub mod show;
pub mod steps;
pub mod summary;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use output::Output;

/// What a command answers; an error is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done: exit status 0.
    Yes,
    /// Done, and the answer is no: exit status 1.
    No,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed pipe is no error of ours.
            let _best_effort = error.print();
            return ExitCode::from(code);
        }
    };
    quiet_guards();
    let output = Output::new(&args.output);
    let result = match args.command {
        Command::Prep(args) => prep::run(args, &output),
        Command::Lock(args) => lock::run(&args, &output),
        Command::Plan(args) => steps::plan(&args, &output),
        Command::Map(args) => steps::map(&args, &output),
        Command::Select(args) => steps::select(&args, &output),
        Command::Reduce(args) => steps::reduce(&args, &output),
        Command::Seal(args) => steps::seal(&args, &output),
        Command::Status(args) => steps::status(&args, &output),
        Command::Blocklist(args) => blocklist::run(args, &output),
        Command::Manifest(args) => manifest::run(args, &output),
        Command::Audit(args) => audit::run(&args, &output),
        Command::Explain(args) => explain::run(&args, &output),
        Command::Show(args) => show::run(&args, &output),
        Command::Corpora(args) => corpora::run(args, &output),
        Command::Recipes(args) => recipes::run(args, &output),
        Command::Completions(args) => completions::run(args, &output),
    };
    match result {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            let interrupted = matches!(error.downcast_ref(), Some(crate::run::RunError::Interrupted));
            ExitCode::from(if interrupted { 130 } else { 2 })
        }
    }
}

/// Panics of third-party readers are caught and reported as errors of the file; their own message
/// on stderr would only be noise.
fn quiet_guards() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !crate::source::is_guarded() {
            usual(info);
        }
    }));
}
