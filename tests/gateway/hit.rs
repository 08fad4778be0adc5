//! `tollgate hit` and `explain --addr` against a `tollgate serve` with TLS on its gRPC port: trust,
//! client certificates, and errors when a connection fails.
//!
//! How: the real binary at both ends, or a listener of the test where the server must not be
//! tollgate.
//!
//! What it deliberately does not do: check counters (`tls`).

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use tollgate::grpc_client::ClientTls;
use tollgate::grpc_client::rate_limit::{RateLimitClient, check_request};
use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate::tls::ClientFiles;
use tollgate_test_support::certificates::{Authority, Leaf, Secret, Validity};
use tollgate_test_support::polling::PATIENCE;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use crate::gateway::{RULES, wait_for_log};

/// Name in the service's certificate. Its address is 127.0.0.1.
const NAME: &str = "limits.example";

/// Number of runs of a race that must always have the same result.
const RACES: usize = 25;

/// Exit code and output of a command.
#[derive(Debug)]
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let output = Command::new(tollgate_binary())
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Runs `hit` against this address with further arguments.
fn hit(address: &str, more: &[&str]) -> Ended {
    run(&[&["hit", address, "d", "k=a"], more].concat(), &[])
}

/// Asserts that the command failed with this exit code and exactly this message.
#[track_caller]
fn assert_refused(ended: &Ended, code: i32, words: &str) {
    assert_eq!(ended.stderr, format!("error: {words}\n"), "{ended:?}");
    assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{ended:?}");
}

#[track_caller]
fn assert_answered(ended: &Ended) {
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    assert!(ended.stdout.starts_with("OK "), "{ended:?}");
}

/// A service with this certificate; with `clients`, client certificates for the name `client` are
/// required.
fn serve(secret: &Secret, clients: Option<&Secret>) -> Tollgate {
    let mut arguments = vec![
        "--grpc-server-use-tls".to_owned(),
        "true".to_owned(),
        "--grpc-server-tls-cert".to_owned(),
        secret.file("tls.crt"),
        "--grpc-server-tls-key".to_owned(),
        secret.file("tls.key"),
    ];
    if let Some(clients) = clients {
        arguments.extend([
            "--grpc-client-tls-cacert".to_owned(),
            clients.file("ca.crt"),
            "--grpc-client-tls-san".to_owned(),
            "client".to_owned(),
        ]);
    }
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Tollgate::start_restartable(RULES, &arguments)
}

/// Files of a certificate for these names and of its authority.
fn secret(authority: &Authority, names: &[&str]) -> Secret {
    Secret::new(&authority.signs(names), &authority.pem)
}

#[test]
fn hit_trusts_a_tls_service_by_ca_bundle_or_system_roots() {
    let authority = Authority::new("tollgate");
    let secret = secret(&authority, &[NAME]);
    let ca = secret.file("ca.crt");
    let running = serve(&secret, None);
    let address = running.grpc.to_string();
    let by_name = ["--cacert", &ca, "--server-name", NAME];
    assert_answered(&hit(&address, &by_name));
    // A client certificate that the server does not request is ignored.
    let (certificate, key) = (secret.file("tls.crt"), secret.file("tls.key"));
    let ours = ["--client-cert", &certificate, "--client-key", &key];
    assert_answered(&hit(&address, &[&by_name[..], &ours].concat()));
    // The system roots are read from the path in OpenSSL's variable.
    let asked = ["hit", &address, "d", "k=a", "--tls", "--server-name", NAME];
    assert_answered(&run(&asked, &[("SSL_CERT_FILE", &ca)]));
    let rules = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rules.path(), RULES).unwrap();
    let explain = [
        "explain",
        rules.path().to_str().unwrap(),
        "d",
        "k=a",
        "--addr",
        &address,
    ];
    let explained = run(&[&explain[..], &by_name].concat(), &[]);
    assert_eq!(explained.code, 0, "{explained:?}");
    assert!(
        explained.stdout.contains("now: 997 left of 1000 per year"),
        "{explained:?}"
    );
    let plain = run(&explain, &[]);
    assert_eq!(plain.code, 4, "{plain:?}");
    assert!(plain.stderr.contains("answers with TLS"), "{plain:?}");
    // The advice says that it is TLS.
    let words = format!("try: tollgate hit {address} d k=x --cacert FILE --server-name NAME\n");
    wait_for_log(|| running.said(), &words);
}

