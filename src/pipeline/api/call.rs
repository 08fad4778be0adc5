//! One call of the API, alone: plan, turn, apply, decide, answer.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tollgate_limiter::{Code, Hits, Request};

use super::answer::{CallOutcomes, Decided};
use super::bounds::validate;
use super::operations::{Operations, cost_of};
use super::recorded;
use super::{ApiAnswer, ApiError, ApiRequest, ApiStep};
use crate::pipeline::begin::{Call, Undecodable};
use crate::pipeline::decode::decode;
use crate::pipeline::headers::retry_after_us;
use crate::pipeline::pending::{PendingRequest, Scratch, Stage};
use crate::pipeline::{Generation, Pipeline, RequestError};
use crate::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor,
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::store::{CommitMode, Deadline};

type Pending = PendingRequest<Arc<Generation>>;

impl Pipeline {
    /// The deadline of a call that came now with this timeout.
    pub(crate) fn deadline_after(&self, timeout_us: Option<u64>) -> Deadline {
        timeout_us.map_or(Deadline::NEVER, |timeout_us| {
            Deadline::within_us(&*self.clock, timeout_us)
        })
    }

    /// The time until a deadline; none without one.
    pub(crate) fn time_until(&self, deadline: Deadline) -> Option<Duration> {
        let us = deadline.us_left(self.clock.uptime_us())?;
        Some(Duration::from_micros(us))
    }

    /// Carries out one call.
    ///
    /// # Errors
    ///
    /// When the call is invalid, its reservation is not known, there are no rules, or the store did
    /// not decide.
    pub(crate) async fn call_api(&self, call: ApiRequest<'_>) -> Result<ApiAnswer, ApiError> {
        validate(&call).map_err(ApiError::Invalid)?;
        let message = message_of(&call);
        let mut scratch = Scratch::new(&self.metrics, self.other_key_counts(), None);
        let mut pending = Pending::default();
        let arrived = Call {
            message: &message,
            parent: call.parent,
            now_us: self.clock.uptime_us(),
        };
        let rules = self.generations.current();
        self.begin(arrived, rules, &mut scratch, &mut pending)
            .map_err(|Undecodable| RequestError::Malformed("the call is too long".to_owned()))?;
        let is_check = call.step == ApiStep::Check;
        if pending.captured.is_some() {
            pending.captured_call = recorded::encode(&call);
        }
        let rules = pending.rules.clone();
        if let Some(rules) = &rules
            && let Err(why) = self.set_operations(&call, rules, &mut pending)
        {
            pending.stage = Stage::Failed(RequestError::Invalid(why));
        }
        self.apply_checks(&mut pending, call.deadline).await;
        let undecided = pending.results.error.clone();
        if let Some(rules) = &rules
            && call.step == ApiStep::Peek
        {
            let hits = call.request.descriptors().map(|one| one.hits);
            let hits: Vec<_> = hits.collect();
            refuse_peeks(&hits, rules, &mut pending);
        }
        let now_us = self.clock.uptime_us();
        let decided = self.finish(&mut pending, &mut scratch, now_us, |response| {
            let response = response?;
            let decision = response.decision();
            let headers = self.response_policy.headers.as_ref();
            let headers = headers.map_or_else(Vec::new, |headers| headers.of(decision));
            let headers = headers.into_iter();
            Ok::<_, RequestError>(Decided {
                code: decision.code,
                retry_us: retry_after_us(decision),
                headers: headers.map(|header| (header.key, header.value)).collect(),
                response: matches!(call.step, ApiStep::Peek | ApiStep::Report)
                    .then(|| response.message()),
            })
        });
        scratch.flush_counts(&self.metrics);
        let answer = match decided {
            Err(RequestError::Invalid(why)) => Err(ApiError::Invalid(why)),
            Err(error) => Err(error.into()),
            // A setting can let a request pass that the store did not decide. It cannot settle.
            Ok(_) if undecided.is_some() && !call.step.takes() => Err(ApiError::Request(
                undecided.map_or(RequestError::NoRules, Into::into),
            )),
            Ok(decided) => self.answer_call(&call, rules.as_deref(), &mut pending, decided),
        };
        // A candidate decides messages, in which a peek with an id would be a start.
        if is_check && pending.wants_candidate() {
            self.queue_candidate(pending);
        }
        answer
    }

