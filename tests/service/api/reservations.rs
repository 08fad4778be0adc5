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
";

fn user(more: Value) -> Value {
    body("user", "ann", more)
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
