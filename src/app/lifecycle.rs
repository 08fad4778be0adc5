//! Runs the service and drains it.
//!
//! How it stops: readiness turns false at once. The ports accept for `drain_delay` more, so that
//! clients that watch health can leave. Then gRPC connections get GOAWAY, and requests in progress
//! have `drain_timeout` to finish. Then the last snapshot is written. The last spans, lines of the
//! decision log and counters are then sent, in two seconds at most each.
//!
//! What it deliberately does not do: build anything that can fail because of a setting
//! (`App::build`), or accept connections (`ports`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::build::App;
use super::error::AppError;
use super::overrides::SharedOverrides;
use super::ports::{HttpPorts, IngressPorts, connections, stopped};
use super::rules;
use super::snapshot::Snapshots;
use super::tls::CertificateReloader;
use crate::admin::{self, AdminApi, AdminParts, Readiness, RecordingSetup};
use crate::grpc::{GrpcServer, Health, StartError};
use crate::metrics::Metrics;
use crate::net::{ShutdownSignal, UnixSocketFile};
use crate::notify::Webhook;
use crate::pipeline::{Generation, Parts};
use crate::settings::StatsdSettings;
use crate::statsd::Statsd;
use crate::xds::XdsClient;

/// A running service: handles of its tasks.
struct RunningService {
    parts: Parts,
    readiness: Readiness,
    health: Health,
    /// One task for each partition; none may end before the drain.
    workers: JoinSet<()>,
    /// Threads that the workers may run on; they serve `/json` until the end.
    _grpc_server: Arc<GrpcServer>,
    /// Watchers of rules and certificates; dropping this ends them.
    _watchers: JoinSet<()>,
    /// Removes the file of the unix socket at the end.
    _socket_file: Option<UnixSocketFile>,
    grpc: JoinHandle<()>,
    /// Listeners for proxies that do not speak gRPC.
    ingresses: Vec<JoinHandle<()>>,
    http: JoinHandle<()>,
    /// The admin port and the port of metrics.
    other_ports: Vec<JoinHandle<()>>,
    stop_grpc: watch::Sender<bool>,
    stop_http: watch::Sender<bool>,
    statsd: Option<Statsd>,
    snapshots: Option<Snapshots>,
}

/// How often to look whether the store was in use, until it was.
const STORE_POLL: Duration = Duration::from_millis(50);

/// Bytes that every HTTP/2 client sends first: the preface and the header of a SETTINGS frame.
const HTTP2_PREFACE_BYTES: usize = 24 + 9;

// === impl App ===

impl App {
    /// Loads the rules, reloads them when they change, and serves until `shutdown`; then drains.
    ///
    /// The ports accept from the start; until there are rules, requests for decisions are answered
    /// with an error. `ready` is called with the first rules. A message on `reload` reloads the
    /// rules at once.
    ///
    /// # Errors
    ///
    /// When a port stops serving or the worker of a partition ends.
    pub async fn run(
        self,
        ready: impl FnOnce(&Generation),
        reload: mpsc::Receiver<()>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        let (delay, timeout) = (self.settings.drain_delay, self.settings.drain_timeout);
        let mut running = RunningService::start(self, reload).await?;
        running.run_until(ready, shutdown).await?;
        running.drain(delay, timeout).await;
        Ok(())
    }
}

// === impl RunningService ===

impl RunningService {
    /// Spawns all tasks of the service.
    async fn start(app: App, reload: mpsc::Receiver<()>) -> Result<Self, AppError> {
        let health = Health::new().await;
        let grpc_server = Arc::new(open_grpc(&app, &health)?);
        let (mut workers, mut watchers) = (JoinSet::new(), JoinSet::new());
        for store_workers in app.workers {
            grpc_server.spawn_workers(&mut workers, store_workers);
        }
        let xds_status = app.xds.as_ref().map(XdsClient::status);
        rules::spawn_watchers(&mut watchers, &app.settings, app.xds, reload, &app.parts);
        grpc_server.spawn_quotas(&mut watchers);
        SharedOverrides::spawn(&mut watchers, &app.parts);
        let mut acceptor = |reloader: Option<CertificateReloader>| {
            let acceptor = Arc::clone(&reloader.as_ref()?.acceptor);
            watchers.spawn(reloader?.watch(Arc::clone(&app.parts.clock)));
            Some(acceptor)
        };
        let grpc_tls = acceptor(app.certificates.grpc);
        let (stop_grpc, stop) = watch::channel(false);
        let (listener, socket_file) = app.listeners.grpc.split_file();
        let connections_max = app.settings.connections.grpc_connections_max;
        let limits = (connections_max, HTTP2_PREFACE_BYTES);
        let connections = connections(&app.parts.metrics, listener, "grpc", limits, grpc_tls);
        let grpc = tokio::spawn(Arc::clone(&grpc_server).serve(connections, stopped(stop.clone())));
        let ingresses = IngressPorts {
            listeners: app.listeners.ingresses,
            tls: acceptor(app.certificates.ingresses),
            password: app.resp_password,
            connections_max: app.settings.ingresses.ingress_connections_max,
        };
        let ingresses = ingresses.serve(&grpc_server, &app.service, &app.parts.metrics, &stop);
        let readiness = Readiness::new(&app.parts, &app.settings, xds_status);
        let ports = HttpPorts {
            http: app.listeners.http,
            prometheus: app.listeners.prometheus,
            admin: app.listeners.admin,
            admin_tls: acceptor(app.certificates.admin),
            admin_token: app.admin_token,
        };
        let state = AdminApi::new(AdminParts {
            readiness: readiness.clone(),
            json: app.settings.json_enabled().then_some(app.json),
            log_level: app.log_level,
            engine: app.parts.clone(),
            pipeline: Arc::clone(&app.service),
            answers: Arc::clone(&app.answers),
            quotas: grpc_server.quotas(),
            streams_max: app.settings.admin.event_streams_max,
            recordings: RecordingSetup {
                values: app.settings.capture.recordings,
                flags: app.settings.verdict_flags(),
            },
            has_token: ports.admin_token.is_some(),
        });
        let (stop_http, stop) = watch::channel(false);
        watchers.spawn(Arc::clone(&state).sample_rates());
        let stopping = ShutdownSignal::new(stop.clone());
        watchers.spawn(admin::run_states(Arc::clone(&state), stopping));
        watchers.spawn(Webhook::run(app.webhook));
        Snapshots::spawn(app.snapshots.as_ref(), &mut watchers);
        let (http, other_ports) = ports.serve(state, &app.settings, &stop);
        Ok(Self {
            readiness,
            health,
            workers,
            _grpc_server: grpc_server,
            _watchers: watchers,
            _socket_file: socket_file,
            grpc,
            ingresses,
            http,
            other_ports,
            stop_grpc,
            stop_http,
            statsd: start_statsd(&app.settings.statsd, &app.parts.metrics),
            parts: app.parts,
            snapshots: app.snapshots,
        })
    }

