//! What the admin API and metrics show of quotas: figures of rules, buckets and streams.
//!
//! What it deliberately does not do: test what is assigned (`quotas`), or draw it
//! (`tests/browser`).

use serde_json::{Value, json};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

use crate::service::admin::get;
use crate::service::quotas::{API, Proxy, learnt, usage};

async fn quotas(service: &Service, query: &str) -> Value {
    let reply = get(service.admin, &format!("/quotas{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// Two streams that report 200 and 20 requests a second of one bucket, and a stream with a bucket
/// of a user. Returns once the assignments follow the reports.
async fn reporting(arguments: &[&str]) -> (Service, [Proxy; 2], Value) {
    let service = learnt(arguments).await;
    let mut proxies = [Proxy::open(&service).await, Proxy::open(&service).await];
    let user: &[(&[u8], &[u8])] = &[(b"user", b"ann"), (b"route", b"/a")];
    let first = vec![usage(API, 1, 0), usage(user, 1, 0)];
    // One after the other: the first share is the larger one.
    proxies[0].report(b"edge", first).await;
    proxies[0].next().await.unwrap();
    proxies[1].report(b"edge", vec![usage(API, 1, 0)]).await;
    proxies[1].next().await.unwrap();
    // No longer than a message may be on its way: otherwise one that is would end its stream.
    service.clock.advance_us(2_000_000);
    let demand = vec![usage(API, 300, 100)];
    proxies[0].report(b"edge", demand).await;
    proxies[1].report(b"edge", vec![usage(API, 40, 0)]).await;
    let follow = async || {
        let detail = quotas(&service, "?id=name=api").await;
        let assigned = |stream: usize| detail["buckets"][0]["streams"][stream]["assigned"].as_f64();
        // The first assignments are 150 and 75.
        (assigned(0) > Some(200.0) && assigned(1) < Some(30.0))
            .then_some(())
            .ok_or(detail)
    };
    until_async("the assignments follow the reports", follow).await;
    let seen = quotas(&service, "").await;
    (service, proxies, seen)
}

#[tokio::test]
async fn quotas_have_the_figures_of_buckets_and_of_their_streams() {
    let (service, proxies, seen) = reporting(&["--top-keys", "plain"]).await;
    assert_eq!(seen["learning_seconds"], 0.0);
    assert_eq!(seen["values"], "plain");
    assert_eq!(seen["omitted"], 0);
    let bucket = &seen["buckets"][0];
    assert_eq!(bucket["rule"], "edge.name_api");
    assert_eq!(bucket["id"], json!([{"key": "name", "value": "api"}]));
    assert_eq!(bucket["streams"], Value::Null);
    let figures = &bucket["figures"];
    for (name, value) in [("limit", 300.0), ("allowed", 170.0), ("denied", 50.0)] {
        assert_eq!(figures[name], value, "{name}: {figures}");
    }
    assert_eq!(figures["streams"], 2);
    // The demand and a tenth more, give or take the hysteresis.
    let rate = |name: &str| figures[name].as_f64().unwrap();
    assert!((rate("assigned") - 242.0).abs() < 24.0, "{figures}");
    assert!(
        rate("in_force") >= rate("assigned") && rate("in_force") <= 300.0,
        "{figures}"
    );
    let user = &seen["buckets"][1];
    let id = json!([{"key": "route", "value": "/a"}, {"key": "user", "value": "ann"}]);
    assert_eq!((&user["id"], &user["figures"]["limit"]), (&id, &json!(1.0)));
    assert_eq!(seen["rules"].as_array().unwrap().len(), 2, "{seen}");

    let detail = quotas(&service, "?id=name=api").await;
    assert_eq!(detail["buckets"].as_array().unwrap().len(), 1);
    let streams = detail["buckets"][0]["streams"].as_array().unwrap();
    let shown: Vec<_> = streams
        .iter()
        .map(|stream| {
            let number = |name: &str| stream[name].as_f64().unwrap();
            (number("stream"), number("demand"), number("fair_share"))
        })
        .collect();
    assert_eq!(shown, [(1.0, 200.0, 220.0), (2.0, 20.0, 22.0)]);
    let assigned = streams[0]["assigned"].as_f64().unwrap();
    assert!((assigned - 220.0).abs() < 22.0, "{detail}");
    assert_eq!(streams[0]["reported_seconds_ago"], 0.0);
    assert_eq!(streams[0]["expires_in_seconds"], 20.0);

    for (query, buckets, omitted) in [
        ("?n=1", 1, 1),
        ("?n=0", 0, 2),
        ("?rule=edge.name_api", 1, 0),
        ("?domain=other", 0, 0),
        ("?id=user=bob", 0, 0),
    ] {
        let some = quotas(&service, query).await;
        let count = some["buckets"].as_array().unwrap().len();
        assert_eq!(
            (count, &some["omitted"]),
            (buckets, &json!(omitted)),
            "{query}"
        );
    }
    let refused = get(service.admin, "/quotas?n=1001").await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    drop(proxies);
}

#[tokio::test]
async fn values_of_ids_are_hashed_unless_they_are_to_be_plain() {
    let (service, proxies, seen) = reporting(&[]).await;
    assert_eq!(seen["values"], "hashed");
    let text = seen.to_string();
    assert!(!text.contains("ann") && !text.contains("/a\""), "{text}");
    let shown = seen["buckets"][1]["id"][1]["value"].as_str().unwrap();
    assert!(shown.starts_with('#') && shown.len() == 17, "{shown}");
    // A reader who knows the value, or its hash, finds the bucket.
    for value in ["ann", &format!("%23{}", &shown[1..])] {
        let found = quotas(&service, &format!("?id=user={value}")).await;
        assert_eq!(found["buckets"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(found["buckets"][0]["streams"].as_array().unwrap().len(), 1);
    }
    drop(proxies);
}

#[tokio::test]
async fn limits_and_metrics_have_the_sums_of_rules() {
    let (service, proxies, _) = reporting(&[]).await;
    let rule = |limits: &Value, name: &str| {
        let all = limits["limits"].as_array().unwrap();
        let found = all.iter().find(|limit| limit["rule"] == name);
        found.expect(name).clone()
    };
    // Sums are read each two seconds.
    let look = async || {
        let limits = get(service.admin, "/limits").await.json();
        let is_read = rule(&limits, "edge.name_api")["rlqs"]["demand"] == 220.0;
        if is_read { Ok(limits) } else { Err(limits) }
    };
    let limits = until_async("the sums are read", look).await;
    let figures = &rule(&limits, "edge.name_api")["rlqs"];
    assert_eq!(
        (&figures["buckets"], &figures["streams"]),
        (&json!(1), &json!(2))
    );
    assert!(figures["assigned"].as_f64() > Some(0.0), "{figures}");
    assert_eq!(rule(&limits, "edge.route.user")["rlqs"]["limit"], 1.0);
    assert_eq!(rule(&limits, "edge.other").get("rlqs"), None);
    for (name, value) in [
        ("limit_per_second", 300),
        ("demand_per_second", 220),
        ("allowed_per_second", 170),
        ("denied_per_second", 50),
        ("rule_buckets", 1),
        ("rule_shares", 2),
    ] {
        let series = format!("tollgate_quota_{name}{{domain=\"edge\",rule=\"edge.name_api\"}}");
        assert_eq!(service.metric(&series), value, "{series}");
    }
    drop(proxies);
}

#[tokio::test]
async fn a_quota_without_streams_has_figures_and_other_services_have_none() {
    let service = learnt(&[]).await;
    let limits = get(service.admin, "/limits?rule=edge.name_api")
        .await
        .json();
    let figures = &limits["limits"][0]["rlqs"];
    assert_eq!(
        (&figures["buckets"], &figures["streams"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(quotas(&service, "").await["buckets"], json!([]));
    let text = get(service.admin, "/").await.body;
    assert!(text.contains("/quotas: "), "{text}");
}
