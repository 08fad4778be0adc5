//! Worker threads: one single-threaded runtime each, and the assignment of connections to them.
//!
//! On a runtime that several threads share, a connection moves between threads, and its data moves
//! between the caches of their CPU cores. So [`WorkerThreads::start`] starts threads with one
//! `LocalRuntime` each. In a `LocalSet`, which would also run tasks that are not `Send`, each wake
//! from outside costs a system call more. The workers of partitions are spread over them. A
//! connection is detached from the runtime that accepted it and assigned to the thread with the
//! fewest connections. (With `SO_REUSEPORT` the kernel chooses by a hash, and all of the few
//! connections that one Envoy opens may be assigned to one thread.)
//!
//! What it deliberately does not do: pin threads to CPU cores, because the kernel knows what else
//! runs; serve connections (`connection`).

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{self, Handle, LocalOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{self, JoinSet};

use crate::grpc::connection::{self, ThreadContext};
use crate::grpc::context::ServerContext;
use crate::net::{Connection, DetachedConnection, ServeConnection, ShutdownSignal};
use crate::pipeline::{Batcher, Submission};

/// All worker threads. When dropped, the threads and their tasks end.
pub(crate) struct WorkerThreads(Vec<WorkerThread>);

struct WorkerThread {
    runtime: Handle,
    jobs: mpsc::UnboundedSender<Job>,
    /// The number of its connections.
    connections: Arc<AtomicUsize>,
}

/// A connection to serve. The connection limit of the port bounds how many there are.
struct Job {
    connection: DetachedConnection,
    stopping: ShutdownSignal,
    /// What serves it; none for gRPC.
    serve: Option<ServeConnection>,
    /// Dropped when the connection has ended.
    ended: oneshot::Sender<()>,
}

// === impl WorkerThreads ===

impl WorkerThreads {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    ///
    /// When the system cannot start a thread or register sockets for polling.
    pub(crate) fn start(count: usize, server: &ServerContext) -> io::Result<Self> {
        let threads = (0..count.max(1)).map(|number| WorkerThread::start(number, server.clone()));
        threads.collect::<io::Result<_>>().map(Self)
    }

    /// Runs task `number` of `count` tasks that are spread evenly over the threads.
    pub(crate) fn spawn(
        &self,
        tasks: &mut JoinSet<()>,
        (number, count): (usize, usize),
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let index = number.saturating_mul(self.0.len()).checked_div(count);
        if let Some(thread) = self.0.get(index.unwrap_or_default()) {
            tasks.spawn_on(task, &thread.runtime);
        }
    }

    /// Serves a connection on the thread with the fewest connections until it ends.
    pub(crate) async fn serve(
        &self,
        connection: Connection,
        stopping: ShutdownSignal,
        serve: Option<ServeConnection>,
    ) {
        let fewest = self
            .0
            .iter()
            .min_by_key(|thread| thread.connections.load(Ordering::Relaxed));
        let (Some(thread), Ok(connection)) = (fewest, connection.detach()) else {
            return;
        };
        thread.connections.fetch_add(1, Ordering::Relaxed);
        let (ended, closed) = oneshot::channel();
        let job = Job {
            connection,
            stopping,
            serve,
            ended,
        };
        if thread.jobs.send(job).is_ok() {
            // Nothing is ever sent: the drop of the sender is the signal.
            let _ = closed.await;
        }
        thread.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl WorkerThread ===

impl WorkerThread {
    fn start(number: usize, server: ServerContext) -> io::Result<Self> {
        let (jobs, queue) = mpsc::unbounded_channel();
        // What is asked before the thread runs waits for it.
        let submissions = server.pipeline.add_thread();
        let (started, handle) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name(format!("core-{number}"))
            .spawn(move || {
                // It cannot move between threads.
                let built = runtime::Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default());
                let runtime = match built {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(Err(error))),
                };
                let _ = started.send(Ok(runtime.handle().clone()));
                runtime.block_on(run(server, submissions, queue));
            })?;
        Ok(Self {
            runtime: handle.recv().map_err(io::Error::other)??,
            jobs,
            connections: Arc::default(),
        })
    }
}

/// Serves connections until all senders of `jobs` are dropped.
async fn run(
    server: ServerContext,
    submissions: mpsc::Receiver<Submission>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    let batcher = Rc::new(Batcher::new(&server.pipeline));
    task::spawn_local(Rc::clone(&batcher).serve(submissions));
    let thread = ThreadContext::new(batcher, &server);
    while let Some(job) = jobs.recv().await {
        let (server, thread) = (server.clone(), thread.clone());
        task::spawn_local(async move {
            match job.connection.attach() {
                Ok(connection) => match job.serve {
                    Some(serve) => serve(connection, job.stopping).await,
                    None => connection::serve(connection, job.stopping, thread, server).await,
                },
                Err(error) => {
                    tracing::debug!(%error, "cannot move a connection to its worker thread");
                }
            }
            drop(job.ended);
        });
        // Existing connections run between two new ones, however many arrive at once.
        task::yield_now().await;
    }
}
