//! Encodes a `RateLimitResponse` and gRPC's frame into a buffer, without allocation.
//!
//! prost allocates a vector of statuses and a string for each name. A status is at most a few dozen
//! bytes, so this encoder leaves one byte for its length and writes it once.
//! Fields that only some responses have (response headers, a body, dynamic metadata) are encoded by
//! prost and follow the statuses, in the order of their field numbers. The tests below check that
//! every byte is what prost would have written.
//!
//! What it deliberately does not do: choose the content of the response (`limiter/decision`,
//! `finish`).

use bytes::BufMut;

use crate::ended::RequestError;
use crate::pipeline::message::{self, StatusFields, number};
use tollgate_limiter::Decision;
use tollgate_wire::put::{put_bytes, put_message, put_number};

/// Length of the head of a gRPC frame: a flag for compression, and the message's length in four
/// bytes.
pub const FRAME_HEAD_BYTES: usize = 5;

/// Numbers of a response's fields.
const OVERALL_CODE: u32 = 1;
const STATUSES: u32 = 2;
/// Numbers of a status's fields.
const CODE: u32 = 1;
const CURRENT_LIMIT: u32 = 2;
const LIMIT_REMAINING: u32 = 3;
const DURATION_UNTIL_RESET: u32 = 4;
/// Numbers of a limit's fields.
const REQUESTS_PER_UNIT: u32 = 1;
const UNIT: u32 = 2;
const NAME: u32 = 3;
const UNIT_MULTIPLIER: u32 = 4;
/// Numbers of the field of a duration and of a wrapped number.
const SECONDS: u32 = 1;
const WRAPPED: u32 = 1;

/// A response, ready to be written.
pub struct EncodedResponse<'d> {
    pub(crate) decision: &'d Decision<'d>,
    message: &'d [u8],
}

impl<'d> EncodedResponse<'d> {
    /// A response with a decision, encoded in `buffer`. `extras` appends fields with higher
    /// numbers.
    pub fn new(
        decision: &'d Decision<'d>,
        buffer: &'d mut Vec<u8>,
        extras: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        buffer.clear();
        put_number(
            buffer,
            OVERALL_CODE,
            number(message::code_number(decision.code)),
        );
        for status in decision.statuses.iter().map(StatusFields::of) {
            put_message(buffer, STATUSES, |into| put_status(into, &status));
        }
        extras(buffer);
        Self {
            decision,
            message: buffer,
        }
    }

    /// A response with this message. It may be empty where only the decision is read.
    pub(super) fn of(decision: &'d Decision<'d>, message: &'d [u8]) -> Self {
        Self { decision, message }
    }

    /// How many bytes [`EncodedResponse::write_frame`] writes.
    pub fn frame_bytes(&self) -> usize {
        FRAME_HEAD_BYTES + self.message.len()
    }

    /// Writes the message in a frame of gRPC.
    pub fn write_frame(&self, into: &mut impl BufMut) {
        into.put_u8(0);
        // No response is that long: requests are bounded, and so are the texts of rules.
        into.put_u32(u32::try_from(self.message.len()).unwrap_or(u32::MAX));
        into.put_slice(self.message);
    }

    /// The message alone.
    pub fn message(&self) -> Vec<u8> {
        self.message.to_vec()
    }
}

fn put_status(into: &mut Vec<u8>, status: &StatusFields<'_>) {
    put_number(into, CODE, number(status.code));
    if let Some(limit) = &status.limit {
        put_message(into, CURRENT_LIMIT, |into| {
            put_number(into, REQUESTS_PER_UNIT, u64::from(limit.requests_per_unit));
            put_number(into, UNIT, number(limit.unit));
            put_bytes(into, NAME, limit.name.as_bytes());
            if let Some(multiplier) = limit.unit_multiplier {
                put_message(into, UNIT_MULTIPLIER, |into| {
                    put_number(into, WRAPPED, u64::from(multiplier));
                });
            }
        });
    }
    put_number(into, LIMIT_REMAINING, u64::from(status.remaining));
    if let Some(seconds) = status.until_seconds {
        put_message(into, DURATION_UNTIL_RESET, |into| {
            put_number(into, SECONDS, seconds);
        });
    }
}

/// Receives the response to one call. It costs nothing, because the batcher is generic over it.
pub trait Responder {
    /// Sends the response, or the error of a request without one. A check of tollgate's API has a
    /// `CheckResponse`.
    fn respond(self, response: Result<EncodedResponse<'_>, RequestError>);

    /// Gives up the call without a response: the slow path answers it.
    fn release(self);

    /// Whether the client no longer waits for a response.
    fn is_cancelled(&self) -> bool;
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
            let mut buffer = Vec::new();
            let response = EncodedResponse::new(&decision, &mut buffer, |into| {
                into.extend_from_slice(&encoded_rest);
            });
            response.write_frame(&mut written);
            prop_assert_eq!(written.len(), response.frame_bytes());
            let encoded = crate::pipeline::tests::prost_oracle::encode(&decision);
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
