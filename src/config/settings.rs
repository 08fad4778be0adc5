//! Every setting, once: its flag, its variable, its default and its help.
//!
//! A variable has the reference service's name where it has one, else `TOLLGATE_` and the flag in capitals. `--help` and
//! the README's table come from this declaration (`tests/readme.rs` holds them together).
//!
//! What it deliberately does not do: open what it names, or hold what a setting means to one room only.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// What `serve` was told.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// A rules file, or a directory of them
    #[arg(env = "TOLLGATE_RULES")]
    pub rules: Option<PathBuf>,

    /// Address of the gRPC port
    #[arg(long, env = "GRPC_HOST", default_value = "0.0.0.0")]
    pub grpc_host: String,

    /// The gRPC port: rate limit service, health, reflection
    #[arg(long, env = "GRPC_PORT", default_value_t = 8081)]
    pub grpc_port: u16,

    /// Address of the HTTP port
    #[arg(long, env = "HOST", default_value = "0.0.0.0")]
    pub host: String,

    /// The HTTP port: /healthcheck, /livez, /readyz, /json, /metrics
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,

    /// Address of the admin port; it shows rules and has no guard, so it stays on loopback
    #[arg(long, env = "DEBUG_HOST", default_value = "127.0.0.1")]
    pub debug_host: String,

    /// The admin port
    #[arg(long, env = "DEBUG_PORT", default_value_t = 6070)]
    pub debug_port: u16,

    /// How much to log: trace, debug, info, warn, error or off
    #[arg(long, env = "LOG_LEVEL", default_value = "warn", ignore_case = true)]
    pub log_level: LogLevel,

    /// How to log
    #[arg(long, env = "LOG_FORMAT", default_value = "text", ignore_case = true)]
    pub log_format: LogFormat,

    /// From which share of a limit on hits count as near it in the metrics
    #[arg(long, env = "NEAR_LIMIT_RATIO", default_value_t = 0.8, value_parser = share)]
    pub near_limit_ratio: f32,

    /// What to answer when the store does not decide. Envoy takes every error as "let it through" unless its
    /// failure_mode_deny is set
    #[arg(long, env = "TOLLGATE_ON_OVERLOAD", default_value = "error")]
    pub on_overload: OnOverload,

    /// How many partitions hold the buckets; twice the cores unless said
    #[arg(long, env = "TOLLGATE_PARTITIONS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub partitions: Option<u16>,

    /// How many checks may wait for one partition; beyond it a request is answered by --on-overload at once
    #[arg(long, env = "TOLLGATE_MAILBOX_CHECKS_MAX", default_value_t = 16_384, value_parser = positive)]
    pub mailbox_checks_max: usize,

    /// How many buckets all partitions hold together (about 100 bytes each); a new key beyond it is answered by
    /// --on-overload
    #[arg(long, env = "TOLLGATE_BUCKETS_MAX", default_value_t = 10_000_000, value_parser = positive)]
    pub buckets_max: usize,

    /// How many connections the gRPC port keeps open
    #[arg(long, env = "TOLLGATE_GRPC_CONNECTIONS_MAX", default_value_t = 16_384, value_parser = positive)]
    pub grpc_connections_max: usize,

    /// How many connections the HTTP and the admin port each keep open
    #[arg(long, env = "TOLLGATE_HTTP_CONNECTIONS_MAX", default_value_t = 4_096, value_parser = positive)]
    pub http_connections_max: usize,

    /// How long to go on accepting after a stop was asked for, so that callers can turn away first
    #[arg(long, env = "TOLLGATE_DRAIN_DELAY", default_value = "3s", value_parser = humantime::parse_duration)]
    pub drain_delay: Duration,

    /// How long to wait after that for requests under way
    #[arg(long, env = "TOLLGATE_DRAIN_TIMEOUT", default_value = "5s", value_parser = humantime::parse_duration)]
    pub drain_timeout: Duration,
}

/// What to answer when the store does not decide.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum OnOverload {
    /// A gRPC error: the caller's own setting decides
    Error,
    /// Pass
    Allow,
    /// Over limit
    Deny,
}

/// How much to log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogLevel {
    /// Everything
    Trace,
    /// For developers
    Debug,
    /// What happens
    Info,
    /// What may need a look
    #[value(alias = "warning")]
    Warn,
    /// What went wrong
    #[value(aliases = ["fatal", "panic"])]
    Error,
    /// Nothing
    Off,
}

/// How to log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line, with @timestamp and @message
    Json,
}

/// A share from 0 to 1.
fn share(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("give a number from 0 to 1".to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("give a whole number of at least 1".to_owned()),
    }
}

// === impl LogLevel ===

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Off => "off",
        })
    }
}
