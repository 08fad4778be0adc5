//! Protobuf into our words, and back.
//!
//! The table of hits (a descriptor's own addend wins over the request's, an absent one means 1, and present and 0 means
//! look only) and of units (7 is a week, also where Envoy's enum has none) live here, because they are matters of the
//! wire.
//!
//! What it deliberately does not do: decide anything, or refuse what it can read. An override without a usable unit is
//! passed on as [`Override::NotObeyed`]; an error would let the caller through.

use std::num::NonZeroU32;

use super::proto::envoy::extensions::common::ratelimit::v3 as common;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as descriptor;
use super::proto::envoy::service::ratelimit::v3 as rls;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response as response;
use crate::limiter::{
    Code, CurrentLimit, Decision, Entry, Hits, Limit, Override, Request, Status, Unit,
};

/// Each unit and its number on the wire, in both of Envoy's enums.
const UNITS: [(Unit, response::rate_limit::Unit); 7] = [
    (Unit::Second, response::rate_limit::Unit::Second),
    (Unit::Minute, response::rate_limit::Unit::Minute),
    (Unit::Hour, response::rate_limit::Unit::Hour),
    (Unit::Day, response::rate_limit::Unit::Day),
    (Unit::Week, response::rate_limit::Unit::Week),
    (Unit::Month, response::rate_limit::Unit::Month),
    (Unit::Year, response::rate_limit::Unit::Year),
];

/// What a service obeys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Obeyed {
    /// Hits may be given back; if not, such a descriptor only looks.
    pub(super) negative_hits: bool,
    /// Limits may come with the request; if not, they count as not usable.
    pub(super) overrides: bool,
}

/// The request in our words, borrowing its texts.
pub(super) fn decode(request: &rls::RateLimitRequest, obeyed: Obeyed) -> Request<'_> {
    let mut decoded = Request::new(&request.domain);
    for descriptor in &request.descriptors {
        let entries = descriptor.entries.iter().map(|entry| Entry {
            key: &entry.key,
            value: &entry.value,
        });
        let hits = match hits(request.hits_addend, descriptor) {
            Hits::Refund(_) if !obeyed.negative_hits => Hits::LOOK,
            hits => hits,
        };
        let limit = descriptor.limit.as_ref().map(|limit| {
            if obeyed.overrides {
                override_limit(limit)
            } else {
                Override::NotObeyed
            }
        });
        decoded.push(entries, hits, limit);
    }
    decoded
}

fn hits(request_addend: u32, descriptor: &common::RateLimitDescriptor) -> Hits {
    let hits = descriptor
        .hits_addend
        .unwrap_or_else(|| u64::from(request_addend.max(1)));
    if descriptor.is_negative_hits {
        Hits::Refund(hits)
    } else {
        Hits::Take(hits)
    }
}

fn override_limit(limit: &descriptor::RateLimitOverride) -> Override {
    let unit = UNITS
        .iter()
        .find(|(_, number)| i32::from(*number) == limit.unit);
    // The multiplier's own rule is "more than 0"; 0 is taken as absent.
    let multiplier = limit.unit_multiplier.and_then(NonZeroU32::new);
    unit.map_or(Override::NotObeyed, |(unit, _)| {
        Override::Limit(Limit::per(
            limit.requests_per_unit,
            *unit,
            multiplier.unwrap_or(NonZeroU32::MIN),
        ))
    })
}

/// The decision as protobuf.
pub(super) fn encode(decision: &Decision<'_>) -> rls::RateLimitResponse {
    rls::RateLimitResponse {
        overall_code: code(decision.code).into(),
        statuses: decision.statuses.iter().map(status).collect(),
        ..Default::default()
    }
}

fn code(code: Code) -> response::Code {
    match code {
        Code::Ok => response::Code::Ok,
        Code::OverLimit => response::Code::OverLimit,
    }
}

fn status(status: &Status<'_>) -> response::DescriptorStatus {
    response::DescriptorStatus {
        code: code(status.code).into(),
        current_limit: status.current_limit.as_ref().map(current_limit),
        limit_remaining: status.remaining,
        duration_until_reset: status.until_us.map(whole_seconds),
        quota: None,
    }
}

