//! Limits over gRPC: several on one descriptor, calendar windows, concurrency slots, and the
//! options of each algorithm.
//!
//! Rules are written like an operator writes them and the test moves the clock. A response is
//! compared as one line: code, limit, hits remaining, seconds.
//!
//! What it deliberately does not do: test the algorithms (`tests/laws`) or the grammar
//! (`tests/rules`).

use tollgate_limiter::{ALGORITHMS, Algorithm, AlgorithmOption, Timestamp};

use tollgate_test_support::grpc_client::{
    Code, Descriptor, DescriptorStatus, descriptor, hits, request,
};
use tollgate_test_support::in_process::{Service, limit_of};

/// One status as a line: `o` or `X`, the limit, its name, remaining hits, seconds.
fn line(status: &DescriptorStatus) -> String {
    let code = if status.code() == Code::Ok { 'o' } else { 'X' };
    let (requests, name) = status
        .current_limit
        .as_ref()
        .map_or((0, ""), |limit| (limit.requests_per_unit, &limit.name));
    let seconds = status.duration_until_reset.map_or(0, |until| until.seconds);
    let left = status.limit_remaining;
    format!("{code} {requests}{name} {left} {seconds}")
}

/// Sends one descriptor in domain `d`; returns its status as a line.
async fn said(service: &mut Service, descriptor: Descriptor) -> String {
    line(&service.status("d", descriptor).await)
}

fn refund(descriptor: Descriptor) -> Descriptor {
    Descriptor {
        is_negative_hits: true,
        ..descriptor
    }
}

/// Rules of one descriptor, `k`.
async fn with(fields: &str, arguments: &[&str]) -> Service {
    let rules = format!("domain: d\ndescriptors:\n  - {{key: k, {fields}}}\n");
    Service::start(&rules, arguments).await
}

fn k(count: u64) -> Descriptor {
    hits("k", "v", count)
}

/// A minute, in microseconds.
const MINUTE: u64 = 60_000_000;

#[tokio::test]
async fn of_several_limits_the_tightest_answers() {
    let limits = "rate_limits: [
        {unit: second, requests_per_unit: 3, name: ' short'},
        {unit: minute, requests_per_unit: 5, name: ' middle'},
        {unit: hour, requests_per_unit: 100, name: ' long'}]";
    let mut service = with(limits, &[]).await;
    // START is half a second into its second and 10.5 s into its minute. If none is over, the limit
    // with the least remaining hits is reported.
    for left in ["o 3 short 2 1", "o 3 short 1 1", "o 3 short 0 1"] {
        assert_eq!(said(&mut service, k(1)).await, left);
    }
    // A limit that is over precedes one that is not.
    assert_eq!(said(&mut service, k(1)).await, "X 3 short 0 1");
    service.clock.advance_us(1_000_000);
    // The refused hit was counted by the others as well: each limit takes independently.
    assert_eq!(said(&mut service, k(1)).await, "o 5 middle 0 49");
    assert_eq!(said(&mut service, k(1)).await, "X 5 middle 0 49");
    assert_eq!(said(&mut service, k(0)).await, "X 5 middle 0 49");
    // If both are over, the longer wait is reported; a limit that never passes precedes both.
    assert_eq!(said(&mut service, k(1)).await, "X 5 middle 0 49");
    assert_eq!(said(&mut service, k(1)).await, "X 5 middle 0 49");
    assert_eq!(said(&mut service, k(4)).await, "X 3 short 0 1");
    service.clock.advance_us(MINUTE);
    assert_eq!(said(&mut service, k(3)).await, "o 3 short 0 1");
    assert_eq!(said(&mut service, k(3)).await, "X 5 middle 0 49");
    // A refund is applied to all limits.
    assert_eq!(said(&mut service, refund(k(6))).await, "o 3 short 3 1");
    assert_eq!(said(&mut service, k(1)).await, "o 3 short 2 1");
}

