//! Exponential backoff with jitter.
//!
//! Each wait is twice the one before, up to a maximum, plus or minus a random share, so that
//! replicas which lost their server together do not reconnect together.
//!
//! What it deliberately does not do: wait.

use std::time::Duration;

/// A sequence of waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    /// The jitter, from 0 to 1.
    share: f64,
    next: Duration,
}

// === impl Backoff ===

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration, share: f64) -> Self {
        Self {
            first,
            longest,
            share,
            next: first,
        }
    }

    /// Begins again with the first wait.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next wait; `chance` is between 0 and 1.
    pub(crate) fn wait(&mut self, chance: f64) -> Duration {
        let wait = self.next.min(self.longest);
        self.next = wait.saturating_mul(2).min(self.longest);
        wait.mul_f64(1.0 + self.share * (2.0 * chance - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_their_bound_give_or_take_a_share() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(10), seconds(60), 0.5);
        let waits = [0.5, 0.5, 0.5, 0.5, 0.0, 1.0].map(|chance| backoff.wait(chance));
        assert_eq!(waits, [10, 20, 40, 60, 30, 90].map(seconds));
        backoff.reset();
        assert_eq!(backoff.wait(0.5), seconds(10));
        let mut even = Backoff::new(seconds(3), seconds(2), 0.0);
        assert_eq!([even.wait(0.0), even.wait(1.0)], [2, 2].map(seconds));
    }
}