    /// Keeps the health service in step with readiness until `shutdown`.
    async fn run_until(
        &mut self,
        ready: impl FnOnce(&Generation),
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        let mut ready = Some(ready);
        let mut serving = false;
        let mut rules_changes = self.parts.generations.subscribe();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            if serving != self.readiness.ready() {
                serving = !serving;
                self.health.set_serving(serving).await;
            }
            if let Some(generation) = self.parts.generations.current()
                && let Some(ready) = ready.take()
            {
                ready(&generation);
            }
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                Ok(()) = rules_changes.changed() => {}
                () = sleep(STORE_POLL), if self.readiness.awaits_store() => {}
                ended = &mut self.grpc => return Err(unexpected_end("the gRPC port", &ended)),
                ended = &mut self.http => return Err(unexpected_end("the HTTP port", &ended)),
                Some(ended) = self.workers.join_next() => {
                    return Err(unexpected_end("a partition's worker", &ended));
                }
            }
        }
    }

    /// Drains in order: readiness, then gRPC, and HTTP last, so that probes and metrics are served
    /// to the end.
    async fn drain(self, delay: Duration, timeout_after: Duration) {
        tracing::info!(
            delay_ms = millis(delay),
            "shutdown started; no longer ready"
        );
        self.readiness.stop();
        self.health.set_serving(false).await;
        sleep(delay).await;
        let drained = timeout(timeout_after, async {
            // At this point it does not matter how they ended.
            self.stop_grpc.send_replace(true);
            let _ = self.grpc.await;
            for ingress in self.ingresses {
                let _ = ingress.await;
            }
            self.parts.store.drain().await;
            self.stop_http.send_replace(true);
            let _ = self.http.await;
            for port in self.other_ports {
                let _ = port.await;
            }
        });
        let drained = drained.await;
        if let Some(snapshots) = &self.snapshots {
            snapshots.write_last().await;
        }
        // Each has a short timeout of its own. Counters go last, because they count the spans sent.
        if let Some(traces) = self.parts.traces {
            traces.stop().await;
        }
        self.parts.decisions.stop().await;
        if let Some(statsd) = self.statsd {
            statsd.stop().await;
        }
        if drained.is_ok() {
            tracing::info!("stopped; all requests were answered");
        } else {
            tracing::warn!(
                timeout_ms = millis(timeout_after),
                "stopped with connections still open; raise --drain-timeout if requests take longer"
            );
        }
    }
}

/// A duration for a log line.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Starts the threads of the gRPC server.
fn open_grpc(app: &App, health: &Health) -> Result<GrpcServer, AppError> {
    let opened = GrpcServer::open(app.server_parts(health), app.cores);
    opened.map_err(|error| match error {
        StartError::BodyMemory { .. } | StartError::AnswerMemory { .. } => {
            AppError::Setting(error.to_string())
        }
        StartError::Random(error) => AppError::Randomness(error),
        StartError::Reflection(_) | StartError::Thread(_) => AppError::Defect(error.to_string()),
    })
}

/// Starts the task that sends counters to statsd, if it is configured.
fn start_statsd(settings: &StatsdSettings, metrics: &Arc<Metrics>) -> Option<Statsd> {
    let target = settings.target()?;
    if settings.statsd_port == 0 {
        tracing::warn!(
            target: "tollgate::statsd",
            port = target.port,
            "STATSD_PORT names no port, and the default is used; if Kubernetes sets it for a Service, set \
             `enableServiceLinks: false` in the pod"
        );
    }
    Some(Statsd::start(&target, metrics))
}

fn unexpected_end(part: &'static str, ended: &impl std::fmt::Debug) -> AppError {
    AppError::Ended {
        part,
        how: format!("ended: {ended:?}"),
    }
}
