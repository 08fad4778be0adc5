//! Forward auth: `ANY /auth/DOMAIN`. A proxy sends the head of each request here, and forwards the
//! request only after an answer of 200.
//!
//! The field `requests` of the domain's rules makes descriptors of the request. Its method and its
//! path are in headers of the proxy, which are read from trusted proxies only: a client that can
//! set them chooses its bucket. A request of another peer is answered 403.
//!
//! HTTP/1.1 and HTTP/2 without TLS are told apart by the first bytes. A body is not read.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use percent_encoding::percent_decode_str;
use prost::Message as _;
use tollgate_limiter::Code;

use super::{CheckError, Checks};
use crate::net::{Connection, ShutdownSignal};
use crate::pipeline::RequestError;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code as WireCode, DescriptorStatus,
};
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::rules::requests::{HttpRequest, RequestDescriptor, RequestMapping};
use crate::tracing::TraceParent;

/// Timeout of the headers of a request.
const HEADERS_WAIT_MAX: Duration = Duration::from_secs(10);

/// Most bytes of headers.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Most open streams of an HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

/// The path of a domain begins with it.
const PATH: &str = "/auth/";

/// Where a kind of proxy puts the request.
struct Template {
    /// Its name in the parameter `proxy`.
    name: &'static str,
    method: HeaderName,
    target: HeaderName,
    host: HeaderName,
    /// Whether the proxy reads the body of a refusal. One that does not closes the connection.
    reads_body: bool,
}

/// The templates; the first is the default.
static TEMPLATES: [Template; 3] = [
    Template {
        name: "forwarded",
        method: HeaderName::from_static("x-forwarded-method"),
        target: HeaderName::from_static("x-forwarded-uri"),
        host: HeaderName::from_static("x-forwarded-host"),
        reads_body: true,
    },
    Template {
        name: "nginx",
        method: HeaderName::from_static("x-original-method"),
        target: HeaderName::from_static("x-original-uri"),
        host: HeaderName::from_static("x-original-host"),
        reads_body: false,
    },
    Template {
        name: "ingress-nginx",
        method: HeaderName::from_static("x-original-method"),
        target: HeaderName::from_static("x-original-url"),
        host: HeaderName::from_static("x-forwarded-host"),
        reads_body: false,
    },
];

/// What the URL says.
struct Options {
    domain: String,
    template: &'static Template,
    /// The status of a refusal.
    refuse: StatusCode,
}

/// An answer without a decision: a status, and what is wrong.
struct Failure(StatusCode, String);

/// Spawns the tasks of an HTTP/2 connection on its thread.
#[derive(Clone, Copy)]
struct LocalTasks;

impl<F: Future<Output = ()> + 'static> Executor<F> for LocalTasks {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

/// Serves one connection.
pub(super) async fn serve(
    checks: Arc<Checks>,
    connection: Connection,
    mut stopping: ShutdownSignal,
) {
    let peer = connection.peer.map(|peer| peer.ip());
    let checks = Rc::new(checks);
    let service = service_fn(move |request: Request<Incoming>| {
        let checks = Rc::clone(&checks);
        async move { Ok::<_, std::convert::Infallible>(answer(&checks, request, peer).await) }
    });
    let mut builder = auto::Builder::new(LocalTasks);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WAIT_MAX)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX));
    let serving = builder.serve_connection(TokioIo::new(connection), service);
    let mut serving = std::pin::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = stopping.wait() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of forward auth ended with an error");
    }
}

async fn answer(
    checks: &Checks,
    request: Request<Incoming>,
    peer: Option<IpAddr>,
) -> Response<Full<Bytes>> {
    let (head, _body) = request.into_parts();
    let answered = match Options::of(&head.uri) {
        Ok(options) => check(checks, &options, head.headers, peer).await,
        Err(failure) => Err(failure),
    };
    answered.unwrap_or_else(|Failure(status, why)| {
        if status.is_client_error() {
            checks.invalid.inc();
        }
        tracing::debug!(
            status = status.as_u16(),
            error = why,
            "forward auth has no decision"
        );
        response(status, why.into())
    })
}

