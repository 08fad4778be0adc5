//! Every setting, declared once: its flag, its variable, its default and its help.
//!
//! A variable has the reference service's name where it has one, else `TOLLGATE_` and the flag in
//! capitals. `--help`, the README's table and the chart's schema are generated from this
//! declaration.
//!
//! To add a setting: declare it in the file of its subject, and run `make readme`. Tests hold the
//! README (`tests/process/readme.rs`) and the chart (`tests/chart/settings.rs`) to the declaration.
//!
//! What it deliberately does not do: open the files and addresses that it names.

mod admin;
mod environment;
mod logging;
pub mod memory_limit;
mod parse;
pub mod reference_variables;
mod rules;
mod statsd;
mod store;
mod tls;
mod tracing;
mod xds;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::parse::{
    boolean, duration, file_mode, header_name, memory_size, positive, ratio, size,
};

pub use self::admin::{AdminSettings, PrometheusSettings};
pub use self::environment::EnvironmentVariables;
pub use self::logging::{LogFormat, LogLevel};
pub(crate) use self::parse::nonzero_duration;
pub use self::parse::{FileMode, MEMORY_MIN};
pub use self::rules::{DecisionSettings, RulesSettings};
pub use self::statsd::{StatsdProtocol, StatsdSettings, Tags};
pub use self::store::{
    NamingSettings, REDIS_VARIABLES, STORE_DEADLINE_MS, StoreFailure, StoreKeys, StoreMode,
    StoreSettings,
};
pub use self::tls::GrpcTlsSettings;
pub use self::tracing::{OTEL_VARIABLES, TraceProtocol, TracingSettings};
pub use self::xds::{ConfigType, XdsSettings};

/// The settings of `serve`.
#[derive(Args, Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // switches are switches
pub struct Settings {
    /// A rules file, or a directory of them
    #[arg(env = "TOLLGATE_RULES")]
    pub rules: Option<PathBuf>,

    /// Where rules are when RULES is not given, and how files go together
    #[command(flatten)]
    pub rules_settings: RulesSettings,

    /// Where rules come from when not from files
    #[command(flatten)]
    pub xds: XdsSettings,

    /// Whether to be ready before there are rules; requests are then answered with an error
    #[arg(long, env = "FORCE_START_WITHOUT_INITIAL_CONFIG", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub force_start_without_initial_config: bool,

    /// Whether rules without any domain count as none
    #[arg(long, env = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub healthy_with_at_least_one_config_loaded: bool,

    /// Address of the gRPC port
    #[arg(long, env = "GRPC_HOST", default_value = "0.0.0.0")]
    pub grpc_host: String,

    /// The gRPC port: rate limit service, health, reflection
    #[arg(long, env = "GRPC_PORT", default_value_t = 8081)]
    pub grpc_port: u16,

    /// A unix socket for gRPC in place of the port
    #[arg(long, env = "GRPC_UDS")]
    pub grpc_uds: Option<PathBuf>,

    /// Who may use that socket, as chmod writes it
    #[arg(long, env = "TOLLGATE_GRPC_UDS_MODE", default_value = "0660", value_parser = file_mode)]
    pub grpc_uds_mode: FileMode,

    /// TLS on the gRPC port
    #[command(flatten)]
    pub grpc_tls: GrpcTlsSettings,

    /// Address of the HTTP port
    #[arg(long, env = "HOST", default_value = "0.0.0.0")]
    pub host: String,

    /// The HTTP port: /healthcheck, /livez, /readyz, /json, /metrics
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,

    /// Address of the admin port; it shows rules, so it stays on loopback unless a token or client
    /// certificates guard it
    #[arg(long, env = "DEBUG_HOST", default_value = "127.0.0.1")]
    pub debug_host: String,

    /// The admin port
    #[arg(long, env = "DEBUG_PORT", default_value_t = 6070)]
    pub debug_port: u16,

