//! Buckets in Redis or Valkey, shared between replicas. Each decision is one atomic step on the
//! server, by the server's time.
//!
//! | file or folder | what |
//! | --- | --- |
//! | `backend` | which URLs and variables name such a store |
//! | `target` | addresses and logins, as the operator wrote them |
//! | `connect` | makes connections: TLS files, login, sentinels |
//! | `connection`, `connect_error` | one connection, and why there is none |
//! | `lookups` | lookups of servers' names |
//! | `script` | the atomic step: every algorithm in Lua, arguments and outcomes |
//! | `key` | key names |
//! | `routes` | the queue of a check |
//! | `call` | one call: the checks that waited at the same moment |
//! | `worker` | the tasks that own a queue: one per server, and a cluster's topology task |
//! | `rate_leases` | leases of rates that replicas share |
//! | `cluster` | which node serves which bucket |
//! | `node` | what the callers and the worker of a server share |
//! | `breaker` | whether a server may be called, and when to probe it |
//! | `error_class` | classifies a server's errors |
//! | `decided_share` | the share of checks that a server decided of late |
//! | `denial_cache` | keys over their limits, remembered briefly |
//!
//! The denial cache answers a check, or the check waits in a queue (`store/queue`) for the worker
//! of its server, which sends everything that waits in one call. Every check is answered within the
//! deadline, with an outcome or a [`StoreFault`]. `--on-store-failure` says what a fault means for
//! the request; `store/failover` may decide the check in another store.
//!
//! This store never decides by itself, never sends a check twice, never reads from a Redis replica,
//! and does not wait for Redis at start.

mod backend;
mod breaker;
mod call;
mod cluster;
mod connect;
mod connect_error;
mod connection;
mod decided_share;
mod denial_cache;
mod error_class;
mod key;
mod lookups;
mod node;
mod rate_leases;
mod reference_key;
mod routes;
pub mod script;
mod target;
mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Context;
use std::time::Duration;

use tokio::sync::mpsc;

pub use self::backend::BACKEND;
use self::cluster::{Cluster, ClusterMember, NODES_MAX};
use self::connect::Connector;
use self::denial_cache::DenialCache;
use self::lookups::Lookups;
pub use self::lookups::{Lookup, Resolver, SystemResolver};
use self::node::{Breakers, Node};
use self::rate_leases::RedisRateLeases;
pub use self::reference_key::{REFERENCE_KEY_BYTES_MAX, reference_key};
use self::routes::{Endpoint, Routes};
pub use self::target::{
    Address, Login, Password, ReferenceVariables, Secret, Servers, Target, TargetError,
};
use self::worker::NodeWorker;
use self::worker::topology_task::TopologyTask;
use super::queue::{Message, Queue, QueueBatchClient, QueueLimits, QueueSelector, Queues, Route};
use super::rate_leases::RateLeases;
use super::{
    BatchClient, BuildError, CheckResult, Deadline, PartialReply, Purpose, RefundSink, Setup,
    Store, StoreError, StoreFault, StoreHealth, StoreInspection, Ticket, TlsFiles, Worker,
};
use crate::metrics::{Counter, PartitionLevels};
use tollgate_limiter::{BucketNaming, Check, Key};

/// The settings of a Redis store.
#[derive(Clone, Debug)]
pub struct RedisSetup {
    /// The servers.
    pub target: Target,
    /// The servers for limits per second, if they are others.
    pub per_second: Option<Target>,
    /// Files for TLS connections.
    pub tls_files: TlsFiles,
    /// The prefix of every key.
    pub prefix: String,
    /// Whether counters of Envoy's reference service are continued under its names.
    pub reference_keys: bool,
    /// How long an answer may take.
    pub deadline: Duration,
    /// Finds the addresses of servers' names.
    pub resolver: Arc<dyn Resolver>,
    /// How long the lookup of a name may take.
    pub lookup_timeout: Duration,
    /// How many bytes the checks that wait for one server may take.
    pub queue_bytes_max: usize,
    /// How long a denied key is remembered at most.
    pub over_limit_cache: Duration,
}

/// The memory of a waiting check, in bytes, with its answer and with what is sent and received for
/// it.
const CHECK_BYTES: usize = size_of::<Check>() + size_of::<CheckResult>() + size_of::<usize>() + 256;

/// The same for a name of the reference service, which is held once and sent once.
const REFERENCE_KEY_BYTES: usize = 2 * REFERENCE_KEY_BYTES_MAX;

/// How much the checks of one message to a worker may weigh. Two messages fill a call.
const BATCH_WEIGHT_MAX: usize = script::CHECKS_MAX / 2;

/// The Redis store.
pub struct RedisStore {
    queues: Arc<Queues>,
    nodes: Arc<Nodes>,
    rate_leases: Option<Arc<RedisRateLeases>>,
    reference_keys: bool,
}

