//! The admin port beyond the pod's loopback: the headless Service, its guard, who may reach it, and
//! the command of the notes.
//!
//! What it deliberately does not do: check each contradiction (`invalid_values`).

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::http_client::{http, http_with};
use tollgate_test_support::tls_client::TlsClient;

use crate::notes_and_readme::notes;
use crate::pod::Pod;
use crate::rendering::{Rendered, rendered, texts, values_files};

const TOKEN_ONLY: &str = "--set=adminService.enabled=true,adminService.token.existingSecret=admin";

/// The admin Service, if there is one.
fn service(rendered: &Rendered) -> Option<&Value> {
    let services = rendered.all("Service").into_iter();
    let mut found = services.filter(|service| {
        let name = service["metadata"]["name"].as_str();
        name.is_some_and(|name| name.ends_with("-admin"))
    });
    let service = found.next();
    assert!(found.next().is_none());
    service
}

#[test]
fn the_admin_port_stays_on_loopback_by_default() {
    for arguments in [&[][..], &["--set=networkPolicy.enabled=true"]] {
        let rendered = rendered(arguments);
        assert!(service(&rendered).is_none());
        let variables = texts(&rendered.container()["env"], "name");
        assert!(!variables.contains(&"DEBUG_HOST"), "{variables:?}");
        for policy in rendered.all("NetworkPolicy") {
            assert!(!policy.to_string().contains("6070"), "{policy}");
        }
    }
}

/// A pod that drains or has no rules is one to look at, so the name resolves to it as well.
#[test]
fn the_admin_service_resolves_to_every_pod_ready_or_not() {
    let mut count = 0;
    for values in values_files() {
        let rendered = rendered(&[&values]);
        let Some(service) = service(&rendered) else {
            continue;
        };
        count += 1;
        let spec = &service["spec"];
        assert_eq!(spec["clusterIP"], "None", "{values}");
        assert_eq!(spec["publishNotReadyAddresses"], true, "{values}");
        // A headless name has no port mapping: the Service's port must be the pod's.
        let port = &spec["ports"][0];
        let container = &rendered.container()["ports"][2];
        assert_eq!(port["port"], container["containerPort"]);
        assert_eq!(port["targetPort"], container["name"]);
        assert_eq!(
            rendered.variable("DEBUG_PORT"),
            &json!(port["port"].to_string())
        );
        assert_eq!(rendered.variable("DEBUG_HOST"), "0.0.0.0");
        let tls = texts(&rendered.container()["env"], "name").contains(&"TOLLGATE_ADMIN_TLS_CERT");
        let speaks = if tls { "https" } else { "http" };
        assert_eq!(port["appProtocol"], speaks, "{values}");
        let labels = &rendered.only("Deployment")["spec"]["template"]["metadata"]["labels"];
        for (label, value) in spec["selector"].as_object().unwrap() {
            assert_eq!(&labels[label], value, "{values}");
        }
    }
    assert!(count >= 2, "{count} values files turn it on");
    let six = rendered(&[TOKEN_ONLY, "--set=adminService.host=::"]);
    assert_eq!(six.variable("DEBUG_HOST"), "::");
}

/// Settings that guard the admin port count as well: their files may come from `extraVolumes`.
#[test]
fn a_token_or_client_certificates_by_settings_are_accepted() {
    for name in ["TOLLGATE_ADMIN_TOKEN_FILE", "TOLLGATE_ADMIN_CLIENT_CACERT"] {
        let set = format!("--set=adminService.enabled=true,settings.{name}=/run/admin");
        assert!(service(&rendered(&[&set])).is_some(), "{name}");
    }
}

/// Ingress for port 6070 of a render's NetworkPolicy: the peers.
fn peers(arguments: &[&str], direction: &str, peer: &str) -> Vec<Value> {
    let policy = [&["--set=networkPolicy.enabled=true"], arguments].concat();
    let rendered = rendered(&policy);
    let rules = &rendered.only("NetworkPolicy")["spec"][direction];
    let rules = rules.as_array().unwrap().iter();
    let mut rules = rules.filter(|rule| rule["ports"][0]["port"] == 6070);
    let rule = rules.next().expect("a rule for the admin port");
    assert!(rules.next().is_none());
    rule[peer].as_array().expect("peers, not everybody").clone()
}

#[test]
fn the_network_policy_keeps_the_admin_port_inside_the_namespace() {
    let pods = rendered(&[]).only("Deployment")["spec"]["selector"].clone();
    let ours = json!({ "podSelector": pods });
    assert_eq!(
        peers(&[TOKEN_ONLY], "ingress", "from"),
        [json!({ "podSelector": {} })]
    );
    assert_eq!(
        peers(&[TOKEN_ONLY], "egress", "to"),
        std::slice::from_ref(&ours)
    );
    let from =
        "--set-json=networkPolicy.ingress.adminFrom=[{\"ipBlock\":{\"cidr\":\"10.0.0.0/8\"}}]";
    assert_eq!(
        peers(&[TOKEN_ONLY, from], "ingress", "from"),
        [json!({ "ipBlock": { "cidr": "10.0.0.0/8" } }), ours]
    );
}