#[tokio::test]
async fn all_or_nothing_holds_within_a_descriptor_too() {
    let limits = "rate_limits: [
        {unit: hour, requests_per_unit: 10, name: ' wide'},
        {unit: hour, requests_per_unit: 3, algorithm: sliding_log, name: ' narrow'}]";
    for (arguments, left) in [(&[][..], 3), (&["--all-or-nothing", "true"], 7)] {
        let mut service = with(limits, arguments).await;
        said(&mut service, k(3)).await;
        for _ in 0..4 {
            assert!(said(&mut service, k(1)).await.starts_with("X 3 narrow 0 "));
        }
        service.clock.advance_us(59 * MINUTE);
        // The remaining hits of the wide one.
        service
            .reload("domain: d\ndescriptors: [{key: k, rate_limits: [{unit: hour, requests_per_unit: 10, name: ' wide'}]}]\n")
            .await;
        let status = service.status("d", k(0)).await;
        assert_eq!(status.limit_remaining, left, "{arguments:?}");
    }
}

fn counted(service: &Service, name: &str) -> u64 {
    service.metric(&format!(
        "ratelimit_service_rate_limit_{name}{{domain=\"d\",key1=\"k\",key2=\"\"}}"
    ))
}

#[tokio::test]
async fn a_descriptor_is_counted_once_by_the_limit_that_answered() {
    let limits = "rate_limits: [
        {unit: hour, requests_per_unit: 5}, {unit: second, requests_per_unit: 3}]";
    let mut service = with(limits, &[]).await;
    said(&mut service, k(2)).await;
    said(&mut service, k(2)).await;
    said(&mut service, k(0)).await;
    for (name, count) in [
        ("total_hits", 4),
        ("within_limit", 2),
        ("over_limit", 1),
        ("shadow_mode", 0),
    ] {
        assert_eq!(counted(&service, name), count, "{name}");
    }
    said(&mut service, refund(k(3))).await;
    assert_eq!(counted(&service, "total_negative_hits"), 3);
}

#[tokio::test]
async fn in_shadow_mode_the_limit_that_would_refuse_answers_and_is_counted() {
    // When the first is just exhausted and the second is over, both have nothing remaining.
    let limits = "shadow_mode: true, rate_limits: [
        {unit: hour, requests_per_unit: 2, name: ' wide'},
        {unit: minute, requests_per_unit: 1, name: ' narrow'}]";
    let mut service = with(limits, &[]).await;
    assert_eq!(said(&mut service, k(1)).await, "o 1 narrow 0 50");
    assert_eq!(said(&mut service, k(1)).await, "o 1 narrow 0 50");
    for (name, count) in [
        ("total_hits", 2),
        ("within_limit", 1),
        ("over_limit", 1),
        ("shadow_mode", 1),
    ] {
        assert_eq!(counted(&service, name), count, "{name}");
    }
}

#[tokio::test]
async fn the_flags_of_a_descriptor_are_those_of_all_its_limits() {
    let rules = "
domain: d
descriptors:
  - key: quota
    quota_mode: true
    rate_limits: [{unit: hour, requests_per_unit: 5}, {unit: minute, requests_per_unit: 2}]
  - key: watched
    shadow_mode: true
    rate_limits: [{unit: hour, requests_per_unit: 5}, {unit: minute, requests_per_unit: 2}]
";
    let mut service = Service::start(rules, &[]).await;
    let codes = async |service: &mut Service, asked: &[(&str, &str, u64)]| {
        let asked = asked
            .iter()
            .map(|(key, value, count)| hits(key, value, *count));
        let answer = service.ask(request("d", asked.collect())).await;
        let statuses = answer
            .statuses
            .iter()
            .map(|status| status.code() == Code::Ok);
        (
            answer.overall_code() == Code::Ok,
            statuses.collect::<Vec<_>>(),
        )
    };
    // A descriptor is one quota, however many limits it has.
    let two_quotas = [("quota", "a", 3), ("quota", "b", 1)];
    assert_eq!(
        codes(&mut service, &two_quotas).await,
        (true, vec![false, true])
    );
    let two_quotas = [("quota", "a", 1), ("quota", "b", 6)];
    assert_eq!(
        codes(&mut service, &two_quotas).await,
        (false, vec![false, false])
    );
    for count in [3, 6] {
        let watched = [("watched", "a", count)];
        assert_eq!(codes(&mut service, &watched).await, (true, vec![true]));
    }
}

