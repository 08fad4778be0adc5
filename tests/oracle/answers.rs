//! Holds an answer of tollgate against the reference's.
//!
//! How: where a known difference has a cause in the rules or the request, the reference's answer is
//! rewritten to what tollgate must say, and the two are then compared whole. Where the two count in
//! different counters from then on, the case ends for that tollgate.
//!
//! What it deliberately does not do: accept a difference by its looks alone.

use prost_types::value::Kind;
use prost_types::{Duration, Struct, Value};
use tollgate::proto::envoy::config::core::v3::HeaderValue;
use tollgate_test_support::grpc_client::{Code, DescriptorStatus, RateLimitResponse};
use tonic::{Code as GrpcCode, Status};

use crate::oracle::case::{Case, Domain, OracleRequest, UNITS};
use crate::oracle::differences::met;
use crate::oracle::model::{self, apart, joined};
use crate::oracle::run::Setup;

pub(crate) type Answer = Result<RateLimitResponse, Status>;

/// What was asked, and when.
#[derive(Clone, Copy)]
pub(crate) struct At<'c> {
    pub(crate) setup: &'c Setup,
    pub(crate) case: &'c Case,
    pub(crate) asked: &'c OracleRequest,
    /// The second in which both answered.
    pub(crate) second: u64,
}

/// A field of dynamic metadata that the pinned version adds and later ones do not.
const QUOTA_FIELDS: [&str; 2] = ["quotaModeViolations", "quotaModeEnabled"];

/// Which difference has this request apply other rules in the two services, if there is one.
pub(crate) fn other_rules(case: &Case, asked: &OracleRequest) -> Option<&'static str> {
    if asked.domain != Domain::Own {
        return None;
    }
    for descriptor in &asked.descriptors {
        if descriptor.negative {
            return Some("refunds");
        }
        if descriptor.limit.is_some() {
            continue;
        }
        let mut siblings: &[_] = &case.descriptors;
        for entry in &descriptor.entries {
            let found = [joined(siblings, entry), apart(siblings, entry)];
            let same = match found {
                [Some(one), Some(other)] => std::ptr::eq(one, other),
                [None, None] => true,
                _ => false,
            };
            if !same {
                let starred = found.into_iter().flatten().any(model::has_inner_star);
                return Some(if starred {
                    "inner-stars"
                } else {
                    "joined-text"
                });
            }
            let Some(node) = found[0] else { break };
            siblings = &node.children;
        }
    }
    None
}

/// Compares two answers to one request; says what differs.
pub(crate) fn compare(at: &At<'_>, reference: &Answer, ours: &Answer) -> Result<(), String> {
    let asked = at.asked;
    match (reference, ours) {
        (Ok(reference), Ok(ours)) => {
            let mut expected = reference.clone();
            rewrite(at, &mut expected);
            if expected == *ours {
                return Ok(());
            }
            Err(differing(reference, &expected, ours))
        }
        (Err(reference), Err(ours)) => {
            let invalid = asked.domain == Domain::Empty || asked.descriptors.is_empty();
            let codes = (reference.code(), ours.code());
            if invalid
                && codes == (GrpcCode::Unknown, GrpcCode::InvalidArgument)
                && reference.message() == ours.message()
            {
                met("invalid-argument");
                return Ok(());
            }
            Err(format!("the reference: {reference:?}\ntollgate: {ours:?}"))
        }
        _ => Err(format!("the reference: {reference:?}\ntollgate: {ours:?}")),
    }
}

/// The parts that differ.
fn differing(
    reference: &RateLimitResponse,
    expected: &RateLimitResponse,
    ours: &RateLimitResponse,
) -> String {
    let mut lines = Vec::new();
    let mut part = |name: String, parts: [String; 3]| {
        let [there, meant, here] = parts;
        if meant != here {
            lines.push(format!("{name}:\n  the reference {there}"));
            if there != meant {
                lines.push(format!("  expected      {meant}"));
            }
            lines.push(format!("  tollgate      {here}"));
        }
    };
    let three = [reference, expected, ours];
    part(
        "overall code".into(),
        three.map(|answer| answer.overall_code.to_string()),
    );
    let most = three.map(|answer| answer.statuses.len()).into_iter().max();
    for place in 0..most.unwrap_or_default() {
        part(
            format!("status {place}"),
            three.map(|answer| format!("{:?}", answer.statuses.get(place))),
        );
    }
    part(
        "headers".into(),
        three.map(|answer| format!("{:?}", answer.response_headers_to_add)),
    );
    part(
        "metadata".into(),
        three.map(|answer| format!("{:?}", answer.dynamic_metadata)),
    );
    part(
        "the rest".into(),
        three.map(|answer| {
            format!(
                "{:?} {:?} {:?}",
                answer.request_headers_to_add, answer.raw_body, answer.quota
            )
        }),
    );
    lines.join("\n")
}

