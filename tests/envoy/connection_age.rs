//! Connections that reach their maximum age under load, without a failed request.
//!
//! How: two tollgates whose connections live two seconds, and clients that send constantly. A test
//! ends when each tollgate has aged out enough connections and Envoy has opened new ones, not after
//! a fixed time.
//!
//! What it deliberately does not do: keep a stream open beyond the grace period. Envoy's checks
//! last milliseconds.

use std::time::Duration;

use tollgate_test_support::background_clients::{
    assert_received_requests, statuses, wait_for_decisions, with_background_load,
};
use tollgate_test_support::envoy_process::{Envoy, OnError};
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::tollgate_process::Tollgate;

/// Most requests are within the limit and some are over, so that both answers occur.
const RULES: &str =
    "{domain: edge, descriptors: [{key: day, rate_limit: {unit: day, requests_per_unit: 300}}]}";

const SHORT_LIVES: [&str; 4] = [
    "--grpc-max-connection-age",
    "2s",
    "--grpc-max-connection-age-grace",
    "1s",
];

const AGED: &str = "tollgate_connections_aged_total";

/// Connections that Envoy opened, without those of its health checks.
const OPENED: &str = "cluster.rate_limit_service.upstream_cx_total";

/// Aged connections of each tollgate, including health checks, after which a test ends.
const AGED_MIN: u64 = 9;

/// Longest shutdown with default settings.
const STOP_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn aged_connections_under_load_cost_no_request() {
    let pair = [(); 2].map(|()| Tollgate::start(RULES, &SHORT_LIVES));
    let envoy = Envoy::asking(&pair.each_ref(), OnError::Deny);

    let answers = with_background_load(&envoy, "/day", || {
        wait_for_decisions(&envoy, 500);
        let opened = envoy.stat(OPENED);
        for tollgate in &pair {
            wait_for_aged(tollgate, AGED_MIN);
        }
        // Each worker of Envoy has a connection to each tollgate, and all of them aged more than
        // once.
        assert!(
            envoy.stat(OPENED) >= opened + 8,
            "{opened}, then {}",
            envoy.stat(OPENED)
        );
        wait_for_decisions(&envoy, 500);
    });

    assert_eq!(envoy.counts().error, 0);
    assert_eq!(statuses(&answers), [200, 429], "{answers:?}");
    pair.iter().for_each(assert_received_requests);
}

#[test]
fn a_restart_while_connections_age_costs_no_request() {
    let mut restarted = Tollgate::start(RULES, &SHORT_LIVES);
    let staying = Tollgate::start(RULES, &SHORT_LIVES);
    let envoy = Envoy::asking(&[&restarted, &staying], OnError::Deny);

    let answers = with_background_load(&envoy, "/day", || {
        wait_for_decisions(&envoy, 500);
        assert_received_requests(&restarted);
        restarted.signal("TERM");
        let status = restarted.wait(STOP_WITHIN).expect("it stops in time");
        assert_eq!(status.code(), Some(0), "{}", restarted.said());
        wait_for_decisions(&envoy, 500);

        restarted.start_again();
        let requests = r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#;
        let back = wait_for(PATIENCE, || {
            (restarted.metric(requests) > 500).then_some(())
        });
        assert!(back.is_some(), "Envoy asks it again");
        wait_for_aged(&restarted, 3);
        wait_for_aged(&staying, AGED_MIN);
        wait_for_decisions(&envoy, 500);
    });

    assert_eq!(envoy.counts().error, 0);
    assert_eq!(statuses(&answers), [200, 429], "{answers:?}");
}

#[test]
fn age_and_grace_are_unlimited_when_zero() {
    let never = ["--grpc-max-connection-age", "0"];
    let patient = [
        "--grpc-max-connection-age",
        "200ms",
        "--grpc-max-connection-age-grace",
        "0",
    ];
    for arguments in [never.as_slice(), patient.as_slice()] {
        let tollgate = Tollgate::start(RULES, arguments);
        let envoy = Envoy::asking(&[&tollgate], OnError::Deny);
        let answers = with_background_load(&envoy, "/day", || wait_for_decisions(&envoy, 3_000));
        assert_eq!(envoy.counts().error, 0);
        assert_eq!(statuses(&answers), [200, 429], "{answers:?}");
        let aged = tollgate.metric(AGED);
        assert_eq!(aged == 0, arguments == never, "{aged}");
    }
}

fn wait_for_aged(tollgate: &Tollgate, aged_min: u64) {
    let aged = || tollgate.metric(AGED);
    let enough = wait_for(PATIENCE, || (aged() >= aged_min).then_some(()));
    assert!(enough.is_some(), "{} of {aged_min}", aged());
}
