//! The HTTP ports: each path and its responses.

use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

const RULES: &str = "
domain: d
descriptors:
  - key: one
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: two
    rate_limit: { unit: minute, requests_per_unit: 1 }
";

const ONE: &str = r#"{"domain":"d","descriptors":[{"entries":[{"key":"one","value":"é"}]}]}"#;

async fn ask(
    address: std::net::SocketAddr,
    method: &'static str,
    path: &'static str,
    body: &str,
) -> (u16, String) {
    let body = body.to_owned();
    tokio::task::spawn_blocking(move || http(address, method, path, &body))
        .await
        .unwrap()
}

/// Messages of errors, and the bodies that cause them.
const BAD_JSON: &str = r#"
the body is empty; send a RateLimitRequest as JSON <-
expected ident at line 1 column 2 <- nonsense
EOF while parsing a value at line 1 column 10 <- {"domain":
invalid type: sequence, expected a map at line 1 column 0 <- []
rate limit domain must not be empty <- {}
rate limit descriptor list must not be empty <- {"domain":"d"}
rate limit domain must not be empty <- {"domain":"","descriptors":[{}]}
unrecognized field name 'surprise' at line 1 column 41 <- {"domain":"d","descriptors":[],"surprise":1}
trailing characters at line 1 column 60 <- {"domain":"d","descriptors":[{"entries":[{"key":"one"}]}]} trailing"#;

#[tokio::test]
async fn json_answers_with_the_references_codes_and_says_why_in_the_body() {
    let service = Service::start(RULES, &[]).await;
    let lines = BAD_JSON.lines().skip(1);
    let lines = lines.map(|line| line.split_once(" <-").expect(line));
    let lines = lines.map(|(why, body)| (why, body.trim_start()));
    let blank = ("the body is empty; send a RateLimitRequest as JSON", " \n");
    for (why, body) in lines.chain([blank]) {
        let (status, answer) = ask(service.http, "POST", "/json", body).await;
        let answer: serde_json::Value = serde_json::from_str(&answer).expect(&answer);
        let expected = serde_json::json!({ "code": 3, "message": why, "details": [] });
        assert_eq!((status, answer), (400, expected));
    }
    let too_large = " ".repeat((256 << 10) + 1);
    let (status, answer) = ask(service.http, "POST", "/json", &too_large).await;
    let answer: serde_json::Value = serde_json::from_str(&answer).expect(&answer);
    let why = "the body is larger than 262144 bytes";
    let expected = serde_json::json!({ "code": 8, "message": why, "details": [] });
    assert_eq!((status, answer), (413, expected));
    let (status, body) = ask(service.http, "POST", "/json", ONE).await;
    assert_eq!(status, 200);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&body).unwrap(),
        serde_json::json!({
            "overallCode": "OK",
            "statuses": [{
                "code": "OK",
                "currentLimit": { "requestsPerUnit": 1, "unit": "MINUTE" },
                "durationUntilReset": "50s",
            }],
        })
    );
    // Any method, and both spellings of a name; numbers may be strings.
    let snake = r#"{"domain":"d","hits_addend":"1","descriptors":[{"entries":[{"key":"one","value":"é"}]}]}"#;
    let (status, body) = ask(service.http, "PUT", "/json", snake).await;
    assert_eq!(status, 429);
    assert!(body.contains(r#""overallCode":"OVER_LIMIT""#), "{body}");
}

#[tokio::test]
async fn json_says_503_when_the_store_cannot_decide() {
    let service = Service::start(RULES, &["--partitions", "1", "--mailbox-checks-max", "1"]).await;
    let two_checks =
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"one"}]},{"entries":[{"key":"two"}]}]}"#;
    let (status, body) = ask(service.http, "POST", "/json", two_checks).await;
    let body: serde_json::Value = serde_json::from_str(&body).expect(&body);
    assert_eq!((status, &body["code"]), (503, &serde_json::json!(14)));
    assert_eq!(body["details"], serde_json::json!([]));
    assert!(
        body["message"].as_str().unwrap().contains("queue"),
        "{body}"
    );
}

