//! A model of Envoy 1.40 with one bucket, for tests of rules and for the simulation of the service.
//!
//! It reports at its first request and then every 5 s. Its token bucket refills continuously, and
//! keeps its fill ratio when it changes. An assignment ends after its time to live, counted from
//! its arrival, and outlives its stream. Without an assignment nothing passes.
//!
//! Time is an argument, in milliseconds of a clock that does not go back.
//!
//! What it deliberately does not do: know the service. Its caller carries reports and actions.

use super::bucket::{ShareId, Usage};
use super::registry::ProxyAction;
use super::share::{ONE_PER_SECOND, Strategy};

/// The time between two reports of a bucket, in milliseconds.
pub(crate) const REPORT_MS: u64 = 5_000;

/// Requests in a second, in thousandths.
pub type MilliRate = u64;

/// A proxy. Tokens are millionths.
#[derive(Debug, Default)]
pub(crate) struct Proxy {
    pub(crate) offered: MilliRate,
    ttl_ms: u64,
    /// The number of its stream; none while it has none.
    pub(crate) stream: Option<ShareId>,
    strategy: Option<Strategy>,
    /// Whether everything passes, in place of a strategy.
    allows_all: bool,
    expires_ms: u64,
    tokens: u64,
    /// What is offered and is not yet a whole request, in millionths.
    pending: u64,
    usage: Usage,
    /// Whether its stream has reported the bucket.
    knows: bool,
    next_report_ms: u64,
}

// === impl Proxy ===

impl Proxy {
    /// One that offers this many thousandths of a request a second, and has no stream yet.
    /// Assignments live for this many seconds.
    pub(crate) fn new(offered: MilliRate, ttl_seconds: u32) -> Self {
        Self {
            offered,
            ttl_ms: u64::from(ttl_seconds) * 1_000,
            ..Self::default()
        }
    }

    /// The rate that it enforces; 0 also where everything passes.
    #[cfg(test)]
    pub(crate) fn rate(&self) -> super::share::MicroRate {
        self.strategy.map_or(0, Strategy::rate)
    }

    /// Whether it keeps nothing of the bucket: no report is to come, and no assignment in force.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.knows && !self.allows_all && self.strategy.is_none()
    }

    /// Sends the requests of one step that ends now; how many passed.
    pub(crate) fn step(&mut self, now_ms: u64, step_ms: u64) -> u64 {
        if self.expires_ms <= now_ms {
            self.strategy = None;
            self.allows_all = false;
        }
        self.pending = self
            .pending
            .saturating_add(self.offered.saturating_mul(step_ms));
        let requests = self.pending / 1_000_000;
        self.pending %= 1_000_000;
        let passed = match self.strategy {
            _ if self.allows_all => requests,
            Some(strategy) => self.spend(strategy, requests, step_ms),
            None => 0,
        };
        self.usage.allowed = self.usage.allowed.saturating_add(passed);
        self.usage.denied = self.usage.denied.saturating_add(requests - passed);
        passed
    }

    /// Refills the token bucket, and takes a token for each request that passes.
    fn spend(&mut self, strategy: Strategy, requests: u64, step_ms: u64) -> u64 {
        let refill = strategy.rate().saturating_mul(step_ms) / 1_000;
        let tokens = self.tokens.saturating_add(refill).min(capacity(strategy));
        let passed = requests.min(tokens / ONE_PER_SECOND);
        self.tokens = tokens.saturating_sub(passed.saturating_mul(ONE_PER_SECOND));
        passed
    }

    /// Whether it needs a stream now: it has requests to report.
    pub(crate) fn needs_stream(&self, now_ms: u64) -> bool {
        self.stream.is_none() && self.has_used() && now_ms >= self.next_report_ms
    }

    /// Opens a stream.
    pub(crate) fn connect(&mut self, stream: ShareId) {
        self.stream = Some(stream);
        self.knows = false;
    }

    /// Its stream ends, and it opens another at its first report after this time. What it was
    /// assigned is in force until it expires.
    pub(crate) fn disconnect(&mut self, reconnect_ms: u64) {
        self.stream = None;
        self.knows = false;
        self.next_report_ms = reconnect_ms;
    }

    /// Its stream ends, and it opens another at its next report.
    pub(crate) fn cut(&mut self) {
        self.disconnect(self.next_report_ms);
    }

    /// The report that is due, if its stream is open.
    pub(crate) fn take_report(&mut self, now_ms: u64) -> Option<Usage> {
        let is_due = if self.knows {
            now_ms >= self.next_report_ms
        } else {
            self.has_used()
        };
        if self.stream.is_none() || !is_due {
            return None;
        }
        self.knows = true;
        self.next_report_ms = now_ms.saturating_add(REPORT_MS);
        Some(std::mem::take(&mut self.usage))
    }

    /// Follows an action that arrives now.
    pub(crate) fn receive(&mut self, now_ms: u64, action: ProxyAction) {
        match action {
            ProxyAction::Abandon => {
                self.knows = false;
                self.strategy = None;
                self.allows_all = false;
                return;
            }
            ProxyAction::AllowAll => {
                self.strategy = None;
                self.allows_all = true;
            }
            ProxyAction::Assign(new) => {
                self.allows_all = false;
                if self.strategy != Some(new) {
                    self.tokens = self.tokens_after(new);
                    self.strategy = Some(new);
                }
            }
        }
        self.expires_ms = now_ms.saturating_add(self.ttl_ms);
    }

    /// The tokens after a change: a new bucket is full, a changed one keeps its ratio.
    fn tokens_after(&self, new: Strategy) -> u64 {
        let old = self.strategy.map_or(0, capacity);
        if old == 0 {
            return capacity(new);
        }
        let tokens = u128::from(self.tokens) * u128::from(capacity(new)) / u128::from(old);
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    fn has_used(&self) -> bool {
        self.usage.allowed.saturating_add(self.usage.denied) > 0
    }
}

