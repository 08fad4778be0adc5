//! What a port of ours shows of itself, and whom it lets in.
//!
//! What it deliberately does not do: tickets that outlive a change. A session may be resumed within one set of certificates
//! only, so whoever an authority no longer stands for has to show that anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::settings::{AdminSettings, GrpcTlsSettings};
use crate::tls::client_names::{ClientName, ClientNameVerifier};
use crate::tls::{
    FileWatch, TlsError, certificate_error, crypto_provider, file_paths, read_ca_bundle,
    read_identity,
};
use tollgate_limiter::Timestamp;

/// The files of one port.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// Who may sign a client's certificate; none asks for none.
    client_ca: Option<PathBuf>,
    /// Of which a client's certificate must bear one; none is any.
    client_names: Vec<ClientName>,
    /// What is spoken under TLS, as ALPN calls it.
    protocol: &'static str,
}

/// What the files came to.
#[derive(Clone, Debug)]
pub struct LoadedCertificate {
    /// For the port.
    pub config: Arc<ServerConfig>,
    /// When our certificate expires.
    pub expires_at: Timestamp,
}

// === impl ServerFiles ===

impl ServerFiles {
    /// Those of the gRPC port; none when it is not TLS.
    ///
    /// # Errors
    ///
    /// When a setting is missing, or means nothing.
    pub fn of_grpc(settings: &GrpcTlsSettings) -> Result<Option<Self>, TlsError> {
        let names = settings.grpc_client_tls_san.iter();
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        if !settings.grpc_server_use_tls {
            if settings.grpc_client_tls_cacert.is_some() || !names.is_empty() {
                let words = "client certificates are asked for (GRPC_CLIENT_TLS_CACERT or GRPC_CLIENT_TLS_SAN) and gRPC is plain; set GRPC_SERVER_USE_TLS=true";
                return Err(TlsError::Settings(words.to_owned()));
            }
            return Ok(None);
        }
        let (Some(certificate), Some(key)) = (
            &settings.grpc_server_tls_cert,
            &settings.grpc_server_tls_key,
        ) else {
            let words = "GRPC_SERVER_USE_TLS is true; name our certificate and its key by GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY";
            return Err(TlsError::Settings(words.to_owned()));
        };
        if settings.grpc_client_tls_cacert.is_none() && !names.is_empty() {
            let words = "GRPC_CLIENT_TLS_SAN names clients, and no certificate is asked of them; set GRPC_CLIENT_TLS_CACERT";
            return Err(TlsError::Settings(words.to_owned()));
        }
        let names = names.into_iter().map(|name| {
            ClientName::of(name).ok_or_else(|| {
                let words = format!(
                    "GRPC_CLIENT_TLS_SAN: {name:?} is neither a DNS name nor an address nor a URI such as spiffe://example.org/ns/edge/sa/envoy"
                );
                TlsError::Settings(words)
            })
        });
        Ok(Some(Self {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: settings.grpc_client_tls_cacert.clone(),
            client_names: names.collect::<Result<_, _>>()?,
            protocol: "h2",
        }))
    }

    /// Those of the admin port; none when it is not TLS.
    pub fn of_admin(settings: &AdminSettings) -> Option<Self> {
        Some(Self {
            certificate: settings.admin_tls_cert.clone()?,
            key: settings.admin_tls_key.clone()?,
            client_ca: settings.admin_client_cacert.clone(),
            client_names: Vec::new(),
            protocol: "http/1.1",
        })
    }

    /// Looks after them from now on.
    pub fn watch(&self) -> FileWatch {
        FileWatch::new(file_paths([
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
        ]))
    }

    /// Reads them, whatever the time.
    ///
    /// # Errors
    ///
    /// When one cannot be read or is not whole, or they do not belong together.
    pub fn read(&self) -> Result<LoadedCertificate, TlsError> {
        self.load(None)
    }

    /// Reads them, if they are good now.
    ///
    /// # Errors
    ///
    /// As [`Self::read`], and when our certificate has expired or is not good yet.
    pub fn read_at(&self, now: Timestamp) -> Result<LoadedCertificate, TlsError> {
        self.load(Some(now))
    }

    fn load(&self, now: Option<Timestamp>) -> Result<LoadedCertificate, TlsError> {
        let identity = read_identity(&self.certificate, &self.key)?;
        if let Some(now) = now {
            identity.check_validity(&self.certificate, now)?;
        }
        let refused =
            |error: rustls::Error| certificate_error(&error, &self.certificate, &self.key);
        let builder = ServerConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(refused)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(self.verifier(path)?),
        };
        let mut config = builder
            .with_single_cert(identity.chain, identity.key)
            .map_err(refused)?;
        // Those who come again need no signature, however many they are; the key of their tickets goes with this set of
        // certificates.
        config.ticketer = Ticketer::new().map_err(refused)?;
        config.alpn_protocols = vec![self.protocol.as_bytes().to_vec()];
        Ok(LoadedCertificate {
            config: Arc::new(config),
            expires_at: identity.validity.not_after,
        })
    }

    fn verifier(&self, path: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(read_ca_bundle(path)?, crypto_provider())
                .build();
        let verifier = verifier.map_err(|error| TlsError::invalid(path, error))?;
        if self.client_names.is_empty() {
            return Ok(verifier);
        }
        Ok(Arc::new(ClientNameVerifier {
            verifier,
            names: self.client_names.clone(),
        }))
    }
}
