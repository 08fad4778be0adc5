//! The settings of the listeners: their addresses, and what they serve.
//!
//! What it deliberately does not do: bound connections (`connections`), or protect the admin
//! listener (`admin`).

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::settings::headings::LISTENERS;
use crate::settings::parse::{FileMode, boolean, file_mode, port};

/// Addresses and ports.
#[derive(Args, Clone, Debug)]
pub struct ListenerSettings {
    /// Address of the gRPC listener
    ///
    /// Example: 127.0.0.1
    #[arg(long, env = "GRPC_HOST", default_value = "0.0.0.0", value_name = "HOST", help_heading = LISTENERS)]
    pub grpc_host: String,

    /// Port of the gRPC listener
    ///
    /// It serves the rate limit service, health and reflection. 0 picks a free port.
    #[arg(long, env = "GRPC_PORT", default_value_t = 8081, value_parser = port, value_name = "PORT", help_heading = LISTENERS)]
    pub grpc_port: u16,

    /// Unix socket for gRPC, in place of a port
    ///
    /// Example: /run/tollgate/grpc.sock
    #[arg(long, env = "GRPC_UDS", help_heading = LISTENERS)]
    pub grpc_uds: Option<PathBuf>,

    /// Permissions of the Unix socket, in octal as for chmod
    ///
    /// Range: 0 to 0777
    ///
    /// Example: 0600
    #[arg(long, env = "TOLLGATE_GRPC_UDS_MODE", default_value = "0660", value_parser = file_mode, value_name = "MODE", help_heading = LISTENERS)]
    pub grpc_uds_mode: FileMode,

    /// Address of the HTTP listener
    ///
    /// Example: 127.0.0.1
    #[arg(long, env = "HOST", default_value = "0.0.0.0", value_name = "HOST", help_heading = LISTENERS)]
    pub host: String,

    /// Port of the HTTP listener
    ///
    /// It serves /healthcheck, /livez, /readyz, /json, /v1 and /metrics. 0 picks a free port.
    #[arg(long, env = "PORT", default_value_t = 8080, value_parser = port, value_name = "PORT", help_heading = LISTENERS)]
    pub port: u16,

    /// Answer requests on /json and /v1; default: true, without client certificates for gRPC
    ///
    /// They cannot require client certificates. If gRPC requires them, the default is false.
    #[arg(long, env = "TOLLGATE_JSON", value_parser = boolean, action = ArgAction::Set, help_heading = LISTENERS)]
    pub json: Option<bool>,

    /// Address of the admin listener
    ///
    /// The admin listener shows and changes what the service does. Keep it on loopback, or set
    /// --admin-token-file or --admin-client-cacert.
    ///
    /// Example: 0.0.0.0
    #[arg(long, env = "DEBUG_HOST", default_value = "127.0.0.1", value_name = "HOST", help_heading = LISTENERS)]
    pub debug_host: String,

    /// Port of the admin listener
    ///
    /// It serves the admin API, /rlconfig, /readyz?verbose and /log-level. 0 picks a free port.
    #[arg(long, env = "DEBUG_PORT", default_value_t = 6070, value_parser = port, value_name = "PORT", help_heading = LISTENERS)]
    pub debug_port: u16,
}
