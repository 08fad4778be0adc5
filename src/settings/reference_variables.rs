//! Every variable that Envoy's reference service reads, and what becomes of it here.
//!
//! Why a table: whoever moves over must not have to find out by accident that a variable no longer does anything. What
//! is understood is a setting of ours by the same name (`settings`); of the rest, each that is set is named once at start
//! with what to do instead.
//!
//! What it deliberately does not do: read a value. Some of them are secrets.

/// What becomes of a variable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It is a setting of ours.
    Understood,
    /// It is read, and is no flag: it says where the store is, and a password may be in it or beside it.
    Read,
    /// It asks for what is so anyway, or for what this service does not need. The words say why.
    NotNeeded(&'static str),
    /// It asks for something that is not here, or here by another way. The words say what to do.
    Instead(&'static str),
}

use Fate::{Instead, NotNeeded, Read, Understood};

const ONE_CONNECTION: Fate =
    NotNeeded("one connection carries all calls, and each call all checks that wait");
const AT_START: Fate = NotNeeded("ports open without Redis, which is tried until it answers");
const NO_MEMCACHE: Fate = Instead(
    "there is no memcached store; limits are kept in memory, or in Redis by TOLLGATE_STORE or REDIS_URL",
);
const NO_TIMEOUT: Fate = Instead("use TOLLGATE_STORE_DEADLINE_MS, which bounds every call");
const NO_DOG_STATSD: Fate =
    Instead("use USE_STATSD, whose tags are EXTRA_TAGS, or scrape /metrics, which has labels");

/// Every variable and its fate, in the order of the reference's own page.
pub static REFERENCE_VARIABLES: &[(&str, Fate)] = &[
    ("HOST", Understood),
    ("PORT", Understood),
    ("GRPC_HOST", Understood),
    ("GRPC_PORT", Understood),
    ("GRPC_UDS", Understood),
    ("DEBUG_HOST", Understood),
    ("DEBUG_PORT", Understood),
    ("GRPC_MAX_CONNECTION_AGE", Understood),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", Understood),
    (
        "GRPC_MAX_CONCURRENT_STREAMS",
        Instead("use TOLLGATE_STREAMS_MAX"),
    ),
    ("LOG_LEVEL", Understood),
    ("LOG_FORMAT", Understood),
    ("GRPC_SERVER_USE_TLS", Understood),
    ("GRPC_SERVER_TLS_CERT", Understood),
    ("GRPC_SERVER_TLS_KEY", Understood),
    ("GRPC_CLIENT_TLS_CACERT", Understood),
    ("GRPC_CLIENT_TLS_SAN", Understood),
    ("CONFIG_TYPE", Understood),
    ("RUNTIME_ROOT", Understood),
    ("RUNTIME_SUBDIRECTORY", Understood),
    ("RUNTIME_APPDIRECTORY", Understood),
    ("RUNTIME_IGNOREDOTFILES", Understood),
    (
        "RUNTIME_WATCH_ROOT",
        NotNeeded("every change is seen, to the files themselves and to links above them"),
    ),
    ("MERGE_DOMAIN_CONFIG", Understood),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", Understood),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Understood),
    ("CONFIG_GRPC_XDS_NODE_ID", Understood),
    ("CONFIG_GRPC_XDS_NODE_METADATA", Understood),
    ("CONFIG_GRPC_XDS_SERVER_URL", Understood),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Understood),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Understood),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", Understood),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Understood),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Understood),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Understood),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Understood),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Understood),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Understood),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Understood),
    ("XDS_CLIENT_BACKOFF_JITTER", Understood),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Understood),
    ("USE_STATSD", Understood),
    ("STATSD_HOST", Understood),
    ("STATSD_PORT", Understood),
    ("STATSD_PROTOCOL", Understood),
    ("USE_DOG_STATSD", NO_DOG_STATSD),
    ("USE_DOG_STATSD_MOGRIFIERS", NO_DOG_STATSD),
    ("EXTRA_TAGS", Understood),
    ("STATS_FLUSH_INTERVAL", Understood),
    (
        "DISABLE_STATS",
        NotNeeded("metrics cost nothing until they are scraped"),
    ),
    ("USE_PROMETHEUS", Understood),
    ("PROMETHEUS_ADDR", Understood),
    ("PROMETHEUS_PATH", Understood),
    (
        "PROMETHEUS_MAPPER_YAML",
        Instead(
            "names and labels are those of the reference's own mapping; relabel where you scrape",
        ),
    ),
    (
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        Instead("the histogram is in seconds, as Prometheus asks"),
    ),
    (
        "BACKEND_TYPE",
        Instead(
            "TOLLGATE_STORE or REDIS_URL picks Redis, and neither memory; there is no memcached store",
        ),
    ),
    ("CACHE_KEY_PREFIX", Understood),
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
    ("NEAR_LIMIT_RATIO", Understood),
    (
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        Instead(
            "write `count_refused: none` in the limits; other algorithms than fixed_window do so anyway",
        ),
    ),
    ("SHADOW_MODE", Understood),
    ("QUOTA_MODE", Understood),
    ("RESPONSE_DYNAMIC_METADATA", Understood),
    (
        "USE_CALENDAR_MONTH_RATE_LIMIT",
        Instead("write `calendar: true` beside `unit: month`, and a `time_zone` if it is not UTC"),
    ),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", Understood),
    ("LIMIT_LIMIT_HEADER", Understood),
    ("LIMIT_REMAINING_HEADER", Understood),
    ("LIMIT_RESET_HEADER", Understood),
    (
        "LIMIT_ALL_DESCRIPTORS_HEADERS_ENABLED",
        Instead("use TOLLGATE_RESPONSE_HEADERS=ietf, whose two headers speak of every limit"),
    ),
    ("REDIS_TYPE", Read),
    ("REDIS_SOCKET_TYPE", Read),
    ("REDIS_URL", Read),
    ("REDIS_AUTH", Read),
    ("REDIS_SENTINEL_AUTH", Read),
    ("REDIS_TLS", Read),
    ("REDIS_TLS_CLIENT_CERT", Understood),
    ("REDIS_TLS_CLIENT_KEY", Understood),
    ("REDIS_TLS_CACERT", Understood),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Understood),
    ("REDIS_POOL_SIZE", ONE_CONNECTION),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", ONE_CONNECTION),
    ("REDIS_PIPELINE_WINDOW", ONE_CONNECTION),
    ("REDIS_PIPELINE_LIMIT", ONE_CONNECTION),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", ONE_CONNECTION),
    ("REDIS_TIMEOUT", NO_TIMEOUT),
    ("REDIS_PERSECOND", Read),
    ("REDIS_PERSECOND_TYPE", Read),
    ("REDIS_PERSECOND_SOCKET_TYPE", Read),
    ("REDIS_PERSECOND_URL", Read),
    ("REDIS_PERSECOND_AUTH", Read),
    ("REDIS_PERSECOND_SENTINEL_AUTH", Read),
    ("REDIS_PERSECOND_TLS", Read),
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
        Instead("look at /readyz?verbose, which tells how the store is, or at tollgate_store_up"),
    ),
    ("REDIS_STARTUP_INITIAL_INTERVAL", AT_START),
    ("REDIS_STARTUP_MAX_INTERVAL", AT_START),
    ("REDIS_STARTUP_MAX_ELAPSED_TIME", AT_START),
    (
        "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR",
        NotNeeded("a connection to a server that refuses writes is always given up for a new one"),
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
    ("TRACING_ENABLED", Understood),
    ("TRACING_SERVICE_NAME", Understood),
    ("TRACING_SERVICE_NAMESPACE", Understood),
    ("TRACING_SERVICE_INSTANCE_ID", Understood),
    ("TRACING_EXPORTER_PROTOCOL", Understood),
    ("TRACING_SAMPLING_RATE", Understood),
];

