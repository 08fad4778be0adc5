//! One call of the API: it is submitted to the thread that decides it, and answered here.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_limiter::{Check, Code, Hits, Outcome, Plan, Request, ReservationOutcome, Timestamp};

use super::answer::CallOutcomes;
use super::bounds::{BatchProgress, SHORT_REQUEST_CHECKS_MAX, give_way, validate};
use super::operations::{Operations, refuse_peeks};
use super::{ApiAnswer, ApiError, ApiRequest};
use crate::ended::RequestError;
use crate::pipeline::api_call::{ApiCall, ApiOutcomes, ApiStep, Decided, Rounds};
use crate::pipeline::begin::purpose_of;
use crate::pipeline::decode::SHORT_CALL_DESCRIPTORS_MAX;
use crate::pipeline::encode_check::DecidedChecks;
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
        let checks = DecidedChecks {
            plan,
            outcomes: after.as_deref().unwrap_or(outcomes),
            shadow: self.config.modes.shadow,
        };
        CallOutcomes {
            call,
            checks,
            rule_names,
        }
        .answer(decided)
        .await
    }

    /// Turns a request that has begun into a call of the API.
    pub(in crate::pipeline) fn begin_api(
        &self,
        request: &Request<'_>,
        api: Rc<ApiCall>,
        pending: &mut PendingRequest,
    ) {
        if is_planned(request, &api, pending) {
            pending.api = Some(api);
            return;
        }
        pending.stage = match std::mem::take(&mut pending.stage) {
            // A setting can answer what is beyond a bound. It cannot settle.
            Stage::Bound(_, error) if !api.step.takes() || api.is_quiet => Stage::Failed(error),
            Stage::Planned(rules) => match self.plan_api(request, &rules, &api, pending) {
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
        api: &ApiCall,
        pending: &mut PendingRequest,
    ) -> Result<(), RequestError> {
        let step = api.step;
        let only_takes = pending.plan.only_takes();
        let mut plan = pending.take_plan(&rules.rules);
        // The message of such a check has planned what it takes.
        let set = if api.is_check() && only_takes {
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
        let is_too_large = is_too_large(api, || {
            let limits = plan.planned_checks();
            limits
                .map(|planned| rules.limit_bytes(planned.origin.rule()))
                .sum()
        });
        pending.rounds = api
            .settles_once()
            .then(|| Rounds::new(request, &plan).into());
        if let ApiStep::Told { refused } = step {
            pending.results.outcomes = told_outcomes(&plan, &api.known, refused);
        }
        pending.put_plan(plan);
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
        let rules = pending.rules().map(|rules| Arc::clone(&rules.0));
        let rounds = pending.rounds.as_ref();
        let was_settled = rounds.is_some_and(|rounds| rounds.was_settled);
        let api = pending.api.as_ref();
        let has_response = api.is_some_and(|api| api.reads_response());
        let decided = self.end(pending, scratch, now_us, is_left, |response| {
            let response = response?;
            let decision = response.decision;
            let headers = self.config.headers.as_ref();
            let headers = headers.map_or_else(Vec::new, |headers| headers.of(decision));
            let headers = headers.into_iter();
            Ok(Decided {
                code: decision.code,
                retry_us: retry_after_us(decision),
                headers: headers.map(|header| (header.key, header.value)).collect(),
                response: has_response.then(|| response.message()),
                was_settled,
            })
        });
        Some(decided?.map(|decided| ApiOutcomes {
            decided,
            rules,
            plan: std::mem::take(&mut pending.plan),
            outcomes: std::mem::take(&mut pending.results.outcomes),
            undecided,
        }))
    }
}

/// The hits of each descriptor of a peek. Empty for other calls.
pub(super) fn peeked(call: &ApiRequest<'_>) -> Vec<Hits> {
    let hits = call.request.descriptors().map(|one| one.hits);
    hits.filter(|_| call.operation == ApiStep::Peek).collect()
}

/// What is left of the limits of a refused request whose other hits go back.
pub(in crate::pipeline) fn after_refunds(
    plan: &Plan<'_>,
    outcomes: &[Option<Outcome>],
    code: Code,
) -> Option<Vec<Option<Outcome>>> {
    let go_back = code == Code::OverLimit && plan.all_or_nothing();
    go_back.then(|| plan.after_refunds(outcomes))
}

/// Whether the message of a call has planned all of it, and its answer is surely small enough.
fn is_planned(request: &Request<'_>, api: &ApiCall, pending: &PendingRequest) -> bool {
    let Stage::Planned(rules) = &pending.stage else {
        return false;
    };
    let limits_bytes = request.len().saturating_mul(rules.descriptor_bytes_max);
    api.is_check() && pending.plan.only_takes() && !is_too_large(api, || limits_bytes)
}

/// Whether the answer to a call can be larger than it may be, where its limits are so many bytes.
fn is_too_large(api: &ApiCall, limits_bytes: impl FnOnce() -> usize) -> bool {
    let bytes = ANSWER_BYTES + api.id.len() * ESCAPED_BYTES;
    let max = api.answer_bytes_max;
    max.is_some_and(|max| bytes.saturating_add(limits_bytes()) > max)
}

/// The outcomes of hits that a caller admitted or refused by itself, from what is known of their
/// limits: no store is asked, and observers see them as they see others. The limit that has the
/// fewest hits left is the one that refused.
fn told_outcomes(
    plan: &Plan<'_>,
    known: &[Option<Outcome>],
    refused: bool,
) -> Vec<Option<Outcome>> {
    let known_of = |position: usize| known.get(plan.deciding(position)).copied().flatten();
    let left = |position: &usize| known_of(*position).map_or(u64::MAX, |known| known.remaining);
    let positions = 0..plan.checks().len();
    let refusing = positions.min_by_key(left).filter(|_| refused);
    let refusing = refusing.map(|position| plan.deciding(position));
    let checks = plan.checks().iter().enumerate();
    let outcomes = checks.map(|(position, check)| {
        let is_refused = refusing == Some(plan.deciding(position));
        Some(told_outcome(check, known_of(position), is_refused))
    });
    outcomes.collect()
}

fn told_outcome(check: &Check, known: Option<Outcome>, is_refused: bool) -> Outcome {
    let most = check.limit.burst();
    let reset_us = known.map_or(0, |known| known.reset_us);
    let remaining = match known {
        _ if is_refused => 0,
        Some(known) => known.remaining,
        None => most,
    };
    let used = most.saturating_sub(remaining);
    Outcome {
        allowed: !is_refused,
        used_before: if is_refused {
            most
        } else {
            used.saturating_sub(check.operation.hits.count())
        },
        remaining,
        reset_us,
        retry_us: Some(if is_refused { reset_us } else { 0 }),
        bucket_time: known.map_or_else(Timestamp::default, |known| known.bucket_time),
        reservation: ReservationOutcome::None,
        blocked: false,
    }
}