    /// Turns the checks of a request that has begun into a step of a reservation, for a caller that
    /// applies them itself.
    ///
    /// # Errors
    ///
    /// When the message is no plain request, or a limit cannot do that.
    pub(crate) fn set_step(
        &self,
        message: &[u8],
        step: ApiStep<'_>,
        rules: &Generation,
        pending: &mut Pending,
    ) -> Result<(), RequestError> {
        let mut request = Request::default();
        decode(message, self.request_policy, &mut request)
            .ok_or_else(|| RequestError::Malformed("it cannot be decoded".to_owned()))?;
        let call = ApiRequest {
            request,
            step,
            deadline: Deadline::NEVER,
            parent: None,
        };
        self.set_operations(&call, rules, pending)
            .map_err(RequestError::Invalid)
    }

    /// Turns the checks of a plan into the operation of the call.
    fn set_operations(
        &self,
        call: &ApiRequest<'_>,
        rules: &Generation,
        pending: &mut Pending,
    ) -> Result<(), String> {
        let mut plan = pending.take_plan(&rules.rules);
        let operations = Operations::new(call, &self.hash, &self.estimates);
        let set = plan.replace_operations(operations.add_prices(), |at, check| {
            operations.of(at, check)
        });
        if matches!(call.step, ApiStep::Reserve { .. }) {
            plan.set_all_or_nothing(true);
        }
        pending.commit_mode = match call.step {
            ApiStep::Check | ApiStep::Reserve { .. } if plan.all_or_nothing() => {
                CommitMode::Tentative
            }
            _ => CommitMode::Immediate,
        };
        pending.put_plan(plan);
        set
    }

    fn answer_call(
        &self,
        call: &ApiRequest<'_>,
        rules: Option<&Generation>,
        pending: &mut Pending,
        decided: Decided,
    ) -> Result<ApiAnswer, ApiError> {
        let Some(rules) = rules else {
            // A setting answered a request that exceeds a bound.
            return Ok(ApiAnswer::without_limits(call, decided));
        };
        let plan = pending.take_plan(&rules.rules);
        let refused = decided.code == Code::OverLimit;
        let after = (refused && plan.all_or_nothing())
            .then(|| plan.after_refunds(&pending.results.outcomes));
        let outcomes = after.as_deref().unwrap_or(&pending.results.outcomes);
        let answer = CallOutcomes {
            call,
            plan: &plan,
            outcomes,
            shadow: self.response_policy.modes.shadow,
        }
        .answer(decided);
        pending.put_plan(plan);
        answer
    }
}

/// Marks as refused what a check of these hits, by descriptor, would be refused.
pub(crate) fn refuse_peeks(hits: &[Hits], rules: &Generation, pending: &mut Pending) {
    let mut outcomes = std::mem::take(&mut pending.results.outcomes);
    let plan = pending.take_plan(&rules.rules);
    for (descriptor, position) in super::checks_of(&plan) {
        if let (Some(planned), Some(Some(outcome)), Some(hits)) = (
            plan.planned_check(position),
            outcomes.get_mut(position),
            hits.get(descriptor),
        ) {
            let wanted = hits.priced(cost_of(planned.origin)).count();
            if outcome.allowed && wanted > outcome.remaining {
                outcome.allowed = false;
                // Nothing says when so many would pass.
                outcome.retry_us = None;
            }
        }
    }
    pending.put_plan(plan);
    pending.results.outcomes = outcomes;
}

/// The call as a message: what decision records and candidates read.
fn message_of(call: &ApiRequest<'_>) -> Vec<u8> {
    let request = &call.request;
    let looks = call.step == ApiStep::Peek;
    let descriptors = request.descriptors().map(|descriptor| {
        let entries = descriptor.entries.iter();
        let entries = entries.map(|entry| rate_limit_descriptor::Entry {
            key: entry.key.to_vec().into(),
            value: entry.value.to_vec().into(),
        });
        RateLimitDescriptor {
            entries: entries.collect(),
            hits_addend: Some(if looks { 0 } else { descriptor.hits.count() }),
            ..RateLimitDescriptor::default()
        }
    });
    let message = RateLimitRequest {
        domain: request.domain.to_vec().into(),
        descriptors: descriptors.collect(),
        ..RateLimitRequest::default()
    };
    message.encode_to_vec()
}
