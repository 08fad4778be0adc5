//! Every bucket and every stream of the quota service, behind one lock.
//!
//! Why one lock: a proxy reports every five seconds, and no request of a client waits for it. The
//! lock is held for one report, or for the plan of some buckets.
//!
//! What it deliberately does not do: read or write messages (`grpc::services::quota`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_limiter::{Digest as _, Key, KeyHasher as _};

use super::bucket::{Action, Bucket, QuotaTimes, Scratch, ShareId, Usage};
use super::share::Strategy;
use crate::clock::Clock;
use crate::keyed_hash::KeyedHash;
use crate::metrics::Metrics;
use crate::pipeline::{Generation, Generations, QuotaParts, QuotaRule, find_quota};

/// Pairs of keys and values, by key.
pub(crate) type BucketPairs = Arc<[(Bytes, Bytes)]>;

/// Actions of one message to a proxy.
const ACTIONS_PER_MESSAGE_MAX: usize = 1_000;

/// Messages that wait for a proxy. Beyond it the stream is closed.
pub(crate) const MESSAGES_WAITING_MAX: usize = 64;

/// Parts of buckets that are planned before the lock is given back: about half a millisecond.
const SHARES_PER_TURN: usize = 4_096;

/// The time between two plans of a bucket.
const PLAN_INTERVAL: Duration = Duration::from_millis(500);

/// A stream, by its number.
pub(crate) type StreamId = u64;

/// One action of a message.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) id: BucketPairs,
    pub(crate) action: ProxyAction,
}

/// What is sent to a proxy about a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyAction {
    /// Enforce this.
    Assign(Strategy),
    /// Let everything pass: the rule is in shadow mode.
    AllowAll,
    /// Forget the bucket.
    Abandon,
}

/// A message to a proxy.
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) actions: Vec<Outgoing>,
    /// When it was queued, in milliseconds of the clock's uptime.
    pub(crate) queued_ms: u64,
}

/// One usage of a report.
pub(crate) struct ReportedUsage {
    /// The pairs, in any order.
    pub(crate) id: Vec<(Bytes, Bytes)>,
    pub(crate) usage: Usage,
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// It is not known: it was closed, since its proxy reads too slowly.
    Closed,
    /// A message names another domain than the first.
    ChangedDomain,
}

/// The bounds of the registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaBounds {
    /// Parts of buckets, of all streams.
    pub(crate) shares_max: usize,
}

struct Stream {
    sender: mpsc::Sender<OutgoingMessage>,
    domain: Option<Bytes>,
    weight: u32,
    shares: HashMap<u128, ShareId>,
}

struct StreamBucket {
    stream: StreamId,
    digest: u128,
    id: BucketPairs,
    bucket: Key,
}

struct Tracked {
    bucket: Bucket,
    domain: Bytes,
    id: BucketPairs,
    rule: Arc<str>,
    shadow: bool,
}

struct State {
    streams: HashMap<StreamId, Stream>,
    shares: HashMap<ShareId, StreamBucket>,
    buckets: HashMap<Key, Tracked>,
    last_stream: StreamId,
    last_share: ShareId,
    generation: Option<Arc<Generation>>,
    scratch: Scratch,
}

/// The quota service's state.
pub(crate) struct QuotaRegistry {
    state: Mutex<State>,
    generations: Arc<Generations>,
    hash: KeyedHash,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    times: QuotaTimes,
    bounds: QuotaBounds,
    /// Until then nothing is assigned: assignments of a process before this one may be in force.
    learning_until_ms: u64,
}

/// The pairs in the order of their keys.
fn sorted(mut pairs: Vec<(Bytes, Bytes)>) -> Vec<(Bytes, Bytes)> {
    pairs.sort_unstable();
    // As a map has it: the last value of a key counts.
    pairs.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
    pairs
}

fn action_of(action: Action, shadow: bool) -> ProxyAction {
    match action {
        Action::Abandon => ProxyAction::Abandon,
        Action::Assign(_) if shadow => ProxyAction::AllowAll,
        Action::Assign(strategy) => ProxyAction::Assign(strategy),
    }
}

// === impl QuotaRegistry ===

impl QuotaRegistry {
    /// One that knows no bucket yet, for the rules of a pipeline.
    pub(crate) fn new(parts: QuotaParts, times: QuotaTimes, bounds: QuotaBounds) -> Self {
        let QuotaParts {
            generations,
            hash,
            clock,
            metrics,
        } = parts;
        let lives_ms = u64::from(times.ttl_seconds) * 1_000 + times.delivery_ms_max;
        Self {
            learning_until_ms: clock.uptime_us() / 1_000 + lives_ms,
            state: Mutex::new(State {
                streams: HashMap::new(),
                shares: HashMap::new(),
                buckets: HashMap::new(),
                last_stream: 0,
                last_share: 0,
                generation: None,
                scratch: Scratch::default(),
            }),
            generations,
            hash,
            clock,
            metrics,
            times,
            bounds,
        }
    }

