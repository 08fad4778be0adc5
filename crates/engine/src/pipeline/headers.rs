//! Headers with limit, remaining and reset: of the response in the common styles, and of the
//! request that Envoy sends upstream.
//!
//! The headers describe one descriptor, chosen like in envoyproxy/ratelimit: the last one that is
//! over its limit and no quota, else the first one with the fewest hits remaining. The IETF draft's
//! fields are lists and describe every limit. `Retry-After` covers all limits that refused.
//!
//! Every value comes from a status, with seconds rounded up as in the message, so headers and
//! statuses cannot disagree.
//!
//! A refusal has the body and headers of a rule's `over_limit` too, with placeholders filled in.
//!
//! What it deliberately does not do: add the `x-ratelimit-*` headers of the IETF's third draft,
//! which Envoy's filter can make from the statuses, or a body to a request that passes, which Envoy
//! ignores.

use tollgate_limiter::{Code, Decision, OverLimitResponse, Placeholder, Plan, Status};
use tollgate_wire::proto::envoy::config::core::v3::HeaderValue;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// Which headers, and their names.
#[derive(Clone, Debug)]
pub struct Headers {
    /// Names of headers with limit, remaining and reset.
    pub triples: Vec<[String; 3]>,
    /// Names of such headers of the request that goes upstream.
    pub upstream: Option<[String; 3]>,
    /// The fields of the IETF draft.
    pub ietf: bool,
    /// `Retry-After`, on a refusal that ends.
    pub retry_after: bool,
}

// === impl Headers ===

impl Headers {
    /// The headers of the request that goes upstream. Empty when no descriptor has a limit.
    pub(crate) fn of_request(&self, decision: &Decision<'_>) -> Vec<HeaderValue> {
        let names = self.upstream.as_ref().zip(described_status(decision));
        names.map_or_else(Vec::new, |(names, status)| triple(names, status).into())
    }

    /// The headers of a response. Empty when no descriptor has a limit.
    pub(crate) fn of(&self, decision: &Decision<'_>) -> Vec<HeaderValue> {
        let mut headers = Vec::new();
        let Some(status) = described_status(decision) else {
            return headers;
        };
        for names in &self.triples {
            headers.extend(triple(names, status));
        }
        if self.ietf {
            let (policies, levels) = ietf(decision);
            headers.push(header("RateLimit-Policy", policies));
            headers.push(header("RateLimit", levels));
        }
        if self.retry_after
            && let Some(seconds) = retry_after(decision)
        {
            headers.push(header("Retry-After", seconds.to_string()));
        }
        headers
    }
}

/// The headers with limit, remaining and reset of a status.
fn triple([limit, remaining, reset]: &[String; 3], status: &Status<'_>) -> [HeaderValue; 3] {
    let current = status.current_limit;
    let requests = current.map(|current| current.limit.requests());
    [
        header(limit, requests.unwrap_or_default().to_string()),
        header(remaining, status.remaining.to_string()),
        header(reset, seconds(status).to_string()),
    ]
}

/// One header of a response.
pub(crate) fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value,
        ..Default::default()
    }
}

/// The seconds until a status's limit resets, rounded up as in the message.
pub(crate) fn seconds(status: &Status<'_>) -> u64 {
    status
        .until_reset_us
        .unwrap_or_default()
        .div_ceil(1_000_000)
}

/// The status that headers describe.
pub(crate) fn described_status<'d, 'r>(decision: &'d Decision<'r>) -> Option<&'d Status<'r>> {
    let limited = || {
        let statuses = decision.statuses.iter();
        statuses.filter(|status| status.current_limit.is_some())
    };
    let over = limited().rfind(|status| status.code == Code::OverLimit && !status.quota);
    over.or_else(|| limited().min_by_key(|status| status.remaining))
}

