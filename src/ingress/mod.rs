//! Listeners for proxies and clients that do not speak gRPC. Each is off by default.
//!
//! | file | what |
//! | --- | --- |
//! | `forward_auth` | an HTTP service that a proxy asks before it forwards a request |
//!
//! Connections run on the worker threads beside those of gRPC, so a check is decided by the batcher
//! of its own thread.
//!
//! What it deliberately does not do: decide (`pipeline`), accept connections (`net`).

mod forward_auth;

use std::sync::Arc;

use tokio::sync::Semaphore;
use tollgate_limiter::Code;

use crate::metrics::{Counter, Metrics};
use crate::net::ServeConnection;
use crate::pipeline::{CallResponse, Pipeline, RequestError};
use crate::tracing::TraceParent;

/// One of these listeners.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ingress {
    /// Forward auth.
    Auth,
}

/// Most checks of one listener in progress; further ones are refused at once.
const CHECKS_MAX: usize = 4_096;

/// Timeout of a check.
const CHECK_WAIT_MAX_US: u64 = 10_000_000;

/// What the connections of one listener share.
struct Checks {
    pipeline: Arc<Pipeline>,
    in_progress: Semaphore,
    allowed: Counter,
    refused: Counter,
    errors: Counter,
    invalid: Counter,
    shed: Counter,
}

/// Why a check has no decision.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    /// The request cannot be decided.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Too many are in progress.
    #[error("too many checks are in progress; try again later")]
    Shed,
}

// === impl Ingress ===

impl Ingress {
    /// Its name as a port, in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
        }
    }

    /// Serves its connections by this pipeline.
    pub fn serve(self, pipeline: &Arc<Pipeline>, metrics: &Metrics) -> ServeConnection {
        let count = |result| metrics.connections.ingress_check(self.name(), result);
        let checks = Arc::new(Checks {
            pipeline: Arc::clone(pipeline),
            in_progress: Semaphore::new(CHECKS_MAX),
            allowed: count("allowed"),
            refused: count("refused"),
            errors: count("error"),
            invalid: count("invalid"),
            shed: count("shed"),
        });
        match self {
            Self::Auth => Arc::new(move |connection, stopping| {
                Box::pin(forward_auth::serve(
                    Arc::clone(&checks),
                    connection,
                    stopping,
                ))
            }),
        }
    }
}

// === impl Checks ===

impl Checks {
    /// Decides an encoded `RateLimitRequest`, and counts the decision.
    async fn decide(
        &self,
        message: Vec<u8>,
        parent: Option<TraceParent>,
    ) -> Result<CallResponse, CheckError> {
        let Ok(_permit) = self.in_progress.try_acquire() else {
            self.shed.inc();
            return Err(CheckError::Shed);
        };
        let decided = self
            .pipeline
            .call(message, Some(CHECK_WAIT_MAX_US), parent)
            .await;
        match decided.as_ref().map(|response| response.code) {
            Ok(Code::Ok) => self.allowed.inc(),
            Ok(Code::OverLimit) => self.refused.inc(),
            Err(_) => self.errors.inc(),
        }
        Ok(decided?)
    }
}
