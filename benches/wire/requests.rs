//! Workloads: rules, and requests encoded in advance.
//!
//! How: a request's frame is encoded once with a mark of eight characters in place of its key, and
//! sent with the key's number there. So ten million different requests take as much memory as one,
//! and sending one costs a copy of a hundred bytes.
//!
//! What it deliberately does not do: send (`generator`, `h2load`).

use std::fmt::Write as _;

use bytes::Bytes;
use prost::Message as _;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_limiter::{Algorithm, AlgorithmOption};

/// First bytes of an answer: field 1 of the message is the overall code.
pub(crate) const OK: u8 = 1;
pub(crate) const OVER_LIMIT: u8 = 2;

/// Placeholder of a key's number.
const MARK: &str = "########";

/// A limit that is never reached.
const WIDE: &str = "unit: year, requests_per_unit: 4294967295";

const DESCRIPTOR_KEYS: [&str; 4] = ["user", "path", "method", "address"];

/// Descriptors in a request that only creates buckets; tollgate accepts 128.
const WARMING_DESCRIPTORS: usize = 100;

/// A kind of request and its rules.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// 1: one rule for all keys; more: a rule for each key.
    pub(crate) rules: u64,
    /// Further rules that match no request.
    pub(crate) idle_rules: u64,
    pub(crate) keys: u64,
    /// At most four.
    pub(crate) descriptors: usize,
    pub(crate) limit: String,
    pub(crate) code: u8,
}

/// Encoded requests that differ in their keys' numbers.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    frame: Vec<u8>,
    /// Positions of the numbers.
    marks: Vec<usize>,
}

impl Workload {
    /// One rule, one descriptor with that many keys, always allowed.
    pub(crate) fn with_keys(keys: u64) -> Self {
        Self {
            rules: 1,
            idle_rules: 0,
            keys,
            descriptors: 1,
            limit: WIDE.to_owned(),
            code: OK,
        }
    }

    pub(crate) fn over_limit(self) -> Self {
        Self {
            limit: "unit: year, requests_per_unit: 1".to_owned(),
            code: OVER_LIMIT,
            ..self
        }
    }

    /// Answers the same requests without a decision.
    pub(crate) fn without_decision(self) -> Self {
        Self {
            limit: "unlimited: true".to_owned(),
            ..self
        }
    }

    /// Uses an algorithm, still always allowed. Algorithms that store single hits forget them
    /// within about a second.
    pub(crate) fn by(self, algorithm: &dyn Algorithm) -> Self {
        let requests = algorithm.facts().requests_max;
        let has = |choice| algorithm.facts().options.contains(&choice);
        let mut limit = format!(
            "requests_per_unit: {requests}, algorithm: {}",
            algorithm.name()
        );
        limit += match (has(AlgorithmOption::Slots), algorithm.facts().has_marks) {
            (true, _) => ", slot_seconds: 1",
            (_, true) => ", unit: second",
            _ => ", unit: year",
        };
        if algorithm.facts().default_burst(requests) != requests {
            let _ = write!(limit, ", burst: {requests}");
        }
        if has(AlgorithmOption::Segments)
            && algorithm
                .facts()
                .variant_for(AlgorithmOption::Segments)
                .is_none()
        {
            limit += ", segments: 6";
        }
        Self { limit, ..self }
    }

    /// The rules file.
    pub(crate) fn rules(&self) -> String {
        let mut rules = "domain: bench\ndescriptors:\n".to_owned();
        for key in &DESCRIPTOR_KEYS[..self.descriptors] {
            for number in 0..self.rules {
                let _ = writeln!(rules, "  - key: {key}");
                if self.rules > 1 {
                    let _ = writeln!(rules, "    value: '{number:08}'");
                }
                let _ = writeln!(rules, "    rate_limit: {{ {} }}", self.limit);
            }
            for number in 0..self.idle_rules {
                let _ = writeln!(rules, "  - key: {key}\n    value: 'idle {number}'");
                let _ = writeln!(rules, "    rate_limit: {{ {} }}", self.limit);
            }
        }
        rules
    }

    /// Template of its requests.
    pub(crate) fn template(&self) -> Template {
        Template::of(&DESCRIPTOR_KEYS[..self.descriptors])
    }

    /// Requests with many keys each, every key at least once, so that every bucket exists
    /// afterwards.
    pub(crate) fn warming(&self) -> impl Iterator<Item = Bytes> {
        let mut templates: Vec<Template> = DESCRIPTOR_KEYS[..self.descriptors]
            .iter()
            .map(|key| Template::of(&[*key; WARMING_DESCRIPTORS]))
            .collect();
        let keys = self.keys;
        let step = WARMING_DESCRIPTORS as u64;
        (0..keys)
            .step_by(WARMING_DESCRIPTORS)
            .flat_map(move |first| {
                let one = |template: &mut Template| {
                    template.frame_with((first..first + step).map(|number| number % keys))
                };
                templates.iter_mut().map(one).collect::<Vec<_>>()
            })
    }
}

/// throttlecrab's message; its limits are per second and never reached.
#[derive(Clone, PartialEq, prost::Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

impl Template {
    /// Template of throttlecrab's requests.
    pub(crate) fn throttle() -> Self {
        let message = ThrottleRequest {
            key: MARK.to_owned(),
            max_burst: 1_000_000,
            count_per_period: 1_000_000,
            period: 1,
            quantity: 1,
        };
        Self::framed(&message.encode_to_vec())
    }

    fn of(keys: &[&'static str]) -> Self {
        let descriptors = keys.iter().map(|key| RateLimitDescriptor {
            entries: vec![Entry {
                key: Bytes::from_static(key.as_bytes()),
                value: Bytes::from_static(MARK.as_bytes()),
            }],
            ..Default::default()
        });
        let message = RateLimitRequest {
            domain: Bytes::from_static(b"bench"),
            descriptors: descriptors.collect(),
            hits_addend: 0,
        };
        Self::framed(&message.encode_to_vec())
    }

    fn framed(message: &[u8]) -> Self {
        let mut frame = vec![0];
        let length = u32::try_from(message.len()).expect("a short message");
        frame.extend(length.to_be_bytes());
        frame.extend(message);
        let windows = frame.windows(MARK.len()).enumerate();
        let marks = windows.filter(|(_, window)| *window == MARK.as_bytes());
        let marks = marks.map(|(at, _)| at).collect();
        Self { frame, marks }
    }

    /// The request for one key, in every descriptor.
    pub(crate) fn frame(&self, number: u64) -> Bytes {
        let mut frame = self.frame.clone();
        for at in &self.marks {
            put(&mut frame[*at..at + MARK.len()], number);
        }
        frame.into()
    }

    fn frame_with(&mut self, numbers: impl Iterator<Item = u64>) -> Bytes {
        for (at, number) in self.marks.iter().zip(numbers) {
            put(&mut self.frame[*at..at + MARK.len()], number);
        }
        Bytes::copy_from_slice(&self.frame)
    }
}

fn put(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}
