//! Limits that are not enforced or do not exist; headers and counters.

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;

use super::{body, has, post};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, name: tokens }
  - key: shy
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: free
    rate_limit: { unlimited: true }
";

fn user(more: Value) -> Value {
    body("user", "ann", more)
}

#[tokio::test]
async fn a_limit_in_shadow_mode_never_refuses_a_reservation() {
    let service = Service::start(RULES, &[]).await;
    let shy = |more| body("shy", "s", more);
    for (hits, remaining) in [(80, 20), (80, 20)] {
        let reserve = shy(json!({"hits": hits, "reservation": "r"}));
        let (status, answer) = post(service.http, "reserve", &reserve).await;
        assert_eq!((status, &answer["verdict"]), (200, &json!("OK")));
        assert_eq!(answer["remaining"], remaining);
    }
    let (status, answer) = post(
        service.http,
        "commit",
        &shy(json!({"hits": 80, "reservation": "r"})),
    )
    .await;
    assert_eq!((status, &answer["reserved"]), (200, &json!(80)));
    // No limit is enforced, so an id that none of them has is not an error.
    let never = shy(json!({"hits": 80, "reservation": "never"}));
    let (status, answer) = post(service.http, "commit", &never).await;
    assert_eq!((status, &answer["reserved"]), (200, &json!(0)));
}

#[tokio::test]
async fn without_a_limit_a_reservation_passes_and_there_is_nothing_to_settle() {
    let service = Service::start(RULES, &[]).await;
    let mut unknown_domain = body("user", "ann", json!({"hits": 5}));
    unknown_domain["domain"] = json!("elsewhere");
    let free = body("free", "f", json!({"hits": 5}));
    let other = body("other", "o", json!({"hits": 5}));
    for call in [unknown_domain, free, other] {
        let (status, answer) = post(service.http, "reserve", &call).await;
        assert_eq!(status, 200, "{answer}");
        has(&answer, json!({"verdict": "OK", "hits": 0}));
        assert_eq!(
            (&answer["remaining"], &answer["limits"]),
            (&Value::Null, &json!([]))
        );
        let mut commit = call.clone();
        commit["reservation"] = answer["reservation"].clone();
        let (status, answer) = post(service.http, "commit", &commit).await;
        assert_eq!(status, 200, "{answer}");
        has(&answer, json!({"reserved": 0, "committed": 5}));
        assert_eq!(answer["repeated"], false);
    }
}

#[tokio::test]
async fn headers_are_sent_where_the_settings_enable_them() {
    let service = Service::start(RULES, &["--response-headers", "ietf,retry-after"]).await;
    let call = user(json!({"hits": 1000})).to_string();
    let address = service.http;
    let head = |hits: &'static str| {
        let call = call.replace("1000", hits);
        tokio::task::spawn_blocking(move || {
            super::connections::raw(
                address,
                format!(
                    "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{call}",
                    call.len()
                )
                .as_bytes(),
            )
        })
    };
    let passed = head("1000").await.unwrap().to_ascii_lowercase();
    assert!(
        passed.contains("\r\nratelimit: \"tokens\";r=0;t=3590\r\n"),
        "{passed}"
    );
    assert!(
        passed.contains("\r\nratelimit-policy: \"tokens\";q=1000;w=3600\r\n"),
        "{passed}"
    );
    assert!(!passed.contains("\r\nretry-after:"), "{passed}");
    let refused = head("1").await.unwrap().to_ascii_lowercase();
    assert!(refused.starts_with("http/1.1 429 "), "{refused}");
    assert!(refused.contains("\r\nretry-after: 3590\r\n"), "{refused}");
}

#[tokio::test]
async fn calls_are_counted_and_recorded_as_other_requests_are() {
    let service = Service::start(RULES, &[]).await;
    post(
        service.http,
        "reserve",
        &user(json!({"hits": 800, "reservation": "r"})),
    )
    .await;
    post(service.http, "reserve", &user(json!({"hits": 800}))).await;
    let counter = |name: &str| {
        format!("ratelimit_service_rate_limit_{name}{{domain=\"d\",key1=\"user\",key2=\"\"}}")
    };
    assert_eq!(service.metric(&counter("total_hits")), 1600);
    assert_eq!(service.metric(&counter("over_limit")), 600);
}
