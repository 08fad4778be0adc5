//! Headers and answers of a decision.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{HeaderStyle, Options};
use crate::{Decision, Limit, Source};

/// `Retry-After` of a request refused by `on_error: deny`.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(1);

/// Limit, remaining and reset.
static RATE_LIMIT: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
static X_RATE_LIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Headers of a decision, to be inserted into those of a response.
pub(crate) type Headers = Vec<(HeaderName, HeaderValue)>;

/// Inserts the headers of a decision. They replace others of their names.
pub(crate) fn insert(headers: Headers, into: &mut HeaderMap) {
    for (name, value) in headers {
        into.insert(name, value);
    }
}

/// What becomes of a request.
pub(crate) enum Outcome<R> {
    /// It passes, and its response gets these headers.
    Pass(Headers),
    /// It is answered at once.
    Answer(R),
}

impl Options {
    pub(crate) fn http_outcome<B>(&self, decision: &Decision) -> Outcome<Response<B>>
    where
        B: From<bytes::Bytes>,
    {
        if self.shadow {
            return Outcome::Pass(Headers::new());
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
        insert(headers, answer.headers_mut());
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
            return Outcome::Pass(Headers::new());
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
        insert(headers, answer.headers_mut());
        Outcome::Answer(answer)
    }

    /// Headers of the tightest limit, in each style.
    fn rate_limit_headers(&self, decision: &Decision) -> Headers {
        if decision.source == Source::Deny {
            return Headers::new();
        }
        let Some(limit) = decision.tightest() else {
            return Headers::new();
        };
        let mut headers = Headers::with_capacity(3 * self.headers.len());
        // The limits of a lease are as they were when it was granted.
        let (remaining, reset) = match (decision.source, decision.remaining) {
            (Source::Lease, Some(remaining)) => (remaining, decision.reset),
            _ => (limit.remaining, limit.reset),
        };
        for style in &self.headers {
            let [limit_name, remaining_name, reset_name] = match style {
                HeaderStyle::Policy => {
                    headers.extend(policy_headers(limit, remaining, reset));
                    continue;
                }
                HeaderStyle::RateLimit => &RATE_LIMIT,
                HeaderStyle::XRateLimit => &X_RATE_LIMIT,
            };
            headers.push((limit_name.clone(), limit.requests_per_unit.into()));
            headers.push((remaining_name.clone(), remaining.into()));
            headers.extend(reset.map(|reset| (reset_name.clone(), seconds(reset))));
        }
        headers
    }
}

/// The headers of draft-ietf-httpapi-ratelimit-headers-10.
fn policy_headers(
    limit: &Limit,
    remaining: u64,
    reset: Option<Duration>,
) -> [(HeaderName, HeaderValue); 2] {
    // A string of structured fields is printable ASCII.
    let printable = |byte: u8| (b' '..=b'~').contains(&byte);
    let known = !limit.name.is_empty() && limit.name.bytes().all(printable);
    let name = if known { &limit.name } else { "default" };
    let name = name.replace('\\', r"\\").replace('"', r#"\""#);
    let window = window_seconds(&limit.window).map(|seconds| format!(";w={seconds}"));
    let reset = reset.map(|time| format!(";t={}", whole_seconds(time)));
    let policy = format!(
        "\"{name}\";q={}{}",
        limit.requests_per_unit,
        window.unwrap_or_default()
    );
    let current = format!("\"{name}\";r={remaining}{}", reset.unwrap_or_default());
    [("ratelimit-policy", policy), ("ratelimit", current)].map(|(name, text)| {
        let value = HeaderValue::try_from(text);
        let value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
        (HeaderName::from_static(name), value)
    })
}

/// Seconds of a window such as `15 minutes`. Months and years have no fixed length.
fn window_seconds(window: &str) -> Option<u64> {
    let (count, unit) = window.split_once(' ')?;
    let seconds = match unit.strip_suffix('s').unwrap_or(unit) {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "week" => 604_800,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(seconds)
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
fn whole_seconds(time: Duration) -> u64 {
    let more = u64::from(time.subsec_nanos() > 0);
    time.as_secs().saturating_add(more)
}

fn seconds(time: Duration) -> HeaderValue {
    HeaderValue::from(whole_seconds(time))
}
