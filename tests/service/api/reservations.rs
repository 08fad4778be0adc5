//! Each call and its answers, on a clock that the test moves.

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;

use super::{body, has, left, post};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, name: tokens }
  - key: team
    rate_limit: { unit: hour, requests_per_unit: 1500, algorithm: token_bucket }
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
        has(&answer, json!({"reserved": 800, "committed": 300}));
    }
    assert_eq!(left(&service, "user", "ann").await, 700);
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
    has(&answer, json!({"reserved": 900, "committed": 0}));
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
