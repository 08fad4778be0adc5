//! HTTP/2 for tonic's routes, on connections that `accept` hands over.
//!
//! Why not tonic's own server: its connections all live equally long, so a fleet that came at once goes at once, and with
//! a grace set it closes without the GOAWAY that would let callers finish. Here each connection draws its own age, is
//! asked to go by GOAWAY, and is closed when the grace is over too. It is hyper underneath either way.
//!
//! Nor is it hyper alone. What it reads is watched ([`watched`]), and the streams that it takes up are polled in their
//! connection's own task ([`taken`]): so whoever makes trouble meets the same bounds as at our own HTTP/2, and has his turn
//! like anybody else, or, where he always has more to do, stands in line for it ([`line`]).
//!
//! Bounds are chosen so that a real Envoy never meets one: it opens up to 1,024 streams before it has read what we allow,
//! and resets them in crowds when its 20 ms are over.
//!
//! What it deliberately does not do: count what hyper answers without closing (streams and headers beyond their bounds), TLS.

mod line;
mod taken;
mod watched;

use std::num::NonZero;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::available_parallelism;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::sleep;
use tonic::service::Routes;

use self::line::{Line, Place};
use self::taken::{Calls, Streams, Taken, taking};
use self::watched::{Turn, Watched};
use crate::grpc::streaming::ConnectionCalls;
use crate::metrics::Metrics;
use crate::net::{Connection, Stopping, serve_each};
use crate::pipeline::rate_limit::RateLimit;
use crate::settings::Settings;

/// Streams that one connection may have reset before they were taken up.
pub(crate) const RESET_STREAMS_MAX: usize = 4_096;

/// How often a turn goes from what comes to what is answered: what was answered is sent in the same turn.
const ROUNDS_PER_TURN_MAX: usize = 2;

/// How many calls are reset because they are late, before others have their turn: whoever opened thousands at once has them
/// all late at once.
pub(crate) const LATE_PER_TURN_MAX: usize = 2;

/// How long connections live and what they may do. No time is no bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    age: Option<Duration>,
    pub(crate) age_grace: Option<Duration>,
    pub(crate) keepalive_interval: Option<Duration>,
    /// How long a connection that was asked may take to say that it is there.
    pub(crate) keepalive_timeout: Duration,
    pub(crate) streams_max: u32,
    pub(crate) header_list_bytes_max: u32,
    pub(crate) body_wait: Option<Duration>,
    pub(crate) resets_per_second_max: u32,
    pub(crate) control_frames_per_second_max: u32,
    pub(crate) streaming_calls_max: usize,
}

/// What connections are served with.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) routes: Routes,
    pub(crate) bounds: Bounds,
    pub(crate) service: Arc<RateLimit>,
    pub(crate) metrics: Arc<Metrics>,
}

/// One connection, and the streams that it has open.
struct Served {
    http2: Pin<Box<http2::Connection<TokioIo<Watched>, Calls, Taken>>>,
    taken: Taken,
    open: Streams,
    turn: Arc<Turn>,
    place: Place,
}

/// Serves until `shutdown`, then says GOAWAY and lets what is under way end.
pub(crate) async fn serve(
    serving: Serving,
    connections: mpsc::Receiver<Connection>,
    shutdown: impl Future<Output = ()>,
) {
    let line = Line::new(available_parallelism().map_or(1, NonZero::get));
    let serve_one = |connection, stopping| {
        let (serving, place) = (serving.clone(), line.place());
        async move {
            if let Err(error) = serve_one(&serving, place, connection, stopping).await {
                // Only its keepalive has a time.
                if error.is_timeout() {
                    serving.metrics.connections.silent.inc();
                }
                tracing::debug!(%error, "a gRPC connection ended");
            }
        }
    };
    serve_each(connections, shutdown, serve_one).await;
}

async fn serve_one(
    serving: &Serving,
    place: Place,
    connection: Connection,
    mut stopping: Stopping,
) -> hyper::Result<()> {
    let (bounds, metrics) = (serving.bounds, &serving.metrics);
    let mut served = Served::new(serving, place, connection);
    tokio::select! {
        served = &mut served => served,
        () = stopping.wait() => {
            served.http2.as_mut().graceful_shutdown();
            served.await
        }
        () = over(bounds.own_age()) => {
            metrics.connections.aged.inc();
            served.http2.as_mut().graceful_shutdown();
            tokio::select! {
                served = served => served,
                // Dropping it closes it.
                () = over(bounds.age_grace) => Ok(()),
            }
        }
    }
}

// === impl Served ===

impl Served {
    fn new(serving: &Serving, place: Place, connection: Connection) -> Self {
        let Serving {
            routes,
            bounds,
            service,
            metrics,
        } = serving;
        let turn = Arc::<Turn>::default();
        let (service, turn_too) = (Arc::clone(service), Arc::clone(&turn));
        let watched = Watched::new(connection, bounds, turn_too, service, Arc::clone(metrics));
        let (calls, taken) = taking(
            routes.clone(),
            ConnectionCalls::new(bounds.streaming_calls_max),
            bounds.body_wait,
            Arc::clone(metrics),
        );
        let http2 = http2::Builder::new(taken.clone())
            .timer(TokioTimer::new())
            .max_concurrent_streams(bounds.streams_max)
            .max_header_list_size(bounds.header_list_bytes_max)
            .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
            .keep_alive_interval(bounds.keepalive_interval)
            .keep_alive_timeout(bounds.keepalive_timeout)
            .serve_connection(TokioIo::new(watched), calls);
        Self {
            http2: Box::pin(http2),
            taken,
            open: Streams::default(),
            turn,
            place,
        }
    }
}

impl Future for Served {
    type Output = hyper::Result<()>;

    /// One turn, when it is its turn: reads and takes up, answers, sends.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let served = self.get_mut();
        ready!(served.place.poll_turn(cx));
        served.turn.begin();
        for _ in 0..ROUNDS_PER_TURN_MAX {
            if let Poll::Ready(ended) = served.http2.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            let ended = served.taken.poll(&mut served.open, cx);
            if ended == 0 && !served.turn.is_over() {
                served.place.rests();
                return Poll::Pending;
            }
            if ended == 0 {
                break;
            }
        }
        // There is more to read, or there are answers to send at least.
        served.place.goes_on();
        after_others(cx);
        Poll::Pending
    }
}

/// Has a task go on when all others have had their turn, and those who are not in line yet.
///
/// Whoever wakes himself goes to the end of the line; but the runtime looks at sockets and timers only when nobody is in line
/// or sixty-one turns are over, and a few connections that always go on would have as many before it is seen that somebody
/// else asks. tokio's own `yield_now` comes back behind that look.
pub(crate) fn after_others(cx: &mut Context<'_>) {
    // It has the task woken, and is pending the first time that it is polled.
    let _ = pin!(yield_now()).poll(cx);
}

/// Waits until so much time is over; for ever when there is no bound.
pub(crate) async fn over(bound: Option<Duration>) {
    match bound {
        Some(bound) => sleep(bound).await,
        None => std::future::pending().await,
    }
}

// === impl Bounds ===

impl Bounds {
    /// What the settings say.
    pub(crate) fn new(settings: &Settings) -> Self {
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
            streaming_calls_max: settings.streaming_calls_per_connection_max,
        }
    }

    /// How long one connection lives: the age, give or take a tenth, so that connections that came together do not go
    /// together.
    pub(crate) fn own_age(&self) -> Option<Duration> {
        // Without randomness all live equally long, which is no reason not to serve.
        let share = f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX);
        self.age.map(|age| age.mul_f64(0.9 + 0.2 * share))
    }
}
