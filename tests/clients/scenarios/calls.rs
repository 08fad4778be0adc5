//! Many calls at once on one connection.
//!
//! What it deliberately does not do: hold an answer back (`waiting`).

use crate::setup::{Case, accepted, service};

/// Runs so many calls at the same time on one connection; all are answered.
fn all_at_once(case: Case, calls: u64, words: &str) {
    let service = service(&[]);
    let mut client = case.client(service.grpc, &[]);
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

pub(super) fn metadata_of_12_kib(case: Case) {
    all_at_once(case, 50, "metadata-bytes=12288");
}
