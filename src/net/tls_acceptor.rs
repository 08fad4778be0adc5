//! TLS acceptor of a port: handshakes on a thread of their own, limited in number, time and CPU.
//!
//! Why a separate thread: answering a `ClientHello` costs as much as hundreds of checks, and a
//! client can send one without any work of its own: the same recorded bytes do every time. On a
//! thread that decides, each one would delay every check of that thread. How: a port with TLS
//! accepts connections on a thread of its own and passes on only connections whose handshake is
//! complete ([`DetachedConnection`]); the threads that serve never see the others. The expensive
//! part of a handshake runs in a [`HandshakePool`], in otherwise idle time and within a share of
//! one core, so that a flood of handshakes disturbs established connections as little as possible.
//!
//! Complete `ClientHello` messages are processed one after the other. A client that has closed its
//! side by then costs nothing more, and one that sends half a message costs only its place in the
//! limit. The certificate is read when the handshake is processed, so a certificate reload does not
//! touch established connections.
//!
//! What it deliberately does not do: read certificates (`tls`), choose the protocol spoken over
//! TLS.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::server::Acceptor;
use rustls::{CertificateError, Error, ServerConfig};
use tokio::runtime::{self, Runtime};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, LazyConfigAcceptor, StartHandshake};

use crate::metrics::{Counted, HandshakeCounters, HandshakeFailure};
use crate::net::connection::{Connection, DetachedConnection};
use crate::net::handshake_pool::{HandshakePool, lower_priority};
use crate::net::io::Io;

/// TLS acceptor of one port. Dropping it ends its thread and all pending handshakes.
#[derive(Debug)]
pub struct TlsAcceptor {
    config: ArcSwap<ServerConfig>,
    permits: Arc<Semaphore>,
    pool: HandshakePool,
    timeout: Duration,
    counters: HandshakeCounters,
    /// Runtime of one thread. None only while this is dropped.
    runtime: Option<Runtime>,
}

/// Limits of the handshakes of one port.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeLimits {
    /// Most handshakes at a time.
    pub concurrent_max: usize,
    /// Longest time of one handshake.
    pub timeout: Duration,
    /// Share of one core that all handshakes may use together, in percent.
    pub cpu_percent_max: u8,
}

/// State of a handshake after the `ClientHello` was answered.
enum HandshakeStep {
    Complete(Box<TlsStream<Io>>),
    /// Waits for the client's next message.
    InProgress(Box<Accept<Io>>),
}

// === impl TlsAcceptor ===

impl TlsAcceptor {
    /// Starts the thread of a port with TLS.
    ///
    /// # Errors
    ///
    /// When a thread or the I/O driver cannot be created.
    pub fn new(
        config: Arc<ServerConfig>,
        limits: HandshakeLimits,
        counters: HandshakeCounters,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("handshakes")
            .on_thread_start(lower_priority)
            .enable_all()
            .build()?;
        let permits = limits.concurrent_max.min(Semaphore::MAX_PERMITS);
        let pool = HandshakePool::start(limits.cpu_percent_max, permits, &counters.paced)?;
        Ok(Self {
            config: ArcSwap::new(config),
            permits: Arc::new(Semaphore::new(permits)),
            pool,
            timeout: limits.timeout,
            counters,
            runtime: Some(runtime),
        })
    }

    /// Uses `config` for new handshakes; established connections are not touched.
    pub fn replace_config(&self, config: Arc<ServerConfig>) {
        self.config.store(config);
    }

    /// Spawns a task on the thread of this acceptor.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    /// Spawns the handshake of a connection and sends the connection to `to` when it is complete.
    /// Closes the connection at once when too many handshakes are in progress. Must be called on
    /// the thread of this acceptor.
    pub(super) fn spawn_handshake(
        self: &Arc<Self>,
        connection: Connection,
        to: &mpsc::Sender<DetachedConnection>,
    ) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.counters.failed(HandshakeFailure::TooMany);
            return;
        };
        let permit = (permit, Counted::new(&self.counters.under_way));
        let (acceptor, to) = (Arc::clone(self), to.clone());
        tokio::spawn(async move {
            let result = tokio::select! {
                () = to.closed() => return,
                result = timeout(acceptor.timeout, acceptor.handshake(connection)) => result,
            };
            let failure = match result {
                Err(_) => HandshakeFailure::TooSlow,
                Ok(Err(error)) => classify_failure(&error),
                Ok(Ok(connection)) => {
                    acceptor.counters.done.inc();
                    drop(permit);
                    if let Ok(connection) = connection.detach() {
                        // The receiver is gone when the service stops.
                        let _ = to.send(connection).await;
                    }
                    return;
                }
            };
            acceptor.counters.failed(failure);
        });
    }

    async fn handshake(self: &Arc<Self>, mut connection: Connection) -> io::Result<Connection> {
        let socket = mem::replace(&mut connection.io, Io::Moved);
        // Waits for the complete `ClientHello`.
        let hello = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let acceptor = Arc::clone(self);
        let step = self.pool.run(move || acceptor.answer_hello(hello)).await;
        // Full queues are not the client's fault, so this counts as too many handshakes.
        let stream = match step.ok_or(io::ErrorKind::ResourceBusy)?? {
            HandshakeStep::Complete(stream) => stream,
            // The rest of the handshake is not queued again: it is cheap for us, costs the client
            // as much, and would time out behind all new `ClientHello` messages.
            HandshakeStep::InProgress(accept) => Box::new(accept.await?),
        };
        connection.io = Io::Tls(stream);
        Ok(connection)
    }

    /// Answers a `ClientHello`. The handshake is complete if the client's reply has already
    /// arrived.
    fn answer_hello(&self, hello: StartHandshake<Io>) -> io::Result<HandshakeStep> {
        if hello.io.is_read_closed() {
            // A client that has closed its side cannot complete the handshake.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut accept = Box::new(hello.into_stream(self.config.load_full()));
        // The task that awaits it next registers its own waker.
        let mut cx = Context::from_waker(Waker::noop());
        Ok(match Pin::new(&mut *accept).poll(&mut cx) {
            Poll::Ready(done) => HandshakeStep::Complete(Box::new(done?)),
            Poll::Pending => HandshakeStep::InProgress(accept),
        })
    }
}

impl Drop for TlsAcceptor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Must not block: this may be a task of another runtime.
            runtime.shutdown_background();
        }
    }
}

/// Classifies the error of a handshake for its counter.
fn classify_failure(error: &io::Error) -> HandshakeFailure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let Some(inner) = inner else {
        return match error.kind() {
            io::ErrorKind::ResourceBusy => HandshakeFailure::TooMany,
            _ => HandshakeFailure::Closed,
        };
    };
    match inner {
        Error::NoCertificatesPresented => HandshakeFailure::NoCertificate,
        Error::InvalidCertificate(why) => match why {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => HandshakeFailure::CertificateTime,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                HandshakeFailure::CertificateName
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                HandshakeFailure::CertificateIssuer
            }
            _ => HandshakeFailure::CertificateOther,
        },
        Error::AlertReceived(_) => HandshakeFailure::RefusedByClient,
        Error::NoApplicationProtocol => HandshakeFailure::Protocol,
        Error::PeerIncompatible(_) => HandshakeFailure::VersionOrCipher,
        _ => HandshakeFailure::NotTls,
    }
}
