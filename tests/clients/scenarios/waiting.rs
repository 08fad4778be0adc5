//! Calls that are not answered in time, and connections without calls.
//!
//! How: a relay holds answers back, so that the result depends neither on a fast service nor on a
//! slow machine.
//!
//! What it deliberately does not do: look at what the service does with a late caller's hits
//! (`tests/service`).

use tollgate_test_support::polling::until;
use tollgate_test_support::relay::{Relay, Way};

use crate::setup::{Case, Client, accepted, decided, service};

/// Calls that are given up, and calls after them on the same connection.
const CALLS: u64 = 200;

pub(super) fn deadlines(case: Case) {
    let service = service(&[]);
    let relay = Relay::to(service.grpc);
    let mut client = case.client(relay.address, &[]);
    client.connect();
    relay.hold(Way::ToCaller);
    client
        .run(
            "late",
            &format!("calls={CALLS} at-once={CALLS} deadline-ms=300"),
        )
        .all_failed(CALLS, case.library.late);
    relay.release();
    then_others_are_answered(&mut client);
    assert_eq!(accepted(&service), 1, "connections");
}

pub(super) fn cancels(case: Case) {
    let service = service(&[]);
    let relay = Relay::to(service.grpc);
    let mut client = case.client(relay.address, &[]);
    client.connect();
    relay.hold(Way::ToCaller);
    client.send(&format!(
        "name=cancelled calls={CALLS} at-once={CALLS} deadline-ms=30000 cancel=1"
    ));
    until("all are decided", || {
        let decided = decided(&service);
        (decided == 1 + CALLS).then_some(()).ok_or(decided)
    });
    client.send("cancel");
    client.result("cancelled").all_failed(CALLS, "CANCELLED");
    relay.release();
    then_others_are_answered(&mut client);
    assert_eq!(accepted(&service), 1, "connections");
}

pub(super) fn keepalive(case: Case) {
    let service = service(&[]);
    let relay = Relay::to(service.grpc);
    let interval_ms = case.library.keepalive_ms;
    let arguments = [("keepalive-ms", interval_ms.to_string())];
    let mut client = case.client(relay.address, &arguments);
    client.connect();
    // Libraries also send pings while they receive, to measure the line. Those are over with the
    // first call.
    let before = relay.counts();
    let pings = if interval_ms < 1_000 { 10 } else { 1 };
    until(&format!("pings are answered after {before:?}"), || {
        let seen = relay.counts();
        let all = seen.pings >= before.pings + pings && seen.pongs >= before.pongs + pings;
        all.then_some(()).ok_or(seen)
    });
    then_others_are_answered(&mut client);
    assert_eq!(accepted(&service), 1, "connections");
}

fn then_others_are_answered(client: &mut Client) {
    client
        .run(
            "then",
            &format!("calls={CALLS} at-once={CALLS} deadline-ms=20000"),
        )
        .all_answered(CALLS);
}
