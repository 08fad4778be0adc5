//! Certificates of ports: loaded at the start, and looked after.
//!
//! How: at the start certificates must be there and belong together, or there is no start; that one has expired is only said,
//! for it may be exchanged at any moment. Later, what is not good leaves the old ones in use.
//!
//! What it deliberately does not do: read files (`config/tls`), shake hands (`accept`).

use std::sync::Arc;

use tokio::time::sleep;

use super::{AppError, POLL_INTERVAL};
use crate::clock::Clock;
use crate::metrics::{CertificateCounters, Metrics};
use crate::net::{HandshakeLimits, TlsAcceptor};
use crate::settings::GrpcTlsSettings;
use crate::tls::{Loaded, ServerFiles, TlsError, Watch};
use tollgate_limiter::Timestamp;

/// TLS on one port, and what looks after its certificates.
#[derive(Debug)]
pub(super) struct CertificateReloader {
    pub(super) acceptor: Arc<TlsAcceptor>,
    port: &'static str,
    files: ServerFiles,
    watch: Watch,
    until: Timestamp,
    counters: CertificateCounters,
}

// === impl CertificateReloader ===

impl CertificateReloader {
    pub(super) fn new(
        port: &'static str,
        files: ServerFiles,
        settings: &GrpcTlsSettings,
        metrics: &Metrics,
        now: Timestamp,
    ) -> Result<Self, AppError> {
        // Before they are read, so that nothing that happens meanwhile is missed.
        let watch = files.watch();
        let loaded = files.read().map_err(|error| tls_error(port, &error))?;
        if let Err(error) = files.read_at(now) {
            tracing::error!("the {port} port's certificate is shown all the same: {error}");
        }
        let bounds = HandshakeLimits {
            concurrent_max: settings.tls_handshakes_max,
            timeout: settings.tls_handshake_timeout,
            cpu_percent_max: settings.tls_handshakes_cpu_percent_max,
        };
        let acceptor =
            TlsAcceptor::new(loaded.config, bounds, metrics.handshakes(port)).map_err(|error| {
                AppError::Tls(format!(
                    "the {port} port: no thread for handshakes: {error}"
                ))
            })?;
        let reloader = Self {
            acceptor: Arc::new(acceptor),
            port,
            files,
            watch,
            until: loaded.until,
            counters: metrics.certificate(port),
        };
        reloader.measure(now);
        Ok(reloader)
    }

    /// Looks for changes for ever.
    pub(super) async fn watch(mut self, clock: Arc<dyn Clock>) {
        loop {
            sleep(POLL_INTERVAL).await;
            let now = clock.now();
            // A file system may hang.
            let looked = tokio::task::spawn_blocking(move || {
                let files = self.files.clone();
                let change = self.watch.look(|| files.read_at(now));
                (self, change)
            });
            let change = match looked.await {
                Ok((reloader, change)) => {
                    self = reloader;
                    change
                }
                Err(panic) => {
                    tracing::error!(
                        "this is a defect in tollgate: certificates are no longer looked at: {panic}"
                    );
                    return;
                }
            };
            self.take(change, now);
        }
    }

    fn take(&mut self, change: Option<Result<Loaded, TlsError>>, now: Timestamp) {
        let port = self.port;
        match change {
            None => {}
            Some(Ok(Loaded { config, until })) => {
                self.acceptor.replace_config(config);
                self.until = until;
                self.counters.taken.inc();
                let days = until.since_us(now) / 86_400_000_000;
                tracing::info!("the {port} port shows a new certificate, good for {days} days");
            }
            Some(Err(error)) => {
                self.counters.refused.inc();
                let good = self.until.since_us(now) / 86_400_000_000;
                tracing::error!(
                    "the {port} port's new certificates are not taken, the old ones stay (good for {good} days): {error}"
                );
            }
        }
        self.measure(now);
    }

    fn measure(&self, now: Timestamp) {
        let left = self.until.since_us(now) / 1_000_000;
        let over = now.since_us(self.until) / 1_000_000;
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        let left = seconds(left).saturating_sub(seconds(over));
        self.counters.expiry_seconds.set(left);
    }
}

/// Why there is no start.
pub(super) fn tls_error(port: &str, error: &TlsError) -> AppError {
    AppError::Tls(format!("the {port} port: {error}"))
}
