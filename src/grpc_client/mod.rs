//! A gRPC channel to a server that the operator named: one connection, bare or under TLS.
//!
//! How: the connection is opened here and not by tonic, for two reasons. Certificates are read for
//! every connection, so that what was exchanged counts at the next. And what went wrong is errors
//! where it happens ([`ErrorRecord`]): what reads HTTP/2 says that it was cancelled, and not that a
//! certificate was not believed.
//!
//! What it deliberately does not do: try again, read a setting, say what to change; who asked knows
//! by which name.

mod connection_failure;
mod error_tap;
pub mod rate_limit;

use std::error::Error;
use std::io;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

pub use self::connection_failure::ConnectionFailure;
pub use self::error_tap::ErrorRecord;
use self::error_tap::ErrorTap;
use crate::tls::{ClientFiles, TlsError};

/// Where a server is, and how it is reached.
#[derive(Clone, Debug)]
pub struct ServerEndpoint {
    host: String,
    port: u16,
    tls: Option<ClientTls>,
}

/// How a server is reached that speaks TLS.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// What we show, and whom we believe.
    pub files: ClientFiles,
    /// What its certificate must bear, where that is not its host.
    pub name: Option<String>,
}

/// How long a channel lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reconnect {
    /// As long as its one connection.
    Never,
    /// When its connection has ended, the next call opens another.
    OnNextCall,
}

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// No URI can hold where it is.
    #[error("{0}")]
    Address(String),
    /// No certificate can bear this.
    #[error("{0:?} is no name that a certificate can bear")]
    Name(String),
    /// No connection.
    #[error("{0}")]
    Connect(io::Error),
    /// Our files are not good.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// A connection, and no TLS on it.
    #[error("TLS: {0}")]
    Handshake(io::Error),
    /// A connection, and no HTTP/2 on it.
    #[error("{0}")]
    Http(String),
}

/// What a connection is made of.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

// === impl ServerEndpoint ===

impl ServerEndpoint {
    /// The server at this host (a name or an address, IPv6 with or without brackets) and port.
    pub fn new(host: &str, port: u16, tls: Option<ClientTls>) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port,
            tls,
        }
    }

    /// Where it is, as HOST:PORT.
    pub fn words(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The name that its certificate must bear.
    ///
    /// # Errors
    ///
    /// When no certificate can bear it.
    pub fn name(&self) -> Result<ServerName<'static>, ChannelError> {
        let said = self.tls.as_ref().and_then(|tls| tls.name.as_ref());
        let name = said.unwrap_or(&self.host);
        ServerName::try_from(name.clone()).map_err(|_| ChannelError::Name(name.clone()))
    }

    /// A channel, and where what goes wrong with it is seen. `set` says how HTTP/2 is spoken.
    ///
    /// # Errors
    ///
    /// When there is no connection, or the files of TLS are not good.
    pub async fn connect(
        &self,
        lasting: Reconnect,
        set: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<(Channel, ErrorRecord), ChannelError> {
        let authority = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            self.words()
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let origin = |scheme: &str| {
            Uri::try_from(format!("{scheme}://{authority}"))
                .map_err(|error| ChannelError::Address(format!("{authority}: {error}")))
        };
        let endpoint = set(Endpoint::from(origin("http")?).origin(origin(scheme)?));
        let errors = ErrorRecord::default();
        // The first is opened here, so that why it is not comes back as it is.
        let mut first = Some(self.open(&errors).await?);
        let (server, told) = (self.clone(), errors.clone());
        let connector = tower::service_fn(move |_: Uri| {
            let first = first.take();
            let (server, errors) = (server.clone(), told.clone());
            async move {
                match (first, lasting) {
                    (Some(bytes), _) => Ok(bytes),
                    (None, Reconnect::OnNextCall) => server.open(&errors).await,
                    (None, Reconnect::Never) => Err(ChannelError::Connect(io::Error::from(
                        io::ErrorKind::NotConnected,
                    ))),
                }
            }
        });
        match endpoint.connect_with_connector(connector).await {
            Ok(channel) => Ok((channel, errors)),
            Err(error) => Err(ChannelError::Http(error_chain(&error))),
        }
    }

    async fn open(
        &self,
        errors: &ErrorRecord,
    ) -> Result<TokioIo<ErrorTap<Box<dyn ByteStream>>>, ChannelError> {
        let connected = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = connected.map_err(ChannelError::Connect)?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let bytes: Box<dyn ByteStream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let files = tls.files.clone();
                let config = tokio::task::spawn_blocking(move || files.read(&[b"h2"])).await;
                let config = config.map_err(|error| ChannelError::Http(error.to_string()))??;
                let secured = TlsConnector::from(config)
                    .connect(self.name()?, stream)
                    .await;
                Box::new(secured.map_err(ChannelError::Handshake)?)
            }
        };
        Ok(TokioIo::new(ErrorTap::new(bytes, errors)))
    }
}

// === impl ChannelError ===

impl ChannelError {
    /// What is behind it, where that can be told.
    pub fn failure(&self) -> Option<ConnectionFailure> {
        match self {
            Self::Handshake(error) => Some(ConnectionFailure::of(error)),
            _ => None,
        }
    }
}

/// An error and what is behind it.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        let more = error.to_string();
        if !words.contains(&more) {
            words.extend([": ", &more]);
        }
        behind = error.source();
    }
    words
}
