//! Counters as a statsd server receives them: over UDP and TCP, under the reference's names, and
//! across an outage of the server.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

use tollgate_test_support::grpc_client::{Code, descriptor, hits, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::telemetry::RULES;

/// Sum of each received counter.
#[derive(Clone, Default)]
struct ReceivedCounters(Arc<Mutex<BTreeMap<String, u64>>>);

// === impl ReceivedCounters ===

impl ReceivedCounters {
    fn line(&self, line: &str) {
        let (name, rest) = line.split_once(':').expect(line);
        let (value, kind) = rest.split_once('|').expect(line);
        let value: u64 = value.parse().expect(line);
        assert!(
            !name.contains(['|', '@', ' ']) && name.contains(".__zone=eu"),
            "{line}"
        );
        match kind {
            "c" => {
                assert!(value > 0, "unchanged counters are not sent: {line}");
                *self.0.lock().unwrap().entry(name.to_owned()).or_default() += value;
            }
            "g" => {}
            _ => panic!("{line}"),
        }
    }

    /// Reads a stream to its end.
    fn stream(&self, stream: TcpStream) {
        let heard = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                heard.line(&line);
            }
        });
    }

    fn sum(&self, name: &str) -> u64 {
        let heard = self.0.lock().unwrap();
        heard
            .get(&format!("{name}.__env=test.__zone=eu"))
            .copied()
            .unwrap_or_default()
    }

    fn wait_for(&self, name: &str, sum: u64) {
        until(&format!("{name} is {sum}"), || {
            let counters = self.0.lock().unwrap().clone();
            (self.sum(name) >= sum).then_some(()).ok_or(counters)
        });
        assert_eq!(self.sum(name), sum, "{name}");
    }
}

fn start_with_statsd(protocol: &str, port: u16, interval: &str) -> Tollgate {
    let port = port.to_string();
    let variables = [
        ("USE_STATSD", "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", port.as_str()),
        ("STATSD_PROTOCOL", protocol),
        ("EXTRA_TAGS", "zone:eu,env:test"),
        ("STATS_FLUSH_INTERVAL", interval),
        ("TOLLGATE_DRAIN_DELAY", "0s"),
    ];
    Tollgate::start_with(RULES, &[], &variables)
}

const FAILED: &str = "tollgate_statsd_flushes_total{result=\"failed\"}";
const KEY_COUNTER: &str = "ratelimit.service.rate_limit.d.k";
const DEEP_COUNTER: &str = "ratelimit.service.rate_limit.d.a_b.c_10_0_0_1.e";

/// Sends three allowed requests and two over the limit, and one for a rule three levels deep.
async fn ask(service: &Tollgate) {
    let mut client = Service::connect(service.grpc).await;
    for expected in [
        Code::Ok,
        Code::Ok,
        Code::Ok,
        Code::OverLimit,
        Code::OverLimit,
    ] {
        let asked = request("d", vec![descriptor(&[("k", "x")])]);
        let answer = client.should_rate_limit(asked).await.unwrap();
        assert_eq!(answer.into_inner().overall_code(), expected);
    }
    let deep = [("a", "b"), ("c", "10.0.0.1"), ("e", "x")];
    let asked = request("d", vec![descriptor(&deep)]);
    client.should_rate_limit(asked).await.unwrap();
    let asked = request("nobody.knows", vec![hits("k", "x", 1)]);
    client.should_rate_limit(asked).await.unwrap();
}

