//! Scenarios: rules and requests.
//!
//! How: each scenario warms its service up before the count: buckets exist and tables have grown,
//! so the steady state is measured. Requests are sent in turn.
//!
//! What it deliberately does not do: know the path of a request (`pipeline`).

use std::cell::Ref;

use bytes::Bytes;
use prost::Message as _;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::pipeline::Pipeline;

/// Checks of the warm-up.
const WARM_UP_CHECKS: u32 = 1_024;

/// Number of different requests, in scenarios with several.
const KEYS: usize = 64;

/// Number of streams: one for each start and end of the warm-up and the count, and some more.
const STREAMS: usize = 1_024;

/// A service and its requests.
pub(crate) struct Scenario {
    pipeline: Pipeline,
    requests: Vec<Bytes>,
    next: usize,
}

impl Scenario {
    /// Warms the service up; asserts the `overall_code` of the last answer, its first field.
    fn of(rules: &str, code: u8, requests: Vec<Bytes>) -> Self {
        Self::new(Pipeline::of(rules), code, requests)
    }

    fn new(pipeline: Pipeline, code: u8, requests: Vec<Bytes>) -> Self {
        let mut scenario = Self {
            pipeline,
            requests,
            next: 0,
        };
        for _ in 1..WARM_UP_CHECKS {
            scenario.check();
        }
        // After the frame's header of five bytes.
        assert_eq!(scenario.check()[5..7], [8, code], "the code of the answer");
        scenario
    }

    /// Decides the next request.
    pub(crate) fn check(&mut self) -> Ref<'_, [u8]> {
        let request = &self.requests[self.next];
        self.next = (self.next + 1) % self.requests.len();
        self.pipeline.decide(request)
    }
}

const OK: u8 = 1;
const OVER_LIMIT: u8 = 2;

pub(crate) fn fixed_window() -> Scenario {
    one_rule("unit: year, requests_per_unit: 4294967295", OK)
}

/// A check of tollgate's API, whose message has Envoy's bytes and explicit hits.
pub(crate) fn api_check() -> Scenario {
    let mut pipeline = Pipeline::of(&one_rule_of("unit: year, requests_per_unit: 4294967295"));
    pipeline.is_check = true;
    Scenario::new(pipeline, OK, keys("user"))
}

/// The rule is decided a second time, as a candidate.
pub(crate) fn candidate() -> Scenario {
    let rules = one_rule_of("unit: year, requests_per_unit: 4294967295");
    Scenario::new(Pipeline::with_candidate(&rules, true), OK, keys("user"))
}

pub(crate) fn over_limit() -> Scenario {
    one_rule("unit: year, requests_per_unit: 1", OVER_LIMIT)
}

pub(crate) fn token_bucket() -> Scenario {
    one_rule(
        "unit: year, requests_per_unit: 4294967295, algorithm: token_bucket",
        OK,
    )
}

pub(crate) fn sliding_window() -> Scenario {
    one_rule(
        "unit: year, requests_per_unit: 4294967295, algorithm: sliding_window",
        OK,
    )
}

/// Refused hits are counted and the key stays over its limit: its log is full, which is the
/// long-run cost.
pub(crate) fn sliding_log() -> Scenario {
    one_rule(
        "unit: hour, requests_per_unit: 10, algorithm: sliding_log",
        OVER_LIMIT,
    )
}

/// A limit with a penalty, for users that it has not refused.
pub(crate) fn penalty() -> Scenario {
    one_rule(
        "unit: year, requests_per_unit: 4294967295, penalty: { after: 3, within: 10m, block: 15m }",
        OK,
    )
}

pub(crate) fn four_descriptors() -> Scenario {
    Scenario::of(&four_rules(""), OK, four_keys())
}

/// More checks than a thread decides itself: the workers of both partitions get a batch.
pub(crate) fn sixty_four_descriptors() -> Scenario {
    let rules = one_rule_of("unit: year, requests_per_unit: 4294967295");
    let requests = (0..KEYS).map(|number| {
        let descriptors = (0..64).map(|descriptor| RateLimitDescriptor {
            entries: vec![entry("user", format!("user-{number:04}-{descriptor:04}"))],
            ..Default::default()
        });
        frame(descriptors.collect())
    });
    Scenario::of(&rules, OK, requests.collect())
}

