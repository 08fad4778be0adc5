//! Sends log records to an OpenTelemetry collector: the decision log with the destination `otlp`.
//!
//! The collector is the one that the OTEL variables name: those for logs, or those for all signals.
//! Protocol, TLS and resource attributes are read as for traces.
//!
//! What it deliberately does not do: queue records (`decisions/log`).

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry_otlp::LogExporter as Otlp;
use opentelemetry_sdk::logs::{
    LogBatch, LogExporter as _, SdkLogRecord, SdkLogger, SdkLoggerProvider,
};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tollgate_limiter::Timestamp;

use crate::tracing::collector;
use crate::tracing::export::{TraceExport, TracesError};
use crate::tracing::spans::system_time;

/// Name of the scope and of each record's event.
const SCOPE: &str = "tollgate";
const EVENT: &str = "tollgate.decision";

/// How much longer than its timeout an export may take.
const GRACE: Duration = Duration::from_secs(1);

/// Sends log records.
pub struct LogExport {
    exporter: Arc<Otlp>,
    logger: SdkLogger,
    scope: InstrumentationScope,
    place: String,
    within: Duration,
    runtime: Handle,
}

/// A log record with a JSON body.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The time of the event.
    pub at: Timestamp,
    /// Whether it is an error.
    pub is_error: bool,
    /// The body.
    pub body: String,
}

// === impl LogExport ===

impl LogExport {
    /// Prepares exports to the collector that `export` describes. Must be called within a runtime,
    /// which sends the records.
    ///
    /// # Errors
    ///
    /// See [`TracesError`].
    pub fn new(export: &TraceExport) -> Result<Self, TracesError> {
        let provider = SdkLoggerProvider::builder().build();
        let scope = InstrumentationScope::builder(SCOPE);
        let scope = scope.with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Self {
            exporter: Arc::new(collector::log_exporter(export)?),
            logger: provider.logger_with_scope(scope.clone()),
            scope,
            place: export.display_endpoint(),
            within: export.timeout,
            runtime: Handle::try_current()?,
        })
    }

    /// Endpoint for messages, without secrets.
    pub fn display_endpoint(&self) -> &str {
        &self.place
    }

    /// Sends records and waits for the result. For a thread without a runtime.
    ///
    /// # Errors
    ///
    /// When the collector does not accept them in time.
    pub fn send(&self, entries: Vec<LogEntry>) -> Result<(), String> {
        let records: Vec<_> = entries.into_iter().map(|one| self.record(one)).collect();
        let (sender, result) = mpsc::sync_channel(1);
        let (exporter, scope) = (Arc::clone(&self.exporter), self.scope.clone());
        let within = self.within;
        self.runtime.spawn(async move {
            let each: Vec<_> = records.iter().map(|record| (record, &scope)).collect();
            let sent = timeout(within, exporter.export(LogBatch::new(&each))).await;
            let sent = match sent {
                // This error holds neither headers nor the collector's response.
                Ok(sent) => sent.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {within:?}")),
            };
            // The caller waits, or the service has stopped.
            let _ = sender.send(sent);
        });
        result
            .recv_timeout(within.saturating_add(GRACE))
            .unwrap_or_else(|_| Err("the service stopped first".to_owned()))
    }

    fn record(&self, entry: LogEntry) -> SdkLogRecord {
        let mut record = self.logger.create_log_record();
        let at = system_time(entry.at);
        record.set_event_name(EVENT);
        record.set_timestamp(at);
        record.set_observed_timestamp(at);
        let (number, text) = if entry.is_error {
            (Severity::Error, "ERROR")
        } else {
            (Severity::Info, "INFO")
        };
        record.set_severity_number(number);
        record.set_severity_text(text);
        record.set_body(AnyValue::from(entry.body));
        record
    }
}

impl fmt::Debug for LogExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogExport").field(&self.place).finish()
    }
}
