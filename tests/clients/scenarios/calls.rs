//! Many calls at once on one connection.
//!
//! What it deliberately does not do: hold an answer back (`waiting`).

use tollgate_test_support::polling::until;

use crate::setup::{Case, accepted, decided, service};

/// Runs so many calls at the same time on one connection; all are answered.
fn all_at_once(case: Case, calls: u64, words: &str) {
    all_at_once_with(case, &[], calls, words);
}

/// The same by a client that is started with these further arguments.
fn all_at_once_with(case: Case, arguments: &[(&str, String)], calls: u64, words: &str) {
    let service = service(&[]);
    let mut client = case.client(service.grpc, arguments);
    client.connect();
    client
        .run(
            case.scenario,
            &format!("calls={calls} at-once={calls} deadline-ms=30000 {words}"),
        )
        .all_answered(calls);
    assert_eq!(accepted(&service), 1, "connections");
}

pub(super) fn small_calls(case: Case) {
    all_at_once(case, 2_000, "");
}

pub(super) fn calls_400_of_60_kib(case: Case) {
    all_at_once(case, 400, "value-bytes=61440");
}

pub(super) fn calls_250_of_60_kib(case: Case) {
    all_at_once(case, 250, "value-bytes=61440");
}

pub(super) fn calls_400_of_17_kb(case: Case) {
    all_at_once(case, 400, "value-bytes=17000");
}

pub(super) fn gzip(case: Case) {
    let gzip = [("gzip", "1".to_owned())];
    all_at_once_with(case, &gzip, 200, "value-bytes=17000");
}

pub(super) fn metadata_of_12_kib(case: Case) {
    all_at_once(case, 50, "metadata-bytes=12288");
}

/// Calls with more metadata than the service accepts fail, and the others on the connection do not.
pub(super) fn metadata_of_40_kib(case: Case) {
    const ENOUGH: u64 = 100;
    let service = service(&[]);
    let mut client = case.client(service.grpc, &[]);
    client.send("name=others calls=0 at-once=20 deadline-ms=20000");
    let more = |than: u64| {
        until("enough calls are decided", || {
            let decided = decided(&service);
            (decided >= than + ENOUGH).then_some(()).ok_or(decided)
        });
    };
    more(0);
    let long = "calls=5 at-once=5 deadline-ms=20000 metadata-bytes=40960";
    client.run("long", long).none_answered(5);
    more(decided(&service));
    client.send("stop");
    let others = client.result("others");
    others.all_answered(others.answered);
    assert_eq!(accepted(&service), 1, "connections");
}