/// Three of the four would pass and are refunded.
pub(crate) fn all_or_nothing() -> Scenario {
    let rules = four_rules("all_or_nothing: true\n");
    let last = "requests_per_unit: 4294967295 }\n";
    let rules = rules.strip_suffix(last).expect("the last rule").to_owned();
    Scenario::of(
        &(rules + "requests_per_unit: 1 }\n"),
        OVER_LIMIT,
        four_keys(),
    )
}

/// A reservation and its end in turn, of streams with an id each.
pub(crate) fn reserve_and_commit() -> Scenario {
    let limit = "unit: year, requests_per_unit: 4294967295";
    let rules = one_rule_of(&format!("{limit}, reserve: {{ key: stream, amount: 800 }}"));
    let streams = 0..STREAMS;
    let requests = streams.flat_map(|stream| [0, 500].map(|hits| step_of(stream, hits)));
    Scenario::of(&rules, OK, requests.collect())
}

pub(crate) fn no_rule_matches() -> Scenario {
    let rules = "domain: bench\ndescriptors:\n  - key: other\n    rate_limit: { unit: year, requests_per_unit: 1 }\n";
    Scenario::of(rules, OK, keys("user"))
}

pub(crate) fn regex() -> Scenario {
    let rules = "domain: bench
descriptors:
  - key: user
    regex: '[a-z]+-[0-9]{4}'
    rate_limit: { unit: year, requests_per_unit: 4294967295 }
  - key: user
    regex: 'visitor-.*'
    rate_limit: { unit: year, requests_per_unit: 1 }
";
    Scenario::of(rules, OK, keys("user"))
}

pub(crate) fn ten_thousand_rules() -> Scenario {
    let rules = (0..10_000).map(|number| {
        format!("  - key: user\n    value: user-{number:04}\n    rate_limit: {{ unit: year, requests_per_unit: 4294967295 }}\n")
    });
    let rules = rules.collect::<String>();
    Scenario::of(
        &format!("domain: bench\ndescriptors:\n{rules}"),
        OK,
        keys("user"),
    )
}

/// One rule for every user.
fn one_rule(limit: &str, code: u8) -> Scenario {
    Scenario::of(&one_rule_of(limit), code, keys("user"))
}

fn one_rule_of(limit: &str) -> String {
    format!("domain: bench\ndescriptors:\n  - key: user\n    rate_limit: {{ {limit} }}\n")
}

fn four_rules(domain: &str) -> String {
    let rules = ["user", "path", "method", "address"].map(|key| {
        format!("  - key: {key}\n    rate_limit: {{ unit: year, requests_per_unit: 4294967295 }}\n")
    });
    format!("domain: bench\n{domain}descriptors:\n{}", rules.concat())
}

fn keys(key: &'static str) -> Vec<Bytes> {
    requests(&[key])
}

fn four_keys() -> Vec<Bytes> {
    requests(&["user", "path", "method", "address"])
}

/// [`KEYS`] requests with a descriptor for each key, all with different values.
fn requests(keys: &[&'static str]) -> Vec<Bytes> {
    let one = |number: usize| {
        let descriptors = keys.iter().map(|key| RateLimitDescriptor {
            entries: vec![entry(key, format!("user-{number:04}"))],
            ..Default::default()
        });
        frame(descriptors.collect())
    };
    (0..KEYS).map(|number| one(number * 131 % 10_000)).collect()
}

/// The start of a stream (0 hits) or its end.
fn step_of(stream: usize, hits: u64) -> Bytes {
    let user = entry("user", format!("user-{:04}", stream % KEYS));
    let id = entry("stream", format!("stream-{stream:04}"));
    frame(vec![RateLimitDescriptor {
        entries: vec![user, id],
        hits_addend: Some(hits),
        ..Default::default()
    }])
}

fn entry(key: &'static str, value: String) -> Entry {
    Entry {
        key: Bytes::from_static(key.as_bytes()),
        value: value.into(),
    }
}

/// The gRPC frame of a request.
fn frame(descriptors: Vec<RateLimitDescriptor>) -> Bytes {
    let message = RateLimitRequest {
        domain: Bytes::from_static(b"bench"),
        descriptors,
        hits_addend: 0,
    };
    let length = u32::try_from(message.encoded_len()).expect("a short message");
    let mut frame = vec![0];
    frame.extend(length.to_be_bytes());
    message.encode(&mut frame).expect("a vector grows");
    Bytes::from(frame)
}
