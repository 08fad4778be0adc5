//! HTTP/1.1 on connections that `net` accepts: the server for a router, bodies of requests, and
//! bodies of responses.
//!
//! Why not axum's own server: it has no timeout for request headers, and these ports are exposed to
//! untrusted clients.
//!
//! Bodies of requests are read before a request counts as in progress, so that slow ones do not
//! stop others. A body that arrives takes memory as it grows. A connection has one at a time, and
//! may hold as much as is free (`answer_memory`). Long bodies of responses hold memory until the
//! client has read them. They are sent piece by piece, so that a client that does not read holds
//! little and is given up after a while.
//!
//! What it deliberately does not do: HTTP/2, TLS, routes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::http::{HeaderValue, StatusCode, header};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use crate::answer_memory::{AnswerMemory, AnswerMemoryFull, AnswerPermit, RequestPermit};
use crate::net::{Connection, ShutdownSignal, serve_each};
use crate::tls::client_name;

/// Timeout of the headers of a request.
const HEADERS_WAIT_MAX: Duration = Duration::from_secs(10);

/// Most bytes of headers.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// How long a stream of events may take to send its last bytes after the signal to stop.
const STREAM_END_WAIT_MAX: Duration = Duration::from_secs(1);

/// The client of a request, which each request carries as an extension.
#[derive(Debug, Default)]
pub(super) struct ClientConnection {
    /// Its address.
    pub(super) peer: Option<SocketAddr>,
    /// The name in its certificate.
    pub(super) certificate: Option<String>,
    is_streaming: AtomicBool,
    close: Notify,
}

/// The client, as a request carries it.
pub(super) type Client = Arc<ClientConnection>;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BodyFault {
    TooLarge,
    Incomplete,
    /// Other bodies hold the memory.
    NoMemory,
}

/// The error message when there is no memory for a body.
pub(super) const NO_MEMORY: &str =
    "too many bodies are arriving; try again later, or raise --answer-memory-max";

/// How long a client may take to read the next piece.
const READ_WAIT_MAX: Duration = Duration::from_secs(30);

/// Size of a piece of a long body.
const PIECE_BYTES: usize = 64 << 10;

/// Sends the pieces of one body.
pub(super) struct BodySender {
    pieces: mpsc::Sender<Result<Bytes, Infallible>>,
    client: Client,
}

/// Serves `router` until `shutdown`, then lets requests in progress finish.
pub async fn serve(
    router: Router,
    connections: mpsc::Receiver<Connection>,
    shutdown: impl Future<Output = ()>,
) {
    let serve_one = |connection, stopping| serve_one(router.clone(), connection, stopping);
    serve_each(connections, shutdown, serve_one).await;
}

async fn serve_one(router: Router, connection: Connection, mut stopping: ShutdownSignal) {
    let client = Arc::new(ClientConnection {
        peer: connection.peer,
        certificate: connection.client_certificate().and_then(client_name),
        ..ClientConnection::default()
    });
    let (router, of_request) = (TowerToHyperService::new(router), Arc::clone(&client));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&of_request));
        router.call(request)
    });
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WAIT_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(connection), service)
    );
    let served = tokio::select! {
        served = &mut serving => served,
        () = client.close.notified() => return,
        () = stopping.wait() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                served = &mut serving => served,
                () = client.close.notified() => return,
                () = client.stream_ended() => return,
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended with an error");
    }
}

