//! Every variable of the reference service: a setting, or a warning at start.
//!
//! The list below is copied from the reference's documentation and its newest settings (pull
//! request 1210 of August 2026), not from the code. Settings are taken from the command line's
//! declaration, warnings from the real binary, with secrets in the environment.
//!
//! What it deliberately does not do: test the effect of each setting (`tests/service`,
//! `tests/process`).

// A test fails by a panic.

use std::collections::BTreeSet;
use std::process::Command;

use clap::CommandFactory as _;
use tollgate::cli::Cli;
use tollgate::settings::REDIS_VARIABLES;
use tollgate::settings::reference_variables::{UNREAD_VARIABLES, warnings};
use tollgate_test_support::child_process::run_to_end;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

/// The reference's variables, chapter by chapter of its page.
const NAMES: &str = "
HOST PORT GRPC_HOST GRPC_PORT GRPC_UDS DEBUG_HOST DEBUG_PORT GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE
LOG_LEVEL LOG_FORMAT GRPC_MAX_CONCURRENT_STREAMS

GRPC_SERVER_USE_TLS GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN

CONFIG_TYPE RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT
MERGE_DOMAIN_CONFIG FORCE_START_WITHOUT_INITIAL_CONFIG HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED

CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_URL
CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS CONFIG_GRPC_XDS_SERVER_USE_TLS
CONFIG_GRPC_XDS_CLIENT_TLS_CERT CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_SERVER_TLS_CACERT
CONFIG_GRPC_XDS_SERVER_TLS_SAN XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_MAX_INTERVAL
XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES

USE_STATSD STATSD_PROTOCOL STATSD_HOST STATSD_PORT USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS EXTRA_TAGS
STATS_FLUSH_INTERVAL DISABLE_STATS USE_PROMETHEUS PROMETHEUS_ADDR PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML
SANITIZE_DESCRIPTOR_METRIC_DOTS
PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS

BACKEND_TYPE CACHE_KEY_PREFIX EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES NEAR_LIMIT_RATIO
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT SHADOW_MODE QUOTA_MODE RESPONSE_DYNAMIC_METADATA USE_CALENDAR_MONTH_RATE_LIMIT

LIMIT_RESPONSE_HEADERS_ENABLED LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER
LIMIT_ALL_DESCRIPTORS_HEADERS_ENABLED LIMIT_REQUEST_HEADERS_ENABLED LIMIT_REQUEST_LIMIT_HEADER
LIMIT_REQUEST_REMAINING_HEADER LIMIT_REQUEST_RESET_HEADER

REDIS_TYPE REDIS_SOCKET_TYPE REDIS_URL REDIS_AUTH REDIS_SENTINEL_AUTH REDIS_TLS REDIS_TLS_CLIENT_CERT
REDIS_TLS_CLIENT_KEY REDIS_TLS_CACERT REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_POOL_SIZE
REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_CLUSTER_PIPELINE_PARALLELISM
REDIS_TIMEOUT REDIS_PERSECOND REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_STARTUP_INITIAL_INTERVAL
REDIS_STARTUP_MAX_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR
REDIS_PERSECOND_TYPE REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_URL REDIS_PERSECOND_AUTH
REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_TLS REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR
REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_PIPELINE_LIMIT REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM
REDIS_PERSECOND_TIMEOUT

MEMCACHE_HOST_PORT MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_MAX_IDLE_CONNS MEMCACHE_TLS MEMCACHE_TLS_CLIENT_CERT
MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION

TRACING_ENABLED TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL
TRACING_SAMPLING_RATE
";

/// Settings of ours that are true or false, and that the reference has as well.
const TRUTHS: &str = "
RUNTIME_IGNOREDOTFILES MERGE_DOMAIN_CONFIG FORCE_START_WITHOUT_INITIAL_CONFIG HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED
SHADOW_MODE QUOTA_MODE LIMIT_RESPONSE_HEADERS_ENABLED RESPONSE_DYNAMIC_METADATA REDIS_TLS_SKIP_HOSTNAME_VERIFICATION
CONFIG_GRPC_XDS_SERVER_USE_TLS XDS_CLIENT_BACKOFF_JITTER TRACING_ENABLED USE_STATSD LIMIT_REQUEST_HEADERS_ENABLED
SANITIZE_DESCRIPTOR_METRIC_DOTS
";

