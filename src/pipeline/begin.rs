//! The first half of a decision: decode the request, validate it, plan its checks.

use std::ops::Deref;

use tollgate_limiter::{Code, Plan, PlanBuffer, Request, RuleSet};

use crate::admin_api::rule_name;
use crate::pipeline::decode::decode;
use crate::pipeline::excess::excess_code;
use crate::pipeline::pending::{KeyCounts, PendingRequest, Scratch, Stage};
use crate::pipeline::{Generation, Pipeline, RequestBound, RequestError, decision_log};
use crate::store::CommitMode;
use crate::tracing::TraceParent;

/// A request as it arrives.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// A `RateLimitRequest`, without gRPC's frame.
    pub(crate) message: &'a [u8],
    /// The caller's trace.
    pub(crate) parent: Option<TraceParent>,
    /// When it arrived, in the clock's uptime.
    pub(crate) now_us: u64,
}

/// The decoder does not read this message: it is malformed, or unusual enough that protobuf's
/// merging rules would be needed.
#[derive(Debug)]
pub(crate) struct Undecodable;

impl Pipeline {
    /// Decodes, validates and plans a request with the rules in use, if there are any.
    ///
    /// Afterwards `pending` has the checks to apply, possibly none, and [`Pipeline::finish`] gives
    /// the answer.
    ///
    /// # Errors
    ///
    /// [`Undecodable`], and then `pending` and the counts are as they were.
    pub(crate) fn begin<G>(
        &self,
        call: Call<'_>,
        rules: Option<G>,
        scratch: &mut Scratch,
        pending: &mut PendingRequest<G>,
    ) -> Result<(), Undecodable>
    where
        G: Deref,
        G::Target: AsRef<Generation>,
    {
        let mut request = std::mem::take(&mut scratch.request).recycle();
        if decode(call.message, self.request_policy, &mut request).is_none() {
            scratch.request = request.recycle();
            return Err(Undecodable);
        }
        scratch.counts.requests = scratch.counts.requests.saturating_add(1);
        pending.began_us = call.now_us;
        let traces = self.traces.as_ref();
        pending.span = traces
            .and_then(|traces| traces.begin(call.parent, (&request).into(), || self.clock.now()));
        pending.stage = match self.validate(&request) {
            Ok(()) => match rules {
                Some(rules) => {
                    let keys = &mut scratch.keys;
                    self.plan(&request, call.message, rules, keys, pending)
                }
                None => Stage::Failed(RequestError::NoRules),
            },
            Err(stage) => stage,
        };
        pending.wanted = match &mut scratch.recorder {
            Some(recorder) => recorder.begin(&request, call.now_us),
            None => self
                .decisions
                .single_recorder()
                .begin(&request, call.now_us),
        };
        pending.captured = self.begin_capture(&request, &call, scratch);
        scratch.request = request.recycle();
        let needed =
            pending.wanted.any() || pending.captured.is_some() || decision_log::is_enabled();
        if needed && pending.message.is_empty() {
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
        let descriptors_max = self.response_policy.descriptors_max;
        if request.len() > descriptors_max {
            let error = RequestError::TooManyDescriptors {
                max: descriptors_max,
            };
            return Err(self.excess_stage(RequestBound::Descriptors, error));
        }
        let entries_max = self.response_policy.entries_max;
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
    pub(crate) fn exceeded(&self, bound: RequestBound) -> Option<Code> {
        bound.count(&self.metrics);
        let verdict = self.response_policy.on_excess;
        if self.excess_log.is_due(bound, self.clock.uptime_us()) {
            let (bound, advice) = bound.name_and_advice();
            tracing::warn!(
                bound,
                advice,
                on_excess = ?verdict,
                "requests exceed a bound; --on-excess answers them, and their limits are not checked"
            );
        }
        excess_code(verdict)
    }

    /// How a request ends that exceeds a bound: as the setting says, else by this error.
    fn excess_stage(&self, bound: RequestBound, error: RequestError) -> Stage {
        match self.exceeded(bound) {
            Some(code) => Stage::Decided(code, error),
            None => Stage::Failed(error),
        }
    }

    /// Plans the checks of a request, and keeps of it what `finish` needs.
    fn plan<G>(
        &self,
        request: &Request<'_>,
        message: &[u8],
        rules: G,
        keys: &mut KeyCounts,
        pending: &mut PendingRequest<G>,
    ) -> Stage
    where
        G: Deref,
        G::Target: AsRef<Generation>,
    {
        let policy = &self.response_policy;
        let buffer = std::mem::take(&mut pending.plan);
        let plan = self.plan_request(buffer, &rules.as_ref().rules, request);
        self.count_plan(request, &plan);
        let too_many_steps = plan.matching_budget_exceeded();
        pending.wants_texts = Self::wants_texts(keys, &plan);
        let needs_message = pending.wants_texts
            || policy.dynamic_metadata
            || Self::labels_need_request(&plan)
            || rules.as_ref().candidate.is_some();
        pending.commit_mode = if plan.all_or_nothing() {
            CommitMode::Tentative
        } else {
            CommitMode::Immediate
        };
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
        pending.rules = Some(rules);
        Stage::Planned
    }

    /// Plans a request as the settings say.
    #[inline]
    pub(super) fn plan_request<'r>(
        &self,
        buffer: PlanBuffer,
        rules: &'r RuleSet,
        request: &Request<'_>,
    ) -> Plan<'r> {
        let policy = &self.response_policy;
        let mut plan = Plan::with_buffer(buffer, rules, request, &self.hash);
        plan.set_default_all_or_nothing(policy.all_or_nothing);
        plan.set_default_on_store_failure(policy.on_store_failure);
        if let Some(naming) = policy.bucket_naming {
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
            self.metrics.domain_not_found(request.domain);
        }
        if plan.invalid_overrides() > 0 {
            self.metrics
                .requests
                .overrides_not_obeyed
                .inc_by(plan.invalid_overrides());
        }
    }
}
