//! Runs that stand still at a place that the test names, so that they can be killed or interrupted there however
//! fast or busy the machine is (pipeline/store/hold.rs). No tests.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::harness::{Case, Ran};

/// A run that stands still. Let go, or killed at the latest when the value ends.
pub struct Held {
    /// Taken when its end is waited for.
    child: Option<Child>,
    gate: PathBuf,
}

impl Held {
    /// Starts a command, and returns when it is about to give the file number `after`, from 0, of those whose
    /// path contains `part` its name.
    ///
    /// # Errors
    /// The command has come to its end, and there was no such file.
    pub fn start(case: &Case, command: &mut Command, after: usize, part: &str) -> Result<Held, Ran> {
        let gate = case.path("gate");
        let _of_an_earlier_run = std::fs::remove_file(&gate);
        command.env("POTABLE_HOLD", format!("{after}:{part}:{}", gate.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        loop {
            // Before it is asked whether the gate is there: who stands there does not end.
            let ended = child.try_wait().unwrap().is_some();
            if gate.exists() {
                return Ok(Held { child: Some(child), gate });
            }
            if ended {
                return Err(ran(child));
            }
            std::thread::yield_now();
        }
    }

    /// Ends it in mid-work.
    pub fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().code(), None, "it ended by itself");
    }

    /// Sends it a signal (`-INT`) and waits for its end; it goes on if it takes the signal as a wish to stop.
    pub fn interrupt(mut self, signal: &str) -> Ran {
        let child = self.child.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        ran(child)
    }

    /// Lets it go on to its end.
    pub fn let_go(mut self) -> Ran {
        std::fs::remove_file(&self.gate).unwrap();
        ran(self.child.take().unwrap())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // After a failed assertion only.
        if let Some(mut child) = self.child.take() {
            let _ended_already = child.kill();
            let _same = child.wait();
        }
    }
}

fn ran(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
