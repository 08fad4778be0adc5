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
mod tls;
mod xds;

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

pub use self::store::{BucketName, BucketNames};
use self::tls::Guarded;
use crate::accept::{self, Connection, Listener, Port, Secured, SocketFile, Stopping};
use crate::admin::{self, LogLevelSwitch, Readiness, Shown, Token};
use crate::clock::Clock;
use crate::config::memory_limit::MemoryLimit;
use crate::config::reload::{Change, LoadError, Reload};
use crate::config::settings::{ConfigType, MEMORY_MIN, OnMemoryFull, Settings};
use crate::config::tls::ServerFiles;
use crate::config::xds::Xds;
use crate::limiter::RuleSet;
use crate::metrics::Metrics;
use crate::service::ratelimit::{Parts, RateLimit};
use crate::service::{FrontDoor, Generations, Health, JsonRateLimit};
use crate::store::{Setup, Store, Worker, memory};

/// The ports, already bound.
#[derive(Debug)]
pub struct Listeners {
    /// gRPC.
    pub grpc: Listener,
    /// Health, JSON, metrics.
    pub http: TcpListener,
    /// Rules; the reference calls it the debug port. A port that cannot be had is no reason not to limit.
    pub admin: Option<TcpListener>,
    /// Metrics alone, where the reference has them. As above.
    pub prometheus: Option<TcpListener>,
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
    clock: Arc<dyn Clock>,
    /// TLS on the gRPC port.
    grpc_tls: Option<Guarded>,
    admin_tls: Option<Guarded>,
    admin_token: Option<Token>,
    /// Where rules come from, if not from files.
    xds: Option<Xds>,
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
    /// Those who look after rules and certificates end with this.
    _looking: JoinSet<()>,
    /// Removed at the end.
    _socket_file: Option<SocketFile>,
    grpc: JoinHandle<()>,
    http: JoinHandle<()>,
    /// The admin port, and that for metrics alone.
    beside: Vec<JoinHandle<()>>,
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
    /// Certificates or a token that the settings name cannot be used.
    #[error("{0}")]
    Tls(String),
    /// Rules cannot be had as the settings say.
    #[error("{0}")]
    Rules(String),
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
    /// When the gRPC or the HTTP port cannot be had; the message names it and its setting. When strangers could reach the
    /// admin port and nothing guards it.
    pub async fn bind(settings: &Settings) -> io::Result<Self> {
        let grpc = match &settings.grpc_uds {
            Some(path) => accept::bind_unix(path, settings.grpc_uds_mode.0).map_err(|error| {
                let message = format!("cannot listen on {}: {error} (--grpc-uds)", path.display());
                io::Error::new(error.kind(), message)
            })?,
            None => bind(&settings.grpc_host, settings.grpc_port, "--grpc-port")
                .await?
                .into(),
        };
        let http = bind(&settings.host, settings.port, "--port").await?;
        let admin = bind(&settings.debug_host, settings.debug_port, "--debug-port").await;
        let admin = admin
            .inspect_err(|error| tracing::error!(%error, "going on without the admin port"))
            .ok();
        let guard = &settings.admin;
        let guarded = guard.admin_token_file.is_some() || guard.admin_client_cacert.is_some();
        if let Some(admin) = admin.as_ref().filter(|_| !guarded) {
            let address = admin.local_addr()?;
            if !address.ip().is_loopback() {
                let message = format!(
                    "the admin port shows rules and would listen on {address}, where strangers may reach it; leave DEBUG_HOST at 127.0.0.1, or guard it by --admin-token-file or --admin-client-cacert"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        let prometheus = match &settings.prometheus {
            wanted if wanted.use_prometheus => {
                let (host, port) = &wanted.prometheus_addr;
                bind_all(host, *port).await.inspect_err(
                    |error| tracing::error!(%error, "going on without a port for metrics alone"),
                )
            }
            .ok(),
            _ => None,
        };
        Ok(Self {
            grpc,
            http,
            admin,
            prometheus,
        })
    }
}

/// Binds a host, or, without one, every address there is: of both families where the system has both.
async fn bind_all(host: &str, port: u16) -> io::Result<TcpListener> {
    let setting = "PROMETHEUS_ADDR";
    if !host.is_empty() {
        return bind(host, port, setting).await;
    }
    match bind("::", port, setting).await {
        Ok(listener) => Ok(listener),
        Err(_) => bind("0.0.0.0", port, setting).await,
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
    /// When the system gives no randomness, the settings name a store or certificates that cannot be, or something in the
    /// build is wrong.
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
        let now = clock.now();
        let guarded = |port, files: Option<ServerFiles>| {
            let guarded = files
                .map(|files| Guarded::new(port, files, &settings.grpc_tls, cores, &metrics, now));
            guarded.transpose()
        };
        let grpc_files = ServerFiles::of_grpc(&settings.grpc_tls);
        let grpc_tls = guarded(
            "grpc",
            grpc_files.map_err(|error| tls::refusal("grpc", &error))?,
        )?;
        let admin_tls = guarded("admin", ServerFiles::of_admin(&settings.admin))?;
        let admin_token = settings.admin.admin_token_file.as_deref().map(Token::read);
        let admin_token = admin_token
            .transpose()
            .map_err(|error| AppError::Tls(format!("--admin-token-file: {error}")))?;
        let xds = rules_from_xds(&settings)?;
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let parts = Parts {
            generations: Arc::clone(&generations),
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
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
            clock,
            grpc_tls,
            admin_tls,
            admin_token,
            xds,
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
            json: settings.json_answers().then_some(self.json),
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
        let mut looking = JoinSet::new();
        let generations = Arc::clone(&self.generations);
        let leased = store::is_leased(&settings.store);
        if let Some(xds) = self.xds {
            let metrics = Arc::clone(&self.metrics);
            looking.spawn(xds::look_after(xds, generations, metrics, leased));
        } else if let Some(path) = settings.rules_path() {
            let reload_rules = Reload::new(path, settings.rules_settings.options());
            looking.spawn(look_after_rules(reload_rules, generations, reload, leased));
        }
        let mut secured = |guarded: Option<Guarded>| {
            let guarded = guarded?;
            let secured = Arc::clone(&guarded.secured);
            looking.spawn(guarded.look_after(Arc::clone(&self.clock)));
            Some(secured)
        };
        let (grpc_tls, admin_tls) = (secured(self.grpc_tls), secured(self.admin_tls));
        let metrics = &self.metrics;
        let grpc_max = (settings.grpc_connections_max, HTTP2_GREETING_BYTES);
        let http_max = (settings.http_connections_max, 1);
        let (stop_grpc, stop) = watch::channel(false);
        let (listener, socket_file) = self.listeners.grpc.apart_from_file();
        let grpc = tokio::spawn(Arc::clone(&front_door).serve(
            connections(metrics, listener, "grpc", grpc_max, grpc_tls),
            stopped(stop),
        ));
        let (stop_http, stop) = watch::channel(false);
        let serve = |listener: TcpListener, port, secured, router| {
            let connections = connections(metrics, listener.into(), port, http_max, secured);
            tokio::spawn(admin::serve(router, connections, stopped(stop.clone())))
        };
        let http = serve(
            self.listeners.http,
            "http",
            None,
            admin::public(shown.clone()),
        );
        let mut beside = Vec::new();
        if let Some(listener) = self.listeners.prometheus {
            let router = admin::prometheus(shown.clone(), &settings.prometheus.prometheus_path);
            beside.push(serve(listener, "prometheus", None, router));
        }
        if let Some(listener) = self.listeners.admin {
            let router = admin::private(shown, self.admin_token);
            beside.push(serve(listener, "admin", admin_tls, router));
        }
        Ok(Running {
            generations: self.generations,
            store: self.store,
            readiness,
            health,
            workers,
            _front_door: front_door,
            _looking: looking,
            _socket_file: socket_file,
            grpc,
            http,
            beside,
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
            for port in self.beside {
                let _ = port.await;
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
    listener: Listener,
    port: &str,
    (connections_max, greeting_bytes): (usize, usize),
    secured: Option<Arc<Secured>>,
) -> mpsc::Receiver<Connection> {
    let allowed = Port {
        connections_max,
        greeting_bytes,
        secured,
        counters: metrics.port(port),
    };
    let (connections, run) = accept::accept_at(listener, allowed);
    tokio::spawn(run);
    connections
}

/// The xDS server that rules come from, where the settings say so.
fn rules_from_xds(settings: &Settings) -> Result<Option<Xds>, AppError> {
    if settings.xds.config_type == ConfigType::File {
        return Ok(None);
    }
    if let Some(rules) = &settings.rules {
        return Err(AppError::Rules(format!(
            "rules come from an xDS server (CONFIG_TYPE) and from {}; say one of them",
            rules.display()
        )));
    }
    Xds::new(&settings.xds, settings.rules_settings.options())
        .map(Some)
        .map_err(|error| AppError::Rules(error.to_string()))
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