fn names() -> BTreeSet<&'static str> {
    NAMES.split_whitespace().collect()
}

/// The variables that `serve` reads.
fn settings() -> BTreeSet<String> {
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("serve");
    let variables = serve.get_arguments().filter_map(clap::Arg::get_env);
    variables
        .map(|name| name.to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_variable_of_the_reference_is_read_or_reported_and_no_other() {
    let settings = settings();
    let is_theirs = |setting: &&str| !setting.starts_with("TOLLGATE_");
    let read = settings.iter().map(String::as_str).filter(is_theirs);
    let read = read.chain(REDIS_VARIABLES.iter().copied());
    let unread = UNREAD_VARIABLES.iter().map(|(name, _)| *name);
    let known: Vec<&str> = read.chain(unread).collect();
    let once: BTreeSet<&str> = known.iter().copied().collect();
    assert_eq!(known.len(), once.len(), "each once");
    let missing: Vec<_> = names().difference(&once).copied().collect();
    let more: Vec<_> = once.difference(&names()).copied().collect();
    assert_eq!((missing, more), (vec![], vec![]));
}

#[test]
fn every_variable_that_does_nothing_is_spoken_of_once_by_its_name() {
    for setting in settings() {
        assert!(warnings([&*setting]).is_empty(), "{setting}");
    }
    assert!(warnings(["REDIS_URL"]).is_empty());
    for name in REDIS_VARIABLES.iter().filter(|name| **name != "REDIS_URL") {
        // Beside the variable that says where the store is, it says something, and with a word
        // of ours nothing again.
        let beside = warnings([*name, "REDIS_URL", "REDIS_PERSECOND"]);
        assert!(beside.is_empty(), "{beside:?}");
        let ours = warnings([*name, "REDIS_URL", "TOLLGATE_STORE"]);
        assert_eq!(ours.len(), 2, "{ours:?}");
    }
    let unread = UNREAD_VARIABLES.iter().map(|(name, _)| name);
    let of_store = REDIS_VARIABLES.iter().filter(|name| **name != "REDIS_URL");
    for name in unread.chain(of_store) {
        let said = warnings([*name]);
        assert_eq!(said.len(), 1, "{name}");
        let begins = said[0].starts_with(&format!("{name} has no effect: "))
            || said[0].starts_with(&format!("{name} is not needed: "));
        assert!(begins && !said[0].ends_with(": "), "{}", said[0]);
    }
    let mogrifier = warnings(["DOG_STATSD_MOGRIFIER_TAG_PATTERN"]);
    assert_eq!(
        mogrifier,
        ["DOG_STATSD_MOGRIFIER_TAG_PATTERN has no effect: relabel where you scrape"]
    );
    assert!(
        warnings(["PATH", "HOME", "REDIS", "redis_url"]).is_empty(),
        "what is not the reference's is nobody's business"
    );
}

/// The rules of each service; no hit is counted.
const RULES: &str = "{domain: d, descriptors: [{key: k, rate_limit: {unlimited: true}}]}";

/// What it says until it listens.
fn said_at_start(variables: &[(&str, &str)]) -> String {
    let serving = Tollgate::start_with(RULES, &[], variables);
    let said = serving.said_at_start();
    // A hint follows the start.
    let lines = said.lines().filter(|line| !line.starts_with("try: "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn at_start_it_names_what_does_nothing_and_never_a_value() {
    let secrets = [
        ("REDIS_AUTH", "hunter2"),
        ("REDIS_POOL_SIZE", "hunter2"),
        ("REDIS_PERSECOND_AUTH", "hunter2"),
        ("USE_DOG_STATSD", "hunter2"),
        ("MEMCACHE_HOST_PORT", "hunter2"),
        ("DOG_STATSD_MOGRIFIER_X_NAME", "hunter2"),
        ("PROMETHEUS_MAPPER_YAML", "hunter2"),
        ("SOMETHING_ELSE", "hunter2"),
        ("GRPC_SERVER_TLS_KEY", "hunter2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hunter2"),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "http://user:hunter2@127.0.0.1:1",
        ),
        (
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "authorization:hunter2",
        ),
    ];
    let said = said_at_start(&secrets);
    assert!(!said.contains("hunter2"), "{said}");
    for (name, _) in &secrets[..7] {
        let times = said.matches(&format!(" {name} ")).count();
        assert_eq!(times, 1, "{name}: {said}");
    }
    // The last line says that the login in the collector's URL is not sent.
    assert_eq!(said.lines().count(), 8, "{said}");
    assert_eq!(said_at_start(&[]), "");
    let store = [
        ("REDIS_AUTH", "user:hunter2"),
        ("REDIS_URL", "redis://user:hunter2@127.0.0.1:1"),
    ];
    let said = said_at_start(&store);
    assert!(!said.contains("hunter2"), "{said}");
    assert!(!said.contains("REDIS_"), "{said}");
}

#[test]
fn what_the_reference_calls_the_store_is_refused_without_repeating_it() {
    for (name, value) in [
        ("REDIS_URL", "redis://user:hunter2@host:hunter2"),
        ("REDIS_URL", "http://hunter2"),
        ("REDIS_TYPE", "hunter2"),
        ("REDIS_SOCKET_TYPE", "hunter2"),
        ("REDIS_TLS", "hunter2"),
        ("REDIS_PERSECOND", "hunter2"),
    ] {
        let beside = ("REDIS_URL", "127.0.0.1:1");
        let (code, said) = ended(&[beside, (name, value)]);
        assert_eq!(code, Some(1), "{name}={value}: {said}");
        assert!(said.contains(name), "{name}: {said}");
        assert!(!said.contains("hunter2"), "{name}: {said}");
    }
}

#[test]
fn truths_are_spelt_as_go_spells_them() {
    let spellings = [
        "1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False",
    ];
    for spelling in spellings {
        // All of them at once.
        let variables: Vec<_> = TRUTHS
            .split_whitespace()
            .map(|name| (name, spelling))
            .collect();
        assert_eq!(said_at_start(&variables), "", "{spelling}");
    }
}

/// How it ends, and what it says.
fn ended(variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(tollgate_binary());
    command
        .args(["serve", "examples/edge.yaml"])
        .env_clear()
        .envs([("HOST", "127.0.0.1"), ("GRPC_HOST", "127.0.0.1")])
        .envs([("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")])
        .envs(variables.iter().copied());
    run_to_end(&mut command)
}

#[test]
fn a_value_that_cannot_be_read_is_refused_by_the_name_of_its_setting() {
    let truths = TRUTHS.split_whitespace().map(|name| (name, "yes"));
    let others = [
        ("PORT", "http"),
        ("GRPC_PORT", "65536"),
        ("DEBUG_PORT", "-1"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("NEAR_LIMIT_RATIO", "1.5"),
        ("GRPC_MAX_CONNECTION_AGE", "24"),
        ("GRPC_MAX_CONNECTION_AGE_GRACE", "soon"),
        ("LIMIT_LIMIT_HEADER", "a header"),
        ("GRPC_SERVER_USE_TLS", "yes"),
        ("USE_PROMETHEUS", "yes"),
        ("PROMETHEUS_ADDR", "9090"),
        ("PROMETHEUS_PATH", "metrics"),
        ("CONFIG_TYPE", "REDIS"),
        ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "2"),
        ("TRACING_SAMPLING_RATE", "2"),
        ("TRACING_EXPORTER_PROTOCOL", "thrift"),
        ("STATSD_PROTOCOL", "smoke"),
        ("STATSD_PORT", "65536"),
        ("EXTRA_TAGS", "hunted"),
        ("STATS_FLUSH_INTERVAL", "0"),
    ];
    for (name, value) in truths.chain(others) {
        let (code, said) = ended(&[(name, value)]);
        assert_eq!(code, Some(2), "{name}={value}: {said}");
        let flag = format!("--{}", name.to_lowercase().replace('_', "-"));
        assert!(
            said.contains(&flag) && said.contains(value),
            "{name}={value}: {said}"
        );
    }
}

#[test]
fn durations_are_spelt_as_go_spells_them() {
    for spelling in [
        "24h", "1h30m", "150us", "0", "90s", "500ms", "1m30s", "1.5h",
    ] {
        assert_eq!(
            said_at_start(&[("GRPC_MAX_CONNECTION_AGE_GRACE", spelling)]),
            "",
            "{spelling}"
        );
    }
}
