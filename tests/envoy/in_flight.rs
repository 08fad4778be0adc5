//! Concurrency limits behind a real Envoy: never more requests than the limit, and in the end every
//! slot is free.
//!
//! Why: Envoy refunds even if the check was refused, and does not when its client leaves during the
//! check. How: rules and route are those of docs/rules.md. The upstream server (`upstream`) holds
//! requests until a test decides how each ends, and counts strictly. A relay can hold back the
//! bytes between Envoy and tollgate, so that a test can act within a check of a few microseconds.
//! tollgate runs in the test's process with a fixed clock: no slot expires during a test unless the
//! test moves the clock.
//!
//! What it deliberately does not do: show that anonymous slots are wrong for Envoy (see
//! `docs/rules.md`; `crates/limiter/tests/laws` has the laws of the algorithm).

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tollgate_test_support::background_clients::SetOnDrop;
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::polling::until;
use tollgate_test_support::relay::Way;

use crate::envoy::in_flight_edge::{ENDINGS, Edge, Ending, LIMIT, Request};
use crate::envoy::upstream::{Upstream, UpstreamAction};

/// Time until a slot of the page's rules expires.
const SLOT_US: u64 = 60_000_000;

/// Envoy's timeout where a check must time out; long enough for the other checks of the test.
const TIMEOUT: &str = "5s";

/// Number of concurrent callers.
const CALLERS: usize = 6;

/// Requests that the concurrent callers end, the same number in each way.
const ROUNDS: usize = 60;

/// Pause between two requests of a caller.
const PAUSE: Duration = Duration::from_millis(5);

/// Most requests of a caller, if the rounds never end.
const REQUESTS_MAX: usize = 20_000;

#[test]
fn every_way_to_end_a_request_frees_its_slot_and_no_other() {
    let mut edge = Edge::start();
    let mut inside = edge.fill();
    for (position, ending) in ENDINGS.into_iter().enumerate() {
        // Refunds of refused requests free no slot.
        edge.is_refused();
        edge.is_refused();
        assert_eq!(edge.free(), 0, "before one is {ending:?}");

        let ended = inside.remove(position % LIMIT);
        edge.end(ended, ending);
        assert_eq!(edge.free(), 1, "after one was {ending:?}");
        inside.push(edge.enters());
        assert_eq!(edge.free(), 0);
    }
    for request in inside {
        edge.end(request, Ending::Answered);
    }
    let met = edge.envoy.counts();
    assert_eq!((met.ok, met.over_limit, met.error), (9, 12, 0));
    edge.ends_all_free();
}

#[test]
fn concurrent_requests_never_exceed_the_limit() {
    let mut edge = Edge::start();
    let address = edge.envoy.edge;
    let shared = ConcurrentCallers::default();
    let heard = thread::scope(|scope| {
        // Ends the callers even if an assertion fails.
        let enough_at_end = SetOnDrop(&shared.enough);
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let shared = &shared;
                scope.spawn(move || shared.ask(address, number))
            })
            .collect();
        for round in 0..ROUNDS {
            edge.upstream.wait_for_held(LIMIT);
            shared.wait_for_refusals(2);
            let held = edge.upstream.held().swap_remove(round % LIMIT);
            shared.end(&edge.upstream, &held.key, ENDINGS[round % ENDINGS.len()]);
        }
        drop(enough_at_end);
        until("all callers have ended", || {
            let held = edge.upstream.held();
            for held in &held {
                edge.upstream.tell(&held.key, UpstreamAction::Answer(200));
            }
            let mut callers = callers.iter();
            if callers.all(thread::ScopedJoinHandle::is_finished) {
                Ok(())
            } else {
                Err(held)
            }
        });
        let mut heard = BTreeMap::<Option<u16>, u64>::new();
        for caller in callers {
            for (status, times) in caller.join().expect("a caller") {
                *heard.entry(status).or_default() += times;
            }
        }
        heard
    });

    assert_eq!(edge.upstream.most(), LIMIT);
    // Each way to end occurred as often as decided. Requests released at the end were answered as
    // well.
    let each = (ROUNDS / ENDINGS.len()) as u64;
    let times = |status| heard.get(&status).copied().unwrap_or_default();
    let (answered, refused, unheard) = (times(Some(200)), times(Some(429)), times(None));
    assert!(answered >= each, "{heard:?}");
    assert_eq!((times(Some(500)), times(Some(503))), (each, each));
    assert_eq!(unheard, 3 * each, "{heard:?}");
    assert_eq!(heard.len(), 5, "{heard:?}");
    edge.upstream.wait_for_left(2 * ROUNDS / ENDINGS.len());

    let ok = answered + unheard + 2 * each;
    edge.met(ok, refused, 0);
    edge.due = ok + refused;
    edge.ends_all_free();
}

#[test]
fn a_slot_of_a_caller_that_left_expires_and_renewed_slots_do_not() {
    let mut edge = Edge::start();
    let inside = [(); 2].map(|()| edge.enters());
    edge.relay.hold(Way::ToCaller);
    let (caller, _) = edge.sends();
    edge.wait_for_free(0);
    drop(caller);
    let gone = "http.edge.downstream_cx_destroy_remote_active_rq";
    until("Envoy sees that the caller is gone", || {
        edge.envoy.stat(gone) == 1
    });
    edge.relay.release();

    // The client has left, and Envoy sends no refund.
    edge.is_refused();
    edge.service.clock.advance_us(SLOT_US / 2);
    for held in edge.upstream.held() {
        let renewed = edge.look(&[("export", "all"), ("request_id", &held.id)]);
        assert_eq!(renewed, 0);
    }
    edge.service.clock.advance_us(SLOT_US / 2 - 1);
    edge.is_refused();
    edge.service.clock.advance_us(1);
    assert_eq!(edge.free(), 1);
    let third = edge.enters();
    edge.is_refused();

    // A renewed slot is refunded like any other.
    for request in inside {
        edge.end(request, Ending::Answered);
    }
    edge.end(third, Ending::Answered);
    edge.ends_all_free();
}

