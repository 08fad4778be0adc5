//! Plays proxies against the quota service, on a clock that the caller moves.
//!
//! Messages need no time. A step is a tenth of a second, and the buckets are planned as often as
//! the service plans them. While one id is played the proxies of other ids stay connected and offer
//! nothing; so do all proxies while the play rests.
//!
//! What it deliberately does not do: find the rule of an id, or say what is expected.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_limiter::Timestamp;

use super::bucket::QuotaTimes;
use super::proxy::{MilliRate, Proxy, REPORT_MS};
use super::registry::{
    BucketPairs, OutgoingMessage, PLAN_INTERVAL, ProxyAction, QuotaBounds, QuotaRegistry,
    ReportedUsage,
};
use crate::pipeline::QuotaParts;
use tollgate_system::clock::ManualClock;

/// The length of a step, in milliseconds.
pub const STEP_MS: u64 = 100;

/// Rates are measured over this time, in milliseconds.
const MEASURED_MS: u64 = 10_000;

/// An id of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketId {
    pub domain: String,
    /// By key.
    pub pairs: BucketPairs,
}

/// What one proxy offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub proxy: String,
    pub rate: MilliRate,
    pub weight: u32,
}

/// What passed, over the last ten seconds of a play or all of a shorter one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Of each offer, in their order.
    pub passed: Vec<MilliRate>,
    pub total: MilliRate,
    /// The highest sum of any ten seconds that end in the play, over ten seconds.
    pub highest_total: MilliRate,
    /// Whether a proxy was sent that the bucket is abandoned.
    pub abandoned: bool,
}

/// Proxies, and the service.
pub struct Play {
    now_ms: u64,
    next_plan_ms: u64,
    ids: Vec<PlayedId>,
    clock: Arc<ManualClock>,
    times: QuotaTimes,
    parts: QuotaParts,
    registry: QuotaRegistry,
}

/// An id, and the proxies that report it.
struct PlayedId {
    id: BucketId,
    proxies: Vec<PlayedProxy>,
    totals: Passed,
    is_played: bool,
    /// What passed in the ten seconds in which the most did, since it is played.
    highest: u64,
    abandoned: bool,
}

struct PlayedProxy {
    name: String,
    weight: u32,
    proxy: Proxy,
    /// What the service sends it; none before its first stream.
    messages: Option<mpsc::Receiver<OutgoingMessage>>,
    passed: Passed,
}

/// What passed in each of the last steps.
#[derive(Debug, Default)]
struct Passed {
    steps: VecDeque<u64>,
    sum: u64,
}

// === impl Play ===

impl Play {
    /// A service of these parts that has run for long, without proxies. Its clock is its own.
    pub(crate) fn new(ttl_seconds: u32, now_ms: u64, parts: QuotaParts) -> Self {
        let times = QuotaTimes::of_service(ttl_seconds);
        let clock = Arc::new(ManualClock::at(Timestamp::default()));
        let parts = QuotaParts {
            clock: clock.clone(),
            ..parts
        };
        let registry = registry(&parts, times);
        clock.advance_us(times.lives_ms() * 1_000);
        Self {
            now_ms,
            next_plan_ms: now_ms,
            ids: Vec::new(),
            clock,
            times,
            parts,
            registry,
        }
    }

    /// How long proxies that offer nothing keep the play busy, in seconds.
    pub fn rest_seconds_max(ttl_seconds: u32) -> u64 {
        let times = QuotaTimes::of_service(ttl_seconds);
        (times.idle_ms.max(times.lives_ms()) + 2 * REPORT_MS) / 1_000
    }

    /// Lets time pass until then. Nothing is offered.
    pub fn rest_until(&mut self, then_ms: u64) {
        while self.now_ms.saturating_add(STEP_MS) <= then_ms {
            self.ids.retain(PlayedId::is_remembered);
            if self.ids.is_empty() {
                break;
            }
            self.step();
        }
        self.advance_ms(then_ms.saturating_sub(self.now_ms));
    }

    /// Replaces the service by one that knows nothing. Proxies keep their assignments until they
    /// expire, and connect again at their next reports.
    pub fn restart(&mut self) {
        self.registry = registry(&self.parts, self.times);
        for played in self.ids.iter_mut().flat_map(|id| &mut id.proxies) {
            played.proxy.cut();
        }
    }

    /// Follows rules that have changed.
    pub fn follow_rules(&mut self) {
        self.registry.follow_current_rules();
        self.receive();
    }

    /// Plays an id for so many steps. Its proxies are those that are offered; others disconnect.
    pub fn play(&mut self, id: &BucketId, offers: &[Offer], steps: u64) -> Played {
        self.begin(id, offers);
        for _ in 0..steps {
            self.step();
        }
        let Some(played) = self.ids.iter_mut().find(|id| id.is_played) else {
            return Played::default();
        };
        let passed = |passed: &Passed| passed.rate_of_last(steps);
        let result = Played {
            passed: played
                .proxies
                .iter()
                .map(|one| passed(&one.passed))
                .collect(),
            total: passed(&played.totals),
            highest_total: rate_of(played.highest, MEASURED_MS),
            abandoned: played.abandoned,
        };
        for one in &mut played.proxies {
            one.proxy.offered = 0;
        }
        played.is_played = false;
        result
    }

