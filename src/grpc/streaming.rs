//! Bounds on streaming calls: reflection, and the Watch method of health.
//!
//! Why: such a call stays open as long as its client likes, so `--body-wait` does not apply to it, and each holds some 11 KiB.
//! How: around each service that has streaming methods, a call takes a permit of its connection and one of the process, and
//! both are returned with its response. A call beyond a bound is answered RESOURCE_EXHAUSTED on its own stream.
//!
//! What it deliberately does not do: bound calls with one answer. Those end by themselves, or by `--body-wait`.

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

/// A streaming method, or all methods of a package.
struct Streaming {
    /// How their paths begin.
    path: &'static str,
    /// Whether requests stream as well as responses.
    requests: bool,
}

/// The streaming methods.
const STREAMING: [Streaming; 2] = [
    Streaming {
        path: "/grpc.reflection.",
        requests: true,
    },
    Streaming {
        path: "/grpc.health.v1.Health/Watch",
        requests: false,
    },
];

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
    calls: StreamingCalls,
}

/// What a streaming call holds while it is open.
struct Permits {
    _process: OwnedSemaphorePermit,
    _connection: Option<OwnedSemaphorePermit>,
    metrics: Arc<Metrics>,
}

/// So many permits; a semaphore has a maximum of its own.
fn permits(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
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

/// Whether a path is one of a streaming method.
pub(crate) fn is_streaming(path: &str) -> bool {
    STREAMING
        .iter()
        .any(|streaming| path.starts_with(streaming.path))
}

/// Whether a path is one of a method whose requests stream: they may go on as long as the client
/// likes.
pub(crate) fn is_client_streaming(path: &[u8]) -> bool {
    STREAMING
        .iter()
        .any(|streaming| streaming.requests && path.starts_with(streaming.path.as_bytes()))
}

// === impl StreamingCalls ===

impl StreamingCalls {
    pub(crate) fn new(settings: &Settings, metrics: &Arc<Metrics>) -> Self {
        let process_calls_max = settings.streaming_calls_max;
        Self {
            process: permits(process_calls_max),
            process_calls_max,
            metrics: Arc::clone(metrics),
        }
    }

    /// Bounds the streaming calls of a service.
    pub(crate) fn bound<S>(&self, service: S) -> BoundedStreaming<S> {
        BoundedStreaming {
            service,
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
        self.metrics.count_refused_streaming_call(bound);
        let (whose, setting) = match bound {
            "connection" => ("connection", "--streaming-calls-per-connection-max"),
            _ => ("process", "--streaming-calls-max"),
        };
        Status::resource_exhausted(format!(
            "too many streaming calls: this {whose} may have {calls_max} reflection and health Watch \
             calls open. End one and try again, or raise {setting}"
        ))
    }
}

// === impl BoundedStreaming ===

impl<S: NamedService> NamedService for BoundedStreaming<S> {
    const NAME: &'static str = S::NAME;
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S, B> Service<Request<B>> for BoundedStreaming<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        if !is_streaming(request.uri().path()) {
            return Box::pin(self.service.call(request));
        }
        match self.calls.admit(request.extensions().get()) {
            Err(status) => Box::pin(async move { Ok(status.into_http()) }),
            Ok(permits) => {
                let answering = self.service.call(request);
                Box::pin(async move {
                    let response = answering.await?;
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
