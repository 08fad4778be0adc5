//! The observers of requests: what one thread counts and keeps of those that it decides.
//!
//! Each is a concrete field of [`Observers`]. A request that begins is shown to those that must
//! know then whether they will want it ([`Noted`]); a request that has ended is shown to all of
//! them, once, by [`Pipeline::observe`].

use tollgate_limiter::{Code, Plan, Request, Timestamp};

use crate::capture::{CaptureWriter, CapturedRequest};
use crate::decisions::{Recorder, Wanted};
use crate::ended::{End, Ended, RequestError};
use crate::pipeline::api_call::ApiCall;
use crate::pipeline::count::looks_or_refuses;
use crate::pipeline::{Generation, Pipeline, debug_lines};
use crate::top_keys::Recorder as KeyRecorder;
use tollgate_telemetry::metrics::{CallMethod, LocalHistogram, Metrics, RequestCounts};
use tollgate_telemetry::tracing::{RequestOutcome, Span};

/// What one thread counts and keeps.
pub(crate) struct Observers {
    /// Whether there is something to flush.
    is_dirty: bool,
    /// Counts by rule and by answer.
    counts: RequestCounts,
    response_time: LocalHistogram,
    api_response_time: LocalHistogram,
    /// Keeps decisions, and passes them to subscriptions and the decision log.
    pub(super) decisions: Recorder,
    /// Counts by key; none where keys are not counted.
    keys: Option<Box<KeyRecorder>>,
    /// Writes recordings.
    pub(super) capture: CaptureWriter,
}

/// What observers noted of a request when it began.
#[derive(Default)]
pub(super) struct Noted {
    /// Which readers may want the decision.
    pub(super) wanted: Wanted,
    /// Set while a recording is to have it.
    pub(super) captured: Option<CapturedRequest>,
    pub(super) span: Option<Box<Span>>,
    /// Whether a key has no text yet.
    pub(super) wants_texts: bool,
}

/// What only some observers need of a request, in addition to the event.
pub(super) struct ObserverContext<'a> {
    pub(super) noted: &'a mut Noted,
    /// Which readers get the decision.
    pub(super) chosen: Option<Wanted>,
    /// The rules, where the request was matched against them.
    pub(super) rules: Option<&'a Generation>,
    /// What a call of the API asks.
    pub(super) api: Option<&'a ApiCall>,
    pub(super) now_us: u64,
}

// === impl Noted ===

impl Noted {
    /// Whether an observer reads the message of the request at its end.
    pub(super) fn needs_message(&self) -> bool {
        self.wanted.any || self.captured.is_some() || debug_lines::are_enabled()
    }

    /// Forgets the request, which no observer is shown.
    pub(super) fn forget(&mut self) {
        (self.wanted, self.captured) = Default::default();
    }
}

// === impl ObserverContext ===

impl ObserverContext<'_> {
    /// Whether an observer reads the request of the event.
    pub(super) fn needs_request(&self) -> bool {
        self.chosen.is_some() || self.noted.wants_texts || debug_lines::are_enabled()
    }
}

// === impl Observers ===

impl Observers {
    /// Those of one more thread.
    pub(crate) fn new(pipeline: &Pipeline, keys: Option<KeyRecorder>) -> Self {
        Self {
            is_dirty: false,
            counts: RequestCounts::default(),
            response_time: pipeline.metrics.requests.response_time.local(),
            api_response_time: pipeline.metrics.requests.api_response_time.local(),
            decisions: pipeline.decisions.recorder(),
            keys: keys.map(Box::new),
            capture: pipeline.decisions.capture().writer(),
        }
    }

    /// Counts by key, where keys are counted.
    pub(crate) fn keys(&mut self) -> Option<&mut KeyRecorder> {
        self.keys.as_deref_mut()
    }

    /// Counts a call that was received.
    #[inline]
    pub(super) fn received(&mut self, method: CallMethod) {
        self.is_dirty = true;
        self.counts.received(method);
    }

