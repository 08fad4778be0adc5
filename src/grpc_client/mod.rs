//! A gRPC client connection to a server that the operator named, plaintext or TLS.
//!
//! The connection is opened here and not by tonic, for two reasons. Certificates are read for every
//! connection, so that a replaced certificate is used at the next one. And errors are recorded
//! where they happen ([`ErrorRecord`]): the HTTP/2 client reports only a cancelled call, not a
//! rejected certificate.
//!
//! What it deliberately does not do: retry, read a setting, or advise. The caller knows which
//! option to name.

mod connection_failure;
mod error_tap;
pub mod rate_limit;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

pub use self::connection_failure::ConnectionFailure;
pub use self::error_tap::ErrorRecord;
use self::error_tap::ErrorTap;
use crate::tls::{ClientFiles, TlsError};

/// The address of a server, and its TLS configuration.
#[derive(Clone, Debug)]
pub struct ServerEndpoint {
    host: String,
    port: u16,
    /// A Unix socket in place of host and port.
    socket: Option<PathBuf>,
    tls: Option<ClientTls>,
}

/// The TLS configuration of a client connection.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The client's certificate and the CAs that it trusts.
    pub files: ClientFiles,
    /// The name that the server's certificate must have, if it is not the host.
    pub name: Option<String>,
}

/// What happens when the connection of a channel ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reconnect {
    /// The channel ends as well.
    Never,
    /// The next call opens another connection.
    OnNextCall,
}

/// Why a channel cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The address cannot be part of a URI.
    #[error("{0}")]
    Address(String),
    /// The name cannot be in a certificate.
    #[error("{0:?} cannot be the name of a certificate")]
    Name(String),
    /// The host has no address.
    #[error("{0}")]
    Resolve(io::Error),
    /// The connection failed.
    #[error("{0}")]
    Connect(io::Error),
    /// A TLS file is invalid.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Handshake(io::Error),
    /// The HTTP/2 handshake failed.
    #[error("{0}")]
    Http(String),
}

/// The stream of a connection, plaintext or TLS.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

// === impl ServerEndpoint ===

impl ServerEndpoint {
    /// The server at this host and port. The host is a name or an address; IPv6 with or without
    /// brackets.
    pub fn new(host: &str, port: u16, tls: Option<ClientTls>) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port,
            socket: None,
            tls,
        }
    }

    /// The server at a Unix socket. Its host is localhost.
    pub fn at_socket(path: &Path, tls: Option<ClientTls>) -> Self {
        Self {
            socket: Some(path.to_owned()),
            ..Self::new("localhost", 80, tls)
        }
    }

    /// The address as HOST:PORT.
    pub fn words(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The name that the server's certificate must have.
    ///
    /// # Errors
    ///
    /// When a certificate cannot hold the name.
    pub fn name(&self) -> Result<ServerName<'static>, ChannelError> {
        let said = self.tls.as_ref().and_then(|tls| tls.name.as_ref());
        let name = said.unwrap_or(&self.host);
        ServerName::try_from(name.clone()).map_err(|_| ChannelError::Name(name.clone()))
    }

    /// Opens a channel, and gives the record of its errors. `set` configures HTTP/2.
    ///
    /// # Errors
    ///
    /// When the connection or its handshake fails, or a TLS file is invalid.
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
        // The first connection is opened here, so that its error is returned as it is.
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
        match &self.socket {
            None => {
                let host = (self.host.as_str(), self.port);
                let addresses = tokio::net::lookup_host(host).await;
                let addresses: Vec<_> = addresses.map_err(ChannelError::Resolve)?.collect();
                self.open_at(&*addresses, b"h2", errors).await
            }
            Some(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = Box::new(stream.map_err(ChannelError::Connect)?);
                self.secure(stream, b"h2", errors).await
            }
        }
    }

    /// Opens a connection to one of these addresses, for a protocol as ALPN names it. The name of
    /// the certificate stays the endpoint's.
    pub(crate) async fn open_at(
        &self,
        addresses: impl ToSocketAddrs,
        protocol: &'static [u8],
        errors: &ErrorRecord,
    ) -> Result<TokioIo<ErrorTap<Box<dyn ByteStream>>>, ChannelError> {
        let connected = TcpStream::connect(addresses).await;
        let stream = connected.map_err(ChannelError::Connect)?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        self.secure(Box::new(stream), protocol, errors).await
    }

    /// The stream of a connection, after the TLS handshake if there is one.
    async fn secure(
        &self,
        stream: Box<dyn ByteStream>,
        protocol: &'static [u8],
        errors: &ErrorRecord,
    ) -> Result<TokioIo<ErrorTap<Box<dyn ByteStream>>>, ChannelError> {
        let bytes: Box<dyn ByteStream> = match &self.tls {
            None => stream,
            Some(tls) => {
                let files = tls.files.clone();
                let config = tokio::task::spawn_blocking(move || files.read(&[protocol])).await;
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
    /// The class of the failure, if it is known.
    pub fn failure(&self) -> Option<ConnectionFailure> {
        match self {
            Self::Handshake(error) => Some(ConnectionFailure::of(error)),
            _ => None,
        }
    }
}

/// The message of an error and its sources.
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
