//! What we show of ourselves to a server, and which servers we believe.
//!
//! What it deliberately does not do: keep anything. Files are read for every connection, so what
//! was exchanged counts at the next.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use crate::tls::{TlsError, certificate_error, crypto_provider, read_ca_bundle, read_identity};

/// The files of a client.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// Who may sign the server's certificate; none leaves it to the system.
    pub ca_bundle: Option<PathBuf>,
    /// Our certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The setting or option that names authorities.
    pub ca_setting: &'static str,
}

// === impl ClientFiles ===

impl ClientFiles {
    /// Reads them, for connections that speak one of these protocols (ALPN).
    ///
    /// # Errors
    ///
    /// When one cannot be read or is not whole, or they do not belong together.
    pub(crate) fn read(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
        let roots = match &self.ca_bundle {
            Some(path) => read_ca_bundle(path)?,
            None => system_roots(self.ca_setting)?,
        };
        let builder = ClientConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| TlsError::Settings(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                // One that has expired is shown all the same: the server's word counts, not this
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

/// Whom this machine believes.
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
