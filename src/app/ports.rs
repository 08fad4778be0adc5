//! Serves the ports: the accept loop of each, and the servers behind them.
//!
//! What it deliberately does not do: bind (`listeners`), or serve gRPC (`grpc`).

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::admin::{self, AdminState, AdminToken, Guard, GuardRules};
use crate::grpc::GrpcServer;
use crate::ingress::Ingress;
use crate::metrics::Metrics;
use crate::net::{self, Connection, Listener, PortConfig, ShutdownSignal, TlsAcceptor};
use crate::pipeline::Pipeline;
use crate::settings::Settings;

/// Listeners of the ports that speak HTTP/1.1, with TLS and token of the admin port.
pub(super) struct HttpPorts {
    pub(super) http: TcpListener,
    pub(super) prometheus: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
    pub(super) admin_tls: Option<Arc<TlsAcceptor>>,
    pub(super) admin_token: Option<AdminToken>,
}

/// Listeners for proxies that do not speak gRPC.
pub(super) struct IngressPorts {
    pub(super) listeners: Vec<(Ingress, TcpListener)>,
    pub(super) tls: Option<Arc<TlsAcceptor>>,
    /// The password of the Redis protocol.
    pub(super) password: Option<Arc<[u8]>>,
    pub(super) connections_max: usize,
}

// === impl IngressPorts ===

impl IngressPorts {
    /// Spawns a server for each port, on the threads of the gRPC server.
    pub(super) fn serve(
        self,
        server: &Arc<GrpcServer>,
        pipeline: &Arc<Pipeline>,
        metrics: &Metrics,
        stop: &watch::Receiver<bool>,
    ) -> Vec<JoinHandle<()>> {
        let limits = (self.connections_max, 1);
        let servers = self.listeners.into_iter().map(|(ingress, listener)| {
            let (listener, tls) = (listener.into(), self.tls.clone());
            let connections = connections(metrics, listener, ingress.name(), limits, tls);
            let serve = ingress.serve(pipeline, metrics, self.password.clone());
            let stopped = stopped(stop.clone());
            tokio::spawn(Arc::clone(server).serve_others(connections, stopped, serve))
        });
        servers.collect()
    }
}

// === impl HttpPorts ===

impl HttpPorts {
    /// Spawns a server for each port; returns that of the main port and those of the others.
    pub(super) fn serve(
        self,
        state: AdminState,
        settings: &Settings,
        stop: &watch::Receiver<bool>,
    ) -> (JoinHandle<()>, Vec<JoinHandle<()>>) {
        let limits = (settings.connections.http_connections_max, 1);
        let metrics = Arc::clone(&state.parts.engine.metrics);
        let serve = |listener: TcpListener, port, tls, router| {
            let connections = connections(&metrics, listener.into(), port, limits, tls);
            tokio::spawn(admin::serve(router, connections, stopped(stop.clone())))
        };
        let router = admin::public_router(Arc::clone(&state));
        let http = serve(self.http, "http", None, router);
        let mut others = Vec::new();
        if let Some(listener) = self.prometheus {
            let path = &settings.prometheus.prometheus_path;
            let router = admin::metrics_router(Arc::clone(&state), path);
            others.push(serve(listener, "prometheus", None, router));
        }
        if let Some(listener) = self.admin {
            let guard = guard(
                &listener,
                self.admin_token,
                settings,
                &state.parts.engine.metrics,
            );
            let router = admin::admin_router(state, guard);
            others.push(serve(listener, "admin", self.admin_tls, router));
        }
        (http, others)
    }
}

/// The rules of access of the admin listener.
fn guard(
    listener: &TcpListener,
    token: Option<AdminToken>,
    settings: &Settings,
    metrics: &Metrics,
) -> Guard {
    let address = listener.local_addr();
    Guard::new(GuardRules {
        token,
        client_certificates: settings.admin.admin_client_cacert.is_some(),
        is_loopback: address.is_ok_and(|address| address.ip().is_loopback()),
        hosts: settings.admin.admin_host.clone(),
        metrics: metrics.admin.clone(),
    })
}

/// Spawns the accept loop of a port.
pub(super) fn connections(
    metrics: &Metrics,
    listener: Listener,
    port: &str,
    (connections_max, preface_bytes): (usize, usize),
    acceptor: Option<Arc<TlsAcceptor>>,
) -> mpsc::Receiver<Connection> {
    let config = PortConfig {
        connections_max,
        preface_bytes,
        tls: acceptor,
        counters: metrics.connections.port(port),
    };
    let (connections, run) = net::accept_with(listener, config);
    tokio::spawn(run);
    connections
}

pub(super) async fn stopped(stop: watch::Receiver<bool>) {
    ShutdownSignal::new(stop).wait().await;
}
