//! Silent and unreachable collectors: no decision waits for them, shutdown waits a short time, and
//! lost spans are counted and logged once.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::RULES;
use crate::collector::{Collector, PROTOCOLS};

/// Number of decisions, and length of the queue.
const DECISIONS: u64 = 2_000;
const QUEUE: u64 = 64;

/// Longest shutdown: two seconds for the last batch, and slack for a busy machine.
const STOP_TIMEOUT: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_answers_again_is_logged_at_the_level_of_its_failure() {
    for protocol in PROTOCOLS {
        let collector = Collector::start(protocol).await;
        collector.answers(false);
        let endpoint = format!("http://{}", collector.address);
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.name()),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "300"),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ];
        let service = Tollgate::start_with(RULES, &[], &variables);
        let mut client = Service::connect(service.grpc).await;
        let asked = request("d", vec![descriptor(&[("a", "b")])]);
        for (result, answers) in [("lost", true), ("sent", false)] {
            client.should_rate_limit(asked.clone()).await.unwrap();
            let series = format!("tollgate_trace_spans_total{{result=\"{result}\"}}");
            let counted = wait_for(PATIENCE, || (service.metric(&series) > 0).then_some(()));
            assert!(counted.is_some(), "{result}: {}", service.said());
            collector.answers(answers);
        }
        let again = "WARN tollgate::tracing::queue: spans are sent again";
        let recovered = wait_for(PATIENCE, || service.said().contains(again).then_some(()));
        assert!(recovered.is_some(), "{}", service.said());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::disallowed_methods)] // the duration is under test
async fn an_unreachable_collector_delays_nothing_and_is_logged_once() {
    for protocol in PROTOCOLS {
        // Accepts connections in the kernel's queue and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent_at = silent.local_addr().unwrap().port();
        for (port, why) in [(silent_at, "silent"), (reserved_port(), "away")] {
            let endpoint = format!("http://127.0.0.1:{port}");
            let queue = QUEUE.to_string();
            let variables = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.name()),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "300"),
                ("OTEL_BSP_SCHEDULE_DELAY", "20"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", queue.as_str()),
                ("TOLLGATE_DRAIN_DELAY", "0s"),
            ];
            let mut service = Tollgate::start_with(RULES, &[], &variables);
            let mut client = Service::connect(service.grpc).await;
            let asked = request(
                "d",
                vec![descriptor(&[("a", "b"), ("c", "10.0.0.1"), ("e", "x")])],
            );
            let mut longest = Duration::ZERO;
            for _ in 0..DECISIONS {
                let began = Instant::now();
                let answer = client.should_rate_limit(asked.clone()).await.unwrap();
                longest = longest.max(began.elapsed());
                assert_eq!(answer.into_inner().overall_code(), Code::Ok);
            }
            let spans = |result: &str| {
                service.metric(&format!(
                    "tollgate_trace_spans_total{{result=\"{result}\"}}"
                ))
            };
            // All spans are abandoned in the end.
            let all = wait_for(PATIENCE, || {
                (spans("dropped") + spans("lost") == DECISIONS).then_some(())
            });
            let what = format!(
                "{protocol:?}, {why}: {} dropped, {} lost",
                spans("dropped"),
                spans("lost")
            );
            assert!(all.is_some(), "{what}");
            assert_eq!(spans("sent"), 0, "{what}");
            if why == "silent" {
                assert!(spans("dropped") >= DECISIONS - 20 * QUEUE, "{what}");
                // Less than the export timeout, so no decision waited for it.
                assert!(longest < Duration::from_millis(300), "{longest:?}, {what}");
            }
            let said = service.said();
            assert_eq!(
                said.matches("cannot send spans; ").count(),
                1,
                "{what}: {said}"
            );
            assert_eq!(said.matches("WARN").count(), 1, "{what}: {said}");
            // Some spans still wait at shutdown.
            for _ in 0..10 {
                client.should_rate_limit(asked.clone()).await.unwrap();
            }
            service.signal("TERM");
            let began = Instant::now();
            let status = service.wait(PATIENCE).expect("it ends");
            assert!(status.success());
            assert!(
                began.elapsed() < STOP_TIMEOUT,
                "{:?}, {what}",
                began.elapsed()
            );
        }
        drop(silent);
    }
}
