//! One call: exchanges in one write to the node that serves them, and again where the node
//! redirects them or lacks the script. In both cases nothing ran.
//!
//! A redirect is followed at once, then after pauses, a bounded number of times: while the slot
//! migrates, a bucket and the era may be on two nodes, and neither node runs the script.
//!
//! A call does not know its deadline. Its caller drops [`Call::run`] and asks for the results.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::Semaphore;

use super::command;
use crate::cluster::{Cluster, REDIRECTS_MAX, Redirect, connected, pause_after_redirects};
use crate::connection::Connection;
use crate::error_class::fault_of;
use crate::node::Node;
use crate::target::Address;
use tollgate_store::StoreFault;
use tollgate_store::shared::{RateLeaseRequest, RateLeaseResult};
use tollgate_telemetry::metrics::StoreMetrics;

/// What all calls have in common.
pub(crate) struct Shared {
    /// The node of a single server, or the nodes of a cluster by the number of their node slot.
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) cluster: Option<Arc<Cluster>>,
    /// The prefix of every key.
    pub(crate) prefix: Arc<str>,
    /// How long a call may take.
    pub(super) deadline: Duration,
    pub(super) metrics: StoreMetrics,
    /// Permits for calls in flight.
    pub(super) calls: Semaphore,
}

/// Exchanges of one call.
pub(super) struct Call<'s> {
    shared: &'s Shared,
    exchanges: Vec<Exchange>,
    /// The node to which the last write went.
    node: Option<Arc<Node>>,
    /// The node slot whose node lacks the script: the next write there begins with it.
    lacks_script: Option<usize>,
    redirected: bool,
}

/// One exchange of a call.
struct Exchange {
    command: Cmd,
    state: State,
}

/// What is known of an exchange.
enum State {
    /// To be sent to the node that serves the slot.
    Due,
    /// To be sent behind `ASKING` to the node of this node slot, which imports the slot.
    Importing(usize),
    /// Sent, and not answered.
    Sent,
    Answered(RateLeaseResult),
}

// === impl Call ===

impl<'s> Call<'s> {
    pub(super) fn new(shared: &'s Shared, requests: &[RateLeaseRequest]) -> Self {
        let exchange = |request: &RateLeaseRequest| {
            let state = if command::is_within_bounds(request) {
                State::Due
            } else {
                tracing::error!(
                    target: "tollgate::store::redis::rate_leases::call",
                    "this is a defect in tollgate: a lease of a rate is out of bounds"
                );
                State::Answered(Err(StoreFault::UnexpectedReply))
            };
            Exchange {
                command: command::exchange(&shared.prefix, request),
                state,
            }
        };
        Self {
            shared,
            exchanges: requests.iter().map(exchange).collect(),
            node: None,
            lacks_script: None,
            redirected: false,
        }
    }

    /// Sends until every exchange has an answer.
    pub(super) async fn run(&mut self) {
        for round in 0..REDIRECTS_MAX {
            pause_after_redirects(round).await;
            let importing = |exchange: &Exchange| match exchange.state {
                State::Importing(node_slot) => Some(node_slot),
                _ => None,
            };
            if let Some(node_slot) = self.exchanges.iter().find_map(importing) {
                self.send(node_slot, true).await;
            }
            let cluster = self.shared.cluster.as_ref();
            let node_slot = cluster.map_or(0, |cluster| cluster.node_slot_of_rate_leases());
            self.send(node_slot, false).await;
            let answered = |exchange: &Exchange| matches!(exchange.state, State::Answered(_));
            if self.exchanges.iter().all(answered) {
                return;
            }
        }
    }

    /// The results by now, one for each exchange, and whether the node failed.
    pub(super) fn results(self) -> (Vec<RateLeaseResult>, Option<StoreFault>) {
        let not_sent = match &self.node {
            _ if self.redirected => StoreFault::ClusterDown,
            None => StoreFault::NotConnected,
            Some(_) => StoreFault::QueueTimeout,
        };
        let exchanges = self.exchanges.into_iter();
        let results = exchanges.map(|exchange| match exchange.state {
            State::Answered(result) => result,
            State::Sent => Err(StoreFault::TimedOut),
            State::Due | State::Importing(_) => Err(not_sent),
        });
        let results: Vec<RateLeaseResult> = results.collect();
        let mut faults = results.iter().filter_map(|result| result.as_ref().err());
        // What concerns one bucket says nothing about the node.
        let of_bucket = [StoreFault::InvalidBucket, StoreFault::UnexpectedReply];
        let failed = faults.find(|fault| !of_bucket.contains(fault)).copied();
        if let (Some(fault), Some(node)) = (failed, &self.node) {
            if fault == StoreFault::ClusterDown {
                node.refresh();
            } else {
                node.doubted.notify_one();
            }
        }
        (results, failed)
    }

