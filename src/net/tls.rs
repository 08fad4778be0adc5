//! TLS under a connection: the handshake, its bounds, and what is counted when there is none.
//!
//! Why apart: to answer a greeting costs as much as hundreds of checks, and who sends one need not do any work for it: the same
//! recorded greeting will do every time. On a core that decides, each would be a wait for all who ask there. How: a port
//! with TLS has a thread of its own, which accepts, shakes hands and hands on only those connections whose handshake is done
//! ([`Detached`]); the cores that serve never see the others. What costs much of it is done elsewhere ([`Benches`]), in time
//! that nobody else wants and within a share of one core, so that whoever is connected notices as little of a flood as may be.
//!
//! Whole greetings are worked on one after the other. Who has left by the time it is his turn costs nothing more, and who
//! sends half a greeting costs nothing but his place. Which certificate is shown is read when it is worked on, so an exchange
//! of certificates touches nobody who is connected.
//!
//! What it deliberately does not do: read certificates (`config/tls`), choose what is spoken under it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::server::Acceptor;
use rustls::{CertificateError, Error, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{self, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, LazyConfigAcceptor, StartHandshake};

use crate::metrics::{HandshakeCounters, HandshakeFailure};
use crate::net::handshake_cpu;
use crate::net::handshake_pool::Benches;
use crate::net::listener::{Lone, Socket};
use crate::net::{Detached, OpenConnection};

/// TLS on one port. Dropped, its thread ends and all handshakes with it.
#[derive(Debug)]
pub struct Secured {
    config: ArcSwap<ServerConfig>,
    under_way: Arc<Semaphore>,
    benches: Benches,
    within: Duration,
    counters: HandshakeCounters,
    /// One thread. None only while this is dropped.
    runtime: Option<Runtime>,
}

/// What handshakes may take.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeBounds {
    /// How many may be under way.
    pub under_way_max: usize,
    /// How long one may take.
    pub within: Duration,
    /// How much of one core's time all of them may take together, in percent.
    pub cpu_percent_max: u8,
}

/// What a connection's bytes go through.
pub(crate) enum Stream {
    /// Nothing.
    Bare(Socket),
    /// TLS.
    Secure(Box<TlsStream<Socket>>),
}

/// The same on no runtime.
#[derive(Debug)]
pub(crate) enum LoneStream {
    Bare(Lone),
    Secure(Box<TlsStream<Socket>>, Lone),
}

/// How far a handshake has come.
enum Shaken {
    Done(Box<TlsStream<Socket>>),
    /// It is the client's turn.
    Begun(Box<Accept<Socket>>),
}

/// One of the handshakes that a port may have under way.
struct UnderWay {
    counters: HandshakeCounters,
    _permit: OwnedSemaphorePermit,
}

// === impl Secured ===

