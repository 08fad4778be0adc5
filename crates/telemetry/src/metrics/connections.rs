//! Metrics of connections: how many there are, and how they end. And of their TLS: handshakes and
//! certificates.
//!
//! The reason of a failed handshake is one of a fixed list, so that no client can add labels.

use super::declaration::{Counter, CounterVec, Gauge, GaugeVec, LabelValues, metrics};
use super::gauges::PolledGauge;

/// The names of listening ports.
const PORTS: LabelValues =
    LabelValues::OneOf(&["grpc", "http", "admin", "auth", "resp", "spoe", "ingress"]);

/// The names of listeners for proxies that do not speak gRPC.
const INGRESSES: LabelValues = LabelValues::OneOf(&["auth", "resp", "spoe"]);

/// The results of their checks.
const CHECK_RESULTS: LabelValues =
    LabelValues::OneOf(&["allowed", "refused", "error", "invalid", "shed"]);

const STREAMING_BOUNDS: LabelValues = LabelValues::OneOf(&["connection", "process"]);

/// The names of HTTP/2 error codes.
const HTTP2_REASONS: LabelValues = LabelValues::OneOf(&[
    "no_error",
    "protocol",
    "internal",
    "flow_control",
    "stream_closed",
    "frame_size",
    "refused_stream",
    "cancel",
    "compression",
    "enhance_your_calm",
]);

/// The results of a reload of certificate files.
const LOAD_RESULTS: LabelValues = LabelValues::OneOf(&["success", "error"]);

/// The names of [`HandshakeFailure`].
const FAILURES: LabelValues = LabelValues::OneOf(&HandshakeFailure::NAMES);

metrics! {
    /// Metrics of connections.
    pub struct ConnectionMetrics {
        /// gRPC connections sent GOAWAY because of their age.
        Counter "tollgate_connections_aged_total" => pub aged;

        /// Calls reset because their message did not arrive in time.
        Counter "tollgate_calls_late_total" => pub calls_late;

        /// Calls reset because the client did not open the flow-control window for the answer in
        /// time.
        Counter "tollgate_answers_unread_total" => pub answers_unread;

        /// Calls refused because unfinished request bodies held too much of --body-memory-max.
        Counter "tollgate_bodies_refused_total" => pub bodies_refused;

        /// Calls refused because their metadata was larger than --header-list-size-max.
        Counter "tollgate_header_lists_refused_total" => pub header_lists_refused;

        /// Bytes of --body-memory-max that unfinished request bodies hold.
        PolledGauge "tollgate_unfinished_bodies_bytes" => pub unfinished_bodies_bytes;

        /// gRPC connections closed because the client did not answer a keepalive in time.
        Counter "tollgate_connections_silent_total" => pub silent;

        /// HTTP requests answered 503 because too many were in flight or theirs took too long.
        Counter "tollgate_http_shed_total" => pub http_shed;

        /// Open calls of Stream, of reflection, and of Watch of health.
        Gauge "tollgate_streaming_calls" => pub streaming_calls;

        /// Calls of Stream, reflection, or Watch of health refused because too many were open.
        CounterVec "tollgate_streaming_calls_refused_total" [bound: STREAMING_BOUNDS]
            => streaming_calls_refused;

        /// gRPC connections closed because of what the client sent, by HTTP/2 error code.
        CounterVec "tollgate_connections_broken_total" [reason: HTTP2_REASONS] => broken;

        /// Open connections.
        GaugeVec "tollgate_connections" [port: PORTS] => open;

        /// Connections accepted.
        CounterVec "tollgate_connections_accepted_total" [port: PORTS] => accepted;

        /// Connections closed at once because too many were open.
        CounterVec "tollgate_connections_refused_total" [port: PORTS] => refused;

        /// System errors while connections were accepted.
        CounterVec "tollgate_accept_errors_total" [port: PORTS] => accept_errors;

        /// Checks of proxies that do not speak gRPC, by listener and result.
        CounterVec "tollgate_ingress_checks_total" [ingress: INGRESSES, result: CHECK_RESULTS]
            => ingress_checks;
    }
}

/// The counters of one listening port.
#[derive(Clone, Debug)]
pub struct PortCounters {
    /// Connections open.
    pub open: Gauge,
    /// Connections accepted so far.
    pub accepted: Counter,
    /// Connections closed at once because too many were open.
    pub refused: Counter,
    /// Errors of the system when a connection was accepted.
    pub accept_errors: Counter,
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    /// The counters of a listening port.
    pub fn port(&self, port: &str) -> PortCounters {
        PortCounters {
            open: self.open.with_label_values(&[port]),
            accepted: self.accepted.with_label_values(&[port]),
            refused: self.refused.with_label_values(&[port]),
            accept_errors: self.accept_errors.with_label_values(&[port]),
        }
    }

