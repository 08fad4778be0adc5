//! TLS on the gRPC port: accepted clients, counters of failed handshakes, reloaded certificates.

use std::io::Write as _;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_test_support::certificates::{Authority, Leaf, Secret, Validity};
use tollgate_test_support::child_process::run_to_end;
use tollgate_test_support::grpc_client::{Code, RateLimitServiceClient, descriptor, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, until};
use tollgate_test_support::tls_client::TlsClient;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};
use tonic::transport::Channel;

use crate::gateway::RULES;

/// Clients that support one version only.
const ONE_VERSION: [&[&rustls::SupportedProtocolVersion]; 2] =
    [&[&rustls::version::TLS13], &[&rustls::version::TLS12]];

/// The name of a client in a service mesh.
const MESH_NAME: &str = "spiffe://cluster.local/ns/edge/sa/envoy";

/// Number of concurrent clients.
const MANY: u64 = 100;

/// More sessions than rustls remembers by default.
const SESSIONS: usize = 300;

/// Arguments for TLS with the certificates in a secret.
fn arguments(secret: &Secret) -> Vec<String> {
    let named = [
        ("--grpc-server-use-tls", "true".to_owned()),
        ("--grpc-server-tls-cert", secret.file("tls.crt")),
        ("--grpc-server-tls-key", secret.file("tls.key")),
        ("--log-level", "info".to_owned()),
        // Longer than a handshake takes on a busy machine.
        ("--tls-handshake-timeout", "60s".to_owned()),
    ];
    let pairs = named.into_iter();
    pairs
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
}

fn start(arguments: &[String], more: &[&str]) -> Tollgate {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Tollgate::start(RULES, &[&arguments[..], more].concat())
}

/// Sends one request on a channel.
async fn ask(channel: Channel) -> Result<Code, String> {
    let mut client = RateLimitServiceClient::new(channel);
    let asked = request("d", vec![descriptor(&[("k", "a")])]);
    match client.should_rate_limit(asked).await {
        Ok(answer) => Ok(Code::try_from(answer.into_inner().overall_code).unwrap()),
        Err(status) => Err(format!("{status:?}")),
    }
}

/// Connects and sends one request.
async fn try_to_ask(client: &TlsClient, tollgate: &Tollgate) -> Result<Code, String> {
    ask(client.channel(tollgate.grpc).await?).await
}

/// Number of handshakes that failed for this reason.
fn failures(tollgate: &Tollgate, reason: &str) -> u64 {
    tollgate.metric(&format!(
        "tollgate_tls_handshake_failures_total{{port=\"grpc\",reason=\"{reason}\"}}"
    ))
}

fn wait_for_failures(tollgate: &Tollgate, reason: &str, count: u64) {
    until(reason, || {
        if failures(tollgate, reason) >= count {
            Ok(())
        } else {
            Err(tollgate.get("/metrics"))
        }
    });
    assert_eq!(failures(tollgate, reason), count, "{reason}");
}

