//! Checks that a registry withstands any reports.
//!
//! How: bytes are read as actions of proxies and operators. They open and close streams, report,
//! let time pass, load rules, and plan, also a part of a plan. After each of them the invariants
//! hold (`invariants`). Tests and fuzz targets compile this file.
//!
//! What it deliberately does not do: decode messages. The caller does, as the service does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use tokio::sync::mpsc::Receiver;
use tollgate_limiter::Timestamp;

use super::invariants::SentAssignments;
use crate::pipeline::{Generations, QuotaParts};
use crate::quota::bucket::{QuotaTimes, Usage};
use crate::quota::registry::{
    BucketPairs, OutgoingMessage, QuotaBounds, QuotaRegistry, ReportedUsage, StreamId,
};
use crate::quota::share::{MicroRate, ONE_PER_SECOND};
use tollgate_rules::file::{Options, load};
use tollgate_rules::path::Source;
use tollgate_rules::reload::Rules;
use tollgate_system::clock::{Clock, ManualClock};
use tollgate_system::keyed_hash::KeyedHash;
use tollgate_telemetry::metrics::Metrics;

/// Small, so that inputs meet it.
const SHARES_MAX: usize = 12;

const STREAMS_MAX: usize = 16;

const TIMES: QuotaTimes = QuotaTimes {
    ttl_seconds: 15,
    delivery_ms_max: 2_000,
    idle_ms: 60_000,
    silent_ms: 15_000,
};

/// Longer than any assignment lives.
const ALL_EXPIRED_US: u64 = 20_000_000;

/// Limits of the keys `name`, `user` and `slow`, in tokens a minute; 0 is no rule.
type Limits = [u64; 3];

const KEYS: [&str; 3] = ["name", "user", "slow"];

/// What can be loaded, and whether `name` is in shadow mode.
const RULES: [(Limits, bool); 7] = [
    ([18_000, 18_000, 5], false),
    ([18_000, 18_000, 5], true),
    ([2_400, 600_000, 1], false),
    ([60, 0, 5], false),
    ([600_000, 18_000, 0], false),
    ([0, 0, 0], false),
    // Less than shares must differ by.
    ([17_460, 17_400, 5], false),
];

/// A message as the service reads it: the domain, and the usages that have an id.
pub(crate) type ReadReport = (Bytes, Vec<ReportedUsage>);

/// What an input came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(unreachable_pub)] // the fuzz target reaches it
pub struct Outcome {
    /// Messages that were reports.
    pub reports: u64,
    /// Assignments that were sent.
    pub assignments: u64,
    /// Usages for which there was no part.
    pub too_many: u64,
}

/// One stream, and whether its messages are read.
struct Proxy {
    stream: StreamId,
    messages: Receiver<OutgoingMessage>,
    reads: bool,
}

struct Run {
    clock: Arc<ManualClock>,
    generations: Arc<Generations>,
    registry: Arc<QuotaRegistry>,
    proxies: Vec<Proxy>,
    plan: Option<Pin<Box<dyn Future<Output = ()>>>>,
    sent: SentAssignments,
    /// Rules that were in use, each until this time. The last are those in use.
    used: Vec<(u64, Limits)>,
    outcome: Outcome,
}

/// What is left of an input. It ends with zeros.
struct Input<'i>(&'i [u8]);

// === impl Input ===

impl<'i> Input<'i> {
    fn byte(&mut self) -> u8 {
        let first = self.0.split_off_first();
        first.copied().unwrap_or_default()
    }

    fn bytes(&mut self, count: usize) -> &'i [u8] {
        let count = count.min(self.0.len());
        self.0.split_off(..count).unwrap_or_default()
    }
}