/// The command of the notes names the Service, and files that are mounted.
#[test]
fn the_notes_name_a_command_that_finds_every_pod() {
    for values in ["production", "cert-manager"] {
        let values = format!("--values=helm/tollgate/ci/{values}-values.yaml");
        let rendered = rendered(&[&values]);
        let notes = notes(&[&values]);
        let name = service(&rendered).unwrap()["metadata"]["name"]
            .as_str()
            .unwrap();
        let address = format!("tollgate top --admin https://{name}.prod.svc:6070");
        let (_, command) = notes.split_once(&address).expect(&notes);
        let (command, _) = command.split_once("\n\n").unwrap();
        let mounts = texts(&rendered.container()["volumeMounts"], "mountPath");
        for flag in ["--cacert ", "--admin-token-file "] {
            let named = command
                .split(flag)
                .nth(1)
                .map(|rest| rest.split_whitespace().next().unwrap());
            let Some(file) = named else {
                assert!(values.contains("cert-manager") && flag != "--cacert ");
                continue;
            };
            let (folder, _) = file.rsplit_once('/').unwrap();
            assert!(mounts.contains(&folder), "{file}: {mounts:?}");
        }
        assert!(!notes.contains("WARNING: the admin port"), "{notes}");
        assert!(!notes.contains("WARNING: valueHashKey"), "{notes}");
    }
    let plain = notes(&[TOKEN_ONLY, "--set=replicaCount=3"]);
    assert!(
        plain.contains("WARNING: the admin port has no TLS"),
        "{plain}"
    );
    assert!(
        plain.contains("WARNING: valueHashKey is not set"),
        "{plain}"
    );
    let shown = notes(&[
        TOKEN_ONLY,
        "--set=replicaCount=3,settings.TOLLGATE_TOP_KEYS=plain",
    ]);
    assert!(!shown.contains("WARNING: valueHashKey"), "{shown}");
    let by_default = notes(&[]);
    assert!(
        by_default.contains("tollgate top --admin http://127.0.0.1:6070\n"),
        "{by_default}"
    );
}

/// A folder in place of a Secret with a token.
fn token(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), text).unwrap();
    folder
}

fn status(admin: SocketAddr, headers: &str) -> u16 {
    http_with(admin, "GET", "/rlconfig", headers, "").0
}

/// The rendered pod as a process: its admin port needs the token of the Secret, and its probes,
/// which have none, still pass.
#[test]
fn a_pod_with_the_admin_service_needs_the_token_and_passes_its_probes() {
    let rendered = rendered(&[TOKEN_ONLY]);
    let secret = token("correct-horse-battery");
    let pod = Pod::start_with(&rendered, &[("admin", secret.path())]);
    assert_eq!(status(pod.admin, ""), 401);
    assert_eq!(
        status(pod.admin, "authorization: Bearer wrong-horse-battery\r\n"),
        401
    );
    assert_eq!(
        status(pod.admin, "authorization: Bearer correct-horse-battery\r\n"),
        200
    );
    for name in ["startupProbe", "livenessProbe"] {
        let path = rendered.container()[name]["httpGet"]["path"]
            .as_str()
            .unwrap();
        assert_eq!(http(pod.http, "GET", path, "").0, 200, "{name}");
    }
}

/// The same with client certificates, and with a certificate for the name of the Service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_a_client_ca_needs_a_client_certificate() {
    let authority = Authority::new("internal");
    let leaf = authority.signs(&["demo-tollgate-admin.prod.svc"]);
    let certificate = Secret::new(&leaf, &authority.pem);
    let clients = Authority::new("on call");
    let known = Secret::new(&clients.signs(&["unused"]), &clients.pem);
    let rendered = rendered(&[
        "--set=adminService.enabled=true,adminService.tls.enabled=true",
        "--set=adminService.tls.existingSecret=admin-tls,adminService.tls.clientCA.existingSecret=on-call",
    ]);
    let folders = [
        ("admin-tls", &*certificate.path("")),
        ("on-call", &*known.path("")),
    ];
    let pod = Pod::start_with(&rendered, &folders);
    let operator = clients.signs(&["an operator"]);
    let ask = async |client: TlsClient| {
        let mut stream = client.connect(pod.admin).await?;
        let request = b"GET /rlconfig HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8(answer).unwrap())
    };
    let client = |leaf| TlsClient {
        server_name: "demo-tollgate-admin.prod.svc",
        protocol: "http/1.1",
        ..TlsClient::new(&authority, leaf)
    };
    let answer = ask(client(Some(&operator))).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(ask(client(None)).await.is_err());
    assert!(ask(client(Some(&leaf))).await.is_err());
}
