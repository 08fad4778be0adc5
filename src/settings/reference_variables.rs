//! Variables that Envoy's reference service reads and tollgate does not.
//!
//! A user who migrates must learn which variables no longer have an effect. The others are settings
//! of the same name (`settings`), or name the Redis server (`REDIS_VARIABLES`). Each without an
//! effect that is set is reported once at start, with what to do instead.
//!
//! What it deliberately does not do: read a value. Some of them are secrets.

use crate::settings::REDIS_VARIABLES;

/// Why a variable of the reference has no effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unread {
    /// It is not needed. The text says why.
    NotNeeded(&'static str),
    /// The text says what to do instead.
    Replaced(&'static str),
}

use Unread::{NotNeeded, Replaced};

const ONE_CONNECTION: Unread =
    NotNeeded("one connection carries all calls, and each call all checks that wait");
const AT_START: Unread =
    NotNeeded("listeners open without Redis, and attempts to connect continue until it answers");
const NO_MEMCACHE: Unread = Replaced(
    "there is no memcached store; limits are kept in memory, or in Redis with TOLLGATE_STORE or REDIS_URL",
);
const NO_TIMEOUT: Unread = Replaced("use TOLLGATE_STORE_DEADLINE_MS, which bounds every call");
const NO_DOG_STATSD: Unread =
    Replaced("use USE_STATSD, whose tags are EXTRA_TAGS, or scrape /metrics, which has labels");

/// Every such variable, in the order of the reference's documentation.
pub static UNREAD_VARIABLES: &[(&str, Unread)] = &[
    (
        "GRPC_MAX_CONCURRENT_STREAMS",
        Replaced("use TOLLGATE_STREAMS_MAX"),
    ),
    (
        "RUNTIME_WATCH_ROOT",
        NotNeeded("every change is seen, to the files themselves and to links above them"),
    ),
    ("USE_DOG_STATSD", NO_DOG_STATSD),
    ("USE_DOG_STATSD_MOGRIFIERS", NO_DOG_STATSD),
    (
        "DISABLE_STATS",
        NotNeeded("metrics cost nothing until they are scraped"),
    ),
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
    (
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        Replaced(
            "set `count_refused: none` in the limits; all algorithms but fixed_window do so by default",
        ),
    ),
    (
        "USE_CALENDAR_MONTH_RATE_LIMIT",
        Replaced("set `calendar: true` beside `unit: month`, and `time_zone` if it is not UTC"),
    ),
    (
        "LIMIT_ALL_DESCRIPTORS_HEADERS_ENABLED",
        Replaced("use TOLLGATE_RESPONSE_HEADERS=ietf, whose two headers cover every limit"),
    ),
    ("REDIS_POOL_SIZE", ONE_CONNECTION),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", ONE_CONNECTION),
    ("REDIS_PIPELINE_WINDOW", ONE_CONNECTION),
    ("REDIS_PIPELINE_LIMIT", ONE_CONNECTION),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", ONE_CONNECTION),
    ("REDIS_TIMEOUT", NO_TIMEOUT),
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
];

/// A warning for each variable that is set and has no effect. Values are not printed.
pub fn warnings<'n>(set: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let set: Vec<&str> = set.into_iter().collect();
    let is_set = |name: &str| set.contains(&name);
    let mut warnings = Vec::new();
    for name in &set {
        let unread = UNREAD_VARIABLES.iter().find(|(unread, _)| unread == name);
        let why = match unread {
            Some((_, NotNeeded(why))) => {
                warnings.push(format!("{name} is not needed: {why}"));
                continue;
            }
            Some((_, Replaced(what))) => Some(*what),
            None if REDIS_VARIABLES.contains(name) => ignored_because(name, is_set),
            None => {
                let is_mogrifier = name.starts_with("DOG_STATSD_MOGRIFIER_");
                is_mogrifier.then_some("relabel where you scrape")
            }
        };
        warnings.extend(why.map(|why| format!("{name} has no effect: {why}")));
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