/// Reads a body. Its memory is held by the permit.
pub(super) async fn read_body(
    body: &mut Body,
    bytes_max: usize,
    memory: &mut RequestPermit,
) -> Result<Vec<u8>, BodyFault> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyFault::Incomplete)?;
        if let Some(data) = frame.data_ref() {
            if bytes.len().saturating_add(data.len()) > bytes_max {
                return Err(BodyFault::TooLarge);
            }
            if !memory.grow(data.len() as u64) {
                return Err(BodyFault::NoMemory);
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

/// Reads what is left of a body and drops it: where a response comes before the body was sent, the
/// client can see a reset instead. A body that is longer, or does not end in time, is left.
pub(super) async fn drain(mut body: Body, bytes_max: usize, wait: Duration) {
    let all = async {
        let mut left = bytes_max;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(bytes) else {
                return;
            };
            left = rest;
        }
    };
    // Nothing depends on whether it ended.
    let _ = timeout(wait, all).await;
}

/// Sends a long response piece by piece. It holds memory until it is sent, and is refused if there
/// is none.
pub(super) async fn send_long_in_pieces(
    State(memory): State<Arc<AnswerMemory>>,
    request: Request,
    next: Next,
) -> Response {
    let client = request.extensions().get::<Client>().cloned();
    let (mut head, body) = next.run(request).await.into_parts();
    let counted: Option<Arc<AnswerPermit>> = head.extensions.remove();
    let bytes = body.size_hint().exact().unwrap_or_default();
    if bytes <= PIECE_BYTES as u64 {
        return Response::from_parts(head, body);
    }
    let permit = match counted.and_then(Arc::into_inner) {
        Some(mut permit) => {
            permit.resize(bytes);
            permit
        }
        None => {
            if let Some(permit) = memory.connection().take(bytes) {
                permit
            } else {
                memory.count_refused();
                let why = format!("{AnswerMemoryFull}\n");
                return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
            }
        }
    };
    // It is whole already.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    head.headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    let body = in_pieces(body, client.unwrap_or_default(), permit);
    Response::from_parts(head, body)
}

/// A body in pieces; the permit is free when the last piece is sent.
pub(super) fn in_pieces(mut body: Bytes, client: Client, permit: impl Send + 'static) -> Body {
    if body.len() <= PIECE_BYTES {
        return body.into();
    }
    let (sender, streamed) = BodySender::pair(client);
    tokio::spawn(async move {
        while !body.is_empty() {
            // A copy: a piece of the same memory would keep all of it until it is sent.
            let piece = Bytes::copy_from_slice(&body.split_to(body.len().min(PIECE_BYTES)));
            if !sender.send(piece).await {
                break;
            }
        }
        drop(permit);
    });
    streamed
}

// === impl ClientConnection ===

impl ClientConnection {
    /// Notes that the response has no end of its own, so that a stop does not wait for it.
    pub(super) fn set_streaming(&self) {
        self.is_streaming.store(true, Ordering::Release);
    }

    /// Closes the connection: the client does not read.
    pub(super) fn close(&self) {
        self.close.notify_one();
    }

    /// Waits until a stream of events has had its time to end; for ever without a stream.
    async fn stream_ended(&self) {
        if self.is_streaming.load(Ordering::Acquire) {
            sleep(STREAM_END_WAIT_MAX).await;
        } else {
            std::future::pending::<()>().await;
        }
    }
}

// === impl BodySender ===

impl BodySender {
    /// A body, and the sender of its pieces. The body ends when the sender is dropped.
    pub(super) fn pair(client: Client) -> (Self, Body) {
        // One piece waits here; the connection has its own buffer.
        let (pieces, receiver) = mpsc::channel(1);
        let body = Body::from_stream(ReceiverStream::new(receiver));
        (Self { pieces, client }, body)
    }

    /// Sends a piece. False if the client has gone or does not read.
    pub(super) async fn send(&self, piece: Bytes) -> bool {
        if let Ok(sent) = timeout(READ_WAIT_MAX, self.pieces.send(Ok(piece))).await {
            return sent.is_ok();
        }
        self.client.close();
        false
    }

    /// Waits until the client has gone.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn the_last_piece_keeps_no_other_in_memory() {
        let whole: Arc<[u8]> = vec![1; 3 * PIECE_BYTES].into();
        let (memory, permit) = (Arc::downgrade(&whole), Arc::new(()));
        let held = Arc::downgrade(&permit);
        let mut body = in_pieces(Bytes::from_owner(whole), Client::default(), permit);
        let mut last = Bytes::new();
        while let Some(piece) = body.frame().await {
            last = piece.unwrap().into_data().unwrap();
        }
        assert_eq!(last.len(), PIECE_BYTES);
        assert!(held.upgrade().is_none(), "the permit is free");
        assert!(memory.upgrade().is_none());
    }
}
