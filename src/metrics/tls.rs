//! What is measured of TLS: handshakes, and the certificates that they show.
//!
//! What it deliberately does not do: know TLS. Why a handshake failed is one of a few words, so that no client can make
//! more of them.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::register::{counters, gauges};

/// The series of all ports.
#[derive(Debug)]
pub(super) struct TlsVecs {
    under_way: IntGaugeVec,
    done: IntCounterVec,
    failed: IntCounterVec,
    paced: IntCounterVec,
    expiry_seconds: IntGaugeVec,
    loads: IntCounterVec,
}

/// The handshakes of one port.
#[derive(Clone, Debug)]
pub struct HandshakeCounters {
    /// Under way now.
    pub under_way: IntGauge,
    /// Done so far.
    pub done: IntCounter,
    /// Times that one had to wait because all of them had taken as much of a core as they may.
    pub paced: IntCounter,
    failed: IntCounterVec,
    port: String,
}

/// The certificate of one port.
#[derive(Clone, Debug)]
pub struct CertificateCounters {
    /// Seconds until it expires; below 0 since it has.
    pub expiry_seconds: IntGauge,
    /// Times that changed files were taken.
    pub taken: IntCounter,
    /// Times that they were not.
    pub refused: IntCounter,
}

/// Why there was no handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandshakeFailure {
    /// Too many were under way.
    TooMany,
    /// It took too long.
    TooSlow,
    /// The other side left, or the network did.
    Closed,
    /// The client showed no certificate.
    NoCertificate,
    /// The client's has expired, or is not good yet.
    CertificateTime,
    /// The client's bears none of the names that may come.
    CertificateName,
    /// The client's is not of an authority that counts.
    CertificateIssuer,
    /// Something else is wrong with the client's.
    CertificateOther,
    /// The client would not go on; perhaps it does not believe ours.
    RefusedByClient,
    /// The client does not speak what is spoken here.
    Protocol,
    /// The client has no version or cipher in common with us.
    VersionOrCipher,
    /// What came is no TLS, or not by its rules.
    NotTls,
}

// === impl TlsVecs ===

impl TlsVecs {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            under_way: gauges(
                r,
                "tollgate_tls_handshakes_in_flight",
                "TLS handshakes under way",
                &["port"],
            )?,
            done: counters(
                r,
                "tollgate_tls_handshakes_total",
                "TLS handshakes done",
                &["port"],
            )?,
            failed: counters(
                r,
                "tollgate_tls_handshake_failures_total",
                "Connections closed because there was no TLS handshake, by why",
                &["port", "reason"],
            )?,
            paced: counters(
                r,
                "tollgate_tls_handshakes_paced_total",
                "Times that a TLS handshake waited because all of a port had taken as much of a core as they may",
                &["port"],
            )?,
            expiry_seconds: gauges(
                r,
                "tollgate_tls_certificate_expiry_seconds",
                "Seconds until the certificate that a port shows expires; below 0 since it has",
                &["port"],
            )?,
            loads: counters(
                r,
                "tollgate_tls_certificate_loads_total",
                "Times that changed certificate files were taken, or were not and the old ones stayed",
                &["port", "result"],
            )?,
        })
    }

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
            expiry_seconds: self.expiry_seconds.with_label_values(&[port]),
            taken: self.loads.with_label_values(&[port, "success"]),
            refused: self.loads.with_label_values(&[port, "error"]),
        }
    }
}

// === impl HandshakeCounters ===

impl HandshakeCounters {
    /// Counts one that failed.
    pub fn failed(&self, why: HandshakeFailure) {
        let labels = [self.port.as_str(), why.word()];
        self.failed.with_label_values(&labels).inc();
    }
}

// === impl HandshakeFailure ===

impl HandshakeFailure {
    fn word(self) -> &'static str {
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
