//! Clients that go on asking while something happens, and what they were answered.
//!
//! How: threads, each with a connection and a key of its own. They end when what happens has ended, well or not, and
//! never ask more than a bound.
//!
//! What it deliberately does not do: keep answers. They are counted by status and limits, which is all that is asked of
//! them; remaining and reset are `limits`' business.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::tollgate_process::Tollgate;

use crate::caller::Caller;
use crate::proxy::Envoy;

const CALLERS: usize = 6;

/// Between two requests of one client.
const PAUSE: Duration = Duration::from_millis(5);

/// Requests that one client sends at most, should what happens never end.
const REQUESTS_MAX: usize = 20_000;

/// How often each status came with each x-ratelimit-limit.
pub(crate) type Answers = BTreeMap<(u16, Option<String>), usize>;

/// Has clients ask Envoy for `path` as long as `happens` takes.
pub(crate) fn while_asked(envoy: &Envoy, path: &str, happens: impl FnOnce()) -> Answers {
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        // However this ends, so do the clients.
        let enough_at_end = SetOnDrop(&enough);
        let (edge, enough) = (envoy.edge, &enough);
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| scope.spawn(move || ask(edge, path, number, enough)))
            .collect();
        happens();
        drop(enough_at_end);
        let mut counted = Answers::new();
        for caller in callers {
            for (answer, times) in caller.join().expect("a client") {
                *counted.entry(answer).or_default() += times;
            }
        }
        counted
    })
}

/// One client: asks until there is enough.
fn ask(edge: SocketAddr, path: &str, number: usize, enough: &AtomicBool) -> Answers {
    let mut caller = Caller::of(edge);
    let key = format!("caller-{number}");
    let mut counted = Answers::new();
    for _ in 0..REQUESTS_MAX {
        if enough.load(Ordering::Acquire) {
            break;
        }
        thread::sleep(PAUSE);
        let answer = caller.get(path, key.as_bytes());
        let limits = answer.header("x-ratelimit-limit").map(str::to_owned);
        *counted.entry((answer.status, limits)).or_default() += 1;
    }
    counted
}

/// Every status there was, once.
pub(crate) fn statuses(answers: &Answers) -> Vec<u16> {
    let statuses: BTreeSet<_> = answers.keys().map(|(status, _)| *status).collect();
    statuses.into_iter().collect()
}

/// Waits until so many requests more were decided, of which none may fail.
pub(crate) fn wait_for_decisions(envoy: &Envoy, more: u64) {
    let decided = || {
        let counts = envoy.counts();
        assert_eq!(counts.error, 0, "{counts:?}");
        counts.ok + counts.over_limit
    };
    let before = decided();
    let grown = wait_for(PATIENCE, || (decided() >= before + more).then_some(()));
    assert!(grown.is_some(), "{before} decisions, then {}", decided());
}

/// Requires that this one was asked, and not only others.
pub(crate) fn assert_asked(tollgate: &Tollgate) {
    let requests = r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#;
    assert!(tollgate.metric(requests) > 100, "Envoy asks both");
}

/// Sets a flag when it is dropped, also by a failed assertion.
pub(crate) struct SetOnDrop<'f>(pub(crate) &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
