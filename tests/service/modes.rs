//! Flags of rules and modes of the service over gRPC: quotas, shadow mode, shared patterns, labels,
//! metadata.
//!
//! Each mode is switched on like an operator does it, and one request is compared with its response
//! and the metrics. `walks/modes.txt` has tables of codes.
//!
//! What it deliberately does not do: headers (`answers`), limits on labels (`labels`).

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::{Value as Json, json};
use tollgate_test_support::grpc_client::{Descriptor, RateLimitRequest, descriptor, hits, request};
use tollgate_test_support::in_process::Service;

use crate::service::override_of;

/// The labels of the only rule that was hit, as `domain key1 key2`.
fn labels_hit(service: &Service) -> Vec<String> {
    let text = service.metrics.render().unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("ratelimit_service_rate_limit_total_hits{domain=\""))
        .filter(|line| !line.ends_with(" 0"));
    let mut labels: Vec<_> = lines
        .map(|line| {
            let (domain, rest) = line.split_once("\",key1=\"").unwrap();
            let (key1, rest) = rest.split_once("\",key2=\"").unwrap();
            format!("{domain} {key1} {}", rest.split_once('"').unwrap().0)
        })
        .collect();
    labels.sort();
    labels
}

/// Labels of a metric, for two levels: the reference's own test vectors, and similar cases. Levels
/// of the rule (`KEY=PATTERN:FLAGS`), the request's values, and the labels. Flags are `d` for
/// `detailed_metric`, `v` for `value_to_metric` and `s` for `share_threshold`.
const LABELLED: &[(&str, &str, &str)] = &[
    ("key-1:d", "value-1", "key-1_value-1 "),
    ("key-1", "value-1", "key-1 "),
    ("key-1=value-1", "value-1", "key-1_value-1 "),
    ("k:d", "", "k_ "),
    ("k:v", "", "k "),
    ("k1 k2:d", ";B", "k1_ k2_B"),
    // For a shared level the reference omits the underscore.
    ("route=api/*:s k:d", "api/v1;", "route_api/* k"),
    // Unless the request names the pattern itself.
    ("ip=v*:s path=*:d", "v1;", "ip_v* path"),
    ("ip=v*:s path=*:d", "v*;", "ip_v* path_"),
    (
        "route:v http_method:v subject_id",
        "draw;GET;7",
        "route_draw http_method_GET",
    ),
    ("k1:v k2", "A;B", "k1_A k2"),
    ("k1 k2:v k3", "X;Y;Z", "k1 k2_Y"),
    ("route=api/*:sv method", "api/v1;GET", "route_api/* method"),
    ("route=api/* method", "api/v1;GET", "route_api/* method"),
    ("route=api/*:v method", "api/v1;GET", "route_api/v1 method"),
    (
        "route=api/*:s method:d",
        "api/v1;GET",
        "route_api/* method_GET",
    ),
    // detailed_metric applies to its own limit only.
    ("k1:d k2", "A;B", "k1 k2"),
    // As the reference's statsd names are cleaned: colons and bars, and the dots of an address.
    ("k:d", "a:b|c.d", "k_a_b_c.d "),
    ("ip:d", "10.0.0.1", "ip_10_0_0_1 "),
];

/// A rule of these levels, whose last one has the limit, and its keys.
fn nested(levels: &str) -> (String, Vec<&str>) {
    let mut inner = "rate_limit: {unit: day, requests_per_unit: 9}".to_owned();
    let mut keys = Vec::new();
    for level in levels.split(' ').rev() {
        let (level, flags) = level.split_once(':').unwrap_or((level, ""));
        let (key, mut fields) = match level.split_once('=') {
            Some((key, value)) => (key, format!("key: {key}, value: '{value}'")),
            None => (level, format!("key: {level}")),
        };
        for flag in flags.chars() {
            fields += match flag {
                'd' => ", detailed_metric: true",
                'v' => ", value_to_metric: true",
                _ => ", share_threshold: true",
            };
        }
        inner = format!("descriptors: [{{{fields}, {inner}}}]");
        keys.insert(0, key);
    }
    (format!("domain: d\n{inner}\n"), keys)
}

#[tokio::test]
async fn labels_are_the_references() {
    for (levels, values, labels) in LABELLED {
        let (rules, keys) = nested(levels);
        let mut service = Service::start(&rules, &[]).await;
        let entries: Vec<_> = keys.into_iter().zip(values.split(';')).collect();
        service.status("d", descriptor(&entries)).await;
        assert_eq!(labels_hit(&service), [format!("d {labels}")], "{levels}");
    }
}

#[tokio::test]
async fn an_empty_value_is_counted_under_the_label_of_its_own_rule() {
    let rules = "
domain: d
descriptors:
  - key: k
    value_to_metric: true
    rate_limit: { unit: day, requests_per_unit: 9 }
    descriptors:
      - key: l
        detailed_metric: true
        rate_limit: { unit: day, requests_per_unit: 9 }
";
    let mut service = Service::start(rules, &[]).await;
    service.status("d", descriptor(&[("k", "")])).await;
    service
        .status("d", descriptor(&[("k", ""), ("l", "")]))
        .await;
    assert_eq!(labels_hit(&service), ["d k ", "d k_ l_"]);
}

