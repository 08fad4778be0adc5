//! Why there is no stream from the xDS server.

use crate::grpc_client::ChannelError;
use crate::tls::TlsError;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum XdsError {
    /// A setting is invalid. The message holds no header value.
    #[error("{0}")]
    Settings(String),
    /// The connection failed.
    #[error("no connection to the xDS server: {0}")]
    Connect(String),
    /// A TLS file is invalid.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The server ended the stream.
    #[error("the xDS server ended the stream: {0}")]
    Ended(String),
}

impl From<ChannelError> for XdsError {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Address(words) => Self::Settings(words),
            ChannelError::Files(error) => Self::Tls(error),
            other => Self::Connect(other.to_string()),
        }
    }
}
