//! The first half of a decision: decode the request, validate it, plan its checks.

use std::rc::Rc;

use tollgate_limiter::{Code, Plan, PlanBuffer, Request, RuleSet};

use crate::ended::RequestError;
use crate::pipeline::api_call::ApiCall;
use crate::pipeline::decode::decode;
use crate::pipeline::excess::excess_code;
use crate::pipeline::pending::{PendingRequest, Scratch, SharedRules, Stage};
use crate::pipeline::{Pipeline, RequestBound};
use tollgate_admin_api::rule_name;
use tollgate_store::Purpose;
use tollgate_telemetry::metrics::CallMethod;
use tollgate_telemetry::tracing::TraceParent;

/// A request as it arrives.
pub(crate) struct Call<'a> {
    /// A `RateLimitRequest`, without gRPC's frame.
    pub(crate) message: &'a [u8],
    /// What a call of the API asks; none for a request of another way in.
    pub(crate) api: Option<Rc<ApiCall>>,
    /// The caller's trace.
    pub(crate) parent: Option<TraceParent>,
    /// When it arrived, in the clock's uptime.
    pub(crate) now_us: u64,
}

/// The decoder does not read this message: it is malformed, or unusual enough that protobuf's
/// merging rules would be needed.
#[derive(Debug)]
pub struct Undecodable;

/// Whether takes of this plan go back unless all its limits pass.
pub(super) fn purpose_of(plan: &Plan<'_>) -> Purpose {
    if plan.all_or_nothing() {
        Purpose::DecideTentatively
    } else {
        Purpose::Decide
    }
}

impl Pipeline {
    /// Decodes, validates and plans a request with the rules in use, if there are any.
    ///
    /// Afterwards `pending` has the checks to apply, possibly none, and [`Pipeline::end`] gives the
    /// answer.
    ///
    /// # Errors
    ///
    /// [`Undecodable`], and then `pending` and the counts are as they were.
    pub(crate) fn begin(
        &self,
        call: Call<'_>,
        rules: Option<Rc<SharedRules>>,
        scratch: &mut Scratch,
        pending: &mut PendingRequest,
    ) -> Result<(), Undecodable> {
        let mut request = std::mem::take(&mut scratch.request).recycle();
        if decode(call.message, self.config.request, &mut request).is_none() {
            scratch.request = request.recycle();
            return Err(Undecodable);
        }
        let observers = &mut scratch.observers;
        let api = call.api.as_ref();
        let method = api.map_or(CallMethod::ShouldRateLimit, |api| api.step.method());
        let is_part = api.is_some_and(|api| api.is_part());
        if !is_part {
            observers.received(method);
        }
        pending.began_us = call.now_us;
        pending.noted.wants_texts = false;
        let traces = self.traces.as_ref().filter(|_| !is_part);
        pending.noted.span = traces
            .and_then(|traces| traces.begin(call.parent, method, &request, || self.clock.now()));
        pending.stage = match self.validate(&request) {
            Ok(()) => match rules {
                Some(rules) => self.plan(&request, call.message, rules, scratch, pending),
                None => Stage::Failed(RequestError::NoRules),
            },
            Err(stage) => stage,
        };
        if let Some(api) = call.api {
            self.begin_api(&request, api, pending);
        }
        if pending.api.as_ref().is_some_and(|api| api.is_quiet) {
            pending.noted.forget();
            scratch.request = request.recycle();
            return Ok(());
        }
        let now = || self.clock.now();
        let observers = &mut scratch.observers;
        observers.begin(&mut pending.noted, &request, call.message, call.now_us, now);
        scratch.request = request.recycle();
        if pending.noted.needs_message() && pending.message.is_empty() {
            pending.message.extend_from_slice(call.message);
        }
        Ok(())
    }

