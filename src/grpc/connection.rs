//! One gRPC connection: reads frames, starts calls in the thread's batcher, writes responses.
//!
//! In a turn the connection reads what the socket holds, starts every call in it, and then writes
//! all output at once. Responses that the batcher writes later wake the connection once for the
//! whole batch. An incomplete frame is kept until the rest arrives.
//!
//! A turn reads at most [`READS_PER_TURN_MAX`] times and starts at most [`CALLS_PER_TURN_MAX`]
//! calls. A call for tonic costs as much as a whole turn. Then the connection yields to the others
//! of its thread.
//!
//! Connections are many, and few of them have bytes in a buffer at the same moment. So those of one
//! thread share a buffer for input, which is handled in the turn in which it is read, and a pool
//! for output. An idle connection keeps no buffer.
//!
//! What it deliberately does not do: interpret frames (`tollgate_http2`), decode messages, limit
//! the number of connections, or bound what one of them writes.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prost::Message as _;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use tokio::sync::Semaphore;
use tokio::task::{self, AbortHandle};
use tokio::time::{Sleep, sleep, timeout};
use tollgate_http2::{
    BufferPool, Call, Config, ConnectionError, Event, FRAME_BYTES_MAX, LimitCounts, Reason,
    Request, ServerConnection,
};
use tonic::Status as GrpcStatus;

use crate::answer_memory::{AnswerPermit, ConnectionAnswers};
use crate::grpc::connection_supervisor::supervise;
use crate::grpc::context::{ServerContext, yield_to_others};
use crate::grpc::layers::{ConnectionCalls, SHOULD_RATE_LIMIT};
use crate::grpc::services::api_call::{Caller, api_status, plain_status};
use crate::grpc::services::rate_limits::{ApiCalls, CHECK, PEEK};
use crate::grpc::services::{is_client_streaming, is_streaming};
use crate::grpc::slow_path::{
    RequestBodies, UnsentBodies, fields, forward, header_map, http_request,
};
use crate::net::{Connection, ShutdownSignal};
use crate::pipeline::{
    Batcher, EncodedResponse, FRAME_HEAD_BYTES, RequestError, Responder, check_as_request,
};
use crate::proto::tollgate::v1::CheckRequest;
use crate::proto::tollgate::v1::answer::Answer;
use crate::proto::tollgate::v1::call::Call as ApiCall;
use crate::tracing::TraceParent;

/// Maximum number of calls that a connection starts before it yields.
const CALLS_PER_TURN_MAX: usize = 256;

/// Maximum number of reads in a turn.
const READS_PER_TURN_MAX: usize = 4;

/// How many bytes are read from a connection at once.
const READ_BYTES: usize = 64 * 1024;

/// Cost of the frames before [`Event::Yield`], in calls.
const CALLS_PER_YIELD: usize = 17;

/// How long responses may take after the client has closed its side of the connection.
const HALF_CLOSED_WAIT_MAX: Duration = Duration::from_secs(10);

/// Bounds on reading a connection that has ended. Closing a socket with unread input resets the
/// connection, and the client may then lose what was sent last: the GOAWAY with the reason.
const LINGER_WAIT_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Cost of a call of tollgate's API, in calls: it runs in a task.
const CALLS_PER_API_CALL: usize = 4;

/// The methods of the fast path.
const UNARY_PATHS: [&str; 3] = [SHOULD_RATE_LIMIT, CHECK, PEEK];

/// The error message for a call whose body exceeds the memory budget.
const BODY_REFUSED: &str = "this connection holds too many unfinished request bodies; send fewer large requests at a time, or raise --body-memory-max";

/// State that the connections of one thread share.
#[derive(Clone)]
pub(crate) struct ThreadContext {
    pub(crate) batcher: Rc<Batcher<StreamResponder>>,
    buffers: Rc<Buffers>,
    /// Held by the connection that resets late calls: one at a time.
    resetting: Rc<Semaphore>,
    /// Carries out calls of tollgate's API.
    api: Rc<ApiCalls>,
}

