//! The cores: threads that each run one runtime, and which connection goes to which.
//!
//! Why threads of our own: on a runtime that several threads share a connection wanders, and everything it touches goes
//! with it from one core's cache to the other's. How: [`WorkerThreads::start`] starts one thread a core with a runtime of its own;
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
use tokio::sync::{mpsc, oneshot};
use tokio::task::{self, JoinSet, LocalSet};

use crate::grpc::batcher::Batcher;
use crate::grpc::connection;
use crate::grpc::context::{ServerContext, ThreadContext};
use crate::grpc::responder::StreamResponder;
use crate::net::{Connection, DetachedConnection, ShutdownSignal};

/// All cores. Dropped, their threads end with all that runs there.
pub(crate) struct WorkerThreads(Vec<WorkerThread>);

struct WorkerThread {
    runtime: Handle,
    jobs: mpsc::UnboundedSender<Job>,
    /// Connections that are there.
    connections: Arc<AtomicUsize>,
}

/// A connection to serve. There are never more than the port may hold.
struct Job {
    connection: DetachedConnection,
    stopping: ShutdownSignal,
    /// Dropped when the connection has ended.
    ended: oneshot::Sender<()>,
}

// === impl WorkerThreads ===

impl WorkerThreads {
    /// Starts so many threads; at least one.
    ///
    /// # Errors
    ///
    /// When the system gives no thread or no way to wait for sockets.
    pub(crate) fn start(count: usize, server: &ServerContext) -> io::Result<Self> {
        let cores = (0..count.max(1)).map(|number| WorkerThread::start(number, server.clone()));
        cores.collect::<io::Result<_>>().map(Self)
    }

    /// Runs a task for as long as it likes on one of the cores: this `number` of `count` tasks that are spread evenly.
    pub(crate) fn spawn(
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
    pub(crate) async fn serve(&self, connection: Connection, stopping: ShutdownSignal) {
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

// === impl WorkerThread ===

impl WorkerThread {
    fn start(number: usize, server: ServerContext) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (jobs, waiting) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name(format!("core-{number}"))
            .spawn(move || LocalSet::new().block_on(&runtime, run(server, waiting)))?;
        Ok(Self {
            runtime: handle,
            jobs,
            connections: Arc::default(),
        })
    }
}

/// Serves connections until nobody can send one any more.
async fn run(server: ServerContext, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let batcher = Batcher::new(&server.pipeline, &server.metrics, server.message_size_max);
    let thread = ThreadContext::new(batcher.map(Rc::new));
    if let Some(batcher) = &thread.batcher {
        task::spawn_local(answer(Rc::clone(batcher)));
        task::spawn_local(Rc::clone(batcher).release_old_rules());
    }
    while let Some(job) = jobs.recv().await {
        let (server, thread) = (server.clone(), thread.clone());
        task::spawn_local(async move {
            match job.connection.attach() {
                Ok(connection) => {
                    connection::serve(connection, job.stopping, thread, server).await;
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
async fn answer(batcher: Rc<Batcher<StreamResponder>>) {
    loop {
        let Err(error) = task::spawn_local(Rc::clone(&batcher).run()).await;
        tracing::error!(%error, "this is a defect in tollgate: a core's answers were lost");
    }
}
