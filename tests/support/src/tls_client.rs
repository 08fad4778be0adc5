//! A TLS client with a CA bundle and, if wanted, a certificate of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use crate::certificates::{Authority, Leaf};

/// A client: the authorities that it trusts, its certificate, its versions and protocol.
#[derive(Clone)]
pub struct TlsClient {
    /// The name that the server's certificate must have.
    pub server_name: &'static str,
    pub ca_bundle: String,
    pub certificate: Option<Leaf>,
    pub versions: &'static [&'static SupportedProtocolVersion],
    pub protocol: &'static str,
}

/// All versions of TLS that rustls has.
pub const VERSIONS: &[&SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

// === impl TlsClient ===

impl TlsClient {
    pub fn new(authority: &Authority, certificate: Option<&Leaf>) -> Self {
        Self {
            server_name: "localhost",
            ca_bundle: authority.pem.clone(),
            certificate: certificate.cloned(),
            versions: VERSIONS,
            protocol: "h2",
        }
    }

    pub fn config(&self) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.ca_bundle.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(leaf) => {
                let chain = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
                let chain = chain.collect::<Result<_, _>>().unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![self.protocol.as_bytes().to_vec()];
        // Each connection makes a full handshake.
        config.resumption = rustls::client::Resumption::disabled();
        Arc::new(config)
    }

    /// A connection after the client's part of the handshake. A read shows whether the server
    /// accepted the client certificate.
    pub async fn connect(&self, to: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(to).await?;
        let name = ServerName::try_from(self.server_name).unwrap();
        TlsConnector::from(self.config())
            .connect(name, stream)
            .await
    }

    /// A gRPC channel on one connection.
    pub async fn channel(&self, to: SocketAddr) -> Result<Channel, String> {
        let stream = self.connect(to).await.map_err(|error| error.to_string())?;
        let mut stream = Some(TokioIo::new(stream));
        let connector = tower::service_fn(move |_| {
            let stream = stream.take();
            async move { stream.ok_or_else(|| std::io::Error::other("one connection only")) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let connected = endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| error.to_string())
    }
}
