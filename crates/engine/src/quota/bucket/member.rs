//! The parts of a bucket: what each stream wants, what it was assigned, and which of its
//! assignments have not expired.
//!
//! What it deliberately does not do: know what is free (`bucket`).

use crate::quota::share::{
    Action, MicroRate, QuotaTimes, ShareId, Strategy, Usage, differs, rate_of,
};

/// Capacity for parts grows by one part in so many, so that little of it is unused.
const GROWTH_PART: usize = 8;

/// The least growth.
const GROWTH_MIN: usize = 4;

/// Assignments that are kept. Beyond it two are one, with the larger rate and the later expiry.
const KEPT_MAX: usize = 4;

/// The shortest time over which a rate is measured: two reports can arrive together.
const MEASURED_MS_MIN: u64 = 500;

/// One stream's part of a bucket.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub(super) ledger: Ledger,
    pub(super) assigned: Option<Strategy>,
    pub(super) sent_ms: u64,
    pub(super) reported_ms: u64,
    pub(super) used_ms: u64,
    pub(super) demand: MicroRate,
    pub(super) allowed: MicroRate,
    pub(super) denied: MicroRate,
    pub(super) weight: u32,
    /// Whether its stream is open. If not, only the ledger counts.
    pub(super) open: bool,
    /// Whether it has reported over a time. The first report measures none.
    pub(super) measured: bool,
}

// === impl Member ===

impl Member {
    /// Takes a report; returns whether the demand has left the assignment behind.
    pub(super) fn measure(
        &mut self,
        weight: u32,
        usage: Usage,
        limit: MicroRate,
        now_ms: u64,
    ) -> bool {
        let before = self.demand;
        let requests = usage.allowed.saturating_add(usage.denied);
        let elapsed_ms = now_ms.saturating_sub(self.reported_ms).max(MEASURED_MS_MIN);
        let measured = rate_of(requests, elapsed_ms, limit);
        // A rise is believed at once, and so is a fall to less than a half, and what replaces a
        // guess. Other falls are smoothed.
        self.demand = if !self.measured || measured < self.demand / 2 {
            measured
        } else {
            measured.max(self.demand / 2 + measured / 2)
        };
        self.allowed = rate_of(usage.allowed, elapsed_ms, limit);
        self.denied = rate_of(usage.denied, elapsed_ms, limit);
        self.reported_ms = now_ms;
        self.weight = weight.max(1);
        self.measured = true;
        if requests > 0 {
            self.used_ms = now_ms;
        }
        let rate = self.rate();
        differs(before, self.demand) && (self.demand > rate || self.demand < rate / 2)
    }

    pub(super) fn is_unmeasured(&self) -> bool {
        self.open && !self.measured
    }

    /// Assigns something to a stream that has not yet said what it wants: as if it wanted that.
    pub(super) fn first(&mut self, share: MicroRate, now_ms: u64, times: &QuotaTimes) -> Strategy {
        self.demand = share;
        self.assign(Strategy::of_share(share), now_ms, times)
    }

    pub(super) fn rate(&self) -> MicroRate {
        self.assigned.map_or(0, Strategy::rate)
    }

    /// Whether the assignment is to be sent again, half of its time after it was sent. Mostly a
    /// report has [renewed](Self::renew_early) it before.
    pub(super) fn is_due(&self, now_ms: u64, times: &QuotaTimes) -> bool {
        self.assigned.is_none()
            || now_ms.saturating_sub(self.sent_ms) >= u64::from(times.ttl_seconds) * 1_000 / 2
    }

    /// Sends the assignment again, a quarter of its time after it was sent, unless it has expired.
    pub(super) fn renew_early(&mut self, now_ms: u64, times: &QuotaTimes) -> Option<Strategy> {
        let since_ms = now_ms.saturating_sub(self.sent_ms);
        if since_ms < u64::from(times.ttl_seconds) * 1_000 / 4 {
            return None;
        }
        let same = self.assigned?;
        self.ledger.expire(now_ms);
        // Others may have what is free now.
        (self.ledger.rate() >= same.rate()).then(|| self.assign(same, now_ms, times))
    }

    pub(super) fn send(&mut self, share: MicroRate, now_ms: u64, times: &QuotaTimes) -> Action {
        Action::Assign(self.assign(Strategy::of_share(share), now_ms, times))
    }

