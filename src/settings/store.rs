//! The settings of the store that replicas share.
//!
//! A password is no flag, because other users of the machine can list a process's arguments. It
//! comes from a file, or from the reference service's variables, which are read apart from all
//! flags ([`EnvironmentVariables`]), as OpenTelemetry's are: there are dozens.
//!
//! What it deliberately does not do: parse URLs (`store/redis/target`), read files.

use std::fmt;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use crate::settings::decisions::answers;
use crate::settings::help::STORE;
use crate::settings::parse::{boolean, positive, size};
use crate::visible_text::Hidden;
use tollgate_limiter::OnUndecided;

/// The shared store: its address, its mode, and the response when it fails.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = STORE)]
pub struct StoreSettings {
    /// Redis or Valkey; default: REDIS_URL, or memory
    ///
    /// Replicas with the same store share their limits. Forms: redis://host:6379, rediss:// for
    /// TLS, redis+unix:///path, redis+sentinel://one,two/primary, redis+cluster://one,two. Set
    /// --store-password-file for a password. REDIS_URL has the same meaning as in
    /// envoyproxy/ratelimit.
    ///
    /// Example: redis://redis.example.org:6379
    #[arg(
        id = "shared_store",
        long = "store",
        env = "TOLLGATE_STORE",
        value_name = "URL"
    )]
    pub url: Option<Hidden>,

    /// How replicas share limits
    #[arg(
        long = "store-mode",
        env = "TOLLGATE_STORE_MODE",
        default_value = "exact",
        value_name = "MODE"
    )]
    pub store_mode: StoreMode,

    /// Maximum age of leased hits, in milliseconds
    ///
    /// Other replicas and callers can use unspent hits after at most this time. Callers that lease
    /// hits hold them as long, in every mode.
    ///
    /// Range: 10 to 60000
    #[arg(long, env = "TOLLGATE_LEASE_AGE_MAX_MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(10..=60_000), value_name = "MS")]
    pub lease_age_max_ms: u64,

    /// Maximum hits of one bucket in a lease
    ///
    /// Near the limit of a bucket, leases are smaller.
    #[arg(
        long,
        env = "TOLLGATE_LEASE_HITS_MAX",
        default_value_t = 1_000,
        value_name = "NUMBER"
    )]
    pub lease_hits_max: u64,

    /// Maximum hits in a lease of a caller
    ///
    /// Applies to leases of tollgate's API, with and without a shared store. Near the limit, leases
    /// are smaller.
    #[arg(
        long,
        env = "TOLLGATE_CALLER_LEASE_HITS_MAX",
        default_value_t = 1_000,
        value_parser = positive,
        value_name = "COUNT"
    )]
    pub caller_lease_hits_max: usize,

    /// Response when the shared store fails
    ///
    /// A rules file can set this for its domain (on_store_failure).
    #[arg(
        long,
        env = "TOLLGATE_ON_STORE_FAILURE",
        default_value = "error",
        value_parser = answers(OnUndecided::ALL),
        value_name = "RESPONSE"
    )]
    pub on_store_failure: OnUndecided,

    /// Deadline of a call to the shared store, in milliseconds
    ///
    /// Envoy waits 20 ms for tollgate by default.
    ///
    /// Range: 1 to 60000
    #[arg(long, env = "TOLLGATE_STORE_DEADLINE_MS", default_value_t = STORE_DEADLINE_MS, value_parser = clap::value_parser!(u64).range(1..=60_000), value_name = "MS")]
    pub store_deadline_ms: u64,

    /// Maximum time for the lookup of the shared store's name, in milliseconds
    ///
    /// A dead name server takes 5 seconds or more. The lookup goes on beside attempts to connect,
    /// and open connections do not need it.
    ///
    /// Range: 100 to 300000
    ///
    /// Example: 60000
    #[arg(long, env = "TOLLGATE_STORE_LOOKUP_TIMEOUT_MS", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(100..=300_000), value_name = "MS")]
    pub store_lookup_timeout_ms: u64,

    /// User of the shared store, if it has several
    ///
    /// Example: tollgate
    #[arg(long, env = "TOLLGATE_STORE_USER", value_name = "NAME")]
    pub store_user: Option<String>,

    /// File with the password
    ///
    /// The file is read for every connection. A changed password is used at once.
    #[arg(long, env = "TOLLGATE_STORE_PASSWORD_FILE")]
    pub store_password_file: Option<PathBuf>,

    /// Names of buckets in the shared store.
    #[command(flatten)]
    pub naming: NamingSettings,

    /// Memory for checks that wait for the shared store
    ///
    /// Beyond it, --on-store-failure applies.
    #[arg(long, env = "TOLLGATE_STORE_QUEUE_MAX", default_value = "32MiB", value_parser = size, value_name = "BYTES")]
    pub store_queue_max: usize,

    /// Time for which a key over its limit is refused from a local cache, in milliseconds
    ///
    /// A refund to another replica is visible after this time. 0 disables the cache.
    ///
    /// Range: 0 to 1000
    #[arg(long, env = "TOLLGATE_STORE_OVER_LIMIT_CACHE_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(..=1_000), value_name = "MS")]
    pub store_over_limit_cache_ms: u64,

    /// CA bundle for the shared store, PEM; default: system roots
    #[arg(long, env)]
    pub redis_tls_cacert: Option<PathBuf>,

    /// Client certificate for the shared store, PEM
    #[arg(long, env, requires = "redis_tls_client_key")]
    pub redis_tls_client_cert: Option<PathBuf>,

    /// Private key of the client certificate for the shared store, PEM
    #[arg(long, env, requires = "redis_tls_client_cert")]
    pub redis_tls_client_key: Option<PathBuf>,

    /// Accept a certificate of the shared store with another name
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub redis_tls_skip_hostname_verification: bool,

    /// What the reference's variables say of the store.
    #[arg(skip)]
    pub reference: EnvironmentVariables,
}

