//! A replica stops under load without a failed request.
//!
//! How: two tollgates behind one Envoy, which checks their health; clients that send constantly;
//! SIGTERM to one replica. Phases end after enough decisions, not after a fixed time.
//!
//! What it deliberately does not do: SIGKILL. Requests in progress are then lost.

use tollgate_test_support::background_clients::{
    statuses, wait_for_decisions, wait_for_requests, with_background_load,
};
use tollgate_test_support::envoy_process::{Envoy, OnError};
use tollgate_test_support::tollgate_process::Tollgate;

/// Each replica admits a few requests of each client, so that both answers occur.
const RULES: &str =
    "{domain: edge, descriptors: [{key: day, rate_limit: {unit: year, requests_per_unit: 20}}]}";

/// Decisions before, and again after, the replica stops.
const DECISIONS: u64 = 500;

#[test]
fn a_replica_stopped_under_load_costs_no_request() {
    let mut leaving = Tollgate::start(RULES, &[]);
    let staying = Tollgate::start(RULES, &[]);
    let envoy = Envoy::asking(&[&leaving, &staying], OnError::Deny);

    let answers = with_background_load(&envoy, "/day", || {
        wait_for_decisions(&envoy, DECISIONS);
        for tollgate in [&leaving, &staying] {
            wait_for_requests(tollgate);
        }
        leaving.signal("TERM");
        let status = leaving.wait();
        assert_eq!(status.code(), Some(0), "{}", leaving.said());
        wait_for_decisions(&envoy, DECISIONS);
    });

    assert_eq!(envoy.counts().error, 0);
    assert_eq!(statuses(&answers), [200, 429], "{answers:?}");
}
