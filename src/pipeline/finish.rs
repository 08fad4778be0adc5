//! The second half of a decision: decide from what the store answered, count, encode.

use std::ops::Deref;

use prost::Message as _;
use tollgate_limiter::{Code, Decision, OnStoreFailure, Outcome, Plan, Request, Status};

use crate::admin_api::Reason;
use crate::decisions::Ending;
use crate::pipeline::capturing::CapturedAnswer;
use crate::pipeline::decision_log::{self, Outcome as Logged};
use crate::pipeline::decode::decode;
use crate::pipeline::dropped::looks_or_refuses;
use crate::pipeline::dynamic_metadata::dynamic_metadata;
use crate::pipeline::encode::EncodedResponse;
use crate::pipeline::live_verdict::LiveVerdict;
use crate::pipeline::pending::{CheckResults, PendingRequest, Scratch, Stage};
use crate::pipeline::recording::matched;
use crate::pipeline::{Generation, Pipeline, RequestError, over_limit};
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::settings::Verdict;
use crate::store::StoreError;
use crate::tracing::{RequestOutcome, Span};

impl Pipeline {
    /// Decides a request that [`Pipeline::begin`] has planned and whose checks have been applied,
    /// counts it, and hands its response or the reason for none to `respond`.
    ///
    /// `now_us` is the clock's uptime.
    pub(crate) fn finish<G, T>(
        &self,
        pending: &mut PendingRequest<G>,
        scratch: &mut Scratch,
        now_us: u64,
        respond: impl FnOnce(Result<EncodedResponse<'_>, RequestError>) -> T,
    ) -> T
    where
        G: Deref,
        G::Target: AsRef<Generation>,
    {
        let took_us = now_us.saturating_sub(pending.began_us);
        #[allow(clippy::cast_precision_loss)] // a latency of 2^53 µs is not one
        scratch.response_time.observe(took_us as f64 / 1e6);
        let span = pending.span.take();
        let log = |message: &[u8], outcome| {
            if decision_log::is_enabled() {
                decision_log::log(message, self.request_policy, outcome, took_us);
            }
        };
        match std::mem::take(&mut pending.stage) {
            Stage::Failed(error) => {
                log(&pending.message, Logged::Failed(&error));
                self.record(pending, scratch, took_us, None, Ending::Failed(&error));
                self.capture(pending, scratch, &CapturedAnswer::of_setting(None));
                respond(Err(self.failed(error, span)))
            }
            Stage::Decided(code, _) => {
                let decision = Decision::of_code(code);
                log(&pending.message, Logged::Decided(&decision, None));
                self.record(pending, scratch, took_us, None, Ending::Excess(code));
                self.capture(pending, scratch, &CapturedAnswer::of_setting(Some(code)));
                self.end_span(span, RequestOutcome::Decided(&decision, None));
                respond(Ok(EncodedResponse::new(&decision, &[])))
            }
            Stage::Planned => {
                let Some(kept) = pending.rules.take() else {
                    self.capture(pending, scratch, &CapturedAnswer::of_setting(None));
                    return respond(Err(self.failed(RequestError::NoRules, span)));
                };
                let rules = (*kept).as_ref();
                let mut live = None;
                let generation = Some(rules.number);
                let plan = Plan::from_buffer(std::mem::take(&mut pending.plan), &rules.rules);
                let decided = self.decide(rules, &plan, pending, scratch);
                self.count_keys(&plan, pending, scratch, now_us);
                let answer = match decided {
                    Err(error) => {
                        let answer = CapturedAnswer::of_plan(rules.number, &plan, None);
                        self.capture(pending, scratch, &answer);
                        log(&pending.message, Logged::Failed(&error));
                        if pending.wanted.any() {
                            self.record_undecided(pending, scratch, took_us, rules, &plan, &error);
                        }
                        if rules.candidate.is_some() {
                            self.skip_without_verdict();
                        }
                        respond(Err(self.failed(error, span)))
                    }
                    Ok(decision) => {
                        let answer = CapturedAnswer::of_plan(rules.number, &plan, Some(&decision));
                        self.capture(pending, scratch, &answer);
                        log(&pending.message, Logged::Decided(&decision, Some(&plan)));
                        if pending.wanted.any() {
                            let ending = Ending::Decided(matched(rules, &plan, &decision, pending));
                            self.record(pending, scratch, took_us, generation, ending);
                        }
                        if let Some(candidate) = &rules.candidate {
                            let outcomes = &pending.results.outcomes;
                            live = Some(LiveVerdict::new(candidate, &plan, outcomes, &decision));
                        }
                        self.encode_extras(pending, &plan, &decision, &mut scratch.extras);
                        self.end_span(span, RequestOutcome::Decided(&decision, Some(&plan)));
                        let answer = respond(Ok(EncodedResponse::new(&decision, &scratch.extras)));
                        scratch.statuses = decision.recycle_statuses();
                        answer
                    }
                };
                pending.plan = plan.into_buffer();
                if live.is_some() {
                    // The candidate decides by the same generation.
                    pending.live = live;
                    pending.rules = Some(kept);
                }
                answer
            }
        }
    }

    /// Ends a request whose caller has gone. Hits that it took tentatively go back.
    pub(crate) fn cancel<G>(&self, pending: &mut PendingRequest<G>, scratch: &mut Scratch)
    where
        G: Deref,
        G::Target: AsRef<Generation>,
    {
        let rules = pending.rules.as_deref().map(AsRef::as_ref);
        if rules.is_some_and(|rules| rules.candidate.is_some()) {
            self.skip_without_verdict();
        }
        if pending.captured.is_some()
            && let Some(rules) = pending.rules.take()
        {
            let rules = (*rules).as_ref();
            let plan = Plan::from_buffer(std::mem::take(&mut pending.plan), &rules.rules);
            let answer = CapturedAnswer::of_plan(rules.number, &plan, None);
            self.capture(pending, scratch, &answer);
            pending.plan = plan.into_buffer();
        }
        self.end_span(pending.span.take(), RequestOutcome::Error("CANCELLED"));
        pending.results.tentative = None;
    }

    /// Counts a request that has no answer, and ends its span.
    fn failed(&self, error: RequestError, span: Option<Box<Span>>) -> RequestError {
        match error {
            RequestError::Store(_) => self.metrics.requests.store_errors.inc(),
            _ => self.metrics.requests.service_errors.inc(),
        }
        self.end_span(span, RequestOutcome::Error(error.grpc_code()));
        error
    }

    /// The decision, what happens to hits taken tentatively, and the counts of both.
    fn decide<'r, G>(
        &self,
        rules: &'r Generation,
        plan: &Plan<'r>,
        pending: &mut PendingRequest<G>,
        scratch: &mut Scratch,
    ) -> Result<Decision<'r>, RequestError> {
        let mut request = Request::default();
        if Self::labels_need_request(plan) {
            request = std::mem::take(&mut scratch.request).recycle();
            // It was decoded before.
            let _ = decode(&pending.message, self.request_policy, &mut request);
        }
        let CheckResults {
            outcomes,
            error,
            tentative,
            undecided,
            ..
        } = &mut pending.results;
        let (error, tentative) = (error.take(), tentative.take());
        let statuses = std::mem::take(&mut scratch.statuses);
        let decided = self.conclude(plan, outcomes, error, statuses, undecided);
        let counts = &mut scratch.counts;
        let result = match decided {
            Ok(decision) => {
                if let Some(tentative) = tentative {
                    match decision.code {
                        Code::Ok => tentative.commit(),
                        Code::OverLimit => tentative.roll_back(),
                    }
                }
                self.count_outcomes(rules, &request, plan, outcomes, &decision, counts);
                self.count_reservations(rules, &request, plan, outcomes, decision.code);
                if looks_or_refuses(plan, outcomes) && !pending.is_api {
                    rules.count_dropped(plan, outcomes, decision.code);
                }
                counts.decided(decision.code);
                if decision.shadowed {
                    self.metrics.requests.global_shadow_mode.inc();
                }
                Ok(decision)
            }
            Err(error) => {
                // Checks that were decided are counted; hits taken tentatively go back.
                let decided = plan.decide(outcomes, Code::Ok, self.response_policy.modes);
                self.count_outcomes(rules, &request, plan, outcomes, &decided, counts);
                // Starts that were decided go back, as if refused.
                self.count_reservations(rules, &request, plan, outcomes, Code::OverLimit);
                Err(error.into())
            }
        };
        if !request.is_empty() {
            scratch.request = request.recycle();
        }
        result
    }

    /// The decision, or a setting's answer for checks that the store did not decide: the one on
    /// overload or, for the store that replicas share, the one on its failure, which a domain may
    /// override. A check that refuses the request refuses it whatever became of the others.
    /// `reason` is set where a setting answers.
    fn conclude<'r>(
        &self,
        plan: &Plan<'r>,
        outcomes: &[Option<Outcome>],
        error: Option<StoreError>,
        statuses: Vec<Status<'r>>,
        reason: &mut Option<Reason>,
    ) -> Result<Decision<'r>, StoreError> {
        let modes = self.response_policy.modes;
        let Some(error) = error else {
            return Ok(self.decide_plan(plan, outcomes, statuses));
        };
        let verdict = match &error {
            StoreError::DeadlineExceeded => Verdict::Error,
            StoreError::Unavailable(_) => match plan.on_store_failure() {
                // The replica's own store did not decide either.
                OnStoreFailure::Error | OnStoreFailure::Local => Verdict::Error,
                OnStoreFailure::Allow => Verdict::Allow,
                OnStoreFailure::Deny => Verdict::Deny,
            },
            _ => self.response_policy.on_overload,
        };
        let failed = matches!(error, StoreError::Unavailable(_));
        let undecided = match verdict {
            Verdict::Error => {
                let decision = plan.decide(outcomes, Code::Ok, modes);
                return match decision.code {
                    Code::OverLimit => Ok(decision),
                    Code::Ok => {
                        if failed {
                            self.metrics.store.failure_errors.inc();
                        }
                        Err(error)
                    }
                };
            }
            Verdict::Allow => Code::Ok,
            Verdict::Deny => Code::OverLimit,
        };
        *reason = Some(match (failed, undecided) {
            (false, Code::Ok) => Reason::OverloadAllowed,
            (false, Code::OverLimit) => Reason::OverloadDenied,
            (true, Code::Ok) => Reason::StoreFailureAllowed,
            (true, Code::OverLimit) => Reason::StoreFailureDenied,
        });
        match (failed, undecided) {
            (false, _) => self.metrics.requests.overload_answers.inc(),
            (true, Code::Ok) => self.metrics.store.failure_allowed.inc(),
            (true, Code::OverLimit) => self.metrics.store.failure_denied.inc(),
        }
        Ok(plan.decide(outcomes, undecided, modes))
    }

    /// The decision when every check was decided.
    #[inline]
    pub(super) fn decide_plan<'r>(
        &self,
        plan: &Plan<'r>,
        outcomes: &[Option<Outcome>],
        statuses: Vec<Status<'r>>,
    ) -> Decision<'r> {
        plan.decide_into(statuses, outcomes, Code::Ok, self.response_policy.modes)
    }

    /// Passes a request that the store did not decide to the readers that want it.
    #[cold]
    fn record_undecided<G>(
        &self,
        pending: &PendingRequest<G>,
        scratch: &mut Scratch,
        took_us: u64,
        rules: &Generation,
        plan: &Plan<'_>,
        error: &RequestError,
    ) {
        let modes = self.response_policy.modes;
        let decision = plan.decide(&pending.results.outcomes, Code::Ok, modes);
        let ending = Ending::Undecided(matched(rules, plan, &decision, pending), error);
        self.record(pending, scratch, took_us, Some(rules.number), ending);
    }

    /// Encodes the fields that only some responses have: headers, a body, dynamic metadata.
    fn encode_extras<G>(
        &self,
        pending: &PendingRequest<G>,
        plan: &Plan<'_>,
        decision: &Decision<'_>,
        into: &mut Vec<u8>,
    ) {
        let mut extras = RateLimitResponse::default();
        if let Some(headers) = &self.response_policy.headers {
            extras.response_headers_to_add = headers.of(decision);
            extras.request_headers_to_add = headers.of_request(decision);
        }
        over_limit::put(&mut extras, plan, decision);
        if self.response_policy.dynamic_metadata
            && let Ok(request) = RateLimitRequest::decode(&*pending.message)
        {
            extras.dynamic_metadata = Some(dynamic_metadata(&request, plan, decision));
        }
        into.clear();
        if extras.encoded_len() > 0 {
            // A vector grows as needed.
            let _ = extras.encode(into);
        }
    }
}
