//! Progress of a command that reads files: bytes done of bytes to do.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle as BarStyle};

use super::display::bytes;
use super::output::{Output, ProgressStyle};
use crate::verify::progress::ByteProgress;

/// Time between two lines of progress where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Time between two drawings of the bar.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// A bar, or lines, until it is dropped.
pub struct Bar {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Shows `progress` under a word for what is done.
    pub fn show(output: &Output, word: &'static str, progress: &Arc<ByteProgress>) -> Self {
        let (end, ended) = channel();
        let (output, progress) = (*output, progress.clone());
        let thread = match output.progress() {
            ProgressStyle::None => None,
            ProgressStyle::Lines => Some(std::thread::spawn(move || lines(&output, word, &progress, &ended))),
            ProgressStyle::Bars => Some(std::thread::spawn(move || bar(word, &progress, &ended))),
        };
        Bar { end: Some(end), thread }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // The thread ends when the sender is gone.
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A thread that draws has nothing to say after it has failed.
            let _best_effort = thread.join();
        }
    }
}

fn lines(output: &Output, word: &str, progress: &ByteProgress, ended: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LINE_EVERY) {
        let (done, total) = progress.state();
        output.note(&format!("{word:<11} {} of {}", bytes(done), bytes(total)));
    }
}

fn bar(word: &'static str, progress: &ByteProgress, ended: &Receiver<()>) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = BarStyle::with_template(
        "{prefix:11} {bar:24} {bytes:>10}/{total_bytes:10} {bytes_per_sec:>12} eta {eta:4}",
    );
    bar.set_style(style.unwrap_or_else(|_| BarStyle::default_bar()));
    bar.set_prefix(word);
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(DRAW_EVERY) {
        let (done, total) = progress.state();
        bar.set_length(total);
        bar.set_position(done);
    }
    bar.finish_and_clear();
}
