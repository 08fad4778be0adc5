//! One call of the API: it is submitted to the thread that decides it, and answered here.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_limiter::{Code, Hits, Outcome, Plan, Request};

use super::answer::CallOutcomes;
use super::bounds::{BatchProgress, SHORT_REQUEST_CHECKS_MAX, give_way, validate};
use super::operations::{Operations, refuse_peeks};
use super::told::told_outcomes;
use super::{ApiAnswer, ApiError, ApiRequest};
use crate::ended::RequestError;
use crate::pipeline::api_call::{ApiCall, ApiOutcomes, ApiStep, Decided, Rounds};
use crate::pipeline::begin::purpose_of;
use crate::pipeline::decode::SHORT_CALL_DESCRIPTORS_MAX;
use crate::pipeline::headers::retry_after_us;
use crate::pipeline::message::encode_request;
use crate::pipeline::pending::{PendingRequest, Scratch, Stage};
use crate::pipeline::threads::{Submission, TaskAnswer, TaskReply};
use crate::pipeline::{Generation, Pipeline};
use tollgate_store::{Deadline, Purpose};

/// The most bytes of an answer beside its limits and its id.
const ANSWER_BYTES: usize = 512;

/// The most bytes of a byte of an id: JSON escapes it.
const ESCAPED_BYTES: usize = 6;

impl Pipeline {
    /// The deadline of a call that came now with this timeout.
    pub fn deadline_after(&self, timeout_us: Option<u64>) -> Deadline {
        timeout_us.map_or(Deadline::NEVER, |timeout_us| {
            Deadline::within_us(&*self.clock, timeout_us)
        })
    }

    /// The time until a deadline; none without one.
    pub fn time_until(&self, deadline: Deadline) -> Option<Duration> {
        let us = deadline.us_left(self.clock.uptime_us())?;
        Some(Duration::from_micros(us))
    }

    /// The most bytes that answers to calls can have, by the number of their descriptors.
    pub fn answers_bytes_max(&self, calls: u64, descriptors: u64) -> u64 {
        let rules = self.current_rules();
        let limits = rules.map_or(0, |rules| rules.descriptor_bytes_max) as u64;
        let limits = limits.saturating_mul(descriptors);
        calls
            .saturating_mul(ANSWER_BYTES as u64)
            .saturating_add(limits)
    }

    /// Begins a batch of so many calls.
    ///
    /// # Errors
    ///
    /// When its answer would be larger than it may be, whatever its calls are.
    pub fn begin_batch(&self, calls: usize) -> Result<BatchProgress, ApiError> {
        let progress = BatchProgress::new(calls, self.config.answer_bytes_max);
        progress.ok_or_else(|| self.answer_too_large().into())
    }

    /// Counts an answer that is larger than it may be.
    pub fn answer_too_large(&self) -> RequestError {
        self.metrics.answers.refused_call.inc();
        let max = self.config.answer_bytes_max;
        RequestError::AnswerTooLarge { max }
    }

    /// Carries out one call for a caller that sends nothing of its limits.
    ///
    /// # Errors
    ///
    /// When the call is invalid, its reservation is not known, there are no rules, or the store did
    /// not decide.
    pub async fn call_api(&self, call: ApiRequest<'_>) -> Result<ApiAnswer, ApiError> {
        self.call_api_within(call, None).await
    }

    /// Carries out one call whose answer may have so many bytes. It has no limits where none are
    /// given.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::call_api`]. Nothing is taken where the answer would be larger.
    pub async fn call_api_within(
        &self,
        call: ApiRequest<'_>,
        answer_bytes_max: Option<usize>,
    ) -> Result<ApiAnswer, ApiError> {
        let asked = ApiCall {
            answer_bytes_max,
            ..ApiCall::new(call.operation, call.id, peeked(&call))
        };
        let outcomes = self.ask(&call, asked).await?;
        // A setting can let a request pass that the store did not decide. It cannot settle.
        if let Some(error) = outcomes.undecided
            && !call.operation.takes()
        {
            return Err(RequestError::from(error).into());
        }
        let Some(rules) = outcomes.rules else {
            // A setting answered a request that exceeds a bound.
            return Ok(ApiAnswer::without_limits(&call, outcomes.decided, None));
        };
        let plan = Plan::from_buffer(outcomes.plan, &rules.rules);
        let names = answer_bytes_max.is_some().then_some(&*rules.names);
        self.answer_of(&call, (&plan, names), &outcomes.outcomes, outcomes.decided)
            .await
    }

