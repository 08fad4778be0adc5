//! The staircase: builds the rooms, joins them, and stops them in order. Only this file knows everyone.
//!
//! Bound listeners, a clock and a shutdown future are inputs, so a test runs the whole service in its own process, at
//! whatever time it likes, in three lines.
//!
//! How it stops: not ready at once, go on accepting for `drain_delay` so that callers who watch health can turn away,
//! then GOAWAY, then wait for what is under way, but no longer than `drain_timeout`.
//!
//! What it deliberately does not do: decide anything, read flags (`cli`), install signal handlers (`cli/serve`).

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::accept::{self, Connection};
use crate::admin::{self, LogLevelSwitch, Readiness, Shown};
use crate::clock::Clock;
use crate::config::reload::{Change, Reload};
use crate::config::settings::Settings;
use crate::keyed_hash::KeyedHash;
use crate::limiter::RuleSet;
use crate::metrics::Metrics;
use crate::service::ratelimit::{Parts, RateLimit};
use crate::service::{self, Generations, Health, JsonRateLimit};
use crate::store::{BACKENDS, Setup, Worker, memory};

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
    workers: Vec<Worker>,
    metrics: Arc<Metrics>,
    generations: Arc<Generations>,
    json: Arc<JsonRateLimit>,
    log_level: Option<LogLevelSwitch>,
}

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
    /// A port stopped serving.
    #[error("{port}: {error}")]
    Serving {
        /// Which.
        port: &'static str,
        /// Why.
        error: String,
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
    /// When the system gives no randomness, or something in the build is wrong.
    pub fn build(
        settings: Settings,
        listeners: Listeners,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AppError> {
        let metrics = Metrics::new().map_err(|error| AppError::Defect(error.to_string()))?;
        let metrics = Arc::new(metrics);
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let setup = Setup {
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            memory: memory::Bounds {
                partitions: settings
                    .partitions
                    .map_or(cores.saturating_mul(2), usize::from),
                mailbox_checks_max: settings.mailbox_checks_max,
                buckets_max: settings.buckets_max,
            },
        };
        let backend = BACKENDS
            .first()
            .ok_or_else(|| AppError::Defect("no store is built in".to_owned()))?;
        let (store, workers) = (backend.build)(&setup);
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let parts = Parts {
            generations: Arc::clone(&generations),
            store,
            clock,
            metrics: Arc::clone(&metrics),
            hash: KeyedHash::random().map_err(AppError::Randomness)?,
        };
        let service = Arc::new(RateLimit::new(parts, &settings));
        let json = JsonRateLimit::new(Arc::clone(&service)).map_err(AppError::Defect)?;
        Ok(Self {
            settings,
            listeners,
            service,
            workers,
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
    /// When a port stops serving.
    pub async fn run(
        self,
        ready: impl FnOnce(&RuleSet),
        mut reload: mpsc::Receiver<()>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        let settings = self.settings;
        let mut workers = JoinSet::new();
        for worker in self.workers {
            workers.spawn(worker);
        }
        let (stop, stopping) = watch::channel(false);
        let readiness = Readiness::new(Arc::clone(&self.generations), &settings);
        let shown = Shown {
            readiness: readiness.clone(),
            metrics: Arc::clone(&self.metrics),
            generations: Arc::clone(&self.generations),
            json: settings.json.then_some(self.json),
            log_level: self.log_level,
        };
        let health = Health::new().await;
        let connections = |listener, port, max| connections(&self.metrics, listener, port, max);

        let grpc_max = settings.grpc_connections_max;
        let http_max = settings.http_connections_max;
        let mut grpc = tokio::spawn(service::serve(
            self.service,
            settings.clone(),
            Arc::clone(&self.metrics),
            health.clone(),
            connections(self.listeners.grpc, "grpc", grpc_max),
            stopped(stopping.clone()),
        ));
        let mut http = tokio::spawn(admin::serve(
            admin::public(shown.clone()),
            connections(self.listeners.http, "http", http_max),
            stopped(stopping.clone()),
        ));
        let admin = self.listeners.admin.map(|listener| {
            tokio::spawn(admin::serve(
                admin::private(shown),
                connections(listener, "admin", http_max),
                stopped(stopping),
            ))
        });

        let path = settings.rules_path();
        let mut rules = path.map(|path| Reload::new(path, settings.rules_settings.options()));
        let mut ready = Some(ready);
        let (mut now, mut serving) = (true, false);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            if let Some(reload) = rules.take() {
                // A file may take forever to read: a pipe, a network file system. That must not hold a stop.
                let looked = tokio::select! {
                    () = &mut shutdown => break,
                    looked = tokio::task::spawn_blocking(move || look(reload, now)) => looked,
                };
                let (reload, change) =
                    looked.map_err(|error| AppError::Defect(error.to_string()))?;
                rules = Some(reload);
                self.generations.take(change);
            }
            if serving != readiness.ready() {
                serving = !serving;
                health.set_serving(serving).await;
            }
            if let Some(generation) = self.generations.present()
                && let Some(ready) = ready.take()
            {
                ready(&generation.rules);
            }
            now = tokio::select! {
                () = &mut shutdown => break,
                Some(()) = reload.recv() => true,
                () = sleep(RULES_LOOK_INTERVAL) => false,
                ended = &mut grpc => return Err(ended_early("the gRPC port", &ended)),
                ended = &mut http => return Err(ended_early("the HTTP port", &ended)),
            };
        }
        tracing::info!(delay = ?settings.drain_delay, "stopping: no longer ready");
        readiness.stop();
        health.set_serving(false).await;
        sleep(settings.drain_delay).await;
        stop.send_replace(true);
        let drained = timeout(settings.drain_timeout, async {
            // How they ended no longer matters.
            let _ = grpc.await;
            let _ = http.await;
            if let Some(admin) = admin {
                let _ = admin.await;
            }
        });
        if drained.await.is_ok() {
            tracing::info!("stopped: everything under way was answered");
        } else {
            tracing::warn!(
                timeout = ?settings.drain_timeout,
                "stopped with connections still open; raise --drain-timeout if requests take that long"
            );
        }
        Ok(())
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
    connections_max: usize,
) -> mpsc::Receiver<Connection> {
    let (connections, run) = accept::accept(listener, connections_max, metrics.port(port));
    tokio::spawn(run);
    connections
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

fn ended_early(port: &'static str, ended: &impl std::fmt::Debug) -> AppError {
    AppError::Serving {
        port,
        error: format!("stopped serving: {ended:?}"),
    }
}
