//! The staircase: builds the rooms, joins them, and stops them in order. Only this file knows everyone.
//!
//! Bound listeners, a clock and a shutdown future are inputs, so a test runs the whole service in its own process, at
//! whatever time it likes, in three lines.
//!
//! How it stops: not ready at once, go on accepting for `drain_delay` so that callers who watch health can turn away,
//! then GOAWAY, then wait for what is under way, but no longer than `drain_timeout`.
//!
//! What it deliberately does not do: decide anything, read flags (`cli`), install signal handlers (`cli/serve`).

mod store;

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

pub use self::store::{BucketName, BucketNames};
use crate::accept::{self, Connection, Stopping};
use crate::admin::{self, LogLevelSwitch, Readiness, Shown};
use crate::clock::Clock;
use crate::config::memory_limit::MemoryLimit;
use crate::config::reload::{Change, LoadError, Reload};
use crate::config::settings::{MEMORY_MIN, OnMemoryFull, Settings};
use crate::limiter::RuleSet;
use crate::metrics::Metrics;
use crate::service::ratelimit::{Parts, RateLimit};
use crate::service::{FrontDoor, Generations, Health, JsonRateLimit};
use crate::store::{Setup, Store, Worker, memory};

/// The ports, already bound.
#[derive(Debug)]
pub struct Listeners {
    /// gRPC.
    pub grpc: TcpListener,
    /// Health, JSON, metrics.
    pub http: TcpListener,
    /// Rules; the reference calls it the debug port. A port that cannot be had is no reason not to limit.
    pub admin: Option<TcpListener>,
}

/// A service, built and not yet running.
pub struct App {
    settings: Settings,
    listeners: Listeners,
    service: Arc<RateLimit>,
    store: Arc<dyn Store>,
    /// Those of each store together.
    workers: Vec<Vec<Worker>>,
    cores: usize,
    metrics: Arc<Metrics>,
    generations: Arc<Generations>,
    json: Arc<JsonRateLimit>,
    log_level: Option<LogLevelSwitch>,
}

/// What every HTTP/2 client sends first: the preface and the head of a SETTINGS frame.
const HTTP2_GREETING_BYTES: usize = 24 + 9;

/// A service that runs.
struct Running {
    store: Arc<dyn Store>,
    generations: Arc<Generations>,
    readiness: Readiness,
    health: Health,
    /// One a partition; none may end while requests come.
    workers: JoinSet<()>,
    /// What the workers may run on; they answer the HTTP port to the end.
    _front_door: Arc<FrontDoor>,
    /// Ends with this.
    _rules: JoinSet<()>,
    grpc: JoinHandle<()>,
    http: JoinHandle<()>,
    admin: Option<JoinHandle<()>>,
    stop_grpc: watch::Sender<bool>,
    stop_http: watch::Sender<bool>,
}

/// How many bytes buckets may take where neither a setting nor the system says anything.
const MEMORY_MAX_UNKNOWN: u64 = 256 << 20;

/// How often the rules' files are looked at. A change counts once two looks agree, so it is taken within twice this and
/// the time it takes to read.
const RULES_LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Why a service could not be built or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system has no randomness to key the hash with.
    #[error("the system gives no randomness: {0}")]
    Randomness(getrandom::Error),
    /// A mistake of ours, found at start.
    #[error("this is a defect in tollgate: {0}")]
    Defect(String),
    /// The store that the settings ask for cannot be used.
    #[error("{0}")]
    Store(String),
    /// A part of it ended that should not.
    #[error("{part} {how}")]
    Ended {
        /// Which.
        part: &'static str,
        /// How.
        how: String,
    },
}

// === impl Listeners ===

impl Listeners {
    /// Binds the ports that the settings name.
    ///
    /// # Errors
    ///
    /// When the gRPC or the HTTP port cannot be had; the message names it and its setting.
    pub async fn bind(settings: &Settings) -> io::Result<Self> {
        let grpc = bind(&settings.grpc_host, settings.grpc_port, "--grpc-port").await?;
        let http = bind(&settings.host, settings.port, "--port").await?;
        let admin = bind(&settings.debug_host, settings.debug_port, "--debug-port").await;
        let admin = admin
            .inspect_err(|error| tracing::error!(%error, "going on without the admin port"))
            .ok();
        Ok(Self { grpc, http, admin })
    }
}

/// How many partitions suit so many cores: one each while they are few. A turn of a core wakes every partition it has a
/// check for, and one partition decides for a dozen cores (`docs/performance.md`), so many cores share.
fn usual_partitions(cores: usize) -> usize {
    cores.min(8).max(cores / 4)
}

