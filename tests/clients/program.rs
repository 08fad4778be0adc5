//! A running client program: commands in, results out (`contract.md`).
//!
//! What it deliberately does not do: know which library the program uses (`clients`).

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::polling::PATIENCE;

/// How long a batch may take: its calls have deadlines of at most [`PATIENCE`], and the program has
/// to start.
const BATCH_WITHIN: Duration = PATIENCE.saturating_mul(2);

/// A running client program. It is killed when dropped.
pub(crate) struct Program {
    child: Child,
    commands: ChildStdin,
    results: Receiver<Outcome>,
    /// Results of batches that were not awaited yet.
    early: Vec<Outcome>,
    said: Arc<Mutex<String>>,
}

/// The result of one batch of calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) answered: u64,
    pub(crate) incomplete: u64,
    pub(crate) failed: BTreeMap<String, u64>,
    /// The message of the first failure.
    pub(crate) first: String,
}

// === impl Program ===

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn_tied()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let said = Arc::<Mutex<String>>::default();
        let saying = Arc::clone(&said);
        let errors = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                saying.lock().unwrap().extend([line.as_str(), "\n"]);
            }
        });
        let (sender, results) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The receiver is gone when the test has ended.
                let _ = sender.send(Outcome::of(&line));
            }
        });
        Self {
            commands: child.stdin.take().unwrap(),
            child,
            results,
            early: Vec::new(),
            said,
        }
    }

    /// Starts a batch, or sends `stop` or `cancel`.
    pub(crate) fn send(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the client takes a command");
    }

    /// Waits for the result of a batch.
    pub(crate) fn result(&mut self, name: &str) -> Outcome {
        loop {
            let found = self.early.iter().position(|outcome| outcome.name == name);
            if let Some(at) = found {
                return self.early.swap_remove(at);
            }
            match self.results.recv_timeout(BATCH_WITHIN) {
                Ok(outcome) => self.early.push(outcome),
                Err(error) => {
                    let status = self.child.try_wait();
                    let said = self.said.lock().unwrap();
                    panic!("no result of `{name}` ({error}, {status:?}): {said}");
                }
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === impl Outcome ===

impl Outcome {
    fn of(line: &str) -> Self {
        let json: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let number = |value: &serde_json::Value| value.as_u64().expect("a number");
        Self {
            name: json["name"].as_str().expect("a name").to_owned(),
            answered: number(&json["answered"]),
            incomplete: number(&json["incomplete"]),
            failed: json["failed"]
                .as_object()
                .expect("failures by status")
                .iter()
                .map(|(status, calls)| (status.clone(), number(calls)))
                .collect(),
            first: json["first"].as_str().expect("a message").to_owned(),
        }
    }

    /// Fails unless so many calls were answered completely and none else was made.
    pub(crate) fn all_answered(&self, calls: u64) {
        assert!(
            self.answered == calls && self.incomplete == 0 && self.failed.is_empty(),
            "{calls} calls were to be answered: {self}"
        );
    }

    /// Fails unless so many calls were made and none was answered.
    pub(crate) fn none_answered(&self, calls: u64) {
        let failed: u64 = self.failed.values().sum();
        assert!(
            self.answered == 0 && self.incomplete == 0 && failed == calls,
            "{calls} calls were to fail: {self}"
        );
    }

    /// Fails unless so many calls were made and each ended with this status.
    pub(crate) fn all_failed(&self, calls: u64, status: &str) {
        let expected = BTreeMap::from([(status.to_owned(), calls)]);
        assert!(
            self.answered == 0 && self.incomplete == 0 && self.failed == expected,
            "{calls} calls were to end with {status}: {self}"
        );
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed: u64 = self.failed.values().sum();
        write!(f, "{}: {} answered", self.name, self.answered)?;
        write!(f, ", {} incomplete, {failed} failed", self.incomplete)?;
        if failed > 0 {
            let first: String = self.first.chars().take(200).collect();
            write!(f, " {:?}, the first with: {first}", self.failed)?;
        }
        Ok(())
    }
}