const METADATA: &str = "
domain: d
descriptors:
  - key: a
    metadata: { tier: gold, both: { a: 1, x: [1, two, ~, true] }, kept: a }
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: b
    metadata: { tier: silver, both: { b: 2.5, x: other }, kept: { deep: b }, only: b }
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: plain
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: detailed
    detailed_metric: true
    metadata: { still: here }
    rate_limit: { unit: minute, requests_per_unit: 5 }
";

/// A `Struct` value as JSON.
fn json_of(value: &Value) -> Json {
    match value.kind.as_ref().expect("a value") {
        Kind::NullValue(_) => Json::Null,
        Kind::BoolValue(truth) => json!(truth),
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::ListValue(list) => list.values.iter().map(json_of).collect(),
        Kind::StructValue(fields) => json_of_struct(fields),
    }
}

fn json_of_struct(fields: &Struct) -> Json {
    let fields = fields.fields.iter();
    Json::Object(
        fields
            .map(|(name, value)| (name.clone(), json_of(value)))
            .collect(),
    )
}

/// The dynamic metadata of an answer.
async fn metadata(service: &mut Service, asked: RateLimitRequest) -> Json {
    let answer = service.ask(asked).await;
    json_of_struct(&answer.dynamic_metadata.expect("it is switched on"))
}

const WITH_METADATA: &[&str] = &["--response-dynamic-metadata", "true"];

#[tokio::test]
async fn metadata_is_off_by_default() {
    let mut service = Service::start(METADATA, &[]).await;
    let answer = service.ask(request("d", vec![hits("a", "x", 1)])).await;
    assert_eq!(answer.dynamic_metadata, None);
}

#[tokio::test]
async fn metadata_repeats_the_request() {
    let mut service = Service::start(METADATA, WITH_METADATA).await;
    let limited = Descriptor {
        limit: override_of(7, 3),
        hits_addend: Some(2),
        ..descriptor(&[("k", "v"), ("l", "")])
    };
    let asked = RateLimitRequest {
        hits_addend: 3,
        ..request(
            "d",
            vec![
                limited,
                descriptor(&[(b"\xff".as_slice(), b"x".as_slice())]),
            ],
        )
    };
    assert_eq!(
        metadata(&mut service, asked).await,
        json!({
            "domain": "d",
            "hitsAddend": 3.0,
            "descriptors": [
                { "entries": ["k=v", "l="], "limit": "requests_per_unit:7 unit:HOUR", "hitsAddend": 2.0 },
                { "entries": ["\u{fffd}=x"] },
            ],
        })
    );
    // An unknown domain as well.
    let asked = request("elsewhere", vec![descriptor(&[("k", "v")])]);
    assert_eq!(
        metadata(&mut service, asked).await,
        json!({ "domain": "elsewhere", "descriptors": [{ "entries": ["k=v"] }] })
    );
}

#[tokio::test]
async fn metadata_of_several_rules_is_merged_and_the_first_wins() {
    let mut service = Service::start(METADATA, WITH_METADATA).await;
    let both = || {
        request(
            "d",
            vec![hits("a", "x", 1), hits("plain", "x", 1), hits("b", "x", 1)],
        )
    };
    let reversed = || request("d", vec![hits("b", "x", 1), hits("a", "x", 1)]);
    let ab = json!({
        "tier": "gold",
        "both": { "a": 1.0, "b": 2.5, "x": [1.0, "two", null, true] },
        "kept": "a",
        "only": "b",
    });
    let ba = json!({
        "tier": "silver",
        "both": { "a": 1.0, "b": 2.5, "x": "other" },
        "kept": { "deep": "b" },
        "only": "b",
    });
    // Repeated in both orders: a merge never changes the configuration.
    for _ in 0..2 {
        assert_eq!(metadata(&mut service, both()).await["metadata"], ab);
        assert_eq!(metadata(&mut service, reversed()).await["metadata"], ba);
    }
    let alone = metadata(&mut service, request("d", vec![hits("a", "y", 1)])).await;
    assert_eq!(
        alone["metadata"],
        json!({ "tier": "gold", "both": { "a": 1.0, "x": [1.0, "two", null, true] }, "kept": "a" })
    );
}

#[tokio::test]
async fn only_passing_rules_add_metadata() {
    let mut service = Service::start(METADATA, WITH_METADATA).await;
    let asked = request("d", vec![hits("a", "x", 6), hits("b", "x", 1)]);
    assert_eq!(
        metadata(&mut service, asked).await["metadata"]["tier"],
        "silver"
    );
    let asked = request("d", vec![hits("a", "x", 1)]);
    assert_eq!(metadata(&mut service, asked).await.get("metadata"), None);
    // The reference omits the metadata of a rule with detailed_metric.
    let asked = request("d", vec![hits("detailed", "x", 1)]);
    assert_eq!(
        metadata(&mut service, asked).await["metadata"],
        json!({ "still": "here" })
    );
}
