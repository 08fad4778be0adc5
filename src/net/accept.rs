//! The accept loop of a port, with its limit of open connections, and a task for each of them.
//!
//! Why our own loop: the libraries' accept loops end when the process has no file descriptor left,
//! and then the whole port is gone. Here an error is counted and the loop retries. A connection
//! beyond the limit is closed at once, so that its client sees a reset and not a timeout.
//!
//! What it deliberately does not do: read from a connection, perform handshakes (`tls_acceptor`),
//! or end a connection that ignores the signal to stop; the drain timeout does.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::metrics::PortCounters;
use crate::net::connection::Connection;
use crate::net::listener::Listener;
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

/// Tells the task of a connection when to stop.
#[derive(Clone, Debug)]
pub struct ShutdownSignal(watch::Receiver<bool>);

/// Serves one connection on the thread that it was given to.
pub type ServeConnection =
    Arc<dyn Fn(Connection, ShutdownSignal) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// Accept loop of one port.
struct AcceptLoop {
    listener: Listener,
    preface_bytes: usize,
    counters: PortCounters,
    permits: Arc<Semaphore>,
}

/// Accepts connections of `listener`, at most `connections_max` at a time, until the receiver is
/// dropped. A connection that does not send `preface_bytes` in time is closed.
pub fn accept_with(
    listener: Listener,
    config: PortConfig,
) -> (
    mpsc::Receiver<Connection>,
    impl Future<Output = ()> + Send + 'static,
) {
    let (sender, receiver) = mpsc::channel(WAITING_CONNECTIONS_MAX);
    let permits = config.connections_max.min(Semaphore::MAX_PERMITS);
    let accepts = AcceptLoop {
        listener,
        preface_bytes: config.preface_bytes,
        counters: config.counters,
        permits: Arc::new(Semaphore::new(permits)),
    };
    let run = async move {
        match &config.tls {
            None => accepts.run_plain(&sender).await,
            Some(tls) => accepts.run_tls(tls, &sender).await,
        }
    };
    (receiver, run)
}

// === impl AcceptLoop ===

impl AcceptLoop {
    async fn run_plain(self, sender: &mpsc::Sender<Connection>) {
        loop {
            let connection = tokio::select! {
                () = sender.closed() => return,
                accepted = self.next() => accepted,
            };
            if sender.send(connection).await.is_err() {
                return;
            }
        }
    }

    /// Accepts on the thread of the handshakes; connections whose handshake is complete are
    /// attached to the runtime that this runs on.
    async fn run_tls(self, tls: &Arc<TlsAcceptor>, sender: &mpsc::Sender<Connection>) {
        let (done, mut handshaken) = mpsc::channel(WAITING_CONNECTIONS_MAX);
        let acceptor = Arc::clone(tls);
        tls.spawn(async move {
            loop {
                let connection = tokio::select! {
                    () = done.closed() => return,
                    accepted = self.next() => accepted,
                };
                acceptor.spawn_handshake(connection, &done);
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
    async fn next(&self) -> Connection {
        let counters = &self.counters;
        loop {
            let (io, peer) = match self.listener.accept().await {
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
            return Connection::new(io, peer, self.preface_bytes, counters, permit);
        }
    }
}

/// Serves each connection in a task of its own until `shutdown`, then signals all tasks and waits
/// until they have ended.
pub async fn serve_each<F>(
    mut connections: mpsc::Receiver<Connection>,
    shutdown: impl Future<Output = ()>,
    serve_one: impl Fn(Connection, ShutdownSignal) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (stop, stopping) = watch::channel(false);
    let mut open = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = open.join_next() => {}
            connection = connections.recv() => match connection {
                Some(connection) => {
                    open.spawn(serve_one(connection, ShutdownSignal::new(stopping.clone())));
                    // Otherwise a burst of connections delays the tasks that already run.
                    yield_now().await;
                }
                None => break,
            },
        }
    }
    // Connections that were accepted and not yet served are served, and signalled as well.
    connections.close();
    while let Some(connection) = connections.recv().await {
        open.spawn(serve_one(connection, ShutdownSignal::new(stopping.clone())));
    }
    stop.send_replace(true);
    while open.join_next().await.is_some() {}
}

// === impl ShutdownSignal ===

impl ShutdownSignal {
    /// A signal that fires when the channel holds `true` or its sender is dropped.
    pub fn new(stop: watch::Receiver<bool>) -> Self {
        Self(stop)
    }

    /// Waits for the signal.
    pub async fn wait(&mut self) {
        // An error means that the sender was dropped, which is a stop as well.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}
