//! Compares the two decoders of requests: `decode`, and prost with `prost_oracle`.
//!
//! A request that the two decode differently could bypass a limit. Both decode the same bytes. If
//! `decode` succeeds, prost must succeed with an equal request; if prost fails, `decode` must
//! return none. Only tests and the fuzz target `wire` are built with this file.
//!
//! What it deliberately does not do: say which of the two is right.
#![allow(unreachable_pub)] // the fuzz target reaches it

use std::fmt::Write as _;

use prost::Message as _;
use prost::encoding::{WireType, encode_key};

use super::prost_oracle;
use crate::pipeline::RequestPolicy;
use crate::pipeline::decode::decode;
use crate::pipeline::message::BURST;
use tollgate_limiter::Request;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;

/// Both policies on the fields of a request.
const POLICIES: [RequestPolicy; 2] = [
    RequestPolicy {
        negative_hits: true,
        overrides: true,
    },
    RequestPolicy {
        negative_hits: false,
        overrides: false,
    },
];

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Agreement {
    /// Both decode it to the same request.
    Read,
    /// Only prost decodes it: it needs protobuf's merging rules.
    Left,
    /// Neither decodes it.
    Broken,
}

/// Decodes a message, without gRPC's frame, with both decoders.
///
/// # Errors
///
/// A description of the difference.
pub fn agree(message: &[u8]) -> Result<Agreement, String> {
    let by_prost = RateLimitRequest::decode(message);
    let mut agreement = match by_prost {
        Ok(_) => Agreement::Left,
        Err(_) => Agreement::Broken,
    };
    for policy in POLICIES {
        // The decoder must clear what the request held before.
        let mut quick = Request::new(b"before");
        quick.push_descriptor([], tollgate_limiter::Hits::PEEK, None);
        if decode(message, policy, &mut quick).is_none() {
            continue;
        }
        let by_prost = by_prost
            .as_ref()
            .map_err(|error| format!("decode accepts what prost rejects: {error}"))?;
        let (quick, slow) = (
            describe(&quick),
            describe(&prost_oracle::decode(by_prost, policy)),
        );
        if quick != slow && !may_have_burst(message) {
            return Err(format!("decode:\n{quick}\nprost:\n{slow}"));
        }
        agreement = Agreement::Read;
    }
    Ok(agreement)
}

/// Whether a message can have tollgate's own field of an override, which prost does not know.
fn may_have_burst(message: &[u8]) -> bool {
    let mut key = Vec::new();
    encode_key(BURST, WireType::Varint, &mut key);
    message.windows(key.len()).any(|bytes| bytes == key)
}

