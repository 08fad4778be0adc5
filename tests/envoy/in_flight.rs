//! How many at once, behind a real Envoy: never more than the limit, and in the end every slot is free.
//!
//! Why: Envoy gives back whether or not it was given, and forgets to when its caller leaves during the check. How: rules
//! and route are those that docs/rules.md shows. The server behind Envoy (`upstream`) holds requests until a test decides
//! how each ends, and counts strictly; a relay can hold back what Envoy and tollgate say to one another, so that what takes
//! microseconds can be cut in two. tollgate runs in the test's process, at a time that stands still: no slot ends by
//! itself while a test runs, so one that comes back was given back, and where a slot's time is the question, it is moved.
//!
//! What it deliberately does not do: show that anonymous slots are wrong for Envoy (`docs/rules.md` says so; the laws of
//! the algorithm are in `tests/laws`).

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate_test_support::background_clients::SetOnDrop;
use tollgate_test_support::envoy_process::{Counts, Envoy};
use tollgate_test_support::grpc_client::{Descriptor, descriptor};
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{PATIENCE, wait_for};

use crate::relay::{Relay, Way};
use crate::upstream::{Upstream, UpstreamAction};

const BOOTSTRAP: &str = include_str!("in_flight.yaml");
const PAGE: &str = include_str!("../../docs/rules.md");

/// What the page's rules allow at once.
const LIMIT: usize = 3;

/// How long, by the page's rules, a slot is held that nobody gives back.
const SLOT_US: u64 = 60_000_000;

const GIVEN_BACK: &str =
    r#"ratelimit_service_rate_limit_total_negative_hits{domain="edge",key1="export",key2=""}"#;

/// How a request that is inside can end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Answered,
    Failed,
    /// The server's connection ends before the answer.
    CutOff,
    /// The server's connection ends half-way through the answer.
    CutOffHalfWay,
    /// The caller leaves before the answer.
    Left,
    /// The caller leaves half-way through the answer.
    LeftHalfWay,
}

const ENDINGS: [Ending; 6] = [
    Ending::Answered,
    Ending::Failed,
    Ending::CutOff,
    Ending::CutOffHalfWay,
    Ending::Left,
    Ending::LeftHalfWay,
];

/// Callers of the crowd.
const CALLERS: usize = 6;

/// Requests that the crowd ends, the same number in each way.
const ROUNDS: usize = 60;

/// Between two requests of one caller.
const PAUSE: Duration = Duration::from_millis(5);

/// Requests that one caller sends at most, should the rounds never end.
const REQUESTS_MAX: usize = 20_000;

/// Everything from the caller to the server. What asks is dropped before what answers.
struct Edge {
    envoy: Envoy,
    relay: Relay,
    upstream: Upstream,
    service: Service,
    runtime: Runtime,
    /// Requests so far, so that each has a key of its own.
    sent: u64,
    /// What Envoy should have given back so far.
    due: u64,
}

/// A request that is inside, and who waits for its answer.
struct Request {
    caller: HttpConnection,
    key: String,
}