/// Asserts that a handshake fails and is counted once under this reason.
async fn refused(client: &TlsClient, tollgate: &Tollgate, reason: &str) {
    let before = failures(tollgate, reason);
    let asked = try_to_ask(client, tollgate).await;
    assert!(asked.is_err(), "{reason}: {asked:?}");
    wait_for_failures(tollgate, reason, before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_1_2_and_1_3_with_http2_only() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs(&["localhost"]), &authority.pem);
    let tollgate = start(&arguments(&secret), &[]);
    let client = TlsClient::new(&authority, None);
    for versions in ONE_VERSION {
        let client = TlsClient {
            versions,
            ..client.clone()
        };
        assert_eq!(try_to_ask(&client, &tollgate).await, Ok(Code::Ok));
    }
    let done = tollgate.metric("tollgate_tls_handshakes_total{port=\"grpc\"}");
    assert_eq!(done, 2);
    let other = TlsClient {
        protocol: "http/1.1",
        ..client.clone()
    };
    refused(&other, &tollgate, "protocol").await;
    // A client that does not trust the server sends an alert.
    let disbelieving = TlsClient::new(&Authority::new("another"), None);
    refused(&disbelieving, &tollgate, "refused_by_client").await;
    // A client without TLS sees the connection end.
    let mut plain = std::net::TcpStream::connect(tollgate.grpc).unwrap();
    plain
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    wait_for_failures(&tollgate, "not_tls", 1);
    drop(std::net::TcpStream::connect(tollgate.grpc).unwrap());
    wait_for_failures(&tollgate, "closed", 1);
    let expires_at =
        tollgate.metric("tollgate_tls_certificate_expiry_timestamp_seconds{port=\"grpc\"}");
    let started = tollgate.metric("process_start_time_seconds");
    let left_days = expires_at.saturating_sub(started) / 86_400;
    assert!(left_days > 365, "{left_days}");
    // The HTTP port stays plaintext, and /json answers, since gRPC needs no client certificates.
    assert_eq!(http(tollgate.http, "GET", "/healthcheck", "").0, 200);
    assert_eq!(http(tollgate.http, "GET", "/json", "").0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_client_is_disconnected_by_a_timeout() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs(&["localhost"]), &authority.pem);
    let mut arguments = arguments(&secret);
    *arguments.last_mut().unwrap() = "200ms".to_owned();
    let tollgate = start(&arguments, &[]);
    let mut silent = TcpStream::connect(tollgate.grpc).await.unwrap();
    let read = timeout(PATIENCE, async { silent.read(&mut [0; 8]).await });
    assert_eq!(read.await.expect("it is closed").unwrap_or(0), 0);
    wait_for_failures(&tollgate, "too_slow", 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_need_an_allowed_name() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs(&["localhost"]), &authority.pem);
    let ca = secret.file("ca.crt");
    let names = [
        "--grpc-client-tls-cacert",
        &ca,
        "--grpc-client-tls-san",
        &format!("envoy.edge.svc,10.1.2.3,second.edge.svc,{MESH_NAME}"),
    ];
    let tollgate = start(&arguments(&secret), &names);
    let client = |signed: &Leaf| TlsClient::new(&authority, Some(signed));
    for name in [
        "envoy.edge.svc",
        "*.edge.svc",
        "10.1.2.3",
        "second.edge.svc",
        MESH_NAME,
    ] {
        let other = "spiffe://cluster.local/another";
        let good = client(&authority.signs(&["other.example", other, name]));
        assert_eq!(try_to_ask(&good, &tollgate).await, Ok(Code::Ok), "{name}");
    }
    let rsa = client(&authority.signs_rsa(&["envoy.edge.svc"]));
    assert_eq!(try_to_ask(&rsa, &tollgate).await, Ok(Code::Ok));
    let nobody = TlsClient::new(&authority, None);
    refused(&nobody, &tollgate, "no_certificate").await;
    for (name, count) in [
        ("envoy.edge.svc.example", 1),
        ("edge.svc", 2),
        ("10.1.2.4", 3),
        ("spiffe://cluster.local/ns/edge/sa/other", 4),
    ] {
        let other = client(&authority.signs(&[name]));
        refused(&other, &tollgate, "certificate_name").await;
        assert_eq!(failures(&tollgate, "certificate_name"), count);
    }
    let signed = Authority::new("an authority").signs(&["envoy.edge.svc"]);
    refused(&client(&signed), &tollgate, "certificate_issuer").await;
    for good in [Validity::Expired, Validity::NotYetValid] {
        let signed = authority.signs_for(&["envoy.edge.svc"], good);
        refused(&client(&signed), &tollgate, "certificate_time").await;
    }
    // The HTTP port does not authenticate clients, so /json is off.
    assert_eq!(http(tollgate.http, "GET", "/healthcheck", "").0, 200);
    assert_eq!(http(tollgate.http, "GET", "/json", "").0, 404);
}

