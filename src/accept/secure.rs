//! TLS under a connection: the handshake, its bounds, and what is counted when there is none.
//!
//! How: a [`Stream`] begins bare. Where the port is TLS its first poll begins the handshake, and reading and writing wait
//! for that; so whoever serves the connection sees bytes and knows nothing of it, and the handshake's work is done on the
//! core that serves it. Which certificate is shown is read when the handshake begins, so an exchange of certificates
//! touches nobody who is connected.
//!
//! To answer a greeting costs as much as a hundred checks, and a crowd of strangers can make it due all at once. So who has
//! bytes to work on takes a turn first, of which there are half as many as cores, and keeps it until those who share its core
//! have had theirs: a core works on one handshake between two looks at its checks.
//!
//! What it deliberately does not do: read certificates (`config/tls`), choose what is spoken under it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::{CertificateError, Error, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use super::socket::Socket;
use crate::metrics::{HandshakeCounters, HandshakeFailure};

/// TLS on one port.
#[derive(Debug)]
pub struct Secured {
    config: ArcSwap<ServerConfig>,
    under_way: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    within: Duration,
    counters: HandshakeCounters,
}

/// What a connection's bytes go through.
pub(super) enum Stream {
    /// Nothing; or nothing yet, where the port is TLS.
    Bare(Socket, Option<Arc<Secured>>),
    /// A handshake is under way.
    Greeting(Box<Handshake>),
    /// TLS.
    Secure(Box<TlsStream<Socket>>),
    /// The handshake failed.
    Failed,
}

/// A handshake that is under way.
pub(super) struct Handshake {
    accept: Accept<Socket>,
    over: Pin<Box<Sleep>>,
    turn: Turn,
    turns: Arc<Semaphore>,
    _counted: UnderWay,
    counters: HandshakeCounters,
}

/// Whether a handshake may be worked on.
enum Turn {
    /// Nobody has asked.
    No,
    /// Others are before it.
    Waits(Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>),
    /// It was, and others of its core have not been yet.
    Had { _permit: OwnedSemaphorePermit },
}

/// One of the handshakes that a port may have under way.
struct UnderWay {
    counters: HandshakeCounters,
    _permit: OwnedSemaphorePermit,
}

// === impl Secured ===

impl Secured {
    /// TLS as `config` says, with so many handshakes at a time, each within that time; for so many cores.
    pub fn new(
        config: Arc<ServerConfig>,
        cores: usize,
        handshakes_max: usize,
        within: Duration,
        counters: HandshakeCounters,
    ) -> Self {
        Self {
            config: ArcSwap::new(config),
            under_way: Arc::new(Semaphore::new(handshakes_max.min(Semaphore::MAX_PERMITS))),
            turns: Arc::new(Semaphore::new((cores / 2).max(1))),
            within,
            counters,
        }
    }

    /// Shows another certificate from now on; connections that are there stay.
    pub fn exchange(&self, config: Arc<ServerConfig>) {
        self.config.store(config);
    }

