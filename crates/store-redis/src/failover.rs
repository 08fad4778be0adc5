//! Failover between two stores: what the shared store cannot decide, this replica's own store
//! decides.
//!
//! A check says whether that is allowed ([`Check::may_fall_back`], from `on_store_failure: local`).
//! The shared store is asked first. If it is [unavailable](StoreError::Unavailable), the same check
//! goes to the second store with its limit divided by the last known number of replicas, so that
//! all replicas together admit about as many hits as the limit allows. When the shared store
//! answers again it decides again, and the counts of the second store expire.
//!
//! The division is not exact: a limit smaller than the number of replicas admits one hit on each; a
//! replica that does not know the others counts itself alone; a client that uses one replica gets
//! that replica's part only. A check that timed out may also be counted in the shared store.
//!
//! A reservation settles in the store that made it (`settle`).
//!
//! The first store judges its own health. No counts are copied between the stores.

mod settle;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Context;

use tollgate_limiter::{BucketNaming, Check};
use tollgate_store::shared::{RateLeases, SharedRecords};
use tollgate_store::{
    AskFuture, BatchClient, CheckResult, Deadline, DrainFuture, PartialReply, Purpose,
    RequestsApart, Store, StoreError, StoreHealth, StoreInspection, StoreReply, TentativeTake,
    Ticket,
};
use tollgate_telemetry::metrics::{PartitionLevels, StoreMetrics};

/// A store with a second store behind it.
#[derive(Clone)]
pub struct FailoverStore {
    first: Arc<dyn Store>,
    second: Arc<dyn Store>,
    /// What the second store's partitions hold.
    second_levels: Arc<[Arc<PartitionLevels>]>,
    metrics: StoreMetrics,
}

/// A batch client of both stores.
struct FailoverBatchClient {
    store: FailoverStore,
    /// Whether settles of reservations ask the second store first, while it has some.
    settles_in_turn: bool,
    /// Requests for which one store is asked after the other: settles, and resets.
    apart: RequestsApart,
    first: Box<dyn BatchClient>,
    second: Box<dyn BatchClient>,
    /// Requests by ticket, while the second store may have to decide them.
    retained: Vec<RetainedRequest>,
    /// Replies of the first store while the second decides some of their checks, by a ticket of
    /// their own.
    falling_back: HashMap<Ticket, FallbackReply>,
    next_ticket: Ticket,
    done: VecDeque<FallbackReply>,
    checks: Vec<Check>,
}

/// A request as it was sent to the first store. Without checks there is none.
struct RetainedRequest {
    checks: Vec<Check>,
    deadline: Deadline,
    purpose: Purpose,
}

/// A reply of the first store of which the second decides some checks.
struct FallbackReply {
    ticket: Ticket,
    /// The positions of its checks in the request.
    positions: Vec<usize>,
    answers: Vec<CheckResult>,
    /// Which of these checks the second store decides.
    undecided: Vec<usize>,
    /// The positions of those that it has decided.
    local: Vec<usize>,
    tentative: Option<TentativeTake>,
    /// How many replies of the second store are due.
    replies_due: usize,
}

// === impl FailoverStore ===

impl FailoverStore {
    /// A store that asks `first`, and `second` when `first` is unavailable.
    pub fn new(first: Arc<dyn Store>, second: Arc<dyn Store>, metrics: StoreMetrics) -> Self {
        let second_levels = second.inspect().partitions.into();
        Self {
            first,
            second,
            second_levels,
            metrics,
        }
    }

    /// A batch client; `settles_in_turn` says whether settles ask the second store first.
    fn client(&self, settles_in_turn: bool) -> FailoverBatchClient {
        FailoverBatchClient {
            first: self.first.batch_client(),
            second: self.second.batch_client(),
            store: self.clone(),
            settles_in_turn,
            apart: RequestsApart::default(),
            retained: Vec::new(),
            falling_back: HashMap::new(),
            next_ticket: 0,
            done: VecDeque::new(),
            checks: Vec::new(),
        }
    }

