//! Flags of rules and modes of the service over gRPC: quotas, shadow mode, shared patterns, labels,
//! metadata.
//!
//! Each mode is switched on like an operator does it, and one request is compared with its response
//! and the metrics. Tables of overall codes are in `tests/laws`.
//!
//! What it deliberately does not do: headers (`answers`), limits on labels (`labels`).

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::{Value as Json, json};
use tollgate_test_support::grpc_client::{
    Code, Descriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse, descriptor, hits,
    request,
};
use tollgate_test_support::in_process::Service;

use crate::flags;

const RULES: &str = "
domain: d
descriptors:
  - key: rule
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
";

/// Overall code and the codes of all statuses, `o` for OK and `X` for over limit.
fn codes(answer: &RateLimitResponse) -> String {
    let letter = |code| if code == Code::Ok { 'o' } else { 'X' };
    let statuses = answer.statuses.iter().map(|status| letter(status.code()));
    std::iter::once(letter(answer.overall_code()))
        .chain([' '])
        .chain(statuses)
        .collect()
}

/// One hit is within each limit above, two are over.
async fn asked(service: &mut Service, descriptors: &[(&str, u64)], value: &str) -> String {
    let descriptors = descriptors
        .iter()
        .map(|(key, count)| hits(key, value, *count));
    let answer = service.ask(request("d", descriptors.collect())).await;
    codes(&answer)
}

#[tokio::test]
async fn quotas_refuse_only_when_all_of_them_do() {
    let mut service = Service::start(RULES, &[]).await;
    for (number, (descriptors, expected)) in [
        (&[("quota", 1)][..], "o o"),
        (&[("quota", 2)], "X X"),
        (&[("quota", 2), ("quota", 1)], "X XX"), // the same bucket, exhausted by the first
        (&[("quota", 2), ("free", 9)], "X Xo"),  // unlimited takes no part
        (&[("quota", 2), ("rule", 1)], "X Xo"),
        (&[("quota", 2), ("nothing", 1)], "X Xo"),
        (&[("quota", 1), ("rule", 2)], "X oX"),
        (&[("quota", 1), ("watched", 2)], "o oo"),
    ]
    .into_iter()
    .enumerate()
    {
        let value = number.to_string();
        assert_eq!(
            asked(&mut service, descriptors, &value).await,
            expected,
            "{descriptors:?}"
        );
    }
    // Two quotas, one of which has hits left.
    let answer = service
        .ask(request(
            "d",
            vec![hits("quota", "a", 2), hits("quota", "b", 1)],
        ))
        .await;
    assert_eq!(codes(&answer), "o Xo");
}

#[tokio::test]
async fn the_services_quota_mode_applies_to_all_including_unmatched_descriptors() {
    let mut service = Service::start(RULES, &["--quota-mode", "true"]).await;
    for (number, (descriptors, expected)) in [
        (&[("rule", 2)][..], "X X"),
        (&[("rule", 2), ("quota", 1)], "o Xo"),
        (&[("rule", 2), ("nothing", 1)], "o Xo"),
        (&[("rule", 2), ("free", 1)], "X Xo"),
        (&[("rule", 2), ("quota", 2)], "X XX"),
    ]
    .into_iter()
    .enumerate()
    {
        let value = number.to_string();
        assert_eq!(
            asked(&mut service, descriptors, &value).await,
            expected,
            "{descriptors:?}"
        );
    }
}

#[tokio::test]
async fn the_services_shadow_mode_allows_and_reports_the_real_codes() {
    let arguments = flags("--shadow-mode true --limit-response-headers-enabled true");
    let mut service = Service::start(RULES, &arguments).await;
    let answer = service.ask(request("d", vec![hits("rule", "a", 2)])).await;
    assert_eq!(codes(&answer), "o X");
    assert_eq!(answer.statuses[0].limit_remaining, 0);
    let headers: Vec<_> = answer
        .response_headers_to_add
        .iter()
        .map(|header| header.value.as_str())
        .collect();
    assert_eq!(headers, ["1", "0", "50"]);
    assert_eq!(service.metric("ratelimit_service_global_shadow_mode"), 1);
    let series = |name: &str| {
        format!("ratelimit_service_rate_limit_{name}{{domain=\"d\",key1=\"rule\",key2=\"\"}}")
    };
    assert_eq!(service.metric(&series("over_limit")), 1);
    assert_eq!(
        service.metric(&series("shadow_mode")),
        0,
        "that is for rules in shadow mode"
    );
    assert_eq!(service.metric("tollgate_decisions_total{code=\"ok\"}"), 1);
    // Requests that pass anyway are not counted.
    assert_eq!(asked(&mut service, &[("rule", 1)], "b").await, "o o");
    assert_eq!(service.metric("ratelimit_service_global_shadow_mode"), 1);
}

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

#[tokio::test]
async fn values_that_match_a_shared_pattern_share_one_bucket_and_one_label() {
    let rules = "
domain: d
descriptors:
  - { key: files, value: 'shared/*', share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: files, value: 'own/*', rate_limit: { unit: minute, requests_per_unit: 3 } }
";
    let mut service = Service::start(rules, &[]).await;
    for (value, left) in [
        ("shared/a", 2),
        ("shared/b", 1),
        ("shared/*", 0), // the pattern itself is an exact match, and the same bucket
        ("own/a", 2),
        ("own/b", 2),
        ("own/*", 2),
    ] {
        let status = service.status("d", hits("files", value, 1)).await;
        assert_eq!(
            (status.code(), status.limit_remaining),
            (Code::Ok, left),
            "{value}"
        );
    }
    assert_eq!(
        service
            .status("d", hits("files", "shared/c", 1))
            .await
            .code(),
        Code::OverLimit
    );
    assert_eq!(
        labels_hit(&service),
        ["d files_own/* ", "d files_shared/* "]
    );
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
        let (key, value) = level.split_once('=').unwrap_or((level, ""));
        let mut fields = format!("key: {key}");
        if !value.is_empty() {
            fields += &format!(", value: '{value}'");
        }
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
        limit: Some(RateLimitOverride {
            requests_per_unit: 7,
            unit: 3,
            unit_multiplier: None,
        }),
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
