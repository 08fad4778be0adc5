//! TLS to the service.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::Error;

/// TLS options of a client. All texts are PEM.
#[derive(Clone, Default)]
pub struct TlsOptions {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions") // without the key
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

impl TlsOptions {
    /// TLS with the system roots, and without a client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the CA bundle, PEM; default: system roots.
    #[must_use]
    pub fn ca_bundle(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Sets the client certificate and its key, PEM; default: none.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the name that the server's certificate must have; default: the host of the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

/// Makes TLS connections.
pub(crate) struct TlsConnector {
    connector: tokio_rustls::TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl TlsConnector {
    pub(crate) fn new(options: &TlsOptions) -> Result<Self, Error> {
        let invalid = |what: &str, error: &dyn std::fmt::Display| {
            Error::argument(format!("TLS: {what}: {error}"))
        };
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &options.ca {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| invalid("CA bundle", &error))?;
                roots
                    .add(certificate)
                    .map_err(|error| invalid("CA bundle", &error))?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        if roots.is_empty() {
            return Err(Error::argument(
                "TLS: no CA certificate found; set a CA bundle",
            ));
        }
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("protocol versions", &error))?
            .with_root_certificates(roots);
        let mut config = match &options.identity {
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| invalid("client certificate", &error))?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| invalid("client key", &error))?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| invalid("client certificate", &error))?
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let server_name = match &options.server_name {
            Some(name) => Some(
                ServerName::try_from(name.clone())
                    .map_err(|error| invalid("server name", &error))?,
            ),
            None => None,
        };
        Ok(Self {
            connector: Arc::new(config).into(),
            server_name,
        })
    }

    /// Does the handshake on a connection to `host`.
    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
                .map_err(std::io::Error::other)?,
        };
        self.connector.connect(name, stream).await
    }
}