async fn check(
    checks: &Checks,
    options: &Options,
    mut headers: HeaderMap,
    peer: Option<IpAddr>,
) -> Result<Response<Full<Bytes>>, Failure> {
    let rules = checks.pipeline.current_rules();
    let rules = rules.ok_or_else(|| Failure::from(CheckError::from(RequestError::NoRules)))?;
    let Some(mapping) = rules.requests.get(&options.domain) else {
        let why = format!(
            "no rules of the domain {:?} have `requests`; add it to the rules file, or correct the URL",
            options.domain
        );
        return Err(Failure(StatusCode::NOT_FOUND, why));
    };
    require_trusted(mapping, peer)?;
    if let Some(host) = headers.remove(&options.template.host) {
        headers.insert(header::HOST, host);
    }
    let (method, target) = forwarded(options.template, &headers)?;
    let forwarded = HttpRequest {
        method,
        target,
        headers: &headers,
        peer,
    };
    let descriptors = mapping.descriptors(&forwarded);
    if descriptors.is_empty() {
        checks.allowed.inc();
        return Ok(response(StatusCode::OK, Bytes::new()));
    }
    let parent = checks.pipeline.is_tracing();
    let parent = parent.then(|| TraceParent::of(&headers)).flatten();
    let message = message(&options.domain, &descriptors);
    let decided = checks.decide(message, parent).await?;
    let decision = RateLimitResponse::decode(&*decided.message).map_err(|error| {
        let why = format!("the response cannot be decoded: {error}");
        Failure(StatusCode::INTERNAL_SERVER_ERROR, why)
    })?;
    Ok(of_decision(decided.code, decision, options))
}

/// The request of these descriptors, encoded.
fn message(domain: &str, descriptors: &[RequestDescriptor<'_>]) -> Vec<u8> {
    let descriptors = descriptors.iter().map(|entries| RateLimitDescriptor {
        entries: entries
            .iter()
            .map(|(key, value)| Entry {
                key: key.as_bytes().to_vec().into(),
                value: value.to_vec().into(),
            })
            .collect(),
        ..RateLimitDescriptor::default()
    });
    let message = RateLimitRequest {
        domain: domain.as_bytes().to_vec().into(),
        descriptors: descriptors.collect(),
        ..RateLimitRequest::default()
    };
    message.encode_to_vec()
}

/// Refuses the headers of a peer that is no trusted proxy.
fn require_trusted(mapping: &RequestMapping, peer: Option<IpAddr>) -> Result<(), Failure> {
    if peer.is_some_and(|peer| mapping.trusts(peer)) {
        return Ok(());
    }
    let peer = peer.map_or_else(|| "this peer".to_owned(), |peer| peer.to_string());
    let why =
        format!("{peer} is no trusted proxy; add it to trusted_proxies of `requests` in the rules");
    Err(Failure(StatusCode::FORBIDDEN, why))
}

/// The method and the target of the request that the proxy asks about.
fn forwarded<'r>(
    template: &Template,
    headers: &'r HeaderMap,
) -> Result<(&'r str, &'r str), Failure> {
    let one = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        let value = values.next().filter(|_| values.next().is_none());
        let value = value.and_then(|value| str::from_utf8(value.as_bytes()).ok());
        let value = value.filter(|value| !value.is_empty());
        value.ok_or_else(|| {
            Failure(
                StatusCode::BAD_REQUEST,
                format!("the request does not have {name} once; set it in the proxy"),
            )
        })
    };
    let (method, target) = (one(&template.method)?, one(&template.target)?);
    // A URL has a scheme and a host before its path.
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest
            .find('/')
            .map_or("/", |at| rest.get(at..).unwrap_or("/")),
        _ => target,
    };
    if method.parse::<Method>().is_err() || !target.starts_with('/') {
        let why = format!(
            "{} is no method, or {} is no path; correct them in the proxy",
            template.method, template.target
        );
        return Err(Failure(StatusCode::BAD_REQUEST, why));
    }
    Ok((method, target))
}

