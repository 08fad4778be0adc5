//! TLS options of `hit` and `explain`.
//!
//! The names are those of other clients, except for the client key: `explain --key` has another
//! meaning.
//!
//! What it deliberately does not do: read files (`tls`), or disable certificate verification: an
//! unverified service may be an impostor.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use crate::grpc_client::ClientTls;
use crate::tls::ClientFiles;

/// Options that enable TLS.
pub(super) const BY_TLS: [&str; 2] = ["tls", "cacert"];

/// TLS options: CA bundle, client certificate, server name.
#[derive(Args, Debug)]
#[command(
    next_help_heading = "TLS",
    group(ArgGroup::new("by_tls").args(BY_TLS).multiple(true))
)]
pub(super) struct TlsOptions {
    /// Connect with TLS; trusts the system roots if --cacert is not set
    #[arg(long)]
    tls: bool,

    /// CA bundle (PEM) for the service's certificate; implies --tls
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Client certificate (PEM), for a service that requires one
    #[arg(
        long,
        value_name = "FILE",
        requires = "client_key",
        requires = "by_tls"
    )]
    client_cert: Option<PathBuf>,

    /// Private key (PEM) of --client-cert
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,

    /// Name that the service's certificate must have; default: the host of the address
    #[arg(long, value_name = "NAME", requires = "by_tls")]
    server_name: Option<String>,
}

// === impl TlsOptions ===

impl TlsOptions {
    /// TLS of the connection; none if it is plain.
    pub(super) fn tls(&self) -> Option<ClientTls> {
        (self.tls || self.cacert.is_some()).then(|| self.https())
    }

    /// TLS of an address whose scheme is https.
    pub(super) fn https(&self) -> ClientTls {
        ClientTls {
            files: ClientFiles {
                ca_bundle: self.cacert.clone(),
                identity: self.client_cert.clone().zip(self.client_key.clone()),
                ca_setting: "--cacert FILE",
            },
            name: self.server_name.clone(),
        }
    }
}
