//! The agent for HAProxy, frame by frame. `tests/guides/ingresses.rs` has the real HAProxy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::PATIENCE;

const RULES: &str = "
domain: edge
descriptors:
  - key: client
    rate_limit: { unit: minute, requests_per_unit: 3 }
";

/// The types of frames.
const NOTIFY: u8 = 3;
const AGENT_HELLO: u8 = 101;
const AGENT_DISCONNECT: u8 = 102;
const ACK: u8 = 103;

pub(super) struct HaProxy(TcpStream);

/// A frame of HAProxy, whose stream has this number.
fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let body = [&[kind, 0, 0, 0, 1, stream, 1], payload].concat();
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

fn hello(more: &[u8]) -> Vec<u8> {
    let payload = [
        &text("supported-versions")[..],
        &[8],
        &text("2.0"),
        &text("max-frame-size"),
        &[3, 0xfc, 0xf0, 0x06],
        &text("capabilities"),
        &[8],
        &text("pipelining,async"),
        more,
    ];
    frame(1, 0, &payload.concat())
}

/// A message of a client.
fn notify(stream: u8, client: &str) -> Vec<u8> {
    message(stream, "edge", "client", client)
}

/// A message of one entry.
pub(super) fn message(stream: u8, domain: &str, key: &str, value: &str) -> Vec<u8> {
    let payload = [text(domain), vec![1], text(key), vec![8], text(value)];
    frame(NOTIFY, stream, &payload.concat())
}

/// The variables of an answer: `set-var`, three arguments, scope of the transaction.
fn variables(allowed: bool, numbers: &[(&str, u8)]) -> Vec<u8> {
    let mut payload = [
        &[1, 3, 2][..],
        &text("allowed"),
        &[if allowed { 0x11 } else { 1 }],
    ]
    .concat();
    for (name, number) in numbers {
        payload.extend([&[1, 3, 2][..], &text(name), &[4, *number]].concat());
    }
    payload
}

// === impl HaProxy ===

impl HaProxy {
    fn open(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub(super) fn greeted(at: SocketAddr) -> Self {
        let mut haproxy = Self::open(at);
        haproxy.send(&hello(&[]));
        assert_eq!(haproxy.receive().0, AGENT_HELLO);
        haproxy
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The type, the stream and the payload of the next frame.
    pub(super) fn receive(&mut self) -> (u8, u8, Vec<u8>) {
        let mut head = [0; 4];
        self.0.read_exact(&mut head).unwrap();
        let mut body = vec![0; usize::try_from(u32::from_be_bytes(head)).unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (body[0], body[5], body[7..].to_vec())
    }

    /// Whether the agent closes the connection with this status.
    fn is_refused(&mut self, status: u8) -> bool {
        let (kind, _, payload) = self.receive();
        let expected = [&text("status-code")[..], &[3, status]].concat();
        kind == AGENT_DISCONNECT
            && payload.starts_with(&expected)
            && self.0.read(&mut [0]).unwrap() == 0
    }
}

async fn start() -> (Service, SocketAddr) {
    let flags = ["--spoe-port", "0", "--ingress-host", "127.0.0.1"];
    let service = Service::start(RULES, &flags).await;
    let at = service.ingresses[0];
    (service, at)
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_checks_and_answers_set_variables() {
    let (service, at) = start().await;
    let mut haproxy = HaProxy::greeted(at);
    for remaining in [2, 1, 0] {
        haproxy.send(&notify(7, "192.0.2.7"));
        let numbers = [("limit", 3), ("remaining", remaining), ("reset", 50)];
        let expected = (ACK, 7, variables(true, &numbers));
        assert_eq!(haproxy.receive(), expected);
    }
    haproxy.send(&notify(8, "192.0.2.7"));
    let numbers = [
        ("limit", 3),
        ("remaining", 0),
        ("reset", 50),
        ("retry_after", 50),
    ];
    assert_eq!(haproxy.receive(), (ACK, 8, variables(false, &numbers)));
    // Without a value there is no descriptor, and without one message no answer.
    let without = [text("edge"), vec![1], text("client"), vec![0]].concat();
    haproxy.send(&frame(NOTIFY, 9, &without));
    assert_eq!(haproxy.receive(), (ACK, 9, variables(true, &[])));
    haproxy.send(&frame(NOTIFY, 10, &[]));
    assert_eq!(haproxy.receive(), (ACK, 10, Vec::new()));
    let count = |result: &str| {
        let labels = format!("{{ingress=\"spoe\",result=\"{result}\"}}");
        service.metric(&format!("tollgate_ingress_checks_total{labels}"))
    };
    assert_eq!(
        (count("allowed"), count("refused"), count("invalid")),
        (4, 1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_one_connection_are_decided_side_by_side() {
    let (_service, at) = start().await;
    let mut haproxy = HaProxy::greeted(at);
    let many: Vec<u8> = (0..100)
        .flat_map(|stream| notify(stream, "192.0.2.7"))
        .collect();
    // Cut in the middle of a frame.
    let (first, second) = many.split_at(many.len() / 2 + 1);
    haproxy.send(first);
    haproxy.send(second);
    let (mut streams, mut passed) = (Vec::new(), 0);
    for _ in 0..100 {
        let (kind, stream, payload) = haproxy.receive();
        assert_eq!(kind, ACK);
        streams.push(stream);
        passed += usize::from(payload.starts_with(&variables(true, &[])));
    }
    streams.sort_unstable();
    assert_eq!(streams, (0..100).collect::<Vec<_>>());
    assert_eq!(passed, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_protocol_forbids_ends_its_own_connection_with_a_status() {
    let (_service, at) = start().await;
    let mut kept = HaProxy::greeted(at);
    let mut early = HaProxy::open(at);
    early.send(&notify(1, "a"));
    assert!(early.is_refused(4), "a message before the greeting");
    let mut fragment = notify(1, "a");
    fragment[8] = 0;
    for (sent, status, what) in [
        (fragment, 10, "a fragment"),
        (vec![0xff; 4], 3, "a frame of 4 GiB"),
        (
            frame(NOTIFY, 1, &[200, b'x']),
            4,
            "a text longer than its frame",
        ),
        (hello(&[]), 4, "a second greeting"),
        (frame(2, 0, &[]), 0, "the end"),
    ] {
        let mut haproxy = HaProxy::greeted(at);
        haproxy.send(&sent);
        assert!(haproxy.is_refused(status), "{what}");
    }
    let mut check = HaProxy::open(at);
    check.send(&hello(&[&text("healthcheck")[..], &[0x11]].concat()));
    assert_eq!(check.receive().0, AGENT_HELLO);
    assert!(check.is_refused(0), "a health check");
    kept.send(&notify(1, "192.0.2.7"));
    assert_eq!(kept.receive().0, ACK);
}