/// The position of the status that headers describe.
pub(crate) fn described_position(decision: &Decision<'_>) -> Option<usize> {
    let described = described_status(decision)?;
    let mut statuses = decision.statuses.iter();
    statuses.position(|status| std::ptr::eq(status, described))
}

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10, one item per
/// limit.
fn ietf(decision: &Decision<'_>) -> (String, String) {
    let (mut policies, mut levels) = (Vec::new(), Vec::new());
    let mut names: Vec<String> = Vec::new();
    for (position, status) in decision.statuses.iter().enumerate() {
        let Some(current) = &status.current_limit else {
            continue;
        };
        let numbered = |name: &str| format!("{name}-{}", position.saturating_add(1));
        let mut name = match current.name {
            "" => numbered("limit"),
            name => name.to_owned(),
        };
        // Compare quoted names: two names may differ only in characters that are replaced.
        let mut quoted = quoted(&name);
        while names.contains(&quoted) {
            name = numbered(&name);
            quoted = self::quoted(&name);
        }
        let limit = &current.limit;
        // The unit's nominal length, like in the status: calendar windows differ in length.
        let window = limit.unit().map_or(String::new(), |unit| {
            let many = u64::from(limit.unit_multiplier().get());
            format!(";w={}", unit.seconds().saturating_mul(many))
        });
        policies.push(format!("{quoted};q={}{window}", limit.requests()));
        levels.push(format!(
            "{quoted};r={};t={}",
            status.remaining,
            seconds(status)
        ));
        names.push(quoted);
    }
    (policies.join(", "), levels.join(", "))
}

/// A string of structured fields (RFC 9651): printable ASCII in quotes. Other characters become
/// question marks.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            ' '..='~' => quoted.push(char),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

/// Seconds until all limits that refused would allow the request, rounded up.
pub(crate) fn retry_after(decision: &Decision<'_>) -> Option<u64> {
    Some(retry_after_us(decision)?.div_ceil(1_000_000))
}

/// The time until all limits that refused would allow the request. Quotas refuse together, and the
/// first of them to allow it ends their refusal. None when that is never, or nothing refused.
pub(crate) fn retry_after_us(decision: &Decision<'_>) -> Option<u64> {
    if decision.code == Code::Ok {
        return None;
    }
    let wait = |status: &Status<'_>| {
        status
            .can_retry
            .then(|| status.until_reset_us.unwrap_or_default())
    };
    let is_over = |status: &&Status<'_>| status.code == Code::OverLimit;
    let (quotas, others): (Vec<_>, Vec<_>) =
        decision.statuses.iter().partition(|status| status.quota);
    let mut waits: Vec<Option<u64>> = others.into_iter().filter(is_over).map(wait).collect();
    if !quotas.is_empty() && quotas.iter().all(is_over) {
        waits.push(quotas.into_iter().filter_map(wait).min());
    }
    let waits: Option<Vec<u64>> = waits.into_iter().collect();
    waits?.into_iter().max()
}

/// The `over_limit` of a request that is refused, and the status of its limit: of those that
/// refused, the one that the rate limit headers describe comes first, then the others in the
/// request's order.
#[inline]
pub(crate) fn chosen_over_limit<'d, 'r>(
    plan: &Plan<'r>,
    decision: &'d Decision<'r>,
) -> Option<(&'d Status<'r>, &'r OverLimitResponse)> {
    let has_one = |status| over_limit_of(plan, status).is_some();
    if decision.code == Code::Ok || !decision.statuses.iter().any(has_one) {
        return None;
    }
    let described = described_status(decision).into_iter();
    let mut refused = described
        .chain(&decision.statuses)
        .filter(|status| status.code == Code::OverLimit);
    refused.find_map(|status| Some((status, over_limit_of(plan, status)?)))
}

/// Adds the body and the headers of a limit's `over_limit` to the response.
pub(crate) fn put_over_limit(
    response: &mut RateLimitResponse,
    status: &Status<'_>,
    over_limit: &OverLimitResponse,
) {
    let fill = |placeholder| placeholder_value(status, placeholder);
    response.raw_body = over_limit.body.render(fill).into();
    for (name, value) in &over_limit.headers {
        let value = header(name, value.render(fill));
        response.response_headers_to_add.push(value);
    }
}

fn over_limit_of<'r>(plan: &Plan<'r>, status: &Status<'r>) -> Option<&'r OverLimitResponse> {
    let planned = plan.planned_check(status.check_index?)?;
    planned.origin.rule()?.over_limit.as_deref()
}

fn placeholder_value(status: &Status<'_>, placeholder: Placeholder) -> String {
    let limit = status.current_limit.map(|current| current.limit);
    match placeholder {
        Placeholder::Limit => limit.map(|limit| limit.requests().to_string()),
        Placeholder::Window => limit.map(|limit| limit.describe_window()),
        Placeholder::RetryAfterSeconds => Some(seconds(status).to_string()),
    }
    .unwrap_or_default()
}
