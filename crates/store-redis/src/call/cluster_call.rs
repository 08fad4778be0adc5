//! The checks of a call to a cluster: one script run for all slots of a node, or one per slot, and
//! redirects followed.
//!
//! Where a probe has found that the node can do it, checks of all slots are in one run
//! (`Cluster::spreads`). The run passes over what is not on the node, and those checks then go the
//! other way: all keys of a run are in one slot, and each hash tag has its own slot. So do steps of
//! reservations, give-backs and resets. A check that meets reservations which are due is passed
//! over too, and sent again with their keys.
//!
//! The first round goes to the node that the route names. A run that the node redirects (it ran
//! nothing) is sent to the named node: `MOVED` changes the route for all later calls, `ASK` counts
//! once. While a slot migrates, some of its keys are on one node and some on another. A run with
//! several keys may then fit on neither, so it is split by key.
//!
//! A run that may have been carried out is never sent again, and redirects are followed a bounded
//! number of times. A check without an answer at its deadline is answered by `Call`.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{RedisError, Value};
use tokio::task::JoinSet;

use super::command::{self, LOST_SCRIPT, UNEXPECTED_REPLY};
use super::progress::{NodeStatus, Progress};
use crate::cluster::{
    ClusterMember, REDIRECTS_MAX, Redirect, connected, pause_after_redirects, tag_of,
};
use crate::connection::Connection;
use crate::error_class::{ServerError, fault_of};
use crate::node::Node;
use crate::script;
use crate::target::Address;
use tollgate_limiter::{Check, Timestamp};
use tollgate_store::{Purpose, StoreFault};

/// What a call to a cluster sends.
pub(crate) struct ClusterCall {
    pub(crate) node: Arc<Node>,
    pub(crate) member: ClusterMember,
    pub(crate) checks: Vec<(Check, Purpose)>,
    pub(crate) near: Timestamp,
    pub(crate) progress: Arc<Progress>,
}

/// One run of the script: checks of one slot, or of many.
struct Step {
    /// Indexes of the call's checks.
    checks: Vec<usize>,
    /// Whether the slot is being imported, so that `ASKING` must be sent first.
    asking: bool,
    follows: u32,
    /// Whether the checks are of many slots.
    is_spread: bool,
    /// Whether all checks have the keys of their reservations.
    with_ledgers: bool,
    reply: StepReply,
}

/// The reply of a node to a run.
enum StepReply {
    /// No reply yet.
    Nothing,
    Outcomes(Vec<u8>),
    Elsewhere(Redirect),
    NoScript,
    Error(ServerError),
}

/// Runs for one node.
struct Round {
    address: Address,
    steps: Vec<Step>,
    first: bool,
}

// === impl ClusterCall ===

impl ClusterCall {
    /// Sends until every check has an answer.
    pub(crate) async fn ask(self, connection: Connection, address: Address) -> NodeStatus {
        let this = Arc::new(self);
        let first = Round {
            address,
            steps: this.first_steps(),
            first: true,
        };
        let mut status = NodeStatus::default();
        let mut rounds = JoinSet::new();
        let mut ended = Some(this.send_round(first, connection).await);
        loop {
            let round = match ended.take() {
                Some(round) => round,
                None => match rounds.join_next().await {
                    Some(Ok(round)) => round,
                    // A defect: these checks stay without an answer, and may have been taken.
                    Some(Err(_)) => continue,
                    None => return status,
                },
            };
            let mut next = BTreeMap::<usize, Vec<Step>>::new();
            for mut step in round.steps {
                match std::mem::replace(&mut step.reply, StepReply::Nothing) {
                    StepReply::Outcomes(bytes) => {
                        let left = this.progress.outcomes(&step.checks, &bytes);
                        this.ask_again(left, !step.is_spread, &mut next);
                    }
                    StepReply::Elsewhere(redirect) => {
                        status.elsewhere = true;
                        this.follow(step, redirect, &round.address, &mut next);
                    }
                    StepReply::Error(error) => {
                        this.progress.fail(&step.checks, error.fault);
                        if error.fault == StoreFault::ClusterDown {
                            this.member.cluster.refresh();
                        }
                        // An unserved slot is not a fault of the node.
                        if round.first && !error.text.contains("not served") {
                            status.error.get_or_insert(error);
                        }
                    }
                    StepReply::NoScript => {
                        let error = ServerError::new(StoreFault::Sharded, LOST_SCRIPT);
                        this.progress.fail(&step.checks, error.fault);
                        status.error.get_or_insert(error);
                    }
                    StepReply::Nothing => {
                        let fault = StoreFault::UnexpectedReply;
                        this.progress.fail(&step.checks, fault);
                    }
                }
            }
            for (node_slot, steps) in next {
                let this = Arc::clone(&this);
                rounds.spawn(async move { this.round_elsewhere(node_slot, steps).await });
            }
        }
    }

