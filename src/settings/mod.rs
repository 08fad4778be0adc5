//! Every setting, declared once: its flag, its variable, its default and its help.
//!
//! A variable has the reference service's name where it has one, else `TOLLGATE_` and the flag in
//! capitals. `-h`, `--help`, the man pages, `docs/settings.md` and the chart's schema are generated
//! from this declaration.
//!
//! The comment of a setting is its help ([`help`]): the first paragraph is one short sentence
//! without the default. A paragraph `Range: …` and a last paragraph `Example: …` may follow.
//!
//! To add a setting: declare it in the file of its subject under a heading, and run `make readme`.
//! Tests hold `docs/settings.md` (`tests/process/settings_page.rs`), the help texts
//! (`tests/process/help.rs`) and the chart (`tests/chart/settings.rs`) to the declaration.
//!
//! What it deliberately does not do: open the files and addresses that it names.

pub(crate) mod decisions;
mod engine;
pub mod help;
mod listeners;
mod logging;
pub mod memory_limit;
mod parse;
pub mod reference_variables;
mod rules;
mod statsd;
mod store;
mod trace_export;
mod tracing;
pub mod unknown_variables;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::store::WhenFull;
use clap::builder::Resettable;
use clap::{ArgAction, Args, FromArgMatches as _};
use tollgate_limiter::OnUndecided;

use crate::settings::decisions::{ON_MEMORY_FULL, WITHOUT_STORE, answers, choice};
use crate::settings::help::{DECISIONS, LOGS, REQUEST_LIMITS, RULES, SHUTDOWN, WORKERS};
use crate::settings::parse::{boolean, duration, positive, ratio, size};

pub use self::decisions::{DecisionSettings, HeaderStyle, ResponseSettings};
pub use self::engine::{EstimatesSettings, QuotaSettings, SnapshotSettings};
pub use self::listeners::{
    AdminSettings, ConnectionSettings, GrpcTlsSettings, IngressSettings, ListenerSettings,
    PrometheusSettings,
};
pub use self::logging::{
    CaptureSettings, DecisionLogSettings, DecisionLogTarget, LogFilter, LogFilterError, LogFormat,
    LogLevel, NotifySettings, RecordingValues, TopKeysSettings,
};
pub use self::parse::{FileMode, MEMORY_MIN};
pub(crate) use self::parse::{memory_size, nonzero_duration, word};
pub use self::rules::{CandidateSettings, OnBadDomain, RulesSettings};
pub use self::rules::{ConfigType, XdsSettings};
pub use self::statsd::{StatsdProtocol, StatsdSettings, Tags};
pub use self::store::{
    EnvironmentVariables, NamingSettings, REDIS_VARIABLES, STORE_DEADLINE_MS, StoreKeys, StoreMode,
    StoreSettings,
};
pub use self::tracing::{OTEL_VARIABLES, TraceProtocol, TracingSettings};

/// The settings of `serve`.
#[derive(Args, Clone, Debug)]
#[command(mut_args(help::hide_unless_essential))]
#[allow(clippy::struct_excessive_bools)] // switches are switches
pub struct Settings {
    /// Rules file, or a directory of rules files
    ///
    /// Files of a directory are read in the byte order of their paths. Default: the directory that
    /// --runtime-root and the flags beside it name.
    ///
    /// Example: /etc/tollgate/rules.yaml
    #[arg(id = "rules", env = "TOLLGATE_RULES", value_name = "RULES")]
    pub rules_path: Option<PathBuf>,

    /// Location of the rules without RULES, and how files combine.
    #[command(flatten)]
    pub rules: RulesSettings,

    /// Rules that are tried beside those in force.
    #[command(flatten)]
    pub candidate: CandidateSettings,

