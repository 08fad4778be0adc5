//! Each call and its answers, on a clock that the test moves.

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;

use super::{body, left, post};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, name: tokens }
  - key: team
    rate_limit: { unit: hour, requests_per_unit: 1500, algorithm: token_bucket }
  - key: shy
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: model
    rate_limit:
      unit: hour
      requests_per_unit: 1000
      reserve: { amount: 300, expires: 5m, on_expiry: release }
  - key: out
    rate_limit: { unit: hour, requests_per_unit: 1000, cost: 2.5 }
  - key: log
    rate_limit: { unit: hour, requests_per_unit: 100, algorithm: sliding_log }
  - key: free
    rate_limit: { unlimited: true }
";

fn user(more: Value) -> Value {
    body("user", "ann", more)
}

fn both(more: Value) -> Value {
    let mut body = user(more);
    let team = json!({ "entries": [{ "key": "team", "value": "red" }] });
    body["descriptors"].as_array_mut().unwrap().push(team);
    body
}

#[tokio::test]
async fn a_check_takes_hits_and_says_all_of_what_is_left() {
    let service = Service::start(RULES, &[]).await;
    let (status, answer) = post(service.http, "check", &user(json!({"hits": 800}))).await;
    assert_eq!(status, 200);
    let limit = json!({
        "descriptor": 0,
        "name": "tokens",
        "rule": "d.user name=tokens",
        "requests_per_unit": 1000,
        "window": "1 hour",
        "verdict": "OK",
        "remaining": 200,
        "reset": "3589.5s",
    });
    let expected = json!({
        "verdict": "OK",
        "remaining": 200,
        "reset": "3589.5s",
        "limits": [limit],
    });
    assert_eq!(answer, expected);
    let (status, answer) = post(service.http, "check", &user(json!({"hits": 201}))).await;
    assert_eq!(status, 429);
    assert_eq!(answer["verdict"], "OVER_LIMIT");
    assert_eq!(answer["retry_after"], "3589.5s");
    assert_eq!(answer["limits"][0]["verdict"], "OVER_LIMIT");
    assert_eq!(answer["limits"][0]["retry_after"], "3589.5s");
}

#[tokio::test]
async fn a_peek_says_what_a_check_would_and_takes_nothing() {
    let service = Service::start(RULES, &[]).await;
    for (hits, verdict) in [(1000, "OK"), (1001, "OVER_LIMIT"), (0, "OK")] {
        let (status, answer) = post(service.http, "peek", &user(json!({"hits": hits}))).await;
        assert_eq!(
            (status, &answer["verdict"]),
            (200, &json!(verdict)),
            "{hits}"
        );
        assert_eq!(answer["remaining"], 1000);
    }
    post(service.http, "check", &user(json!({"hits": 1000}))).await;
    let (status, answer) = post(service.http, "peek", &user(json!({}))).await;
    assert_eq!((status, &answer["verdict"]), (200, &json!("OVER_LIMIT")));
}

#[tokio::test]
async fn a_reservation_is_committed_once_and_repeats_its_result() {
    let service = Service::start(RULES, &[]).await;
    let reserve = user(json!({"hits": 800, "reservation": "r1"}));
    let (status, answer) = post(service.http, "reserve", &reserve).await;
    assert_eq!(status, 200);
    assert_eq!(answer["verdict"], "OK");
    assert_eq!(answer["reservation"], "r1");
    assert_eq!(answer["hits"], 800);
    assert_eq!(answer["expires"], "60s");
    assert_eq!(answer["remaining"], 200);
    let commit = user(json!({"reservation": "r1", "hits": 300}));
    let (status, first) = post(service.http, "commit", &commit).await;
    assert_eq!(status, 200);
    for (field, value) in [
        ("verdict", json!("OK")),
        ("reservation", json!("r1")),
        ("reserved", json!(800)),
        ("committed", json!(300)),
        ("repeated", json!(false)),
        ("remaining", json!(700)),
    ] {
        assert_eq!(first[field], value, "{field}");
    }
    let again = user(json!({"reservation": "r1", "hits": 999}));
    for (call, again) in [
        ("commit", again),
        ("release", user(json!({"reservation": "r1"}))),
    ] {
        let (status, answer) = post(service.http, call, &again).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["repeated"], true);
        assert_eq!(
            (&answer["reserved"], &answer["committed"]),
            (&json!(800), &json!(300))
        );
    }
    assert_eq!(left(&service, "user", "ann").await, 700);
}

