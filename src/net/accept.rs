//! Accept loop: the same for every port, with a limit of open connections.
//!
//! Why our own loop: the libraries' accept loops end when the process has no file descriptor left,
//! and then the whole port is gone. Here an error is counted and the loop retries. A connection
//! beyond the limit is closed at once, so that its client sees a reset and not a timeout.
//!
//! What it deliberately does not do: read from a connection, perform handshakes (`tls_acceptor`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;

use crate::metrics::PortCounters;
use crate::net::connection::{Connection, DetachedConnection, OpenConnection};
use crate::net::listener::Listener;
use crate::net::socket::Socket;
use crate::net::stream::Stream;
use crate::net::tls_acceptor::TlsAcceptor;

/// How long to wait after an accept error.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// Most accepted connections that wait to be served.
const WAITING_CONNECTIONS_MAX: usize = 64;

/// Limits, TLS and counters of one port.
#[derive(Debug)]
pub struct PortConfig {
    /// Most open connections.
    pub connections_max: usize,
    /// Bytes that a connection must send before its preface times out.
    pub preface_bytes: usize,
    /// TLS; none on a plain port.
    pub tls: Option<Arc<TlsAcceptor>>,
    /// Counters of the port.
    pub counters: PortCounters,
}

/// Accept loop of one port.
struct AcceptLoop {
    listener: Listener,
    counters: PortCounters,
    permits: Arc<Semaphore>,
}

/// Accepts plain connections, at most `connections_max` at a time, until the receiver is dropped. A
/// connection that does not send `preface_bytes` in time is closed.
pub fn accept_plain(
    listener: impl Into<Listener>,
    connections_max: usize,
    preface_bytes: usize,
    counters: PortCounters,
) -> (
    mpsc::Receiver<Connection>,
    impl Future<Output = ()> + Send + 'static,
) {
    let config = PortConfig {
        connections_max,
        preface_bytes,
        tls: None,
        counters,
    };
    accept_with(listener.into(), config)
}

/// Accepts connections of `listener` until the receiver is dropped.
pub fn accept_with(
    listener: Listener,
    config: PortConfig,
) -> (
    mpsc::Receiver<Connection>,
    impl Future<Output = ()> + Send + 'static,
) {
    let (sender, receiver) = mpsc::channel(WAITING_CONNECTIONS_MAX);
    let preface_bytes = config.preface_bytes;
    let tls = config.tls.clone();
    let accepts = AcceptLoop::new(listener, config);
    let run = async move {
        match tls {
            None => accepts.run_plain(preface_bytes, &sender).await,
            Some(tls) => accepts.run_tls(preface_bytes, &tls, &sender).await,
        }
    };
    (receiver, run)
}

// === impl AcceptLoop ===

impl AcceptLoop {
    fn new(listener: Listener, config: PortConfig) -> Self {
        let permits = config.connections_max.min(Semaphore::MAX_PERMITS);
        Self {
            listener,
            counters: config.counters,
            permits: Arc::new(Semaphore::new(permits)),
        }
    }

    async fn run_plain(self, preface_bytes: usize, sender: &mpsc::Sender<Connection>) {
        loop {
            let (socket, peer, open) = tokio::select! {
                () = sender.closed() => return,
                accepted = self.next() => accepted,
            };
            let connection = Connection::new(Stream::Plain(socket), peer, preface_bytes, open);
            if sender.send(connection).await.is_err() {
                return;
            }
        }
    }

    /// Accepts on the thread of the handshakes; connections whose handshake is complete are
    /// attached to the runtime that this runs on.
    async fn run_tls(
        self,
        preface_bytes: usize,
        tls: &Arc<TlsAcceptor>,
        sender: &mpsc::Sender<Connection>,
    ) {
        let (done, mut handshaken) = mpsc::channel::<DetachedConnection>(WAITING_CONNECTIONS_MAX);
        let acceptor = Arc::clone(tls);
        tls.spawn(async move {
            loop {
                let (socket, peer, open) = tokio::select! {
                    () = done.closed() => return,
                    accepted = self.next() => accepted,
                };
                acceptor.spawn_handshake(socket, peer, preface_bytes, open, &done);
            }
        });
        loop {
            let detached = tokio::select! {
                () = sender.closed() => return,
                detached = handshaken.recv() => detached,
            };
            let Some(detached) = detached else {
                return;
            };
            match detached.attach() {
                Ok(connection) => drop(sender.send(connection).await),
                Err(error) => tracing::debug!(%error, "cannot move a connection to its runtime"),
            }
        }
    }

    /// Accepts the next connection within the limit.
    async fn next(&self) -> (Socket, Option<SocketAddr>, OpenConnection) {
        let counters = &self.counters;
        loop {
            let (socket, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    counters.accept_errors.inc();
                    tracing::debug!(%error, "cannot accept a connection");
                    sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                counters.refused.inc();
                continue;
            };
            return (socket, peer, OpenConnection::new(counters, permit));
        }
    }
}
