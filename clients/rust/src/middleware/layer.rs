//! tower layers and services.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::answer::{Headers, Outcome, grpc_failure, http_failure, insert};
use super::{Count, Limiter, RateLimit};
use crate::{Check, Client, Decision};

type ServiceFuture<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

/// A layer that limits requests of an HTTP service. Made by [`RateLimit::http_layer`].
#[derive(Debug, Clone)]
pub struct HttpRateLimitLayer<L = Client> {
    limit: RateLimit<L>,
}

/// An HTTP service whose requests are limited.
#[derive(Debug, Clone)]
pub struct HttpRateLimit<S, L = Client> {
    inner: S,
    limit: RateLimit<L>,
}

/// A layer that limits calls of a gRPC service. Made by [`RateLimit::grpc_layer`].
#[derive(Debug, Clone)]
pub struct GrpcRateLimitLayer<L = Client> {
    limit: RateLimit<L>,
}

/// A gRPC service whose calls are limited.
#[derive(Debug, Clone)]
pub struct GrpcRateLimit<S, L = Client> {
    inner: S,
    limit: RateLimit<L>,
}

impl<L> HttpRateLimitLayer<L> {
    pub(crate) fn new(limit: RateLimit<L>) -> Self {
        Self { limit }
    }
}

impl<L> GrpcRateLimitLayer<L> {
    pub(crate) fn new(limit: RateLimit<L>) -> Self {
        Self { limit }
    }
}

impl<S, L: Clone> Layer<S> for HttpRateLimitLayer<L> {
    type Service = HttpRateLimit<S, L>;

    fn layer(&self, inner: S) -> Self::Service {
        HttpRateLimit {
            inner,
            limit: self.limit.clone(),
        }
    }
}

impl<S, L: Clone> Layer<S> for GrpcRateLimitLayer<L> {
    type Service = GrpcRateLimit<S, L>;

    fn layer(&self, inner: S) -> Self::Service {
        GrpcRateLimit {
            inner,
            limit: self.limit.clone(),
        }
    }
}

impl<S, L, B, R> Service<Request<B>> for HttpRateLimit<S, L>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    L: Limiter,
    B: Send + 'static,
    R: From<Bytes> + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ServiceFuture<Response<R>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limit = self.limit.clone();
        let inner = take_ready(&mut self.inner);
        let outcome = move |limit: &RateLimit<L>, decision: &Decision| {
            limit.options.http_outcome::<R>(decision)
        };
        let failed = |answer: &Response<R>| answer.status().as_u16() >= 400;
        let answers = (outcome, http_failure::<R>, failed);
        Box::pin(limited(limit, inner, request, answers))
    }
}

impl<S, L, B, R> Service<Request<B>> for GrpcRateLimit<S, L>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    L: Limiter,
    B: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ServiceFuture<Response<R>, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limit = self.limit.clone();
        let inner = take_ready(&mut self.inner);
        let outcome = move |limit: &RateLimit<L>, decision: &Decision| {
            limit.options.grpc_outcome::<R>(decision)
        };
        let failed = |answer: &Response<R>| {
            let status = answer.headers().get("grpc-status");
            status.is_some_and(|status| status != "0")
        };
        let answers = (outcome, grpc_failure::<R>, failed);
        Box::pin(limited(limit, inner, request, answers))
    }
}

// tonic routes by the name of the service, which a layer around one service must keep.
impl<S: tonic::server::NamedService, L> tonic::server::NamedService for GrpcRateLimit<S, L> {
    const NAME: &'static str = S::NAME;
}

/// The service that `poll_ready` made ready; a clone takes its place.
fn take_ready<S: Clone>(service: &mut S) -> S {
    let clone = service.clone();
    std::mem::replace(service, clone)
}

async fn limited<S, L, B, R>(
    limit: RateLimit<L>,
    mut inner: S,
    request: Request<B>,
    (outcome, failure, failed): (
        impl FnOnce(&RateLimit<L>, &Decision) -> Outcome<Response<R>>,
        impl FnOnce() -> Response<R>,
        impl FnOnce(&Response<R>) -> bool,
    ),
) -> Result<Response<R>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    L: Limiter,
{
    let (parts, body) = request.into_parts();
    let mut headers = Headers::new();
    let mut hits = None;
    if let Some(check) = limit.check_of(&parts) {
        let counted = check.dry_run.then(|| check.clone().dry_run(false));
        match limit.decide(&parts, check).await {
            Ok(decision) => {
                headers = match outcome(&limit, &decision) {
                    Outcome::Pass(headers) => headers,
                    Outcome::Answer(answer) => return Ok(answer),
                };
                // Nothing is counted without the service.
                let counted = counted.filter(|_| decision.error.is_none());
                hits = counted.map(|check| Hits {
                    limiter: limit.limiter.clone(),
                    check,
                    count: limit.options.count,
                    failed: true,
                });
            }
            Err(_) if limit.options.shadow => {}
            Err(_) => return Ok(failure()),
        }
    }
    let mut response = inner.call(Request::from_parts(parts, body)).await?;
    if let Some(hits) = &mut hits {
        hits.failed = failed(&response);
    }
    insert(headers, response.headers_mut());
    Ok(response)
}

/// Hits of a request that its outcome may count. They are taken at its end, also if its caller
/// leaves. The response does not wait for the answer.
struct Hits<L: Limiter> {
    limiter: L,
    check: Check,
    count: Count,
    failed: bool,
}

impl<L: Limiter> Drop for Hits<L> {
    fn drop(&mut self) {
        if self.failed != (self.count == Count::Failed) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (limiter, check) = (self.limiter.clone(), std::mem::take(&mut self.check));
        runtime.spawn(async move { limiter.check(check).await });
    }
}
