//! The circuit breaker.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::{Code, Status};

use crate::Error;

/// When the circuit breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Failures in a row that open it; default: 5. At least 1.
    pub failures: u32,
    /// Time until it lets one call through; default: 1 s.
    pub open_for: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failures: 5,
            open_for: Duration::from_secs(1),
        }
    }
}

/// Stops calls to a service that fails.
#[derive(Debug)]
pub(crate) struct Breaker {
    options: BreakerOptions,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Changes with each opening and closing: calls from before it do not count.
    period: u64,
    /// The failure that opened the breaker last.
    cause: Option<Error>,
}

#[derive(Debug)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Duration },
    Probing { since: Duration },
}

/// Permission for one call. Dropped without a result, it gives back the place of the probe.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    breaker: &'a Breaker,
    period: u64,
    probe: bool,
    recorded: bool,
}

/// Whether a status is a failure of the service, and not an answer.
pub(crate) fn is_failure(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Internal
            | Code::Unknown
            | Code::Cancelled
    )
}

impl Breaker {
    pub(crate) fn new(options: BreakerOptions) -> Self {
        let state = State {
            phase: Phase::Closed { failures: 0 },
            period: 0,
            cause: None,
        };
        Self {
            options,
            state: Mutex::new(state),
        }
    }

    /// Permission for a call, or `None` while the breaker is open.
    pub(crate) fn admit(&self, now: Duration) -> Option<Permit<'_>> {
        let mut state = self.lock();
        let probe = match state.phase {
            Phase::Closed { .. } => false,
            Phase::Open { until } if now >= until => {
                state.phase = Phase::Probing { since: until };
                true
            }
            Phase::Open { .. } | Phase::Probing { .. } => return None,
        };
        Some(Permit {
            breaker: self,
            period: state.period,
            probe,
            recorded: false,
        })
    }

    /// Whether the service does not fail now.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.lock().phase, Phase::Closed { .. })
    }

    /// The failure that opened the breaker last.
    pub(crate) fn cause(&self) -> Option<Error> {
        self.lock().cause.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Records the result of the call: an answer, or a failure of the service.
    pub(crate) fn record(mut self, failure: Option<&Status>, now: Duration) {
        self.recorded = true;
        let mut state = self.breaker.lock();
        if state.period != self.period {
            return;
        }
        let options = self.breaker.options;
        match (&mut state.phase, failure) {
            (Phase::Closed { failures }, Some(_)) if *failures + 1 < options.failures => {
                *failures += 1;
                return;
            }
            (Phase::Closed { failures }, None) => {
                *failures = 0;
                return;
            }
            (_, Some(failure)) => {
                state.cause = Some(failure.clone().into());
                state.phase = Phase::Open {
                    until: now.saturating_add(options.open_for),
                };
            }
            (_, None) => state.phase = Phase::Closed { failures: 0 },
        }
        state.period += 1;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.recorded || !self.probe {
            return;
        }
        let mut state = self.breaker.lock();
        if let Phase::Probing { since } = state.phase {
            state.phase = Phase::Open { until: since };
        }
    }
}
