//! Load generator with many keys that checks every answer.
//!
//! Why: `h2load` repeats one body. How: the client of the `h2` crate on one thread, with a number
//! of connections and streams each. A stream sends its next request when the last one is answered
//! (a closed loop; `latency` has an open one). An answer counts if its status is 0 and its message
//! begins with the expected code; anything else ends the bench.
//!
//! What it deliberately does not do: reach the speed of C. Its share of its core is reported with
//! every figure: near 100 % the rate is the generator's limit, and only the CPU per check measures
//! the server.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet, spawn_local};

use crate::requests::Template;
use crate::servers::{Kind, NGHTTPD_BYTES, Server};

/// Unread answers before the client suspects an attack. A whole burst may be unread if the
/// generator was preempted.
const DATA_FRAMES_MAX: usize = 1_000_000;

/// Connections and streams on each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    pub(crate) connections: u32,
    pub(crate) streams: u32,
}

/// Expected answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// A file of this length.
    File,
    /// gRPC's status 0, and this overall code.
    Code(u8),
    /// gRPC's status 0.
    Any,
}

/// Target of requests: a request without a body, to be cloned.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    head: Request<()>,
}

impl Target {
    pub(crate) fn of(server: &Server) -> Self {
        let head = Request::post(format!("http://{}/{}", server.address, server.path()))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        Self {
            address: server.address,
            head: head.body(()).expect("a request"),
        }
    }
}

/// Expected answer of this server to a request for `code`.
pub(crate) fn expected(server: &Server, code: u8) -> Expected {
    match server.kind {
        Kind::Nghttpd => Expected::File,
        // It never refuses.
        Kind::Bare => Expected::Any,
        Kind::Tollgate | Kind::OwnApi | Kind::Reference => Expected::Code(code),
        // Its first field says whether the request is allowed.
        Kind::Throttlecrab => Expected::Code(1),
    }
}

/// Runs a future with the tasks it spawns, all on this thread.
pub(crate) fn on_this_thread<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, future)
}

/// A connection, driven by a task of its own.
pub(crate) async fn connect(target: &Target) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(target.address)
        .await
        .expect("a connection");
    stream.set_nodelay(true).expect("TCP");
    let (sender, connection) = h2::client::Builder::new()
        .data_frame_budget(DATA_FRAMES_MAX)
        .handshake(stream)
        .await
        .expect("HTTP/2");
    spawn_local(async move {
        // Its streams tell what went wrong.
        let _ = connection.await;
    });
    sender
}

/// Sends one request.
pub(crate) async fn ask(
    sender: &mut SendRequest<Bytes>,
    target: &Target,
    body: Bytes,
    expected: Expected,
) -> Result<(), String> {
    let problem = |error: h2::Error| error.to_string();
    poll_fn(|context| sender.poll_ready(context))
        .await
        .map_err(problem)?;
    let (response, mut stream) = sender
        .send_request(target.head.clone(), false)
        .map_err(problem)?;
    stream.send_data(body, true).map_err(problem)?;
    let response = response.await.map_err(problem)?;
    let status = response.status();
    let in_head = response.headers().get("grpc-status").cloned();
    let mut body = response.into_body();
    let (mut begin, mut length) = (Bytes::new(), 0);
    while let Some(data) = body.data().await {
        let data = data.map_err(problem)?;
        length += data.len();
        let _ = body.flow_control().release_capacity(data.len());
        // Nearly always the whole body; in pieces when the client's window is small.
        begin = match begin.len() {
            0 => data,
            1..7 => [begin, data].concat().into(),
            _ => begin,
        };
    }
    let code = match expected {
        Expected::File if status == 200 && length == NGHTTPD_BYTES => return Ok(()),
        Expected::File => return Err(format!("{status}, {length} bytes")),
        Expected::Code(code) => Some(code),
        Expected::Any => None,
    };
    let trailers = body.trailers().await.map_err(problem)?.unwrap_or_default();
    let in_trailers = trailers.get("grpc-status");
    // The frame's header has five bytes; field 1 of the message is its code.
    let code_is = |code: u8| begin.get(5..7) == Some(&[8, code]);
    if in_trailers.is_some_and(|status| status == "0") && code.is_none_or(code_is) {
        Ok(())
    } else {
        Err(format!(
            "{status}, grpc-status {in_head:?} {in_trailers:?}, message {begin:?}"
        ))
    }
}

/// Sends these, eight at a time.
pub(crate) async fn send_all(target: &Target, bodies: impl Iterator<Item = Bytes>) {
    let sender = connect(target).await;
    let mut under_way = JoinSet::new();
    for body in bodies {
        if under_way.len() >= 8 {
            under_way.join_next().await;
        }
        let (mut sender, target) = (sender.clone(), target.clone());
        under_way.spawn_local(async move {
            let asked = ask(&mut sender, &target, body, Expected::Any).await;
            asked.expect("an answer");
        });
    }
    while let Some(ended) = under_way.join_next().await {
        ended.expect("an answer");
    }
}

/// Sends `requests` requests in a closed loop, with random keys; returns the seconds it took.
pub(crate) async fn closed_loop(
    target: &Target,
    template: &Template,
    (keys, expected): (u64, Expected),
    shape: Shape,
    requests: u64,
) -> f64 {
    let left = Rc::new(Cell::new(requests));
    let mut connections = Vec::new();
    for _ in 0..shape.connections {
        connections.push(connect(target).await);
    }
    #[allow(clippy::disallowed_methods)] // a bench measures time
    let began = Instant::now();
    let mut streams = JoinSet::new();
    for (number, sender) in (0_u64..).zip(connections) {
        for stream in 0..u64::from(shape.streams) {
            let (left, mut sender) = (Rc::clone(&left), sender.clone());
            let (target, template) = (target.clone(), template.clone());
            let mut keys = Keys::new(number * 1_000 + stream, keys);
            streams.spawn_local(async move {
                while let Some(fewer) = left.get().checked_sub(1) {
                    left.set(fewer);
                    let body = template.frame(keys.draw());
                    let asked = ask(&mut sender, &target, body, expected).await;
                    asked.expect("the answer that was expected");
                }
            });
        }
    }
    while let Some(ended) = streams.join_next().await {
        ended.expect("a stream");
    }
    began.elapsed().as_secs_f64()
}

/// Random numbers of keys from a fixed seed (splitmix64).
pub(crate) struct Keys {
    state: u64,
    keys: u64,
}

impl Keys {
    pub(crate) fn new(seed: u64, keys: u64) -> Self {
        Self { state: seed, keys }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % self.keys
    }
}
