//! What one proxy may still be enforcing: the assignments that it was sent and that have not
//! expired.
//!
//! Why the largest one counts: a report acknowledges nothing, so an assignment may not have
//! arrived, and the one before it may be in force until its own expiry.

use super::share::MicroRate;

/// Assignments that are kept. Beyond it two are one, with the larger rate and the later expiry.
const KEPT_MAX: usize = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    rate: MicroRate,
    burst: u64,
    expires_ms: u64,
}

/// The unexpired assignments of a proxy, the largest first, each later to expire than those before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    sent: [Sent; KEPT_MAX],
    len: u8,
}

impl Ledger {
    fn sent(&self) -> &[Sent] {
        self.sent.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Forgets what has expired.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        let gone = self
            .sent()
            .iter()
            .take_while(|sent| sent.expires_ms <= now_ms)
            .count();
        self.sent.rotate_left(gone.min(KEPT_MAX));
        self.len -= u8::try_from(gone).unwrap_or(self.len).min(self.len);
    }

    /// The rate that the proxy may be using: the largest that has not expired.
    pub(crate) fn rate(&self) -> MicroRate {
        self.sent().first().map_or(0, |sent| sent.rate)
    }

    /// The tokens that can pass at once, by the largest bucket that has not expired.
    pub(crate) fn burst(&self) -> u64 {
        self.sent().iter().map(|sent| sent.burst).max().unwrap_or(0)
    }

    /// Whether nothing is in force.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an assignment, which expires after all before it.
    pub(crate) fn push(&mut self, rate: MicroRate, burst: u64, expires_ms: u64) {
        let mut new = Sent {
            rate,
            burst,
            expires_ms,
        };
        // One that is no larger and expires earlier counts no more.
        while let Some(last) = self.sent().last().copied() {
            if last.rate > new.rate {
                break;
            }
            new.burst = new.burst.max(last.burst);
            new.expires_ms = new.expires_ms.max(last.expires_ms);
            self.len -= 1;
        }
        if rate == 0 && burst == 0 && self.len == 0 {
            return;
        }
        if usize::from(self.len) == KEPT_MAX {
            // The two smallest: the larger of both, for as long as either.
            if let Some(last) = self.sent.last_mut() {
                last.expires_ms = new.expires_ms;
                last.burst = last.burst.max(new.burst);
            }
            return;
        }
        if let Some(slot) = self.sent.get_mut(usize::from(self.len)) {
            *slot = new;
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_assignment_counts_until_it_expires() {
        let mut ledger = Ledger::default();
        ledger.push(100, 10, 1_000);
        ledger.push(40, 4, 2_000);
        ledger.push(60, 6, 3_000);
        assert_eq!(ledger.rate(), 100);
        ledger.expire(999);
        assert_eq!(ledger.rate(), 100);
        ledger.expire(1_000);
        assert_eq!((ledger.rate(), ledger.burst()), (60, 6));
        ledger.expire(3_000);
        assert!(ledger.is_empty());
        assert_eq!(ledger.rate(), 0);
    }

    #[test]
    fn many_assignments_never_count_less_than_each_of_them() {
        let mut ledger = Ledger::default();
        let rates = [90, 80, 70, 60, 50, 40, 30, 20, 10];
        for (at, rate) in (0u64..).zip(rates) {
            ledger.push(rate, rate, 1_000 + at * 100);
        }
        for (at, rate) in (0u64..).zip(rates) {
            ledger.expire(1_000 + at * 100 - 1);
            assert!(ledger.rate() >= rate, "{rate}");
        }
        ledger.expire(1_800);
        assert!(ledger.is_empty());
    }
}
