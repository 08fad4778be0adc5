//! Last spans at shutdown: each is counted once, and the counts reach statsd.
//!
//! How: the test decides when the collector answers, and the tracer runs in the test's process,
//! where its counters can still be read after shutdown.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::Arc;

use tollgate::metrics::{CallMethod, Metrics};
use tollgate::settings::{EnvironmentVariables, OTEL_VARIABLES};
use tollgate::tracing::{RequestOutcome, Traces};
use tollgate_limiter::Request;
use tollgate_test_support::grpc_client::request;
use tollgate_test_support::in_process::{START, settings};
use tollgate_test_support::polling::PATIENCE;

use crate::telemetry::collector::{Collector, PROTOCOLS, Protocol};
use crate::telemetry::traces::{ask, key, start_traced};

/// Spans that wait at shutdown, and the size of a batch.
const SPANS: usize = 5;
const BATCH: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn a_span_being_sent_at_shutdown_is_counted_once() {
    let stops = PROTOCOLS.map(|protocol| tokio::spawn(stopped_in_mid_export(protocol)));
    for stop in stops {
        stop.await.unwrap();
    }
}

async fn stopped_in_mid_export(protocol: Protocol) {
    let collector = Collector::start(protocol).await;
    collector.answers(false);
    let endpoint = format!("http://{}", collector.address);
    let mut settings = settings(&[]).tracing;
    settings.otel = EnvironmentVariables::read(OTEL_VARIABLES, |name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
        "OTEL_EXPORTER_OTLP_PROTOCOL" => Some(protocol.name().to_owned()),
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" => Some(BATCH.to_string()),
        _ => None,
    });
    let export = settings.trace_export().unwrap().expect("traces");
    let metrics = Metrics::new().unwrap();
    let traces = Arc::new(Traces::new(&export, &metrics).unwrap());
    let end_one = || {
        let asked = Request::new(b"d");
        let span = traces
            .begin(None, CallMethod::Check, &asked, || START)
            .expect("all are traced");
        traces.end(span, RequestOutcome::Error("INTERNAL"), START);
    };
    let counted = || {
        let traces = &metrics.traces;
        [traces.sent.get(), traces.lost.get(), traces.dropped.get()]
    };
    for _ in 0..SPANS {
        end_one();
    }
    tokio::task::block_in_place(|| collector.wait_for_spans(BATCH));
    assert_eq!(counted(), [0, 0, 0], "{protocol:?}: all are on their way");
    Arc::clone(&traces).stop().await;
    let given_up = [0, SPANS as u64, 0];
    assert_eq!(counted(), given_up, "{protocol:?}");
    collector.answers(true);
    // A second stop waits for the exporter thread, which has then sent all spans.
    Arc::clone(&traces).stop().await;
    assert_eq!(collector.spans().len(), SPANS, "{protocol:?}");
    assert_eq!(counted(), given_up, "{protocol:?}");
    // A span that ends after shutdown is dropped.
    end_one();
    assert_eq!(counted(), [0, SPANS as u64, 1], "{protocol:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_the_last_spans_reach_statsd() {
    let protocol = Protocol::Http;
    let collector = Collector::start(protocol).await;
    let statsd = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = statsd.local_addr().unwrap().port().to_string();
    // Neither spans nor counters are sent before shutdown.
    let variables = [
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", port.as_str()),
        ("STATS_FLUSH_INTERVAL", "1h"),
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
    ];
    let mut service = start_traced(&collector, protocol, &[], &variables);
    for _ in 0..3 {
        ask(&service, request("d", key("x")), None).await.unwrap();
    }
    service.signal("TERM");
    assert!(service.wait().success());
    let (mut told, _) = statsd.accept().unwrap();
    told.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = String::new();
    told.read_to_string(&mut lines).unwrap();
    assert!(
        lines.contains("tollgate.trace_spans_total.sent:3|c\n"),
        "{lines}"
    );
    assert_eq!(collector.spans().len(), 3);
}