/// How many bytes buckets may take, and in the log why so many.
fn memory_max(settings: &Settings) -> usize {
    let (bytes, why) = match (settings.memory_max, MemoryLimit::of_this_process()) {
        (Some(bytes), _) => (bytes, "--memory-max says so".to_owned()),
        (None, Some(limit)) => (
            limit.share().max(MEMORY_MIN),
            format!(
                "half of the {} bytes in {}",
                limit.bytes,
                limit.from.display()
            ),
        ),
        (None, None) => (
            MEMORY_MAX_UNKNOWN,
            "the system does not tell how much memory there is".to_owned(),
        ),
    };
    tracing::info!(bytes, "buckets may take {bytes} bytes: {why}");
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

async fn bind(host: &str, port: u16, setting: &str) -> io::Result<TcpListener> {
    accept::bind(host, port).await.map_err(|error| {
        let message =
            format!("cannot listen on {host}:{port}: {error}; choose another with {setting}");
        io::Error::new(error.kind(), message)
    })
}

// === impl App ===

impl App {
    /// Builds the service. Nothing is answered and no task runs until [`App::run`].
    ///
    /// # Errors
    ///
    /// When the system gives no randomness, the settings name a store that cannot be, or something in the build is wrong.
    pub fn build(
        settings: Settings,
        listeners: Listeners,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AppError> {
        let metrics = Metrics::new().map_err(|error| AppError::Defect(error.to_string()))?;
        let metrics = Arc::new(metrics);
        let cores = settings.cores.map_or_else(
            || std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            usize::from,
        );
        let setup = Setup {
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            memory: memory::Bounds {
                partitions: settings
                    .partitions
                    .map_or_else(|| usual_partitions(cores), usize::from),
                mailbox_checks_max: settings.mailbox_checks_max,
                memory_max: memory_max(&settings),
                when_full: match settings.on_memory_full {
                    OnMemoryFull::Share => memory::WhenFull::Share,
                    OnMemoryFull::Allow => memory::WhenFull::Allow,
                    OnMemoryFull::Deny => memory::WhenFull::Deny,
                    OnMemoryFull::Error => memory::WhenFull::Error,
                },
            },
            redis: store::redis(&settings.store)?,
        };
        let (store, workers) = store::build(&setup, &settings.store)?;
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let parts = Parts {
            generations: Arc::clone(&generations),
            store: Arc::clone(&store),
            clock,
            metrics: Arc::clone(&metrics),
            hash: store::hash(&settings.store, setup.redis.is_some())?,
        };
        let service = Arc::new(RateLimit::new(parts, &settings));
        let json = JsonRateLimit::new(Arc::clone(&service)).map_err(AppError::Defect)?;
        Ok(Self {
            settings,
            listeners,
            service,
            store,
            workers,
            cores,
            metrics,
            generations,
            json: Arc::new(json),
            log_level: None,
        })
    }

    /// Lets the admin port change the log level by `switch`.
    #[must_use]
    pub fn with_log_level(mut self, switch: LogLevelSwitch) -> Self {
        self.log_level = Some(switch);
        self
    }

    /// The metrics, to look at from outside.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Loads the rules, goes on looking for changes to them, and serves until `shutdown`; then drains. Ports answer from
    /// the start, requests for decisions with an error until there are rules. `ready` is called with the first ones.
    /// Whatever comes out of `reload` has the rules read again at once.
    ///
    /// # Errors
    ///
    /// When a port stops serving or a partition's worker ends.
    pub async fn run(
        self,
        ready: impl FnOnce(&RuleSet),
        reload: mpsc::Receiver<()>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        let (delay, within) = (self.settings.drain_delay, self.settings.drain_timeout);
        let mut running = self.start(reload).await?;
        running.until(ready, shutdown).await?;
        running.drain(delay, within).await;
        Ok(())
    }

    /// Spawns everything that runs.
    async fn start(self, reload: mpsc::Receiver<()>) -> Result<Running, AppError> {
        let settings = self.settings;
        let store = Arc::clone(&self.store);
        let store = move || store.state().map(|state| (state.good, state.words));
        let readiness = Readiness::new(Arc::clone(&self.generations), &settings, store);
        let shown = Shown {
            readiness: readiness.clone(),
            metrics: Arc::clone(&self.metrics),
            generations: Arc::clone(&self.generations),
            json: settings.json.then_some(self.json),
            log_level: self.log_level,
        };
        let health = Health::new().await;
        let front_door = FrontDoor::open(
            &self.service,
            &settings,
            self.cores,
            &self.metrics,
            health.clone(),
        );
        let front_door = front_door.map_err(|error| AppError::Defect(error.to_string()))?;
        let front_door = Arc::new(front_door);
        let mut workers = JoinSet::new();
        for of_one_store in self.workers {
            front_door.spawn_workers(&mut workers, of_one_store);
        }
        let mut rules = JoinSet::new();
        if let Some(path) = settings.rules_path() {
            let reload_rules = Reload::new(path, settings.rules_settings.options());
            let generations = Arc::clone(&self.generations);
            let leased = store::is_leased(&settings.store);
            rules.spawn(look_after_rules(reload_rules, generations, reload, leased));
        }
        let connections = |listener, port, max| connections(&self.metrics, listener, port, max);
        let grpc_max = (settings.grpc_connections_max, HTTP2_GREETING_BYTES);
        let http_max = (settings.http_connections_max, 1);
        let (stop_grpc, stop) = watch::channel(false);
        let grpc = tokio::spawn(Arc::clone(&front_door).serve(
            connections(self.listeners.grpc, "grpc", grpc_max),
            stopped(stop),
        ));
        let (stop_http, stop) = watch::channel(false);
        let http = tokio::spawn(admin::serve(
            admin::public(shown.clone()),
            connections(self.listeners.http, "http", http_max),
            stopped(stop.clone()),
        ));
        let admin = self.listeners.admin.map(|listener| {
            let connections = connections(listener, "admin", http_max);
            tokio::spawn(admin::serve(
                admin::private(shown),
                connections,
                stopped(stop),
            ))
        });
        Ok(Running {
            generations: self.generations,
            store: self.store,
            readiness,
            health,
            workers,
            _front_door: front_door,
            _rules: rules,
            grpc,
            http,
            admin,
            stop_grpc,
            stop_http,
        })
    }
}

// === impl Running ===

impl Running {
    /// Keeps what health says in step with readiness until `shutdown`.
    async fn until(
        &mut self,
        ready: impl FnOnce(&RuleSet),
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        let mut ready = Some(ready);
        let mut serving = false;
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            if serving != self.readiness.ready() {
                serving = !serving;
                self.health.set_serving(serving).await;
            }
            if let Some(generation) = self.generations.present()
                && let Some(ready) = ready.take()
            {
                ready(&generation.rules);
            }
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                () = self.generations.changed() => {}
                ended = &mut self.grpc => return Err(ended_early("the gRPC port", &ended)),
                ended = &mut self.http => return Err(ended_early("the HTTP port", &ended)),
                Some(ended) = self.workers.join_next() => {
                    return Err(ended_early("a partition's worker", &ended));
                }
            }
        }
    }

    /// Stops in order: not ready, then no new gRPC, and HTTP last, so that probes and metrics answer to the end.
    async fn drain(self, delay: Duration, within: Duration) {
        tracing::info!(?delay, "stopping: no longer ready");
        self.readiness.stop();
        self.health.set_serving(false).await;
        sleep(delay).await;
        let drained = timeout(within, async {
            // How they ended no longer matters.
            self.stop_grpc.send_replace(true);
            let _ = self.grpc.await;
            self.store.finish().await;
            self.stop_http.send_replace(true);
            let _ = self.http.await;
            if let Some(admin) = self.admin {
                let _ = admin.await;
            }
        });
        if drained.await.is_ok() {
            tracing::info!("stopped: everything under way was answered");
        } else {
            tracing::warn!(
                timeout = ?within,
                "stopped with connections still open; raise --drain-timeout if requests take that long"
            );
        }
    }
}

