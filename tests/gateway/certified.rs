//! CAs and certificates, mounted as Kubernetes mounts a secret; and TLS clients.
//!
//! What it deliberately does not do: protect keys.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair,
    PKCS_RSA_SHA256, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

/// Signs for others.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// For which time a certificate is good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Good {
    Now,
    /// Until 2001.
    NoMore,
    /// From 2100 on.
    NotYet,
}

/// A secret as a pod sees it: `tls.crt`, `tls.key`, `ca.crt`, links through a folder that is
/// exchanged whole.
pub(crate) struct Secret {
    directory: TempDir,
    version: u32,
}

// === impl Authority ===

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Signs for these names, now.
    pub(crate) fn signs(&self, names: &[&str]) -> Signed {
        self.signs_for(names, Good::Now)
    }

    pub(crate) fn signs_for(&self, names: &[&str], good: Good) -> Signed {
        self.signs_key(names, good, &KeyPair::generate().unwrap())
    }

    /// The same as Envoy Gateway makes them: RSA, and no word of what they are for.
    pub(crate) fn signs_rsa(&self, names: &[&str]) -> Signed {
        let pem = include_str!("rsa.pem");
        let key = KeyPair::from_pem_and_sign_algo(pem, &PKCS_RSA_SHA256).unwrap();
        self.signs_key(names, Good::Now, &key)
    }

    fn signs_key(&self, names: &[&str], good: Good, key: &KeyPair) -> Signed {
        let (uris, names): (Vec<_>, Vec<_>) = names
            .iter()
            .map(ToString::to_string)
            .partition(|name| name.contains("://"));
        let mut params = CertificateParams::new(names).unwrap();
        let uris = uris.into_iter();
        let uris = uris.map(|uri| SanType::URI(uri.try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        params
            .distinguished_name
            .push(DnType::CommonName, "somebody");
        // What rustls does not know it passes over.
        let unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        params.custom_extensions.push(unknown);
        match good {
            Good::Now => {}
            Good::NoMore => {
                params.not_before = date_time_ymd(2000, 1, 1);
                params.not_after = date_time_ymd(2001, 1, 1);
            }
            Good::NotYet => params.not_before = date_time_ymd(2100, 1, 1),
        }
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        Signed {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

// === impl Secret ===

impl Secret {
    pub(crate) fn new(signed: &Signed, authority: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut secret = Self {
            directory,
            version: 0,
        };
        secret.exchange(&signed.certificate, &signed.key, authority);
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{name}"), secret.path(name)).unwrap();
        }
        secret
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Puts other files in their place, all at once.
    pub(crate) fn exchange(&mut self, certificate: &str, key: &str, authority: &str) {
        self.version += 1;
        let folder = format!("..2026_11_21_{}", self.version);
        std::fs::create_dir(self.path(&folder)).unwrap();
        for (name, text) in [
            ("tls.crt", certificate),
            ("tls.key", key),
            ("ca.crt", authority),
        ] {
            std::fs::write(self.path(&format!("{folder}/{name}")), text).unwrap();
        }
        symlink(&folder, self.path("..data_tmp")).unwrap();
        std::fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
    }
}

/// What a client is: whom it believes, what it shows, what it can.
#[derive(Clone)]
pub(crate) struct TlsClient {
    /// The name that the server's certificate must have.
    pub(crate) server_name: &'static str,
    pub(crate) believes: String,
    pub(crate) shows: Option<Signed>,
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
    pub(crate) protocol: &'static str,
}

/// All versions that there are.
pub(crate) const VERSIONS: &[&SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

// === impl TlsClient ===

impl TlsClient {
    pub(crate) fn new(authority: &Authority, shows: Option<&Signed>) -> Self {
        Self {
            server_name: "localhost",
            believes: authority.pem.clone(),
            shows: shows.cloned(),
            versions: VERSIONS,
            protocol: "h2",
        }
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.believes.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.shows {
            None => builder.with_no_client_auth(),
            Some(signed) => {
                let chain = CertificateDer::pem_slice_iter(signed.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap();
                let chain = chain.collect::<Result<_, _>>().unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![self.protocol.as_bytes().to_vec()];
        // Each connection is to show everything anew.
        config.resumption = rustls::client::Resumption::disabled();
        Arc::new(config)
    }

    /// A connection, as far as the client can tell: whether it was believed shows when it reads.
    pub(crate) async fn connect(&self, to: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(to).await?;
        let name = ServerName::try_from(self.server_name).unwrap();
        TlsConnector::from(self.config())
            .connect(name, stream)
            .await
    }

    /// A gRPC channel on one connection.
    pub(crate) async fn channel(&self, to: SocketAddr) -> Result<Channel, String> {
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