    /// Connects and disconnects the proxies of an id, which is played from now on.
    fn begin(&mut self, id: &BucketId, offers: &[Offer]) {
        self.ids
            .retain(|known| known.id == *id || known.is_remembered());
        if !self.ids.iter().any(|known| known.id == *id) {
            self.ids.push(PlayedId {
                id: id.clone(),
                proxies: Vec::new(),
                totals: Passed::default(),
                is_played: false,
                highest: 0,
                abandoned: false,
            });
        }
        let Some(played) = self.ids.iter_mut().find(|known| known.id == *id) else {
            return;
        };
        (played.is_played, played.highest, played.abandoned) = (true, 0, false);
        let mut before = std::mem::take(&mut played.proxies);
        for offer in offers {
            let known = before.iter().position(|one| one.name == offer.proxy);
            let mut proxy = match known {
                Some(at) => before.swap_remove(at),
                None => PlayedProxy {
                    name: offer.proxy.clone(),
                    weight: offer.weight,
                    proxy: Proxy::new(0, self.times.ttl_seconds),
                    messages: None,
                    passed: Passed::default(),
                },
            };
            proxy.weight = offer.weight;
            if let Some(stream) = proxy.proxy.stream {
                self.registry.set_weight(stream, offer.weight);
            }
            proxy.proxy.offered = offer.rate;
            played.proxies.push(proxy);
        }
        for stream in before.into_iter().filter_map(|gone| gone.proxy.stream) {
            self.registry.close(stream);
        }
    }

    fn advance_ms(&mut self, ms: u64) {
        self.now_ms += ms;
        self.clock.advance_us(ms * 1_000);
    }

    /// A tenth of a second.
    fn step(&mut self) {
        self.advance_ms(STEP_MS);
        for id in &mut self.ids {
            let mut total: u64 = 0;
            for played in &mut id.proxies {
                let passed = played.proxy.step(self.now_ms, STEP_MS);
                played.passed.push(passed);
                total = total.saturating_add(passed);
            }
            id.totals.push(total);
            id.highest = id.highest.max(id.totals.sum);
            id.report(&self.registry, self.now_ms);
            if !id.is_played {
                id.proxies.retain(|played| !played.proxy.is_fresh());
            }
        }
        if self.now_ms >= self.next_plan_ms {
            let interval_ms = u64::try_from(PLAN_INTERVAL.as_millis()).unwrap_or(STEP_MS);
            self.next_plan_ms = self.now_ms.saturating_add(interval_ms);
            {
                let mut plan = pin!(self.registry.plan());
                let mut cx = Context::from_waker(Waker::noop());
                // It waits for nothing, but gives way.
                while plan.as_mut().poll(&mut cx).is_pending() {}
            }
            self.receive();
        }
    }

    /// Brings proxies what the service has sent.
    fn receive(&mut self) {
        for id in &mut self.ids {
            for played in &mut id.proxies {
                id.abandoned |= played.receive(self.now_ms);
            }
        }
    }
}

/// The service with these parts, when it starts.
fn registry(parts: &QuotaParts, times: QuotaTimes) -> QuotaRegistry {
    let bounds = QuotaBounds {
        shares_max: usize::MAX,
        leased_buckets_max: usize::MAX,
    };
    QuotaRegistry::new(parts.clone(), times, bounds, 1)
}

// === impl PlayedId ===

impl PlayedId {
    /// Whether anything that is still to come depends on it.
    fn is_remembered(&self) -> bool {
        !self.proxies.is_empty() || self.totals.sum > 0
    }

    /// Sends the reports that are due, and receives what is answered at once.
    fn report(&mut self, registry: &QuotaRegistry, now_ms: u64) {
        let domain = Bytes::copy_from_slice(self.id.domain.as_bytes());
        for played in &mut self.proxies {
            let proxy = &mut played.proxy;
            if proxy.needs_stream(now_ms) {
                let (stream, messages) = registry.open(played.weight);
                proxy.connect(stream);
                played.messages = Some(messages);
            }
            if let (Some(usage), Some(stream)) = (proxy.take_report(now_ms), proxy.stream) {
                let id = self.id.pairs.to_vec();
                // The stream is open, and has one domain.
                let _ = registry.report(stream, &domain, vec![ReportedUsage { id, usage }]);
            }
            self.abandoned |= played.receive(now_ms);
        }
    }
}

// === impl PlayedProxy ===

impl PlayedProxy {
    /// Receives what the service has sent. Whether its bucket is abandoned.
    fn receive(&mut self, now_ms: u64) -> bool {
        let mut abandoned = false;
        while let Some(Ok(message)) = self.messages.as_mut().map(mpsc::Receiver::try_recv) {
            for one in message.actions {
                self.proxy.receive(now_ms, one.action);
                abandoned |= one.action == ProxyAction::Abandon;
            }
        }
        abandoned
    }
}

// === impl Passed ===

impl Passed {
    fn push(&mut self, passed: u64) {
        self.steps.push_back(passed);
        self.sum = self.sum.saturating_add(passed);
        while self.steps.len() as u64 > MEASURED_MS / STEP_MS {
            let oldest = self.steps.pop_front().unwrap_or(0);
            self.sum = self.sum.saturating_sub(oldest);
        }
    }

    /// The rate of the last steps, over ten seconds at most.
    fn rate_of_last(&self, steps: u64) -> MilliRate {
        let steps = steps.min(MEASURED_MS / STEP_MS);
        let last = self.steps.iter().rev().zip(0..steps);
        rate_of(last.map(|(passed, _)| passed).sum(), steps * STEP_MS)
    }
}

/// Requests in a time as a rate, cut off.
fn rate_of(requests: u64, ms: u64) -> MilliRate {
    requests.saturating_mul(1_000_000) / ms.max(1)
}
