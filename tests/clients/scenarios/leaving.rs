//! Connections that the service ends: before it stops, and when they are old.
//!
//! What it deliberately does not do: kill the service. Calls on the network are then lost.

use std::time::Duration;

use tollgate_test_support::polling::until;
use tollgate_test_support::relay::Relay;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::program::Outcome;
use crate::setup::{Case, accepted, decided, service};

/// Calls until `stop`.
const LOAD: &str = "name=load calls=0 at-once=20 deadline-ms=20000";

/// Calls that a service must have decided to count as one under load.
const ENOUGH: u64 = 300;

/// A replica is stopped under load and another takes over, as with a Kubernetes Service: no call
/// fails.
pub(super) fn drain(case: Case) {
    let mut old = service(&["--drain-delay", "200ms", "--drain-timeout", "20s"]);
    let relay = Relay::to(old.grpc);
    let mut client = case.client(relay.address, &[]);
    client.send(LOAD);
    let is_loaded = |service: &Tollgate| {
        let decided = decided(service);
        (decided >= ENOUGH).then_some(()).ok_or(decided)
    };
    until("the old one is under load", || is_loaded(&old));
    let new = service(&[]);
    relay.lead_to(new.grpc);
    old.signal("TERM");
    let status = old.wait();
    assert_eq!(status.code(), Some(0));
    until("the new one is under load", || is_loaded(&new));
    client.send("stop");
    let load = client.result("load");
    none_lost(case, &load);
    assert!(load.answered >= 2 * ENOUGH, "{load}");
}

/// Connections end by their age under load: no call fails.
pub(super) fn connection_age(case: Case) {
    const CONNECTIONS: u64 = 4;
    let age = Duration::from_millis(500);
    let service = service(&[
        "--grpc-max-connection-age",
        &format!("{}ms", age.as_millis()),
        "--grpc-max-connection-age-grace",
        "20s",
    ]);
    let mut client = case.client(service.grpc, &[]);
    client.send(LOAD);
    until("connections are renewed", || {
        let accepted = accepted(&service);
        (accepted >= CONNECTIONS).then_some(()).ok_or(accepted)
    });
    client.send("stop");
    let load = client.result("load");
    none_lost(case, &load);
    // What failed was never decided: it did not reach the service.
    assert_eq!(load.answered, decided(&service));
    let aged = service.metric("tollgate_connections_aged_total");
    assert!(aged >= CONNECTIONS - 1, "aged: {aged}");
}

/// Every call was answered. A library that does not resend may fail the calls that it began after
/// GOAWAY, without sending them.
fn none_lost(case: Case, load: &Outcome) {
    if case.library.resends {
        return load.all_answered(load.answered);
    }
    let only_unsent = load
        .failed
        .keys()
        .all(|status| ["CANCELLED", "INTERNAL"].contains(&status.as_str()));
    assert!(load.incomplete == 0 && only_unsent, "{load}");
}
