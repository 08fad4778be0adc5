//! Tests of the simulation.

use prost::Message as _;
use tollgate_limiter::{Code, Timestamp};

use super::Simulation;
use crate::pipeline::Config;
use tollgate_rules::file::Options;
use tollgate_rules::path::Source;
use tollgate_rules::reload::load_overlaid;
use tollgate_wire::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use tollgate_wire::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

const RULES: &str = "\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 2}
";

fn request(user: &str) -> Vec<u8> {
    let entry = Entry {
        key: "user".into(),
        value: user.to_owned().into(),
    };
    RateLimitRequest {
        domain: "edge".into(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 1,
    }
    .encode_to_vec()
}

fn simulation() -> Simulation {
    let start = Timestamp::from_us(1_700_000_000_000_000);
    let mut simulation = Simulation::new(Config::default(), 1 << 20, start).expect("simulation");
    let source = Source {
        name: "rules.yaml".into(),
        text: RULES.into(),
    };
    let rules = load_overlaid(&[source], None, Options::default()).expect("rules");
    simulation.set_rules(rules);
    simulation
}

#[test]
fn a_day_passes_when_the_clock_is_set() {
    let mut simulation = simulation();
    let mut codes = Vec::new();
    for after_hours in [0, 0, 0, 24] {
        let later = simulation.now().plus_us(after_hours * 3_600_000_000);
        simulation.set_time(later);
        let answer = simulation.decide(&request("ada")).expect("answer");
        assert_eq!(answer.checks[0].rule, Some(0));
        let response = RateLimitResponse::decode(&*answer.message).expect("response");
        assert_eq!(response.statuses.len(), 1);
        codes.push(answer.code.expect("code"));
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit, Code::Ok]);
}

#[test]
fn a_reset_makes_a_bucket_new() {
    let mut simulation = simulation();
    for _ in 0..3 {
        simulation.decide(&request("ada")).expect("answer");
    }
    let entries = [("user".to_owned(), "ada".to_owned())];
    let resets = simulation.reset("edge", &entries).expect("reset");
    assert!(resets[0].existed);
    let answer = simulation.decide(&request("ada")).expect("answer");
    assert_eq!(answer.code, Ok(Code::Ok));
}
