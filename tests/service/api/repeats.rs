//! Commits that are sent again, with another amount or after only a part of the limits settled.

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;

use super::{body, left, post};

const RULES: &str = "
domain: d
descriptors:
  - key: one
    rate_limit: { unit: hour, requests_per_unit: 1000 }
  - key: two
    rate_limit: { unit: hour, requests_per_unit: 1000, algorithm: token_bucket }
";

/// Sends a call that must succeed for these keys.
async fn done(service: &Service, call: &str, keys: &[&str], hits: u64) -> Value {
    let mut asked = body(keys[0], "v", json!({"hits": hits, "reservation": "r"}));
    for key in &keys[1..] {
        let beside = body(key, "v", json!({}))["descriptors"][0].clone();
        asked["descriptors"].as_array_mut().unwrap().push(beside);
    }
    let (status, answer) = post(service.http, call, &asked).await;
    assert_eq!(status, 200, "{call} {asked}: {answer}");
    answer
}

#[tokio::test]
async fn a_commit_after_only_one_of_two_limits_settled_settles_the_other() {
    let service = Service::start(RULES, &[]).await;
    let lefts = async || {
        (
            left(&service, "one", "v").await,
            left(&service, "two", "v").await,
        )
    };
    let both = ["one", "two"];
    done(&service, "reserve", &both, 100).await;
    assert_eq!(lefts().await, (900, 900));
    let answer = done(&service, "commit", &["one"], 30).await;
    assert_eq!(answer["repeated"], false);
    assert_eq!(lefts().await, (970, 900));
    let answer = done(&service, "commit", &both, 150).await;
    assert_eq!(answer["repeated"], false, "the second limit settles now");
    assert_eq!(lefts().await, (970, 850), "the first keeps its result");
    for (call, hits) in [("commit", 150), ("commit", 7), ("commit", 900)] {
        let answer = done(&service, call, &both, hits).await;
        assert_eq!(answer["repeated"], true, "{call} {hits}");
        assert_eq!(lefts().await, (970, 850), "{call} {hits}");
    }
}
