//! One connection: reads what has arrived, leaves the deciding to its core, sends what is answered.
//!
//! How: a turn reads what the socket holds, hands every call in it to the core, and sends at the end all that was
//! written meanwhile. What the core answers later wakes the connection, once for all of them. Bytes that are no whole frame
//! yet are kept until the rest has come.
//!
//! A turn reads [`READS_PER_TURN_MAX`] times and takes up [`CALLS_PER_TURN_MAX`] calls at most, or one that goes to tonic, which
//! costs as much as many; then the others of its core have theirs.
//!
//! What it deliberately does not do: know what frames mean (`tollgate_http2`), look into a message, bound how many connections there
//! are.

use std::cell::{OnceCell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use tokio::task::{self, AbortHandle};
use tokio::time::{Sleep, sleep, timeout};
use tollgate_http2::{
    Call, Config, ConnectionError, Event, FRAME_BYTES_MAX, LimitCounts, Request, ServerConnection,
};
use tonic::Status as GrpcStatus;

use crate::grpc::batcher::Batcher;
use crate::grpc::buffers::{Buffers, READ_BYTES};
use crate::grpc::connection_supervisor::mind;
use crate::grpc::context::{ServerContext, ThreadContext};
use crate::grpc::http_types::{self, fields};
use crate::grpc::responder::StreamResponder;
use crate::grpc::services::{is_client_streaming, is_streaming};
use crate::grpc::slow_path::{RequestBodies, forward};
use crate::grpc::streaming::ConnectionCalls;
use crate::grpc::yielding::yield_to_others;
use crate::net::{Connection, ShutdownSignal};
use crate::tracing::TraceParent;

/// How many calls one turn takes up before other connections have theirs.
const CALLS_PER_TURN_MAX: usize = 256;

/// How often one turn reads.
const READS_PER_TURN_MAX: usize = 4;

/// Path of the method on the fast path.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How many calls are as much work as the frames before [`Event::Yield`].
const CALLS_PER_YIELD: usize = 17;

/// How long answers may take after the client has closed its side of the connection.
const HALF_CLOSED_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long, and for how many bytes, a connection that has ended is still read. A socket that is
/// closed with unread input resets the connection, and the client may lose what was sent last: the
/// GOAWAY that says why.
const LINGER_WAIT_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a caller reads whose body was refused.
const BODY_REFUSED: &str = "this connection holds too many unfinished request bodies; send fewer large requests at a time, or raise --body-memory-max";

/// A connection's state.
struct Session {
    connection: Connection,
    http2: Rc<RefCell<ServerConnection>>,
    /// What was read and is no whole frame, or was left for the next turn.
    left: Vec<u8>,
    /// What is left may hold whole frames.
    more: bool,
    /// Nothing more is read while so much waits to be sent.
    full: bool,
    batcher: Option<Rc<Batcher<StreamResponder>>>,
    buffers: Rc<Buffers>,
    server: ServerContext,
    /// Channels to the request bodies that tonic reads.
    bodies: RequestBodies,
    /// The bound on streaming calls, made for the first one.
    streaming: OnceCell<ConnectionCalls>,
    /// What breaks the connection; it ends when that has been said.
    broken: Option<ConnectionError>,
    /// Set once the client has closed its side: when answers have taken too long.
    half_closed: Option<Pin<Box<Sleep>>>,
}

/// How a connection ends before its time.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Broken(#[from] ConnectionError),
}

/// Ends a task when dropped.
struct Minding(AbortHandle);

/// Serves a connection until it ends.
pub(crate) async fn serve(
    connection: Connection,
    stopping: ShutdownSignal,
    thread: ThreadContext,
    server: ServerContext,
) {
    let ThreadContext {
        batcher,
        buffers,
        resetting,
    } = thread;
    let bounds = server.limits;
    let config = Config {
        streams_max: usize::try_from(bounds.streams_max).unwrap_or(usize::MAX),
        header_list_bytes_max: usize::try_from(bounds.header_list_bytes_max).unwrap_or(usize::MAX),
        message_bytes_max: u32::try_from(server.message_size_max).unwrap_or(u32::MAX),
        resets_per_second_max: bounds.resets_per_second_max,
        control_frames_per_second_max: bounds.control_frames_per_second_max,
        unary_path: Some(SHOULD_RATE_LIMIT),
        captured_header: server.pipeline.is_tracing().then_some(TraceParent::HEADER),
        is_client_streaming,
        header_list_hint: ", or raise --header-list-size-max",
    };
    let bodies = Arc::clone(&server.bodies);
    let http2 = ServerConnection::new(config, Rc::clone(&buffers.output), bodies);
    let http2 = Rc::new(RefCell::new(http2));
    let minder = task::spawn_local(mind(Rc::clone(&http2), stopping, server.clone(), resetting));
    let _minding = Minding(minder.abort_handle());
    let mut session = Session {
        connection,
        http2,
        left: Vec::new(),
        more: false,
        full: false,
        batcher,
        buffers,
        server,
        bodies: RequestBodies::default(),
        streaming: OnceCell::new(),
        broken: None,
        half_closed: None,
    };
    let ended = poll_fn(|cx| session.poll(cx)).await;
    if !matches!(ended, Err(Ended::Socket(_))) {
        // What does not arrive in time is lost; the connection has ended either way.
        let _ = timeout(LINGER_WAIT_MAX, session.linger()).await;
    }
    if let Err(error) = ended {
        tracing::debug!(%error, "a gRPC connection ended");
    }
}

