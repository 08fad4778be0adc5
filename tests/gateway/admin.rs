//! The admin port: on loopback, or protected.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::child_process::run_to_end;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::PATIENCE;
use tollgate_test_support::tls_client::TlsClient;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::gateway::{RULES, wait_for_log};

const TOKEN: &str = "correct-horse-battery";

#[test]
fn a_public_admin_port_needs_a_token_or_client_certificates() {
    for host in ["0.0.0.0", "::"] {
        let (code, said) = run_to_end(
            Command::new(tollgate_binary())
                .args(["serve", "examples/edge.yaml"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .args(["--grpc-port", "0", "--port", "0", "--debug-port", "0"])
                .args(["--grpc-host", "127.0.0.1", "--host", "127.0.0.1"])
                .args(["--debug-host", host])
                .env_clear(),
        );
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("--admin-token-file or --admin-client-cacert"),
            "{said}"
        );
    }
}

/// The status of a GET with these headers.
fn status(address: SocketAddr, path: &str, headers: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: test\r\n{headers}connection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_admin_token_is_required_and_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let path = file.display().to_string();
    let arguments = ["--admin-token-file", &path, "--debug-host", "0.0.0.0"];
    let tollgate = Tollgate::start(RULES, &arguments);
    let admin = SocketAddr::from(([127, 0, 0, 1], tollgate.admin.port()));
    let carrying = |token: &str| format!("authorization: Bearer {token}\r\n");
    for path in ["/", "/rlconfig", "/metrics", "/readyz?verbose", "/nowhere"] {
        assert_eq!(status(admin, path, ""), 401, "{path}");
        let wrong = carrying("correct-horse-batterz");
        assert_eq!(status(admin, path, &wrong), 401, "{path}");
        let known = if path == "/nowhere" { 404 } else { 200 };
        assert_eq!(status(admin, path, &carrying(TOKEN)), known, "{path}");
    }
    // Health needs no token.
    for path in ["/readyz", "/healthcheck"] {
        assert_eq!(status(admin, path, ""), 200, "{path}");
    }
    for almost in [
        "",
        "Bearer",
        "Bearer ",
        "Basic correct-horse-battery",
        TOKEN,
    ] {
        let headers = format!("authorization: {almost}\r\n");
        assert_eq!(status(admin, "/rlconfig", &headers), 401, "{almost}");
    }
    assert_eq!(
        status(
            admin,
            "/rlconfig",
            &format!("authorization: bearer {TOKEN}\r\n")
        ),
        200
    );
    // A replaced token applies at once; a missing or too short one leaves the last one in use.
    std::fs::write(&file, "another horse, another battery").unwrap();
    assert_eq!(status(admin, "/", &carrying(TOKEN)), 401);
    assert_eq!(
        status(admin, "/", &carrying("another horse, another battery")),
        200
    );
    for text in ["short", ""] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(status(admin, "/", &carrying(text)), 401);
        assert_eq!(
            status(admin, "/", &carrying("another horse, another battery")),
            200
        );
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(
        status(admin, "/", &carrying("another horse, another battery")),
        200
    );
    // The failure is logged once, and its end at the same level.
    std::fs::write(&file, TOKEN).unwrap();
    assert_eq!(status(admin, "/", &carrying(TOKEN)), 200);
    wait_for_log(|| tollgate.said(), "the admin token was read again");
    let said = tollgate.said();
    assert_eq!(
        said.matches("WARN tollgate::admin::guard: ").count(),
        2,
        "{said}"
    );
    assert_eq!(
        said.matches("cannot read the admin token").count(),
        1,
        "{said}"
    );
    // The public port is unchanged.
    assert_eq!(http(tollgate.http, "GET", "/metrics", "").0, 200);
    assert!(!tollgate.said().contains("horse"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_protect_the_admin_port() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs(&["localhost"]), &authority.pem);
    let [certificate, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(|name| secret.file(name));
    let arguments = [
        ("--admin-tls-cert", certificate.as_str()),
        ("--admin-tls-key", &key),
        ("--admin-client-cacert", &ca),
        ("--debug-host", "0.0.0.0"),
    ];
    let arguments: Vec<_> = arguments
        .iter()
        .flat_map(|(name, value)| [*name, *value])
        .collect();
    let tollgate = Tollgate::start(RULES, &arguments);
    let admin = SocketAddr::from(([127, 0, 0, 1], tollgate.admin.port()));
    let asked = |shows| {
        let client = TlsClient {
            protocol: "http/1.1",
            ..TlsClient::new(&authority, shows)
        };
        async move {
            let mut stream = client.connect(admin).await?;
            let ask = b"GET /rlconfig HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            stream.write_all(ask).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(String::from_utf8(answer).unwrap())
        }
    };
    let operator = authority.signs(&["an operator"]);
    let other_client = Authority::new("another").signs(&["another client"]);
    let answer = asked(Some(&operator)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(asked(None).await.is_err());
    assert!(asked(Some(&other_client)).await.is_err());
    // The audit names the certificate.
    let client = TlsClient {
        protocol: "http/1.1",
        ..TlsClient::new(&authority, Some(&operator))
    };
    let mut stream = client.connect(admin).await.unwrap();
    let ask = b"POST /reset HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(ask).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    wait_for_log(|| tollgate.said(), "who=\"certificate somebody\"");
    // A browser sends a certificate by itself, so pages of other origins are refused.
    let mut stream = client.connect(admin).await.unwrap();
    let ask = b"GET /rlconfig HTTP/1.0\r\nhost: x\r\norigin: https://y\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.0 403"), "{answer:?}");
}
