//! One call of the API, alone: plan, turn, apply, decide, answer.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tollgate_limiter::{Code, LimitOrigin, Request};

use super::answer::{CallOutcomes, Decided};
use super::bounds::{BatchProgress, validate};
use super::operations::Operations;
use super::peeks::refuse_peeks;
use super::recorded;
use super::turns::give_way;
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

/// A call of more descriptors lets other tasks run before it is planned.
const SHORT_CALL_DESCRIPTORS_MAX: usize = 16;

/// A call of more checks lets other tasks run between its steps: to plan, to decide, to finish, to
/// answer.
const SHORT_CALL_CHECKS_MAX: usize = 256;

/// The most bytes of an answer beside its limits and its id.
const ANSWER_BYTES: usize = 512;

/// The most bytes of a byte of an id: JSON escapes it.
const ESCAPED_BYTES: usize = 6;

pub(super) type Pending = PendingRequest<Arc<Generation>>;

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

    /// The most bytes that answers to calls can have, by the number of their descriptors.
    pub(crate) fn answers_bytes_max(&self, calls: u64, descriptors: u64) -> u64 {
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
    pub(crate) fn begin_batch(&self, calls: usize) -> Result<BatchProgress, ApiError> {
        let progress = BatchProgress::new(calls, self.response_policy.answer_bytes_max);
        progress.ok_or_else(|| self.answer_too_large().into())
    }

    /// Counts an answer that is larger than it may be.
    pub(crate) fn answer_too_large(&self) -> RequestError {
        self.metrics.answers.refused_call.inc();
        let max = self.response_policy.answer_bytes_max;
        RequestError::AnswerTooLarge { max }
    }

    /// Carries out one call for a caller that sends nothing of its limits.
    ///
    /// # Errors
    ///
    /// When the call is invalid, its reservation is not known, there are no rules, or the store did
    /// not decide.
    pub(crate) async fn call_api(&self, call: ApiRequest<'_>) -> Result<ApiAnswer, ApiError> {
        self.call_api_within(call, None).await
    }

    /// Carries out one call whose answer may have so many bytes. It has no limits where none are
    /// given.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::call_api`]. Nothing is taken where the answer would be larger.
    pub(crate) async fn call_api_within(
        &self,
        call: ApiRequest<'_>,
        answer_bytes_max: Option<usize>,
    ) -> Result<ApiAnswer, ApiError> {
        validate(&call).map_err(ApiError::Invalid)?;
        if call.request.descriptors().len() > SHORT_CALL_DESCRIPTORS_MAX {
            give_way().await;
        }
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
        // A setting can answer what is beyond a bound. It cannot settle.
        pending.stage = match std::mem::take(&mut pending.stage) {
            Stage::Decided(_, error) if !call.step.takes() => Stage::Failed(error),
            stage => stage,
        };
        if pending.captured.is_some() {
            pending.captured_call = recorded::encode(&call);
        }
        let rules = pending.rules.clone();
        if let Some(rules) = &rules
            && let Err(why) = self.set_operations(&call, rules, &mut pending)
        {
            pending.stage = Stage::Failed(RequestError::Invalid(why));
        }
        if let Some(bytes_max) = answer_bytes_max
            && matches!(pending.stage, Stage::Planned)
            && answer_bytes(&call, rules.as_deref(), &mut pending) > bytes_max
        {
            pending.stage = Stage::Failed(self.answer_too_large());
        }
        let is_long = pending.checks().len() > SHORT_CALL_CHECKS_MAX;
        let capture = self.watch_capture(&pending);
        if is_long {
            give_way().await;
        }
        let was_settled = match &rules {
            Some(rules) if call.step.settles_once() => {
                let settled = self.apply_settle(&call, rules, &mut pending).await;
                settled.unwrap_or_default()
            }
            _ => {
                self.apply_checks(&mut pending, call.deadline).await;
                false
            }
        };
        if is_long {
            give_way().await;
        }
        capture.done();
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
                was_settled,
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
            Ok(decided) => {
                if is_long {
                    give_way().await;
                }
                let with_limits = answer_bytes_max.is_some();
                let rules = rules.as_deref().map(|rules| (rules, with_limits));
                self.answer_call(&call, rules, &mut pending, decided).await
            }
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
        pending.is_api = true;
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

    async fn answer_call(
        &self,
        call: &ApiRequest<'_>,
        rules: Option<(&Generation, bool)>,
        pending: &mut Pending,
        decided: Decided,
    ) -> Result<ApiAnswer, ApiError> {
        let Some((rules, with_limits)) = rules else {
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
            rule_names: with_limits.then_some(&*rules.names),
            shadow: self.response_policy.modes.shadow,
        }
        .answer(decided)
        .await;
        pending.put_plan(plan);
        answer
    }
}

/// How large the answer to a planned call can be.
fn answer_bytes(call: &ApiRequest<'_>, rules: Option<&Generation>, pending: &mut Pending) -> usize {
    let id = call.step.id().unwrap_or_default();
    let bytes = ANSWER_BYTES.saturating_add(id.len().saturating_mul(ESCAPED_BYTES));
    let Some(rules) = rules else {
        return bytes;
    };
    let plan = pending.take_plan(&rules.rules);
    let checks = super::checks_of(&plan);
    let limits = checks.filter_map(|(_, position)| plan.planned_check(position));
    let limits = limits.map(|planned| match planned.origin {
        LimitOrigin::Rule(rule) => rules.limit_bytes(Some(rule)),
        LimitOrigin::Override => rules.limit_bytes(None),
    });
    let bytes = limits.fold(bytes, usize::saturating_add);
    pending.put_plan(plan);
    bytes
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
