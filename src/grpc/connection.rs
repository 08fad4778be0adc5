//! One connection: reads what has arrived, leaves the deciding to its core, sends what is answered.
//!
//! How: a turn reads what the socket holds, hands every call in it to the core, and sends at the end all that was
//! written meanwhile. What the core answers later wakes the connection, once for all of them. Bytes that are no whole frame
//! yet are kept until the rest has come.
//!
//! A turn reads [`READS_PER_TURN_MAX`] times and takes up [`CALLS_PER_TURN_MAX`] calls at most, or one that goes to tonic, which
//! costs as much as many; then the others of its core have theirs.
//!
//! What it deliberately does not do: know what frames mean (`http2`), look into a message, bound how many connections there
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
use tonic::Status as GrpcStatus;

use crate::grpc::batcher::{Core, NotTaken};
use crate::grpc::buffers::{Buffers, READ_BYTES};
use crate::grpc::connection_supervisor::mind;
use crate::grpc::connections::after_others;
use crate::grpc::http2::{
    BoundsMet, Broken, Event, FRAME_BYTES_MAX, HEAD_BYTES, Handed, Http2, Limits, Order,
};
use crate::grpc::responder::Caller;
use crate::grpc::slow_path::forward;
use crate::grpc::streaming::{ConnectionCalls, is_streaming};
use crate::grpc::worker_threads::{Local, Serving};
use crate::net::{Connection, Stopping};
use crate::tracing::TraceParent;

/// How many calls one turn takes up before other connections have theirs.
const CALLS_PER_TURN_MAX: usize = 256;

/// How often one turn reads.
const READS_PER_TURN_MAX: usize = 4;

/// What frames that bring no call on are in calls.
const CALLS_FOR_NOTHING: usize = 16;

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
    http2: Rc<RefCell<Http2>>,
    /// What was read and is no whole frame, or was left for the next turn.
    left: Vec<u8>,
    /// What is left may hold whole frames.
    more: bool,
    /// Nothing more is read while so much waits to be sent.
    full: bool,
    core: Option<Rc<Core<Caller>>>,
    buffers: Rc<Buffers>,
    serving: Serving,
    /// The bound on streaming calls, made for the first one.
    streaming: OnceCell<ConnectionCalls>,
    /// What breaks the connection; it ends when that has been said.
    broken: Option<Broken>,
    /// Set once the client has closed its side: when answers have taken too long.
    half_closed: Option<Pin<Box<Sleep>>>,
}

/// How a connection ends before its time.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Broken(#[from] Broken),
}

/// Ends a task when dropped.
struct Minding(AbortHandle);

