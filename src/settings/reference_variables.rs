//! Every variable that Envoy's reference service reads, and how tollgate supports it.
//!
//! A user who migrates must learn which variables no longer have an effect. A supported variable is
//! a setting of the same name (`settings`). Of the others, each that is set is reported once at
//! start, with what to do instead.
//!
//! What it deliberately does not do: read a value. Some of them are secrets.

/// How a variable of the reference is supported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Support {
    /// It is a setting of the same name.
    Setting,
    /// It is read, but is no flag: it names the Redis server, and it or a variable beside it may
    /// hold a password.
    StoreVariable,
    /// It is not needed. The text says why.
    NotNeeded(&'static str),
    /// It has no effect. The text says what to do instead.
    Replaced(&'static str),
}

use Support::{NotNeeded, Replaced, Setting, StoreVariable};

const ONE_CONNECTION: Support =
    NotNeeded("one connection carries all calls, and each call all checks that wait");
const AT_START: Support =
    NotNeeded("listeners open without Redis, and attempts to connect continue until it answers");
const NO_MEMCACHE: Support = Replaced(
    "there is no memcached store; limits are kept in memory, or in Redis with TOLLGATE_STORE or REDIS_URL",
);
const NO_TIMEOUT: Support = Replaced("use TOLLGATE_STORE_DEADLINE_MS, which bounds every call");
const NO_DOG_STATSD: Support =
    Replaced("use USE_STATSD, whose tags are EXTRA_TAGS, or scrape /metrics, which has labels");

/// Every variable and its support, in the order of the reference's documentation.
pub static REFERENCE_VARIABLES: &[(&str, Support)] = &[
    ("HOST", Setting),
    ("PORT", Setting),
    ("GRPC_HOST", Setting),
    ("GRPC_PORT", Setting),
    ("GRPC_UDS", Setting),
    ("DEBUG_HOST", Setting),
    ("DEBUG_PORT", Setting),
    ("GRPC_MAX_CONNECTION_AGE", Setting),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", Setting),
    (
        "GRPC_MAX_CONCURRENT_STREAMS",
        Replaced("use TOLLGATE_STREAMS_MAX"),
    ),
    ("LOG_LEVEL", Setting),
    ("LOG_FORMAT", Setting),
    ("GRPC_SERVER_USE_TLS", Setting),
    ("GRPC_SERVER_TLS_CERT", Setting),
    ("GRPC_SERVER_TLS_KEY", Setting),
    ("GRPC_CLIENT_TLS_CACERT", Setting),
    ("GRPC_CLIENT_TLS_SAN", Setting),
    ("CONFIG_TYPE", Setting),
    ("RUNTIME_ROOT", Setting),
    ("RUNTIME_SUBDIRECTORY", Setting),
    ("RUNTIME_APPDIRECTORY", Setting),
    ("RUNTIME_IGNOREDOTFILES", Setting),
    (
        "RUNTIME_WATCH_ROOT",
        NotNeeded("every change is seen, to the files themselves and to links above them"),
    ),
    ("MERGE_DOMAIN_CONFIG", Setting),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", Setting),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Setting),
    ("CONFIG_GRPC_XDS_NODE_ID", Setting),
    ("CONFIG_GRPC_XDS_NODE_METADATA", Setting),
    ("CONFIG_GRPC_XDS_SERVER_URL", Setting),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Setting),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Setting),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", Setting),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Setting),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Setting),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Setting),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Setting),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Setting),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Setting),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Setting),
    ("XDS_CLIENT_BACKOFF_JITTER", Setting),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Setting),
    ("USE_STATSD", Setting),
    ("STATSD_HOST", Setting),
    ("STATSD_PORT", Setting),
    ("STATSD_PROTOCOL", Setting),
    ("USE_DOG_STATSD", NO_DOG_STATSD),
    ("USE_DOG_STATSD_MOGRIFIERS", NO_DOG_STATSD),
    ("EXTRA_TAGS", Setting),
    ("STATS_FLUSH_INTERVAL", Setting),
    (
        "DISABLE_STATS",
        NotNeeded("metrics cost nothing until they are scraped"),
    ),
    ("USE_PROMETHEUS", Setting),
    ("PROMETHEUS_ADDR", Setting),
    ("PROMETHEUS_PATH", Setting),
    (
        "PROMETHEUS_MAPPER_YAML",
        Replaced(
            "names and labels are those of the reference's own mapping; relabel where you scrape",
        ),
    ),
    (
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        Replaced("the histogram is in seconds, as Prometheus asks"),
    ),
    (
        "BACKEND_TYPE",
        Replaced(
            "set TOLLGATE_STORE or REDIS_URL for Redis, and neither for memory; there is no memcached store",
        ),
    ),
    ("CACHE_KEY_PREFIX", Setting),
    (
        "EXPIRATION_JITTER_MAX_SECONDS",
        NotNeeded(
            "buckets are swept a few at a time, never all at once; under the reference's own keys it is 300",
        ),
    ),
    (
        "LOCAL_CACHE_SIZE_IN_BYTES",
        NotNeeded(
            "keys over their limits are always answered from a cache where a store is shared",
        ),
    ),
    ("NEAR_LIMIT_RATIO", Setting),
    ("SANITIZE_DESCRIPTOR_METRIC_DOTS", Setting),
    (
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        Replaced(
            "set `count_refused: none` in the limits; all algorithms but fixed_window do so by default",
        ),
    ),
    ("SHADOW_MODE", Setting),
    ("QUOTA_MODE", Setting),
    ("RESPONSE_DYNAMIC_METADATA", Setting),
    (
        "USE_CALENDAR_MONTH_RATE_LIMIT",
        Replaced("set `calendar: true` beside `unit: month`, and `time_zone` if it is not UTC"),
    ),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", Setting),
    ("LIMIT_LIMIT_HEADER", Setting),
    ("LIMIT_REMAINING_HEADER", Setting),
    ("LIMIT_RESET_HEADER", Setting),
    ("LIMIT_REQUEST_HEADERS_ENABLED", Setting),
    ("LIMIT_REQUEST_LIMIT_HEADER", Setting),
    ("LIMIT_REQUEST_REMAINING_HEADER", Setting),
    ("LIMIT_REQUEST_RESET_HEADER", Setting),
    (
        "LIMIT_ALL_DESCRIPTORS_HEADERS_ENABLED",
        Replaced("use TOLLGATE_RESPONSE_HEADERS=ietf, whose two headers cover every limit"),
    ),
    ("REDIS_TYPE", StoreVariable),
    ("REDIS_SOCKET_TYPE", StoreVariable),
    ("REDIS_URL", StoreVariable),
    ("REDIS_AUTH", StoreVariable),
    ("REDIS_SENTINEL_AUTH", StoreVariable),
    ("REDIS_TLS", StoreVariable),
    ("REDIS_TLS_CLIENT_CERT", Setting),
    ("REDIS_TLS_CLIENT_KEY", Setting),
    ("REDIS_TLS_CACERT", Setting),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Setting),
    ("REDIS_POOL_SIZE", ONE_CONNECTION),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", ONE_CONNECTION),
    ("REDIS_PIPELINE_WINDOW", ONE_CONNECTION),
    ("REDIS_PIPELINE_LIMIT", ONE_CONNECTION),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", ONE_CONNECTION),
    ("REDIS_TIMEOUT", NO_TIMEOUT),
    ("REDIS_PERSECOND", StoreVariable),
    ("REDIS_PERSECOND_TYPE", StoreVariable),
    ("REDIS_PERSECOND_SOCKET_TYPE", StoreVariable),
    ("REDIS_PERSECOND_URL", StoreVariable),
    ("REDIS_PERSECOND_AUTH", StoreVariable),
    ("REDIS_PERSECOND_SENTINEL_AUTH", StoreVariable),
    ("REDIS_PERSECOND_TLS", StoreVariable),
    ("REDIS_PERSECOND_POOL_SIZE", ONE_CONNECTION),
    ("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", ONE_CONNECTION),
    ("REDIS_PERSECOND_PIPELINE_WINDOW", ONE_CONNECTION),
    ("REDIS_PERSECOND_PIPELINE_LIMIT", ONE_CONNECTION),
    (
        "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
        ONE_CONNECTION,
    ),
    ("REDIS_PERSECOND_TIMEOUT", NO_TIMEOUT),
    (
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        Replaced("use /readyz?verbose, which reports the state of the store, or tollgate_store_up"),
    ),
    ("REDIS_STARTUP_INITIAL_INTERVAL", AT_START),
    ("REDIS_STARTUP_MAX_INTERVAL", AT_START),
    ("REDIS_STARTUP_MAX_ELAPSED_TIME", AT_START),
    (
        "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR",
        NotNeeded("a connection to a server that refuses writes is always replaced"),
    ),
    ("MEMCACHE_HOST_PORT", NO_MEMCACHE),
    ("MEMCACHE_SRV", NO_MEMCACHE),
    ("MEMCACHE_SRV_REFRESH", NO_MEMCACHE),
    ("MEMCACHE_MAX_IDLE_CONNS", NO_MEMCACHE),
    ("MEMCACHE_TLS", NO_MEMCACHE),
    ("MEMCACHE_TLS_CLIENT_CERT", NO_MEMCACHE),
    ("MEMCACHE_TLS_CLIENT_KEY", NO_MEMCACHE),
    ("MEMCACHE_TLS_CACERT", NO_MEMCACHE),
    ("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", NO_MEMCACHE),
    ("TRACING_ENABLED", Setting),
    ("TRACING_SERVICE_NAME", Setting),
    ("TRACING_SERVICE_NAMESPACE", Setting),
    ("TRACING_SERVICE_INSTANCE_ID", Setting),
    ("TRACING_EXPORTER_PROTOCOL", Setting),
    ("TRACING_SAMPLING_RATE", Setting),
];

