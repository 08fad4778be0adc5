//! Every bucket and every stream of the quota service, behind one lock.
//!
//! Why one lock: a proxy reports every five seconds, and no request of a client waits for it. The
//! lock is held for one report, or for the plan of some buckets.
//!
//! What it deliberately does not do: read or write messages (`grpc::services::quota`).

pub mod figures;
mod leases;
mod plan;
mod report;
#[cfg(any(test, fuzzing))]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_limiter::Key;

pub use self::plan::{PLAN_INTERVAL, give_way};
use super::bucket::figures::{BucketFigures, Convergence};
use super::bucket::{Action, Bucket, QuotaTimes, Scratch, ShareId, Usage};
use super::lease::EraWatch;
use super::share::Strategy;
use crate::pipeline::{Generation, Generations, QuotaParts};
use leases::SharedLeases;
use tollgate_store::shared::ReplicaId;
use tollgate_system::clock::Clock;
use tollgate_system::keyed_hash::{KeyMap, KeyedHash};
use tollgate_system::per_thread::lock;
use tollgate_telemetry::metrics::{Metrics, RuleRates};

/// Pairs of keys and values, by key.
pub type BucketPairs = Arc<[(Bytes, Bytes)]>;

/// Actions of one message to a proxy.
const ACTIONS_PER_MESSAGE_MAX: usize = 1_000;

/// Messages that wait for a proxy. Beyond it the stream is closed.
pub(crate) const MESSAGES_WAITING_MAX: usize = 64;

/// A stream, by its number.
pub type StreamId = u64;

/// One action of a message.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub id: BucketPairs,
    pub action: ProxyAction,
}

/// What is sent to a proxy about a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyAction {
    /// Enforce this.
    Assign(Strategy),
    /// Let everything pass: the rule is in shadow mode.
    AllowAll,
    /// Forget the bucket.
    Abandon,
}

/// A message to a proxy.
#[derive(Debug)]
pub struct OutgoingMessage {
    pub actions: Vec<Outgoing>,
    /// When it was queued, in milliseconds of the clock's uptime.
    pub queued_ms: u64,
}

/// One usage of a report.
pub struct ReportedUsage {
    /// The pairs, in any order.
    pub(crate) id: Vec<(Bytes, Bytes)>,
    pub(crate) usage: Usage,
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// It is not known: it was closed, since its proxy reads too slowly.
    Closed,
    /// A message names another domain than the first.
    ChangedDomain,
}

/// The bounds of the registry.
#[derive(Debug, Clone, Copy)]
pub struct QuotaBounds {
    /// Parts of buckets, of all streams; also of ended ones whose assignments may be in force.
    pub shares_max: usize,
    /// Buckets that share their limits with other replicas.
    pub leased_buckets_max: usize,
}

struct Stream {
    sender: mpsc::Sender<OutgoingMessage>,
    domain: Option<Bytes>,
    weight: u32,
    /// By the digest of its id.
    parts: KeyMap<StreamPart>,
}

/// What a report needs of a part: 1,000,000 of them are in no cache, and each further map that is
/// searched costs some 200 ns.
struct StreamPart {
    share: ShareId,
    bucket: Key,
    id: BucketPairs,
}

struct StreamBucket {
    stream: StreamId,
    digest: Key,
    id: BucketPairs,
    bucket: Key,
}

struct Tracked {
    bucket: Bucket,
    domain: Bytes,
    id: BucketPairs,
    rule: Arc<str>,
    shadow: bool,
    /// When its lease was asked for last.
    asked_ms: Option<u64>,
}

#[derive(Default)]
struct State {
    streams: HashMap<StreamId, Stream>,
    shares: HashMap<ShareId, StreamBucket>,
    buckets: KeyMap<Tracked>,
    /// Parts in all buckets: those of `shares`, and ended ones whose assignments may be in force.
    members: usize,
    /// Whether the process stops: no stream is open, and none opens.
    stopping: bool,
    last_stream: StreamId,
    last_share: ShareId,
    generation: Option<Arc<Generation>>,
    scratch: Scratch,
    /// The version of the last request for a lease.
    last_version: u64,
    era: EraWatch,
    /// Buckets that ended, whose leases are to be given back.
    given_back: Vec<Key>,
}

/// Sums of the buckets of one rule.
#[derive(Debug, Clone)]
pub struct RuleQuotas {
    pub domain: Bytes,
    pub rule: Arc<str>,
    pub buckets: u64,
    /// How many of them converge.
    pub converging: u64,
    pub figures: BucketFigures,
    /// The longest times of its buckets.
    pub convergence: Convergence,
}

/// The sums of the last survey.
type KeptSums = Arc<[RuleQuotas]>;

/// The quota service's state.
pub struct QuotaRegistry {
    state: Mutex<State>,
    generations: Arc<Generations>,
    hash: KeyedHash,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    times: QuotaTimes,
    bounds: QuotaBounds,
    /// Until then nothing is assigned: assignments of a process before this one may be in force.
    learning_until_ms: u64,
    /// None if no other replica shares the limits.
    leases: Option<SharedLeases>,
    /// What readers see of rules.
    sums: Mutex<KeptSums>,
}

