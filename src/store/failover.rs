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

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;

use crate::metrics::{PartitionLevels, StoreMetrics};
use crate::store::rate_leases::RateLeases;
use crate::store::{
    AskFuture, BatchClient, CheckResult, Deadline, DrainFuture, PartialReply, Purpose,
    RequestsApart, Store, StoreError, StoreHealth, StoreInspection, StoreReply, TentativeTake,
    Ticket,
};
use tollgate_limiter::{BucketNaming, Check};

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
    metrics: StoreMetrics,
    /// Requests by ticket, while the second store may have to decide them.
    kept: Vec<RetainedRequest>,
    /// Requests to the second store, by tickets of its own.
    again: Vec<FallbackRequest>,
    free: Vec<Ticket>,
    done: VecDeque<FallbackRequest>,
    checks: Vec<Check>,
}

/// A request as it was sent to the first store.
#[derive(Default)]
struct RetainedRequest {
    checks: Vec<Check>,
    deadline: Option<Deadline>,
    purpose: Option<Purpose>,
}

/// A reply of the first store of which the second decides some checks.
#[derive(Default)]
struct FallbackRequest {
    ticket: Ticket,
    positions: Vec<usize>,
    answers: Vec<CheckResult>,
    /// The checks that the second store decides.
    asked: Vec<usize>,
    /// Their positions in the request, once it has decided them.
    local: Vec<usize>,
    tentative: Option<TentativeTake>,
    replies: usize,
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
            metrics: self.metrics.clone(),
            kept: Vec::new(),
            again: Vec::new(),
            free: Vec::new(),
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

    fn health(&self) -> Option<StoreHealth> {
        self.first.health()
    }

    fn inspect(&self) -> StoreInspection {
        self.first.inspect()
    }
}

/// The positions of the checks that the first store did not decide, and the second may.
fn undecided<'c>(
    checks: impl IntoIterator<Item = &'c Check>,
    answers: &[CheckResult],
) -> Vec<usize> {
    let mut undecided = Vec::new();
    for (place, (check, answer)) in checks.into_iter().zip(answers).enumerate() {
        if let Err(StoreError::Unavailable(fault)) = answer
            && settle::may_move(check, *fault)
        {
            undecided.push(place);
        }
    }
    undecided
}

/// The check with this replica's part of its limit.
fn own_part(check: &Check, metrics: &StoreMetrics) -> Check {
    let replicas = u32::try_from(metrics.replicas.get().max(1)).unwrap_or(u32::MAX);
    Check {
        limit: check.limit.divided_by(replicas),
        ..check.clone()
    }
}

fn put(answers: &mut [CheckResult], place: usize, answer: CheckResult, metrics: &StoreMetrics) {
    if answer.is_ok() {
        metrics.decided_locally.inc();
    }
    if let Some(slot) = answers.get_mut(place) {
        *slot = answer;
    }
}

// === impl FailoverBatchClient ===

impl FailoverBatchClient {
    /// Keeps a request while the second store may have to decide it.
    fn keep(&mut self, ticket: Ticket, checks: &[Check], deadline: Deadline, purpose: Purpose) {
        let place = ticket as usize;
        if self.kept.len() <= place {
            self.kept
                .resize_with(place.saturating_add(1), RetainedRequest::default);
        }
        if let Some(kept) = self.kept.get_mut(place) {
            kept.checks.clear();
            kept.checks.extend_from_slice(checks);
            kept.deadline = Some(deadline);
            kept.purpose = Some(purpose);
        }
    }

