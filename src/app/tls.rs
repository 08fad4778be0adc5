//! Certificates of a port: loaded at start and reloaded when their files change.
//!
//! How: at start the certificate and key must exist and match, or the service does not start. An
//! expired certificate is only logged, since it may be renewed at any moment. Later, invalid files
//! leave the old certificates in use.
//!
//! What it deliberately does not do: read files (`tls`), perform handshakes (`net`).

use std::sync::Arc;

use tokio::time::sleep;

use super::error::AppError;
use super::rules::POLL_INTERVAL;
use crate::clock::Clock;
use crate::metrics::{CertificateCounters, Metrics};
use crate::net::{HandshakeLimits, TlsAcceptor};
use crate::settings::GrpcTlsSettings;
use crate::tls::{FileWatch, LoadedCertificate, ServerFiles, TlsError};
use tollgate_limiter::Timestamp;

/// TLS acceptor of one port and the files of its certificates.
#[derive(Debug)]
pub(super) struct CertificateReloader {
    pub(super) acceptor: Arc<TlsAcceptor>,
    port: &'static str,
    files: ServerFiles,
    watch: FileWatch,
    valid_until: Timestamp,
    /// The newest files were invalid, or expired at the start: the next good ones are logged at the
    /// same level.
    is_failing: bool,
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
        // Started before the files are read, so that no change is missed.
        let watch = files.watch();
        let loaded = files.read().map_err(|error| tls_error(port, &error))?;
        let expired = files.read_at(now).err();
        if let Some(error) = &expired {
            tracing::error!(port, %error, "the certificate is invalid now and used anyway");
        }
        let bounds = HandshakeLimits {
            concurrent_max: settings.tls_handshakes_max,
            timeout: settings.tls_handshake_timeout,
            cpu_percent_max: settings.tls_handshakes_cpu_percent_max,
        };
        let acceptor = TlsAcceptor::new(loaded.config, bounds, metrics.tls.handshakes(port))
            .map_err(|error| {
                AppError::Setting(format!(
                    "the {port} port: cannot start the handshake threads: {error}"
                ))
            })?;
        let reloader = Self {
            acceptor: Arc::new(acceptor),
            port,
            files,
            watch,
            valid_until: loaded.expires_at,
            is_failing: expired.is_some(),
            counters: metrics.tls.certificate(port),
        };
        reloader.measure();
        Ok(reloader)
    }

    /// Reloads the certificates for ever when their files change.
    pub(super) async fn watch(mut self, clock: Arc<dyn Clock>) {
        loop {
            sleep(POLL_INTERVAL).await;
            let now = clock.now();
            // On a blocking thread, since a file system may hang.
            let looked = tokio::task::spawn_blocking(move || {
                let files = self.files.clone();
                let change = self.watch.poll(|| files.read_at(now));
                (self, change)
            });
            let change = match looked.await {
                Ok((reloader, change)) => {
                    self = reloader;
                    change
                }
                Err(panic) => {
                    tracing::error!(
                        error = %panic,
                        "this is a defect in tollgate: certificates are no longer reloaded"
                    );
                    return;
                }
            };
            self.take(change, now);
        }
    }

    fn take(&mut self, change: Option<Result<LoadedCertificate, TlsError>>, now: Timestamp) {
        let port = self.port;
        match change {
            None => {}
            Some(Ok(LoadedCertificate { config, expires_at })) => {
                self.acceptor.replace_config(config);
                self.valid_until = expires_at;
                self.counters.taken.inc();
                let days = expires_at.since_us(now) / 86_400_000_000;
                let message = "a new certificate is in use";
                if std::mem::take(&mut self.is_failing) {
                    tracing::warn!(port, valid_for_days = days, "{message}");
                } else {
                    tracing::info!(port, valid_for_days = days, "{message}");
                }
            }
            Some(Err(error)) => {
                self.counters.refused.inc();
                self.is_failing = true;
                let days = self.valid_until.since_us(now) / 86_400_000_000;
                tracing::error!(
                    port,
                    valid_for_days = days,
                    %error,
                    "the new certificates are invalid; the old ones stay in use"
                );
            }
        }
        self.measure();
    }

    fn measure(&self) {
        let expires_at = self.valid_until.as_us() / 1_000_000;
        let expires_at = i64::try_from(expires_at).unwrap_or(i64::MAX);
        self.counters.expiry_timestamp.set(expires_at);
    }
}

/// Error that prevents the start.
pub(super) fn tls_error(port: &str, error: &TlsError) -> AppError {
    AppError::Setting(format!("the {port} port: {error}"))
}
