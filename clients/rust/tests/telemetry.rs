//! Spans and metrics, in the exporters of the OpenTelemetry SDK that keep them in memory.
//!
//! Providers are global, so these tests are a binary of their own.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]
#![cfg(feature = "otel")]

mod support;

use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status};
use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, HistogramDataPoint, MetricData, ScopeMetrics, SumDataPoint,
};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use support::{Reply, ScriptedServer, tollgate};
use tollgate_limits::{Client, Code, Descriptor};

#[tokio::test(flavor = "multi_thread")]
async fn spans_and_metrics() {
    let spans = InMemorySpanExporter::default();
    let tracers = SdkTracerProvider::builder()
        .with_simple_exporter(spans.clone())
        .build();
    global::set_tracer_provider(tracers.clone());
    let metrics = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(metrics.clone()).build();
    let meters = SdkMeterProvider::builder().with_reader(reader).build();
    global::set_meter_provider(meters.clone());

    let server = ScriptedServer::start().await;
    let client = Client::builder("edge")
        .address(server.address.to_string())
        .deadline(Duration::from_secs(10))
        .build()
        .expect("a client");
    let secret = Descriptor::new([("user", "a-secret-value")]);
    server.then(vec![
        Reply::Check(tollgate::CheckResponse {
            verdict: 1,
            ..Default::default()
        }),
        Reply::Check(tollgate::CheckResponse {
            verdict: 2,
            ..Default::default()
        }),
        Reply::error(Code::Internal),
        Reply::Reserve(tollgate::ReserveResponse {
            verdict: 1,
            reservation: "r-1".to_owned(),
            ..Default::default()
        }),
        Reply::Settle(tollgate::SettleResponse::default()),
    ]);
    client.check(secret.clone()).await.expect("a decision");
    client.check(secret.clone()).await.expect("a decision");
    client
        .check(Descriptor::new([("user", "another")]))
        .await
        .expect("a decision");
    let reservation = client.reserve(secret).await.expect("a reservation");
    reservation.commit(1).await.expect("committed");
    client.close().await;

    tracers.force_flush().expect("flush");
    meters.force_flush().expect("flush");
    let spans = spans.get_finished_spans().expect("spans");
    let names: Vec<_> = spans.iter().map(|span| span.name.to_string()).collect();
    let check = "tollgate.check";
    assert_eq!(
        names,
        [check, check, check, "tollgate.reserve", "tollgate.commit"]
    );
    let has = |span: usize, key: &'static str, value: &'static str| {
        spans[span].attributes.contains(&KeyValue::new(key, value))
    };
    for (index, span) in spans.iter().enumerate() {
        assert_eq!(span.span_kind, SpanKind::Client);
        assert!(has(index, "tollgate.domain", "edge"));
        assert_eq!(matches!(span.status, Status::Error { .. }), index == 2);
    }
    assert!(has(0, "tollgate.verdict", "ok") && has(0, "tollgate.source", "server"));
    assert!(has(1, "tollgate.verdict", "over_limit"));
    assert!(has(2, "tollgate.source", "allow"));
    assert!(!format!("{spans:?}").contains("a-secret-value"));

    let metrics = metrics.get_finished_metrics().expect("metrics");
    let mut decisions = 0;
    let mut checks = 0;
    let last = metrics.last().expect("metrics");
    for metric in last.scope_metrics().flat_map(ScopeMetrics::metrics) {
        match (metric.name(), metric.data()) {
            ("tollgate.client.decisions", AggregatedMetrics::U64(MetricData::Sum(sum))) => {
                decisions = sum.data_points().map(SumDataPoint::value).sum();
            }
            ("tollgate.client.duration", AggregatedMetrics::F64(MetricData::Histogram(times))) => {
                checks = times.data_points().map(HistogramDataPoint::count).sum();
                assert_eq!(metric.unit(), "s");
            }
            other => panic!("unknown metric {other:?}"),
        }
    }
    assert_eq!((decisions, checks), (4, 3));
}
