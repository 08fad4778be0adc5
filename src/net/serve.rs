//! Serves the connections of a port, one task each, and stops them in order.
//!
//! What it deliberately does not do: end a connection that ignores the signal; the drain timeout
//! does.

use std::pin::pin;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, yield_now};

use crate::net::connection::Connection;

/// Tells the task of a connection when to stop.
#[derive(Clone, Debug)]
pub struct ShutdownSignal(watch::Receiver<bool>);

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