fn assert_all_received(heard: &ReceivedCounters) {
    for (name, sum) in [
        ("total_hits", 5),
        ("within_limit", 3),
        ("over_limit", 2),
        ("near_limit", 1),
    ] {
        heard.wait_for(&format!("{KEY_COUNTER}.{name}"), sum);
    }
    heard.wait_for(&format!("{DEEP_COUNTER}.total_hits"), 1);
    heard.wait_for(
        "ratelimit.service.rate_limit.nobody.knows.domain_not_found",
        1,
    );
    heard.wait_for("ratelimit.service.config_load_success", 1);
    heard.wait_for("ratelimit_server.ShouldRateLimit.total_requests", 7);
    heard.wait_for("tollgate.decisions_total.over_limit", 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_sent_by_udp_under_the_references_names() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    // Sent once, at the stop: the socket's buffer holds that, so that no datagram is lost.
    let mut service = start_with_statsd("udp", port, "1h");
    ask(&service).await;
    // Prometheus has the same counter, with two levels.
    let series =
        "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"a_b\",key2=\"c_10_0_0_1\"}";
    assert_eq!(service.metric(series), 1);
    service.signal("TERM");
    assert!(service.wait().success());
    let heard = ReceivedCounters::default();
    let mut datagram = vec![0; 65_536];
    socket.set_nonblocking(true).unwrap();
    while let Ok(bytes) = socket.recv(&mut datagram) {
        assert!(bytes <= 1_432, "{bytes}");
        let text = std::str::from_utf8(&datagram[..bytes]).unwrap();
        text.lines().for_each(|line| heard.line(line));
    }
    assert_all_received(&heard);
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_sent_by_tcp_and_catch_up_after_an_outage() {
    // Bound twice, so no other process gets it in between.
    let port = reserved_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut service = start_with_statsd("tcp", port, "50ms");
    let heard = ReceivedCounters::default();
    let (stream, _) = listener.accept().unwrap();
    heard.stream(stream.try_clone().unwrap());
    ask(&service).await;
    assert_all_received(&heard);
    // The server stops: decisions continue, and one warning is logged.
    drop(listener);
    stream.shutdown(Shutdown::Both).unwrap();
    drop(stream);
    until("three flushes fail", || service.metric(FAILED) >= 3);
    ask_again(&service, 40).await;
    the_failure_is_logged_once(&service);
    assert_eq!(
        heard.sum(&format!("{DEEP_COUNTER}.total_hits")),
        1,
        "nobody heard"
    );
    // The server is back and receives the sum of all changes.
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let (stream, _) = listener.accept().unwrap();
    heard.stream(stream);
    heard.wait_for(&format!("{DEEP_COUNTER}.total_hits"), 41);
    let again = "WARN tollgate::statsd: statsd is reachable again";
    until("the recovery is logged", || {
        let said = service.said();
        said.contains(again).then_some(()).ok_or(said)
    });
    assert_eq!(service.metric("tollgate_statsd_lines_lost_total"), 0);
    // The last changes are flushed at shutdown.
    ask_again(&service, 9).await;
    service.signal("TERM");
    assert!(service.wait().success());
    heard.wait_for(&format!("{DEEP_COUNTER}.total_hits"), 50);
}

fn the_failure_is_logged_once(service: &Tollgate) {
    let said = until("the failure is logged", || {
        let said = service.said();
        let is_logged = said.contains("cannot send to statsd");
        is_logged.then(|| said.clone()).ok_or(said)
    });
    assert_eq!(said.matches("cannot send to statsd").count(), 1, "{said}");
}

async fn ask_again(service: &Tollgate, times: usize) {
    let mut client = Service::connect(service.grpc).await;
    for _ in 0..times {
        let deep = [("a", "b"), ("c", "10.0.0.1"), ("e", "x")];
        let asked = request("d", vec![descriptor(&deep)]);
        let answer = client.should_rate_limit(asked).await.unwrap();
        assert_eq!(answer.into_inner().overall_code(), Code::Ok);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_statsd_server_delays_neither_decisions_nor_shutdown() {
    let mut service = start_with_statsd("tcp", reserved_port(), "50ms");
    ask(&service).await;
    until("three flushes fail", || service.metric(FAILED) >= 3);
    the_failure_is_logged_once(&service);
    service.signal("TERM");
    assert!(service.wait().success());
}