fn source(limits: Limits, shadow: bool) -> String {
    let rules = KEYS.iter().zip(limits).filter(|(_, limit)| *limit > 0);
    let descriptors: Vec<_> = rules
        .map(|(key, limit)| {
            let shadow = shadow && *key == "name";
            let limit = format!(
                "{{unit: minute, requests_per_unit: {limit}, algorithm: token_bucket, rlqs: true}}"
            );
            format!("{{key: {key}, shadow_mode: {shadow}, rate_limit: {limit}}}")
        })
        .collect();
    format!(
        "{{domain: edge, descriptors: [{}]}}",
        descriptors.join(", ")
    )
}

/// A usage in two bytes.
fn short_usage(id: u8, usage: u8) -> ReportedUsage {
    let pair = |key: &'static str, value: String| (Bytes::from(key), Bytes::from(value));
    let id = match id % 16 {
        0..=4 => vec![pair("user", (id / 16).to_string())],
        5..=7 => vec![pair("name", (id / 128).to_string())],
        8 | 9 => vec![pair("slow", (id / 64).to_string())],
        10 => vec![pair("user", "0".to_owned()), pair("user", "1".to_owned())],
        11 => vec![pair("user", "0".to_owned()), pair("name", "0".to_owned())],
        12 => vec![pair("foreign", id.to_string())],
        13 => vec![pair("user", "x".repeat(usize::from(id) * 24))],
        14 => Vec::new(),
        _ => (0..id).map(|at| pair("user", at.to_string())).collect(),
    };
    let count = |size: u8| match size {
        0 => 0,
        15 => u64::MAX,
        size => 1 << (2 * size),
    };
    ReportedUsage {
        id,
        usage: Usage {
            allowed: count(usage % 16),
            denied: count(usage / 16),
        },
    }
}

/// Has a registry take what these bytes say. `read` reads a message, as the service does.
///
/// # Errors
///
/// The invariant that was broken.
pub(crate) fn withstand(
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Option<ReadReport>,
) -> Result<Outcome, String> {
    let mut run = Run::new()?;
    let mut input = Input(bytes);
    while !input.0.is_empty() {
        run.act(&mut input, &read)?;
        run.check()?;
    }
    run.end()
}

// === impl Run ===

