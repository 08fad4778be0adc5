//! Random requests: the server answers as tonic's routes do.
//!
//! How: a generator with a fixed seed draws whole calls, from their path and headers to the frames
//! of their body, of every kind that `tests/service` sends: each algorithm and mode, each way to
//! match, overrides, refunds, deadlines, compression, broken messages, health and reflection. The
//! clock advances between them. Each set of arguments below has its own calls.
//!
//! What it deliberately does not do: several calls at once (`streams`), where the order of answers
//! is not given.

use std::collections::BTreeMap;

use http::Request;
use prost::Message as _;
use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::grpc_client::{
    Code, Descriptor, RateLimitOverride, RateLimitRequest, descriptor,
};
use tollgate_test_support::in_process::limit_of;
use tonic_health::pb::HealthCheckRequest;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::cases::TIMEOUTS;
use super::gzip::gzipped;
use super::raw::{PATH, Seen, call, frame};
use super::routes::Pair;

/// Number of calls for each set of arguments.
const CALLS: usize = 400;

/// Limits are small, so that many calls are refused.
const LIMIT: u32 = 9;

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
const ARGUMENTS: &[&[&str]] = &[
    &[],
    &["--response-headers", "ietf,x-ratelimit"],
    &["--limit-response-headers-enabled", "true"],
    &["--response-dynamic-metadata", "true"],
    &["--overrides", "false", "--negative-hits", "false"],
    &["--quota-mode", "true"],
    &["--shadow-mode", "true"],
    &["--all-or-nothing", "true"],
    &["--message-size-max", "60", "--on-excess", "deny"],
    &["--message-size-max", "60", "--on-excess", "allow"],
    &["--message-size-max", "60", "--on-excess", "error"],
    &[
        "--descriptors-max",
        "1",
        "--entries-max",
        "1",
        "--on-excess",
        "deny",
    ],
    &[
        "--descriptors-max",
        "1",
        "--entries-max",
        "1",
        "--on-excess",
        "allow",
    ],
    &[
        "--descriptors-max",
        "1",
        "--entries-max",
        "1",
        "--on-excess",
        "error",
    ],
    &[
        "--partitions",
        "1",
        "--mailbox-checks-max",
        "1",
        "--on-overload",
        "error",
    ],
    &[
        "--partitions",
        "1",
        "--mailbox-checks-max",
        "1",
        "--on-overload",
        "allow",
    ],
    &[
        "--partitions",
        "1",
        "--mailbox-checks-max",
        "1",
        "--on-overload",
        "deny",
    ],
    &["--tracing-enabled", "true", "--tracing-sampling-rate", "0"],
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

    /// A gRPC body with this message, usually valid.
    fn body(&mut self, message: &[u8], compressed: bool) -> Vec<u8> {
        let mut message = message.to_vec();
        match self.below(20) {
            // An unknown group, an unknown number, and random bytes.
            0 => message.extend_from_slice(b"\x4b\x08\x01\x4c"),
            1 => message.extend_from_slice(b"\x78\x05"),
            2 => {
                let at = self.below(message.len().max(1));
                if let Some(byte) = message.get_mut(at) {
                    *byte = self.next().to_le_bytes()[0];
                }
            }
            3 => message.truncate(self.below(message.len() + 1)),
            _ => {}
        }
        let mut body = if compressed {
            gzipped(&message)
        } else {
            frame(&message)
        };
        match self.below(40) {
            0 => body.truncate(self.below(body.len() + 1)),
            1 => body.push(0),
            2 => body[0] = self.next().to_le_bytes()[0],
            3 => body.extend_from_within(..),
            4 => body.clear(),
            _ => {}
        }
        body
    }

    /// The body as DATA frames.
    fn frames(&mut self, mut body: &[u8]) -> Vec<Vec<u8>> {
        if self.one_in(30) {
            return Vec::new();
        }
        let mut frames = Vec::new();
        while self.one_in(3) {
            let (front, rest) = body.split_at(self.below(body.len() + 1));
            frames.push(front.to_vec());
            body = rest;
        }
        frames.push(body.to_vec());
        frames
    }

    /// A call of ShouldRateLimit: its headers and its DATA frames.
    fn check(&mut self) -> (Request<()>, Vec<Vec<u8>>) {
        let mut head = call();
        let compressed = self.one_in(10);
        if compressed || self.one_in(30) {
            let encoding = *self.one_of(&["gzip", "gzip", "gzip", "identity", "deflate"]);
            head = head.header("grpc-encoding", encoding);
        }
        if self.one_in(8) {
            head = head.header("grpc-timeout", self.one_of(TIMEOUTS).0);
        }
        if self.one_in(10) {
            let flags = self.one_of(&["00", "01", "x"]);
            let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
            head = head.header("traceparent", parent);
        }
        if self.one_in(10) {
            head = head.header("x-request-id", *self.one_of(VALUES));
        }
        if self.one_in(20) {
            let ways = ["gzip", "identity", "gzip,identity", "none"];
            head = head.header("grpc-accept-encoding", *self.one_of(&ways));
        }
        let message = self.request().encode_to_vec();
        let body = self.body(&message, compressed);
        (head.body(()).unwrap(), self.frames(&body))
    }

    /// A call of another method, or of an unknown path.
    fn other(&mut self) -> (Request<()>, Vec<Vec<u8>>) {
        let health = HealthCheckRequest {
            service: (*self.one_of(&["", "ratelimit", "other"])).to_owned(),
        };
        let symbol = MessageRequest::FileContainingSymbol(
            (*self.one_of(&["envoy.service.ratelimit.v3.RateLimitService", "no.such"])).to_owned(),
        );
        let asked = [MessageRequest::ListServices(String::new()), symbol][self.below(2)].clone();
        let reflection = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(asked),
        };
        let (path, message) = match self.below(5) {
            0 | 1 => ("/grpc.health.v1.Health/Check", health.encode_to_vec()),
            2 => {
                let version = ["v1", "v1alpha"][self.below(2)];
                let path = match version {
                    "v1" => "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                    _ => "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                };
                (path, reflection.encode_to_vec())
            }
            3 => ("/no.such.Service/Call", self.request().encode_to_vec()),
            _ => {
                let paths = ["/", "/x", "/grpc.health.v1.Health/Chec"];
                (*self.one_of(&paths), health.encode_to_vec())
            }
        };
        let method = *self.one_of(&["POST", "POST", "POST", "PUT"]);
        let kinds = ["application/grpc", "application/grpc+proto", "text/plain"];
        let head = Request::builder()
            .method(method)
            .uri(format!("http://test{path}"))
            .header("content-type", *self.one_of(&kinds));
        (head.body(()).unwrap(), self.frames(&frame(&message)))
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
fn outcome(seen: &Seen, head: &Request<()>) -> String {
    if seen.grpc_status() == Some("0") && head.uri().path() == PATH {
        let overall = seen.answer().overall_code();
        return (if overall == Code::Ok {
            "OK"
        } else {
            "OVER_LIMIT"
        })
        .to_owned();
    }
    format!("gRPC {}", seen.grpc_status().unwrap_or("none"))
}

#[tokio::test]
async fn every_random_call_is_answered_alike() {
    let mut outcomes = BTreeMap::<String, usize>::new();
    for (number, arguments) in ARGUMENTS.iter().enumerate() {
        let mut random = Random(0x7011_6a7e ^ (number as u64 + 1) << 32);
        let mut pair = Pair::start(&rules(), arguments).await;
        for call in 0..CALLS {
            let (head, body) = if random.one_in(15) {
                random.other()
            } else {
                random.check()
            };
            let name = format!("{arguments:?}, call {call}: {head:?} {body:02x?}");
            let seen = pair.make(&name, &head, &body).await;
            *outcomes.entry(outcome(&seen, &head)).or_default() += 1;
            if random.one_in(6) {
                pair.advance_us(random.next() % 5_000_000);
            }
            if random.one_in(100) {
                pair.advance_us(random.next() % 3_600_000_000);
            }
        }
        pair.compare_counters();
    }
    // The calls must have had every kind of outcome.
    for expected in [
        "OK",
        "OVER_LIMIT",
        "gRPC 3",
        "gRPC 4",
        "gRPC 5",
        "gRPC 8",
        "gRPC 12",
        "gRPC 13",
        "gRPC 14",
    ] {
        let count = outcomes.get(expected).copied().unwrap_or_default();
        assert!(count >= 5, "{expected}: {outcomes:?}");
    }
}
