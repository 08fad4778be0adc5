//! Plays proxies against the buckets of the service, on a clock that the caller moves.
//!
//! Messages need no time. A step is a tenth of a second, and the buckets are planned as often as
//! the service plans them. While one id is played the proxies of other ids stay connected and offer
//! nothing; so do all proxies while the play rests.
//!
//! What it deliberately does not do: find the rule of an id, or say what is expected.

use std::collections::{HashMap, VecDeque};

use tollgate_limiter::Key;

use super::bucket::{Action, Bucket, QuotaTimes, Scratch, ShareId};
use super::proxy::{MilliRate, Proxy, REPORT_MS};
use super::registry::{BucketPairs, PLAN_INTERVAL, ProxyAction, action_of};
use crate::pipeline::QuotaRule;

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

/// Proxies, and the buckets of the service.
#[derive(Debug)]
pub struct Play {
    now_ms: u64,
    next_plan_ms: u64,
    ids: Vec<PlayedId>,
    service: Service,
}

#[derive(Debug)]
struct Service {
    times: QuotaTimes,
    /// Nothing is assigned before this time.
    learning_until_ms: u64,
    buckets: HashMap<Key, Bucket>,
    last_share: ShareId,
    scratch: Scratch,
}

/// An id, its rule if it has one, and the proxies that report it.
#[derive(Debug)]
struct PlayedId {
    id: BucketId,
    rule: Option<QuotaRule>,
    proxies: Vec<PlayedProxy>,
    totals: Passed,
    is_played: bool,
    /// What passed in the ten seconds in which the most did, since it is played.
    highest: u64,
    abandoned: bool,
}

#[derive(Debug)]
struct PlayedProxy {
    name: String,
    weight: u32,
    proxy: Proxy,
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
    /// A service that has run for long, without proxies.
    pub fn new(ttl_seconds: u32, now_ms: u64) -> Self {
        Self {
            now_ms,
            next_plan_ms: now_ms,
            ids: Vec::new(),
            service: Service {
                times: QuotaTimes::of_service(ttl_seconds),
                learning_until_ms: 0,
                buckets: HashMap::new(),
                last_share: 0,
                scratch: Scratch::default(),
            },
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
            if self.ids.is_empty() && self.service.buckets.is_empty() {
                break;
            }
            self.step();
        }
        self.now_ms = self.now_ms.max(then_ms);
    }

    /// Replaces the service by one that knows nothing. Proxies keep their assignments until they
    /// expire, and connect again at their next reports.
    pub fn restart(&mut self) {
        let service = &mut self.service;
        service.buckets.clear();
        service.learning_until_ms = self.now_ms.saturating_add(service.times.lives_ms());
        for played in self.ids.iter_mut().flat_map(|id| &mut id.proxies) {
            played.proxy.cut();
        }
    }

    /// Follows rules that have changed: `find` has the rule of an id.
    pub fn follow_rules(&mut self, find: impl Fn(&BucketId) -> Option<QuotaRule>) {
        let service = &mut self.service;
        for id in &mut self.ids {
            let found = find(&id.id);
            if let Some(rule) = &found
                && let Some(bucket) = service.buckets.get_mut(&rule.key)
            {
                bucket.set_limit(rule.rate);
            }
            let key = found.as_ref().map(|rule| rule.key);
            let before = std::mem::replace(&mut id.rule, found);
            let Some(before) = before.filter(|before| Some(before.key) != key) else {
                continue;
            };
            for played in &mut id.proxies {
                if let Some(share) = played.proxy.stream() {
                    if let Some(bucket) = service.buckets.get_mut(&before.key) {
                        bucket.close(share);
                    }
                    played.proxy.receive(self.now_ms, ProxyAction::Abandon);
                    service.connect(&mut played.proxy);
                    id.abandoned = true;
                }
            }
        }
    }