    /// Who may use the admin port
    #[command(flatten)]
    pub admin: AdminSettings,

    /// A port for metrics alone
    #[command(flatten)]
    pub prometheus: PrometheusSettings,

    /// Counters sent by statsd
    #[command(flatten)]
    pub statsd: StatsdSettings,

    /// Traces of decisions
    #[command(flatten)]
    pub tracing: TracingSettings,

    /// How much to log: trace, debug, info, warn, error or off
    #[arg(long, env = "LOG_LEVEL", default_value = "warn", ignore_case = true)]
    pub log_level: LogLevel,

    /// How to log
    #[arg(long, env = "LOG_FORMAT", default_value = "text", ignore_case = true)]
    pub log_format: LogFormat,

    /// From which share of a limit on hits count as near it in the metrics
    #[arg(long, env = "NEAR_LIMIT_RATIO", default_value_t = 0.8, value_parser = ratio)]
    pub near_limit_ratio: f32,

    /// Whether requests over limit pass all the same, and are counted
    #[arg(long, env = "SHADOW_MODE", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub shadow_mode: bool,

    /// Whether every descriptor counts as a quota: a request is over limit when all of them are
    #[arg(long, env = "QUOTA_MODE", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub quota_mode: bool,

    /// Whether answers carry headers with limit, remaining and reset
    #[arg(long, env = "LIMIT_RESPONSE_HEADERS_ENABLED", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub limit_response_headers_enabled: bool,

