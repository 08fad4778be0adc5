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
use std::time::Duration;

use redis::Pipeline;
use tokio::task::JoinSet;

use super::command::{self, LOST_SCRIPT};
use super::progress::{NodeStatus, Progress};
use super::step_reply::StepReply;
use crate::store::StoreFault;
use crate::store::redis::cluster::{ClusterMember, Link, Redirect, tag_of};
use crate::store::redis::connection::Connection;
use crate::store::redis::error_class::value;
use crate::store::redis::node::Node;
use crate::store::redis::script;
use crate::store::redis::target::Address;
use tollgate_limiter::{Check, Timestamp};

/// How many redirects of a run are followed: nodes whose views of the cluster differ may redirect
/// to each other for a while.
const FOLLOWS_MAX: u32 = 24;

/// The longest pause before a redirected run is sent again, in milliseconds.
const PAUSE_MS_MAX: u64 = 64;

/// What a call to a cluster sends.
pub(crate) struct ClusterCall {
    pub(crate) node: Arc<Node>,
    pub(crate) member: ClusterMember,
    /// Each with whether it resets its bucket.
    pub(crate) checks: Vec<(Check, bool)>,
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
}

/// Runs for one node, and then its reply to each.
struct Round {
    address: Address,
    steps: Vec<(Step, StepReply)>,
    first: bool,
}

// === impl ClusterCall ===

