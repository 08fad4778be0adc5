//! No secret of a setting is shown, in whatever form it was written: not in the log at its lowest
//! level, not at the start, not on any port, and not in a debug print.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::settings::{EnvironmentVariables, REDIS_VARIABLES, Settings};
use tollgate::store::SharedSettings;
use tollgate_test_support::child_process::run_to_end;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;

use crate::process::commands::RULES;
use crate::process::logs::{parsed, serve};
use crate::process::running::Running;

const SECRET: &str = "hunter2s3cret";

/// A server that refuses every connection, in forms that are taken and forms that are not. `S` is
/// the secret.
const ADDRESSES: &[&str] = &[
    ":S@127.0.0.1:1",
    "me:S@127.0.0.1:1",
    "S@127.0.0.1:1",
    "S:x@127.0.0.1:1",
    "127.0.0.1:1,:S@127.0.0.1:2",
    "127.0.0.1:1,password=S",
    "127.0.0.1:1?password=S",
    "127.0.0.1:1 S",
    "main,me:S@127.0.0.1:1",
    "main,redis://:S@127.0.0.1:1",
    "redis://:S@127.0.0.1:1",
    "redis://S@127.0.0.1:1",
    "redis://me:S@127.0.0.1:1/0\n",
    "redis://me:S@127.0.0.1:1,127.0.0.1:2",
    "redis://:S@127.0.0.1:1,redis://:S@127.0.0.1:2",
    "redis://:S@127.0.0.1:1,redis://:other@127.0.0.1:2",
    "redis://:a,S@127.0.0.1:1",
    "redis://:a?S@127.0.0.1:1",
    "redis://:a#S@127.0.0.1:1",
    "redis://:a/S@127.0.0.1:1",
    "redis://:%2S@127.0.0.1:1",
    "redis://127.0.0.1:1?password=S",
    "redis://127.0.0.1:1?pass=S",
    "redis://127.0.0.1:1?S",
    "redis://127.0.0.1:1/S",
    "redis://:S@127.0.0.1:port",
    "redis://:S@",
    "redis:/:S@127.0.0.1:1",
    "http://:S@127.0.0.1:1",
    "redis+sentinel://:S@127.0.0.1:1/main",
    "redis+sentinel://127.0.0.1:1/:S@main",
    "redis+cluster://:S@127.0.0.1:1,:S@127.0.0.1:2",
    "redis+unix://:S@/nowhere",
    "/nowhere:S@127.0.0.1:1",
];

/// A setting, its value, and what is set beside it.
type Setting = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Other settings that may hold a secret.
const OTHERS: &[Setting] = &[
    ("REDIS_AUTH", "me:S\n", &[("REDIS_URL", "127.0.0.1:1")]),
    ("REDIS_AUTH", ":S@x", &[("REDIS_URL", "127.0.0.1:1")]),
    (
        "REDIS_SENTINEL_AUTH",
        "S",
        &[
            ("REDIS_URL", "main,127.0.0.1:1"),
            ("REDIS_TYPE", "SENTINEL"),
        ],
    ),
    ("REDIS_TYPE", "S", &[("REDIS_URL", "127.0.0.1:1")]),
    ("REDIS_TLS", "S", &[("REDIS_URL", "127.0.0.1:1")]),
    ("REDIS_PERSECOND", "S", &[("REDIS_URL", "127.0.0.1:1")]),
    ("CONFIG_GRPC_XDS_SERVER_URL", ":S@127.0.0.1:1", XDS),
    ("CONFIG_GRPC_XDS_SERVER_URL", "http://me:S@127.0.0.1:1", XDS),
    ("CONFIG_GRPC_XDS_SERVER_URL", "me:S@127.0.0.1", XDS),
    (
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        "x-token:S",
        XDS,
    ),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "S", XDS),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "x y:S", XDS),
    (
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        "x-token=S",
        XDS,
    ),
    (
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        "x-token:S\u{1}",
        XDS,
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "http://me:S@127.0.0.1:1",
        TRACES,
    ),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "me:S@127.0.0.1:1", TRACES),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "http://me:S?x@127.0.0.1:1",
        TRACES,
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "http://me:a/S@127.0.0.1:1",
        TRACES,
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "http://127.0.0.1:1/?key=S",
        TRACES,
    ),
    ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=S", TRACES),
    ("OTEL_EXPORTER_OTLP_HEADERS", "S", TRACES),
    ("OTEL_EXPORTER_OTLP_HEADERS", "a b=S", TRACES),
    ("STATSD_HOST", "me:S@127.0.0.1", &[]),
];

const XDS: &[(&str, &str)] = &[("CONFIG_TYPE", "GRPC_XDS_SOTW")];
const TRACES: &[(&str, &str)] = &[
    ("TRACING_ENABLED", "true"),
    ("OTEL_BSP_SCHEDULE_DELAY", "10"),
    ("TRACING_SAMPLING_RATE", "1"),
];

