//! One request from `begin` to `end`, and the memory that requests reuse.
//!
//! Why two types: a thread has one [`Scratch`], and as many [`PendingRequest`]s as requests that
//! wait for the store at the same time. Both keep their memory from request to request, so the
//! steady state allocates nothing.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use tollgate_limiter::{
    Check, Code, Decision, Outcome, Plan, PlanBuffer, Request, RuleSet, Status,
};

use crate::ended::{Matched, RequestError};
use crate::pipeline::api_call::{ApiCall, Rounds};
use crate::pipeline::candidate_rules::{CandidateRequest, LiveVerdict};
use crate::pipeline::encode_check::CheckBuffers;
use crate::pipeline::observers::{Noted, Observers};
use crate::pipeline::{Generation, Pipeline};
use tollgate_admin_api::Reason;
use tollgate_store::{
    CheckStamp, Deadline, PartialReply, Purpose, StoreError, TentativeTake, put_stamps,
};

/// What one thread needs for any number of requests, one after the other: memory that is used
/// again, and its observers.
pub(crate) struct Scratch {
    pub(super) request: Request<'static>,
    pub(super) statuses: Vec<Status<'static>>,
    /// The encoded response.
    pub(super) response: Vec<u8>,
    /// The encoded answer to a check of the API.
    pub(super) check: CheckBuffers,
    pub(crate) observers: Observers,
}

/// A generation of rules, counted by one thread alone: its requests do not touch the count that all
/// threads share.
pub(crate) struct SharedRules(pub(super) Arc<Generation>);

/// One request, from `begin` to `end`.
#[derive(Default)]
pub(crate) struct PendingRequest {
    pub(super) stage: Stage,
    pub(super) plan: PlanBuffer,
    pub(super) results: CheckResults,
    /// Whether its takes go back unless all its limits pass.
    pub(crate) purpose: Purpose,
    /// When the answers to its checks are no longer of use.
    pub(super) deadline: Deadline,
    /// Whether the store was asked about its checks, or about some.
    pub(super) is_asked: bool,
    /// How many partial replies of the store are still to come.
    pub(super) replies_due: usize,
    /// Whether the caller commits tentative takes of a request that passes, and not `end`.
    pub(super) commits_later: bool,
    /// The message, where the answer, its metrics or a reader of decisions need the request again.
    /// Else empty.
    pub(super) message: Vec<u8>,
    pub(super) noted: Noted,
    /// What a call of the API asks; none for a request of another way in.
    pub(super) api: Option<Rc<ApiCall>>,
    /// The order in which its limits are settled; none where all are asked at once.
    pub(super) rounds: Option<Box<Rounds>>,
    pub(super) began_us: u64,
    /// The live answer, once it was given, where a candidate is to decide too.
    pub(super) live: Option<LiveVerdict>,
    /// What a candidate's decision needs of the request.
    pub(super) candidate: CandidateRequest,
}

/// What `begin` made of a request.
pub(super) enum Stage {
    /// There is a plan by these rules; its checks, if any, are to be applied.
    Planned(Rc<SharedRules>),
    /// A setting answers a request that exceeds a bound; the error is that of a call that no
    /// setting answers.
    Bound(Code, RequestError),
    /// There is no answer.
    Failed(RequestError),
}

/// The store's answers to a plan's checks.
#[derive(Debug, Default)]
pub(crate) struct CheckResults {
    /// In the plan's order; none for a check that was not decided.
    pub(super) outcomes: Vec<Option<Outcome>>,
    /// The first reason why one was not.
    pub(super) error: Option<StoreError>,
    /// Hits that go back to the store unless the request passes.
    pub(super) tentative: Option<TentativeTake>,
    /// Whether the denial cache answered.
    pub(super) from_denial_cache: bool,
    /// The positions of checks that the fallback decided.
    pub(super) local: Vec<usize>,
    /// The reason of checks that were not decided and that a setting answered.
    pub(super) undecided: Option<Reason>,
    /// When checks were decided, while a recording runs. Else empty.
    pub(super) stamps: Vec<CheckStamp>,
}

// === impl Scratch ===

impl Scratch {
    /// Empty memory, and these observers.
    pub(super) fn new(observers: Observers) -> Self {
        Self {
            request: Request::default(),
            statuses: Vec::new(),
            response: Vec::new(),
            check: CheckBuffers::default(),
            observers,
        }
    }
}

// === impl SharedRules ===

impl Deref for SharedRules {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.0
    }
}