#[test]
fn json_beside_client_certificates_is_opt_in() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs(&["localhost"]), &authority.pem);
    let ca = secret.file("ca.crt");
    let more = ["--grpc-client-tls-cacert", &ca, "--json", "true"];
    let tollgate = start(&arguments(&secret), &more);
    assert_eq!(http(tollgate.http, "GET", "/json", "").0, 400);
}

/// The certificate that a new connection is presented.
async fn shown(client: &TlsClient, tollgate: &Tollgate) -> Vec<u8> {
    let stream = client.connect(tollgate.grpc).await.unwrap();
    let (_, session) = stream.get_ref();
    session.peer_certificates().unwrap()[0].to_vec()
}

fn der(signed: &Leaf) -> Vec<u8> {
    let der = CertificateDer::from_pem_slice(signed.certificate.as_bytes());
    der.unwrap().to_vec()
}

fn loads(tollgate: &Tollgate, result: &str) -> u64 {
    tollgate.metric(&format!(
        "tollgate_tls_certificate_loads_total{{port=\"grpc\",result=\"{result}\"}}"
    ))
}

/// Waits until `count` reloads had this result.
fn wait_for_loads(tollgate: &Tollgate, result: &str, count: u64) {
    until(result, || {
        if loads(tollgate, result) >= count {
            Ok(())
        } else {
            Err(tollgate.said())
        }
    });
    assert_eq!(
        loads(tollgate, result),
        count,
        "{result}: {}",
        tollgate.said()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_reloaded_and_invalid_ones_rejected() {
    let authority = Authority::new("an authority");
    let first = authority.signs(&["localhost"]);
    let mut secret = Secret::new(&first, &authority.pem);
    let mut clients = Secret::new(&first, &authority.pem);
    let ca = clients.file("ca.crt");
    let more = ["--grpc-client-tls-cacert", &ca];
    let tollgate = start(&arguments(&secret), &more);
    let client = TlsClient::new(&authority, Some(&authority.signs(&["envoy"])));
    let early = client.channel(tollgate.grpc).await.unwrap();
    assert_eq!(shown(&client, &tollgate).await, der(&first));
    let second = authority.signs(&["localhost"]);
    let half = &second.certificate[..second.certificate.len() / 2];
    let expired = authority.signs_for(&["localhost"], Validity::Expired);
    let future = authority.signs_for(&["localhost"], Validity::NotYetValid);
    let bad = [
        (
            half,
            second.key.as_str(),
            "invalid PEM (its end is missing)",
        ),
        ("", &second.key, "no certificate in this file"),
        (
            &second.certificate,
            &second.key[..60],
            "no valid private key",
        ),
        (
            &second.certificate,
            &first.key,
            "does not match the certificate",
        ),
        (&expired.certificate, &expired.key, "have it renewed"),
        (
            &future.certificate,
            &future.key,
            "look at this machine's clock",
        ),
    ];
    let still = async |words: &str, count| {
        wait_for_loads(&tollgate, "error", count);
        assert_eq!(shown(&client, &tollgate).await, der(&first), "{words}");
        until(words, || {
            let said = tollgate.said();
            let line = said.lines().last().unwrap_or_default();
            if line.contains(words) && line.contains("the old ones stay") {
                Ok(())
            } else {
                Err(line.to_owned())
            }
        });
    };
    for (count, (certificate, key, words)) in (1..).zip(bad) {
        secret.exchange(certificate, key, &authority.pem);
        still(words, count).await;
    }
    assert_eq!(loads(&tollgate, "success"), 0);
    secret.exchange(&first.certificate, &first.key, &authority.pem);
    wait_for_loads(&tollgate, "success", 1);
    clients.exchange("", "", "-----BEGIN CERT");
    still("its first line is cut off", 7).await;
    clients.exchange("", "", &authority.pem);
    wait_for_loads(&tollgate, "success", 2);
    // New connections get the new certificate; open ones stay.
    secret.exchange(&second.certificate, &second.key, &authority.pem);
    wait_for_loads(&tollgate, "success", 3);
    assert_eq!(shown(&client, &tollgate).await, der(&second));
    assert_eq!(ask(early.clone()).await, Ok(Code::Ok));
    // Another authority for clients counts as well.
    let other = Authority::new("another authority");
    clients.exchange("", "", &other.pem);
    wait_for_loads(&tollgate, "success", 4);
    refused(&client, &tollgate, "certificate_issuer").await;
    let theirs = TlsClient::new(&authority, Some(&other.signs(&["envoy"])));
    assert_eq!(try_to_ask(&theirs, &tollgate).await, Ok(Code::Ok));
    assert_eq!(ask(early).await, Ok(Code::Ok));
    assert_eq!(loads(&tollgate, "error"), 7, "each was logged once");
    // The default log has no info lines: the end of a failure is at the failure's level.
    let recovered = "WARN tollgate::app::tls: a new certificate is in use port=\"grpc\"";
    until("each recovery is logged", || match tollgate.said() {
        said if said.matches(recovered).count() == 2 => Ok(()),
        said => Err(said),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_handshakes_are_bounded() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs(&["localhost"]), &authority.pem);
    let tollgate = start(&arguments(&secret), &["--tls-handshakes-max", "2"]);
    let under_way = "tollgate_tls_handshakes_in_flight{port=\"grpc\"}";
    let silent = [(); 2].map(|()| std::net::TcpStream::connect(tollgate.grpc).unwrap());
    until("both are in progress", || tollgate.metric(under_way) == 2);
    let client = TlsClient::new(&authority, None);
    refused(&client, &tollgate, "too_many").await;
    drop(silent);
    until("both have ended", || tollgate.metric(under_way) == 0);
    assert_eq!(try_to_ask(&client, &tollgate).await, Ok(Code::Ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_concurrent_handshakes_all_complete() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs_rsa(&["localhost"]), &authority.pem);
    let tollgate = start(&arguments(&secret), &[]);
    let client = TlsClient::new(&authority, None);
    let to = tollgate.grpc;
    // Some send a ClientHello and nothing more; they must not delay the others.
    let stalled: Vec<_> = (0..8)
        .map(|_| {
            let name = ServerName::try_from("localhost").unwrap();
            let mut session = rustls::ClientConnection::new(client.config(), name).unwrap();
            let mut stream = std::net::TcpStream::connect(to).unwrap();
            session.write_tls(&mut stream).unwrap();
            stream
        })
        .collect();
    let under_way = "tollgate_tls_handshakes_in_flight{port=\"grpc\"}";
    until("they are in progress", || tollgate.metric(under_way) == 8);
    let asking: Vec<_> = (0..MANY)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { ask(client.channel(to).await?).await })
        })
        .collect();
    for asked in asking {
        let asked = timeout(PATIENCE, asked)
            .await
            .expect("an answer in time")
            .unwrap();
        assert_eq!(asked, Ok(Code::Ok));
    }
    let done = tollgate.metric("tollgate_tls_handshakes_total{port=\"grpc\"}");
    assert_eq!(done, MANY);
    assert_eq!(tollgate.metric(under_way), 8);
    drop(stalled);
}

/// The nice value and the scheduling class of a thread of the service.
fn thread_of(tollgate: &Tollgate, name: &str) -> (i64, u32) {
    let tasks = format!("/proc/{}/task", tollgate.id());
    let tasks = std::fs::read_dir(tasks)
        .unwrap()
        .map(|task| task.unwrap().path());
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let task = tasks
        .into_iter()
        .find(|task| read(task.join("comm")).trim() == name)
        .expect("a thread of this name");
    let stat = read(task.join("stat"));
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<_> = rest.split(' ').collect();
    (fields[16].parse().unwrap(), fields[38].parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_stay_within_their_cpu_share() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs_rsa(&["localhost"]), &authority.pem);
    let more = ["--tls-handshakes-cpu-percent-max", "2"];
    let tollgate = start(&arguments(&secret), &more);
    let client = TlsClient::new(&authority, None);
    // SCHED_OTHER, and SCHED_IDLE.
    assert_eq!(thread_of(&tollgate, "handshakes"), (10, 0));
    assert_eq!(thread_of(&tollgate, "handshakes-busy"), (10, 0));
    assert_eq!(thread_of(&tollgate, "handshakes-idle").1, 5);
    let to = tollgate.grpc;
    let asking: Vec<_> = (0..12)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { ask(client.channel(to).await?).await })
        })
        .collect();
    for asked in asking {
        let asked = timeout(PATIENCE, asked)
            .await
            .expect("an answer in time")
            .unwrap();
        assert_eq!(asked, Ok(Code::Ok));
    }
    // How long each pause is: `src/net/handshake_pool.rs`.
    let paced = tollgate.metric("tollgate_tls_handshakes_paced_total{port=\"grpc\"}");
    assert!(paced > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_many_clients_are_resumed() {
    let authority = Authority::new("an authority");
    let secret = Secret::new(&authority.signs(&["localhost"]), &authority.pem);
    let share = ["--tls-handshakes-cpu-percent-max", "100"];
    let tollgate = start(&arguments(&secret), &share);
    let client = TlsClient::new(&authority, None);
    let come = async |config: &std::sync::Arc<rustls::ClientConfig>| {
        let stream = TcpStream::connect(tollgate.grpc).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::clone(config));
        let mut stream = connector.connect(name, stream).await.unwrap();
        // The session tickets arrive before the server's HTTP/2 preface.
        assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
        stream.get_ref().1.handshake_kind()
    };
    let configs: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let mut config = std::sync::Arc::unwrap_or_clone(client.config());
            config.resumption = rustls::client::Resumption::in_memory_sessions(8);
            std::sync::Arc::new(config)
        })
        .collect();
    for kind in [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed] {
        for config in &configs {
            assert_eq!(come(config).await, Some(kind));
        }
    }
}

