//! The circuit breaker: stops calls to a server that is dead, slow or unable to decide, and says
//! when to probe it.
//!
//! The breaker is closed while calls are answered. A lost connection, or an error that names a
//! state of the server, opens it at once. Other failures may concern one call: a late one a fork or
//! a lost packet, a reply that cannot be read or a denied command its checks. Only several in a row
//! open it. While it is open no call is sent until the pause is over; then one probe is sent, which
//! decides a check and must be answered as fast. A good probe closes the breaker, a failed one
//! doubles the pause. A breaker that opens again soon after it closed keeps its pause, and doubles
//! it where calls fail although the probe passed.
//!
//! Time is an argument. The breaker does not call, wait or count metrics.

use tollgate_store::StoreFault;

/// How many calls in a row must fail to open the breaker, where one says little about the next.
const FAILED_CALLS_MAX: u32 = 3;

/// The first and the longest pause before a probe.
const PAUSE_US: (u64, u64) = (50_000, 1_000_000);

/// How long the breaker must stay closed before the next pause is the first one again.
const SETTLED_US: u64 = 5_000_000;

/// Whether a server may be called.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    state: State,
    failed_calls: u32,
    pause_us: u64,
    closed_at_us: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Closed,
    Open { why: StoreFault, probe_at_us: u64 },
}

// === impl Breaker ===

impl Breaker {
    /// An open breaker with a probe due at once: nothing is known of the server yet.
    pub(super) fn new() -> Self {
        Self {
            state: State::Open {
                why: StoreFault::NotConnected,
                probe_at_us: 0,
            },
            failed_calls: 0,
            pause_us: PAUSE_US.0,
            closed_at_us: 0,
        }
    }

    /// Why it is open; none when it is closed.
    pub(super) fn fault(&self) -> Option<StoreFault> {
        match self.state {
            State::Closed => None,
            State::Open { why, .. } => Some(why),
        }
    }

    /// When the next probe is due, in uptime; none when it is closed.
    pub(super) fn probe_at_us(&self) -> Option<u64> {
        match self.state {
            State::Closed => None,
            State::Open { probe_at_us, .. } => Some(probe_at_us),
        }
    }

    /// Records that a call was answered in time.
    pub(super) fn answered(&mut self) {
        self.failed_calls = 0;
    }

    /// Records that a call failed. Returns whether that opened the breaker.
    pub(super) fn failed(&mut self, why: StoreFault, now_us: u64) -> bool {
        let may_concern_one_call = matches!(
            why,
            StoreFault::TimedOut | StoreFault::ScriptDenied | StoreFault::UnexpectedReply
        );
        if may_concern_one_call {
            self.failed_calls = self.failed_calls.saturating_add(1);
            if self.failed_calls < FAILED_CALLS_MAX {
                return false;
            }
        }
        if self.fault().is_some() {
            return false;
        }
        if now_us.saturating_sub(self.closed_at_us) >= SETTLED_US {
            self.pause_us = PAUSE_US.0;
        } else if may_concern_one_call {
            // The probe passes, and calls fail all the same.
            self.double_pause();
        }
        // A lost connection can often be made again at once.
        let pause_us = match why {
            StoreFault::ConnectionLost => 0,
            _ => self.pause_us,
        };
        self.state = State::Open {
            why,
            probe_at_us: now_us.saturating_add(pause_us),
        };
        true
    }

    /// Records that a probe succeeded.
    pub(super) fn readmit(&mut self, now_us: u64) {
        self.state = State::Closed;
        self.failed_calls = 0;
        self.closed_at_us = now_us;
    }

    /// Records that a probe failed. The next pause is shortened by up to a fifth, in proportion to
    /// `part` of 256, so that replicas do not probe in step.
    pub(super) fn probe_failed(&mut self, why: StoreFault, now_us: u64, part: u8) {
        let less_us = self.pause_us / 5 * u64::from(part) / 256;
        self.state = State::Open {
            why,
            probe_at_us: now_us.saturating_add(self.pause_us.saturating_sub(less_us)),
        };
        self.double_pause();
    }

    fn double_pause(&mut self) {
        self.pause_us = self.pause_us.saturating_mul(2).min(PAUSE_US.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Failures that may concern one call.
    const SINGLE: [StoreFault; 3] = [
        StoreFault::TimedOut,
        StoreFault::ScriptDenied,
        StoreFault::UnexpectedReply,
    ];

    fn closed() -> Breaker {
        let mut breaker = Breaker::new();
        assert_eq!(breaker.fault(), Some(StoreFault::NotConnected));
        assert_eq!(breaker.probe_at_us(), Some(0));
        breaker.readmit(0);
        assert_eq!((breaker.fault(), breaker.probe_at_us()), (None, None));
        breaker
    }

    #[test]
    fn failures_of_single_calls_open_it_only_in_a_row() {
        let settled_us = SETTLED_US + 1;
        for why in SINGLE {
            let mut breaker = closed();
            for _ in 0..10 {
                assert!(!breaker.failed(why, settled_us));
                assert!(!breaker.failed(why, settled_us));
                breaker.answered();
            }
            assert_eq!(breaker.fault(), None);
            assert!(!breaker.failed(why, settled_us));
            assert!(!breaker.failed(why, settled_us));
            assert!(breaker.failed(why, settled_us));
            assert_eq!(breaker.fault(), Some(why));
            assert_eq!(breaker.probe_at_us(), Some(settled_us + 50_000));
            // The other calls in flight change nothing.
            assert!(!breaker.failed(StoreFault::ConnectionLost, settled_us));
            assert_eq!(breaker.fault(), Some(why));
        }
    }

    #[test]
    fn a_state_opens_it_at_once() {
        for why in StoreFault::ALL {
            assert_eq!(closed().failed(why, 7), !SINGLE.contains(&why), "{why:?}");
        }
        let mut lost = closed();
        lost.failed(StoreFault::ConnectionLost, 7);
        assert_eq!(lost.probe_at_us(), Some(7));
    }

    #[test]
    fn pauses_double_up_to_a_second_and_begin_again_once_it_was_well_for_long() {
        let mut breaker = closed();
        breaker.failed(StoreFault::ReadOnly, 0);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            breaker.probe_failed(StoreFault::Loading, 0, 0);
            pauses.push(breaker.probe_at_us().unwrap() / 1_000);
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(breaker.fault(), Some(StoreFault::Loading));
        breaker.probe_failed(StoreFault::Loading, 0, 255);
        assert!((800_000..810_000).contains(&breaker.probe_at_us().unwrap()));
        // It is well only for a moment.
        breaker.readmit(1_000_000);
        breaker.failed(StoreFault::ReadOnly, 2_000_000);
        assert_eq!(breaker.probe_at_us(), Some(3_000_000));
        breaker.readmit(3_000_000);
        breaker.failed(StoreFault::ReadOnly, 8_000_000);
        assert_eq!(breaker.probe_at_us(), Some(8_050_000));
    }
}
