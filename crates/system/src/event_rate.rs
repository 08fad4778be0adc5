//! Bounds events a second by tollgate's own `sliding_log` algorithm: never more than N in any
//! second, whatever threads do.
//!
//! The decision log, its subscriptions and traces use it. A refusal stores the time at which the
//! next event passes, so threads that come before it are refused by one load and take no lock.
//!
//! What it deliberately does not do: read the time, or count what it refuses.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::per_thread::lock;
use tollgate_limiter::algorithm::SlidingLog;
use tollgate_limiter::{Hits, Limit, State, Timestamp, Unit};

/// The length of the window, in microseconds.
const WINDOW_US: u64 = 1_000_000;

/// At most so many events in any second.
#[derive(Debug)]
pub struct EventRate {
    log: Mutex<EventLog>,
    /// Until when events are refused; 0 if the next one may pass.
    closed_until_us: AtomicU64,
}

#[derive(Debug)]
struct EventLog {
    limit: Limit,
    state: State,
}

// === impl EventRate ===

impl EventRate {
    /// The largest number of events a second.
    pub const MAX: u64 = tollgate_limiter::algorithm::MARKS_REQUESTS_MAX;

    /// At most `per_second` events in any second.
    pub fn new(per_second: NonZeroU32) -> Self {
        Self {
            log: Mutex::new(EventLog {
                limit: limit(per_second),
                state: State::default(),
            }),
            closed_until_us: AtomicU64::new(0),
        }
    }

    /// Changes the bound. Events that have passed count under the new one.
    pub fn set(&self, per_second: NonZeroU32) {
        let mut log = lock(&self.log);
        log.limit = limit(per_second);
        self.closed_until_us.store(0, Ordering::Relaxed);
    }

    /// Whether an event at `now` is surely refused. Takes no lock.
    #[inline]
    pub fn is_closed(&self, now: Timestamp) -> bool {
        let left_us = self
            .closed_until_us
            .load(Ordering::Relaxed)
            .saturating_sub(now.as_us());
        // A longer wait means that the clock was set back.
        (1..=WINDOW_US).contains(&left_us)
    }

    /// Whether an event at `now` passes. It counts if it does.
    #[inline]
    pub fn passes(&self, now: Timestamp) -> bool {
        !self.is_closed(now) && self.admit(|| now).is_ok()
    }

    /// Admits an event, or refuses it. `now` is called under the lock, so that times of admitted
    /// events are in order. Returns the time that the event counts from.
    ///
    /// # Errors
    ///
    /// Microseconds until the next event passes.
    pub fn admit(&self, now: impl FnOnce() -> Timestamp) -> Result<Timestamp, u64> {
        let mut log = lock(&self.log);
        let now = now();
        let EventLog { limit, state } = &mut *log;
        let outcome = state.apply(&SlidingLog, limit, Hits::Take(1), now);
        if outcome.allowed {
            return Ok(state.updated_at);
        }
        let retry_us = outcome.retry_us.unwrap_or(WINDOW_US).max(1);
        self.closed_until_us
            .store(now.plus_us(retry_us).as_us(), Ordering::Relaxed);
        Err(retry_us)
    }
}

fn limit(per_second: NonZeroU32) -> Limit {
    let per_second = u64::from(per_second.get()).min(EventRate::MAX);
    Limit::per(per_second, Unit::Second, NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_events_than_the_bound() {
        let rate = EventRate::new(NonZeroU32::new(3).unwrap());
        let start_us = 1_700_000_000_000_000;
        let at = |us: u64| Timestamp::from_us(start_us + us);
        let tried = (0..5_000_000_u64).step_by(70_001);
        let passed: Vec<u64> = tried
            .filter(|us| {
                let closed = rate.is_closed(at(*us));
                let admitted = rate.admit(|| at(*us));
                // The lock-free answer is never the wrong refusal.
                assert!(!(closed && admitted.is_ok()));
                admitted.is_ok()
            })
            .collect();
        assert!(passed.len() >= 15, "{passed:?}");
        for (first, fourth) in passed.iter().zip(passed.iter().skip(3)) {
            assert!(fourth - first >= WINDOW_US, "{passed:?}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_close_it() {
        let rate = EventRate::new(NonZeroU32::MIN);
        let late = Timestamp::from_seconds(1_700_010_000);
        assert!(rate.admit(|| late).is_ok());
        assert_eq!(rate.admit(|| late), Err(WINDOW_US));
        assert!(rate.is_closed(late));
        let early = Timestamp::from_seconds(1_700_000_000);
        assert!(!rate.is_closed(early));
        // The event of the future counts as one of now.
        assert_eq!(rate.admit(|| early), Err(WINDOW_US));
        assert!(rate.admit(|| early.plus_us(WINDOW_US)).is_ok());
    }

    #[test]
    fn a_larger_bound_applies_at_once() {
        let rate = EventRate::new(NonZeroU32::MIN);
        let now = Timestamp::from_seconds(1_700_000_000);
        assert!(rate.admit(|| now).is_ok());
        assert!(rate.admit(|| now).is_err());
        rate.set(NonZeroU32::new(2).unwrap());
        assert!(!rate.is_closed(now));
        assert!(rate.admit(|| now).is_ok());
        assert!(rate.admit(|| now).is_err());
    }
}
