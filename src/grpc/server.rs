//! The gRPC server: worker threads that serve connections, and the routes behind their fast path.
//!
//! The quota service has two threads of its own: one decodes reports and encodes assignments, the
//! other plans shares. Why not the worker threads: a report can name thousands of buckets, and no
//! request of a client waits for it, but checks would. Their priority is lower, so that checks go
//! first where CPU cores are few; beside fully busy ones each has a tenth of a core. Why two: plans
//! are made in many short turns, and between two of them the reports of all streams would have
//! theirs.
//!
//! What it deliberately does not do: accept connections or know whether they are TLS (`net`).

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tollgate_http2::ByteBudget;
#[doc(hidden)]
pub use tonic::service::Routes;

use crate::grpc::context::{ConnectionLimits, ServerContext};
use crate::grpc::service::{ServerParts, ServiceContext, StartError};
use crate::grpc::services;
use crate::grpc::worker_threads::WorkerThreads;
use crate::net::{Connection, ServeConnection, lower_priority, serve_each};
use crate::pipeline::Pipeline;
use crate::quota::bucket::QuotaTimes;
use crate::quota::registry::{QuotaBounds, QuotaRegistry};
use crate::settings::Settings;
use crate::settings::memory_limit::request_bytes;
use crate::store::Worker;

/// Buckets of quotas that share their limits with other replicas: each asks the shared store once a
/// second.
const QUOTA_LEASED_BUCKETS_MAX: usize = 20_000;

/// The gRPC server: its threads run, and it is ready to serve connections.
pub struct GrpcServer {
    threads: Arc<WorkerThreads>,
    quotas: Arc<QuotaRegistry>,
    /// Plans shares and keeps leases.
    quota_plans: QuotaThread,
    /// Serves streams; its tasks end when it is dropped.
    _quota_streams: QuotaThread,
}

/// One thread of the quota service. When dropped, it ends with its tasks.
struct QuotaThread {
    runtime: Handle,
    /// Nothing is ever sent: the drop is the signal.
    _running: oneshot::Sender<Infallible>,
}

/// How many bytes unfinished request bodies may hold. A connection may hold as much as is free, so
/// anything below two messages would refuse the first one.
fn body_memory_max(settings: &Settings) -> Result<u64, StartError> {
    let bytes_min = (settings.message_size_max as u64).saturating_mul(2);
    let Some(bytes) = settings.body_memory_max else {
        return Ok(request_bytes().max(bytes_min));
    };
    (bytes >= bytes_min)
        .then_some(bytes)
        .ok_or(StartError::BodyMemory { bytes, bytes_min })
}

/// Checks that a connection may hold the largest answer.
fn check_answer_memory(settings: &Settings) -> Result<(), StartError> {
    let bytes_min = (settings.answer_size_max as u64).saturating_mul(2);
    match settings.answer_memory_max {
        Some(bytes) if bytes < bytes_min => Err(StartError::AnswerMemory { bytes, bytes_min }),
        _ => Ok(()),
    }
}

// === impl GrpcServer ===

