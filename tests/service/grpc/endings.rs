//! How connections end: by age, by shutdown, by the client, with calls in flight.
//!
//! Connections have a short maximum age, and tests hold back the bodies of calls. Tests wait until
//! a counter shows an event, never for a time.
//!
//! What it deliberately does not do: exhaust a server (`hostile`).

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::{PATIENCE, until_async};

use super::hostile::{DATA, SETTINGS, frame, head};
use super::raw::{Raw, call, question};
use super::{left, one, service};

use crate::service::flags;

/// Waits until the port is closed.
async fn no_longer_listens(to: SocketAddr) {
    let closed = async || TcpStream::connect(to).await.is_err();
    until_async("the port is closed", closed).await;
}

fn open(service: &Service) -> u64 {
    service.metric("tollgate_connections{port=\"grpc\"}")
}

#[tokio::test]
async fn an_aged_connection_sends_goaway_and_finishes_open_calls() {
    // The age passes in real time; the calls below are opened within it.
    let service = service(&["--grpc-max-connection-age", "3s"]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let body = question(&one("x", 1));
    assert_eq!(raw.ask(&one("x", 1)).await.left(), 999_999);
    let mut late = Vec::new();
    for _ in 0..3 {
        late.push(raw.open(call().body(()).unwrap()).await);
    }
    let aged = "tollgate_connections_aged_total";
    until_async("it ages", async || service.metric(aged) > 0).await;
    // GOAWAY has arrived when no new call is possible.
    let refuses = async || {
        raw.send.clone().ready().await.is_err()
            || raw
                .send
                .send_request(call().body(()).unwrap(), true)
                .is_err()
    };
    until_async("GOAWAY arrives", refuses).await;
    for call in late {
        assert_eq!(call.end(&body).await.grpc_status(), Some("0"));
    }
    // The connection ends without an error.
    timeout(PATIENCE, &mut raw.connection)
        .await
        .expect("in time")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn an_aged_connection_is_closed_when_its_grace_is_over() {
    let ages = flags("--grpc-max-connection-age 2s --grpc-max-connection-age-grace 100ms");
    let service = service(&ages).await;
    let mut raw = Raw::connect(service.grpc).await;
    let late = raw.open(call().body(()).unwrap()).await;
    // Its body is never sent.
    let seen = late.seen().await;
    assert!(seen.error.is_some(), "{seen:?}");
    let _ = timeout(PATIENCE, &mut raw.connection)
        .await
        .expect("in time");
}

#[tokio::test]
async fn shutdown_answers_open_calls() {
    let service = service(&[]).await;
    let (grpc, metrics) = (service.grpc, std::sync::Arc::clone(&service.metrics));
    let http = service.http;
    let mut raw = Raw::connect(grpc).await;
    assert_eq!(raw.ask(&one("x", 1)).await.left(), 999_999);
    // A half-sent request at the HTTP port: its answer is the last one.
    let json = r#"{"domain":"d","descriptors":[{"entries":[{"key":"many","value":"x"}]}]}"#;
    let mut asking = TcpStream::connect(http).await.unwrap();
    let head = format!(
        "POST /json HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{}",
        json.len(),
        &json[..5]
    );
    asking.write_all(head.as_bytes()).await.unwrap();
    let first = raw.open(call().body(()).unwrap()).await;
    let mut second = raw.open(call().body(()).unwrap()).await;
    let body = question(&one("x", 1));
    second.more(&body[..9]);
    let third = raw.open(call().body(()).unwrap()).await;
    let open = || {
        let text = metrics.render().unwrap();
        text.contains("tollgate_connections{port=\"http\"} 1")
    };
    until_async("the other port has it", async || open()).await;
    let stopping = tokio::spawn(service.stop());
    // The shutdown has begun.
    no_longer_listens(grpc).await;
    assert_eq!(second.end(&body[9..]).await.left(), 999_998);
    assert_eq!(first.end(&body).await.left(), 999_997);
    assert!(!stopping.is_finished(), "a call is in flight");
    assert_eq!(third.end(&body).await.left(), 999_996);
    timeout(PATIENCE, &mut raw.connection)
        .await
        .expect("in time")
        .unwrap()
        .unwrap();
    // Once gRPC has ended, the HTTP port stops listening as well; its open request is still served.
    let gone = || {
        metrics
            .render()
            .unwrap()
            .contains("tollgate_connections{port=\"grpc\"} 0")
    };
    until_async("gRPC is over", async || gone()).await;
    no_longer_listens(http).await;
    asking.write_all(&json.as_bytes()[5..]).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, asking.read_to_string(&mut answer))
        .await
        .expect("in time")
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("999995"), "{answer}");
    timeout(PATIENCE, stopping)
        .await
        .expect("in time")
        .unwrap()
        .unwrap();
}

/// The bytes that a client sends for this many concurrent calls.
fn bytes_of(calls: u32) -> Vec<u8> {
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    all.extend(frame(SETTINGS, 0, 0, &[]));
    for call in 0..calls {
        let stream = call * 2 + 1;
        all.extend(head(stream));
        all.extend(frame(DATA, 1, stream, &question(&one("gone", 1))));
    }
    all
}

#[tokio::test]
async fn a_closed_connection_releases_its_queue_slots() {
    let bytes = bytes_of(20);
    let mut service = service(&[]).await;
    for round in 0..200_usize {
        let mut stream = TcpStream::connect(service.grpc).await.unwrap();
        stream.set_nodelay(true).unwrap();
        // In two parts, so that the connection ends at any point of the work.
        let cut = (round * bytes.len() / 150).min(bytes.len());
        stream.write_all(&bytes[..cut]).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(&bytes[cut..]).await.unwrap();
        if round % 2 == 0 {
            // A TCP reset, not a FIN.
            stream.set_zero_linger().unwrap();
        }
    }
    // Only the test's connection is left.
    until_async("they have all gone", async || open(&service) == 1).await;
    let mailboxes = || {
        let text = service.metrics.render().unwrap();
        text.lines()
            .filter(|line| line.starts_with("tollgate_mailbox_checks{"))
            .all(|line| line.ends_with(" 0"))
    };
    until_async("the queue is empty again", async || mailboxes()).await;
    assert!(left(&mut service, "gone").await >= 1_000_000 - 200 * 20);
    assert_eq!(
        service.ask(one("x", 1)).await.statuses[0].limit_remaining,
        999_999
    );
}

#[tokio::test]
async fn a_silent_connection_gets_keepalive_pings() {
    let service = service(&["--keepalive-interval", "50ms"]).await;
    // Frames by hand: a preface, SETTINGS, and then silence.
    let mut stream = TcpStream::connect(service.grpc).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    stream.write_all(preface).await.unwrap();
    // Connected earlier, so it gets as many PINGs, and its library answers them.
    let mut raw = Raw::connect(service.grpc).await;
    let pinged = async {
        let mut asked = 0;
        while asked < 5 {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut rest = vec![0; length as usize];
            stream.read_exact(&mut rest).await.unwrap();
            if head[3] == 6 && head[4] == 0 {
                asked += 1;
                let answer = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &rest].concat();
                stream.write_all(&answer).await.unwrap();
            }
        }
    };
    timeout(PATIENCE, pinged).await.expect("in time");
    // A client that answers PINGs stays connected.
    assert_eq!(raw.ask(&one("x", 1)).await.left(), 999_999);
}
