//! The settings of connections: how many, how old, and what one may do.
//!
//! What it deliberately does not do: bound a request (`Settings` does).

use std::time::Duration;

use clap::Args;

use crate::settings::headings::CONNECTIONS;
use crate::settings::parse::{duration, positive};

/// Limits of connections.
#[derive(Args, Clone, Debug)]
pub struct ConnectionSettings {
    /// Maximum connections of the gRPC listener
    #[arg(long, env = "TOLLGATE_GRPC_CONNECTIONS_MAX", default_value_t = 16_384, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub grpc_connections_max: usize,

    /// Maximum connections of the HTTP listener, and of the admin listener
    #[arg(long, env = "TOLLGATE_HTTP_CONNECTIONS_MAX", default_value_t = 4_096, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub http_connections_max: usize,

    /// Maximum open streams of a connection
    ///
    /// Envoy opens up to 1,024 streams before it knows this limit.
    #[arg(long, env = "TOLLGATE_STREAMS_MAX", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..), value_name = "COUNT", help_heading = CONNECTIONS)]
    pub streams_max: u32,

    /// Maximum streaming calls of a connection: reflection, health Watch
    ///
    /// Further streaming calls are answered RESOURCE_EXHAUSTED.
    #[arg(long, env = "TOLLGATE_STREAMING_CALLS_PER_CONNECTION_MAX", default_value_t = 16, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub streaming_calls_per_connection_max: usize,

    /// Maximum streaming calls of all connections
    ///
    /// Further streaming calls are answered RESOURCE_EXHAUSTED.
    #[arg(long, env = "TOLLGATE_STREAMING_CALLS_MAX", default_value_t = 1_024, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub streaming_calls_max: usize,

    /// Maximum streams that a connection may reset, or have refused, per second
    ///
    /// A connection that exceeds it is closed. An Envoy whose 20 ms deadline ends for all of its
    /// calls resets some 50,000.
    #[arg(long, env = "TOLLGATE_RESETS_PER_SECOND_MAX", default_value_t = 100_000, value_name = "NUMBER", help_heading = CONNECTIONS)]
    pub resets_per_second_max: u32,

    /// Maximum control frames of a connection per second
    ///
    /// They are pings, settings, window updates and empty frames. A connection that exceeds it is
    /// closed.
    #[arg(long, env = "TOLLGATE_CONTROL_FRAMES_PER_SECOND_MAX", default_value_t = 100_000, value_name = "NUMBER", help_heading = CONNECTIONS)]
    pub control_frames_per_second_max: u32,

    /// Maximum age of a gRPC connection, ± 10%
    ///
    /// The server then sends GOAWAY, so that clients connect to new replicas. 0 means no limit.
    #[arg(long, env = "GRPC_MAX_CONNECTION_AGE", default_value = "24h", value_parser = duration, help_heading = CONNECTIONS)]
    pub grpc_max_connection_age: Duration,

    /// Time for calls in progress when a connection reaches its maximum age
    ///
    /// 0 means no limit.
    #[arg(long, env = "GRPC_MAX_CONNECTION_AGE_GRACE", default_value = "1h", value_parser = duration, help_heading = CONNECTIONS)]
    pub grpc_max_connection_age_grace: Duration,

    /// Interval of pings on an idle connection
    ///
    /// 0 disables pings.
    #[arg(long, env = "TOLLGATE_KEEPALIVE_INTERVAL", default_value = "30s", value_parser = duration, help_heading = CONNECTIONS)]
    pub keepalive_interval: Duration,

    /// Maximum wait for the response to a ping
    ///
    /// The connection is then closed.
    #[arg(long, env = "TOLLGATE_KEEPALIVE_TIMEOUT", default_value = "20s", value_parser = duration, help_heading = CONNECTIONS)]
    pub keepalive_timeout: Duration,
}
