//! The decision log as OpenTelemetry log records, and the bound of traces a second.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use serde_json::Value as Json;
use tollgate_test_support::grpc_client::request;
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::tollgate_process::Tollgate;

use crate::telemetry::collector::{Collector, PROTOCOLS, Protocol};
use crate::telemetry::traces::{ask, key, start_traced};

const WRITTEN: &str = "tollgate_decision_log_written_total";

fn skipped(service: &Tollgate, reason: &str) -> u64 {
    service.metric(&format!(
        "tollgate_decision_log_skipped_total{{reason=\"{reason}\"}}"
    ))
}

async fn exhaust(service: &Tollgate, requests: usize) {
    for _ in 0..requests {
        ask(service, request("d", key("x")), None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chosen_decisions_are_log_records_of_the_collector() {
    for protocol in PROTOCOLS {
        let collector = Collector::start(protocol).await;
        let log = ["--decision-log", "otlp", "--decision-log-values", "plain"];
        let off = [("TRACING_ENABLED", "false")];
        let service = start_traced(&collector, protocol, &log, &off);
        // Three pass.
        exhaust(&service, 5).await;
        let records = collector.wait_for_logs(2);
        assert_eq!(records.len(), 2, "{protocol:?}");
        for record in &records {
            let body = record.body.clone().and_then(|body| body.value);
            let Some(Value::StringValue(body)) = body else {
                panic!("{body:?}");
            };
            let body: Json = serde_json::from_str(&body).expect(&body);
            assert_eq!(body["verdict"], "OVER_LIMIT");
            assert_eq!(body["descriptors"][0]["entries"][0]["value"], "x");
            assert!(record.time_unix_nano > 0);
            assert_eq!(record.severity_text, "INFO");
        }
        until("both are counted", || service.metric(WRITTEN) == 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_does_not_answer_costs_records_and_no_decision() {
    let collector = Collector::start(Protocol::Http).await;
    collector.answers(false);
    let variables = [
        ("TRACING_ENABLED", "false"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "200"),
    ];
    let log = ["--decision-log", "otlp"];
    let service = start_traced(&collector, Protocol::Http, &log, &variables);
    exhaust(&service, 23).await;
    until("all are counted", || {
        let skipped = skipped(&service, "write_failed");
        (skipped == 20).then_some(()).ok_or(skipped)
    });
    assert_eq!(service.metric(WRITTEN), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_a_second_are_bounded_and_the_others_are_counted() {
    let collector = Collector::start(Protocol::Http).await;
    let bound = ["--traces-per-second-max", "2"];
    let service = start_traced(&collector, Protocol::Http, &bound, &[]);
    // A busy machine may need more requests until three come in a second.
    let mut sent = 0;
    let skipped = until_async("a trace is skipped", async || {
        exhaust(&service, 10).await;
        sent += 10;
        let skipped = service.metric("tollgate_traces_skipped_total");
        (skipped > 0).then_some(skipped)
    })
    .await;
    let traced = sent - usize::try_from(skipped).unwrap();
    let spans = collector.wait_for_spans(traced);
    assert_eq!(spans.len(), traced);
    let mut began: Vec<_> = spans
        .iter()
        .map(|seen| seen.span.start_time_unix_nano)
        .collect();
    began.sort_unstable();
    for (first, third) in began.iter().zip(began.iter().skip(2)) {
        assert!(third - first >= 1_000_000_000, "{began:?}");
    }
}
