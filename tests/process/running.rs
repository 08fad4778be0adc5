//! A child process whose lines a test reads, each within the test's patience.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use tollgate_test_support::child_process::{KillOnDrop, SpawnTied as _};
use tollgate_test_support::polling::{PATIENCE, until};

/// A running process, which is killed when dropped.
pub(crate) struct Running {
    child: KillOnDrop,
    lines: Receiver<String>,
}

// === impl Running ===

impl Running {
    /// Starts a process whose stdout is read.
    pub(crate) fn with_stdout(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn_tied().unwrap();
        let mut child = KillOnDrop(child);
        let lines = lines(child.0.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Starts a process whose stderr is read.
    pub(crate) fn with_stderr(command: &mut Command) -> Self {
        let child = command.stderr(Stdio::piped()).spawn_tied().unwrap();
        let mut child = KillOnDrop(child);
        let lines = lines(child.0.stderr.take().unwrap());
        Self { child, lines }
    }

    /// The next line; none if the output has ended.
    pub(crate) fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line within {PATIENCE:?}"),
        }
    }

    /// The next line that contains these words.
    pub(crate) fn line_with(&self, words: &str) -> String {
        let mut before = String::new();
        while let Some(line) = self.next_line() {
            if line.contains(words) {
                return line;
            }
            before.extend([line.as_str(), "\n"]);
        }
        panic!("the output ended without `{words}`: {before}")
    }

    /// A line that is there already.
    pub(crate) fn line_if_any(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Sends a signal by name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child.0.id().to_string(), name);
    }

    pub(crate) fn ended(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_some()
    }

    /// How it ended.
    pub(crate) fn exit(&mut self) -> ExitStatus {
        until("the process ends", || self.child.0.try_wait().unwrap())
    }
}

/// Sends a signal by name to the process with this id.
pub(crate) fn signal(id: &str, name: &str) {
    let sent = Command::new("kill").args(["-s", name, id]).status();
    assert!(sent.unwrap().success(), "{name} to {id}");
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // Read on when the test is over, so that the process never blocks.
            let _ = sender.send(line);
        }
    });
    lines
}
