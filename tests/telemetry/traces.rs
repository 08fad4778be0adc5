//! Spans of sampled decisions: which there are, and which attributes they have.

use std::fmt::Write as _;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::telemetry::RULES;
use crate::telemetry::collector::{Collector, PROTOCOLS, Protocol, ReceivedSpan};
use tollgate_test_support::grpc_client::{
    Code, Descriptor, RateLimitRequest, RateLimitServiceClient, descriptor, request,
};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::tollgate_process::Tollgate;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A value that a client sends and no span may contain.
const SECRET: &str = "hunter2";

/// Starts a service that sends its spans to the collector without delay.
pub(crate) fn start_traced(
    collector: &Collector,
    protocol: Protocol,
    arguments: &[&str],
    more: &[(&str, &str)],
) -> Tollgate {
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.name()),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("TOLLGATE_DRAIN_DELAY", "0s"),
    ];
    Tollgate::start_with(RULES, arguments, &[&variables, more].concat())
}

/// Sends a request, with this `traceparent` if there is one.
pub(crate) async fn ask(
    service: &Tollgate,
    asked: RateLimitRequest,
    traceparent: Option<&str>,
) -> Result<Code, tonic::Status> {
    let mut client: RateLimitServiceClient<_> = Service::connect(service.grpc).await;
    let mut asked = tonic::Request::new(asked);
    if let Some(said) = traceparent {
        let said = said.parse().unwrap();
        asked.metadata_mut().insert("traceparent", said);
    }
    let answer = client.should_rate_limit(asked).await?;
    Ok(answer.into_inner().overall_code())
}

