//! OpenTelemetry traces of decisions.
//!
//! | file | content |
//! | --- | --- |
//! | `traceparent` | parses the `traceparent` header |
//! | `spans` | samples decisions and builds their spans |
//! | `export` | the configuration: where spans are sent, which decisions are sampled |
//! | `collector` | OTLP exporter, over HTTP or gRPC |
//! | `log_export` | log records, for the decision log |
//! | `queue` | sends spans and counts them; `Backlog` bounds those that wait |
//!
//! The collector may be slow, silent or unreachable; no decision and no shutdown waits for it. What
//! waits to be sent is bounded, and what is lost is counted.
//!
//! What it deliberately does not do: define metrics (`metrics`), log requests, record what clients
//! sent: values of descriptors may be secrets.

mod collector;
mod export;
mod log_export;
mod queue;
mod spans;
mod traceparent;

pub use self::export::{Sampling, TraceExport, TracesError};
pub use self::log_export::{LogEntry, LogExport};
pub use self::spans::{RequestOutcome, Span, Traces};
pub use self::traceparent::TraceParent;
