//! HTTP/1.1 server for a router, on connections that `net` accepts.
//!
//! Why not axum's own server: it has no timeout for request headers, and these ports are exposed to
//! untrusted clients.
//!
//! What it deliberately does not do: HTTP/2, TLS, routes.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::mpsc;

use crate::net::{Connection, ShutdownSignal, serve_each};

/// Timeout of the headers of a request.
const HEADERS_WAIT_MAX: Duration = Duration::from_secs(10);

/// Most bytes of headers.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Serves `router` until `shutdown`, then lets requests in progress finish.
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
        tracing::debug!(%error, "an HTTP connection ended with an error");
    }
}