pub(crate) fn key(value: &str) -> Vec<Descriptor> {
    vec![descriptor(&[("k", value)])]
}

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Stops the service and returns all its spans.
fn stop_and_collect(mut service: Tollgate, collector: &Collector) -> Vec<ReceivedSpan> {
    service.signal("TERM");
    let status = service.wait();
    assert!(status.success(), "{}", service.said());
    assert!(!service.said().contains(SECRET), "{}", service.said());
    collector.spans()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sampled_decision_is_a_span_under_its_callers_and_no_other_is() {
    for protocol in PROTOCOLS {
        let collector = Collector::start(protocol).await;
        let headers = format!("authorization=Bearer%20{SECRET}");
        let variables = [
            ("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "deployment.environment.name=test,service.name=no",
            ),
            ("OTEL_SERVICE_NAME", "no"),
            ("TRACING_SERVICE_NAME", "edge-limits"),
            ("TRACING_SAMPLING_RATE", "0"),
        ];
        let arguments = ["--log-level", "trace"];
        let service = start_traced(&collector, protocol, &arguments, &variables);
        let asked = || request("d", key(SECRET));
        // None of these is: the caller says no, says nothing, or nothing that can be read.
        for not in [
            Some(parent("00")),
            None,
            Some(parent("01").replace('4', "X")),
        ] {
            let code = ask(&service, asked(), not.as_deref()).await;
            assert_eq!(code.unwrap(), Code::Ok);
        }
        let code = ask(&service, asked(), Some(&parent("01"))).await.unwrap();
        assert_eq!(code, Code::OverLimit, "the fourth of three");
        let deep = [("a", "b"), ("c", "10.0.0.1"), ("e", SECRET)];
        let two = vec![descriptor(&deep), descriptor(&[("unknown", SECRET)])];
        let code = ask(&service, request("d", two), Some(&parent("03"))).await;
        assert_eq!(code.unwrap(), Code::Ok);
        let refused = ask(&service, request("", key("x")), Some(&parent("01"))).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::InvalidArgument);

        let spans = stop_and_collect(service, &collector);
        let what = format!("{protocol:?}: {spans:#?}");
        assert_eq!(spans.len(), 3, "{what}");
        assert!(
            !format!(
                "{:?}",
                spans.iter().map(|seen| &seen.span).collect::<Vec<_>>()
            )
            .contains(SECRET),
            "{what}"
        );
        for seen in &spans {
            assert_eq!(hex(&seen.span.trace_id), TRACE, "{what}");
            assert_eq!(hex(&seen.span.parent_span_id), PARENT, "{what}");
            assert_eq!(seen.span.kind(), SpanKind::Server, "{what}");
            assert_eq!(
                seen.span.name,
                "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
            );
            assert!(
                seen.span.end_time_unix_nano >= seen.span.start_time_unix_nano,
                "{what}"
            );
            let bearer = format!("Bearer {SECRET}");
            assert_eq!(seen.authorization.as_deref(), Some(bearer.as_str()));
            assert_eq!(
                seen.resource_attribute("service.name").as_deref(),
                Some("edge-limits")
            );
            assert_eq!(
                seen.resource_attribute("deployment.environment.name")
                    .as_deref(),
                Some("test")
            );
        }
        let says = |span: &ReceivedSpan, name: &str| span.attribute(name).unwrap_or_default();
        let [over, deep, error] = &spans[..] else {
            unreachable!()
        };
        for (name, value) in [
            ("rpc.system.name", "grpc"),
            ("rpc.response.status_code", "OK"),
            ("ratelimit.domain", "d"),
            ("ratelimit.descriptors", "1"),
            ("ratelimit.code", "OVER_LIMIT"),
            ("ratelimit.rules", "d.k"),
            ("ratelimit.rules_over_limit", "d.k"),
        ] {
            assert_eq!(says(over, name), value, "{name}: {what}");
        }
        for (name, value) in [
            ("ratelimit.descriptors", "2"),
            ("ratelimit.code", "OK"),
            ("ratelimit.rules", "d.a_b.c_10.0.0.1.e"),
            ("ratelimit.rules_over_limit", ""),
        ] {
            assert_eq!(says(deep, name), value, "{name}: {what}");
        }
        assert_eq!(says(error, "rpc.response.status_code"), "INVALID_ARGUMENT");
        assert_eq!(says(error, "ratelimit.code"), "");
        // It was the caller's mistake.
        let status = error.span.status.clone().unwrap_or_default();
        assert_eq!(status.code(), StatusCode::Unset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_parent_are_sampled_by_the_sampler() {
    let all = [("OTEL_TRACES_SAMPLER", "parentbased_always_on")];
    let none = [("OTEL_TRACES_SAMPLER", "parentbased_always_off")];
    // The client's sampling flag is ignored here, but its trace ID is used.
    let in_spite = [("OTEL_TRACES_SAMPLER", "always_on")];
    for (variables, expected) in [(all, 2), (none, 0), (in_spite, 3)] {
        let collector = Collector::start(Protocol::Grpc).await;
        let service = start_traced(&collector, Protocol::Grpc, &[], &variables);
        for said in [None, None, Some(parent("00"))] {
            let code = ask(&service, request("d", key("x")), said.as_deref()).await;
            assert_eq!(code.unwrap(), Code::Ok);
        }
        let spans = stop_and_collect(service, &collector);
        assert_eq!(spans.len(), expected, "{variables:?}: {spans:#?}");
        for seen in &spans {
            let of_caller = hex(&seen.span.trace_id) == TRACE;
            assert_eq!(seen.span.parent_span_id.is_empty(), !of_caller);
            assert_eq!(
                seen.resource_attribute("service.name").as_deref(),
                Some("tollgate")
            );
        }
        let mut traces: Vec<_> = spans.iter().map(|seen| &seen.span.trace_id).collect();
        traces.sort_unstable();
        traces.dedup();
        assert_eq!(traces.len(), expected, "each its own");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn span_attributes_are_bounded() {
    // A two-byte character crosses the bound.
    let long = |bytes: usize| format!("x{}", "é".repeat(bytes / 2));
    let keys: Vec<_> = std::iter::once(long(200))
        .chain((0..10).map(|number| format!("k{number}")))
        .collect();
    let limits = keys
        .iter()
        .map(|key| format!("- key: {key}\n  rate_limit: {{ unit: year, requests_per_unit: 1 }}\n"));
    let rules = format!("domain: d\ndescriptors:\n{}", limits.collect::<String>());
    let collector = Collector::start(Protocol::Http).await;
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("TOLLGATE_DRAIN_DELAY", "0s"),
    ];
    let service = Tollgate::start_with(&rules, &[], &variables);
    let all: Vec<_> = keys
        .iter()
        .map(|key| descriptor(&[(key.as_str(), "x")]))
        .collect();
    for code in [Code::Ok, Code::OverLimit] {
        let asked = ask(&service, request("d", all.clone()), None).await;
        assert_eq!(asked.unwrap(), code);
    }
    let elsewhere = request(&long(200), key("x"));
    ask(&service, elsewhere, None).await.unwrap();
    let spans = stop_and_collect(service, &collector);
    let [_, over, elsewhere] = &spans[..] else {
        panic!("{spans:#?}");
    };
    let names = format!("d.{} d.k0 d.k1 d.k2 d.k3 d.k4 d.k5 d.k6", long(124));
    for name in ["ratelimit.rules", "ratelimit.rules_over_limit"] {
        assert_eq!(over.attribute(name).as_ref(), Some(&names), "{name}");
    }
    assert_eq!(
        over.attribute("ratelimit.descriptors").as_deref(),
        Some("11")
    );
    assert_eq!(elsewhere.attribute("ratelimit.domain"), Some(long(126)));
}

#[tokio::test(flavor = "multi_thread")]
async fn json_requests_are_traced() {
    let collector = Collector::start(Protocol::Http).await;
    let none = [("OTEL_TRACES_SAMPLER", "parentbased_always_off")];
    let service = start_traced(&collector, Protocol::Http, &[], &none);
    let body = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"x"}]}]}"#;
    let said = format!("traceparent: {}\r\n", parent("01"));
    let mut stream = std::net::TcpStream::connect(service.http).unwrap();
    let head = format!(
        "POST /json HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{said}content-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = String::new();
    std::io::Write::write_all(&mut stream, (head + body).as_bytes()).unwrap();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let spans = stop_and_collect(service, &collector);
    assert_eq!(spans.len(), 1);
    assert_eq!(hex(&spans[0].span.parent_span_id), PARENT);
}