#[tokio::test]
async fn a_commit_beyond_the_reservation_is_charged_beyond_the_limit() {
    let service = Service::start(RULES, &[]).await;
    post(
        service.http,
        "reserve",
        &user(json!({"hits": 900, "reservation": "r"})),
    )
    .await;
    let commit = user(json!({"reservation": "r", "hits": 1200}));
    let (status, answer) = post(service.http, "commit", &commit).await;
    assert_eq!((status, &answer["committed"]), (200, &json!(1200)));
    assert_eq!(answer["remaining"], 0);
    let (status, _) = post(service.http, "check", &user(json!({}))).await;
    assert_eq!(status, 429);
}

#[tokio::test]
async fn a_release_gives_back_everything() {
    let service = Service::start(RULES, &[]).await;
    post(
        service.http,
        "reserve",
        &both(json!({"hits": 900, "reservation": "r"})),
    )
    .await;
    let (status, answer) = post(service.http, "release", &both(json!({"reservation": "r"}))).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&answer["reserved"], &answer["committed"]),
        (&json!(900), &json!(0))
    );
    assert_eq!(answer["limits"][0]["remaining"], 1000);
    assert_eq!(answer["limits"][1]["remaining"], 1500);
}

#[tokio::test]
async fn an_id_is_made_when_there_is_none_and_it_is_another_each_time() {
    let service = Service::start(RULES, &[]).await;
    let mut ids = Vec::new();
    for reservation in [json!({"hits": 1}), json!({"hits": 1, "reservation": ""})] {
        let (status, answer) = post(service.http, "reserve", &user(reservation)).await;
        assert_eq!(status, 200);
        let id = answer["reservation"].as_str().unwrap().to_owned();
        assert_eq!(id.len(), 32);
        let commit = user(json!({"reservation": id, "hits": 1}));
        assert_eq!(post(service.http, "commit", &commit).await.0, 200);
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_refused_reservation_takes_nothing_from_any_limit() {
    let service = Service::start(RULES, &[]).await;
    post(service.http, "check", &user(json!({"hits": 600}))).await;
    let reserve = both(json!({"hits": 500, "reservation": "r"}));
    let (status, answer) = post(service.http, "reserve", &reserve).await;
    assert_eq!(status, 429);
    assert_eq!(answer["verdict"], "OVER_LIMIT");
    assert_eq!(answer["hits"], 0);
    assert_eq!(answer["reservation"], Value::Null);
    assert_eq!(answer["limits"][0]["remaining"], 400);
    assert_eq!(answer["limits"][1]["remaining"], 1500);
    assert_eq!(answer["limits"][1]["verdict"], "OK");
    let commit = both(json!({"reservation": "r", "hits": 5}));
    assert_eq!(post(service.http, "commit", &commit).await.0, 404);
    assert_eq!(left(&service, "user", "ann").await, 400);
    assert_eq!(left(&service, "team", "red").await, 1500);
    let (status, _) = post(service.http, "reserve", &both(json!({"hits": 400}))).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn an_id_that_is_not_known_is_404_and_changes_nothing() {
    let service = Service::start(RULES, &[]).await;
    post(
        service.http,
        "reserve",
        &user(json!({"hits": 10, "reservation": "mine"})),
    )
    .await;
    for (call, more) in [
        ("commit", json!({"reservation": "other", "hits": 5})),
        ("release", json!({"reservation": "other"})),
        ("extend", json!({"reservation": "other", "expires": "60s"})),
    ] {
        let (status, answer) = post(service.http, call, &user(more)).await;
        assert_eq!(status, 404, "{call}");
        assert_eq!(answer["error"]["code"], "NOT_FOUND");
        let why = answer["error"]["message"].as_str().unwrap();
        assert!(
            why.starts_with("no reservation of this id is known"),
            "{why}"
        );
    }
    // Ids belong to the buckets of their descriptors.
    let foreign = body("user", "bob", json!({"reservation": "mine", "hits": 5}));
    assert_eq!(post(service.http, "commit", &foreign).await.0, 404);
    assert_eq!(left(&service, "user", "ann").await, 990);
}

#[tokio::test]
async fn a_reservation_that_expired_is_404_and_was_charged_or_given_back() {
    let service = Service::start(RULES, &[]).await;
    for (id, on_expiry) in [("kept", "charge"), ("returned", "release")] {
        let reserve = json!({
            "hits": 100, "reservation": id, "expires": "1.5s", "on_expiry": on_expiry,
        });
        let (_, answer) = post(service.http, "reserve", &user(reserve)).await;
        assert_eq!(answer["expires"], "1.5s");
    }
    assert_eq!(left(&service, "user", "ann").await, 800);
    service.clock.advance_us(1_500_000);
    assert_eq!(left(&service, "user", "ann").await, 900);
    for id in ["kept", "returned"] {
        let commit = user(json!({"reservation": id, "hits": 1}));
        assert_eq!(post(service.http, "commit", &commit).await.0, 404);
    }
}

#[tokio::test]
async fn an_extension_moves_the_expiry() {
    let service = Service::start(RULES, &[]).await;
    post(
        service.http,
        "reserve",
        &user(json!({"hits": 10, "reservation": "r"})),
    )
    .await;
    service.clock.advance_us(50_000_000);
    let extend = user(json!({"reservation": "r", "expires": "2m"}));
    let (status, answer) = post(service.http, "extend", &extend).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["reservation"], "r");
    assert_eq!(answer["expires"], "120s");
    assert_eq!(answer["remaining"], 990);
    service.clock.advance_us(119_000_000);
    let commit = user(json!({"reservation": "r", "hits": 3}));
    assert_eq!(post(service.http, "commit", &commit).await.0, 200);
    assert_eq!(left(&service, "user", "ann").await, 997);
}

#[tokio::test]
async fn without_hits_the_rule_says_how_much_and_until_when() {
    let service = Service::start(RULES, &[]).await;
    let reserve = body("model", "m", json!({"reservation": "r"}));
    let (status, answer) = post(service.http, "reserve", &reserve).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        (&answer["hits"], &answer["expires"]),
        (&json!(300), &json!("300s"))
    );
    assert_eq!(answer["remaining"], 700);
    service.clock.advance_us(300_000_000);
    assert_eq!(left(&service, "model", "m").await, 1000);
    let (status, answer) = post(service.http, "reserve", &user(json!({}))).await;
    assert_eq!(status, 400);
    assert_eq!(
        answer["error"]["message"],
        "hits is missing, and the rule d.user name=tokens has no reserve.amount; say how many hits to reserve"
    );
}

#[tokio::test]
async fn hits_cost_what_the_rule_says_and_answers_are_in_hits() {
    let service = Service::start(RULES, &[]).await;
    let out = |more| body("out", "o", more);
    let (_, answer) = post(
        service.http,
        "reserve",
        &out(json!({"hits": 101, "reservation": "r"})),
    )
    .await;
    // 252.5, rounded up.
    assert_eq!(
        (&answer["hits"], &answer["remaining"]),
        (&json!(101), &json!(747))
    );
    let (_, answer) = post(
        service.http,
        "commit",
        &out(json!({"hits": 33, "reservation": "r"})),
    )
    .await;
    assert_eq!(
        (&answer["reserved"], &answer["committed"]),
        (&json!(101), &json!(33))
    );
    assert_eq!(answer["remaining"], 917);
    let (_, answer) = post(service.http, "release", &out(json!({"reservation": "r"}))).await;
    assert_eq!(
        (&answer["reserved"], &answer["committed"]),
        (&json!(101), &json!(33))
    );
}

#[tokio::test]
async fn an_algorithm_that_cannot_reserve_is_named() {
    let service = Service::start(RULES, &[]).await;
    for (call, more) in [
        ("reserve", json!({"hits": 1})),
        ("commit", json!({"hits": 1, "reservation": "r"})),
        ("release", json!({"reservation": "r"})),
        ("extend", json!({"reservation": "r", "expires": "60s"})),
    ] {
        let (status, answer) = post(service.http, call, &body("log", "l", more)).await;
        assert_eq!(status, 400, "{call}");
        assert_eq!(answer["error"]["code"], "INVALID_ARGUMENT");
        let why = answer["error"]["message"].as_str().unwrap();
        assert!(
            why.starts_with("the rule d.log has the algorithm sliding_log, which cannot reserve"),
            "{why}"
        );
    }
    let check = body("log", "l", json!({"hits": 1}));
    assert_eq!(post(service.http, "check", &check).await.0, 200);
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
        assert_eq!(
            (&answer["verdict"], &answer["hits"]),
            (&json!("OK"), &json!(0))
        );
        assert_eq!(
            (&answer["remaining"], &answer["limits"]),
            (&Value::Null, &json!([]))
        );
        let mut commit = call.clone();
        commit["reservation"] = answer["reservation"].clone();
        let (status, answer) = post(service.http, "commit", &commit).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            (&answer["reserved"], &answer["committed"]),
            (&json!(0), &json!(5))
        );
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
