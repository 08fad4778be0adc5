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

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::accept::{self, Connection};
use crate::admin::{self, Readiness, Shown};
use crate::clock::Clock;
use crate::config::rules_file::{self, Problem};
use crate::config::rules_path::{self, ReadError};
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
}

/// Why a service could not be built or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system has no randomness to key the hash with.
    #[error("the system gives no randomness: {0}")]
    Randomness(getrandom::Error),
    /// A mistake of ours, found at start.
    #[error("this is a defect in tollgate: {0}")]
    Defect(String),
    /// The rules could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The rules have problems.
    #[error("{}", list(.0))]
    Rules(Vec<Problem>),
    /// A port stopped serving.
    #[error("{port}: {error}")]
    Serving {
        /// Which.
        port: &'static str,
        /// Why.
        error: String,
    },
}

/// Problems, one after the other.
fn list(problems: &[Problem]) -> String {
    let problems: Vec<_> = problems.iter().map(Problem::to_string).collect();
    problems.join("\n")
}

/// Reads the rules that a path names.
///
/// # Errors
///
/// When files cannot be read or have problems: all of them.
pub fn load_rules(path: &std::path::Path) -> Result<RuleSet, AppError> {
    let sources = rules_path::read(path)?;
    rules_file::load(&sources).map_err(AppError::Rules)
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
        let service = Arc::new(RateLimit::new(Parts {
            generations: Arc::clone(&generations),
            store,
            clock,
            metrics: Arc::clone(&metrics),
            hash: KeyedHash::random().map_err(AppError::Randomness)?,
            on_overload: settings.on_overload,
            near_limit_ratio: settings.near_limit_ratio,
        }));
        let json = JsonRateLimit::new(Arc::clone(&service)).map_err(AppError::Defect)?;
        Ok(Self {
            settings,
            listeners,
            service,
            workers,
            metrics,
            generations,
            json: Arc::new(json),
        })
    }

    /// The metrics, to look at from outside.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Loads the rules and serves until `shutdown`; then drains. Ports answer from the start, requests for decisions with
    /// an error until the rules are there. `ready` is called with them.
    ///
    /// # Errors
    ///
    /// When the rules cannot be loaded or a port stops serving.
    pub async fn run(
        self,
        ready: impl FnOnce(&RuleSet),
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        let mut workers = JoinSet::new();
        for worker in self.workers {
            workers.spawn(worker);
        }
        let (stop, stopping) = watch::channel(false);
        let readiness = Readiness::new(Arc::clone(&self.generations));
        let shown = Shown {
            readiness: readiness.clone(),
            metrics: Arc::clone(&self.metrics),
            generations: Arc::clone(&self.generations),
            json: self.json,
        };
        let health = Health::new().await;
        let connections = |listener, port, max| connections(&self.metrics, listener, port, max);

        let grpc_max = self.settings.grpc_connections_max;
        let http_max = self.settings.http_connections_max;
        let mut grpc = tokio::spawn(service::serve(
            self.service,
            connections(self.listeners.grpc, "grpc", grpc_max),
            health.clone(),
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

        if let Some(path) = self.settings.rules.clone() {
            let rules = tokio::task::spawn_blocking(move || load_rules(&path))
                .await
                .map_err(|error| AppError::Defect(error.to_string()))?;
            match rules {
                Ok(rules) => self.generations.publish(rules),
                Err(error) => {
                    self.metrics.config_load_error.inc();
                    return Err(error);
                }
            }
        }
        if let Some(generation) = self.generations.present() {
            health.set_serving(true).await;
            ready(&generation.rules);
        }

        tokio::select! {
            () = shutdown => {}
            ended = &mut grpc => return Err(ended_early("the gRPC port", &ended)),
            ended = &mut http => return Err(ended_early("the HTTP port", &ended)),
        }
        tracing::info!(delay = ?self.settings.drain_delay, "stopping: no longer ready");
        readiness.stop();
        health.set_serving(false).await;
        sleep(self.settings.drain_delay).await;
        stop.send_replace(true);
        let drained = timeout(self.settings.drain_timeout, async {
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
                timeout = ?self.settings.drain_timeout,
                "stopped with connections still open; raise --drain-timeout if requests take that long"
            );
        }
        Ok(())
    }
}

/// Spawns the accept loop of a port.
fn connections(
    metrics: &Metrics,
    listener: TcpListener,
    port: &str,
    connections_max: usize,
) -> tokio::sync::mpsc::Receiver<Connection> {
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
