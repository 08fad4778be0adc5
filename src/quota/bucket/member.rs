//! One stream's part of a bucket: what it wants, and what it was assigned.
//!
//! What it deliberately does not do: know what is free (`bucket`).

use crate::quota::ledger::Ledger;
use crate::quota::share::{MicroRate, Strategy, differs, rate_of};
use crate::quota::terms::{Action, Usage};
use crate::quota::times::QuotaTimes;

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