#[test]
fn invalid_tls_settings_are_rejected_with_advice() {
    let authority = Authority::new("an authority");
    let signed = authority.signs(&["localhost"]);
    let secret = Secret::new(&signed, &authority.pem);
    let (certificate, key) = (secret.file("tls.crt"), secret.file("tls.key"));
    let ca = secret.file("ca.crt");
    let tls = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", certificate.as_str()),
    ];
    for (variables, words) in [
        (vec![tls[0]], "GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"),
        (
            vec![tls[0], tls[1], ("GRPC_SERVER_TLS_KEY", &ca)],
            "no valid private key",
        ),
        (
            vec![tls[0], tls[1], ("GRPC_SERVER_TLS_KEY", "/nowhere/key")],
            "/nowhere/key",
        ),
        (
            vec![("GRPC_CLIENT_TLS_CACERT", &ca)],
            "set GRPC_SERVER_USE_TLS=true",
        ),
        (
            vec![
                tls[0],
                tls[1],
                ("GRPC_SERVER_TLS_KEY", &key),
                ("GRPC_CLIENT_TLS_SAN", "envoy"),
            ],
            "set GRPC_CLIENT_TLS_CACERT",
        ),
        (
            vec![
                tls[0],
                tls[1],
                ("GRPC_SERVER_TLS_KEY", &key),
                ("GRPC_CLIENT_TLS_CACERT", &ca),
                ("GRPC_CLIENT_TLS_SAN", "spiffe:/edge/envoy"),
            ],
            "\"spiffe:/edge/envoy\" is neither a DNS name nor an address nor a URI",
        ),
    ] {
        let (code, said) = run_to_end(
            std::process::Command::new(tollgate_binary())
                .args(["serve", "examples/edge.yaml"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .args(["--grpc-port", "0", "--port", "0", "--debug-port", "0"])
                .args(["--grpc-host", "127.0.0.1", "--host", "127.0.0.1"])
                .env_clear()
                .envs(variables.iter().copied()),
        );
        assert_eq!(code, Some(1), "{words}: {said}");
        assert!(said.contains(words), "{words}: {said}");
    }
}
