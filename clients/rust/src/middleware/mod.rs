//! Middleware for axum, tonic and other tower services.
//!
//! A [`RateLimit`] says what is limited. [`RateLimit::http_layer`] and [`RateLimit::grpc_layer`]
//! make tower layers of it.

mod answer;
mod entry;
mod layer;
mod path_template;
mod remote_address;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};

use crate::{Check, Client, Decision, Descriptor, Error};

pub use entry::RequestEntry;
pub use layer::{GrpcRateLimit, GrpcRateLimitLayer, HttpRateLimit, HttpRateLimitLayer};

use answer::Outcome;
use entry::PeerAddress;
use path_template::PathTemplate;
use remote_address::AddressBlock;

type HitsFunction = Arc<dyn Fn(&Parts) -> u64 + Send + Sync>;
type SkipFunction = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
type DecisionFunction = Arc<dyn Fn(&Parts, &Decision) + Send + Sync>;

/// What makes checks: a [`Client`], or a stand-in in tests.
pub trait Limiter: Clone + Send + Sync + 'static {
    /// Takes hits, or refuses.
    fn check(&self, check: Check) -> impl Future<Output = Result<Decision, Error>> + Send;
}

impl Limiter for Client {
    fn check(&self, check: Check) -> impl Future<Output = Result<Decision, Error>> + Send {
        Client::check(self, check)
    }
}

/// Names of rate limit headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`.
    RateLimit,
    /// The same with `X-RateLimit-`.
    XRateLimit,
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10.
    Policy,
}

/// Which requests take hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Count {
    /// All, before they are answered.
    #[default]
    All,
    /// Those that failed, once they have a status.
    Failed,
    /// Those that did not fail, once they have a status.
    Successful,
}

/// What is limited, and how a refused request is answered. Clones share it.
#[derive(Clone)]
pub struct RateLimit<L = Client> {
    limiter: L,
    options: Arc<Options>,
}

#[derive(Clone)]
struct Options {
    descriptors: Vec<Vec<RequestEntry>>,
    peer_address: Option<PeerAddress>,
    trusted_proxies: Vec<AddressBlock>,
    hits: Option<HitsFunction>,
    skip_paths: Vec<PathTemplate>,
    skip: Option<SkipFunction>,
    shadow: bool,
    count: Count,
    headers: Vec<HeaderStyle>,
    status: StatusCode,
    body: Bytes,
    content_type: HeaderValue,
    error_status: StatusCode,
    on_decision: Option<DecisionFunction>,
}

impl<L> fmt::Debug for RateLimit<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let descriptors = &self.options.descriptors;
        f.debug_struct("RateLimit")
            .field("descriptors", descriptors)
            .finish_non_exhaustive()
    }
}

impl<L: Limiter> RateLimit<L> {
    /// Options of middleware that checks with `limiter`, a [`Client`].
    pub fn builder(limiter: L) -> RateLimitBuilder<L> {
        RateLimitBuilder::new(limiter)
    }

    /// A layer for HTTP services such as axum's. A refused request is answered with status 429.
    pub fn http_layer(&self) -> HttpRateLimitLayer<L> {
        HttpRateLimitLayer::new(self.clone())
    }

    /// A layer for gRPC services such as tonic's. A refused call ends with `RESOURCE_EXHAUSTED`.
    ///
    /// A streaming call is checked once, when it starts.
    pub fn grpc_layer(&self) -> GrpcRateLimitLayer<L> {
        GrpcRateLimitLayer::new(self.clone())
    }

