//! Silent and unreachable collectors: no decision waits for them, shutdown waits a short time, and
//! lost spans are counted and logged once.

use std::net::TcpListener;

use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::telemetry::RULES;
use crate::telemetry::collector::{Collector, PROTOCOLS, Protocol};

/// Number of decisions, and length of the queue.
const DECISIONS: u64 = 2_000;
const QUEUE: u64 = 64;

fn spans(service: &Tollgate, result: &str) -> u64 {
    service.metric(&format!(
        "tollgate_trace_spans_total{{result=\"{result}\"}}"
    ))
}

fn start(protocol: Protocol, port: u16, timeout_ms: &str) -> Tollgate {
    let endpoint = format!("http://127.0.0.1:{port}");
    let queue = QUEUE.to_string();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.name()),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", timeout_ms),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", queue.as_str()),
        ("TOLLGATE_DRAIN_DELAY", "0s"),
    ];
    Tollgate::start_with(RULES, &[], &variables)
}

/// Sends this many requests; all are answered.
async fn decide(service: &Tollgate, times: u64) {
    let mut client = Service::connect(service.grpc).await;
    let entries = [("a", "b"), ("c", "10.0.0.1"), ("e", "x")];
    for _ in 0..times {
        let asked = request("d", vec![descriptor(&entries)]);
        let answer = client.should_rate_limit(asked).await.unwrap();
        assert_eq!(answer.into_inner().overall_code(), Code::Ok);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_answers_again_is_logged_at_the_level_of_its_failure() {
    for protocol in PROTOCOLS {
        let collector = Collector::start(protocol).await;
        collector.answers(false);
        let service = start(protocol, collector.address.port(), "300");
        for (result, answers) in [("lost", true), ("sent", false)] {
            // On a busy machine a span may be lost though the collector answers.
            until_async(&format!("a span is {result}"), async || {
                decide(&service, 1).await;
                let counted = spans(&service, result) > 0;
                counted.then_some(()).ok_or_else(|| service.said())
            })
            .await;
            collector.answers(answers);
        }
        let again = "WARN tollgate::tracing::queue: spans are sent again";
        until("the recovery is logged", || {
            let said = service.said();
            said.contains(again).then_some(()).ok_or(said)
        });
    }
}

/// Accepts connections in the kernel's queue and never answers.
fn silent() -> (TcpListener, u16) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    (silent, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_collector_delays_nothing_and_is_logged_once() {
    for protocol in PROTOCOLS {
        let (_silent, silent_at) = silent();
        for (port, why) in [(silent_at, "silent"), (reserved_port(), "away")] {
            let mut service = start(protocol, port, "300");
            decide(&service, DECISIONS).await;
            // All spans are abandoned in the end.
            until(&format!("all are abandoned: {protocol:?}, {why}"), || {
                let abandoned = ["dropped", "lost"].map(|result| spans(&service, result));
                let all = abandoned.iter().sum::<u64>() == DECISIONS;
                all.then_some(()).ok_or(abandoned)
            });
            assert_eq!(spans(&service, "sent"), 0, "{protocol:?}, {why}");
            let failure = "cannot send spans; ";
            let said = until("the failure is logged", || {
                let said = service.said();
                let is_logged = said.contains(failure);
                is_logged.then(|| said.clone()).ok_or(said)
            });
            let logged = said.matches(failure).count();
            assert_eq!(logged, 1, "{protocol:?}, {why}: {said}");
            // Some spans still wait at the stop.
            decide(&service, 10).await;
            service.signal("TERM");
            let status = service.wait();
            assert!(status.success());
        }
    }
}

/// A wait for the first export would take ten minutes.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_hangs_holds_up_neither_decisions_nor_the_stop() {
    for protocol in PROTOCOLS {
        let (_silent, port) = silent();
        let mut service = start(protocol, port, "600000");
        decide(&service, DECISIONS).await;
        let ended = ["sent", "lost"].map(|result| spans(&service, result));
        assert_eq!(ended, [0, 0], "{protocol:?}: no export has ended");
        // Of the others, some are in the queue, and some in an export.
        let dropped = spans(&service, "dropped");
        assert!(dropped >= DECISIONS - 4 * QUEUE, "{protocol:?}: {dropped}");
        service.signal("TERM");
        let status = service.wait();
        assert!(status.success(), "{protocol:?}");
    }
}