/// 2024-03-30 at 23:00 UTC: in Paris the day begins on which clocks go forward.
const FORWARD: u64 = 1_711_839_600;

#[tokio::test]
async fn calendar_windows_differ_from_epoch_windows_and_between_zones() {
    let limits = "rate_limits: [
        {unit: day, requests_per_unit: 10, name: ' counted'},
        {unit: day, requests_per_unit: 10, calendar: true},
        {unit: day, requests_per_unit: 8, calendar: true, time_zone: Europe/Paris}]";
    let mut service = with(limits, &[]).await;
    service
        .clock
        .set(Timestamp::from_seconds(FORWARD).minus_us(1));
    said(&mut service, k(8)).await;
    // Midnight in Paris, not in Greenwich.
    service.clock.advance_us(1);
    assert_eq!(said(&mut service, k(1)).await, "o 10 counted 1 3600");
    service.clock.advance_us(3_600_000_000);
    assert_eq!(said(&mut service, k(1)).await, "o 8 6 79200");
    // On the wire the unit is still a day.
    let status = service.status("d", k(1)).await;
    let limit = status.current_limit.unwrap();
    assert_eq!((limit.unit, limit.unit_multiplier), (4, None));
}

const SLOTS: &str =
    "rate_limit: {algorithm: concurrency, requests_per_unit: 2, slot_seconds: 60, holder_key: id}";

/// A hit by `id`.
fn by(id: &str) -> Descriptor {
    descriptor(&[("k", "v"), ("id", id)])
}

#[tokio::test]
async fn only_its_holder_frees_a_slot() {
    let mut service = with(SLOTS, &[]).await;
    // The holder is no part of the bucket's key.
    assert_eq!(said(&mut service, by("1")).await, "o 2 1 60");
    assert_eq!(said(&mut service, by("2")).await, "o 2 0 60");
    assert_eq!(said(&mut service, by("3")).await, "X 2 0 60");
    // Envoy sends a refund although the check was refused.
    assert_eq!(said(&mut service, refund(by("3"))).await, "o 2 0 60");
    assert_eq!(said(&mut service, by("3")).await, "X 2 0 60");
    assert_eq!(said(&mut service, refund(by("1"))).await, "o 2 1 60");
    // A second refund has no effect.
    assert_eq!(said(&mut service, refund(by("1"))).await, "o 2 1 60");
    assert_eq!(said(&mut service, by("3")).await, "o 2 0 60");
    // Another value of the previous entry is another bucket.
    let elsewhere = descriptor(&[("k", "w"), ("id", "2")]);
    assert_eq!(said(&mut service, elsewhere).await, "o 2 1 60");
    assert_eq!(counted(&service, "over_limit"), 2);
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
async fn slots_and_windows_may_be_combined() {
    let limits = "rate_limits: [
        {algorithm: concurrency, requests_per_unit: 1, slot_seconds: 60, holder_key: id, name: ' slots'},
        {unit: hour, requests_per_unit: 3, name: ' hourly'}]";
    let mut service = with(limits, &[]).await;
    assert_eq!(said(&mut service, by("1")).await, "o 1 slots 0 60");
    assert_eq!(said(&mut service, by("2")).await, "X 1 slots 0 60");
    // The window ignores the holder: a refund is applied to each limit.
    assert_eq!(said(&mut service, refund(by("1"))).await, "o 1 slots 1 0");
    assert_eq!(said(&mut service, by("2")).await, "o 1 slots 0 60");
    assert_eq!(said(&mut service, refund(by("2"))).await, "o 1 slots 1 0");
    let plain = descriptor(&[("k", "v")]);
    assert_eq!(said(&mut service, plain).await, "o 1 slots 0 60");
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
        .options()
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
    if algorithm.options().contains(&AlgorithmOption::Slots) {
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