// === impl PendingRequest ===

impl PendingRequest {
    /// The checks for the store, in order. Empty if the answer needs no store.
    pub(crate) fn checks(&self) -> &[Check] {
        match self.stage {
            Stage::Planned(_) => self.plan.checks(),
            Stage::Bound(..) | Stage::Failed(_) => &[],
        }
    }

    /// Records a part of the answers. Those to a round have their positions in the round.
    pub(super) fn record(&mut self, reply: PartialReply<'_>) {
        let Some(round) = self.round() else {
            return self.results.record(reply);
        };
        let of_request = |places: &[usize]| -> Vec<usize> {
            let places = places.iter();
            places
                .filter_map(|place| round.get(*place).copied())
                .collect()
        };
        let (positions, local) = (of_request(reply.positions), of_request(reply.local));
        self.results.record(PartialReply {
            positions: &positions,
            local: &local,
            ..reply
        });
    }

    /// The plan by the rules that the request began with. The request keeps no plan then.
    pub(super) fn take_plan<'r>(&mut self, rules: &'r RuleSet) -> Plan<'r> {
        Plan::from_buffer(std::mem::take(&mut self.plan), rules)
    }

    /// Puts back a plan that [`PendingRequest::take_plan`] gave.
    pub(super) fn put_plan(&mut self, plan: Plan<'_>) {
        self.plan = plan.into_buffer();
    }

    /// Drops everything but memory worth keeping: at most `message_bytes_max` bytes of message.
    pub(crate) fn clear(&mut self, message_bytes_max: usize) {
        // `end` leaves no rules but those of a candidate.
        if self.live.take().is_some() {
            self.stage = Stage::default();
        }
        self.api = None;
        self.rounds = None;
        self.noted.span = None;
        self.results.tentative = None;
        self.message.clear();
        if self.message.capacity() > message_bytes_max {
            self.message = Vec::new();
        }
    }
}

impl Default for Stage {
    /// Of memory without a request.
    fn default() -> Self {
        Self::Failed(RequestError::NoRules)
    }
}

// === impl CheckResults ===

impl CheckResults {
    /// No answers yet, to this many checks.
    pub(super) fn reset(&mut self, checks: usize) {
        self.outcomes.clear();
        self.outcomes.resize(checks, None);
        self.error = None;
        self.tentative = None;
        self.from_denial_cache = false;
        self.local.clear();
        self.undecided = None;
        self.stamps.clear();
    }

    /// Records that checks were not decided. The first reason is kept.
    pub(crate) fn fail(&mut self, error: StoreError) {
        self.error.get_or_insert(error);
    }

    /// Records a part of the answers.
    pub(crate) fn record(&mut self, reply: PartialReply<'_>) {
        for (position, answer) in reply.positions.iter().zip(reply.answers) {
            match answer {
                Ok(outcome) => {
                    if let Some(slot) = self.outcomes.get_mut(*position) {
                        *slot = Some(*outcome);
                    }
                }
                Err(error) => self.fail(error.clone()),
            }
        }
        TentativeTake::merge(&mut self.tentative, reply.tentative);
        self.from_denial_cache |= reply.from_denial_cache;
        self.local.extend_from_slice(reply.local);
        if let Some(stamp) = reply.stamp {
            let count = self.outcomes.len();
            put_stamps(&mut self.stamps, count, reply.positions, &stamp);
        }
    }

    /// A request that was matched against these rules, with these answers.
    pub(super) fn matched<'a>(
        &'a self,
        rules: &'a Generation,
        plan: &'a Plan<'a>,
        decision: &'a Decision<'a>,
    ) -> Matched<'a> {
        Matched {
            generation: rules.number,
            rules: &rules.rules,
            names: &rules.names,
            plan,
            decision,
            outcomes: &self.outcomes,
            from_denial_cache: self.from_denial_cache,
            local: &self.local,
            undecided: self.undecided,
            stamps: &self.stamps,
        }
    }
}

impl Pipeline {
    /// The rules in use, if any were ever loaded: those of `known` by its own count where they are
    /// still in use.
    pub(super) fn shared_rules(
        &self,
        known: &mut Option<Rc<SharedRules>>,
    ) -> Option<Rc<SharedRules>> {
        if let Some(rules) = known
            && self.generations.is_current(&rules.0)
        {
            return Some(Rc::clone(rules));
        }
        *known = self.generations.current().map(SharedRules).map(Rc::new);
        known.clone()
    }
}
