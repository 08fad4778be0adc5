//! Shutdown: in order, in time, and at once on a second signal.

use std::time::{Duration, Instant};

use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

const RULES: &str =
    "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 5}}]}";

/// Longest shutdown with default settings.
const STOP_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn sigterm_and_sigint_stop_it_in_time_with_success() {
    for name in ["TERM", "INT"] {
        let mut running = Tollgate::start(RULES, &[]);
        // An idle connection must not delay it.
        let idle = std::net::TcpStream::connect(running.grpc).unwrap();
        running.signal(name);
        let status = running.wait(STOP_WITHIN).expect("it stops in time");
        assert_eq!(status.code(), Some(0), "{name}");
        drop(idle);
    }
}

#[test]
fn readiness_ends_at_once_and_requests_are_answered_for_the_drain_delay() {
    let mut running = Tollgate::start(RULES, &["--drain-delay", "30s"]);
    assert_eq!(http(running.http, "GET", "/healthcheck", "").0, 200);
    running.signal("TERM");
    let unready = wait_for(PATIENCE, || {
        (http(running.http, "GET", "/healthcheck", "").0 == 500).then_some(())
    });
    assert!(unready.is_some());
    let asked = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    assert_eq!(http(running.http, "POST", "/json", asked).0, 200);
    assert_eq!(http(running.http, "GET", "/livez", "").0, 200);
    assert!(running.running());
}

#[test]
#[allow(clippy::disallowed_methods)] // how long a stop takes is the point
fn a_second_signal_stops_it_at_once() {
    let mut running = Tollgate::start(RULES, &["--drain-delay", "10m"]);
    running.signal("TERM");
    let unready = wait_for(PATIENCE, || {
        (http(running.http, "GET", "/readyz", "").0 == 500).then_some(())
    });
    assert!(unready.is_some());
    let asked = Instant::now();
    running.signal("INT");
    let status = running.wait(PATIENCE).expect("it stops");
    assert_eq!(status.code(), Some(0));
    // Not a measure of speed: without the second signal it would take ten minutes.
    assert!(asked.elapsed() < PATIENCE);
}

#[test]
fn ports_open_at_once_and_readiness_waits_for_rules() {
    // The rules file is a pipe: reading blocks until something is written.
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("rules.yaml");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let (grpc, port) = (reserved_port().to_string(), reserved_port());
    let child = std::process::Command::new(tollgate_binary())
        .arg("serve")
        .arg(&pipe)
        .args(["--grpc-host", "127.0.0.1", "--grpc-port", &grpc])
        .args([
            "--host",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--debug-port",
            "0",
        ])
        .env_clear()
        .stderr(std::process::Stdio::null())
        .spawn_tied()
        .unwrap();
    let _child = crate::commands::KillOnDrop(child);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    wait_for(PATIENCE, || std::net::TcpStream::connect(address).ok()).expect("an open port");
    assert_eq!(http(address, "GET", "/readyz", ""), (500, String::new()));
    assert_eq!(http(address, "GET", "/livez", "").0, 200);
    let asked = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    assert_eq!(http(address, "POST", "/json", asked).0, 503);
    std::fs::write(&pipe, RULES).unwrap();
    let ready = wait_for(PATIENCE, || {
        (http(address, "GET", "/readyz", "").0 == 200).then_some(())
    });
    assert!(ready.is_some());
    assert_eq!(http(address, "POST", "/json", asked).0, 200);
}