// === impl Session ===

impl Session {
    /// One turn: goes on as far as it can, and lets the core know that there may be something for it. Ready when the
    /// connection has ended; what it left with the core is asked all the same.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        self.http2.borrow_mut().begin_turn(cx.waker());
        let polled = self.go_on(cx);
        self.http2.borrow_mut().end_turn();
        if let Some(batcher) = &self.batcher {
            batcher.end_turn();
        }
        polled
    }

    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        {
            let http2 = self.http2.borrow();
            // Dropping the connection closes it. A client that has not greeted has nothing under way.
            if http2.is_aborted() || (http2.is_shutting_down() && !http2.is_established()) {
                return Poll::Ready(Ok(()));
            }
        }
        // First what waits: whoever does not read its answers is not read either.
        if self.send(cx)?.is_pending() && self.http2.borrow().is_output_full() {
            return Poll::Pending;
        }
        let read = self.read(cx);
        self.refuse_bodies();
        let sent = self.send(cx)?;
        if sent.is_ready() && self.full {
            self.full = false;
            cx.waker().wake_by_ref();
        }
        if let Some(broken) = self.broken.take() {
            // As much as the socket takes; a client that reads nothing need not be told.
            return Poll::Ready(Err(broken.into()));
        }
        if read?.is_ready() && self.half_closed.is_none() {
            self.http2.borrow_mut().receive_eof();
            self.half_closed = Some(Box::pin(sleep(HALF_CLOSED_WAIT_MAX)));
        }
        if let Some(wait) = &mut self.half_closed
            && wait.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Ok(()));
        }
        if self.http2.borrow().is_finished() {
            ready!(sent);
            ready!(Pin::new(&mut self.connection).poll_shutdown(cx))?;
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Reads and deals with what there is. Ready when the client has closed its side.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Ended> {
        if self.half_closed.is_some() {
            return Ok(Poll::Ready(()));
        }
        let mut calls_left = CALLS_PER_TURN_MAX;
        for _ in 0..READS_PER_TURN_MAX {
            self.full = self.http2.borrow().is_output_full();
            if self.full || self.broken.is_some() {
                return Ok(Poll::Pending);
            }
            if calls_left == 0 {
                yield_to_others(cx);
                return Ok(Poll::Pending);
            }
            let mut buffer = self.buffers.take_input(READ_BYTES + FRAME_BYTES_MAX);
            let read = self.read_once(cx, &mut buffer, &mut calls_left);
            self.buffers.put_input(buffer);
            match read? {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Ok(Poll::Ready(())),
            }
        }
        yield_to_others(cx);
        Ok(Poll::Pending)
    }

    /// Reads once, or goes on with what was left. False when the client has closed its side.
    fn read_once(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        calls_left: &mut usize,
    ) -> Result<Poll<bool>, Ended> {
        let known = self.left.len();
        let mut filled = known;
        if !self.more {
            let (_, room) = buffer.split_at_mut_checked(known).unwrap_or_default();
            // Behind what is left, of which there is never more than a frame.
            let mut room = ReadBuf::new(room);
            if Pin::new(&mut self.connection)
                .poll_read(cx, &mut room)?
                .is_pending()
            {
                return Ok(Poll::Pending);
            }
            let bytes = room.filled().len();
            if bytes == 0 {
                return Ok(Poll::Ready(false));
            }
            filled = filled.saturating_add(bytes);
        }
        if let Some(front) = buffer.get_mut(..known) {
            front.copy_from_slice(&self.left);
        }
        let input = buffer.get(..filled).unwrap_or_default();
        let rest = self.deal_with(input, calls_left);
        self.keep(rest);
        Ok(Poll::Ready(true))
    }

    /// Hands on what stands in `input`, and gives back what is not dealt with.
    fn deal_with<'b>(&mut self, mut input: &'b [u8], calls_left: &mut usize) -> &'b [u8] {
        if let Err(error) = self.receive(&mut input, calls_left) {
            let reason = error.reason();
            self.http2.borrow_mut().abrupt_shutdown(reason);
            self.server.metrics.count_broken_connection(reason.name());
            self.broken = Some(error);
            return &[];
        }
        input
    }

    fn receive(
        &mut self,
        input: &mut &[u8],
        calls_left: &mut usize,
    ) -> Result<(), ConnectionError> {
        let now_us = self.server.pipeline.uptime_us();
        while *calls_left > 0 {
            // Not held while others answer: they write into the same.
            let event = self.http2.borrow_mut().receive(input, now_us)?;
            let Some(event) = event else {
                self.more = false;
                return Ok(());
            };
            let calls = self.handle(event, now_us)?;
            *calls_left = calls_left.saturating_sub(calls);
        }
        self.more = true;
        Ok(())
    }

    /// Handles an event. Returns how many calls it is as much work as.
    fn handle(&self, event: Event<'_>, now_us: u64) -> Result<usize, ConnectionError> {
        match event {
            Event::Call(call) => self.call(call, now_us),
            Event::Request(request) => self.forward(&request, now_us),
            Event::Data {
                stream,
                bytes,
                end_stream,
            } => {
                self.bodies.data(stream, bytes, end_stream);
                Ok(0)
            }
            Event::Trailers { stream, headers } => {
                if let Some(trailers) = http_types::header_map(&headers) {
                    self.bodies.trailers(stream, trailers);
                } else {
                    self.bodies.close(stream);
                    self.http2.borrow_mut().reset_malformed(stream, now_us)?;
                }
                Ok(0)
            }
            Event::Reset { stream } => {
                self.bodies.close(stream);
                Ok(0)
            }
            // Event::Yield, or an event of a later version.
            _ => Ok(CALLS_PER_YIELD),
        }
    }

    /// Leaves a call to the core, or to tonic where it is not for the core.
    fn call(&self, call: Call<'_>, now_us: u64) -> Result<usize, ConnectionError> {
        if let Some(batcher) = &self.batcher {
            let caller = StreamResponder::new(Rc::clone(&self.http2), call.stream);
            let captured = call.captured.as_ref();
            let parent = captured.and_then(|value| TraceParent::read(value.as_bytes()));
            if batcher
                .start(&call.body, call.timeout_us, parent, caller)
                .is_ok()
            {
                return Ok(1);
            }
        }
        let request = self.http2.borrow_mut().decline_call(call);
        match request {
            Some(request) => self.forward(&request, now_us),
            None => Ok(CALLS_PER_TURN_MAX),
        }
    }

    /// Has tonic answer a request, which is as much work as all calls of a turn.
    fn forward(&self, request: &Request<'_>, now_us: u64) -> Result<usize, ConnectionError> {
        let stream = request.stream;
        let Some(mut head) = http_types::request(&request.head) else {
            self.http2.borrow_mut().reset_malformed(stream, now_us)?;
            return Ok(1);
        };
        if is_streaming(head.uri().path()) {
            let calls_max = self.server.limits.streaming_calls_max;
            self.streaming
                .get_or_init(|| ConnectionCalls::new(calls_max))
                .put_into(&mut head);
        }
        let forwarded = self
            .bodies
            .open(stream, head, &request.body, request.end_stream);
        let routes = self.server.routes.clone();
        task::spawn_local(forward(routes, forwarded, Rc::clone(&self.http2)));
        Ok(CALLS_PER_TURN_MAX)
    }

    /// Refuses calls whose bodies are incomplete and for which there is no memory.
    fn refuse_bodies(&self) {
        let mut http2 = self.http2.borrow_mut();
        for stream in http2.settle_body_budget() {
            let refusal = GrpcStatus::resource_exhausted(BODY_REFUSED).into_http::<()>();
            let status = refusal.status().as_u16();
            http2.send_response(stream, status, fields(refusal.headers()), true);
            self.server.metrics.connections.bodies_refused.inc();
        }
    }

    /// Ends what is sent, and reads what the client had sent before it knew, within bounds.
    async fn linger(&mut self) -> io::Result<()> {
        let rest = {
            let mut http2 = self.http2.borrow_mut();
            let rest = http2.output().to_vec();
            // No one waits for answers any more.
            http2.close();
            rest
        };
        self.connection.write_all(&rest).await?;
        self.connection.shutdown().await?;
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            let bytes = self.connection.read(&mut buffer).await?;
            if bytes == 0 {
                break;
            }
            left = left.saturating_sub(bytes);
        }
        Ok(())
    }

    /// Keeps what is left for the next turn.
    fn keep(&mut self, rest: &[u8]) {
        self.left.clear();
        if rest.is_empty() {
            // Most connections are silent most of the time.
            self.left.shrink_to(FRAME_BYTES_MAX);
        }
        self.left.extend_from_slice(rest);
    }

    /// Sends what is written. Ready when all of it is sent.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let mut http2 = self.http2.borrow_mut();
        let counts = http2.take_limit_counts();
        if counts != LimitCounts::default() {
            let connections = &self.server.metrics.connections;
            connections.answers_unread.inc_by(counts.responses_dropped);
            connections
                .header_lists_refused
                .inc_by(counts.header_lists_refused);
        }
        loop {
            let connection = Pin::new(&mut self.connection);
            let bytes = http2.output();
            if bytes.is_empty() {
                return Ok(connection.poll_flush(cx)?);
            }
            match connection.poll_write(cx, bytes)? {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(sent) => http2.consume_output(sent),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.http2.borrow_mut().close();
    }
}

// === impl Minding ===

impl Drop for Minding {
    fn drop(&mut self) {
        self.0.abort();
    }
}