    pub(super) fn renew(&mut self, now_ms: u64, times: &QuotaTimes) -> Action {
        let same = self.assigned.unwrap_or(Strategy::Deny);
        Action::Assign(self.assign(same, now_ms, times))
    }

    fn assign(&mut self, strategy: Strategy, now_ms: u64, times: &QuotaTimes) -> Strategy {
        let strategy = strategy.noticed_after(self.assigned);
        let expires_ms = now_ms.saturating_add(times.lives_ms());
        self.ledger
            .push(strategy.rate(), strategy.burst(), expires_ms);
        self.assigned = Some(strategy);
        self.sent_ms = now_ms;
        strategy
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    rate: MicroRate,
    burst: u64,
    expires_ms: u64,
}

/// What one proxy may still be enforcing: the assignments that it was sent and that have not
/// expired, the largest first, each later to expire than those before.
///
/// Why the largest one counts: a report acknowledges nothing, so an assignment may not have
/// arrived, and the one before it may be in force until its own expiry.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    sent: [Sent; KEPT_MAX],
    len: u8,
}

// === impl Ledger ===

impl Ledger {
    fn sent(&self) -> &[Sent] {
        self.sent.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Forgets what has expired.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let gone = self
            .sent()
            .iter()
            .take_while(|sent| sent.expires_ms <= now_ms)
            .count();
        self.sent.rotate_left(gone.min(KEPT_MAX));
        self.len -= u8::try_from(gone).unwrap_or(self.len).min(self.len);
    }

    /// The rate that the proxy may be using: the largest that has not expired.
    pub(super) fn rate(&self) -> MicroRate {
        self.sent().first().map_or(0, |sent| sent.rate)
    }

    /// The tokens that can pass at once, by the largest bucket that has not expired.
    pub(super) fn burst(&self) -> u64 {
        self.sent().iter().map(|sent| sent.burst).max().unwrap_or(0)
    }

    /// Whether nothing is in force.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an assignment, which expires after all before it.
    pub(super) fn push(&mut self, rate: MicroRate, burst: u64, expires_ms: u64) {
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

/// The parts of one bucket, in the order of their numbers.
///
/// Why a sorted vector: every plan walks over all of them, new numbers are the largest, and a tree
/// would need twice the memory.
#[derive(Debug, Default)]
pub(super) struct Members<T>(Vec<(ShareId, T)>);

// === impl Members ===

impl<T: Default> Members<T> {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn find(&self, share: ShareId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&share, |(id, _)| *id)
    }

    /// The value of a number.
    pub(super) fn get(&self, share: ShareId) -> Option<&T> {
        let at = self.find(share).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// The value of a number, to be changed.
    pub(super) fn get_mut(&mut self, share: ShareId) -> Option<&mut T> {
        let at = self.find(share).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// The value of a number, added where it is missing.
    pub(super) fn get_or_add(&mut self, share: ShareId) -> Option<&mut T> {
        let at = match self.find(share) {
            Ok(at) => at,
            Err(at) => {
                if self.0.len() == self.0.capacity() {
                    let more = (self.0.len() / GROWTH_PART).max(GROWTH_MIN);
                    self.0.reserve_exact(more);
                }
                self.0.insert(at, (share, T::default()));
                at
            }
        };
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ShareId, &T)> + Clone {
        self.0.iter().map(|(share, value)| (share, value))
    }

    /// All values.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Keeps those for which this is true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&ShareId, &mut T) -> bool) {
        self.0.retain_mut(|(share, value)| keep(share, value));
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_number_whatever_the_order_they_came_in() {
        let mut members = Members::default();
        for share in [5, 1, 9, 7, 3, 2] {
            *members.get_or_add(share).unwrap() = share * 10;
        }
        *members.get_or_add(7).unwrap() += 1;
        members.retain(|share, _| *share != 3);
        assert_eq!((members.len(), members.is_empty()), (5, false));
        assert_eq!(members.get_mut(3), None);
        assert_eq!(members.get_mut(7), Some(&mut 71));
        let all: Vec<_> = members
            .iter()
            .map(|(share, value)| (*share, *value))
            .collect();
        assert_eq!(all, [(1, 10), (2, 20), (5, 50), (7, 71), (9, 90)]);
    }

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
