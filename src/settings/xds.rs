//! The settings of rules that come from an xDS server, by the reference's names.
//!
//! What it deliberately does not do: connect, or parse headers and metadata (`xds`). An error
//! never repeats a header that cannot be parsed: it may hold a secret.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::help::XDS;
use crate::settings::parse::{boolean, duration, ratio};
use crate::visible_text::Hidden;

/// The source of rules.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ConfigType {
    /// Rules files
    #[value(name = "FILE")]
    File,
    /// An xDS server, over ADS, state of the world
    #[value(name = "GRPC_XDS_SOTW")]
    GrpcXdsSotw,
}

/// Rules from an xDS server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = XDS)]
pub struct XdsSettings {
    /// Source of the rules
    #[arg(
        long,
        env,
        default_value = "FILE",
        ignore_case = true,
        value_name = "SOURCE"
    )]
    pub config_type: ConfigType,

    /// Address of the xDS server
    ///
    /// Example: xds.example.org:18000
    #[arg(long, env, default_value = "localhost:18000", value_name = "HOST:PORT")]
    pub config_grpc_xds_server_url: Hidden,

    /// xDS node ID
    ///
    /// The server may have rules for this ID only.
    ///
    /// Example: edge
    #[arg(long, env, default_value = "default", value_name = "ID")]
    pub config_grpc_xds_node_id: String,

    /// xDS node metadata, NAME=VALUE, separated by commas
    ///
    /// Example: zone=a,tier=edge
    #[arg(long, env, default_value = "", value_name = "METADATA")]
    pub config_grpc_xds_node_metadata: String,

    /// Headers sent to the xDS server, NAME:VALUE, separated by commas
    ///
    /// Example: x-tenant:edge
    #[arg(long, env, default_value = "", value_name = "HEADERS")]
    pub config_grpc_xds_client_additional_headers: Hidden,

    /// Use TLS to the xDS server
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub config_grpc_xds_server_use_tls: bool,

    /// Client certificate for the xDS server, PEM
    ///
    /// The file is read for every connection.
    #[arg(long, env, requires = "config_grpc_xds_client_tls_key")]
    pub config_grpc_xds_client_tls_cert: Option<PathBuf>,

    /// Private key of the client certificate for the xDS server, PEM
    ///
    /// The file is read for every connection.
    #[arg(long, env, requires = "config_grpc_xds_client_tls_cert")]
    pub config_grpc_xds_client_tls_key: Option<PathBuf>,

    /// CA bundle for the xDS server, PEM; default: system roots
    ///
    /// The file is read for every connection.
    #[arg(long, env)]
    pub config_grpc_xds_server_tls_cacert: Option<PathBuf>,

    /// Name in the xDS server's certificate; default: host of --config-grpc-xds-server-url
    ///
    /// Example: xds.example.org
    #[arg(long, env, default_value = "", value_name = "NAME")]
    pub config_grpc_xds_server_tls_san: String,

    /// First wait before a new attempt to connect to the xDS server
    ///
    /// The wait doubles with each failed attempt.
    #[arg(long, env, default_value = "3s", value_parser = duration)]
    pub config_grpc_xds_server_connect_retry_interval: Duration,

    /// First wait before a new stream after one ended
    ///
    /// The wait doubles with each stream that brings no rules.
    #[arg(long, env, default_value = "10s", value_parser = duration)]
    pub xds_client_backoff_initial_interval: Duration,

    /// Maximum wait before a new attempt or a new stream
    #[arg(long, env, default_value = "60s", value_parser = duration)]
    pub xds_client_backoff_max_interval: Duration,

    /// Share by which a wait may be longer or shorter
    ///
    /// Example: 0.2
    #[arg(long, env, default_value_t = 0.5, value_parser = ratio)]
    pub xds_client_backoff_random_factor: f32,

    /// Vary waits at random, so that replicas do not reconnect together
    #[arg(long, env, default_value = "true", value_parser = boolean, action = ArgAction::Set)]
    pub xds_client_backoff_jitter: bool,

    /// Maximum size of a message from the xDS server, in bytes; 0 means 4 MiB
    ///
    /// Example: 8388608
    #[arg(long, env, default_value_t = 0, value_name = "NUMBER")]
    pub xds_client_max_msg_size_in_bytes: u32,
}
