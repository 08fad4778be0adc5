//! The TLS configuration of a client: its own certificate and the CAs that it trusts.
//!
//! What it deliberately does not do: cache. Files are read for every connection, so that a replaced
//! certificate is used at the next one.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tollgate_limiter::Timestamp;

use crate::validity::Validity;
use crate::{
    TlsError, authorities, certificate_error, crypto_provider, read_certificates, read_identity,
};

/// The TLS files of a client.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// The CA bundle for the server's certificate; none uses the system roots.
    pub ca_bundle: Option<PathBuf>,
    /// The client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The setting or option that names the CA bundle.
    pub ca_setting: &'static str,
}

// === impl ClientFiles ===

impl ClientFiles {
    /// Reads the files, for connections with one of these protocols (ALPN).
    ///
    /// # Errors
    ///
    /// When a file cannot be read or is invalid, or the key does not match the certificate.
    pub fn read(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
        self.read_with(protocols, false)
    }

    /// Reads the files. The certificate of a server may have any name if `accepts_any_name`.
    ///
    /// # Errors
    ///
    /// As [`ClientFiles::read`].
    pub fn read_with(
        &self,
        protocols: &[&[u8]],
        accepts_any_name: bool,
    ) -> Result<Arc<ClientConfig>, TlsError> {
        let (roots, pinned) = match &self.ca_bundle {
            Some(path) => {
                let certificates = read_certificates(path)?;
                (authorities(path, &certificates)?, certificates)
            }
            None => (system_roots(self.ca_setting)?, Vec::new()),
        };
        let verifier = ServerVerifier::new(roots, pinned, accepts_any_name)?;
        let builder = ClientConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| TlsError::Settings(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                // An expired certificate is sent all the same: the server decides, not this
                // machine's clock.
                let loaded = read_identity(certificate, key)?;
                builder
                    .with_client_auth_cert(loaded.chain, loaded.key)
                    .map_err(|error| certificate_error(&error, certificate, key))?
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

/// The system roots.
fn system_roots(setting: &str) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    let (found, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if found == 0 {
        return Err(TlsError::Settings(format!(
            "this system has no authorities of its own; name those of the server by {setting}"
        )));
    }
    Ok(Arc::new(roots))
}

/// Verifies a server's certificate.
///
/// A certificate of the CA bundle is accepted from the server itself, too. `openssl req -x509`
/// makes a certificate that is its own authority, and X.509 does not allow an authority's
/// certificate in a server. Its key can sign any other certificate, so pinning it loses nothing.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    chains: Arc<WebPkiServerVerifier>,
    /// Certificates that are accepted as they are.
    pinned: Vec<CertificateDer<'static>>,
    /// Whether the certificate may have another name.
    accepts_any_name: bool,
}

// === impl ServerVerifier ===

impl ServerVerifier {
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        pinned: Vec<CertificateDer<'static>>,
        accepts_any_name: bool,
    ) -> Result<Self, TlsError> {
        let chains = WebPkiServerVerifier::builder_with_provider(roots, crypto_provider()).build();
        Ok(Self {
            chains: chains.map_err(|error| TlsError::Settings(error.to_string()))?,
            pinned,
            accepts_any_name,
        })
    }

    /// Checks the time and the name of a pinned certificate.
    fn verify_pinned(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let now = Timestamp::from_seconds(now.as_secs());
        let refused = match Validity::of(certificate) {
            None => Some(CertificateError::BadEncoding),
            Some(validity) if now > validity.not_after => Some(CertificateError::Expired),
            Some(validity) if now < validity.not_before => Some(CertificateError::NotValidYet),
            Some(_) => None,
        };
        if let Some(error) = refused {
            return Err(error.into());
        }
        if !self.accepts_any_name {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.chains
                .verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.accepts_any_name => Ok(ServerCertVerified::assertion()),
            Err(Error::InvalidCertificate(_)) if self.pinned.contains(certificate) => {
                self.verify_pinned(certificate, name, now)
            }
            other => other,
        }
    }

    signatures_of!(chains);
}