impl GrpcServer {
    /// Starts it as the settings say: `threads` worker threads run from now on.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub(crate) fn open(parts: ServerParts<'_>, threads: usize) -> Result<Self, StartError> {
        let ServerParts {
            settings, metrics, ..
        } = parts;
        let bytes_max = body_memory_max(settings)?;
        check_answer_memory(settings)?;
        let bodies = Arc::new(ByteBudget::new(bytes_max));
        let held = Arc::clone(&bodies);
        let gauge = &metrics.connections.unfinished_bodies_bytes;
        gauge.read_from(move || held.held_bytes());
        let quotas = quotas(parts.pipeline, settings)?;
        let quota_plans = QuotaThread::start("quota-plans")?;
        let quota_streams = QuotaThread::start("quotas")?;
        let context = ServerContext {
            pipeline: Arc::clone(parts.pipeline),
            answers: Arc::clone(parts.answers),
            routes: services::routes(&ServiceContext {
                parts,
                quotas: &quotas,
                quota_thread: Some(&quota_streams.runtime),
            })?,
            limits: ConnectionLimits::new(settings),
            metrics: Arc::clone(metrics),
            message_size_max: settings.message_size_max,
            bodies,
        };
        let threads = Arc::new(WorkerThreads::start(threads, &context)?);
        Ok(Self {
            threads,
            quotas,
            quota_plans,
            _quota_streams: quota_streams,
        })
    }

    /// Spawns the tasks that move the shares of quotas and keep their leases.
    pub fn spawn_quotas(&self, tasks: &mut JoinSet<()>) {
        let thread = &self.quota_plans.runtime;
        tasks.spawn_on(Arc::clone(&self.quotas).run(), thread);
        tasks.spawn_on(Arc::clone(&self.quotas).keep_leases(), thread);
    }

    /// The state of the quota service.
    pub(crate) fn quotas(&self) -> Arc<QuotaRegistry> {
        Arc::clone(&self.quotas)
    }

    /// Spawns a store's workers, spread evenly over the worker threads.
    pub fn spawn_workers(&self, tasks: &mut JoinSet<()>, workers: Vec<Worker>) {
        let count = workers.len();
        for (number, worker) in workers.into_iter().enumerate() {
            self.threads.spawn(tasks, (number, count), worker);
        }
    }

    /// Serves gRPC on `connections` until `shutdown`, then sends GOAWAY, ends the streams of
    /// quotas, which would stay open, and waits for calls in flight. The threads run until the last
    /// owner drops this.
    pub async fn serve(
        self: Arc<Self>,
        connections: mpsc::Receiver<Connection>,
        shutdown: impl Future<Output = ()>,
    ) {
        let serve_one = |connection, stopping| {
            let threads = Arc::clone(&self.threads);
            async move { threads.serve(connection, stopping, None).await }
        };
        let quotas = Arc::clone(&self.quotas);
        let shutdown = async move {
            shutdown.await;
            quotas.stop();
        };
        serve_each(connections, shutdown, serve_one).await;
    }

    /// Serves connections of another protocol on the same threads until `shutdown`.
    pub async fn serve_others(
        self: Arc<Self>,
        connections: mpsc::Receiver<Connection>,
        shutdown: impl Future<Output = ()>,
        serve: ServeConnection,
    ) {
        let serve_one = |connection, stopping| {
            let (threads, serve) = (Arc::clone(&self.threads), Arc::clone(&serve));
            async move { threads.serve(connection, stopping, Some(serve)).await }
        };
        serve_each(connections, shutdown, serve_one).await;
    }
}

/// tonic's routes to all services, for calls that the fast path does not support.
///
/// Tests drive them without a server, as the oracle for what the server answers.
///
/// # Errors
///
/// [`StartError::Reflection`] when the build's descriptors cannot be read.
pub(crate) fn routes(parts: ServerParts<'_>) -> Result<Routes, StartError> {
    services::routes(&ServiceContext {
        parts,
        quotas: &quotas(parts.pipeline, parts.settings)?,
        quota_thread: None,
    })
}

/// The state of the rate limit quota service.
fn quotas(pipeline: &Pipeline, settings: &Settings) -> Result<Arc<QuotaRegistry>, StartError> {
    let mut number = [0; 8];
    getrandom::fill(&mut number).map_err(StartError::Random)?;
    let replica = u64::from_le_bytes(number);
    let times = QuotaTimes {
        idle_ms: u64::from(settings.quotas.idle_seconds) * 1_000,
        ..QuotaTimes::of_service(settings.quotas.ttl_seconds)
    };
    let bounds = QuotaBounds {
        shares_max: settings.quotas.shares_max,
        leased_buckets_max: QUOTA_LEASED_BUCKETS_MAX,
    };
    let parts = pipeline.quota_parts();
    Ok(Arc::new(QuotaRegistry::new(parts, times, bounds, replica)))
}

// === impl QuotaThread ===

impl QuotaThread {
    /// Starts it, with this name.
    fn start(name: &str) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel();
        let run = move || {
            lower_priority();
            let _ = runtime.block_on(ended);
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)?;
        Ok(Self {
            runtime: handle,
            _running: running,
        })
    }
}
