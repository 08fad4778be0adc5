//! Names in requests cost a bounded number of series and a bounded amount of memory.
//!
//! How: a million label sets through the metrics themselves, twenty thousand values and ten
//! thousand domains through gRPC. The allocator counts memory.
//!
//! What it deliberately does not do: bound the buckets (`overload`).

use allocation_counter::measure;
use tollgate::metrics::{HitOutcome, Metrics, REQUEST_LABEL_SETS_MAX, UNKNOWN_DOMAINS_MAX};
use tollgate_limiter::{Key, Tally};
use tollgate_test_support::grpc_client::{RateLimitRequest, descriptor, hits, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::metrics_text::series_value;

const RULES: &str = "
domain: d
descriptors:
  - key: detailed
    detailed_metric: true
    rate_limit: { unit: day, requests_per_unit: 10 }
  - key: valued
    value_to_metric: true
    rate_limit: { unit: day, requests_per_unit: 10 }
";

/// Number of series of this name.
fn series(text: &str, name: &str) -> usize {
    let begins = format!("{name}{{");
    text.lines()
        .filter(|line| line.starts_with(&begins))
        .count()
}

const TOTAL_HITS: &str = "ratelimit_service_rate_limit_total_hits";
const OVERFLOW: &str =
    "ratelimit_service_rate_limit_total_hits{domain=\"overflow\",key1=\"overflow\",key2=\"\"}";

#[test]
fn a_million_label_sets_are_a_thousand_series_and_an_overflow() {
    let metrics = Metrics::new().unwrap();
    let tally = Tally {
        total_hits: 1,
        ..Tally::default()
    };
    let hit = |n: u128| {
        // A label of any length.
        let labels = || {
            (
                "d".to_owned(),
                vec![format!("key_{n}_{}", "x".repeat(1_000))],
            )
        };
        metrics
            .limits
            .request_counters(Key(n), None, labels)
            .add(HitOutcome::Admitted, &tally);
    };
    let bound = REQUEST_LABEL_SETS_MAX as u128;
    (0..2 * bound).for_each(hit);
    let grown = measure(|| (2 * bound..1_000_000).for_each(hit)).bytes_current;
    assert!(grown < 64 << 10, "{grown} bytes");

    let text = metrics.render().unwrap();
    assert_eq!(series(&text, TOTAL_HITS), REQUEST_LABEL_SETS_MAX + 1);
    let beyond = 1_000_000 - REQUEST_LABEL_SETS_MAX as u64;
    assert_eq!(series_value(&text, OVERFLOW), beyond);
    assert_eq!(
        series_value(
            &text,
            "tollgate_label_overflow_total{bound=\"request_label_sets\"}"
        ),
        beyond
    );
    // The first ones are still counted by name.
    hit(7);
    let text = metrics.render().unwrap();
    assert_eq!(series_value(&text, OVERFLOW), beyond);
    let seventh = text
        .lines()
        .find(|line| line.starts_with(&format!("{TOTAL_HITS}{{domain=\"d\",key1=\"key_7_")));
    assert!(seventh.unwrap().ends_with(" 2"), "{seventh:?}");
}

#[tokio::test]
async fn values_in_labels_are_bounded_whichever_flag_puts_them_there() {
    let mut service = Service::start(RULES, &[]).await;
    let ask = |from: usize, to: usize| {
        let hit = |n: &usize| {
            hits(
                if n.is_multiple_of(2) {
                    "detailed"
                } else {
                    "valued"
                },
                &format!("value {n}"),
                1,
            )
        };
        let values: Vec<usize> = (from..to).collect();
        let requests: Vec<RateLimitRequest> = values
            .chunks(100)
            .map(|values| request("d", values.iter().map(hit).collect()))
            .collect();
        requests
    };
    for asked in ask(0, 20_000) {
        service.ask(asked).await;
    }
    let text = service.metrics.render().unwrap();
    // The two rules themselves and the overflow have a series as well.
    assert_eq!(series(&text, TOTAL_HITS), REQUEST_LABEL_SETS_MAX + 3);
    assert_eq!(
        series_value(&text, OVERFLOW),
        20_000 - REQUEST_LABEL_SETS_MAX as u64
    );
}

#[tokio::test]
async fn ten_thousand_unknown_domains_are_a_hundred_series() {
    let mut service = Service::start(RULES, &[]).await;
    for n in 0..10_000 {
        service
            .ask(request(
                &format!("domain {n}"),
                vec![descriptor(&[("k", "v")])],
            ))
            .await;
    }
    let text = service.metrics.render().unwrap();
    let name = "ratelimit_service_rate_limit_domain_not_found";
    assert_eq!(series(&text, name), UNKNOWN_DOMAINS_MAX + 1);
    let beyond = 10_000 - UNKNOWN_DOMAINS_MAX as u64;
    assert_eq!(
        series_value(&text, &format!("{name}{{domain=\"overflow\"}}")),
        beyond
    );
    assert_eq!(
        series_value(
            &text,
            "tollgate_label_overflow_total{bound=\"unknown_domains\"}"
        ),
        beyond
    );
    assert_eq!(service.metric(TOTAL_HITS), 0);
}

#[tokio::test]
async fn hidden_levels_use_no_label_sets() {
    let rules = "
domain: d
descriptors:
  - key: a
    descriptors:
      - key: b
        descriptors:
          - key: user
            detailed_metric: true
            rate_limit: { unit: day, requests_per_unit: 5 }
";
    let mut service = Service::start(rules, &[]).await;
    for user in 0..=REQUEST_LABEL_SETS_MAX {
        let asked = descriptor(&[("a", "x"), ("b", "y"), ("user", &user.to_string())]);
        service.ask(request("d", vec![asked])).await;
    }
    // No label shows the third level, so all users are one series and no bound is reached.
    let all = u64::try_from(REQUEST_LABEL_SETS_MAX).unwrap() + 1;
    let series = "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"a_x\",key2=\"b_y\"}";
    assert_eq!(service.metric(series), all);
    assert_eq!(
        service.metric("tollgate_label_overflow_total{bound=\"request_label_sets\"}"),
        0
    );
}
