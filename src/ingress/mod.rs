//! Listeners for proxies and clients that do not speak gRPC. Each is off by default.
//!
//! | file | what |
//! | --- | --- |
//! | `forward_auth` | an HTTP service that a proxy asks before it forwards a request |
//! | `spoe`, `spoe_frame` | the agent for HAProxy |
//! | `resp`, `resp_command` | the Redis protocol: `CL.THROTTLE` and `TG.CHECK` |
//!
//! Connections run on the worker threads beside those of gRPC, so a check is decided by the batcher
//! of its own thread.
//!
//! What it deliberately does not do: decide (`pipeline`), accept connections (`net`).

mod forward_auth;
mod resp;
pub mod resp_command;
mod spoe;
pub mod spoe_frame;

use std::sync::Arc;

use tokio::sync::Semaphore;
use tollgate_limiter::{Code, Entry, Hits, Limit, Override, Request};

use crate::metrics::{Counter, Metrics};
use crate::net::ServeConnection;
use crate::pipeline::{ApiError, ApiRequest, ApiStep, CallResponse, Pipeline, RequestError};
use crate::tracing::TraceParent;

/// One of these listeners.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ingress {
    /// Forward auth.
    Auth,
    /// The Redis protocol.
    Resp,
    /// The agent for HAProxy.
    Spoe,
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

/// What came of a check of one descriptor. Numbers are those of the tightest limit.
struct Checked {
    allowed: bool,
    limit: Option<i64>,
    remaining: Option<i64>,
    /// The time until the limit is unused.
    reset_seconds: Option<i64>,
    /// The time until the same hits would pass; none where they passed or never will.
    retry_seconds: Option<i64>,
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
            Self::Resp => "resp",
            Self::Spoe => "spoe",
        }
    }

    /// Serves its connections by this pipeline. Clients of the Redis protocol send the password, if
    /// there is one.
    pub fn serve(
        self,
        pipeline: &Arc<Pipeline>,
        metrics: &Metrics,
        password: Option<Arc<[u8]>>,
    ) -> ServeConnection {
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
            Self::Resp => Arc::new(move |connection, stopping| {
                let (checks, password) = (Arc::clone(&checks), password.clone());
                Box::pin(resp::serve(checks, password, connection, stopping))
            }),
            Self::Spoe => Arc::new(move |connection, stopping| {
                Box::pin(spoe::serve(Arc::clone(&checks), connection, stopping))
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
        self.count(decided.as_ref().ok().map(|response| response.code));
        Ok(decided?)
    }

    /// Takes hits for one descriptor: from this limit, or by the rules.
    async fn check<'a>(
        &self,
        domain: &'a [u8],
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        hits: u64,
        limit: Option<Limit>,
    ) -> Result<Checked, CheckError> {
        let Ok(_permit) = self.in_progress.try_acquire() else {
            self.shed.inc();
            return Err(CheckError::Shed);
        };
        let mut request = Request::new(domain);
        for (key, value) in entries {
            request.push_entry(Entry { key, value });
        }
        request.finish_descriptor(Hits::Take(hits));
        if let Some(limit) = limit {
            request.set_limit(Override::Bucket(limit));
        }
        let call = ApiRequest {
            request,
            operation: ApiStep::Check,
            id: "",
            deadline: self.pipeline.deadline_after(Some(CHECK_WAIT_MAX_US)),
            parent: None,
        };
        let bytes_max = limit.is_none().then(|| self.pipeline.answer_bytes_max());
        let answer = self.pipeline.call_api_within(call, bytes_max).await;
        self.count(answer.as_ref().ok().map(|answer| answer.verdict));
        let answer = answer.map_err(|error| match error {
            ApiError::Request(error) => error,
            ApiError::Invalid(why) | ApiError::Unknown(why) => RequestError::Invalid(why),
        })?;
        if limit.is_some() && answer.no_limit.is_some() {
            let why = "limits of requests are turned off; set --overrides true";
            return Err(RequestError::Invalid(why.to_owned()).into());
        }
        let allowed = answer.verdict == Code::Ok;
        let limits = answer.limits.iter();
        let tightest = limits.min_by_key(|limit| (limit.verdict == Code::Ok, limit.remaining));
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let seconds = |us: u64| number(us.div_ceil(1_000_000));
        Ok(Checked {
            allowed,
            limit: tightest.map(|limit| number(limit.requests_per_unit)),
            remaining: answer.remaining.map(number),
            reset_seconds: answer.reset_us.map(seconds),
            retry_seconds: answer.retry_us.filter(|_| !allowed).map(seconds),
        })
    }

    /// Counts a decision; none where there was none.
    fn count(&self, code: Option<Code>) {
        match code {
            Some(Code::Ok) => self.allowed.inc(),
            Some(Code::OverLimit) => self.refused.inc(),
            None => self.errors.inc(),
        }
    }
}
