//! The settings of listeners for proxies and clients that do not speak gRPC.

use std::path::PathBuf;

use clap::Args;

use crate::settings::headings::INGRESSES;
use crate::settings::parse::{port, positive};
use crate::tls::ServerFiles;

/// Listeners for proxies that do not speak gRPC.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = INGRESSES)]
pub struct IngressSettings {
    /// Address of the listeners of this section
    ///
    /// Example: 127.0.0.1
    #[arg(
        long,
        env = "TOLLGATE_INGRESS_HOST",
        default_value = "0.0.0.0",
        value_name = "HOST"
    )]
    pub ingress_host: String,

    /// Port of forward auth; default: no listener
    ///
    /// It answers /auth/DOMAIN, by `requests` of the rules. 0 picks a free port.
    ///
    /// Example: 8082
    #[arg(long, env = "TOLLGATE_AUTH_PORT", value_parser = port, value_name = "PORT")]
    pub auth_port: Option<u16>,

    /// Port of the Redis protocol; default: no listener
    ///
    /// It answers CL.THROTTLE and TG.CHECK. 0 picks a free port.
    ///
    /// Example: 6380
    #[arg(long, env = "TOLLGATE_RESP_PORT", value_parser = port, value_name = "PORT")]
    pub resp_port: Option<u16>,

    /// File with the password of the Redis protocol
    ///
    /// Clients must then send it by AUTH or HELLO. The file is read at the start.
    ///
    /// Example: /etc/tollgate/resp-password
    #[arg(long, env = "TOLLGATE_RESP_PASSWORD_FILE", requires = "resp_port")]
    pub resp_password_file: Option<PathBuf>,

    /// Port of the agent for HAProxy (SPOE); default: no listener
    ///
    /// 0 picks a free port.
    ///
    /// Example: 8084
    #[arg(long, env = "TOLLGATE_SPOE_PORT", value_parser = port, value_name = "PORT")]
    pub spoe_port: Option<u16>,

    /// Maximum connections of each of these listeners
    #[arg(long, env = "TOLLGATE_INGRESS_CONNECTIONS_MAX", default_value_t = 4_096, value_parser = positive, value_name = "COUNT")]
    pub ingress_connections_max: usize,

    /// Certificate chain of these listeners, PEM; enables TLS
    ///
    /// The file is read again when it changes.
    #[arg(long, env = "TOLLGATE_INGRESS_TLS_CERT", requires = "ingress_tls_key")]
    pub ingress_tls_cert: Option<PathBuf>,

    /// Private key of these listeners, PEM
    ///
    /// The file is read again when it changes.
    #[arg(long, env = "TOLLGATE_INGRESS_TLS_KEY", requires = "ingress_tls_cert")]
    pub ingress_tls_key: Option<PathBuf>,

    /// CA bundle for clients of these listeners, PEM
    ///
    /// Every client must then present a certificate.
    #[arg(
        long,
        env = "TOLLGATE_INGRESS_CLIENT_CACERT",
        requires = "ingress_tls_cert"
    )]
    pub ingress_client_cacert: Option<PathBuf>,
}

// === impl IngressSettings ===

impl IngressSettings {
    /// The files of TLS; none without it.
    pub fn server_files(&self) -> Option<ServerFiles> {
        Some(ServerFiles {
            certificate: self.ingress_tls_cert.clone()?,
            key: self.ingress_tls_key.clone()?,
            client_ca: self.ingress_client_cacert.clone(),
            client_names: Vec::new(),
            protocol: "http/1.1",
        })
    }
}
