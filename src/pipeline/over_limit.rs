//! What the caller's caller sees on a refusal: the body and the headers of a rule's `over_limit`, gaps filled.
//!
//! Of several limits that refused, the one that the headers speak of is heard first, then the others in the order asked.
//!
//! What it deliberately does not do: anything when the request passed. Envoy would ignore the body then.

use crate::pipeline::headers::{header, seconds, spoken_of};
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use tollgate_limiter::{Code, Decision, LimitOrigin, OverLimitResponse, Placeholder, Plan, Status};

/// Puts body and headers of the limit that refused to its answer, if it has any.
pub(crate) fn put(answer: &mut RateLimitResponse, plan: &Plan<'_>, decision: &Decision<'_>) {
    if decision.code == Code::Ok {
        return;
    }
    let spoken_of = spoken_of(decision).into_iter();
    let refused = spoken_of
        .chain(&decision.statuses)
        .filter(|status| status.code == Code::OverLimit);
    let mut said = refused.filter_map(|status| Some((status, over_limit_of(plan, status)?)));
    let Some((status, over_limit)) = said.next() else {
        return;
    };
    let fill = |gap| filling(status, gap);
    answer.raw_body = over_limit.body.render(fill).into();
    for (name, value) in &over_limit.headers {
        let value = header(name, value.render(fill));
        answer.response_headers_to_add.push(value);
    }
}

fn over_limit_of<'r>(plan: &Plan<'r>, status: &Status<'r>) -> Option<&'r OverLimitResponse> {
    match plan.planned_check(status.check_index?)?.origin {
        LimitOrigin::Rule(rule) => rule.over_limit.as_deref(),
        LimitOrigin::Override => None,
    }
}

fn filling(status: &Status<'_>, gap: Placeholder) -> String {
    let limit = status.current_limit.map(|current| current.limit);
    match gap {
        Placeholder::Limit => limit.map(|limit| limit.requests_per_unit().to_string()),
        Placeholder::Window => limit.map(|limit| limit.describe_window()),
        Placeholder::RetryAfterSeconds => Some(seconds(status).to_string()),
    }
    .unwrap_or_default()
}
