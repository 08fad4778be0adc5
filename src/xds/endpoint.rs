//! The endpoint of the xDS server, and a connection to it.
//!
//! Certificates are read for every connection, so that a replaced one is used without a restart. An
//! idle connection is checked by an HTTP/2 ping only once in five minutes: Go's servers take more
//! for an attack and close the connection.
//!
//! What it deliberately does not do: reconnect.

use std::time::Duration;

use tonic::transport::Channel;

use crate::grpc_client::{ChannelError, ClientTls, ErrorRecord, Reconnect, ServerEndpoint};
use crate::settings::XdsSettings;
use crate::tls::{ClientFiles, TlsError};
use crate::visible_text::masked;

/// How long connecting may take, TLS included.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The interval of pings on an idle connection, and the time to answer one. By default grpc-go
/// allows one ping in five minutes.
const PING_INTERVAL: Duration = Duration::from_secs(310);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Why there is no stream from the xDS server.
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

/// The address of the server, and its TLS configuration.
#[derive(Clone, Debug)]
pub(crate) struct XdsEndpoint(ServerEndpoint);

// === impl XdsEndpoint ===

impl XdsEndpoint {
    pub(crate) fn new(settings: &XdsSettings) -> Result<Self, XdsError> {
        let url = &settings.config_grpc_xds_server_url.0;
        let bare = url.strip_prefix("dns:///").unwrap_or(url);
        let split = bare.rsplit_once(':');
        let parsed = split.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let is_host = |host: &str| !host.is_empty() && !host.contains(['@', '/']);
        let Some((host, port)) = parsed.filter(|(host, _)| is_host(host)) else {
            let words = format!(
                "CONFIG_GRPC_XDS_SERVER_URL: {:?} is no HOST:PORT",
                masked(url)
            );
            return Err(XdsError::Settings(words));
        };
        if !settings.config_grpc_xds_server_use_tls {
            return Ok(Self(ServerEndpoint::new(host, port, None)));
        }
        let files = ClientFiles {
            ca_bundle: settings.config_grpc_xds_server_tls_cacert.clone(),
            identity: settings
                .config_grpc_xds_client_tls_cert
                .clone()
                .zip(settings.config_grpc_xds_client_tls_key.clone()),
            ca_setting: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
        };
        let san = &settings.config_grpc_xds_server_tls_san;
        let name = (!san.is_empty()).then(|| san.clone());
        let server = ServerEndpoint::new(host, port, Some(ClientTls { files, name }));
        if let Err(ChannelError::Name(name)) = server.name() {
            let words = format!(
                "{name:?} is no name that an xDS server's certificate can bear; give one by CONFIG_GRPC_XDS_SERVER_TLS_SAN"
            );
            return Err(XdsError::Settings(words));
        }
        Ok(Self(server))
    }

    /// The address, for messages.
    pub(crate) fn words(&self) -> String {
        self.0.words()
    }

    /// Opens a connection, and gives the record of its errors.
    pub(crate) async fn connect(&self) -> Result<(Channel, ErrorRecord), XdsError> {
        let connecting = self.0.connect(Reconnect::Never, |endpoint| {
            endpoint
                .http2_keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
        });
        let Ok(connected) = tokio::time::timeout(CONNECT_WITHIN, connecting).await else {
            let words = format!("nothing within {} s", CONNECT_WITHIN.as_secs());
            return Err(XdsError::Connect(words));
        };
        Ok(connected?)
    }
}

// === impl XdsError ===

impl From<ChannelError> for XdsError {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Address(words) => Self::Settings(words),
            ChannelError::Files(error) => Self::Tls(error),
            other => Self::Connect(other.to_string()),
        }
    }
}