/// The answer to a request that was decided.
fn of_decision(
    code: Code,
    decision: RateLimitResponse,
    options: &Options,
) -> Response<Full<Bytes>> {
    let refused = code == Code::OverLimit;
    let body = match decision.raw_body {
        _ if !refused || !options.template.reads_body => Bytes::new(),
        body if body.is_empty() => Bytes::from_static(b"Too Many Requests"),
        body => body,
    };
    let status = if refused {
        options.refuse
    } else {
        StatusCode::OK
    };
    let mut response = response(status, body);
    let headers = response.headers_mut();
    let reset = |status: &DescriptorStatus| {
        let time = status.duration_until_reset.as_ref();
        time.map(|time| u64::try_from(time.seconds).unwrap_or_default())
    };
    let over = |status: &&DescriptorStatus| status.code == i32::from(WireCode::OverLimit);
    let limited = || {
        decision
            .statuses
            .iter()
            .filter(|one| one.current_limit.is_some())
    };
    let tightest = if refused {
        // The first of the longest.
        limited().filter(over).rev().max_by_key(|one| reset(one))
    } else {
        limited().min_by_key(|one| one.limit_remaining)
    };
    if let Some(status) = tightest {
        let limit = status.current_limit.as_ref();
        let limit = limit.map_or(0, |limit| limit.requests_per_unit);
        headers.insert("ratelimit-limit", limit.into());
        headers.insert("ratelimit-remaining", status.limit_remaining.into());
        if let Some(seconds) = reset(status) {
            headers.insert("ratelimit-reset", seconds.into());
            if refused {
                headers.insert(header::RETRY_AFTER, seconds.max(1).into());
            }
        }
    }
    for added in decision.response_headers_to_add {
        let name = HeaderName::from_bytes(added.key.as_bytes());
        // The settings can name a header that is none.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(added.value)) {
            headers.insert(name, value);
        }
    }
    response
}

fn response(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let has_body = !body.is_empty();
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    if has_body {
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
    }
    response
}

// === impl Options ===

impl Options {
    /// What a URL says.
    fn of(uri: &Uri) -> Result<Self, Failure> {
        let invalid = |why: String| Failure(StatusCode::BAD_REQUEST, why);
        let domain = uri.path().strip_prefix(PATH).unwrap_or_default();
        let domain = percent_decode_str(domain).decode_utf8().unwrap_or_default();
        if domain.is_empty() {
            let why = "there is no such path; use /auth/DOMAIN with the domain of the rules";
            return Err(Failure(StatusCode::NOT_FOUND, why.to_owned()));
        }
        let (mut template, mut refuse) = (&TEMPLATES[0], StatusCode::TOO_MANY_REQUESTS);
        for parameter in uri.query().unwrap_or_default().split('&') {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("", _) => {}
                ("refuse", status) => {
                    let parsed = status.parse::<StatusCode>().ok();
                    let parsed = parsed.filter(StatusCode::is_client_error);
                    refuse = parsed
                        .ok_or_else(|| invalid("refuse is no status from 400 to 499".to_owned()))?;
                }
                ("proxy", name) => {
                    let mut templates = TEMPLATES.iter();
                    let found = templates.find(|template| template.name == name);
                    template = found.ok_or_else(|| {
                        let names = TEMPLATES.iter().map(|template| template.name);
                        let names = names.collect::<Vec<_>>().join(", ");
                        invalid(format!("proxy is none of {names}"))
                    })?;
                }
                _ => {
                    let why = "the query has another parameter than refuse and proxy";
                    return Err(invalid(why.to_owned()));
                }
            }
        }
        Ok(Self {
            domain: domain.into_owned(),
            template,
            refuse,
        })
    }
}

impl From<CheckError> for Failure {
    fn from(error: CheckError) -> Self {
        let status = match &error {
            CheckError::Request(RequestError::Store(_) | RequestError::NoRules)
            | CheckError::Shed => StatusCode::SERVICE_UNAVAILABLE,
            CheckError::Request(_) => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}
