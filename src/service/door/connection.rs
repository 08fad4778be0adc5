//! One HTTP/2 connection: takes up what has arrived, leaves the deciding to its core, sends what is answered.
//!
//! How: one poll takes up every stream that is there, reads the body that came with it and hands it to the core; answers
//! are put into the connection's queue by the core and leave together at the next poll. A stream whose body has not come
//! yet waits here, one of [`WAITING_BODIES_MAX`]; those beyond have a task of their own behind `forward`.
//!
//! A poll takes up at most [`STREAMS_PER_POLL_MAX`] streams and then lets the others of its core have their turn.
//!
//! What it deliberately does not do: look into a message, bound how many connections there are.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{self, SendResponse};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use tokio::task::{self, AbortHandle};

use super::core::{Core, NotTaken};
use super::cores::Serving;
use super::forward::forward;
use super::minder::{Order, Orders, mind};
use crate::accept::{Connection, Stopping};
use crate::service::connections::RESET_STREAMS_MAX;
use crate::service::wire::grpc_timeout_us;

/// The one call that is taken here.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What a message is sent as that this door reads.
const GRPC_TYPES: [&[u8]; 2] = [b"application/grpc", b"application/grpc+proto"];

const GRPC_ENCODING: &str = "grpc-encoding";
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// How many streams one poll takes up before other connections have their turn.
const STREAMS_PER_POLL_MAX: usize = 256;

/// How many streams wait for their body in the connection's own hands. Each is looked at in each poll.
const WAITING_BODIES_MAX: usize = 64;

/// As tonic's door has it, by hyper: how much a client may send ahead.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// The same: how much may wait to be sent to a client that does not read.
const SEND_BUFFER_BYTES: usize = 1024 * 400;

/// A connection's state.
struct Session {
    http2: server::Connection<Connection, Bytes>,
    /// Streams whose body has not come yet.
    waiting: VecDeque<Arrived>,
    core: Option<Rc<Core<SendResponse<Bytes>>>>,
    serving: Serving,
    orders: Rc<Orders>,
    said_goodbye: bool,
}

/// A request that has arrived, perhaps without its body.
struct Arrived {
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    timeout_us: Option<u64>,
    /// What has come of the body: a frame of data.
    read: Option<Bytes>,
    /// How much of that the client was told it may send again.
    room_made_bytes: usize,
}

/// What was found of a body.
enum Found {
    /// All of it, in one frame of data.
    Whole,
    /// Not yet all.
    Some,
    /// More than one frame: nothing for this door.
    Parts,
    /// The client has gone.
    Gone,
}

/// Ends a task when dropped.
struct Minding(AbortHandle);

/// Serves a connection until it ends.
pub(super) async fn serve(
    connection: Connection,
    stopping: Stopping,
    core: Option<Rc<Core<SendResponse<Bytes>>>>,
    serving: Serving,
) {
    if let Err(error) = try_to_serve(connection, stopping, core, serving).await {
        tracing::debug!(%error, "a gRPC connection ended");
    }
}

async fn try_to_serve(
    connection: Connection,
    stopping: Stopping,
    core: Option<Rc<Core<SendResponse<Bytes>>>>,
    serving: Serving,
) -> Result<(), h2::Error> {
    let bounds = serving.bounds;
    let mut builder = server::Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(bounds.streams_max)
        .max_header_list_size(bounds.header_list_bytes_max)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX);
    let mut told = stopping.clone();
    let mut http2 = tokio::select! {
        http2 = builder.handshake(connection) => http2?,
        // Who has not even said hello has nothing under way.
        () = told.wait() => return Ok(()),
    };
    let orders = Rc::<Orders>::default();
    let aged = serving.metrics.connections_aged.clone();
    let pings = http2.ping_pong();
    let minder = task::spawn_local(mind(Rc::clone(&orders), bounds, stopping, pings, aged));
    let _minding = Minding(minder.abort_handle());
    let mut session = Session {
        http2,
        waiting: VecDeque::new(),
        core,
        serving,
        orders,
        said_goodbye: false,
    };
    std::future::poll_fn(|cx| session.poll(cx)).await
}

/// What a request's headers say, in one pass over them: a map would hash each name that is looked up.
struct Headers {
    /// Whether this door takes it: a plain call of ShouldRateLimit.
    taken: bool,
    /// How long the caller waits, if it says so.
    timeout_us: Option<u64>,
}

// === impl Session ===

