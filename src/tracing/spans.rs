//! Which decisions are traced, and the spans that tell of them.
//!
//! How: [`Traces::begin`] looks at the caller's word and at the share that is traced. For a decision that is not, that is all: no
//! text, no memory, no look at the clock. One that is has a [`Span`], a box that waits beside the request and is made into what
//! OpenTelemetry calls a span when the answer is known. It names the domain, the rules that were asked and what they said, all
//! of it bounded and as configured; never a value that a caller sent.
//!
//! The library's tracer is not used: it wants a context for each call, sampled or not, and keeps attributes that nobody reads
//! until the end. Its batches, its exporter and its words for spans are.
//!
//! What it deliberately does not do: spans of the store's calls, links, events, baggage.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator as _, RandomIdGenerator, Sampler,
    SamplingDecision, ShouldSample as _, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::metrics::Metrics;
use crate::tracing::collector;
use crate::tracing::export_settings::{Sampling, TraceExport};
use crate::tracing::queue::{CountingExporter, SpanQueue};
use crate::tracing::traceparent::TraceParent;
use tollgate_limiter::{Code, Decision, LimitOrigin, Plan, Request, Timestamp};

/// The method that decides.
const METHOD: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How many rules a span names, and how long a name in it may be.
const RULES_NAMED_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 128;

/// What stands for a limit that came with its request.
const OVERRIDE: &str = "(sent along)";

/// How long a stop waits for spans to go out.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Traces of one service.
pub struct Traces {
    sampling: Sampling,
    ids: RandomIdGenerator,
    queue: Arc<SpanQueue>,
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    place: String,
}

/// A decision that is traced, from its beginning.
#[derive(Debug)]
pub struct Span {
    trace: TraceId,
    parent: Option<TraceParent>,
    began: Timestamp,
    domain: String,
    descriptors: usize,
}

/// What is known of a request when its span begins.
#[derive(Clone, Copy, Debug)]
pub struct RequestSummary<'a> {
    domain: &'a [u8],
    descriptors: usize,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestOutcome<'a> {
    /// Decided; by these rules, if any were looked for.
    Decided(&'a Decision<'a>, Option<&'a Plan<'a>>),
    /// Answered with a gRPC error, by its name.
    Error(&'static str),
}

/// Why there are no traces.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// A setting names what cannot be.
    #[error("{0}")]
    Settings(String),
    /// Nothing runs that could send spans.
    #[error("no runtime: {0}")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}

// === impl Traces ===

impl Traces {
    /// Traces that go where `export` says. Must be called within a runtime, which sends them.
    ///
    /// # Errors
    ///
    /// See [`TracesError`].
    pub fn new(export: &TraceExport, metrics: &Metrics) -> Result<Self, TracesError> {
        let runtime = Handle::try_current()?;
        let queue = Arc::new(SpanQueue::new(
            export.queue_spans_max,
            metrics.traces.clone(),
        ));
        let sending = CountingExporter::new(
            Arc::clone(&queue),
            collector::exporter(export)?,
            export.display_endpoint(),
            export.timeout,
            runtime,
        );
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(export.queue_spans_max)
            .with_max_export_batch_size(export.batch_spans_max)
            .with_scheduled_delay(export.batch_delay);
        let scope = InstrumentationScope::builder("tollgate");
        Ok(Self {
            sampling: export.sampling,
            ids: RandomIdGenerator::default(),
            queue,
            processor: BatchSpanProcessor::builder(sending)
                .with_batch_config(batches.build())
                .build(),
            scope: scope.with_version(env!("CARGO_PKG_VERSION")).build(),
            place: export.display_endpoint().to_owned(),
        })
    }

    /// Where they go, for people.
    pub fn display_endpoint(&self) -> &str {
        &self.place
    }

    /// A span for a request, if it is to have one; `now` is asked only then.
    pub fn begin(
        &self,
        parent: Option<TraceParent>,
        asked: RequestSummary<'_>,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Box<Span>> {
        let trace = self.sampled(parent.as_ref())?;
        let domain = String::from_utf8_lossy(asked.domain);
        Some(Box::new(Span {
            trace,
            parent,
            began: now(),
            domain: truncate(&domain).to_owned(),
            descriptors: asked.descriptors,
        }))
    }

    /// The trace of a request, if it is sampled.
    fn sampled(&self, parent: Option<&TraceParent>) -> Option<TraceId> {
        if self.sampling.parent_based
            && let Some(parent) = parent
        {
            return parent.sampled.then(|| TraceId::from_bytes(parent.trace));
        }
        if self.sampling.share <= 0.0 {
            return None;
        }
        let trace = parent.map(|parent| TraceId::from_bytes(parent.trace));
        let trace = trace.unwrap_or_else(|| self.ids.new_trace_id());
        // So that every service that traces this share traces the same.
        let by_share = Sampler::TraceIdRatioBased(self.sampling.share);
        let said = by_share.should_sample(None, trace, METHOD, &SpanKind::Server, &[], &[]);
        (said.decision != SamplingDecision::Drop).then_some(trace)
    }

