//! The settings of rules that come from an xDS server, by the reference's names.
//!
//! What it deliberately does not do: connect, or parse headers and metadata (`rules/xds`). An error
//! never repeats a header that cannot be parsed: it may hold a secret.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::parse::{boolean, duration, ratio};

/// The source of rules.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ConfigType {
    /// Files
    #[value(name = "FILE")]
    File,
    /// An xDS server, by ADS, state of the world
    #[value(name = "GRPC_XDS_SOTW")]
    GrpcXdsSotw,
}

/// Rules from an xDS server.
#[derive(Args, Clone, Debug)]
pub struct XdsSettings {
    /// Where rules come from
    #[arg(long, env = "CONFIG_TYPE", default_value = "FILE", ignore_case = true)]
    pub config_type: ConfigType,

    /// The xDS server, HOST:PORT
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_SERVER_URL",
        default_value = "localhost:18000"
    )]
    pub config_grpc_xds_server_url: String,

    /// Who we say we are there; the server may have rules for this name only
    #[arg(long, env = "CONFIG_GRPC_XDS_NODE_ID", default_value = "default")]
    pub config_grpc_xds_node_id: String,

    /// What else we say of ourselves, NAME=VALUE, several with commas between
    #[arg(long, env = "CONFIG_GRPC_XDS_NODE_METADATA", default_value = "")]
    pub config_grpc_xds_node_metadata: String,

    /// Headers that we send along, NAME:VALUE, several with commas between
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        default_value = "",
        hide_env_values = true
    )]
    pub config_grpc_xds_client_additional_headers: String,

    /// Whether the xDS server is TLS
    #[arg(long, env = "CONFIG_GRPC_XDS_SERVER_USE_TLS", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub config_grpc_xds_server_use_tls: bool,

    /// Our certificate for the xDS server, PEM; read for every connection
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
        requires = "config_grpc_xds_client_tls_key"
    )]
    pub config_grpc_xds_client_tls_cert: Option<PathBuf>,

    /// Its key, PEM; read for every connection
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
        requires = "config_grpc_xds_client_tls_cert"
    )]
    pub config_grpc_xds_client_tls_key: Option<PathBuf>,

    /// The certificates of those who may sign the xDS server's, PEM; the system's unless said; read
    /// for every connection
    #[arg(long, env = "CONFIG_GRPC_XDS_SERVER_TLS_CACERT")]
    pub config_grpc_xds_server_tls_cacert: Option<PathBuf>,

    /// The name that the xDS server's certificate must bear, where it is not that of
    /// CONFIG_GRPC_XDS_SERVER_URL
    #[arg(long, env = "CONFIG_GRPC_XDS_SERVER_TLS_SAN", default_value = "")]
    pub config_grpc_xds_server_tls_san: String,

    /// How long to wait before the xDS server is tried again when there is no connection; doubled
    /// each time
    #[arg(long, env = "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", default_value = "3s", value_parser = duration)]
    pub config_grpc_xds_server_connect_retry_interval: Duration,

    /// The same when a stream ended; doubled each time that brings no rules
    #[arg(long, env = "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", default_value = "10s", value_parser = duration)]
    pub xds_client_backoff_initial_interval: Duration,

    /// The longest wait
    #[arg(long, env = "XDS_CLIENT_BACKOFF_MAX_INTERVAL", default_value = "60s", value_parser = duration)]
    pub xds_client_backoff_max_interval: Duration,

    /// By which share a wait may be longer or shorter
    #[arg(long, env = "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", default_value_t = 0.5, value_parser = ratio)]
    pub xds_client_backoff_random_factor: f32,

    /// Whether waits are longer and shorter at all, so that replicas do not come back together
    #[arg(long, env = "XDS_CLIENT_BACKOFF_JITTER", default_value = "true", value_parser = boolean, action = ArgAction::Set)]
    pub xds_client_backoff_jitter: bool,

    /// How large an answer of the xDS server may be, in bytes; 0 is 4 MiB
    #[arg(long, env = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", default_value_t = 0)]
    pub xds_client_max_msg_size_in_bytes: u32,
}
