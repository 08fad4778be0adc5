//! Memory for request bodies that are still arriving, bounded over all connections of the process.
//!
//! Why: a client may start thousands of requests at once and interleave their bodies. A started
//! body must never wait for a window, or the requests of one connection block each other. So memory
//! is bounded where a body starts. How: a body that is still incomplete at the end of the turn in
//! which it started takes its declared length from a budget which all connections share.
//!
//! Source: the dynamic threshold with alpha 1 of Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998.
//!
//! Bodies that arrive in full within one turn are not counted: they are used before anything else
//! is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all connections share, such as those of incomplete request bodies.
///
/// A connection may hold as many as are free afterwards. One connection therefore gets at most half
/// of them. A later one gets at most half of what is then free, and as much stays free for the next
/// one. Connections that take a little at a time and in turn get equal shares: n of them 1/(n+1)
/// each.
#[derive(Debug)]
pub struct ByteBudget {
    bytes_max: u64,
    held_bytes: AtomicU64,
}

/// What one connection holds of a [`ByteBudget`]. Dropping it returns everything.
#[derive(Debug)]
pub(crate) struct BodyAccount {
    budget: Arc<ByteBudget>,
    held_bytes: u64,
    /// Streams whose incomplete bodies need more of the budget; settled at the end of a turn.
    pub(crate) unsettled: Vec<u32>,
}

// === impl ByteBudget ===

impl ByteBudget {
    /// A budget of this many bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            held_bytes: AtomicU64::new(0),
        }
    }

    /// The most bytes that one connection can hold.
    #[must_use]
    pub fn connection_bytes_max(&self) -> u64 {
        self.bytes_max / 2
    }

    /// How many bytes are held now.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Takes bytes for a connection that already holds `held_bytes`, if it may.
    #[must_use]
    pub fn take(&self, held_bytes: u64, bytes: u64) -> bool {
        let wanted = held_bytes.saturating_add(bytes);
        self.held_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                let free = self.bytes_max.saturating_sub(held);
                (wanted <= free.saturating_sub(bytes)).then(|| held.saturating_add(bytes))
            })
            .is_ok()
    }

    /// Takes bytes, however many are free.
    pub fn take_always(&self, bytes: u64) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns bytes that were taken.
    pub fn release(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// === impl BodyAccount ===

impl BodyAccount {
    pub(crate) fn new(budget: Arc<ByteBudget>) -> Self {
        Self {
            budget,
            held_bytes: 0,
            unsettled: Vec::new(),
        }
    }

    /// Takes bytes for a body. False when the connection may not hold so many more.
    pub(crate) fn take(&mut self, bytes: u32) -> bool {
        let taken = self.budget.take(self.held_bytes, u64::from(bytes));
        if taken {
            self.held_bytes = self.held_bytes.saturating_add(u64::from(bytes));
        }
        taken
    }

    /// Returns bytes that were taken.
    pub(crate) fn release(&mut self, bytes: u32) {
        let bytes = u64::from(bytes).min(self.held_bytes);
        if bytes > 0 {
            self.held_bytes = self.held_bytes.saturating_sub(bytes);
            self.budget.release(bytes);
        }
    }

    /// How many bytes this connection holds.
    #[cfg(any(test, feature = "fuzz-harness"))]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

impl Drop for BodyAccount {
    fn drop(&mut self) {
        if self.held_bytes > 0 {
            self.budget.release(self.held_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes_max: u64) -> Arc<ByteBudget> {
        Arc::new(ByteBudget::new(bytes_max))
    }

    #[test]
    fn a_connection_may_hold_as_much_as_is_free() {
        let budget = budget(1_000);
        let mut first = BodyAccount::new(Arc::clone(&budget));
        assert!((0..5).all(|_| first.take(100)));
        assert!(!first.take(1), "half of the budget");
        let mut second = BodyAccount::new(Arc::clone(&budget));
        assert!((0..2).all(|_| second.take(100)));
        assert!(
            !second.take(100),
            "200 would be free, and it would hold 300"
        );
        assert!(second.take(50), "as much as is free");
        second.release(250);
        assert!(!first.take(1));
        first.release(100);
        assert!(first.take(100));
        assert_eq!(budget.held_bytes(), 500);
    }

    #[test]
    fn greedy_connections_leave_a_share_for_the_next_one() {
        let budget = budget(1_000_000);
        let mut greedy: Vec<_> = (0..99)
            .map(|_| BodyAccount::new(Arc::clone(&budget)))
            .collect();
        // Each in turn takes what it can get, until none gets any more.
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
        assert!(newcomer.take(5_000), "half of the hundredth that is free");
        drop(greedy);
        drop(newcomer);
        assert_eq!(budget.held_bytes(), 0);
    }
}
