//! The TLS configuration of a port: its certificate and the clients that it admits.
//!
//! What it deliberately does not do: keep session tickets across a change. A session may be resumed
//! within one set of certificates only, so that a client whose CA was removed must authenticate
//! again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::client_names::{ClientName, ClientNameVerifier};
use crate::{
    FileWatch, TlsError, certificate_error, crypto_provider, file_paths, read_ca_bundle,
    read_identity,
};
use tollgate_limiter::Timestamp;

/// The TLS files of one port.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// The port's certificate, and those that sign it.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The CA bundle for client certificates; without one no certificate is requested.
    pub client_ca: Option<PathBuf>,
    /// The names of which a client's certificate must have one; empty allows any name.
    pub client_names: Vec<ClientName>,
    /// The protocol under TLS, as in ALPN.
    pub protocol: &'static str,
}

/// The result of reading the files.
#[derive(Clone, Debug)]
pub struct LoadedCertificate {
    /// The configuration of the port.
    pub config: Arc<ServerConfig>,
    /// When the certificate expires.
    pub expires_at: Timestamp,
}

// === impl ServerFiles ===

impl ServerFiles {
    /// Watches the files for changes from now on.
    pub fn watch(&self) -> FileWatch {
        FileWatch::new(file_paths([
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
        ]))
    }

    /// Reads the files, without a check of the validity period.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or is invalid, or the key does not match the certificate.
    pub fn read(&self) -> Result<LoadedCertificate, TlsError> {
        self.load(None)
    }

    /// Reads the files, if the certificate is valid now.
    ///
    /// # Errors
    ///
    /// As [`Self::read`], and when the certificate has expired or is not valid yet.
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
        // A resumed session needs no signature. The key of the tickets belongs to this set of
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
