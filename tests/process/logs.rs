//! Logs of the real binary: JSON from the first line to the last, the start line, levels of
//! recoveries, and the line of each decision.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::process::running::Running;

const RULES: &str = "
domain: shop
descriptors:
  - key: ten
    rate_limit: { unit: year, requests_per_unit: 10 }
  - key: one
    rate_limit: { unit: year, requests_per_unit: 1 }
";

const ASKED: &str =
    r#"{"domain":"shop","descriptors":[{"entries":[{"key":"one","value":"a\"b"}]}]}"#;

/// `serve` on free ports with these rules and variables, whose log is JSON.
pub(crate) fn serve(rules: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(tollgate_binary());
    command
        .arg("serve")
        .arg(rules)
        .env_clear()
        .envs([("HOST", "127.0.0.1"), ("PORT", "0")])
        .envs([("GRPC_HOST", "127.0.0.1"), ("GRPC_PORT", "0")])
        .envs([("DEBUG_HOST", "127.0.0.1"), ("DEBUG_PORT", "0")])
        .envs([("LOG_FORMAT", "json"), ("TOLLGATE_DRAIN_DELAY", "0s")])
        .envs(variables.iter().copied())
        .stderr(Stdio::piped());
    command
}

/// A line of the log, which must be a JSON object with the fields of every line.
pub(crate) fn parsed(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).expect(line);
    for field in ["@timestamp", "@message", "level", "module"] {
        assert!(value[field].is_string(), "{field}: {line}");
    }
    value
}

/// What a command that ends by itself writes to stderr.
fn lines_of(command: &mut Command) -> (Option<i32>, Vec<Value>) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), stderr.lines().map(parsed).collect())
}

#[test]
fn what_prevents_the_start_is_json_too() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let key = "/nowhere/key";
    for (variables, code, words) in [
        (&[("PORT", "http")][..], 2, "--port"),
        (&[("LOG_LEVEL", "loud")], 2, "'loud' is not a level"),
        (&[("PORT", &port)], 1, "choose another with --port"),
        (
            &[
                ("REDIS_URL", "127.0.0.1:1"),
                ("TOLLGATE_STORE_HASH_KEY_FILE", key),
            ],
            1,
            key,
        ),
        (&[("TOLLGATE_VALUE_HASH_KEY_FILE", key)], 1, key),
        (
            &[("TOLLGATE_VALUE_HASH_KEY_FILE", key)],
            1,
            "--value-hash-key-file",
        ),
    ] {
        let (ended, lines) = lines_of(&mut serve(&rules, variables));
        assert_eq!(ended, Some(code), "{variables:?}");
        let last = lines.last().expect("a line");
        assert_eq!(last["level"], "error", "{last}");
        assert!(last["error"].as_str().unwrap().contains(words), "{last}");
    }
    // No rules at all; the flag counts as well as the variable.
    let mut bare = Command::new(tollgate_binary());
    bare.args(["serve", "--log-format", "json"]).env_clear();
    let (ended, lines) = lines_of(&mut bare);
    assert_eq!((ended, lines.len()), (Some(2), 1), "{lines:?}");
    assert_eq!(lines[0]["@message"], "no rules are set");
}