/// Serves a connection until it ends.
pub(crate) async fn serve(
    connection: Connection,
    stopping: Stopping,
    local: Local,
    serving: Serving,
) {
    let Local {
        core,
        buffers,
        resetting,
    } = local;
    let bounds = serving.bounds;
    let limits = Limits {
        streams_max: usize::try_from(bounds.streams_max).unwrap_or(usize::MAX),
        header_list_bytes_max: usize::try_from(bounds.header_list_bytes_max).unwrap_or(usize::MAX),
        message_bytes_max: u32::try_from(serving.message_size_max).unwrap_or(u32::MAX),
        resets_per_second_max: bounds.resets_per_second_max,
        control_frames_per_second_max: bounds.control_frames_per_second_max,
        traces: serving.service.traces(),
    };
    let bodies = Arc::clone(&serving.bodies);
    let http2 = Http2::new(limits, Rc::clone(&buffers), bodies);
    let http2 = Rc::new(RefCell::new(http2));
    let minder = task::spawn_local(mind(
        Rc::clone(&http2),
        stopping,
        serving.clone(),
        resetting,
    ));
    let _minding = Minding(minder.abort_handle());
    let mut session = Session {
        connection,
        http2,
        left: Vec::new(),
        more: false,
        full: false,
        core,
        buffers,
        serving,
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
        if let Some(core) = &self.core {
            core.ask();
        }
        polled
    }

    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        {
            let mut http2 = self.http2.borrow_mut();
            match http2.order() {
                Order::Serve => {}
                // Who has not even said hello has nothing under way.
                Order::GoAway if !http2.is_greeted() => return Poll::Ready(Ok(())),
                Order::GoAway => http2.say_goodbye(),
                // Dropping it closes it.
                Order::Close => return Poll::Ready(Ok(())),
            }
        }
        // First what waits: whoever does not read its answers is not read either.
        if self.send(cx)?.is_pending() && self.http2.borrow().is_full() {
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
            self.http2.borrow_mut().client_closed();
            self.half_closed = Some(Box::pin(sleep(HALF_CLOSED_WAIT_MAX)));
        }
        if let Some(wait) = &mut self.half_closed
            && wait.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Ok(()));
        }
        if self.http2.borrow().is_over() {
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
            self.full = self.http2.borrow().is_full();
            if self.full || self.broken.is_some() {
                return Ok(Poll::Pending);
            }
            if calls_left == 0 {
                after_others(cx);
                return Ok(Poll::Pending);
            }
            let mut buffer = self
                .buffers
                .take_reading(READ_BYTES + HEAD_BYTES + FRAME_BYTES_MAX);
            let read = self.read_once(cx, &mut buffer, &mut calls_left);
            self.buffers.put_reading(buffer);
            match read? {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Ok(Poll::Ready(())),
            }
        }
        after_others(cx);
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
        let now_us = self.serving.service.uptime_us();
        while *calls_left > 0 {
            // Not held while others answer: they write into the same.
            let next = self.http2.borrow_mut().next(&mut input, now_us);
            match next {
                Ok(None) => {
                    self.more = false;
                    return input;
                }
                Ok(Some(Event::Request(handed))) => {
                    self.forward(handed);
                    *calls_left = 0;
                }
                Ok(Some(Event::Nothing)) => {
                    *calls_left = calls_left.saturating_sub(CALLS_FOR_NOTHING);
                }
                Ok(Some(Event::Call {
                    stream,
                    body,
                    timeout_us,
                    parent,
                })) => {
                    if self.call(stream, &body, timeout_us, parent).is_err() {
                        *calls_left = 0;
                    }
                }
                Err(broken) => {
                    self.http2.borrow_mut().say_broken(broken.reason);
                    let reason = broken.reason.label();
                    self.serving.metrics.count_broken_connection(reason);
                    self.broken = Some(broken);
                    return &[];
                }
            }
            *calls_left = calls_left.saturating_sub(1);
        }
        self.more = true;
        input
    }

    /// Leaves a call to the core, or to tonic where it is not for the core.
    fn call(
        &mut self,
        stream: u32,
        body: &[u8],
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
    ) -> Result<(), NotTaken> {
        let taken = match &self.core {
            Some(core) => {
                let caller = Caller::new(Rc::clone(&self.http2), stream);
                core.take(body, timeout_us, parent, caller)
            }
            None => Err(NotTaken),
        };
        if taken.is_err() {
            let handed = self.http2.borrow_mut().hand_over(stream, &[body]);
            if let Some(handed) = handed {
                self.forward(handed);
            }
        }
        taken
    }

    fn forward(&self, mut handed: Handed) {
        if is_streaming(handed.request.uri().path()) {
            let calls_max = self.serving.bounds.streaming_calls_max;
            self.streaming
                .get_or_init(|| ConnectionCalls::new(calls_max))
                .put_into(&mut handed.request);
        }
        let routes = self.serving.routes.clone();
        task::spawn_local(forward(routes, handed, Rc::clone(&self.http2)));
    }

    /// Refuses calls whose bodies are incomplete and for which there is no memory.
    fn refuse_bodies(&self) {
        let mut http2 = self.http2.borrow_mut();
        for stream in http2.settle_bodies() {
            let refusal = GrpcStatus::resource_exhausted(BODY_REFUSED).into_http::<()>();
            http2.refuse(stream, refusal.status(), refusal.headers());
            self.serving.metrics.connections.bodies_refused.inc();
        }
    }

    /// Ends what is sent, and reads what the client had sent before it knew, within bounds.
    async fn linger(&mut self) -> io::Result<()> {
        let rest = {
            let mut http2 = self.http2.borrow_mut();
            let rest = http2.to_send().to_vec();
            // No one waits for answers any more.
            http2.end();
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
        let met = http2.take_met();
        if met != BoundsMet::default() {
            let connections = &self.serving.metrics.connections;
            connections.answers_unread.inc_by(met.answers_unread);
            connections.header_lists_refused.inc_by(met.header_lists);
        }
        loop {
            let connection = Pin::new(&mut self.connection);
            let bytes = http2.to_send();
            if bytes.is_empty() {
                return Ok(connection.poll_flush(cx)?);
            }
            match connection.poll_write(cx, bytes)? {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(sent) => http2.sent(sent),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.http2.borrow_mut().end();
    }
}

// === impl Minding ===

impl Drop for Minding {
    fn drop(&mut self) {
        self.0.abort();
    }
}