    /// The times of its assignments.
    pub(crate) fn times(&self) -> QuotaTimes {
        self.times
    }

    /// Milliseconds of the clock's uptime.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.uptime_us() / 1_000
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream of this weight. Its messages arrive at the receiver.
    pub(crate) fn open(&self, weight: u32) -> (StreamId, mpsc::Receiver<OutgoingMessage>) {
        let (sender, receiver) = mpsc::channel(MESSAGES_WAITING_MAX);
        let mut state = self.state();
        state.last_stream += 1;
        let id = state.last_stream;
        let stream = Stream {
            sender,
            domain: None,
            weight,
            shares: HashMap::new(),
        };
        state.streams.insert(id, stream);
        self.metrics.quotas.streams.inc();
        (id, receiver)
    }

    /// Counts a stream that is closed because its proxy reads too slowly.
    pub(crate) fn count_slow(&self) {
        self.metrics.quotas.closed_slow.inc();
    }

    /// Ends a stream. What it was assigned counts until it has expired.
    pub(crate) fn close(&self, stream: StreamId) {
        let mut state = self.state();
        self.close_in(&mut state, stream);
    }

    fn close_in(&self, state: &mut State, stream: StreamId) {
        let Some(closed) = state.streams.remove(&stream) else {
            return;
        };
        self.metrics.quotas.streams.dec();
        for share in closed.shares.values() {
            state.end_share(*share);
        }
        self.gauge(state);
    }