/// What a proxy is sent: a rule in shadow mode lets everything pass.
pub(crate) fn action_of(action: Action, shadow: bool) -> ProxyAction {
    match action {
        Action::Abandon => ProxyAction::Abandon,
        Action::Assign(_) if shadow => ProxyAction::AllowAll,
        Action::Assign(strategy) => ProxyAction::Assign(strategy),
    }
}

// === impl RuleQuotas ===

impl RuleQuotas {
    fn rates(&self) -> RuleRates {
        let figures = &self.figures;
        RuleRates {
            domain: String::from_utf8_lossy(&self.domain).into_owned(),
            rule: self.rule.to_string(),
            micro_rates: [
                figures.limit,
                figures.demand,
                figures.allowed,
                figures.denied,
                figures.assigned,
                figures.in_force,
            ],
            buckets: self.buckets,
            shares: figures.streams,
            converging: self.converging,
            converging_ms: self.convergence.converging_ms.unwrap_or_default(),
        }
    }
}

// === impl QuotaRegistry ===

impl QuotaRegistry {
    /// One that knows no bucket yet, for the rules of a pipeline. `replica` is a random number.
    pub fn new(
        parts: QuotaParts,
        times: QuotaTimes,
        bounds: QuotaBounds,
        replica: ReplicaId,
    ) -> Self {
        let leases = parts.leases;
        Self {
            learning_until_ms: parts.clock.uptime_us() / 1_000 + times.lives_ms(),
            state: Mutex::default(),
            leases: leases.map(|store| SharedLeases::new(store, replica)),
            generations: parts.generations,
            hash: parts.hash,
            clock: parts.clock,
            metrics: parts.metrics,
            times,
            bounds,
            sums: Mutex::default(),
        }
    }

    /// The times of its assignments.
    pub fn times(&self) -> QuotaTimes {
        self.times
    }

    /// Milliseconds of the clock's uptime.
    pub fn now_ms(&self) -> u64 {
        self.clock.uptime_us() / 1_000
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a stream of this weight. Its messages arrive at the receiver.
    pub fn open(&self, weight: u32) -> (StreamId, mpsc::Receiver<OutgoingMessage>) {
        let (sender, receiver) = mpsc::channel(MESSAGES_WAITING_MAX);
        let mut state = self.state();
        state.last_stream += 1;
        let id = state.last_stream;
        if state.stopping {
            // Its messages end at once.
            return (id, receiver);
        }
        let stream = Stream {
            sender,
            domain: None,
            weight,
            parts: KeyMap::default(),
        };
        state.streams.insert(id, stream);
        self.metrics.quotas.streams.inc();
        (id, receiver)
    }

    /// Changes the weight of a stream.
    pub(crate) fn set_weight(&self, stream: StreamId, weight: u32) {
        if let Some(open) = self.state().streams.get_mut(&stream) {
            open.weight = weight;
        }
    }

    /// Counts a report.
    pub fn count_report(&self) {
        self.metrics.quotas.reports.inc();
    }

    /// Ends every stream, since the process stops: proxies then report to another replica. Their
    /// assignments stay in force until they expire.
    pub fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        let streams: Vec<_> = state.streams.keys().copied().collect();
        for stream in streams {
            self.metrics.quotas.closed_stopping.inc();
            self.close_in(&mut state, stream);
        }
    }

    /// Whether the process stops.
    pub fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Counts a stream that is closed because its proxy reads too slowly.
    pub fn count_slow(&self) {
        self.metrics.quotas.closed_slow.inc();
    }

    /// Ends a stream; returns whether it was open. What it was assigned counts until it has
    /// expired.
    pub fn close(&self, stream: StreamId) -> bool {
        let mut state = self.state();
        let is_open = state.streams.contains_key(&stream);
        self.close_in(&mut state, stream);
        is_open
    }

    fn close_in(&self, state: &mut State, stream: StreamId) {
        let Some(closed) = state.streams.remove(&stream) else {
            return;
        };
        self.metrics.quotas.streams.dec();
        for part in closed.parts.values() {
            state.end_share(part.share);
        }
        self.gauge(state);
    }

    fn gauge(&self, state: &State) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.metrics.quotas.buckets.set(count(state.buckets.len()));
        self.metrics.quotas.shares.set(count(state.shares.len()));
    }

    /// Sends actions to a stream. A stream whose messages are not read is closed.
    fn send(&self, state: &mut State, stream: StreamId, actions: Vec<Outgoing>, now_ms: u64) {
        let mut left = actions;
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(ACTIONS_PER_MESSAGE_MAX));
            let message = OutgoingMessage {
                actions: std::mem::replace(&mut left, rest),
                queued_ms: now_ms,
            };
            let Some(open) = state.streams.get(&stream) else {
                return;
            };
            if open.sender.try_send(message).is_err() {
                self.metrics.quotas.closed_slow.inc();
                self.close_in(state, stream);
                return;
            }
        }
    }
}

// === impl State ===

impl State {
    /// Ends one stream's part of a bucket.
    fn end_share(&mut self, share: ShareId) {
        let Some(ended) = self.shares.remove(&share) else {
            return;
        };
        if let Some(tracked) = self.buckets.get_mut(&ended.bucket) {
            tracked.bucket.close(share);
        }
        if let Some(stream) = self.streams.get_mut(&ended.stream) {
            stream.parts.remove(&ended.digest);
        }
    }
}