/// Names of series at `/metrics` that begin with this.
async fn series(service: &Service, prefix: &str) -> Vec<String> {
    let (_, text) = ask(service.http, "GET", "/metrics", "").await;
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn metrics_of_the_process_are_those_of_prometheus_clients() {
    let service = Service::start(RULES, &[]).await;
    let look = async || {
        let shown = series(&service, "process_").await;
        // Each look takes some time of the processor.
        let is_zero = shown.contains(&"process_cpu_seconds_total 0".to_owned());
        if is_zero { Err(shown) } else { Ok(shown) }
    };
    let shown = until_async("time of the processor is shown", look).await;
    let value = |name: &str| -> f64 {
        let line = shown.iter().find_map(|line| line.strip_prefix(name));
        line.expect(name).trim().parse().unwrap()
    };
    assert_eq!(shown.len(), 7, "{shown:?}");
    let resident = value("process_resident_memory_bytes ");
    assert!(resident > 1e6 && resident < value("process_virtual_memory_bytes "));
    assert!(value("process_open_fds ") > 3.0);
    assert!(value("process_open_fds ") < value("process_max_fds "));
    assert!(value("process_threads ") > 1.0);
    // A file that is made now says what the time is.
    let made = tempfile::NamedTempFile::new().unwrap();
    let now = made.path().metadata().unwrap().modified().unwrap();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - value("process_start_time_seconds ");
    assert!((-2.0..86_400.0).contains(&age), "{age}");
    let (_, text) = ask(service.http, "GET", "/metrics", "").await;
    assert!(text.contains("# TYPE process_cpu_seconds_total counter"));
}

#[tokio::test]
async fn series_of_redis_and_leases_appear_only_with_them() {
    let store = ["--store", "redis://127.0.0.1:1"];
    for (arguments, stores, leases) in [
        (&[][..], false, false),
        (&store, true, false),
        (&[store[0], store[1], "--store-mode", "leased"], true, true),
    ] {
        let service = Service::start(RULES, arguments).await;
        let shown = series(&service, "tollgate_store_").await;
        assert_eq!(!shown.is_empty(), stores, "{arguments:?}: {shown:?}");
        let shown = series(&service, "tollgate_lease_").await;
        assert_eq!(!shown.is_empty(), leases, "{arguments:?}: {shown:?}");
    }
}

#[tokio::test]
async fn the_public_port_serves_probes_and_metrics_but_not_rules() {
    let service = Service::start(RULES, &[]).await;
    for path in ["/healthcheck", "/livez", "/readyz"] {
        assert_eq!(
            ask(service.http, "GET", path, "").await,
            (200, "OK".to_owned()),
            "{path}"
        );
    }
    let (status, metrics) = ask(service.http, "GET", "/metrics", "").await;
    assert_eq!(status, 200);
    for series in [
        "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"one\",key2=\"\"} 0",
        "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"} 0",
        "tollgate_mailbox_checks{partition=\"0\"} 0",
        "tollgate_shed_total{reason=\"mailbox_full\"} 0",
    ] {
        assert!(metrics.contains(series), "{series} is not in\n{metrics}");
    }
    let nothing = "there is no such path; / lists those of this port\n";
    for (port, path) in [(service.http, "/rlconfig"), (service.admin, "/v1/check")] {
        let answer = ask(port, "GET", path, "").await;
        assert_eq!(answer, (404, nothing.to_owned()), "{path}");
    }
    let (status, list) = ask(service.http, "GET", "/", "").await;
    assert_eq!(status, 200);
    assert!(list.contains("\n/v1/check"), "{list}");
    let (status, rules) = ask(service.admin, "GET", "/rlconfig", "").await;
    assert_eq!(status, 200);
    assert_eq!(
        rules.lines().next(),
        Some(
            "d.one: unit=MINUTE requests_per_unit=1, shadow_mode: false, quota_mode: false, algorithm: fixed_window"
        )
    );
    assert!(
        ask(service.admin, "GET", "/", "")
            .await
            .1
            .contains("/rlconfig")
    );
}