/// The buffers of one worker thread.
#[derive(Default)]
struct Buffers {
    input: Cell<Vec<u8>>,
    /// Where hits are added to checks of tollgate's API.
    check: RefCell<Vec<u8>>,
    output: Rc<BufferPool>,
}

/// A stream of a connection, to which the response to a call of the fast path is written. The
/// stream is reset if this is dropped without a response, which only a defect causes.
pub(crate) struct StreamResponder {
    http2: Rc<RefCell<ServerConnection>>,
    stream: u32,
    pending: bool,
    /// Whether the call is one of tollgate's API, whose errors have details.
    is_api: bool,
}

/// The state of one connection.
struct ConnectionTask {
    connection: Connection,
    http2: Rc<RefCell<ServerConnection>>,
    /// Input of earlier turns: an incomplete frame, or frames beyond the limit on calls in a turn.
    unprocessed: Vec<u8>,
    /// `unprocessed` may hold whole frames.
    has_whole_frames: bool,
    /// The output buffer is full; reading is paused.
    output_full: bool,
    thread: ThreadContext,
    server: ServerContext,
    /// Channels to the request bodies that tonic reads.
    bodies: RequestBodies,
    /// The memory of answers that are not sent yet, created by the first call for tonic.
    answers: OnceCell<Arc<ConnectionAnswers>>,
    /// The limit on streaming calls, created by the first one.
    streaming: OnceCell<ConnectionCalls>,
    /// A connection error. The connection ends once the GOAWAY is written.
    error: Option<ConnectionError>,
    /// Deadline for responses, set once the client has closed its side.
    half_closed: Option<Pin<Box<Sleep>>>,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Http2(#[from] ConnectionError),
}

/// Aborts a task when dropped.
struct AbortOnDrop(AbortHandle);

/// The message in a call's body; none unless that is one whole frame, uncompressed and not too
/// long.
pub(super) fn message_of(body: &[u8], message_size_max: usize) -> Option<&[u8]> {
    let (head, message) = body.split_at_checked(FRAME_HEAD_BYTES)?;
    let (compressed, length) = head.split_first()?;
    let length = u32::from_be_bytes(length.try_into().ok()?);
    let whole = *compressed == 0
        && usize::try_from(length).ok()? == message.len()
        && message.len() <= message_size_max;
    whole.then_some(message)
}

/// Serves a connection until it ends.
pub(crate) async fn serve(
    connection: Connection,
    stopping: ShutdownSignal,
    thread: ThreadContext,
    server: ServerContext,
) {
    let bounds = server.limits;
    let config = Config {
        streams_max: usize::try_from(bounds.streams_max).unwrap_or(usize::MAX),
        header_list_bytes_max: usize::try_from(bounds.header_list_bytes_max).unwrap_or(usize::MAX),
        message_bytes_max: u32::try_from(server.message_size_max).unwrap_or(u32::MAX),
        resets_per_second_max: bounds.resets_per_second_max,
        control_frames_per_second_max: bounds.control_frames_per_second_max,
        unary_paths: &UNARY_PATHS,
        captured_header: server.pipeline.is_tracing().then_some(TraceParent::HEADER),
        is_client_streaming,
        header_list_hint: ", or raise --header-list-size-max",
    };
    let bodies = Arc::clone(&server.bodies);
    let http2 = ServerConnection::new(config, Rc::clone(&thread.buffers.output), bodies);
    let http2 = Rc::new(RefCell::new(http2));
    let resetting = Rc::clone(&thread.resetting);
    let supervisor = supervise(Rc::clone(&http2), stopping, server.clone(), resetting);
    let _supervisor = AbortOnDrop(task::spawn_local(supervisor).abort_handle());
    let mut task = ConnectionTask {
        connection,
        http2,
        unprocessed: Vec::new(),
        has_whole_frames: false,
        output_full: false,
        thread,
        server,
        bodies: RequestBodies::default(),
        answers: OnceCell::new(),
        streaming: OnceCell::new(),
        error: None,
        half_closed: None,
    };
    let result = poll_fn(|cx| task.poll(cx)).await;
    if !matches!(result, Err(ServeError::Io(_))) {
        // The connection ends whether or not the flush completes in time.
        let _ = timeout(LINGER_WAIT_MAX, task.drain()).await;
    }
    if let Err(error) = result {
        tracing::debug!(%error, "a gRPC connection ended with an error");
    }
}

// === impl ConnectionTask ===

impl ConnectionTask {
    /// Runs one turn, then wakes the batcher for the calls that were started. Ready when the
    /// connection has ended; the batcher still sends the checks of its calls.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServeError>> {
        self.http2.borrow_mut().begin_turn(cx.waker());
        let polled = self.run_turn(cx);
        self.http2.borrow_mut().end_turn();
        self.thread.batcher.end_turn();
        polled
    }

