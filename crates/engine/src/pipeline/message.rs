//! Converts protobuf fields to the limiter's types and back.
//!
//! Two tables of the protocol are here. Hits: a descriptor's addend overrides the request's, an
//! absent one means 1, and an explicit 0 is a peek or starts a reservation. Units: 7 is a week,
//! also where Envoy's enum has none.
//!
//! What it deliberately does not do: decide, or reject what it can read. An override without a
//! usable unit becomes [`Override::Invalid`], because Envoy lets a request pass on an error.

use std::num::NonZeroU32;

use crate::pipeline::RequestPolicy;
use tollgate_limiter::{Code, CurrentLimit, Hits, Limit, Override, Request, Status, Unit};
use tollgate_wire::proto::envoy::service::ratelimit::v3::rate_limit_response as response;
use tollgate_wire::put::{put_bytes, put_message, put_number};

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

/// The protobuf fields of a limit override.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverrideFields {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: i32,
    pub(crate) unit_multiplier: Option<u32>,
    /// tollgate's own: a token bucket of this burst. Envoy's message does not have it.
    pub(crate) burst: Option<u32>,
}

/// tollgate's field of a limit override in Envoy's message: the burst of a token bucket.
pub(crate) const BURST: u32 = 1_000;

/// The protobuf fields of a descriptor's status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusFields<'d> {
    pub(crate) code: response::Code,
    pub(crate) limit: Option<LimitFields<'d>>,
    pub(crate) remaining: u32,
    pub(crate) until_seconds: Option<u64>,
}

/// The protobuf fields of a status's limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitFields<'d> {
    pub(crate) name: &'d str,
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: response::rate_limit::Unit,
    pub(crate) unit_multiplier: Option<u32>,
}

/// The hits that a descriptor takes or refunds. Its own addend overrides the request's; without
/// either it is 1.
pub(crate) fn hits(
    request_addend: u32,
    own_addend: Option<u64>,
    negative: bool,
    policy: RequestPolicy,
) -> Hits {
    let hits = own_addend.unwrap_or_else(|| u64::from(request_addend.max(1)));
    match (negative, policy.negative_hits) {
        (false, _) => Hits::Take(hits),
        (true, true) => Hits::Refund(hits),
        (true, false) => Hits::PEEK,
    }
}

/// Whether the request says how many hits a descriptor takes: by its own addend, or by one of the
/// request that is not the default. Hits that are given back are no start or end of a reservation.
pub(crate) fn has_explicit_hits(
    request_addend: u32,
    own_addend: Option<u64>,
    negative: bool,
) -> bool {
    !negative && (own_addend.is_some() || request_addend > 0)
}

/// A request as an encoded `RateLimitRequest`, with hits in each descriptor.
pub(crate) fn encode_request(
    request: &Request<'_>,
    hits_of: impl Fn(Hits) -> Option<u64>,
) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, request.domain);
    for descriptor in request.descriptors() {
        put_message(&mut message, 2, |into| {
            for entry in descriptor.entries {
                put_message(into, 1, |into| {
                    put_bytes(into, 1, entry.key);
                    put_bytes(into, 2, entry.value);
                });
            }
            if let Some(Override::Bucket(limit)) = descriptor.limit {
                put_message(into, 2, |into| put_bucket(into, limit));
            }
            if let Some(hits) = hits_of(descriptor.hits) {
                put_message(into, 3, |into| put_number(into, 1, hits));
            }
        });
    }
    message
}

/// Puts a token bucket as the fields of a `RateLimitOverride`, with the field [`BURST`].
fn put_bucket(into: &mut Vec<u8>, limit: &Limit) {
    let unit = UNITS.iter().find(|(unit, _)| Some(*unit) == limit.unit());
    put_number(into, 1, to_32_bits(limit.requests()).into());
    put_number(into, 2, unit.map_or(0, |(_, unit)| number(*unit)));
    let multiplier = u64::from(limit.unit_multiplier().get());
    put_message(into, 3, |into| put_number(into, 1, multiplier));
    put_number(into, BURST, limit.burst());
}

/// The number of an enum's value. All encoded values are positive.
pub(super) fn number(value: impl Into<i32>) -> u64 {
    u64::from(value.into().unsigned_abs())
}

/// The number of a code on the wire.
pub(crate) fn code_number(code: Code) -> response::Code {
    match code {
        Code::Ok => response::Code::Ok,
        Code::OverLimit => response::Code::OverLimit,
    }
}

