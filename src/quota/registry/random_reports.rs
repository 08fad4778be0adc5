//! Random reports, streams, times and reloads: nothing is assigned beyond the limit, nothing grows
//! beyond its bound, and nothing is left over.
//!
//! What it deliberately does not do: test what the shares are (`quota::simulation`).

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc::Receiver;
use tollgate_limiter::Timestamp;
use tollgate_test_support::seeded_rng::SeededRng;

use super::invariants::SentAssignments;
use super::{
    BucketPairs, OutgoingMessage, QuotaBounds, QuotaRegistry, ReportedUsage, StreamEnd, StreamId,
};
use crate::clock::{Clock, ManualClock};
use crate::keyed_hash::KeyedHash;
use crate::metrics::Metrics;
use crate::pipeline::{Generations, QuotaParts};
use crate::quota::bucket::{QuotaTimes, Usage};
use crate::quota::share::ONE_PER_SECOND;
use crate::rules::file::{Options, load};
use crate::rules::path::Source;
use crate::rules::reload::Rules;

const SHARES_MAX: usize = 200;

const TIMES: QuotaTimes = QuotaTimes {
    ttl_seconds: 15,
    delivery_ms_max: 2_000,
    idle_ms: 60_000,
    silent_ms: 15_000,
};

/// Longer than any assignment lives.
const ALL_EXPIRED_US: u64 = 20_000_000;

const QUOTAS: &str = "
domain: edge
descriptors:
- key: name
  value: api
  rate_limit: {unit: second, requests_per_unit: 300, algorithm: token_bucket, rlqs: true}
- key: user
  rate_limit: {unit: second, requests_per_unit: 300, algorithm: token_bucket, rlqs: true}
";

const ONE_QUOTA: &str = "
domain: edge
descriptors:
- key: user
  rate_limit: {unit: second, requests_per_unit: 300, algorithm: token_bucket, rlqs: true}
";

const NO_RULES: &str = "{domain: edge, descriptors: []}";

/// One stream, and whether its messages are read.
struct Proxy {
    stream: StreamId,
    messages: Receiver<OutgoingMessage>,
    reads: bool,
}

struct Run {
    random: SeededRng,
    clock: Arc<ManualClock>,
    metrics: Arc<Metrics>,
    generations: Arc<Generations>,
    registry: QuotaRegistry,
    proxies: Vec<Proxy>,
    sent: SentAssignments,
}

impl Run {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_000_000)));
        let metrics = Arc::new(Metrics::new().unwrap());
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let parts = QuotaParts {
            generations: Arc::clone(&generations),
            hash: KeyedHash::with_secret([7; 16]),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            metrics: Arc::clone(&metrics),
            leases: None,
        };
        let bounds = QuotaBounds {
            shares_max: SHARES_MAX,
            leased_buckets_max: 1,
        };
        let run = Self {
            random: SeededRng::of_seed(seed),
            clock,
            metrics,
            generations,
            registry: QuotaRegistry::new(parts, TIMES, bounds, 1),
            proxies: Vec::new(),
            sent: SentAssignments::default(),
        };
        run.load(QUOTAS);
        run
    }

    fn load(&self, text: &str) {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: text.to_owned(),
        };
        self.generations.take(Some(Ok(Rules {
            loaded: load(&[source], Options::default()).unwrap(),
            sources: 1,
            hash: 1,
        })));
    }

    fn id(&mut self) -> Vec<(Bytes, Bytes)> {
        let of = |key: &str, value: String| (Bytes::from(key.to_owned()), Bytes::from(value));
        match self.random.below(8) {
            0 => Vec::new(),
            1 => vec![of("foreign", self.random.below(u64::MAX).to_string())],
            2 => vec![of("user", "x".repeat(self.random.position(10_000)))],
            3 => (0..self.random.below(3_000))
                .map(|number| of("user", number.to_string()))
                .collect(),
            4 => vec![of("name", "api".to_owned()); 2],
            5 => vec![of("name", "api".to_owned())],
            _ => vec![of("user", self.random.below(100).to_string())],
        }
    }

    fn report(&mut self, at: usize) -> Result<(), StreamEnd> {
        let count = self.random.below(30);
        let usages = (0..count).map(|_| {
            let count = |random: &mut SeededRng| match random.below(4) {
                0 => u64::MAX,
                1 => 0,
                _ => random.below(10_000),
            };
            ReportedUsage {
                id: self.id(),
                usage: Usage {
                    allowed: count(&mut self.random),
                    denied: count(&mut self.random),
                },
            }
        });
        let usages = usages.collect();
        let domain = self
            .random
            .pick(&["edge", "edge", "edge", "", "edge", "elsewhere"]);
        let stream = self.proxies[at].stream;
        self.registry
            .report(stream, &Bytes::from_static(domain.as_bytes()), usages)
    }

    async fn step(&mut self) {
        match self.random.below(12) {
            0 if self.proxies.len() < 20 => {
                let weight = self.random.pick(&[1, 1, 1_000]);
                let (stream, messages) = self.registry.open(weight);
                let reads = !self.random.once_in(10);
                self.proxies.push(Proxy {
                    stream,
                    messages,
                    reads,
                });
            }
            1 if !self.proxies.is_empty() && self.random.once_in(3) => {
                let at = self.random.position(self.proxies.len());
                self.registry.close(self.proxies.swap_remove(at).stream);
            }
            2 if self.random.once_in(8) => {
                let rules = self.random.pick(&[QUOTAS, QUOTAS, ONE_QUOTA, NO_RULES]);
                self.load(rules);
            }
            3 => self.clock.advance_us(self.random.below(3_000_000)),
            4 if self.random.once_in(10) => self.clock.advance_us(self.random.below(90_000_000)),
            5 => self.registry.plan().await,
            _ if !self.proxies.is_empty() => {
                let at = self.random.position(self.proxies.len());
                if self.report(at).is_err() {
                    self.registry.close(self.proxies.swap_remove(at).stream);
                }
            }
            _ => {}
        }
        for proxy in self.proxies.iter_mut().filter(|proxy| proxy.reads) {
            while let Ok(message) = proxy.messages.try_recv() {
                self.sent.count(proxy.stream, &message, &self.registry);
            }
        }
    }

    fn check(&mut self) {
        let limit_of = |_: &BucketPairs| 300 * ONE_PER_SECOND;
        self.registry.check(limit_of).unwrap();
        if self.random.once_in(10) {
            let now_ms = self.registry.now_ms();
            self.sent.check(now_ms, limit_of).unwrap();
        }
    }

    /// Ends all streams, and waits until nothing is in force.
    async fn end(mut self) {
        for proxy in self.proxies.drain(..) {
            self.registry.close(proxy.stream);
        }
        self.clock.advance_us(ALL_EXPIRED_US);
        self.registry.plan().await;
        self.check();
        self.registry.check_empty().unwrap();
    }
}

#[tokio::test]
async fn nothing_exceeds_its_bound_and_nothing_is_left() {
    let mut filled = 0;
    for seed in 0..60 {
        let mut run = Run::new(seed);
        // Nothing is assigned before.
        run.clock.advance_us(ALL_EXPIRED_US);
        for _ in 0..600 {
            run.step().await;
            run.check();
        }
        filled += run.metrics.quotas.too_many.get();
        run.end().await;
    }
    assert!(filled > 0, "the bound is met");
}