    fn run_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServeError>> {
        {
            let http2 = self.http2.borrow();
            // Dropping the connection closes it. Before its preface a client has no calls.
            if http2.is_aborted() || (http2.is_shutting_down() && !http2.is_established()) {
                return Poll::Ready(Ok(()));
            }
        }
        // Output goes first: a client that does not read responses is not read from either.
        if self.send(cx)?.is_pending() && self.http2.borrow().is_output_full() {
            return Poll::Pending;
        }
        let read = self.read(cx);
        self.refuse_bodies();
        let sent = self.send(cx)?;
        if sent.is_ready() && self.output_full {
            self.output_full = false;
            cx.waker().wake_by_ref();
        }
        if let Some(error) = self.error.take() {
            // The GOAWAY is sent only as far as the socket accepts it: a client may read nothing.
            return Poll::Ready(Err(error.into()));
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

    /// Reads and processes input. Ready when the client has closed its side.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, ServeError> {
        if self.half_closed.is_some() {
            return Ok(Poll::Ready(()));
        }
        let mut calls_left = CALLS_PER_TURN_MAX;
        for _ in 0..READS_PER_TURN_MAX {
            self.output_full = self.http2.borrow().is_output_full();
            if self.output_full || self.error.is_some() {
                return Ok(Poll::Pending);
            }
            if calls_left == 0 {
                yield_to_others(cx);
                return Ok(Poll::Pending);
            }
            let mut buffer = self.thread.buffers.take_input(READ_BYTES + FRAME_BYTES_MAX);
            let read = self.read_once(cx, &mut buffer, &mut calls_left);
            self.thread.buffers.put_input(buffer);
            match read? {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Ok(Poll::Ready(())),
            }
        }
        yield_to_others(cx);
        Ok(Poll::Pending)
    }

    /// Reads once, or processes input of an earlier turn. False when the client has closed its
    /// side.
    fn read_once(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        calls_left: &mut usize,
    ) -> Result<Poll<bool>, ServeError> {
        let earlier = self.unprocessed.len();
        let mut filled = earlier;
        if !self.has_whole_frames {
            // Read behind the unprocessed input, which is now less than a frame.
            let (_, free) = buffer.split_at_mut_checked(earlier).unwrap_or_default();
            let mut free = ReadBuf::new(free);
            if Pin::new(&mut self.connection)
                .poll_read(cx, &mut free)?
                .is_pending()
            {
                return Ok(Poll::Pending);
            }
            let bytes = free.filled().len();
            if bytes == 0 {
                return Ok(Poll::Ready(false));
            }
            filled = filled.saturating_add(bytes);
        }
        if let Some(front) = buffer.get_mut(..earlier) {
            front.copy_from_slice(&self.unprocessed);
        }
        let input = buffer.get(..filled).unwrap_or_default();
        let rest = self.process(input, calls_left);
        self.keep(rest);
        Ok(Poll::Ready(true))
    }

    /// Processes `input` and returns the unprocessed rest.
    fn process<'b>(&mut self, mut input: &'b [u8], calls_left: &mut usize) -> &'b [u8] {
        if let Err(error) = self.receive(&mut input, calls_left) {
            let reason = error.reason();
            self.http2.borrow_mut().abrupt_shutdown(reason);
            self.server.metrics.connections.count_broken(reason.name());
            self.error = Some(error);
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
            // The borrow ends here: handling an event writes into the same connection.
            let event = self.http2.borrow_mut().receive(input, now_us)?;
            let Some(event) = event else {
                self.has_whole_frames = false;
                return Ok(());
            };
            let calls = self.handle(event, now_us)?;
            *calls_left = calls_left.saturating_sub(calls);
        }
        self.has_whole_frames = true;
        Ok(())
    }

    /// Handles an event. Returns its cost in calls.
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
                if let Some(trailers) = header_map(&headers) {
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

    /// Starts a call in the batcher, or in tonic if neither the batcher nor tollgate's API supports
    /// it.
    fn call(&self, call: Call<'_>, now_us: u64) -> Result<usize, ConnectionError> {
        if let Some(message) = message_of(&call.body, self.server.message_size_max) {
            let responder = StreamResponder {
                http2: Rc::clone(&self.http2),
                stream: call.stream,
                pending: true,
                is_api: call.path != SHOULD_RATE_LIMIT,
            };
            let captured = call.captured.as_ref();
            let parent = captured.and_then(|value| TraceParent::read(value.as_bytes()));
            let batcher = &self.thread.batcher;
            let mut check = self.thread.buffers.check.borrow_mut();
            if call.path == SHOULD_RATE_LIMIT {
                let started = batcher.start(message, call.timeout_us, parent, responder);
                if started.is_ok() {
                    return Ok(1);
                }
            } else if call.path == CHECK
                && let Some(request) = check_as_request(message, &mut check)
            {
                let started = batcher.start_check(request, call.timeout_us, parent, responder);
                if started.is_ok() {
                    return Ok(1);
                }
            } else if let Ok(check) = CheckRequest::decode(message) {
                let deadline = self.server.pipeline.deadline_after(call.timeout_us);
                let check = if call.path == PEEK {
                    ApiCall::Peek(check)
                } else {
                    ApiCall::Check(check)
                };
                self.call_api(check, Caller { deadline, parent }, responder);
                return Ok(CALLS_PER_API_CALL);
            } else {
                responder.release();
            }
        }
        let request = self.http2.borrow_mut().decline_call(call);
        match request {
            Some(request) => self.forward(&request, now_us),
            None => Ok(CALLS_PER_TURN_MAX),
        }
    }

    /// Answers a call of tollgate's API in a task, which ends when the client closes the stream.
    fn call_api(&self, call: ApiCall, caller: Caller, responder: StreamResponder) {
        let answers = Arc::clone(self.answers());
        let api = Rc::clone(&self.thread.api);
        task::spawn_local(async move {
            let (http2, stream) = (Rc::clone(&responder.http2), responder.stream);
            tokio::select! {
                answered = api.plain(call, caller, &answers) => responder.respond_api(answered),
                () = poll_fn(|cx| http2.borrow_mut().poll_closed(stream, cx)) => {}
            }
        });
    }

    /// The memory of this connection's answers.
    fn answers(&self) -> &Arc<ConnectionAnswers> {
        let memory = &self.server.answers;
        self.answers.get_or_init(|| memory.connection())
    }

    /// Forwards a request to tonic, which costs as much as all calls of a turn.
    fn forward(&self, request: &Request<'_>, now_us: u64) -> Result<usize, ConnectionError> {
        let stream = request.stream;
        let Some(mut head) = http_request(&request.head) else {
            self.http2.borrow_mut().reset_malformed(stream, now_us)?;
            return Ok(1);
        };
        if is_streaming(head.uri().path()) {
            let calls_max = self.server.limits.streaming_calls_max;
            let calls = self
                .streaming
                .get_or_init(|| ConnectionCalls::new(calls_max));
            head.extensions_mut().insert(calls.clone());
        }
        let forwarded = self
            .bodies
            .open(stream, head, &request.body, request.end_stream);
        let routes = self.server.routes.clone();
        let unsent = UnsentBodies {
            connection: Arc::clone(self.answers()),
            unread: self.server.metrics.connections.answers_unread.clone(),
        };
        let http2 = Rc::clone(&self.http2);
        task::spawn_local(forward(routes, forwarded, http2, unsent));
        Ok(CALLS_PER_TURN_MAX)
    }

    /// Rejects calls with incomplete bodies that exceed the memory budget.
    fn refuse_bodies(&self) {
        let mut http2 = self.http2.borrow_mut();
        for stream in http2.settle_body_budget() {
            let refusal = GrpcStatus::resource_exhausted(BODY_REFUSED).into_http::<()>();
            let status = refusal.status().as_u16();
            http2.send_response(stream, status, fields(refusal.headers()), true);
            self.server.metrics.connections.bodies_refused.inc();
        }
    }

    /// Flushes the output, closes the sending side, and reads a bounded rest of the input.
    async fn drain(&mut self) -> io::Result<()> {
        let rest = {
            let mut http2 = self.http2.borrow_mut();
            let rest = http2.output().to_vec();
            // Calls in progress are cancelled.
            http2.close();
            rest
        };
        self.connection.write_all(&rest).await?;
        self.connection.shutdown().await?;
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let mut bytes_left = LINGER_BYTES_MAX;
        while bytes_left > 0 {
            let bytes = self.connection.read(&mut buffer).await?;
            if bytes == 0 {
                break;
            }
            bytes_left = bytes_left.saturating_sub(bytes);
        }
        Ok(())
    }

    /// Keeps unprocessed input for the next turn.
    fn keep(&mut self, rest: &[u8]) {
        self.unprocessed.clear();
        if rest.is_empty() {
            // Most connections are idle most of the time.
            self.unprocessed.shrink_to(FRAME_BYTES_MAX);
        }
        self.unprocessed.extend_from_slice(rest);
    }

    /// Writes output to the socket. Ready when all of it is written.
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

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.http2.borrow_mut().close();
    }
}