    /// The runs of the first round.
    fn first_steps(&self) -> Vec<Step> {
        let all = 0..self.checks.len();
        if !self.member.cluster.spreads(self.member.node_slot) {
            return self.tag_by_tag(all);
        }
        let can_spread = |index: &usize| {
            let check = self.checks.get(*index);
            check.is_some_and(|(check, purpose)| script::can_spread(check, *purpose))
        };
        let (spread, others): (Vec<_>, Vec<_>) = all.partition(can_spread);
        let mut steps = self.tag_by_tag(others);
        if !spread.is_empty() {
            steps.push(Step::first(spread, true));
        }
        steps
    }

    /// Adds runs for checks that a run has left, for the nodes that serve them by now: the node
    /// that was asked may have left the cluster.
    fn ask_again(
        &self,
        left: Vec<usize>,
        with_ledgers: bool,
        next: &mut BTreeMap<usize, Vec<Step>>,
    ) {
        for mut step in self.tag_by_tag(left) {
            step.with_ledgers = with_ledgers;
            match self.node_slot_of(&step) {
                0 => self.progress.fail(&step.checks, StoreFault::ClusterDown),
                node_slot => next.entry(node_slot).or_default().push(step),
            }
        }
    }

    /// The node slot of a run's first check by now; 0 when no node serves it.
    fn node_slot_of(&self, step: &Step) -> usize {
        let first = step
            .checks
            .first()
            .and_then(|index| self.checks.get(*index));
        first.map_or(0, |(check, _)| self.member.cluster.node_slot_of(check.key))
    }

    /// One run for each hash tag of these checks. A reset has a run of its own: it removes a
    /// bucket, and while the slot migrates the node cannot create it again for the next check.
    fn tag_by_tag(&self, checks: impl IntoIterator<Item = usize>) -> Vec<Step> {
        let mut by_tag = BTreeMap::<(u8, Option<usize>), Vec<usize>>::new();
        for at in checks {
            if let Some((check, purpose)) = self.checks.get(at) {
                let is_reset = *purpose == Purpose::Reset;
                let tag = (tag_of(check.key), is_reset.then_some(at));
                by_tag.entry(tag).or_default().push(at);
            }
        }
        let steps = by_tag.into_values();
        steps.map(|checks| Step::first(checks, false)).collect()
    }

    /// Adds a redirected run to the next round.
    fn follow(
        &self,
        mut step: Step,
        redirect: Redirect,
        from: &Address,
        next: &mut BTreeMap<usize, Vec<Step>>,
    ) {
        let cluster = &self.member.cluster;
        let now_us = self.node.clock.uptime_us();
        self.node.metrics.redirects.inc();
        step.follows += 1;
        let mut key_by_key = false;
        let node_slot = match redirect {
            Redirect::Moved(Some((slot, to))) => {
                step.asking = false;
                cluster.moved(slot, &to, now_us)
            }
            Redirect::Moved(None) => {
                step.asking = false;
                cluster.refresh();
                Some(self.node_slot_of(&step))
            }
            Redirect::Ask(to) => {
                step.asking = true;
                key_by_key = true;
                to.and_then(|to| cluster.assign_redirect_target(&to, now_us))
            }
            Redirect::TryAgain => {
                key_by_key = true;
                cluster.assign_redirect_target(from, now_us)
            }
        };
        let node_slot =
            node_slot.filter(|node_slot| *node_slot > 0 && step.follows <= REDIRECTS_MAX);
        let Some(node_slot) = node_slot else {
            self.progress.fail(&step.checks, StoreFault::ClusterDown);
            return;
        };
        self.progress.wait(&step.checks);
        let steps = next.entry(node_slot).or_default();
        if key_by_key {
            steps.extend(self.key_by_key(&step));
        } else {
            steps.push(step);
        }
    }