    /// The check of a request. `None` if it passes without a call.
    pub fn check_of(&self, request: &Parts) -> Option<Check> {
        let options = &self.options;
        let path = request.uri.path();
        let skipped = options
            .skip_paths
            .iter()
            .any(|template| template.matches(path))
            || options.skip.as_ref().is_some_and(|skip| skip(request));
        if skipped {
            return None;
        }
        let peer = options
            .peer_address
            .as_ref()
            .and_then(|peer_address| peer_address(request));
        let trusted = &options.trusted_proxies;
        let descriptor = |entries: &Vec<RequestEntry>| {
            let entries = entries.iter().map(|entry| entry.of(request, peer, trusted));
            entries.collect::<Option<Vec<_>>>().map(Descriptor::new)
        };
        let check = Check::new(options.descriptors.iter().filter_map(descriptor));
        if check.descriptors().is_empty() {
            return None;
        }
        let mut check = check.dry_run(options.count != Count::All);
        // Dry runs see leased hits as taken.
        check.middleware = options.count == Count::All;
        Some(match &options.hits {
            Some(hits) => check.hits(hits(request)),
            None => check,
        })
    }

    /// The response to a request that a decision refuses, as the HTTP layer sends it. `None` if it
    /// passes.
    ///
    /// For handlers that call [`Client::check`] themselves.
    pub fn http_refusal<B: From<Bytes>>(&self, decision: &Decision) -> Option<Response<B>> {
        match self.options.http_outcome(decision) {
            Outcome::Answer(refusal) => Some(refusal),
            Outcome::Pass(_) => None,
        }
    }

    /// Makes the check of a request.
    async fn decide(&self, request: &Parts, check: Check) -> Result<Decision, Error> {
        let result = self.limiter.check(check).await;
        if let (Ok(decision), Some(on_decision)) = (&result, &self.options.on_decision) {
            // A panic of the program's function must not change the answer.
            let _panicked = catch_unwind(AssertUnwindSafe(|| on_decision(request, decision)));
        }
        result
    }
}

/// Options of a [`RateLimit`].
#[derive(Clone)]
pub struct RateLimitBuilder<L = Client> {
    limiter: L,
    options: Options,
    trusted_proxies: Vec<String>,
    content_type: String,
}

impl<L> fmt::Debug for RateLimitBuilder<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let descriptors = &self.options.descriptors;
        f.debug_struct("RateLimitBuilder")
            .field("descriptors", descriptors)
            .finish_non_exhaustive()
    }
}

impl<L: Limiter> RateLimitBuilder<L> {
    fn new(limiter: L) -> Self {
        let content_type = "text/plain; charset=utf-8";
        let options = Options {
            descriptors: Vec::new(),
            peer_address: None,
            trusted_proxies: Vec::new(),
            hits: None,
            skip_paths: Vec::new(),
            skip: None,
            shadow: false,
            count: Count::All,
            headers: vec![HeaderStyle::RateLimit],
            status: StatusCode::TOO_MANY_REQUESTS,
            body: Bytes::from_static(b"Too Many Requests"),
            content_type: HeaderValue::from_static(content_type),
            error_status: StatusCode::SERVICE_UNAVAILABLE,
            on_decision: None,
        };
        let content_type = content_type.to_owned();
        Self {
            limiter,
            options,
            trusted_proxies: Vec::new(),
            content_type,
        }
    }

    /// Adds a descriptor of these entries. It is left out where a value is missing.
    #[must_use]
    pub fn descriptor(mut self, entries: impl IntoIterator<Item = RequestEntry>) -> Self {
        self.options.descriptors.push(entries.into_iter().collect());
        self
    }

    /// Sets how the address of a connection is found. Required by
    /// [`RequestEntry::remote_address`]; `None` for a Unix socket.
    ///
    /// In axum: `|request| Some(request.extensions.get::<ConnectInfo<SocketAddr>>()?.0)`. In tonic:
    /// `|request| request.extensions.get::<TcpConnectInfo>()?.remote_addr()`.
    #[must_use]
    pub fn peer_address(
        mut self,
        peer_address: impl Fn(&Parts) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        self.options.peer_address = Some(Arc::new(peer_address));
        self
    }

