//! Encodes a `RateLimitResponse` and gRPC's frame into a buffer, without allocation.
//!
//! prost allocates a vector of statuses, a string for each name, and a separate buffer. A status is
//! at most a few dozen bytes, so this encoder measures each one and writes it after its length.
//! Fields that only some responses have (response headers, a body, dynamic metadata) are encoded by
//! prost and follow the statuses, in the order of their field numbers. The tests below check that
//! every byte is what prost would have written.
//!
//! What it deliberately does not do: choose the content of the response (`limiter/decision`,
//! `finish`).

use bytes::BufMut;

use crate::pipeline::message::{self, StatusFields};
use tollgate_limiter::{Code, Decision};

/// Length of the head of a gRPC frame: a flag for compression, and the message's length in four
/// bytes.
pub const FRAME_HEAD_BYTES: usize = 5;

/// Keys of a response's fields.
const OVERALL_CODE: u8 = 1 << 3;
const STATUSES: u8 = 2 << 3 | 2;
/// Keys of a status's fields.
const CODE: u8 = 1 << 3;
const CURRENT_LIMIT: u8 = 2 << 3 | 2;
const LIMIT_REMAINING: u8 = 3 << 3;
const DURATION_UNTIL_RESET: u8 = 4 << 3 | 2;
/// Keys of a limit's fields.
const REQUESTS_PER_UNIT: u8 = 1 << 3;
const UNIT: u8 = 2 << 3;
const NAME: u8 = 3 << 3 | 2;
const UNIT_MULTIPLIER: u8 = 4 << 3 | 2;
/// Keys of the field of a duration and of a wrapped number.
const SECONDS: u8 = 1 << 3;
const WRAPPED: u8 = 1 << 3;

/// A response, ready to be written.
pub struct EncodedResponse<'d> {
    decision: &'d Decision<'d>,
    extras: &'d [u8],
    message_bytes: usize,
}

impl<'d> EncodedResponse<'d> {
    /// A response with a decision, followed by `extras`: encoded fields with higher numbers.
    pub fn new(decision: &'d Decision<'d>, extras: &'d [u8]) -> Self {
        Self {
            decision,
            extras,
            message_bytes: message_bytes(decision, extras),
        }
    }

    /// The overall code.
    pub(crate) fn code(&self) -> Code {
        self.decision.code
    }

    /// The decision.
    pub(crate) fn decision(&self) -> &Decision<'d> {
        self.decision
    }

    /// How many bytes [`EncodedResponse::write_frame`] writes.
    pub fn frame_bytes(&self) -> usize {
        FRAME_HEAD_BYTES.saturating_add(self.message_bytes)
    }

    /// Writes the message in a frame of gRPC.
    pub fn write_frame(&self, into: &mut impl BufMut) {
        into.put_u8(0);
        // No response is that long: requests are bounded, and so are the texts of rules.
        into.put_u32(u32::try_from(self.message_bytes).unwrap_or(u32::MAX));
        write_message(self.decision, self.extras, into);
    }

    /// The message alone.
    pub fn message(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.message_bytes);
        write_message(self.decision, self.extras, &mut message);
        message
    }
}

fn message_bytes(decision: &Decision<'_>, rest: &[u8]) -> usize {
    let statuses = decision.statuses.iter().map(StatusFields::of);
    statuses.fold(
        optional_number_bytes(number(message::code_number(decision.code)))
            .saturating_add(rest.len()),
        |bytes, status| bytes.saturating_add(delimited_bytes(status_bytes(&status))),
    )
}

fn write_message(decision: &Decision<'_>, rest: &[u8], into: &mut impl BufMut) {
    put_number(
        into,
        OVERALL_CODE,
        number(message::code_number(decision.code)),
    );
    for status in decision.statuses.iter().map(StatusFields::of) {
        put_head(into, STATUSES, status_bytes(&status));
        put_status(into, &status);
    }
    into.put_slice(rest);
}

fn status_bytes(status: &StatusFields<'_>) -> usize {
    let limit = status.limit.as_ref().map(limit_bytes);
    let until = status.until_seconds.map(optional_number_bytes);
    optional_number_bytes(number(status.code))
        .saturating_add(limit.map_or(0, delimited_bytes))
        .saturating_add(optional_number_bytes(u64::from(status.remaining)))
        .saturating_add(until.map_or(0, delimited_bytes))
}

fn put_status(into: &mut impl BufMut, status: &StatusFields<'_>) {
    put_number(into, CODE, number(status.code));
    if let Some(limit) = &status.limit {
        put_head(into, CURRENT_LIMIT, limit_bytes(limit));
        put_number(into, REQUESTS_PER_UNIT, u64::from(limit.requests_per_unit));
        put_number(into, UNIT, number(limit.unit));
        if !limit.name.is_empty() {
            put_head(into, NAME, limit.name.len());
            into.put_slice(limit.name.as_bytes());
        }
        if let Some(multiplier) = limit.unit_multiplier {
            let multiplier = u64::from(multiplier);
            put_head(into, UNIT_MULTIPLIER, optional_number_bytes(multiplier));
            put_number(into, WRAPPED, multiplier);
        }
    }
    put_number(into, LIMIT_REMAINING, u64::from(status.remaining));
    if let Some(seconds) = status.until_seconds {
        put_head(into, DURATION_UNTIL_RESET, optional_number_bytes(seconds));
        put_number(into, SECONDS, seconds);
    }
}

fn limit_bytes(limit: &message::LimitFields<'_>) -> usize {
    let name = limit.name.len();
    let multiplier = limit
        .unit_multiplier
        .map(|multiplier| optional_number_bytes(u64::from(multiplier)));
    optional_number_bytes(u64::from(limit.requests_per_unit))
        .saturating_add(optional_number_bytes(number(limit.unit)))
        .saturating_add(if name == 0 { 0 } else { delimited_bytes(name) })
        .saturating_add(multiplier.map_or(0, delimited_bytes))
}

