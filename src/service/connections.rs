//! HTTP/2 for tonic's routes, on connections that `accept` hands over.
//!
//! Why not tonic's own server: its connections all live equally long, so a fleet that came at once goes at once, and with
//! a grace set it closes without the GOAWAY that would let callers finish. Here each connection draws its own age, is
//! asked to go by GOAWAY, and is closed when the grace is over too. It is hyper underneath either way.
//!
//! Bounds are chosen so that a real Envoy never meets one: it opens up to 1,024 streams before it has read what we allow,
//! and resets them in crowds when its 20 ms are over.
//!
//! What it deliberately does not do: count what HTTP/2 itself refuses (streams and headers beyond their bounds; hyper
//! answers those without telling), TLS.

use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::service::Routes;

use crate::accept::{Connection, Stopping, serve_each};
use crate::config::settings::Settings;
use crate::metrics::Metrics;

/// Streams that one connection may have reset before they were taken up.
pub(super) const RESET_STREAMS_MAX: usize = 4_096;

/// How long connections live and what they may do. No time is no bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    age: Option<Duration>,
    pub(super) age_grace: Option<Duration>,
    pub(super) keepalive_interval: Option<Duration>,
    /// How long a connection that was asked may take to say that it is there.
    pub(super) keepalive_timeout: Duration,
    pub(super) streams_max: u32,
    pub(super) header_list_bytes_max: u32,
    pub(super) body_wait: Option<Duration>,
    pub(super) resets_per_second_max: u32,
    pub(super) control_frames_per_second_max: u32,
}

/// Serves `routes` until `shutdown`, then says GOAWAY and lets what is under way end.
pub(super) async fn serve(
    routes: Routes,
    bounds: Bounds,
    metrics: &Metrics,
    connections: mpsc::Receiver<Connection>,
    shutdown: impl Future<Output = ()>,
) {
    let aged = metrics.connections.aged.clone();
    let silent = metrics.connections.silent.clone();
    let serve_one = |connection, stopping| {
        let (routes, aged, silent) = (routes.clone(), aged.clone(), silent.clone());
        async move {
            let aged = move || aged.inc();
            if let Err(error) = serve_one(routes, bounds, connection, stopping, aged).await {
                // Only its keepalive has a time.
                if error.is_timeout() {
                    silent.inc();
                }
                tracing::debug!(%error, "a gRPC connection ended");
            }
        }
    };
    serve_each(connections, shutdown, serve_one).await;
}

async fn serve_one(
    routes: Routes,
    bounds: Bounds,
    connection: Connection,
    mut stopping: Stopping,
    aged: impl FnOnce(),
) -> hyper::Result<()> {
    let mut serving = std::pin::pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(bounds.streams_max)
            .max_header_list_size(bounds.header_list_bytes_max)
            .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
            .keep_alive_interval(bounds.keepalive_interval)
            .keep_alive_timeout(bounds.keepalive_timeout)
            .serve_connection(TokioIo::new(connection), TowerToHyperService::new(routes))
    );
    tokio::select! {
        served = &mut serving => served,
        () = stopping.wait() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
        () = over(bounds.own_age()) => {
            aged();
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                served = serving => served,
                // Dropping it closes it.
                () = over(bounds.age_grace) => Ok(()),
            }
        }
    }
}

/// Waits until so much time is over; for ever when there is no bound.
pub(super) async fn over(bound: Option<Duration>) {
    match bound {
        Some(bound) => sleep(bound).await,
        None => std::future::pending().await,
    }
}

// === impl Bounds ===

impl Bounds {
    /// What the settings say.
    pub(super) fn new(settings: &Settings) -> Self {
        // The reference's library takes 0 so, and who sets it wants to be rid of the bound.
        let bound = |length: Duration| (!length.is_zero()).then_some(length);
        Self {
            age: bound(settings.grpc_max_connection_age),
            age_grace: bound(settings.grpc_max_connection_age_grace),
            keepalive_interval: bound(settings.keepalive_interval),
            keepalive_timeout: settings.keepalive_timeout,
            streams_max: settings.streams_max,
            header_list_bytes_max: u32::try_from(settings.header_list_size_max).unwrap_or(u32::MAX),
            body_wait: bound(settings.body_wait),
            resets_per_second_max: settings.resets_per_second_max,
            control_frames_per_second_max: settings.control_frames_per_second_max,
        }
    }

    /// How long one connection lives: the age, give or take a tenth, so that connections that came together do not go
    /// together.
    pub(super) fn own_age(&self) -> Option<Duration> {
        // Without randomness all live equally long, which is no reason not to serve.
        let share = f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX);
        self.age.map(|age| age.mul_f64(0.9 + 0.2 * share))
    }
}
