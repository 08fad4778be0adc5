//! Requests that exceed a bound of the settings: counted, logged once a minute, and answered by
//! `--on-excess`.
//!
//! What it deliberately does not do: find them (`begin`, and `grpc::layers`).

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_limiter::{Code, OnUndecided};

use tollgate_telemetry::metrics::Metrics;

/// A bound of requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestBound {
    Descriptors,
    Entries,
    MatchingSteps,
    MessageSize,
}

/// Between two lines, in microseconds.
const INTERVAL_US: u64 = 60_000_000;

/// When a line that is written once a minute may be written again, in the clock's uptime.
#[derive(Debug, Default)]
pub(super) struct LogInterval(AtomicU64);

/// When each bound may be logged again.
#[derive(Debug, Default)]
pub(super) struct ExcessLog([LogInterval; 4]);

/// The answer to a request that exceeds a bound; none when that is an error.
pub(super) fn excess_code(answer: OnUndecided) -> Option<Code> {
    match answer {
        OnUndecided::Error | OnUndecided::Local => None,
        OnUndecided::Allow => Some(Code::Ok),
        OnUndecided::Deny => Some(Code::OverLimit),
    }
}

// === impl RequestBound ===

impl RequestBound {
    /// Its label in metrics, and what to change.
    pub(super) fn name_and_advice(self) -> (&'static str, &'static str) {
        match self {
            Self::Descriptors => ("descriptors", "raise --descriptors-max"),
            Self::Entries => ("entries", "raise --entries-max"),
            Self::MatchingSteps => (
                "matching_steps",
                "send shorter values, or use fewer patterns",
            ),
            Self::MessageSize => ("message_size", "raise --message-size-max"),
        }
    }

    /// Counts a request beyond it.
    pub(super) fn count(self, metrics: &Metrics) {
        let requests = &metrics.requests;
        match self {
            Self::Descriptors => requests.excess_descriptors.inc(),
            Self::Entries => requests.excess_entries.inc(),
            Self::MatchingSteps => requests.excess_matching_steps.inc(),
            Self::MessageSize => requests.excess_message_size.inc(),
        }
    }
}

// === impl ExcessLog ===

impl ExcessLog {
    /// Whether a request beyond this bound is to be logged now. If so, the next one is in a minute.
    pub(super) fn is_due(&self, bound: RequestBound, now_us: u64) -> bool {
        let line = self.0.get(bound as usize);
        line.is_some_and(|line| line.is_due(now_us))
    }
}

// === impl LogInterval ===

impl LogInterval {
    /// Whether the line is to be written now. If so, the next one is in a minute.
    pub(super) fn is_due(&self, now_us: u64) -> bool {
        let later_us = now_us.saturating_add(INTERVAL_US);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next_us| {
                (now_us >= next_us).then_some(later_us)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_logged_once_a_minute() {
        let log = ExcessLog::default();
        let due = |bound, second: u64| log.is_due(bound, second * 1_000_000);
        let seconds = [0, 1, 59, 60, 61, 119, 200];
        let logged = seconds.map(|second| due(RequestBound::Descriptors, second));
        assert_eq!(logged, [true, false, false, true, false, false, true]);
        for bound in [
            RequestBound::Entries,
            RequestBound::MatchingSteps,
            RequestBound::MessageSize,
        ] {
            assert!(due(bound, 200), "{bound:?}");
        }
    }

    #[test]
    fn the_log_names_the_settings_that_there_are() {
        for (bound, setting) in [
            (RequestBound::Descriptors, "--descriptors-max"),
            (RequestBound::Entries, "--entries-max"),
            (RequestBound::MessageSize, "--message-size-max"),
        ] {
            let (_, advice) = bound.name_and_advice();
            assert!(advice.ends_with(setting), "{advice}");
        }
    }
}
