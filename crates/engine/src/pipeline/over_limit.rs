//! Response sent to the client on 429: the body and headers of a rule's `over_limit`, with
//! placeholders filled in.
//!
//! Of several limits that refused, the one that the rate limit headers describe comes first, then
//! the others in the request's order. The first with an `over_limit` is used.
//!
//! What it deliberately does not do: add a body to a request that passes, which Envoy ignores.

use crate::pipeline::headers::{described_status, header, seconds};
use tollgate_limiter::{Code, Decision, OverLimitResponse, Placeholder, Plan, Status};
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// The `over_limit` of a request that is refused, and the status of its limit.
#[inline]
pub(crate) fn chosen<'d, 'r>(
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
pub(crate) fn put(
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