fn capacity(strategy: Strategy) -> u64 {
    strategy.burst().saturating_mul(ONE_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assign(rate: u64) -> ProxyAction {
        ProxyAction::Assign(Strategy::of_share(rate * ONE_PER_SECOND))
    }

    #[test]
    fn a_first_request_is_reported_at_once_and_others_every_five_seconds() {
        let mut proxy = Proxy::new(10_000, 20);
        assert!(!proxy.needs_stream(0));
        assert_eq!(proxy.step(100, 100), 0);
        assert!(proxy.needs_stream(100));
        proxy.connect(1);
        assert_eq!(proxy.take_report(100).unwrap().denied, 1);
        let mut reported = Vec::new();
        for now_ms in (200..12_000).step_by(100) {
            proxy.step(now_ms, 100);
            reported.extend(
                proxy
                    .take_report(now_ms)
                    .map(|usage| (now_ms, usage.denied)),
            );
        }
        assert_eq!(reported, [(5_100, 50), (10_100, 50)]);
    }

    #[test]
    fn an_assignment_ends_after_its_time_to_live_and_outlives_its_stream() {
        let mut proxy = Proxy::new(10_000, 20);
        proxy.connect(1);
        proxy.receive(1_000, assign(100));
        assert_eq!(proxy.step(1_100, 100), 1);
        proxy.cut();
        assert_eq!(proxy.stream, None);
        assert_eq!(proxy.step(20_900, 100), 1);
        assert_eq!(proxy.step(21_000, 100), 0);
        proxy.receive(22_000, ProxyAction::AllowAll);
        assert_eq!(proxy.step(22_100, 100), 1);
        proxy.receive(22_200, ProxyAction::Abandon);
        assert_eq!(proxy.step(22_300, 100), 0);
        assert!(proxy.is_fresh());
    }

    #[test]
    fn a_changed_bucket_keeps_its_fill_ratio() {
        let mut proxy = Proxy::new(1_000_000, 20);
        // A new bucket is full: half a second of 100 a second, and what refills in the step.
        proxy.receive(0, assign(100));
        assert_eq!(proxy.step(100, 100), 50);
        proxy.receive(200, assign(200));
        assert_eq!(proxy.step(300, 100), 20);
    }
}
