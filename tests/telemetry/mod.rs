//! Traces and statsd counters of the real binary, received by an OTLP collector over gRPC and HTTP,
//! by statsd servers over TCP and UDP, and together with real Envoy's spans.
//!
//! How: the binary is configured by environment variables. The collector is built from
//! OpenTelemetry's protobuf, so that tests can inspect it, delay its answers or stop it.
//!
//! What it deliberately does not do: repeat the tests of reading variables
//! (`src/settings/trace_export.rs`) or of writing lines (`crates/telemetry/src/statsd/lines.rs`).

mod collector;
mod decision_log;
mod envoy;
mod shutdown;
mod statsd;
mod tls;
mod traces;
mod unreachable_collector;

/// Two limits, one of them three levels deep.
const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 3 }
- key: a
  value: b
  descriptors:
  - key: c
    value: 10.0.0.1
    descriptors:
    - key: e
      rate_limit: { unit: year, requests_per_unit: 1000000 }
";
