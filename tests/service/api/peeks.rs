//! A peek says what a check of the same descriptors and hits then answers.

use serde_json::{Value, json};
use tollgate::proto::kuadrant::service::ratelimit::v1::rate_limit_service_client::RateLimitServiceClient;
use tollgate_test_support::grpc_client::{Code, Descriptor, channel, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::seeded_rng::SeededRng;

use super::{Connection, has};

const RULES: &str = "
domain: d
descriptors:
  - {key: window, rate_limit: {unit: hour, requests_per_unit: 30}}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 30, algorithm: sliding_log}}
  - {key: debt, rate_limit: {unit: hour, requests_per_unit: 30, algorithm: token_bucket, count_refused: all}}
  - {key: dear, rate_limit: {unit: hour, requests_per_unit: 30, algorithm: leaky_bucket, burst: 30, cost: 1.5}}
  - {key: slots, rate_limit: {algorithm: concurrency, requests_per_unit: 30, slot_seconds: 3600, holder_key: id}}
  - key: user
    descriptors:
      - {key: read, rate_limit: &money {unit: hour, requests_per_unit: 30, cost: 0.3, budget: spend}}
      - {key: written, rate_limit: {<<: *money, cost: 1.2}}
";

const KINDS: [&[&str]; 7] = [
    &["window"],
    &["log"],
    &["debt"],
    &["dear"],
    &["slots", "id"],
    &["user", "read"],
    &["user", "written"],
];

/// Some descriptors, among which buckets come several times, and their hits.
fn drawn(chance: &mut SeededRng) -> Vec<(Descriptor, u64)> {
    let descriptors = 0..chance.between(1, 5);
    let descriptors = descriptors.map(|_| {
        let value = chance.pick(&["a", "b"]);
        let keys = chance.pick(&KINDS).iter();
        let entries: Vec<_> = keys.map(|key| (*key, value)).collect();
        let hits = chance.between(0, 12);
        let mut descriptor = descriptor(&entries);
        descriptor.hits_addend = Some(hits);
        (descriptor, hits)
    });
    descriptors.collect()
}

fn body(asked: &[(Descriptor, u64)]) -> String {
    let descriptors = asked.iter().map(|(descriptor, hits)| {
        let entries = descriptor.entries.iter();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let entries =
            entries.map(|entry| json!({"key": text(&entry.key), "value": text(&entry.value)}));
        json!({"entries": entries.collect::<Vec<_>>(), "hits": hits})
    });
    json!({"domain": "d", "descriptors": descriptors.collect::<Vec<_>>()}).to_string()
}

/// The verdicts of an answer: that of the whole, and that of each limit.
fn verdicts(answer: &Value) -> (String, Vec<String>) {
    let text = |one: &Value| one["verdict"].as_str().unwrap().to_owned();
    let limits = answer["limits"].as_array().unwrap();
    (text(answer), limits.iter().map(text).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peek_adds_up_what_one_request_takes_from_a_bucket() {
    let service = Service::start(RULES, &[]).await;
    let mut kuadrant = RateLimitServiceClient::new(channel(service.grpc).await);
    let mut connection = Connection::open(service.http);
    let mut chance = SeededRng::of_seed(1);
    let mut refused = 0;
    for case in 0..300 {
        service.clock.advance_us(chance.below(900_000_000));
        let asked = drawn(&mut chance);
        let body = body(&asked);
        let mut post = |call| connection.post(call, body.as_bytes());
        let (status, peek) = post("peek");
        assert_eq!(status, 200);
        let descriptors = asked.iter().map(|(descriptor, _)| descriptor.clone());
        let looked = request("d", descriptors.collect());
        let looked = kuadrant.check_rate_limit(looked).await.unwrap();
        let passes = looked.into_inner().overall_code() == Code::Ok;
        let (status, check) = post("check");
        assert_eq!(verdicts(&peek), verdicts(&check), "case {case}: {body}");
        assert_eq!(passes, status == 200, "case {case}: {body}");
        refused += u32::from(!passes);
    }
    assert!((50..250).contains(&refused), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peek_of_the_same_descriptor_twice_wants_both() {
    let service = Service::start(RULES, &[]).await;
    let twice = [("window", 20), ("window", 11), ("log", 30)];
    let asked = twice.map(|(key, hits)| (descriptor(&[(key, "v")]), hits));
    let mut connection = Connection::open(service.http);
    let (_, answer) = connection.post("peek", body(&asked).as_bytes());
    has(&answer, json!({"verdict": "OVER_LIMIT", "remaining": 30}));
    let (_, limits) = verdicts(&answer);
    assert_eq!(limits, ["OK", "OVER_LIMIT", "OK"]);
}
