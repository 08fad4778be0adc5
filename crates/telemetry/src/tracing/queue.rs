//! Bounds and counts the spans that wait to be sent.
//!
//! Why a bound in front of the library's: its batch processor drops spans when its queue is full
//! and does not report how many. How: a span is counted in when it ends and counted out by the
//! exporter. Spans beyond the bound are dropped and counted here, so the library's queue, which is
//! as long, is never full. Each span is counted once, either by the exporter or by the shutdown
//! that abandons it.
//!
//! What it deliberately does not do: connect (`collector`) or read spans.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_otlp::SpanExporter as Otlp;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::metrics::TraceMetrics;

/// Target of log lines: the module as operators know it.
const LOG: &str = "tollgate::tracing::queue";

/// Value of `waiting` after all spans were abandoned. No queue is that long.
const ABANDONED: usize = usize::MAX;

/// Number of spans that wait, and its bound.
#[derive(Debug)]
pub(crate) struct SpanQueue {
    /// Includes spans being sent; or [`ABANDONED`].
    waiting: AtomicUsize,
    spans_max: usize,
    metrics: TraceMetrics,
}

/// Exporter with a timeout that counts spans and logs the first failure.
pub(crate) struct CountingExporter {
    queue: Arc<SpanQueue>,
    to: Arc<Otlp>,
    /// Endpoint for messages.
    place: String,
    within: Duration,
    runtime: Handle,
    /// Spans lost since the last success.
    lost: AtomicU64,
}

// === impl SpanQueue ===

impl SpanQueue {
    pub(crate) fn new(spans_max: usize, metrics: TraceMetrics) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            spans_max,
            metrics,
        }
    }

    /// Counts a span in, if there is space. There is none after [`SpanQueue::abandon`].
    pub(crate) fn admit(&self) -> bool {
        let more = |waiting: usize| (waiting < self.spans_max).then(|| waiting.saturating_add(1));
        let entered = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if entered.is_err() {
            self.metrics.dropped.inc();
        }
        entered.is_ok()
    }

    /// Counts spans out. False if they were abandoned, and so are already counted.
    fn release(&self, spans: usize) -> bool {
        let less = |waiting: usize| (waiting != ABANDONED).then(|| waiting.saturating_sub(spans));
        let left = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        left.is_ok()
    }

    /// Permanently abandons all spans that wait or are being sent, and returns their number. They
    /// count as lost: whether the collector still receives some is unknown.
    pub(crate) fn abandon(&self) -> usize {
        let waiting = self.waiting.swap(ABANDONED, Ordering::Relaxed);
        if waiting == ABANDONED {
            return 0;
        }
        self.metrics.lost.inc_by(waiting as u64);
        waiting
    }
}

// === impl CountingExporter ===

impl CountingExporter {
    pub(crate) fn new(
        queue: Arc<SpanQueue>,
        to: Otlp,
        place: &str,
        within: Duration,
        runtime: Handle,
    ) -> Self {
        Self {
            queue,
            to: Arc::new(to),
            place: place.to_owned(),
            within,
            runtime,
            lost: AtomicU64::new(0),
        }
    }

    fn record_result(&self, spans: usize, sent: &Result<(), String>) {
        let (spans, place) = (spans as u64, &self.place);
        match sent {
            Ok(()) => {
                self.queue.metrics.sent.inc_by(spans);
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    // At the level of the failure.
                    tracing::warn!(target: LOG, endpoint = %place, spans_lost = lost, "spans are sent again");
                }
            }
            Err(why) => {
                self.queue.metrics.lost.inc_by(spans);
                // Logged once until an export succeeds; tollgate_trace_spans_total counts all.
                if self.lost.fetch_add(spans, Ordering::Relaxed) == 0 {
                    tracing::warn!(
                        target: LOG,
                        endpoint = %place,
                        error = why,
                        "cannot send spans; they are dropped until the collector is reachable"
                    );
                }
            }
        }
    }
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let (to, within) = (Arc::clone(&self.to), self.within);
        // The library calls from its own thread, which has no runtime for sockets and timers.
        let sending = self
            .runtime
            .spawn(async move { timeout(within, to.export(batch)).await });
        let sent = match sending.await {
            Ok(Ok(Ok(()))) => Ok(()),
            // This error holds neither headers nor the collector's response.
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(_)) => Err(format!("no answer within {within:?}")),
            Err(_) => Err("the service stopped first".to_owned()),
        };
        if self.queue.release(spans) {
            self.record_result(spans, &sent);
        }
        sent.map_err(OTelSdkError::InternalFailure)
    }
}

impl fmt::Debug for CountingExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CountingExporter")
            .field(&self.place)
            .finish()
    }
}