/// Looks for changes of the rules' files for ever, and at once when asked. A file may take long to read, a pipe or a
/// network file system for ever; nothing else waits for that.
async fn look_after_rules(
    mut rules: Reload,
    generations: Arc<Generations>,
    mut reload: mpsc::Receiver<()>,
    leased: bool,
) {
    let mut now = true;
    loop {
        let afresh = rules.afresh();
        let looked = tokio::task::spawn_blocking(move || look(rules, now)).await;
        rules = match looked {
            Ok((rules, change)) => {
                if leased && let Some(Ok(change)) = &change {
                    store::say_what_has_no_leases(change.loaded.rules.rules());
                }
                generations.take(change);
                rules
            }
            Err(panic) => {
                // A defect in reading is no reason to stop serving by the rules in use.
                generations.take(Some(Err(LoadError::Defect(panic.to_string()))));
                afresh
            }
        };
        now = tokio::select! {
            asked = reload.recv() => asked.is_some(),
            () = sleep(RULES_LOOK_INTERVAL) => false,
        };
    }
}

/// Looks for a change of the rules, or reads them whatever has changed.
fn look(mut reload: Reload, now: bool) -> (Reload, Option<Change>) {
    let change = if now { reload.read() } else { reload.look() };
    (reload, change)
}

/// Spawns the accept loop of a port.
fn connections(
    metrics: &Metrics,
    listener: TcpListener,
    port: &str,
    (connections_max, greeting_bytes): (usize, usize),
) -> mpsc::Receiver<Connection> {
    let (connections, run) = accept::accept(
        listener,
        connections_max,
        greeting_bytes,
        metrics.port(port),
    );
    tokio::spawn(run);
    connections
}

async fn stopped(told: watch::Receiver<bool>) {
    Stopping::new(told).wait().await;
}

fn ended_early(part: &'static str, ended: &impl std::fmt::Debug) -> AppError {
    AppError::Ended {
        part,
        how: format!("ended: {ended:?}"),
    }
}