impl Secured {
    /// TLS as `config` says, within those bounds. Its thread runs from now on.
    ///
    /// # Errors
    ///
    /// When the system gives no thread or no way to wait for sockets.
    pub fn new(
        config: Arc<ServerConfig>,
        bounds: HandshakeBounds,
        counters: HandshakeCounters,
    ) -> io::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("handshakes")
            .on_thread_start(handshake_cpu::let_others_go_first)
            .enable_all()
            .build()?;
        let permits = bounds.under_way_max.min(Semaphore::MAX_PERMITS);
        let benches = Benches::start(bounds.cpu_percent_max, permits, &counters.paced)?;
        Ok(Self {
            config: ArcSwap::new(config),
            under_way: Arc::new(Semaphore::new(permits)),
            benches,
            within: bounds.within,
            counters,
            runtime: Some(runtime),
        })
    }

    /// Shows another certificate from now on; connections that are there stay.
    pub fn exchange(&self, config: Arc<ServerConfig>) {
        self.config.store(config);
    }

    /// Runs something on the thread of the handshakes.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    /// Shakes hands with whoever is at the other end, and hands on the connection when that is done. Closes it at once where
    /// too many handshakes are under way. On the thread of the handshakes.
    pub(super) fn welcome(
        self: &Arc<Self>,
        socket: Socket,
        peer: Option<SocketAddr>,
        greeting_bytes: usize,
        open: OpenConnection,
        to: &mpsc::Sender<Detached>,
    ) {
        let Ok(permit) = Arc::clone(&self.under_way).try_acquire_owned() else {
            self.counters.failed(HandshakeFailure::TooMany);
            return;
        };
        self.counters.under_way.inc();
        let under_way = UnderWay {
            counters: self.counters.clone(),
            _permit: permit,
        };
        let (secured, to) = (Arc::clone(self), to.clone());
        tokio::spawn(async move {
            let shaken = tokio::select! {
                () = to.closed() => return,
                shaken = timeout(secured.within, secured.shake(socket)) => shaken,
            };
            let failure = match shaken {
                Err(_) => HandshakeFailure::TooSlow,
                Ok(Err(error)) => failure(&error),
                Ok(Ok(stream)) => {
                    secured.counters.done.inc();
                    drop(under_way);
                    if let Ok(stream) = Stream::Secure(Box::new(stream)).into_lone() {
                        let connection = Detached {
                            stream,
                            peer,
                            greeting_bytes_left: greeting_bytes,
                            open,
                        };
                        // Nobody is there to take it when the service stops.
                        let _ = to.send(connection).await;
                    }
                    return;
                }
            };
            secured.counters.failed(failure);
        });
    }

    async fn shake(self: &Arc<Self>, socket: Socket) -> io::Result<TlsStream<Socket>> {
        // Until the greeting is whole there is nothing to work on.
        let greeting = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let secured = Arc::clone(self);
        let shaken = self.benches.work(move || secured.answer(greeting)).await;
        // No room is no client's fault.
        match shaken.ok_or(io::ErrorKind::ResourceBusy)?? {
            Shaken::Done(stream) => Ok(*stream),
            // Its rest is not queued again: it is small, whoever wants it has worked as much for it, and he would be too late
            // behind all who have only greeted.
            Shaken::Begun(accept) => accept.await,
        }
    }

    /// Answers a greeting. What a client says to that may be there already, and then it is done.
    fn answer(&self, greeting: StartHandshake<Socket>) -> io::Result<Shaken> {
        if greeting.io.is_read_closed() {
            // Whoever has no more to say will never finish.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut accept = Box::new(greeting.into_stream(self.config.load_full()));
        // Whoever awaits it next is woken.
        let mut cx = Context::from_waker(Waker::noop());
        Ok(match Pin::new(&mut *accept).poll(&mut cx) {
            Poll::Ready(done) => Shaken::Done(Box::new(done?)),
            Poll::Pending => Shaken::Begun(accept),
        })
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Nobody waits here: this may be a task of another runtime.
            runtime.shutdown_background();
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.counters.under_way.dec();
    }
}

/// Why a handshake failed, in one of few words.
fn failure(error: &io::Error) -> HandshakeFailure {
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

// === impl Stream ===

impl Stream {
    /// Takes it off the runtime that it is on.
    pub(crate) fn into_lone(self) -> io::Result<LoneStream> {
        Ok(match self {
            Self::Bare(socket) => LoneStream::Bare(socket.into_lone()?),
            Self::Secure(mut stream) => {
                let (socket, _) = stream.get_mut();
                let lone = std::mem::replace(socket, Socket::Away).into_lone()?;
                LoneStream::Secure(stream, lone)
            }
        })
    }
}

impl LoneStream {
    /// Puts it on the runtime that this is called on.
    pub(crate) fn into_stream(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Bare(lone) => Stream::Bare(lone.into_socket()?),
            Self::Secure(mut stream, lone) => {
                *stream.get_mut().0 = lone.into_socket()?;
                Stream::Secure(stream)
            }
        })
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bare(_) => "plain",
            Self::Secure(_) => "TLS",
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Bare(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Bare(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Bare(socket) => Pin::new(socket).poll_flush(cx),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Bare(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Bare(socket) => Pin::new(socket).poll_write_vectored(cx, buffers),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Bare(socket) => socket.is_write_vectored(),
            Self::Secure(stream) => stream.is_write_vectored(),
        }
    }
}
