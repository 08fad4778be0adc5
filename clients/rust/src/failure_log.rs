//! Warnings that `on_error` decides.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::{Error, OnError};

/// Shortest time between two warnings of a client.
const INTERVAL: Duration = Duration::from_secs(60);

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

    /// Records a decision, and why it was needed.
    pub(crate) fn decided(&self, error: &Error, now: Duration) {
        let Some(decisions) = self.due(error, now) else {
            return;
        };
        tracing::warn!(
            target: "tollgate_limits",
            addresses = self.addresses,
            on_error = self.on_error.as_str(),
            decisions,
            %error,
            "no answer from the service"
        );
    }

    /// The decisions since the last warning, if another one is due.
    fn due(&self, error: &Error, now: Duration) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.decisions += 1;
        let recent = |warned| now.saturating_sub(warned) < INTERVAL;
        // A call that the breaker stopped has no cause of its own.
        if *error == Error::BreakerOpen || state.warned.is_some_and(recent) {
            return None;
        }
        state.warned = Some(now);
        Some(std::mem::take(&mut state.decisions))
    }
}
