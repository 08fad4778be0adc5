//! Everything between a client and the upstream server in the tests of concurrency limits: an
//! Envoy with the route of docs/rules.md, a relay, a tollgate with the rules of that page, and the
//! upstream server.

use std::net::SocketAddr;

use tokio::runtime::Runtime;
use tollgate_test_support::envoy_process::{Counts, Envoy};
use tollgate_test_support::grpc_client::{Descriptor, descriptor};
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;
use tollgate_test_support::relay::Relay;

use crate::envoy::edge::runtime;
use crate::envoy::upstream::{Upstream, UpstreamAction};

pub(crate) const ENDINGS: [Ending; 6] = [
    Ending::Answered,
    Ending::Failed,
    Ending::CutOff,
    Ending::CutOffHalfWay,
    Ending::Left,
    Ending::LeftHalfWay,
];

pub(crate) const GIVEN_BACK: &str =
    r#"ratelimit_service_rate_limit_total_negative_hits{domain="edge",key1="export",key2=""}"#;

/// Limit of the page's rules.
pub(crate) const LIMIT: usize = 3;

const BOOTSTRAP: &str = include_str!("in_flight.yaml");

const PAGE: &str = include_str!("../../docs/rules.md");

/// How a request in progress ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Answered,
    Failed,
    /// The server closes the connection before the response.
    CutOff,
    /// The server closes the connection after half of the response.
    CutOffHalfWay,
    /// The client disconnects before the response.
    Left,
    /// The client disconnects after half of the response.
    LeftHalfWay,
}

/// Everything between client and upstream server. Clients are dropped before servers.
pub(crate) struct Edge {
    pub(crate) envoy: Envoy,
    pub(crate) relay: Relay,
    pub(crate) upstream: Upstream,
    pub(crate) service: Service,
    pub(crate) runtime: Runtime,
    /// Number of requests sent, so that each has a key of its own.
    pub(crate) sent: u64,
    /// Number of refunds that Envoy should have sent.
    pub(crate) due: u64,
}

/// A request in progress and its client.
pub(crate) struct Request {
    pub(crate) caller: HttpConnection,
    pub(crate) key: String,
}

// === impl Edge ===

impl Edge {
    pub(crate) fn start() -> Self {
        Self::start_with("30s")
    }

    /// Starts it with this timeout of Envoy's checks.
    pub(crate) fn start_with(timeout: &str) -> Self {
        let (rules, route) = shown();
        let runtime = runtime();
        let service = runtime.block_on(Service::start(rules, &[]));
        let upstream = Upstream::start();
        let relay = Relay::to(service.grpc);
        let port = |address: SocketAddr| address.port().to_string();
        let route = route.lines().map(|line| format!("{:24}{line}\n", ""));
        let bootstrap = BOOTSTRAP
            .replace("@ROUTE@\n", &route.collect::<String>())
            .replace("@BACKEND_PORT@", &port(upstream.address))
            .replace("@TIMEOUT@", timeout)
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

    /// Sends a request; returns its client and key.
    pub(crate) fn sends(&mut self) -> (HttpConnection, String) {
        self.sends_with(&[])
    }

    /// The same, with a request ID of the client's choice.
    pub(crate) fn sends_as(&mut self, id: &str) -> (HttpConnection, String) {
        self.sends_with(&[("x-request-id", id.as_bytes())])
    }

    pub(crate) fn sends_with(&mut self, headers: &[(&str, &[u8])]) -> (HttpConnection, String) {
        let key = format!("request-{}", self.sent);
        self.sent += 1;
        let mut caller = HttpConnection::open(self.envoy.edge);
        let key_header = [("x-key", key.as_bytes())];
        caller.send("/export", &[&key_header, headers].concat());
        (caller, key)
    }

    /// Sends a request that must be allowed.
    pub(crate) fn enters(&mut self) -> Request {
        let held = self.upstream.held().len();
        let (caller, key) = self.sends();
        self.upstream.wait_for_held(held + 1);
        Request { caller, key }
    }

    /// Sends as many requests as the limit allows.
    pub(crate) fn fill(&mut self) -> Vec<Request> {
        let sent = [(); LIMIT].map(|()| self.sends());
        self.upstream.wait_for_held(LIMIT);
        let requests = sent.into_iter();
        requests
            .map(|(caller, key)| Request { caller, key })
            .collect()
    }

    /// Sends a request that must be refused, and waits for Envoy's refund.
    pub(crate) fn is_refused(&mut self) {
        let (mut caller, key) = self.sends();
        let answer = caller.answer().expect("an answer");
        assert_eq!(answer.status, 429, "{key}");
        assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
        self.due += 1;
        self.wait_for_given_back();
    }

    /// Ends a request and waits for Envoy's refund.
    pub(crate) fn end(&mut self, request: Request, ending: Ending) {
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

    /// Waits for all refunds of Envoy and asserts that there are no more.
    pub(crate) fn wait_for_given_back(&self) {
        let given_back = || self.service.metric(GIVEN_BACK);
        until("Envoy has sent all refunds", || match given_back() {
            refunds if refunds >= self.due => Ok(()),
            refunds => Err(format!("{refunds} of {}", self.due)),
        });
        assert_eq!(given_back(), self.due);
    }

    /// Number of free slots.
    pub(crate) fn free(&mut self) -> u32 {
        self.look(&[("export", "all")])
    }

    /// Number of free slots that a zero-hit check reports, without Envoy.
    pub(crate) fn look(&mut self, entries: &[(&str, &str)]) -> u32 {
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

    pub(crate) fn wait_for_free(&mut self, free: u32) {
        until("slots are free", || match self.free() {
            found if found == free => Ok(()),
            found => Err(format!("{found}, not {free}")),
        });
    }

    /// Asserts Envoy's counters.
    pub(crate) fn met(&self, ok: u64, over_limit: u64, error: u64) {
        let met = Counts {
            ok,
            over_limit,
            error,
            failure_mode_allowed: 0,
        };
        assert_eq!(self.envoy.counts(), met);
    }

    /// Asserts that every slot is free: by a zero-hit check, by three requests that pass and a
    /// fourth that does not, and that the limit was never exceeded.
    pub(crate) fn ends_all_free(mut self) {
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

/// The rules and the route on the page.
fn shown() -> (&'static str, &'static str) {
    let (_, section) = PAGE
        .split_once("## Limit concurrency with Envoy\n")
        .expect("the section");
    let mut blocks = section.split("```yaml\n").skip(1);
    let mut block = || {
        let (block, _) = blocks.next()?.split_once("```")?;
        Some(block)
    };
    (block().expect("rules"), block().expect("a route"))
}