    /// Asks the second store for the checks that the first did not decide.
    fn ask_again(&mut self, mut again: FallbackRequest) {
        let Some(kept) = self.kept.get(again.ticket as usize) else {
            self.done.push_back(again);
            return;
        };
        self.checks.clear();
        let lacking = again
            .asked
            .iter()
            .filter_map(|place| again.positions.get(*place));
        let lacking = lacking.filter_map(|position| kept.checks.get(*position));
        let metrics = &self.metrics;
        self.checks
            .extend(lacking.map(|check| own_part(check, metrics)));
        let purpose = kept.purpose.unwrap_or(Purpose::Decide);
        let deadline = kept.deadline.unwrap_or(Deadline::NEVER);
        let own = self.free.pop().unwrap_or_else(|| {
            self.again.push(FallbackRequest::default());
            // There are no more than requests, and tickets count those.
            Ticket::try_from(self.again.len().saturating_sub(1)).unwrap_or(Ticket::MAX)
        });
        match self.second.add(own, &self.checks, deadline, purpose) {
            Ok(replies) if replies > 0 => {
                again.replies = replies;
                if let Some(slot) = self.again.get_mut(own as usize) {
                    *slot = again;
                }
            }
            Ok(_) => {
                self.free.push(own);
                self.done.push_back(again);
            }
            Err(error) => {
                self.free.push(own);
                for place in &again.asked {
                    if let Some(slot) = again.answers.get_mut(*place) {
                        *slot = Err(error.clone());
                    }
                }
                self.done.push_back(again);
            }
        }
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
            if let Some(kept) = self.kept.get_mut(ticket as usize) {
                kept.checks.clear();
            }
            let (store, owned) = (self.store.clone(), checks.to_vec());
            let reply: AskFuture<'static> = if is_reset {
                Box::pin(store.reset_both(owned))
            } else {
                Box::pin(store.settle(owned, deadline, purpose))
            };
            self.apart.push(ticket, checks.len(), reply);
            return Ok(1);
        }
        let local = checks.iter().any(|check| check.may_fall_back);
        let added = self.first.add(ticket, checks, deadline, purpose);
        if !local {
            // The ticket is reused; its old request is over.
            if let Some(kept) = self.kept.get_mut(ticket as usize) {
                kept.checks.clear();
            }
            return added;
        }
        self.keep(ticket, checks, deadline, purpose);
        match added {
            Err(error @ StoreError::Unavailable(_)) => {
                let answers = vec![Err(error); checks.len()];
                let asked = undecided(checks, &answers);
                self.ask_again(FallbackRequest {
                    ticket,
                    positions: (0..checks.len()).collect(),
                    answers,
                    asked,
                    local: Vec::new(),
                    tentative: None,
                    replies: 0,
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
        let apart = self.apart.take_replies(cx, take);
        let mut lacking = Vec::new();
        let kept = &self.kept;
        let mut messages = self.first.take_replies(cx, &mut |share| {
            let asked = match kept.get(share.ticket as usize) {
                Some(kept) if !kept.checks.is_empty() => {
                    let places = share.positions.iter();
                    let checks = places.filter_map(|place| kept.checks.get(*place));
                    undecided(checks, share.answers)
                }
                _ => Vec::new(),
            };
            if asked.is_empty() {
                take(share);
            } else {
                lacking.push(FallbackRequest {
                    ticket: share.ticket,
                    positions: share.positions.to_vec(),
                    answers: share.answers.to_vec(),
                    asked,
                    local: Vec::new(),
                    tentative: share.tentative,
                    replies: 0,
                });
            }
        });
        if !lacking.is_empty() {
            for again in lacking {
                self.ask_again(again);
            }
            self.second.send();
        }
        let Self {
            second,
            again,
            free,
            done,
            metrics,
            ..
        } = self;
        let from_second = second.take_replies(cx, &mut |share| {
            let Some(slot) = again.get_mut(share.ticket as usize) else {
                return;
            };
            for (position, answer) in share.positions.iter().zip(share.answers) {
                if let Some(place) = slot.asked.get(*position) {
                    put(&mut slot.answers, *place, answer.clone(), metrics);
                    slot.local.extend(slot.positions.get(*place));
                }
            }
            TentativeTake::merge(&mut slot.tentative, share.tentative);
            slot.replies = slot.replies.saturating_sub(1);
            if slot.replies == 0 {
                done.push_back(std::mem::take(slot));
                free.push(share.ticket);
            }
        });
        messages = messages.saturating_add(from_second).saturating_add(apart);
        while let Some(again) = self.done.pop_front() {
            messages = messages.saturating_add(1);
            take(PartialReply {
                ticket: again.ticket,
                positions: &again.positions,
                answers: &again.answers,
                tentative: again.tentative,
                from_denial_cache: false,
                local: &again.local,
                stamp: None,
            });
        }
        messages
    }
}
