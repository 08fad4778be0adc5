//! Reports decoded in turns are what prost decodes at once.

use prost::Message as _;
use tollgate_test_support::seeded_rng::SeededRng;

use super::*;
use tollgate_wire::proto::envoy::service::rate_limit_quota::v3::bucket_id::BucketEntry;
use tollgate_wire::proto::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage,
};

type Pairs = Vec<(Bytes, Bytes)>;

/// A domain, and what was used of each id.
type Read = (Bytes, Vec<(Pairs, u64, u64)>);

/// As the service reads it, in turns of this many fields.
fn in_turns(message: &[u8], turn: usize) -> Result<Read, MalformedReport> {
    let mut report = WaitingReport::read(Bytes::copy_from_slice(message))?;
    let mut usages = Vec::new();
    while !report.is_over() {
        usages.extend(report.next_usages(turn)?);
    }
    let usages = usages.into_iter();
    let usages = usages.map(|used| (used.id, used.usage.allowed, used.usage.denied));
    Ok((report.domain, usages.collect()))
}

/// As prost reads it.
fn at_once(message: &[u8]) -> Option<Read> {
    let report = RateLimitQuotaUsageReports::decode(message).ok()?;
    let usages = report.bucket_quota_usages.into_iter().map(|usage| {
        let pairs = usage.bucket_id.unwrap_or_default().bucket.into_iter();
        let pairs: Pairs = pairs
            .take(PAIRS_MAX)
            .map(|pair| (pair.key, pair.value))
            .collect();
        (pairs, usage.num_requests_allowed, usage.num_requests_denied)
    });
    let with_id = usages.filter(|(pairs, ..)| !pairs.is_empty());
    Some((report.domain, with_id.collect()))
}

fn some_bytes(random: &mut SeededRng) -> Bytes {
    let length = random.position(4) * random.position(50);
    (0..length).map(|_| random.pick(b"abc\xff\0")).collect()
}

fn some_usage(random: &mut SeededRng) -> BucketQuotaUsage {
    let pairs = random.pick(&[0, 1, 1, 2, 70]);
    let pairs = (0..pairs).map(|_| BucketEntry {
        key: some_bytes(random),
        value: some_bytes(random),
    });
    let bucket: Vec<_> = pairs.collect();
    BucketQuotaUsage {
        bucket_id: (!random.once_in(5)).then_some(BucketId { bucket }),
        time_elapsed: random.once_in(2).then_some(prost_types::Duration {
            seconds: 5,
            nanos: -1,
        }),
        num_requests_allowed: random.pick(&[0, 1, 300, u64::MAX]),
        num_requests_denied: random.pick(&[0, 1, 300, u64::MAX]),
    }
}

/// A report, with what clients may write otherwise: the domain at the end or twice, parts of a
/// usage twice, unknown fields.
fn some_report(random: &mut SeededRng) -> Vec<u8> {
    let mut message = Vec::new();
    for _ in 0..random.position(6) {
        let usage = some_usage(random);
        let mut bytes = usage.encode_to_vec();
        if random.once_in(4) {
            bytes.extend(some_usage(random).encode_to_vec());
        }
        if random.once_in(4) {
            bytes.extend([0xa0, 0x06, 1]); // field 100
        }
        prost::encoding::bytes::encode(2, &bytes, &mut message);
        if random.once_in(3) {
            prost::encoding::bytes::encode(1, &some_bytes(random), &mut message);
        }
    }
    prost::encoding::bytes::encode(1, &some_bytes(random), &mut message);
    message
}

#[test]
fn reports_agree_with_prost() {
    let mut random = SeededRng::of_seed(7);
    let (mut merged, mut malformed) = (0, 0);
    for number in 0..4_000 {
        let mut message = some_report(&mut random);
        if random.once_in(2) && !message.is_empty() {
            let at = random.position(message.len());
            // No wire type of a group.
            let byte = random.pick(&[0x00, 0x05, 0x0a, 0x12, 0x1a, 0x7f]);
            message[at] = byte;
        }
        let expected = at_once(&message);
        for turn in [1, 3, usize::MAX] {
            let read = in_turns(&message, turn).ok();
            assert_eq!(read, expected, "{number}, turn {turn}: {message:x?}");
        }
        malformed += usize::from(expected.is_none());
        merged += usize::from(expected.is_some_and(|(_, usages)| usages.len() > 2));
    }
    assert!(merged > 500 && malformed > 200, "{merged}, {malformed}");
}

#[test]
fn a_usage_after_a_malformed_one_is_not_read() {
    let mut random = SeededRng::of_seed(8);
    let good = RateLimitQuotaUsageReports {
        domain: Bytes::from_static(b"edge"),
        bucket_quota_usages: vec![some_usage(&mut random); 2],
    };
    let mut message = good.encode_to_vec();
    prost::encoding::bytes::encode(2, &vec![0x08, 0x01], &mut message);
    message.extend(good.encode_to_vec());
    let mut report = WaitingReport::read(message.into()).unwrap();
    assert_eq!(report.domain, "edge");
    // The domain is a field too.
    assert!(report.next_usages(3).is_ok());
    assert_eq!(report.next_usages(3).err(), Some(MalformedReport));
}
