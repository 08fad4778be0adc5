//! Why there is no stream from the xDS server.

use crate::grpc_client::ChannelError;
use crate::tls::TlsError;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum XdsError {
    /// A setting cannot be understood. No value of a header is in it.
    #[error("{0}")]
    Settings(String),
    /// There is no connection.
    #[error("no connection to the xDS server: {0}")]
    Connect(String),
    /// Certificates are not good.
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
