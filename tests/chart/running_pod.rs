//! Rendered pods as processes: they start, answer their probes, end within their grace period, and
//! pass Envoy's health check.
//!
//! What it deliberately does not do: wait for a drain of default length. A short one ends the same
//! way.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::UNIX_EPOCH;

use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::component;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::tollgate_binary;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::chart::notes_and_readme::{cluster, notes};
use crate::chart::pod::{Folders, Pod, check, found};
use crate::chart::rendering::{EXAMPLE, ON, Rendered, rendered};

/// A running Envoy, killed when dropped.
struct Envoy(Child);

impl Drop for Envoy {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a probe succeeds, sent like Kubernetes.
fn probe(pod: &Pod, rendered: &Rendered, name: &str) -> bool {
    let probe = &rendered.container()[name];
    if let Some(service) = probe["grpc"]["service"].as_str() {
        assert_eq!(
            probe["grpc"]["port"],
            rendered.container()["ports"][0]["containerPort"]
        );
        return serving(pod.grpc, service);
    }
    assert_eq!(probe["httpGet"]["port"], "http");
    http(
        pod.http,
        "GET",
        probe["httpGet"]["path"].as_str().unwrap(),
        "",
    )
    .0 == 200
}

/// Status of a service in gRPC's health protocol, over a new connection.
fn serving(address: SocketAddr, service: &str) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let endpoint =
            tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut client = HealthClient::new(endpoint.connect().await.expect("it accepts"));
        let asked = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = client.check(asked).await.expect("it answers").into_inner();
        answer.status() == ServingStatus::Serving
    })
}

const PROBES: [&str; 3] = ["startupProbe", "livenessProbe", "readinessProbe"];

#[test]
fn the_rules_of_a_rendered_config_map_are_valid() {
    for (values, good) in [
        (EXAMPLE, "good, 1 limit in 1 domain"),
        (ON, "good, 3 limits in 2 domains"),
    ] {
        let output = check(&rendered(&[values]));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(good), "{values}: {said}");
    }
}

#[test]
fn every_flag_and_variable_is_accepted_and_every_probe_succeeds() {
    for values in [EXAMPLE, ON] {
        let rendered = rendered(&[values]);
        let pod = Pod::start(&rendered);
        for name in PROBES {
            until(&format!("{values}: {name} succeeds"), || {
                probe(&pod, &rendered, name).then_some(()).ok_or("it fails")
            });
        }
    }
}

#[test]
fn the_example_command_is_refused_the_eleventh_time() {
    let rendered = rendered(&[EXAMPLE]);
    let notes = notes(&[EXAMPLE]);
    let command = notes
        .lines()
        .find_map(|line| line.strip_prefix("  tollgate "))
        .expect("a command to try");
    assert!(notes.contains(" port-forward service/demo-tollgate 8081:8081 &\n"));
    // The limit of the example is a minute's, and a minute may end in between.
    let output = until("the command runs within one minute", || {
        let pod = Pod::start(&rendered);
        let command = command.replace("127.0.0.1:8081", &pod.grpc.to_string());
        let minute = || UNIX_EPOCH.elapsed().unwrap().as_secs() / 60;
        let before = minute();
        let output = Command::new(tollgate_binary())
            .args(command.split(' '))
            .env_clear()
            .output()
            .unwrap();
        // With custom rules the notes refer to the log.
        let mut lines = pod.said.lines();
        assert!(lines.any(|line| line.starts_with("try: tollgate hit 127.0.0.1:")));
        (minute() == before).then_some(output)
    });
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.matches("OK ").count(), 10, "{said}");
}

#[test]
fn envoys_health_check_passes_with_the_cluster_of_the_notes() {
    let pod = Pod::start(&rendered(&[EXAMPLE]));
    let host = "demo-tollgate-headless.prod.svc.cluster.local";
    let cluster = cluster(&notes(&[EXAMPLE]))
        .replace(host, "127.0.0.1")
        .replace(
            "port_value: 8081",
            &format!("port_value: {}", pod.grpc.port()),
        );
    let admin = reserved_port();
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
        .args(["--disable-hot-restart", "--concurrency", "1", "-l", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn_tied();
    let _envoy = Envoy(envoy.unwrap());
    let asked = format!(
        "tollgate::127.0.0.1:{}::health_flags::healthy",
        pod.grpc.port()
    );
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], admin));
    until("Envoy's health check passes", || {
        std::net::TcpStream::connect(address).map_err(|error| error.to_string())?;
        let (_, clusters) = http(address, "GET", "/clusters", "");
        if clusters.contains(&asked) {
            Ok(())
        } else {
            Err(clusters)
        }
    });
}

/// Runs the arguments of `helm test`'s pod against a running pod: it gets a decision and takes no
/// hit.
#[test]
fn helm_test_checks_without_taking_a_hit() {
    for (values, said) in [
        (
            EXAMPLE,
            "OK          generic_key=hello  10 left of 10 per minute",
        ),
        (
            ON,
            "OK          plan=yes,user=someone  4294967295 left of 4294967295 per hour",
        ),
    ] {
        let rendered = rendered(&[values]);
        let pod = Pod::start(&rendered);
        let asker = &rendered.only("Pod")["spec"];
        assert_eq!(
            asker["serviceAccountName"],
            rendered.pod()["serviceAccountName"]
        );
        let container = &asker["containers"][0];
        assert_eq!(container["image"], rendered.container()["image"]);
        let service = rendered.all("Service").into_iter().find(|service| {
            let spec = &service["spec"];
            spec["clusterIP"] != "None" && spec["ports"][0]["name"] == "grpc"
        });
        let service = service.unwrap()["metadata"]["name"].as_str().unwrap();
        assert_eq!(container["args"][1], format!("{service}.prod.svc:8081"));
        for _ in 0..2 {
            let (code, printed, _) = asked(&rendered, &pod, &[]);
            assert_eq!(code, Some(0), "{printed}");
            assert!(printed.starts_with(said), "{printed}");
        }
    }
}

