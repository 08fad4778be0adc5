//! What a recording hears of partitions: when checks were decided, and what was given back.

use std::fmt;
use std::sync::Arc;

use tollgate_limiter::Timestamp;

/// A recording of what partitions do. `capture` implements it, so that stores need not know it.
pub trait PartitionRecorder: fmt::Debug + Send + Sync {
    /// Whether a recording runs.
    fn is_running(&self) -> bool;

    /// Takes numbers for this many checks and returns the first.
    fn take_orders(&self, checks: usize) -> u64;

    /// What one partition writes refunds with.
    fn refunds(self: Arc<Self>) -> Box<dyn RefundRecorder>;
}

/// Writes the refunds of one partition.
pub trait RefundRecorder: fmt::Debug + Send {
    /// Hits are about to be given back that the checks of these numbers took.
    fn refund(&mut self, at: Timestamp, taken: &[u64]);
}

/// When the checks of one request in one batch were decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchStamp {
    /// The number of the first check. The others follow it.
    pub order: u64,
    /// The time at which all of them were decided.
    pub at: Timestamp,
    /// Whether each was decided by its own bucket. False when one had no memory.
    pub by_own_buckets: bool,
}

/// When one check was decided.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CheckStamp {
    /// Its number; 0 when no partition worker decided it.
    pub order: u64,
    /// The time at which it was decided.
    pub at: Timestamp,
    /// Whether its own bucket decided it.
    pub by_own_bucket: bool,
}

/// Puts the stamps of a batch's checks at their positions among the `count` checks of their
/// request.
pub(crate) fn put_stamps(
    stamps: &mut Vec<CheckStamp>,
    count: usize,
    positions: &[usize],
    stamp: &BatchStamp,
) {
    if stamps.len() < count {
        stamps.resize(count, CheckStamp::default());
    }
    for (place, position) in positions.iter().enumerate() {
        if let Some(check) = stamps.get_mut(*position) {
            *check = stamp.of_check(place);
        }
    }
}

// === impl BatchStamp ===

impl BatchStamp {
    /// The stamp of the check with this place among the checks of the request in the batch.
    pub(crate) fn of_check(&self, place: usize) -> CheckStamp {
        CheckStamp {
            order: self.order.saturating_add(place as u64),
            at: self.at,
            by_own_bucket: self.by_own_buckets,
        }
    }
}
