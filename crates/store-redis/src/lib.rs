#![doc = include_str!("../README.md")]

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
mod failover;
mod key;
mod lookups;
mod node;
mod nodes;
mod rate_leases;
mod reference_key;
pub mod script;
mod shared_records;
mod target;
mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Context;

use tokio::sync::mpsc;

pub use self::backend::BACKEND;
use self::cluster::{Cluster, ClusterMember, NODES_MAX};
use self::connect::Connector;
use self::denial_cache::DenialCache;
pub use self::failover::FailoverStore;
use self::lookups::Lookups;
pub use self::lookups::{Lookup, Resolver, SystemResolver};
use self::node::{Breakers, Node};
use self::nodes::{Endpoint, Nodes};
use self::rate_leases::RedisRateLeases;
pub use self::reference_key::{REFERENCE_KEY_BYTES_MAX, reference_key};
use self::shared_records::RedisSharedRecords;
pub use self::target::{
    Address, Login, Password, ReferenceVariables, Secret, Servers, Target, TargetError,
};
use self::worker::NodeWorker;
use self::worker::topology_task::TopologyTask;
use tollgate_limiter::{BucketNaming, Check, Key};
use tollgate_store::queue::{Queue, QueueBatchClient, QueueLimits, QueueSelector, Queues, Route};
use tollgate_store::shared::{RateLeases, SharedRecords};
use tollgate_store::{
    BatchClient, BuildError, CheckResult, Deadline, PartialReply, Purpose, RefundSink, Setup,
    SharedSettings, Store, StoreError, StoreFault, StoreHealth, StoreInspection, Ticket, Worker,
};
use tollgate_telemetry::metrics::{Metrics, Part, PartitionLevels};

/// The settings of a Redis store.
#[derive(Clone, Debug)]
pub struct RedisSetup {
    /// The servers, with the login.
    pub target: Target,
    /// The servers for limits per second, if they are others.
    pub per_second: Option<Target>,
    /// Everything else that is set. The address and the login in it are not used.
    pub settings: SharedSettings,
    /// Finds the addresses of servers' names.
    pub resolver: Arc<dyn Resolver>,
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
fn queue_limits(settings: &SharedSettings, metrics: &Metrics) -> QueueLimits {
    let check_bytes = if settings.reference_keys {
        CHECK_BYTES + REFERENCE_KEY_BYTES
    } else {
        CHECK_BYTES
    };
    QueueLimits {
        waiting_max: (settings.queue_bytes_max / check_bytes).max(1),
        batch_weight_max: BATCH_WEIGHT_MAX,
        weigh: script::weight,
        full: StoreError::Unavailable(StoreFault::QueueFull),
        shed: metrics.store.queue_full.clone(),
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
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
        let (metrics, settings) = (&setup.metrics, &redis.settings);
        let denials = Arc::new(DenialCache::new(
            micros(settings.over_limit_cache),
            metrics.store.cache_full.clone(),
        ));
        let replica = replica_name()?;
        let prefix: Arc<str> = settings.key_prefix.as_str().into();
        let breakers = Arc::<Breakers>::default();
        let mut endpoints = Vec::new();
        let (mut nodes, mut queues, mut workers) = (Vec::new(), Vec::new(), Vec::new());
        for target in std::iter::once(&redis.target).chain(&redis.per_second) {
            let lookups = Lookups::new(
                Arc::clone(&redis.resolver),
                settings.lookup_timeout,
                Arc::clone(&setup.clock),
            );
            let tls_files = settings.tls_files.clone();
            let connector = Arc::new(Connector::new(target.clone(), tls_files, lookups));
            let address = target.to_string();
            connector
                .check_files()
                .map_err(|error| BuildError(format!("the store at {address}: {error}")))?;
            let is_cluster = matches!(target.servers, Servers::Cluster { .. });
            let cluster = is_cluster.then(|| Arc::new(Cluster::new(&prefix)));
            let first = nodes.len();
            let node_slots = if is_cluster { NODES_MAX } else { 0 };
            for node_slot in 0..=node_slots {
                let member = cluster
                    .clone()
                    .map(|cluster| ClusterMember { cluster, node_slot });
                let levels = Arc::new(PartitionLevels::default());
                let node = Arc::new(Node::new(
                    address.clone(),
                    member,
                    Arc::clone(&prefix),
                    micros(settings.deadline),
                    Arc::clone(&setup.clock),
                    metrics,
                    Arc::clone(&levels),
                    Arc::clone(&denials),
                    Arc::clone(&breakers),
                ));
                nodes.push(Arc::clone(&node));
                let (sender, receiver) = mpsc::unbounded_channel();
                queues.push(Queue {
                    sender,
                    levels,
                    inline: None,
                });
                let connector = Arc::clone(&connector);
                workers.push(match &cluster {
                    Some(cluster) if node_slot == 0 => {
                        let cluster = Arc::clone(cluster);
                        let topology_task = TopologyTask::new(cluster, node, connector, receiver);
                        Box::pin(topology_task.run()) as Worker
                    }
                    _ => {
                        let (replica, counts_replicas) = (Arc::clone(&replica), first == 0);
                        let worker =
                            NodeWorker::new(node, receiver, connector, replica, counts_replicas);
                        Box::pin(worker.run()) as Worker
                    }
                });
            }
            endpoints.push(Endpoint {
                queues: first..nodes.len(),
                address,
                cluster,
            });
        }
        metrics.show(Part::SharedStore);
        let nodes = Arc::new(Nodes {
            each: nodes,
            endpoints,
            breakers,
            denials,
            answered_by_cache: metrics.store.answered_by_cache.clone(),
        });
        let selector = Arc::clone(&nodes) as Arc<dyn QueueSelector>;
        let limits = queue_limits(settings, metrics);
        let queues = Arc::new(Queues::new(queues, Route::Selected(selector), limits));
        for cluster in nodes
            .endpoints
            .iter()
            .filter_map(|one| one.cluster.as_ref())
        {
            let sink: Weak<Queues> = Arc::downgrade(&queues);
            let _ = cluster.refund_sink.set(sink as Weak<dyn RefundSink>);
        }
        let store = Self {
            queues,
            rate_leases: RedisRateLeases::new(&nodes),
            nodes,
            reference_keys: settings.reference_keys,
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

    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        let shared = self.rate_leases.as_ref()?.shared();
        Some(Arc::new(RedisSharedRecords { shared }))
    }

    fn bucket_naming(&self) -> Option<BucketNaming> {
        self.reference_keys.then_some(reference_key)
    }

    fn health(&self) -> Option<StoreHealth> {
        Some(self.nodes.health())
    }

    fn inspect(&self) -> StoreInspection {
        StoreInspection {
            kind: BACKEND.name,
            nodes: self.nodes.inspect(),
            denied_keys: Some(self.nodes.denials.len()),
            ..StoreInspection::default()
        }
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
        self.nodes.check_breakers(checks)?;
        if purpose.decides()
            && let Some(answers) = self.nodes.denied(checks)
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
        let mut messages = 0;
        while let Some((ticket, answers)) = self.ready.pop_front() {
            messages += 1;
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
        messages + self.rest.take_replies(cx, take)
    }
}