    /// One run per key, with the key's checks in order. Checks with a marker or reservations have
    /// further keys, which the node may not have: they have a run of their own and do not hold up
    /// the others.
    fn key_by_key(&self, step: &Step) -> Vec<Step> {
        let mut by_key = BTreeMap::<_, Vec<usize>>::new();
        for at in &step.checks {
            if let Some((check, purpose)) = self.checks.get(*at) {
                let keys = (
                    script::has_marker(check, *purpose),
                    script::has_ledger(check),
                );
                by_key.entry((check.key.0, keys)).or_default().push(*at);
            }
        }
        let steps = by_key.into_values().map(|checks| Step {
            checks,
            reply: StepReply::Nothing,
            ..*step
        });
        steps.collect()
    }

    /// Sends a round to the node of this slot, as soon as it is connected.
    async fn round_elsewhere(&self, node_slot: usize, steps: Vec<Step>) -> Round {
        let follows = steps.iter().map(|step| step.follows).max().unwrap_or(0);
        pause_after_redirects(follows).await;
        let cluster = &self.member.cluster;
        let address = cluster.address_of(node_slot);
        let connection = match (&address, cluster.link(node_slot)) {
            (Some(_), Some(link)) => connected(link).await,
            // The node was unassigned meanwhile.
            _ => Err(StoreFault::ClusterDown),
        };
        let mut round = Round {
            address: address.unwrap_or_else(Address::nowhere),
            steps,
            first: false,
        };
        match connection {
            Ok(connection) => self.send_round(round, connection).await,
            Err(fault) => {
                for step in &mut round.steps {
                    step.reply = StepReply::Error(ServerError::new(fault, fault.to_string()));
                }
                round
            }
        }
    }

    /// Sends all runs to a node in one write. If the node does not have the script, loads it and
    /// sends those runs again.
    async fn send_round(&self, mut round: Round, mut connection: Connection) -> Round {
        for step in &round.steps {
            self.progress.under_way(&step.checks);
        }
        self.send(&mut connection, &mut round).await;
        let lacks_script = |step: &Step| matches!(step.reply, StepReply::NoScript);
        if round.steps.iter().any(lacks_script) {
            self.node.metrics.scripts_sent_again.inc();
            match connection.ask(&command::load()).await {
                Ok(_) => self.send(&mut connection, &mut round).await,
                Err(error) => {
                    for step in round.steps.iter_mut().filter(|step| lacks_script(step)) {
                        step.reply = StepReply::of_error(&error, &round.address);
                    }
                }
            }
        }
        round
    }

    /// Sends the runs without a reply and records the replies.
    async fn send(&self, connection: &mut Connection, round: &mut Round) {
        let is_due =
            |step: &&mut Step| matches!(step.reply, StepReply::Nothing | StepReply::NoScript);
        let mut due: Vec<_> = round.steps.iter_mut().filter(is_due).collect();
        let mut commands = Vec::new();
        for step in &due {
            if step.asking {
                commands.push(redis::cmd("ASKING"));
            }
            let sent = |index: &usize| {
                let (check, purpose) = self.checks.get(*index)?;
                Some((check, *purpose))
            };
            let checks = || step.checks.iter().filter_map(sent);
            commands.push(if step.is_spread {
                command::spread_step(&self.node.prefix, self.near, checks)
            } else {
                command::step(&self.node.prefix, self.near, step.with_ledgers, checks)
            });
        }
        let mut replies = connection.ask_all(commands).await.into_iter();
        for step in &mut due {
            if step.asking {
                // If the node rejects `ASKING`, it rejects the run too.
                drop(replies.next());
            }
            step.reply = match replies.next() {
                Some(Ok(Value::BulkString(bytes))) => StepReply::Outcomes(bytes),
                Some(Err(error)) => StepReply::of_error(&error, &round.address),
                _ => {
                    let fault = StoreFault::UnexpectedReply;
                    StepReply::Error(ServerError::new(fault, UNEXPECTED_REPLY))
                }
            };
        }
    }
}

// === impl Step ===

impl Step {
    fn first(checks: Vec<usize>, is_spread: bool) -> Self {
        Self {
            checks,
            asking: false,
            follows: 0,
            is_spread,
            with_ledgers: false,
            reply: StepReply::Nothing,
        }
    }
}

// === impl StepReply ===

impl StepReply {
    fn of_error(error: &RedisError, asked: &Address) -> Self {
        if let Some(redirect) = Redirect::of(error, asked) {
            return Self::Elsewhere(redirect);
        }
        match fault_of(error) {
            None => Self::NoScript,
            Some(fault) => Self::Error(ServerError::new(fault, error.to_string())),
        }
    }
}
