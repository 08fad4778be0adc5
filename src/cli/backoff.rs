//! Pauses between attempts to connect: they double up to a bound.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(250);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(4);

/// Pauses of one connection.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

// === impl Backoff ===

impl Backoff {
    /// The pause after one more failure.
    pub(super) fn next_pause(&mut self) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        FIRST.saturating_mul(factor).min(LONGEST)
    }

    /// Begins again with the first pause: a connection worked.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..6).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 4_000]);
        backoff.failures = u32::MAX;
        assert_eq!(backoff.next_pause(), LONGEST);
        backoff.reset();
        assert_eq!(backoff.next_pause(), FIRST);
    }
}