impl Run {
    fn new() -> Result<Self, String> {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_000_000)));
        let metrics = Arc::new(Metrics::new().map_err(|error| error.to_string())?);
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let parts = QuotaParts {
            generations: Arc::clone(&generations),
            hash: KeyedHash::with_secret([7; 16]),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            metrics,
            leases: None,
        };
        let bounds = QuotaBounds {
            shares_max: SHARES_MAX,
            leased_buckets_max: 1,
        };
        let mut run = Self {
            clock,
            generations,
            registry: Arc::new(QuotaRegistry::new(parts, TIMES, bounds, 1)),
            proxies: Vec::new(),
            plan: None,
            sent: SentAssignments::default(),
            used: Vec::new(),
            outcome: Outcome::default(),
        };
        run.load(0)?;
        // Nothing is assigned before.
        run.clock.advance_us(ALL_EXPIRED_US);
        Ok(run)
    }

    fn load(&mut self, number: u8) -> Result<(), String> {
        let Some((limits, shadow)) = RULES.get(usize::from(number) % RULES.len()) else {
            return Ok(());
        };
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: source(*limits, *shadow),
        };
        let loaded = load(&[source], Options::default());
        self.generations.take(Some(Ok(Rules {
            loaded: loaded.map_err(|_| "the rules are refused")?,
            sources: 1,
            hash: u64::from(number),
        })));
        self.used.push((u64::MAX, *limits));
        Ok(())
    }

    /// Rules before the last are in use until a report or a whole plan.
    fn follow_rules(&mut self) {
        let now_ms = self.registry.now_ms();
        let last = self.used.len().saturating_sub(1);
        if self.plan.is_none() {
            for (until_ms, _) in self.used.iter_mut().take(last) {
                *until_ms = now_ms.min(*until_ms);
            }
        }
        self.used
            .retain(|(until_ms, _)| until_ms.saturating_add(TIMES.lives_ms()) >= now_ms);
    }

    fn act(
        &mut self,
        input: &mut Input<'_>,
        read: &impl Fn(&[u8]) -> Option<ReadReport>,
    ) -> Result<(), String> {
        let action = input.byte();
        let at = usize::from(action / 16);
        match action % 16 {
            0 if self.proxies.len() < STREAMS_MAX => {
                let (stream, messages) = self.registry.open(u32::from(input.byte()) * 4 + 1);
                self.proxies.push(Proxy {
                    stream,
                    messages,
                    reads: true,
                });
            }
            1 => self.close(at),
            2 => {
                let length = usize::from(input.byte()) * 2;
                if let Some((domain, usages)) = read(input.bytes(length)) {
                    self.report(at, &domain, usages);
                }
            }
            3..=6 => {
                let usage = short_usage(input.byte(), input.byte());
                self.report(at, &Bytes::from_static(b"edge"), vec![usage]);
            }
            7 => self.report(at, &Bytes::from_static(b"elsewhere"), Vec::new()),
            8 | 9 => while !self.plan() {},
            10 => drop(self.plan()),
            11 => self.clock.advance_us(u64::from(input.byte()) * 20_000),
            12 => self.clock.advance_us(u64::from(input.byte()) * 1_000_000),
            13 => self.load(input.byte())?,
            14 => {
                if let Some(proxy) = self.proxies.get_mut(at) {
                    proxy.reads = !proxy.reads;
                }
            }
            _ if input.byte() == u8::MAX => self.registry.stop(),
            _ => {}
        }
        self.follow_rules();
        Ok(())
    }

    fn close(&mut self, at: usize) {
        if at < self.proxies.len() {
            let mut proxy = self.proxies.swap_remove(at);
            self.read_messages(&mut proxy);
            self.registry.close(proxy.stream);
        }
    }

    fn report(&mut self, at: usize, domain: &Bytes, usages: Vec<ReportedUsage>) {
        let Some(proxy) = self.proxies.get(at) else {
            return;
        };
        self.outcome.reports += 1;
        if self.registry.report(proxy.stream, domain, usages).is_err() {
            self.close(at);
        }
    }

    /// Goes on with the plan, or begins one. Returns whether it has ended.
    fn plan(&mut self) -> bool {
        let registry = Arc::clone(&self.registry);
        let plan = self
            .plan
            .get_or_insert_with(|| Box::pin(async move { registry.plan().await }));
        let ended = plan
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready();
        if ended {
            self.plan = None;
        }
        ended
    }

    fn read_messages(&mut self, proxy: &mut Proxy) {
        while let Ok(message) = proxy.messages.try_recv() {
            self.sent.count(proxy.stream, &message, &self.registry);
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let mut proxies = std::mem::take(&mut self.proxies);
        for proxy in proxies.iter_mut().filter(|proxy| proxy.reads) {
            self.read_messages(proxy);
        }
        self.proxies = proxies;
        let used = &self.used;
        let limit_of = |id: &BucketPairs| -> MicroRate {
            let key = id.first().map(|(key, _)| &**key);
            let limits = KEYS.iter().position(|known| key == Some(known.as_bytes()));
            let limit = limits
                .and_then(|at| used.iter().filter_map(|(_, limits)| limits.get(at)).max())
                .copied()
                .unwrap_or_default();
            limit * ONE_PER_SECOND / 60
        };
        self.registry.check(limit_of)?;
        self.sent.check(self.registry.now_ms(), limit_of)
    }

    /// Ends all streams, and waits until nothing is in force.
    fn end(mut self) -> Result<Outcome, String> {
        while self.plan.is_some() && !self.plan() {}
        while !self.proxies.is_empty() {
            self.close(0);
        }
        self.check()?;
        self.clock.advance_us(ALL_EXPIRED_US);
        while !self.plan() {}
        self.follow_rules();
        self.check()?;
        self.registry.check_empty()?;
        self.outcome.assignments = self.sent.count;
        self.outcome.too_many = self.registry.metrics.quotas.too_many.get();
        Ok(self.outcome)
    }
}
