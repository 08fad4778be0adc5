//! The settings of TLS on the gRPC port, by the reference's names where it has one.
//!
//! What it deliberately does not do: read files (`tls`).

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::settings::headings::TLS;
use crate::settings::parse::{boolean, nonzero_duration, positive};
use crate::tls::{ClientName, ServerFiles, TlsError};

/// TLS on the gRPC port: its certificate, and the clients that it admits.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = TLS)]
pub struct GrpcTlsSettings {
    /// Use TLS for gRPC
    ///
    /// The versions are 1.3 and 1.2.
    #[arg(long, env = "GRPC_SERVER_USE_TLS", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub grpc_server_use_tls: bool,

    /// Certificate chain for gRPC, PEM
    ///
    /// The leaf certificate comes first, the intermediate ones follow. The file is read again when
    /// it changes.
    #[arg(long, env = "GRPC_SERVER_TLS_CERT")]
    pub grpc_server_tls_cert: Option<PathBuf>,

    /// Private key for gRPC, PEM
    ///
    /// The file is read again when it changes.
    #[arg(long, env = "GRPC_SERVER_TLS_KEY")]
    pub grpc_server_tls_key: Option<PathBuf>,

    /// CA bundle for clients, PEM
    ///
    /// Every client of the gRPC listener must then present a certificate. The file is read again
    /// when it changes.
    #[arg(long, env = "GRPC_CLIENT_TLS_CACERT")]
    pub grpc_client_tls_cacert: Option<PathBuf>,

    /// Names of which a client certificate must have one, separated by commas; default: any
    ///
    /// A name is a DNS name, an IP address or a URI, such as a SPIFFE ID.
    ///
    /// Example: spiffe://example.org/ns/edge/sa/envoy
    #[arg(
        long,
        env = "GRPC_CLIENT_TLS_SAN",
        value_delimiter = ',',
        value_name = "NAMES"
    )]
    pub grpc_client_tls_san: Vec<String>,

    /// Maximum TLS handshakes in progress on a listener
    ///
    /// Further connections are closed.
    #[arg(long, env = "TOLLGATE_TLS_HANDSHAKES_MAX", default_value_t = 4_096, value_parser = positive, value_name = "COUNT")]
    pub tls_handshakes_max: usize,

    /// Maximum duration of a TLS handshake
    ///
    /// Range: above 0
    #[arg(long, env = "TOLLGATE_TLS_HANDSHAKE_TIMEOUT", default_value = "5s", value_parser = nonzero_duration)]
    pub tls_handshake_timeout: Duration,

    /// CPU time for the TLS handshakes of a listener, in percent of one core
    ///
    /// Beyond it, handshakes wait.
    ///
    /// Range: 1 to 100
    #[arg(long, env = "TOLLGATE_TLS_HANDSHAKES_CPU_PERCENT_MAX", default_value_t = 25, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    pub tls_handshakes_cpu_percent_max: u8,
}

// === impl GrpcTlsSettings ===

impl GrpcTlsSettings {
    /// Whether clients of the gRPC port must show a certificate.
    pub fn requires_client_certificate(&self) -> bool {
        self.grpc_server_use_tls && self.grpc_client_tls_cacert.is_some()
    }

    /// The files of the gRPC port; none when it is not TLS.
    ///
    /// # Errors
    ///
    /// When a setting is missing or has no effect.
    pub fn server_files(&self) -> Result<Option<ServerFiles>, TlsError> {
        let names = self.grpc_client_tls_san.iter();
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        if !self.grpc_server_use_tls {
            if self.grpc_client_tls_cacert.is_some() || !names.is_empty() {
                let words = "GRPC_CLIENT_TLS_CACERT or GRPC_CLIENT_TLS_SAN is set, but gRPC does not use TLS; set GRPC_SERVER_USE_TLS=true";
                return Err(TlsError::Settings(words.to_owned()));
            }
            return Ok(None);
        }
        let (Some(certificate), Some(key)) =
            (&self.grpc_server_tls_cert, &self.grpc_server_tls_key)
        else {
            let words = "GRPC_SERVER_USE_TLS is true, but the certificate or its key is missing; set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY";
            return Err(TlsError::Settings(words.to_owned()));
        };
        if self.grpc_client_tls_cacert.is_none() && !names.is_empty() {
            let words = "GRPC_CLIENT_TLS_SAN is set, but clients need no certificate; set GRPC_CLIENT_TLS_CACERT";
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
        Ok(Some(ServerFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: self.grpc_client_tls_cacert.clone(),
            client_names: names.collect::<Result<_, _>>()?,
            protocol: "h2",
        }))
    }
}
