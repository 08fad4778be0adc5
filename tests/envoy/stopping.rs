//! A replica stops under load, and nobody notices.
//!
//! How: two tollgates behind one Envoy, which watches their health; clients that never pause for long; SIGTERM for one.
//! Phases end when enough requests have been decided, not when time has passed.
//!
//! What it deliberately does not do: kill. What is under way then is lost, and no server can help it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::caller::Caller;
use crate::proxy::{Envoy, OnError};
use crate::running::{PATIENCE, Tollgate, wait_for};

/// Most requests are within the limit and some are not, so that both answers are seen.
const RULES: &str =
    "{domain: edge, descriptors: [{key: day, rate_limit: {unit: day, requests_per_unit: 300}}]}";

const CALLERS: usize = 6;

/// Between two requests of one client.
const PAUSE: Duration = Duration::from_millis(5);

/// Requests that one client sends at most, should a phase never end.
const REQUESTS_MAX: usize = 20_000;

/// Requests that are decided before, and again after, the one replica stops.
const DECISIONS: u64 = 1_000;

/// What a stop may take with default settings.
const STOP_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn a_replica_that_is_asked_to_stop_under_load_costs_no_request() {
    let mut leaving = Tollgate::start(RULES, &[]);
    let staying = Tollgate::start(RULES, &[]);
    let envoy = Envoy::asking(&[&leaving, &staying], OnError::Deny);

    let enough = AtomicBool::new(false);
    let statuses = thread::scope(|scope| {
        // However this ends, so do the clients.
        let enough_at_end = SetOnDrop(&enough);
        let (edge, enough) = (envoy.edge, &enough);
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| scope.spawn(move || statuses(edge, number, enough)))
            .collect();

        wait_for_decisions(&envoy, DECISIONS);
        for tollgate in [&leaving, &staying] {
            let requests = r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#;
            assert!(tollgate.metric(requests) > 100, "Envoy asks both");
        }
        leaving.signal("TERM");
        let status = leaving.wait(STOP_WITHIN).expect("it stops in time");
        assert_eq!(status.code(), Some(0), "{}", leaving.said());
        wait_for_decisions(&envoy, DECISIONS);

        drop(enough_at_end);
        callers
            .into_iter()
            .flat_map(|caller| caller.join().expect("a client"))
            .fold(BTreeMap::new(), |mut counted, status| {
                *counted.entry(status).or_insert(0_usize) += 1;
                counted
            })
    });

    assert_eq!(envoy.counts().error, 0);
    assert!(statuses.keys().eq(&[200, 429]), "{statuses:?}");
}

/// One client: asks until there is enough. The status of each answer.
fn statuses(edge: SocketAddr, number: usize, enough: &AtomicBool) -> Vec<u16> {
    let mut caller = Caller::of(edge);
    let key = format!("caller-{number}");
    (0..REQUESTS_MAX)
        .take_while(|_| !enough.load(Ordering::Acquire))
        .map(|_| {
            thread::sleep(PAUSE);
            caller.get("/day", key.as_bytes()).status
        })
        .collect()
}

/// Waits until so many requests more were decided, of which none may fail.
fn wait_for_decisions(envoy: &Envoy, more: u64) {
    let decided = || {
        let counts = envoy.counts();
        assert_eq!(counts.error, 0, "{counts:?}");
        counts.ok + counts.over_limit
    };
    let before = decided();
    let grown = wait_for(PATIENCE, || (decided() >= before + more).then_some(()));
    assert!(grown.is_some(), "{before} decisions, then {}", decided());
}

/// Sets a flag when it is dropped, also by a failed assertion.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
