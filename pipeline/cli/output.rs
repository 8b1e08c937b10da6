//! The only place that prints: data to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write};

use anyhow::Error;

use super::args::OutputFlags;

/// Where and how much to print.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    level: Level,
    progress: ProgressStyle,
    colour: bool,
    data_colour: bool,
    data_terminal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Quiet,
    Normal,
    Verbose,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressStyle {
    /// Bars on a terminal.
    Bars,
    /// A line every few seconds.
    Lines,
    /// Not at all.
    None,
}

impl Output {
    /// Output by the flags, the terminal, `NO_COLOR`, and for data `CLICOLOR_FORCE`.
    pub fn new(flags: &OutputFlags) -> Self {
        let no_progress = flags.no_progress;
        let terminal = io::stderr().is_terminal();
        let level = match (flags.quiet, flags.verbose) {
            (true, _) => Level::Quiet,
            (false, true) => Level::Verbose,
            (false, false) => Level::Normal,
        };
        let progress = match level {
            Level::Quiet => ProgressStyle::None,
            Level::Normal if terminal && !no_progress => ProgressStyle::Bars,
            _ if no_progress => ProgressStyle::None,
            _ => ProgressStyle::Lines,
        };
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let coloured = set("NO_COLOR").is_none();
        let forced = set("CLICOLOR_FORCE").is_some_and(|value| value != "0");
        let data_terminal = io::stdout().is_terminal();
        let data_colour = coloured && (forced || data_terminal);
        Output { level, progress, colour: coloured && terminal, data_colour, data_terminal }
    }

    /// Whether data on stdout may be drawn with block characters: a terminal whose locale is UTF-8.
    pub fn has_blocks(&self) -> bool {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
        let locale = locale.map(|value| value.to_string_lossy().to_ascii_lowercase()).find(|v| !v.is_empty());
        self.data_terminal && locale.is_some_and(|value| value.contains("utf-8") || value.contains("utf8"))
    }

    /// Whether data on stdout may be coloured.
    pub fn has_colour(&self) -> bool {
        self.data_colour
    }

    /// How to show progress.
    pub fn progress(&self) -> ProgressStyle {
        self.progress
    }

    /// Writes data to stdout.
    ///
    /// # Errors
    /// A closed or full stdout.
    pub fn data(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// A line about the run, unless quiet.
    pub fn note(&self, text: &str) {
        if self.level > Level::Quiet {
            self.line(text);
        }
    }

    /// A line about the run, if verbose.
    pub fn detail(&self, text: &str) {
        if self.level == Level::Verbose {
            self.line(text);
        }
    }

    /// A warning.
    pub fn warn(&self, text: &str) {
        self.line(&format!("{}: {text}", self.paint("warning", "33")));
    }

    /// An error with its causes, and the way out.
    pub fn error(&self, error: &Error) {
        let mut lines = vec![format!("{}: {error}", self.paint("error", "31"))];
        let mut last = error.to_string();
        for cause in error.chain().skip(1) {
            let text = cause.to_string();
            if text != last && !last.contains(&text) {
                lines.push(format!("  {text}"));
            }
            last = text;
        }
        if let Some(hint) = hint_of(error) {
            lines.push(String::new());
            lines.push(format!("{}: {hint}", self.paint("hint", "36")));
        }
        self.line(&lines.join("\n"));
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.colour { format!("\u{1b}[1;{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn line(&self, text: &str) {
        // Nothing is left to tell somebody whose stderr is closed.
        let _best_effort = writeln!(io::stderr().lock(), "{text}");
    }
}

/// Whether an error is a closed pipe of the reader of our stdout.
pub fn is_broken_pipe(error: &Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn hint_of(error: &Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(e) = cause.downcast_ref::<crate::run::RunError>() {
            return e.hint();
        }
        if let Some(e) = cause.downcast_ref::<super::show::ShowError>() {
            return e.hint();
        }
        if let Some(e) = cause.downcast_ref::<crate::recipe::RecipeError>() {
            return e.hint();
        }
        if let Some(e) = cause.downcast_ref::<crate::decontaminate::benchmarks::BenchmarkError>() {
            return e.hint();
        }
        if let Some(e) = cause.downcast_ref::<potable_blocklists::BlocklistError>() {
            return e.hint();
        }
        if let Some(e) = cause.downcast_ref::<super::manifest::DiffError>() {
            return Some(e.hint());
        }
        if let Some(e) = cause.downcast_ref::<crate::audit::AuditError>() {
            return e.hint();
        }
        cause.downcast_ref::<super::manifest::ManifestCommandError>().and_then(|e| e.hint())
    })
}
