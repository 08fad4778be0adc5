//! Refunds waiting to be sent to the shared store while it is away or cannot take them.
//!
//! The Redis workers and the lease workers both need this. The queue has two bounds, a number of
//! checks and a time for each. The caller counts what a bound drops: a lost refund makes a limit
//! stricter, and the operator should know.
//!
//! The caller also decides what may be sent again. Refunding twice would let too many hits pass, so
//! only a refund that was surely not carried out may be added a second time.

use std::collections::VecDeque;

use tollgate_limiter::Check;

/// How many checks may wait.
pub const CHECKS_MAX: usize = 16_384;

/// How long a refund is retried.
pub const RETRY_FOR_US: u64 = 60_000_000;

/// How late a refund can be after a reset of its bucket: a lease ends within a minute, and its
/// refund is retried for [`RETRY_FOR_US`] by each queue on its way. The rest is margin.
pub const REFUND_LATE_MAX_US: u64 = 10 * RETRY_FOR_US;

/// Refunds, oldest first. All times are the clock's uptime.
#[derive(Debug, Default)]
pub struct RefundQueue {
    /// Refunds to send, and until when.
    ready: VecDeque<(Vec<Check>, u64)>,
    /// Refunds that failed: until when they are retried, and when they are ready again.
    later: VecDeque<(Vec<Check>, u64, u64)>,
    checks: usize,
}

// === impl RefundQueue ===

impl RefundQueue {
    /// How many checks wait.
    pub fn checks(&self) -> usize {
        self.checks
    }

    /// Adds refunds that are ready, until `until_us`. Returns how many checks did not fit.
    #[must_use]
    pub fn add(&mut self, refunds: Vec<Check>, until_us: u64) -> usize {
        self.add_again(refunds, until_us, 0)
    }

    /// Adds refunds that are ready at `again_us`, until `until_us`. Returns how many checks did not
    /// fit.
    #[must_use]
    pub fn add_again(&mut self, refunds: Vec<Check>, until_us: u64, again_us: u64) -> usize {
        if self.checks + refunds.len() > CHECKS_MAX {
            return refunds.len();
        }
        self.checks += refunds.len();
        if again_us == 0 {
            self.ready.push_back((refunds, until_us));
        } else if !refunds.is_empty() {
            self.later.push_back((refunds, until_us, again_us));
        }
        0
    }

    /// Removes the next refunds that are ready, and returns until when they may be retried.
    pub fn pop(&mut self) -> Option<(Vec<Check>, u64)> {
        let (refunds, until_us) = self.ready.pop_front()?;
        self.checks -= refunds.len();
        Some((refunds, until_us))
    }

    /// Moves refunds that are due again to the ready ones and drops expired ones. Returns how many
    /// checks were dropped.
    #[must_use]
    pub fn pass(&mut self, now_us: u64) -> usize {
        let before = self.checks;
        let over = |(_, until_us): &(Vec<Check>, u64)| *until_us <= now_us;
        while self.ready.front().is_some_and(over) {
            self.pop();
        }
        let lost = before - self.checks;
        let due = |(_, _, again_us): &(Vec<Check>, u64, u64)| *again_us <= now_us;
        while self.later.front().is_some_and(due)
            && let Some((refunds, until_us, _)) = self.later.pop_front()
        {
            self.ready.push_back((refunds, until_us));
        }
        lost
    }

    /// When the next refunds are ready again or expire.
    pub fn next_us(&self) -> Option<u64> {
        let again_us = self.later.front().map(|(_, _, again_us)| *again_us);
        let until_us = self.ready.front().map(|(_, until_us)| *until_us);
        again_us.into_iter().chain(until_us).min()
    }

    /// Removes all refunds, ready or not.
    pub fn take_all(&mut self) -> impl Iterator<Item = Vec<Check>> + use<> {
        let Self { ready, later, .. } = std::mem::take(self);
        let ready = ready.into_iter().map(|(refunds, _)| refunds);
        ready.chain(later.into_iter().map(|(refunds, ..)| refunds))
    }

    /// Removes those of the ready refunds for which `goes` returns true.
    pub fn take_where(&mut self, goes: impl Fn(&Check) -> bool) -> Vec<Check> {
        let mut taken = Vec::new();
        for (refunds, _) in &mut self.ready {
            taken.extend(refunds.extract_if(.., |check| goes(check)));
        }
        self.ready.retain(|(refunds, _)| !refunds.is_empty());
        self.checks -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use tollgate_limiter::{ALGORITHMS, Hits, Key, Limit, Unit};

    /// Checks of the keys `0..count`.
    fn checks(count: usize) -> Vec<Check> {
        let check = |key| Check {
            key: Key(key),
            limit: Limit::per(10, Unit::Hour, NonZeroU32::MIN),
            algorithm: ALGORITHMS[0],
            operation: Hits::Take(1).into(),
            fingerprint: 0,
            shared_bucket: false,
            may_fall_back: false,
            is_exact: false,
            bucket_name: None,
        };
        (0..count as u128).map(check).collect()
    }

    #[test]
    fn a_full_queue_rejects_and_reports_new_checks() {
        let mut back = RefundQueue::default();
        assert_eq!(back.add(checks(CHECKS_MAX - 1), 9), 0);
        assert_eq!(back.add(checks(2), 9), 2);
        assert_eq!(back.add_again(checks(2), 9, 1), 2);
        assert_eq!(back.add_again(checks(1), 9, 1), 0);
        assert_eq!(back.checks(), CHECKS_MAX);
        assert_eq!(back.pop().unwrap().0.len(), CHECKS_MAX - 1);
        assert!(back.pop().is_none(), "not ready yet");
        assert_eq!(back.checks(), 1);
    }

    #[test]
    fn an_entry_leaves_when_ready_or_expired() {
        let mut back = RefundQueue::default();
        let lost = back.add(checks(1), 5) + back.add_again(checks(2), 9, 3);
        assert_eq!((lost, back.next_us()), (0, Some(3)));
        assert_eq!(back.pass(3), 0);
        assert_eq!(back.next_us(), Some(5));
        assert_eq!(back.pass(5), 1, "the first one's time is over");
        assert_eq!(
            back.pop()
                .map(|(checks, until_us)| (checks.len(), until_us)),
            Some((2, 9))
        );
        assert_eq!((back.checks(), back.next_us()), (0, None));
    }

    #[test]
    fn take_where_returns_matching_refunds_and_keeps_the_others() {
        let mut back = RefundQueue::default();
        let lost = back.add(checks(4), 9) + back.add_again(checks(3), 9, 3);
        assert_eq!(lost, 0);
        assert_eq!(back.take_where(|check| check.key.0 % 2 == 0).len(), 2);
        assert_eq!(back.checks(), 5);
        let all: Vec<_> = back.take_all().map(|checks| checks.len()).collect();
        assert_eq!((all, back.checks()), (vec![2, 3], 0));
    }
}
