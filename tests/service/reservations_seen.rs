//! What operators see of reservations: amounts that are learnt, metrics, decisions, `/limits` and
//! top keys.
//!
//! What it deliberately does not do: test the estimates
//! (`crates/engine/src/estimates/tests.rs`), or what a reservation takes (`walks/streams.txt`).

use serde_json::{Value, json};
use tollgate::admin_api::RankBy;
use tollgate::top_keys::TopQuery;
use tollgate_test_support::grpc_client::{Code, Descriptor, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

use crate::service::admin::get;
use crate::service::api::{body, post};

const RULES: &str = "domain: d
descriptors:
  - key: fixed
    rate_limit: {unit: hour, requests_per_unit: 1000, reserve: {key: id, amount: 400}}
  - key: learnt
    rate_limit: {unit: hour, requests_per_unit: 4000000, reserve: {key: id, amount: p95, floor: 50, ceiling: 2000}}
  - key: each
    rate_limit: {unit: hour, requests_per_unit: 4000000, reserve: {key: id, amount: p90, per: key, floor: 50, ceiling: 9000}}
  - key: plain
    rate_limit: {unit: hour, requests_per_unit: 5}
";

async fn start() -> Service {
    Service::start(RULES, &["--top-keys", "plain"]).await
}

/// Starts (0) or ends a stream. Whether it passes.
async fn stream(service: &mut Service, key: &str, value: &str, id: &str, hits: u64) -> bool {
    service.clock.advance_us(1_000);
    let sent = Descriptor {
        hits_addend: Some(hits),
        ..descriptor(&[(key, value), ("id", id)])
    };
    service.ask(request("d", vec![sent])).await.overall_code() == Code::Ok
}

/// Calls the API about `KEY=v`.
async fn call(service: &Service, call: &str, key: &str, more: Value) -> u16 {
    service.clock.advance_us(1_000);
    post(service.http, call, &body(key, "v", more)).await.0
}

/// What the last decision says of a reservation.
async fn seen(service: &Service) -> Value {
    let decisions = get(service.admin, "/decisions?n=1").await.json();
    decisions["decisions"][0]["descriptors"][0]["reservation"].clone()
}

/// The amount that a start reserves, which is released again.
async fn amount(service: &mut Service, key: &str, value: &str) -> u64 {
    assert!(stream(service, key, value, "probe", 0).await);
    seen(service).await["reserved"].as_u64().unwrap()
}

/// What a decision says: operation, result, and the hits that were reserved, committed and
/// returned,
/// `-` for none.
fn record(text: &str) -> Value {
    let [operation, result, reserved, committed, returned] =
        text.split(' ').collect::<Vec<_>>()[..]
    else {
        panic!("{text}");
    };
    let hits = |text: &str| text.parse::<u64>().ok();
    json!({
        "operation": operation, "result": result,
        "reserved": hits(reserved), "committed": hits(committed), "returned": hits(returned),
    })
}

#[tokio::test]
async fn a_learnt_amount_follows_ends_and_outlives_a_reload() {
    let mut service = start().await;
    assert_eq!(amount(&mut service, "learnt", "v").await, 50, "the floor");
    for n in 0..100 {
        let id = n.to_string();
        assert!(stream(&mut service, "learnt", "v", &id, 0).await);
        // Ends without a start teach, too.
        let other = format!("other-{n}");
        for id in [&id, &other] {
            assert!(stream(&mut service, "learnt", "v", id, 1_000).await);
        }
    }
    let learnt = amount(&mut service, "learnt", "v").await;
    assert!((1_000..=1_063).contains(&learnt), "{learnt}");
    // A rule's estimate is that of all its buckets.
    assert_eq!(amount(&mut service, "learnt", "w").await, learnt);
    let reloaded =
        format!("{RULES}  - key: new\n    rate_limit: {{unit: hour, requests_per_unit: 1}}\n");
    service.reload(&reloaded).await;
    assert_eq!(amount(&mut service, "learnt", "v").await, learnt);
    for n in 0..100 {
        assert!(stream(&mut service, "learnt", "v", &n.to_string(), 10_000).await);
    }
    assert_eq!(
        amount(&mut service, "learnt", "v").await,
        2_000,
        "the ceiling"
    );
    assert!(service.metric("tollgate_estimates_memory_bytes") <= 4 << 20);
}

#[tokio::test]
async fn an_estimate_per_key_is_that_of_the_key() {
    let mut service = start().await;
    for n in 0..150 {
        let id = n.to_string();
        assert!(stream(&mut service, "each", "short", &id, 100).await);
        assert!(stream(&mut service, "each", "long", &id, 8_000).await);
    }
    let short = amount(&mut service, "each", "short").await;
    let long = amount(&mut service, "each", "long").await;
    let new = amount(&mut service, "each", "new").await;
    assert!((100..150).contains(&short), "{short}");
    assert!((8_000..=9_000).contains(&long), "{long}");
    assert!((8_000..=8_500).contains(&new), "the rule's: {new}");
}

#[tokio::test]
async fn the_api_reserves_and_teaches_learnt_amounts() {
    let service = start().await;
    for n in 0..20 {
        let id = n.to_string();
        let reserve = json!({"reservation": id});
        assert_eq!(call(&service, "reserve", "learnt", reserve).await, 200);
        assert_eq!(
            seen(&service).await["reserved"].as_u64().unwrap() == 50,
            n < 16,
            "{n}"
        );
        let commit = json!({"reservation": id, "hits": 700});
        assert_eq!(call(&service, "commit", "learnt", commit).await, 200);
    }
}

#[tokio::test]
async fn a_decision_says_what_became_of_a_reservation() {
    let mut service = start().await;
    for (id, hits, passes, expected) in [
        ("1", 0, true, "reserve reserved 400 - -"),
        ("2", 0, true, "reserve reserved 400 - -"),
        ("3", 0, false, "reserve refused 400 - -"),
        ("3", 9, true, "commit ignored - 9 -"),
        ("1", 300, true, "commit committed 400 300 100"),
        ("2", 600, true, "commit committed 400 600 0"),
        ("4", 5, true, "commit charged - 5 -"),
    ] {
        assert_eq!(stream(&mut service, "fixed", "v", id, hits).await, passes);
        assert_eq!(seen(&service).await, record(expected), "{id} {hits}");
    }
    let a = json!({"reservation": "a"});
    let reserve = json!({"reservation": "a", "hits": 1_000});
    let extend = json!({"reservation": "a", "expires": "90s"});
    let unknown = json!({"reservation": "b"});
    for (operation, body, status, expected) in [
        ("reserve", reserve, 200, "reserve reserved 1000 - -"),
        ("extend", extend, 200, "extend extended - - -"),
        ("release", a.clone(), 200, "release released 1000 - 1000"),
        ("release", a, 200, "release repeated 1000 - 1000"),
        ("release", unknown, 404, "release unknown - - -"),
    ] {
        assert_eq!(call(&service, operation, "learnt", body).await, status);
        assert_eq!(seen(&service).await, record(expected), "{operation}");
    }
    // A check says nothing of reservations.
    service.clock.advance_us(1_000);
    service
        .ask(request("d", vec![descriptor(&[("plain", "v")])]))
        .await;
    let decisions = get(service.admin, "/decisions?n=1").await.json();
    let plain = &decisions["decisions"][0]["descriptors"][0];
    assert_eq!(plain["rule"], "d.plain");
    assert!(plain.get("reservation").is_none(), "{plain}");
}

#[tokio::test]
async fn reservations_are_counted_by_rule() {
    let mut service = start().await;
    let series = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("reservation"));
        lines.filter(|line| line.contains("key1=")).count()
    };
    service
        .ask(request("d", vec![descriptor(&[("plain", "v")])]))
        .await;
    let before = service.metrics.render().unwrap();
    assert_eq!(
        series(&before),
        0,
        "a plain check makes no series: {before}"
    );
    for (id, hits) in [
        ("1", 0),
        ("2", 0),
        ("3", 0),
        ("3", 9),
        ("1", 300),
        ("2", 600),
        ("4", 5),
    ] {
        stream(&mut service, "fixed", "v", id, hits).await;
    }
    assert_eq!(
        call(&service, "release", "fixed", json!({"reservation": "no"})).await,
        404
    );
    let of = r#"domain="d",key1="fixed",key2="""#;
    for (result, count) in [
        ("reserved", 2),
        ("refused", 1),
        ("ignored", 1),
        ("committed", 2),
        ("charged", 1),
        ("unknown", 1),
        ("released", 0),
        ("too_many", 0),
        ("extended", 0),
        ("repeated", 0),
    ] {
        let name = format!(r#"tollgate_reservations_total{{{of},result="{result}"}}"#);
        assert_eq!(service.metric(&name), count, "{result}");
    }
    for (name, value) in [
        ("tollgate_reservation_hits_returned_total", 100),
        ("tollgate_reservation_hits_excess_total", 200),
        ("tollgate_reservation_used_ratio_count", 2),
    ] {
        assert_eq!(service.metric(&format!("{name}{{{of}}}")), value, "{name}");
    }
    for (bound, count) in [("0.5", 0), ("0.75", 1), ("1.25", 1), ("1.5", 2)] {
        let name = format!(r#"tollgate_reservation_used_ratio_bucket{{{of},le="{bound}"}}"#);
        assert_eq!(service.metric(&name), count, "{bound}");
    }
    let limits = get(service.admin, "/limits").await.json();
    assert_eq!(
        limits["limits"][0]["reservations"],
        json!({
            "reserved": 2, "refused": 1, "committed": 2, "released": 0, "charged": 1,
            "unknown": 1, "hits_returned": 100, "hits_excess": 200,
        })
    );
    assert!(limits["limits"][3].get("reservations").is_none());
}

#[tokio::test]
async fn a_reservation_that_another_limit_refuses_is_counted_as_refused() {
    let mut service = start().await;
    for id in ["1", "2"] {
        stream(&mut service, "fixed", "v", id, 0).await;
    }
    let start = |key: &str| Descriptor {
        hits_addend: Some(0),
        ..descriptor(&[(key, "v"), ("id", "9")])
    };
    let both = request("d", vec![start("learnt"), start("fixed")]);
    assert_eq!(service.ask(both).await.overall_code(), Code::OverLimit);
    for (result, count) in [("refused", 1), ("reserved", 0)] {
        let name = format!(
            r#"tollgate_reservations_total{{domain="d",key1="learnt",key2="",result="{result}"}}"#
        );
        assert_eq!(service.metric(&name), count, "{result}");
    }
}

#[tokio::test]
async fn top_keys_count_a_reservation_and_what_a_commit_exceeds_it_by() {
    let mut service = start().await;
    for (id, hits) in [("1", 0), ("2", 0), ("1", 300), ("2", 600), ("4", 5)] {
        assert!(stream(&mut service, "fixed", "v", id, hits).await);
    }
    assert_eq!(asked_of_keys(&service).await, [400 + 400 + 200 + 5]);
    // By the API as well.
    let service = start().await;
    for (name, more) in [
        ("reserve", json!({"hits": 300, "reservation": "a"})),
        ("commit", json!({"hits": 350, "reservation": "a"})),
        ("commit", json!({"hits": 350, "reservation": "a"})),
        ("reserve", json!({"hits": 100, "reservation": "b"})),
        ("release", json!({"reservation": "b"})),
        ("peek", json!({"hits": 9})),
    ] {
        assert_eq!(call(&service, name, "fixed", more).await, 200, "{name}");
    }
    assert_eq!(asked_of_keys(&service).await, [300 + 50 + 100]);
}

/// The hits that each key asked for.
async fn asked_of_keys(service: &Service) -> Vec<u64> {
    let query = TopQuery {
        by: RankBy::Asked,
        n: 20,
        ..TopQuery::default()
    };
    let top = service.top(&query).await;
    top.keys.iter().map(|key| key.asked).collect()
}

#[tokio::test]
async fn the_series_of_a_removed_rule_are_freed() {
    let mut service = start().await;
    assert!(stream(&mut service, "fixed", "v", "1", 0).await);
    assert!(stream(&mut service, "fixed", "v", "1", 9).await);
    let counted = |text: &str| {
        let of_rule = text.lines().filter(|line| line.contains("key1=\"fixed\""));
        of_rule.filter(|line| line.contains("reservation")).count()
    };
    assert!(counted(&service.metrics.render().unwrap()) > 20);
    service
        .reload("domain: d\ndescriptors:\n  - key: other\n    rate_limit: {unit: hour, requests_per_unit: 1}\n")
        .await;
    // A core keeps old rules until its next request.
    service
        .ask(request("d", vec![descriptor(&[("other", "v")])]))
        .await;
    // It lets go of them after its answer has left. Series go two scrapes later.
    let freed = async || counted(&service.metrics.render().unwrap()) == 0;
    until_async("the series of a removed rule are freed", freed).await;
}
