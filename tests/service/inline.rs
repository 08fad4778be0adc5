//! Descriptors of one request and requests of one descriptor: the same statuses and counts.
//!
//! A request of one descriptor is decided in the thread of its connection. One of many descriptors
//! goes to the workers of the partitions.

use tollgate_test_support::grpc_client::{Code, hits, request};
use tollgate_test_support::in_process::Service;

const RULES: &str = "
domain: d
descriptors:
  - key: rule
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: bucket
    rate_limit: { unit: hour, requests_per_unit: 2, algorithm: token_bucket }
  - key: watched_log
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 3, algorithm: sliding_log }
";

const KEYS: [&str; 4] = ["rule", "watched", "bucket", "watched_log"];

/// So many that each partition has more checks than a thread decides itself.
const DESCRIPTORS: usize = 96;

#[tokio::test]
async fn many_descriptors_are_decided_as_each_alone() {
    for arguments in [
        &["--partitions", "2"][..],
        &["--partitions", "2", "--shadow-mode", "true"],
    ] {
        let mut alone = Service::start(RULES, arguments).await;
        let mut together = Service::start(RULES, arguments).await;
        let is_shadow = arguments.contains(&"--shadow-mode");
        let mut refused = 0;
        for count in [1, 1, 2, 1, 1] {
            let descriptors = (0..DESCRIPTORS).map(|number| {
                let value = number.to_string();
                hits(KEYS[number % KEYS.len()], &value, count)
            });
            let descriptors: Vec<_> = descriptors.collect();
            let many = together.ask(request("d", descriptors.clone())).await;
            assert_eq!(many.statuses.len(), DESCRIPTORS);
            assert!(!is_shadow || many.overall_code() == Code::Ok);
            for (descriptor, status) in descriptors.into_iter().zip(many.statuses) {
                let one = alone.ask(request("d", vec![descriptor])).await;
                assert_eq!(one.statuses.len(), 1);
                assert_eq!(one.statuses[0], status);
                // In shadow mode, the overall code alone is another.
                let is_refused = status.code() == Code::OverLimit;
                assert_eq!(
                    one.overall_code() == Code::OverLimit,
                    is_refused && !is_shadow
                );
                refused += usize::from(is_refused);
            }
        }
        assert!(refused > DESCRIPTORS, "{refused}");
        // Each rule counted the same.
        let mut counted = 0;
        for key in KEYS {
            for kind in ["total_hits", "over_limit", "within_limit", "shadow_mode"] {
                let series = format!(
                    "ratelimit_service_rate_limit_{kind}{{domain=\"d\",key1=\"{key}\",key2=\"\"}}"
                );
                assert_eq!(alone.metric(&series), together.metric(&series), "{series}");
                counted += alone.metric(&series);
            }
        }
        assert!(counted > 2 * DESCRIPTORS as u64, "{counted}");
    }
}
