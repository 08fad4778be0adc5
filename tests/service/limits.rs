//! Limits over gRPC in every algorithm: limits of none, changed limits, slots on the wire.
//!
//! What it deliberately does not do: test the algorithms (the laws of `crates/limiter`), the
//! grammar (`tests/rules`), or several limits on one descriptor (`walks/limits.txt`).

use tollgate_limiter::{ALGORITHMS, Algorithm, AlgorithmOption};

use tollgate_test_support::grpc_client::{Code, Descriptor, descriptor, hits, request};
use tollgate_test_support::in_process::{Service, limit_of};

/// Rules of one descriptor, `k`.
async fn with(fields: &str, arguments: &[&str]) -> Service {
    let rules = format!("domain: d\ndescriptors:\n  - {{key: k, {fields}}}\n");
    Service::start(&rules, arguments).await
}

fn k(count: u64) -> Descriptor {
    hits("k", "v", count)
}

const SLOTS: &str =
    "rate_limit: {algorithm: concurrency, requests_per_unit: 2, slot_seconds: 60, holder_key: id}";

/// A hit by `id`.
fn by(id: &str) -> Descriptor {
    descriptor(&[("k", "v"), ("id", id)])
}

#[tokio::test]
async fn a_limit_in_flight_has_no_unit_on_the_wire() {
    let mut service = with(SLOTS, &["--response-headers", "ietf"]).await;
    let answer = service.ask(request("d", vec![by("1")])).await;
    let limit = answer.statuses[0].current_limit.clone().unwrap();
    assert_eq!(limit.requests_per_unit, 2);
    assert_eq!((limit.unit, limit.unit_multiplier), (0, None));
    let headers = answer.response_headers_to_add.iter();
    let headers: Vec<_> = headers.map(|header| header.value.as_str()).collect();
    assert_eq!(headers, ["\"limit-1\";q=2", "\"limit-1\";r=1;t=60"]);
}

#[tokio::test]
async fn slot_holders_are_not_labels() {
    // Otherwise each request would be a new series, and soon all would be `overflow`.
    let rules = "
domain: d
descriptors:
  - key: k
    detailed_metric: true
    rate_limit: {algorithm: concurrency, requests_per_unit: 10000, slot_seconds: 60, holder_key: id}
";
    let mut service = Service::start(rules, &[]).await;
    let ids: Vec<_> = (0..1_100).map(|id: u32| by(&id.to_string())).collect();
    for ids in ids.chunks(100) {
        service.ask(request("d", ids.to_vec())).await;
    }
    let series = "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"k_v\",key2=\"\"}";
    assert_eq!(service.metric(series), 1_100);
}

#[tokio::test]
async fn a_limit_of_none_refuses_for_ever_in_every_algorithm() {
    for algorithm in ALGORITHMS {
        let limit = format!("rate_limit: {}", limit_of(0, *algorithm));
        let arguments = ["--response-headers", "retry-after,x-ratelimit"];
        let mut service = with(&limit, &arguments).await;
        let answer = service.ask(request("d", vec![k(1)])).await;
        let status = &answer.statuses[0];
        assert_eq!(status.code(), Code::OverLimit, "{algorithm:?}");
        // There is a wait all the same, or callers would retry in a loop.
        assert!(
            status.duration_until_reset.unwrap().seconds > 0,
            "{algorithm:?}"
        );
        let names = answer.response_headers_to_add.iter();
        let names: Vec<_> = names.map(|header| header.key.as_str()).collect();
        assert!(!names.contains(&"Retry-After"), "{algorithm:?}");
        assert_eq!(names.len(), 3, "{algorithm:?}");
    }
}

/// The same limit with one field changed, for each field that may change without making another
/// bucket.
fn changes(algorithm: &dyn Algorithm) -> Vec<String> {
    let limit = limit_of(10, algorithm);
    let with = |field: &str| limit.replace('}', &format!(", {field}}}"));
    let choices = algorithm
        .facts()
        .options
        .iter()
        .filter_map(|choice| match choice {
            AlgorithmOption::Burst if limit.contains("burst") => {
                Some(limit.replace("burst: 10", "burst: 30"))
            }
            AlgorithmOption::Burst => Some(with("burst: 30")),
            AlgorithmOption::Segments if limit.contains("segments") => {
                Some(limit.replace("segments: 6", "segments: 12"))
            }
            AlgorithmOption::CountRefused => Some(with("count_refused: all")),
            AlgorithmOption::Slots => {
                Some(limit.replace("slot_seconds: 3600", "slot_seconds: 7200"))
            }
            // Another algorithm, other windows.
            AlgorithmOption::Segments | AlgorithmOption::Refill | AlgorithmOption::Calendar => None,
        });
    let mut changes = vec![limit_of(30, algorithm)];
    changes.extend(choices);
    if algorithm.facts().options.contains(&AlgorithmOption::Slots) {
        changes.push(with("holder_key: id"));
    }
    changes
}

#[tokio::test]
async fn a_changed_limit_keeps_what_was_consumed_in_every_algorithm() {
    for algorithm in ALGORITHMS {
        let rules = |limit: &str| {
            format!("domain: d\ndescriptors:\n  - {{key: k, rate_limits: [{limit}]}}\n")
        };
        let first = limit_of(10, *algorithm);
        for changed in changes(*algorithm) {
            let mut service = Service::start(&rules(&first), &[]).await;
            assert_eq!(service.status("d", k(4)).await.limit_remaining, 6);
            service.reload(&rules(&changed)).await;
            let larger = changed.contains(": 30");
            let left = service.status("d", k(0)).await.limit_remaining;
            assert_eq!(left, if larger { 26 } else { 6 }, "{changed}");
            // And back, with a second limit, which does not change the first.
            let neighbour = "{unit: year, requests_per_unit: 4000000, name: neighbour}";
            service
                .reload(&rules(&format!("{neighbour}, {first}")))
                .await;
            let left = service.status("d", k(1)).await.limit_remaining;
            assert_eq!(left, 5, "{changed}");
        }
    }
}