// === impl AbortOnDrop ===

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === impl ThreadContext ===

impl ThreadContext {
    /// The context of a thread that decides checks with `batcher`.
    pub(crate) fn new(batcher: Rc<Batcher<StreamResponder>>, server: &ServerContext) -> Self {
        let api = ApiCalls {
            pipeline: Arc::clone(&server.pipeline),
            answers: Arc::clone(&server.answers),
        };
        Self {
            batcher,
            buffers: Rc::default(),
            resetting: Rc::new(Semaphore::new(1)),
            api: Rc::new(api),
        }
    }
}

// === impl Buffers ===

impl Buffers {
    /// Takes the buffer to read into, of at least this length. Put it back in the same turn.
    fn take_input(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.input.take();
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        buffer
    }

    fn put_input(&self, buffer: Vec<u8>) {
        self.input.set(buffer);
    }
}

// === impl StreamResponder ===

impl StreamResponder {
    /// Sends the answer to a check or a peek of tollgate's API.
    fn respond_api(mut self, answered: Result<(Answer, Arc<AnswerPermit>), GrpcStatus>) {
        match answered {
            Ok((Answer::Check(answer), _permit)) => self.send_check(&answer.encode_to_vec()),
            // No check has an answer of another kind; dropping this resets the stream.
            Ok(_) => {}
            Err(status) => self.refuse(status),
        }
    }

