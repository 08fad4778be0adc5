//! HTTP/1.1 server for a router, on connections that `net` accepts.
//!
//! Why not axum's own server: it has no timeout for request headers, and these ports are exposed to
//! untrusted clients.
//!
//! What it deliberately does not do: HTTP/2, TLS, routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::net::{Connection, ShutdownSignal, serve_each};
use crate::tls::client_name;

/// Timeout of the headers of a request.
const HEADERS_WAIT_MAX: Duration = Duration::from_secs(10);

/// Most bytes of headers.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// How long a stream of events may take to send its last bytes after the signal to stop.
const STREAM_END_WAIT_MAX: Duration = Duration::from_secs(1);

/// The client of a request, which each request carries as an extension.
#[derive(Debug, Default)]
pub(super) struct ClientConnection {
    /// Its address.
    pub(super) peer: Option<SocketAddr>,
    /// The name in its certificate.
    pub(super) certificate: Option<String>,
    is_streaming: AtomicBool,
    close: Notify,
}

/// The client, as a request carries it.
pub(super) type Client = Arc<ClientConnection>;

// === impl ClientConnection ===

impl ClientConnection {
    /// Notes that the response has no end of its own, so that a stop does not wait for it.
    pub(super) fn set_streaming(&self) {
        self.is_streaming.store(true, Ordering::Release);
    }

    /// Closes the connection: the client does not read.
    pub(super) fn close(&self) {
        self.close.notify_one();
    }

    /// Waits until a stream of events has had its time to end; for ever without a stream.
    async fn stream_ended(&self) {
        if self.is_streaming.load(Ordering::Acquire) {
            sleep(STREAM_END_WAIT_MAX).await;
        } else {
            std::future::pending::<()>().await;
        }
    }
}

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
    let client = Arc::new(ClientConnection {
        peer: connection.peer,
        certificate: connection.client_certificate().and_then(client_name),
        ..ClientConnection::default()
    });
    let (router, of_request) = (TowerToHyperService::new(router), Arc::clone(&client));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&of_request));
        router.call(request)
    });
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WAIT_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(connection), service)
    );
    let served = tokio::select! {
        served = &mut serving => served,
        () = client.close.notified() => return,
        () = stopping.wait() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                served = &mut serving => served,
                () = client.close.notified() => return,
                () = client.stream_ended() => return,
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended with an error");
    }
}
