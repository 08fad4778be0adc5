#![doc = include_str!("../README.md")]

/// The checks of signatures by the verifier in a field.
macro_rules! signatures_of {
    ($verifier:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let verifier = &self.$verifier;
            verifier.verify_tls12_signature(message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let verifier = &self.$verifier;
            verifier.verify_tls13_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.$verifier.supported_verify_schemes()
        }
    };
}

mod client;
mod client_names;
mod server;
mod validity;
mod watch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use self::client::ClientFiles;
pub use self::client_names::{ClientName, client_name};
pub use self::server::{LoadedCertificate, ServerFiles};
use self::validity::Validity;
pub use self::watch::FileWatch;
use tollgate_limiter::Timestamp;

/// How much is read of one file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Why certificates are not used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// An error of the operating system.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// The error.
        error: std::io::Error,
    },
    /// The file is invalid.
    #[error("{path}: {reason}")]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The certificate has expired or is not valid yet.
    #[error("{path}: {reason}")]
    Validity {
        /// The file.
        path: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Both files are valid, but the key is not the certificate's.
    #[error(
        "the key in {key} does not match the certificate in {certificate}; replace both files at once"
    )]
    KeyMismatch {
        /// The certificate's file.
        certificate: String,
        /// The key's file.
        key: String,
    },
    /// A setting is missing or has no effect.
    #[error("{0}")]
    Settings(String),
}

/// A certificate chain, its key and the leaf's validity period.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    validity: Validity,
}

/// The crypto provider of all TLS.
fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads a certificate and its key, without a check of the validity period.
fn read_identity(certificate: &Path, key: &Path) -> Result<Identity, TlsError> {
    let chain = read_certificates(certificate)?;
    let validity = chain.first().and_then(|leaf| Validity::of(leaf));
    let validity = validity
        .ok_or_else(|| TlsError::invalid(certificate, "the certificate is not valid X.509"))?;
    let pem = read(key)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        let why = pem_error_reason(&error);
        let what =
            format!("no valid private key ({why}); use a PEM file with a PRIVATE KEY section");
        TlsError::invalid(key, what)
    })?;
    Ok(Identity {
        chain,
        key,
        validity,
    })
}

/// Reads the certificates in a file; one at least.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => {
            let what = "no certificate in this file; use a PEM file with a CERTIFICATE section";
            Err(TlsError::invalid(path, what))
        }
        Err(error) => {
            let why = pem_error_reason(&error);
            let what = format!("invalid PEM ({why}); write a new file, and rename it to this name");
            Err(TlsError::invalid(path, what))
        }
    }
}

/// Why PEM cannot be parsed. The library's own message repeats the content, which may be a key.
fn pem_error_reason(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::NoItemsFound => "no such section",
        pem::Error::MissingSectionEnd { .. } => "its end is missing",
        pem::Error::IllegalSectionStart { .. } => "its first line is cut off",
        pem::Error::Base64Decode(_) => "invalid base64",
        _ => "no PEM",
    }
}

/// Reads a CA bundle.
fn read_ca_bundle(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    authorities(path, &read_certificates(path)?)
}

/// The authorities whose certificates were read from this file.
fn authorities(
    path: &Path,
    certificates: &[CertificateDer<'static>],
) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(|error| {
            let what = format!("a certificate in it cannot be an authority's: {error}");
            TlsError::invalid(path, what)
        })?;
    }
    Ok(Arc::new(roots))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    tollgate_system::regular_file::read(path, FILE_BYTES_MAX).map_err(|error| TlsError::Io {
        path: path.display().to_string(),
        error,
    })
}

/// Classifies an error of rustls about a certificate and its key.
fn certificate_error(error: &rustls::Error, certificate: &Path, key: &Path) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch {
            certificate: certificate.display().to_string(),
            key: key.display().to_string(),
        },
        other => TlsError::invalid(certificate, format!("cannot be used: {other}")),
    }
}

// === impl TlsError ===

impl TlsError {
    fn invalid(path: &Path, reason: impl fmt::Display) -> Self {
        Self::Invalid {
            path: path.display().to_string(),
            reason: reason.to_string(),
        }
    }

    /// Whether the error may go away with time alone.
    fn is_validity_error(&self) -> bool {
        matches!(self, Self::Validity { .. })
    }
}

// === impl Identity ===

impl Identity {
    /// Checks that the certificate is valid now.
    fn check_validity(&self, path: &Path, now: Timestamp) -> Result<(), TlsError> {
        let invalid = |reason: String| {
            Err(TlsError::Validity {
                path: path.display().to_string(),
                reason,
            })
        };
        if now > self.validity.not_after {
            let ago = format_duration(now.since_us(self.validity.not_after));
            return invalid(format!("expired {ago} ago; have it renewed"));
        }
        if now < self.validity.not_before {
            let ahead = format_duration(self.validity.not_before.since_us(now));
            return invalid(format!(
                "not good before {ahead} from now; look at this machine's clock"
            ));
        }
        Ok(())
    }
}

/// A duration in one unit, for messages.
fn format_duration(us: u64) -> String {
    let seconds = us / 1_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The paths that are given.
fn file_paths<const N: usize>(files: [Option<&PathBuf>; N]) -> Vec<PathBuf> {
    files.into_iter().flatten().cloned().collect()
}
