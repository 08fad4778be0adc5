//! The end of a request: decide it from what the store answered, show observers how it ended,
//! respond.

use prost::Message as _;
use tollgate_limiter::{Code, Decision, OnUndecided, Outcome, Plan, Request, Status};

use crate::decisions::has_event;
use crate::ended::{End, Ended, RequestError};
use crate::pipeline::api::after_refunds;
use crate::pipeline::candidate_rules::LiveVerdict;
use crate::pipeline::decode::decode;
use crate::pipeline::dynamic_metadata::dynamic_metadata;
use crate::pipeline::encode::EncodedResponse;
use crate::pipeline::encode_check::DecidedChecks;
use crate::pipeline::headers::{chosen_over_limit, put_over_limit};
use crate::pipeline::observers::ObserverContext;
use crate::pipeline::pending::{CheckResults, PendingRequest, Scratch, Stage};
use crate::pipeline::{Generation, Pipeline};
use tollgate_admin_api::Reason;
use tollgate_store::StoreError;
use tollgate_wire::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

impl Pipeline {
    /// Ends a request that [`Pipeline::begin`] has begun and whose checks have been applied, and
    /// hands its response or the reason for none to `respond`.
    ///
    /// `is_left` says that its caller has gone: hits that it took tentatively go back then, and
    /// nobody is answered. `now_us` is the clock's uptime.
    pub(crate) fn end<T>(
        &self,
        pending: &mut PendingRequest,
        scratch: &mut Scratch,
        now_us: u64,
        is_left: bool,
        respond: impl FnOnce(Result<EncodedResponse<'_>, RequestError>) -> T,
    ) -> Option<T> {
        match std::mem::take(&mut pending.stage) {
            Stage::Failed(error) => {
                self.show_unmatched(pending, scratch, now_us, End::Failed(&error));
                Some(respond(Err(error)))
            }
            Stage::Bound(code, _) => {
                self.show_unmatched(pending, scratch, now_us, End::Bound(code));
                let decision = Decision::of_code(code);
                let response = match pending.api.as_deref() {
                    Some(api) if api.is_encoded => {
                        EncodedResponse::of(&decision, scratch.check.encode(&decision, None))
                    }
                    _ => EncodedResponse::new(&decision, &mut scratch.response, |_| ()),
                };
                Some(respond(Ok(response)))
            }
            Stage::Planned(rules) => {
                let plan = Plan::from_buffer(std::mem::take(&mut pending.plan), &rules.rules);
                plan.refuse_blocked(&mut pending.results.outcomes, || self.clock.now());
                let statuses = std::mem::take(&mut scratch.statuses);
                let (decision, error) = if is_left {
                    let outcomes = &pending.results.outcomes;
                    (self.decide_plan(&plan, outcomes, statuses), None)
                } else {
                    self.conclude(&plan, &mut pending.results, statuses)
                };
                // Dropped without a commit, tentative takes go back.
                if let Some(tentative) = pending.results.tentative.take()
                    && error.is_none()
                    && !is_left
                {
                    match decision.code {
                        Code::Ok if pending.commits_later => {
                            pending.results.tentative = Some(tentative);
                        }
                        Code::Ok => tentative.commit(),
                        Code::OverLimit => tentative.roll_back(),
                    }
                }
                let error = error.map(RequestError::from);
                let matched = pending.results.matched(&rules, &plan, &decision);
                let end = match &error {
                    _ if is_left => End::Left(&matched),
                    Some(error) => End::Undecided(&matched, error),
                    None => End::Decided(&matched),
                };
                let context = ObserverContext {
                    noted: &mut pending.noted,
                    chosen: None,
                    rules: Some(&rules),
                    api: pending.api.as_deref(),
                    now_us,
                };
                let needs_request = Self::labels_need_request(&plan);
                let took_us = now_us.saturating_sub(pending.began_us);
                let message = &pending.message;
                self.show(message, needs_request, scratch, took_us, end, context);
                let is_live = error.is_none() && !is_left;
                if let Some(candidate) = &rules.candidate {
                    let outcomes = &pending.results.outcomes;
                    match is_live {
                        false => self.metrics.candidates.skipped_no_verdict.inc(),
                        // A candidate decides messages, in which a look of the API with an id would
                        // be a start.
                        true if pending.api.as_ref().is_none_or(|api| api.is_check()) => {
                            let live = LiveVerdict::new(candidate, &plan, outcomes, &decision);
                            pending.live = Some(live);
                        }
                        true => {}
                    }
                }
                let answer = match error {
                    _ if is_left => None,
                    Some(error) => Some(respond(Err(error))),
                    None => {
                        let response = self.encode(pending, scratch, &rules, &plan, &decision);
                        Some(respond(Ok(response)))
                    }
                };
                scratch.statuses = decision.recycle_statuses();
                pending.plan = plan.into_buffer();
                if pending.live.is_some() {
                    // The candidate decides by the same generation.
                    pending.stage = Stage::Planned(rules);
                }
                answer
            }
        }
    }

    /// Encodes the response to a request that was decided, as its caller reads it.
    #[inline]
    fn encode<'s>(
        &self,
        pending: &PendingRequest,
        scratch: &'s mut Scratch,
        rules: &Generation,
        plan: &Plan<'_>,
        decision: &'s Decision<'s>,
    ) -> EncodedResponse<'s> {
        match pending.api.as_deref() {
            Some(api) if api.is_encoded => {
                let outcomes = &pending.results.outcomes;
                let after = after_refunds(plan, outcomes, decision.code);
                let checks = DecidedChecks {
                    plan,
                    outcomes: after.as_deref().unwrap_or(outcomes),
                    shadow: self.config.modes.shadow,
                };
                let checks = Some((&checks, &*rules.names));
                EncodedResponse::of(decision, scratch.check.encode(decision, checks))
            }
            Some(api) if !api.reads_response() => EncodedResponse::of(decision, &[]),
            _ => EncodedResponse::new(decision, &mut scratch.response, |into| {
                self.encode_extras(&pending.message, plan, decision, into);
            }),
        }
    }

    /// Shows observers a request that was not matched against rules.
    fn show_unmatched(
        &self,
        pending: &mut PendingRequest,
        scratch: &mut Scratch,
        now_us: u64,
        end: End<'_>,
    ) {
        let took_us = now_us.saturating_sub(pending.began_us);
        let context = ObserverContext {
            noted: &mut pending.noted,
            chosen: None,
            rules: None,
            api: pending.api.as_deref(),
            now_us,
        };
        self.show(&pending.message, false, scratch, took_us, end, context);
    }

    /// Shows observers how a request ended. Its message is decoded once for all that read it.
    fn show(
        &self,
        message: &[u8],
        needs_request: bool,
        scratch: &mut Scratch,
        took_us: u64,
        end: End<'_>,
        mut context: ObserverContext<'_>,
    ) {
        let noted = &*context.noted;
        if noted.wanted.any && !matches!(end, End::Left(_)) {
            let decisions = &mut scratch.observers.decisions;
            context.chosen = decisions.choose(noted.wanted, end.verdict());
        }
        let notifies = context.rules.is_some_and(|rules| rules.notifies) && has_event(&end);
        let is_read = needs_request || notifies || context.needs_request();
        let decoded = is_read.then(|| {
            let mut request = std::mem::take(&mut scratch.request).recycle();
            // It was decoded before.
            let _ = decode(message, self.config.request, &mut request);
            request
        });
        let unread = Request::default();
        let ended = Ended {
            request: decoded.as_ref().unwrap_or(&unread),
            message,
            took_us,
            end,
            live_verdict: None,
        };
        self.observe(&mut scratch.observers, &ended, context);
        if notifies {
            self.decisions.notify(&ended);
        }
        if let Some(request) = decoded {
            scratch.request = request.recycle();
        }
    }

    /// The decision, or a setting's answer for checks that the store did not decide: the one on
    /// overload or, for the store that replicas share, the one on its failure, which a domain may
    /// override. A check that refuses the request refuses it whatever became of the others. With an
    /// error there is no answer, and the decision is that of the checks that were decided.
    #[inline]
    fn conclude<'r>(
        &self,
        plan: &Plan<'r>,
        results: &mut CheckResults,
        statuses: Vec<Status<'r>>,
    ) -> (Decision<'r>, Option<StoreError>) {
        match results.error.take() {
            None => (self.decide_plan(plan, &results.outcomes, statuses), None),
            Some(error) => self.conclude_without(plan, results, error),
        }
    }

    #[cold]
    fn conclude_without<'r>(
        &self,
        plan: &Plan<'r>,
        results: &mut CheckResults,
        error: StoreError,
    ) -> (Decision<'r>, Option<StoreError>) {
        let outcomes = &results.outcomes;
        let modes = self.config.modes;
        let answer = match &error {
            StoreError::DeadlineExceeded => OnUndecided::Error,
            // Where that is the replica's own store, it did not decide either.
            StoreError::Unavailable(_) => plan.on_store_failure(),
            _ => self.config.on_overload,
        };
        let failed = matches!(error, StoreError::Unavailable(_));
        let undecided = match answer {
            OnUndecided::Error | OnUndecided::Local => {
                let decision = plan.decide(outcomes, Code::Ok, modes);
                if decision.code == Code::OverLimit {
                    return (decision, None);
                }
                if failed {
                    self.metrics.store.failure_errors.inc();
                }
                return (decision, Some(error));
            }
            OnUndecided::Allow => Code::Ok,
            OnUndecided::Deny => Code::OverLimit,
        };
        results.undecided = Some(match (failed, undecided) {
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
        (plan.decide(outcomes, undecided, modes), None)
    }

    /// The decision when every check was decided.
    #[inline]
    pub(super) fn decide_plan<'r>(
        &self,
        plan: &Plan<'r>,
        outcomes: &[Option<Outcome>],
        statuses: Vec<Status<'r>>,
    ) -> Decision<'r> {
        plan.decide_into(statuses, outcomes, Code::Ok, self.config.modes)
    }

    /// Encodes the fields that only some responses have: headers, a body, dynamic metadata.
    #[inline]
    fn encode_extras(
        &self,
        message: &[u8],
        plan: &Plan<'_>,
        decision: &Decision<'_>,
        into: &mut Vec<u8>,
    ) {
        let policy = &self.config;
        let over_limit = chosen_over_limit(plan, decision);
        if over_limit.is_none() && policy.headers.is_none() && !policy.dynamic_metadata {
            return;
        }
        let mut extras = RateLimitResponse::default();
        if let Some(headers) = &policy.headers {
            extras.response_headers_to_add = headers.of(decision);
            extras.request_headers_to_add = headers.of_request(decision);
        }
        if let Some((status, over_limit)) = over_limit {
            put_over_limit(&mut extras, status, over_limit);
        }
        if policy.dynamic_metadata
            && let Ok(request) = RateLimitRequest::decode(message)
        {
            extras.dynamic_metadata = Some(dynamic_metadata(&request, plan, decision));
        }
        if extras.encoded_len() > 0 {
            // A vector grows as needed.
            let _ = extras.encode(into);
        }
    }
}