#[test]
fn hit_sends_no_request_to_an_untrusted_service() {
    let authority = Authority::new("tollgate");
    // It has the same name, so that only the signature differs.
    let [same, other] = ["tollgate", "other"].map(|name| secret(&Authority::new(name), &[NAME]));
    let secret = secret(&authority, &[NAME, "second.example"]);
    let running = serve(&secret, None);
    let address = running.grpc.to_string();
    let ca = secret.file("ca.crt");
    for others in [same.file("ca.crt"), other.file("ca.crt")] {
        assert_refused(
            &hit(&address, &["--cacert", &others, "--server-name", NAME]),
            4,
            &format!(
                "the certificate of {address} is not signed by a CA in {others}; set --cacert to the CA bundle that signed it"
            ),
        );
        let asked = ["hit", &address, "d", "k=a", "--tls", "--server-name", NAME];
        assert_refused(
            &run(&asked, &[("SSL_CERT_FILE", &others)]),
            4,
            &format!(
                "the certificate of {address} is not signed by a CA of the system roots; set --cacert to the CA bundle that signed it"
            ),
        );
    }
    for more in [&["--server-name", "other.example"][..], &[]] {
        assert_refused(
            &hit(&address, &[&["--cacert", &ca], more].concat()),
            4,
            &format!(
                "the certificate of {address} is for {NAME}, second.example, not for the name of this connection; set --server-name to one of its names"
            ),
        );
    }
    let expired = authority.signs_for(&[NAME], Validity::Expired);
    let expired = Secret::new(&expired, &authority.pem);
    let running = serve(&expired, None);
    let ended = hit(
        &running.grpc.to_string(),
        &["--cacert", &ca, "--server-name", NAME],
    );
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(
        ended.stderr.contains("is invalid (certificate expired"),
        "{ended:?}"
    );
}

#[test]
fn hit_presents_a_client_certificate() {
    let authority = Authority::new("tollgate");
    let service = secret(&authority, &[NAME]);
    let clients = Authority::new("clients");
    let [client, other_client] = ["client", "other"].map(|name| secret(&clients, &[name]));
    let forged = secret(&Authority::new("clients"), &["client"]);
    let running = serve(&service, Some(&client));
    let address = running.grpc.to_string();
    let ca = service.file("ca.crt");
    let believing = ["--cacert", &ca, "--server-name", NAME];
    let showing = |secret: &Secret| {
        let (certificate, key) = (secret.file("tls.crt"), secret.file("tls.key"));
        let shown = ["--client-cert", &certificate, "--client-key", &key];
        hit(&address, &[&believing[..], &shown].concat())
    };
    assert_answered(&showing(&client));
    // In TLS 1.3 a client learns this after its first data, which may then reach a closed
    // connection.
    for _ in 0..RACES {
        assert_refused(
            &hit(&address, &believing),
            4,
            &format!(
                "{address} requires a client certificate (CertificateRequired); set --client-cert and --client-key"
            ),
        );
    }
    for wrong in [&other_client, &forged] {
        let ended = showing(wrong);
        let words = format!(
            "error: {address} rejected the client certificate in {} (",
            wrong.file("tls.crt")
        );
        assert_eq!(ended.code, 4, "{ended:?}");
        assert!(ended.stderr.starts_with(&words), "{ended:?}");
    }
    let words = " d k=x --cacert FILE --server-name NAME --client-cert FILE --client-key FILE\n";
    wait_for_log(|| running.said(), words);
}

#[test]
fn a_tls_and_plaintext_mismatch_is_explained() {
    let authority = Authority::new("tollgate");
    let secret = secret(&authority, &[NAME]);
    let ca = secret.file("ca.crt");
    let running = serve(&secret, None);
    let address = running.grpc.to_string();
    for _ in 0..RACES {
        assert_refused(
            &hit(&address, &[]),
            4,
            &format!(
                "{address} answers with TLS; set --cacert to the CA bundle of its certificate, or set --tls to use the system roots"
            ),
        );
    }
    let plain = Tollgate::start(RULES, &[]);
    let address = plain.grpc.to_string();
    assert_answered(&hit(&address, &[]));
    assert_refused(
        &hit(&address, &["--cacert", &ca]),
        4,
        &format!(
            "{address} does not answer with TLS; remove --cacert and --tls, or correct the port"
        ),
    );
}

/// Ends the test's listener.
const END: &[u8; 16] = b"that is enough. ";

#[test]
fn a_connection_closed_by_the_server_is_reported() {
    let secret = secret(&Authority::new("tollgate"), &[NAME]);
    let ca = secret.file("ca.crt");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let end = std::thread::spawn(move || {
        // It reads the first bytes, so that it closes without a reset; a client that has not sent
        // its request yet may connect once more.
        let mut first = [0; 16];
        while first != *END {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut first).unwrap();
        }
    });
    assert_refused(
        &hit(&address, &[]),
        4,
        &format!(
            "{address} closed the connection; if the port uses TLS, set --cacert to the CA bundle of its certificate; otherwise correct the port"
        ),
    );
    assert_refused(
        &hit(&address, &["--cacert", &ca]),
        4,
        &format!(
            "{address} closed the connection during the TLS handshake; check that the port uses TLS, and read the log of the service"
        ),
    );
    TcpStream::connect(&address)
        .unwrap()
        .write_all(END)
        .unwrap();
    end.join().unwrap();
}

