//! What went wrong with a connection, as far as it can be told from the bytes and from what TLS
//! says.
//!
//! Why a type: who asked knows by which options to mend it, and each of these is mended by another.
//!
//! What it deliberately does not do: guess. What is nothing of these stays in the library's words.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// What went wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ConnectionFailure {
    /// The other end spoke TLS, and we did not.
    PeerSpeaksTls,
    /// We spoke TLS, and the other end did not.
    PeerSpeaksPlaintext,
    /// The other end hung up.
    Closed,
    /// Its certificate is signed by nobody whom we believe.
    UnknownIssuer,
    /// Its certificate bears other names.
    NameMismatch {
        /// Which; none where it bears none.
        presented: Vec<String>,
    },
    /// Its certificate cannot be used for another reason.
    ServerCertificate {
        /// Why.
        words: String,
    },
    /// It wants to see a certificate of ours, and not the one that we may have shown.
    ClientCertificate {
        /// How it said so.
        words: String,
    },
    /// Something else.
    Other {
        /// What.
        words: String,
    },
}

/// The first byte of what TLS says first: an alert, or a part of a handshake. The second is its
/// major version.
const TLS_ALERT: u8 = 0x15;
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_VERSION: u8 = 3;

/// What an error is by which the other end has hung up.
const CLOSED_BY_PEER: [io::ErrorKind; 4] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
];

// === impl ConnectionFailure ===

impl ConnectionFailure {
    /// What an error of a connection is.
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
                // Signed by another of the same name as whom they believe.
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
            // Another authority of the same name is one whom we do not believe.
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

    /// What the first bytes of the other end say, where we spoke no TLS.
    pub(crate) fn of_first_bytes(bytes: [u8; 2]) -> Option<Self> {
        // As the head of an HTTP/2 frame these would be a length beyond what any end may send
        // first.
        let [kind, version] = bytes;
        let tls = matches!(kind, TLS_ALERT | TLS_HANDSHAKE) && version == TLS_VERSION;
        tls.then_some(Self::PeerSpeaksTls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_of_tls_are_told_from_those_of_http() {
        for (bytes, tls) in [
            ([0x15, 3], true),
            ([0x16, 3], true),
            ([0x15, 2], false),
            // The head of a SETTINGS frame, and HTTP/1.
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
    fn what_tls_says_is_told_apart() {
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