    /// Which headers answers carry, several with commas between (the three of LIMIT_LIMIT_HEADER
    /// and its like, X-RateLimit-*, RateLimit-Policy and RateLimit of the IETF draft, Retry-After
    /// on a refusal that will end)
    #[arg(
        long,
        env = "TOLLGATE_RESPONSE_HEADERS",
        value_delimiter = ',',
        ignore_case = true
    )]
    pub response_headers: Vec<HeaderStyle>,

    /// The name of the header with the limit
    #[arg(long, env = "LIMIT_LIMIT_HEADER", default_value = "RateLimit-Limit", value_parser = header_name)]
    pub limit_limit_header: String,

    /// The name of the header with what is left
    #[arg(long, env = "LIMIT_REMAINING_HEADER", default_value = "RateLimit-Remaining", value_parser = header_name)]
    pub limit_remaining_header: String,

    /// The name of the header with the seconds until reset
    #[arg(long, env = "LIMIT_RESET_HEADER", default_value = "RateLimit-Reset", value_parser = header_name)]
    pub limit_reset_header: String,

    /// Whether answers carry the request and the metadata of rules as dynamic metadata
    #[arg(long, env = "RESPONSE_DYNAMIC_METADATA", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub response_dynamic_metadata: bool,

    /// Whether hits may be given back; if not, such a request only looks
    #[arg(long, env = "TOLLGATE_NEGATIVE_HITS", default_value = "true", value_parser = boolean, action = ArgAction::Set)]
    pub negative_hits: bool,

    /// What a request takes when one of its limits refuses
    #[command(flatten)]
    pub decision: DecisionSettings,

    /// Whether limits that come with a request are obeyed; if not, the configured rule applies
    #[arg(long, env = "TOLLGATE_OVERRIDES", default_value = "true", value_parser = boolean, action = ArgAction::Set)]
    pub overrides: bool,

    /// Whether /json answers; unless said it does, but not where gRPC asks for client certificates,
    /// since it asks for none
    #[arg(long, env = "TOLLGATE_JSON", value_parser = boolean, action = ArgAction::Set)]
    pub json: Option<bool>,

    /// What to answer a request that passes a bound its caller can reach: an error would let it
    /// through
    #[arg(long, env = "TOLLGATE_ON_EXCESS", default_value = "deny")]
    pub on_excess: Verdict,

    /// How many descriptors a request may have
    #[arg(long, env = "TOLLGATE_DESCRIPTORS_MAX", default_value_t = 128, value_parser = positive)]
    pub descriptors_max: usize,

    /// How many entries a descriptor may have
    #[arg(long, env = "TOLLGATE_ENTRIES_MAX", default_value_t = 64, value_parser = positive)]
    pub entries_max: usize,

    /// How large a gRPC message may be; Envoy's headers hold 60 KiB
    #[arg(long, env = "TOLLGATE_MESSAGE_SIZE_MAX", default_value = "256KiB", value_parser = size)]
    pub message_size_max: usize,

    /// How large the headers of a gRPC call may be; beyond it HTTP/2 refuses the call
    #[arg(long, env = "TOLLGATE_HEADER_LIST_SIZE_MAX", default_value = "16KiB", value_parser = size)]
    pub header_list_size_max: usize,

    /// How many streams a connection may have open; Envoy opens up to 1,024 before it knows
    #[arg(long, env = "TOLLGATE_STREAMS_MAX", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..))]
    pub streams_max: u32,

    /// Maximum streaming calls (reflection, health Watch) that a connection may have open; more are
    /// answered RESOURCE_EXHAUSTED
    #[arg(long, env = "TOLLGATE_STREAMING_CALLS_PER_CONNECTION_MAX", default_value_t = 16, value_parser = positive)]
    pub streaming_calls_per_connection_max: usize,

    /// Maximum streaming calls that all connections may have open; more are answered
    /// RESOURCE_EXHAUSTED
    #[arg(long, env = "TOLLGATE_STREAMING_CALLS_MAX", default_value_t = 1_024, value_parser = positive)]
    pub streaming_calls_max: usize,

    /// How long a call's message may take to arrive after its headers, and its answer to be read by
    /// the caller; then the call is reset. 0 is for ever
    #[arg(long, env = "TOLLGATE_BODY_WAIT", default_value = "10s", value_parser = duration)]
    pub body_wait: Duration,

    /// Memory for request bodies that have not arrived in full, over all connections, such as
    /// 64MiB. One connection may hold as much as is free, half of it at most; a further call whose
    /// body comes in parts is then answered RESOURCE_EXHAUSTED. Default: an eighth of the
    /// container's memory limit, or of the machine's memory
    #[arg(long, env = "TOLLGATE_BODY_MEMORY_MAX", value_parser = memory_size)]
    pub body_memory_max: Option<u64>,

    /// How many streams a connection may reset in a second, or have refused; a connection that does
    /// more is closed. An Envoy whose 20 ms are over for all it has under way resets some 50,000
    #[arg(
        long,
        env = "TOLLGATE_RESETS_PER_SECOND_MAX",
        default_value_t = 100_000
    )]
    pub resets_per_second_max: u32,

    /// How many frames a second a connection may send that bring no call on: pings, settings,
    /// windows, frames of nothing; a connection that sends more is closed
    #[arg(
        long,
        env = "TOLLGATE_CONTROL_FRAMES_PER_SECOND_MAX",
        default_value_t = 100_000
    )]
    pub control_frames_per_second_max: u32,

    /// How long a connection lives, give or take a tenth, before its caller is asked to come anew,
    /// so that connections find new replicas; 0 is for ever
    #[arg(long, env = "GRPC_MAX_CONNECTION_AGE", default_value = "24h", value_parser = duration)]
    pub grpc_max_connection_age: Duration,

    /// How long after that it may finish what is under way; 0 is for ever
    #[arg(long, env = "GRPC_MAX_CONNECTION_AGE_GRACE", default_value = "1h", value_parser = duration)]
    pub grpc_max_connection_age_grace: Duration,

    /// How often a silent connection is asked whether it is still there; 0 is never
    #[arg(long, env = "TOLLGATE_KEEPALIVE_INTERVAL", default_value = "30s", value_parser = duration)]
    pub keepalive_interval: Duration,

    /// How long it may take to say so before it is closed
    #[arg(long, env = "TOLLGATE_KEEPALIVE_TIMEOUT", default_value = "20s", value_parser = duration)]
    pub keepalive_timeout: Duration,

    /// What to answer when the store does not decide. Envoy takes every error as "let it through"
    /// unless its failure_mode_deny is set
    #[arg(long, env = "TOLLGATE_ON_OVERLOAD", default_value = "error")]
    pub on_overload: Verdict,

    /// Deprecated: has no effect. There is one gRPC server. The option will be removed in the next
    /// release
    #[arg(long, env = "TOLLGATE_DOOR")]
    pub door: Option<DeprecatedDoor>,

    /// How many threads take checks; as many as the process may use cores unless said
    #[arg(long, env = "TOLLGATE_CORES", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: Option<u16>,

    /// How many partitions hold the buckets; one a core unless said, above 8 cores 8, above 32 a
    /// quarter of the cores
    #[arg(long, env = "TOLLGATE_PARTITIONS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub partitions: Option<u16>,

    /// How many checks may wait for one partition; beyond it a request is answered by --on-overload
    /// at once
    #[arg(long, env = "TOLLGATE_MAILBOX_CHECKS_MAX", default_value_t = 16_384, value_parser = positive)]
    pub mailbox_checks_max: usize,

    /// How much memory all partitions take together for buckets, logs, holders and their growth,
    /// such as 512MiB; half of what the container may use unless said, or of the machine's memory
    /// where there is no such limit
    #[arg(long, env = "TOLLGATE_MEMORY_MAX", value_parser = memory_size)]
    pub memory_max: Option<u64>,

    /// What becomes of new keys when that is full of keys over their limits, the only ones never
    /// forgotten
    #[arg(long, env = "TOLLGATE_ON_MEMORY_FULL", default_value = "share")]
    pub on_memory_full: OnMemoryFull,

    /// Where buckets are shared, if they are
    #[command(flatten)]
    pub store: StoreSettings,

    /// How many connections the gRPC port keeps open
    #[arg(long, env = "TOLLGATE_GRPC_CONNECTIONS_MAX", default_value_t = 16_384, value_parser = positive)]
    pub grpc_connections_max: usize,

    /// How many connections the HTTP and the admin port each keep open
    #[arg(long, env = "TOLLGATE_HTTP_CONNECTIONS_MAX", default_value_t = 4_096, value_parser = positive)]
    pub http_connections_max: usize,

    /// How long to go on accepting after a stop was asked for, so that callers can turn away first
    #[arg(long, env = "TOLLGATE_DRAIN_DELAY", default_value = "3s", value_parser = duration)]
    pub drain_delay: Duration,

    /// How long to wait after that for requests under way
    #[arg(long, env = "TOLLGATE_DRAIN_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub drain_timeout: Duration,
}

/// The response when there is no decision.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Verdict {
    /// A gRPC error: the caller's own setting decides
    Error,
    /// Pass
    Allow,
    /// Over limit
    Deny,
}

/// The values of `--door`, which has no effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum DeprecatedDoor {
    /// The only gRPC server
    H2,
    /// Was a second gRPC server, now removed
    Tonic,
}

/// What happens to new keys when memory is full.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum OnMemoryFull {
    /// They are counted in one bucket that all of a rule share, in each partition
    Share,
    /// They pass and are not counted
    Allow,
    /// They are over limit
    Deny,
    /// They are not decided, and --on-overload answers
    Error,
}

/// Rate limit headers of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum HeaderStyle {
    /// The reference's three, by the names that its variables give them
    Reference,
    /// X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset
    #[value(name = "x-ratelimit")]
    XRateLimit,
    /// RateLimit-Policy and RateLimit
    Ietf,
    /// Retry-After, on a refusal that will end
    RetryAfter,
}

// === impl Settings ===

impl Settings {
    /// Whether /json answers.
    pub fn json_enabled(&self) -> bool {
        self.json
            .unwrap_or(!self.grpc_tls.requires_client_certificate())
    }
}