    /// Checks a request against the bounds. An error says how a request ends that exceeds one.
    fn validate(&self, request: &Request<'_>) -> Result<(), Stage> {
        if request.domain.is_empty() {
            return Err(Stage::Failed(RequestError::EmptyDomain));
        }
        if request.is_empty() {
            return Err(Stage::Failed(RequestError::NoDescriptors));
        }
        let descriptors_max = self.config.descriptors_max;
        if request.len() > descriptors_max {
            let error = RequestError::TooManyDescriptors {
                max: descriptors_max,
            };
            return Err(self.excess_stage(RequestBound::Descriptors, error));
        }
        let entries_max = self.config.entries_max;
        let mut descriptors = request.descriptors();
        if descriptors.any(|descriptor| descriptor.entries.len() > entries_max) {
            let error = RequestError::TooManyEntries { max: entries_max };
            return Err(self.excess_stage(RequestBound::Entries, error));
        }
        Ok(())
    }

    /// Counts a request that exceeds a bound, and says how the settings answer it; none when that
    /// is an error.
    #[cold]
    pub fn exceeded(&self, bound: RequestBound) -> Option<Code> {
        bound.count(&self.metrics);
        let answer = self.config.on_excess;
        if self.excess_log.is_due(bound, self.clock.uptime_us()) {
            let (bound, advice) = bound.name_and_advice();
            tracing::warn!(
                target: "tollgate::pipeline::begin",
                bound,
                advice,
                on_excess = ?answer,
                "requests exceed a bound; --on-excess answers them, and their limits are not checked"
            );
        }
        excess_code(answer)
    }

    /// How a request ends that exceeds a bound: as the setting says, else by this error.
    fn excess_stage(&self, bound: RequestBound, error: RequestError) -> Stage {
        match self.exceeded(bound) {
            Some(code) => Stage::Bound(code, error),
            None => Stage::Failed(error),
        }
    }

    /// Plans the checks of a request, and keeps of it what `end` needs.
    fn plan(
        &self,
        request: &Request<'_>,
        message: &[u8],
        rules: Rc<SharedRules>,
        scratch: &mut Scratch,
        pending: &mut PendingRequest,
    ) -> Stage {
        let policy = &self.config;
        let buffer = std::mem::take(&mut pending.plan);
        let plan = self.plan_request(buffer, &rules.rules, request);
        self.count_plan(request, &plan);
        let too_many_steps = plan.matching_budget_exceeded();
        pending.noted.wants_texts = scratch.observers.want_texts(&plan);
        let needs_message = pending.noted.wants_texts
            || policy.dynamic_metadata
            || Self::labels_need_request(&plan)
            || rules.candidate.is_some();
        pending.purpose = purpose_of(&plan);
        let quota = plan.quota_rule();
        pending.plan = plan.into_buffer();
        if too_many_steps {
            let error = RequestError::TooManyMatchingSteps;
            return self.excess_stage(RequestBound::MatchingSteps, error);
        }
        if let Some(rule) = quota {
            self.metrics.quotas.checks_refused.inc();
            return Stage::Failed(RequestError::Invalid(format!(
                "rule {} has rlqs: true: the rate limit quota service apportions it, and a check has no answer; remove this descriptor from the request",
                rule_name(rule)
            )));
        }
        if needs_message {
            pending.message.extend_from_slice(message);
        }
        pending.results.reset(pending.plan.checks().len());
        Stage::Planned(rules)
    }

    /// Plans a request as the settings say.
    #[inline]
    pub(super) fn plan_request<'r>(
        &self,
        buffer: PlanBuffer,
        rules: &'r RuleSet,
        request: &Request<'_>,
    ) -> Plan<'r> {
        let policy = &self.config;
        let mut plan = Plan::with_buffer(buffer, rules, request, &self.hash);
        plan.set_default_all_or_nothing(policy.all_or_nothing);
        plan.set_default_on_store_failure(policy.on_store_failure);
        if let Some(naming) = self.bucket_naming {
            plan.name_buckets(request, naming);
        }
        if plan.has_starts() {
            if policy.modes.shadow || policy.modes.quota {
                plan.forget_refused_starts();
            }
            self.set_learnt_amounts(&mut plan);
        }
        plan
    }

    fn count_plan(&self, request: &Request<'_>, plan: &Plan<'_>) {
        if !plan.domain_known() {
            self.metrics.limits.domain_not_found(request.domain);
        }
        if plan.invalid_overrides() > 0 {
            self.metrics
                .requests
                .overrides_not_obeyed
                .inc_by(plan.invalid_overrides());
        }
    }
}
