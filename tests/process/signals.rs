//! Shutdown: in order, in time, and at once on a second signal.

use std::io::{BufRead as _, BufReader};

use tollgate_test_support::child_process::{KillOnDrop, SpawnTied as _};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

const RULES: &str =
    "{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 5}}]}";

#[test]
fn sigterm_and_sigint_stop_it_with_success() {
    for name in ["TERM", "INT"] {
        // The stop of an idle connection does not take the whole time-out.
        let mut running = Tollgate::start(RULES, &["--drain-timeout", "10m"]);
        let idle = std::net::TcpStream::connect(running.grpc).unwrap();
        running.signal(name);
        let status = running.wait();
        assert_eq!(status.code(), Some(0), "{name}");
        drop(idle);
    }
}

#[test]
fn readiness_ends_at_once_and_requests_are_answered_for_the_drain_delay() {
    let mut running = Tollgate::start(RULES, &["--drain-delay", "10m"]);
    assert_eq!(http(running.http, "GET", "/healthcheck", "").0, 200);
    running.signal("TERM");
    until("it is not ready", || {
        http(running.http, "GET", "/healthcheck", "").0 == 500
    });
    let asked = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    assert_eq!(http(running.http, "POST", "/json", asked).0, 200);
    assert_eq!(http(running.http, "GET", "/livez", "").0, 200);
    assert!(running.running());
}

/// Without the second signal the stop would take ten minutes.
#[test]
fn a_second_signal_stops_it_at_once() {
    let mut running = Tollgate::start(RULES, &["--drain-delay", "10m"]);
    running.signal("TERM");
    until("it is not ready", || {
        http(running.http, "GET", "/readyz", "").0 == 500
    });
    running.signal("INT");
    let status = running.wait();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn ports_open_at_once_and_readiness_waits_for_rules() {
    // The path of the rules is a FIFO, whose opening would wait.
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
        .stderr(std::process::Stdio::piped())
        .spawn_tied()
        .unwrap();
    let mut child = KillOnDrop(child);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    until("the port is open", || std::net::TcpStream::connect(address));
    assert_eq!(http(address, "GET", "/readyz", ""), (500, String::new()));
    assert_eq!(http(address, "GET", "/livez", "").0, 200);
    let asked = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    assert_eq!(http(address, "POST", "/json", asked).0, 503);
    std::fs::remove_file(&pipe).unwrap();
    std::fs::write(&pipe, RULES).unwrap();
    until("it is ready", || {
        http(address, "GET", "/readyz", "").0 == 200
    });
    assert_eq!(http(address, "POST", "/json", asked).0, 200);
    let mut said = BufReader::new(child.0.stderr.take().unwrap()).lines();
    assert!(
        said.any(|line| line
            .unwrap()
            .contains("rules.yaml: a FIFO, not a regular file")),
        "the reason is logged"
    );
}