/// A warning for each variable that is set and has no effect. Values are not printed.
pub fn warnings<'n>(set: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let set: Vec<&str> = set.into_iter().collect();
    let is_set = |name: &str| set.contains(&name);
    let mut warnings = Vec::new();
    for name in &set {
        let known = REFERENCE_VARIABLES.iter().find(|(known, _)| known == name);
        match known {
            None if name.starts_with("DOG_STATSD_MOGRIFIER_") => {
                warnings.push(format!("{name} has no effect: relabel where you scrape"));
            }
            Some((_, StoreVariable)) => {
                if let Some(why) = ignored_because(name, is_set) {
                    warnings.push(format!("{name} has no effect: {why}"));
                }
            }
            Some((_, Setting)) | None => {}
            Some((_, NotNeeded(why))) => warnings.push(format!("{name} is not needed: {why}")),
            Some((_, Replaced(what))) => warnings.push(format!("{name} has no effect: {what}")),
        }
    }
    warnings.sort_unstable();
    warnings
}

/// Why a variable about the Redis server has no effect.
fn ignored_because(name: &str, is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    if is_set("TOLLGATE_STORE") {
        return Some("TOLLGATE_STORE sets the store");
    }
    if !is_set("REDIS_URL") {
        return Some("without REDIS_URL or TOLLGATE_STORE, limits are kept in memory");
    }
    let per_second = name.starts_with("REDIS_PERSECOND_");
    (per_second && !is_set("REDIS_PERSECOND")).then_some("REDIS_PERSECOND is not set")
}
