//! Why a connection failed, from its first bytes and from TLS errors.
//!
//! Each failure has advice of its own, so each is a variant.
//!
//! What it deliberately does not do: guess. Any other error keeps the library's message.

use std::io;

use crate::tls::ClientFiles;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// The class of a failure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ConnectionFailure {
    /// The peer uses TLS, and the client does not.
    PeerSpeaksTls,
    /// The client uses TLS, and the peer does not.
    PeerSpeaksPlaintext,
    /// The peer closed the connection.
    Closed,
    /// The server's certificate is not signed by a trusted CA.
    UnknownIssuer,
    /// The server's certificate has other names.
    NameMismatch {
        /// The names it has; may be empty.
        presented: Vec<String>,
    },
    /// The server's certificate is invalid for another reason.
    ServerCertificate {
        /// The reason.
        words: String,
    },
    /// The server requires a client certificate, or rejected the client's.
    ClientCertificate {
        /// The alert.
        words: String,
    },
    /// Another error.
    Other {
        /// The message.
        words: String,
    },
}

/// The first byte of a TLS record: an alert or a handshake message. The second is the major
/// version.
const TLS_ALERT: u8 = 0x15;
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_VERSION: u8 = 3;

/// Error kinds of a connection that the peer has closed.
const CLOSED_BY_PEER: [io::ErrorKind; 4] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
];

// === impl ConnectionFailure ===

impl ConnectionFailure {
    /// Classifies an error of a connection.
    pub(crate) fn of(error: &io::Error) -> Self {
        let behind = error
            .get_ref()
            .and_then(|error| error.downcast_ref::<Error>());
        match behind {
            Some(Error::InvalidCertificate(why)) => Self::of_server_certificate(why),
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Self::PeerSpeaksPlaintext,
            Some(Error::AlertReceived(
                alert @ (AlertDescription::CertificateRequired
                | AlertDescription::NoCertificate
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                // A CA of the same name, but another key.
                | AlertDescription::DecryptError),
            )) => Self::ClientCertificate {
                words: format!("{alert:?}"),
            },
            None if CLOSED_BY_PEER.contains(&error.kind()) => Self::Closed,
            _ => Self::Other {
                words: error.to_string(),
            },
        }
    }

    fn of_server_certificate(why: &CertificateError) -> Self {
        match why {
            // A CA of the same name, but another key, is not trusted.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::NotValidForName => Self::NameMismatch {
                presented: Vec::new(),
            },
            CertificateError::NotValidForNameContext { presented, .. } => Self::NameMismatch {
                presented: presented.clone(),
            },
            other => Self::ServerCertificate {
                words: other.to_string(),
            },
        }
    }

    /// Classifies the peer's first bytes on a plaintext connection.
    pub(crate) fn of_first_bytes(bytes: [u8; 2]) -> Option<Self> {
        // As an HTTP/2 frame header, these bytes would be a length that no peer may send first.
        let [kind, version] = bytes;
        let tls = matches!(kind, TLS_ALERT | TLS_HANDSHAKE) && version == TLS_VERSION;
        tls.then_some(Self::PeerSpeaksTls)
    }

    /// What is wrong at `address`, and what to do. `files` are the TLS files of the client; none if
    /// it does not use TLS.
    pub(crate) fn describe(
        self,
        address: &str,
        files: Option<&ClientFiles>,
    ) -> (String, &'static str) {
        let authorities = files.map(|files| files.ca_bundle.as_deref());
        let ours = files.and_then(|files| files.identity.as_ref());
        match self {
            Self::PeerSpeaksTls => (
                format!("{address} answers with TLS"),
                "set --cacert to the CA bundle of its certificate, or set --tls to use the system roots",
            ),
            Self::PeerSpeaksPlaintext => (
                format!("{address} does not answer with TLS"),
                "remove --cacert and --tls, or correct the port",
            ),
            Self::Closed if authorities.is_some() => (
                format!("{address} closed the connection during the TLS handshake"),
                "check that the port uses TLS, and read the log of the service",
            ),
            Self::Closed => (
                format!("{address} closed the connection"),
                "if the port uses TLS, set --cacert to the CA bundle of its certificate; otherwise correct the port",
            ),
            Self::UnknownIssuer => {
                let store = match authorities.flatten() {
                    Some(path) => format!("in {}", path.display()),
                    None => "of the system roots".to_owned(),
                };
                (
                    format!("the certificate of {address} is not signed by a CA {store}"),
                    "set --cacert to the CA bundle that signed it",
                )
            }
            Self::NameMismatch { presented } => (
                format!(
                    "the certificate of {address} is for {}, not for the name of this connection",
                    listed(&presented)
                ),
                "set --server-name to one of its names",
            ),
            Self::ServerCertificate { words } => (
                format!("the certificate of {address} is invalid ({words})"),
                "replace the certificate of the service",
            ),
            Self::ClientCertificate { words } => match ours.map(|(certificate, _)| certificate) {
                None => (
                    format!("{address} requires a client certificate ({words})"),
                    "set --client-cert and --client-key",
                ),
                Some(path) => (
                    format!(
                        "{address} rejected the client certificate in {} ({words})",
                        path.display()
                    ),
                    "use one that is valid now, is signed by a CA that the service trusts, and has a name that it accepts",
                ),
            },
            Self::Other { words } => (
                format!("the TLS handshake with {address} failed: {words}"),
                "read the log of the service",
            ),
        }
    }
}

/// A list of names, without the library's `DnsName("…")`.
fn listed(names: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name.strip_prefix("DnsName(\"");
        let inner = inner.and_then(|name| name.strip_suffix("\")"));
        inner.unwrap_or(name).to_owned()
    };
    match names {
        [] => "no name".to_owned(),
        names => names.iter().map(bare).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_records_are_distinguished_from_http() {
        for (bytes, tls) in [
            ([0x15, 3], true),
            ([0x16, 3], true),
            ([0x15, 2], false),
            // The header of a SETTINGS frame, and HTTP/1.
            ([0, 0], false),
            (*b"HT", false),
        ] {
            assert_eq!(
                ConnectionFailure::of_first_bytes(bytes).is_some(),
                tls,
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn tls_errors_are_classified() {
        let of = |error: Error| {
            ConnectionFailure::of(&io::Error::new(io::ErrorKind::InvalidData, error))
        };
        let certificate = |why| of(Error::InvalidCertificate(why));
        assert_eq!(
            certificate(CertificateError::UnknownIssuer),
            ConnectionFailure::UnknownIssuer
        );
        assert_eq!(
            certificate(CertificateError::BadSignature),
            ConnectionFailure::UnknownIssuer
        );
        assert!(matches!(
            certificate(CertificateError::Expired),
            ConnectionFailure::ServerCertificate { .. }
        ));
        for (alert, ours) in [
            (AlertDescription::CertificateRequired, true),
            (AlertDescription::UnknownCA, true),
            (AlertDescription::InternalError, false),
        ] {
            let failure = of(Error::AlertReceived(alert));
            assert_eq!(
                matches!(failure, ConnectionFailure::ClientCertificate { .. }),
                ours,
                "{failure:?}"
            );
        }
        let plain = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(of(plain), ConnectionFailure::PeerSpeaksPlaintext);
        for (kind, silent) in [
            (io::ErrorKind::ConnectionReset, true),
            (io::ErrorKind::NotConnected, false),
        ] {
            let failure = ConnectionFailure::of(&io::Error::from(kind));
            assert_eq!(failure == ConnectionFailure::Closed, silent, "{failure:?}");
        }
    }
}
