//! How much is reserved: amounts of rules, costs and budgets.

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;

use super::{body, has, left, post};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, name: tokens }
  - key: model
    rate_limit:
      unit: hour
      requests_per_unit: 1000
      reserve: { amount: 300, expires: 5m, on_expiry: release }
  - key: out
    rate_limit: { unit: hour, requests_per_unit: 1000, cost: 2.5 }
  - key: payer
    descriptors:
      - key: direction
        value: input
        rate_limit: { unit: hour, requests_per_unit: 1000, cost: 1.0, budget: spend }
      - key: direction
        value: output
        rate_limit: { unit: hour, requests_per_unit: 1000, cost: 4.0, budget: spend }
";

#[tokio::test]
async fn without_hits_the_rule_says_how_much_and_until_when() {
    let service = Service::start(RULES, &[]).await;
    let reserve = body("model", "m", json!({"reservation": "r"}));
    let (status, answer) = post(service.http, "reserve", &reserve).await;
    assert_eq!(status, 200, "{answer}");
    has(&answer, json!({"hits": 300, "expires": "300s"}));
    assert_eq!(answer["remaining"], 700);
    service.clock.advance_us(300_000_000);
    assert_eq!(left(&service, "model", "m").await, 1000);
    let (status, answer) = post(service.http, "reserve", &body("user", "ann", json!({}))).await;
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
    has(&answer, json!({"hits": 101, "remaining": 747}));
    let (_, answer) = post(
        service.http,
        "commit",
        &out(json!({"hits": 33, "reservation": "r"})),
    )
    .await;
    has(&answer, json!({"reserved": 101, "committed": 33}));
    assert_eq!(answer["remaining"], 917);
    let (_, answer) = post(service.http, "release", &out(json!({"reservation": "r"}))).await;
    has(&answer, json!({"reserved": 101, "committed": 33}));
}

/// A call for input and output tokens of one payer.
fn tokens(input: u64, output: u64, reservation: &str) -> Value {
    let of = |direction: &str, hits: u64| {
        json!({
            "entries": [{"key": "payer", "value": "p"}, {"key": "direction", "value": direction}],
            "hits": hits,
        })
    };
    json!({
        "domain": "d",
        "descriptors": [of("input", input), of("output", output)],
        "reservation": reservation,
    })
}

#[tokio::test]
async fn limits_of_one_budget_take_the_sum_of_their_prices() {
    let service = Service::start(RULES, &[]).await;
    let (status, answer) = post(service.http, "reserve", &tokens(100, 200, "r")).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["limits"][0]["remaining"], 100);
    assert_eq!(answer["limits"][1]["remaining"], 100);
    assert_eq!(
        post(service.http, "reserve", &tokens(1, 25, "s")).await.0,
        429
    );
    let (status, answer) = post(service.http, "commit", &tokens(90, 50, "r")).await;
    assert_eq!(status, 200, "{answer}");
    // Of a budget, amounts are in its own unit.
    has(&answer, json!({"reserved": 900, "committed": 290}));
    assert_eq!(answer["remaining"], 710);
    let (_, answer) = post(service.http, "commit", &tokens(1, 1, "r")).await;
    has(&answer, json!({"committed": 290, "repeated": true}));
}
