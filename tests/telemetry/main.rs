//! What goes out by itself, seen by those it goes to: a collector that speaks OTLP by gRPC and by HTTP, statsd servers by TCP and
//! UDP, and a real Envoy that traces.
//!
//! How: the real binary, told by variables as an operator tells it. The collector is the tests' own, made of OpenTelemetry's own
//! protobuf, so that it can be looked into, be silent or be away.
//!
//! What it deliberately does not do: repeat how variables are read (`config/traces`) or lines written (`telemetry/statsd`).
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod collector;
mod envoy;
mod shutdown;
mod statsd;
mod tls;
mod traces;
mod unreachable_collector;

/// Two limits, one of them three levels down.
const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: day, requests_per_unit: 3 }
- key: a
  value: b
  descriptors:
  - key: c
    value: 10.0.0.1
    descriptors:
    - key: e
      rate_limit: { unit: day, requests_per_unit: 1000000 }
";
