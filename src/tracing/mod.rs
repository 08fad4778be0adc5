//! What goes out by itself: traces of decisions, and counters by statsd.
//!
//! | file | what |
//! | --- | --- |
//! | `traceparent` | what a caller says of the trace that it is in |
//! | `traces` | which decisions are traced, and the spans that tell of them |
//! | `collector` | where spans go: OTLP, by HTTP or gRPC |
//! | `queue` | the spans that wait, how many may, what became of them |
//! | `statsd` | counters, told to a statsd server now and then |
//!
//! Both ways out have one rule: what is out there may be slow, silent or away, and no decision and no stop waits for it. What waits
//! to go out is bounded, and what is lost is counted.
//!
//! What it deliberately does not do: decide what is measured (`metrics`), log requests, tell what callers sent: values of
//! descriptors are strangers' and may be secrets.

mod collector;
pub mod export_settings;
mod queue;
mod spans;
mod traceparent;

pub use self::spans::{RequestOutcome, RequestSummary, Span, Traces, TracesError};
pub use self::traceparent::TraceParent;