/// The names of buckets in the shared store, for `serve` and `explain`.
#[derive(Args, Clone, Debug)]
pub struct NamingSettings {
    /// File with the hash key for bucket names in the shared store, at least 16 bytes
    ///
    /// The key is secret and the same on all replicas. It prevents crafted key collisions. Without
    /// this file the hash key is public.
    #[arg(long, env = "TOLLGATE_STORE_HASH_KEY_FILE", help_heading = STORE)]
    pub store_hash_key_file: Option<PathBuf>,

    /// Names of fixed windows in the shared store
    ///
    /// With the names of envoyproxy/ratelimit, both services can share one Redis during a
    /// migration.
    #[arg(long, env = "TOLLGATE_STORE_KEYS", default_value = "tollgate", value_name = "NAMES", help_heading = STORE)]
    pub store_keys: StoreKeys,

    /// Prefix of every key in the shared store
    ///
    /// Range: up to 128 bytes without braces
    ///
    /// Example: edge:
    #[arg(long, env, default_value = "", value_parser = prefix, value_name = "PREFIX", help_heading = STORE)]
    pub cache_key_prefix: String,
}

/// The default deadline of the shared store, in milliseconds.
pub const STORE_DEADLINE_MS: u64 = 10;

/// Whose keys buckets in the shared store have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum StoreKeys {
    /// Keyed hashes of domain, descriptor and limit
    Tollgate,
    /// Names of envoyproxy/ratelimit for fixed windows, whose counters continue; hashes for the
    /// other algorithms
    Reference,
}

/// How replicas share buckets.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum StoreMode {
    /// One atomic script call per decision
    Exact,
    /// Hits are leased in advance and admitted from memory, if the algorithm allows it
    Leased,
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
        return Err("use up to 128 bytes without { and }".to_owned());
    }
    Ok(text.to_owned())
}

/// The variables that are set. Their names may be printed, their values never.
#[derive(Clone, Default)]
pub struct EnvironmentVariables {
    values: Vec<(&'static str, String)>,
}

// === impl EnvironmentVariables ===

impl EnvironmentVariables {
    /// Reads those of `names` that `variable` gives. An empty value counts as not set. A line end
    /// after the value is not part of it, as in a file.
    pub fn read(names: &[&'static str], mut variable: impl FnMut(&str) -> Option<String>) -> Self {
        let values = names
            .iter()
            .filter_map(|name| Some((*name, variable(name)?)))
            .map(|(name, value)| (name, value.trim_end_matches(['\r', '\n']).to_owned()));
        Self {
            values: values.filter(|(_, value)| !value.is_empty()).collect(),
        }
    }

    /// The value of one; none when it is not set or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let known = self.values.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for EnvironmentVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.values.iter().map(|(name, _)| name);
        f.debug_set().entries(names).finish()
    }
}