fn current_limit(current: &CurrentLimit<'_>) -> response::RateLimit {
    let limit = &current.limit;
    // A limit of how many are in flight has no window to speak of.
    let unit = limit
        .unit()
        .and_then(|unit| UNITS.iter().find(|(known, _)| *known == unit));
    let multiplier = unit.map_or(1, |_| limit.unit_multiplier().get());
    response::RateLimit {
        name: current.name.to_owned(),
        requests_per_unit: limit.requests_per_unit(),
        unit: unit.map_or(0, |(_, number)| i32::from(*number)),
        unit_multiplier: (multiplier != 1).then_some(multiplier),
    }
}

/// Rounded up: Envoy cuts the rest off, and a caller that comes back too early is refused again.
fn whole_seconds(us: u64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(us.div_ceil(1_000_000)).unwrap_or(i64::MAX),
        nanos: 0,
    }
}

/// How long a caller waits, as gRPC's `grpc-timeout` header says it: up to eight digits and a unit. In microseconds,
/// rounded up; none when it is not of that form.
pub(super) fn grpc_timeout_us(header: &str) -> Option<u64> {
    let split = header.len().checked_sub(1)?;
    let (digits, unit) = (header.get(..split)?, header.get(split..)?);
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => amount.checked_mul(3_600_000_000),
        "M" => amount.checked_mul(60_000_000),
        "S" => amount.checked_mul(1_000_000),
        "m" => amount.checked_mul(1_000),
        "u" => Some(amount),
        "n" => Some(amount.div_ceil(1_000)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_of_a_descriptor_win_over_those_of_the_request() {
        // request addend, descriptor addend, negative, used: the table in envoy-ratelimit.md 1.3.
        for (request, own, negative, used) in [
            (0, None, false, Hits::Take(1)),
            (5, None, false, Hits::Take(5)),
            (5, Some(0), false, Hits::LOOK),
            (0, Some(7), false, Hits::Take(7)),
            (5, Some(u64::MAX), false, Hits::Take(u64::MAX)),
            (0, Some(3), true, Hits::Refund(3)),
            (2, None, true, Hits::Refund(2)),
        ] {
            let descriptor = common::RateLimitDescriptor {
                hits_addend: own,
                is_negative_hits: negative,
                ..Default::default()
            };
            assert_eq!(hits(request, &descriptor), used);
        }
    }

    #[test]
    fn an_override_needs_a_unit_that_exists() {
        let limit = |unit, unit_multiplier| {
            override_limit(&descriptor::RateLimitOverride {
                requests_per_unit: 3,
                unit,
                unit_multiplier,
            })
        };
        let per = |unit, multiplier| {
            Override::Limit(Limit::per(3, unit, NonZeroU32::new(multiplier).unwrap()))
        };
        assert_eq!(limit(0, None), Override::NotObeyed);
        assert_eq!(limit(8, None), Override::NotObeyed);
        assert_eq!(limit(-1, None), Override::NotObeyed);
        assert_eq!(limit(1, None), per(Unit::Second, 1));
        assert_eq!(limit(5, None), per(Unit::Month, 1));
        assert_eq!(limit(6, None), per(Unit::Year, 1));
        assert_eq!(limit(7, None), per(Unit::Week, 1));
        assert_eq!(limit(2, Some(15)), per(Unit::Minute, 15));
        assert_eq!(limit(2, Some(0)), per(Unit::Minute, 1));
    }

    #[test]
    fn durations_are_rounded_up_to_whole_seconds() {
        for (us, seconds) in [(0, 0), (1, 1), (400_000, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(whole_seconds(us).seconds, seconds);
        }
    }

    #[test]
    fn grpc_timeouts_are_read_as_the_protocol_writes_them() {
        for (header, us) in [
            ("20m", Some(20_000)),
            ("1S", Some(1_000_000)),
            ("5u", Some(5)),
            ("1n", Some(1)),
            ("2M", Some(120_000_000)),
            ("99999999H", Some(359_999_996_400_000_000)),
            ("123456789m", None),
            ("m", None),
            ("", None),
            ("-1m", None),
            ("20", None),
            ("é", None),
        ] {
            assert_eq!(grpc_timeout_us(header), us, "{header}");
        }
    }
}
