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
use tokio::sync::mpsc;

use crate::net::{Connection, ShutdownSignal, serve_each};

/// How long a client may take to send a request's headers.
const HEADERS_WAIT_MAX: Duration = Duration::from_secs(10);

/// How many bytes of headers a client may send.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Serves `router` until `shutdown`, then lets what is under way end.
pub async fn serve(
    router: Router,
    connections: mpsc::Receiver<Connection>,
    shutdown: impl Future<Output = ()>,
) {
    let serve_one = |connection, stopping| serve_one(router.clone(), connection, stopping);
    serve_each(connections, shutdown, serve_one).await;
}

async fn serve_one(router: Router, connection: Connection, mut stopping: ShutdownSignal) {
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WAIT_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router))
    );
    let served = tokio::select! {
        served = &mut serving => served,
        () = stopping.wait() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}
