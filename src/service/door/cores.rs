//! The cores: threads that each run one runtime, and which connection goes to which.
//!
//! Why threads of our own: on a runtime that several threads share a connection wanders, and everything it touches goes
//! with it from one core's cache to the other's. How: [`Cores::start`] starts one thread a core with a runtime of its own;
//! workers of partitions are spread over them; a connection is taken off the runtime that accepted it and put on the core
//! that has the fewest. (`SO_REUSEPORT` would let the system choose by a hash: of the few connections that one Envoy
//! opens, all may land on one core.)
//!
//! What it deliberately does not do: pin threads to processors (the system knows better what else runs), serve.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{self, Handle};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{self, JoinSet, LocalSet};
use tollgate_http2::BodyBudget;
use tonic::service::Routes;

use super::buffers::Buffers;
use super::connection;
use super::core::Core;
use super::respond::Caller;
use crate::accept::{Connection, Detached, Stopping};
use crate::metrics::Metrics;
use crate::service::connections::Bounds;
use crate::service::ratelimit::RateLimit;

/// What every core serves with.
#[derive(Clone)]
pub(in crate::service) struct Serving {
    pub(in crate::service) service: Arc<RateLimit>,
    /// Where everything goes that this door does not take.
    pub(in crate::service) routes: Routes,
    pub(in crate::service) bounds: Bounds,
    pub(in crate::service) metrics: Arc<Metrics>,
    /// The longest message that is read, in bytes.
    pub(in crate::service) message_size_max: usize,
    /// The memory that unfinished request bodies of all connections share.
    pub(in crate::service) bodies: Arc<BodyBudget>,
}

/// What the connections of one core share.
#[derive(Clone)]
pub(super) struct Local {
    /// None where the store has no way to ask for many at once.
    pub(super) core: Option<Rc<Core<Caller>>>,
    pub(super) buffers: Rc<Buffers>,
    /// Whose turn it is to reset calls that are late.
    pub(super) resetting: Rc<Semaphore>,
}

/// All cores. Dropped, their threads end with all that runs there.
pub(in crate::service) struct Cores(Vec<OneCore>);

struct OneCore {
    runtime: Handle,
    jobs: mpsc::UnboundedSender<Job>,
    /// Connections that are there.
    connections: Arc<AtomicUsize>,
}

/// A connection to serve. There are never more than the port may hold.
struct Job {
    connection: Detached,
    stopping: Stopping,
    /// Dropped when the connection has ended.
    ended: oneshot::Sender<()>,
}

// === impl Local ===

impl Local {
    /// What is shared where this decides.
    pub(super) fn new(core: Option<Rc<Core<Caller>>>) -> Self {
        Self {
            core,
            buffers: Rc::default(),
            resetting: Rc::new(Semaphore::new(1)),
        }
    }
}

// === impl Cores ===

impl Cores {
    /// Starts so many threads; at least one.
    ///
    /// # Errors
    ///
    /// When the system gives no thread or no way to wait for sockets.
    pub(in crate::service) fn start(count: usize, serving: &Serving) -> io::Result<Self> {
        let cores = (0..count.max(1)).map(|number| OneCore::start(number, serving.clone()));
        cores.collect::<io::Result<_>>().map(Self)
    }

    /// Runs a task for as long as it likes on one of the cores: this `number` of `count` tasks that are spread evenly.
    pub(in crate::service) fn spawn(
        &self,
        tasks: &mut JoinSet<()>,
        (number, count): (usize, usize),
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let place = number.saturating_mul(self.0.len()).checked_div(count);
        if let Some(core) = self.0.get(place.unwrap_or_default()) {
            tasks.spawn_on(task, &core.runtime);
        }
    }

    /// Serves a connection on the core that has the fewest, until it has ended.
    pub(in crate::service) async fn serve(&self, connection: Connection, stopping: Stopping) {
        let fewest = self
            .0
            .iter()
            .min_by_key(|core| core.connections.load(Ordering::Relaxed));
        let (Some(core), Ok(connection)) = (fewest, connection.detach()) else {
            return;
        };
        core.connections.fetch_add(1, Ordering::Relaxed);
        let (ended, waits) = oneshot::channel();
        let job = Job {
            connection,
            stopping,
            ended,
        };
        if core.jobs.send(job).is_ok() {
            // It is never sent: that it is dropped says enough.
            let _ = waits.await;
        }
        core.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl OneCore ===

impl OneCore {
    fn start(number: usize, serving: Serving) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (jobs, waiting) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name(format!("core-{number}"))
            .spawn(move || LocalSet::new().block_on(&runtime, run(serving, waiting)))?;
        Ok(Self {
            runtime: handle,
            jobs,
            connections: Arc::default(),
        })
    }
}

/// Serves connections until nobody can send one any more.
async fn run(serving: Serving, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let local = Local::new(Core::new(&serving).map(Rc::new));
    if let Some(core) = &local.core {
        task::spawn_local(answer(Rc::clone(core)));
        task::spawn_local(Rc::clone(core).release_old_rules());
    }
    while let Some(job) = jobs.recv().await {
        let (serving, local) = (serving.clone(), local.clone());
        task::spawn_local(async move {
            match job.connection.attach() {
                Ok(connection) => {
                    connection::serve(connection, job.stopping, local, serving).await;
                }
                Err(error) => tracing::debug!(%error, "a connection was lost on its way to a core"),
            }
            drop(job.ended);
        });
        // Or a crowd that comes at once would all be in line before whoever is here.
        task::yield_now().await;
    }
}

/// Has a core ask and answer for ever. A panic there is a defect, and costs those whose answers were under way; the others
/// go on.
async fn answer(core: Rc<Core<Caller>>) {
    loop {
        let Err(error) = task::spawn_local(Rc::clone(&core).answer()).await;
        tracing::error!(%error, "this is a defect in tollgate: a core's answers were lost");
    }
}
