//! Samples decisions and builds their spans.
//!
//! How: [`Traces::begin`] looks at the client's sampling flag and the sampling ratio. For a
//! decision that is not sampled that is all: no text, no allocation, no clock. A sampled one has a
//! [`Span`] that waits beside the request and is converted to an OpenTelemetry span when the answer
//! is known. It names the domain, the rules that were checked and their results, all of it bounded
//! and as configured; never a value that a client sent.
//!
//! The library's tracer is not used: it needs a context for each call, sampled or not, and keeps
//! attributes that are not read until the end. Its batches, exporter and semantic conventions are
//! used.
//!
//! What it deliberately does not do: spans of store calls, links, events, baggage.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
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

use crate::metrics::{CallMethod, Metrics, TraceMetrics};
use crate::tracing::collector;
use crate::tracing::export::{Sampling, TraceExport, TracesError};
use crate::tracing::queue::CountingExporter;
use crate::tracing::traceparent::TraceParent;
use tollgate_limiter::{Code, Decision, Hits, LimitOrigin, Plan, Request, Timestamp};
use tollgate_system::backlog::Backlog;
use tollgate_system::event_rate::EventRate;
use tollgate_system::visible_text::beginning;

/// Target of log lines: the module as operators know it.
const LOG: &str = "tollgate::tracing::spans";

/// Most rules that a span names, and the longest name.
const RULES_NAMED_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 128;

/// Name of a limit that came with its request.
const OVERRIDE: &str = "(sent along)";

/// gRPC codes that OpenTelemetry's conventions count as errors of the server.
const SERVER_ERRORS: [&str; 6] = [
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
];

/// How long shutdown waits for spans to be sent.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Tracer of one service.
pub struct Traces {
    sampling: Sampling,
    /// None for no bound.
    rate: Option<EventRate>,
    metrics: TraceMetrics,
    ids: RandomIdGenerator,
    queue: Arc<Backlog>,
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    place: String,
}

/// A sampled decision in progress.
#[derive(Debug)]
pub struct Span {
    trace: TraceId,
    parent: Option<TraceParent>,
    method: CallMethod,
    began: Timestamp,
    domain: String,
    descriptors: usize,
}

/// Result of a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestOutcome<'a> {
    /// Decided, by the rules of the plan, if any were matched.
    Decided(&'a Decision<'a>, Option<&'a Plan<'a>>),
    /// Failed with a gRPC error, by its name.
    Error(&'static str),
}

// === impl Traces ===

impl Traces {
    /// Starts the exporter that `export` describes. Must be called within a runtime, which sends
    /// the spans.
    ///
    /// # Errors
    ///
    /// See [`TracesError`].
    pub fn new(export: &TraceExport, metrics: &Metrics) -> Result<Self, TracesError> {
        let runtime = Handle::try_current()?;
        let queue = Arc::new(Backlog::new(export.queue_spans_max));
        let sending = CountingExporter {
            queue: Arc::clone(&queue),
            metrics: metrics.traces.clone(),
            to: Arc::new(collector::span_exporter(export)?),
            place: export.display_endpoint(),
            within: export.timeout,
            runtime,
            lost: AtomicU64::new(0),
        };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(export.queue_spans_max)
            .with_max_export_batch_size(export.batch_spans_max)
            .with_scheduled_delay(export.batch_delay);
        let scope = InstrumentationScope::builder("tollgate");
        Ok(Self {
            sampling: export.sampling,
            rate: export.per_second_max.map(EventRate::new),
            metrics: metrics.traces.clone(),
            ids: RandomIdGenerator::default(),
            queue,
            processor: BatchSpanProcessor::builder(sending)
                .with_batch_config(batches.build())
                .build(),
            scope: scope.with_version(env!("CARGO_PKG_VERSION")).build(),
            place: export.display_endpoint(),
        })
    }

    /// Endpoint for messages, without secrets.
    pub fn display_endpoint(&self) -> &str {
        &self.place
    }

    /// Begins a span, if the request is sampled and the rate allows it; `now` is called only then.
    pub fn begin(
        &self,
        parent: Option<TraceParent>,
        method: CallMethod,
        request: &Request<'_>,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Box<Span>> {
        let trace = self.sampled(parent.as_ref())?;
        let began = now();
        if self.rate.as_ref().is_some_and(|rate| !rate.passes(began)) {
            self.metrics.skipped.inc();
            return None;
        }
        let domain = String::from_utf8_lossy(request.domain);
        Some(Box::new(Span {
            trace,
            parent,
            method,
            began,
            domain: beginning(&domain, NAME_BYTES_MAX).to_owned(),
            descriptors: request.len(),
        }))
    }

