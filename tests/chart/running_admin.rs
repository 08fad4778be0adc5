//! A rendered pod as a process, with its admin port open to other pods: the token or the client
//! certificate that it requires.
//!
//! What it deliberately does not do: check the rendered objects (`objects`).

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::http_client::{http, http_with};
use tollgate_test_support::tls_client::TlsClient;

use crate::chart::pod::Pod;
use crate::chart::rendering::rendered;

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
    let rendered =
        rendered(&["--set=adminService.enabled=true,adminService.token.existingSecret=admin"]);
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
