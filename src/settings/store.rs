//! The settings of the store that replicas share.
//!
//! A password is no flag, because other users of the machine can list a process's arguments. It
//! comes from a file, or from the reference service's variables, which are read apart from all
//! flags ([`EnvironmentVariables`]).
//!
//! What it deliberately does not do: parse URLs (`store/redis/target`), read files.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::EnvironmentVariables;
use crate::settings::parse::{boolean, size};
use tollgate_limiter::OnStoreFailure;

/// The shared store: its address, its mode, and the response when it fails.
#[derive(Args, Clone, Debug)]
pub struct StoreSettings {
    /// Where replicas share buckets: redis://host:6379, rediss:// for TLS, redis+unix:///path,
    /// redis+sentinel://one,two/primary, redis+cluster://one,two; in memory unless said, or unless
    /// REDIS_URL says it as in the reference. A password has no place here
    #[arg(
        id = "shared_store",
        long = "store",
        env = "TOLLGATE_STORE",
        hide_env_values = true
    )]
    pub url: Option<String>,

    /// How they share: every decision is one step in the store, or hits are taken there in advance
    #[arg(
        long = "store-mode",
        env = "TOLLGATE_STORE_MODE",
        default_value = "exact"
    )]
    pub store_mode: StoreMode,

    /// For how many milliseconds hits taken in advance are held at most; so much later another
    /// replica may have them
    #[arg(long, env = "TOLLGATE_LEASE_AGE_MAX_MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub lease_age_max_ms: u64,

    /// How many hits of one bucket are taken in advance at most; near its limit fewer are
    #[arg(long, env = "TOLLGATE_LEASE_HITS_MAX", default_value_t = 1_000)]
    pub lease_hits_max: u64,

    /// What to answer when the shared store does not decide; a rules file can say so for its domain
    #[arg(long, env = "TOLLGATE_ON_STORE_FAILURE", default_value = "error")]
    pub on_store_failure: StoreFailure,

    /// How many milliseconds the shared store has for an answer; Envoy waits 20 for ours unless
    /// told otherwise
    #[arg(long, env = "TOLLGATE_STORE_DEADLINE_MS", default_value_t = STORE_DEADLINE_MS, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub store_deadline_ms: u64,

    /// The user to log in as, where the shared store has several
    #[arg(long, env = "TOLLGATE_STORE_USER")]
    pub store_user: Option<String>,

    /// A file with the password; read again for every connection, and used at once when it changes
    #[arg(long, env = "TOLLGATE_STORE_PASSWORD_FILE")]
    pub store_password_file: Option<PathBuf>,

    /// What buckets are called there
    #[command(flatten)]
    pub naming: NamingSettings,

    /// How much memory checks that wait for the shared store may take; beyond it --on-store-failure
    /// applies
    #[arg(long, env = "TOLLGATE_STORE_QUEUE_MAX", default_value = "32MiB", value_parser = size)]
    pub store_queue_max: usize,

    /// How many milliseconds a key over its limit is refused without asking the shared store again,
    /// at most 1,000; what is given back elsewhere is seen after that; 0 asks every time
    #[arg(long, env = "TOLLGATE_STORE_OVER_LIMIT_CACHE_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(..=1_000))]
    pub store_over_limit_cache_ms: u64,

    /// The certificates of those who may sign the shared store's, PEM; the system's unless said
    #[arg(long, env = "REDIS_TLS_CACERT")]
    pub redis_tls_cacert: Option<PathBuf>,

    /// Our certificate for the shared store, PEM
    #[arg(long, env = "REDIS_TLS_CLIENT_CERT", requires = "redis_tls_client_key")]
    pub redis_tls_client_cert: Option<PathBuf>,

    /// Its key, PEM
    #[arg(long, env = "REDIS_TLS_CLIENT_KEY", requires = "redis_tls_client_cert")]
    pub redis_tls_client_key: Option<PathBuf>,

    /// Whether the shared store's certificate may bear another name
    #[arg(long, env = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub redis_tls_skip_hostname_verification: bool,

    /// What the reference's variables say of the store.
    #[arg(skip)]
    pub reference: EnvironmentVariables,
}

/// The names of buckets in the shared store, for `serve` and `explain`.
#[derive(Args, Clone, Debug)]
pub struct NamingSettings {
    /// A file with a secret of at least 16 bytes, the same on all replicas: what buckets are called
    /// in the shared store is a digest under it, so that nobody can choose which buckets meet.
    /// Without one the digest is under a key that everybody knows
    #[arg(long, env = "TOLLGATE_STORE_HASH_KEY_FILE")]
    pub store_hash_key_file: Option<PathBuf>,

    /// Whose keys fixed windows are counted under: our own, or those of Envoy's reference service,
    /// so that both can share one Redis while one takes over from the other
    #[arg(long, env = "TOLLGATE_STORE_KEYS", default_value = "tollgate")]
    pub store_keys: StoreKeys,

    /// What every key in the shared store begins with; no braces
    #[arg(long, env = "CACHE_KEY_PREFIX", default_value = "", value_parser = prefix)]
    pub cache_key_prefix: String,
}

/// The default deadline of the shared store, in milliseconds.
pub const STORE_DEADLINE_MS: u64 = 10;

/// Whose keys buckets in the shared store have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum StoreKeys {
    /// Digests, in which nobody can make two buckets meet
    Tollgate,
    /// For fixed windows the reference's text, whose counters are continued; digests for what it
    /// does not have
    Reference,
}

/// How replicas share buckets.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum StoreMode {
    /// Every decision is one step in the store
    Exact,
    /// Hits are taken there in advance and admitted here, where the algorithm allows it
    Leased,
}

/// What to answer when the shared store does not decide.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum StoreFailure {
    /// A gRPC error: the caller's own setting decides
    Error,
    /// Pass
    Allow,
    /// Over limit
    Deny,
    /// What this replica decides by itself, each limit divided by the number of replicas
    Local,
}

/// The reference's variables of the Redis server. Some are secrets, so none is a flag.
pub const REDIS_VARIABLES: &[&str] = &[
    "REDIS_URL",
    "REDIS_TYPE",
    "REDIS_SOCKET_TYPE",
    "REDIS_AUTH",
    "REDIS_SENTINEL_AUTH",
    "REDIS_TLS",
    "REDIS_PERSECOND",
    "REDIS_PERSECOND_URL",
    "REDIS_PERSECOND_TYPE",
    "REDIS_PERSECOND_SOCKET_TYPE",
    "REDIS_PERSECOND_AUTH",
    "REDIS_PERSECOND_SENTINEL_AUTH",
    "REDIS_PERSECOND_TLS",
];

/// A prefix of keys. Braces are not allowed: they would choose a cluster's slot.
fn prefix(text: &str) -> Result<String, String> {
    if text.contains(['{', '}']) || text.len() > 128 {
        return Err("give up to 128 bytes without { and }".to_owned());
    }
    Ok(text.to_owned())
}

// === impl StoreFailure ===

impl From<StoreFailure> for OnStoreFailure {
    fn from(said: StoreFailure) -> Self {
        match said {
            StoreFailure::Error => Self::Error,
            StoreFailure::Allow => Self::Allow,
            StoreFailure::Deny => Self::Deny,
            StoreFailure::Local => Self::Local,
        }
    }
}