/// Describes all fields of a request.
fn describe(request: &Request<'_>) -> String {
    let mut text = format!("domain {:?}", request.domain);
    for descriptor in request.descriptors() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{descriptor:?}");
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, Bytes};
    use proptest::prelude::*;
    use tollgate_test_support::corpus;

    use super::*;
    use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
        Entry, RateLimitOverride,
    };

    /// Number of mutations of the corpus. They take a second or two.
    const MUTATIONS: usize = 100_000;

    /// Byte sequences that a mutation inserts.
    const PIECES: &[&[u8]] = &[
        b"\x0a\x00",                 // an empty domain, or an entry's empty key
        b"\x0a\x01d",                // a domain or key of one letter
        b"\x12\x00",                 // an empty descriptor, value or limit
        b"\x12\x02\x0a\x00",         // with an empty entry in it
        b"\x12\x04\x12\x02\x10\x02", // with a limit
        b"\x12\x04\x1a\x02\x08\x05", // with hits
        b"\x12\x02\x20\x01",         // with negative hits
        b"\x18\x03",                 // the request's hits
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", // too many bits
        b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x18\x80\x00",              // more bytes than it needs
        b"\x80\x00",                  // field 0
        b"\x8a\x80\x80\x80\x00\x01d", // a field number in more bytes than it needs
        b"\xff\xff\xff\xff\xff\x01\x00",
        b"\x0b", // a group begins
        b"\x0c", // a group ends
        b"\x0b\x0c",
        b"\x23\x24",                             // a group of an unknown field
        b"\x09\x00\x00\x00\x00\x00\x00\x00\x00", // 64 bits
        b"\x0d\x00\x00\x00\x00",                 // 32 bits
        b"\x21\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x2d\x00\x00\x00\x00",
        b"\x0e", // no wire type
        b"\x0f",
        b"\x7a\x03abc", // an unknown text
        b"\x78\x05",    // an unknown number
    ];

    /// Marsaglia's xorshift: the same numbers on every machine.
    struct Random(u64);

    // === impl Random ===

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn below(&mut self, bound: usize) -> usize {
            usize::try_from(self.next() % bound.max(1) as u64).unwrap()
        }
    }

    #[test]
    fn corpus_file_names_give_the_result() {
        let files = corpus::files("wire");
        for (name, message) in &files {
            let expected = match name.split('-').next().unwrap() {
                "read" => Agreement::Read,
                "left" => Agreement::Left,
                "broken" => Agreement::Broken,
                kind => panic!("{name}: a file is called read-, left- or broken-, not {kind}-"),
            };
            assert_eq!(agree(message), Ok(expected), "{name}");
        }
        assert!(files.len() >= 20, "the corpus is there");
    }

    #[test]
    fn decoders_agree_on_mutations_of_the_corpus() {
        let files = corpus::files("wire");
        let mut random = Random(0x7011_6a7e);
        let mut seen = [0_usize; 3];
        for _ in 0..MUTATIONS {
            let mut message = files[random.below(files.len())].1.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(message.len() + 1);
                match random.below(6) {
                    0 if at < message.len() => message[at] ^= 1 << random.below(8),
                    1 if at < message.len() => message[at] = random.next().to_le_bytes()[0],
                    2 => message.truncate(at),
                    3 => drop(message.drain(at..(at + random.below(4)).min(message.len()))),
                    4 => {
                        let other = &files[random.below(files.len())].1;
                        let from = random.below(other.len() + 1);
                        message.splice(at..at, other[from..].iter().copied());
                    }
                    _ => {
                        let piece = PIECES[random.below(PIECES.len())];
                        message.splice(at..at, piece.iter().copied());
                    }
                }
                message.truncate(1_024);
            }
            match agree(&message) {
                Ok(agreement) => seen[agreement as usize] += 1,
                Err(difference) => panic!("{message:02x?}: {difference}"),
            }
        }
        // Each result must be frequent, or the mutations would test little.
        assert!(seen.iter().all(|seen| *seen > MUTATIONS / 100), "{seen:?}");
    }

    #[test]
    fn decoders_agree_on_every_prefix_and_changed_byte_of_the_corpus() {
        for (name, message) in corpus::files("wire")
            .iter()
            .filter(|(_, message)| message.len() <= 48)
        {
            for to in 0..message.len() {
                agree(&message[..to])
                    .unwrap_or_else(|difference| panic!("{name} to {to}: {difference}"));
                for byte in 0..=u8::MAX {
                    let mut changed = message.clone();
                    changed[to] = byte;
                    agree(&changed)
                        .unwrap_or_else(|difference| panic!("{name} {to} {byte}: {difference}"));
                }
            }
        }
    }

    /// Message bytes that no library writes: any field and wire type, in any order, repeated.
    fn odd_message(depth: u32) -> BoxedStrategy<Vec<u8>> {
        let number = || prop_oneof![8 => 0_u64..6, 1 => any::<u64>(), 1 => 0_u64..(1 << 29)];
        let varint = prop_oneof![3 => 0_u64..200, 1 => any::<u64>()];
        let text = proptest::collection::vec(any::<u8>(), 0..5);
        let inner = if depth == 0 {
            text.boxed()
        } else {
            prop_oneof![1 => text, 6 => odd_message(depth - 1)].boxed()
        };
        let field = prop_oneof![
            6 => (number(), varint).prop_map(|(number, value)| field(number << 3, &coded(value))),
            12 => (number(), inner).prop_map(|(number, value)| {
                let mut bytes = coded(value.len() as u64);
                bytes.extend(value);
                field(number << 3 | 2, &bytes)
            }),
            1 => number().prop_map(|number| field(number << 3 | 1, &[7; 8])),
            1 => number().prop_map(|number| field(number << 3 | 5, &[7; 4])),
            1 => number().prop_map(|number| field(number << 3 | 3, &coded(number << 3 | 4))),
        ];
        proptest::collection::vec(field, 0..5)
            .prop_map(|fields| fields.concat())
            .boxed()
    }

    fn field(key: u64, value: &[u8]) -> Vec<u8> {
        [&coded(key), value].concat()
    }

    fn coded(number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(number, &mut bytes);
        bytes
    }

    fn text() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
    }

    prop_compose! {
        fn limit()(
            requests_per_unit in prop_oneof![0_u32..5, any::<u32>()],
            unit in prop_oneof![-1_i32..9, any::<i32>()],
            unit_multiplier in proptest::option::of(prop_oneof![0_u32..5, any::<u32>()]),
        ) -> RateLimitOverride {
            RateLimitOverride { requests_per_unit, unit, unit_multiplier }
        }
    }

    prop_compose! {
        fn descriptor()(
            entries in proptest::collection::vec(
                (text(), text()).prop_map(|(key, value)| Entry { key, value }), 0..5),
            limit in proptest::option::of(limit()),
            hits_addend in proptest::option::of(prop_oneof![0_u64..5, any::<u64>()]),
            is_negative_hits in any::<bool>(),
        ) -> RateLimitDescriptor {
            RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
        }
    }

    prop_compose! {
        fn ordinary()(
            domain in text(),
            descriptors in proptest::collection::vec(descriptor(), 0..6),
            hits_addend in prop_oneof![0_u32..5, any::<u32>()],
        ) -> RateLimitRequest {
            RateLimitRequest { domain, descriptors, hits_addend }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn messages_of_a_client_are_always_decoded(message in ordinary()) {
            prop_assert_eq!(agree(&message.encode_to_vec()), Ok(Agreement::Read));
        }

        #[test]
        fn unknown_fields_are_skipped(message in ordinary(), number in 5_u64..100, value: u64) {
            let mut bytes = field(number << 3, &coded(value));
            bytes.put(message.encode_to_vec().as_slice());
            bytes.put(field(number << 3 | 2, b"\x03abc").as_slice());
            prop_assert_eq!(agree(&bytes), Ok(Agreement::Read));
        }

        #[test]
        fn decoders_agree_on_odd_messages(message in odd_message(4)) {
            if let Err(difference) = agree(&message) {
                prop_assert!(false, "{:02x?}: {}", message, difference);
            }
        }

        #[test]
        fn decoders_agree_on_any_bytes(message in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Err(difference) = agree(&message) {
                prop_assert!(false, "{:02x?}: {}", message, difference);
            }
        }
    }
}
