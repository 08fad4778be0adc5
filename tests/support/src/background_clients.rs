//! Background load: clients that send requests while a test changes something, and the answers they
//! got.
//!
//! How: threads, each with a connection and a key of its own. They end when the change is complete
//! or failed, and each sends a bounded number of requests. A change waits for what it needs, so the
//! load is as long as that takes.
//!
//! What it deliberately does not do: keep the answers. They are counted by status and limit;
//! `limits` tests remaining and reset.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::envoy_process::Envoy;
use crate::http_connection::HttpConnection;
use crate::polling::until;
use crate::tollgate_process::Tollgate;

/// The clients of a load. With a limit of `n` for each, some of `6 * n + 1` decisions are refusals.
pub const CLIENTS: usize = 6;

/// Pause between two requests of a client.
const PAUSE: Duration = Duration::from_millis(5);

/// Most requests of a client, if the change never completes.
const REQUESTS_MAX: usize = 20_000;

/// The number of responses by status and x-ratelimit-limit.
pub type Answers = BTreeMap<(u16, Option<String>), usize>;

/// Has clients request `path` for as long as `happens` takes.
pub fn with_background_load(envoy: &Envoy, path: &str, happens: impl FnOnce()) -> Answers {
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        // The clients end however this ends.
        let enough_at_end = SetOnDrop(&enough);
        let (edge, enough) = (envoy.edge, &enough);
        let callers: Vec<_> = (0..CLIENTS)
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

/// One client: sends requests until the flag is set.
fn ask(edge: SocketAddr, path: &str, number: usize, enough: &AtomicBool) -> Answers {
    let mut caller = HttpConnection::open(edge);
    let key = format!("caller-{number}");
    let mut counted = Answers::new();
    for _ in 0..REQUESTS_MAX {
        if enough.load(Ordering::Acquire) {
            break;
        }
        // sleep: the load leaves the machine to what changes.
        thread::sleep(PAUSE);
        let answer = caller.get(path, key.as_bytes());
        let limits = answer.header("x-ratelimit-limit").map(str::to_owned);
        *counted.entry((answer.status, limits)).or_default() += 1;
    }
    counted
}

/// The distinct statuses.
pub fn statuses(answers: &Answers) -> Vec<u16> {
    let statuses: BTreeSet<_> = answers.keys().map(|(status, _)| *status).collect();
    statuses.into_iter().collect()
}

/// Waits until `more` requests were decided, without a failure.
pub fn wait_for_decisions(envoy: &Envoy, more: u64) {
    let decided = || {
        let counts = envoy.counts();
        assert_eq!(counts.error, 0, "{counts:?}");
        counts.ok + counts.over_limit
    };
    let wanted = decided() + more;
    until("enough requests are decided", || {
        let decided = decided();
        if decided >= wanted {
            Ok(())
        } else {
            Err(format!("{decided} of {wanted}"))
        }
    });
}

/// Waits until this replica has received more than a hundred requests: Envoy calls each.
pub fn wait_for_requests(tollgate: &Tollgate) {
    let requests = r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#;
    until("the replica has received requests", || {
        let received = tollgate.metric(requests);
        if received > 100 {
            Ok(())
        } else {
            Err(received)
        }
    });
}

/// Sets a flag when dropped, also after a failed assertion.
pub struct SetOnDrop<'f>(pub &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