/// What is set in one start.
type Variables = Vec<(&'static str, String)>;

fn starts() -> Vec<Variables> {
    let with = |name, value: &str, beside: &[(&'static str, &str)]| {
        let mut variables = vec![(name, value.replace('S', SECRET))];
        variables.extend(
            beside
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        variables
    };
    let mut starts = Vec::new();
    for address in ADDRESSES {
        starts.push(with("TOLLGATE_STORE", address, &[]));
        for kind in ["SINGLE", "SENTINEL", "CLUSTER"] {
            starts.push(with("REDIS_URL", address, &[("REDIS_TYPE", kind)]));
        }
        let beside = [
            ("REDIS_URL", "127.0.0.1:1"),
            ("REDIS_PERSECOND", "true"),
            ("REDIS_PERSECOND_TYPE", "CLUSTER"),
        ];
        starts.push(with("REDIS_PERSECOND_URL", address, &beside));
    }
    let others = OTHERS.iter();
    starts.extend(others.map(|(name, value, beside)| with(name, value, beside)));
    starts
}

/// Everything that a service with these variables shows until it is stopped.
fn shown(rules: &std::path::Path, variables: &Variables) -> String {
    let borrowed: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut command = serve(rules, &borrowed);
    command.env("LOG_LEVEL", "trace");
    let serving = Running::with_stderr(&mut command);
    let mut shown = String::new();
    while let Some(line) = serving.next_line() {
        shown.extend([line.as_str(), "\n"]);
        // With rules of an xDS server that is away the start has no such line.
        let is_xds_away = line.contains("no connection to the xDS server");
        if !line.contains("tollgate started") && !is_xds_away {
            continue;
        }
        if is_xds_away {
            break;
        }
        let started = parsed(&line);
        let port = |name: &str| started[name].as_str().unwrap().parse().unwrap();
        let asked = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"one","value":"a"}]}]}"#;
        let page = until("the store was tried", || {
            let page = http(port("admin"), "GET", "/readyz?verbose", "").1;
            (!page.contains(": connecting")).then_some(page)
        });
        shown.push_str(&page);
        for path in [
            "/partitions",
            "/limits",
            "/decisions",
            "/rlconfig",
            "/metrics",
        ] {
            shown.push_str(&http(port("admin"), "GET", path, "").1);
        }
        let mut public = String::new();
        for path in ["/metrics", "/healthcheck", "/livez", "/readyz?verbose"] {
            public.push_str(&http(port("http"), "GET", path, "").1);
        }
        for path in ["/json", "/v1/check", "/v1/peek"] {
            public.push_str(&http(port("http"), "POST", path, asked).1);
        }
        // The public port does not name a store at all.
        for address in ["127.0.0.1:1", "127.0.0.1:2", "nowhere"] {
            assert!(!public.contains(address), "{variables:?}: {public}");
        }
        shown.push_str(&public);
        serving.signal("TERM");
    }
    shown
}

#[test]
fn no_setting_shows_its_secret_in_whatever_form_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let (starts, next, wrong) = (starts(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(variables) = starts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let shown = shown(&rules, variables);
                    assert!(!shown.is_empty(), "{variables:?}");
                    let lines = shown.lines().filter(|line| line.contains(SECRET));
                    let lines: Vec<_> =
                        lines.map(|line| format!("{variables:?}: {line}")).collect();
                    wrong.lock().unwrap().extend(lines);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_debug_print_of_settings_shows_a_secret() {
    for url in [
        format!("redis://me:{SECRET}@cache"),
        format!("redis://cache?password={SECRET}"),
        format!("{SECRET}@cache"),
        format!("me:{SECRET}@cache:6379"),
    ] {
        assert_hidden(&url);
    }
}

#[track_caller]
fn assert_hidden(url: &str) {
    let mut settings = Settings::from_flags([
        "rules.yaml",
        "--store",
        url,
        "--statsd-host",
        url,
        "--config-grpc-xds-server-url",
        url,
        "--config-grpc-xds-client-additional-headers",
        &format!("authorization:{SECRET}"),
    ])
    .unwrap();
    settings.store.reference =
        EnvironmentVariables::read(REDIS_VARIABLES, |_| Some(SECRET.to_owned()));
    settings.tracing.otel = settings.store.reference.clone();
    let shared = SharedSettings {
        url: url.to_owned(),
        ..SharedSettings::default()
    };
    let target = tollgate::store_redis::Target::of_url(url);
    let built = (tollgate::store_redis::BACKEND.configure)(&shared);
    for shown in [
        format!("{settings:?}"),
        format!("{shared:?}"),
        format!("{target:?}"),
        format!("{built:?}"),
    ] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

/// Settings with the file of a secret that is read at the start, and what is set beside them.
const FILES: [(&str, &[(&str, &str)]); 5] = [
    (
        "TOLLGATE_NOTIFY_SECRET_FILE",
        &[("TOLLGATE_NOTIFY_URL", "http://127.0.0.1:1/")],
    ),
    (
        "TOLLGATE_RESP_PASSWORD_FILE",
        &[("TOLLGATE_RESP_PORT", "0")],
    ),
    ("TOLLGATE_ADMIN_TOKEN_FILE", &[]),
    ("TOLLGATE_VALUE_HASH_KEY_FILE", &[]),
    (
        "TOLLGATE_STORE_HASH_KEY_FILE",
        &[("TOLLGATE_STORE", "redis://127.0.0.1:1")],
    ),
];

/// A read of a FIFO would wait for its writer, and so would the start.
#[test]
fn no_secret_is_read_from_a_fifo() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let fifo = directory.path().join("secret");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let fifo = fifo.to_str().unwrap();
    for (name, beside) in FILES {
        let variables = [beside, &[(name, fifo)]].concat();
        let (code, said) = run_to_end(&mut serve(&rules, &variables));
        assert_eq!(code, Some(1), "{name}: {said}");
        let why = format!("{fifo}: a FIFO, not a regular file");
        assert!(said.contains(&why), "{name}: {said}");
    }
}
