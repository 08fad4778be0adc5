//! tonic's routes as the oracle of our HTTP/2 server.
//!
//! How: two services with the same rules, settings and time. Each request goes to the port of the
//! first and, without a socket, to the routes of the second. Status, headers, body and trailers of
//! both answers must be equal, and so must the counters of both services at the end.
//!
//! What it deliberately does not do: say which of the two is right.

use std::collections::BTreeSet;
use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tonic::body::Body;
use tonic::codegen::Service as _;

use super::raw::{Raw, Seen, words};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

/// Our server, and the oracle.
pub(crate) struct Pair {
    pub(crate) server: Service,
    pub(crate) oracle: Service,
    raw: Raw,
}

// === impl Pair ===

impl Pair {
    pub(crate) async fn start(rules: &str, arguments: &[&str]) -> Self {
        let server = Service::start(rules, arguments).await;
        let oracle = Service::start(rules, arguments).await;
        let raw = Raw::connect(server.grpc).await;
        Self {
            server,
            oracle,
            raw,
        }
    }

    /// Sends a request with its body in these frames of data to both, and compares the answers.
    pub(crate) async fn make(&mut self, name: &str, head: &Request<()>, body: &[Vec<u8>]) -> Seen {
        let by_server = self.raw.make(copy(head), body).await;
        let by_routes = by_routes(&self.oracle, copy(head), body).await;
        assert_eq!(
            by_server, by_routes,
            "{name}: the server, and tonic's routes"
        );
        by_server
    }

    /// Advances the clocks of both.
    pub(crate) fn advance_us(&self, us: u64) {
        self.server.clock.advance_us(us);
        self.oracle.clock.advance_us(us);
    }

    /// Compares what both have counted. Partitions count refunds after the answer.
    pub(crate) async fn compare_counters(&self) {
        let look = async || {
            let (server, oracle) = (counted(&self.server), counted(&self.oracle));
            // Only the lines that differ: there are hundreds.
            let without = |lines: &BTreeSet<String>, other: &BTreeSet<String>| -> Vec<String> {
                lines.difference(other).cloned().collect()
            };
            let (more, fewer) = (without(&server, &oracle), without(&oracle, &server));
            let equal = more.is_empty() && fewer.is_empty();
            equal.then_some(()).ok_or((more, fewer))
        };
        until_async("both have counted the same", look).await;
    }
}

fn copy(head: &Request<()>) -> Request<()> {
    let mut copy = Request::builder().method(head.method()).uri(head.uri());
    *copy.headers_mut().unwrap() = head.headers().clone();
    copy.body(()).unwrap()
}

/// The answer of tonic's routes.
async fn by_routes(oracle: &Service, head: Request<()>, frames: &[Vec<u8>]) -> Seen {
    let body = if frames.is_empty() {
        Body::empty()
    } else {
        let frames: Vec<_> = frames
            .iter()
            .map(|frame| Ok::<_, Infallible>(Frame::data(Bytes::from(frame.clone()))))
            .collect();
        Body::new(StreamBody::new(tokio_stream::iter(frames)))
    };
    let answered = oracle.routes.clone().call(head.map(|()| body)).await;
    let (head, mut body) = answered.unwrap().into_parts();
    let mut seen = Seen {
        status: head.status.as_u16(),
        headers: words(&head.headers),
        ..Seen::default()
    };
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => all.extend_from_slice(&data),
            Ok(Err(frame)) => seen.trailers = words(frame.trailers_ref().unwrap()),
            Err(status) => seen.error = Some(status.to_string()),
        }
    }
    seen.body = all.to_vec();
    seen
}

/// All metrics except times, those that depend on the partition of a key (its hash is random),
/// those of connections, which the oracle does not have, and bytes of top keys: the routes share
/// one recorder.
fn counted(service: &Service) -> BTreeSet<String> {
    let text = service.metrics.render().unwrap();
    let different = [
        "response_time",
        "partition=",
        "rules_",
        "config_load",
        "tollgate_connections",
        "tollgate_buckets_freed",
        "process_",
        "tollgate_top_keys_memory_bytes",
    ];
    text.lines()
        .filter(|line| !different.iter().any(|word| line.contains(word)))
        .map(str::to_owned)
        .collect()
}