    /// Report ready before rules are loaded
    ///
    /// Until rules are loaded, every request is answered with an error.
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = RULES)]
    pub force_start_without_initial_config: bool,

    /// Report ready only while the rules have at least one domain
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = RULES)]
    pub healthy_with_at_least_one_config_loaded: bool,

    /// Rules from an xDS server.
    #[command(flatten)]
    pub xds: XdsSettings,

    /// The listeners of gRPC, HTTP and the admin API.
    #[command(flatten)]
    pub listeners: ListenerSettings,

    /// Access to the admin listener.
    #[command(flatten)]
    pub admin: AdminSettings,

    /// Listeners for proxies that do not speak gRPC.
    #[command(flatten)]
    pub ingresses: IngressSettings,

    /// TLS on the gRPC listener.
    #[command(flatten)]
    pub grpc_tls: GrpcTlsSettings,

    /// Never refuse, only count
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = DECISIONS)]
    pub shadow_mode: bool,

    /// Refuse a request only when all of its descriptors are over limit
    ///
    /// Every descriptor then counts as a quota.
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = DECISIONS)]
    pub quota_mode: bool,

    /// Consumption when one of several limits refuses.
    #[command(flatten)]
    pub decision: DecisionSettings,

    /// Accept refunds: requests with negative hits
    ///
    /// If false, a refund changes nothing and is answered with the state of its limits.
    #[arg(long, env = "TOLLGATE_NEGATIVE_HITS", default_value = "true", value_parser = boolean, action = ArgAction::Set, help_heading = DECISIONS)]
    pub negative_hits: bool,

    /// Apply limits that a request carries
    ///
    /// If false, the configured rule applies.
    #[arg(long, env = "TOLLGATE_OVERRIDES", default_value = "true", value_parser = boolean, action = ArgAction::Set, help_heading = DECISIONS)]
    pub overrides: bool,

    /// Response to a request that exceeds a request limit
    ///
    /// Clients can reach these limits. An error would let such requests pass.
    #[arg(long, env = "TOLLGATE_ON_EXCESS", default_value = "deny", value_parser = answers(WITHOUT_STORE), value_name = "RESPONSE", help_heading = DECISIONS)]
    pub on_excess: OnUndecided,

    /// Response when the store gives no decision
    ///
    /// Envoy lets a request pass on every error, except with its failure_mode_deny.
    #[arg(long, env = "TOLLGATE_ON_OVERLOAD", default_value = "error", value_parser = answers(WITHOUT_STORE), value_name = "RESPONSE", help_heading = DECISIONS)]
    pub on_overload: OnUndecided,

    /// Headers and metadata of responses.
    #[command(flatten)]
    pub response: ResponseSettings,

    /// Maximum descriptors in a request
    ///
    /// Envoy Gateway allows 256 rules in a policy, and can merge the policies of a route and its
    /// gateway.
    #[arg(long, env = "TOLLGATE_DESCRIPTORS_MAX", default_value_t = 512, value_parser = positive, value_name = "COUNT", help_heading = REQUEST_LIMITS)]
    pub descriptors_max: usize,

    /// Maximum entries in a descriptor
    #[arg(long, env = "TOLLGATE_ENTRIES_MAX", default_value_t = 64, value_parser = positive, value_name = "COUNT", help_heading = REQUEST_LIMITS)]
    pub entries_max: usize,

    /// Maximum size of a gRPC message
    ///
    /// The headers of a request in Envoy hold up to 60 KiB.
    #[arg(long, env = "TOLLGATE_MESSAGE_SIZE_MAX", default_value = "256KiB", value_parser = size, value_name = "BYTES", help_heading = REQUEST_LIMITS)]
    pub message_size_max: usize,

    /// Maximum size of the headers of a gRPC call
    ///
    /// HTTP/2 refuses a call with larger headers.
    #[arg(long, env = "TOLLGATE_HEADER_LIST_SIZE_MAX", default_value = "16KiB", value_parser = size, value_name = "BYTES", help_heading = REQUEST_LIMITS)]
    pub header_list_size_max: usize,

    /// Maximum wait for a message after its headers, and for the client to read the response
    ///
    /// The call is then reset. 0 means no limit.
    #[arg(long, env = "TOLLGATE_BODY_WAIT", default_value = "10s", value_parser = duration, help_heading = REQUEST_LIMITS)]
    pub body_wait: Duration,

    /// Memory for incomplete request bodies of all connections; default: 1/8 of available memory
    ///
    /// One connection may use as much as is free, and at most half. Beyond that, a call whose body
    /// arrives in parts is answered RESOURCE_EXHAUSTED. Available memory is the container's limit,
    /// or the machine's memory without a limit.
    ///
    /// Example: 64MiB
    #[arg(long, env = "TOLLGATE_BODY_MEMORY_MAX", value_parser = memory_size, value_name = "MEMORY", help_heading = REQUEST_LIMITS)]
    pub body_memory_max: Option<u64>,

    /// Maximum size of the answer to a call or a batch of tollgate's API
    ///
    /// A call whose answer would be larger is not carried out; those of a batch fail one by one.
    #[arg(long, env = "TOLLGATE_ANSWER_SIZE_MAX", default_value = "4MiB", value_parser = size, value_name = "BYTES", help_heading = REQUEST_LIMITS)]
    pub answer_size_max: usize,

    /// Memory for unsent answers of all connections; default: 1/8 of available memory
    ///
    /// The default is at most 256MiB. One connection may use as much as is free, and about half of
    /// all at most. Beyond that, its calls wait for the client to read, and calls of other
    /// connections are refused. Requests that wait, and HTTP bodies that arrive, may use as much
    /// again.
    ///
    /// Example: 64MiB
    #[arg(long, env = "TOLLGATE_ANSWER_MEMORY_MAX", value_parser = memory_size, value_name = "MEMORY", help_heading = REQUEST_LIMITS)]
    pub answer_memory_max: Option<u64>,

    /// Limits of connections.
    #[command(flatten)]
    pub connections: ConnectionSettings,

    /// Memory for buckets; default: half of available memory
    ///
    /// It is for the buckets of all partitions, including logs, holders and their growth. Available
    /// memory is the container's limit, or the machine's memory without a limit.
    ///
    /// Example: 512MiB
    #[arg(long, env = "TOLLGATE_MEMORY_MAX", value_parser = memory_size, value_name = "MEMORY", help_heading = WORKERS)]
    pub memory_max: Option<u64>,

    /// Response to new keys when memory is full of keys over their limits
    ///
    /// Keys over their limits are the only ones that are never forgotten.
    #[arg(long, env = "TOLLGATE_ON_MEMORY_FULL", default_value = "share", value_parser = choice(ON_MEMORY_FULL), value_name = "RESPONSE", help_heading = WORKERS)]
    pub on_memory_full: WhenFull,

    /// Snapshots of the buckets in memory.
    #[command(flatten)]
    pub snapshot: SnapshotSettings,

    /// Worker threads that run checks; default: number of usable cores
    ///
    /// Range: 1 to 1024
    ///
    /// Example: 4
    #[arg(long, env = "TOLLGATE_CORES", value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "COUNT", help_heading = WORKERS)]
    pub cores: Option<u16>,

    /// Partitions of the buckets; default: one per core
    ///
    /// Above 8 cores the default is 8, above 32 cores a quarter of the cores.
    ///
    /// Range: 1 to 1024
    ///
    /// Example: 4
    #[arg(long, env = "TOLLGATE_PARTITIONS", value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "COUNT", help_heading = WORKERS)]
    pub partitions: Option<u16>,

    /// Maximum checks queued for one partition
    ///
    /// Further requests are answered at once, by --on-overload.
    #[arg(long, env = "TOLLGATE_MAILBOX_CHECKS_MAX", default_value_t = 16_384, value_parser = positive, value_name = "COUNT", help_heading = WORKERS)]
    pub mailbox_checks_max: usize,

    /// Amounts that are learnt from commits.
    #[command(flatten)]
    pub estimates: EstimatesSettings,

    /// Quotas.
    #[command(flatten)]
    pub quotas: QuotaSettings,

    /// The shared store.
    #[command(flatten)]
    pub store: StoreSettings,

    /// Minimum severity of log lines
    ///
    /// Levels of modules may follow after commas. The module tollgate::decisions logs each
    /// decision, with the descriptors that callers sent.
    ///
    /// Range: trace, debug, info, warn, error, off
    ///
    /// Example: warn,tollgate::decisions=debug
    #[arg(long, env, default_value = "warn", value_name = "LEVEL", help_heading = LOGS)]
    pub log_level: LogFilter,

    /// Format of log lines
    #[arg(long, env, default_value = "text", ignore_case = true, value_name = "FORMAT", help_heading = LOGS)]
    pub log_format: LogFormat,

    /// Share of a limit from which hits count as near the limit in metrics
    #[arg(long, env, default_value_t = 0.8, value_parser = ratio, help_heading = LOGS)]
    pub near_limit_ratio: f32,

    /// Top keys, and how values are shown.
    #[command(flatten)]
    pub top_keys: TopKeysSettings,

    /// The decision log, and the last decisions.
    #[command(flatten)]
    pub decision_log: DecisionLogSettings,

    /// The webhook of limits.
    #[command(flatten)]
    pub notify: NotifySettings,

    /// Recordings of requests.
    #[command(flatten)]
    pub capture: CaptureSettings,

    /// A listener for metrics alone.
    #[command(flatten)]
    pub prometheus: PrometheusSettings,

    /// Counters sent to a StatsD server.
    #[command(flatten)]
    pub statsd: StatsdSettings,

    /// Traces of decisions.
    #[command(flatten)]
    pub tracing: TracingSettings,

    /// Time from SIGTERM until listeners close
    ///
    /// During this time the service accepts connections and reports not ready, so that clients can
    /// use other replicas. SIGINT has the same effect.
    #[arg(long, env = "TOLLGATE_DRAIN_DELAY", default_value = "3s", value_parser = duration, help_heading = SHUTDOWN)]
    pub drain_delay: Duration,

    /// Maximum wait for requests in progress after --drain-delay
    #[arg(long, env = "TOLLGATE_DRAIN_TIMEOUT", default_value = "5s", value_parser = duration, help_heading = SHUTDOWN)]
    pub drain_timeout: Duration,
}