// === impl OverrideFields ===

impl OverrideFields {
    /// The override that these fields mean under a policy.
    pub(crate) fn under(&self, policy: RequestPolicy) -> Override {
        let unit = UNITS
            .iter()
            .find(|(_, number)| i32::from(*number) == self.unit);
        // Protobuf validation requires more than 0; 0 counts as absent.
        let multiplier = self.unit_multiplier.and_then(NonZeroU32::new);
        match unit {
            Some((unit, _)) if policy.overrides => {
                let multiplier = multiplier.unwrap_or(NonZeroU32::MIN);
                let requests = self.requests_per_unit.into();
                match self.burst {
                    None => Override::Limit(Limit::per(requests, *unit, multiplier)),
                    Some(burst) => Limit::new(requests, *unit, multiplier, Some(burst.into()))
                        .map_or(Override::Invalid, Override::Bucket),
                }
            }
            _ => Override::Invalid,
        }
    }
}

// === impl StatusFields ===

impl<'d> StatusFields<'d> {
    /// The fields of a status. Seconds are rounded up: Envoy truncates, and a client that retries
    /// too early is refused again.
    pub(crate) fn of(status: &Status<'d>) -> Self {
        Self {
            code: code_number(status.code),
            limit: status.current_limit.as_ref().map(LimitFields::of),
            remaining: to_32_bits(status.remaining),
            until_seconds: status.until_reset_us.map(|us| us.div_ceil(1_000_000)),
        }
    }
}

/// A number that Envoy's messages have 32 bits for. A larger one is sent as the largest.
fn to_32_bits(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

// === impl LimitFields ===

impl<'d> LimitFields<'d> {
    fn of(current: &CurrentLimit<'d>) -> Self {
        let limit = &current.limit;
        // A concurrency limit has no window.
        let unit = limit
            .unit()
            .and_then(|unit| UNITS.iter().find(|(known, _)| *known == unit));
        let multiplier = unit.map_or(1, |_| limit.unit_multiplier().get());
        Self {
            name: current.name,
            requests_per_unit: to_32_bits(limit.requests()),
            unit: unit.map_or(response::rate_limit::Unit::Unknown, |(_, number)| *number),
            unit_multiplier: (multiplier != 1).then_some(multiplier),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: RequestPolicy = RequestPolicy {
        negative_hits: true,
        overrides: true,
    };

    #[test]
    fn hits_of_a_descriptor_win_over_those_of_the_request() {
        // request addend, descriptor addend, negative, used: the table in envoy-ratelimit.md 1.3.
        for (request, own, negative, used) in [
            (0, None, false, Hits::Take(1)),
            (5, None, false, Hits::Take(5)),
            (5, Some(0), false, Hits::PEEK),
            (0, Some(7), false, Hits::Take(7)),
            (5, Some(u64::MAX), false, Hits::Take(u64::MAX)),
            (0, Some(3), true, Hits::Refund(3)),
            (2, None, true, Hits::Refund(2)),
        ] {
            assert_eq!(hits(request, own, negative, EVERYTHING), used);
        }
    }

    #[test]
    fn hits_are_explicit_where_the_request_says_them() {
        for (request, own, negative, explicit) in [
            (0, None, false, false),
            (5, None, false, true),
            (0, Some(0), false, true),
            (5, Some(0), false, true),
            (0, Some(7), false, true),
            (5, None, true, false),
            (0, Some(0), true, false),
        ] {
            assert_eq!(has_explicit_hits(request, own, negative), explicit);
        }
    }

    #[test]
    fn an_override_needs_a_unit_that_exists() {
        let limit = |unit, unit_multiplier| {
            let fields = OverrideFields {
                requests_per_unit: 3,
                unit,
                unit_multiplier,
                burst: None,
            };
            fields.under(EVERYTHING)
        };
        let per = |unit, multiplier| {
            Override::Limit(Limit::per(3, unit, NonZeroU32::new(multiplier).unwrap()))
        };
        assert_eq!(limit(0, None), Override::Invalid);
        assert_eq!(limit(8, None), Override::Invalid);
        assert_eq!(limit(-1, None), Override::Invalid);
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
            let status = Status {
                code: Code::Ok,
                current_limit: None,
                remaining: 0,
                until_reset_us: Some(us),
                can_retry: false,
                quota: false,
                check_index: None,
            };
            assert_eq!(StatusFields::of(&status).until_seconds, Some(seconds));
        }
    }
}
