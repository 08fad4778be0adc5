//! Connections, accepted one way for every port, and never more than a port may hold.
//!
//! Why our own loop: the libraries' accept loops end when the system has no file descriptor left, and then the whole
//! port is gone. Here an error is counted and waited out, a connection beyond the bound is closed at once (its client
//! sees a reset, not a silence), and one that does not get as far as its protocol's
//! greeting is closed after [`GREETING_WAIT_MAX`].
//!
//! How: [`bind`] listens with a queue long enough for a fleet that comes back at once; [`accept`] runs until its receiver is
//! dropped and hands each connection over; [`serve_each`] gives each a task and ends them in order; the connection itself keeps the
//! count of open ones right by being dropped. Which socket it is (`socket`), and whether TLS lies over it (`secure`), is seen
//! by nobody who serves it.
//!
//! What it deliberately does not do: read, speak HTTP, read certificates, decide how long a connection lives.

mod handshake_cpu;
mod handshake_pool;
mod listener;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Sleep, sleep};

use self::listener::Socket;
pub use self::listener::{Listener, SocketFile, bind_unix};
pub use self::tls::{HandshakeBounds, Secured};
use self::tls::{LoneStream, Stream};
use crate::metrics::PortCounters;

/// How long a new connection may take to say what its protocol begins with.
pub const GREETING_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long to wait when the system will not give a connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// How many accepted connections wait to be served.
const WAITING_CONNECTIONS_MAX: usize = 64;

/// How many connections the system may hold ready for us; it has a bound of its own, often 4,096. Where the queue is
/// full the system drops what comes and the client tries again a second later.
const BACKLOG_CONNECTIONS: u32 = 16_384;

/// A connection that was accepted.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// Where it comes from; a unix socket's other end has no address.
    pub peer: Option<SocketAddr>,
    /// Runs until the greeting has come.
    waiting: Option<Pin<Box<Sleep>>>,
    /// How many bytes of it are still to come.
    greeting_bytes_left: usize,
    /// Counted as open until this is dropped.
    open: OpenConnection,
}

/// A connection on its way from one runtime to another.
#[derive(Debug)]
pub struct Detached {
    stream: LoneStream,
    peer: Option<SocketAddr>,
    greeting_bytes_left: usize,
    open: OpenConnection,
}

/// One of the connections that a port may hold.
#[derive(Debug)]
struct OpenConnection {
    counters: PortCounters,
    _permit: OwnedSemaphorePermit,
}

/// Listens on the first address of `host` that can be had.
///
/// # Errors
///
/// When the host has no address or none can be had.
pub async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in lookup_host((host, port)).await? {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A restart must not wait for connections of the process before it to fade.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG_CONNECTIONS)
}

/// What a port allows.
#[derive(Debug)]
pub struct Port {
    /// How many connections at a time.
    pub connections_max: usize,
    /// How many bytes a connection must send in time, or it is closed.
    pub greeting_bytes: usize,
    /// TLS, where it is.
    pub secured: Option<Arc<Secured>>,
    /// Its counters.
    pub counters: PortCounters,
}

/// Accepts from a plain port, at most `connections_max` at a time, until the receiver is dropped. A connection that has not
/// sent `greeting_bytes` in time is closed.
pub fn accept(
    listener: impl Into<Listener>,
    connections_max: usize,
    greeting_bytes: usize,
    counters: PortCounters,
) -> (
    mpsc::Receiver<Connection>,
    impl Future<Output = ()> + Send + 'static,
) {
    let port = Port {
        connections_max,
        greeting_bytes,
        secured: None,
        counters,
    };
    accept_at(listener.into(), port)
}

/// Accepts from `listener` what the port allows, until the receiver is dropped.
pub fn accept_at(
    listener: Listener,
    port: Port,
) -> (
    mpsc::Receiver<Connection>,
    impl Future<Output = ()> + Send + 'static,
) {
    let (sender, receiver) = mpsc::channel(WAITING_CONNECTIONS_MAX);
    let greeting_bytes = port.greeting_bytes;
    let secured = port.secured.clone();
    let accepting = Accepting::new(listener, port);
    let run = async move {
        let Some(secured) = secured else {
            loop {
                let (socket, peer, open) = tokio::select! {
                    () = sender.closed() => return,
                    accepted = accepting.next() => accepted,
                };
                let connection = Connection::new(Stream::Bare(socket), peer, greeting_bytes, open);
                if sender.send(connection).await.is_err() {
                    return;
                }
            }
        };
        // What shakes hands has a thread of its own, and those who come in by it are taken over here.
        let (welcomed, mut waiting) = mpsc::channel::<Detached>(WAITING_CONNECTIONS_MAX);
        let welcoming = Arc::clone(&secured);
        secured.spawn(async move {
            loop {
                let (socket, peer, open) = tokio::select! {
                    () = welcomed.closed() => return,
                    accepted = accepting.next() => accepted,
                };
                welcoming.welcome(socket, peer, greeting_bytes, open, &welcomed);
            }
        });
        loop {
            let detached = tokio::select! {
                () = sender.closed() => return,
                detached = waiting.recv() => detached,
            };
            let Some(detached) = detached else {
                return;
            };
            match detached.attach() {
                Ok(connection) => drop(sender.send(connection).await),
                Err(error) => tracing::debug!(%error, "a connection was lost on its way"),
            }
        }
    };
    (receiver, run)
}