/// What to say about the variables that are set: one line each, by name only.
pub fn remarks<'n>(set: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let set: Vec<&str> = set.into_iter().collect();
    let is_set = |name: &str| set.contains(&name);
    let mut remarks = Vec::new();
    for name in &set {
        let known = REFERENCE_VARIABLES.iter().find(|(known, _)| known == name);
        match known {
            None if name.starts_with("DOG_STATSD_MOGRIFIER_") => {
                remarks.push(format!("{name} has no effect: relabel where you scrape"));
            }
            Some((_, Read)) => {
                if let Some(why) = not_read(name, is_set) {
                    remarks.push(format!("{name} has no effect: {why}"));
                }
            }
            Some((_, Understood)) | None => {}
            Some((_, NotNeeded(why))) => remarks.push(format!("{name} is not needed: {why}")),
            Some((_, Instead(what))) => remarks.push(format!("{name} has no effect: {what}")),
        }
    }
    remarks.sort_unstable();
    remarks
}

/// Why a variable that says where the store is says nothing.
fn not_read(name: &str, is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    if is_set("TOLLGATE_STORE") {
        return Some("TOLLGATE_STORE says where the store is");
    }
    if !is_set("REDIS_URL") {
        return Some("without REDIS_URL, or TOLLGATE_STORE, limits are kept in memory");
    }
    let per_second = name.starts_with("REDIS_PERSECOND_");
    (per_second && !is_set("REDIS_PERSECOND")).then_some("REDIS_PERSECOND is not set")
}