#[test]
fn tracing_is_off_by_default_and_invalid_settings_do_not_stop_the_service() {
    let quiet = Tollgate::start_with(RULES, &["--log-level", "info"], &[]);
    assert!(
        !quiet.said_at_start().contains("trace"),
        "{}",
        quiet.said_at_start()
    );
    for (name, value, words) in [
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "http/json",
            "use http/protobuf or grpc",
        ),
        (
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
            "/nowhere/ca.pem",
            "/nowhere/ca.pem",
        ),
        ("OTEL_TRACES_EXPORTER", "zipkin", "use otlp or none"),
    ] {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1"),
            (name, value),
        ];
        let service = Tollgate::start_with(RULES, &[], &variables);
        let said = service.said_at_start();
        assert!(
            said.contains("running without traces") && said.contains(words),
            "{name}: {said}"
        );
    }
}

/// Variables that Envoy Gateway sets when `rateLimit.telemetry.tracing` names a collector by its
/// HTTP port.
#[tokio::test(flavor = "multi_thread")]
async fn envoy_gateways_tracing_variables_are_sufficient() {
    let collector = Collector::start(Protocol::Http).await;
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("TRACING_ENABLED", "true"),
        ("TRACING_SERVICE_NAME", "envoy-ratelimit"),
        ("TRACING_SERVICE_NAMESPACE", "envoy-gateway-system"),
        ("TRACING_SERVICE_INSTANCE_ID", "envoy-ratelimit-0"),
        ("TRACING_SAMPLING_RATE", "1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("TOLLGATE_DRAIN_DELAY", "0s"),
    ];
    let service = Tollgate::start_with(RULES, &[], &variables);
    let code = ask(&service, request("d", key("x")), None).await;
    assert_eq!(code.unwrap(), Code::Ok);
    // The batch delay is five seconds; shutdown does not wait for it.
    let spans = stop_and_collect(service, &collector);
    assert_eq!(spans.len(), 1, "{spans:#?}");
    for (name, value) in [
        ("service.name", "envoy-ratelimit"),
        ("service.namespace", "envoy-gateway-system"),
        ("service.instance.id", "envoy-ratelimit-0"),
        ("telemetry.sdk.language", "rust"),
    ] {
        assert_eq!(
            spans[0].resource_attribute(name).as_deref(),
            Some(value),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_has_the_operation_of_a_reservation_and_not_its_id() {
    let rules = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: year, \
                 requests_per_unit: 1000, reserve: {key: id, amount: 400}}\n";
    let collector = Collector::start(Protocol::Http).await;
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("TOLLGATE_DRAIN_DELAY", "0s"),
    ];
    let service = Tollgate::start_with(rules, &[], &variables);
    for hits in [Some(0), Some(700), None] {
        let mut sent = descriptor(&[("k", "x"), ("id", "secret-id")]);
        sent.hits_addend = hits;
        let asked = ask(&service, request("d", vec![sent]), None).await;
        assert_eq!(asked.unwrap(), Code::Ok);
    }
    let spans = stop_and_collect(service, &collector);
    let shown = |span: &ReceivedSpan| {
        let of = |name| span.attribute(name).unwrap_or_default();
        (of("ratelimit.operation"), of("ratelimit.operation.hits"))
    };
    let shown: Vec<_> = spans.iter().map(shown).collect();
    let expected = [("reserve", "400"), ("commit", "700"), ("", "")];
    let expected = expected.map(|(name, hits)| (name.to_owned(), hits.to_owned()));
    assert_eq!(shown, expected);
    assert!(!format!("{spans:?}").contains("secret-id"));
}
