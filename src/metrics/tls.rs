//! Metrics of TLS: handshakes and certificates.
//!
//! The reason of a failed handshake is one of a fixed list, so that no client can add labels.

use super::connections::PORTS;
use super::declaration::{Counter, CounterVec, Gauge, GaugeVec, LabelValues, metrics};

/// The results of a reload of certificate files.
const RESULTS: LabelValues = LabelValues::OneOf(&["success", "error"]);

/// The names of [`HandshakeFailure`].
const FAILURES: LabelValues = LabelValues::OneOf(&[
    "too_many",
    "too_slow",
    "closed",
    "no_certificate",
    "certificate_time",
    "certificate_name",
    "certificate_issuer",
    "certificate_other",
    "refused_by_client",
    "protocol",
    "version_or_cipher",
    "not_tls",
]);

metrics! {
    /// Metrics of the TLS of all ports.
    pub(super) struct TlsMetrics {
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

        /// Seconds until the certificate of a port expires, negative once it has expired;
        /// deprecated: use tollgate_tls_certificate_expiry_timestamp_seconds.
        GaugeVec "tollgate_tls_certificate_expiry_seconds" [port: PORTS] => expiry_seconds;

        /// Reloads of changed certificate files, by result; after an error the old ones stay in
        /// use.
        CounterVec "tollgate_tls_certificate_loads_total" [port: PORTS, result: RESULTS] => loads;
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
    /// Seconds until it expires; negative once it has expired.
    pub expiry_seconds: Gauge,
    /// Reloads that succeeded.
    pub taken: Counter,
    /// Reloads that failed.
    pub refused: Counter,
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandshakeFailure {
    /// Too many were in flight.
    TooMany,
    /// It took too long.
    TooSlow,
    /// The client or the network closed the connection.
    Closed,
    /// The client showed no certificate.
    NoCertificate,
    /// The client's certificate has expired or is not valid yet.
    CertificateTime,
    /// The client's certificate has none of the allowed names.
    CertificateName,
    /// The client's certificate is not signed by a trusted CA.
    CertificateIssuer,
    /// The client's certificate is invalid for another reason.
    CertificateOther,
    /// The client refused; it may not trust our certificate.
    RefusedByClient,
    /// The client does not offer HTTP/2.
    Protocol,
    /// The client has no version or cipher in common with the server.
    VersionOrCipher,
    /// The bytes received are not valid TLS.
    NotTls,
}

// === impl TlsMetrics ===

impl TlsMetrics {
    pub(super) fn handshakes(&self, port: &str) -> HandshakeCounters {
        HandshakeCounters {
            under_way: self.under_way.with_label_values(&[port]),
            done: self.done.with_label_values(&[port]),
            paced: self.paced.with_label_values(&[port]),
            failed: self.failed.clone(),
            port: port.to_owned(),
        }
    }

    pub(super) fn certificate(&self, port: &str) -> CertificateCounters {
        CertificateCounters {
            expiry_timestamp: self.expiry_timestamp.with_label_values(&[port]),
            expiry_seconds: self.expiry_seconds.with_label_values(&[port]),
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

// === impl HandshakeFailure ===

impl HandshakeFailure {
    #[cfg(test)]
    pub(super) const ALL: [Self; 12] = [
        Self::TooMany,
        Self::TooSlow,
        Self::Closed,
        Self::NoCertificate,
        Self::CertificateTime,
        Self::CertificateName,
        Self::CertificateIssuer,
        Self::CertificateOther,
        Self::RefusedByClient,
        Self::Protocol,
        Self::VersionOrCipher,
        Self::NotTls,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::TooSlow => "too_slow",
            Self::Closed => "closed",
            Self::NoCertificate => "no_certificate",
            Self::CertificateTime => "certificate_time",
            Self::CertificateName => "certificate_name",
            Self::CertificateIssuer => "certificate_issuer",
            Self::CertificateOther => "certificate_other",
            Self::RefusedByClient => "refused_by_client",
            Self::Protocol => "protocol",
            Self::VersionOrCipher => "version_or_cipher",
            Self::NotTls => "not_tls",
        }
    }
}