/// All nodes, and the denial cache.
struct Nodes {
    /// One per queue.
    each: Vec<Arc<Node>>,
    routes: Arc<Routes>,
    breakers: Arc<Breakers>,
    refused: Arc<DenialCache>,
    answered_by_cache: Counter,
}

/// A batch client with the denial cache in front.
struct RedisBatchClient {
    rest: QueueBatchClient,
    nodes: Arc<Nodes>,
    /// Requests that the denial cache answered.
    ready: VecDeque<(Ticket, Vec<CheckResult>)>,
    positions: Vec<usize>,
}

/// The name of a bucket in Redis.
pub fn bucket_name(prefix: &str, key: Key) -> String {
    let mut name = Vec::new();
    key::write_digest(prefix, key, &mut name);
    String::from_utf8_lossy(&name).into_owned()
}

/// The name of a counter of Envoy's reference service, without the second in which its window
/// begins.
pub fn reference_name(prefix: &str, reference_key: &[u8]) -> String {
    format!("{prefix}{}", String::from_utf8_lossy(reference_key))
}

/// A random name for this replica.
fn replica_name() -> Result<Arc<str>, BuildError> {
    let mut name = [0; 8];
    getrandom::fill(&mut name).map_err(|error| BuildError(error.to_string()))?;
    Ok(format!("{:016x}", u64::from_le_bytes(name)).into())
}

/// Bounds of each server's queue.
fn queue_limits(redis: &RedisSetup, metrics: &crate::metrics::Metrics) -> QueueLimits {
    let check_bytes = if redis.reference_keys {
        CHECK_BYTES + REFERENCE_KEY_BYTES
    } else {
        CHECK_BYTES
    };
    QueueLimits {
        waiting_max: (redis.queue_bytes_max / check_bytes).max(1),
        batch_weight_max: BATCH_WEIGHT_MAX,
        weigh: script::weight,
        full: StoreError::Unavailable(StoreFault::QueueFull),
        shed: metrics.store.queue_full.clone(),
    }
}

// === impl RedisStore ===

impl RedisStore {
    /// A store and the workers for its servers. The caller spawns them; they end when the store is
    /// dropped. No server need be reachable.
    ///
    /// # Errors
    ///
    /// When a file that a connection needs cannot be used.
    pub fn build(setup: &Setup, redis: &RedisSetup) -> Result<(Self, Vec<Worker>), BuildError> {
        let metrics = &setup.metrics;
        let longest_us = u64::try_from(redis.over_limit_cache.as_micros()).unwrap_or(u64::MAX);
        let refused = Arc::new(DenialCache::new(
            longest_us,
            metrics.store.cache_full.clone(),
        ));
        let replica = replica_name()?;
        let breakers = Arc::<Breakers>::default();
        let targets = std::iter::once(&redis.target).chain(&redis.per_second);
        let mut endpoints: Vec<Endpoint> = Vec::new();
        let (mut nodes, mut queues, mut workers) = (Vec::new(), Vec::new(), Vec::new());
        let deadline_us = u64::try_from(redis.deadline.as_micros()).unwrap_or(u64::MAX);
        let mut node = |words: &str, member: Option<ClusterMember>| {
            let levels = Arc::new(PartitionLevels::default());
            let node = Arc::new(Node::new(
                words.to_owned(),
                member,
                redis.prefix.as_str().into(),
                deadline_us,
                Arc::clone(&setup.clock),
                metrics,
                Arc::clone(&levels),
                Arc::clone(&refused),
                Arc::clone(&breakers),
            ));
            let (sender, receiver) = mpsc::unbounded_channel::<Message>();
            queues.push(Queue::new(sender, levels));
            nodes.push(Arc::clone(&node));
            (node, receiver)
        };
        for (number, target) in targets.enumerate() {
            let lookups = Lookups::new(
                Arc::clone(&redis.resolver),
                redis.lookup_timeout,
                Arc::clone(&setup.clock),
            );
            let connector = Connector::new(target.clone(), redis.tls_files.clone(), lookups);
            let connector = Arc::new(connector);
            let words = connector.words();
            connector
                .check_files()
                .map_err(|error| BuildError(format!("the store at {words}: {error}")))?;
            let is_cluster = matches!(target.servers, Servers::Cluster { .. });
            let cluster = is_cluster.then(|| Arc::new(Cluster::new(&redis.prefix)));
            let node_slots = if is_cluster { NODES_MAX } else { 0 };
            let last = endpoints.last().map(Endpoint::queues_end);
            endpoints.push(Endpoint {
                first: last.unwrap_or_default(),
                words: words.clone(),
                cluster: cluster.clone(),
            });
            for node_slot in 0..=node_slots {
                let member = cluster
                    .clone()
                    .map(|cluster| ClusterMember { cluster, node_slot });
                let (node, receiver) = node(&words, member);
                let connector = Arc::clone(&connector);
                workers.push(match &cluster {
                    Some(cluster) if node_slot == 0 => {
                        let topology_task =
                            TopologyTask::new(Arc::clone(cluster), node, connector, receiver);
                        Box::pin(topology_task.run()) as Worker
                    }
                    _ => {
                        let replica = Arc::clone(&replica);
                        let worker =
                            NodeWorker::new(node, receiver, connector, replica, number == 0);
                        Box::pin(worker.run()) as Worker
                    }
                });
            }
        }
        metrics.expect_shared_store();
        let bounds = queue_limits(redis, metrics);
        let routes = Arc::new(Routes { endpoints });
        let chosen = Route::Selected(Arc::clone(&routes) as Arc<dyn QueueSelector>);
        let queues = Arc::new(Queues::new(queues, chosen, bounds));
        for cluster in routes.clusters() {
            // Weak, so that workers end when no caller is left.
            let back: Weak<Queues> = Arc::downgrade(&queues);
            cluster.set_refund_sink(back as Weak<dyn RefundSink>);
        }
        let rate_leases = RedisRateLeases::new(&routes, &nodes);
        let store = Self {
            queues,
            rate_leases,
            nodes: Arc::new(Nodes {
                each: nodes,
                routes,
                breakers,
                refused,
                answered_by_cache: metrics.store.answered_by_cache.clone(),
            }),
            reference_keys: redis.reference_keys,
        };
        Ok((store, workers))
    }
}