/// A port that accepts.
struct Accepting {
    listener: Listener,
    counters: PortCounters,
    permits: Arc<Semaphore>,
}

// === impl Accepting ===

impl Accepting {
    fn new(listener: Listener, port: Port) -> Self {
        let permits = port.connections_max.min(Semaphore::MAX_PERMITS);
        Self {
            listener,
            counters: port.counters,
            permits: Arc::new(Semaphore::new(permits)),
        }
    }

    /// The next connection that the port may hold.
    async fn next(&self) -> (Socket, Option<SocketAddr>, OpenConnection) {
        let counters = &self.counters;
        loop {
            let (socket, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    counters.accept_errors.inc();
                    tracing::debug!(%error, "the system would not give a connection");
                    sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                counters.refused.inc();
                continue;
            };
            counters.accepted.inc();
            counters.open.inc();
            let open = OpenConnection {
                counters: counters.clone(),
                _permit: permit,
            };
            return (socket, peer, open);
        }
    }
}

/// Says when to stop. Every connection that is served gets one.
#[derive(Clone, Debug)]
pub struct Stopping(watch::Receiver<bool>);

/// Serves every connection in a task of its own until `shutdown`; then tells them and waits until each has ended.
pub async fn serve_each<F>(
    mut connections: mpsc::Receiver<Connection>,
    shutdown: impl Future<Output = ()>,
    serve_one: impl Fn(Connection, Stopping) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (stop, stopping) = watch::channel(false);
    let mut open = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = open.join_next() => {}
            connection = connections.recv() => match connection {
                Some(connection) => {
                    open.spawn(serve_one(connection, Stopping::new(stopping.clone())));
                    // Or a crowd that comes at once would all be in line before whoever is here.
                    yield_now().await;
                }
                None => break,
            },
        }
    }
    // Those accepted and not yet served are served, and told to stop as well.
    connections.close();
    while let Some(connection) = connections.recv().await {
        open.spawn(serve_one(connection, Stopping::new(stopping.clone())));
    }
    stop.send_replace(true);
    while open.join_next().await.is_some() {}
}

// === impl Stopping ===

impl Stopping {
    /// Told by the other end of this channel: true, or its end.
    pub fn new(told: watch::Receiver<bool>) -> Self {
        Self(told)
    }

    /// Waits until it is time to stop.
    pub async fn wait(&mut self) {
        // An error means that the sender is gone, which is a stop as well.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}

// === impl OpenConnection ===

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.counters.open.dec();
    }
}

// === impl Connection ===

impl Connection {
    /// Its greeting may take as long as any.
    fn new(
        stream: Stream,
        peer: Option<SocketAddr>,
        greeting_bytes_left: usize,
        open: OpenConnection,
    ) -> Self {
        let greeted = greeting_bytes_left == 0;
        Self {
            stream,
            peer,
            waiting: (!greeted).then(|| Box::pin(sleep(GREETING_WAIT_MAX))),
            greeting_bytes_left,
            open,
        }
    }

    /// Takes it off the runtime that it is on.
    ///
    /// # Errors
    ///
    /// When the system will not let go of it.
    pub fn detach(self) -> io::Result<Detached> {
        Ok(Detached {
            stream: self.stream.into_lone()?,
            peer: self.peer,
            greeting_bytes_left: self.greeting_bytes_left,
            open: self.open,
        })
    }
}

impl Detached {
    /// Puts it on the runtime that this is called on. Its greeting may take as long again.
    ///
    /// # Errors
    ///
    /// When the system will not wait for it there.
    pub fn attach(self) -> io::Result<Connection> {
        let stream = self.stream.into_stream()?;
        Ok(Connection::new(
            stream,
            self.peer,
            self.greeting_bytes_left,
            self.open,
        ))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Some(waiting) = &mut self.waiting {
            let over = waiting.as_mut().poll(cx).is_ready();
            let bytes = buffer.filled().len().saturating_sub(before);
            self.greeting_bytes_left = self.greeting_bytes_left.saturating_sub(bytes);
            if self.greeting_bytes_left == 0 {
                self.waiting = None;
            } else if over {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
