//! Connections that reach their maximum age under load, without a failed request.
//!
//! How: two tollgates whose connections live half a second, and clients that send constantly. A
//! test ends when each tollgate has aged out enough connections and Envoy has opened new ones.
//!
//! What it deliberately does not do: keep a stream open beyond the grace period. Envoy's checks
//! last milliseconds.

use tollgate_test_support::background_clients::{
    statuses, wait_for_decisions, wait_for_requests, with_background_load,
};
use tollgate_test_support::envoy_process::{Envoy, OnError};
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

/// Each replica admits a few requests of each client, so that both answers occur.
const RULES: &str =
    "{domain: edge, descriptors: [{key: day, rate_limit: {unit: year, requests_per_unit: 20}}]}";

/// Decisions after which some are refusals.
const DECISIONS: u64 = 500;

/// The grace is longer than any check on a busy machine.
const SHORT_LIVES: [&str; 4] = [
    "--grpc-max-connection-age",
    "500ms",
    "--grpc-max-connection-age-grace",
    "60s",
];

const AGED: &str = "tollgate_connections_aged_total";

/// Connections that Envoy opened, without those of its health checks.
const OPENED: &str = "cluster.rate_limit_service.upstream_cx_total";

/// Aged connections of each tollgate, including health checks, after which a test ends.
const AGED_MIN: u64 = 9;

#[test]
fn aged_connections_and_a_restart_under_load_cost_no_request() {
    let mut restarted = Tollgate::start_restartable(RULES, &SHORT_LIVES);
    let staying = Tollgate::start(RULES, &SHORT_LIVES);
    let envoy = Envoy::asking(&[&restarted, &staying], OnError::Deny);

    let answers = with_background_load(&envoy, "/day", || {
        wait_for_decisions(&envoy, DECISIONS);
        let opened = envoy.stat(OPENED);
        for tollgate in [&restarted, &staying] {
            wait_for_aged(tollgate, AGED_MIN);
            wait_for_requests(tollgate);
        }
        // Each worker of Envoy has a connection to each tollgate, and all of them age again.
        until("Envoy has opened new connections", || {
            match envoy.stat(OPENED) {
                now if now >= opened + 8 => Ok(()),
                now => Err(format!("{now}, {opened} before")),
            }
        });
        restarted.signal("TERM");
        let status = restarted.wait();
        assert_eq!(status.code(), Some(0), "{}", restarted.said());
        wait_for_decisions(&envoy, DECISIONS);

        restarted.start_again();
        wait_for_requests(&restarted);
        wait_for_aged(&restarted, 3);
        wait_for_decisions(&envoy, DECISIONS);
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
    for (arguments, aged_min) in [(never.as_slice(), 0), (patient.as_slice(), AGED_MIN)] {
        let tollgate = Tollgate::start(RULES, arguments);
        let envoy = Envoy::asking(&[&tollgate], OnError::Deny);
        let answers = with_background_load(&envoy, "/day", || {
            wait_for_aged(&tollgate, aged_min);
            wait_for_decisions(&envoy, DECISIONS);
        });
        assert_eq!(envoy.counts().error, 0);
        assert_eq!(statuses(&answers), [200, 429], "{answers:?}");
        let aged = tollgate.metric(AGED);
        assert_eq!(aged == 0, aged_min == 0, "{aged}");
    }
}

fn wait_for_aged(tollgate: &Tollgate, aged_min: u64) {
    until("connections have aged", || match tollgate.metric(AGED) {
        aged if aged >= aged_min => Ok(()),
        aged => Err(aged),
    });
}