/// Whether the reference found a limit exceeded. Its pinned version says so of a quota only by
/// leaving the time out.
pub(crate) fn is_over(status: &DescriptorStatus) -> bool {
    status.code == i32::from(Code::OverLimit)
        || status.current_limit.is_some() && status.duration_until_reset.is_none()
}

/// Makes of the reference's answer what tollgate must say.
fn rewrite(at: &At<'_>, answer: &mut RateLimitResponse) {
    quotas(at, answer);
    headers(at, answer);
    if let Some(metadata) = &mut answer.dynamic_metadata {
        for field in QUOTA_FIELDS {
            if metadata.fields.remove(field).is_some() {
                met("quota-metadata");
            }
        }
        limits_in_words(at.asked, metadata);
    }
}

/// The pinned version passes a request whose quota is used up; later ones say that the quota is
/// over its limit, and refuse a request whose quotas all are.
fn quotas(at: &At<'_>, answer: &mut RateLimitResponse) {
    let At {
        setup,
        case,
        asked,
        second,
    } = *at;
    let (mut over, mut quotas, mut quotas_over, mut differs) = (false, 0, 0, false);
    for (descriptor, status) in asked.descriptors.iter().zip(&mut answer.statuses) {
        let rule = match (asked.domain, descriptor.limit) {
            (Domain::Own, None) => model::limited(case, descriptor),
            _ => None,
        };
        let unlimited = rule
            .and_then(|node| node.limit.as_ref())
            .is_some_and(|limit| limit.unlimited);
        let counted = status.current_limit.is_some();
        let quota = setup.quota_mode || counted && rule.is_some_and(|node| node.quota_mode);
        let violated = quota && is_over(status);
        if violated {
            let unit = status.current_limit.as_ref().map(|limit| limit.unit);
            let (_, window_s) = UNITS[usize::try_from(unit.unwrap()).unwrap()];
            status.code = Code::OverLimit.into();
            status.duration_until_reset = Some(Duration {
                seconds: i64::try_from(window_s - second % window_s).unwrap(),
                nanos: 0,
            });
            differs = true;
        }
        let status_over = status.code == i32::from(Code::OverLimit);
        if unlimited {
        } else if quota {
            quotas += 1;
            quotas_over += usize::from(status_over);
        } else {
            over |= status_over;
        }
    }
    if !differs {
        return;
    }
    met("quotas");
    over |= quotas_over == quotas;
    answer.overall_code = if over && !setup.shadow_mode {
        Code::OverLimit.into()
    } else {
        Code::Ok.into()
    };
}

/// The reference sends no headers if the least that is left is 2^32 - 1, which it begins its search
/// with.
fn headers(at: &At<'_>, answer: &mut RateLimitResponse) {
    let counted = answer
        .statuses
        .iter()
        .find_map(|status| Some((status.current_limit.as_ref()?, status)));
    let Some((limit, status)) = counted else {
        return;
    };
    let sent = !answer.response_headers_to_add.is_empty();
    if !at.setup.headers || sent || status.limit_remaining < u32::MAX {
        return;
    }
    met("headers-of-the-largest-limit");
    let reset = status.duration_until_reset.as_ref().unwrap();
    answer.response_headers_to_add = [
        ("RateLimit-Limit", limit.requests_per_unit.to_string()),
        ("RateLimit-Remaining", status.limit_remaining.to_string()),
        ("RateLimit-Reset", reset.seconds.to_string()),
    ]
    .map(|(name, value)| HeaderValue {
        key: name.to_owned(),
        value,
        ..Default::default()
    })
    .into();
}

/// Go's library prints a message with one space or two, at random, to prevent reliance on the
/// format.
fn limits_in_words(asked: &OracleRequest, metadata: &mut Struct) {
    let Some(Kind::ListValue(list)) = metadata
        .fields
        .get_mut("descriptors")
        .and_then(|value| value.kind.as_mut())
    else {
        return;
    };
    for (descriptor, value) in asked.descriptors.iter().zip(&mut list.values) {
        let Some(Kind::StructValue(fields)) = &mut value.kind else {
            continue;
        };
        if let Some((requests, _)) = descriptor.limit
            && let Some(Value {
                kind: Some(Kind::StringValue(words)),
            }) = fields.fields.get_mut("limit")
        {
            let there = words.split_whitespace().collect::<Vec<_>>().join(" ");
            *words = if requests == 0 {
                format!("requests_per_unit:0 {there}")
            } else {
                there
            };
        }
    }
}
