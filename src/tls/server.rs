//! What a port of ours shows of itself, and whom it lets in.
//!
//! What it deliberately does not do: tickets that outlive a change. A session may be resumed within
//! one set of certificates only, so whoever an authority no longer stands for has to show that
//! anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::tls::client_names::{ClientName, ClientNameVerifier};
use crate::tls::{
    FileWatch, TlsError, certificate_error, crypto_provider, file_paths, read_ca_bundle,
    read_identity,
};
use tollgate_limiter::Timestamp;

/// The files of one port.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Who may sign a client's certificate; none asks for none.
    pub(crate) client_ca: Option<PathBuf>,
    /// Of which a client's certificate must bear one; none is any.
    pub(crate) client_names: Vec<ClientName>,
    /// What is spoken under TLS, as ALPN calls it.
    pub(crate) protocol: &'static str,
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
        // Those who come again need no signature, however many they are; the key of their tickets
        // goes with this set of certificates.
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