#[tokio::test]
async fn rlconfig_prints_the_references_lines_and_then_tollgates() {
    let rules = "
domain: d
descriptors:
  - key: several
    rate_limits:
      - { unit: minute, unit_multiplier: 15, requests_per_unit: 9, algorithm: gcra, burst: 3, name: n }
      - { unit: minute, requests_per_unit: 9, algorithm: sliding_window, segments: 6, count_refused: all }
      - { unit: month, requests_per_unit: 9, calendar: true, time_zone: Europe/Paris }
      - { unit: second, requests_per_unit: 9, algorithm: leaky_bucket }
      - { algorithm: concurrency, requests_per_unit: 9, slot_seconds: 60, holder_key: id }
  - key: free
    shadow_mode: true
    rate_limit: { unlimited: true }
  - key: tokens
    rate_limit: { unit: day, requests_per_unit: 9, cost: 1.5, budget: b, reserve: { key: id, amount: p90, expires: 5m } }
  - key: api
    rate_limit: { unit: day, requests_per_unit: 9, reserve: { amount: 4, on_expiry: release }, lease: false }
  - key: quota
    rate_limit: { unit: second, requests_per_unit: 9, algorithm: token_bucket, rlqs: true }
";
    let service = Service::start(rules, &[]).await;
    let (_, shown) = ask(service.admin, "GET", "/rlconfig", "").await;
    let expected = "\
d.several: unit=MINUTE requests_per_unit=9, FLAGS, unit_multiplier: 15, algorithm: token_bucket, burst: 3, name: n
d.several: unit=MINUTE requests_per_unit=9, FLAGS, algorithm: sliding_window_segments, segments: 6, count_refused: all
d.several: unit=MONTH requests_per_unit=9, FLAGS, algorithm: fixed_window, calendar: 1 month in Europe/Paris
d.several: unit=SECOND requests_per_unit=9, FLAGS, algorithm: leaky_bucket, burst: 1
d.several: unit=UNKNOWN requests_per_unit=9, FLAGS, algorithm: concurrency, slot_seconds: 60, holder_key: id
d.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: true, quota_mode: false, unlimited: true
d.tokens: unit=DAY requests_per_unit=9, FLAGS, algorithm: fixed_window, reserve: {key: id, amount: p90, floor: 1, ceiling: 9, per: rule, expires: 5m, on_expiry: charge}, cost: 1.5, budget: b
d.api: unit=DAY requests_per_unit=9, FLAGS, algorithm: fixed_window, reserve: {amount: 4, expires: 1m, on_expiry: release}, lease: false
d.quota: unit=SECOND requests_per_unit=9, FLAGS, algorithm: token_bucket, rlqs: true
";
    let flags = "shadow_mode: false, quota_mode: false";
    assert_eq!(shown, expected.replace("FLAGS", flags));
}

#[tokio::test]
async fn bodies_that_never_end_stop_no_other_request() {
    use std::io::Write as _;
    let service = Service::start(RULES, &[]).await;
    let address = service.http;
    tokio::task::spawn_blocking(move || {
        // More requests than are in progress at a time, none of which sends its body.
        let unfinished: Vec<_> = (0..300)
            .map(|number| {
                let path = if number % 2 == 0 {
                    "/json"
                } else {
                    "/v1/check"
                };
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                let head =
                    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{{");
                stream.write_all(head.as_bytes()).unwrap();
                stream
            })
            .collect();
        for path in ["/healthcheck", "/livez", "/readyz"] {
            assert_eq!(http(address, "GET", path, ""), (200, "OK".to_owned()));
        }
        for (method, path) in [("GET", "/metrics"), ("POST", "/json"), ("POST", "/v1/peek")] {
            assert_eq!(http(address, method, path, ONE).0, 200, "{path}");
        }
        drop(unfinished);
    })
    .await
    .unwrap();
    assert_eq!(service.metric("tollgate_http_shed_total"), 0);
}

#[tokio::test]
async fn a_scrape_needs_no_memory_of_answers() {
    let rule = |n| format!("{{ key: k{n}, rate_limit: {{ unit: year, requests_per_unit: 1 }} }}");
    let rules = (0..300).map(rule).collect::<Vec<_>>().join(", ");
    let rules = format!("domain: d\ndescriptors: [{rules}]\n");
    let bounds = ["--answer-size-max", "32KiB", "--answer-memory-max", "64KiB"];
    let service = Service::start(&rules, &bounds).await;
    let (status, text) = ask(service.http, "GET", "/metrics", "").await;
    assert_eq!(status, 200);
    assert!(text.len() > 64 * 1024, "{}", text.len());
}