    /// Sets the addresses and CIDR blocks of proxies whose `X-Forwarded-For` is trusted; default:
    /// none.
    #[must_use]
    pub fn trusted_proxies<T>(mut self, proxies: impl IntoIterator<Item = T>) -> Self
    where
        T: Into<String>,
    {
        self.trusted_proxies = proxies.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the hits of a request; default: 1.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> Self {
        self.options.hits = Some(Arc::new(move |_| hits));
        self
    }

    /// Sets a function that finds the hits of a request.
    #[must_use]
    pub fn hits_of(mut self, hits: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.options.hits = Some(Arc::new(hits));
        self
    }

    /// Sets path templates that pass without a call; default: none.
    #[must_use]
    pub fn skip_paths<T: Into<String>>(mut self, paths: impl IntoIterator<Item = T>) -> Self {
        self.options.skip_paths = paths.into_iter().map(PathTemplate::new).collect();
        self
    }

    /// Sets a function that is true for requests that pass without a call; default: none.
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.options.skip = Some(Arc::new(skip));
        self
    }

    /// Turns on shadow mode: the check is made, and the request always passes; default: off.
    #[must_use]
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.options.shadow = shadow;
        self
    }

    /// Sets which requests take hits; default: [`Count::All`].
    ///
    /// With [`Count::Failed`] and [`Count::Successful`] a request is checked by a dry run, and takes
    /// hits once it has a status. It failed with 400 or more, in gRPC with a `grpc-status` other than
    /// 0 in the headers of the response, or without a response.
    #[must_use]
    pub fn count(mut self, count: Count) -> Self {
        self.options.count = count;
        self
    }

    /// Sets the rate limit headers; default: [`HeaderStyle::RateLimit`].
    #[must_use]
    pub fn headers(mut self, headers: impl IntoIterator<Item = HeaderStyle>) -> Self {
        self.options.headers = headers.into_iter().collect();
        self
    }

    /// Sets the HTTP status of a refused request; default: 429.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.options.status = status;
        self
    }

    /// Sets the body of a refused HTTP request, and its content type; default:
    /// `Too Many Requests`, `text/plain; charset=utf-8`.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>, content_type: impl Into<String>) -> Self {
        self.options.body = body.into();
        self.content_type = content_type.into();
        self
    }

    /// Sets the HTTP status of a request that [`OnError::Deny`](crate::OnError::Deny) refuses;
    /// default: 503.
    #[must_use]
    pub fn error_status(mut self, status: StatusCode) -> Self {
        self.options.error_status = status;
        self
    }

    /// Sets a function that is called after each check; default: none. A panic of it is ignored.
    #[must_use]
    pub fn on_decision(
        mut self,
        on_decision: impl Fn(&Parts, &Decision) + Send + Sync + 'static,
    ) -> Self {
        self.options.on_decision = Some(Arc::new(on_decision));
        self
    }

    /// Makes the middleware.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if a trusted proxy, a header name or a content type is invalid, or if
    /// [`RequestEntry::remote_address`] is used without
    /// [`peer_address`](RateLimitBuilder::peer_address).
    pub fn build(mut self) -> Result<RateLimit<L>, Error> {
        let entries = || self.options.descriptors.iter().flatten();
        if let Some(name) = entries().find_map(RequestEntry::invalid_header) {
            return Err(Error::argument(format!("invalid header name {name:?}")));
        }
        if self.options.peer_address.is_none() && entries().any(RequestEntry::needs_peer) {
            return Err(Error::argument(
                "remote_address needs a peer_address function; set it",
            ));
        }
        let proxies = self
            .trusted_proxies
            .iter()
            .map(|proxy| AddressBlock::parse(proxy));
        self.options.trusted_proxies = proxies.collect::<Result<_, _>>()?;
        self.options.content_type = HeaderValue::try_from(&self.content_type).map_err(|_| {
            Error::argument(format!("invalid content type {:?}", self.content_type))
        })?;
        Ok(RateLimit {
            limiter: self.limiter,
            options: Arc::new(self.options),
        })
    }
}
