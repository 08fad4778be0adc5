//! Random requests: the server answers as tonic's routes do.
//!
//! How: a generator with a fixed seed draws requests of every kind: each algorithm and mode, each
//! way to match, overrides, refunds, deadlines, compression. The clock advances between them. Each
//! set of arguments below has its own calls.
//!
//! What it deliberately does not do: unusual headers, frames and paths (`cases`), or several calls
//! at once (`streams`), where the order of answers is not given.

use std::collections::BTreeMap;

use http::Request;
use prost::Message as _;
use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::grpc_client::{
    Descriptor, RateLimitOverride, RateLimitRequest, descriptor,
};
use tollgate_test_support::in_process::limit_of;

use super::cases::TIMEOUTS;
use super::gzip::gzipped;
use super::raw::{Seen, call, frame};
use super::routes::Pair;
use crate::service::flags;

/// Number of calls for each set of arguments.
const CALLS: usize = 250;

/// Limits are small, so that many calls are refused.
const LIMIT: u64 = 9;

const RULES: &str = "
  - key: quota
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 4 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 4 }
  - key: free
    rate_limit: { unlimited: true }
    metadata: { plan: free }
  - key: closed
    rate_limit: { unit: hour, requests_per_unit: 0 }
  - key: several
    rate_limits:
      - { unit: minute, requests_per_unit: 4, name: tight }
      - { unit: month, calendar: true, time_zone: Europe/Paris, requests_per_unit: 30 }
    over_limit:
      body: 'at most {limit} in {window}, again in {retry_after_seconds} s'
      headers: { content-type: text/plain, x-wait: '{retry_after_seconds}' }
    metadata: { team: shop }
  - key: named
    rate_limit: { unit: day, requests_per_unit: 5, name: other, replaces: [{ name: tight }] }
  - key: slots
    rate_limit: { algorithm: concurrency, requests_per_unit: 3, slot_seconds: 60, holder_key: id }
  - key: address
    cidr: [10.0.0.0/8, '2001:db8::/32']
    ipv6_prefix: 64
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 6 }
  - key: path
    regex: '/v\\d+/.*'
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 20 }
  - key: path
    value: /static/*
    value_to_metric: true
    rate_limit: { unit: hour, requests_per_unit: 8 }
  - key: plan
    values: [free, trial]
    descriptors:
      - key: user
        rate_limit: { unit: minute, requests_per_unit: 4 }
";

/// Keys of the rules, and one without a rule. The keys of algorithms are added to them.
const KEYS: &[&str] = &[
    "quota", "watched", "free", "closed", "several", "named", "slots", "address", "path", "plan",
    "user", "id", "unknown",
];

const VALUES: &[&[u8]] = &[
    b"a",
    b"b",
    b"free",
    b"trial",
    b"10.1.2.3",
    b"2001:db8::1",
    b"/v1/x",
    b"/static/x",
    b"\xff\xfe",
    b"",
];

/// Sets of arguments, one service each.
const ARGUMENTS: &[&str] = &[
    "",
    "--response-headers ietf,x-ratelimit",
    "--limit-response-headers-enabled true",
    "--response-dynamic-metadata true",
    "--overrides false --negative-hits false",
    "--quota-mode true",
    "--shadow-mode true",
    "--all-or-nothing true",
    "--message-size-max 60 --on-excess deny",
    "--message-size-max 60 --on-excess allow",
    "--message-size-max 60 --on-excess error",
    "--descriptors-max 1 --entries-max 1 --on-excess deny",
    "--descriptors-max 1 --entries-max 1 --on-excess allow",
    "--descriptors-max 1 --entries-max 1 --on-excess error",
    "--partitions 1 --mailbox-checks-max 1 --on-overload error",
    "--partitions 1 --mailbox-checks-max 1 --on-overload allow",
    "--partitions 1 --mailbox-checks-max 1 --on-overload deny",
    "--tracing-enabled true --tracing-sampling-rate 0",
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
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// True with probability 1 / `count`.
    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn key(&mut self) -> String {
        if self.one_in(3) {
            (*self.one_of(KEYS)).to_owned()
        } else {
            self.one_of(ALGORITHMS).name().to_owned()
        }
    }

    fn descriptor(&mut self) -> Descriptor {
        let mut entries = vec![(self.key().into_bytes(), self.one_of(VALUES).to_vec())];
        let front = entries[0].0.clone();
        if front == b"plan" {
            entries.push((b"user".to_vec(), self.one_of(VALUES).to_vec()));
        } else if front == b"slots" && !self.one_in(4) {
            entries.push((b"id".to_vec(), self.one_of(VALUES).to_vec()));
        } else if self.one_in(8) {
            entries.push((self.key().into_bytes(), b"x".to_vec()));
        }
        if self.one_in(30) {
            entries.clear();
        }
        let limit = self.one_in(10).then(|| RateLimitOverride {
            requests_per_unit: u32::try_from(self.below(5)).unwrap(),
            unit: i32::try_from(self.below(10)).unwrap() - 1,
            unit_multiplier: [None, Some(0), Some(3)][self.below(3)],
        });
        Descriptor {
            limit,
            hits_addend: [None, None, Some(0), Some(1), Some(3), Some(u64::MAX)][self.below(6)],
            is_negative_hits: self.one_in(10),
            ..descriptor(&entries)
        }
    }

    fn request(&mut self) -> RateLimitRequest {
        let count = [0, 1, 1, 1, 2, 4][self.below(6)];
        let domain: &[u8] =
            [&b"d"[..], b"e", b"", b"\xff"][[0, 0, 0, 0, 0, 0, 1, 2, 3][self.below(9)]];
        RateLimitRequest {
            domain: domain.to_vec().into(),
            descriptors: (0..count).map(|_| self.descriptor()).collect(),
            hits_addend: [0, 0, 1, 2, u32::MAX][self.below(5)],
        }
    }

    /// A call of ShouldRateLimit, a third of them by gzip: its headers and its body.
    fn check(&mut self) -> (Request<()>, Vec<u8>) {
        let message = self.request().encode_to_vec();
        let mut head = call();
        if self.one_in(8) {
            head = head.header("grpc-timeout", self.one_of(TIMEOUTS).0);
        }
        let body = if self.one_in(3) {
            head = head.header("grpc-encoding", "gzip");
            gzipped(&message)
        } else {
            frame(&message)
        };
        (head.body(()).unwrap(), body)
    }
}

fn rules() -> String {
    let of_algorithms = ALGORITHMS.iter().map(|algorithm| {
        let limit = limit_of(LIMIT, *algorithm);
        format!("  - {{key: {}, rate_limit: {limit}}}\n", algorithm.name())
    });
    let of_algorithms: String = of_algorithms.collect();
    format!("domain: d\ndescriptors:{RULES}{of_algorithms}")
}

/// The outcome of an answer in one word.
fn outcome(seen: &Seen) -> String {
    match seen.grpc_status() {
        Some("0") => seen.answer().overall_code().as_str_name().to_owned(),
        status => format!("gRPC {}", status.unwrap_or("none")),
    }
}

#[tokio::test]
async fn every_random_call_is_answered_alike() {
    let mut outcomes = BTreeMap::<String, usize>::new();
    for (number, arguments) in ARGUMENTS.iter().enumerate() {
        let mut random = Random(0x7011_6a7e ^ (number as u64 + 1) << 32);
        let mut pair = Pair::start(&rules(), &flags(arguments)).await;
        for call in 0..CALLS {
            let (head, body) = random.check();
            let name = format!("{arguments}, call {call}: {head:?} {body:02x?}");
            let seen = pair.make(&name, &head, &[body]).await;
            *outcomes.entry(outcome(&seen)).or_default() += 1;
            if random.one_in(6) {
                pair.advance_us(random.next() % 5_000_000);
            }
            if random.one_in(100) {
                pair.advance_us(random.next() % 3_600_000_000);
            }
        }
        pair.compare_counters().await;
    }
    // The calls must have had every kind of outcome.
    let codes = [3, 4, 8, 11, 14].map(|code| format!("gRPC {code}"));
    for expected in ["OK", "OVER_LIMIT"]
        .into_iter()
        .chain(codes.iter().map(String::as_str))
    {
        let count = outcomes.get(expected).copied().unwrap_or_default();
        assert!(count >= 5, "{expected}: {outcomes:?}");
    }
}