#[test]
fn a_json_log_is_json_from_its_first_line_to_its_last() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "domain: shop\nnonsense: 1\n").unwrap();
    let variables = [
        ("LOG_LEVEL", "trace"),
        ("REDIS_POOL_SIZE", "10"),
        ("TOLLGATE_NONSENSE", "1"),
    ];
    let mut serving = Running::with_stderr(&mut serve(&rules, &variables));
    let mut seen = Vec::new();
    while let Some(line) = serving.next_line() {
        let line = parsed(&line);
        match line["@message"].as_str().unwrap() {
            "rules refused; the service listens and waits for valid rules" => {
                assert!(line["errors"].as_str().unwrap().contains("nonsense"));
                std::fs::write(&rules, RULES).unwrap();
            }
            "tollgate started" => {
                assert_eq!(line["level"], "info");
                assert_eq!(line["version"], env!("CARGO_PKG_VERSION"));
                assert_eq!(line["files"], 1);
                assert_eq!((&line["domains"], &line["limits"]), (&json!(1), &json!(2)));
                assert_eq!(line["store"], "memory");
                for port in ["grpc", "http", "admin"] {
                    let address = line[port].as_str().unwrap();
                    assert!(address.starts_with("127.0.0.1:"), "{line}");
                }
                let address = line["http"].as_str().unwrap().parse().unwrap();
                assert_eq!(http(address, "POST", "/json", ASKED).0, 200);
                assert_eq!(http(address, "POST", "/json", "").0, 400);
                serving.signal("TERM");
            }
            _ => {}
        }
        seen.push(line);
    }
    assert!(serving.exit().success());
    let message = |line: &Value| line["@message"].as_str().unwrap().to_owned();
    assert!(message(&seen[0]).contains("REDIS_POOL_SIZE"), "{}", seen[0]);
    // Libraries can log after it: a thread of the runtime closes its files last.
    let is_own = |line: &&Value| line["module"].as_str().unwrap().starts_with("tollgate");
    let last = seen.iter().rfind(is_own).unwrap();
    assert_eq!(
        message(last),
        "stopped; all requests were answered",
        "{last}"
    );
    let limit = seen
        .iter()
        .find(|line| message(line) == "memory limit of buckets");
    assert!(limit.unwrap()["bytes"].is_u64(), "numbers are numbers");
    let module = |words: &str| {
        let line = seen.iter().find(|line| message(line).contains(words));
        line.expect(words)["module"].clone()
    };
    assert_eq!(module("TOLLGATE_NONSENSE"), "tollgate::cli::serve");
    assert_eq!(
        module("rules are valid again"),
        "tollgate::pipeline::generations"
    );
}

#[test]
fn the_start_line_names_version_rules_store_and_addresses() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.yaml", "b.yaml"] {
        let rules = RULES.replace("shop", name);
        std::fs::write(directory.path().join(name), rules).unwrap();
    }
    let mut command = serve(directory.path(), &[("LOG_FORMAT", "text")]);
    command.env("TOLLGATE_STORE", "redis://127.0.0.1:1");
    let line = Running::with_stderr(&mut command).line_with(" listens: ");
    let version = env!("CARGO_PKG_VERSION");
    let begins = format!("tollgate {version} listens: gRPC 127.0.0.1:");
    assert!(line.starts_with(&begins), "{line}");
    for words in [
        ", HTTP 127.0.0.1:",
        ", admin 127.0.0.1:",
        ", rules: 2 files, 2 domains, 4 limits, store: 127.0.0.1:1, exact mode",
    ] {
        assert!(line.contains(words), "{words}: {line}");
    }
    // Where the store is, not what its connection was before it was tried.
    assert!(!line.contains("no connection"), "{line}");
    let mut command = serve(directory.path(), &[]);
    command.env("TOLLGATE_STORE", "redis://127.0.0.1:1");
    let started = next(&Running::with_stderr(&mut command), "tollgate started");
    assert_eq!(started["store"], "127.0.0.1:1");
    assert_eq!(started["store_mode"], "exact");
}

#[test]
fn a_start_beside_a_healthy_redis_raises_no_alarm() {
    let redis = RedisServer::start(&[]);
    let rules = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rules.path(), RULES).unwrap();
    let store = redis.url();
    let variables = [("LOG_FORMAT", "text"), ("TOLLGATE_STORE", &store)];
    let serving = Running::with_stderr(&mut serve(rules.path(), &variables));
    let mut said = String::new();
    while !said.contains(" listens: ") {
        said += &serving.next_line().expect("it starts");
        said.push('\n');
    }
    let store = format!(", store: 127.0.0.1:{}, exact mode\n", redis.port());
    assert!(said.ends_with(&store), "{said}");
    for alarm in ["unavailable", " ERROR ", "no connection"] {
        assert!(!said.contains(alarm), "{alarm}: {said}");
    }
}

#[test]
fn a_path_that_is_not_there_is_waited_for_and_the_log_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    let serving = Running::with_stderr(&mut serve(&rules, &[]));
    let refused = next(
        &serving,
        "rules refused; the service listens and waits for valid rules",
    );
    let why = refused["errors"].as_str().unwrap();
    assert!(why.contains("rules.yaml: No such file"), "{why}");
    std::fs::write(&rules, RULES).unwrap();
    next(&serving, "tollgate started");
}