impl Session {
    /// Goes on as far as it can, and lets the core know that there may be something for it. Ready when the connection has
    /// ended; what it left with the core is asked all the same.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let polled = self.go_on(cx);
        if let Some(core) = &self.core {
            core.ask();
        }
        polled
    }

    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        self.orders.wake(cx.waker());
        match self.orders.order() {
            Order::Serve => {}
            Order::GoAway if self.said_goodbye => {}
            Order::GoAway => {
                self.said_goodbye = true;
                self.http2.graceful_shutdown();
            }
            // Dropping it closes it.
            Order::Close => return Poll::Ready(Ok(())),
        }
        self.look_at_waiting(cx);
        for _ in 0..STREAMS_PER_POLL_MAX {
            match self.http2.poll_accept(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok((request, respond)))) => self.arrived(request, respond, cx),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => {
                    let closed = ready!(self.http2.poll_closed(cx));
                    return Poll::Ready(closed);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn arrived(
        &mut self,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        cx: &mut Context<'_>,
    ) {
        let Headers { taken, timeout_us } = Headers::of(&request);
        let mut arrived = Arrived {
            request,
            respond,
            timeout_us,
            read: None,
            room_made_bytes: 0,
        };
        if taken && self.core.is_some() {
            let found = arrived.find(cx);
            self.hand_on(found, arrived);
        } else {
            self.forward(arrived);
        }
    }

    fn look_at_waiting(&mut self, cx: &mut Context<'_>) {
        // Each once: those that go on waiting stand behind the others again.
        for _ in 0..self.waiting.len() {
            if let Some(mut arrived) = self.waiting.pop_front() {
                let found = arrived.find(cx);
                self.hand_on(found, arrived);
            }
        }
    }

    /// Hands a request on if its body is there; else it waits.
    fn hand_on(&mut self, found: Found, mut arrived: Arrived) {
        match (found, &self.core) {
            (Found::Gone, _) => {}
            (Found::Some, _) if self.waiting.len() < WAITING_BODIES_MAX => {
                arrived.make_room();
                self.waiting.push_back(arrived);
            }
            (Found::Whole, Some(core)) => {
                let body = arrived.read.take().unwrap_or_default();
                let taken = core.take(body, arrived.timeout_us, arrived.respond);
                if let Err(NotTaken { body, respond }) = taken {
                    self.forward(Arrived {
                        read: Some(body),
                        respond,
                        ..arrived
                    });
                }
            }
            _ => {
                arrived.make_room();
                self.forward(arrived);
            }
        }
    }

    fn forward(&self, arrived: Arrived) {
        let routes = self.serving.routes.clone();
        let Arrived {
            request,
            respond,
            read,
            ..
        } = arrived;
        task::spawn_local(forward(routes, request, read, respond));
    }
}

// === impl Headers ===

impl Headers {
    fn of(request: &Request<RecvStream>) -> Self {
        let (mut grpc, mut encoded, mut timeout_us) = (false, false, None);
        for (name, value) in request.headers() {
            if name == CONTENT_TYPE {
                grpc = GRPC_TYPES.contains(&value.as_bytes());
            } else if name == GRPC_ENCODING {
                encoded = true;
            } else if name == GRPC_TIMEOUT {
                // Of several the first counts, as where they are looked up.
                timeout_us = timeout_us.or_else(|| grpc_timeout_us(value.to_str().ok()?));
            }
        }
        let call = request.method() == Method::POST && request.uri().path() == SHOULD_RATE_LIMIT;
        Self {
            taken: call && grpc && !encoded,
            timeout_us,
        }
    }
}

// === impl Arrived ===

impl Arrived {
    /// Lets the client send as much again as was read. A request that is whole makes its room when it ends, and spares the
    /// frame; but many that wait for their rest could fill the connection's window, and then the rest never came.
    fn make_room(&mut self) {
        let read = self.read.as_ref().map_or(0, Bytes::len);
        let bytes = read.saturating_sub(self.room_made_bytes);
        self.room_made_bytes = read;
        // It is no more than was read.
        let _ = self
            .request
            .body_mut()
            .flow_control()
            .release_capacity(bytes);
    }

    /// Reads what has come of the body.
    fn find(&mut self, cx: &mut Context<'_>) -> Found {
        loop {
            let body = self.request.body_mut();
            if self.read.is_some() && body.is_end_stream() {
                return Found::Whole;
            }
            match body.poll_data(cx) {
                Poll::Pending => return Found::Some,
                Poll::Ready(None) => return Found::Whole,
                Poll::Ready(Some(Err(_))) => return Found::Gone,
                Poll::Ready(Some(Ok(data))) if data.is_empty() => {}
                Poll::Ready(Some(Ok(data))) => {
                    if let Some(first) = &mut self.read {
                        // Behind tonic they are one again.
                        let mut both =
                            bytes::BytesMut::with_capacity(first.len().saturating_add(data.len()));
                        both.extend_from_slice(first);
                        both.extend_from_slice(&data);
                        *first = both.freeze();
                        return Found::Parts;
                    }
                    self.read = Some(data);
                }
            }
        }
    }
}

// === impl Minding ===

impl Drop for Minding {
    fn drop(&mut self) {
        self.0.abort();
    }
}
