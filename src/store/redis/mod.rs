//! Buckets in Redis or Valkey, shared between replicas: each decision is one atomic step there, by its own time.
//!
//! | file or folder | what |
//! | --- | --- |
//! | `target` | where the store is, as the operator wrote it |
//! | `connect` | a connection to the server that decides: TLS, login, sentinels |
//! | `script` | the one atomic step: every algorithm in Lua, how a check is asked and how its outcome is read |
//! | `key` | what a bucket is called there |
//! | `call` | the checks that waited at the same moment, in one step |
//! | `worker` | the task that speaks to one server: the line, calls, probes |
//! | `cluster` | which of a cluster's servers a bucket is at, as that changes |
//! | `lane` | what everybody knows of one server |
//! | `breaker` | whether a server is asked, and when to look again |
//! | `probe` | whether it would decide, and how many replicas share it |
//! | `said` | what a server's errors come to |
//! | `refused` | keys over their limits, remembered for a moment |
//!
//! How a check goes: a cache knows it is over its limit, or it waits in a mailbox (`store/mailbox`) for the worker of its
//! server, which asks for all that wait at once. Every answer comes within the deadline or says that it did not
//! ([`Trouble`]). What that means for the request is a setting's to say, and another store's to decide
//! (`store/fallback`).
//!
//! What it deliberately does not do: decide by itself, ask twice, reach for a replica of Redis, wait for Redis at start.

mod breaker;
mod call;
mod cluster;
mod connect;
mod denial_cache;
mod error_class;
mod key;
mod node;
mod probe;
mod reference_key;
pub mod script;
mod target;
mod worker;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Context;
use std::time::Duration;

use tokio::sync::mpsc;

use self::cluster::{Cluster, Member, SERVERS_MAX, Surveyor};
pub use self::connect::Certificates;
use self::connect::Connector;
use self::denial_cache::Refused;
use self::node::Lane;
pub use self::reference_key::{REFERENCE_KEY_BYTES_MAX, reference_key};
pub use self::target::{
    Address, Login, Password, ReferenceNames, Secret, Servers, Target, TargetError,
};
use self::worker::LaneWorker;
use super::queue::{self as mailbox, Choose, Mailbox, MailboxAsking, Mailboxes, Message, Route};
use super::{
    Answer, Applied, Applying, Asking, BuildError, Deadline, GiveBack, Setup, Share, Store,
    StoreError, StoreState, Terms, Ticket, Trouble, Worker,
};
use crate::metrics::{Counter, PartitionLevels};
use tollgate_limiter::{BucketNaming, Check, Key, Unit};

/// What a Redis store is made of.
#[derive(Clone, Debug)]
pub struct RedisSetup {
    /// Where it is.
    pub target: Target,
    /// Where limits of so many a second are, if elsewhere.
    pub per_second: Option<Target>,
    /// For connections by TLS.
    pub certificates: Certificates,
    /// What every key begins with.
    pub prefix: String,
    /// Whether counters of Envoy's reference service are continued under its names.
    pub reference_keys: bool,
    /// How long an answer may take.
    pub deadline: Duration,
    /// How many bytes checks that wait for one server may take.
    pub queue_bytes_max: usize,
    /// How long a key over its limit is remembered at most.
    pub over_limit_cache: Duration,
}

/// What a check that waits takes, in bytes, with its answer and what is sent and received for it.
const CHECK_BYTES: usize = size_of::<Check>() + size_of::<Answer>() + size_of::<usize>() + 256;

/// The same for a name of the reference's, which is sent as it is kept.
const REFERENCE_KEY_BYTES: usize = 2 * REFERENCE_KEY_BYTES_MAX;

/// How much checks in one message to a worker may weigh: two messages make a call.
const BATCH_WEIGHT_MAX: usize = script::CHECKS_MAX / 2;

/// The store's handle.
pub struct RedisStore {
    mailboxes: Arc<Mailboxes>,
    lanes: Arc<Lanes>,
    reference_keys: bool,
}

/// Every server, and what is known of keys.
struct Lanes {
    /// One a mailbox.
    each: Vec<Arc<Lane>>,
    routes: Arc<Routes>,
    /// How many servers are not asked.
    closed: Arc<AtomicUsize>,
    refused: Arc<Refused>,
    answered_by_cache: Counter,
}

/// Which server a check is asked of.
struct Routes {
    /// The store, and where limits of so many a second are elsewhere that one.
    places: Vec<Place>,
}

/// One store, as the operator named it.
struct Place {
    /// The number of its first mailbox.
    first: usize,
    /// Where it is, for people.
    words: String,
    /// None when it is one server.
    cluster: Option<Arc<Cluster>>,
}

/// One task's way to ask.
struct RedisAsking {
    rest: MailboxAsking,
    lanes: Arc<Lanes>,
    /// Requests that the cache answered.
    ready: VecDeque<(Ticket, Vec<Answer>)>,
    positions: Vec<usize>,
}

