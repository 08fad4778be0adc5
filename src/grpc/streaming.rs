//! Bounds on streaming calls: RateLimits/Stream, reflection, and the Watch method of health.
//!
//! A streaming call stays open as long as its client likes, so `--body-wait` does not apply to it,
//! and each holds some 11 KiB. So a call of such a method takes a permit of its connection and one
//! of the process, and returns both with its response. A call beyond a bound is answered
//! RESOURCE_EXHAUSTED on its own stream.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;

use crate::metrics::Metrics;
use crate::settings::Settings;

/// Streaming methods of one service.
pub(crate) struct StreamingMethods {
    /// What their paths start with.
    pub(crate) path_prefix: &'static str,
    /// Whether requests stream as well as responses.
    pub(crate) requests_stream: bool,
}

/// The process's bound on streaming calls.
#[derive(Clone)]
pub(crate) struct StreamingCalls {
    process: Arc<Semaphore>,
    process_calls_max: usize,
    metrics: Arc<Metrics>,
}

/// A connection's bound on streaming calls. It travels with each request.
#[derive(Clone)]
pub(crate) struct ConnectionCalls {
    permits: Arc<Semaphore>,
    calls_max: usize,
}

/// A service whose streaming calls are bounded.
#[derive(Clone)]
pub(crate) struct BoundedStreaming<S> {
    service: S,
    methods: &'static [StreamingMethods],
    calls: StreamingCalls,
}

/// The slots that a streaming call holds while it is open.
struct Permits {
    _process: OwnedSemaphorePermit,
    _connection: Option<OwnedSemaphorePermit>,
    metrics: Arc<Metrics>,
}

/// This many permits, or as many as a semaphore may have.
fn permits(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
}

// === impl StreamingMethods ===

impl StreamingMethods {
    /// Whether a path is one of theirs.
    pub(crate) fn contain(&self, path: &[u8]) -> bool {
        path.starts_with(self.path_prefix.as_bytes())
    }
}

// === impl ConnectionCalls ===

impl ConnectionCalls {
    /// A new connection's.
    pub(crate) fn new(calls_max: usize) -> Self {
        Self {
            permits: permits(calls_max),
            calls_max,
        }
    }

    /// Lets a streaming call be counted for this connection.
    pub(crate) fn put_into<B>(&self, request: &mut Request<B>) {
        request.extensions_mut().insert(self.clone());
    }
}

// === impl StreamingCalls ===

impl StreamingCalls {
    pub(crate) fn new(settings: &Settings, metrics: &Arc<Metrics>) -> Self {
        let process_calls_max = settings.connections.streaming_calls_max;
        Self {
            process: permits(process_calls_max),
            process_calls_max,
            metrics: Arc::clone(metrics),
        }
    }

    /// Bounds the streaming calls of a service.
    pub(crate) fn bound<S>(
        &self,
        service: S,
        methods: &'static [StreamingMethods],
    ) -> BoundedStreaming<S> {
        BoundedStreaming {
            service,
            methods,
            calls: self.clone(),
        }
    }

    fn admit(&self, connection: Option<&ConnectionCalls>) -> Result<Permits, Status> {
        let of_connection = match connection {
            None => None,
            Some(connection) => {
                let permit = Arc::clone(&connection.permits).try_acquire_owned();
                Some(permit.map_err(|_| self.refuse("connection", connection.calls_max))?)
            }
        };
        let process = Arc::clone(&self.process).try_acquire_owned();
        let process = process.map_err(|_| self.refuse("process", self.process_calls_max))?;
        self.metrics.connections.streaming_calls.inc();
        Ok(Permits {
            _process: process,
            _connection: of_connection,
            metrics: Arc::clone(&self.metrics),
        })
    }

    fn refuse(&self, bound: &'static str, calls_max: usize) -> Status {
        self.metrics.connections.count_refused_streaming_call(bound);
        let (whose, setting) = match bound {
            "connection" => ("connection", "--streaming-calls-per-connection-max"),
            _ => ("process", "--streaming-calls-max"),
        };
        Status::resource_exhausted(format!(
            "too many streaming calls: this {whose} may have {calls_max} open (RateLimits/Stream, \
             reflection and health Watch). End one and try again, or raise {setting}"
        ))
    }
}

// === impl BoundedStreaming ===

impl<S: NamedService> NamedService for BoundedStreaming<S> {
    const NAME: &'static str = S::NAME;
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S, B> Service<Request<B>> for BoundedStreaming<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let path = request.uri().path().as_bytes();
        if !self.methods.iter().any(|methods| methods.contain(path)) {
            return Box::pin(self.service.call(request));
        }
        match self.calls.admit(request.extensions().get()) {
            Err(status) => Box::pin(async move { Ok(status.into_http()) }),
            Ok(permits) => {
                let response = self.service.call(request);
                Box::pin(async move {
                    let response = response.await?;
                    Ok(response.map(|body| {
                        // The permits are returned when the body is dropped.
                        Body::new(body.map_frame(move |frame| {
                            let _held = &permits;
                            frame
                        }))
                    }))
                })
            }
        }
    }
}

// === impl Permits ===

impl Drop for Permits {
    fn drop(&mut self) {
        self.metrics.connections.streaming_calls.dec();
    }
}
