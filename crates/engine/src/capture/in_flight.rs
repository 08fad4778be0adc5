//! The requests of one thread that began and are not written yet, counted by when they began.
//!
//! Why: a reader merges the buffers of all threads by order. It must know below which order nothing
//! more comes. A request's checks get numbers after it began, so the counter at its beginning is a
//! lower bound. Requests that began within the same few milliseconds share one bound.

use std::collections::VecDeque;

/// Requests that began within this time share a bound.
const EPOCH_US: u64 = 5_000;

/// How many bounds are kept. Later requests share the last.
const EPOCHS_MAX: usize = 256;

/// Requests in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    epochs: VecDeque<Epoch>,
    /// The number of the first epoch.
    first: u64,
}

/// Requests that share a bound.
#[derive(Debug)]
struct Epoch {
    /// No check of them has a lower number.
    lowest: u64,
    began_us: u64,
    requests: u64,
}

// === impl InFlight ===

impl InFlight {
    /// Counts a request that begins. `next_order` is the number that the next check gets. Returns
    /// the epoch, for [`InFlight::end`].
    pub(super) fn begin(&mut self, now_us: u64, next_order: impl FnOnce() -> u64) -> u64 {
        let is_full = self.epochs.len() >= EPOCHS_MAX;
        match self.epochs.back_mut() {
            Some(last) if is_full || now_us.saturating_sub(last.began_us) < EPOCH_US => {
                last.requests = last.requests.saturating_add(1);
            }
            _ => self.epochs.push_back(Epoch {
                lowest: next_order(),
                began_us: now_us,
                requests: 1,
            }),
        }
        let last = self.epochs.len().saturating_sub(1);
        self.first.saturating_add(last as u64)
    }

    /// Counts a request that has ended.
    pub(super) fn end(&mut self, epoch: u64) {
        let place = usize::try_from(epoch.saturating_sub(self.first)).unwrap_or(usize::MAX);
        if let Some(epoch) = self.epochs.get_mut(place) {
            epoch.requests = epoch.requests.saturating_sub(1);
        }
        while self.epochs.front().is_some_and(|first| first.requests == 0) {
            self.epochs.pop_front();
            self.first = self.first.saturating_add(1);
        }
    }

    /// No check of these requests has a lower number; none without requests.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.epochs.front().map(|first| first.lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_that_of_the_oldest_request() {
        let mut requests = InFlight::default();
        assert_eq!(requests.lowest(), None);
        let first = requests.begin(0, || 10);
        let same = requests.begin(EPOCH_US - 1, || unreachable!("it shares the first bound"));
        let second = requests.begin(EPOCH_US, || 20);
        assert_eq!(requests.lowest(), Some(10));
        requests.end(first);
        assert_eq!(requests.lowest(), Some(10));
        requests.end(second);
        assert_eq!(requests.lowest(), Some(10));
        let third = requests.begin(3 * EPOCH_US, || 30);
        requests.end(same);
        assert_eq!(requests.lowest(), Some(30));
        requests.end(third);
        assert_eq!(requests.lowest(), None);
    }

    #[test]
    fn a_request_that_never_ends_holds_little_memory() {
        let mut requests = InFlight::default();
        requests.begin(0, || 1);
        for turn in 1..10 * EPOCHS_MAX as u64 {
            let epoch = requests.begin(turn * EPOCH_US, || turn);
            requests.end(epoch);
        }
        assert!(requests.epochs.len() <= EPOCHS_MAX);
        assert_eq!(requests.lowest(), Some(1));
    }
}