    /// Has a call decided by a thread that decides.
    pub(super) async fn ask(
        &self,
        call: &ApiRequest<'_>,
        asked: ApiCall,
    ) -> Result<ApiOutcomes, ApiError> {
        validate(call).map_err(ApiError::Invalid)?;
        let is_long = call.request.descriptors().len() > SHORT_CALL_DESCRIPTORS_MAX;
        if is_long {
            give_way().await;
        }
        let is_peek = call.operation == ApiStep::Peek;
        let (reply, ended) = oneshot::channel();
        let submission = Submission {
            message: encode_request(&call.request, |hits| {
                Some(if is_peek { 0 } else { hits.count() })
            }),
            api: Some(Box::new(asked)),
            deadline: call.deadline,
            parent: call.parent,
            submitted_us: self.clock.uptime_us(),
            is_long,
            reply: TaskReply::Api(reply),
        };
        self.submit(submission).await?;
        let outcomes = TaskAnswer::received(ended).await?;
        if outcomes.outcomes.len() > SHORT_REQUEST_CHECKS_MAX {
            give_way().await;
        }
        Ok(outcomes)
    }

    /// The answer to a call from the outcomes of its limits, by the names of their rules.
    pub(super) async fn answer_of(
        &self,
        call: &ApiRequest<'_>,
        (plan, rule_names): (&Plan<'_>, Option<&[Arc<str>]>),
        outcomes: &[Option<Outcome>],
        decided: Decided,
    ) -> Result<ApiAnswer, ApiError> {
        let after = after_refunds(plan, outcomes, decided.code);
        CallOutcomes {
            call,
            plan,
            outcomes: after.as_deref().unwrap_or(outcomes),
            rule_names,
            shadow: self.config.modes.shadow,
        }
        .answer(decided)
        .await
    }

    /// Turns a request that has begun into a call of the API.
    pub(in crate::pipeline) fn begin_api(
        &self,
        request: &Request<'_>,
        mut api: Box<ApiCall>,
        pending: &mut PendingRequest,
    ) {
        pending.stage = match std::mem::take(&mut pending.stage) {
            // A setting can answer what is beyond a bound. It cannot settle.
            Stage::Bound(_, error) if !api.step.takes() || api.is_quiet => Stage::Failed(error),
            Stage::Planned(rules) => match self.plan_api(request, &rules, &mut api, pending) {
                Ok(()) => Stage::Planned(rules),
                Err(error) => Stage::Failed(error),
            },
            stage => stage,
        };
        pending.api = Some(api);
        pending.next_round();
    }

    /// Turns the checks of a plan into the operation of the call.
    fn plan_api(
        &self,
        request: &Request<'_>,
        rules: &Generation,
        api: &mut ApiCall,
        pending: &mut PendingRequest,
    ) -> Result<(), RequestError> {
        let step = api.step;
        let mut plan = pending.take_plan(&rules.rules);
        // The message of such a check has planned what it takes.
        let set = if step == ApiStep::Check && plan.only_takes() {
            Ok(())
        } else {
            let operations = Operations::new(api, request, &self.hash, &self.estimates);
            plan.replace_operations(operations.add_prices(), |at, check| {
                operations.of(at, check)
            })
        };
        if matches!(step, ApiStep::Reserve { .. }) {
            plan.set_all_or_nothing(true);
        }
        pending.purpose = match step {
            ApiStep::Check | ApiStep::Reserve { .. } => purpose_of(&plan),
            _ => Purpose::Decide,
        };
        let bytes_max = api.answer_bytes_max;
        let is_too_large = bytes_max.is_some_and(|max| answer_bytes(api, rules, &plan) > max);
        let rounds = api.settles_once().then(|| Rounds::new(request, &plan));
        if let ApiStep::Told { refused } = step {
            pending.results.outcomes = told_outcomes(&plan, &api.known, refused);
        }
        pending.put_plan(plan);
        api.rounds = rounds.unwrap_or_default();
        set.map_err(RequestError::Invalid)?;
        if is_too_large {
            return Err(self.answer_too_large());
        }
        Ok(())
    }

    /// Ends a call of the API, for the task that asked it. None if the caller has left.
    pub(in crate::pipeline) fn end_api(
        &self,
        pending: &mut PendingRequest,
        scratch: &mut Scratch,
        now_us: u64,
        is_left: bool,
    ) -> Option<Result<ApiOutcomes, RequestError>> {
        refuse_peeks(pending);
        let undecided = pending.results.error.clone();
        let rules = match &pending.stage {
            Stage::Planned(rules) => Some(Arc::clone(&rules.0)),
            Stage::Bound(..) | Stage::Failed(_) => None,
        };
        let decided = self.end_decided(pending, scratch, now_us, is_left);
        Some(decided?.map(|decided| ApiOutcomes {
            decided,
            rules,
            plan: std::mem::take(&mut pending.plan),
            outcomes: std::mem::take(&mut pending.results.outcomes),
            undecided,
        }))
    }

    /// Ends a check of the API, and hands the encoded answer to the stream that it came by, unless
    /// the caller has left.
    pub(in crate::pipeline) fn end_check(
        &self,
        pending: &mut PendingRequest,
        scratch: &mut Scratch,
        now_us: u64,
        is_left: bool,
        respond: impl FnOnce(Result<&[u8], ApiError>),
    ) {
        let rules = match &pending.stage {
            Stage::Planned(rules) => Some(Rc::clone(rules)),
            Stage::Bound(..) | Stage::Failed(_) => None,
        };
        let decided = match self.end_decided(pending, scratch, now_us, is_left) {
            Some(Ok(decided)) => decided,
            Some(Err(error)) => return respond(Err(error.into())),
            None => return,
        };
        let into = &mut scratch.check;
        if let Some(rules) = rules {
            let plan = pending.take_plan(&rules.rules);
            let after = after_refunds(&plan, &pending.results.outcomes, decided.code);
            CallOutcomes {
                // What is asked is in the plan.
                call: &ApiRequest {
                    request: Request::default(),
                    operation: ApiStep::Check,
                    id: "",
                    deadline: Deadline::NEVER,
                    parent: None,
                },
                plan: &plan,
                outcomes: after.as_deref().unwrap_or(&pending.results.outcomes),
                rule_names: Some(&rules.names),
                shadow: self.config.modes.shadow,
            }
            .encode_check(&decided, into);
            pending.put_plan(plan);
        } else {
            into.begin(&decided, None);
        }
        respond(Ok(into.message()));
    }

    /// Ends a call of the API, and says what the decision says of it.
    fn end_decided(
        &self,
        pending: &mut PendingRequest,
        scratch: &mut Scratch,
        now_us: u64,
        is_left: bool,
    ) -> Option<Result<Decided, RequestError>> {
        let api = pending.api.as_ref();
        let was_settled = api.is_some_and(|api| api.rounds.was_settled);
        let has_response = api.is_some_and(|api| api.reads_response());
        self.end(pending, scratch, now_us, is_left, |response| {
            let response = response?;
            let decision = response.decision;
            let headers = self.config.headers.as_ref();
            let headers = headers.map_or_else(Vec::new, |headers| headers.of(decision));
            let headers = headers.into_iter();
            Ok::<_, RequestError>(Decided {
                code: decision.code,
                retry_us: retry_after_us(decision),
                headers: headers.map(|header| (header.key, header.value)).collect(),
                response: has_response.then(|| response.message()),
                was_settled,
            })
        })
    }
}

/// The hits of each descriptor of a peek. Empty for other calls.
pub(super) fn peeked(call: &ApiRequest<'_>) -> Vec<Hits> {
    let hits = call.request.descriptors().map(|one| one.hits);
    hits.filter(|_| call.operation == ApiStep::Peek).collect()
}

/// What is left of the limits of a refused request whose other hits go back.
fn after_refunds(
    plan: &Plan<'_>,
    outcomes: &[Option<Outcome>],
    code: Code,
) -> Option<Vec<Option<Outcome>>> {
    let go_back = code == Code::OverLimit && plan.all_or_nothing();
    go_back.then(|| plan.after_refunds(outcomes))
}

/// How large the answer to a planned call can be.
fn answer_bytes(api: &ApiCall, rules: &Generation, plan: &Plan<'_>) -> usize {
    let bytes = ANSWER_BYTES + api.id.len() * ESCAPED_BYTES;
    let limits = plan.planned_checks();
    let limits = limits.map(|planned| rules.limit_bytes(planned.origin.rule()));
    bytes + limits.sum::<usize>()
}
