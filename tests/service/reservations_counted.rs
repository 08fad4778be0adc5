//! Counters of reservations: once a step, in every store, in a bounded number of series.

use serde_json::{Value, json};
use tollgate::metrics::{REQUEST_LABEL_SETS_MAX, ReservationResult};
use tollgate_test_support::grpc_client::{Descriptor, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;
use tollgate_test_support::redis_server::RedisServer;

use crate::service::{api, flags};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000, reserve: { key: id, amount: 100, expires: 24h } }
  - key: detailed
    detailed_metric: true
    rate_limit: { unit: year, requests_per_unit: 1000, reserve: { amount: 100 } }
";

const OF: &str = r#"domain="d",key1="user",key2="""#;

/// How long a check waits for a store that has stopped, in milliseconds. One that runs answers
/// within it, also on a busy machine.
const SHORT: u64 = 3_000;

async fn post(service: &Service, call: &str, (key, value): (&str, &str), more: Value) -> u16 {
    api::post(service.http, call, &api::body(key, value, more))
        .await
        .0
}

async fn stream(service: &mut Service, id: &str, hits: u64) {
    let descriptor = Descriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "v"), ("id", id)])
    };
    service.ask(request("d", vec![descriptor])).await;
}

/// Waits until the store decides: the shared one, since no fallback knows this id. The clock moves,
/// since a breaker that opened is probed by it.
async fn decides(service: &Service) {
    let unknown = json!({"hits": 1, "reservation": "r"});
    let decided = async || {
        service.clock.advance_us(10_000);
        let status = post(service, "commit", ("detailed", "v"), unknown.clone()).await;
        (status == 404).then_some(()).ok_or(status)
    };
    until_async("the shared store decides", decided).await;
}

fn results(service: &Service) -> Vec<(&'static str, u64)> {
    let counts = ReservationResult::ALL.into_iter().map(|result| {
        let result = result.name();
        let series = format!(r#"tollgate_reservations_total{{{OF},result="{result}"}}"#);
        (result, service.metric(&series))
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Reserves 900 of the 1,000.
async fn reserve_most(service: &mut Service) {
    for (id, hits) in [("1", 300), ("2", 300), ("3", 200)] {
        let more = json!({"hits": hits, "reservation": id});
        assert_eq!(post(service, "reserve", ("user", "v"), more).await, 200);
    }
    stream(service, "4", 0).await;
    // Refused, and remembered.
    let more = json!({"hits": 101, "reservation": "5"});
    assert_eq!(post(service, "reserve", ("user", "v"), more).await, 429);
}

/// Each end of a reservation, some of them twice.
async fn settle_all(service: &mut Service) {
    for (call, more, status) in [
        ("extend", json!({"reservation": "1", "expires": "90s"}), 200),
        ("commit", json!({"reservation": "1", "hits": 200}), 200),
        ("commit", json!({"reservation": "1", "hits": 200}), 200),
        ("release", json!({"reservation": "2"}), 200),
        ("commit", json!({"reservation": "3", "hits": 250}), 200),
        ("commit", json!({"reservation": "never", "hits": 9}), 404),
        (
            "extend",
            json!({"reservation": "never", "expires": "90s"}),
            404,
        ),
    ] {
        assert_eq!(
            post(service, call, ("user", "v"), more.clone()).await,
            status,
            "{call} {more}"
        );
    }
    stream(service, "4", 40).await;
    stream(service, "unknown", 5).await;
}

const EXPECTED: [(&str, u64); 8] = [
    ("reserved", 4),
    ("refused", 1),
    ("committed", 3),
    ("released", 1),
    ("extended", 1),
    ("charged", 1),
    ("repeated", 1),
    ("unknown", 2),
];

fn assert_counted(service: &Service, store: &str) {
    assert_eq!(results(service), EXPECTED, "{store}");
    // Of 300, 300 and 100; of 200.
    for (name, value) in [
        ("tollgate_reservation_hits_returned_total", 100 + 300 + 60),
        ("tollgate_reservation_hits_excess_total", 50),
        ("tollgate_reservation_used_ratio_count", 3),
    ] {
        assert_eq!(
            service.metric(&format!("{name}{{{OF}}}")),
            value,
            "{store}: {name}"
        );
    }
}

#[tokio::test]
async fn each_step_is_counted_once_in_every_store() {
    let redis = [(); 2].map(|()| RedisServer::start(&[]));
    let [exact, leased] = redis.each_ref().map(RedisServer::url);
    let exact = format!("--store {exact} --store-deadline-ms 10000");
    let leased = format!("--store {leased} --store-mode leased --store-deadline-ms 10000");
    for (store, line) in [("memory", ""), ("exact", &exact), ("leased", &leased)] {
        let mut service = Service::start(RULES, &flags(line)).await;
        decides(&service).await;
        reserve_most(&mut service).await;
        settle_all(&mut service).await;
        assert_counted(&service, store);
    }
}

#[tokio::test]
async fn each_step_is_counted_once_when_the_fallback_made_the_reservations() {
    let redis = RedisServer::start(&[]);
    let store = redis.url();
    let line = format!("--store {store} --on-store-failure local --store-deadline-ms {SHORT}");
    let mut service = Service::start(RULES, &flags(&line)).await;
    redis.signal("STOP");
    reserve_most(&mut service).await;
    redis.signal("CONT");
    decides(&service).await;
    settle_all(&mut service).await;
    assert_counted(&service, "failover");
}

#[tokio::test]
async fn values_of_reservations_make_a_bounded_number_of_series() {
    let service = Service::start(RULES, &[]).await;
    let values = REQUEST_LABEL_SETS_MAX + 100;
    for number in 0..values {
        let of = ("detailed", number.to_string());
        let more = json!({"hits": 1, "reservation": "r"});
        assert_eq!(post(&service, "reserve", (of.0, &of.1), more).await, 200);
    }
    let text = service.metrics.render().unwrap();
    for name in [
        "tollgate_reservations_total",
        "tollgate_reservation_hits_returned_total",
        "tollgate_reservation_hits_excess_total",
        "tollgate_reservation_used_ratio_count",
    ] {
        let begins = format!("{name}{{");
        let series = text
            .lines()
            .filter(|line| line.starts_with(&begins))
            .count();
        let results = match name {
            "tollgate_reservations_total" => ReservationResult::ALL.len(),
            _ => 1,
        };
        // Those of requests, of the rule, and the overflow.
        let most = results * (REQUEST_LABEL_SETS_MAX + 2);
        assert!(
            series <= most && series >= results * REQUEST_LABEL_SETS_MAX,
            "{name}: {series}"
        );
    }
    let reserved = |line: &&str| {
        line.starts_with("tollgate_reservations_total{") && line.contains(r#"result="reserved""#)
    };
    let counted = text.lines().filter(reserved).map(|line| {
        let (_, value) = line.rsplit_once(' ').unwrap();
        value.parse::<usize>().unwrap()
    });
    assert_eq!(counted.sum::<usize>(), values, "each once");
}