/// The next line of a JSON log with this message.
fn next(serving: &Running, message: &str) -> Value {
    parsed(&serving.line_with(&format!("\"@message\":\"{message}")))
}

#[test]
fn rules_that_are_good_again_are_a_warning_and_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let serving = Running::with_stderr(&mut serve(&rules, &[]));
    next(&serving, "tollgate started");
    std::fs::write(&rules, "domain: shop\nnonsense: 1\n").unwrap();
    let refused = next(&serving, "rules refused; the last good rules stay in use");
    assert_eq!(refused["level"], "error");
    std::fs::write(&rules, RULES).unwrap();
    let again = next(&serving, "rules are valid again");
    assert_eq!(again["level"], "warn");
    assert_eq!(
        (&again["sources"], &again["limits"]),
        (&json!(1), &json!(2))
    );
}

#[test]
fn decisions_are_logged_only_where_the_filter_names_them() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let filter = [("LOG_LEVEL", "error,tollgate::decisions=debug")];
    let serving = Running::with_stderr(&mut serve(&rules, &filter));
    let started = next(&serving, "tollgate started");
    let [http_port, admin] = ["http", "admin"].map(|port| started[port].as_str().unwrap());
    let [http_port, admin] = [http_port, admin].map(|address| address.parse().unwrap());
    assert_eq!(http(http_port, "POST", "/json", ASKED).0, 200);
    assert_eq!(http(http_port, "POST", "/json", ASKED).0, 429);
    for (code, limits) in [
        ("OK", "OK, 0 left of shop.one"),
        ("OVER_LIMIT", "OVER_LIMIT, 0 left of shop.one"),
    ] {
        let mut line = next(&serving, "decision");
        assert!(line["took_us"].take().is_u64());
        line["@timestamp"].take();
        let expected = json!({
            "@timestamp": null, "@message": "decision", "level": "debug", "took_us": null,
            "module": "tollgate::decisions", "domain": "shop", "descriptors": "one=a\\\"b",
            "code": code, "shadowed": false, "limits": limits,
        });
        assert_eq!(line, expected);
    }
    assert_eq!(
        http(http_port, "POST", "/json", r#"{"domain":"shop"}"#).0,
        400
    );
    let line = next(&serving, "no decision");
    assert_eq!(
        line["error"],
        "rate limit descriptor list must not be empty"
    );
    // Off and on again without a restart. A level for everything does not turn them on.
    for (filter, logged) in [("trace", false), ("off,tollgate::decisions=debug", true)] {
        assert_eq!(http(admin, "PUT", "/log-level", filter).0, 200);
        assert_eq!(http(http_port, "POST", "/json", ASKED).0, 429);
        // The line of the request, or the next one, which is logged either way.
        assert_eq!(http(admin, "PUT", "/log-level", "debug").0, 200);
        assert_eq!(http(http_port, "POST", "/json", "").0, 400);
        let mut decisions = 0;
        loop {
            let line = parsed(&serving.next_line().expect("it runs"));
            match line["@message"].as_str().unwrap() {
                "decision" => decisions += 1,
                "/json refused a request" => break,
                _ => {}
            }
        }
        assert_eq!(decisions > 0, logged, "{filter}");
    }
    let (status, why) = http(admin, "PUT", "/log-level", "loud");
    assert_eq!(status, 400);
    assert!(why.contains("'loud' is not a level"), "{why}");
}

#[test]
fn a_level_for_everything_does_not_log_values_of_callers() {
    for level in ["debug", "trace", "tollgate=trace"] {
        let service = Tollgate::start(RULES, &["--log-level", level]);
        let asked = ASKED.replace("a\\\"b", "secret-of-a-caller");
        assert_eq!(http(service.http, "POST", "/json", &asked).0, 200);
        assert_eq!(http(service.http, "POST", "/json", "").0, 400);
        until("the refusal is logged", || {
            let said = service.said();
            let is_logged = said.contains("/json refused a request");
            is_logged.then_some(()).ok_or(said)
        });
        assert!(!service.said().contains("secret-of-a-caller"), "{level}");
    }
}
