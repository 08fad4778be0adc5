//! Why there is no connection to a server, and what to do.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use redis::RedisError;
use rustls::{CertificateError, Error, InvalidMessage};

use super::error_class::{ServerError, fault_of};
use super::lookups::LookupError;
use super::target::Secret;
use tollgate_store::StoreFault;
use tollgate_tls::TlsError;

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// The password's file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The name of the server has no address.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The network failed.
    #[error("{0}")]
    Network(#[from] io::Error),
    /// The TLS files cannot be used.
    #[error(transparent)]
    TlsFiles(#[from] TlsError),
    /// The TLS handshake failed.
    #[error(transparent)]
    Tls(#[from] TlsFailure),
    /// The server requires a password.
    #[error("it asks for a password, and none is set; set {0}")]
    NoPassword(&'static str),
    /// The server refused, or closed the connection.
    #[error("{words}")]
    Server {
        /// The class of the error.
        fault: StoreFault,
        /// The server's text, without the password.
        words: String,
    },
    /// No sentinel named a primary.
    #[error("no sentinel knows a primary named `{primary}`: {last}")]
    NoPrimary {
        /// The primary's name.
        primary: String,
        /// What the last sentinel answered.
        last: String,
        /// The class of that.
        fault: StoreFault,
    },
    /// No node is assigned to this slot any more.
    #[error("no node is assigned to this slot")]
    UnknownNode,
    /// The connection took too long.
    #[error("no connection within {0} ms")]
    TooLong(u128),
}

/// A failed TLS handshake.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {words}; {advice}")]
pub(super) struct TlsFailure {
    words: String,
    advice: &'static str,
}

// === impl ConnectError ===

impl ConnectError {
    /// The class of an error that the client library reports. `password_setting` names the setting
    /// that is missing if the server asks for a password and there is none.
    pub(super) fn of_server(
        error: &RedisError,
        password: Option<&Secret>,
        password_setting: &'static str,
    ) -> Self {
        // A server that wants another client certificate closes the connection after the handshake.
        if let Some(failure) = TlsFailure::behind(error) {
            return failure.into();
        }
        let words = error.to_string();
        // Where a database is selected first, the library keeps the text alone.
        let asks = ["NOAUTH", "Authentication required"];
        if password.is_none() && asks.iter().any(|asks| words.contains(asks)) {
            return Self::NoPassword(password_setting);
        }
        Self::Server {
            fault: match fault_of(error) {
                // Without a connection no call was lost.
                Some(StoreFault::ConnectionLost) | None => StoreFault::NotConnected,
                Some(fault) => fault,
            },
            words: match password {
                Some(password) => password.hide_in(&words),
                None => words,
            },
        }
    }

    /// The class of this error.
    pub(super) fn fault(&self) -> StoreFault {
        match self {
            Self::File { .. } | Self::NoPassword(_) => StoreFault::AccessDenied,
            Self::Lookup(_) => StoreFault::NameLookup,
            Self::TlsFiles(_) | Self::Tls(_) => StoreFault::TlsFailed,
            Self::Server { fault, .. } | Self::NoPrimary { fault, .. } => *fault,
            Self::Network(_) | Self::UnknownNode | Self::TooLong(_) => StoreFault::NotConnected,
        }
    }
}

impl From<ConnectError> for ServerError {
    fn from(error: ConnectError) -> Self {
        Self::new(error.fault(), error.to_string())
    }
}

// === impl TlsFailure ===

impl TlsFailure {
    /// The host cannot be the name of a certificate.
    pub(super) fn name(words: &str) -> Self {
        Self {
            words: words.to_owned(),
            advice: "use a host name or an address",
        }
    }

    /// The server did not answer the handshake, as Redis does on a port without TLS.
    pub(super) fn silent() -> Self {
        Self {
            words: "the server did not answer".to_owned(),
            advice: "does this port use TLS?",
        }
    }

    /// A handshake failed.
    pub(super) fn handshake(error: &io::Error) -> Self {
        let behind = error.get_ref().and_then(|error| error.downcast_ref());
        Self {
            words: error.to_string(),
            advice: behind.map_or("does this port use TLS?", advice),
        }
    }

    /// The TLS error that an error of the client library has behind it, if any.
    fn behind(error: &RedisError) -> Option<Self> {
        // The library has it behind a shared pointer, which is an error too.
        let shared: &Arc<dyn std::error::Error + Send + Sync> = error.source()?.downcast_ref()?;
        let error: &io::Error = shared.downcast_ref()?;
        error.get_ref()?.downcast_ref::<Error>()?;
        Some(Self::handshake(error))
    }
}

/// What to do about a TLS error.
fn advice(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "set --redis-tls-cacert to the CA bundle that signed its certificate",
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "use a name that its certificate has, or set --redis-tls-skip-hostname-verification true"
        }
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew its certificate, or correct the clock of this machine",
        // `CaUsedAsEndEntity`: no name of its own in rustls.
        Error::InvalidCertificate(CertificateError::Other(_)) => {
            "set --redis-tls-cacert to this certificate itself, if it is its own authority"
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "this port does not use TLS; use redis:// or another port"
        }
        Error::AlertReceived(_) => {
            "check --redis-tls-client-cert and --redis-tls-client-key, and read the log of the server"
        }
        _ => "read the log of the server",
    }
}
