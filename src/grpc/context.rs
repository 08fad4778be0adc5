//! What all connections of the server share, and the limits on each: its age, its keepalive, its
//! streams and its frames.
//!
//! The defaults never stop a real Envoy: it opens up to 1,024 streams before it has read our
//! SETTINGS, and resets many at once when its timeout of 20 ms is over.
//!
//! What it deliberately does not do: enforce them (`connection`, `connection_supervisor`, `http2`).

use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::task::yield_now;
use tollgate_http2::ByteBudget;
use tonic::service::Routes;

use crate::answer_memory::AnswerMemory;
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::settings::Settings;

/// What all threads of the server share.
#[derive(Clone)]
pub(crate) struct ServerContext {
    pub(crate) pipeline: Arc<Pipeline>,
    /// Memory of answers that are not sent yet.
    pub(crate) answers: Arc<AnswerMemory>,
    /// tonic's routes, for calls that the fast path does not support.
    pub(crate) routes: Routes,
    pub(crate) limits: ConnectionLimits,
    pub(crate) metrics: Arc<Metrics>,
    /// The longest message that is read, in bytes.
    pub(crate) message_size_max: usize,
    /// The memory that unfinished request bodies of all connections share.
    pub(crate) bodies: Arc<ByteBudget>,
}

/// Limits on one connection. A duration of `None` is no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    age: Option<Duration>,
    pub(crate) age_grace: Option<Duration>,
    pub(crate) keepalive_interval: Option<Duration>,
    /// How long a client may take to acknowledge a keepalive ping.
    pub(crate) keepalive_timeout: Duration,
    pub(crate) streams_max: u32,
    pub(crate) header_list_bytes_max: u32,
    pub(crate) body_wait: Option<Duration>,
    pub(crate) resets_per_second_max: u32,
    pub(crate) control_frames_per_second_max: u32,
    pub(crate) streaming_calls_max: usize,
}

/// Wakes the current task after all other tasks have run and new I/O has been polled. The caller
/// then returns `Pending`.
///
/// A task that wakes itself goes to the end of the run queue, but the runtime polls sockets and
/// timers only when the queue is empty or after 61 tasks. A few connections that are always busy
/// would run that often before the runtime sees a new request. tokio's own `yield_now` puts the
/// task behind that poll.
pub(crate) fn yield_to_others(cx: &mut Context<'_>) {
    // On its first poll it arranges the wake-up and is pending.
    let _ = pin!(yield_now()).poll(cx);
}

// === impl ConnectionLimits ===

impl ConnectionLimits {
    /// The limits that the settings give.
    pub(crate) fn new(settings: &Settings) -> Self {
        // In grpc-go, which the reference service uses, 0 is no limit as well.
        let limit = |length: Duration| (!length.is_zero()).then_some(length);
        let connections = &settings.connections;
        Self {
            age: limit(connections.grpc_max_connection_age),
            age_grace: limit(connections.grpc_max_connection_age_grace),
            keepalive_interval: limit(connections.keepalive_interval),
            keepalive_timeout: connections.keepalive_timeout,
            streams_max: connections.streams_max,
            header_list_bytes_max: u32::try_from(settings.header_list_size_max).unwrap_or(u32::MAX),
            body_wait: limit(settings.body_wait),
            resets_per_second_max: connections.resets_per_second_max,
            control_frames_per_second_max: connections.control_frames_per_second_max,
            streaming_calls_max: connections.streaming_calls_per_connection_max,
        }
    }

    /// Draws the maximum age of one connection: the setting plus or minus a tenth, so that
    /// connections that were opened together do not end together.
    pub(crate) fn random_age(&self) -> Option<Duration> {
        // Without randomness all connections have the same age, which is no reason not to serve.
        let share = f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX);
        self.age.map(|age| age.mul_f64(0.9 + 0.2 * share))
    }
}
