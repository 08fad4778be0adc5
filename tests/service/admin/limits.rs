//! `GET /limits` and `GET /partitions`.

use serde_json::{Value, json};
use tollgate_test_support::grpc_client::{descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

use super::{RULES, get};

async fn limits(service: &Service, query: &str) -> Value {
    let reply = get(service.admin, &format!("/limits{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(
        reply.head.contains("cache-control: no-store"),
        "{}",
        reply.head
    );
    reply.json()
}

/// The entry of one rule.
fn rule<'v>(limits: &'v Value, name: &str) -> &'v Value {
    let all = limits["limits"].as_array().expect("a list");
    let found: Vec<_> = all.iter().filter(|limit| limit["rule"] == name).collect();
    assert_eq!(found.len(), 1, "{name}: {limits}");
    found[0]
}

async fn ask(service: &mut Service, key: &str, value: &str, hits: u32) {
    let mut asked = request("d", vec![descriptor(&[(key, value)])]);
    asked.hits_addend = hits;
    service.ask(asked).await;
}

#[tokio::test]
async fn limits_have_the_exact_hits_of_each_rule_while_metrics_are_read() {
    let mut service = Service::start(RULES, &["--statsd-host", "127.0.0.1"]).await;
    let empty = limits(&service, "").await;
    let names: Vec<_> = empty["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| limit["rule"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "d.user",
            "d.plan_gold name=hourly",
            "d.plan_gold name=daily",
            "d.free",
            "d.path"
        ]
    );
    assert_eq!(
        rule(&empty, "d.plan_gold name=hourly")["limit"],
        json!({
            "requests_per_unit": 3, "unit": "hour", "unit_multiplier": 1,
            "algorithm": "fixed_window", "burst": 3, "text": "3 per hour",
        })
    );
    assert_eq!(rule(&empty, "d.free")["limit"], Value::Null);
    assert_eq!(rule(&empty, "d.free")["unlimited"], true);
    for round in 0..4 {
        ask(&mut service, "user", "a", 1).await;
        ask(&mut service, "path", "/a", 1).await;
        ask(&mut service, "path", &format!("/{round}"), 1).await;
        if round % 2 == 0 {
            // A scrape takes the counts.
            assert_eq!(
                service.metric(
                    "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"user\",key2=\"\"}"
                ),
                round + 1
            );
        }
    }
    let now = limits(&service, "").await;
    assert_eq!(
        rule(&now, "d.user")["hits"],
        json!({
            "total": 4, "admitted": 2, "refused": 2, "would_refuse": 0, "overruled": 0,
            "charged": 0, "near": 1
        })
    );
    // Its labels hold the values, and it has the hits of all of them.
    let path = &rule(&now, "d.path")["hits"];
    assert_eq!((&path["total"], &path["refused"]), (&json!(8), &json!(3)));
    assert_eq!(
        service.metric(
            "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"user\",key2=\"\"}"
        ),
        4
    );
    // A reload keeps the hits of rules that stay.
    service
        .reload(&format!(
            "{RULES}\n  - key: new\n    rate_limit: {{ unit: hour, requests_per_unit: 1 }}\n"
        ))
        .await;
    let after = limits(&service, "").await;
    assert_eq!(rule(&after, "d.user")["hits"], rule(&now, "d.user")["hits"]);
    assert_eq!(rule(&after, "d.path")["hits"], *path);
    assert_eq!(rule(&after, "d.new")["hits"]["total"], 0);
}

#[tokio::test]
async fn limits_are_filtered_by_domain_and_rule() {
    let service = Service::start(RULES, &[]).await;
    for (query, count) in [
        ("?domain=d", 5),
        ("?domain=e", 0),
        ("?rule=d.user", 1),
        ("?rule=d.plan_gold+name%3Ddaily&domain=d", 1),
        ("?rule=d.user&domain=e", 0),
        ("?rule=", 5),
    ] {
        let found = limits(&service, query).await;
        assert_eq!(found["limits"].as_array().unwrap().len(), count, "{query}");
        assert_eq!(found["omitted"], 0);
    }
    for (query, why) in [
        ("?rules=x", "the parameters are domain, rule"),
        ("?rule=%", "%XX"),
        ("?rule=%00%ff", "%XX"),
        ("?rule=a&rule=b", "twice"),
    ] {
        let reply = get(service.admin, &format!("/limits{query}")).await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.error().contains(why), "{query}: {}", reply.body);
    }
    let reply = get(service.admin, "/partitions?x=1").await;
    assert_eq!(reply.status, 400);
    let huge = format!("/limits?rule={}", "x".repeat(100_000));
    assert_eq!(get(service.admin, &huge).await.status, 414);
    assert_eq!(get(service.admin, "/limits").await.status, 200);
}

#[tokio::test]
async fn rates_appear_while_somebody_looks() {
    let mut service = Service::start(RULES, &[]).await;
    // The arithmetic has a test of its own, on samples at known times.
    let look = async || {
        ask(&mut service, "user", "a", 1).await;
        service.clock.advance_us(1_000_000);
        let now = limits(&service, "?rule=d.user").await;
        let rates = &now["limits"][0]["rates"];
        let is_positive = |name: &str| rates[name].as_f64().unwrap() > 0.0;
        (is_positive("total") && is_positive("seconds"))
            .then_some(())
            .ok_or(now)
    };
    until_async("there is a rate", look).await;
}

