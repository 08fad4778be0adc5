//! Malformed messages, random bytes and connection floods: other clients are still served and the
//! process survives.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, until};
use tollgate_test_support::tollgate_process::Tollgate;

const RULES: &str =
    "{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 100000}}]}";

/// RateLimitRequest { domain: "d", descriptors: [{ entries: [{ key: "k", value: "v" }] }] }
const MESSAGE: &[u8] = b"\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01v";

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Sends one gRPC call with the `h2` crate; returns its grpc-status, or none if the call was cut
/// off.
fn call(
    address: SocketAddr,
    headers: &[(&'static str, &'static str)],
    body: Vec<u8>,
) -> Option<u32> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let call = async {
        let stream = tokio::net::TcpStream::connect(address).await.ok()?;
        let (mut client, connection) = h2::client::handshake(stream).await.ok()?;
        tokio::spawn(connection);
        let mut request = http::Request::post(format!("http://{address}{PATH}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (response, mut sending) = client.send_request(request.body(()).unwrap(), false).ok()?;
        sending.send_data(body.into(), true).ok()?;
        let mut response = response.await.ok()?;
        let status =
            |headers: &http::HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
        if let Some(status) = status(response.headers()) {
            return Some(status);
        }
        while let Some(part) = response.body_mut().data().await {
            let part = part.ok()?;
            response
                .body_mut()
                .flow_control()
                .release_capacity(part.len())
                .ok()?;
        }
        status(&response.body_mut().trailers().await.ok()??)
    };
    let within = async { tokio::time::timeout(PATIENCE, call).await };
    runtime
        .block_on(within)
        .expect("an answer or an end in time")
}

fn framed(compressed: u8, length: u32, message: &[u8]) -> Vec<u8> {
    [&[compressed], length.to_be_bytes().as_slice(), message].concat()
}

fn good() -> Vec<u8> {
    framed(0, u32::try_from(MESSAGE.len()).unwrap(), MESSAGE)
}

#[track_caller]
fn still_answers(running: &mut Tollgate) {
    assert!(running.running(), "it ended: {}", running.said());
    assert_eq!(call(running.grpc, &[], good()), Some(0));
    assert_eq!(
        http(running.http, "GET", "/healthcheck", ""),
        (200, "OK".to_owned())
    );
    assert_eq!(http(running.admin, "GET", "/", "").0, 200);
    let said = running.said();
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn malformed_messages_are_rejected_one_by_one() {
    let mut running = Tollgate::start(RULES, &[]);
    let mut bodies: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        framed(0, 100, MESSAGE),
        framed(1, u32::try_from(MESSAGE.len()).unwrap(), MESSAGE),
        framed(7, 3, b"abc"),
        // Lengths that exceed the message, and unterminated tags.
        framed(0, 7, b"\x12\xff\xff\xff\xff\xff\x0f"),
        framed(0, 12, &[0xff; 12]),
    ];
    // Every prefix of a valid message.
    bodies.extend((0..good().len()).map(|end| good()[..end].to_vec()));
    // Random bytes from a fixed seed.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for length in 0..60_u32 {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                random.to_be_bytes()[0]
            })
            .collect();
        bodies.push(framed(0, length, &bytes));
    }
    for body in bodies {
        // Some random bytes are valid messages; none may succeed without a domain and a descriptor.
        let status = call(running.grpc, &[], body.clone());
        assert_ne!(status, Some(0), "{body:?}");
    }
    // A message that declares 4 GiB is answered at once: over limit, since Envoy lets requests pass
    // on an error.
    assert_eq!(
        call(running.grpc, &[], framed(0, u32::MAX, MESSAGE)),
        Some(0)
    );
    assert_eq!(
        running.metric("tollgate_excess_total{bound=\"message_size\"}"),
        1
    );
    let truncated_gzip = framed(1, 4, b"\x1f\x8b\x08\x00");
    let gzip = [("grpc-encoding", "gzip")];
    assert_eq!(call(running.grpc, &gzip, truncated_gzip), Some(13));
    for timeout in ["", "x", "999999999999m", "-1S"] {
        let answered = call(running.grpc, &[("grpc-timeout", timeout)], good());
        assert_eq!(answered, Some(13), "{timeout:?}");
    }
    still_answers(&mut running);
}

#[test]
fn random_bytes_on_each_port_do_not_disturb_other_clients() {
    let mut running = Tollgate::start(RULES, &[]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    let mut thrown: Vec<Vec<u8>> = vec![
        b"\0".to_vec(),
        vec![0xff; 4096],
        b"GET / HTTP/1.1\r\n".to_vec(),
        b"GET /json HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n".to_vec(),
        b"POST /json HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n"
            .to_vec(),
        [preface, &[0xff; 64]].concat(),
        // A frame that declares 16 MiB.
        [preface, b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"].concat(),
        // SETTINGS on a stream, DATA on stream 0.
        [preface, b"\0\0\0\x04\0\0\0\0\x05", b"\0\0\0\0\0\0\0\0\0"].concat(),
    ];
    let header = [b"GET / HTTP/1.1\r\nx: ".as_slice(), &b"a".repeat(1 << 20)].concat();
    thrown.push(header);
    for address in [running.grpc, running.http, running.admin] {
        for bytes in &thrown {
            let mut stream = TcpStream::connect(address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            // The server may close before everything is written.
            let _ = stream.write_all(bytes);
            let _ = stream.read(&mut [0; 64]);
        }
    }
    still_answers(&mut running);
}

#[test]
fn ten_thousand_idle_connections_do_not_disturb_other_clients() {
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let mut running = Tollgate::start(RULES, &[]);
    let mut left = Vec::new();
    for thousand in 1..=10_u64 {
        left.extend((0..1_000).map(|_| TcpStream::connect(running.grpc).expect("a connection")));
        still_answers(&mut running);
        assert!(
            running.metric("tollgate_connections_accepted_total{port=\"grpc\"}")
                >= thousand * 1_000
        );
    }
    drop(left);
    until("the connections are closed", || {
        running.metric("tollgate_connections{port=\"grpc\"}") < 10
    });
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once_and_counted() {
    let mut running = Tollgate::start(RULES, &["--grpc-connections-max", "3"]);
    let held: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(running.grpc).unwrap())
        .collect();
    let open = "tollgate_connections{port=\"grpc\"}";
    until("three connections are open", || running.metric(open) >= 3);
    let mut refused = TcpStream::connect(running.grpc).unwrap();
    refused.set_read_timeout(Some(PATIENCE)).unwrap();
    let ended = refused.read(&mut [0; 1]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let refusals = "tollgate_connections_refused_total{port=\"grpc\"}";
    until("the refusal is counted", || running.metric(refusals) >= 1);
    drop(held);
    until("all are closed", || running.metric(open) == 0);
    still_answers(&mut running);
}

#[test]
fn connections_with_an_incomplete_preface_are_closed() {
    let mut running = Tollgate::start(RULES, &["--grpc-connections-max", "8"]);
    let stopped: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(running.grpc).unwrap();
            stream.write_all(b"PRI * HTTP/2.0\r\n").unwrap();
            stream
        })
        .collect();
    let accepted = "tollgate_connections_accepted_total{port=\"grpc\"}";
    until("all are accepted", || running.metric(accepted) == 8);
    // No other client can connect until they are closed, after the preface timeout.
    let open = "tollgate_connections{port=\"grpc\"}";
    until("all are closed", || running.metric(open) == 0);
    still_answers(&mut running);
    drop(stopped);
}
