//! Warnings that `on_error` decides.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tonic::Code;

use crate::{Error, OnError};

/// Shortest time between two warnings of a client.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many characters of a cause are logged.
const MAX_CAUSE_LENGTH: usize = 200;

/// Logs the first decision of `on_error`, and then at most one a minute.
#[derive(Debug)]
pub(crate) struct FailureLog {
    addresses: String,
    on_error: OnError,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Decisions since the last warning.
    decisions: u64,
    warned: Option<Duration>,
}

impl FailureLog {
    pub(crate) fn new(addresses: String, on_error: OnError) -> Self {
        Self {
            addresses,
            on_error,
            state: Mutex::default(),
        }
    }

    /// Records a decision, and the error of the call that made it necessary.
    pub(crate) fn decided(&self, cause: &Error, now: Duration) {
        let Some(decisions) = self.due(now) else {
            return;
        };
        tracing::warn!(
            target: "tollgate_limits",
            addresses = self.addresses,
            on_error = self.on_error.as_str(),
            decisions,
            error = cause_text(cause),
            "no answer from tollgate"
        );
    }

    /// The decisions since the last warning, if another one is due.
    fn due(&self, now: Duration) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.decisions += 1;
        let recent = |warned| now.saturating_sub(warned) < INTERVAL;
        if state.warned.is_some_and(recent) {
            return None;
        }
        state.warned = Some(now);
        Some(std::mem::take(&mut state.decisions))
    }
}

/// The status and the message of an error on one line. The message comes from the network: it is
/// cut, and characters that end a line or control a terminal are escaped.
fn cause_text(cause: &Error) -> String {
    let text = match cause {
        Error::Status { code, message } if message.is_empty() => status_name(*code),
        Error::Status { code, message } => format!("{}: {message}", status_name(*code)),
        other => other.to_string(),
    };
    let mut written = String::new();
    let mut characters = text.chars();
    for character in characters.by_ref().take(MAX_CAUSE_LENGTH) {
        if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            let _written = write!(written, "\\u{:04x}", u32::from(character));
        } else {
            written.push(character);
        }
    }
    if characters.next().is_some() {
        written.push('…');
    }
    written
}

/// The name of a status as gRPC writes it, such as `DEADLINE_EXCEEDED`.
fn status_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