    fn begin(&self, socket: Socket) -> Result<Handshake, HandshakeFailure> {
        let permit = Arc::clone(&self.under_way).try_acquire_owned();
        let permit = permit.map_err(|_| HandshakeFailure::TooMany)?;
        self.counters.under_way.inc();
        let acceptor = TlsAcceptor::from(self.config.load_full());
        Ok(Handshake {
            accept: acceptor.accept(socket),
            over: Box::pin(sleep(self.within)),
            turn: Turn::No,
            turns: Arc::clone(&self.turns),
            _counted: UnderWay {
                counters: self.counters.clone(),
                _permit: permit,
            },
            counters: self.counters.clone(),
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.counters.under_way.dec();
    }
}

// === impl Handshake ===

impl Handshake {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<TlsStream<Socket>, io::Error>> {
        if let Poll::Ready(done) = self.go_on(cx) {
            match &done {
                Ok(_) => self.counters.done.inc(),
                Err(error) => self.counters.failed(failure(error)),
            }
            return Poll::Ready(done);
        }
        ready!(self.over.as_mut().poll(cx));
        self.counters.failed(HandshakeFailure::TooSlow);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Handshake {
    /// Goes on as far as it may.
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<TlsStream<Socket>, io::Error>> {
        if matches!(self.turn, Turn::Had { .. }) {
            self.turn = Turn::No;
        }
        let socket = self.accept.get_ref();
        if !socket.is_some_and(|socket| socket.poll_read_ready(cx).is_ready()) {
            // There is nothing to work on, but perhaps something to send.
            return Pin::new(&mut self.accept).poll(cx);
        }
        if let Turn::No = self.turn {
            let turns = Arc::clone(&self.turns);
            self.turn = Turn::Waits(Box::pin(async move { turns.acquire_owned().await.ok() }));
        }
        let permit = match &mut self.turn {
            Turn::Waits(turn) => ready!(turn.as_mut().poll(cx)),
            Turn::No | Turn::Had { .. } => None,
        };
        self.turn = permit.map_or(Turn::No, |permit| Turn::Had { _permit: permit });
        let done = Pin::new(&mut self.accept).poll(cx);
        if done.is_pending() {
            // To give its turn back after the others.
            cx.waker().wake_by_ref();
        }
        done
    }
}

/// Why a handshake failed, in one of few words.
fn failure(error: &io::Error) -> HandshakeFailure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let Some(inner) = inner else {
        return HandshakeFailure::Closed;
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
    /// The socket, if nothing was said on it yet.
    pub(super) fn untouched(self) -> Option<(Socket, Option<Arc<Secured>>)> {
        match self {
            Self::Bare(socket, secured) => Some((socket, secured)),
            _ => None,
        }
    }

    /// Goes on with the handshake where there is one; ready when bytes may go through.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self {
                Self::Bare(_, None) | Self::Secure(_) => return Poll::Ready(Ok(())),
                Self::Failed => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
                Self::Greeting(handshake) => match ready!(handshake.poll(cx)) {
                    Ok(stream) => *self = Self::Secure(Box::new(stream)),
                    Err(error) => {
                        *self = Self::Failed;
                        return Poll::Ready(Err(error));
                    }
                },
                Self::Bare(_, Some(_)) => {
                    let Self::Bare(socket, Some(secured)) = std::mem::replace(self, Self::Failed)
                    else {
                        continue;
                    };
                    match secured.begin(socket) {
                        Ok(handshake) => *self = Self::Greeting(Box::new(handshake)),
                        Err(failure) => {
                            secured.counters.failed(failure);
                            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                        }
                    }
                }
            }
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bare(_, None) => "plain",
            Self::Bare(_, Some(_)) => "TLS to come",
            Self::Greeting(_) => "TLS handshake",
            Self::Secure(_) => "TLS",
            Self::Failed => "failed",
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        ready!(stream.poll_open(cx))?;
        match stream {
            Self::Bare(socket, _) => Pin::new(socket).poll_read(cx, buffer),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
            Self::Greeting(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        ready!(stream.poll_open(cx))?;
        match stream {
            Self::Bare(socket, _) => Pin::new(socket).poll_write(cx, bytes),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
            Self::Greeting(_) | Self::Failed => Poll::Ready(Ok(0)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        ready!(stream.poll_open(cx))?;
        match stream {
            Self::Bare(socket, _) => Pin::new(socket).poll_flush(cx),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
            Self::Greeting(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Bare(socket, _) => Pin::new(socket).poll_shutdown(cx),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
            // Nothing was promised; dropping it closes it.
            Self::Greeting(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        ready!(stream.poll_open(cx))?;
        match stream {
            Self::Bare(socket, _) => Pin::new(socket).poll_write_vectored(cx, buffers),
            Self::Secure(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, buffers),
            Self::Greeting(_) | Self::Failed => Poll::Ready(Ok(0)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        // It is asked once, before there is TLS; and TLS takes several pieces at once as well.
        match self {
            Self::Bare(socket, None) => socket.is_write_vectored(),
            _ => true,
        }
    }
}
