//! The share of checks that a server decided of late. Its health is judged by it, and not by the
//! connection alone: a server may answer every call and decide nothing.
//!
//! Calls are counted in spans of ten seconds. The present span and the one before are "of late".
//! Time is an argument.

use tollgate_store::StoreFault;

/// The length of a span, in microseconds.
const SPAN_US: u64 = 10_000_000;

/// A server is not healthy from this share of undecided checks on: one in so many.
const UNDECIDED_ONE_IN: u64 = 10;

/// Fewer undecided checks say nothing, as fewer failed calls in a row do not open the breaker.
const UNDECIDED_MIN: u64 = 3;

/// Checks of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecidedShare {
    began_us: u64,
    present: Counts,
    before: Counts,
}

/// Checks of one span.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: u64,
    undecided: u64,
    /// Why the last of them was not decided.
    fault: Option<StoreFault>,
}

/// Too many checks were not decided of late.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Undecided {
    pub(super) checks: u64,
    pub(super) of: u64,
    /// Why the last of them was not decided.
    pub(super) fault: StoreFault,
}

// === impl DecidedShare ===

impl DecidedShare {
    /// Counts checks of a call, and why the last undecided one was not decided.
    pub(super) fn add(&mut self, all: usize, undecided: Option<(usize, StoreFault)>, now_us: u64) {
        self.pass(now_us);
        let present = &mut self.present;
        present.all = present.all.saturating_add(all as u64);
        if let Some((checks, fault)) = undecided {
            present.undecided = present.undecided.saturating_add(checks as u64);
            present.fault = Some(fault);
        }
    }

    /// None while enough checks are decided, or there are none.
    pub(super) fn poor(mut self, now_us: u64) -> Option<Undecided> {
        self.pass(now_us);
        let (present, before) = (self.present, self.before);
        let of = present.all.saturating_add(before.all);
        let checks = present.undecided.saturating_add(before.undecided);
        let is_poor = checks >= UNDECIDED_MIN && checks.saturating_mul(UNDECIDED_ONE_IN) >= of;
        let fault = present.fault.or(before.fault)?;
        is_poor.then_some(Undecided { checks, of, fault })
    }

    fn pass(&mut self, now_us: u64) {
        let spans = now_us.saturating_sub(self.began_us) / SPAN_US;
        if spans == 0 {
            return;
        }
        self.before = if spans == 1 {
            self.present
        } else {
            Counts::default()
        };
        self.present = Counts::default();
        self.began_us = self.began_us.saturating_add(spans.saturating_mul(SPAN_US));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_undecided_check_in_ten_is_too_many_for_two_spans() {
        let fault = StoreFault::ScriptDenied;
        let mut share = DecidedShare::default();
        assert_eq!(share.poor(0), None);
        share.add(90, None, SPAN_US - 1);
        share.add(10, Some((9, fault)), SPAN_US);
        assert_eq!(share.poor(SPAN_US), None);
        share.add(1, Some((1, fault)), 2 * SPAN_US - 1);
        // 101 checks: 10 in them are just below one in ten.
        assert_eq!(share.poor(2 * SPAN_US - 1), None);
        let poor = |checks, of| Some(Undecided { checks, of, fault });
        // The first ninety are forgotten.
        assert_eq!(share.poor(2 * SPAN_US), poor(10, 11));
        share.add(89, None, 3 * SPAN_US - 1);
        assert_eq!(share.poor(3 * SPAN_US - 1), poor(10, 100));
        assert_eq!(share.poor(3 * SPAN_US), None);
        share.add(1, Some((1, fault)), 3 * SPAN_US);
        assert_eq!(share.poor(9 * SPAN_US), None);
    }

    #[test]
    fn fewer_than_three_undecided_checks_are_not_too_many() {
        let fault = StoreFault::TimedOut;
        let mut share = DecidedShare::default();
        share.add(2, Some((2, fault)), 0);
        assert_eq!(share.poor(0), None);
        share.add(1, Some((1, fault)), SPAN_US);
        let (checks, of) = (3, 3);
        assert_eq!(share.poor(SPAN_US), Some(Undecided { checks, of, fault }));
    }
}