/// What a bucket is called there.
pub fn bucket_name(prefix: &str, key: Key) -> String {
    let mut name = Vec::new();
    key::write_digest(prefix, key, &mut name);
    String::from_utf8_lossy(&name).into_owned()
}

/// What a counter of Envoy's reference service is called there, up to where the second stands in which a window begins.
pub fn reference_name(prefix: &str, reference_key: &[u8]) -> String {
    format!("{prefix}{}", String::from_utf8_lossy(reference_key))
}

// === impl RedisStore ===

impl RedisStore {
    /// A store and the workers that speak to its servers. The caller spawns them; they end when the store is dropped. No
    /// server need be there.
    ///
    /// # Errors
    ///
    /// When a file that a connection needs cannot be read or holds something else.
    pub fn build(setup: &Setup, redis: &RedisSetup) -> Result<(Self, Vec<Worker>), BuildError> {
        let metrics = &setup.metrics;
        let longest_us = u64::try_from(redis.over_limit_cache.as_micros()).unwrap_or(u64::MAX);
        let refused = Arc::new(Refused::new(longest_us, metrics.store.cache_full.clone()));
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(|error| BuildError(error.to_string()))?;
        let replica: Arc<str> = format!("{:016x}", u64::from_le_bytes(name)).into();
        let closed = Arc::<AtomicUsize>::default();
        let targets = std::iter::once(&redis.target).chain(&redis.per_second);
        let mut places: Vec<Place> = Vec::new();
        let (mut lanes, mut mailboxes, mut workers) = (Vec::new(), Vec::new(), Vec::new());
        let deadline_us = u64::try_from(redis.deadline.as_micros()).unwrap_or(u64::MAX);
        let mut lane = |words: &str, member: Option<Member>| {
            let levels = Arc::new(PartitionLevels::default());
            let lane = Arc::new(Lane::new(
                words.to_owned(),
                member,
                redis.prefix.as_str().into(),
                deadline_us,
                Arc::clone(&setup.clock),
                metrics,
                Arc::clone(&levels),
                Arc::clone(&refused),
                Arc::clone(&closed),
            ));
            let (sender, receiver) = mpsc::unbounded_channel::<Message>();
            mailboxes.push(Mailbox { sender, levels });
            lanes.push(Arc::clone(&lane));
            (lane, receiver)
        };
        for (number, target) in targets.enumerate() {
            let connector = Arc::new(Connector::new(target.clone(), redis.certificates.clone()));
            let words = connector.words();
            connector
                .look_at_files()
                .map_err(|error| BuildError(format!("the store at {words}: {error}")))?;
            let is_cluster = matches!(target.servers, Servers::Cluster { .. });
            let cluster = is_cluster.then(|| Arc::new(Cluster::new(&redis.prefix)));
            let seats = if is_cluster { SERVERS_MAX } else { 0 };
            let last = places.last().map(Place::mailboxes_end);
            places.push(Place {
                first: last.unwrap_or_default(),
                words: words.clone(),
                cluster: cluster.clone(),
            });
            for seat in 0..=seats {
                let member = cluster.clone().map(|cluster| Member { cluster, seat });
                let (lane, receiver) = lane(&words, member);
                let connector = Arc::clone(&connector);
                workers.push(match &cluster {
                    Some(cluster) if seat == 0 => {
                        let surveyor =
                            Surveyor::new(Arc::clone(cluster), lane, connector, receiver);
                        Box::pin(surveyor.run()) as Worker
                    }
                    _ => {
                        let replica = Arc::clone(&replica);
                        let worker =
                            LaneWorker::new(lane, receiver, connector, replica, number == 0);
                        Box::pin(worker.run()) as Worker
                    }
                });
            }
        }
        let check_bytes = if redis.reference_keys {
            CHECK_BYTES + REFERENCE_KEY_BYTES
        } else {
            CHECK_BYTES
        };
        let bounds = mailbox::Bounds {
            waiting_max: (redis.queue_bytes_max / check_bytes).max(1),
            batch_weight_max: BATCH_WEIGHT_MAX,
            weigh: script::weight,
            full: StoreError::Unavailable(Trouble::QueueFull),
            shed: metrics.store.queue_full.clone(),
        };
        let routes = Arc::new(Routes { places });
        let chosen = Route::Chosen(Arc::clone(&routes) as Arc<dyn Choose>);
        let mailboxes = Arc::new(Mailboxes::new(mailboxes, chosen, bounds));
        for cluster in routes.clusters() {
            // Weak: workers end when nobody can ask them any more.
            let back: Weak<Mailboxes> = Arc::downgrade(&mailboxes);
            cluster.goes_back_by(back as Weak<dyn GiveBack>);
        }
        let store = Self {
            mailboxes,
            lanes: Arc::new(Lanes {
                each: lanes,
                routes,
                closed,
                refused,
                answered_by_cache: metrics.store.answered_by_cache.clone(),
            }),
            reference_keys: redis.reference_keys,
        };
        Ok((store, workers))
    }
}

