//! Headers and answers of a decision.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{HeaderStyle, Options};
use crate::{Decision, Source};

/// `Retry-After` of a request refused by `on_error: deny`.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(1);

/// What becomes of a request.
pub(crate) enum Outcome<R> {
    /// It passes, and its response gets these headers.
    Pass(HeaderMap),
    /// It is answered at once.
    Answer(R),
}

impl Options {
    pub(crate) fn http_outcome<B>(&self, decision: &Decision) -> Outcome<Response<B>>
    where
        B: From<bytes::Bytes>,
    {
        if self.shadow {
            return Outcome::Pass(HeaderMap::new());
        }
        let headers = self.rate_limit_headers(decision);
        if decision.allowed {
            return Outcome::Pass(headers);
        }
        if decision.source == Source::Deny {
            let mut answer = Response::new(B::from("Service Unavailable".into()));
            *answer.status_mut() = self.error_status;
            let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
            answer.headers_mut().insert(CONTENT_TYPE, content_type);
            answer
                .headers_mut()
                .insert(RETRY_AFTER, seconds(RETRY_AFTER_ERROR));
            return Outcome::Answer(answer);
        }
        let mut answer = Response::new(B::from(self.body.clone()));
        *answer.status_mut() = self.status;
        *answer.headers_mut() = headers;
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, self.content_type.clone());
        if let Some(wait) = decision.retry_after {
            let wait = seconds(wait.max(Duration::from_secs(1)));
            answer.headers_mut().insert(RETRY_AFTER, wait);
        }
        Outcome::Answer(answer)
    }

    pub(crate) fn grpc_outcome<B: Default>(&self, decision: &Decision) -> Outcome<Response<B>> {
        if self.shadow {
            return Outcome::Pass(HeaderMap::new());
        }
        let headers = self.rate_limit_headers(decision);
        if decision.allowed {
            return Outcome::Pass(headers);
        }
        if decision.source == Source::Deny {
            let message = "rate limit service unavailable";
            let retry = Some(RETRY_AFTER_ERROR);
            return Outcome::Answer(grpc_answer(Code::Unavailable, message, retry));
        }
        let retry = decision.retry_after;
        let mut answer = grpc_answer(Code::ResourceExhausted, "rate limited", retry);
        answer.headers_mut().extend(headers);
        Outcome::Answer(answer)
    }

    /// Headers of the tightest limit, in each style.
    fn rate_limit_headers(&self, decision: &Decision) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if decision.source == Source::Deny {
            return headers;
        }
        let Some(limit) = decision.tightest() else {
            return headers;
        };
        for style in &self.headers {
            let (limit_name, remaining_name, reset_name) = match style {
                HeaderStyle::RateLimit => {
                    ("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset")
                }
                HeaderStyle::XRateLimit => (
                    "x-ratelimit-limit",
                    "x-ratelimit-remaining",
                    "x-ratelimit-reset",
                ),
            };
            let name = HeaderName::from_static;
            headers.insert(name(limit_name), limit.requests_per_unit.into());
            headers.insert(name(remaining_name), limit.remaining.into());
            if let Some(reset) = limit.reset {
                headers.insert(name(reset_name), seconds(reset));
            }
        }
        headers
    }
}

/// An answer to a request whose check failed: the client is closed.
pub(crate) fn http_failure<B: From<bytes::Bytes>>() -> Response<B> {
    let mut answer = Response::new(B::from("Internal Server Error".into()));
    *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    answer
}

/// As [`http_failure`], in gRPC.
pub(crate) fn grpc_failure<B: Default>() -> Response<B> {
    Status::internal("rate limit check failed").into_http()
}

fn grpc_answer<B: Default>(code: Code, message: &str, retry: Option<Duration>) -> Response<B> {
    match retry {
        Some(_) => {
            let details = ErrorDetails::with_retry_info(retry);
            Status::with_error_details(code, message, details).into_http()
        }
        None => Status::new(code, message).into_http(),
    }
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> HeaderValue {
    let more = u64::from(time.subsec_nanos() > 0);
    HeaderValue::from(time.as_secs().saturating_add(more))
}