#[test]
fn a_slot_of_a_timed_out_check_is_released() {
    let mut edge = Edge::start_with(TIMEOUT);
    edge.relay.hold(Way::ToCaller);
    let (mut caller, _) = edge.sends();
    edge.wait_for_free(2);
    assert_eq!(caller.answer().expect("an answer").status, 503);
    edge.due += 1;
    edge.wait_for_given_back();
    assert_eq!(edge.free(), 3);
    edge.relay.release();
    edge.met(0, 0, 1);
    edge.ends_all_free();
}

#[test]
fn a_check_that_arrives_after_its_timeout_holds_a_slot_until_it_expires() {
    let mut edge = Edge::start_with(TIMEOUT);
    edge.relay.hold(Way::ToService);
    let (mut caller, _) = edge.sends();
    assert_eq!(caller.answer().expect("an answer").status, 503);
    edge.relay.release();
    // The check, its cancellation and its refund arrive together; the order of the last two is
    // open.
    edge.due += 1;
    edge.wait_for_given_back();
    let free = edge.free();
    assert!((2..=3).contains(&free), "{free}");
    until("the slot expires", || {
        edge.service.clock.advance_us(SLOT_US);
        match edge.free() {
            3 => Ok(()),
            free => Err(free),
        }
    });
    edge.met(0, 0, 1);
    edge.ends_all_free();
}

#[test]
fn clients_cannot_choose_the_slot_that_is_released() {
    let mut edge = Edge::start();
    let mut inside = Vec::new();
    for many in 1..=LIMIT {
        inside.push(edge.sends_as("mine"));
        edge.upstream.wait_for_held(many);
    }
    for _ in 0..2 {
        let (mut caller, _) = edge.sends_as("mine");
        assert_eq!(caller.answer().expect("an answer").status, 429);
        edge.due += 1;
        edge.wait_for_given_back();
        assert_eq!(edge.free(), 0);
    }
    let held = edge.upstream.held();
    assert!(held.iter().all(|held| held.id != "mine"), "{held:?}");
    for (caller, key) in inside {
        edge.end(Request { caller, key }, Ending::Answered);
    }
    edge.ends_all_free();
}

/// State that concurrent callers share with the test.
#[derive(Default)]
struct ConcurrentCallers {
    enough: AtomicBool,
    refused: AtomicU64,
    /// By key, the handle that closes the connection of a waiting caller.
    handles: Mutex<BTreeMap<String, TcpStream>>,
}

// === impl ConcurrentCallers ===

impl ConcurrentCallers {
    /// One caller: sends requests until the flag is set. Counts each status, or an incomplete
    /// response.
    fn ask(&self, edge: SocketAddr, number: usize) -> BTreeMap<Option<u16>, u64> {
        let mut heard = BTreeMap::new();
        for attempt in 0..REQUESTS_MAX {
            if self.enough.load(Ordering::Acquire) {
                break;
            }
            let key = format!("caller-{number}-{attempt}");
            let mut caller = HttpConnection::open(edge);
            self.handles().insert(key.clone(), caller.handle());
            caller.send("/export", &[("x-key", key.as_bytes())]);
            let status = caller.answer().ok().map(|answer| answer.status);
            self.handles().remove(&key);
            *heard.entry(status).or_default() += 1;
            if status == Some(429) {
                self.refused.fetch_add(1, Ordering::AcqRel);
                // sleep: a refused caller leaves the machine to the others.
                thread::sleep(PAUSE);
            }
        }
        heard
    }

    /// Waits until `more` requests were refused.
    fn wait_for_refusals(&self, more: u64) {
        let refused = || self.refused.load(Ordering::Acquire);
        let wanted = refused() + more;
        until("requests are refused", || match refused() {
            refused if refused >= wanted => Ok(()),
            refused => Err(format!("{refused} of {wanted}")),
        });
    }

    /// Ends a caller's request without waiting.
    fn end(&self, upstream: &Upstream, key: &str, ending: Ending) {
        let leave = || {
            upstream.tell(key, UpstreamAction::ExpectDisconnect);
            let handles = self.handles();
            let left = handles[key].shutdown(Shutdown::Both);
            left.expect("it was connected");
        };
        match ending {
            Ending::Answered => upstream.tell(key, UpstreamAction::Answer(200)),
            Ending::Failed => upstream.tell(key, UpstreamAction::Answer(500)),
            Ending::CutOff => upstream.tell(key, UpstreamAction::Close),
            Ending::CutOffHalfWay => {
                upstream.tell(key, UpstreamAction::SendHalf);
                upstream.tell(key, UpstreamAction::Close);
            }
            Ending::Left => leave(),
            Ending::LeftHalfWay => {
                upstream.tell(key, UpstreamAction::SendHalf);
                leave();
            }
        }
    }

    fn handles(&self) -> MutexGuard<'_, BTreeMap<String, TcpStream>> {
        self.handles.lock().expect("the handles")
    }
}