    /// Forgets the buckets in both stores. The first decides whether that is done: the second has
    /// only what this replica admitted while the first was away.
    async fn reset_both(self, checks: Vec<Check>) -> Result<StoreReply, StoreError> {
        let (never, purpose) = (Deadline::NEVER, Purpose::Reset);
        let mut first = self.first.ask(checks.clone(), never, purpose).await?;
        let second = self.second.ask(checks, never, purpose).await?;
        for (answer, other) in first.answers.iter_mut().zip(second.answers) {
            match (answer, other) {
                (Ok(outcome), Ok(other)) => {
                    outcome.used_before = outcome.used_before.max(other.used_before);
                }
                (answer @ Ok(_), Err(error)) => *answer = Err(error),
                (Err(_), _) => {}
            }
        }
        Ok(first)
    }
}

impl Store for FailoverStore {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        Box::new(self.client(true))
    }

    fn bucket_naming(&self) -> Option<BucketNaming> {
        self.first.bucket_naming()
    }

    fn drain(&self) -> DrainFuture<'_> {
        self.first.drain()
    }

    fn rate_leases(&self) -> Option<Arc<dyn RateLeases>> {
        self.first.rate_leases()
    }

    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        self.first.shared_records()
    }

    fn health(&self) -> Option<StoreHealth> {
        self.first.health()
    }

    fn inspect(&self) -> StoreInspection {
        self.first.inspect()
    }
}

/// The indexes of the checks that the first store did not decide, and the second may.
fn undecided<'c>(
    checks: impl IntoIterator<Item = &'c Check>,
    answers: &[CheckResult],
) -> Vec<usize> {
    let checks = checks.into_iter().zip(answers).enumerate();
    let undecided = checks.filter(|(_, (check, answer))| match answer {
        Err(StoreError::Unavailable(fault)) => settle::may_move(check, *fault),
        _ => false,
    });
    undecided.map(|(index, _)| index).collect()
}

/// The check with this replica's part of its limit.
fn own_part(check: &Check, metrics: &StoreMetrics) -> Check {
    let replicas = u32::try_from(metrics.replicas.get().max(1)).unwrap_or(u32::MAX);
    Check {
        limit: check.limit.divided_by(replicas),
        ..check.clone()
    }
}

// === impl FailoverBatchClient ===

impl FailoverBatchClient {
    /// Retains a request while the second store may have to decide it. Without checks: forgets the
    /// request that had this ticket before.
    fn retain(&mut self, ticket: Ticket, checks: &[Check], deadline: Deadline, purpose: Purpose) {
        let index = ticket as usize;
        if checks.is_empty() && self.retained.len() <= index {
            return;
        }
        let none = || RetainedRequest {
            checks: Vec::new(),
            deadline,
            purpose,
        };
        let len = self.retained.len().max(index + 1);
        self.retained.resize_with(len, none);
        if let Some(retained) = self.retained.get_mut(index) {
            retained.checks.clear();
            retained.checks.extend_from_slice(checks);
            retained.deadline = deadline;
            retained.purpose = purpose;
        }
    }

    /// Asks the second store for the checks that the first did not decide.
    fn fall_back(&mut self, mut reply: FallbackReply) {
        let Some(retained) = self.retained.get(reply.ticket as usize) else {
            self.done.push_back(reply);
            return;
        };
        self.checks.clear();
        for index in &reply.undecided {
            let position = reply.positions.get(*index);
            let check = position.and_then(|position| retained.checks.get(*position));
            let own_part = check.map(|check| own_part(check, &self.store.metrics));
            self.checks.extend(own_part);
        }
        let (deadline, purpose) = (retained.deadline, retained.purpose);
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        match self.second.add(ticket, &self.checks, deadline, purpose) {
            Ok(0) => self.done.push_back(reply),
            Ok(replies_due) => {
                reply.replies_due = replies_due;
                self.falling_back.insert(ticket, reply);
            }
            Err(error) => {
                for index in &reply.undecided {
                    if let Some(answer) = reply.answers.get_mut(*index) {
                        *answer = Err(error.clone());
                    }
                }
                self.done.push_back(reply);
            }
        }
    }

