//! Rendered pods, run: they start, their probes are answered, they end within their grace, and Envoy takes to them.
//!
//! What it deliberately does not do: wait for a drain of the default length. A short one ends the same way.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::pod::{Pod, check};
use crate::rendering::{EXAMPLE, FULL, Rendered, rendered};
use crate::running::{PATIENCE, TOLLGATE, component, free_port, http, wait_for};
use crate::words::{cluster, notes};

/// An Envoy that runs until dropped.
struct Envoy(Child);

impl Drop for Envoy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The probes that are there: name, path.
fn probes(rendered: &Rendered) -> Vec<(&'static str, String)> {
    let container = rendered.container();
    let mut probes = Vec::new();
    for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let probe = &container[name];
        if probe.is_object() {
            assert_eq!(probe["httpGet"]["port"], "http");
            let path = probe["httpGet"]["path"].as_str().unwrap();
            probes.push((name, path.to_owned()));
        }
    }
    probes
}

#[test]
fn the_rules_of_a_rendered_config_map_are_good() {
    for (values, good) in [
        (EXAMPLE, "good, 1 limit in 1 domain"),
        (FULL, "good, 3 limits in 2 domains"),
    ] {
        let output = check(&rendered(&[values]));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(good), "{values}: {said}");
    }
}

#[test]
fn every_flag_and_variable_is_understood_and_every_probe_is_answered() {
    for values in [EXAMPLE, FULL] {
        let rendered = rendered(&[values]);
        let pod = Pod::start(&rendered);
        let probes = probes(&rendered);
        assert_eq!(probes.len(), 3);
        for (name, path) in probes {
            assert_eq!(http(pod.http, "GET", &path, "").0, 200, "{name} {path}");
        }
    }
}

#[test]
fn a_changed_config_map_is_obeyed_without_a_restart() {
    let with = |requests: u32| {
        let limit = format!(r#"{{"unit":"hour","requests_per_unit":{requests}}}"#);
        let descriptors = format!(r#"[{{"key":"k","rate_limit":{limit}}}]"#);
        let rules = format!(r#"{{"a.yaml":{{"domain":"a","descriptors":{descriptors}}}}}"#);
        rendered(&[&format!("--set-json=rules={rules}")])
    };
    let pod = Pod::start(&with(1_000_000));
    let asked = r#"{"domain":"a","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    let answered = || http(pod.http, "POST", "/json", asked).0;
    assert_eq!(answered(), 200);
    pod.update(&with(0));
    let refused = wait_for(PATIENCE, || (answered() == 429).then_some(()));
    assert!(refused.is_some());
}

#[test]
fn a_pod_that_is_told_to_end_is_unready_alive_and_then_gone_in_time() {
    let rendered = rendered(&["--set=drainDelaySeconds=4,drainTimeoutSeconds=1"]);
    let grace = &rendered.pod()["terminationGracePeriodSeconds"];
    let grace = Duration::from_secs(grace.as_u64().unwrap());
    let mut pod = Pod::start(&rendered);
    pod.terminate();
    for (name, path) in probes(&rendered) {
        // A pod that is not alive would be killed in the middle of its drain.
        let expected = if name == "readinessProbe" { 500 } else { 200 };
        let answered = wait_for(PATIENCE, || {
            (http(pod.http, "GET", &path, "").0 == expected).then_some(())
        });
        assert!(answered.is_some(), "{name} {path}");
    }
    let ended = pod.wait(grace).expect("it ends within its grace period");
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn the_command_to_try_is_refused_at_the_eleventh_time() {
    let rendered = rendered(&[EXAMPLE]);
    let pod = Pod::start(&rendered);
    let notes = notes(&[EXAMPLE]);
    let command = notes
        .lines()
        .find_map(|line| line.strip_prefix("  tollgate "))
        .expect("a command to try");
    assert!(notes.contains(" port-forward service/demo-tollgate 8081:8081 &\n"));
    let command = command.replace("127.0.0.1:8081", &pod.grpc.to_string());
    let output = Command::new(TOLLGATE)
        .args(command.split(' '))
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.matches("OK ").count(), 10, "{said}");
    // With rules of one's own the notes send the reader to the log.
    assert!(
        pod.said
            .lines()
            .any(|line| line.starts_with("try: tollgate hit 127.0.0.1:"))
    );
}

#[test]
fn envoy_finds_a_pod_healthy_by_the_cluster_in_the_notes() {
    let pod = Pod::start(&rendered(&[EXAMPLE]));
    let host = "demo-tollgate-headless.prod.svc.cluster.local";
    let cluster = cluster(&notes(&[EXAMPLE]))
        .replace(host, "127.0.0.1")
        .replace(
            "port_value: 8081",
            &format!("port_value: {}", pod.grpc.port()),
        );
    let admin = free_port();
    let bootstrap = format!(
        "admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}\n\
         static_resources:\n{cluster}"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("envoy.yaml");
    std::fs::write(&file, bootstrap).unwrap();
    let envoy = Command::new(component("venv/bin/envoy"))
        .arg("-c")
        .arg(&file)
        .args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _envoy = Envoy(envoy.unwrap());
    let asked = format!(
        "tollgate::127.0.0.1:{}::health_flags::healthy",
        pod.grpc.port()
    );
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], admin));
    let healthy = wait_for(PATIENCE, || {
        std::net::TcpStream::connect(address).ok()?;
        let (_, clusters) = http(address, "GET", "/clusters", "");
        clusters.contains(&asked).then_some(())
    });
    assert!(healthy.is_some());
}