impl ClusterCall {
    /// Sends until every check has an answer.
    pub(crate) async fn ask(self, connection: Connection, address: Address) -> NodeStatus {
        let this = Arc::new(self);
        let steps = this.first_steps();
        let mut status = NodeStatus::default();
        let mut rounds = JoinSet::new();
        let steps: Vec<_> = steps
            .into_iter()
            .map(|step| (step, StepReply::Nothing))
            .collect();
        let mut ended = Some(
            Arc::clone(&this)
                .round(connection, address, steps, true)
                .await,
        );
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
            for (step, came) in round.steps {
                match came {
                    StepReply::Outcomes(bytes) => {
                        let left = this.progress.outcomes(&step.checks, &bytes);
                        this.ask_again(left, !step.is_spread, &mut next);
                    }
                    StepReply::Elsewhere(redirect) => {
                        status.elsewhere = true;
                        this.follow(step, redirect, &round.address, &mut next);
                    }
                    StepReply::StoreFault(fault, words) => {
                        this.progress.fail(&step.checks, fault);
                        if fault == StoreFault::ClusterDown {
                            this.member.cluster.refresh();
                        }
                        // An unserved slot is not a fault of the node.
                        if round.first && !words.contains("not served") {
                            status.fault.get_or_insert((fault, words));
                        }
                    }
                    StepReply::NoScript => {
                        this.progress.fail(&step.checks, StoreFault::Sharded);
                        let words = LOST_SCRIPT.to_owned();
                        status.fault.get_or_insert((StoreFault::Sharded, words));
                    }
                    StepReply::Nothing => {
                        this.progress
                            .fail(&step.checks, StoreFault::UnexpectedReply);
                    }
                }
            }
            for (node_slot, steps) in next {
                rounds.spawn(Arc::clone(&this).round_elsewhere(node_slot, steps));
            }
        }
    }

    /// The runs of the first round.
    fn first_steps(&self) -> Vec<Step> {
        let all = 0..self.checks.len();
        if !self.member.cluster.spreads(self.member.node_slot) {
            return self.tag_by_tag(all);
        }
        let can_spread = |at: &usize| {
            let check = self.checks.get(*at);
            check.is_some_and(|(check, resets)| !resets && script::can_spread(check))
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
            let first = step.checks.first().and_then(|at| self.checks.get(*at));
            let node_slot = first.map(|(check, _)| self.member.cluster.node_slot_of(check.key));
            match node_slot.filter(|node_slot| *node_slot > 0) {
                Some(node_slot) => next.entry(node_slot).or_default().push(step),
                None => self.progress.fail(&step.checks, StoreFault::ClusterDown),
            }
        }
    }

    /// One run for each hash tag of these checks. A reset has a run of its own: it removes a
    /// bucket, and while the slot migrates the node cannot create it again for the next check.
    fn tag_by_tag(&self, checks: impl IntoIterator<Item = usize>) -> Vec<Step> {
        let mut by_tag = BTreeMap::<(u8, Option<usize>), Vec<usize>>::new();
        for at in checks {
            if let Some((check, resets)) = self.checks.get(at) {
                let tag = (tag_of(check.key), resets.then_some(at));
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
        step.follows = step.follows.saturating_add(1);
        let mut key_by_key = false;
        let node_slot = match redirect {
            Redirect::Moved(Some((slot, to))) => {
                step.asking = false;
                cluster.moved(slot, &to, now_us)
            }
            Redirect::Moved(None) => {
                step.asking = false;
                cluster.refresh();
                let first = step.checks.first().and_then(|at| self.checks.get(*at));
                first.map(|(check, _)| cluster.node_slot_of(check.key))
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
        let node_slot = node_slot.filter(|node_slot| *node_slot > 0 && step.follows <= FOLLOWS_MAX);
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
            if let Some((check, resets)) = self.checks.get(*at) {
                let keys = (
                    *resets || script::has_marker(check),
                    script::has_ledger(check),
                );
                by_key.entry((check.key.0, keys)).or_default().push(*at);
            }
        }
        let steps = by_key.into_values().map(|checks| Step { checks, ..*step });
        steps.collect()
    }

    /// Sends a round to the node of this slot, as soon as it is connected.
    async fn round_elsewhere(self: Arc<Self>, node_slot: usize, steps: Vec<Step>) -> Round {
        let follows = steps.iter().map(|step| step.follows).max().unwrap_or(0);
        // The first redirect is followed at once: that finds a slot that has moved.
        if let Some(doublings) = follows.checked_sub(2) {
            let pause_ms = 1_u64.checked_shl(doublings).unwrap_or(PAUSE_MS_MAX);
            tokio::time::sleep(Duration::from_millis(pause_ms.min(PAUSE_MS_MAX))).await;
        }
        let cluster = &self.member.cluster;
        let address = cluster
            .assignment(node_slot)
            .and_then(|assigned| assigned.borrow().clone());
        let link = match (address.clone(), cluster.link(node_slot)) {
            (Some(_), Some(mut link)) => {
                let ready = link
                    .wait_for(|link| !matches!(link, Link::Connecting))
                    .await;
                ready.map_or(Link::Down(StoreFault::NotConnected), |link| link.clone())
            }
            // The node was unassigned meanwhile.
            _ => Link::Down(StoreFault::ClusterDown),
        };
        let address = address.unwrap_or_else(Address::nowhere);
        let steps: Vec<_> = steps
            .into_iter()
            .map(|step| (step, StepReply::Nothing))
            .collect();
        match link {
            Link::Up(connection) => self.round(connection, address, steps, false).await,
            Link::Down(fault) => Round {
                steps: failed(steps, fault),
                address,
                first: false,
            },
            Link::Connecting => Round {
                steps: failed(steps, StoreFault::NotConnected),
                address,
                first: false,
            },
        }
    }

    /// Sends all runs to a node in one write. If the node does not have the script, loads it and
    /// sends those runs again.
    async fn round(
        self: Arc<Self>,
        mut connection: Connection,
        address: Address,
        mut steps: Vec<(Step, StepReply)>,
        first: bool,
    ) -> Round {
        for (step, _) in &steps {
            self.progress.under_way(&step.checks);
        }
        self.send(&mut connection, &address, &mut steps).await;
        if steps
            .iter()
            .any(|(_, came)| matches!(came, StepReply::NoScript))
        {
            self.node.metrics.scripts_sent_again.inc();
            let loaded = connection.send_packed_command(&command::load()).await;
            match value(loaded) {
                Ok(_) => self.send(&mut connection, &address, &mut steps).await,
                Err(error) => {
                    for (_, came) in &mut steps {
                        if matches!(came, StepReply::NoScript) {
                            *came = StepReply::of_error(&error, &address);
                        }
                    }
                }
            }
        }
        Round {
            address,
            steps,
            first,
        }
    }

    /// Sends the runs without a reply and records the replies.
    async fn send(
        &self,
        connection: &mut Connection,
        address: &Address,
        steps: &mut [(Step, StepReply)],
    ) {
        let mut pipeline = Pipeline::new();
        let mut replies = 0_usize;
        let unanswered =
            |came: &StepReply| matches!(came, StepReply::Nothing | StepReply::NoScript);
        for (step, _) in steps.iter().filter(|(_, came)| unanswered(came)) {
            if step.asking {
                pipeline.add_command(redis::cmd("ASKING"));
                replies = replies.saturating_add(1);
            }
            let sent = |at: &usize| self.checks.get(*at).map(|(check, resets)| (check, *resets));
            let checks = || step.checks.iter().filter_map(sent);
            pipeline.add_command(if step.is_spread {
                let checks = || checks().map(|(check, _)| check);
                command::spread_step(&self.node.prefix, self.near, checks)
            } else {
                command::step(&self.node.prefix, self.near, step.with_ledgers, checks)
            });
            replies = replies.saturating_add(1);
        }
        let sent = connection.send_packed_commands(&pipeline, 0, replies).await;
        match sent {
            Ok(values) => {
                let mut values = values.into_iter();
                for (step, came) in steps.iter_mut().filter(|(_, came)| unanswered(came)) {
                    if step.asking {
                        // If the node rejects `ASKING`, it rejects the run too.
                        drop(values.next());
                    }
                    *came = StepReply::of(values.next(), address);
                }
            }
            Err(error) => {
                for (_, came) in steps.iter_mut().filter(|(_, came)| unanswered(came)) {
                    *came = StepReply::of_error(&error, address);
                }
            }
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
        }
    }
}

/// Runs for a node that is not connected.
fn failed(steps: Vec<(Step, StepReply)>, fault: StoreFault) -> Vec<(Step, StepReply)> {
    // A timeout concerns the checks that were sent. These were not.
    let fault = fault.while_breaker_open();
    let steps = steps.into_iter();
    steps
        .map(|(step, _)| (step, StepReply::StoreFault(fault, fault.to_string())))
        .collect()
}
