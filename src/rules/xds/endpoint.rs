//! Where the xDS server is, and a connection to it.
//!
//! How: certificates are read for every connection, so that what was exchanged is used without a
//! restart. A server that is silent is asked by an HTTP/2 ping only once in five minutes: Go's
//! servers take more for an attack and hang up.
//!
//! What it deliberately does not do: try again.

use std::time::Duration;

use tonic::transport::Channel;

use crate::grpc_client::{ChannelError, ClientTls, ErrorRecord, Reconnect, ServerEndpoint};
use crate::rules::xds::error::XdsError;
use crate::settings::XdsSettings;
use crate::tls::ClientFiles;

/// How long a connection may take, TLS included.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How often a silent server is asked whether it is there, and how long it has to say so. grpc-go
/// allows one ping in five minutes unless its program says otherwise.
const PING_INTERVAL: Duration = Duration::from_secs(310);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the server is, and how it is reached.
#[derive(Clone, Debug)]
pub(crate) struct XdsEndpoint(ServerEndpoint);

// === impl XdsEndpoint ===

impl XdsEndpoint {
    pub(crate) fn new(settings: &XdsSettings) -> Result<Self, XdsError> {
        let url = &settings.config_grpc_xds_server_url;
        let bare = url.strip_prefix("dns:///").unwrap_or(url);
        let split = bare.rsplit_once(':');
        let parsed = split.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parsed.filter(|(host, _)| !host.is_empty()) else {
            let words = format!("CONFIG_GRPC_XDS_SERVER_URL: {url:?} is no HOST:PORT");
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

    /// Where it is, for people.
    pub(crate) fn words(&self) -> String {
        self.0.words()
    }

    /// A connection, and where what goes wrong with it is seen.
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