/// The number of an enum's value. All encoded values are positive.
fn number(value: impl Into<i32>) -> u64 {
    u64::from(value.into().unsigned_abs())
}

/// How many bytes a number's field takes: none when it is 0, which protobuf leaves out.
#[inline]
pub(super) fn optional_number_bytes(number: u64) -> usize {
    if number == 0 {
        0
    } else {
        varint_bytes(number).saturating_add(1)
    }
}

/// How many bytes a field of `length` bytes takes.
#[inline]
fn delimited_bytes(length: usize) -> usize {
    varint_bytes(length as u64)
        .saturating_add(1)
        .saturating_add(length)
}

#[inline]
fn varint_bytes(number: u64) -> usize {
    let bits = 64_u32.saturating_sub((number | 1).leading_zeros());
    bits.div_ceil(7) as usize
}

#[inline]
pub(super) fn put_number(into: &mut impl BufMut, key: u8, number: u64) {
    if number != 0 {
        into.put_u8(key);
        put_varint(into, number);
    }
}

#[inline]
pub(super) fn put_head(into: &mut impl BufMut, key: u8, length: usize) {
    into.put_u8(key);
    put_varint(into, length as u64);
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // seven bits at a time
fn put_varint(into: &mut impl BufMut, mut number: u64) {
    while number >= 0x80 {
        into.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    into.put_u8(number as u8);
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use tollgate_limiter::{Code, CurrentLimit, Limit, Status, Unit};
    use tollgate_wire::proto::envoy::config::core::v3::HeaderValue;
    use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitResponse;

    /// Numbers near the bounds between lengths of a varint.
    fn number() -> impl Strategy<Value = u64> {
        (0_u32..64, -2_i64..2)
            .prop_map(|(bits, about)| (1_u64 << bits).saturating_add_signed(about))
    }

    fn number_32() -> impl Strategy<Value = u32> {
        number().prop_map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    fn code() -> impl Strategy<Value = Code> {
        prop_oneof![Just(Code::Ok), Just(Code::OverLimit)]
    }

    fn limit() -> impl Strategy<Value = Limit> {
        let units = proptest::sample::select(Unit::ALL.to_vec());
        let per = (number(), units, number_32()).prop_map(|(requests, unit, multiplier)| {
            Limit::per(
                requests,
                unit,
                NonZeroU32::new(multiplier).unwrap_or(NonZeroU32::MIN),
            )
        });
        let in_flight = number().prop_map(|requests| Limit::in_flight(requests, NonZeroU32::MIN));
        prop_oneof![4 => per, 1 => in_flight]
    }

    /// A status, and the name of its limit.
    fn status() -> impl Strategy<Value = (Status<'static>, String)> {
        let limit = proptest::option::of(limit());
        let name = prop_oneof![Just(String::new()), ".{0,20}", "[a-z]{120,140}"];
        let rest = (number(), proptest::option::of(number()));
        (code(), limit, name, rest).prop_map(|(code, limit, name, (remaining, until_reset_us))| {
            let status = Status {
                code,
                current_limit: limit.map(|limit| CurrentLimit { name: "", limit }),
                remaining,
                until_reset_us,
                can_retry: false,
                quota: false,
                check_index: None,
            };
            (status, name)
        })
    }

    prop_compose! {
        fn rest()(
            headers in proptest::collection::vec(("[a-z]{1,5}", ".{0,9}"), 0..3),
            body in proptest::collection::vec(any::<u8>(), 0..200),
            metadata in proptest::option::of(proptest::collection::btree_map("[a-z]{1,5}", any::<f64>(), 0..3)),
        ) -> RateLimitResponse {
            let header = |(key, value)| HeaderValue { key, value, ..HeaderValue::default() };
            let kind = |number| prost_types::Value {
                kind: Some(prost_types::value::Kind::NumberValue(number)),
            };
            RateLimitResponse {
                response_headers_to_add: headers.into_iter().map(header).collect(),
                raw_body: body.into(),
                dynamic_metadata: metadata.map(|fields| prost_types::Struct {
                    fields: fields.into_iter().map(|(name, number)| (name, kind(number))).collect(),
                }),
                ..RateLimitResponse::default()
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn every_byte_equals_prosts_encoding(
            code in code(),
            statuses in proptest::collection::vec(status(), 0..6),
            rest in rest(),
        ) {
            let named = |(status, name): &'_ (Status<'static>, String)| -> Status<'static> {
                // Leaked: the status borrows it for the whole test.
                let name: &'static str = Box::leak(name.clone().into_boxed_str());
                Status {
                    current_limit: status.current_limit.map(|limit| CurrentLimit { name, ..limit }),
                    ..*status
                }
            };
            let decision = Decision {
                code,
                shadowed: false,
                statuses: statuses.iter().map(named).collect(),
            };
            let encoded_rest = rest.encode_to_vec();
            let mut written = Vec::new();
            let response = EncodedResponse::new(&decision, &encoded_rest);
            response.write_frame(&mut written);
            prop_assert_eq!(written.len(), response.frame_bytes());
            let encoded = crate::pipeline::prost_oracle::encode(&decision);
            let message = RateLimitResponse {
                overall_code: encoded.overall_code,
                statuses: encoded.statuses,
                ..rest
            };
            let message = message.encode_to_vec();
            let mut expected = vec![0];
            expected.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
            expected.extend(message);
            prop_assert_eq!(&written[..], &expected[..]);
        }
    }
}
