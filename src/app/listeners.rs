//! Binds the ports before anything else starts, so that a port in use fails the start at once, with
//! the setting to change.
//!
//! What it deliberately does not do: accept connections (`net`) or serve them.

use std::io;

use tokio::net::TcpListener;

use crate::ingress::Ingress;
use crate::net::{self, Listener};
use crate::settings::Settings;

/// Bound listeners of all ports.
#[derive(Debug)]
pub struct Listeners {
    /// gRPC.
    pub grpc: Listener,
    /// Health, JSON, metrics.
    pub http: TcpListener,
    /// Rules and log level; the reference calls it the debug port. The service starts without it
    /// when it cannot be bound.
    pub admin: Option<TcpListener>,
    /// Metrics only, at the reference's address. The service starts without it when it cannot be
    /// bound.
    pub prometheus: Option<TcpListener>,
    /// Listeners for proxies that do not speak gRPC.
    pub ingresses: Vec<(Ingress, TcpListener)>,
}

// === impl Listeners ===

impl Listeners {
    /// Binds the configured ports.
    ///
    /// # Errors
    ///
    /// When the gRPC or the HTTP port cannot be bound; the message names each port that cannot, its
    /// address and its setting. When the admin port would be reachable from other machines without
    /// a token or client certificates.
    pub async fn bind(settings: &Settings) -> io::Result<Self> {
        let listeners = &settings.listeners;
        let grpc: io::Result<Listener> = match &listeners.grpc_uds {
            Some(path) => net::bind_unix(path, listeners.grpc_uds_mode.0).map_err(|error| {
                let message = format!("cannot listen on {}: {error} (--grpc-uds)", path.display());
                io::Error::new(error.kind(), message)
            }),
            None => bind(&listeners.grpc_host, listeners.grpc_port, "--grpc-port")
                .await
                .map(Into::into),
        };
        let http = bind(&listeners.host, listeners.port, "--port").await;
        let admin = bind(&listeners.debug_host, listeners.debug_port, "--debug-port").await;
        let (grpc, http) = match (grpc, http) {
            (Ok(grpc), Ok(http)) => (grpc, http),
            // All at once: one port in use is often another tollgate, which has all of them.
            (grpc, http) => {
                let errors = [grpc.err(), http.err(), admin.err()];
                return Err(join(errors.into_iter().flatten()));
            }
        };
        let admin = admin
            .inspect_err(|error| tracing::error!(%error, "running without the admin port"))
            .ok();
        let guard = &settings.admin;
        let is_guarded = guard.admin_token_file.is_some() || guard.admin_client_cacert.is_some();
        if let Some(admin) = admin.as_ref().filter(|_| !is_guarded) {
            let address = admin.local_addr()?;
            if !address.ip().is_loopback() {
                let message = format!(
                    "the admin port shows rules and would be reachable from other machines at {address}; leave DEBUG_HOST at 127.0.0.1, or set --admin-token-file or --admin-client-cacert"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        let prometheus = match &settings.prometheus {
            wanted if wanted.use_prometheus => {
                let (host, port) = &wanted.prometheus_addr;
                bind_all(host, *port).await.inspect_err(
                    |error| tracing::error!(%error, "running without the Prometheus port"),
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
            ingresses: Self::bind_ingresses(settings).await?,
        })
    }

    /// Binds the listeners for proxies that do not speak gRPC.
    ///
    /// # Errors
    ///
    /// When one of them cannot be bound.
    pub async fn bind_ingresses(settings: &Settings) -> io::Result<Vec<(Ingress, TcpListener)>> {
        let ingresses = &settings.ingresses;
        let ports = [
            (Ingress::Auth, ingresses.auth_port, "--auth-port"),
            (Ingress::Resp, ingresses.resp_port, "--resp-port"),
            (Ingress::Spoe, ingresses.spoe_port, "--spoe-port"),
        ];
        let mut bound = Vec::new();
        for (ingress, port, setting) in ports {
            if let Some(port) = port {
                let listener = bind(&ingresses.ingress_host, port, setting).await?;
                bound.push((ingress, listener));
            }
        }
        Ok(bound)
    }
}

/// Binds `host`, or every address of both families if it is empty.
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

/// One error of several, with the kind of the first.
fn join(errors: impl Iterator<Item = io::Error>) -> io::Error {
    let errors: Vec<_> = errors.collect();
    let kind = errors.first().map_or(io::ErrorKind::Other, io::Error::kind);
    let words: Vec<_> = errors.iter().map(ToString::to_string).collect();
    io::Error::new(kind, words.join("\n"))
}

async fn bind(host: &str, port: u16, setting: &str) -> io::Result<TcpListener> {
    net::bind(host, port).await.map_err(|error| {
        let message =
            format!("cannot listen on {host}:{port}: {error}; choose another with {setting}");
        io::Error::new(error.kind(), message)
    })
}
