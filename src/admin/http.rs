//! HTTP/1.1 for a router, on connections that `accept` hands over.
//!
//! Why not axum's own server: it has no time limit for a request's headers, and these ports face strangers.
//!
//! What it deliberately does not do: HTTP/2, TLS, routes.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::accept::Connection;

/// How long a client may take to send a request's headers.
const HEADERS_WAIT_MAX: Duration = Duration::from_secs(10);

/// How many bytes of headers a client may send.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Serves `router` until `shutdown`, then lets what is under way end.
pub async fn serve(
    router: Router,
    mut connections: mpsc::Receiver<Connection>,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopping) = watch::channel(false);
    let mut open = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let connection = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = open.join_next() => continue,
            connection = connections.recv() => match connection {
                Some(connection) => connection,
                None => break,
            },
        };
        open.spawn(serve_one(router.clone(), connection, stopping.clone()));
    }
    drop(connections);
    stop.send_replace(true);
    while open.join_next().await.is_some() {}
}

async fn serve_one(router: Router, connection: Connection, mut stopping: watch::Receiver<bool>) {
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WAIT_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router))
    );
    let served = tokio::select! {
        served = &mut serving => served,
        () = stopped(&mut stopping) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
