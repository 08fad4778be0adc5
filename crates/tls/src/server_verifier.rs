//! Verifies a server's certificate for a client.
//!
//! A certificate of the CA bundle is accepted from the server itself, too. `openssl req -x509`
//! makes a certificate that is its own authority, and X.509 does not allow an authority's
//! certificate in a server. Its key can sign any other certificate, so pinning it loses nothing.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::validity::Validity;
use crate::{TlsError, crypto_provider};
use tollgate_limiter::Timestamp;

/// The verifier.
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