    fn gauge(&self, state: &State) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.metrics.quotas.buckets.set(count(state.buckets.len()));
        self.metrics.quotas.shares.set(count(state.shares.len()));
    }

    /// Takes a report, and answers buckets that it names for the first time.
    ///
    /// # Errors
    ///
    /// When the stream is to end.
    pub(crate) fn report(
        &self,
        stream: StreamId,
        domain: &Bytes,
        usages: Vec<ReportedUsage>,
    ) -> Result<(), StreamEnd> {
        let now_ms = self.now_ms();
        self.metrics.quotas.reports.inc();
        let mut state = self.state();
        let state = &mut *state;
        self.follow_rules(state);
        let Some(reporting) = state.streams.get_mut(&stream) else {
            return Err(StreamEnd::Closed);
        };
        let domain = match &reporting.domain {
            None => reporting.domain.insert(domain.clone()).clone(),
            Some(first) if domain.is_empty() || first == domain => first.clone(),
            Some(_) => {
                self.metrics.quotas.closed_changed_domain.inc();
                self.close_in(state, stream);
                return Err(StreamEnd::ChangedDomain);
            }
        };
        let mut answers = Vec::new();
        for usage in usages {
            let answer = self.take_usage(state, (stream, &domain), usage, now_ms);
            answers.extend(answer);
        }
        self.send(state, stream, answers, now_ms);
        self.gauge(state);
        Ok(())
    }

    /// What is answered at once to one usage.
    fn take_usage(
        &self,
        state: &mut State,
        (stream, domain): (StreamId, &Bytes),
        reported: ReportedUsage,
        now_ms: u64,
    ) -> Option<Outgoing> {
        let id = sorted(reported.id);
        let mut digest = self.hash.start();
        for part in id.iter().flat_map(|(key, value)| [key, value]) {
            digest.write(&(part.len() as u64).to_le_bytes());
            digest.write(part);
        }
        let digest = digest.finish();
        let reporting = state.streams.get(&stream)?;
        let weight = reporting.weight;
        if let Some(share) = reporting.shares.get(&digest).copied() {
            let bucket = state.shares.get(&share)?.bucket;
            let tracked = state.buckets.get_mut(&bucket)?;
            let answer =
                tracked
                    .bucket
                    .report(share, weight, reported.usage, now_ms, &self.times)?;
            let action = action_of(Action::Assign(answer), tracked.shadow);
            let id = Arc::clone(&state.shares.get(&share)?.id);
            self.metrics.quotas.assigned.inc();
            return Some(Outgoing { id, action });
        }
        let id: BucketPairs = id.into();
        let Some(found) = self.find(state, domain, &id) else {
            self.metrics.quotas.abandoned.inc();
            return Some(Outgoing {
                id,
                action: ProxyAction::Abandon,
            });
        };
        state.last_share += 1;
        let share = state.last_share;
        let tracked = state.buckets.entry(found.key).or_insert_with(|| Tracked {
            bucket: Bucket::new(found.rate, self.learning_until_ms),
            domain: domain.clone(),
            id: Arc::clone(&id),
            rule: found.rule,
            shadow: found.shadow,
        });
        let answer = tracked
            .bucket
            .report(share, weight, reported.usage, now_ms, &self.times);
        let shadow = tracked.shadow;
        // Streams of one bucket mostly have the same id.
        let id = if tracked.id == id {
            Arc::clone(&tracked.id)
        } else {
            id
        };
        let new = StreamBucket {
            stream,
            digest,
            id: Arc::clone(&id),
            bucket: found.key,
        };
        state.shares.insert(share, new);
        if let Some(stream) = state.streams.get_mut(&stream) {
            stream.shares.insert(digest, share);
        }
        let action = action_of(Action::Assign(answer?), shadow);
        self.metrics.quotas.assigned.inc();
        Some(Outgoing { id, action })
    }

    /// The rule of an id; none is counted.
    fn find(&self, state: &State, domain: &Bytes, id: &BucketPairs) -> Option<QuotaRule> {
        let ignored = &self.metrics.quotas;
        if state.shares.len() >= self.bounds.shares_max {
            ignored.too_many.inc();
            return None;
        }
        let generation = state.generation.as_ref()?;
        if !generation.has_quotas(domain) {
            ignored.unknown_domain.inc();
            return None;
        }
        let found = find_quota(generation, domain, id, &self.hash);
        if found.is_none() {
            ignored.unknown_id.inc();
        }
        found
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

    /// Plans twice a second, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut turns = tokio::time::interval(PLAN_INTERVAL);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            self.plan().await;
        }
    }

    /// Plans every bucket once, some at a time.
    pub(crate) async fn plan(&self) {
        let keys: Vec<Key> = {
            let mut state = self.state();
            self.follow_rules(&mut state);
            state.buckets.keys().copied().collect()
        };
        let mut left = keys.as_slice();
        while !left.is_empty() {
            let planned = self.plan_some(left);
            left = left.get(planned..).unwrap_or_default();
            tokio::task::yield_now().await;
        }
        let state = self.state();
        self.gauge(&state);
    }

    /// Plans the first of these buckets; how many.
    fn plan_some(&self, keys: &[Key]) -> usize {
        let now_ms = self.now_ms();
        let mut state = self.state();
        let state = &mut *state;
        let mut messages: BTreeMap<StreamId, Vec<Outgoing>> = BTreeMap::new();
        let mut actions = Vec::new();
        let mut ended = Vec::new();
        let (mut planned, mut shares) = (0, 0);
        for key in keys {
            if shares >= SHARES_PER_TURN {
                break;
            }
            planned += 1;
            let Some(tracked) = state.buckets.get_mut(key) else {
                continue;
            };
            shares += tracked.bucket.members();
            actions.clear();
            tracked
                .bucket
                .plan(now_ms, &self.times, &mut state.scratch, &mut actions);
            for &(share, action) in &actions {
                let Some(of) = state.shares.get(&share) else {
                    continue;
                };
                match action {
                    Action::Assign(_) => self.metrics.quotas.assigned.inc(),
                    Action::Abandon => {
                        self.metrics.quotas.abandoned.inc();
                        ended.push(share);
                    }
                }
                messages.entry(of.stream).or_default().push(Outgoing {
                    id: Arc::clone(&of.id),
                    action: action_of(action, tracked.shadow),
                });
            }
            if tracked.bucket.is_empty() {
                state.buckets.remove(key);
            }
        }
        for share in ended {
            state.end_share(share);
        }
        for (stream, actions) in messages {
            self.send(state, stream, actions, now_ms);
        }
        planned
    }

    /// Follows the rules in use: limits change, and buckets without a rule are abandoned.
    fn follow_rules(&self, state: &mut State) {
        let current = self.generations.current();
        let same = match (&current, &state.generation) {
            (Some(current), Some(known)) => Arc::ptr_eq(current, known),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        let mut gone = HashSet::new();
        for (key, tracked) in &mut state.buckets {
            let found = current
                .as_ref()
                .and_then(|rules| find_quota(rules, &tracked.domain, &tracked.id, &self.hash));
            match found.filter(|found| found.key == *key) {
                Some(found) => {
                    tracked.bucket.set_limit(found.rate);
                    tracked.rule = found.rule;
                    tracked.shadow = found.shadow;
                }
                None => {
                    gone.insert(*key);
                }
            }
        }
        state.generation = current;
        let now_ms = self.now_ms();
        let mut messages: BTreeMap<StreamId, Vec<Outgoing>> = BTreeMap::new();
        let shares = state.shares.iter();
        let shares = shares.filter(|(_, share)| gone.contains(&share.bucket));
        let shares: Vec<_> = shares
            .map(|(id, share)| (*id, share.stream, Arc::clone(&share.id)))
            .collect();
        for (share, stream, id) in shares {
            let action = ProxyAction::Abandon;
            self.metrics.quotas.abandoned.inc();
            messages
                .entry(stream)
                .or_default()
                .push(Outgoing { id, action });
            state.end_share(share);
        }
        for (stream, actions) in messages {
            self.send(state, stream, actions, now_ms);
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
            stream.shares.remove(&ended.digest);
        }
    }
}