    /// Plays an id for so many steps. Its proxies are those that are offered; others disconnect.
    pub fn play(
        &mut self,
        id: &BucketId,
        rule: Option<QuotaRule>,
        offers: &[Offer],
        steps: u64,
    ) -> Played {
        self.begin(id, rule, offers);
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
            one.proxy.offer(0);
        }
        played.is_played = false;
        result
    }

    /// Connects and disconnects the proxies of an id, which is played from now on.
    fn begin(&mut self, id: &BucketId, rule: Option<QuotaRule>, offers: &[Offer]) {
        self.ids
            .retain(|known| known.id == *id || known.is_remembered());
        if !self.ids.iter().any(|known| known.id == *id) {
            self.ids.push(PlayedId {
                id: id.clone(),
                rule: None,
                proxies: Vec::new(),
                totals: Passed::default(),
                is_played: false,
                highest: 0,
                abandoned: false,
            });
        }
        let service = &mut self.service;
        let Some(played) = self.ids.iter_mut().find(|known| known.id == *id) else {
            return;
        };
        played.rule = rule;
        (played.is_played, played.highest, played.abandoned) = (true, 0, false);
        let mut before = std::mem::take(&mut played.proxies);
        for offer in offers {
            let known = before.iter().position(|one| one.name == offer.proxy);
            let mut proxy = match known {
                Some(at) => before.swap_remove(at),
                None => PlayedProxy {
                    name: offer.proxy.clone(),
                    weight: offer.weight,
                    proxy: Proxy::new(0, service.times.ttl_seconds),
                    passed: Passed::default(),
                },
            };
            proxy.weight = offer.weight;
            proxy.proxy.offer(offer.rate);
            played.proxies.push(proxy);
        }
        let bucket = played.rule.as_ref().map(|rule| rule.key);
        let mut bucket = bucket.and_then(|key| service.buckets.get_mut(&key));
        for gone in before {
            if let (Some(bucket), Some(share)) = (&mut bucket, gone.proxy.stream()) {
                bucket.close(share);
            }
        }
    }

    /// A tenth of a second.
    fn step(&mut self) {
        self.now_ms = self.now_ms.saturating_add(STEP_MS);
        for id in &mut self.ids {
            let mut total: u64 = 0;
            for played in &mut id.proxies {
                let passed = played.proxy.step(self.now_ms, STEP_MS);
                played.passed.push(passed);
                total = total.saturating_add(passed);
            }
            id.totals.push(total);
            id.highest = id.highest.max(id.totals.sum);
            self.service.take_reports(id, self.now_ms);
            if !id.is_played {
                id.proxies.retain(|played| !played.proxy.is_fresh());
            }
        }
        if self.now_ms >= self.next_plan_ms {
            let interval_ms = u64::try_from(PLAN_INTERVAL.as_millis()).unwrap_or(STEP_MS);
            self.next_plan_ms = self.now_ms.saturating_add(interval_ms);
            self.service.plan(&mut self.ids, self.now_ms);
        }
    }
}

// === impl Service ===

impl Service {
    /// Opens a stream for a proxy.
    fn connect(&mut self, proxy: &mut Proxy) {
        self.last_share += 1;
        proxy.connect(self.last_share);
    }

    /// Takes the reports of an id that are due, and answers new proxies.
    fn take_reports(&mut self, id: &mut PlayedId, now_ms: u64) {
        for played in &mut id.proxies {
            if played.proxy.needs_stream(now_ms) {
                self.connect(&mut played.proxy);
            }
            let usage = played.proxy.take_report(now_ms);
            let (Some(usage), Some(share)) = (usage, played.proxy.stream()) else {
                continue;
            };
            let Some(rule) = &id.rule else {
                played.proxy.receive(now_ms, ProxyAction::Abandon);
                id.abandoned = true;
                continue;
            };
            let bucket = self.buckets.entry(rule.key);
            let bucket = bucket.or_insert_with(|| Bucket::new(rule.rate, self.learning_until_ms));
            let answer = bucket.report(share, played.weight, usage, now_ms, &self.times);
            if let Some(strategy) = answer {
                let action = action_of(Action::Assign(strategy), rule.shadow);
                played.proxy.receive(now_ms, action);
            }
        }
    }

    /// Plans every bucket, and sends the actions to the proxies.
    fn plan(&mut self, ids: &mut [PlayedId], now_ms: u64) {
        let mut actions = Vec::new();
        for bucket in self.buckets.values_mut() {
            bucket.plan(now_ms, &self.times, &mut self.scratch, &mut actions);
        }
        self.buckets.retain(|_, bucket| !bucket.is_empty());
        actions.sort_unstable_by_key(|(share, _)| *share);
        for id in ids {
            let shadow = id.rule.as_ref().is_some_and(|rule| rule.shadow);
            for played in &mut id.proxies {
                let Some(share) = played.proxy.stream() else {
                    continue;
                };
                let found = actions.binary_search_by_key(&share, |(of, _)| *of);
                let Some(&(_, action)) = found.ok().and_then(|at| actions.get(at)) else {
                    continue;
                };
                played.proxy.receive(now_ms, action_of(action, shadow));
                if action == Action::Abandon {
                    // As in the service, a later report is that of a new part.
                    self.connect(&mut played.proxy);
                    id.abandoned = true;
                }
            }
        }
    }
}

// === impl PlayedId ===

impl PlayedId {
    /// Whether anything that is still to come depends on it.
    fn is_remembered(&self) -> bool {
        !self.proxies.is_empty() || self.totals.sum > 0
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