    /// Hands a span on, to go out in time. It is dropped, and counted, where too many wait.
    #[allow(clippy::boxed_local)] // it comes as it waited
    pub fn end(&self, span: Box<Span>, answered: RequestOutcome<'_>, now: Timestamp) {
        if !self.queue.admit() {
            return;
        }
        let Span {
            trace,
            parent,
            began,
            domain,
            descriptors,
        } = *span;
        let code = match answered {
            RequestOutcome::Decided(..) => "OK",
            RequestOutcome::Error(code) => code,
        };
        let mut attributes = vec![
            KeyValue::new("rpc.system.name", "grpc"),
            KeyValue::new("rpc.method", METHOD),
            KeyValue::new("rpc.response.status_code", code),
            KeyValue::new("ratelimit.domain", domain),
            KeyValue::new(
                "ratelimit.descriptors",
                i64::try_from(descriptors).unwrap_or(i64::MAX),
            ),
        ];
        let status = match answered {
            RequestOutcome::Decided(decision, plan) => {
                attributes.extend(decision_attributes(decision, plan));
                Status::Unset
            }
            RequestOutcome::Error(code) => {
                attributes.push(KeyValue::new("error.type", code));
                // What a server may be blamed for, as the conventions for gRPC have it.
                let blamed = [
                    "UNKNOWN",
                    "DEADLINE_EXCEEDED",
                    "UNIMPLEMENTED",
                    "INTERNAL",
                    "UNAVAILABLE",
                    "DATA_LOSS",
                ];
                if blamed.contains(&code) {
                    Status::error("")
                } else {
                    Status::Unset
                }
            }
        };
        let (began, now) = (system_time(began), system_time(now.max(began)));
        self.processor.on_end(SpanData {
            span_context: SpanContext::new(
                trace,
                self.ids.new_span_id(),
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            ),
            parent_span_id: parent
                .map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.span)),
            parent_span_is_remote: parent.is_some(),
            span_kind: SpanKind::Server,
            name: Cow::Borrowed(METHOD),
            start_time: began,
            end_time: now,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        });
    }

    /// Has all that wait go out, and waits for that, but not for long.
    pub async fn stop(self: Arc<Self>) {
        let traces = Arc::clone(&self);
        let stopping = tokio::task::spawn_blocking(move || {
            // What became of them is counted where they are sent.
            let _ = traces.processor.shutdown_with_timeout(STOP_TIMEOUT);
        });
        // The library's own word on how long is not relied upon.
        let _ = timeout(STOP_TIMEOUT, stopping).await;
        let left = self.queue.abandon();
        if left > 0 {
            let place = &self.place;
            tracing::warn!("{left} spans were still to go to {place} when the service stopped");
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Traces").field(&self.place).finish()
    }
}

// === impl RequestSummary ===

impl<'a> From<&Request<'a>> for RequestSummary<'a> {
    fn from(request: &Request<'a>) -> Self {
        Self {
            domain: request.domain,
            descriptors: request.len(),
        }
    }
}

/// What a decision says.
fn decision_attributes(decision: &Decision<'_>, plan: Option<&Plan<'_>>) -> Vec<KeyValue> {
    let code = match decision.code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    };
    let mut attributes = vec![KeyValue::new("ratelimit.code", code)];
    if decision.shadowed {
        attributes.push(KeyValue::new("ratelimit.shadowed", true));
    }
    let Some(plan) = plan else {
        return attributes;
    };
    let asked = plan.planned_checks().map(|asked| asked.origin);
    let refused = decision
        .statuses
        .iter()
        .filter(|status| status.code == Code::OverLimit)
        .filter_map(|status| plan.planned_check(status.check_index?));
    let refused = refused.map(|asked| asked.origin);
    for (name, rules) in [
        ("ratelimit.rules", rule_names(asked)),
        ("ratelimit.rules_over_limit", rule_names(refused)),
    ] {
        if !rules.is_empty() {
            attributes.push(KeyValue::new(name, Value::Array(Array::String(rules))));
        }
    }
    attributes
}

/// The names of the first few, each once, as configured.
fn rule_names<'p>(subjects: impl Iterator<Item = LimitOrigin<'p>>) -> Vec<StringValue> {
    let mut names: Vec<StringValue> = Vec::new();
    for subject in subjects {
        if names.len() == RULES_NAMED_MAX {
            break;
        }
        let name = match subject {
            LimitOrigin::Rule(rule) => StringValue::from(truncate(&rule.full_name()).to_owned()),
            LimitOrigin::Override => StringValue::from(OVERRIDE),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// As much of a text as may stand in a span.
fn truncate(text: &str) -> &str {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_micros(at.as_us()))
        .unwrap_or(UNIX_EPOCH)
}
