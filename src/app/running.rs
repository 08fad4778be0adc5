//! A service that runs: everything spawned, and stopped in order.
//!
//! How it stops: not ready at once, go on accepting for `drain_delay` so that callers who watch health can turn away,
//! then GOAWAY, then wait for what is under way, but no longer than `drain_timeout`; then the last spans and counters go out,
//! for two seconds at most.
//!
//! What it deliberately does not do: build anything that can fail by a setting (`App::build`).

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::tls::Guarded;
use super::{App, AppError, rules, store, xds};
use crate::admin::{self, Readiness, Shown};
use crate::grpc::{FrontDoor, Health, OpenError};
use crate::metrics::Metrics;
use crate::net::{self, Connection, Listener, Port, Secured, SocketFile, Stopping};
use crate::pipeline::Generations;
use crate::rules::path::RulesPath;
use crate::rules::reload::RulesWatcher;
use crate::statsd::Statsd;
use crate::store::Store;
use crate::tracing::Traces;
use tollgate_limiter::RuleSet;

/// A service that runs.
pub(super) struct Running {
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
    traces: Option<Arc<Traces>>,
    statsd: Option<Statsd>,
}

/// What every HTTP/2 client sends first: the preface and the head of a SETTINGS frame.
const HTTP2_GREETING_BYTES: usize = 24 + 9;

// === impl Running ===

impl Running {
    /// Spawns everything that runs.
    pub(super) async fn start(app: App, reload: mpsc::Receiver<()>) -> Result<Self, AppError> {
        let settings = app.settings;
        let store = Arc::clone(&app.store);
        let store = move || store.state().map(|state| (state.good, state.words));
        let readiness = Readiness::new(Arc::clone(&app.generations), &settings, store);
        let shown = Shown {
            readiness: readiness.clone(),
            metrics: Arc::clone(&app.metrics),
            generations: Arc::clone(&app.generations),
            json: settings.json_enabled().then_some(app.json),
            log_level: app.log_level,
        };
        let health = Health::new().await;
        let front_door = FrontDoor::open(
            &app.service,
            &settings,
            app.cores,
            &app.metrics,
            health.clone(),
        );
        let front_door = front_door.map_err(|error| match error {
            OpenError::BodyMemory { .. } => AppError::Memory(error.to_string()),
            OpenError::Reflection(_) | OpenError::Core(_) => AppError::Defect(error.to_string()),
        })?;
        let front_door = Arc::new(front_door);
        let mut workers = JoinSet::new();
        for of_one_store in app.workers {
            front_door.spawn_workers(&mut workers, of_one_store);
        }
        let mut looking = JoinSet::new();
        let generations = Arc::clone(&app.generations);
        let leased = store::is_leased(&settings.store);
        if let Some(xds) = app.xds {
            let metrics = Arc::clone(&app.metrics);
            looking.spawn(xds::look_after(xds, generations, metrics, leased));
        } else if let Some(path) =
            RulesPath::from_settings(&settings.rules_settings, settings.rules.as_deref())
        {
            let reload_rules = RulesWatcher::new(path, (&settings.rules_settings).into());
            looking.spawn(rules::look_after(reload_rules, generations, reload, leased));
        }
        let mut secured = |guarded: Option<Guarded>| {
            let guarded = guarded?;
            let secured = Arc::clone(&guarded.secured);
            looking.spawn(guarded.look_after(Arc::clone(&app.clock)));
            Some(secured)
        };
        let (grpc_tls, admin_tls) = (secured(app.grpc_tls), secured(app.admin_tls));
        let metrics = &app.metrics;
        let grpc_max = (settings.grpc_connections_max, HTTP2_GREETING_BYTES);
        let http_max = (settings.http_connections_max, 1);
        let (stop_grpc, stop) = watch::channel(false);
        let (listener, socket_file) = app.listeners.grpc.apart_from_file();
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
            app.listeners.http,
            "http",
            None,
            admin::public(shown.clone()),
        );
        let mut beside = Vec::new();
        if let Some(listener) = app.listeners.prometheus {
            let router = admin::prometheus(shown.clone(), &settings.prometheus.prometheus_path);
            beside.push(serve(listener, "prometheus", None, router));
        }
        if let Some(listener) = app.listeners.admin {
            let router = admin::private(shown, app.admin_token);
            beside.push(serve(listener, "admin", admin_tls, router));
        }
        let statsd = Statsd::start(&settings.statsd, metrics);
        Ok(Self {
            generations: app.generations,
            store: app.store,
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
            traces: app.traces,
            statsd,
        })
    }

    /// Keeps what health says in step with readiness until `shutdown`.
    pub(super) async fn until(
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
    pub(super) async fn drain(self, delay: Duration, within: Duration) {
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
        let drained = drained.await;
        // What was decided until now; each for a time of its own, and not long. Counters last: they tell what became of spans.
        if let Some(traces) = self.traces {
            traces.stop().await;
        }
        if let Some(statsd) = self.statsd {
            statsd.stop().await;
        }
        if drained.is_ok() {
            tracing::info!("stopped: everything under way was answered");
        } else {
            tracing::warn!(
                timeout = ?within,
                "stopped with connections still open; raise --drain-timeout if requests take that long"
            );
        }
    }
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
    let (connections, run) = net::accept_at(listener, allowed);
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