#[test]
fn invalid_certificate_files_are_named() {
    let authority = Authority::new("tollgate");
    let good = secret(&authority, &[NAME]);
    let other = secret(&authority, &[NAME]);
    let running = serve(&good, None);
    let address = running.grpc.to_string();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let Leaf { certificate, key } = authority.signs(&[NAME]);
    let empty = write("empty.pem", "");
    let halved = write("halved.pem", &certificate[..certificate.len() / 2]);
    let garbled = write("garbled.pem", &certificate.replacen('\n', "\n!", 1));
    let none = folder.path().join("none.pem").display().to_string();
    let directory = folder.path().display().to_string();
    let only_key = write("key.pem", &key);
    let (ca, ours) = (good.file("ca.crt"), good.file("tls.crt"));
    for (bad, words) in [
        (&empty, "no certificate in this file; use a PEM file"),
        (&halved, "invalid PEM (its end is missing)"),
        (&garbled, "invalid PEM (invalid base64)"),
        (&none, "No such file or directory"),
        (&directory, "is a directory"),
        (&only_key, "no certificate in this file"),
    ] {
        for asked in [
            vec!["--cacert", bad],
            vec![
                "--cacert",
                &ca,
                "--client-cert",
                bad,
                "--client-key",
                &key_of(&good),
            ],
        ] {
            let ended = hit(&address, &asked);
            assert_eq!(ended.code, 1, "{ended:?}");
            let begin = format!("error: {bad}: {words}");
            assert!(ended.stderr.starts_with(&begin), "{begin}: {ended:?}");
        }
    }
    let asked = ["--cacert", &ca, "--client-cert", &ours, "--client-key"];
    for (bad, words) in [
        (&ours, "no valid private key (no such section)"),
        (&empty, "no valid private key"),
        (&none, "No such file or directory"),
    ] {
        let ended = hit(&address, &[&asked[..], &[bad]].concat());
        assert_eq!(ended.code, 1, "{ended:?}");
        let begin = format!("error: {bad}: {words}");
        assert!(ended.stderr.starts_with(&begin), "{begin}: {ended:?}");
    }
    let others = key_of(&other);
    assert_refused(
        &hit(&address, &[&asked[..], &[&others]].concat()),
        1,
        &format!(
            "the key in {others} does not match the certificate in {ours}; replace both files at once"
        ),
    );
    assert_refused(
        &hit(&address, &["--cacert", &ca, "--server-name", "no name"]),
        4,
        "\"no name\" cannot be the name of a certificate; set --server-name to a DNS name or an IP address",
    );
}

fn key_of(secret: &Secret) -> String {
    secret.file("tls.key")
}

#[test]
fn options_that_need_another_option_are_rejected_without_it() {
    let explain = ["explain", "rules.yaml", "d", "k=a"];
    let hit = ["hit", "127.0.0.1:1", "d", "k=a"];
    for (asked, more, missing) in [
        (&hit, &["--server-name", NAME][..], "--cacert"),
        (
            &hit,
            &["--client-cert", "a", "--client-key", "b"],
            "--cacert",
        ),
        (
            &hit,
            &["--cacert", "a", "--client-cert", "b"],
            "--client-key",
        ),
        (
            &hit,
            &["--cacert", "a", "--client-key", "b"],
            "--client-cert",
        ),
        (&explain, &["--cacert", "a"], "--addr"),
        (&explain, &["--tls"], "--addr"),
    ] {
        let ended = run(&[&asked[..], more].concat(), &[]);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(
            ended.stderr.contains("required") && ended.stderr.contains(missing),
            "{ended:?}"
        );
    }
}

/// Uses the library: one process of `hit` ends too quickly for a service to restart meanwhile.
#[tokio::test]
async fn a_restarted_service_is_reconnected() {
    let secret = secret(&Authority::new("tollgate"), &[NAME]);
    let tls = ClientTls {
        files: ClientFiles {
            ca_bundle: Some(secret.path("ca.crt")),
            identity: None,
            ca_setting: "the test",
        },
        name: Some(NAME.to_owned()),
    };
    let entries = [("k".to_owned(), "a".to_owned())];
    let question = || check_request("d", [&entries[..]], (1, false));
    for (mut running, tls) in [
        (serve(&secret, None), Some(tls)),
        (Tollgate::start_restartable(RULES, &[]), None),
    ] {
        let address = running.grpc.to_string();
        let mut client = RateLimitClient::connect(&address, tls, PATIENCE)
            .await
            .unwrap();
        let answer = client.ask(question()).await.unwrap();
        assert_eq!(answer.overall_code(), Code::Ok);
        running.signal("KILL");
        running.wait();
        client.ask(question()).await.unwrap_err();
        running.start_again();
        // A broken connection may be noticed only by a request.
        let mut asked = client.ask(question()).await;
        if asked.is_err() {
            asked = client.ask(question()).await;
        }
        assert_eq!(asked.unwrap().statuses[0].limit_remaining, 999);
    }
}