    fn send_check(&mut self, message: &[u8]) {
        self.pending = false;
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let mut http2 = self.http2.borrow_mut();
        http2.respond_unary(self.stream, message.len() + FRAME_HEAD_BYTES, |into| {
            into.push(0);
            into.extend_from_slice(&length.to_be_bytes());
            into.extend_from_slice(message);
        });
    }

    /// Sends the status of a call without an answer.
    fn refuse(&mut self, status: GrpcStatus) {
        self.pending = false;
        let response = status.into_http::<()>();
        let status = response.status().as_u16();
        let mut http2 = self.http2.borrow_mut();
        http2.send_response(self.stream, status, fields(response.headers()), true);
    }
}

impl Drop for StreamResponder {
    fn drop(&mut self) {
        if self.pending
            && let Ok(mut http2) = self.http2.try_borrow_mut()
        {
            http2.send_reset(self.stream, Reason::Internal);
        }
    }
}

impl Responder for StreamResponder {
    fn respond(mut self, response: Result<EncodedResponse<'_>, RequestError>) {
        self.pending = false;
        match response {
            Ok(response) => {
                let bytes = response.frame_bytes();
                let mut http2 = self.http2.borrow_mut();
                http2.respond_unary(self.stream, bytes, |into| response.write_frame(into));
            }
            Err(error) if self.is_api => self.refuse(api_status(error.into(), "")),
            Err(error) => self.refuse(plain_status(&error)),
        }
    }

