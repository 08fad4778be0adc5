//! Memory for request bodies that are still arriving, bounded over all connections of the process.
//!
//! Why: a client may start thousands of calls at once and interleave their bodies. A started body
//! must never wait for a window, or the calls of one connection block each other. So memory is
//! bounded where a body starts. How: a body that is still incomplete at the end of the turn in
//! which it started takes its declared length from a budget which all connections share. A
//! connection may hold as much as is still free. One connection therefore gets at most half of the
//! budget, n greedy ones get 1/(n+1) each, and as much stays free for the next one.
//!
//! Source: the dynamic threshold with alpha 1 of Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998.
//!
//! What it deliberately does not do: count bodies that arrive within one turn. They are decoded
//! before anything else is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::Gauge;

/// The bytes that unfinished bodies of all connections may hold together.
#[derive(Debug)]
pub(in crate::service) struct BodyBudget {
    bytes_max: u64,
    held_bytes: AtomicU64,
    gauge: Gauge,
}

/// What one connection holds of a [`BodyBudget`]. Dropping it returns everything.
#[derive(Debug)]
pub(super) struct BodyAccount {
    budget: Arc<BodyBudget>,
    held_bytes: u64,
}

// === impl BodyBudget ===

impl BodyBudget {
    /// A budget of this many bytes; `gauge` shows how many are held.
    pub(in crate::service) fn new(bytes_max: u64, gauge: Gauge) -> Self {
        Self {
            bytes_max,
            held_bytes: AtomicU64::new(0),
            gauge,
        }
    }

    /// Takes bytes for a connection that already holds `held_bytes`, if it may.
    fn take(&self, held_bytes: u64, bytes: u64) -> bool {
        let wanted = held_bytes.saturating_add(bytes);
        let taken = self
            .held_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                let free = self.bytes_max.saturating_sub(held);
                (wanted <= free).then(|| held.saturating_add(bytes))
            });
        if taken.is_ok() {
            self.gauge.add(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge.sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

// === impl BodyAccount ===

impl BodyAccount {
    pub(super) fn new(budget: Arc<BodyBudget>) -> Self {
        Self {
            budget,
            held_bytes: 0,
        }
    }

    /// Takes bytes for a body. False when the connection may not hold so many more.
    pub(super) fn take(&mut self, bytes: u32) -> bool {
        let taken = self.budget.take(self.held_bytes, u64::from(bytes));
        if taken {
            self.held_bytes = self.held_bytes.saturating_add(u64::from(bytes));
        }
        taken
    }

    /// Returns bytes that were taken.
    pub(super) fn give_back(&mut self, bytes: u32) {
        let bytes = u64::from(bytes).min(self.held_bytes);
        if bytes > 0 {
            self.held_bytes = self.held_bytes.saturating_sub(bytes);
            self.budget.give_back(bytes);
        }
    }

    /// How many bytes this connection holds.
    #[cfg(any(test, fuzzing))]
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

impl Drop for BodyAccount {
    fn drop(&mut self) {
        if self.held_bytes > 0 {
            self.budget.give_back(self.held_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes_max: u64) -> Arc<BodyBudget> {
        let gauge = Gauge::new("held", "held").unwrap();
        Arc::new(BodyBudget::new(bytes_max, gauge))
    }

    #[test]
    fn a_connection_may_hold_as_much_as_is_free() {
        let budget = budget(1_000);
        let mut first = BodyAccount::new(Arc::clone(&budget));
        assert!((0..5).all(|_| first.take(100)));
        assert!(!first.take(1), "half of the budget");
        let mut second = BodyAccount::new(Arc::clone(&budget));
        assert!((0..3).all(|_| second.take(100)));
        assert!(!second.take(1), "200 are free");
        second.give_back(300);
        assert!(!first.take(1));
        first.give_back(100);
        assert!(first.take(100));
        assert_eq!(budget.gauge.get(), 500);
    }

    #[test]
    fn greedy_connections_leave_a_share_for_the_next_one() {
        let budget = budget(1_000_000);
        let mut greedy: Vec<_> = (0..99)
            .map(|_| BodyAccount::new(Arc::clone(&budget)))
            .collect();
        // Everyone takes what it can get, by turns, until no one gets any more.
        let mut any = true;
        while any {
            any = false;
            for account in &mut greedy {
                any |= account.take(100);
            }
        }
        let held: u64 = greedy.iter().map(BodyAccount::held_bytes).sum();
        assert!(held <= 1_000_000);
        let mut newcomer = BodyAccount::new(Arc::clone(&budget));
        assert!(newcomer.take(9_000), "about a hundredth is free");
        drop(greedy);
        drop(newcomer);
        assert_eq!(budget.held_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(budget.gauge.get(), 0);
    }
}