#[test]
fn however_a_request_ends_its_slot_comes_back_and_no_other() {
    let mut edge = Edge::start();
    let mut inside = edge.fill();
    for (position, ending) in ENDINGS.into_iter().enumerate() {
        // What Envoy gives back for those that were refused is nobody's slot.
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
fn a_crowd_is_never_more_than_three_whatever_becomes_of_each() {
    let mut edge = Edge::start();
    let address = edge.envoy.edge;
    let crowd = ConcurrentCallers::default();
    let heard = thread::scope(|scope| {
        // However this ends, so do the callers.
        let enough_at_end = SetOnDrop(&crowd.enough);
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let crowd = &crowd;
                scope.spawn(move || crowd.ask(address, number))
            })
            .collect();
        for round in 0..ROUNDS {
            edge.upstream.wait_for_held(LIMIT);
            crowd.wait_for_refusals(2);
            let held = edge.upstream.held().swap_remove(round % LIMIT);
            crowd.end(&edge.upstream, &held.key, ENDINGS[round % ENDINGS.len()]);
        }
        drop(enough_at_end);
        let done = wait_for(PATIENCE, || {
            for held in edge.upstream.held() {
                edge.upstream.tell(&held.key, UpstreamAction::Answer(200));
            }
            callers
                .iter()
                .all(thread::ScopedJoinHandle::is_finished)
                .then_some(())
        });
        assert!(done.is_some(), "{:?}", edge.upstream.held());
        let mut heard = BTreeMap::<Option<u16>, u64>::new();
        for caller in callers {
            for (status, times) in caller.join().expect("a caller") {
                *heard.entry(status).or_default() += times;
            }
        }
        heard
    });

    assert_eq!(edge.upstream.most(), LIMIT);
    // Each way to end was met as often as it was decided. Those let go at the end were answered, too.
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
fn a_slot_whose_caller_left_during_the_check_ends_by_itself_and_those_renewed_do_not() {
    let mut edge = Edge::start();
    let inside = [(); 2].map(|()| edge.enters());
    edge.relay.hold(Way::ToEnvoy);
    let (caller, _) = edge.sends();
    edge.wait_for_free(0);
    drop(caller);
    let gone = "http.edge.downstream_cx_destroy_remote_active_rq";
    let noticed = wait_for(PATIENCE, || (edge.envoy.stat(gone) == 1).then_some(()));
    assert!(noticed.is_some(), "Envoy sees that the caller is gone");
    edge.relay.release();

    // Nobody is there, and Envoy will never say so.
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

    // What was renewed is given back as if it had not been.
    for request in inside {
        edge.end(request, Ending::Answered);
    }
    edge.end(third, Ending::Answered);
    edge.ends_all_free();
}

#[test]
fn a_slot_taken_by_a_check_that_envoy_gave_up_is_given_back() {
    let mut edge = Edge::start();
    edge.relay.hold(Way::ToEnvoy);
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
fn a_check_that_comes_after_envoy_gave_it_up_holds_a_slot_for_its_time_at_most() {
    let mut edge = Edge::start();
    edge.relay.hold(Way::ToTollgate);
    let (mut caller, _) = edge.sends();
    assert_eq!(caller.answer().expect("an answer").status, 503);
    edge.relay.release();
    // The check, that it is given up, and what is given back come in one breath: in which order the last is decided is
    // anyone's guess.
    edge.due += 1;
    edge.wait_for_given_back();
    let free = edge.free();
    assert!((2..=3).contains(&free), "{free}");
    let ended = wait_for(PATIENCE, || {
        edge.service.clock.advance_us(SLOT_US);
        (edge.free() == 3).then_some(())
    });
    assert!(ended.is_some(), "{} free", edge.free());
    edge.met(0, 0, 1);
    edge.ends_all_free();
}

#[test]
fn nobody_outside_can_choose_whose_slot_is_given_back() {
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

// === impl Edge ===

impl Edge {
    fn start() -> Self {
        let (rules, route) = shown();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let service = runtime.block_on(Service::start(rules, &[]));
        let upstream = Upstream::start();
        let relay = Relay::to(service.grpc);
        let port = |address: SocketAddr| address.port().to_string();
        let route = route.lines().map(|line| format!("{:24}{line}\n", ""));
        let bootstrap = BOOTSTRAP
            .replace("@ROUTE@\n", &route.collect::<String>())
            .replace("@BACKEND_PORT@", &port(upstream.address))
            .replace("@SERVICE_PORT@", &port(relay.address));
        Self {
            envoy: Envoy::start(&bootstrap),
            relay,
            upstream,
            service,
            runtime,
            sent: 0,
            due: 0,
        }
    }

    /// A request on its way, and its key.
    fn sends(&mut self) -> (HttpConnection, String) {
        self.sends_with(&[])
    }

    /// The same, by someone who says which request it is.
    fn sends_as(&mut self, id: &str) -> (HttpConnection, String) {
        self.sends_with(&[("x-request-id", id.as_bytes())])
    }

    fn sends_with(&mut self, headers: &[(&str, &[u8])]) -> (HttpConnection, String) {
        let key = format!("request-{}", self.sent);
        self.sent += 1;
        let mut caller = HttpConnection::open(self.envoy.edge);
        let key_header = [("x-key", key.as_bytes())];
        caller.send("/export", &[&key_header, headers].concat());
        (caller, key)
    }

    /// One request more is let in.
    fn enters(&mut self) -> Request {
        let held = self.upstream.held().len();
        let (caller, key) = self.sends();
        self.upstream.wait_for_held(held + 1);
        Request { caller, key }
    }

    /// As many as may come in, at once.
    fn fill(&mut self) -> Vec<Request> {
        let sent = [(); LIMIT].map(|()| self.sends());
        self.upstream.wait_for_held(LIMIT);
        let requests = sent.into_iter();
        requests
            .map(|(caller, key)| Request { caller, key })
            .collect()
    }

    /// One more is not let in, and what Envoy gives back for it has come.
    fn is_refused(&mut self) {
        let (mut caller, key) = self.sends();
        let answer = caller.answer().expect("an answer");
        assert_eq!(answer.status, 429, "{key}");
        assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
        self.due += 1;
        self.wait_for_given_back();
    }

    /// Has a request end, and waits for what Envoy gives back.
    fn end(&mut self, request: Request, ending: Ending) {
        let Request { mut caller, key } = request;
        let upstream = &self.upstream;
        let mut heard = || caller.answer().ok().map(|answer| answer.status);
        match ending {
            Ending::Answered => {
                upstream.tell(&key, UpstreamAction::Answer(200));
                assert_eq!(heard(), Some(200));
            }
            Ending::Failed => {
                upstream.tell(&key, UpstreamAction::Answer(500));
                assert_eq!(heard(), Some(500));
            }
            Ending::CutOff => {
                upstream.tell(&key, UpstreamAction::Close);
                assert_eq!(heard(), Some(503));
            }
            Ending::CutOffHalfWay => {
                upstream.tell(&key, UpstreamAction::SendHalf);
                assert_eq!(caller.head().expect("a head").status, 200);
                upstream.tell(&key, UpstreamAction::Close);
            }
            Ending::Left => {
                upstream.tell(&key, UpstreamAction::ExpectDisconnect);
                drop(caller);
            }
            Ending::LeftHalfWay => {
                upstream.tell(&key, UpstreamAction::SendHalf);
                assert_eq!(caller.head().expect("a head").status, 200);
                upstream.tell(&key, UpstreamAction::ExpectDisconnect);
                drop(caller);
            }
        }
        self.due += 1;
        self.wait_for_given_back();
    }

    /// Waits for all that Envoy should have given back, and takes care that it is no more.
    fn wait_for_given_back(&self) {
        let given_back = || self.service.metric(GIVEN_BACK);
        wait_for(PATIENCE, || (given_back() >= self.due).then_some(()));
        assert_eq!(given_back(), self.due);
    }

    /// How many slots are free.
    fn free(&mut self) -> u32 {
        self.look(&[("export", "all")])
    }

    /// How many a look with these entries says are free. It does not pass by Envoy.
    fn look(&mut self, entries: &[(&str, &str)]) -> u32 {
        let look = Descriptor {
            hits_addend: Some(0),
            ..descriptor(entries)
        };
        let status = self.service.status("edge", look);
        let status = self.runtime.block_on(status);
        let limit = status.current_limit.expect("a limit");
        assert_eq!(limit.requests_per_unit as usize, LIMIT);
        status.limit_remaining
    }

    fn wait_for_free(&mut self, free: u32) {
        let so = wait_for(PATIENCE, || (self.free() == free).then_some(()));
        assert!(so.is_some(), "{} free, not {free}", self.free());
    }

    /// What Envoy must have met.
    fn met(&self, ok: u64, over_limit: u64, error: u64) {
        let met = Counts {
            ok,
            over_limit,
            error,
            failure_mode_allowed: 0,
        };
        assert_eq!(self.envoy.counts(), met);
    }

    /// Every slot is free: a look says so, three come in at once, a fourth does not, and there were never more.
    fn ends_all_free(mut self) {
        self.wait_for_given_back();
        assert_eq!(self.free() as usize, LIMIT);
        let inside = self.fill();
        self.is_refused();
        for request in inside {
            self.end(request, Ending::Answered);
        }
        assert_eq!(self.free() as usize, LIMIT);
        assert_eq!(self.upstream.most(), LIMIT);
    }
}

/// What the callers of a crowd share with the test.
#[derive(Default)]
struct ConcurrentCallers {
    enough: AtomicBool,
    refused: AtomicU64,
    /// By key, what ends the connection of a caller that waits.
    handles: Mutex<BTreeMap<String, TcpStream>>,
}

// === impl ConcurrentCallers ===

impl ConcurrentCallers {
    /// One caller: asks until there is enough. How often it heard each status, or not the whole of an answer.
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
                thread::sleep(PAUSE);
            }
        }
        heard
    }

    /// Waits until so many more were refused.
    fn wait_for_refusals(&self, more: u64) {
        let refused = || self.refused.load(Ordering::Acquire);
        let before = refused();
        let grown = wait_for(PATIENCE, || (refused() >= before + more).then_some(()));
        assert!(grown.is_some(), "{before} refused, then {}", refused());
    }

    /// Has a caller's request end. Nothing is waited for.
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

/// The rules and the route that the page shows.
fn shown() -> (&'static str, &'static str) {
    let (_, section) = PAGE
        .split_once("## How many at once, with Envoy\n")
        .expect("the section");
    let mut blocks = section.split("```yaml\n").skip(1);
    let mut block = || {
        let (block, _) = blocks.next()?.split_once("```")?;
        Some(block)
    };
    (block().expect("rules"), block().expect("a route"))
}