    /// Shows a request that begins to the observers that must choose then.
    #[inline]
    pub(super) fn begin(
        &mut self,
        noted: &mut Noted,
        request: &Request<'_>,
        message: &[u8],
        now_us: u64,
        now: impl FnOnce() -> Timestamp,
    ) {
        noted.wanted = self.decisions.begin(request, now_us);
        noted.captured = self.capture.begin(request, message, now_us, now);
    }

    /// Whether a key of this plan has no text yet.
    pub(super) fn want_texts(&mut self, plan: &Plan<'_>) -> bool {
        let keys = self.keys.as_mut();
        keys.is_some_and(|keys| Pipeline::wants_texts(keys, plan))
    }

    /// Adds what was counted to the metrics. Call it before answers leave, so that no client sees
    /// an answer that is not counted.
    #[inline]
    pub(crate) fn flush(&mut self, metrics: &Metrics) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        self.counts.flush(&metrics.requests);
        self.response_time.flush();
        self.api_response_time.flush();
        self.decisions.flush();
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// Shows a request that has ended to every observer.
    pub(super) fn observe(
        &self,
        observers: &mut Observers,
        ended: &Ended<'_>,
        context: ObserverContext<'_>,
    ) {
        let ObserverContext { noted, api, .. } = context;
        if api.is_some_and(|api| api.is_quiet) {
            return;
        }
        observers.is_dirty = true;
        let is_left = matches!(ended.end, End::Left(_));
        if !is_left {
            let response_time = match api {
                None => &observers.response_time,
                Some(_) => &observers.api_response_time,
            };
            #[allow(clippy::cast_precision_loss)] // a latency of 2^53 µs is not one
            response_time.observe(ended.took_us as f64 / 1e6);
            self.count(observers, ended, context.rules, api);
            if let (Some(matched), Some(keys)) = (ended.end.matched(), observers.keys.as_mut()) {
                self.count_keys(keys, ended, matched, noted.wants_texts, context.now_us);
            }
        }
        if let Some(captured) = noted.captured.take() {
            let call = api.map_or_else(Vec::new, ApiCall::recorded);
            let now = || self.clock.now();
            observers.capture.end(captured, ended, &call, now);
        }
        if !is_left && debug_lines::are_enabled() {
            debug_lines::write(ended);
        }
        if let Some(wanted) = context.chosen {
            observers.decisions.keep(wanted, ended);
        }
        if let Some(span) = noted.span.take()
            && let Some(traces) = &self.traces
        {
            let decision;
            let outcome = match &ended.end {
                End::Decided(matched) => {
                    RequestOutcome::Decided(matched.decision, Some(matched.plan))
                }
                End::Bound(code) => {
                    decision = tollgate_limiter::Decision::of_code(*code);
                    RequestOutcome::Decided(&decision, None)
                }
                End::Undecided(_, error) | End::Failed(error) => {
                    RequestOutcome::Error(error.grpc_code())
                }
                End::Left(_) => RequestOutcome::Error("CANCELLED"),
            };
            traces.end(span, outcome, self.clock.now());
        }
    }

    /// Counts a request by its answer, and its checks by rule.
    fn count(
        &self,
        observers: &mut Observers,
        ended: &Ended<'_>,
        rules: Option<&Generation>,
        api: Option<&ApiCall>,
    ) {
        let counts = &mut observers.counts;
        if let End::Undecided(_, error) | End::Failed(error) = &ended.end {
            match error {
                RequestError::Store(_) => self.metrics.requests.store_errors.inc(),
                _ => self.metrics.requests.service_errors.inc(),
            }
        }
        let (Some(matched), Some(rules)) = (ended.end.matched(), rules) else {
            return;
        };
        let code = ended.end.code();
        self.count_outcomes(rules, ended.request, matched, code, counts);
        let Some(code) = code else {
            // Starts that were decided go back, as if refused.
            return self.count_reservations(rules, ended.request, matched, Code::OverLimit);
        };
        self.count_reservations(rules, ended.request, matched, code);
        // After a look of the API there comes no charge.
        if looks_or_refuses(matched.plan, matched.outcomes) && api.is_none() {
            rules.count_dropped(matched.plan, matched.outcomes, code);
        }
        counts.decided(code);
        if matched.decision.shadowed {
            self.metrics.requests.global_shadow_mode.inc();
        }
    }
}
