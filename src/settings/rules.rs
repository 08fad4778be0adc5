//! The settings of rules: from files, or from an xDS server by the reference's names; and of
//! candidates: rules that are decided beside those in force, and never enforced.
//!
//! What it deliberately does not do: connect, or parse headers and metadata (`xds`). An error
//! never repeats a header that cannot be parsed: it may hold a secret.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::rules::file::{LimitFiles, Options};
use crate::rules::path::RulesPath;
use crate::settings::help::{RULES, XDS};
use crate::settings::parse::{boolean, duration, ratio, size_from};
use crate::visible_text::Hidden;

/// Where rules files are, for `serve`, `check` and `explain`.
#[derive(Args, Clone, Debug)]
pub struct RulesSettings {
    /// File that adds to the rules what their maker cannot say
    ///
    /// See docs/overlay.md.
    ///
    /// Example: /etc/tollgate/overlay.yaml
    #[arg(long, env = "TOLLGATE_OVERLAY", value_name = "FILE", help_heading = RULES)]
    pub overlay: Option<PathBuf>,

    /// Root directory of the rules if RULES is not set
    ///
    /// It has the same meaning as in envoyproxy/ratelimit, like the next three settings.
    ///
    /// Example: /data/ratelimit
    #[arg(long, env, value_name = "DIR", help_heading = RULES)]
    pub runtime_root: Option<PathBuf>,

    /// Directory below --runtime-root
    ///
    /// Example: ratelimit
    #[arg(long, env, default_value = "", value_name = "DIR", help_heading = RULES)]
    pub runtime_subdirectory: String,

    /// Directory, or start of the file names, below --runtime-subdirectory
    ///
    /// Example: limits
    #[arg(long, env, default_value = "config", value_name = "DIR", help_heading = RULES)]
    pub runtime_appdirectory: String,

    /// Skip files and directories whose names start with a dot
    #[arg(long, env, default_value = "true", value_parser = boolean, action = ArgAction::Set, help_heading = RULES)]
    pub runtime_ignoredotfiles: bool,

    /// Allow several files to define rules of one domain
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = RULES)]
    pub merge_domain_config: bool,

    /// What an error in the rules of one domain does to the rules of the others
    ///
    /// isolate: the domain keeps its last good rules, or has none until they are valid, and the
    /// others get their new ones. refuse_all: no new rules are used, as in envoyproxy/ratelimit.
    /// `tollgate check` fails with either.
    #[arg(long, env = "TOLLGATE_ON_BAD_DOMAIN", default_value = "isolate", value_enum, help_heading = RULES)]
    pub on_bad_domain: OnBadDomain,
}

/// What a bad domain does to the others.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum OnBadDomain {
    /// The others get their new rules.
    Isolate,
    /// No domain gets new rules.
    RefuseAll,
}

// === impl RulesSettings ===

impl RulesSettings {
    /// Where the rules are: RULES, or else as the reference's variables say. None when neither is
    /// given.
    pub fn path(&self, rules: Option<&Path>) -> Option<RulesPath> {
        if let Some(rules) = rules {
            return Some(RulesPath::Path(rules.to_owned()));
        }
        let root = self.runtime_root.as_ref()?;
        Some(RulesPath::Runtime {
            directory: root.join(&self.runtime_subdirectory),
            app_directory: self.runtime_appdirectory.clone(),
            ignore_dot_files: self.runtime_ignoredotfiles,
        })
    }
}

impl From<&RulesSettings> for Options {
    fn from(settings: &RulesSettings) -> Self {
        Self {
            merge_domains: settings.merge_domain_config,
            overlay: settings.overlay.clone(),
            limit_files: Some(LimitFiles::default()),
            isolate_domains: false,
        }
    }
}

/// Rules that are tried beside those in force.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = RULES)]
pub struct CandidateSettings {
    /// Rules file, or a directory of rules files, to try beside the rules in force
    ///
    /// Each request is decided by these rules too, in buckets of their own on this replica, and the
    /// decision is counted and never enforced. The files are polled and reloaded like the rules.
    /// With this setting, rate_limit.candidate in the rules has no effect.
    ///
    /// Example: /etc/tollgate/candidate.yaml
    #[arg(
        id = "candidate",
        long = "candidate",
        env = "TOLLGATE_CANDIDATE",
        value_name = "RULES"
    )]
    pub path: Option<PathBuf>,

    /// Memory for the buckets of candidates
    ///
    /// It is not part of --memory-max. A request whose bucket has no space is not decided by the
    /// candidate, and counted.
    ///
    /// Range: 1MiB to below 4GiB
    #[arg(id = "candidate_memory_max", long = "candidate-memory-max", env = "TOLLGATE_CANDIDATE_MEMORY_MAX", default_value = "64MiB", value_parser = size_from(1 << 20, "use a number and MiB, such as 64MiB, from 1MiB to below 4GiB"), value_name = "BYTES")]
    pub memory_max: usize,
}

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