    /// Sends to a node what is due there, and records the replies.
    async fn send(&mut self, node_slot: usize, importing: bool) {
        let goes_there = |exchange: &&mut Exchange| match exchange.state {
            State::Due => !importing,
            State::Importing(to) => importing && to == node_slot,
            State::Sent | State::Answered(_) => false,
        };
        let all = self.exchanges.iter_mut();
        let mut due: Vec<&mut Exchange> = all.filter(goes_there).collect();
        if due.is_empty() {
            return;
        }
        let (mut connection, address) = match connection(self.shared, node_slot).await {
            Ok(connected) => connected,
            Err(fault) => {
                for exchange in due {
                    exchange.state = State::Answered(Err(fault));
                }
                return;
            }
        };
        self.node = self.shared.nodes.get(node_slot).cloned();
        let mut commands = Vec::new();
        let loads_script = self.lacks_script == Some(node_slot);
        if loads_script {
            self.lacks_script = None;
            self.shared.metrics.scripts_sent_again.inc();
            commands.push(command::load());
        }
        for exchange in &mut due {
            if importing {
                commands.push(redis::cmd("ASKING"));
            }
            commands.push(exchange.command.clone());
            exchange.state = State::Sent;
        }
        let mut replies = connection.ask_all(commands).await.into_iter();
        let loaded = if loads_script { replies.next() } else { None };
        for exchange in due {
            if importing {
                // If the node rejects `ASKING`, it rejects the run too.
                drop(replies.next());
            }
            let error = match replies.next().unwrap_or(Ok(Value::Nil)) {
                Ok(reply) => {
                    exchange.state = State::Answered(command::lease(reply));
                    continue;
                }
                Err(error) => error,
            };
            let cluster = self.shared.cluster.as_ref();
            let redirect = cluster.and_then(|_| Redirect::of(&error, &address));
            exchange.state = match (redirect, command::exchange_fault_of(&error), &loaded) {
                (Some(redirect), ..) => {
                    self.redirected = true;
                    self.shared.follow(redirect)
                }
                (None, Some(fault), _) => State::Answered(Err(fault)),
                (None, None, Some(Err(error))) => {
                    // The node does not take the script.
                    let fault =
                        command::exchange_fault_of(error).unwrap_or(StoreFault::UnexpectedReply);
                    State::Answered(Err(fault))
                }
                (None, None, _) => {
                    self.lacks_script = Some(node_slot);
                    if importing {
                        State::Importing(node_slot)
                    } else {
                        State::Due
                    }
                }
            };
        }
    }
}

/// The connection to the node of this node slot, as soon as there is one, and the node's address.
async fn connection(
    shared: &Shared,
    node_slot: usize,
) -> Result<(Connection, Address), StoreFault> {
    let node = shared.nodes.get(node_slot);
    let node = node.ok_or(StoreFault::NotConnected)?;
    let Some(link) = node.link() else {
        // No node serves the slot, or the topology is not known yet.
        node.refresh();
        return Err(node.fault().unwrap_or(StoreFault::ClusterDown));
    };
    let cluster = shared.cluster.as_ref();
    let address = cluster.and_then(|cluster| cluster.address_of(node_slot));
    let address = address.unwrap_or_else(Address::nowhere);
    Ok((connected(link).await?, address))
}

// === impl Shared ===

impl Shared {
    /// The reply to a command on keys of the tag, wherever their slot is by now.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, StoreFault> {
        for round in 0..REDIRECTS_MAX {
            pause_after_redirects(round).await;
            let cluster = self.cluster.as_ref();
            let node_slot = cluster.map_or(0, |cluster| cluster.node_slot_of_rate_leases());
            let (mut connection, address) = connection(self, node_slot).await?;
            let error = match connection.ask(command).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match cluster.and_then(|_| Redirect::of(&error, &address)) {
                Some(redirect) => drop(self.follow(redirect)),
                None => return Err(fault_of(&error).unwrap_or(StoreFault::UnexpectedReply)),
            }
        }
        Err(StoreFault::ClusterDown)
    }

    /// Where a redirected exchange goes next.
    fn follow(&self, redirect: Redirect) -> State {
        self.metrics.redirects.inc();
        let (Some(cluster), Some(node)) = (&self.cluster, self.nodes.first()) else {
            return State::Answered(Err(StoreFault::ClusterDown));
        };
        let now_us = node.clock.uptime_us();
        let next = match redirect {
            Redirect::Moved(Some((slot, to))) => {
                cluster.moved(slot, &to, now_us).map(|_| State::Due)
            }
            Redirect::Moved(None) => {
                cluster.refresh();
                Some(State::Due)
            }
            Redirect::Ask(to) => {
                let node_slot = to.and_then(|to| cluster.assign_redirect_target(&to, now_us));
                node_slot.map(State::Importing)
            }
            // The bucket and the era are on two nodes, until both have moved.
            Redirect::TryAgain => Some(State::Due),
        };
        next.unwrap_or(State::Answered(Err(StoreFault::ClusterDown)))
    }
}
