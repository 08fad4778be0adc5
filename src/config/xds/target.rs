//! Where the xDS server is, and a connection to it.
//!
//! How: certificates are read for every connection, so that what was exchanged is used without a restart. A server that is
//! silent is asked by an HTTP/2 ping only once in five minutes: Go's servers take more for an attack and hang up.
//!
//! What it deliberately does not do: try again.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use super::XdsError;
use super::witness::{Seen, Witness};
use crate::config::settings::XdsSettings;
use crate::config::tls::ClientFiles;

/// How long a connection may take, TLS included.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How often a silent server is asked whether it is there, and how long it has to say so. grpc-go allows one ping in five
/// minutes unless its program says otherwise.
const PING_INTERVAL: Duration = Duration::from_secs(310);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the server is, and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct Target {
    host: String,
    port: u16,
    tls: Option<Tls>,
}

#[derive(Clone, Debug)]
struct Tls {
    files: ClientFiles,
    /// What its certificate must bear.
    name: ServerName<'static>,
}

/// What a connection is made of.
trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

// === impl Target ===

impl Target {
    pub(super) fn new(settings: &XdsSettings) -> Result<Self, XdsError> {
        let url = &settings.config_grpc_xds_server_url;
        let bare = url.strip_prefix("dns:///").unwrap_or(url);
        let split = bare.rsplit_once(':');
        let parsed = split.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parsed.filter(|(host, _)| !host.is_empty()) else {
            let words = format!("CONFIG_GRPC_XDS_SERVER_URL: {url:?} is no HOST:PORT");
            return Err(XdsError::Settings(words));
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let files = ClientFiles {
            authorities: settings.config_grpc_xds_server_tls_cacert.clone(),
            ours: settings
                .config_grpc_xds_client_tls_cert
                .clone()
                .zip(settings.config_grpc_xds_client_tls_key.clone()),
            authorities_by: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
        };
        if !settings.config_grpc_xds_server_use_tls {
            return Ok(Self {
                host,
                port,
                tls: None,
            });
        }
        let name = match settings.config_grpc_xds_server_tls_san.as_str() {
            "" => host.clone(),
            san => san.to_owned(),
        };
        let name = ServerName::try_from(name.clone()).map_err(|_| {
            let words = format!("{name:?} is no name that an xDS server's certificate can bear; give one by CONFIG_GRPC_XDS_SERVER_TLS_SAN");
            XdsError::Settings(words)
        })?;
        Ok(Self {
            host,
            port,
            tls: Some(Tls { files, name }),
        })
    }

    /// Where it is, for people.
    pub(super) fn words(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// A connection, and where what goes wrong with it is seen.
    pub(super) async fn connect(&self) -> Result<(Channel, Seen), XdsError> {
        let authority = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            self.words()
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let origin = |scheme: &str| {
            Uri::try_from(format!("{scheme}://{authority}"))
                .map_err(|error| XdsError::Settings(format!("{authority}: {error}")))
        };
        let endpoint = Endpoint::from(origin("http")?)
            .origin(origin(scheme)?)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let connecting = async {
            let (bytes, seen) = Witness::new(self.open().await?);
            // It makes one connection, and no other after that.
            let mut bytes = Some(TokioIo::new(bytes));
            let connector = tower::service_fn(move |_: Uri| {
                let bytes = bytes.take();
                async move {
                    bytes.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected))
                }
            });
            let connected = endpoint.connect_with_connector(connector).await;
            match connected {
                Ok(channel) => Ok((channel, seen)),
                Err(error) => Err(XdsError::Connect(said(&error))),
            }
        };
        tokio::time::timeout(CONNECT_WITHIN, connecting)
            .await
            .unwrap_or_else(|_| {
                let words = format!("nothing within {} s", CONNECT_WITHIN.as_secs());
                Err(XdsError::Connect(words))
            })
    }

    async fn open(&self) -> Result<Box<dyn Bytes>, XdsError> {
        let connected = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = connected.map_err(|error| XdsError::Connect(error.to_string()))?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let Some(Tls { files, name }) = self.tls.clone() else {
            return Ok(Box::new(stream));
        };
        let config = tokio::task::spawn_blocking(move || files.read(&[b"h2"])).await;
        let config = config.map_err(|error| XdsError::Connect(error.to_string()))??;
        let secured = TlsConnector::from(config).connect(name, stream).await;
        let secured = secured.map_err(|error| XdsError::Connect(format!("TLS: {error}")))?;
        Ok(Box::new(secured))
    }
}

/// An error and what is behind it.
pub(super) fn said(error: &(dyn std::error::Error + 'static)) -> String {
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
