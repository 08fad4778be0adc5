//! Connections to the addresses of the service.
//!
//! Each address has at most one connection. Calls rotate over those that are connected. A call
//! starts connecting where a connection is missing, and waits only if none is connected.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use http_body_util::combinators::MapErr;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

use crate::Error;
#[cfg(feature = "tls")]
use crate::tls::TlsConnector;

/// Longest wait for a connection and its handshakes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Waits after failed attempts to connect: doubled from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How often a request that no connection has sent is given to another connection.
const MAX_UNSENT: usize = 3;

type ResponseBody = MapErr<Incoming, fn(hyper::Error) -> Status>;

/// How to connect.
pub(crate) struct ConnectOptions {
    pub(crate) keepalive_interval: Duration,
    pub(crate) keepalive_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<TlsConnector>,
}

impl ConnectOptions {
    #[cfg_attr(not(feature = "tls"), allow(clippy::unused_self))]
    fn scheme(&self) -> Scheme {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return Scheme::HTTPS;
        }
        Scheme::HTTP
    }
}

/// The connections of a client. Clones share them.
#[derive(Clone)]
pub(crate) struct Transport {
    shared: Arc<Shared>,
}

struct Shared {
    options: ConnectOptions,
    addresses: Vec<Authority>,
    slots: Mutex<Vec<Slot>>,
    next: AtomicUsize,
    changed: watch::Sender<()>,
    closed: AtomicBool,
}

/// The connection of one address. It is connected once the server sent its first HTTP/2 frame.
#[derive(Default)]
struct Slot {
    state: SlotState,
    /// Failed attempts in a row.
    failures: u32,
    /// The task that connects, or that drives the connection.
    task: Option<AbortHandle>,
}

#[derive(Default)]
enum SlotState {
    #[default]
    Idle,
    Connecting,
    Connected(SendRequest<Body>),
    Failed {
        until: Instant,
        status: Status,
    },
}

impl Transport {
    pub(crate) fn new(addresses: Vec<Authority>, options: ConnectOptions) -> Self {
        let slots = addresses.iter().map(|_| Slot::default()).collect();
        Self {
            shared: Arc::new(Shared {
                options,
                addresses,
                slots: Mutex::new(slots),
                next: AtomicUsize::new(0),
                changed: watch::Sender::new(()),
                closed: AtomicBool::new(false),
            }),
        }
    }