    /// The counter of checks of a listener with this result.
    pub fn ingress_check(&self, ingress: &str, result: &str) -> Counter {
        self.ingress_checks.with_label_values(&[ingress, result])
    }

    /// Counts a streaming call that was refused because of one of two bounds.
    pub fn count_refused_streaming_call(&self, bound: &'static str) {
        self.streaming_calls_refused
            .with_label_values(&[bound])
            .inc();
    }

    /// Counts a gRPC connection closed because of what the client sent, by HTTP/2 error code.
    pub fn count_broken(&self, reason: &'static str) {
        self.broken.with_label_values(&[reason]).inc();
    }
}

metrics! {
    /// Metrics of the TLS of all ports.
    pub struct TlsMetrics {
        /// TLS handshakes in flight.
        GaugeVec "tollgate_tls_handshakes_in_flight" [port: PORTS] => under_way;

        /// TLS handshakes completed.
        CounterVec "tollgate_tls_handshakes_total" [port: PORTS] => done;

        /// Connections closed because the TLS handshake failed, by reason.
        CounterVec "tollgate_tls_handshake_failures_total" [port: PORTS, reason: FAILURES]
            => failed;

        /// Times a TLS handshake waited because those of its port had used their share of a core.
        CounterVec "tollgate_tls_handshakes_paced_total" [port: PORTS] => paced;

        /// Time at which the certificate of a port expires, in seconds since 1970.
        GaugeVec "tollgate_tls_certificate_expiry_timestamp_seconds" [port: PORTS]
            => expiry_timestamp;

        /// Reloads of changed certificate files, by result; after an error the old ones stay in
        /// use.
        CounterVec "tollgate_tls_certificate_loads_total" [port: PORTS, result: LOAD_RESULTS] => loads;
    }
}

/// The handshakes of one port.
#[derive(Clone, Debug)]
pub struct HandshakeCounters {
    /// In flight.
    pub under_way: Gauge,
    /// Completed.
    pub done: Counter,
    /// Times one waited because those of its port had used their share of a core.
    pub paced: Counter,
    failed: CounterVec,
    port: String,
}

/// The certificate of one port.
#[derive(Clone, Debug)]
pub struct CertificateCounters {
    /// When it expires, in seconds since 1970.
    pub expiry_timestamp: Gauge,
    /// Reloads that succeeded.
    pub taken: Counter,
    /// Reloads that failed.
    pub refused: Counter,
}

tollgate_limiter::named! {
    /// Why a handshake failed.
    pub enum HandshakeFailure {
        /// Too many were in flight.
        TooMany = "too_many",
        /// It took too long.
        TooSlow = "too_slow",
        /// The client or the network closed the connection.
        Closed = "closed",
        /// The client showed no certificate.
        NoCertificate = "no_certificate",
        /// The client's certificate has expired or is not valid yet.
        CertificateTime = "certificate_time",
        /// The client's certificate has none of the allowed names.
        CertificateName = "certificate_name",
        /// The client's certificate is not signed by a trusted CA.
        CertificateIssuer = "certificate_issuer",
        /// The client's certificate is invalid for another reason.
        CertificateOther = "certificate_other",
        /// The client refused; it may not trust our certificate.
        RefusedByClient = "refused_by_client",
        /// The client does not offer HTTP/2.
        Protocol = "protocol",
        /// The client has no version or cipher in common with the server.
        VersionOrCipher = "version_or_cipher",
        /// The bytes received are not valid TLS.
        NotTls = "not_tls",
    }
}

// === impl TlsMetrics ===

impl TlsMetrics {
    /// The handshakes of a listening port.
    pub fn handshakes(&self, port: &str) -> HandshakeCounters {
        HandshakeCounters {
            under_way: self.under_way.with_label_values(&[port]),
            done: self.done.with_label_values(&[port]),
            paced: self.paced.with_label_values(&[port]),
            failed: self.failed.clone(),
            port: port.to_owned(),
        }
    }

    /// The certificate that a listening port shows.
    pub fn certificate(&self, port: &str) -> CertificateCounters {
        CertificateCounters {
            expiry_timestamp: self.expiry_timestamp.with_label_values(&[port]),
            taken: self.loads.with_label_values(&[port, "success"]),
            refused: self.loads.with_label_values(&[port, "error"]),
        }
    }
}

// === impl HandshakeCounters ===

impl HandshakeCounters {
    /// Counts a handshake that failed.
    pub fn failed(&self, failure: HandshakeFailure) {
        let labels = [self.port.as_str(), failure.name()];
        self.failed.with_label_values(&labels).inc();
    }
}