#[tokio::test]
async fn partitions_count_what_they_admit_refuse_and_evict() {
    let mut service = Service::start(RULES, &["--partitions", "2"]).await;
    for user in 0..10 {
        for _ in 0..3 {
            ask(&mut service, "user", &user.to_string(), 1).await;
        }
    }
    let sum = |answer: &Value, field: &str| -> u64 {
        let partitions = answer["partitions"].as_array().unwrap().iter();
        partitions
            .map(|partition| partition[field].as_u64().unwrap())
            .sum()
    };
    // Counts are shown soon after the answers.
    let look = async || {
        let reply = get(service.admin, "/partitions").await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let answer = reply.json();
        let decided = sum(&answer, "admitted") + sum(&answer, "refused");
        if decided == 30 {
            Ok(answer)
        } else {
            Err(answer)
        }
    };
    let answer = until_async("there are 30 decisions", look).await;
    assert_eq!(answer["partitions"].as_array().unwrap().len(), 2);
    assert_eq!(sum(&answer, "admitted"), 20);
    assert_eq!(sum(&answer, "refused"), 10);
    assert_eq!(sum(&answer, "buckets"), 10);
    assert_eq!(sum(&answer, "queue_checks"), 0);
    assert!(sum(&answer, "memory_bytes") > 0);
    let store = &answer["store"];
    assert_eq!(
        (&store["kind"], &store["mode"]),
        (&json!("memory"), &Value::Null)
    );
    assert_eq!(
        (&store["healthy"], &store["nodes"]),
        (&json!(true), &json!([]))
    );
    assert!(store["memory_max_bytes"].as_u64().unwrap() > 0);
    // Two windows later the sweep removes them.
    service.clock.advance_us(2 * 3_600_000_000);
    let look = async || {
        let answer = get(service.admin, "/partitions").await.json();
        let is_empty = sum(&answer, "freed") == 10 && sum(&answer, "buckets") == 0;
        is_empty.then_some(()).ok_or(answer)
    };
    until_async("all buckets are freed", look).await;
    assert_eq!(
        sum(&get(service.admin, "/partitions").await.json(), "forgotten"),
        0
    );
}

#[tokio::test]
async fn top_and_decisions_answer_with_their_filters() {
    let mut service = Service::start(RULES, &["--top-keys", "plain"]).await;
    for _ in 0..5 {
        ask(&mut service, "user", "a", 1).await;
    }
    ask(&mut service, "user", "b", 1).await;
    ask(&mut service, "plan", "gold", 1).await;
    let get = async |path: &str| {
        let reply = get(service.admin, path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        reply.json()
    };
    let first = get("/top?by=refused&window=1m&n=1&domain=d&rule=d.user").await;
    let keys = first["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 1, "{first}");
    assert_eq!(
        keys[0]["descriptor"],
        json!([{"key": "user", "value": "a"}])
    );
    assert_eq!(
        (&keys[0]["asked"], &keys[0]["refused"]),
        (&json!(5), &json!(3))
    );
    assert_eq!(
        (&first["by"], &first["window"]),
        (&json!("refused"), &json!("1m"))
    );
    let one = get("/top?by=asked&window=1h&descriptor=user=b").await;
    assert_eq!(one["keys"].as_array().unwrap().len(), 1, "{one}");
    let over = get("/decisions?verdict=OVER_LIMIT&key=user=a&n=2&rule=d.user&domain=d").await;
    let over = over["decisions"].as_array().unwrap();
    assert_eq!(over.len(), 2, "{over:?}");
    assert_eq!(over[0]["reason"], "over_limit");
    let all = get("/decisions").await;
    assert_eq!(all["decisions"].as_array().unwrap().len(), 7, "{all}");
    for (path, why) in [
        ("/top?by=size", "use refused or asked"),
        ("/top?window=5m", "use 1m or 1h"),
        ("/top?n=1001", "from 0 to 1000"),
        ("/top?n=-1", "from 0 to 1000"),
        ("/top?descriptor=a", "KEY=VALUE"),
        ("/top?limit=1", "the parameters are by, window"),
        ("/decisions?verdict=ok", "use OK or OVER_LIMIT or ERROR"),
        ("/decisions?reason=x", "use within_limit or"),
        ("/decisions?n=x", "whole number"),
        ("/decisions?key==a", "KEY=VALUE"),
        ("/events?verdict=ok", "use OK or OVER_LIMIT or ERROR"),
        ("/events?decisions_per_second_max=1001", "from 0 to 1000"),
    ] {
        let reply = super::get(service.admin, path).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.error().contains(why), "{path}: {}", reply.body);
    }
}

#[tokio::test]
async fn limits_show_reservations_costs_and_budgets() {
    let rules = "domain: d
descriptors:
  - key: tokens
    rate_limit: {unit: day, requests_per_unit: 9, cost: 0.000001, budget: b, reserve: {key: id, amount: p90, per: key, expires: 5m}}
  - key: api
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 4, on_expiry: release}}
  - key: plain
    rate_limit: {unit: day, requests_per_unit: 9}
";
    let service = Service::start(rules, &[]).await;
    let shown = limits(&service, "").await;
    let tokens = rule(&shown, "d.tokens");
    let learnt = json!({
        "key": "id", "amount": "p90", "floor": 1, "ceiling": 9, "per": "key",
        "expires_ms": 300_000, "on_expiry": "charge",
    });
    assert_eq!(tokens["reserve"], learnt);
    assert_eq!(
        (&tokens["cost"], &tokens["budget"]),
        (&json!("0.000001"), &json!("b"))
    );
    let fixed = json!({
        "key": null, "amount": "4", "floor": null, "ceiling": null, "per": null,
        "expires_ms": 60_000, "on_expiry": "release",
    });
    assert_eq!(rule(&shown, "d.api")["reserve"], fixed);
    let plain = rule(&shown, "d.plain").as_object().unwrap();
    for absent in ["reserve", "cost", "budget"] {
        assert!(!plain.contains_key(absent), "{absent}");
    }
}