/// `helm test` checks that the service decides. Other clients may have exhausted the limit.
#[test]
fn helm_test_passes_when_its_limit_is_exhausted() {
    let limit = r#"{"unit":"year","requests_per_unit":1}"#;
    let descriptors = format!(r#"[{{"key":"generic_key","rate_limit":{limit}}}]"#);
    let rules = format!(r#"{{"a.yaml":{{"domain":"example","descriptors":{descriptors}}}}}"#);
    let rendered = rendered(&[
        &format!("--set-json=rules={rules}"),
        "--set=tests.domain=example,tests.descriptor=generic_key=hello",
    ]);
    let pod = Pod::start(&rendered);
    let body = r#"{"domain":"example","descriptors":[{"entries":[{"key":"generic_key","value":"hello"}]}]}"#;
    let codes = [(), ()].map(|()| http(pod.http, "POST", "/json", body).0);
    assert_eq!(codes, [200, 429]);
    let (code, printed, said) = asked(&rendered, &pod, &[]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{printed}");
    assert!(
        printed.starts_with("OVER LIMIT  generic_key=hello  0 left of 1 per year"),
        "{printed}"
    );
}

/// Exit code and output of `helm test`'s pod, with the address of a pod in place of the Service.
fn asked(rendered: &Rendered, pod: &Pod, folders: Folders<'_>) -> (Option<i32>, String, String) {
    let asker = &rendered.only("Pod")["spec"];
    let arguments = asker["containers"][0]["args"].as_array().unwrap().iter();
    let arguments = arguments.enumerate().map(|(position, argument)| {
        if position == 1 {
            pod.grpc.to_string()
        } else {
            found(asker, argument.as_str().unwrap(), folders)
        }
    });
    let output = Command::new(tollgate_binary())
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The same over TLS, with Secrets as cert-manager creates them, and with a separate Secret for the
/// CA.
#[test]
fn helm_test_uses_tls_and_client_certificates() {
    let service = "demo-tollgate.prod.svc";
    let authority = Authority::new("internal");
    let grpc = Secret::new(&authority.signs(&[service]), &authority.pem);
    let elsewhere = Secret::new(&authority.signs(&["limits.example"]), "");
    let clients = Authority::new("clients");
    let client = Secret::new(&clients.signs(&["helm-test"]), &clients.pem);
    let other_client = Secret::new(&clients.signs(&["other"]), &clients.pem);
    let mutual = "tls.enabled=true,tls.existingSecret=grpc,tls.clientCA.existingSecret=clients,\
                  tls.clientNames={helm-test},tests.tls.clientSecret=asker";
    let apart = "tls.enabled=true,tls.existingSecret=grpc,tests.tls.caSecret=authority,\
                 tests.tls.serverName=limits.example";
    for (values, folders, words) in [
        (
            "tls.enabled=true,tls.certManager.enabled=true,tls.certManager.issuerRef.name=a",
            &[("demo-tollgate-tls", &grpc)][..],
            None,
        ),
        (
            mutual,
            &[("grpc", &grpc), ("clients", &client), ("asker", &client)],
            None,
        ),
        (
            mutual,
            &[
                ("grpc", &grpc),
                ("clients", &client),
                ("asker", &other_client),
            ],
            Some("rejected the client certificate in "),
        ),
        (apart, &[("grpc", &elsewhere), ("authority", &grpc)], None),
        (
            "tls.enabled=true,tls.existingSecret=grpc,tests.tls.caSecret=authority",
            &[("grpc", &elsewhere), ("authority", &grpc)],
            Some("is for limits.example, not for the name of this connection"),
        ),
        (
            "tls.enabled=true,tls.existingSecret=grpc",
            &[("grpc", &elsewhere)],
            Some("ca.crt: no certificate in this file"),
        ),
    ] {
        let rendered = rendered(&[&format!("--set={values}")]);
        let paths: Vec<_> = folders
            .iter()
            .map(|(name, secret)| (*name, secret.path("")))
            .collect();
        let folders: Vec<_> = paths
            .iter()
            .map(|(name, path)| (*name, path.as_path()))
            .collect();
        let pod = Pod::start_with(&rendered, &folders);
        let (code, printed, said) = asked(&rendered, &pod, &folders);
        if let Some(words) = words {
            assert!(said.contains(words), "{values}: {said}");
            assert!(matches!(code, Some(1 | 4)), "{values}: {code:?}");
        } else {
            assert_eq!((code, said.as_str()), (Some(0), ""), "{values}");
            assert!(
                printed.starts_with("OK          generic_key=hello  10 left of 10 per minute"),
                "{values}: {printed}"
            );
        }
        // The client does not get the server's key.
        let of_asker = rendered.only("Pod")["spec"]["volumes"].to_string();
        assert_eq!(
            of_asker.contains("tls.key"),
            values.contains("clientSecret"),
            "{of_asker}"
        );
    }
}