    fn release(mut self) {
        self.pending = false;
    }

    fn is_cancelled(&self) -> bool {
        self.http2.borrow().is_closed(self.stream)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_http2::{ByteBudget, Config, Event};
    use tollgate_limiter::{Code, Decision};

    use super::*;

    const PATH: &str = "/s/m";

    /// A frame of HTTP/2.
    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
        [&head[..], payload].concat()
    }

    /// Headers and data of a call on a stream.
    fn call(stream: u8) -> Vec<u8> {
        let mut block = vec![0x83, 0x86];
        for (name, value) in [(":path", PATH), ("content-type", "application/grpc")] {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        [frame(1, 4, stream, &block), frame(0, 1, stream, b"ask")].concat()
    }

    #[test]
    fn a_responder_dropped_without_a_response_resets_the_stream() {
        let config = Config {
            unary_paths: &[PATH],
            ..Config::default()
        };
        let bodies = Arc::new(ByteBudget::new(1_000_000));
        let mut http2 = ServerConnection::new(config, Rc::default(), bodies);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        bytes.extend([call(1), call(3), call(5)].concat());
        let mut input = &bytes[..];
        for stream in [1, 3, 5] {
            let Ok(Some(Event::Call(call))) = http2.receive(&mut input, 0) else {
                panic!("a call on stream {stream}");
            };
            assert_eq!(call.stream, stream);
        }
        let before = http2.output().len();
        http2.consume_output(before);
        let http2 = Rc::new(RefCell::new(http2));
        let caller = |stream| StreamResponder {
            http2: Rc::clone(&http2),
            stream,
            pending: true,
            is_api: false,
        };
        drop(caller(1));
        caller(3).release();
        let decision = Decision::of_code(Code::Ok);
        let mut buffer = Vec::new();
        let response = EncodedResponse::new(&decision, &mut buffer, |into| into.push(3));
        let answer = response.message();
        caller(5).respond(Ok(response));
        let http2 = http2.borrow();
        let reset = frame(3, 0, 1, &Reason::Internal.code().to_be_bytes());
        assert!(http2.output().starts_with(&reset));
        assert!(http2.is_closed(1));
        assert!(!http2.is_closed(3));
        assert!(http2.is_closed(5));
        let head = [0, 0, 0, 0, u8::try_from(answer.len()).unwrap()];
        let data = frame(0, 0, 5, &[&head[..], &answer].concat());
        let output = http2.output();
        assert!(output.windows(data.len()).any(|part| part == data));
    }

    #[test]
    fn the_input_buffer_is_reused_and_long_enough() {
        let buffers = Buffers::default();
        let first = buffers.take_input(100);
        assert_eq!(first.len(), 100);
        let address = first.as_ptr();
        buffers.put_input(first);
        let again = buffers.take_input(50);
        assert_eq!((again.as_ptr(), again.len()), (address, 100));
        buffers.put_input(again);
        assert_eq!(buffers.take_input(1_000).len(), 1_000);
    }
}
