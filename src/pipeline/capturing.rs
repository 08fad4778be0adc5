//! Captures requests for a recording, while one runs. Most requests cost one load.

use prost::Message as _;
use tollgate_limiter::{Code, Decision, LimitOrigin, Outcome, Plan, Request};

use crate::capture::{CaptureWriter, CapturedCheck, CapturedRequest, CheckStamp};
use crate::pipeline::Pipeline;
use crate::pipeline::begin::Call;
use crate::pipeline::pending::{CheckResults, PendingRequest, Scratch};
use crate::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor,
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

/// What became of a request that is captured.
pub(super) struct CapturedAnswer<'a> {
    /// None without an answer.
    pub(super) code: Option<Code>,
    /// The generation of the rules; 0 without rules.
    pub(super) generation: i64,
    /// The plan, and the decision if there is one.
    pub(super) planned: Option<(&'a Plan<'a>, Option<&'a Decision<'a>>)>,
}

/// A request that is captured and whose future may be dropped before its answer.
pub(super) struct CallCapture<'p> {
    pipeline: &'p Pipeline,
    captured: Option<CapturedRequest>,
}

// === impl CapturedAnswer ===

impl<'a> CapturedAnswer<'a> {
    /// The answer of a setting, or an error, without a plan.
    pub(super) fn of_setting(code: Option<Code>) -> Self {
        Self {
            code,
            generation: 0,
            planned: None,
        }
    }

    /// The answer from a plan; an error without a decision.
    pub(super) fn of_plan(
        generation: i64,
        plan: &'a Plan<'a>,
        decision: Option<&'a Decision<'a>>,
    ) -> Self {
        Self {
            code: decision.map(|decision| decision.code),
            generation,
            planned: Some((plan, decision)),
        }
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// Begins to capture a request, if a recording runs and is to have it.
    #[inline]
    pub(super) fn begin_capture(
        &self,
        request: &Request<'_>,
        call: &Call<'_>,
        scratch: &mut Scratch,
    ) -> Option<CapturedRequest> {
        if !self.capture.is_running() {
            return None;
        }
        self.begin_recorded(request, call, scratch)
    }

    fn begin_recorded(
        &self,
        request: &Request<'_>,
        call: &Call<'_>,
        scratch: &mut Scratch,
    ) -> Option<CapturedRequest> {
        let now = || self.clock.now();
        let begin =
            |writer: &mut CaptureWriter| writer.begin(request, call.message, call.now_us, now);
        match &mut scratch.capture {
            Some(writer) => begin(writer),
            None => begin(&mut self.single_capture()),
        }
    }

    /// Captures what became of a request.
    #[inline]
    pub(super) fn capture<G>(
        &self,
        pending: &mut PendingRequest<G>,
        scratch: &mut Scratch,
        answer: &CapturedAnswer<'_>,
    ) {
        if let Some(captured) = pending.captured.take() {
            self.end_capture(captured, pending, scratch, answer);
        }
    }

    fn end_capture<G>(
        &self,
        captured: CapturedRequest,
        pending: &PendingRequest<G>,
        scratch: &mut Scratch,
        answer: &CapturedAnswer<'_>,
    ) {
        let end = |writer: &mut CaptureWriter| {
            put_checks(
                &mut writer.checks,
                answer.planned.map(|(plan, _)| plan),
                &pending.results,
            );
            put_codes(&mut writer.codes, answer);
            writer.call.clear();
            writer.call.extend_from_slice(&pending.captured_call);
            let now = || self.clock.now();
            writer.end(
                captured,
                &pending.message,
                answer.code,
                answer.generation,
                now,
            );
        };
        match &mut scratch.capture {
            Some(writer) => end(writer),
            None => end(&mut self.single_capture()),
        }
    }

    /// Watches over a captured request until it is finished.
    pub(super) fn watch_capture<G>(&self, pending: &PendingRequest<G>) -> CallCapture<'_> {
        CallCapture {
            pipeline: self,
            captured: pending.captured,
        }
    }

    /// Begins to capture a reset.
    pub(super) fn begin_reset_capture(&self) -> Option<CapturedRequest> {
        let mut writer = self.capture.is_running().then(|| self.single_capture())?;
        writer.begin_reset(self.clock.uptime_us())
    }

    /// Captures a reset of the buckets of one descriptor. Without stamps it was not done, or not by
    /// a partition.
    pub(super) fn end_reset_capture(
        &self,
        captured: CapturedRequest,
        domain: &str,
        entries: &[(String, String)],
        stamps: &[CheckStamp],
    ) {
        let entries = entries
            .iter()
            .map(|(key, value)| rate_limit_descriptor::Entry {
                key: key.clone().into(),
                value: value.clone().into(),
            });
        let request = RateLimitRequest {
            domain: domain.to_owned().into(),
            descriptors: vec![RateLimitDescriptor {
                entries: entries.collect(),
                ..RateLimitDescriptor::default()
            }],
            ..RateLimitRequest::default()
        };
        self.single_capture()
            .end_reset(captured, &request.encode_to_vec(), stamps);
    }
}

/// The checks of a request as they are written.
fn put_checks(into: &mut Vec<CapturedCheck>, plan: Option<&Plan<'_>>, results: &CheckResults) {
    into.clear();
    let Some(plan) = plan else {
        return;
    };
    let outcomes = results.outcomes.iter().enumerate();
    into.extend(outcomes.map(|(position, outcome)| {
        let stamp = results.stamps.get(position).copied();
        let rule = plan.planned_check(position).map(|check| check.origin);
        CapturedCheck {
            rule: match rule {
                Some(LimitOrigin::Rule(rule)) => {
                    u32::try_from(rule.index).map_or(0, |index| index.saturating_add(1))
                }
                Some(LimitOrigin::Override) | None => 0,
            },
            is_refused: outcome.is_some_and(|outcome: Outcome| !outcome.allowed),
            is_decided: outcome.is_some()
                && !results.from_denial_cache
                && stamp.is_none_or(|stamp| stamp.order == 0 || stamp.by_own_bucket),
            stamp: stamp.unwrap_or_default(),
        }
    }));
}

/// The codes of the descriptors.
fn put_codes(into: &mut Vec<u8>, answer: &CapturedAnswer<'_>) {
    into.clear();
    if let Some((_, Some(decision))) = answer.planned {
        let codes = decision.statuses.iter().map(|status| match status.code {
            Code::Ok => 1,
            Code::OverLimit => 2,
        });
        into.extend(codes);
    }
}

// === impl CallCapture ===

impl CallCapture<'_> {
    /// The request is finished.
    pub(super) fn done(mut self) {
        self.captured = None;
    }
}

impl Drop for CallCapture<'_> {
    fn drop(&mut self) {
        if let Some(captured) = self.captured {
            self.pipeline.single_capture().abandon(captured);
        }
    }
}