// === impl Settings ===

impl Settings {
    /// The settings that these flags of `tollgate serve` make, with the defaults of all others.
    /// Environment variables have no effect.
    ///
    /// # Errors
    ///
    /// When a flag is unknown or its value is invalid.
    pub fn from_flags<F>(flags: impl IntoIterator<Item = F>) -> Result<Self, clap::Error>
    where
        F: Into<OsString> + Clone,
    {
        let command = clap::Command::new("serve").no_binary_name(true);
        let command = Self::augment_args(command).mut_args(|arg| arg.env(Resettable::Reset));
        Self::from_arg_matches(&command.try_get_matches_from(flags)?)
    }

    /// The names of the flags on which decisions and responses depend, without dashes before them.
    pub fn decision_flags() -> Vec<String> {
        let others = [
            "merge-domain-config",
            "descriptors-max",
            "entries-max",
            "quota-ttl-seconds",
        ];
        let command = Self::augment_args(clap::Command::new("serve"));
        let flags = command.get_arguments().filter_map(|argument| {
            let flag = argument.get_long()?;
            let heading = argument.get_help_heading()?;
            let is_wanted = matches!(heading, DECISIONS | help::HEADERS)
                // A simulation has no queue.
                && flag != "on-overload"
                || others.contains(&flag);
            is_wanted.then(|| flag.to_owned())
        });
        flags.collect()
    }

    /// Whether /json answers.
    pub fn json_enabled(&self) -> bool {
        let set = self.listeners.json;
        set.unwrap_or(!self.grpc_tls.requires_client_certificate())
    }
}