    /// Ends all connections, and calls that use them.
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.end_tasks();
        self.shared.changed.send_replace(());
    }

    /// Waits until an address is connected, or the client is closed.
    pub(crate) async fn ready(&self) {
        while self.connection().await.is_err() && !self.shared.closed.load(Ordering::SeqCst) {
            tokio::time::sleep(BACKOFF.0).await;
        }
    }

    /// A connection, in rotation. Waits while none is connected and one is being made.
    async fn connection(&self) -> Result<(SendRequest<Body>, Authority), Status> {
        let mut changed = self.shared.changed.subscribe();
        loop {
            if self.shared.closed.load(Ordering::SeqCst) {
                return Err(Status::unavailable(Error::Closed.to_string()));
            }
            if let Some(found) = self.connected()? {
                return Ok(found);
            }
            if changed.changed().await.is_err() {
                return Err(Status::unavailable(Error::Closed.to_string()));
            }
        }
    }

    /// The next connected address, or `None` while one is being connected.
    fn connected(&self) -> Result<Option<(SendRequest<Body>, Authority)>, Status> {
        let shared = &self.shared;
        let mut slots = shared.lock();
        for (index, slot) in slots.iter_mut().enumerate() {
            let connect = match &slot.state {
                SlotState::Idle => true,
                SlotState::Connecting => false,
                SlotState::Connected(connection) => connection.is_closed(),
                SlotState::Failed { until, .. } => Instant::now() >= *until,
            };
            if connect {
                slot.state = SlotState::Connecting;
                let task = tokio::spawn(connect_slot(Arc::downgrade(shared), index));
                slot.task = Some(task.abort_handle());
            }
        }
        let first = shared.next.fetch_add(1, Ordering::Relaxed);
        let mut last_error = None;
        let mut connecting = false;
        for step in 0..slots.len() {
            let index = (first + step) % slots.len();
            match (
                slots.get(index).map(|slot| &slot.state),
                shared.addresses.get(index),
            ) {
                (Some(SlotState::Connected(connection)), Some(address)) => {
                    return Ok(Some((connection.clone(), address.clone())));
                }
                (Some(SlotState::Failed { status, .. }), _) => last_error = Some(status.clone()),
                _ => connecting = true,
            }
        }
        match last_error {
            Some(status) if !connecting => Err(status),
            _ => Ok(None),
        }
    }

    async fn send(self, request: Request<Body>) -> Result<Response<ResponseBody>, Status> {
        let mut request = request;
        let scheme = self.shared.options.scheme();
        for _ in 0..MAX_UNSENT {
            let (mut connection, address) = self.connection().await?;
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            parts.scheme = Some(scheme.clone());
            parts.authority = Some(address);
            *request.uri_mut() = Uri::from_parts(parts)
                .map_err(|error| Status::internal(format!("invalid request URI: {error}")))?;
            match connection.try_send_request(request).await {
                Ok(response) => {
                    let as_status: fn(hyper::Error) -> Status = |error| status_of(&error);
                    return Ok(response.map(|body| body.map_err(as_status)));
                }
                Err(mut error) => match error.take_message() {
                    // The connection ended before the request was sent, so it cannot be charged.
                    Some(unsent) => request = unsent,
                    None => return Err(status_of(error.error())),
                },
            }
        }
        Err(Status::unavailable(
            "connections ended before the request was sent",
        ))
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<ResponseBody>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_tasks(&self) {
        for slot in self.lock().iter_mut() {
            slot.state = SlotState::Idle;
            if let Some(task) = slot.task.take() {
                task.abort();
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end_tasks();
    }
}

/// Connects one address, and records the result.
async fn connect_slot(shared: Weak<Shared>, index: usize) {
    let Some(connecting) = shared.upgrade() else {
        return;
    };
    let guard = ResetOnDrop {
        shared,
        index,
        armed: true,
    };
    let attempt = connect(&connecting, index);
    let result = match tokio::time::timeout(CONNECT_TIMEOUT, attempt).await {
        Ok(result) => result,
        Err(_) => Err(Status::unavailable("connecting took longer than 5 s")),
    };
    guard.disarm();
    let mut slots = connecting.lock();
    let Some(slot) = slots.get_mut(index) else {
        return;
    };
    match result {
        Ok((connection, driver)) => {
            slot.failures = 0;
            slot.state = SlotState::Connected(connection);
            slot.task = Some(driver);
        }
        Err(status) => {
            let (shortest, longest) = BACKOFF;
            let wait = longest.min(shortest * 2u32.saturating_pow(slot.failures));
            slot.failures = slot.failures.saturating_add(1);
            slot.state = SlotState::Failed {
                until: Instant::now() + wait,
                status,
            };
            slot.task = None;
        }
    }
    if connecting.closed.load(Ordering::SeqCst) {
        // Closed meanwhile: this task can no longer be the one to abort.
        if let Some(driver) = slot.task.take() {
            driver.abort();
        }
        slot.state = SlotState::Idle;
    }
    drop(slots);
    connecting.changed.send_replace(());
}

/// Makes a slot idle if its task is aborted, such as by the end of its runtime.
struct ResetOnDrop {
    shared: Weak<Shared>,
    index: usize,
    armed: bool,
}

impl ResetOnDrop {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // A close aborts while it holds the lock, and makes the slot idle itself.
        if let Some(shared) = self.shared.upgrade()
            && let Ok(mut slots) = shared.slots.try_lock()
            && let Some(slot) = slots.get_mut(self.index)
        {
            slot.state = SlotState::Idle;
            drop(slots);
            shared.changed.send_replace(());
        }
    }
}

async fn connect(
    shared: &Shared,
    index: usize,
) -> Result<(SendRequest<Body>, AbortHandle), Status> {
    let Some(address) = shared.addresses.get(index) else {
        return Err(Status::internal("no such address"));
    };
    let failed =
        |error: &dyn std::fmt::Display| Status::unavailable(format!("connect {address}: {error}"));
    let stream = TcpStream::connect(address.as_str())
        .await
        .map_err(|error| failed(&error))?;
    stream.set_nodelay(true).map_err(|error| failed(&error))?;
    let options = &shared.options;
    #[cfg(feature = "tls")]
    if let Some(tls) = &options.tls {
        let stream = tls
            .connect(address.host(), stream)
            .await
            .map_err(|error| failed(&error))?;
        return handshake(options, stream)
            .await
            .map_err(|error| failed(&*error));
    }
    handshake(options, stream)
        .await
        .map_err(|error| failed(&*error))
}

async fn handshake<S>(
    options: &ConnectOptions,
    stream: S,
) -> Result<(SendRequest<Body>, AbortHandle), Box<dyn std::error::Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (confirmation, confirmed) = oneshot::channel();
    let stream = SettingsWatch {
        stream,
        received: 0,
        confirmation: Some(confirmation),
    };
    let (connection, driver) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(options.keepalive_interval)
        .keep_alive_timeout(options.keepalive_timeout)
        .keep_alive_while_idle(false)
        .handshake(TokioIo::new(stream))
        .await?;
    let mut driver = Box::pin(driver);
    // hyper has a connection before the server sent anything.
    tokio::select! {
        Ok(()) = confirmed => {}
        ended = &mut driver => {
            ended?;
            return Err("the server closed the connection".into());
        }
    }
    let driver = tokio::spawn(async move {
        // Calls see the error themselves.
        let _ended = driver.await;
    });
    Ok((connection, driver.abort_handle()))
}

