//! The decision of a candidate, from the message and the live verdict of a request.

use std::mem;
use std::rc::Rc;

use tollgate_limiter::{Code, Decision, LimitOrigin, Plan, Request, Status};

use crate::decisions::Recorder;
use crate::ended::{End, Ended, Matched};
use crate::pipeline::begin::purpose_of;
use crate::pipeline::candidate_rules::CandidateRules;
use crate::pipeline::candidate_rules::{CandidateRequest, LiveVerdict, takes};
use crate::pipeline::decode::decode;
use crate::pipeline::pending::{PendingRequest, Stage};
use crate::pipeline::{Generation, Pipeline};
use tollgate_admin_api::{CandidateOrigin, Verdict};
use tollgate_store::StoreError;
use tollgate_telemetry::metrics::{CandidateResult, CandidateSums};

/// Memory that is used again, and who may subscribe to a candidate's decisions.
pub(super) struct CandidateScratch {
    pub(super) request: Request<'static>,
    pub(super) statuses: Vec<Status<'static>>,
    pub(super) taps: Recorder,
}

// === impl Pipeline ===

impl Pipeline {
    /// Plans the checks of the candidate for a request whose live answer was given. Returns whether
    /// the candidate is to decide: the checks, possibly none, are then in `pending`.
    pub(super) fn begin_candidate(
        &self,
        pending: &mut PendingRequest,
        scratch: &mut CandidateScratch,
    ) -> bool {
        let Stage::Planned(rules) = &pending.stage else {
            return false;
        };
        let rules = Rc::clone(rules);
        let candidate = rules.candidate.as_ref();
        candidate.is_some_and(|candidate| self.plan_candidate(candidate, pending, scratch))
    }

    fn plan_candidate(
        &self,
        candidate: &CandidateRules,
        pending: &mut PendingRequest,
        scratch: &mut CandidateScratch,
    ) -> bool {
        let mut request = mem::take(&mut scratch.request).recycle();
        let message = mem::take(&mut pending.message);
        let decoded = decode(&message, self.config.request, &mut request).is_some();
        let begins = decoded && {
            let buffer = mem::take(&mut pending.plan);
            let plan = self.plan_request(buffer, &candidate.rules, &request);
            let too_many_steps = plan.matching_budget_exceeded();
            if too_many_steps {
                self.metrics.candidates.skipped_matching_steps.inc();
            }
            pending.purpose = purpose_of(&plan);
            let starts = plan.has_starts();
            pending.plan = plan.into_buffer();
            let checks = pending.plan.checks().len();
            pending.results.reset(checks);
            pending.candidate = CandidateRequest::new(candidate, &request);
            // A start asks for hits, though its message has 0.
            pending.candidate.takes |= starts;
            // A request that reaches no rule with a candidate says nothing about it.
            !too_many_steps && (checks > 0 || candidate.source == CandidateOrigin::Files)
        };
        scratch.request = request.recycle();
        pending.message = message;
        begins
    }

    /// Decides a request by the candidate and counts it. Nobody gets the answer.
    pub(super) fn finish_candidate(
        &self,
        pending: &mut PendingRequest,
        scratch: &mut CandidateScratch,
        sums: &mut CandidateSums,
        now_us: u64,
    ) {
        let stage = mem::take(&mut pending.stage);
        let (Stage::Planned(rules), Some(live)) = (stage, pending.live.take()) else {
            return;
        };
        let Some(candidate) = &rules.candidate else {
            return;
        };
        let buffer = mem::take(&mut pending.plan);
        let plan = Plan::from_buffer(buffer, &candidate.rules);
        let results = &mut pending.results;
        // Dropped without a commit, tentative takes go back.
        let (error, tentative) = (results.error.take(), results.tentative.take());
        if let Some(error) = error {
            self.count_skipped(&error);
        } else {
            let statuses = mem::take(&mut scratch.statuses);
            let mut decision = self.decide_plan(&plan, &results.outcomes, statuses);
            decision.code = live.with(decision.code);
            if let Some(tentative) = tentative {
                match decision.code {
                    Code::Ok => tentative.commit(),
                    Code::OverLimit => tentative.roll_back(),
                }
            }
            count(candidate, (&plan, &decision), live, pending.candidate, sums);
            if self.decisions.has_taps() {
                let decided = (&plan, &decision);
                self.tap_candidate(&rules, decided, live, pending, scratch, now_us);
            }
            scratch.statuses = decision.recycle_statuses();
        }
        pending.plan = plan.into_buffer();
    }

    #[cold]
    fn count_skipped(&self, error: &StoreError) {
        let metrics = &self.metrics.candidates;
        match error {
            StoreError::Full { .. } => metrics.skipped_memory_full.inc(),
            _ => metrics.skipped_queue_full.inc(),
        }
    }

    /// Passes the candidate's decision to the subscriptions that want it.
    #[cold]
    fn tap_candidate(
        &self,
        generation: &Generation,
        (plan, decision): (&Plan<'_>, &Decision<'_>),
        live: LiveVerdict,
        pending: &PendingRequest,
        scratch: &mut CandidateScratch,
        now_us: u64,
    ) {
        let Some(candidate) = &generation.candidate else {
            return;
        };
        let mut request = mem::take(&mut scratch.request).recycle();
        // It was decoded before.
        let _ = decode(&pending.message, self.config.request, &mut request);
        let matched = Matched {
            rules: &candidate.rules,
            names: &candidate.names,
            ..pending.results.matched(generation, plan, decision)
        };
        let ended = Ended {
            request: &request,
            message: &pending.message,
            took_us: now_us.saturating_sub(pending.began_us),
            end: End::Decided(&matched),
            live_verdict: Some(if live.refused {
                Verdict::OverLimit
            } else {
                Verdict::Ok
            }),
        };
        scratch.taps.pass_candidate(&ended);
        scratch.request = request.recycle();
    }
}

/// Counts a request for its domain and for each rule that answered a descriptor.
fn count(
    candidate: &CandidateRules,
    (plan, decision): (&Plan<'_>, &Decision<'_>),
    live: LiveVerdict,
    request: CandidateRequest,
    sums: &mut CandidateSums,
) {
    if !request.takes {
        return;
    }
    let refused = decision.code == Code::OverLimit;
    if let Some(counters) = candidate.of_domain(request.domain) {
        sums.add(counters, CandidateResult::new(live.refused, refused));
    }
    for status in &decision.statuses {
        let planned = status.check_index;
        let planned = planned.and_then(|index| plan.planned_check(index));
        let Some(planned) = planned.filter(|one| takes(one.check.operation.hits)) else {
            continue;
        };
        let LimitOrigin::Rule(rule) = planned.origin else {
            continue;
        };
        let refused_here = status.code == Code::OverLimit;
        // A rule that admits what another one refuses changes nothing for the request.
        let live_refused = live.refused && (refused_here || !refused);
        if let Some(counters) = candidate.of_rule(rule.index) {
            sums.add(counters, CandidateResult::new(live_refused, refused_here));
        }
    }
}
