//! The spans that wait to go out: how many may, and what became of them.
//!
//! Why a bound in front of the library's: its batch processor drops what its queue has no room for and keeps to itself how much
//! that was. How: whoever hands in a span counts it, the exporter counts it out, and what is beyond the bound is dropped here
//! and counted; so the library's queue, as long as ours, is never full. Whoever takes spans out of the number
//! that wait counts them, the exporter or the stop that gives them up: so each span is counted once.
//!
//! What it deliberately does not do: connect (`collector`), know what a span says.

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

/// What stands for the number that wait when all were given up. No queue is so long.
const ABANDONED: usize = usize::MAX;

/// How many spans wait, and how many may.
#[derive(Debug)]
pub(crate) struct SpanQueue {
    /// Those under way to the collector as well; or [`ABANDONED`].
    waiting: AtomicUsize,
    spans_max: usize,
    metrics: TraceMetrics,
}

/// Sends spans within a time, counts them, and says once that nobody takes them.
pub(crate) struct CountingExporter {
    queue: Arc<SpanQueue>,
    to: Arc<Otlp>,
    /// Where, for people.
    place: String,
    within: Duration,
    runtime: Handle,
    /// How many were lost since the last that were taken.
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

    /// Whether there is room for one more, which then counts. Where all were given up there is none.
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

    /// Whether these waited until now, and are the exporter's to count; else they were given up, and are counted.
    fn release(&self, spans: usize) -> bool {
        let less = |waiting: usize| (waiting != ABANDONED).then(|| waiting.saturating_sub(spans));
        let left = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        left.is_ok()
    }

    /// Gives up all that still wait or are under way, for good, and says how many. They count as lost: whether the collector
    /// takes some of them yet nobody will know.
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
                    tracing::info!("spans reach {place} again; {lost} were lost meanwhile");
                }
            }
            Err(why) => {
                self.queue.metrics.lost.inc_by(spans);
                // Once, until they are taken again; tollgate_trace_spans_total counts.
                if self.lost.fetch_add(spans, Ordering::Relaxed) == 0 {
                    tracing::warn!(
                        "spans do not reach {place}: {why}; they are lost until they do, and nothing else is"
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
        // The library calls from a thread of its own, where no socket and no timer works.
        let sending = self
            .runtime
            .spawn(async move { timeout(within, to.export(batch)).await });
        let sent = match sending.await {
            Ok(Ok(Ok(()))) => Ok(()),
            // Its words hold neither headers nor what the collector answered.
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(_)) => Err(format!("no answer within {within:?}")),
            Err(_) => Err("the service ended first".to_owned()),
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