/// A stream that confirms that its peer speaks HTTP/2: the first frame of a server is SETTINGS.
struct SettingsWatch<S> {
    stream: S,
    /// Bytes received until the confirmation.
    received: usize,
    confirmation: Option<oneshot::Sender<()>>,
}

/// Position and value of the type of a SETTINGS frame in its header.
const SETTINGS_TYPE: (usize, u8) = (3, 4);

impl<S: AsyncRead + Unpin> AsyncRead for SettingsWatch<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.confirmation.is_none() {
            return result;
        }
        let read = buffer.filled().get(before..).unwrap_or_default();
        let (position, settings) = SETTINGS_TYPE;
        if let Some(found) = position
            .checked_sub(self.received)
            .and_then(|at| read.get(at))
            && let Some(confirmation) = self.confirmation.take_if(|_| *found == settings)
        {
            let _gone = confirmation.send(());
        }
        self.received = self.received.saturating_add(read.len());
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SettingsWatch<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The gRPC status of a connection error, as gRPC maps the error codes of HTTP/2.
fn status_of(error: &hyper::Error) -> Status {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut code = Code::Unavailable;
    let mut message = String::from("connection to the service lost");
    while let Some(found) = cause {
        if let Some(h2) = found.downcast_ref::<h2::Error>()
            && h2.is_reset()
        {
            code = code_of_reset(h2.reason());
        }
        message.push_str(": ");
        message.push_str(&found.to_string());
        cause = found.source();
    }
    Status::new(code, message)
}

fn code_of_reset(reason: Option<h2::Reason>) -> Code {
    match reason {
        Some(h2::Reason::REFUSED_STREAM) => Code::Unavailable,
        Some(h2::Reason::CANCEL) => Code::Cancelled,
        Some(h2::Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
        Some(h2::Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
        _ => Code::Internal,
    }
}