    /// Takes the replies of the second store.
    fn take_from_second(&mut self, cx: &mut Context<'_>) -> usize {
        let Self {
            store,
            second,
            falling_back,
            done,
            ..
        } = self;
        second.take_replies(cx, &mut |part| {
            let Entry::Occupied(mut entry) = falling_back.entry(part.ticket) else {
                return;
            };
            let reply = entry.get_mut();
            for (position, answer) in part.positions.iter().zip(part.answers) {
                let Some(index) = reply.undecided.get(*position) else {
                    continue;
                };
                if answer.is_ok() {
                    store.metrics.decided_locally.inc();
                }
                if let Some(slot) = reply.answers.get_mut(*index) {
                    slot.clone_from(answer);
                }
                reply.local.extend(reply.positions.get(*index));
            }
            TentativeTake::merge(&mut reply.tentative, part.tentative);
            reply.replies_due -= 1;
            if reply.replies_due == 0 {
                done.push_back(entry.remove());
            }
        })
    }
}

impl BatchClient for FailoverBatchClient {
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        purpose: Purpose,
    ) -> Result<usize, StoreError> {
        let is_reset = purpose == Purpose::Reset;
        if is_reset || (self.settles_in_turn && self.store.settles_in_second(checks)) {
            self.retain(ticket, &[], deadline, purpose);
            let (store, owned) = (self.store.clone(), checks.to_vec());
            let reply: AskFuture<'static> = if is_reset {
                Box::pin(store.reset_both(owned))
            } else {
                Box::pin(store.settle(owned, deadline, purpose))
            };
            self.apart.push(ticket, checks.len(), reply);
            return Ok(1);
        }
        let may_fall_back = checks.iter().any(|check| check.may_fall_back);
        let retained = if may_fall_back { checks } else { &[] };
        self.retain(ticket, retained, deadline, purpose);
        match self.first.add(ticket, checks, deadline, purpose) {
            Err(error @ StoreError::Unavailable(_)) if may_fall_back => {
                let answers = vec![Err(error); checks.len()];
                self.fall_back(FallbackReply {
                    ticket,
                    positions: (0..checks.len()).collect(),
                    undecided: undecided(checks, &answers),
                    answers,
                    local: Vec::new(),
                    tentative: None,
                    replies_due: 0,
                });
                Ok(1)
            }
            added => added,
        }
    }

    fn send(&mut self) {
        self.first.send();
        self.second.send();
    }

    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        let mut messages = self.apart.take_replies(cx, take);
        let mut fall_back = Vec::new();
        let retained = &self.retained;
        messages += self.first.take_replies(cx, &mut |reply| {
            let undecided = match retained.get(reply.ticket as usize) {
                Some(retained) if !retained.checks.is_empty() => {
                    let positions = reply.positions.iter();
                    let checks = positions.filter_map(|position| retained.checks.get(*position));
                    undecided(checks, reply.answers)
                }
                _ => Vec::new(),
            };
            if undecided.is_empty() {
                take(reply);
            } else {
                fall_back.push(FallbackReply {
                    ticket: reply.ticket,
                    positions: reply.positions.to_vec(),
                    answers: reply.answers.to_vec(),
                    undecided,
                    local: Vec::new(),
                    tentative: reply.tentative,
                    replies_due: 0,
                });
            }
        });
        if !fall_back.is_empty() {
            for reply in fall_back {
                self.fall_back(reply);
            }
            self.second.send();
        }
        messages += self.take_from_second(cx);
        while let Some(reply) = self.done.pop_front() {
            messages += 1;
            take(PartialReply {
                ticket: reply.ticket,
                positions: &reply.positions,
                answers: &reply.answers,
                tentative: reply.tentative,
                from_denial_cache: false,
                local: &reply.local,
                stamp: None,
            });
        }
        messages
    }
}