impl Store for RedisStore {
    fn apply(&self, checks: Vec<Check>, deadline: Deadline, terms: Terms) -> Applying<'_> {
        Box::pin(async move {
            self.lanes.ready(&checks)?;
            if let Some(answers) = self.lanes.known(&checks) {
                return Ok(Applied {
                    answers,
                    trial: None,
                });
            }
            self.mailboxes.apply(checks, deadline, terms).await
        })
    }

    fn asking(&self) -> Option<Box<dyn Asking>> {
        Some(Box::new(RedisAsking {
            rest: MailboxAsking::new(Arc::clone(&self.mailboxes)),
            lanes: Arc::clone(&self.lanes),
            ready: VecDeque::new(),
            positions: Vec::new(),
        }))
    }

    fn bucket_naming(&self) -> Option<BucketNaming> {
        self.reference_keys.then_some(reference_key)
    }

    fn state(&self) -> Option<StoreState> {
        let words: Vec<_> = self
            .lanes
            .routes
            .places
            .iter()
            .map(|place| place.state(&self.lanes.each))
            .collect();
        Some(StoreState {
            good: self.lanes.closed.load(Ordering::Acquire) == 0,
            words: words.join("; "),
        })
    }
}

// === impl Routes ===

impl Routes {
    fn clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.places
            .iter()
            .filter_map(|place| place.cluster.as_ref())
    }
}

impl Choose for Routes {
    fn mailbox_of(&self, check: &Check) -> usize {
        let a_second = check.limit.unit() == Some(Unit::Second);
        let number = usize::from(a_second).min(self.places.len().saturating_sub(1));
        let Some(place) = self.places.get(number) else {
            return 0;
        };
        let seat = place.cluster.as_ref();
        let seat = seat.map_or(0, |cluster| cluster.seat_of(check.key));
        place.first.saturating_add(seat)
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.places.iter().map(|place| &place.words);
        f.debug_list().entries(words).finish()
    }
}

// === impl Place ===

impl Place {
    /// The number behind that of its last mailbox.
    fn mailboxes_end(&self) -> usize {
        let seats = self.cluster.as_ref().map_or(0, |_| SERVERS_MAX);
        self.first.saturating_add(seats).saturating_add(1)
    }

    /// How it is, for people.
    fn state(&self, lanes: &[Arc<Lane>]) -> String {
        let own = lanes.get(self.first..self.mailboxes_end());
        let own = own.unwrap_or_default();
        let Some(cluster) = &self.cluster else {
            return own.first().map(|lane| lane.words()).unwrap_or_default();
        };
        let out = own.iter().filter(|lane| lane.trouble().is_some());
        let out: Vec<_> = out.map(|lane| lane.words()).collect();
        if out.is_empty() {
            return format!("{} answers, {} servers", self.words, cluster.servers());
        }
        out.join("; ")
    }
}

// === impl Lanes ===

impl Lanes {
    /// Whether every server is asked that these checks concern.
    fn ready(&self, checks: &[Check]) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let out = checks.iter().find_map(|check| {
            let lane = self.each.get(self.routes.mailbox_of(check))?;
            Some((lane, lane.trouble()?))
        });
        let Some((lane, trouble)) = out else {
            return Ok(());
        };
        // Others were asked and had no answer; these were not asked.
        let trouble = worker::resting(trouble);
        lane.count_undecided(trouble, checks.len());
        Err(StoreError::Unavailable(trouble))
    }

    /// The answers to all of these checks, where all are known to be refused.
    fn known(&self, checks: &[Check]) -> Option<Vec<Answer>> {
        if self.refused.is_empty() {
            return None;
        }
        let now_us = self.each.first()?.clock.uptime_us();
        let known = checks
            .iter()
            .map(|check| self.refused.outcome(check, now_us).map(Ok));
        let answers: Vec<Answer> = known.collect::<Option<_>>()?;
        self.answered_by_cache.inc_by(answers.len() as u64);
        Some(answers)
    }
}

// === impl RedisAsking ===

impl Asking for RedisAsking {
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        terms: Terms,
    ) -> Result<usize, StoreError> {
        self.lanes.ready(checks)?;
        if let Some(answers) = self.lanes.known(checks) {
            self.ready.push_back((ticket, answers));
            return Ok(1);
        }
        self.rest.add(ticket, checks, deadline, terms)
    }

    fn send(&mut self) {
        self.rest.send();
    }

    fn take_answers(&mut self, cx: &mut Context<'_>, take: &mut dyn FnMut(Share<'_>)) -> usize {
        let mut messages = 0_usize;
        while let Some((ticket, answers)) = self.ready.pop_front() {
            messages = messages.saturating_add(1);
            let known = self.positions.len();
            self.positions.extend(known..answers.len().max(known));
            take(Share {
                ticket,
                positions: self.positions.get(..answers.len()).unwrap_or_default(),
                answers: &answers,
                trial: None,
            });
        }
        messages.saturating_add(self.rest.take_answers(cx, take))
    }
}