impl Store for RedisStore {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        Box::new(RedisBatchClient {
            rest: QueueBatchClient::new(Arc::clone(&self.queues)),
            nodes: Arc::clone(&self.nodes),
            ready: VecDeque::new(),
            positions: Vec::new(),
        })
    }

    fn rate_leases(&self) -> Option<Arc<dyn RateLeases>> {
        Some(self.rate_leases.clone()?)
    }

    fn bucket_naming(&self) -> Option<BucketNaming> {
        self.reference_keys.then_some(reference_key)
    }

    fn health(&self) -> Option<StoreHealth> {
        let words: Vec<_> = self
            .nodes
            .routes
            .endpoints
            .iter()
            .map(|endpoint| endpoint.state(&self.nodes.each))
            .collect();
        Some(StoreHealth {
            healthy: self.nodes.are_healthy(),
            start: self.nodes.breakers.start(),
            message: words.join("; "),
        })
    }

    fn inspect(&self) -> StoreInspection {
        let endpoints = self.nodes.routes.endpoints.iter();
        StoreInspection {
            kind: BACKEND.name,
            nodes: endpoints
                .flat_map(|endpoint| endpoint.nodes(&self.nodes.each))
                .collect(),
            denied_keys: Some(self.nodes.refused.len()),
            ..StoreInspection::default()
        }
    }
}

// === impl Nodes ===

impl Nodes {
    fn are_healthy(&self) -> bool {
        self.breakers.are_closed() && self.each.iter().all(|node| node.is_healthy())
    }

    /// An error when the breaker of a node that these checks need is open.
    fn ready(&self, checks: &[Check]) -> Result<(), StoreError> {
        if self.breakers.are_closed() {
            return Ok(());
        }
        let out = checks.iter().find_map(|check| {
            let node = self.each.get(self.routes.queue_of(check))?;
            Some((node, node.fault()?))
        });
        let Some((node, fault)) = out else {
            return Ok(());
        };
        // A timeout concerns the checks that were sent. These were not.
        let fault = fault.while_breaker_open();
        node.count_undecided(fault, checks.len());
        Err(StoreError::Unavailable(fault))
    }

    /// The answers from the denial cache, when it has one for every check.
    fn known(&self, checks: &[Check]) -> Option<Vec<CheckResult>> {
        if self.refused.is_empty() {
            return None;
        }
        let now_us = self.each.first()?.clock.uptime_us();
        let known = checks
            .iter()
            .map(|check| self.refused.outcome(check, now_us).map(Ok));
        let answers: Vec<CheckResult> = known.collect::<Option<_>>()?;
        self.answered_by_cache.inc_by(answers.len() as u64);
        Some(answers)
    }
}

// === impl RedisBatchClient ===

impl BatchClient for RedisBatchClient {
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        purpose: Purpose,
    ) -> Result<usize, StoreError> {
        self.nodes.ready(checks)?;
        if purpose != Purpose::Reset
            && let Some(answers) = self.nodes.known(checks)
        {
            self.ready.push_back((ticket, answers));
            return Ok(1);
        }
        self.rest.add(ticket, checks, deadline, purpose)
    }

    fn send(&mut self) {
        self.rest.send();
    }

    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        let mut messages = 0_usize;
        while let Some((ticket, answers)) = self.ready.pop_front() {
            messages = messages.saturating_add(1);
            let known = self.positions.len();
            self.positions.extend(known..answers.len().max(known));
            take(PartialReply {
                ticket,
                positions: self.positions.get(..answers.len()).unwrap_or_default(),
                answers: &answers,
                tentative: None,
                from_denial_cache: true,
                local: &[],
                stamp: None,
            });
        }
        messages.saturating_add(self.rest.take_replies(cx, take))
    }
}
