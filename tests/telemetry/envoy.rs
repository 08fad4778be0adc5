//! Real Envoy with tracing: a decision's span is a child of Envoy's span of the rate limit call.

use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_client::http;

use crate::telemetry::collector::{Collector, Protocol};
use crate::telemetry::traces::start_traced;

/// Bootstrap of an Envoy that traces every request with OpenTelemetry; names in @ signs are
/// replaced.
const BOOTSTRAP: &str = include_str!("envoy.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn decision_spans_are_children_of_envoys_rate_limit_spans() {
    let collector = Collector::start(Protocol::Grpc).await;
    // Only requests with a parent are sampled.
    let none = [("OTEL_TRACES_SAMPLER", "parentbased_always_off")];
    let service = start_traced(&collector, Protocol::Grpc, &[], &none);
    let directory = tempfile::tempdir().unwrap();
    let backend = directory.path().join("backend.sock");
    let bootstrap = BOOTSTRAP
        .replace("@BACKEND@", backend.to_str().unwrap())
        .replace("@COLLECTOR@", &collector.address.port().to_string())
        .replace("@SERVICE@", &service.grpc.port().to_string());
    let envoy = Envoy::start(&bootstrap);
    let (status, body) = http(envoy.edge, "GET", "/", "");
    assert_eq!(status, 200, "{body}");
    // Two spans of Envoy, for the request and the rate limit call, and one of tollgate.
    let spans = collector.wait_for_spans(3);
    let of = |service: &str| {
        let name = Some(service.to_owned());
        spans
            .iter()
            .filter(move |seen| seen.resource_attribute("service.name") == name)
    };
    let ours: Vec<_> = of("tollgate").collect();
    assert_eq!(ours.len(), 1, "{spans:#?}");
    let ours = &ours[0].span;
    let question = of("envoy").find(|seen| seen.span.span_id == ours.parent_span_id);
    let question = &question
        .unwrap_or_else(|| panic!("no parent: {spans:#?}"))
        .span;
    assert_eq!(question.trace_id, ours.trace_id);
    let edge = of("envoy").find(|seen| seen.span.span_id == question.parent_span_id);
    assert!(edge.is_some(), "{spans:#?}");
}
