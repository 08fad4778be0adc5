//! The headings under which `--help`, the man page and `docs/settings.md` list settings.
//!
//! They appear in the order in which [`super::Settings`] declares their settings.

/// Rules files.
pub const RULES: &str = "Rules";
/// Rules that an xDS server sends.
pub const XDS: &str = "Rules from an xDS server";
/// Addresses, ports, and access to the admin listener.
pub const LISTENERS: &str = "Listeners";
/// Listeners for proxies and clients that do not speak gRPC.
pub const INGRESSES: &str = "Other ingresses";
/// Certificates of listeners, and TLS handshakes.
pub const TLS: &str = "TLS";
/// How requests consume limits, and responses without a decision.
pub const DECISIONS: &str = "Decisions";
/// Headers and metadata of responses.
pub const HEADERS: &str = "Response headers";
/// Bounds of one request.
pub const REQUEST_LIMITS: &str = "Request limits";
/// Bounds of connections and their streams.
pub const CONNECTIONS: &str = "Connection limits";
/// Memory for buckets, worker threads and their queues.
pub const WORKERS: &str = "Memory and workers";
/// Redis or Valkey, shared by replicas.
pub const STORE: &str = "Shared store";
/// Logs and metrics that Prometheus scrapes.
pub const LOGS: &str = "Observability";
/// Counters that are sent to a StatsD server.
pub const STATSD: &str = "Observability, StatsD";
/// Traces that are sent to a collector.
pub const TRACES: &str = "Observability, traces";
/// Draining after a stop signal.
pub const SHUTDOWN: &str = "Shutdown";