    /// Trace ID of a request, if it is sampled.
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
        // By trace ID, so that every service with this ratio samples the same traces.
        let sampler = Sampler::TraceIdRatioBased(self.sampling.share);
        let result = sampler.should_sample(None, trace, "", &SpanKind::Server, &[], &[]);
        (result.decision != SamplingDecision::Drop).then_some(trace)
    }

    /// Ends a span and queues it for export. It is dropped and counted when the queue is full.
    #[allow(clippy::boxed_local)] // it comes as it waited
    pub fn end(&self, span: Box<Span>, outcome: RequestOutcome<'_>, now: Timestamp) {
        if !self.queue.enter() {
            self.metrics.dropped.inc();
            return;
        }
        let Span {
            trace,
            parent,
            method,
            began,
            domain,
            descriptors,
        } = *span;
        let method = method.name();
        let code = match outcome {
            RequestOutcome::Decided(..) => "OK",
            RequestOutcome::Error(code) => code,
        };
        let mut attributes = vec![
            KeyValue::new("rpc.system.name", "grpc"),
            KeyValue::new("rpc.method", method),
            KeyValue::new("rpc.response.status_code", code),
            KeyValue::new("ratelimit.domain", domain),
            KeyValue::new(
                "ratelimit.descriptors",
                i64::try_from(descriptors).unwrap_or(i64::MAX),
            ),
        ];
        match outcome {
            RequestOutcome::Decided(decision, plan) => {
                attributes.extend(decision_attributes(decision, plan));
            }
            RequestOutcome::Error(code) => attributes.push(KeyValue::new("error.type", code)),
        }
        let status = if SERVER_ERRORS.contains(&code) {
            Status::error("")
        } else {
            Status::Unset
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
            name: Cow::Borrowed(method),
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

    /// Flushes the spans that wait, for at most [`STOP_TIMEOUT`].
    pub async fn stop(self: Arc<Self>) {
        let traces = Arc::clone(&self);
        let stopping = tokio::task::spawn_blocking(move || {
            // The exporter counts the results.
            let _ = traces.processor.shutdown_with_timeout(STOP_TIMEOUT);
        });
        // The library's own timeout is not relied on.
        let _ = timeout(STOP_TIMEOUT, stopping).await;
        let left = self.queue.abandon();
        // Whether the collector still receives some is unknown.
        self.metrics.lost.inc_by(left as u64);
        if left > 0 {
            tracing::warn!(
                target: LOG,
                endpoint = %self.place,
                spans_lost = left,
                "stopped before all spans were sent"
            );
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Traces").field(&self.place).finish()
    }
}

/// Attributes of a decision.
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
    let checked = plan.planned_checks().map(|check| check.origin);
    let mut checks = plan.checks().iter();
    let operation = checks.find_map(|check| match check.operation.hits {
        Hits::Reservation(step) => Some((step.name(), step.hits())),
        Hits::Charge(hits) => Some(("charge", hits)),
        Hits::Take(_) | Hits::Refund(_) | Hits::Undo { .. } => None,
    });
    if let Some((name, hits)) = operation {
        attributes.push(KeyValue::new("ratelimit.operation", name));
        let hits = i64::try_from(hits).unwrap_or(i64::MAX);
        attributes.push(KeyValue::new("ratelimit.operation.hits", hits));
    }
    let refused = decision
        .statuses
        .iter()
        .filter(|status| status.code == Code::OverLimit)
        .filter_map(|status| plan.planned_check(status.check_index?));
    let refused = refused.map(|check| check.origin);
    for (name, rules) in [
        ("ratelimit.rules", rule_names(checked)),
        ("ratelimit.rules_over_limit", rule_names(refused)),
    ] {
        if !rules.is_empty() {
            attributes.push(KeyValue::new(name, Value::Array(Array::String(rules))));
        }
    }
    attributes
}

/// Names of the first rules, without duplicates, as configured.
fn rule_names<'p>(subjects: impl Iterator<Item = LimitOrigin<'p>>) -> Vec<StringValue> {
    let mut names: Vec<StringValue> = Vec::new();
    for subject in subjects {
        if names.len() == RULES_NAMED_MAX {
            break;
        }
        let name = match subject {
            LimitOrigin::Rule(rule) => {
                StringValue::from(beginning(&rule.full_name(), NAME_BYTES_MAX).to_owned())
            }
            LimitOrigin::Override => StringValue::from(OVERRIDE),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

pub(super) fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_micros(at.as_us()))
        .unwrap_or(UNIX_EPOCH)
}
