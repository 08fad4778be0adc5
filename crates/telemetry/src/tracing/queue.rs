//! Sends spans, and counts what became of them.
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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_otlp::SpanExporter as Otlp;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;
use tokio::time::timeout;

use tollgate_system::backlog::Backlog;

use crate::metrics::TraceMetrics;

/// Target of log lines: the module as operators know it.
const LOG: &str = "tollgate::tracing::queue";

/// Exporter with a timeout that counts spans and logs the first failure.
pub(crate) struct CountingExporter {
    pub(crate) queue: Arc<Backlog>,
    pub(crate) metrics: TraceMetrics,
    pub(crate) to: Arc<Otlp>,
    /// Endpoint for messages.
    pub(crate) place: String,
    pub(crate) within: Duration,
    pub(crate) runtime: Handle,
    /// Spans lost since the last success.
    pub(crate) lost: AtomicU64,
}

// === impl CountingExporter ===

impl CountingExporter {
    fn record_result(&self, spans: usize, sent: &Result<(), String>) {
        let (spans, place) = (spans as u64, &self.place);
        match sent {
            Ok(()) => {
                self.metrics.sent.inc_by(spans);
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    // At the level of the failure.
                    tracing::warn!(target: LOG, endpoint = %place, spans_lost = lost, "spans are sent again");
                }
            }
            Err(why) => {
                self.metrics.lost.inc_by(spans);
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
        if self.queue.leave(spans) {
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
